/*
 * agree.h - what two parties that know each other's public key seal to each other: X25519, HKDF,
 * AES-256 in GCM and CTR.
 *
 * All by PSA, under its one lock, whatever provider.h has for digests and signatures. Keys live
 * with the caller, who wipes them; the library gets one for the length of a call. Any thread.
 */
#ifndef DUNLIN_WIRE_AGREE_H
#define DUNLIN_WIRE_AGREE_H

#include <dunlin/base.h>

#include <psa/crypto.h>

#define DUNLIN_X25519_BYTES 32u
#define DUNLIN_AES256_BYTES 32u
#define DUNLIN_AES_BLOCK_BYTES 16u
#define DUNLIN_GCM_NONCE_BYTES 12u
#define DUNLIN_GCM_TAG_BYTES 16u

/**
 * The public key, 32 bytes, of a private one (RFC 7748, section 5): any 32 bytes are one.
 *
 * @return OK; MEMORY; INTERNAL.
 */
DUNLIN_NODISCARD dunlin_status dunlin__x25519_public(const uint8_t private_key[DUNLIN_X25519_BYTES],
                                                     uint8_t out_public_key[DUNLIN_X25519_BYTES],
                                                     dunlin_error *error);

/**
 * The secret that two share, 32 bytes. Not uniform: a key comes of it by HKDF.
 *
 * @return OK; SIGNATURE: the public key is a point of low order, whose secret anybody knows
 * (RFC 7748, section 6.1); MEMORY; INTERNAL.
 */
DUNLIN_NODISCARD dunlin_status dunlin__x25519_agree(const uint8_t private_key[DUNLIN_X25519_BYTES],
                                                    const uint8_t public_key[DUNLIN_X25519_BYTES],
                                                    uint8_t out_secret[DUNLIN_X25519_BYTES],
                                                    dunlin_error *error);

/** Bytes that HKDF takes. A pointer may be NULL where its length is 0. */
typedef struct dunlin__hkdf_input {
    const void *salt;
    size_t n_salt;
    const void *secret;
    size_t n_secret;
    const void *info;
    size_t n_info;
} dunlin__hkdf_input;

/**
 * HKDF with SHA-256 (RFC 5869): `n_bytes`, at most 8,160, of `input`.
 *
 * @return OK; MEMORY; INTERNAL.
 */
DUNLIN_NODISCARD dunlin_status dunlin__hkdf_sha256(const dunlin__hkdf_input *input,
                                                   uint8_t *out_bytes, size_t n_bytes,
                                                   dunlin_error *error);

/** What a sealed text is bound to: a nonce that its key has never had, and data in the clear. */
typedef struct dunlin__gcm_binding {
    const uint8_t *key;   /* DUNLIN_AES256_BYTES */
    const uint8_t *nonce; /* DUNLIN_GCM_NONCE_BYTES */
    const void *data;     /* NULL where n_data is 0 */
    size_t n_data;
} dunlin__gcm_binding;

/**
 * Seals `n_bytes` of text into n_bytes + DUNLIN_GCM_TAG_BYTES (NIST SP 800-38D).
 *
 * @return OK; MEMORY; INTERNAL.
 */
DUNLIN_NODISCARD dunlin_status dunlin__gcm_seal(const dunlin__gcm_binding *binding,
                                                const uint8_t *text, size_t n_bytes,
                                                uint8_t *out_sealed, dunlin_error *error);

/**
 * Opens `n_sealed` bytes, at least DUNLIN_GCM_TAG_BYTES, into the text.
 *
 * @return OK; DIGEST: not what was sealed with this binding; the text is then zero. MEMORY;
 * INTERNAL.
 */
DUNLIN_NODISCARD dunlin_status dunlin__gcm_open(const dunlin__gcm_binding *binding,
                                                const uint8_t *sealed, size_t n_sealed,
                                                uint8_t *out_text, dunlin_error *error);

/** A running AES-256-CTR. Not copied; after begin, end. Zeroed: none. */
typedef struct dunlin__ctr {
    psa_cipher_operation_t operation;
} dunlin__ctr;

/**
 * Starts at a counter block of 16 bytes, big-endian (NIST SP 800-38A, section 6.5).
 *
 * @return OK; MEMORY; INTERNAL: then there is nothing to end.
 */
DUNLIN_NODISCARD dunlin_status dunlin__ctr_begin(dunlin__ctr *ctr,
                                                 const uint8_t key[DUNLIN_AES256_BYTES],
                                                 const uint8_t counter[DUNLIN_AES_BLOCK_BYTES],
                                                 dunlin_error *error);

/**
 * The next `n_bytes` under the key stream; `text` NULL: the stream itself.
 *
 * @return OK; INTERNAL.
 */
DUNLIN_NODISCARD dunlin_status dunlin__ctr_next(dunlin__ctr *ctr, const uint8_t *text,
                                                size_t n_bytes, uint8_t *out_bytes,
                                                dunlin_error *error);
/** Forgets the key; harmless on a zeroed one. */
void dunlin__ctr_end(dunlin__ctr *ctr);

#endif
