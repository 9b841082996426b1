/*
 * secagg.h - what both sides of a secure aggregation compute alike: the terms and their digest, the
 * statements that devices sign, the keys that follow from secrets, elements of a ring and masks.
 *
 * Bell, Bonawitz, Gascon, Lepoint, Raykova, "Secure single-server aggregation with
 * (poly)logarithmic overhead" (CCS 2020), algorithm 2; with everybody a neighbour it is Bonawitz et
 * al., "Practical secure aggregation" (CCS 2017). sdk/SECAGG.md has the steps and every byte.
 */
#ifndef DUNLIN_WIRE_SECAGG_H
#define DUNLIN_WIRE_SECAGG_H

#include <wire/agree.h>
#include <wire/digest.h>
#include <wire/messages.h>
#include <wire/shamir.h>

/* ---- the terms ---- */

/**
 * Whether the numbers of a plan go together: threshold above half of the neighbours, an even number
 * of neighbours unless everybody is one, room for `n_cohort` devices in the ring: n_cohort x
 * value_limit below 2^(ring_bits - 1), and n_cohort x weight_limit below 2^ring_bits. With noise
 * (version 2) the first is n_cohort x value_limit and what the noise stays within but for a chance
 * of 2^-40 (secagg_noise.h), and value_limit is fine enough for so many values.
 *
 * @return OK; ARGUMENT names the number and its limit.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_check(const dunlin__secagg_plan *plan,
                                                    dunlin_error *error);

/** Own keys come with the neighbours' in one list of at most DUNLIN_WIRE_PEERS. */
#define DUNLIN_SECAGG_NEIGHBOURS (DUNLIN_WIRE_PEERS - 1u)

/**
 * SHA-256 over all terms but peer_index: what every key, signature and sealed share is bound to, so
 * that a device which was told other terms fits no session.
 *
 * @return OK; MEMORY; INTERNAL.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_digest(const dunlin__secagg_plan *plan,
                                                     uint8_t out_sha256[DUNLIN_SHA256_BYTES],
                                                     dunlin_error *error);

/** Elements of a vector: the values, and the weight. */
static inline uint64_t dunlin__secagg_elements(const dunlin__secagg_plan *plan)
{
    return plan->n_values + 1;
}

/** The name of the one tensor of a masked vector's stream: all values, then the weight. */
#define DUNLIN_SECAGG_TENSOR "masked"

/* ---- what devices sign ---- */

#define DUNLIN_SECAGG_STATEMENT_BYTES 160u

/** The bytes by which a device says which two keys are its own. @return their number. */
size_t dunlin__secagg_key_statement(const uint8_t terms[DUNLIN_SHA256_BYTES], uint32_t peer_index,
                                    const uint8_t encryption_key[DUNLIN_X25519_BYTES],
                                    const uint8_t mask_key[DUNLIN_X25519_BYTES],
                                    uint8_t out_bytes[DUNLIN_SECAGG_STATEMENT_BYTES]);

/** The bytes by which a device says who survived, by the digest of the bits that it was told.
 * @return their number. */
size_t dunlin__secagg_survivor_statement(const uint8_t terms[DUNLIN_SHA256_BYTES],
                                         uint32_t peer_index,
                                         const uint8_t survivors_sha256[DUNLIN_SHA256_BYTES],
                                         uint8_t out_bytes[DUNLIN_SECAGG_STATEMENT_BYTES]);

/* ---- keys, by HKDF with the terms' digest as its salt ---- */

/** The key that seals shares from one device to another; the other way has another key. */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_share_key(const uint8_t terms[DUNLIN_SHA256_BYTES],
                                                        const uint8_t secret[DUNLIN_X25519_BYTES],
                                                        uint32_t from, uint32_t to,
                                                        uint8_t out_key[DUNLIN_AES256_BYTES],
                                                        dunlin_error *error);

/** The key of the mask that two devices share, in either order. */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_pair_key(const uint8_t terms[DUNLIN_SHA256_BYTES],
                                                       const uint8_t secret[DUNLIN_X25519_BYTES],
                                                       uint32_t one, uint32_t other,
                                                       uint8_t out_key[DUNLIN_AES256_BYTES],
                                                       dunlin_error *error);

