/*
 * test_secagg_refused.c - what a device refuses of its server's answers: a row of the table of
 * sdk/SECAGG.md each.
 */
#include "random.h"
#include "secagg/secagg_world.h"
#include "secagg_over.h"

#include <wire/signature.h>

#include <criterion/criterion.h>

#include <secagg/secagg_state.h>
#include <stdlib.h>
#include <string.h>

#define N 5u

static dunlin__secagg_peer *peer_of(dunlin__secagg_message *answer, uint32_t peer_index)
{
    for (uint32_t i = 0; i < answer->n_peers; i++) {
        if (answer->peers[i].peer_index == peer_index) {
            return &answer->peers[i];
        }
    }
    cr_assert_fail("peer %u is not in the answer", peer_index);
    return NULL;
}

static void drop_peers(dunlin__secagg_message *answer, uint32_t n_left)
{
    answer->n_peers = n_left;
}

/* ---- changes; all to device 1 ---- */

#define CHANGE(name)                                                                               \
    static void name(secagg_world *world, uint32_t peer_index, dunlin__secagg_message *answer)
#define ONLY_FIRST                                                                                 \
    (void)world;                                                                                   \
    if (peer_index != 1) {                                                                         \
        return;                                                                                    \
    }

CHANGE(few_neighbours)
{
    ONLY_FIRST
    drop_peers(answer, 3); /* own keys and two */
}

CHANGE(index_twice)
{
    ONLY_FIRST
    *peer_of(answer, 3) = *peer_of(answer, 2);
}

CHANGE(own_twice)
{
    ONLY_FIRST
    *peer_of(answer, 3) = *peer_of(answer, 1);
}

/* Another device's keys, properly signed by a device of its own. */
static void sign_as(secagg_world *world, uint32_t peer_index, dunlin__secagg_peer *peer)
{
    uint8_t terms[DUNLIN_SHA256_BYTES];
    uint8_t statement[DUNLIN_SECAGG_STATEMENT_BYTES];
    cr_assert_eq(dunlin__secagg_digest(&world->plan, terms, NULL), DUNLIN_OK);
    const size_t n = dunlin__secagg_key_statement(
        terms, peer->peer_index, peer->encryption_key.bytes, peer->mask_key.bytes, statement);
    cr_assert_eq(dunlin__sign(world->members[peer_index - 1].private_key, statement, n,
                              peer->signature.bytes, NULL),
                 DUNLIN_OK);
}

CHANGE(encryption_key_twice)
{
    ONLY_FIRST
    peer_of(answer, 3)->encryption_key = peer_of(answer, 2)->encryption_key;
    sign_as(world, 3, peer_of(answer, 3));
}

CHANGE(mask_key_twice)
{
    ONLY_FIRST
    peer_of(answer, 3)->mask_key = peer_of(answer, 2)->mask_key;
    sign_as(world, 3, peer_of(answer, 3));
}

CHANGE(device_key_twice)
{
    ONLY_FIRST
    peer_of(answer, 3)->device_key = peer_of(answer, 2)->device_key;
    sign_as(world, 2, peer_of(answer, 3));
}

CHANGE(own_mask_key_again)
{
    ONLY_FIRST
    peer_of(answer, 3)->mask_key = peer_of(answer, 1)->mask_key;
    sign_as(world, 3, peer_of(answer, 3));
}

CHANGE(own_missing)
{
    ONLY_FIRST
    for (uint32_t i = 0; i + 1 < answer->n_peers; i++) {
        answer->peers[i] = answer->peers[i + 1];
    }
    answer->n_peers--;
}

CHANGE(own_changed)
{
    ONLY_FIRST
    peer_of(answer, 1)->mask_key.bytes[0] ^= 1;
}

CHANGE(own_device_changed)
{
    ONLY_FIRST
    peer_of(answer, 1)->device_key = peer_of(answer, 2)->device_key;
}

