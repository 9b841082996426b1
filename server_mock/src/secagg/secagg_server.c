/*
 * secagg_server.c - the server's part in a secure aggregation, step by step.
 *
 * Invariant: a vector is in the sum whole and once, or the session has FAILED, and then nothing of
 * it is left. Bell et al. 2020, algorithm 2; Bonawitz et al. 2017, figure 4.
 */
#include "secagg_cohort.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <string.h>

static size_t survivor_bytes(const dunlin__secagg_server *server)
{
    return (server->plan.n_cohort + 7) / 8;
}

static size_t n_elements(const dunlin__secagg_server *server)
{
    return (size_t)dunlin__secagg_elements(&server->plan);
}

static void wipe_array(dunlin__secagg_server *server, void **array, size_t n, size_t bytes)
{
    if (*array != NULL) {
        dunlin__wipe(*array, n * bytes);
        dunlin__free_array(&server->alloc, *array, n, bytes);
        *array = NULL;
    }
}

static void wipe_sums(dunlin__secagg_server *server)
{
    void *sums = server->sums;
    wipe_array(server, &sums, n_elements(server), sizeof(server->sums[0]));
    server->sums = NULL;
}

static void wipe_slots(dunlin__secagg_server *server)
{
    void *sealed = server->sealed;
    void *told = server->told;
    wipe_array(server, &sealed, secagg_slots(server), DUNLIN_SECAGG_SEALED_BYTES);
    wipe_array(server, &told, secagg_slots(server), sizeof(secagg_told));
    server->sealed = NULL;
    server->told = NULL;
}

dunlin_status dunlin__secagg_fail(dunlin__secagg_server *server, dunlin_status status)
{
    wipe_sums(server);
    wipe_slots(server);
    server->step = DUNLIN_SECAGG_FAILED;
    return status;
}

dunlin_status dunlin__secagg_server_open(const dunlin__secagg_server_options *options,
                                         dunlin__secagg_server **out_server, dunlin_error *error)
{
    const dunlin_alloc alloc = dunlin__alloc_or_default(options->alloc);
    const dunlin__secagg_plan *plan = options->plan;
    dunlin__secagg_wish wish = options->wish;
    size_t n_sums = 0;
    *out_server = NULL;
    DUNLIN_TRY(dunlin__secagg_check(plan, error));
    wish.n_devices = plan->n_cohort;
    DUNLIN_TRY(dunlin__secagg_judge(&wish, plan->n_neighbours, plan->threshold, error));
    dunlin__secagg_server *server = dunlin__alloc_zeroed(&alloc, 1, sizeof(*server));
    if (server == NULL || !dunlin__to_size(dunlin__secagg_elements(plan), &n_sums)) {
        dunlin__free_array(&alloc, server, 1, sizeof(*server));
        return dunlin__fail(error, DUNLIN_MEMORY, "secagg", 0,
                            "no memory for a secure aggregation");
    }
    *server = (dunlin__secagg_server){
        .plan = *plan, .wish = wish, .alloc = alloc, .step = DUNLIN_V1_SECAGG_STEP_ADVERTISE};
    server->devices = dunlin__alloc_zeroed(&alloc, plan->n_cohort, sizeof(server->devices[0]));
    server->survivors = dunlin__alloc_zeroed(&alloc, survivor_bytes(server), 1);
    server->sums = dunlin__alloc_zeroed(&alloc, n_sums, sizeof(server->sums[0]));
    dunlin_status status = dunlin__secagg_digest(plan, server->terms, error);
    if (server->devices == NULL || server->survivors == NULL || server->sums == NULL) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "secagg", 0,
                              "no memory for %u devices and a sum of %zu elements", plan->n_cohort,
                              n_sums);
    }
    if (status != DUNLIN_OK) {
        dunlin__secagg_server_close(server);
        return status;
    }
    *out_server = server;
    return DUNLIN_OK;
}

void dunlin__secagg_server_close(dunlin__secagg_server *server)
{
    if (server == NULL) {
        return;
    }
    const dunlin_alloc alloc = server->alloc;
    wipe_sums(server);
    wipe_slots(server);
    dunlin__free_array(&alloc, server->neighbours, secagg_slots(server), sizeof(uint32_t));
    dunlin__free_array(&alloc, server->survivors, survivor_bytes(server), 1);
    dunlin__free_array(&alloc, server->devices, server->plan.n_cohort, sizeof(server->devices[0]));
    dunlin__free_array(&alloc, server, 1, sizeof(*server));
}

uint32_t dunlin__secagg_server_step(const dunlin__secagg_server *server)
{
    return server->step;
}

