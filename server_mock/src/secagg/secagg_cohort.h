/*
 * secagg_cohort.h - what the server knows in a secure aggregation.
 *
 * Invariant: lists of neighbours are sorted, so the place of one is where it stands, from 1. What
 * device u sent to neighbour number i lies at slot u x n_slots + i: sealed shares until step mask
 * is over, then that neighbour's told share of u.
 */
#ifndef DUNLIN_SERVER_SECAGG_COHORT_H
#define DUNLIN_SERVER_SECAGG_COHORT_H

#include "secagg_server.h"

typedef struct secagg_device {
    bool took[DUNLIN_WIRE_SECAGG_STEPS + 1]; /* part in a step; mask: its request came */
    bool is_folded;                          /* its vector is in the sum */
    bool is_gone;                            /* it said so: nobody waits for it */
    uint8_t device_key[DUNLIN_PUBLIC_KEY_BYTES];
    uint8_t encryption_key[DUNLIN_X25519_BYTES];
    uint8_t mask_key[DUNLIN_X25519_BYTES];
    uint8_t key_signature[DUNLIN_SIGNATURE_BYTES];
    uint8_t survivor_signature[DUNLIN_SIGNATURE_BYTES];
} secagg_device;

typedef struct secagg_told {
    bool is_there;
    uint8_t share[DUNLIN_SHAMIR_BYTES];
} secagg_told;

struct dunlin__secagg_server {
    dunlin__secagg_plan plan;
    dunlin__secagg_wish wish;
    dunlin_alloc alloc;
    uint32_t step;
    uint8_t terms[DUNLIN_SHA256_BYTES];
    uint8_t survivors_sha256[DUNLIN_SHA256_BYTES];
    secagg_device *devices; /* n_cohort; peer_index 1 is the first */
    uint32_t n_slots;       /* neighbours of each device, once they are drawn */
    uint32_t *neighbours;   /* n_cohort x n_slots indices, from 1 */
    uint8_t *sealed;        /* n_cohort x n_slots x DUNLIN_SECAGG_SEALED_BYTES */
    secagg_told *told;      /* n_cohort x n_slots */
    uint8_t *survivors;     /* a bit a device, once step mask is over */
    uint32_t *sums;         /* elements */
};

static inline secagg_device *secagg_device_of(const dunlin__secagg_server *server,
                                              uint32_t peer_index)
{
    return &server->devices[peer_index - 1];
}

/** The neighbours of a device, n_slots of them. */
static inline const uint32_t *secagg_neighbours_of(const dunlin__secagg_server *server,
                                                   uint32_t peer_index)
{
    return server->neighbours + (size_t)(peer_index - 1) * server->n_slots;
}

/** The slot of what `owner` has for its neighbour number `place`, from 1. */
static inline size_t secagg_slot(const dunlin__secagg_server *server, uint32_t owner,
                                 uint32_t place)
{
    return (size_t)(owner - 1) * server->n_slots + place - 1;
}

static inline size_t secagg_slots(const dunlin__secagg_server *server)
{
    return (size_t)server->plan.n_cohort * server->n_slots;
}

/** The place of a neighbour in a device's list, from 1; 0: it is none. */
uint32_t dunlin__secagg_place(const dunlin__secagg_server *server, uint32_t owner,
                              uint32_t neighbour);

/**
 * Draws the neighbours of all that advertised: on a circle in random order those at a distance of
 * at most half of n_neighbours; everybody, where they are no more than n_neighbours.
 *
 * @return OK; REJECTED: too few, or the set-up is too weak for so many; MEMORY; INTERNAL.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_draw_neighbours(dunlin__secagg_server *server,
                                                              dunlin_error *error);

/** FAILED: what could tell anything is wiped. @return `status`. */
dunlin_status dunlin__secagg_fail(dunlin__secagg_server *server, dunlin_status status);

/** Takes what a request says, of the step that the server is in; a file for it. */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_take_request(dunlin__secagg_server *server,
                                                           uint32_t peer_index,
                                                           const uint8_t *device_key,
                                                           const dunlin__secagg_message *message,
                                                           dunlin_error *error);

#endif
