/*
 * steps.c - simulated time: the earliest event, one step of its client, and when that client is due
 * again.
 *
 * Invariant: the server's clock is never behind the client that is worked on, nor ahead of any
 * that is still due; what a step costs in real time shows nowhere.
 */
#include "simulation.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TICK_US SIM_US_PER_S          /* a deadline is seen within so much */
#define AWAY_US (3600 * SIM_US_PER_S) /* an app that was ended is started again */
#define LOOK_MS 500.0                 /* of real time, between two looks at the server */

const char *sim_cause_name(sim_cause cause)
{
    static const char *const NAMES[SIM_CAUSES] = {"late",   "surplus", "conditions", "failure",
                                                  "memory", "refused", "error"};
    return NAMES[cause];
}

/* ---- what a step was ---- */

static void begin_work(simulation *sim, sim_client *client)
{
    client->has_work = true;
    client->was_unfit = false;
    client->was_interrupted = false;
    client->n_assigned++;
    sim->n_working++;
    sim->sums[client->device->class_index].n_assigned++;
}

static void count_dropped(simulation *sim, const sim_client *client, uint64_t round,
                          sim_cause cause)
{
    sim->sums[client->device->class_index].dropped[cause]++;
    if (round <= (uint64_t)sim->n_rounds) {
        sim->dropped_by[round * SIM_CAUSES + (uint64_t)cause]++;
    }
}

static void count_joules(simulation *sim, const sim_client *client, uint64_t round)
{
    if (round <= (uint64_t)sim->n_rounds) {
        sim->joules[round] +=
            client->used.compute_j + client->used.radio_j - client->visit->begun_j;
    }
}

/* Those that still have work when the run is over will not count any more. */
static void settle(simulation *sim)
{
    const sim_cause last = sim->flags->buffered != NULL ? SIM_CAUSE_SURPLUS : SIM_CAUSE_LATE;
    for (int64_t i = 0; i < sim->n_clients; i++) {
        sim_client *client = &sim->clients[i];
        if (client->has_work) {
            client->has_work = false;
            count_joules(sim, client, client->round);
            count_dropped(sim, client, client->round,
                          client->was_interrupted ? SIM_CAUSE_FAILURE
                          : client->was_unfit     ? SIM_CAUSE_CONDITIONS
                                                  : last);
        }
    }
}

static sim_cause find_cause(const sim_client *client, dunlin_status status,
                            const dunlin_round_report *report)
{
    if (status == DUNLIN_BUDGET) {
        return SIM_CAUSE_MEMORY;
    }
    if (client->was_interrupted) {
        return SIM_CAUSE_FAILURE;
    }
    if (report->outcome == DUNLIN_OUTCOME_NOT_ELIGIBLE || client->was_unfit) {
        return SIM_CAUSE_CONDITIONS;
    }
    if (report->outcome == DUNLIN_OUTCOME_LATE) {
        return SIM_CAUSE_LATE;
    }
    return report->outcome == DUNLIN_OUTCOME_REFUSED ? SIM_CAUSE_REFUSED : SIM_CAUSE_ERROR;
}

static void end_work(simulation *sim, sim_client *client, dunlin_status status,
                     const dunlin_round_report *report, int64_t us)
{
    sim_class_sums *sums = &sim->sums[client->device->class_index];
    const uint64_t round = report->round;
    client->has_work = false;
    sim->n_working--;
    count_joules(sim, client, round);
    if (status == DUNLIN_OK && report->outcome == DUNLIN_OUTCOME_ACCEPTED) {
        client->n_accepted++;
        sums->n_accepted++;
        sums->n_partial += client->visit->learner.done_share < 1.0 ? 1 : 0;
        sums->accepted_at[us % sim->devices.period_us * 24 / sim->devices.period_us]++;
        if (round <= (uint64_t)sim->n_rounds && report->peak_bytes > sim->peaks[round]) {
            sim->peaks[round] = report->peak_bytes;
        }
        const int64_t n_open = sim->totals.n_accepted % 64 == 0 ? fleet_count_descriptors() : 0;
        sim->totals.n_descriptors =
            n_open > sim->totals.n_descriptors ? n_open : sim->totals.n_descriptors;
        sim->totals.n_accepted++;
        return;
    }
    count_dropped(sim, client, round, find_cause(client, status, report));
}

static void take_end(simulation *sim, sim_client *client, dunlin_status status,
                     const dunlin_round_report *report, int64_t us)
{
    sim->totals.n_rounds_run++;
    if (status != DUNLIN_OK) {
        sim->totals.n_failed++;
        (void)snprintf(sim->totals.last_error, sizeof sim->totals.last_error, "%s: %.400s",
                       dunlin_status_name(status),
                       dunlin_client_last_error(client->visit->client)->text);
    }
    if (client->has_work) {
        end_work(sim, client, status, report, us);
    }
    sim->is_over = sim->is_over || report->outcome == DUNLIN_OUTCOME_RUN_OVER;
}

