/*
 * profile.c - what is known of devices' work, and whom a round asks by it.
 *
 * Invariant: a round's choice follows from the reports before it and the task's seed, so whoever
 * asks twice in it is judged alike.
 */
#include "profile.h"

#include "ahead.h"
#include "select.h"
#include "state/db.h"
#include "state/devices.h"
#include "task/task.h"
#include "tiers.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>

#define ROUNDS_LOADED 200u /* after a start */
#define LEAST_KNOWN 2u     /* fewer say nothing */
#define CAP 0.95           /* the share of usefulness that is not capped */

/* ---- reports ---- */

void dunlin__profile_report(dunlin__server *server, dunlin__server_device *device,
                            const dunlin__contribution_row *row, int64_t now_ms)
{
    dunlin__reported *out = &device->reported;
    if (server->task.selection.kind == DUNLIN_SELECT_BY_RANK) {
        return; /* nobody asks */
    }
    out->round = server->round.round;
    out->n_examples = row->weight;
    out->loss =
        row->metrics.is_there[DUNLIN_METRIC_LOSS] ? row->metrics.values[DUNLIN_METRIC_LOSS] : 0;
    out->took_ms = fmax((double)(now_ms - device->assigned_ms), 1);
}

void dunlin__profile_late(dunlin__server_device *device, int64_t at_ms)
{
    const double took_ms = fmax((double)(at_ms - device->assigned_ms), 1);
    device->reported.took_ms = fmax(device->reported.took_ms, took_ms);
}

typedef struct loader {
    dunlin__server *server;
} loader;

