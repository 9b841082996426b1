/*
 * secagg_unmask.c - takes the masks off the sum.
 *
 * Of each device that is in the sum its own mask, by the seed that `threshold` neighbours' shares
 * give; of each that sent shares and no vector the masks it had in common with those in the sum, by
 * its key. Never both of one device. Shares beyond the threshold must lie on the same polynomial,
 * and a key must be the one that was advertised. Masks come off in blocks; a secret is wiped before
 * the next is put together. Bell et al. 2020, algorithm 2, round 3.
 */
#include "secagg_cohort.h"

#include <mem/support.h>

#include <string.h>

/* What of a device's shares was told. */
typedef struct gathered {
    uint32_t n;
    uint8_t places[DUNLIN_WIRE_PEERS];
    const uint8_t *shares[DUNLIN_WIRE_PEERS];
} gathered;

static void gather(const dunlin__secagg_server *server, uint32_t owner, gathered *out_shares)
{
    out_shares->n = 0;
    for (uint32_t place = 1; place <= server->n_slots; place++) {
        const secagg_told *told = &server->told[secagg_slot(server, owner, place)];
        if (told->is_there) {
            out_shares->places[out_shares->n] = (uint8_t)place;
            out_shares->shares[out_shares->n] = told->share;
            out_shares->n++;
        }
    }
}

/* The polynomial's value at a place, from the first `threshold` shares. */
static dunlin_status interpolate(const gathered *from, uint32_t threshold, uint8_t at,
                                 uint8_t out_value[DUNLIN_SHAMIR_BYTES], dunlin_error *error)
{
    uint8_t weights[DUNLIN_WIRE_PEERS];
    memset(out_value, 0, DUNLIN_SHAMIR_BYTES);
    DUNLIN_TRY(dunlin__shamir_weights(from->places, threshold, at, weights, error));
    for (uint32_t i = 0; i < threshold; i++) {
        dunlin__shamir_add(out_value, weights[i], from->shares[i]);
    }
    return DUNLIN_OK;
}

static dunlin_status reconstruct(const dunlin__secagg_server *server, uint32_t owner,
                                 uint8_t out_secret[DUNLIN_SHAMIR_BYTES], dunlin_error *error)
{
    gathered from;
    const uint32_t threshold = server->plan.threshold;
    gather(server, owner, &from);
    if (from.n < threshold) {
        return dunlin__fail(error, DUNLIN_REJECTED, "secagg", 0,
                            "%u shares of peer %u were told, fewer than the threshold %u", from.n,
                            owner, threshold);
    }
    for (uint32_t i = threshold; i < from.n; i++) {
        uint8_t expected[DUNLIN_SHAMIR_BYTES];
        DUNLIN_TRY(interpolate(&from, threshold, from.places[i], expected, error));
        const bool fits = dunlin__shamir_equal(expected, from.shares[i]);
        dunlin__wipe(expected, sizeof(expected));
        if (!fits) {
            return dunlin__fail(error, DUNLIN_DATA, "secagg", 0,
                                "the %u shares of peer %u are not of one secret", from.n, owner);
        }
    }
    return interpolate(&from, threshold, 0, out_secret, error);
}

static dunlin_status take_mask_off(dunlin__secagg_server *server, const uint8_t *key,
                                   bool was_added, dunlin_error *error)
{
    const size_t n_all = (size_t)dunlin__secagg_elements(&server->plan);
    for (size_t at = 0; at < n_all; at += DUNLIN_SECAGG_BLOCK) {
        const size_t n = n_all - at < DUNLIN_SECAGG_BLOCK ? n_all - at : DUNLIN_SECAGG_BLOCK;
        DUNLIN_TRY(dunlin__mask_add(key, at, server->plan.ring_bits, was_added, server->sums + at,
                                    n, error));
    }
    return DUNLIN_OK;
}