/* ---- one step ---- */

/* What moved in a step, of which the runtime counts the sums. */
typedef struct moved {
    uint64_t n_requests, sent, received;
} moved;

static moved count_moved(const simulation *sim)
{
    dunlin_runtime_stats stats = DUNLIN_RUNTIME_STATS_INIT;
    if (dunlin_runtime_get_stats(sim->runtime, &stats) != DUNLIN_OK) {
        return (moved){0};
    }
    return (moved){stats.n_requests, stats.body_bytes_sent, stats.body_bytes_received};
}

static int64_t transfer_us(const sim_device *device, const moved *what)
{
    const double us =
        1e6 * ((double)what->sent / device->up_per_s + (double)what->received / device->down_per_s);
    return (int64_t)ceil(us) + (int64_t)what->n_requests * device->latency_us;
}

/* Whether the next step may come now, or when it may: out of a round when the device is ready, in
 * one when it is online or trains. */
static int64_t allowed_us(const simulation *sim, const sim_client *client)
{
    if (client->visit == NULL) {
        return sim_client_ready_from_us(client, client->due_us);
    }
    return sim_learner_is_at_work(&client->visit->learner)
               ? client->due_us
               : sim_online_from_us(&sim->devices, client->device, client->due_us);
}

/* When the client is due again after a step that ended at `sim->now_us`. */
static int64_t next_due_us(simulation *sim, sim_client *client, const moved *what, int64_t wait_ms)
{
    const sim_device *device = client->device;
    sim_learner *learner = &client->visit->learner;
    int64_t due_us =
        sim_online_end_us(&sim->devices, device, sim->now_us, transfer_us(device, what));
    if (sim_learner_is_at_work(learner) || what->n_requests == 0) {
        due_us = sim->now_us;
    }
    const int64_t waited_us = sim->now_us + wait_ms * 1000;
    due_us = due_us > waited_us ? due_us : waited_us;
    if (learner->is_interrupted) {
        learner->is_interrupted = false;
        client->was_interrupted = true;
        due_us += AWAY_US;
    }
    return due_us;
}

/* What a step that ended the client's round leaves. */
static int64_t end_visit(simulation *sim, sim_client *client, dunlin_status status,
                         const dunlin_round_report *report, int64_t us)
{
    take_end(sim, client, status, report, us);
    client->phase = DUNLIN_PHASE_IDLE;
    return dunlin_client_wait_ms(client->visit->client);
}

/* One step of a client at its time. False: the server has ended, or there is no client. */
static bool step_client(simulation *sim, sim_client *client)
{
    const int64_t begun_us = client->due_us;
    const bool was_active = client->visit != NULL;
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    int64_t wait_ms = 0;
    bool is_ended = false;
    sim->now_us = begun_us;
    if ((begun_us > sim->told_us && !sim_server_tell(sim, begun_us)) ||
        (!was_active && !sim_visit_begin(client))) {
        return false;
    }
    const moved before = count_moved(sim);
    client->was_unfit = client->was_unfit || !sim_client_is_ready(client, begun_us);
    const dunlin_status status =
        dunlin_client_step(client->visit->client, 0, &wait_ms, &is_ended, &report);
    const moved after = count_moved(sim);
    const moved what = {after.n_requests - before.n_requests, after.sent - before.sent,
                        after.received - before.received};
    sim_energy_move(client, what.sent, what.received);
    client->sequence++;
    if (sim->begun_us < 0 && client->phase == DUNLIN_PHASE_CHECKIN) {
        sim->begun_us = begun_us;
    }
    sim_events_note(sim, client, begun_us, is_ended ? (int32_t)report.outcome : -1, what.sent,
                    what.received);
    if (!client->has_work && client->phase >= DUNLIN_PHASE_FETCH &&
        client->phase <= DUNLIN_PHASE_COMMIT) {
        begin_work(sim, client);
    }
    wait_ms = is_ended ? end_visit(sim, client, status, &report, begun_us) : wait_ms;
    const bool may_close = was_active && what.n_requests > 0;
    client->due_us = next_due_us(sim, client, &what, wait_ms);
    if (is_ended) {
        sim_visit_end(client);
    }
    return !may_close || sim_server_tell(sim, begun_us);
}

/* ---- the run ---- */

static const char *state_of(const json_t *status)
{
    const char *state = json_string_value(json_object_get(status, "state"));
    return state != NULL ? state : "";
}

/* What a person sees of it. */
typedef struct view {
    progress line;
    size_t n_printed;
    double looked_ms;
    json_t *last;
} view;