const uint32_t *dunlin__secagg_server_sum(const dunlin__secagg_server *server)
{
    return server->step == DUNLIN_SECAGG_DONE ? server->sums : NULL;
}

/* Who may come in a step: whoever came in the one before it. */
static bool may_come(const dunlin__secagg_server *server, const secagg_device *device,
                     uint32_t step)
{
    switch (step) {
    case DUNLIN_V1_SECAGG_STEP_ADVERTISE:
        return true;
    case DUNLIN_V1_SECAGG_STEP_SHARE:
    case DUNLIN_V1_SECAGG_STEP_MASK:
        return device->took[step - 1];
    case DUNLIN_V1_SECAGG_STEP_CONSISTENCY:
        return device->is_folded && server->plan.check_consistency;
    case DUNLIN_V1_SECAGG_STEP_UNMASK:
        return server->plan.check_consistency ? device->took[step - 1] : device->is_folded;
    default:
        return false;
    }
}

bool dunlin__secagg_server_is_complete(const dunlin__secagg_server *server)
{
    const uint32_t step = server->step;
    for (uint32_t i = 0; i < server->plan.n_cohort && step <= DUNLIN_WIRE_SECAGG_STEPS; i++) {
        const secagg_device *device = &server->devices[i];
        const bool has_come =
            step == DUNLIN_V1_SECAGG_STEP_MASK ? device->is_folded : device->took[step];
        if (!has_come && !device->is_gone && may_come(server, device, step)) {
            return false;
        }
    }
    return true;
}

void dunlin__secagg_server_drop(dunlin__secagg_server *server, uint32_t peer_index)
{
    if (peer_index >= 1 && peer_index <= server->plan.n_cohort) {
        secagg_device_of(server, peer_index)->is_gone = true;
    }
}

bool dunlin__secagg_server_took(const dunlin__secagg_server *server, uint32_t peer_index,
                                uint32_t step)
{
    return peer_index >= 1 && peer_index <= server->plan.n_cohort &&
           step <= DUNLIN_WIRE_SECAGG_STEPS && secagg_device_of(server, peer_index)->took[step];
}

bool dunlin__secagg_server_wants(const dunlin__secagg_server *server, uint32_t peer_index,
                                 bool *out_is_folded)
{
    const bool is_member = peer_index >= 1 && peer_index <= server->plan.n_cohort;
    *out_is_folded = is_member && secagg_device_of(server, peer_index)->is_folded;
    return is_member && server->step == DUNLIN_V1_SECAGG_STEP_MASK && !*out_is_folded &&
           may_come(server, secagg_device_of(server, peer_index), DUNLIN_V1_SECAGG_STEP_MASK);
}

