/*
 * test_secagg_server.c - what a server refuses of devices, and what ends a session with nothing
 * told.
 */
#include "random.h"
#include "secagg/secagg_world.h"

#include <wire/signature.h>

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#define N 5u

static dunlin__secagg_peer peers[DUNLIN_WIRE_PEERS];
static uint8_t body[DUNLIN_WIRE_BODY_BYTES];

static dunlin_status take(secagg_world *world, uint32_t peer_index, const uint8_t *bytes, size_t n)
{
    return dunlin__secagg_server_take(world->server, peer_index,
                                      world->members[(peer_index - 1) % world->n].device_key, bytes,
                                      n, &world->error);
}

/* The device's last request as a struct, to be changed; then sent. */
static dunlin__secagg_message request_of(const secagg_member *member)
{
    dunlin__secagg_message message = {.peers = peers, .peer_capacity = DUNLIN_WIRE_PEERS};
    cr_assert_eq(dunlin__secagg_request_decode(member->request, member->n_request, &message, NULL),
                 DUNLIN_OK);
    return message;
}

static dunlin_status send_changed(secagg_world *world, uint32_t peer_index,
                                  const dunlin__secagg_message *message)
{
    size_t n_bytes = 0;
    cr_assert_eq(dunlin__secagg_request_encode(message, body, sizeof(body), &n_bytes, NULL),
                 DUNLIN_OK);
    return take(world, peer_index, body, n_bytes);
}

#define EXPECT(call, status, part)                                                                 \
    do {                                                                                           \
        cr_assert_eq(call, status, "%s", world.error.text);                                        \
        cr_assert_not_null(strstr(world.error.text, part), "%s", world.error.text);                \
    } while (0)

static void expect_failed(secagg_world *world)
{
    size_t n_bytes = 0;
    cr_assert_eq(dunlin__secagg_server_step(world->server), DUNLIN_SECAGG_FAILED);
    cr_assert_null(dunlin__secagg_server_sum(world->server));
    for (uint32_t step = 1; step <= 5; step++) {
        cr_assert_eq(dunlin__secagg_server_answer(world->server,
                                                  &(dunlin__secagg_asked){1, step, 0}, body,
                                                  sizeof(body), &n_bytes, &world->error),
                     DUNLIN_REJECTED);
    }
    cr_assert_eq(dunlin__secagg_server_unmask(world->server, &world->error), DUNLIN_STATE);
    cr_assert_eq(dunlin__secagg_server_advance(world->server, &world->error), DUNLIN_STATE);
}

static void open_five(secagg_world *world, uint64_t *state, bool checks_consistency)
{
    dunlin__secagg_plan plan = secagg_terms(N, N - 1, 3, 20, 9);
    plan.check_consistency = checks_consistency;
    secagg_world_open(world, &plan, state);
}

/* The keys of a device that was killed and began again are others, and are refused; so are its keys
 * under another index. */
Test(secagg_server, one_advertisement_of_a_device)
{
    uint64_t state = test_seed(361);
    secagg_world world;
    open_five(&world, &state, false);
    secagg_member *first = &world.members[0];
    secagg_member *second = &world.members[1];
    cr_assert_eq(secagg_member_write(&world, first), DUNLIN_OK);
    cr_assert_eq(take(&world, 1, first->request, first->n_request), DUNLIN_OK);
    cr_assert_eq(take(&world, 1, first->request, first->n_request), DUNLIN_OK,
                 "its answer was lost");
    dunlin__secagg_client_close(first->client);
    secagg_member_open(&world, 1, NULL);
    cr_assert_eq(secagg_member_write(&world, first), DUNLIN_OK);
    EXPECT(take(&world, 1, first->request, first->n_request), DUNLIN_REJECTED,
           "peer 1 of a secure aggregation advertises other keys");
    memcpy(second->device_key, first->device_key, sizeof(second->device_key));
    memcpy(second->private_key, first->private_key, sizeof(second->private_key));
    dunlin__secagg_client_close(second->client);
    secagg_member_open(&world, 2, NULL);
    cr_assert_eq(secagg_member_write(&world, second), DUNLIN_OK);
    EXPECT(take(&world, 2, second->request, second->n_request), DUNLIN_REJECTED,
           "peer 2 of a secure aggregation advertises a key that another one has");
    cr_assert_eq(dunlin__secagg_server_count(world.server, 1), 1);
    secagg_world_close(&world);
}

