/*
 * test_secagg_client.c - one device's part: once each, in order, above the app's floor, and within
 * its memory.
 */
#include "random.h"
#include "secagg/secagg_world.h"
#include "secagg_over.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#define N 5u

/* A share of each neighbour once, of the right kind, and never again. */
Test(secagg_client, shares_are_told_once)
{
    uint64_t state = test_seed(353);
    const dunlin__secagg_plan plan = secagg_terms(N, N - 1, 3, 16, 10);
    dunlin__secagg_peer peers[DUNLIN_WIRE_PEERS];
    secagg_world world;
    secagg_world_open(&world, &plan, &state);
    world.members[4].leaves = DUNLIN_V1_SECAGG_STEP_MASK;
    secagg_world_run_to(&world, DUNLIN_V1_SECAGG_STEP_UNMASK);
    secagg_member *first = &world.members[0];
    dunlin__secagg_message message = {.peers = peers, .peer_capacity = DUNLIN_WIRE_PEERS};
    cr_assert_eq(dunlin__secagg_request_decode(first->request, first->n_request, &message, NULL),
                 DUNLIN_OK);
    cr_assert_eq(message.n_peers, 4);
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert_eq(peers[i].share_kind, peers[i].peer_index == 5
                                              ? DUNLIN_V1_SHARE_KIND_MASK_KEY
                                              : DUNLIN_V1_SHARE_KIND_SELF_MASK);
    }
    expect_over(first, "after unmask");
    secagg_world_close(&world);
}

