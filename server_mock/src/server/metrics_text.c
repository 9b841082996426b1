/*
 * metrics_text.c - the answer of /metrics: the run, its rounds, devices, requests, the process.
 *
 * Invariant: how many samples there are follows from the code and the task, never from what devices
 * send. A figure that is not known has no sample.
 */
#include "metrics_text.h"

#include "process.h"
#include "rounds/private.h"
#include "state/db.h"
#include "state/devices.h"
#include "status_watch.h"
#include "task/task.h"

#include <mem/support.h>

#include <stdio.h>
#include <string.h>

#define ONE(name, value)                                                                           \
    (dunlin__label)                                                                                \
    {                                                                                              \
        (name), (value)                                                                            \
    }

static void add_whole(dunlin__exposition *out, const char *name, const char *type, const char *help,
                      uint64_t value)
{
    dunlin__exposition_family(out, name, type, help);
    dunlin__exposition_count(out, name, NULL, 0, value);
}

/* ---- the run ---- */

static void add_run(dunlin__exposition *out, const dunlin__server *server)
{
    static const char *const states[] = {"waiting", "running", "done"};
    const dunlin__server_task *task = &server->task;
    const dunlin__label what[] = {{"population", task->population},
                                  {"task", task->name},
                                  {"model", task->model[0] != 0 ? task->model : "tensors"},
                                  {"algorithm", dunlin__status_algorithm(task)},
                                  {"strategy", dunlin__strategy_name(task->strategy.kind)}};
    dunlin__exposition_family(out, "dunlin_task_info", "gauge", "What is trained, and how.");
    dunlin__exposition_count(out, "dunlin_task_info", what, sizeof what / sizeof what[0], 1);
    dunlin__exposition_family(out, "dunlin_state", "gauge", "1 for the state that the run is in.");
    bool is_over = server->is_done && server->is_exported;
    size_t state = 0;
    if (server->is_started) {
        state = is_over ? 2 : 1;
    }
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        dunlin__exposition_count(out, "dunlin_state", &ONE("state", states[i]), 1, i == state);
    }
    add_whole(out, "dunlin_held_up", "gauge",
              "1 while a failure holds the rounds up; the status says which.",
              server->fault.status != DUNLIN_OK ? 1 : 0);
    add_whole(out, "dunlin_model_parameters", "gauge", "Values of the model.",
              server->layout.n_values);
    add_whole(out, "dunlin_rounds_wanted", "gauge", "Rounds that the task has.", task->rounds);
}

/* ---- rounds ---- */

/* Sums over the closed rounds. */
typedef struct totals {
    uint64_t n_failed;
    uint64_t n_taken_back;
    uint64_t n_participants;
    uint64_t n_dropped;
    uint64_t n_scaled;
    uint64_t bytes_down;
    uint64_t bytes_up;
    const dunlin__round_row *evaluated; /* the newest with figures; NULL: none */
    const dunlin__round_row *trained;   /* the newest with the devices' figures of training */
} totals;

static totals sum_rounds(const dunlin__server *server)
{
    totals all = {0};
    for (size_t i = 0; i < server->n_closed; i++) {
        const dunlin__round_row *row = &server->closed[i];
        all.n_failed += row->is_failed ? 1 : 0;
        all.n_taken_back += row->is_taken_back ? 1 : 0;
        all.n_participants += row->n_participants;
        all.n_dropped += row->n_dropped;
        all.n_scaled += row->n_scaled;
        all.bytes_down += row->bytes_down;
        all.bytes_up += row->bytes_up;
        all.evaluated = row->is_evaluated && !row->is_taken_back ? row : all.evaluated;
        bool has_loss = !row->is_evaluation && row->metrics.is_there[DUNLIN_METRIC_LOSS];
        all.trained = has_loss ? row : all.trained;
    }
    return all;
}

