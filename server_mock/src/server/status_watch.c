/*
 * status_watch.c - what /v1/status has for a page that watches a run: phases, failures with their
 * reasons, how the open round fills up.
 *
 * Invariant: as in status.c: nothing about a single device.
 */
#include "status_watch.h"

#include "state/devices.h"
#include "task/task.h"

#include <stdio.h>

const char *dunlin__status_algorithm(const dunlin__server_task *task)
{
    if (task->plan.is_scaffold) {
        return "scaffold";
    }
    return task->plan.proximal_mu > 0 ? "fedprox" : "fedavg";
}

static json_t *seconds(int64_t ms)
{
    return json_real((double)ms / 1000);
}

/* Each device is in one phase. */
static json_t *phases_object(const dunlin__server *server, int64_t now_ms)
{
    uint32_t counts[DUNLIN_N_SERVER_PHASES];
    json_t *object = json_object();
    dunlin__watch_phases(server, now_ms, counts);
    for (int phase = 0; phase < DUNLIN_N_SERVER_PHASES; phase++) {
        (void)json_object_set_new(object, dunlin__server_phase_name((dunlin__server_phase)phase),
                                  json_integer(counts[phase]));
    }
    return object;
}

/* [seconds since the opening, accepted, at work] from the oldest to the newest. */
static json_t *history_array(const dunlin__server *server)
{
    const dunlin__watch *watch = &server->watch;
    json_t *history = json_array();
    for (uint32_t i = 0; watch->round == server->round.round && i < watch->n_points; i++) {
        const dunlin__watch_point *point = &watch->points[i];
        (void)json_array_append_new(
            history, json_pack("[f, I, I]", (double)(point->at_ms - server->round.opened_ms) / 1000,
                               (json_int_t)point->n_accepted, (json_int_t)point->n_assigned));
    }
    return history;
}

static void add_open(json_t *open, const dunlin__server *server, const json_t *phases,
                     int64_t now_ms)
{
    const dunlin__round_row *round = &server->round;
    bool is_open = server->is_started && !server->is_done;
    bool has_deadline = is_open && round->deadline_ms != 0;
    (void)json_object_set_new(open, "is_open", json_boolean(is_open));
    (void)json_object_set_new(open, "kind",
                              json_string(round->is_evaluation ? "evaluate" : "train"));
    (void)json_object_set_new(open, "goal", json_integer((json_int_t)server->task.cohort));
    (void)json_object_set_new(
        open, "asked", json_integer((json_int_t)dunlin__server_task_n_select(&server->task)));
    (void)json_object_set(open, "uploading", json_object_get(phases, "uploading"));
    (void)json_object_set(open, "failed", json_object_get(phases, "failed"));
    (void)json_object_set_new(open, "open_s",
                              is_open ? seconds(now_ms - round->opened_ms) : json_null());
    int64_t left_ms = round->deadline_ms > now_ms ? round->deadline_ms - now_ms : 0;
    (void)json_object_set_new(open, "left_s", has_deadline ? seconds(left_ms) : json_null());
    (void)json_object_set_new(open, "history", is_open ? history_array(server) : json_array());
}

static void add_failure(json_t *list, const char *what, const char *reason, uint64_t n,
                        const char *text)
{
    json_t *more = text[0] != 0 ? json_string(text) : NULL; /* NULL, too, where a letter was cut */
    (void)json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:o}", "what", what, "reason",
                                                reason, "n", (json_int_t)n, "last",
                                                more != NULL ? more : json_null()));
}

static bool is_failure(dunlin__server_event_kind kind, uint32_t reason)
{
    return kind == DUNLIN_SERVER_EVENT_ABORT || kind == DUNLIN_SERVER_EVENT_DECLINE ||
           kind == DUNLIN_SERVER_EVENT_EVICT ||
           (kind == DUNLIN_SERVER_EVENT_COMMIT &&
            reason != (uint32_t)DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED) ||
           (kind == DUNLIN_SERVER_EVENT_CHECKIN &&
            reason == (uint32_t)DUNLIN_V1_REJECTION_NOT_SUITABLE);
}

/* What did not go as wanted since the server was opened, by what and why. */
static json_t *failures_array(dunlin__server *server)
{
    json_t *list = json_array();
    for (int kind = 0; kind < DUNLIN_N_SERVER_EVENTS; kind++) {
        for (uint32_t reason = 0; reason < DUNLIN_SERVER_EVENT_REASONS; reason++) {
            uint64_t n = server->watch.events[kind][reason];
            const char *name = dunlin__server_event_reason((dunlin__server_event_kind)kind, reason);
            if (n > 0 && is_failure((dunlin__server_event_kind)kind, reason)) {
                add_failure(list, dunlin__server_event_name((dunlin__server_event_kind)kind),
                            name != NULL ? name : "other", n, server->watch.texts[kind][reason]);
            }
        }
    }
    char call[DUNLIN_WATCH_NAME_BYTES];
    char result[DUNLIN_WATCH_NAME_BYTES];
    for (unsigned c = 0; c < (unsigned)DUNLIN_WATCH_CALLS; c++) {
        for (unsigned r = 1; r < DUNLIN_WATCH_RESULTS; r++) {
            uint64_t n = atomic_load(&server->watch.requests[c][r]);
            dunlin__watch_call_name(c, call);
            dunlin__watch_result_name(r, result);
            if (n > 0) {
                char what[DUNLIN_WATCH_NAME_BYTES + 16];
                (void)snprintf(what, sizeof what, "request %s", call);
                add_failure(list, what, result, n, "");
            }
        }
    }
    return list;
}

void dunlin__status_add_watch(json_t *status, dunlin__server *server)
{
    int64_t now_ms = dunlin__server_now(server);
    json_t *phases = phases_object(server, now_ms);
    add_open(json_object_get(status, "open"), server, phases, now_ms);
    (void)json_object_set_new(json_object_get(status, "requests"), "open_connections",
                              json_integer((json_int_t)atomic_load(&server->watch.n_open)));
    (void)json_object_set_new(status, "algorithm",
                              json_string(dunlin__status_algorithm(&server->task)));
    (void)json_object_set_new(status, "strategy",
                              json_string(dunlin__strategy_name(server->task.strategy.kind)));
    (void)json_object_set_new(status, "time", seconds(now_ms));
    (void)json_object_set_new(status, "uptime_s", seconds(now_ms - server->watch.opened_ms));
    (void)json_object_set_new(status, "phases", phases);
    (void)json_object_set_new(status, "failures", failures_array(server));
}
