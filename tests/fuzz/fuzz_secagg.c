/*
 * fuzz_secagg.c - a secure aggregation of four devices in which any byte of any message may change.
 *
 * The first byte says who leaves, the rest are changes of four bytes each: which message, where
 * (two bytes), and what is flipped there; 0 cuts the message off. Whatever comes, both sides refuse
 * in one line or go on; whoever refused is over; there is a sum in DONE alone, and where nothing
 * was changed and enough stay, the right one; of no device both shares are told.
 */
#include "secagg/secagg_world.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define N 4u
#define THRESHOLD 2u

typedef struct session {
    secagg_world world;
    const uint8_t *changes;
    size_t n_changes;
    unsigned n_messages;
    bool is_changed;
    uint8_t bytes[DUNLIN_WIRE_BODY_BYTES];
} session;

static void require(bool is_kept)
{
    if (!is_kept) {
        __builtin_trap();
    }
}

static void require_line(dunlin_status status, const dunlin_error *error)
{
    require(status == DUNLIN_OK || (error->status == status && error->text[0] != '\0' &&
                                    strchr(error->text, '\n') == NULL));
}

/* The message as it arrives. */
static size_t arrive(session *now, uint8_t *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < now->n_changes; i++) {
        const uint8_t *change = now->changes + 4 * i;
        const size_t at = change[1] | (size_t)change[2] << 8;
        if (change[0] % 64 == now->n_messages % 64 && at < n_bytes) {
            now->is_changed = true;
            bytes[at] ^= change[3];
            n_bytes = change[3] == 0 ? at : n_bytes;
        }
    }
    now->n_messages++;
    return n_bytes;
}

/* What a device that nobody changed tells: its own choice of shares. */
static void check_told(const uint8_t *bytes, size_t n_bytes)
{
    static dunlin__secagg_peer peers[DUNLIN_WIRE_PEERS];
    dunlin__secagg_message message = {.peers = peers, .peer_capacity = DUNLIN_WIRE_PEERS};
    dunlin_error error = {0};
    uint8_t seen[N + 1] = {0};
    require(dunlin__secagg_request_decode(bytes, n_bytes, &message, &error) == DUNLIN_OK);
    for (uint32_t i = 0; i < message.n_peers; i++) {
        require(peers[i].peer_index <= N && peers[i].share_kind != DUNLIN_V1_SHARE_KIND_NONE);
        require(seen[peers[i].peer_index]++ == 0); /* of each one share */
    }
}

static bool is_there(const secagg_member *member, uint32_t step)
{
    return member->leaves > step && member->refused == DUNLIN_OK;
}

static void send_one(session *now, uint32_t peer_index, uint32_t step)
{
    secagg_world *world = &now->world;
    secagg_member *member = &world->members[peer_index - 1];
    dunlin_error error = {0};
    const uint64_t n_elements = dunlin__secagg_elements(&world->plan);
    if (step == DUNLIN_V1_SECAGG_STEP_MASK) {
        require(secagg_member_mask(world, member) == DUNLIN_OK);
    }
    require(secagg_member_write(world, member) == DUNLIN_OK);
    if (step == DUNLIN_V1_SECAGG_STEP_UNMASK) {
        check_told(member->request, member->n_request);
    }
    const size_t n_bytes = arrive(now, member->request, member->n_request);
    const dunlin_status status = dunlin__secagg_server_take(
        world->server, peer_index, member->device_key, member->request, n_bytes, &error);
    require_line(status, &error);
    if (step == DUNLIN_V1_SECAGG_STEP_MASK && status == DUNLIN_OK) {
        secagg_vector from = {member->packed,
                              (size_t)dunlin__ring_bytes(n_elements, world->plan.ring_bits)};
        member->is_folded =
            dunlin__secagg_server_fold(world->server, peer_index, secagg_read_vector, &from,
                                       &error) == DUNLIN_OK;
    }
}

static void answer_one(session *now, uint32_t peer_index, uint32_t step)
{
    secagg_world *world = &now->world;
    secagg_member *member = &world->members[peer_index - 1];
    dunlin_error error = {0};
    size_t n_bytes = 0;
    uint64_t retry_ms = 0;
    member->refused =
        dunlin__secagg_server_answer(world->server, &(dunlin__secagg_asked){peer_index, step, 9},
                                     now->bytes, sizeof(now->bytes), &n_bytes, &error);
    require_line(member->refused, &error);
    if (member->refused != DUNLIN_OK) {
        return; /* the server did not take its request */
    }
    n_bytes = arrive(now, now->bytes, n_bytes);
    member->refused =
        dunlin__secagg_client_read(member->client, now->bytes, n_bytes, &retry_ms, &error);
    require_line(member->refused, &error);
    if (member->refused != DUNLIN_OK) {
        require(dunlin__secagg_client_step(member->client) == DUNLIN_V1_SECAGG_STEP_UNSPECIFIED);
    } else if (retry_ms != 0) {
        member->refused = DUNLIN_TIMEOUT; /* told to wait for ever */
    }
}

static void run(session *now)
{
    secagg_world *world = &now->world;
    dunlin_error error = {0};
    uint32_t step = dunlin__secagg_server_step(world->server);
    while (step <= DUNLIN_V1_SECAGG_STEP_UNMASK) {
        for (uint32_t i = 1; i <= N; i++) {
            if (is_there(&world->members[i - 1], step)) {
                send_one(now, i, step);
            }
        }
        require(dunlin__secagg_server_sum(world->server) == NULL);
        const dunlin_status status = dunlin__secagg_server_advance(world->server, &error);
        require_line(status, &error);
        for (uint32_t i = 1; status == DUNLIN_OK && i <= N && step < DUNLIN_V1_SECAGG_STEP_UNMASK;
             i++) {
            if (is_there(&world->members[i - 1], step)) {
                answer_one(now, i, step);
            }
        }
        step = dunlin__secagg_server_step(world->server);
    }
    if (step == DUNLIN_SECAGG_READY) {
        require_line(dunlin__secagg_server_unmask(world->server, &error), &error);
    }
    const bool is_done = dunlin__secagg_server_step(world->server) == DUNLIN_SECAGG_DONE;
    require(is_done == (dunlin__secagg_server_sum(world->server) != NULL));
    require(!is_done || now->is_changed || secagg_world_sum_is_right(world));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static session now;
    uint64_t state = 1;
    dunlin__secagg_plan plan = secagg_terms(N, N - 1, THRESHOLD, 13, 20);
    plan.check_consistency = true;
    if (size == 0) {
        return 0;
    }
    memset(&now, 0, sizeof(now));
    now.changes = data + 1;
    now.n_changes = (size - 1) / 4;
    secagg_world_open(&now.world, &plan, &state);
    const uint32_t leaver = data[0] % (N + 1); /* 0: nobody */
    if (leaver > 0) {
        now.world.members[leaver - 1].leaves = 1 + data[0] / (N + 1) % SECAGG_STAYS;
    }
    run(&now);
    /* Three that stay, one more than the threshold, give a sum. */
    require(now.is_changed || dunlin__secagg_server_step(now.world.server) == DUNLIN_SECAGG_DONE);
    secagg_world_close(&now.world);
    return 0;
}
