/*
 * secagg_world.h - a server and its devices in one process: a secure aggregation from end to end,
 * with devices that leave in any step and answers that somebody changes on their way.
 */
#ifndef DUNLIN_TESTS_SECAGG_WORLD_H
#define DUNLIN_TESTS_SECAGG_WORLD_H

#include <secagg/secagg_client.h>
#include <secagg/secagg_server.h>

#define SECAGG_STAYS 6u /* leaves in no step */

typedef struct secagg_member {
    dunlin__secagg_client *client;
    uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES];
    uint8_t device_key[DUNLIN_PUBLIC_KEY_BYTES];
    uint32_t leaves; /* step whose request it does not send any more */
    bool has_lost;   /* names its vector in step mask, and the vector never comes */
    uint32_t *vector;
    uint8_t *packed;
    bool is_folded;
    uint8_t *request; /* of the current step */
    size_t n_request;
    dunlin_status refused; /* not OK: what the client said of an answer */
    dunlin_error error;
} secagg_member;

typedef struct secagg_world {
    dunlin__secagg_plan plan;
    uint32_t n;
    dunlin__secagg_server *server;
    secagg_member *members; /* peer_index 1 is the first */
    /* Changes the answer of the current step to a device; NULL: nobody does. */
    void (*change_fn)(struct secagg_world *world, uint32_t peer_index,
                      dunlin__secagg_message *answer);
    uint32_t changed_step; /* where change_fn is called */
    dunlin_error error;
} secagg_world;

/* Terms for n devices that fit their ring: least 2 devices, no consistency. */
dunlin__secagg_plan secagg_terms(uint32_t n, uint32_t n_neighbours, uint32_t threshold,
                                 uint32_t ring_bits, uint64_t n_values);

/* Server and devices with vectors at random. Aborts if that does not work. */
void secagg_world_open(secagg_world *world, const dunlin__secagg_plan *plan, uint64_t *state);
void secagg_world_close(secagg_world *world);

/* Requests of the current step, of all that are still there, to the server; vectors, too. */
void secagg_world_send(secagg_world *world);
/* Ends the step. */
dunlin_status secagg_world_advance(secagg_world *world);
/* The answers of `step` to all that are still there. */
void secagg_world_answer(secagg_world *world, uint32_t step);
/* From the current step to the end: the server's state after it. */
uint32_t secagg_world_run(secagg_world *world);
/* Up to the requests of a step being sent. */
void secagg_world_run_to(secagg_world *world, uint32_t step);

/* Whether the server's sum is that of the vectors that it folded, in the ring's bits. */
bool secagg_world_sum_is_right(const secagg_world *world);

/* A device's part from its beginning; judge_key_fn may be NULL. */
void secagg_member_open(secagg_world *world, uint32_t peer_index,
                        dunlin_status (*judge_key_fn)(void *, uint32_t, const uint8_t *,
                                                      dunlin_error *));
/* A packed vector to be folded; reading more than it has aborts. */
typedef struct secagg_vector {
    const uint8_t *bytes;
    size_t n_left;
} secagg_vector;
dunlin_status secagg_read_vector(void *ctx, uint8_t *buffer, size_t n_bytes, dunlin_error *error);

/* One device's own part of a step: its request, and what it makes of an answer. */
dunlin_status secagg_member_mask(secagg_world *world, secagg_member *member);
dunlin_status secagg_member_write(secagg_world *world, secagg_member *member);

#endif
