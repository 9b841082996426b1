/*
 * test_secagg.c - messages of secure aggregation: round trip, room, limits, broken bytes.
 */
#include "make_message.h"
#include "random.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#define N_PEERS 20u

static uint8_t encoded[DUNLIN_WIRE_BODY_BYTES];
static uint8_t encoded_again[DUNLIN_WIRE_BODY_BYTES];
static dunlin__secagg_peer peers[DUNLIN_WIRE_PEERS + 1];
static dunlin__secagg_peer peers_again[DUNLIN_WIRE_PEERS + 1];

static dunlin_status encode(bool is_request, const dunlin__secagg_message *message, uint8_t *bytes,
                            size_t *out_n_bytes, dunlin_error *error)
{
    return is_request
               ? dunlin__secagg_request_encode(message, bytes, sizeof(encoded), out_n_bytes, error)
               : dunlin__secagg_response_encode(message, bytes, sizeof(encoded), out_n_bytes,
                                                error);
}

static dunlin_status decode(bool is_request, const uint8_t *bytes, size_t n_bytes,
                            dunlin__secagg_message *message, dunlin_error *error)
{
    return is_request ? dunlin__secagg_request_decode(bytes, n_bytes, message, error)
                      : dunlin__secagg_response_decode(bytes, n_bytes, message, error);
}

Test(proto_secagg, round_trip_gives_the_same_message)
{
    uint64_t seed = test_seed(21);
    uint64_t state = seed;
    for (int i = 0; i < test_cases(200); i++) {
        bool is_request = i % 2 == 0;
        dunlin__secagg_message made;
        dunlin__secagg_message again = {.peers = peers_again, .peer_capacity = N_PEERS};
        dunlin_error error = {0};
        size_t n_bytes = 0;
        size_t n_again = 0;
        make_secagg(&made, is_request, peers, N_PEERS, &state);
        cr_assert_eq(encode(is_request, &made, encoded, &n_bytes, &error), DUNLIN_OK, "%s",
                     error.text);
        cr_assert_eq(decode(is_request, encoded, n_bytes, &again, &error), DUNLIN_OK,
                     "seed %llu: %s", (unsigned long long)seed, error.text);
        cr_assert_eq(again.n_peers, made.n_peers);
        cr_assert_eq(again.step, made.step);
        cr_assert_eq(again.has_manifest, made.has_manifest);
        cr_assert_eq(again.ready, made.ready);
        cr_assert_eq(encode(is_request, &again, encoded_again, &n_again, &error), DUNLIN_OK);
        cr_assert_eq(n_again, n_bytes);
        cr_assert_arr_eq(encoded_again, encoded, n_bytes, "seed %llu", (unsigned long long)seed);
    }
}