static dunlin_status check_member(const dunlin__secagg_server *server, uint32_t peer_index,
                                  uint32_t step, dunlin_error *error)
{
    if (peer_index < 1 || peer_index > server->plan.n_cohort) {
        return dunlin__fail(error, DUNLIN_REJECTED, "secagg", 0,
                            "peer %u is none of the cohort's %u", peer_index,
                            server->plan.n_cohort);
    }
    if (!may_come(server, secagg_device_of(server, peer_index), step)) {
        return dunlin__fail(error, DUNLIN_REJECTED, "secagg", 0,
                            "peer %u has no part in step %u of the secure aggregation", peer_index,
                            step);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__secagg_server_take(dunlin__secagg_server *server, uint32_t peer_index,
                                         const uint8_t device_key[DUNLIN_PUBLIC_KEY_BYTES],
                                         const uint8_t *bytes, size_t n_bytes, dunlin_error *error)
{
    const uint32_t room = server->plan.n_neighbours;
    dunlin__secagg_peer *peers = dunlin__alloc_zeroed(&server->alloc, room, sizeof(peers[0]));
    if (peers == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "secagg", 0, "no memory for %u peers", room);
    }
    dunlin__secagg_message message = {.peers = peers, .peer_capacity = room};
    dunlin_status status = dunlin__secagg_request_decode(bytes, n_bytes, &message, error);
    if (status == DUNLIN_OK) {
        status = check_member(server, peer_index, message.step, error);
    }
    if (status == DUNLIN_OK && !message.poll && message.step != server->step) {
        status = dunlin__fail(error, DUNLIN_REJECTED, "secagg", 0,
                              "step %u of the secure aggregation comes in step %u", message.step,
                              server->step);
    }
    if (status == DUNLIN_OK && !message.poll) {
        status = dunlin__secagg_take_request(server, peer_index, device_key, &message, error);
    }
    dunlin__wipe(peers, room * sizeof(peers[0]));
    dunlin__free_array(&server->alloc, peers, room, sizeof(peers[0]));
    return status;
}

static dunlin_status fold_blocks(dunlin__secagg_server *server, dunlin__secagg_read_fn read_fn,
                                 void *ctx, uint8_t *block, dunlin_error *error)
{
    const size_t n_all = n_elements(server);
    const unsigned bits = server->plan.ring_bits;
    for (size_t at = 0; at < n_all; at += DUNLIN_SECAGG_BLOCK) {
        const size_t n = n_all - at < DUNLIN_SECAGG_BLOCK ? n_all - at : DUNLIN_SECAGG_BLOCK;
        DUNLIN_TRY(read_fn(ctx, block, (size_t)dunlin__ring_bytes(n, bits), error));
        if (!dunlin__ring_add(server->sums + at, block, n, bits, false)) {
            return dunlin__fail(error, DUNLIN_DATA, "secagg", 0,
                                "the last byte of a vector of %zu elements has bits of none",
                                n_all);
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__secagg_server_fold(dunlin__secagg_server *server, uint32_t peer_index,
                                         dunlin__secagg_read_fn read_fn, void *ctx,
                                         dunlin_error *error)
{
    const size_t n_block = DUNLIN_SECAGG_BLOCK * sizeof(uint32_t);
    DUNLIN_TRY(check_member(server, peer_index, DUNLIN_V1_SECAGG_STEP_MASK, error));
    secagg_device *device = secagg_device_of(server, peer_index);
    if (server->step != DUNLIN_V1_SECAGG_STEP_MASK || !device->took[DUNLIN_V1_SECAGG_STEP_MASK] ||
        device->is_folded) {
        return dunlin__fail(error, DUNLIN_REJECTED, "secagg", 0,
                            "a vector of peer %u is not awaited in step %u", peer_index,
                            server->step);
    }
    uint8_t *block = dunlin__alloc_array(&server->alloc, n_block, 1);
    dunlin_status status = block != NULL
                               ? fold_blocks(server, read_fn, ctx, block, error)
                               : dunlin__fail(error, DUNLIN_MEMORY, "secagg", 0,
                                              "no memory for a block of %u", DUNLIN_SECAGG_BLOCK);
    dunlin__free_array(&server->alloc, block, n_block, 1);
    device->is_folded = status == DUNLIN_OK;
    return status == DUNLIN_OK ? DUNLIN_OK : dunlin__secagg_fail(server, status);
}

/* Who is in the sum, from now on; sealed shares are of no use to anybody any more. */
static dunlin_status note_survivors(dunlin__secagg_server *server, dunlin_error *error)
{
    const uint32_t n = dunlin__secagg_server_count(server, DUNLIN_V1_SECAGG_STEP_MASK);
    if (n < server->plan.least_devices) {
        return dunlin__fail(error, DUNLIN_REJECTED, "secagg", 0,
                            "%u vectors came, fewer than the least of a sum, %u", n,
                            server->plan.least_devices);
    }
    for (uint32_t i = 0; i < server->plan.n_cohort; i++) {
        if (server->devices[i].is_folded) {
            server->survivors[i / 8] = (uint8_t)(server->survivors[i / 8] | 1u << i % 8);
        }
    }
    void *sealed = server->sealed;
    wipe_array(server, &sealed, secagg_slots(server), DUNLIN_SECAGG_SEALED_BYTES);
    server->sealed = NULL;
    return dunlin__sha256_of(server->survivors, survivor_bytes(server), server->survivors_sha256,
                             error);
}

dunlin_status dunlin__secagg_server_advance(dunlin__secagg_server *server, dunlin_error *error)
{
    const uint32_t step = server->step;
    dunlin_status status = DUNLIN_OK;
    if (step > DUNLIN_WIRE_SECAGG_STEPS) {
        return dunlin__fail(error, DUNLIN_STATE, "secagg", 0,
                            "step %u of the secure aggregation does not end", step);
    }
    if (step == DUNLIN_V1_SECAGG_STEP_ADVERTISE) {
        status = dunlin__secagg_draw_neighbours(server, error);
    } else if (step == DUNLIN_V1_SECAGG_STEP_MASK) {
        status = note_survivors(server, error);
    } else if (dunlin__secagg_server_count(server, step) < server->plan.threshold) {
        status =
            dunlin__fail(error, DUNLIN_REJECTED, "secagg", 0,
                         "%u devices came in step %u, fewer than the threshold %u",
                         dunlin__secagg_server_count(server, step), step, server->plan.threshold);
    }
    if (status != DUNLIN_OK) {
        return dunlin__secagg_fail(server, status);
    }
    const bool skips = step == DUNLIN_V1_SECAGG_STEP_MASK && !server->plan.check_consistency;
    server->step = step + (skips ? 2 : 1);
    return DUNLIN_OK;
}
