/*
 * secagg_state.h - what a device knows in a secure aggregation.
 *
 * Invariant: a neighbour's `secret` and `mask` are what two X25519 agreements gave from the moment
 * its keys were taken; no private key of a neighbour is ever here.
 */
#ifndef DUNLIN_SDK_SECAGG_STATE_H
#define DUNLIN_SDK_SECAGG_STATE_H

#include "secagg_client.h"

typedef struct secagg_neighbour {
    uint32_t peer_index;
    bool has_sent; /* sealed shares for this device */
    bool survives; /* its vector is in the sum */
    bool agrees;   /* signed the same list of survivors */
    uint8_t device_key[DUNLIN_PUBLIC_KEY_BYTES];
    uint8_t secret[DUNLIN_X25519_BYTES]; /* seals shares */
    uint8_t mask[DUNLIN_AES256_BYTES];   /* key of the common mask */
    dunlin__secagg_shares shares;        /* its, for this device */
} secagg_neighbour;

struct dunlin__secagg_client {
    dunlin__secagg_plan plan;
    dunlin__secagg_client_options options;
    dunlin_alloc alloc;
    uint32_t step; /* DUNLIN_V1_SECAGG_STEP_... */
    bool is_written;
    bool has_own; /* own keys were seen in the list */
    bool has_manifest;
    uint8_t terms[DUNLIN_SHA256_BYTES];
    uint8_t manifest_sha256[DUNLIN_SHA256_BYTES];
    uint8_t survivors_sha256[DUNLIN_SHA256_BYTES];
    uint8_t encryption_private[DUNLIN_X25519_BYTES];
    uint8_t mask_private[DUNLIN_X25519_BYTES];
    uint8_t seed[DUNLIN_SHAMIR_BYTES];
    uint8_t self_key[DUNLIN_AES256_BYTES]; /* of the mask of its own */
    uint8_t encryption_key[DUNLIN_X25519_BYTES];
    uint8_t mask_key[DUNLIN_X25519_BYTES];
    uint64_t n_masked;
    uint32_t n_neighbours;
    uint32_t n_sent;       /* neighbours that sent shares */
    uint32_t n_told;       /* shares of neighbours that were given to the server */
    uint8_t *coefficients; /* of both polynomials, while shares are written */
    secagg_neighbour *neighbours;
};

/** The room for both polynomials, in bytes. */
static inline size_t secagg_coefficient_bytes(const dunlin__secagg_client *client)
{
    return (size_t)(client->plan.threshold - 1) * DUNLIN_SHAMIR_BYTES;
}

#define SECAGG_OVER DUNLIN_V1_SECAGG_STEP_UNSPECIFIED

/** The end of the session, however it came: every secret is wiped. */
void dunlin__secagg_end(dunlin__secagg_client *client);

/** The neighbour of an index, or NULL; they are in no order. */
secagg_neighbour *dunlin__secagg_find(dunlin__secagg_client *client, uint32_t peer_index);

/** Takes one peer of the answer of a step: a row for each of advertise, share, consistency. */
dunlin_status dunlin__secagg_take_keys(dunlin__secagg_client *client,
                                       const dunlin__secagg_peer *peer, dunlin_error *error);
dunlin_status dunlin__secagg_take_shares(dunlin__secagg_client *client,
                                         const dunlin__secagg_peer *peer, dunlin_error *error);
dunlin_status dunlin__secagg_take_signature(dunlin__secagg_client *client,
                                            const dunlin__secagg_peer *peer, dunlin_error *error);

/** Takes the bits of who survived. */
dunlin_status dunlin__secagg_take_survivors(dunlin__secagg_client *client, const uint8_t *bits,
                                            size_t n_bytes, dunlin_error *error);

#endif
