/*
 * secagg_client.h - one device's part in a secure aggregation: messages in, messages out.
 *
 * No network, no files, no clock: the caller carries what dunlin__secagg_client_write() gives to
 * the server and hands the answer to dunlin__secagg_client_read(). Each step is taken once, in the
 * order of SecaggStep, and there is no way back; whatever is refused ends the session for this
 * device. Secrets are in this object alone, and are wiped when it ends, in whatever way.
 * round/secure.h has it in rounds, sdk/SECAGG.md the protocol and what it promises.
 *
 *   write, read                advertise: own keys; the neighbours' keys
 *   write, read                share: a sealed pair of shares for each; those for this device
 *   mask ..., mask_end         the vector, in blocks
 *   write, read                mask: its manifest; who survived
 *   write, read                consistency, if the terms have it
 *   write                      unmask: one share of each neighbour. Nothing is left after it
 *
 * One thread at a time.
 */
#ifndef DUNLIN_SDK_SECAGG_CLIENT_H
#define DUNLIN_SDK_SECAGG_CLIENT_H

#include <dunlin/alloc.h>
#include <wire/secagg.h>

typedef struct dunlin__secagg_client dunlin__secagg_client;

/** What an app insists on, whatever the server offers. 0: no more than the protocol does. */
typedef struct dunlin__secagg_floor {
    uint32_t least_cohort;
    uint32_t least_neighbours; /* unless everybody is one */
    uint32_t least_threshold;
    uint32_t least_devices; /* in a sum */
    bool needs_consistency;
} dunlin__secagg_floor;

/** @return OK; REJECTED names the first number that is below the floor. peer_index does not count.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_floor_check(const dunlin__secagg_plan *plan,
                                                          const dunlin__secagg_floor *floor,
                                                          dunlin_error *error);

typedef struct dunlin__secagg_client_options {
    const dunlin__secagg_plan *plan; /* copied */
    dunlin__secagg_floor floor;
    uint8_t device_key[DUNLIN_PUBLIC_KEY_BYTES]; /* public; what sign_fn signs with */
    void *ctx;
    /* Signs a statement with the device's key. */
    dunlin_status (*sign_fn)(void *ctx, const uint8_t *message, size_t n_bytes,
                             uint8_t out_signature[DUNLIN_SIGNATURE_BYTES], dunlin_error *error);
    /* Whether a neighbour's device key is one of a device: not OK ends the session. NULL: the
     * server is believed. */
    dunlin_status (*judge_key_fn)(void *ctx, uint32_t peer_index,
                                  const uint8_t device_key[DUNLIN_PUBLIC_KEY_BYTES],
                                  dunlin_error *error);
    const dunlin_alloc *alloc; /* NULL: the C library's */
} dunlin__secagg_client_options;

/**
 * Judges the terms and draws keys.
 *
 * @return OK; ARGUMENT: the terms do not go together; REJECTED: they are below the floor; MEMORY;
 * INTERNAL. On failure *out_client is NULL.
 */
DUNLIN_NODISCARD dunlin_status
dunlin__secagg_client_open(const dunlin__secagg_client_options *options,
                           dunlin__secagg_client **out_client, dunlin_error *error);

/** Wipes and gives back all; NULL is fine. */
void dunlin__secagg_client_close(dunlin__secagg_client *client);

/** The step that comes next, DUNLIN_V1_SECAGG_STEP_...; UNSPECIFIED when nothing does. */
uint32_t dunlin__secagg_client_step(const dunlin__secagg_client *client);

/**
 * The request of the step; if it was written before, one that asks again. After unmask's the
 * session is over. `out_bytes` with room for DUNLIN_WIRE_BODY_BYTES always does.
 *
 * @return OK; STATE: the vector is not masked to its end, or the session is over; LIMIT: `capacity`
 * is too small; MEMORY; INTERNAL; what sign_fn returned. After a failure the session is over.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_client_write(dunlin__secagg_client *client,
                                                           uint8_t *out_bytes, size_t capacity,
                                                           size_t *out_n_bytes,
                                                           dunlin_error *error);

/**
 * Takes the answer of the step. *out_retry_ms is 0 if the step is done, else when to ask again, at
 * least 1: the cohort is not complete.
 *
 * @return OK; STATE: nothing was written in this step; PROTOCOL, LIMIT, MISMATCH, SIGNATURE,
 * DIGEST, REJECTED: refused, and the session is over; MEMORY; INTERNAL; what judge_key_fn returned.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_client_read(dunlin__secagg_client *client,
                                                          const uint8_t *bytes, size_t n_bytes,
                                                          uint64_t *out_retry_ms,
                                                          dunlin_error *error);

/**
 * Masks the next `n` elements of the vector, in place, and packs them: DUNLIN_SECAGG_BLOCK of them,
 * or what is left. `out_bytes` has dunlin__ring_bytes(n, ring_bits) bytes and may be `elements`.
 * Each element is masked once: there is no second vector under the same mask.
 *
 * @return OK; STATE: not between the steps share and mask; ARGUMENT: another `n`; MEMORY; INTERNAL.
 * After a failure the session is over.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_client_mask(dunlin__secagg_client *client,
                                                          uint32_t *elements, size_t n,
                                                          uint8_t *out_bytes, dunlin_error *error);

/**
 * Says how the whole masked vector is named, which then can be committed; its masks are wiped.
 *
 * @return OK; STATE: some of it is not masked.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_client_mask_end(
    dunlin__secagg_client *client, const uint8_t manifest_sha256[DUNLIN_SHA256_BYTES],
    dunlin_error *error);

#endif
