/*
 * secagg_world.c - a server and its devices in one process.
 */
#include "secagg_world.h"

#include "random.h"

#include <wire/signature.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void need(bool is_true, const char *what, const dunlin_error *error)
{
    if (!is_true) {
        fprintf(stderr, "secagg_world: %s: %s\n", what, error->text);
        abort();
    }
}

dunlin__secagg_plan secagg_terms(uint32_t n, uint32_t n_neighbours, uint32_t threshold,
                                 uint32_t ring_bits, uint64_t n_values)
{
    dunlin__secagg_plan plan = {.version = 1,
                                .n_cohort = n,
                                .n_neighbours = n_neighbours,
                                .threshold = threshold,
                                .least_devices = 2,
                                .ring_bits = ring_bits,
                                .n_values = n_values,
                                .clip = 1.0f,
                                .value_limit = 1,
                                .weight_limit = 1};
    plan.session.size = 16;
    memset(plan.session.bytes, 0x5a, 16);
    return plan;
}

static dunlin_status sign_member(void *ctx, const uint8_t *message, size_t n_bytes,
                                 uint8_t out_signature[DUNLIN_SIGNATURE_BYTES], dunlin_error *error)
{
    const secagg_member *member = ctx;
    return dunlin__sign(member->private_key, message, n_bytes, out_signature, error);
}

void secagg_member_open(secagg_world *world, uint32_t peer_index,
                        dunlin_status (*judge_key_fn)(void *, uint32_t, const uint8_t *,
                                                      dunlin_error *))
{
    secagg_member *member = &world->members[peer_index - 1];
    dunlin__secagg_plan plan = world->plan;
    plan.peer_index = peer_index;
    dunlin__secagg_client_options options = {
        .plan = &plan, .ctx = member, .sign_fn = sign_member, .judge_key_fn = judge_key_fn};
    memcpy(options.device_key, member->device_key, sizeof(options.device_key));
    need(dunlin__secagg_client_open(&options, &member->client, &world->error) == DUNLIN_OK,
         "client", &world->error);
}

static void open_member(secagg_world *world, uint32_t peer_index, uint64_t *state)
{
    secagg_member *member = &world->members[peer_index - 1];
    const size_t n = (size_t)dunlin__secagg_elements(&world->plan);
    member->leaves = SECAGG_STAYS;
    need(dunlin__key_generate(member->private_key, member->device_key, &world->error) == DUNLIN_OK,
         "key", &world->error);
    secagg_member_open(world, peer_index, NULL);
    member->vector = calloc(n, sizeof(uint32_t));
    member->packed = calloc(n, sizeof(uint32_t));
    member->request = malloc(DUNLIN_WIRE_BODY_BYTES);
    for (size_t i = 0; i < n; i++) {
        member->vector[i] = (uint32_t)test_random_u64(state);
    }
}

void secagg_world_open(secagg_world *world, const dunlin__secagg_plan *plan, uint64_t *state)
{
    *world = (secagg_world){.plan = *plan, .n = plan->n_cohort};
    const dunlin__secagg_server_options options = {
        .plan = plan, .wish = {.security_bits = 40.0, .failure_bits = 20.0}};
    need(dunlin__secagg_server_open(&options, &world->server, &world->error) == DUNLIN_OK, "server",
         &world->error);
    world->members = calloc(world->n, sizeof(world->members[0]));
    for (uint32_t i = 1; i <= world->n; i++) {
        open_member(world, i, state);
    }
}

void secagg_world_close(secagg_world *world)
{
    for (uint32_t i = 0; i < world->n; i++) {
        dunlin__secagg_client_close(world->members[i].client);
        free(world->members[i].vector);
        free(world->members[i].packed);
        free(world->members[i].request);
    }
    free(world->members);
    dunlin__secagg_server_close(world->server);
}

dunlin_status secagg_member_mask(secagg_world *world, secagg_member *member)
{
    const size_t n_all = (size_t)dunlin__secagg_elements(&world->plan);
    const uint8_t name[DUNLIN_SHA256_BYTES] = {1};
    uint32_t *block = malloc(DUNLIN_SECAGG_BLOCK * sizeof(uint32_t));
    dunlin_status status = DUNLIN_OK;
    for (size_t at = 0; at < n_all && status == DUNLIN_OK; at += DUNLIN_SECAGG_BLOCK) {
        const size_t n = n_all - at < DUNLIN_SECAGG_BLOCK ? n_all - at : DUNLIN_SECAGG_BLOCK;
        memcpy(block, member->vector + at, n * sizeof(block[0]));
        status = dunlin__secagg_client_mask(
            member->client, block, n,
            member->packed + dunlin__ring_bytes(at, world->plan.ring_bits), &member->error);
    }
    free(block);
    return status != DUNLIN_OK
               ? status
               : dunlin__secagg_client_mask_end(member->client, name, &member->error);
}

dunlin_status secagg_member_write(secagg_world *world, secagg_member *member)
{
    (void)world;
    return dunlin__secagg_client_write(member->client, member->request, DUNLIN_WIRE_BODY_BYTES,
                                       &member->n_request, &member->error);
}

dunlin_status secagg_read_vector(void *ctx, uint8_t *buffer, size_t n_bytes, dunlin_error *error)
{
    secagg_vector *from = ctx;
    need(n_bytes <= from->n_left, "more than the vector is read", error);
    memcpy(buffer, from->bytes, n_bytes);
    from->bytes += n_bytes;
    from->n_left -= n_bytes;
    return DUNLIN_OK;
}