Test(secagg_server, bad_advertisements)
{
    uint64_t state = test_seed(362);
    secagg_world world;
    open_five(&world, &state, false);
    secagg_member *first = &world.members[0];
    cr_assert_eq(secagg_member_write(&world, first), DUNLIN_OK);
    dunlin__secagg_message message = request_of(first);
    peers[0].mask_key.bytes[3] ^= 1;
    EXPECT(send_changed(&world, 1, &message), DUNLIN_SIGNATURE, "wrong signature");
    message = request_of(first);
    peers[0].mask_key.size = 0;
    EXPECT(send_changed(&world, 1, &message), DUNLIN_PROTOCOL, "without all its keys");
    message = request_of(first);
    EXPECT(send_changed(&world, 2, &message), DUNLIN_PROTOCOL, "without all its keys");
    EXPECT(take(&world, 6, first->request, first->n_request), DUNLIN_REJECTED,
           "peer 6 is none of the cohort's 5");
    EXPECT(take(&world, 0 + N + 2, first->request, first->n_request), DUNLIN_REJECTED, "peer 7");
    EXPECT(take(&world, 1, first->request, first->n_request - 1), DUNLIN_PROTOCOL, "SecaggRequest");
    message = request_of(first);
    message.step = DUNLIN_V1_SECAGG_STEP_SHARE;
    EXPECT(send_changed(&world, 1, &message), DUNLIN_REJECTED, "no part in step 2");
    cr_assert_eq(dunlin__secagg_server_count(world.server, 1), 0);
    cr_assert_eq(take(&world, 1, first->request, first->n_request), DUNLIN_OK, "%s",
                 world.error.text);
    message = request_of(first);
    message.step = DUNLIN_V1_SECAGG_STEP_SHARE;
    EXPECT(send_changed(&world, 1, &message), DUNLIN_REJECTED,
           "step 2 of the secure aggregation comes in step 1");
    secagg_world_close(&world);
}

Test(secagg_server, bad_shares)
{
    uint64_t state = test_seed(363);
    secagg_world world;
    open_five(&world, &state, false);
    world.members[4].leaves = DUNLIN_V1_SECAGG_STEP_ADVERTISE;
    secagg_world_run_to(&world, DUNLIN_V1_SECAGG_STEP_ADVERTISE);
    cr_assert_eq(secagg_world_advance(&world), DUNLIN_OK, "%s", world.error.text);
    secagg_world_answer(&world, DUNLIN_V1_SECAGG_STEP_ADVERTISE);
    secagg_member *first = &world.members[0];
    cr_assert_eq(secagg_member_write(&world, first), DUNLIN_OK, "%s", first->error.text);
    dunlin__secagg_message message = request_of(first);
    cr_assert_eq(message.n_peers, 3);
    message.n_peers = 2;
    EXPECT(send_changed(&world, 1, &message), DUNLIN_PROTOCOL, "no shares for some");
    message = request_of(first);
    peers[1].peer_index = peers[0].peer_index;
    EXPECT(send_changed(&world, 1, &message), DUNLIN_PROTOCOL, "no neighbour, or one twice");
    message = request_of(first);
    peers[1].peer_index = 5;
    EXPECT(send_changed(&world, 1, &message), DUNLIN_PROTOCOL, "no neighbour, or one twice");
    message = request_of(first);
    peers[1].ciphertext.size--;
    EXPECT(send_changed(&world, 1, &message), DUNLIN_PROTOCOL, "another length");
    cr_assert_eq(take(&world, 1, first->request, first->n_request), DUNLIN_OK);
    cr_assert_eq(take(&world, 1, first->request, first->n_request), DUNLIN_OK,
                 "its answer was lost");
    message = request_of(first);
    peers[1].ciphertext.bytes[0] ^= 1;
    EXPECT(send_changed(&world, 1, &message), DUNLIN_REJECTED, "other shares than the first time");
    message = request_of(first);
    EXPECT(dunlin__secagg_server_take(world.server, 1, world.members[1].device_key, first->request,
                                      first->n_request, &world.error),
           DUNLIN_REJECTED, "another device's key");
    message.step = DUNLIN_V1_SECAGG_STEP_SHARE;
    EXPECT(send_changed(&world, 5, &message), DUNLIN_REJECTED, "peer 5 has no part in step 2");
    secagg_world_close(&world);
}

