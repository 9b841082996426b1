/*
 * tiers.c - which tier of devices a round asks.
 *
 * Invariant: a tier without credit is not asked while another one has some.
 */
#include "tiers.h"

#include "ahead.h"
#include "select.h"
#include "state/db_metrics.h"
#include "state/devices.h"
#include "task/task.h"

#include <math.h>
#include <string.h>

#define METRIC "server/tier"
#define LEAST_KNOWN 2u /* for each tier: fewer say nothing */
#define DRAW_TIER 0x74696572u

static bool is_known(const dunlin__server_device *device)
{
    return device->row.row != 0 && dunlin__select_is_known(&device->reported);
}

/* The ends of the tiers, by the times of all that are known; how many these are. */
static size_t find_ends(dunlin__server *server, double *room)
{
    dunlin__round_choice *choice = &server->choice;
    size_t n = 0;
    for (size_t i = 0; i < server->devices.n; i++) {
        if (is_known(server->devices.list[i])) {
            room[n++] = server->devices.list[i]->reported.took_ms;
        }
    }
    (void)dunlin__select_quantile(room, n, 1); /* sorts them */
    dunlin__select_tiers(room, n, choice->n_tiers, choice->ends_ms);
    return n;
}

/* The mean of what the devices of each tier said of their loss: the paper has the accuracy on test
 * data of each tier, which a server of phones does not have. */
static void find_losses(const dunlin__server *server, double losses[DUNLIN_SERVER_TIERS])
{
    const dunlin__round_choice *choice = &server->choice;
    double counts[DUNLIN_SERVER_TIERS] = {0};
    memset(losses, 0, DUNLIN_SERVER_TIERS * sizeof *losses);
    for (size_t i = 0; i < server->devices.n; i++) {
        const dunlin__reported *one = &server->devices.list[i]->reported;
        if (is_known(server->devices.list[i])) {
            const uint32_t tier =
                dunlin__select_tier_of(one->took_ms, choice->ends_ms, choice->n_tiers);
            losses[tier] += fmax(one->loss, 0);
            counts[tier]++;
        }
    }
    for (uint32_t t = 0; t < choice->n_tiers; t++) {
        losses[t] = counts[t] > 0 ? losses[t] / counts[t] : 0;
    }
}

/* Once all credits are spent they count no more. */
static void find_credits(const dunlin__server *server, bool has_credit[DUNLIN_SERVER_TIERS])
{
    const dunlin__server_selection *terms = &server->task.selection;
    bool has_any = false;
    for (uint32_t t = 0; t < terms->n_tiers; t++) {
        has_credit[t] = !terms->has_credits || server->tiers.n_asked[t] < terms->credits[t];
        has_any = has_any || has_credit[t];
    }
    for (uint32_t t = 0; t < terms->n_tiers && !has_any; t++) {
        has_credit[t] = true;
    }
}

/* Every `interval` rounds: if the tier that was asked last is no more accurate than the interval
 * before, tiers are drawn by their inaccuracy from now on. */
static void look(dunlin__server *server, const double *losses, const bool *has_credit)
{
    dunlin__tier_past *past = &server->tiers;
    const uint32_t n_tiers = server->task.selection.n_tiers;
    if (past->looked_round > 0 &&
        server->choice.round < past->looked_round + server->task.selection.interval) {
        return;
    }
    if (past->looked_round > 0 && losses[past->last] >= past->losses[past->last]) {
        dunlin__select_change_tiers(losses, has_credit, n_tiers, past->weights);
        past->has_weights = true;
    }
    memcpy(past->losses, losses, sizeof past->losses);
    past->looked_round = server->choice.round;
}

/* By which the round draws its tier; at least one that has credit is above 0. */
static void find_weights(dunlin__server *server, const bool *has_credit,
                         double weights[DUNLIN_SERVER_TIERS])
{
    const dunlin__server_selection *terms = &server->task.selection;
    double losses[DUNLIN_SERVER_TIERS];
    double sum = 0;
    find_losses(server, losses);
    if (terms->interval > 0 && !server->choice.is_open) {
        look(server, losses, has_credit);
    }
    for (uint32_t t = 0; t < terms->n_tiers; t++) {
        weights[t] = terms->interval == 0        ? losses[t]
                     : server->tiers.has_weights ? server->tiers.weights[t]
                                                 : 1;
        weights[t] = has_credit[t] ? weights[t] : 0;
        sum += weights[t];
    }
    for (uint32_t t = 0; t < terms->n_tiers && !(sum > 0); t++) {
        weights[t] = has_credit[t] ? 1 : 0;
    }
}

void dunlin__tiers_begin(dunlin__server *server, double *room)
{
    dunlin__round_choice *choice = &server->choice;
    bool has_credit[DUNLIN_SERVER_TIERS] = {false};
    double weights[DUNLIN_SERVER_TIERS];
    choice->n_tiers = server->task.selection.n_tiers;
    choice->is_open = find_ends(server, room) < LEAST_KNOWN * choice->n_tiers;
    find_credits(server, has_credit);
    find_weights(server, has_credit, weights);
    const uint64_t rank = dunlin__server_rank(server->task.seed, server->round.round, DRAW_TIER);
    choice->tier =
        dunlin__select_draw_tier(weights, choice->n_tiers, (double)(rank >> 11) * 0x1p-53);
    server->tiers.last = choice->tier;
}

void dunlin__tiers_spend(dunlin__server *server)
{
    const dunlin__round_choice *choice = &server->choice;
    if (server->task.selection.kind != DUNLIN_SELECT_TIERS || choice->round == 0 ||
        choice->is_open) {
        return;
    }
    for (size_t i = server->n_closed; i > 0; i--) {
        const dunlin__round_row *row = &server->closed[i - 1];
        if (row->round == choice->round) {
            server->tiers.n_asked[choice->tier] += row->n_participants > 0 ? 1 : 0;
            return;
        }
    }
}

dunlin_status dunlin__tiers_note(dunlin__server *server, const dunlin__contribution_row *row,
                                 dunlin_error *error)
{
    const dunlin__round_choice *choice = &server->choice;
    if (server->task.selection.kind != DUNLIN_SELECT_TIERS || choice->round != row->round ||
        choice->is_open || server->task.dp.is_on || server->task.secagg.is_on) {
        return DUNLIN_OK;
    }
    return dunlin__server_db_add_app_metric(server->db, row->round, row->client_index, METRIC,
                                            (double)choice->tier + 1, error);
}

static dunlin_status load_tier(void *ctx, const dunlin__round_metric_row *row)
{
    dunlin__server *server = ctx;
    if (strcmp(row->name, METRIC) == 0 && row->mean >= 1 && row->mean <= DUNLIN_SERVER_TIERS) {
        server->tiers.n_asked[(uint32_t)lround(row->mean) - 1]++;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__tiers_load(dunlin__server *server, dunlin_error *error)
{
    memset(server->tiers.n_asked, 0, sizeof server->tiers.n_asked);
    return server->task.selection.kind == DUNLIN_SELECT_TIERS
               ? dunlin__server_db_each_round_metric(server->db, load_tier, server, error)
               : DUNLIN_OK;
}