static void send_vector(secagg_world *world, uint32_t peer_index)
{
    secagg_member *member = &world->members[peer_index - 1];
    const uint64_t n = dunlin__secagg_elements(&world->plan);
    secagg_vector from = {member->packed, (size_t)dunlin__ring_bytes(n, world->plan.ring_bits)};
    need(dunlin__secagg_server_fold(world->server, peer_index, secagg_read_vector, &from,
                                    &world->error) == DUNLIN_OK,
         "fold", &world->error);
    need(from.n_left == 0, "some of the vector is not read", &world->error);
    member->is_folded = true;
}

static bool is_there(const secagg_world *world, const secagg_member *member, uint32_t step)
{
    (void)world;
    return member->leaves > step && member->refused == DUNLIN_OK;
}

void secagg_world_send(secagg_world *world)
{
    const uint32_t step = dunlin__secagg_server_step(world->server);
    for (uint32_t i = 1; i <= world->n; i++) {
        secagg_member *member = &world->members[i - 1];
        if (!is_there(world, member, step)) {
            continue;
        }
        if (step == DUNLIN_V1_SECAGG_STEP_MASK) {
            need(secagg_member_mask(world, member) == DUNLIN_OK, "mask", &member->error);
        }
        need(secagg_member_write(world, member) == DUNLIN_OK, "write", &member->error);
        need(dunlin__secagg_server_take(world->server, i, member->device_key, member->request,
                                        member->n_request, &world->error) == DUNLIN_OK,
             "take", &world->error);
        if (step == DUNLIN_V1_SECAGG_STEP_MASK && !member->has_lost) {
            send_vector(world, i);
        }
    }
}

dunlin_status secagg_world_advance(secagg_world *world)
{
    return dunlin__secagg_server_advance(world->server, &world->error);
}

/* The answer as somebody changed it on its way. */
static size_t change(secagg_world *world, uint32_t peer_index, uint8_t *bytes, size_t n_bytes)
{
    dunlin__secagg_peer *peers = calloc(DUNLIN_WIRE_PEERS, sizeof(peers[0]));
    uint8_t *survivors = calloc(DUNLIN_WIRE_SECAGG_COHORT / 8, 1);
    dunlin__secagg_message answer = {.peers = peers,
                                     .peer_capacity = DUNLIN_WIRE_PEERS,
                                     .survivors = survivors,
                                     .survivor_capacity = DUNLIN_WIRE_SECAGG_COHORT / 8};
    size_t n_changed = 0;
    need(dunlin__secagg_response_decode(bytes, n_bytes, &answer, &world->error) == DUNLIN_OK,
         "answer", &world->error);
    world->change_fn(world, peer_index, &answer);
    need(dunlin__secagg_response_encode(&answer, bytes, DUNLIN_WIRE_BODY_BYTES, &n_changed,
                                        &world->error) == DUNLIN_OK,
         "changed answer", &world->error);
    free(peers);
    free(survivors);
    return n_changed;
}

void secagg_world_answer(secagg_world *world, uint32_t step)
{
    uint8_t *bytes = malloc(DUNLIN_WIRE_BODY_BYTES);
    for (uint32_t i = 1; i <= world->n; i++) {
        secagg_member *member = &world->members[i - 1];
        size_t n_bytes = 0;
        uint64_t retry_ms = 0;
        if (!is_there(world, member, step)) {
            continue;
        }
        need(dunlin__secagg_server_answer(world->server, &(dunlin__secagg_asked){i, step, 50},
                                          bytes, DUNLIN_WIRE_BODY_BYTES, &n_bytes,
                                          &world->error) == DUNLIN_OK,
             "answer", &world->error);
        if (world->change_fn != NULL && world->changed_step == step) {
            n_bytes = change(world, i, bytes, n_bytes);
        }
        member->refused =
            dunlin__secagg_client_read(member->client, bytes, n_bytes, &retry_ms, &member->error);
    }
    free(bytes);
}

uint32_t secagg_world_run(secagg_world *world)
{
    while (dunlin__secagg_server_step(world->server) <= DUNLIN_V1_SECAGG_STEP_UNMASK) {
        const uint32_t step = dunlin__secagg_server_step(world->server);
        secagg_world_send(world);
        if (secagg_world_advance(world) == DUNLIN_OK && step != DUNLIN_V1_SECAGG_STEP_UNMASK) {
            secagg_world_answer(world, step);
        }
    }
    if (dunlin__secagg_server_step(world->server) == DUNLIN_SECAGG_READY) {
        (void)!dunlin__secagg_server_unmask(world->server, &world->error);
    }
    return dunlin__secagg_server_step(world->server);
}

void secagg_world_run_to(secagg_world *world, uint32_t step)
{
    for (;;) {
        const uint32_t now = dunlin__secagg_server_step(world->server);
        secagg_world_send(world);
        if (now == step) {
            return;
        }
        need(secagg_world_advance(world) == DUNLIN_OK, "advance", &world->error);
        secagg_world_answer(world, now);
    }
}

bool secagg_world_sum_is_right(const secagg_world *world)
{
    const uint32_t *sum = dunlin__secagg_server_sum(world->server);
    const uint64_t n_elements = dunlin__secagg_elements(&world->plan);
    const uint32_t mask = UINT32_MAX >> (32 - world->plan.ring_bits);
    bool is_right = sum != NULL;
    for (uint64_t i = 0; is_right && i < n_elements; i++) {
        uint32_t plain = 0;
        for (uint32_t j = 0; j < world->n; j++) {
            plain += world->members[j].is_folded ? world->members[j].vector[i] : 0;
        }
        is_right = (sum[i] & mask) == (plain & mask);
    }
    return is_right;
}
