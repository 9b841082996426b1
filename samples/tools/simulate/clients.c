/*
 * clients.c - the devices of a simulation as clients of one runtime, whose clock is the
 * simulation's.
 */
#include "simulation.h"

#include <dunlin/trainer_advanced.h>

#include <inttypes.h>
#include <memory/loop.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_A_PARAMETER 12 /* base, update and what is left of another base */
#define SPREAD_PART 24       /* of a period: the first check-ins come within so much */
#define DRAW_BEGIN 3
#define DRAW_WAITS 4

static int fail(const dunlin_error *error)
{
    return program_fail(&fleet_program, "%s", error->text);
}

const sim_moment *sim_client_moment(const sim_client *client)
{
    const simulation *sim = client->sim;
    return sim_moment_at(&sim->devices, client->device, sim->now_us);
}

/* ---- what a client is given ---- */

static int64_t wall_ms(void *ctx)
{
    return SIM_BEGIN_MS + ((const simulation *)ctx)->now_us / 1000;
}

static int64_t boot_ms(void *ctx)
{
    return ((const simulation *)ctx)->now_us / 1000;
}

static void sleep_ms(void *ctx, int64_t ms)
{
    ((simulation *)ctx)->now_us += ms * 1000;
}

static bool tell_conditions(void *ctx, dunlin_conditions *out)
{
    const sim_client *client = ctx;
    const sim_moment *moment = sim_client_moment(client);
    const bool has_power = sim_client_battery(client, client->sim->now_us) >=
                           (double)client->sim->devices.least_battery;
    out->is_charging = has_power && (moment->state & SIM_CHARGING) != 0;
    out->is_unmetered = has_power && (moment->state & SIM_UNMETERED) != 0;
    out->is_idle = has_power && (moment->state & SIM_IDLE) != 0;
    out->n_examples = client->visit->view.n;
    return true;
}

static bool take_event(void *ctx, const dunlin_event *event)
{
    sim_client *client = ctx;
    client->phase = event->phase;
    client->round = event->round;
    return true;
}

/* What the device has used for the round by the time that its work is done. */
static int32_t tell_metrics(void *ctx, uint64_t round, const dunlin_learner_metric **out_metrics)
{
    const sim_client *client = ctx;
    sim_visit *visit = client->visit;
    (void)round;
    visit->metric = (dunlin_learner_metric){.name = "device/energy_j",
                                            .value = client->used.compute_j + client->used.radio_j -
                                                     visit->begun_j};
    *out_metrics = &visit->metric;
    return 1;
}

/* ---- opening ---- */

static bool is_left_out(simulation *sim, const sim_device *device)
{
    if (sim_costs_find(&sim->costs, sim_most_memory(device)) < 0) {
        sim->left_out.memory++;
        return true;
    }
    if (device->storage_bytes < (uint64_t)sim->world->n_params * BYTES_A_PARAMETER) {
        sim->left_out.storage++;
        return true;
    }
    if (sim_ready_from_us(&sim->devices, device, 0) < 0) {
        sim->left_out.never_ready++;
        return true;
    }
    return false;
}

static void count_device(simulation *sim, const sim_device *device)
{
    sim->sums[device->class_index].n_devices++;
    sim->n_needs_planner += sim_most_memory(device) < sim->costs.none_bytes ? 1 : 0;
    for (int64_t hour = 0; hour < 24; hour++) {
        sim->ready_at[hour] +=
            sim_is_ready(&sim->devices, device, hour * sim->devices.period_us / 24) ? 1 : 0;
    }
}

