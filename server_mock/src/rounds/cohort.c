/*
 * cohort.c - which devices get work: barrier, ranks, the parts of devices in a round, how long
 * others wait.
 *
 * Invariant: with the clients known beforehand the cohort follows from (seed, round, client index)
 * alone, whoever comes first.
 */
#include "cohort.h"

#include "ahead.h"
#include "lineage.h"
#include "private.h"
#include "profile.h"
#include "secure.h"
#include "state/context.h"
#include "state/db.h"
#include "state/devices.h"
#include "task/task.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Longest wait of a device that keeps places it does not use: so many doublings. */
#define MOST_DOUBLINGS 10u

/* Closed rounds that say how long one lasts. */
#define LENGTHS 32u

dunlin_status dunlin__server_choose_cohort(dunlin__server *server, dunlin_error *error)
{
    uint32_t n_clients = server->task.n_clients;
    if (n_clients == 0) {
        return DUNLIN_OK;
    }
    if (server->in_cohort == NULL) {
        server->in_cohort = dunlin__alloc_zeroed(&server->alloc, n_clients, sizeof(bool));
    }
    if (server->in_cohort == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0, "a list of %" PRIu32 " clients",
                            n_clients);
    }
    if (server->task.dp.is_on) {
        return dunlin__private_choose(server, error);
    }
    if (server->task.selection.kind != DUNLIN_SELECT_BY_RANK) {
        return dunlin__profile_choose(server, error);
    }
    dunlin__ranked last;
    server->n_in_cohort = dunlin__server_task_n_select(&server->task);
    DUNLIN_TRY(dunlin__server_last_asked(server, server->round.round, &last, error));
    for (uint32_t i = 0; i < n_clients; i++) {
        server->in_cohort[i] = dunlin__server_is_asked(server, server->round.round, i, &last);
    }
    return DUNLIN_OK;
}

/* How long the last rounds lasted. A clock that was set between two runs of the server may have
 * left times that cannot be: none counts for more than two deadlines. */
static double mean_length_ms(const dunlin__server *server)
{
    size_t n = server->n_closed < LENGTHS ? server->n_closed : LENGTHS;
    double most_ms =
        2 * (double)dunlin__server_task_deadline_ms(&server->task, server->round.round);
    double sum_ms = 0;
    for (size_t i = server->n_closed - n; i < server->n_closed; i++) {
        double lasted_ms = (double)(server->closed[i].closed_ms - server->closed[i].opened_ms);
        sum_ms += fmin(fmax(lasted_ms, 0), most_ms);
    }
    return n > 0 ? sum_ms / (double)n : 0;
}

uint64_t dunlin__server_wait_ms(dunlin__server *server, const dunlin__server_device *device)
{
    uint64_t least = server->options.reject_ms;
    int64_t index = device->row.client_index;
    if (server->in_cohort == NULL || !server->is_started || server->is_done || index < 0 ||
        server->task.dp.is_on || server->task.selection.kind != DUNLIN_SELECT_BY_RANK) {
        return least; /* whose turn comes when is drawn, or hangs on who came and what they said */
    }
    double mean_ms = mean_length_ms(server);
    double elapsed_ms = fmax((double)(dunlin__server_now(server) - server->round.opened_ms), 0);
    double left_ms = fmax(mean_ms - elapsed_ms, 0);
    double n_between = (double)(dunlin__server_rounds_ahead(server, (uint64_t)index) - 1);
    /* Half the way: rounds may get faster, and a client that waits too long holds one up. A round
     * that drags on will go on for a while. */
    double guess = fmax((left_ms + n_between * mean_ms) / 2, elapsed_ms / 8);
    return guess > (double)least ? (uint64_t)guess : least;
}

/* ---- parts ---- */

dunlin__part_counts dunlin__server_count_parts(const dunlin__server *server, int64_t now_ms)
{
    dunlin__part_counts counts = {0};
    if (server->gone.round == server->round.round) {
        counts.n_accepted = server->gone.n_accepted;
    }
    const dunlin__server_parts *parts = &server->devices.parts;
    if (parts->round != server->round.round) {
        const bool is_kept = server->task.buffered.is_on;
        counts.n_assigned = is_kept ? parts->n[DUNLIN_PART_ASSIGNED] : 0;
        return counts;
    }
    counts.n_assigned = parts->n[DUNLIN_PART_ASSIGNED];
    counts.n_accepted += parts->n[DUNLIN_PART_ACCEPTED];
    counts.n_dropped = parts->n[DUNLIN_PART_DROPPED];
    for (const dunlin__server_device *one = parts->offered; one != NULL; one = one->list_after) {
        counts.n_offered += now_ms <= one->offer_until_ms ? 1 : 0;
    }
    return counts;
}

/* True if the round ended by its deadline, so that whoever had work in it kept others waiting. */
static bool has_run_out(const dunlin__server *server, uint64_t round)
{
    for (size_t i = server->n_closed; i > 0; i--) {
        if (server->closed[i - 1].round == round) {
            return server->closed[i - 1].reason == DUNLIN_CLOSE_DEADLINE;
        }
    }
    return false;
}

void dunlin__device_miss(dunlin__server_device *device)
{
    device->n_missed += device->n_missed < MOST_DOUBLINGS ? 1 : 0;
}