CHANGE(bad_signature)
{
    ONLY_FIRST
    peer_of(answer, 4)->signature.bytes[5] ^= 1;
}

CHANGE(changed_key)
{
    ONLY_FIRST
    peer_of(answer, 4)->encryption_key.bytes[5] ^= 1;
}

CHANGE(no_device_key)
{
    ONLY_FIRST
    peer_of(answer, 4)->device_key.size = 0;
}

CHANGE(low_order)
{
    ONLY_FIRST
    memset(peer_of(answer, 4)->encryption_key.bytes, 0, 32);
    sign_as(world, 4, peer_of(answer, 4));
}

CHANGE(low_order_mask)
{
    ONLY_FIRST
    memset(peer_of(answer, 4)->mask_key.bytes, 0, 32);
    peer_of(answer, 4)->mask_key.bytes[0] = 1;
    sign_as(world, 4, peer_of(answer, 4));
}

CHANGE(beyond_cohort)
{
    ONLY_FIRST
    peer_of(answer, 4)->peer_index = 6;
}

CHANGE(wrong_step)
{
    ONLY_FIRST
    answer->step++;
}

CHANGE(peers_before_ready)
{
    ONLY_FIRST
    answer->ready = false;
}

CHANGE(stranger)
{
    ONLY_FIRST
    peer_of(answer, 4)->peer_index = 1;
}

CHANGE(shares_twice)
{
    ONLY_FIRST
    *peer_of(answer, 4) = *peer_of(answer, 3);
}

CHANGE(shares_of_another)
{
    ONLY_FIRST
    peer_of(answer, 4)->ciphertext = peer_of(answer, 3)->ciphertext;
}

CHANGE(shares_changed)
{
    ONLY_FIRST
    peer_of(answer, 4)->ciphertext.bytes[30] ^= 1;
}

CHANGE(shares_short)
{
    ONLY_FIRST
    peer_of(answer, 4)->ciphertext.size--;
}

CHANGE(few_shares)
{
    ONLY_FIRST
    drop_peers(answer, 2);
}

CHANGE(i_dropped_out)
{
    ONLY_FIRST
    answer->survivors[0] &= (uint8_t)~1u;
}

CHANGE(few_survive)
{
    ONLY_FIRST
    answer->survivors[0] = 7;
}

CHANGE(bits_of_nobody)
{
    ONLY_FIRST
    answer->survivors[0] |= 0x20;
}

CHANGE(too_few_bytes)
{
    ONLY_FIRST
    answer->n_survivor_bytes = 0;
}

CHANGE(survivor_without_shares)
{
    ONLY_FIRST
    answer->survivors[0] |= 0x10; /* device 5 left before it sent shares */
}

CHANGE(peers_with_survivors)
{
    ONLY_FIRST
    answer->n_peers = 1;
    answer->peers[0] = (dunlin__secagg_peer){.peer_index = 2};
}

CHANGE(few_signatures)
{
    ONLY_FIRST
    drop_peers(answer, 2);
}

CHANGE(another_signature)
{
    ONLY_FIRST
    peer_of(answer, 4)->signature = peer_of(answer, 3)->signature;
}

CHANGE(signature_twice)
{
    ONLY_FIRST
    *peer_of(answer, 4) = *peer_of(answer, 3);
}

CHANGE(no_signature)
{
    ONLY_FIRST
    peer_of(answer, 4)->signature.size = 0;
}

/* A server that tells devices of different survivors: device 5 is lost for the first alone. */
CHANGE(two_lists)
{
    ONLY_FIRST
    answer->survivors[0] &= (uint8_t)~0x10u;
}

CHANGE(signed_by_lost)
{
    ONLY_FIRST
    peer_of(answer, 3)->peer_index = 5;
}