static void print_round(const simulation *sim, const json_t *round)
{
    const json_t *accuracy = json_object_get(round, "accuracy");
    (void)printf("round %3lld/%lld  ",
                 (long long)json_integer_value(json_object_get(round, "round")),
                 (long long)sim->flags->n_rounds);
    if (json_is_number(accuracy)) {
        (void)printf("accuracy %6.2f %%  loss %.4f  ", 100.0 * json_number_value(accuracy),
                     json_number_value(json_object_get(round, "loss")));
    }
    (void)printf("%3.0f devices  %.0f dropped  took %.3f h\n",
                 json_number_value(json_object_get(round, "participants")),
                 json_number_value(json_object_get(round, "dropped")),
                 json_number_value(json_object_get(round, "wall_s")) / 3600.0);
    (void)fflush(stdout);
}

/* Looks at the server, and prints what is new. */
static void look(simulation *sim, view *seen)
{
    json_t *status = fleet_status_read(sim->server);
    seen->looked_ms = clock_ms();
    if (status == NULL) {
        return;
    }
    json_decref(seen->last);
    seen->last = status;
    sim_live_tell(sim, status);
    const json_t *rounds = json_object_get(status, "rounds");
    while (!sim->flags->is_quiet && seen->n_printed < json_array_size(rounds)) {
        progress_clear(&seen->line);
        print_round(sim, json_array_get(rounds, seen->n_printed++));
    }
    char note[PROGRESS_NOTE_BYTES];
    (void)snprintf(note, sizeof note, "%.2f simulated hours",
                   (double)sim->now_us / 3600.0 / (double)SIM_US_PER_S);
    progress_update(&seen->line, (int64_t)json_array_size(rounds), sim->flags->n_rounds, note);
}

/* The earliest event, or a second of the server's before it; the newest round that its client has
 * had work of. False: the server has ended. */
static bool advance(simulation *sim, uint64_t *out_round)
{
    const int64_t index = sim_events_pop(sim);
    sim_client *client = &sim->clients[index];
    const int64_t at_us = allowed_us(sim, client);
    if (at_us != client->due_us) {
        client->due_us = at_us;
        if (at_us >= 0) {
            sim_events_push(sim, index);
        }
        return true;
    }
    while (sim->n_working > 0 && sim->told_us + TICK_US < at_us) {
        if (!sim_server_tell(sim, (sim->told_us / TICK_US + 1) * TICK_US)) {
            return false;
        }
    }
    if (!step_client(sim, client)) {
        return false;
    }
    if (client->due_us >= 0) {
        sim_events_push(sim, index);
    }
    *out_round = client->has_work ? client->round : 0;
    return true;
}

static int run(simulation *sim, view *seen, fleet_end *out_end)
{
    const double most_us = sim->flags->sim_hours * 3600.0 * (double)SIM_US_PER_S;
    while (!sim->is_over) {
        out_end->signal = fleet_interrupted();
        if (out_end->signal != 0) {
            return program_fail(&fleet_program,
                                "interrupted by signal %d after %.2f simulated hours",
                                out_end->signal, (double)sim->now_us / 3.6e9);
        }
        if (sim->n_heap == 0) {
            return program_fail(&fleet_program,
                                "no device can take part any more: %" PRId64
                                " lack memory, %" PRId64 " storage, %" PRId64 " are never ready",
                                sim->left_out.memory, sim->left_out.storage,
                                sim->left_out.never_ready);
        }
        if ((double)sim->clients[sim->heap[0]].due_us > most_us) {
            return program_fail(&fleet_program,
                                "the rounds are not over after --sim-hours %g of simulated time",
                                sim->flags->sim_hours);
        }
        uint64_t round = 0;
        if (!advance(sim, &round)) {
            if (!fleet_server_is_alive(sim->server)) {
                return EXIT_FAILED; /* the line has been printed */
            }
            return program_fail(&fleet_program, "the server at %s does not keep the time any more",
                                sim->server->url);
        }
        const int kept = sim_keep_step(sim, round);
        if (kept != EXIT_OK) {
            return kept;
        }
        if (clock_ms() - seen->looked_ms > LOOK_MS) {
            look(sim, seen);
        }
    }
    return EXIT_OK;
}

int sim_steps_run(simulation *sim, fleet_end *out_end)
{
    view seen = {.looked_ms = clock_ms()};
    const double begun_ms = clock_ms();
    if (!sim->flags->is_quiet) {
        progress_begin(&seen.line, "simulation", "rounds");
    }
    const int status = run(sim, &seen, out_end);
    settle(sim);
    look(sim, &seen);
    progress_end(&seen.line);
    sim->totals.wall_s = (clock_ms() - begun_ms) / 1000.0;
    dunlin_runtime_stats stats = DUNLIN_RUNTIME_STATS_INIT;
    if (dunlin_runtime_get_stats(sim->runtime, &stats) == DUNLIN_OK) {
        sim->totals.transport = stats;
    }
    out_end->status = seen.last;
    out_end->is_over = status == EXIT_OK && strcmp(state_of(seen.last), "done") == 0;
    return status;
}