Test(proto_secagg, a_full_cohort_fits_a_body)
{
    dunlin__secagg_message message = {
        .step = DUNLIN_V1_SECAGG_STEP_SHARE, .n_peers = DUNLIN_WIRE_PEERS, .peers = peers};
    memset(peers, 0, sizeof(peers));
    for (uint32_t i = 0; i < DUNLIN_WIRE_PEERS; i++) {
        peers[i].peer_index = UINT32_MAX - i;
        peers[i].ciphertext.size = sizeof(peers[i].ciphertext.bytes);
    }
    dunlin_error error = {0};
    size_t n_bytes = 0;
    cr_assert_eq(encode(true, &message, encoded, &n_bytes, &error), DUNLIN_OK, "%s", error.text);
    dunlin__secagg_message again = {.peers = peers_again, .peer_capacity = DUNLIN_WIRE_PEERS};
    cr_assert_eq(decode(true, encoded, n_bytes, &again, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(again.n_peers, DUNLIN_WIRE_PEERS);
    again.peer_capacity = DUNLIN_WIRE_PEERS - 1;
    cr_assert_eq(decode(true, encoded, n_bytes, &again, &error), DUNLIN_LIMIT);
    cr_assert_not_null(strstr(error.text, "more than 254 peers"), "%s", error.text);
    cr_assert_eq(again.n_peers, 0);
    message.n_peers = DUNLIN_WIRE_PEERS + 1;
    peers[DUNLIN_WIRE_PEERS].peer_index = 1;
    cr_assert_eq(encode(true, &message, encoded, &n_bytes, &error), DUNLIN_PROTOCOL);
    cr_assert_not_null(strstr(error.text, "peers has 256"), "%s", error.text);
}

Test(proto_secagg, limits_are_told_by_name)
{
    uint64_t state = test_seed(22);
#define SPOIL(change, wanted)                                                                      \
    do {                                                                                           \
        dunlin__secagg_message m;                                                                  \
        dunlin_error error = {0};                                                                  \
        size_t n_bytes = 0;                                                                        \
        do {                                                                                       \
            make_secagg(&m, true, peers, N_PEERS, &state);                                         \
        } while (m.n_peers < 2);                                                                   \
        change;                                                                                    \
        cr_assert_eq(encode(true, &m, encoded, &n_bytes, &error), DUNLIN_PROTOCOL);                \
        cr_assert_not_null(strstr(error.text, wanted), "%s", error.text);                          \
    } while (0)
    SPOIL(m.step = 6, "SecaggRequest: step is 6");
    SPOIL(m.poll = true, "peers come with a poll");
    SPOIL(peers[1].peer_index = 0, "peers[1].peer_index is 0");
    SPOIL(peers[1].mask_key.size = 31, "peers[1].mask_key has 31 bytes");
    SPOIL(peers[1].signature.size = 63, "peers[1].signature has 63 bytes");
    SPOIL(peers[1].device_key.size = 64, "peers[1].device_key has 64 bytes");
    SPOIL(peers[1].share.size = 3; peers[1].share_kind = 0, "peers[1].share and share_kind");
    SPOIL(peers[1].ciphertext.size = 161, "peers[1].ciphertext has 161");
}

Test(proto_secagg, broken_bytes_never_crash)
{
    uint64_t state = test_seed(23);
    for (int i = 0; i < test_cases(2000); i++) {
        bool is_request = i % 2 == 0;
        dunlin__secagg_message made;
        dunlin_error error = {0};
        size_t n_bytes = 0;
        make_secagg(&made, is_request, peers, 4, &state);
        cr_assert_eq(encode(is_request, &made, encoded, &n_bytes, &error), DUNLIN_OK);
        size_t n_kept = (i % 3 == 0) ? test_random_below(&state, n_bytes + 1) : n_bytes;
        for (int flips = i % 4; flips > 0; flips--) {
            encoded[test_random_below(&state, n_bytes)] ^=
                (uint8_t)(1u << test_random_below(&state, 8));
        }
        uint8_t *copy = malloc(n_kept + (n_kept == 0));
        memcpy(copy, encoded, n_kept);
        dunlin__secagg_message again = {.peers = peers_again, .peer_capacity = 4};
        dunlin_status status = decode(is_request, copy, n_kept, &again, &error);
        free(copy);
        if (status != DUNLIN_OK) {
            cr_assert_eq(again.n_peers, 0);
            cr_assert_eq(error.status, status);
            cr_assert_not_null(strstr(error.text, "Secagg"), "%s", error.text);
        }
    }
}

typedef struct handed {
    dunlin__secagg_peer *peers;
    uint32_t n;
    uint32_t fails_at; /* UINT32_MAX: nowhere */
} handed;

static dunlin_status give_peer(void *ctx, uint32_t index, dunlin__secagg_peer *peer,
                               dunlin_error *error)
{
    handed *all = ctx;
    (void)error;
    cr_assert_eq(index, all->n++, "peers are asked for once, in order");
    *peer = all->peers[index];
    return index == all->fails_at ? DUNLIN_LOCKED : DUNLIN_OK;
}

static dunlin_status keep_peer(void *ctx, uint32_t index, dunlin__secagg_peer *peer,
                               dunlin_error *error)
{
    handed *all = ctx;
    (void)error;
    cr_assert_eq(index, all->n++);
    all->peers[index] = *peer;
    return index == all->fails_at ? DUNLIN_MISMATCH : DUNLIN_OK;
}

/* One by one or by an array: the same bytes, the same peers. */
Test(proto_secagg, peers_one_by_one)
{
    uint64_t state = test_seed(24);
    for (int i = 0; i < test_cases(100); i++) {
        const bool is_request = i % 2 == 0;
        dunlin__secagg_message made;
        dunlin_error error = {0};
        size_t n_bytes = 0;
        size_t n_again = 0;
        make_secagg(&made, is_request, peers, N_PEERS, &state);
        const uint32_t n_peers = made.n_peers;
        cr_assert_eq(encode(is_request, &made, encoded, &n_bytes, &error), DUNLIN_OK);
        handed all = {.peers = peers, .fails_at = UINT32_MAX};
        made.peers = NULL;
        made.ctx = &all;
        made.peer_fn = give_peer;
        cr_assert_eq(encode(is_request, &made, encoded_again, &n_again, &error), DUNLIN_OK, "%s",
                     error.text);
        cr_assert_eq(n_again, n_bytes);
        cr_assert_arr_eq(encoded_again, encoded, n_bytes);
        cr_assert_eq(all.n, n_peers);
        handed found = {.peers = peers_again, .fails_at = UINT32_MAX};
        dunlin__secagg_message again = {.ctx = &found, .peer_fn = keep_peer};
        cr_assert_eq(decode(is_request, encoded, n_bytes, &again, &error), DUNLIN_OK, "%s",
                     error.text);
        cr_assert_eq(again.n_peers, n_peers);
        cr_assert_eq(memcmp(peers, peers_again, n_peers * sizeof(peers[0])), 0);
        if (n_peers < 3) {
            continue;
        }
        all = (handed){.peers = peers, .fails_at = 2};
        cr_assert_eq(encode(is_request, &made, encoded_again, &n_again, &error), DUNLIN_LOCKED);
        found = (handed){.peers = peers_again, .fails_at = 1};
        cr_assert_eq(decode(is_request, encoded, n_bytes, &again, &error), DUNLIN_MISMATCH);
        cr_assert_eq(found.n, 2, "nobody is handed over after a refusal");
        peers[1].peer_index = 0;
        all = (handed){.peers = peers, .fails_at = UINT32_MAX};
        cr_assert_eq(encode(is_request, &made, encoded_again, &n_again, &error), DUNLIN_PROTOCOL);
        cr_assert_not_null(strstr(error.text, "peers[1].peer_index is 0"), "%s", error.text);
    }
}

Test(proto_secagg, survivors_and_their_room)
{
    uint8_t bits[DUNLIN_WIRE_SECAGG_COHORT / 8 + 1];
    uint8_t found[DUNLIN_WIRE_SECAGG_COHORT / 8];
    dunlin_error error = {0};
    size_t n_bytes = 0;
    memset(bits, 0xa5, sizeof(bits));
    for (uint32_t n = 0; n <= sizeof(found); n += n < 40 ? 13 : 4077) {
        dunlin__secagg_message made = {.step = DUNLIN_V1_SECAGG_STEP_MASK,
                                       .ready = true,
                                       .survivors = bits,
                                       .n_survivor_bytes = n};
        cr_assert_eq(encode(false, &made, encoded, &n_bytes, &error), DUNLIN_OK, "%s", error.text);
        dunlin__secagg_message again = {.survivors = found, .survivor_capacity = n};
        memset(found, 0, sizeof(found));
        cr_assert_eq(decode(false, encoded, n_bytes, &again, &error), DUNLIN_OK, "%s", error.text);
        cr_assert_eq(again.n_survivor_bytes, n);
        cr_assert_eq(memcmp(found, bits, n), 0);
        if (n > 0) {
            again.survivor_capacity = n - 1;
            cr_assert_eq(decode(false, encoded, n_bytes, &again, &error), DUNLIN_LIMIT);
            cr_assert_not_null(strstr(error.text, "SecaggResponse: survivors has"), "%s",
                               error.text);
            cr_assert_eq(again.n_survivor_bytes, 0);
        }
    }
    const dunlin__secagg_message long_one = {
        .step = DUNLIN_V1_SECAGG_STEP_MASK, .survivors = bits, .n_survivor_bytes = sizeof(bits)};
    cr_assert_eq(encode(false, &long_one, encoded, &n_bytes, &error), DUNLIN_PROTOCOL);
    cr_assert_not_null(strstr(error.text, "survivors has 8193 bytes"), "%s", error.text);
}
