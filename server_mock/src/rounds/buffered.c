/*
 * buffered.c - rounds that overlap: whose work is taken, and what it counts for.
 *
 * Invariant: how stale a contribution is follows from its assignment's round and its own, which are
 * both stored, so a close that is repeated weighs it alike.
 */
#include "buffered.h"

#include "cohort.h"
#include "profile.h"
#include "state/db.h"
#include "state/db_metrics.h"
#include "state/devices.h"
#include "task/task.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>

#define METRIC "server/staleness"

uint64_t dunlin__buffered_first(const dunlin__server *server)
{
    const uint64_t round = server->round.round;
    const uint64_t most = server->task.buffered.is_on ? server->task.buffered.max_staleness : 0;
    return round > most ? round - most : 1;
}

bool dunlin__buffered_takes(const dunlin__server *server, uint64_t round)
{
    if (server->task.buffered.is_on) {
        return !server->is_done && round >= dunlin__buffered_first(server) &&
               round <= server->round.round;
    }
    return round == server->round.round && server->round.state == DUNLIN_ROUND_OPEN;
}

bool dunlin__buffered_is_full(dunlin__server *server, int64_t now_ms)
{
    return server->task.buffered.is_on && !server->is_done &&
           (server->round.state != DUNLIN_ROUND_OPEN ||
            dunlin__server_count_parts(server, now_ms).n_accepted >= dunlin__server_goal(server));
}

uint64_t dunlin__buffered_over(const dunlin__server *server, uint64_t closed_round)
{
    const uint64_t most = server->task.buffered.is_on ? server->task.buffered.max_staleness : 0;
    return closed_round > most ? closed_round - most : 0;
}

double dunlin__buffered_factor(const dunlin__server_task *task, uint64_t staleness)
{
    return pow(1.0 + (double)staleness, -task->buffered.exponent);
}

dunlin_status dunlin__buffered_scale(dunlin__server *server, const dunlin__contribution_row *row,
                                     double *out_scale, dunlin_error *error)
{
    dunlin__assignment_row assignment;
    bool is_found = false;
    *out_scale = 1;
    if (!server->task.buffered.is_on) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__server_db_find_assignment(server->db, row->assignment, &assignment,
                                                 &is_found, error));
    if (!is_found || assignment.round > row->round) {
        return dunlin__fail(error, DUNLIN_DATA, "rounds", 0,
                            "the state's database: round %" PRIu64
                            " has a contribution whose assignment is not there",
                            row->round);
    }
    *out_scale = dunlin__buffered_factor(&server->task, row->round - assignment.round);
    return DUNLIN_OK;
}

dunlin_status dunlin__buffered_note(dunlin__server *server, const dunlin__contribution_row *row,
                                    uint64_t round, dunlin_error *error)
{
    return server->task.buffered.is_on
               ? dunlin__server_db_add_app_metric(server->db, row->round, row->client_index, METRIC,
                                                  (double)(row->round - round), error)
               : DUNLIN_OK;
}

void dunlin__buffered_sweep(dunlin__server *server, int64_t now_ms)
{
    if (!server->task.buffered.is_on) {
        return;
    }
    dunlin__device_parts_turn(server);
    dunlin__server_device *next = NULL;
    for (dunlin__server_device *one = server->devices.parts.assigned; one != NULL; one = next) {
        next = one->list_after;
        if (now_ms >= one->work_until_ms || !dunlin__buffered_takes(server, one->part_round)) {
            dunlin__profile_late(one, one->work_until_ms < now_ms ? one->work_until_ms : now_ms);
            dunlin__device_set_part(server, one, DUNLIN_PART_DROPPED);
            dunlin__device_miss(one);
        }
    }
}

/* ---- after a start ---- */

typedef struct loader {
    dunlin__server *server;
    dunlin_error *error;
} loader;

static dunlin_status load_work(void *ctx, const dunlin__assignment_row *assignment)
{
    const loader *load = ctx;
    dunlin__server_device *device = dunlin__devices_find_row(load->server, assignment->device);
    if (device == NULL || assignment->state != DUNLIN_WORK_OPEN) {
        return DUNLIN_OK;
    }
    dunlin__device_set_part(load->server, device, DUNLIN_PART_ASSIGNED);
    device->part_round = assignment->round;
    device->work_until_ms = assignment->deadline_ms;
    /* The wall clock may have gone back since it was stored. */
    const int64_t latest_ms =
        dunlin__server_now(load->server) +
        (int64_t)dunlin__server_task_deadline_ms(&load->server->task, assignment->round);
    if (device->work_until_ms > latest_ms) {
        device->work_until_ms = latest_ms;
    }
    device->is_uploading = assignment->has_manifest;
    return DUNLIN_OK;
}

static dunlin_status load_contribution(void *ctx, const dunlin__contribution_row *contribution)
{
    const loader *load = ctx;
    dunlin__server_device *device = dunlin__devices_find_row(load->server, contribution->device);
    if (device != NULL) {
        dunlin__device_set_part(load->server, device, DUNLIN_PART_ACCEPTED);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__buffered_load(dunlin__server *server, dunlin_error *error)
{
    loader load = {server, error};
    for (uint64_t round = dunlin__buffered_first(server); round <= server->round.round; round++) {
        DUNLIN_TRY(dunlin__server_db_each_assignment(server->db, round, load_work, &load, error));
    }
    return dunlin__server_db_each_contribution(server->db, server->round.round, load_contribution,
                                               &load, error);
}