static void fill_options(simulation *sim, sim_client *client, dunlin_client_options *options)
{
    const fleet_flags *flags = sim->flags;
    const fleet_server *server = sim->server;
    options->server_url = server->url;
    options->population = flags->population;
    options->signing_keys = server->signing_keys;
    options->n_signing_keys = server->n_signing_keys;
    options->budget_bytes = sim_most_memory(client->device);
    options->n_cores = client->device->n_cores;
    options->require_charging = (sim->devices.needs & SIM_CHARGING) != 0;
    options->require_unmetered = (sim->devices.needs & SIM_UNMETERED) != 0;
    options->require_idle = (sim->devices.needs & SIM_IDLE) != 0;
    options->conditions_fn = tell_conditions;
    options->conditions_ctx = client;
    options->event_fn = take_event;
    options->event_ctx = client;
    if (flags->dp == NULL && !flags->is_secagg) { /* which promise to tell nothing of a device */
        options->metrics_fn = tell_metrics;
        options->metrics_ctx = client;
    }
    options->checkpoint_ms = -1;
    options->model_keeping = DUNLIN_MODEL_KEEPING_NONE;
    options->retry_first_ms = flags->retry.first_ms;
    options->retry_most_ms = flags->retry.most_ms;
    options->retry_refused_first_ms = flags->retry_refused.first_ms;
    options->retry_refused_most_ms = flags->retry_refused.most_ms;
    options->sends_telemetry = flags->sends_telemetry;
    if (server->loop != NULL) {
        options->key_store = loop_keys();
    }
}

bool sim_client_examples(const sim_client *client, dunlin_dataset_view *out_view,
                         dunlin_source *out_source)
{
    const fleet_world *world = client->sim->world;
    int64_t n = 0;
    const int64_t n_parts = dunlin_partition_n_clients(world->partition);
    const int64_t *indices =
        dunlin_partition_indices(world->partition, client->index % n_parts, &n);
    *out_source = (dunlin_source)DUNLIN_SOURCE_INIT;
    return dunlin_dataset_subset(world->dataset, indices, n, out_view, out_source) == DUNLIN_OK;
}

static bool create_client(sim_client *client, sim_visit *visit)
{
    dunlin_error error = {0};
    dunlin_learner learner;
    char name[32];
    char token[32];
    dunlin_client_options options = DUNLIN_CLIENT_OPTIONS_INIT;
    sim_draw draw = sim_draw_begin(client->sim->flags->seed, (uint64_t)client->index,
                                   ((uint64_t)client->sequence << 8) + DRAW_WAITS);
    sim_learner_begin(&visit->learner, &learner);
    fill_options(client->sim, client, &options);
    (void)snprintf(name, sizeof name, "device-%" PRId64, client->index);
    (void)snprintf(token, sizeof token, "index:%" PRId64, client->index);
    options.name = name;
    options.enrolment_token = token;
    options.random_seed = sim_draw_bits(&draw) | 1;
    const dunlin_status status =
        dunlin_client_create(client->sim->runtime, &options, &learner, &visit->client, &error);
    return status == DUNLIN_OK || fail(&error) == EXIT_OK;
}

bool sim_visit_begin(sim_client *client)
{
    sim_visit *visit = calloc(1, sizeof *visit);
    if (visit == NULL) {
        return program_fail(&fleet_program, "no memory for a device") == EXIT_OK;
    }
    client->visit = visit;
    visit->begun_j = client->used.compute_j + client->used.radio_j;
    visit->learner.sim = client->sim;
    visit->learner.client = client;
    visit->learner.device = client->device;
    visit->learner.index = client->index;
    if (!sim_client_examples(client, &visit->view, &visit->learner.source)) {
        return program_fail(&fleet_program, "device %" PRId64 " has no examples", client->index) ==
               EXIT_OK;
    }
    return create_client(client, visit);
}

void sim_visit_end(sim_client *client)
{
    if (client->visit != NULL) {
        dunlin_client_destroy(client->visit->client);
        sim_learner_end(&client->visit->learner);
        free(client->visit);
        client->visit = NULL;
    }
}

bool sim_visit_pause(sim_client *client)
{
    sim_visit *visit = client->visit;
    visit->learner.is_paused = true;
    dunlin_client_destroy(visit->client);
    visit->learner.is_paused = false;
    visit->client = NULL;
    return true;
}

bool sim_visit_renew(sim_client *client)
{
    return create_client(client, client->visit);
}

bool sim_visit_resume(sim_client *client, double begun_j, const sim_progress *before)
{
    if (!sim_visit_begin(client)) {
        return false;
    }
    client->visit->begun_j = begun_j;
    client->visit->learner.before = *before;
    return true;
}