static dunlin_status take_own_mask_off(dunlin__secagg_server *server, uint32_t owner,
                                       dunlin_error *error)
{
    uint8_t seed[DUNLIN_SHAMIR_BYTES];
    uint8_t key[DUNLIN_AES256_BYTES];
    dunlin_status status = reconstruct(server, owner, seed, error);
    if (status == DUNLIN_OK) {
        status = dunlin__secagg_self_key(server->terms, seed, owner, key, error);
    }
    if (status == DUNLIN_OK) {
        status = take_mask_off(server, key, true, error);
    }
    dunlin__wipe(seed, sizeof(seed));
    dunlin__wipe(key, sizeof(key));
    return status;
}

/* The mask that a lost device has in common with one in the sum: the latter added it if its index
 * is the higher one. */
static dunlin_status take_pair_off(dunlin__secagg_server *server, const uint8_t *private_key,
                                   uint32_t lost, uint32_t neighbour, dunlin_error *error)
{
    uint8_t secret[DUNLIN_X25519_BYTES];
    uint8_t key[DUNLIN_AES256_BYTES];
    dunlin_status status = dunlin__x25519_agree(
        private_key, secagg_device_of(server, neighbour)->mask_key, secret, error);
    if (status == DUNLIN_OK) {
        status = dunlin__secagg_pair_key(server->terms, secret, lost, neighbour, key, error);
    }
    if (status == DUNLIN_OK) {
        status = take_mask_off(server, key, neighbour > lost, error);
    }
    dunlin__wipe(secret, sizeof(secret));
    dunlin__wipe(key, sizeof(key));
    return status;
}

static bool has_folded_neighbour(const dunlin__secagg_server *server, uint32_t owner)
{
    const uint32_t *list = secagg_neighbours_of(server, owner);
    for (uint32_t i = 0; i < server->n_slots; i++) {
        if (secagg_device_of(server, list[i])->is_folded) {
            return true;
        }
    }
    return false;
}

static dunlin_status take_lost_masks_off(dunlin__secagg_server *server, uint32_t lost,
                                         dunlin_error *error)
{
    uint8_t private_key[DUNLIN_X25519_BYTES];
    uint8_t public_key[DUNLIN_X25519_BYTES];
    const uint32_t *list = secagg_neighbours_of(server, lost);
    if (!has_folded_neighbour(server, lost)) {
        return DUNLIN_OK; /* its masks are in no vector */
    }
    dunlin_status status = reconstruct(server, lost, private_key, error);
    if (status == DUNLIN_OK) {
        status = dunlin__x25519_public(private_key, public_key, error);
    }
    if (status == DUNLIN_OK &&
        !dunlin__shamir_equal(public_key, secagg_device_of(server, lost)->mask_key)) {
        status = dunlin__fail(error, DUNLIN_DATA, "secagg", 0,
                              "the shares of peer %u are not of the key that it advertised", lost);
    }
    for (uint32_t i = 0; i < server->n_slots && status == DUNLIN_OK; i++) {
        if (secagg_device_of(server, list[i])->is_folded) {
            status = take_pair_off(server, private_key, lost, list[i], error);
        }
    }
    dunlin__wipe(private_key, sizeof(private_key));
    return status;
}

dunlin_status dunlin__secagg_server_unmask(dunlin__secagg_server *server, dunlin_error *error)
{
    dunlin_status status = DUNLIN_OK;
    if (server->step != DUNLIN_SECAGG_READY) {
        return dunlin__fail(error, DUNLIN_STATE, "secagg", 0,
                            "masks do not come off in step %u of a secure aggregation",
                            server->step);
    }
    for (uint32_t i = 1; i <= server->plan.n_cohort && status == DUNLIN_OK; i++) {
        const secagg_device *device = secagg_device_of(server, i);
        if (device->is_folded) {
            status = take_own_mask_off(server, i, error);
        } else if (device->took[DUNLIN_V1_SECAGG_STEP_SHARE]) {
            status = take_lost_masks_off(server, i, error);
        }
    }
    if (status != DUNLIN_OK) {
        return dunlin__secagg_fail(server, status);
    }
    dunlin__wipe(server->told, secagg_slots(server) * sizeof(server->told[0]));
    server->step = DUNLIN_SECAGG_DONE;
    return DUNLIN_OK;
}
