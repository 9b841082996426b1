/*
 * provider.h - the crypto library under digest.h and signature.h, chosen when a program is linked.
 *
 * The library of apps has one provider, PSA (mbedTLS). A program that links the objects of
 * proto/gnutls, as dunlin-server and dunlin-fleet do, computes by GnuTLS instead: the same bytes,
 * in a fraction of the time, and without a lock around all. Both keep to digest.h and signature.h;
 * tests/unit/proto/test_providers.c holds one against the other.
 */
#ifndef DUNLIN_WIRE_PROVIDER_H
#define DUNLIN_WIRE_PROVIDER_H

#include <wire/digest.h>
#include <wire/signature.h>

/* Each call may be made from any thread. Errors: MEMORY, INTERNAL, and what is said beside it. */
typedef struct dunlin__crypto_provider {
    const char *name;
    dunlin_status (*sha256_begin_fn)(dunlin__sha256 *hash, dunlin_error *error);
    dunlin_status (*sha256_update_fn)(dunlin__sha256 *hash, const void *data, size_t n_bytes,
                                      dunlin_error *error); /* a failure aborts; n_bytes > 0 */
    dunlin_status (*sha256_end_fn)(dunlin__sha256 *hash, uint8_t out_sha256[DUNLIN_SHA256_BYTES],
                                   dunlin_error *error);
    void (*sha256_abort_fn)(dunlin__sha256 *hash); /* also of one that is zeroed or ended */
    dunlin_status (*sha256_of_fn)(const void *data, size_t n_bytes,
                                  uint8_t out_sha256[DUNLIN_SHA256_BYTES], dunlin_error *error);
    dunlin_status (*random_bytes_fn)(void *out_bytes, size_t n_bytes, dunlin_error *error);
    dunlin_status (*key_generate_fn)(uint8_t out_private_key[DUNLIN_PRIVATE_KEY_BYTES],
                                     uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                     dunlin_error *error);
    dunlin_status (*key_public_fn)(const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
                                   uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                   dunlin_error *error); /* ARGUMENT: not in [1, n - 1] */
    dunlin_status (*key_check_fn)(const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                  dunlin_error *error); /* SIGNATURE: not a point */
    dunlin_status (*sign_fn)(const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
                             const uint8_t sha256[DUNLIN_SHA256_BYTES],
                             uint8_t out_signature[DUNLIN_SIGNATURE_BYTES], dunlin_error *error);
    dunlin_status (*verify_fn)(const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES],
                               const uint8_t sha256[DUNLIN_SHA256_BYTES],
                               const uint8_t signature[DUNLIN_SIGNATURE_BYTES], bool *out_is_right,
                               dunlin_error *error); /* wrong, or no point: OK and false */
} dunlin__crypto_provider;

extern const dunlin__crypto_provider dunlin__provider_psa;

/* The one that is used. provider_chosen.c has it for PSA, gnutls/chosen.c for GnuTLS: each alone in
 * its object, so that a program which brings the second gets no first from the archive. */
extern const dunlin__crypto_provider *const dunlin__crypto;

#endif