/** The key of a device's mask of its own, from its seed. */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_self_key(const uint8_t terms[DUNLIN_SHA256_BYTES],
                                                       const uint8_t seed[DUNLIN_SHAMIR_BYTES],
                                                       uint32_t peer_index,
                                                       uint8_t out_key[DUNLIN_AES256_BYTES],
                                                       dunlin_error *error);

/* ---- the two shares that one device gives another, sealed ---- */

typedef struct dunlin__secagg_shares {
    uint8_t place; /* of the receiver in the owner's list, from 1 */
    uint8_t key_share[DUNLIN_SHAMIR_BYTES];
    uint8_t seed_share[DUNLIN_SHAMIR_BYTES];
} dunlin__secagg_shares;

#define DUNLIN_SECAGG_SHARES_BYTES (1u + 2u * DUNLIN_SHAMIR_BYTES)
#define DUNLIN_SECAGG_SEALED_BYTES                                                                 \
    (DUNLIN_GCM_NONCE_BYTES + DUNLIN_SECAGG_SHARES_BYTES + DUNLIN_GCM_TAG_BYTES)
/** Of a share that is given to the server: the place, then the share. */
#define DUNLIN_SECAGG_TOLD_BYTES (1u + DUNLIN_SHAMIR_BYTES)

/** @return OK; MEMORY; INTERNAL. `secret` is what the two share by their encryption keys. */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_seal(const uint8_t terms[DUNLIN_SHA256_BYTES],
                                                   const uint8_t secret[DUNLIN_X25519_BYTES],
                                                   uint32_t from, uint32_t to,
                                                   const dunlin__secagg_shares *shares,
                                                   uint8_t out_sealed[DUNLIN_SECAGG_SEALED_BYTES],
                                                   dunlin_error *error);

/** @return OK; DIGEST: sealed by another, for another, or changed; MEMORY; INTERNAL. */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_open(const uint8_t terms[DUNLIN_SHA256_BYTES],
                                                   const uint8_t secret[DUNLIN_X25519_BYTES],
                                                   uint32_t from, uint32_t to,
                                                   const uint8_t sealed[DUNLIN_SECAGG_SEALED_BYTES],
                                                   dunlin__secagg_shares *out_shares,
                                                   dunlin_error *error);

/* ---- elements of the ring of 2^bits, bits 8 to 32, packed lowest bit first ---- */

/** Bytes of `n` packed elements, n below 2^40. */
static inline uint64_t dunlin__ring_bytes(uint64_t n, unsigned bits)
{
    return (n * bits + 7) / 8;
}

/** Packs `n` elements, of each its lowest `bits`; the rest of the last byte is 0. May be in place.
 */
void dunlin__ring_pack(const uint32_t *elements, size_t n, unsigned bits, uint8_t *out_bytes);

/** Adds packed elements to `sums`, or takes them off, modulo 2^32: sums are right in their lowest
 * `bits`. @return false: the rest of the last byte is not 0. */
DUNLIN_NODISCARD bool dunlin__ring_add(uint32_t *sums, const uint8_t *bytes, size_t n,
                                       unsigned bits, bool is_taken_off);

/** The element as a number around 0: -2^(bits - 1) to 2^(bits - 1) - 1. */
int64_t dunlin__ring_signed(uint32_t element, unsigned bits);

/* ---- masks: the key stream of AES-256-CTR is the vector, packed ---- */

/** Elements that are masked at a time: a call begins at a multiple of it. */
#define DUNLIN_SECAGG_BLOCK 4096u

/**
 * Adds to `sums`, or takes off, elements `first` to first + n of the mask of a key; `first` is a
 * multiple of DUNLIN_SECAGG_BLOCK. 4 KiB of stack, whatever n.
 *
 * @return OK; MEMORY; INTERNAL.
 */
DUNLIN_NODISCARD dunlin_status dunlin__mask_add(const uint8_t key[DUNLIN_AES256_BYTES],
                                                uint64_t first, unsigned bits, bool is_taken_off,
                                                uint32_t *sums, size_t n, dunlin_error *error);

#endif