static dunlin_status read_fails(void *ctx, uint8_t *buffer, size_t n_bytes, dunlin_error *error)
{
    (void)ctx;
    (void)buffer;
    (void)n_bytes;
    (void)error;
    return DUNLIN_IO;
}

static dunlin_status read_ones(void *ctx, uint8_t *buffer, size_t n_bytes, dunlin_error *error)
{
    (void)ctx;
    (void)error;
    memset(buffer, 0xff, n_bytes);
    return DUNLIN_OK;
}

/* Step mask, before anybody sends a vector. */
static void run_to_vectors(secagg_world *world)
{
    secagg_world_run_to(world, DUNLIN_V1_SECAGG_STEP_SHARE);
    cr_assert_eq(secagg_world_advance(world), DUNLIN_OK, "%s", world->error.text);
    secagg_world_answer(world, DUNLIN_V1_SECAGG_STEP_SHARE);
}

Test(secagg_server, a_vector_once_and_whole)
{
    uint64_t state = test_seed(364);
    secagg_world world;
    dunlin__secagg_plan plan = secagg_terms(N, N - 1, 3, 11, 9); /* 110 bits: 2 of no element */
    secagg_world_open(&world, &plan, &state);
    run_to_vectors(&world);
    EXPECT(dunlin__secagg_server_fold(world.server, 1, read_ones, NULL, &world.error),
           DUNLIN_REJECTED, "a vector of peer 1 is not awaited");
    cr_assert_not(dunlin__secagg_server_is_complete(world.server));
    secagg_world_send(&world);
    cr_assert(dunlin__secagg_server_is_complete(world.server));
    EXPECT(dunlin__secagg_server_fold(world.server, 1, read_ones, NULL, &world.error),
           DUNLIN_REJECTED, "a vector of peer 1 is not awaited");
    EXPECT(dunlin__secagg_server_fold(world.server, 9, read_ones, NULL, &world.error),
           DUNLIN_REJECTED, "peer 9 is none");
    cr_assert_eq(secagg_world_advance(&world), DUNLIN_OK);
    secagg_world_answer(&world, DUNLIN_V1_SECAGG_STEP_MASK);
    cr_assert_eq(secagg_world_run(&world), DUNLIN_SECAGG_DONE, "%s", world.error.text);
    cr_assert(secagg_world_sum_is_right(&world));
    secagg_world_close(&world);
    for (int i = 0; i < 2; i++) {
        secagg_world_open(&world, &plan, &state);
        run_to_vectors(&world);
        secagg_member *first = &world.members[0];
        cr_assert_eq(secagg_member_mask(&world, first), DUNLIN_OK);
        cr_assert_eq(secagg_member_write(&world, first), DUNLIN_OK);
        cr_assert_eq(take(&world, 1, first->request, first->n_request), DUNLIN_OK);
        cr_assert_eq(dunlin__secagg_server_fold(world.server, 1, i == 0 ? read_fails : read_ones,
                                                NULL, &world.error),
                     i == 0 ? DUNLIN_IO : DUNLIN_DATA);
        expect_failed(&world);
        secagg_world_close(&world);
    }
}

