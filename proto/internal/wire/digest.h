/*
 * digest.h - SHA-256, hex, random bytes.
 *
 * What computes is the library that the program was linked with (provider.h). All functions may be
 * called from any thread; a struct is used by one thread at a time.
 */
#ifndef DUNLIN_WIRE_DIGEST_H
#define DUNLIN_WIRE_DIGEST_H

#include <dunlin/base.h>
#include <wire/protocol.h>

#include <psa/crypto.h>

/* A running hash. Not copied, not moved; after begin, either end or abort. Zeroed: none. */
typedef struct dunlin__sha256 {
    psa_hash_operation_t operation; /* with PSA */
    void *handle;                   /* with another library; NULL: none */
} dunlin__sha256;

DUNLIN_NODISCARD dunlin_status dunlin__sha256_begin(dunlin__sha256 *hash, dunlin_error *error);
/* After a failure the hash is aborted. */
DUNLIN_NODISCARD dunlin_status dunlin__sha256_update(dunlin__sha256 *hash, const void *data,
                                                     size_t n_bytes, dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__sha256_end(dunlin__sha256 *hash,
                                                  uint8_t out_sha256[DUNLIN_SHA256_BYTES],
                                                  dunlin_error *error);
/* Gives up a hash; harmless on a zeroed or ended one. */
void dunlin__sha256_abort(dunlin__sha256 *hash);

/* The hash of bytes in memory; `data` may be NULL if `n_bytes` is 0. */
DUNLIN_NODISCARD dunlin_status dunlin__sha256_of(const void *data, size_t n_bytes,
                                                 uint8_t out_sha256[DUNLIN_SHA256_BYTES],
                                                 dunlin_error *error);

/* DIGEST, naming `what` and the beginnings of both hashes, unless the two are the same. */
DUNLIN_NODISCARD dunlin_status dunlin__sha256_expect(const char *what,
                                                     const uint8_t wanted[DUNLIN_SHA256_BYTES],
                                                     const uint8_t found[DUNLIN_SHA256_BYTES],
                                                     dunlin_error *error);

/* Lower-case hex with an ending 0; `out_text` has 2 * n_bytes + 1 bytes. */
void dunlin__hex_encode(const uint8_t *bytes, size_t n_bytes, char *out_text);

/* Exactly 2 * n_bytes lower-case hex digits and nothing after; false otherwise. */
bool dunlin__hex_decode(const char *text, uint8_t *out_bytes, size_t n_bytes);

/* Unpredictable bytes, from the operating system's entropy. */
DUNLIN_NODISCARD dunlin_status dunlin__random_bytes(void *out_bytes, size_t n_bytes,
                                                    dunlin_error *error);

/* A fresh idempotency key: 32 hex digits. */
DUNLIN_NODISCARD dunlin_status dunlin__idempotency_key(char out_key[DUNLIN_WIRE_IDEMPOTENCY_BYTES],
                                                       dunlin_error *error);

/* Overwrites secrets so that the compiler does not leave it out. */
void dunlin__wipe(void *memory, size_t n_bytes);

#endif