static void add_figures(dunlin__exposition *out, const totals *all)
{
    if (all->evaluated != NULL) {
        add_whole(out, "dunlin_model_round", "gauge",
                  "The newest round whose model was evaluated and stays.", all->evaluated->round);
        dunlin__exposition_one(out, "dunlin_model_accuracy", "gauge",
                               "Accuracy of that model on the server's test set, 0 to 1.",
                               all->evaluated->accuracy);
        dunlin__exposition_one(out, "dunlin_model_loss", "gauge",
                               "Loss of that model on the server's test set.",
                               all->evaluated->loss);
    }
    if (all->trained == NULL) {
        return;
    }
    dunlin__exposition_family(out, "dunlin_device_mean", "gauge",
                              "Means of what devices said of the newest round that they trained "
                              "in, weighted by examples.");
    for (int m = 0; m < DUNLIN_N_METRICS; m++) {
        if (all->trained->metrics.is_there[m]) {
            const char *name = dunlin__device_metric_name((dunlin__device_metric)m);
            dunlin__exposition_sample(out, "dunlin_device_mean", &ONE("metric", name), 1,
                                      all->trained->metrics.values[m]);
        }
    }
}

/* Rounds by what ended them: that never changes, so it can only grow. */
static void add_endings(dunlin__exposition *out, const dunlin__server *server)
{
    static const char *const names[] = {"", "goal", "deadline", "all", "taken_back", "failed"};
    uint64_t counts[sizeof names / sizeof names[0]] = {0};
    for (size_t i = 0; i < server->n_closed; i++) {
        unsigned reason = (unsigned)server->closed[i].reason;
        counts[reason < sizeof names / sizeof names[0] ? reason : 0]++;
    }
    dunlin__exposition_family(out, "dunlin_rounds_total", "counter",
                              "Rounds that were closed, by what ended them.");
    for (size_t i = 1; i < sizeof names / sizeof names[0]; i++) {
        dunlin__exposition_count(out, "dunlin_rounds_total", &ONE("closed_by", names[i]), 1,
                                 counts[i]);
    }
}

static void add_durations(dunlin__exposition *out, const dunlin__server *server)
{
    static const double bounds_s[] = {1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 21600};
    static const char *const name = "dunlin_round_duration_seconds";
    enum { N_BOUNDS = sizeof bounds_s / sizeof bounds_s[0] };
    uint64_t counts[N_BOUNDS + 1] = {0};
    double sum_s = 0;
    for (size_t i = 0; i < server->n_closed; i++) {
        const dunlin__round_row *row = &server->closed[i];
        double lasted_s = (double)(row->closed_ms - row->opened_ms) / 1000;
        if (lasted_s < 0) {
            continue; /* the clock went back */
        }
        sum_s += lasted_s;
        for (size_t b = 0; b < N_BOUNDS; b++) {
            counts[b] += lasted_s <= bounds_s[b] ? 1 : 0;
        }
        counts[N_BOUNDS]++;
    }
    dunlin__exposition_family(out, name, "histogram", "From the opening of a round to its close.");
    for (size_t b = 0; b <= N_BOUNDS; b++) {
        char bound[32] = "+Inf";
        if (b < N_BOUNDS) {
            (void)snprintf(bound, sizeof bound, "%g", bounds_s[b]);
        }
        dunlin__exposition_count(out, "dunlin_round_duration_seconds_bucket", &ONE("le", bound), 1,
                                 counts[b]);
    }
    dunlin__exposition_sample(out, "dunlin_round_duration_seconds_sum", NULL, 0, sum_s);
    dunlin__exposition_count(out, "dunlin_round_duration_seconds_count", NULL, 0, counts[N_BOUNDS]);
}

static void add_rounds(dunlin__exposition *out, const dunlin__server *server, int64_t now_ms)
{
    totals all = sum_rounds(server);
    add_endings(out, server);
    add_whole(out, "dunlin_rounds_failed_total", "counter",
              "Closed rounds without a new model: too few updates, or no average of them.",
              all.n_failed);
    add_whole(out, "dunlin_rounds_taken_back_total", "counter",
              "Closed rounds whose model was taken back.", all.n_taken_back);
    add_whole(out, "dunlin_updates_total", "counter", "Contributions to closed rounds.",
              all.n_participants);
    add_whole(out, "dunlin_dropouts_total", "counter",
              "Devices that took work in closed rounds and did not contribute.", all.n_dropped);
    add_whole(out, "dunlin_updates_scaled_total", "counter",
              "Updates that were scaled down to the norm bound of their round.", all.n_scaled);
    dunlin__exposition_family(out, "dunlin_round_bytes_total", "counter",
                              "Bytes of bodies while rounds that are closed were open, seen from "
                              "the devices.");
    dunlin__exposition_count(out, "dunlin_round_bytes_total", &ONE("direction", "down"), 1,
                             all.bytes_down);
    dunlin__exposition_count(out, "dunlin_round_bytes_total", &ONE("direction", "up"), 1,
                             all.bytes_up);
    if (server->task.dp.is_on) {
        const double spent =
            server->n_closed > 0 ? server->closed[server->n_closed - 1].epsilon : 0;
        dunlin__exposition_one(out, "dunlin_privacy_epsilon", "gauge",
                               "What the closed rounds have cost at the task's delta.", spent);
    }
    add_durations(out, server);
    add_figures(out, &all);
    if (server->is_started && !server->is_done) {
        add_whole(out, "dunlin_open_round", "gauge", "The round that is open.",
                  server->round.round);
        add_whole(out, "dunlin_open_round_goal", "gauge", "Contributions that close it.",
                  server->task.cohort);
        dunlin__exposition_one(out, "dunlin_open_round_seconds", "gauge", "Since it was opened.",
                               (double)(now_ms - server->round.opened_ms) / 1000);
    }
}