Test(secagg_server, a_vector_has_a_name)
{
    uint64_t state = test_seed(365);
    secagg_world world;
    open_five(&world, &state, false);
    run_to_vectors(&world);
    secagg_member *first = &world.members[0];
    cr_assert_eq(secagg_member_mask(&world, first), DUNLIN_OK);
    cr_assert_eq(secagg_member_write(&world, first), DUNLIN_OK);
    dunlin__secagg_message message = request_of(first);
    message.has_manifest = false;
    EXPECT(send_changed(&world, 1, &message), DUNLIN_PROTOCOL, "names no manifest");
    secagg_world_close(&world);
}

/* Shares that devices tell of the wrong kind or place are refused. */
Test(secagg_server, a_share_of_the_kind_that_was_asked_for)
{
    uint64_t state = test_seed(366);
    secagg_world world;
    open_five(&world, &state, false);
    world.members[3].leaves = DUNLIN_V1_SECAGG_STEP_MASK;
    world.members[4].leaves = DUNLIN_V1_SECAGG_STEP_SHARE;
    secagg_world_run_to(&world, DUNLIN_V1_SECAGG_STEP_MASK);
    cr_assert_eq(secagg_world_advance(&world), DUNLIN_OK, "%s", world.error.text);
    secagg_world_answer(&world, DUNLIN_V1_SECAGG_STEP_MASK);
    secagg_member *first = &world.members[0];
    cr_assert_eq(first->refused, DUNLIN_REJECTED, "two neighbours survive, three are wanted");
    /* As a device would that is not this one. */
    dunlin__secagg_message message = {
        .step = DUNLIN_V1_SECAGG_STEP_UNMASK, .n_peers = 1, .peers = peers, .peer_capacity = 1};
    peers[0] = (dunlin__secagg_peer){.peer_index = 2, .share_kind = DUNLIN_V1_SHARE_KIND_MASK_KEY};
    peers[0].share.size = DUNLIN_SECAGG_TOLD_BYTES;
    peers[0].share.bytes[0] = 1;
    EXPECT(send_changed(&world, 1, &message), DUNLIN_PROTOCOL, "another kind or place");
    peers[0].share_kind = DUNLIN_V1_SHARE_KIND_SELF_MASK;
    peers[0].share.bytes[0] = 2;
    EXPECT(send_changed(&world, 1, &message), DUNLIN_PROTOCOL, "another kind or place");
    peers[0].share.bytes[0] = 1;
    peers[0].share.size--;
    EXPECT(send_changed(&world, 1, &message), DUNLIN_PROTOCOL, "another kind or place");
    peers[0].share.size++;
    peers[0].peer_index = 4; /* which is lost */
    EXPECT(send_changed(&world, 1, &message), DUNLIN_PROTOCOL, "another kind or place");
    peers[0].peer_index = 5; /* which sent no shares */
    EXPECT(send_changed(&world, 1, &message), DUNLIN_PROTOCOL, "another kind or place");
    peers[0].peer_index = 1;
    EXPECT(send_changed(&world, 1, &message), DUNLIN_PROTOCOL, "no neighbour, or of one twice");
    message.n_peers = 2;
    peers[0].peer_index = 2;
    peers[1] = peers[0];
    EXPECT(send_changed(&world, 1, &message), DUNLIN_PROTOCOL, "no neighbour, or of one twice");
    message.n_peers = 1;
    EXPECT(send_changed(&world, 4, &message), DUNLIN_REJECTED, "peer 4 has no part in step 5");
    secagg_world_close(&world);
}

