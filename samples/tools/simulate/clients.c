/*
 * clients.c - the devices of a simulation as clients of one runtime, whose clock is the
 * simulation's.
 */
#include "simulation.h"

#include <dunlin/trainer_advanced.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_A_PARAMETER 12 /* base, update and what is left of another base */
#define SPREAD_PART 24       /* of a period: the first check-ins come within so much */
#define DRAW_BEGIN 3

static int fail(const dunlin_error *error)
{
    return program_fail(&fleet_program, "%s", error->text);
}

const sim_moment *sim_client_moment(const sim_client *client)
{
    const simulation *sim = client->sim;
    return sim_moment_at(&sim->devices, client->learner.device, sim->now_us);
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
    const bool has_power = moment->battery >= client->sim->devices.least_battery;
    out->is_charging = has_power && (moment->state & SIM_CHARGING) != 0;
    out->is_unmetered = has_power && (moment->state & SIM_UNMETERED) != 0;
    out->is_idle = has_power && (moment->state & SIM_IDLE) != 0;
    out->n_examples = client->view.n;
    return true;
}

static bool take_event(void *ctx, const dunlin_event *event)
{
    sim_client *client = ctx;
    client->phase = event->phase;
    client->round = event->round;
    return true;
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
            sim_is_ready(&sim->devices, device, hour * 3600 * SIM_US_PER_S) ? 1 : 0;
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
    options->budget_bytes = sim_most_memory(client->learner.device);
    options->n_cores = client->learner.device->n_cores;
    options->require_charging = (sim->devices.needs & SIM_CHARGING) != 0;
    options->require_unmetered = (sim->devices.needs & SIM_UNMETERED) != 0;
    options->require_idle = (sim->devices.needs & SIM_IDLE) != 0;
    options->conditions_fn = tell_conditions;
    options->conditions_ctx = client;
    options->event_fn = take_event;
    options->event_ctx = client;
    options->checkpoint_ms = -1;
    options->model_keeping = DUNLIN_MODEL_KEEPING_NONE;
    options->retry_first_ms = flags->retry.first_ms;
    options->retry_most_ms = flags->retry.most_ms;
    options->retry_refused_first_ms = flags->retry_refused.first_ms;
    options->retry_refused_most_ms = flags->retry_refused.most_ms;
    options->sends_telemetry = flags->sends_telemetry;
}

static int open_client(simulation *sim, int64_t index)
{
    sim_client *client = &sim->clients[index];
    const sim_device *device = &sim->devices.list[index];
    int64_t n = 0;
    const int64_t *indices = dunlin_partition_indices(sim->world->partition, index, &n);
    dunlin_error error = {0};
    dunlin_learner learner;
    char name[32];
    char token[32];
    client->sim = sim;
    client->learner.sim = sim;
    client->learner.device = device;
    client->learner.index = index;
    client->learner.source = (dunlin_source)DUNLIN_SOURCE_INIT;
    if (dunlin_dataset_subset(sim->world->dataset, indices, n, &client->view,
                              &client->learner.source) != DUNLIN_OK) {
        return program_fail(&fleet_program, "device %" PRId64 " has no examples", index);
    }
    count_device(sim, device);
    if (is_left_out(sim, device)) {
        return EXIT_OK;
    }
    sim_learner_begin(&client->learner, &learner);
    dunlin_client_options options = DUNLIN_CLIENT_OPTIONS_INIT;
    sim_draw draw = sim_draw_begin(sim->flags->seed, (uint64_t)index, DRAW_BEGIN);
    fill_options(sim, client, &options);
    (void)snprintf(name, sizeof name, "device-%" PRId64, index);
    (void)snprintf(token, sizeof token, "index:%" PRId64, index);
    options.name = name;
    options.enrolment_token = token;
    options.random_seed = sim_draw_bits(&draw) | 1;
    if (dunlin_client_create(sim->runtime, &options, &learner, &client->client, &error) !=
        DUNLIN_OK) {
        return fail(&error);
    }
    client->due_us = sim_ready_from_us(
        &sim->devices, device,
        (int64_t)(sim_draw_unit(&draw) * (double)sim->devices.period_us / SPREAD_PART));
    sim_events_push(sim, index);
    return EXIT_OK;
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

/* Hooks that count. */
static void *count_alloc(void *ctx, size_t bytes, size_t align)
{
    simulation *sim = ctx;
    void *memory = NULL;
    if (posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, bytes) != 0) {
        return NULL;
    }
    (void)atomic_fetch_add(&sim->heap_bytes, (long long)bytes);
    return memory;
}

static void count_free(void *ctx, void *memory, size_t bytes)
{
    simulation *sim = ctx;
    (void)atomic_fetch_sub(&sim->heap_bytes, (long long)bytes);
    free(memory);
}

static int open_runtime(simulation *sim)
{
    char folder[FLEET_PATH_BYTES + 8];
    dunlin_error error = {0};
    dunlin_runtime_options options = DUNLIN_RUNTIME_OPTIONS_INIT;
    (void)snprintf(folder, sizeof folder, "%s/store", sim->server->folder);
    options.store_folder = folder;
    options.ca_file = sim->server->ca_file;
    options.clock = (dunlin_clock){
        .ctx = sim, .wall_ms_fn = wall_ms, .boot_ms_fn = boot_ms, .sleep_fn = sleep_ms};
    options.alloc = (dunlin_alloc){.ctx = sim, .alloc_fn = count_alloc, .free_fn = count_free};
    return dunlin_runtime_create(&options, &sim->runtime, &error) == DUNLIN_OK ? EXIT_OK
                                                                               : fail(&error);
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
    const long long before_bytes = atomic_load(&sim->heap_bytes);
    for (int64_t i = 0; status == EXIT_OK && i < sim->n_clients; i++) {
        status = open_client(sim, i);
    }
    sim->totals.idle_client_bytes =
        (uint64_t)(atomic_load(&sim->heap_bytes) - before_bytes) / (uint64_t)sim->n_clients;
    return status;
}

void sim_clients_close(simulation *sim)
{
    for (int64_t i = 0; sim->clients != NULL && i < sim->n_clients; i++) {
        dunlin_client_destroy(sim->clients[i].client);
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
