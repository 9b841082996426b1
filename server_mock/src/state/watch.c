/*
 * watch.c - counts and logs what devices do, requests, phases, how the open round fills up.
 *
 * Invariant: every reason has a number below DUNLIN_SERVER_EVENT_REASONS, so no client can make the
 * counts grow.
 */
#include "watch.h"

#include "base/log.h"
#include "context.h"
#include "devices.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FIRST_SPACING_MS 200
#define FRESH_MS 2000 /* a point at least so often, at first */

/* ---- names ---- */

static const char *const event_names[DUNLIN_N_SERVER_EVENTS] = {
#define DUNLIN_SERVER_EVENT_NAME(name, text) text,
    DUNLIN_SERVER_EVENT_MAP(DUNLIN_SERVER_EVENT_NAME)
#undef DUNLIN_SERVER_EVENT_NAME
};

static const char *const phase_names[DUNLIN_N_SERVER_PHASES] = {
#define DUNLIN_SERVER_PHASE_NAME(name, text) text,
    DUNLIN_SERVER_PHASE_MAP(DUNLIN_SERVER_PHASE_NAME)
#undef DUNLIN_SERVER_PHASE_NAME
};

static const char *const reason_names[DUNLIN_N_SERVER_EVENTS][DUNLIN_SERVER_EVENT_REASONS] = {
    [DUNLIN_SERVER_EVENT_ENROL] = {"first", "token", "used_token", "certificate", "claim", "key"},
    [DUNLIN_SERVER_EVENT_EVICT] = {"replaced"},
    [DUNLIN_SERVER_EVENT_FORGET] = {"asked"},
    [DUNLIN_SERVER_EVENT_CHECKIN] = {"offered", "no_work", "enough_devices", "too_soon",
                                     "not_suitable"},
    [DUNLIN_SERVER_EVENT_DECLINE] = {NULL, "conditions", "data", "budget", "separation", "feature",
                                     "application", "privacy"},
    [DUNLIN_SERVER_EVENT_COMMIT] = {NULL, "accepted", "late", "goal_reached", "refused"},
    [DUNLIN_SERVER_EVENT_ABORT] = {"unspecified", "conditions", "stopped", "deadline", "download",
                                   "training", "upload", "refused"},
};

const char *dunlin__server_event_name(dunlin__server_event_kind kind)
{
    return event_names[kind];
}

const char *dunlin__server_event_reason(dunlin__server_event_kind kind, uint32_t reason)
{
    return reason < DUNLIN_SERVER_EVENT_REASONS ? reason_names[kind][reason] : NULL;
}

const char *dunlin__server_phase_name(dunlin__server_phase phase)
{
    return phase_names[phase];
}

/* Copies a name of the code in small letters. */
static void take_name(const char *name, char out_name[DUNLIN_WATCH_NAME_BYTES])
{
    size_t n = 0;
    for (; name[n] != 0 && n + 1 < DUNLIN_WATCH_NAME_BYTES; n++) {
        bool is_capital = name[n] >= 'A' && name[n] <= 'Z';
        out_name[n] = (char)(is_capital ? name[n] - 'A' + 'a' : name[n]);
    }
    out_name[n] = 0;
}

void dunlin__watch_call_name(unsigned call, char out_name[DUNLIN_WATCH_NAME_BYTES])
{
    static const char *const others[] = {"page", "status", "metrics", "other"};
    const dunlin__call_info *info = dunlin__call_describe((dunlin__call)call);
    take_name(info != NULL ? info->name : others[call - (unsigned)DUNLIN_N_CALLS], out_name);
}

void dunlin__watch_result_name(unsigned result, char out_name[DUNLIN_WATCH_NAME_BYTES])
{
    const char *name =
        result == 0 ? "ok" : dunlin__status_describe((dunlin_v1_status_code_t)result)->name;
    take_name(name, out_name);
}

/* ---- counts ---- */

void dunlin__watch_request(dunlin__server *server, unsigned call, unsigned result)
{
    if (call < (unsigned)DUNLIN_WATCH_CALLS && result < DUNLIN_WATCH_RESULTS) {
        atomic_fetch_add(&server->watch.requests[call][result], 1);
    }
}

/* A place that changes hands is a warning; that a device asked is worth a line to who looks for
 * one. */