/* A wrong share is seen where there are more than the threshold, or where a key must come out. */
static void tell_wrong_share(bool is_of_key, uint64_t *state)
{
    secagg_world world;
    open_five(&world, state, true);
    world.members[4].leaves = DUNLIN_V1_SECAGG_STEP_MASK;
    secagg_world_run_to(&world, DUNLIN_V1_SECAGG_STEP_CONSISTENCY);
    cr_assert_eq(secagg_world_advance(&world), DUNLIN_OK);
    secagg_world_answer(&world, DUNLIN_V1_SECAGG_STEP_CONSISTENCY);
    for (uint32_t i = 1; i <= 4; i++) {
        secagg_member *member = &world.members[i - 1];
        cr_assert_eq(secagg_member_write(&world, member), DUNLIN_OK, "%s", member->error.text);
        dunlin__secagg_message message = request_of(member);
        for (uint32_t j = 0; i == 2 && j < message.n_peers; j++) {
            if (peers[j].peer_index == (is_of_key ? 5 : 1)) {
                peers[j].share.bytes[9] ^= 1;
            }
        }
        cr_assert_eq(send_changed(&world, i, &message), DUNLIN_OK, "%s", world.error.text);
    }
    cr_assert_eq(secagg_world_advance(&world), DUNLIN_OK);
    const dunlin_status status = dunlin__secagg_server_unmask(world.server, &world.error);
    if (is_of_key) { /* four shares of device 5, three of device 1 with a threshold of three */
        cr_assert_eq(status, DUNLIN_DATA);
        cr_assert_not_null(strstr(world.error.text, "peer 5"), "%s", world.error.text);
        expect_failed(&world);
    } else {
        cr_assert_eq(status, DUNLIN_OK, "%s", world.error.text);
        cr_assert_not(secagg_world_sum_is_right(&world));
    }
    secagg_world_close(&world);
}

Test(secagg_server, wrong_shares_are_seen_or_give_noise)
{
    uint64_t state = test_seed(367);
    tell_wrong_share(true, &state);
    tell_wrong_share(false, &state);
}

Test(secagg_server, too_few_end_the_session)
{
    uint64_t state = test_seed(368);
    for (uint32_t step = 1; step <= 5; step++) {
        secagg_world world;
        dunlin__secagg_plan plan = secagg_terms(N, N - 1, 3, 20, 9);
        plan.check_consistency = true;
        plan.least_devices = 4;
        secagg_world_open(&world, &plan, &state);
        for (uint32_t i = 2; i < N; i++) {
            world.members[i].leaves = step;
        }
        cr_assert_eq(secagg_world_run(&world), DUNLIN_SECAGG_FAILED, "step %u", step);
        expect_failed(&world);
        secagg_world_close(&world);
    }
}

/* Fewer than the least of a sum end it, though the threshold would do. */
Test(secagg_server, the_least_of_a_sum)
{
    uint64_t state = test_seed(369);
    for (uint32_t least = 4; least <= 5; least++) {
        secagg_world world;
        dunlin__secagg_plan plan = secagg_terms(6, 5, 3, 20, 9);
        plan.least_devices = least;
        secagg_world_open(&world, &plan, &state);
        world.members[0].leaves = DUNLIN_V1_SECAGG_STEP_MASK;
        world.members[1].leaves = DUNLIN_V1_SECAGG_STEP_MASK;
        cr_assert_eq(secagg_world_run(&world),
                     least == 4 ? DUNLIN_SECAGG_DONE : DUNLIN_SECAGG_FAILED, "%s",
                     world.error.text);
        secagg_world_close(&world);
    }
}

Test(secagg_server, a_weak_setup_does_not_start)
{
    const dunlin__secagg_plan weak = secagg_terms(1000, 20, 11, 32, 9);
    const dunlin__secagg_plan strong = secagg_terms(1000, 46, 26, 32, 9);
    dunlin__secagg_server_options options = {.plan = &weak, .wish = {0, 0.1, 0.1, 40.0, 20.0}};
    dunlin__secagg_server *server = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__secagg_server_open(&options, &server, &error), DUNLIN_REJECTED);
    cr_assert_null(server);
    cr_assert_not_null(strstr(error.text, "20 neighbours and threshold 11"), "%s", error.text);
    options.plan = &strong;
    cr_assert_eq(dunlin__secagg_server_open(&options, &server, &error), DUNLIN_OK, "%s",
                 error.text);
    dunlin__secagg_server_close(server);
    dunlin__secagg_server_close(NULL);
}