/* ---- devices ---- */

static void add_devices(dunlin__exposition *out, const dunlin__server *server, int64_t now_ms)
{
    uint32_t counts[DUNLIN_N_SERVER_PHASES];
    dunlin__watch_phases(server, now_ms, counts);
    const bool hides =
        dunlin__private_hides_devices(server); /* how many have which part in a round */
    if (!hides) {
        dunlin__exposition_family(out, "dunlin_devices", "gauge",
                                  "Known devices by the phase that they have reached in the open "
                                  "round; each is in one.");
    }
    for (int phase = 0; phase < DUNLIN_N_SERVER_PHASES && !hides; phase++) {
        const char *name = dunlin__server_phase_name((dunlin__server_phase)phase);
        dunlin__exposition_count(out, "dunlin_devices", &ONE("phase", name), 1, counts[phase]);
    }
    add_whole(out, "dunlin_devices_known", "gauge", "Devices that are enrolled.",
              server->devices.n_known);
    add_whole(out, "dunlin_devices_checked_in", "gauge",
              "Known devices that have checked in since the server was started.",
              server->devices.n_checked_in);
    add_whole(out, "dunlin_devices_expected", "gauge",
              "Devices that have to check in before the first round is opened.",
              server->task.min_clients_for_start);
}

/* Names and texts of the families that events are counted in. */
typedef struct event_family {
    const char *name;
    const char *label;
    const char *help;
} event_family;

static void add_events(dunlin__exposition *out, const dunlin__server *server)
{
    static const event_family families[DUNLIN_N_SERVER_EVENTS] = {
        [DUNLIN_SERVER_EVENT_ENROL] = {"dunlin_enrolments_total", "by",
                                       "Enrolments, by their proof."},
        [DUNLIN_SERVER_EVENT_EVICT] = {"dunlin_evictions_total", "reason",
                                       "Places that went from one key to another."},
        [DUNLIN_SERVER_EVENT_FORGET] = {"dunlin_forgotten_total", "reason",
                                        "Devices that left the population."},
        [DUNLIN_SERVER_EVENT_CHECKIN] = {"dunlin_checkins_total", "answer",
                                         "Check-ins, by their answer."},
        [DUNLIN_SERVER_EVENT_DECLINE] = {"dunlin_declines_total", "reason",
                                         "Offers that devices declined."},
        [DUNLIN_SERVER_EVENT_COMMIT] = {"dunlin_commits_total", "outcome",
                                        "Updates and evaluations that devices committed."},
        [DUNLIN_SERVER_EVENT_ABORT] = {"dunlin_aborts_total", "reason",
                                       "Assignments that devices gave up."},
    };
    for (int kind = 0; kind < DUNLIN_N_SERVER_EVENTS; kind++) {
        const event_family *family = &families[kind];
        dunlin__exposition_family(out, family->name, "counter", family->help);
        for (uint32_t reason = 0; reason < DUNLIN_SERVER_EVENT_REASONS; reason++) {
            const char *name = dunlin__server_event_reason((dunlin__server_event_kind)kind, reason);
            uint64_t n = server->watch.events[kind][reason];
            if (name != NULL || n > 0) {
                dunlin__exposition_count(out, family->name,
                                         &ONE(family->label, name != NULL ? name : "other"), 1, n);
            }
        }
    }
}