static const struct {
    const char *name;
    void (*change_fn)(secagg_world *, uint32_t, dunlin__secagg_message *);
    uint32_t step;
    uint32_t fifth_leaves;
    dunlin_status status;
    const char *wanted;
} rows[] = {
    {"few neighbours", few_neighbours, 1, 6, DUNLIN_REJECTED, "2 neighbours advertise keys, fewer"},
    {"index twice", index_twice, 1, 6, DUNLIN_PROTOCOL,
     "peer 2 of a secure aggregation is in the list twice"},
    {"own twice", own_twice, 1, 6, DUNLIN_PROTOCOL,
     "peer 1 of a secure aggregation is in the list twice"},
    {"encryption key twice", encryption_key_twice, 1, 6, DUNLIN_PROTOCOL,
     "peer 3 of a secure aggregation has a key that another"},
    {"mask key twice", mask_key_twice, 1, 6, DUNLIN_PROTOCOL,
     "peer 3 of a secure aggregation has a key that another"},
    {"device key twice", device_key_twice, 1, 6, DUNLIN_PROTOCOL,
     "peer 3 of a secure aggregation has a key that another"},
    {"own mask key again", own_mask_key_again, 1, 6, DUNLIN_PROTOCOL,
     "peer 3 of a secure aggregation has a key that another"},
    {"own missing", own_missing, 1, 6, DUNLIN_MISMATCH, "peer 1, this device, is missing"},
    {"own changed", own_changed, 1, 6, DUNLIN_MISMATCH, "with other keys than its own"},
    {"own device changed", own_device_changed, 1, 6, DUNLIN_MISMATCH,
     "with other keys than its own"},
    {"bad signature", bad_signature, 1, 6, DUNLIN_SIGNATURE,
     "peer 4 of a secure aggregation has a wrong signature"},
    {"changed key", changed_key, 1, 6, DUNLIN_SIGNATURE,
     "peer 4 of a secure aggregation has a wrong signature"},
    {"no device key", no_device_key, 1, 6, DUNLIN_PROTOCOL,
     "peer 4 of a secure aggregation comes without all"},
    {"low order", low_order, 1, 6, DUNLIN_SIGNATURE, "low order"},
    {"low order mask", low_order_mask, 1, 6, DUNLIN_SIGNATURE, "low order"},
    {"beyond the cohort", beyond_cohort, 1, 6, DUNLIN_PROTOCOL,
     "peer 6 of a secure aggregation is beyond"},
    {"wrong step", wrong_step, 1, 6, DUNLIN_PROTOCOL, "of step 2, asked was step 1"},
    {"peers before ready", peers_before_ready, 1, 6, DUNLIN_PROTOCOL,
     "5 peers come with an answer that is not ready"},
    {"stranger", stranger, 2, 6, DUNLIN_PROTOCOL,
     "peer 1 of a secure aggregation sent shares and is no neighbour"},
    {"shares twice", shares_twice, 2, 6, DUNLIN_PROTOCOL,
     "peer 3 of a secure aggregation sent shares twice"},
    {"shares of another", shares_of_another, 2, 6, DUNLIN_DIGEST,
     "peer 4 of a secure aggregation sent shares that were sealed"},
    {"shares changed", shares_changed, 2, 6, DUNLIN_DIGEST, "peer 4"},
    {"shares short", shares_short, 2, 6, DUNLIN_PROTOCOL, "sent 92 sealed bytes, not 93"},
    {"few shares", few_shares, 2, 6, DUNLIN_REJECTED, "2 neighbours sent shares, fewer"},
    {"I dropped out", i_dropped_out, 3, 6, DUNLIN_REJECTED,
     "peer 1 of a secure aggregation is this device, and is said to have dropped out"},
    {"few survive", few_survive, 3, 6, DUNLIN_REJECTED, "2 neighbours survive, fewer"},
    {"bits of nobody", bits_of_nobody, 3, 6, DUNLIN_PROTOCOL, "are not a bit for each of 5"},
    {"too few bytes", too_few_bytes, 3, 6, DUNLIN_PROTOCOL, "0 bytes are not a bit for each of 5"},
    {"survivor without shares", survivor_without_shares, 3, 2, DUNLIN_PROTOCOL,
     "peer 5 of a secure aggregation is said to survive and sent no shares"},
    {"peers with survivors", peers_with_survivors, 3, 6, DUNLIN_PROTOCOL,
     "peer 2 of a secure aggregation comes with step 3"},
    {"few signatures", few_signatures, 4, 6, DUNLIN_REJECTED,
     "2 neighbours signed the survivors, fewer"},
    {"another signature", another_signature, 4, 6, DUNLIN_SIGNATURE,
     "peer 4 of a secure aggregation did not sign the same"},
    {"signature twice", signature_twice, 4, 6, DUNLIN_PROTOCOL,
     "peer 3 of a secure aggregation signed the survivors twice"},
    {"no signature", no_signature, 4, 6, DUNLIN_PROTOCOL,
     "peer 4 of a secure aggregation comes without a signature"},
    {"signed by a lost one", signed_by_lost, 4, 3, DUNLIN_PROTOCOL,
     "peer 5 of a secure aggregation signed the survivors and is none"},
};