void dunlin__device_settle(dunlin__server *server, dunlin__server_device *device, int64_t now_ms)
{
    bool is_over = device->part_round < server->round.round &&
                   dunlin__device_part(server, device) == DUNLIN_PART_NONE;
    bool has_lapsed = device->part == DUNLIN_PART_OFFERED && now_ms > device->offer_until_ms;
    bool has_kept =
        device->part == DUNLIN_PART_ASSIGNED && is_over && has_run_out(server, device->part_round);
    if (device->part == DUNLIN_PART_ACCEPTED) {
        device->n_missed = 0;
    } else if (has_lapsed || has_kept) {
        dunlin__device_miss(device);
    }
    if (has_kept) {
        dunlin__profile_late(device, device->work_until_ms);
    }
    if (is_over || has_lapsed) {
        dunlin__device_set_part(server, device, DUNLIN_PART_NONE);
    }
}

/* One that took places and let them go unused comes after the others: in each round these have
 * asked at least twice before it is served. */
static bool is_held_back(const dunlin__server *server, const dunlin__server_device *device,
                         int64_t now_ms)
{
    if (device->n_missed == 0) {
        return false;
    }
    int64_t hold_ms = (int64_t)(3 * server->options.reject_ms) << (device->n_missed - 1);
    int64_t most_ms =
        (int64_t)dunlin__server_task_deadline_ms(&server->task, server->round.round) / 2;
    return now_ms - server->round.opened_ms < (hold_ms < most_ms ? hold_ms : most_ms);
}

uint32_t dunlin__server_goal(const dunlin__server *server)
{
    const dunlin__privacy_sampling sampling = server->task.dp.question.sampling;
    const bool is_drawn = server->task.dp.is_on && (sampling == DUNLIN_SAMPLING_POISSON ||
                                                    sampling == DUNLIN_SAMPLING_FIXED);
    if (is_drawn || (server->in_cohort != NULL && server->n_in_cohort < server->task.cohort)) {
        return server->n_in_cohort;
    }
    return server->task.cohort;
}

dunlin_v1_rejection_t dunlin__server_judge(dunlin__server *server,
                                           const dunlin__server_device *device, int64_t now_ms)
{
    const dunlin__round_row *round = &server->round;
    bool is_open = !server->is_done && server->is_started && !server->is_stale &&
                   !dunlin__lineage_is_bad(server, round->base) &&
                   round->state == DUNLIN_ROUND_OPEN &&
                   (round->deadline_ms == 0 || now_ms < round->deadline_ms);
    dunlin__part part = dunlin__device_part(server, device);
    if (!is_open || part == DUNLIN_PART_ACCEPTED || part == DUNLIN_PART_DROPPED) {
        return DUNLIN_V1_REJECTION_NO_WORK;
    }
    dunlin__part_counts counts = dunlin__server_count_parts(server, now_ms);
    const bool is_secure = server->task.secagg.is_on;
    if (is_secure ? !dunlin__secure_has_room(server, device)
                  : counts.n_accepted >= dunlin__server_goal(server)) {
        return DUNLIN_V1_REJECTION_ENOUGH_DEVICES;
    }
    if (!dunlin__private_may_take_part(server, &device->row)) {
        return DUNLIN_V1_REJECTION_NO_WORK;
    }
    if (server->in_cohort != NULL) {
        int64_t index = device->row.client_index;
        bool is_chosen = index >= 0 && index < server->task.n_clients && server->in_cohort[index];
        return is_chosen ? DUNLIN_V1_REJECTION_NONE : DUNLIN_V1_REJECTION_NO_WORK;
    }
    bool has_place = part == DUNLIN_PART_ASSIGNED ||
                     (part == DUNLIN_PART_OFFERED && now_ms <= device->offer_until_ms);
    /* In buffered rounds whoever is done makes place at once: so many work at a time. */
    uint32_t n_done = server->task.buffered.is_on ? 0 : counts.n_accepted;
    uint32_t n_taken = counts.n_offered + counts.n_assigned + n_done;
    if (!has_place && is_held_back(server, device, now_ms)) {
        return DUNLIN_V1_REJECTION_ENOUGH_DEVICES;
    }
    if (!has_place && !dunlin__profile_is_welcome(server, device, now_ms)) {
        return DUNLIN_V1_REJECTION_ENOUGH_DEVICES;
    }
    if (!has_place && n_taken >= dunlin__server_task_n_select(&server->task)) {
        return DUNLIN_V1_REJECTION_ENOUGH_DEVICES;
    }
    return DUNLIN_V1_REJECTION_NONE;
}

dunlin_status dunlin__server_check_barrier(dunlin__server *server, int64_t now_ms,
                                           dunlin_error *error)
{
    if (server->is_started || server->devices.n_checked_in < server->task.min_clients_for_start) {
        return DUNLIN_OK;
    }
    server->round.opened_ms = now_ms;
    if (server->in_cohort != NULL) {
        /* Everybody is there, so time runs from here. */
        server->round.deadline_ms =
            now_ms + (int64_t)dunlin__server_task_deadline_ms(&server->task, server->round.round);
    }
    DUNLIN_TRY(dunlin__server_db_set(server->db, "is_started", 1, error));
    DUNLIN_TRY(dunlin__server_db_put_round(server->db, &server->round, error));
    server->is_started = true;
    dunlin__log(&server->log, DUNLIN_LOG_INFO, "rounds", "%" PRIu64 " clients are here: begin",
                server->devices.n_checked_in);
    return DUNLIN_OK;
}
