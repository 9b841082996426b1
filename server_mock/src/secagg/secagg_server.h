/*
 * secagg_server.h - the server's part in a secure aggregation: messages in, messages out, a sum.
 *
 * No network, no files, no clock. The caller hands in each device's request as it comes
 * (dunlin__secagg_server_take()) and its masked vector once that is whole
 * (dunlin__secagg_server_fold()), and says when a step is over (dunlin__secagg_server_advance()):
 * whoever has not come by then has dropped out. Requests of a device that broke a rule are refused
 * and change nothing, so that this device drops out in time; what makes the sum impossible fails
 * the whole session, wipes what there is, and tells nothing but that.
 *
 * Honest devices and this server learn the sum of the vectors that were folded. rounds/secure.h has
 * it in rounds, sdk/SECAGG.md the protocol. One thread at a time.
 */
#ifndef DUNLIN_SERVER_SECAGG_SERVER_H
#define DUNLIN_SERVER_SECAGG_SERVER_H

#include <dunlin/alloc.h>
#include <wire/secagg.h>
#include <wire/secagg_odds.h>

typedef struct dunlin__secagg_server dunlin__secagg_server;

/** SecaggStep while it runs; then one of these. */
#define DUNLIN_SECAGG_READY 6u  /* all shares are there: unmask */
#define DUNLIN_SECAGG_DONE 7u   /* there is a sum */
#define DUNLIN_SECAGG_FAILED 8u /* there is none, and never will be */

typedef struct dunlin__secagg_server_options {
    const dunlin__secagg_plan *plan; /* copied; peer_index does not count */
    /* What the set-up is judged by; n_devices does not count. */
    dunlin__secagg_wish wish;
    const dunlin_alloc *alloc; /* NULL: the C library's */
} dunlin__secagg_server_options;

/**
 * Judges the terms, and the numbers of neighbours and threshold by dunlin__secagg_judge().
 *
 * @return OK; ARGUMENT; REJECTED: the set-up is too weak; MEMORY; INTERNAL. On failure *out_server
 * is NULL.
 */
DUNLIN_NODISCARD dunlin_status
dunlin__secagg_server_open(const dunlin__secagg_server_options *options,
                           dunlin__secagg_server **out_server, dunlin_error *error);
void dunlin__secagg_server_close(dunlin__secagg_server *server);

/** SecaggStep that requests are taken of, or READY, DONE, FAILED. */
uint32_t dunlin__secagg_server_step(const dunlin__secagg_server *server);

/** Whether everybody that can has come: no need to wait. In step mask: has a vector in the sum. */
bool dunlin__secagg_server_is_complete(const dunlin__secagg_server *server);

/** Nobody waits any more for a device that said it gives up; what it sent before stays. */
void dunlin__secagg_server_drop(dunlin__secagg_server *server, uint32_t peer_index);

/** Whether a device's request of a step was taken. */
bool dunlin__secagg_server_took(const dunlin__secagg_server *server, uint32_t peer_index,
                                uint32_t step);

/** Whether a vector of the device is awaited, or in the sum already (*out_is_folded). */
bool dunlin__secagg_server_wants(const dunlin__secagg_server *server, uint32_t peer_index,
                                 bool *out_is_folded);

/**
 * Takes the request of a device in the current step. `device_key` is the key that its requests are
 * signed with. One that asks again is OK in every step and changes nothing.
 *
 * @return OK; REJECTED: another step, a device that is not in it, a second, other message;
 * PROTOCOL, SIGNATURE, LIMIT: the message itself; MEMORY; INTERNAL.
 */
DUNLIN_NODISCARD dunlin_status
dunlin__secagg_server_take(dunlin__secagg_server *server, uint32_t peer_index,
                           const uint8_t device_key[DUNLIN_PUBLIC_KEY_BYTES], const uint8_t *bytes,
                           size_t n_bytes, dunlin_error *error);

/** Reads the next `n_bytes` of a packed vector, all of them. */
typedef dunlin_status (*dunlin__secagg_read_fn)(void *ctx, uint8_t *buffer, size_t n_bytes,
                                                dunlin_error *error);

/**
 * Adds the masked vector of a device whose request of step mask was taken; the caller has seen that
 * its bytes have the name in it. Each vector once; in blocks of DUNLIN_SECAGG_BLOCK.
 *
 * @return OK; REJECTED: not in this step, not this device, or a second time; what read_fn returned,
 * DATA: not a packed vector, MEMORY: after these the session has failed, for the sum has a part of
 * a vector.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_server_fold(dunlin__secagg_server *server,
                                                          uint32_t peer_index,
                                                          dunlin__secagg_read_fn read_fn, void *ctx,
                                                          dunlin_error *error);

/**
 * Ends the step. After advertise the neighbours are drawn.
 *
 * @return OK; STATE: there is no step to end; REJECTED: too few are left, MEMORY, INTERNAL: the
 * session has failed.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_server_advance(dunlin__secagg_server *server,
                                                             dunlin_error *error);

/* Who asks for the answer of a step, and when to ask again if it has not ended. */
typedef struct dunlin__secagg_asked {
    uint32_t peer_index;
    uint32_t step;
    uint64_t retry_ms;
} dunlin__secagg_asked;

/**
 * The answer to a device in a step: ready if the step has ended, else when to ask again.
 *
 * @return OK; REJECTED: this device has not taken part in the step, or the session has failed;
 * ARGUMENT: no such step; LIMIT: `capacity` is too small, DUNLIN_WIRE_BODY_BYTES always does.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_server_answer(dunlin__secagg_server *server,
                                                            const dunlin__secagg_asked *asked,
                                                            uint8_t *out_bytes, size_t capacity,
                                                            size_t *out_n_bytes,
                                                            dunlin_error *error);

/**
 * In READY: puts the secrets together and takes the masks off, block by block.
 *
 * @return OK: DONE; STATE: not READY; REJECTED, DATA: shares are missing or do not fit, MEMORY,
 * INTERNAL: the session has failed.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_server_unmask(dunlin__secagg_server *server,
                                                            dunlin_error *error);

/** In DONE: n_values + 1 elements, right in their lowest ring_bits, in the server's memory. Else
 * NULL. */
const uint32_t *dunlin__secagg_server_sum(const dunlin__secagg_server *server);

/** How many took part in a step so far; of step mask: vectors in the sum. */
uint32_t dunlin__secagg_server_count(const dunlin__secagg_server *server, uint32_t step);

#endif