Test(secagg_refused, each_row_of_the_table)
{
    uint64_t state = test_seed(351);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        dunlin__secagg_plan plan = secagg_terms(N, N - 1, 3, 16, 10);
        plan.check_consistency = true;
        secagg_world world;
        secagg_world_open(&world, &plan, &state);
        world.members[4].leaves = rows[i].fifth_leaves;
        world.change_fn = rows[i].change_fn;
        world.changed_step = rows[i].step;
        secagg_world_run_to(&world, rows[i].step);
        cr_assert_eq(secagg_world_advance(&world), DUNLIN_OK, "%s: %s", rows[i].name,
                     world.error.text);
        secagg_world_answer(&world, rows[i].step);
        const secagg_member *first = &world.members[0];
        cr_assert_eq(first->refused, rows[i].status, "%s: %s: %s", rows[i].name,
                     dunlin_status_name(first->refused), first->error.text);
        cr_assert_not_null(strstr(first->error.text, rows[i].wanted), "%s: %s", rows[i].name,
                           first->error.text);
        for (uint32_t j = 1; j < N; j++) {
            cr_assert_eq(world.members[j].refused, DUNLIN_OK, "%s: device %u: %s", rows[i].name,
                         j + 1, world.members[j].error.text);
        }
        expect_over(&world.members[0], rows[i].name);
        secagg_world_close(&world);
    }
}

/* What consistency is for: without it the server gets both shares of device 5, from two devices;
 * the signatures show that lists differ, and nobody unmasks. */
Test(secagg_refused, two_lists_of_survivors)
{
    uint64_t state = test_seed(352);
    dunlin__secagg_plan plan = secagg_terms(N, N - 1, 3, 16, 10);
    plan.check_consistency = true;
    secagg_world world;
    secagg_world_open(&world, &plan, &state);
    world.change_fn = two_lists;
    world.changed_step = DUNLIN_V1_SECAGG_STEP_MASK;
    secagg_world_run_to(&world, DUNLIN_V1_SECAGG_STEP_MASK);
    cr_assert_eq(secagg_world_advance(&world), DUNLIN_OK);
    secagg_world_answer(&world, DUNLIN_V1_SECAGG_STEP_MASK);
    secagg_member *first = &world.members[0];
    cr_assert_eq(first->refused, DUNLIN_OK, "%s", first->error.text);
    /* Its signature is over the list that it was told. */
    cr_assert_eq(secagg_member_write(&world, first), DUNLIN_OK);
    cr_assert_eq(dunlin__secagg_server_take(world.server, 1, first->device_key, first->request,
                                            first->n_request, &world.error),
                 DUNLIN_SIGNATURE);
    cr_assert_not_null(strstr(world.error.text, "signed other survivors"), "%s", world.error.text);
    secagg_world_close(&world);
}

/* ---- what other terms allow a server to try ---- */