/* A server whose set-up is judged, and the first `n_come` of 60 devices, which advertise. */
static void advance_with(const dunlin__secagg_wish *wish, uint32_t n_come, const char *wanted)
{
    uint64_t state = test_seed(370);
    const dunlin__secagg_plan plan = secagg_terms(60, 40, 21, 32, 9);
    const dunlin__secagg_server_options options = {.plan = &plan, .wish = *wish};
    secagg_world world;
    secagg_world_open(&world, &plan, &state);
    dunlin__secagg_server_close(world.server);
    cr_assert_eq(dunlin__secagg_server_open(&options, &world.server, &world.error), DUNLIN_OK, "%s",
                 world.error.text);
    for (uint32_t i = n_come; i < 60; i++) {
        world.members[i].leaves = DUNLIN_V1_SECAGG_STEP_ADVERTISE;
    }
    secagg_world_run_to(&world, DUNLIN_V1_SECAGG_STEP_ADVERTISE);
    EXPECT(secagg_world_advance(&world), DUNLIN_REJECTED, wanted);
    expect_failed(&world);
    secagg_world_close(&world);
}

/* What was strong enough for all is not for fewer: too few to spare, or mostly corrupt ones. */
Test(secagg_server, a_setup_that_few_make_weak)
{
    advance_with(&(dunlin__secagg_wish){0, 0.2, 0.1, 20.0, 10.0}, 24, "without a sum has chance");
    advance_with(&(dunlin__secagg_wish){0, 0.35, 0.0, 8.0, 8.0}, 30, "in corrupt hands has chance");
    advance_with(&(dunlin__secagg_wish){0, 0.4, 0.0, 1.0, 8.0}, 24,
                 "24 devices advertised keys, and 24 of the cohort may be corrupt");
}

/* Neighbours are as many as said, mutual, and nobody's own. */
Test(secagg_server, neighbours_are_mutual)
{
    uint64_t state = test_seed(371);
    const dunlin__secagg_plan plan = secagg_terms(21, 6, 4, 16, 3);
    static bool is_linked[22][22];
    size_t n_bytes = 0;
    secagg_world world;
    secagg_world_open(&world, &plan, &state);
    world.members[20].leaves = DUNLIN_V1_SECAGG_STEP_ADVERTISE;
    secagg_world_run_to(&world, DUNLIN_V1_SECAGG_STEP_ADVERTISE);
    cr_assert_eq(secagg_world_advance(&world), DUNLIN_OK, "%s", world.error.text);
    for (uint32_t i = 1; i <= 20; i++) {
        dunlin__secagg_message message = {.peers = peers, .peer_capacity = DUNLIN_WIRE_PEERS};
        cr_assert_eq(dunlin__secagg_server_answer(world.server, &(dunlin__secagg_asked){i, 1, 0},
                                                  body, sizeof(body), &n_bytes, &world.error),
                     DUNLIN_OK);
        cr_assert_eq(dunlin__secagg_response_decode(body, n_bytes, &message, &world.error),
                     DUNLIN_OK);
        cr_assert_eq(message.n_peers, 7);
        for (uint32_t j = 0; j < 7; j++) {
            is_linked[i][peers[j].peer_index] = peers[j].peer_index != i;
        }
    }
    for (uint32_t i = 1; i <= 20; i++) {
        int n_linked = 0;
        for (uint32_t j = 1; j <= 21; j++) {
            n_linked += is_linked[i][j] ? 1 : 0;
            cr_assert_eq(is_linked[i][j], is_linked[j][i]);
        }
        cr_assert_eq(n_linked, 6);
    }
    cr_assert_eq(dunlin__secagg_server_answer(world.server, &(dunlin__secagg_asked){21, 1, 0}, body,
                                              sizeof(body), &n_bytes, &world.error),
                 DUNLIN_REJECTED);
    cr_assert_eq(dunlin__secagg_server_answer(world.server, &(dunlin__secagg_asked){1, 6, 0}, body,
                                              sizeof(body), &n_bytes, &world.error),
                 DUNLIN_ARGUMENT);
    secagg_world_close(&world);
}