static dunlin_status load_report(void *ctx, const dunlin__contribution_row *row)
{
    const loader *load = ctx;
    dunlin__server_device *device = dunlin__devices_find_row(load->server, row->device);
    if (device != NULL) {
        device->reported.round = row->round;
        device->reported.n_examples = row->weight;
        device->reported.loss =
            row->metrics.is_there[DUNLIN_METRIC_LOSS] ? row->metrics.values[DUNLIN_METRIC_LOSS] : 0;
        device->reported.took_ms = fmax((double)row->train_ms, 1);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__profile_load(dunlin__server *server, dunlin_error *error)
{
    loader load = {server};
    const uint64_t round = server->round.round;
    server->choice.round = 0;
    if (server->task.selection.kind == DUNLIN_SELECT_BY_RANK) {
        return DUNLIN_OK;
    }
    for (uint64_t r = round > ROUNDS_LOADED ? round - ROUNDS_LOADED : 1; r <= round; r++) {
        DUNLIN_TRY(dunlin__server_db_each_contribution(server->db, r, load_report, &load, error));
    }
    return dunlin__tiers_load(server, error);
}

/* ---- what a round goes by ---- */

/* What the training rounds that are over brought: examples times their mean loss, each. */
static size_t list_brought(const dunlin__server *server, double *out)
{
    size_t n = 0;
    for (size_t i = 0; i < server->n_closed; i++) {
        const dunlin__round_row *row = &server->closed[i];
        if (!row->is_evaluation) {
            out[n++] = row->metrics.is_there[DUNLIN_METRIC_LOSS]
                           ? row->weight_sum * fmax(row->metrics.values[DUNLIN_METRIC_LOSS], 0)
                           : 0;
        }
    }
    return n;
}

/* `room` is for all rounds that are over. */
static double prefer_ms(const dunlin__server *server, double *room)
{
    const dunlin__server_selection *terms = &server->task.selection;
    const double deadline_ms =
        (double)dunlin__server_task_deadline_ms(&server->task, server->round.round);
    const double step_ms = terms->pacer_s * 1000;
    double first_ms = terms->prefer_s * 1000;
    if (first_ms <= 0) {
        first_ms = step_ms > 0 ? step_ms : deadline_ms / 2; /* Oort begins with a step */
    }
    return step_ms > 0
               ? dunlin__select_paced_ms(room, list_brought(server, room), terms->pacer_rounds,
                                         first_ms, step_ms, deadline_ms)
               : first_ms;
}

static double utility_of(const dunlin__server *server, const dunlin__reported *reported)
{
    return dunlin__select_utility(reported, server->round.round, server->choice.unit,
                                  server->choice.prefer_ms, server->task.selection.penalty);
}

static bool has_reported(const dunlin__server_device *device)
{
    return device->row.row != 0 && dunlin__select_is_known(&device->reported);
}

/* A number in [0, 1) of a round, and of a device or something else. */
static double draw_of(const dunlin__server *server, uint64_t what)
{
    return (double)(dunlin__server_rank(server->task.seed, server->round.round, what) >> 11) *
           0x1p-53;
}

static size_t list_useful(const dunlin__server *server, double *out)
{
    size_t n = 0;
    for (size_t i = 0; i < server->devices.n; i++) {
        if (has_reported(server->devices.list[i])) {
            out[n++] = dunlin__select_useful(&server->devices.list[i]->reported);
        }
    }
    return n;
}

static void begin_utility(dunlin__server *server, double *room)
{
    dunlin__round_choice *choice = &server->choice;
    choice->prefer_ms = prefer_ms(server, room);
    size_t n = list_useful(server, room);
    choice->unit = dunlin__select_quantile(room, n, CAP);
    choice->explore = dunlin__select_explore(&server->task.selection, server->round.round);
    choice->is_open = n < LEAST_KNOWN;
    n = 0;
    for (size_t i = 0; i < server->devices.n; i++) {
        if (has_reported(server->devices.list[i])) {
            room[n++] = utility_of(server, &server->devices.list[i]->reported);
        }
    }
    choice->least = server->task.selection.decline > 0
                        ? dunlin__select_quantile(room, n, server->task.selection.decline)
                        : -1;
}

/* Finds out once for the round what it goes by. False: there is no memory for it. */
static bool begin_round(dunlin__server *server)
{
    dunlin__round_choice *choice = &server->choice;
    if (choice->round == server->round.round) {
        return true;
    }
    const size_t n_most =
        server->devices.n > server->n_closed ? server->devices.n : server->n_closed;
    const size_t n = n_most > 0 ? n_most : 1;
    double *room = dunlin__alloc_array(&server->alloc, n, sizeof *room);
    if (room == NULL) {
        return false;
    }
    dunlin__tiers_spend(server);
    *choice = (dunlin__round_choice){.round = server->round.round};
    if (server->task.selection.kind == DUNLIN_SELECT_UTILITY) {
        begin_utility(server, room);
    } else {
        dunlin__tiers_begin(server, room);
    }
    dunlin__free_array(&server->alloc, room, n, sizeof *room);
    return true;
}

static bool is_of_tier(const dunlin__server *server, const dunlin__server_device *device)
{
    const dunlin__round_choice *choice = &server->choice;
    return dunlin__select_tier_of(device->reported.took_ms, choice->ends_ms, choice->n_tiers) ==
           choice->tier;
}

/* ---- unknown clients ---- */

bool dunlin__profile_is_welcome(dunlin__server *server, const dunlin__server_device *device,
                                int64_t now_ms)
{
    const dunlin__server_selection *terms = &server->task.selection;
    if (terms->kind == DUNLIN_SELECT_BY_RANK) {
        return true;
    }
    const int64_t wait_ms = (int64_t)(3 * server->options.reject_ms);
    const int64_t most_ms =
        (int64_t)dunlin__server_task_deadline_ms(&server->task, server->round.round) / 2;
    if (now_ms - server->round.opened_ms >= (wait_ms < most_ms ? wait_ms : most_ms) ||
        !begin_round(server) || server->choice.is_open) {
        return true;
    }
    if (terms->kind == DUNLIN_SELECT_TIERS) {
        return !has_reported(device) || is_of_tier(server, device);
    }
    return has_reported(device)
               ? utility_of(server, &device->reported) >= server->choice.least
               : draw_of(server, (uint64_t)device->row.client_index) < server->choice.explore;
}

/* ---- known clients ---- */

/* Those that have reported go to the front; gives how many. */
static size_t list_clients(dunlin__server *server, dunlin__select_entry *entries)
{
    size_t n_known = 0;
    size_t n_new = 0;
    const uint32_t n_clients = server->task.n_clients;
    for (uint32_t i = 0; i < n_clients; i++) {
        const dunlin__server_device *device = dunlin__devices_find_index(server, i);
        const bool is_known = device != NULL && has_reported(device);
        dunlin__select_entry *out = is_known ? &entries[n_known++] : &entries[n_clients - ++n_new];
        *out = (dunlin__select_entry){
            .rank = dunlin__server_rank(server->task.seed, server->round.round, i),
            .client_index = i};
        if (is_known && server->task.selection.kind == DUNLIN_SELECT_UTILITY) {
            out->utility = utility_of(server, &device->reported);
        } else if (is_known) {
            out->utility = is_of_tier(server, device) ? 1 : 0;
        }
    }
    return n_known;
}

/* Those of the tier first, by rank; the others after them, where the tier has too few. */
static void choose_tier(dunlin__select_entry *entries, size_t n_entries, size_t n)
{
    size_t n_tier = 0;
    for (size_t i = 0; i < n_entries; i++) {
        if (entries[i].utility > 0) {
            const dunlin__select_entry kept = entries[n_tier];
            entries[n_tier++] = entries[i];
            entries[i] = kept;
        }
    }
    if (n_tier >= n) {
        dunlin__select_by_rank(entries, n_tier, n);
    } else {
        dunlin__select_by_rank(entries + n_tier, n_entries - n_tier, n - n_tier);
    }
}

dunlin_status dunlin__profile_choose(dunlin__server *server, dunlin_error *error)
{
    const uint32_t n_clients = server->task.n_clients;
    dunlin__select_entry *entries = dunlin__alloc_array(&server->alloc, n_clients, sizeof *entries);
    if (entries == NULL || !begin_round(server)) {
        dunlin__free_array(&server->alloc, entries, n_clients, sizeof *entries);
        return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0, "the utility of %" PRIu32 " clients",
                            n_clients);
    }
    const bool is_tiers = server->task.selection.kind == DUNLIN_SELECT_TIERS;
    const size_t n_known = list_clients(server, entries);
    const size_t n_wanted = dunlin__server_task_n_select(&server->task);
    /* Tiers are of devices whose time is known: the others come first. */
    const double explore = is_tiers ? 1 : server->choice.explore;
    const size_t n_new = dunlin__select_n_new(explore, n_wanted, n_clients - n_known, n_known);
    if (is_tiers) {
        choose_tier(entries, n_known, n_wanted - n_new);
    } else {
        dunlin__select_by_utility(entries, n_known, n_wanted - n_new);
    }
    dunlin__select_by_rank(entries + n_known, n_clients - n_known, n_new);
    for (uint32_t i = 0; i < n_clients; i++) {
        const bool is_asked = i < n_known ? i < n_wanted - n_new : i - n_known < n_new;
        server->in_cohort[entries[i].client_index] = is_asked;
    }
    server->n_in_cohort = (uint32_t)n_wanted;
    dunlin__free_array(&server->alloc, entries, n_clients, sizeof *entries);
    return DUNLIN_OK;
}