static dunlin_status add_telemetry(void *ctx, const dunlin__telemetry_row *row)
{
    char event[16];
    (void)snprintf(event, sizeof event, "%u", (unsigned)row->event);
    dunlin__exposition_count(ctx, "dunlin_telemetry_records_total", &ONE("event", event), 1,
                             row->n);
    return DUNLIN_OK;
}

/* ---- requests ---- */

static void add_requests(dunlin__exposition *out, dunlin__server *server)
{
    char call_name[DUNLIN_WATCH_NAME_BYTES];
    char result_name[DUNLIN_WATCH_NAME_BYTES];
    dunlin__exposition_family(out, "dunlin_requests_total", "counter",
                              "Requests by call and result; what never happened is left out.");
    for (unsigned call = 0; call < (unsigned)DUNLIN_WATCH_CALLS; call++) {
        dunlin__watch_call_name(call, call_name);
        for (unsigned result = 0; result < DUNLIN_WATCH_RESULTS; result++) {
            uint64_t n = atomic_load(&server->watch.requests[call][result]);
            dunlin__watch_result_name(result, result_name);
            const dunlin__label labels[] = {{"call", call_name}, {"result", result_name}};
            if (n > 0) {
                dunlin__exposition_count(out, "dunlin_requests_total", labels, 2, n);
            }
        }
    }
    dunlin__server_counters *counters = &server->counters;
    dunlin__exposition_family(out, "dunlin_body_bytes_total", "counter",
                              "Bytes of all bodies, seen from the devices.");
    dunlin__exposition_count(out, "dunlin_body_bytes_total", &ONE("direction", "down"), 1,
                             atomic_load(&counters->body_bytes_down));
    dunlin__exposition_count(out, "dunlin_body_bytes_total", &ONE("direction", "up"), 1,
                             atomic_load(&counters->body_bytes_up));
    add_whole(out, "dunlin_connections_total", "counter", "Connections that were accepted.",
              atomic_load(&counters->n_connections));
    add_whole(out, "dunlin_connections_open", "gauge", "Connections that are open.",
              atomic_load(&server->watch.n_open));
    add_whole(out, "dunlin_faults_total", "counter", "Faults that the fault script has played.",
              atomic_load(&counters->n_faults));
}

/* ---- the process ---- */

static void add_if_known(dunlin__exposition *out, const char *name, const char *help, int64_t value)
{
    if (value >= 0) {
        add_whole(out, name, "gauge", help, (uint64_t)value);
    }
}

/* Names as Prometheus' own clients have them. */
static void add_process(dunlin__exposition *out)
{
    dunlin__process_figures figures = dunlin__process_read();
    if (figures.cpu_s >= 0) {
        dunlin__exposition_one(out, "process_cpu_seconds_total", "counter",
                               "Processor time, user and system.", figures.cpu_s);
    }
    if (figures.start_s >= 0) {
        dunlin__exposition_one(out, "process_start_time_seconds", "gauge",
                               "When the process was started, since 1970.", figures.start_s);
    }
    add_if_known(out, "process_resident_memory_bytes", "Memory in use.", figures.resident_bytes);
    add_if_known(out, "process_virtual_memory_bytes", "Address space.", figures.virtual_bytes);
    add_if_known(out, "process_open_fds", "Descriptors that are open.", figures.n_open_files);
    add_if_known(out, "process_max_fds", "Descriptors that may be open.", figures.most_open_files);
    add_if_known(out, "process_threads", "Threads.", figures.n_threads);
}

bool dunlin__server_metrics_text(dunlin__server *server, dunlin__exposition *out_text)
{
    out_text->alloc = server->alloc;
    (void)pthread_mutex_lock(&server->lock);
    int64_t now_ms = dunlin__server_now(server);
    add_run(out_text, server);
    add_rounds(out_text, server, now_ms);
    add_devices(out_text, server, now_ms);
    add_events(out_text, server);
    if (!dunlin__private_hides_devices(server)) {
        dunlin__exposition_family(out_text, "dunlin_telemetry_records_total", "counter",
                                  "Telemetry records that were stored, by the number of their "
                                  "event.");
        /* What cannot be read now is there the next time. */
        dunlin_status ignored =
            dunlin__server_db_each_telemetry(server->db, add_telemetry, out_text, NULL);
        (void)ignored;
    }
    (void)pthread_mutex_unlock(&server->lock);
    add_requests(out_text, server);
    add_process(out_text);
    return !out_text->is_full;
}