/* When a device comes first; nothing is made of it before. */
static void place_client(simulation *sim, int64_t index)
{
    sim_client *client = &sim->clients[index];
    sim_draw draw = sim_draw_begin(sim->flags->seed, (uint64_t)index, DRAW_BEGIN);
    client->sim = sim;
    client->index = index;
    client->device = &sim->devices.list[index];
    count_device(sim, client->device);
    client->is_left_out = is_left_out(sim, client->device);
    if (!client->is_left_out) {
        client->due_us = sim_ready_from_us(
            &sim->devices, client->device,
            (int64_t)(sim_draw_unit(&draw) * (double)sim->devices.period_us / SPREAD_PART));
        sim_events_push(sim, index);
    }
}

/* One pool for all budgets that have the same plan, with one trainer more for evaluations. */
static int open_pools(simulation *sim)
{
    dunlin_error error = {0};
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = sim->world->batch;
    options.momentum = (float)sim->flags->momentum;
    for (int32_t i = 0; i < sim->costs.n_rows; i++) {
        if (i > 0 && sim->costs.rows[i].planned_bytes == sim->costs.rows[i - 1].planned_bytes) {
            sim->pools[i] = sim->pools[i - 1];
            continue;
        }
        options.budget_bytes = sim->costs.rows[i].budget_bytes;
        if (dunlin_trainer_pool_create(sim->world->model, &options,
                                       (int32_t)sim->flags->n_threads + 1, &sim->pools[i],
                                       &error) != DUNLIN_OK) {
            return fail(&error);
        }
        sim->is_own_pool[i] = true;
    }
    return EXIT_OK;
}

static int open_runtime(simulation *sim)
{
    char folder[FLEET_PATH_BYTES + 8];
    dunlin_error error = {0};
    dunlin_runtime_options options = DUNLIN_RUNTIME_OPTIONS_INIT;
    loop *inner = sim->server->loop;
    (void)snprintf(folder, sizeof folder, "%s/store", sim->server->folder);
    options.store_folder = folder;
    if (inner != NULL) {
        options.transport = loop_transport(inner);
    } else {
        options.ca_file = sim->server->ca_file;
    }
    options.clock = (dunlin_clock){
        .ctx = sim, .wall_ms_fn = wall_ms, .boot_ms_fn = boot_ms, .sleep_fn = sleep_ms};
    dunlin_status status = dunlin_runtime_create(&options, &sim->runtime, &error);
    if (status == DUNLIN_OK && inner != NULL) {
        status = loop_relax(sim->runtime, sim->server->keeps, &error);
    } else if (status == DUNLIN_OK && sim->server->keeps) {
        status = loop_hold(sim->runtime, &error);
    }
    return status == DUNLIN_OK ? EXIT_OK : fail(&error);
}

int sim_clients_open(simulation *sim)
{
    sim->clients = calloc((size_t)sim->n_clients, sizeof *sim->clients);
    sim->heap = calloc((size_t)sim->n_clients, sizeof *sim->heap);
    sim->jobs = sim_jobs_start(sim->flags->n_threads);
    if (sim->clients == NULL || sim->heap == NULL || sim->jobs == NULL) {
        return program_fail(&fleet_program, "no memory for %" PRId64 " devices", sim->n_clients);
    }
    int status = open_pools(sim);
    status = status == EXIT_OK ? open_runtime(sim) : status;
    uint64_t bytes = 0;
    for (int64_t i = 0; status == EXIT_OK && i < sim->n_clients; i++) {
        place_client(sim, i);
        bytes += sizeof *sim->clients + sizeof *sim->heap + sizeof *sim->devices.list +
                 (uint64_t)sim->devices.list[i].n_moments * sizeof(sim_moment);
    }
    sim->totals.idle_client_bytes = bytes / (uint64_t)sim->n_clients;
    return status;
}

void sim_clients_close(simulation *sim)
{
    for (int64_t i = 0; sim->clients != NULL && i < sim->n_clients; i++) {
        sim_visit_end(&sim->clients[i]);
    }
    dunlin_runtime_destroy(sim->runtime);
    sim_jobs_stop(sim->jobs);
    for (int32_t i = 0; i < SIM_ROWS; i++) {
        if (sim->is_own_pool[i]) {
            dunlin_trainer_pool_destroy(sim->pools[i]);
        }
    }
    free(sim->clients);
    free(sim->heap);
}