/* Keys of one more, who is in the cohort and no neighbour of the first. */
CHANGE(one_neighbour_more)
{
    ONLY_FIRST
    bool is_listed[N + 1] = {false};
    for (uint32_t i = 0; i < answer->n_peers; i++) {
        is_listed[answer->peers[i].peer_index] = true;
    }
    const uint32_t other = !is_listed[2] ? 2 : !is_listed[3] ? 3 : 4;
    dunlin__secagg_peer more = answer->peers[answer->n_peers - 1];
    more.peer_index = other;
    answer->peers[answer->n_peers++] = more;
}

/* Device 4 seals shares for the first again, for a place of the test's. */
static void seal_for(secagg_world *world, dunlin__secagg_message *answer, uint8_t place)
{
    const dunlin__secagg_client *fourth = world->members[3].client;
    const dunlin__secagg_shares shares = {.place = place};
    for (uint32_t i = 0; i < fourth->n_neighbours; i++) {
        if (fourth->neighbours[i].peer_index == 1) {
            cr_assert_eq(dunlin__secagg_seal(fourth->terms, fourth->neighbours[i].secret, 4, 1,
                                             &shares, peer_of(answer, 4)->ciphertext.bytes, NULL),
                         DUNLIN_OK);
            return;
        }
    }
    cr_assert_fail("device 4 has no neighbour 1");
}

CHANGE(place_none)
{
    ONLY_FIRST
    seal_for(world, answer, 0);
}

CHANGE(place_beyond)
{
    ONLY_FIRST
    seal_for(world, answer, N);
}

CHANGE(four_survive)
{
    ONLY_FIRST
    answer->survivors[0] = 0x0f;
}

static const struct {
    const char *name;
    void (*change_fn)(secagg_world *, uint32_t, dunlin__secagg_message *);
    uint32_t step, n_neighbours, threshold, least_devices;
    dunlin_status status;
    const char *wanted;
} other_rows[] = {
    {"one neighbour more", one_neighbour_more, 1, 2, 2, 2, DUNLIN_PROTOCOL,
     "is one neighbour more than n_neighbours"},
    {"place 0", place_none, 2, 4, 3, 2, DUNLIN_PROTOCOL,
     "peer 4 of a secure aggregation sent shares for a place that n_neighbours has not"},
    {"a place beyond", place_beyond, 2, 4, 3, 2, DUNLIN_PROTOCOL,
     "peer 4 of a secure aggregation sent shares for a place that n_neighbours has not"},
    {"few devices", four_survive, 3, 4, 3, 5, DUNLIN_REJECTED,
     "4 devices survive, fewer than the least of a sum, 5"},
};

Test(secagg_refused, rows_of_other_terms)
{
    uint64_t state = test_seed(353);
    for (size_t i = 0; i < sizeof(other_rows) / sizeof(other_rows[0]); i++) {
        dunlin__secagg_plan plan =
            secagg_terms(N, other_rows[i].n_neighbours, other_rows[i].threshold, 16, 10);
        plan.least_devices = other_rows[i].least_devices;
        secagg_world world;
        secagg_world_open(&world, &plan, &state);
        world.change_fn = other_rows[i].change_fn;
        world.changed_step = other_rows[i].step;
        secagg_world_run_to(&world, other_rows[i].step);
        cr_assert_eq(secagg_world_advance(&world), DUNLIN_OK, "%s: %s", other_rows[i].name,
                     world.error.text);
        secagg_world_answer(&world, other_rows[i].step);
        secagg_member *first = &world.members[0];
        cr_assert_eq(first->refused, other_rows[i].status, "%s: %s: %s", other_rows[i].name,
                     dunlin_status_name(first->refused), first->error.text);
        cr_assert_not_null(strstr(first->error.text, other_rows[i].wanted), "%s: %s",
                           other_rows[i].name, first->error.text);
        expect_over(first, other_rows[i].name);
        secagg_world_close(&world);
    }
}