/* One mask, one vector: a second pass, a jump or a vector without an end are refused. */
Test(secagg_client, a_vector_is_masked_once)
{
    uint64_t state = test_seed(354);
    const dunlin__secagg_plan plan = secagg_terms(3, 2, 2, 32, 100);
    uint32_t block[101] = {0};
    const uint8_t hash[DUNLIN_SHA256_BYTES] = {1};
    dunlin_error error = {0};
    secagg_world world;
    secagg_world_open(&world, &plan, &state);
    secagg_member *first = &world.members[0];
    cr_assert_eq(dunlin__secagg_client_mask(first->client, block, 101, (uint8_t *)block, &error),
                 DUNLIN_STATE, "masks before there are keys");
    secagg_world_run_to(&world, DUNLIN_V1_SECAGG_STEP_SHARE);
    cr_assert_eq(secagg_world_advance(&world), DUNLIN_OK);
    secagg_world_answer(&world, DUNLIN_V1_SECAGG_STEP_SHARE);
    cr_assert_eq(dunlin__secagg_client_mask_end(first->client, hash, &error), DUNLIN_STATE);
    cr_assert_not_null(strstr(error.text, "0 of 101"), "%s", error.text);
    cr_assert_eq(secagg_member_write(&world, first), DUNLIN_STATE);
    cr_assert_eq(dunlin__secagg_client_mask(first->client, block, 101, (uint8_t *)block, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_assert_eq(dunlin__secagg_client_mask(first->client, block, 101, (uint8_t *)block, &error),
                 DUNLIN_STATE);
    cr_assert_eq(dunlin__secagg_client_mask_end(first->client, hash, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__secagg_client_mask(first->client, block, 101, (uint8_t *)block, &error),
                 DUNLIN_STATE);
    secagg_member *second = &world.members[1];
    cr_assert_eq(dunlin__secagg_client_mask(second->client, block, 100, (uint8_t *)block, &error),
                 DUNLIN_ARGUMENT);
    cr_assert_not_null(strstr(error.text, "block of 100 elements, wanted are 101"), "%s",
                       error.text);
    expect_over(second, "a block of another length");
    secagg_world_close(&world);
}

static dunlin_status sign_not(void *ctx, const uint8_t *message, size_t n_bytes,
                              uint8_t out_signature[DUNLIN_SIGNATURE_BYTES], dunlin_error *error)
{
    (void)message;
    (void)n_bytes;
    (void)out_signature;
    (void)error;
    (void)ctx;
    return DUNLIN_LOCKED;
}

static dunlin_status open_with(const dunlin__secagg_plan *plan, const dunlin__secagg_floor *floor,
                               dunlin_error *error)
{
    const dunlin__secagg_client_options options = {
        .plan = plan, .floor = *floor, .sign_fn = sign_not};
    dunlin__secagg_client *client = NULL;
    const dunlin_status status = dunlin__secagg_client_open(&options, &client, error);
    cr_assert_eq(client != NULL, status == DUNLIN_OK);
    dunlin__secagg_client_close(client);
    return status;
}

Test(secagg_client, terms_below_the_floor)
{
    dunlin__secagg_plan plan = secagg_terms(10, 4, 3, 16, 10);
    plan.peer_index = 1;
    dunlin_error error = {0};
    cr_assert_eq(open_with(&plan, &(dunlin__secagg_floor){10, 4, 3, 2, false}, &error), DUNLIN_OK,
                 "%s", error.text);
    static const struct {
        dunlin__secagg_floor floor;
        const char *wanted;
    } floors[] = {
        {{.least_cohort = 11}, "n_cohort of the secure aggregation is 10"},
        {{.least_neighbours = 5}, "n_neighbours of the secure aggregation is 4"},
        {{.least_threshold = 4}, "threshold of the secure aggregation is 3"},
        {{.least_devices = 3}, "least_devices of the secure aggregation is 2"},
        {{.needs_consistency = true}, "check_consistency of the secure aggregation is 0"}};
    for (size_t i = 0; i < sizeof(floors) / sizeof(floors[0]); i++) {
        cr_assert_eq(open_with(&plan, &floors[i].floor, &error), DUNLIN_REJECTED);
        cr_assert_not_null(strstr(error.text, floors[i].wanted), "%s", error.text);
    }
    plan.peer_index = 11;
    cr_assert_eq(open_with(&plan, &(dunlin__secagg_floor){0}, &error), DUNLIN_ARGUMENT);
    plan.peer_index = 1;
    plan.threshold = 2;
    cr_assert_eq(open_with(&plan, &(dunlin__secagg_floor){0}, &error), DUNLIN_ARGUMENT);
    cr_assert_not_null(strstr(error.text, "threshold is 2, allowed are 3 to 4"), "%s", error.text);
}

Test(secagg_client, a_device_that_cannot_sign)
{
    dunlin__secagg_plan plan = secagg_terms(10, 4, 3, 16, 10);
    plan.peer_index = 1;
    const dunlin__secagg_client_options options = {.plan = &plan, .sign_fn = sign_not};
    dunlin__secagg_client *client = NULL;
    uint8_t *bytes = malloc(DUNLIN_WIRE_BODY_BYTES);
    size_t n_bytes = 1;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__secagg_client_open(&options, &client, &error), DUNLIN_OK);
    cr_assert_eq(
        dunlin__secagg_client_write(client, bytes, DUNLIN_WIRE_BODY_BYTES, &n_bytes, &error),
        DUNLIN_LOCKED);
    cr_assert_eq(n_bytes, 0);
    cr_assert_eq(dunlin__secagg_client_step(client), DUNLIN_V1_SECAGG_STEP_UNSPECIFIED);
    dunlin__secagg_client_close(client);
    free(bytes);
}

static dunlin_status judge_not_three(void *ctx, uint32_t peer_index,
                                     const uint8_t device_key[DUNLIN_PUBLIC_KEY_BYTES],
                                     dunlin_error *error)
{
    (void)ctx;
    (void)device_key;
    (void)error;
    return peer_index == 3 ? DUNLIN_TLS : DUNLIN_OK;
}

Test(secagg_client, device_keys_are_judged)
{
    uint64_t state = test_seed(355);
    const dunlin__secagg_plan plan = secagg_terms(N, N - 1, 3, 16, 10);
    secagg_world world;
    secagg_world_open(&world, &plan, &state);
    dunlin__secagg_client_close(world.members[0].client);
    secagg_member_open(&world, 1, judge_not_three);
    secagg_world_run_to(&world, DUNLIN_V1_SECAGG_STEP_ADVERTISE);
    cr_assert_eq(secagg_world_advance(&world), DUNLIN_OK);
    secagg_world_answer(&world, DUNLIN_V1_SECAGG_STEP_ADVERTISE);
    cr_assert_eq(world.members[0].refused, DUNLIN_TLS);
    cr_assert_eq(world.members[1].refused, DUNLIN_OK);
    expect_over(&world.members[0], "a key that is no device's");
    secagg_world_close(&world);
}

/* The cohort is not complete: the device asks again, and nothing has changed. */
Test(secagg_client, not_ready_is_no_step)
{
    uint64_t state = test_seed(356);
    const dunlin__secagg_plan plan = secagg_terms(N, N - 1, 3, 16, 10);
    uint8_t *bytes = malloc(DUNLIN_WIRE_BODY_BYTES);
    uint64_t retry_ms = 0;
    size_t n_bytes = 0;
    dunlin_error error = {0};
    secagg_world world;
    secagg_world_open(&world, &plan, &state);
    secagg_member *first = &world.members[0];
    cr_assert_eq(dunlin__secagg_client_read(first->client, bytes, 0, &retry_ms, &error),
                 DUNLIN_STATE, "an answer before the request");
    secagg_world_run_to(&world, DUNLIN_V1_SECAGG_STEP_ADVERTISE);
    for (uint64_t wait = 0; wait <= 70; wait += 70) {
        cr_assert_eq(dunlin__secagg_server_answer(world.server, &(dunlin__secagg_asked){1, 1, wait},
                                                  bytes, DUNLIN_WIRE_BODY_BYTES, &n_bytes, &error),
                     DUNLIN_OK);
        cr_assert_eq(dunlin__secagg_client_read(first->client, bytes, n_bytes, &retry_ms, &error),
                     DUNLIN_OK, "%s", error.text);
        cr_assert_eq(retry_ms, wait == 0 ? 1 : wait);
        cr_assert_eq(dunlin__secagg_client_step(first->client), DUNLIN_V1_SECAGG_STEP_ADVERTISE);
        cr_assert_eq(secagg_member_write(&world, first), DUNLIN_OK);
        cr_assert_eq(dunlin__secagg_server_take(world.server, 1, first->device_key, first->request,
                                                first->n_request, &error),
                     DUNLIN_OK, "%s", error.text);
    }
    cr_assert_eq(secagg_world_advance(&world), DUNLIN_OK);
    secagg_world_answer(&world, DUNLIN_V1_SECAGG_STEP_ADVERTISE);
    cr_assert_eq(first->refused, DUNLIN_OK, "%s", first->error.text);
    cr_assert_eq(secagg_world_run(&world), DUNLIN_SECAGG_DONE, "%s", world.error.text);
    cr_assert(secagg_world_sum_is_right(&world));
    secagg_world_close(&world);
    free(bytes);
}

/* Bytes that the hooks gave, now and at most. */
typedef struct counted {
    size_t now;
    size_t most;
    size_t left; /* allocations until one fails; 0: none does */
} counted;

static void *count_alloc(void *ctx, size_t n_bytes, size_t alignment)
{
    counted *count = ctx;
    if (count->left > 0 && --count->left == 0) {
        return NULL;
    }
    count->now += n_bytes;
    count->most = count->now > count->most ? count->now : count->most;
    return aligned_alloc(alignment, (n_bytes + alignment - 1) / alignment * alignment);
}

static void count_free(void *ctx, void *memory, size_t n_bytes)
{
    counted *count = ctx;
    if (memory != NULL) {
        count->now -= n_bytes;
        free(memory);
    }
}

/* A hundred neighbours: what a device has beside its model and the body of a request. */
Test(secagg_client, memory_is_bounded)
{
    counted count = {0};
    const dunlin_alloc alloc = {.ctx = &count, .alloc_fn = count_alloc, .free_fn = count_free};
    dunlin__secagg_plan plan = secagg_terms(1000, 100, 60, 32, 1000000);
    plan.peer_index = 7;
    const dunlin__secagg_client_options options = {
        .plan = &plan, .sign_fn = sign_not, .alloc = &alloc};
    dunlin__secagg_client *client = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__secagg_client_open(&options, &client, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_leq(count.most, 30000, "%zu", count.most);
    dunlin__secagg_client_close(client);
    cr_assert_eq(count.now, 0);
    for (size_t left = 1; left <= 2; left++) {
        count.left = left;
        cr_assert_eq(dunlin__secagg_client_open(&options, &client, &error), DUNLIN_MEMORY);
        cr_assert_null(client);
        cr_assert_eq(count.now, 0);
    }
}