static dunlin_log_level level_of(const dunlin__server_event *event)
{
    if (event->kind == DUNLIN_SERVER_EVENT_EVICT) {
        return DUNLIN_LOG_WARNING;
    }
    bool is_usual = (event->kind == DUNLIN_SERVER_EVENT_CHECKIN &&
                     event->reason != (uint32_t)DUNLIN_V1_REJECTION_NOT_SUITABLE) ||
                    (event->kind == DUNLIN_SERVER_EVENT_COMMIT &&
                     event->reason == (uint32_t)DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    return is_usual ? DUNLIN_LOG_DEBUG : DUNLIN_LOG_INFO;
}

/* "place 3 is taken, by a token", "place 3 gave up: training, round 4, NUMERIC" */
static void tell(const dunlin__server *server, const dunlin__server_event *event, uint32_t reason)
{
    static const char *const verbs[DUNLIN_N_SERVER_EVENTS] = {
        [DUNLIN_SERVER_EVENT_CHECKIN] = "checked in: ",
        [DUNLIN_SERVER_EVENT_DECLINE] = "declined: ",
        [DUNLIN_SERVER_EVENT_COMMIT] = "committed: ",
        [DUNLIN_SERVER_EVENT_ABORT] = "gave up: "};
    const char *verb = verbs[event->kind] != NULL ? verbs[event->kind] : "";
    const char *name = dunlin__server_event_reason(event->kind, reason);
    name = name != NULL ? name : "for a reason without a name";
    dunlin__log(&server->log, level_of(event), DUNLIN_SERVER_LOG_DEVICES,
                "place %" PRId64 " %s%s%s%s", event->place, verb, verb[0] != 0 ? name : "",
                verb[0] != 0 && event->text[0] != 0 ? ", " : "", event->text);
}

void dunlin__watch_event(dunlin__server *server, const dunlin__server_event *event)
{
    dunlin__watch *watch = &server->watch;
    if (!event->is_there) {
        return;
    }
    uint32_t last = DUNLIN_SERVER_EVENT_REASONS - 1;
    uint32_t reason = event->reason < last ? event->reason : last;
    watch->events[event->kind][reason]++;
    memcpy(watch->texts[event->kind][reason], event->text, sizeof event->text);
    tell(server, event, reason);
    if (event->kind == DUNLIN_SERVER_EVENT_COMMIT || event->kind == DUNLIN_SERVER_EVENT_ABORT) {
        dunlin__watch_fill(server, dunlin__server_now(server));
    }
}

/* ---- phases ---- */

static dunlin__server_phase phase_of(const dunlin__server *server,
                                     const dunlin__server_device *device, int64_t now_ms)
{
    switch (dunlin__device_part(server, device)) {
    case DUNLIN_PART_OFFERED:
        if (now_ms <= device->offer_until_ms) {
            return DUNLIN_SERVER_PHASE_OFFERED;
        }
        break;
    case DUNLIN_PART_ASSIGNED:
        return device->is_uploading ? DUNLIN_SERVER_PHASE_UPLOADING : DUNLIN_SERVER_PHASE_ASSIGNED;
    case DUNLIN_PART_ACCEPTED:
        return DUNLIN_SERVER_PHASE_ACCEPTED;
    case DUNLIN_PART_DROPPED:
        return device->has_failed ? DUNLIN_SERVER_PHASE_FAILED : DUNLIN_SERVER_PHASE_DROPPED;
    case DUNLIN_PART_NONE:
    default:
        break;
    }
    return device->has_checked_in ? DUNLIN_SERVER_PHASE_CHECKED_IN : DUNLIN_SERVER_PHASE_ENROLLED;
}

void dunlin__watch_phases(const dunlin__server *server, int64_t now_ms,
                          uint32_t out_counts[DUNLIN_N_SERVER_PHASES])
{
    memset(out_counts, 0, DUNLIN_N_SERVER_PHASES * sizeof *out_counts);
    for (size_t i = 0; i < server->devices.n; i++) {
        const dunlin__server_device *device = server->devices.list[i];
        if (device->row.row != 0) {
            out_counts[phase_of(server, device, now_ms)]++;
        }
    }
}

/* ---- the open round ---- */

/* Leaves every other point out, the newest stays. */
static void thin_out(dunlin__watch *watch)
{
    uint32_t n_kept = 0;
    for (uint32_t i = 1; i < watch->n_points; i += 2) {
        watch->points[n_kept] = watch->points[i];
        n_kept++;
    }
    watch->n_points = n_kept;
    watch->spacing_ms *= 2;
}

static void tell_open(const dunlin__server *server)
{
    const dunlin__round_row *row = &server->round;
    dunlin__log(&server->log, DUNLIN_LOG_INFO, "rounds",
                "round %" PRIu64 " of %" PRIu64 " is open: devices %s, the goal is %" PRIu32
                " updates, %" PRIu64 " devices are known",
                row->round, server->task.rounds, row->is_evaluation ? "evaluate" : "train",
                server->task.cohort, server->devices.n_known);
}

void dunlin__watch_fill(dunlin__server *server, int64_t now_ms)
{
    dunlin__watch *watch = &server->watch;
    bool is_running = server->is_started && !server->is_done && !server->is_stale;
    if (is_running && watch->round != server->round.round) {
        watch->round = server->round.round;
        watch->n_points = 0;
        watch->spacing_ms = FIRST_SPACING_MS;
        tell_open(server);
    }
    const dunlin__watch_point *last =
        watch->n_points > 0 ? &watch->points[watch->n_points - 1] : NULL;
    if (!is_running || (last != NULL && now_ms - last->at_ms < watch->spacing_ms)) {
        return;
    }
    dunlin__watch_point point = {.at_ms = now_ms};
    uint32_t counts[DUNLIN_N_SERVER_PHASES];
    dunlin__watch_phases(server, now_ms, counts);
    point.n_accepted = counts[DUNLIN_SERVER_PHASE_ACCEPTED];
    point.n_accepted += server->gone.round == server->round.round ? server->gone.n_accepted : 0;
    point.n_assigned = counts[DUNLIN_SERVER_PHASE_ASSIGNED] + counts[DUNLIN_SERVER_PHASE_UPLOADING];
    bool is_same = last != NULL && last->n_accepted == point.n_accepted &&
                   last->n_assigned == point.n_assigned;
    if (is_same && now_ms - last->at_ms < FRESH_MS) {
        return;
    }
    if (watch->n_points == DUNLIN_WATCH_POINTS) {
        thin_out(watch);
    }
    watch->points[watch->n_points] = point;
    watch->n_points++;
}
