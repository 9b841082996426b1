/*
 * secagg_graph.c - who is whose neighbour.
 *
 * Bell et al. 2020, algorithm 1 for a server that is honest but curious: a Harary graph over a
 * random order, so k-connected, and to a single device its neighbours are a random choice.
 */
#include "secagg_cohort.h"

#include <mem/support.h>

#include <math.h>
#include <stdlib.h>

uint32_t dunlin__secagg_place(const dunlin__secagg_server *server, uint32_t owner,
                              uint32_t neighbour)
{
    const uint32_t *list = secagg_neighbours_of(server, owner);
    uint32_t low = 0;
    uint32_t high = server->n_slots;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (list[middle] < neighbour) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < server->n_slots && list[low] == neighbour ? low + 1 : 0;
}

/* Uniform below n, at most 2^16 of them: draws past the last whole multiple are thrown away. */
static dunlin_status draw_below(uint32_t n, uint32_t *out_draw, dunlin_error *error)
{
    const uint32_t whole = UINT32_MAX - UINT32_MAX % n;
    do {
        DUNLIN_TRY(dunlin__random_bytes(out_draw, sizeof(*out_draw), error));
    } while (*out_draw >= whole);
    *out_draw %= n;
    return DUNLIN_OK;
}

/* Fisher and Yates. */
static dunlin_status shuffle(uint32_t *order, uint32_t n, dunlin_error *error)
{
    for (uint32_t i = n; i > 1; i--) {
        uint32_t other = 0;
        DUNLIN_TRY(draw_below(i, &other, error));
        const uint32_t moved = order[i - 1];
        order[i - 1] = order[other];
        order[other] = moved;
    }
    return DUNLIN_OK;
}

static int compare_indices(const void *a, const void *b)
{
    const uint32_t one = *(const uint32_t *)a;
    const uint32_t other = *(const uint32_t *)b;
    return (one > other) - (one < other);
}

/* Each one's list: half before it, half after it, around the circle; or all others. */
static void link_circle(dunlin__secagg_server *server, const uint32_t *order, uint32_t n)
{
    const uint32_t k = server->n_slots;
    for (uint32_t at = 0; at < n; at++) {
        uint32_t *list = server->neighbours + (size_t)(order[at] - 1) * k;
        for (uint32_t i = 0; i < k; i++) {
            const uint32_t distance = i < k / 2 ? n - 1 - i : i - k / 2 + 1;
            list[i] = order[(at + distance) % n];
        }
        qsort(list, k, sizeof(list[0]), compare_indices);
    }
}

/* Whether the set-up still holds for the `n` that came: all corrupt devices of the cohort may be
 * among them. */
static dunlin_status judge_again(const dunlin__secagg_server *server, uint32_t n,
                                 dunlin_error *error)
{
    const double n_corrupt = ceil((double)server->plan.n_cohort * server->wish.corrupt - 1e-9);
    dunlin__secagg_wish wish = server->wish;
    wish.n_devices = n;
    wish.corrupt = n_corrupt / (double)n;
    if (wish.corrupt >= 1.0) {
        return dunlin__fail(error, DUNLIN_REJECTED, "secagg", 0,
                            "%u devices advertised keys, and %.0f of the cohort may be corrupt", n,
                            n_corrupt);
    }
    return dunlin__secagg_judge(&wish, server->plan.n_neighbours, server->plan.threshold, error);
}

uint32_t dunlin__secagg_server_count(const dunlin__secagg_server *server, uint32_t step)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < server->plan.n_cohort && step <= DUNLIN_WIRE_SECAGG_STEPS; i++) {
        const secagg_device *device = &server->devices[i];
        n += (step == DUNLIN_V1_SECAGG_STEP_MASK ? device->is_folded : device->took[step]) ? 1 : 0;
    }
    return n;
}

dunlin_status dunlin__secagg_draw_neighbours(dunlin__secagg_server *server, dunlin_error *error)
{
    const dunlin_alloc *alloc = &server->alloc;
    const uint32_t n_cohort = server->plan.n_cohort;
    const uint32_t n = dunlin__secagg_server_count(server, DUNLIN_V1_SECAGG_STEP_ADVERTISE);
    if (n < server->plan.least_devices || n <= server->plan.threshold) {
        return dunlin__fail(error, DUNLIN_REJECTED, "secagg", 0,
                            "%u devices advertised keys, wanted are %u and more than the threshold "
                            "%u",
                            n, server->plan.least_devices, server->plan.threshold);
    }
    DUNLIN_TRY(judge_again(server, n, error));
    server->n_slots = server->plan.n_neighbours < n - 1 ? server->plan.n_neighbours : n - 1;
    server->neighbours = dunlin__alloc_zeroed(alloc, secagg_slots(server), sizeof(uint32_t));
    server->sealed = dunlin__alloc_zeroed(alloc, secagg_slots(server), DUNLIN_SECAGG_SEALED_BYTES);
    server->told = dunlin__alloc_zeroed(alloc, secagg_slots(server), sizeof(secagg_told));
    uint32_t *order = dunlin__alloc_zeroed(alloc, n_cohort, sizeof(order[0]));
    if (server->neighbours == NULL || server->sealed == NULL || server->told == NULL ||
        order == NULL) {
        dunlin__free_array(alloc, order, n_cohort, sizeof(order[0]));
        return dunlin__fail(error, DUNLIN_MEMORY, "secagg", 0,
                            "no memory for %u neighbours of %u devices", server->n_slots, n);
    }
    uint32_t n_listed = 0;
    for (uint32_t i = 1; i <= n_cohort; i++) {
        if (secagg_device_of(server, i)->took[DUNLIN_V1_SECAGG_STEP_ADVERTISE]) {
            order[n_listed++] = i;
        }
    }
    dunlin_status status = shuffle(order, n, error);
    if (status == DUNLIN_OK) {
        link_circle(server, order, n);
    }
    dunlin__free_array(alloc, order, n_cohort, sizeof(order[0]));
    return status;
}
