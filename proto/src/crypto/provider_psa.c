/*
 * provider_psa.c - SHA-256, ECDSA P-256 and random bytes through PSA, behind one lock (psa_lock.h).
 *
 * No key outlives the call that was given it: imported as a volatile key, used, destroyed. The
 * deterministic nonce is RFC 6979.
 */
#include "psa_lock.h"

#include <mem/support.h>
#include <wire/provider.h>

static dunlin_status fail_hash(dunlin_error *error, psa_status_t status)
{
    dunlin_status ours =
        (status == PSA_ERROR_INSUFFICIENT_MEMORY) ? DUNLIN_MEMORY : DUNLIN_INTERNAL;
    return dunlin__fail(error, ours, "crypto", (int)status, "SHA-256 failed (error %d)",
                        (int)status);
}

static dunlin_status sha256_begin_psa(dunlin__sha256 *hash, dunlin_error *error)
{
    *hash = (dunlin__sha256){.operation = psa_hash_operation_init()};
    DUNLIN_TRY(dunlin__psa_begin(error));
    psa_status_t status = psa_hash_setup(&hash->operation, PSA_ALG_SHA_256);
    dunlin__psa_end();
    return (status == PSA_SUCCESS) ? DUNLIN_OK : fail_hash(error, status);
}

static dunlin_status sha256_update_psa(dunlin__sha256 *hash, const void *data, size_t n_bytes,
                                       dunlin_error *error)
{
    DUNLIN_TRY(dunlin__psa_begin(error));
    psa_status_t status = psa_hash_update(&hash->operation, data, n_bytes);
    if (status != PSA_SUCCESS) {
        (void)psa_hash_abort(&hash->operation);
    }
    dunlin__psa_end();
    return (status == PSA_SUCCESS) ? DUNLIN_OK : fail_hash(error, status);
}

static dunlin_status sha256_end_psa(dunlin__sha256 *hash, uint8_t out_sha256[DUNLIN_SHA256_BYTES],
                                    dunlin_error *error)
{
    size_t n_bytes = 0;
    DUNLIN_TRY(dunlin__psa_begin(error));
    psa_status_t status =
        psa_hash_finish(&hash->operation, out_sha256, DUNLIN_SHA256_BYTES, &n_bytes);
    if (status != PSA_SUCCESS) {
        (void)psa_hash_abort(&hash->operation);
    }
    dunlin__psa_end();
    return (status == PSA_SUCCESS) ? DUNLIN_OK : fail_hash(error, status);
}

static void sha256_abort_psa(dunlin__sha256 *hash)
{
    if (dunlin__psa_begin(NULL) != DUNLIN_OK) {
        return;
    }
    (void)psa_hash_abort(&hash->operation);
    dunlin__psa_end();
}

static dunlin_status sha256_of_psa(const void *data, size_t n_bytes,
                                   uint8_t out_sha256[DUNLIN_SHA256_BYTES], dunlin_error *error)
{
    size_t n_written = 0;
    DUNLIN_TRY(dunlin__psa_begin(error));
    psa_status_t status = psa_hash_compute(PSA_ALG_SHA_256, data, n_bytes, out_sha256,
                                           DUNLIN_SHA256_BYTES, &n_written);
    dunlin__psa_end();
    return (status == PSA_SUCCESS) ? DUNLIN_OK : fail_hash(error, status);
}

static dunlin_status random_bytes_psa(void *out_bytes, size_t n_bytes, dunlin_error *error)
{
    uint8_t *next = out_bytes;
    DUNLIN_TRY(dunlin__psa_begin(error));
    psa_status_t status = PSA_SUCCESS;
    while (n_bytes > 0 && status == PSA_SUCCESS) {
        size_t part = (n_bytes < 1024) ? n_bytes : 1024; /* the generator's own limit per request */
        status = psa_generate_random(next, part);
        next += part;
        n_bytes -= part;
    }
    dunlin__psa_end();
    if (status != PSA_SUCCESS) {
        return dunlin__fail(error, DUNLIN_INTERNAL, "crypto", (int)status,
                            "no random bytes (error %d)", (int)status);
    }
    return DUNLIN_OK;
}

#define ECDSA_SIGN PSA_ALG_DETERMINISTIC_ECDSA(PSA_ALG_SHA_256)
#define ECDSA_VERIFY PSA_ALG_ECDSA(PSA_ALG_SHA_256)
#define COORDINATE_BYTES 32u

/* Lock held. */
static psa_status_t import_private(const uint8_t *private_key, psa_key_id_t *out_key)
{
    psa_key_attributes_t attributes = psa_key_attributes_init();
    psa_set_key_usage_flags(&attributes, PSA_KEY_USAGE_SIGN_HASH | PSA_KEY_USAGE_EXPORT);
    psa_set_key_algorithm(&attributes, ECDSA_SIGN);
    psa_set_key_type(&attributes, PSA_KEY_TYPE_ECC_KEY_PAIR(PSA_ECC_FAMILY_SECP_R1));
    return psa_import_key(&attributes, private_key, DUNLIN_PRIVATE_KEY_BYTES, out_key);
}

/* Lock held. */
static psa_status_t import_public(const uint8_t *public_key, psa_key_id_t *out_key)
{
    psa_key_attributes_t attributes = psa_key_attributes_init();
    psa_set_key_usage_flags(&attributes, PSA_KEY_USAGE_VERIFY_HASH);
    psa_set_key_algorithm(&attributes, ECDSA_VERIFY);
    psa_set_key_type(&attributes, PSA_KEY_TYPE_ECC_PUBLIC_KEY(PSA_ECC_FAMILY_SECP_R1));
    return psa_import_key(&attributes, public_key, DUNLIN_PUBLIC_KEY_BYTES, out_key);
}

/* Lock held. Both halves of a key; `out_private_key` may be NULL. */
static psa_status_t export_pair(psa_key_id_t key, uint8_t *out_private_key, uint8_t *out_public_key)
{
    size_t n_bytes = 0;
    psa_status_t status =
        psa_export_public_key(key, out_public_key, DUNLIN_PUBLIC_KEY_BYTES, &n_bytes);
    if (status == PSA_SUCCESS && out_private_key != NULL) {
        status = psa_export_key(key, out_private_key, DUNLIN_PRIVATE_KEY_BYTES, &n_bytes);
    }
    return status;
}

static dunlin_status key_generate_psa(uint8_t out_private_key[DUNLIN_PRIVATE_KEY_BYTES],
                                      uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                      dunlin_error *error)
{
    psa_key_attributes_t attributes = psa_key_attributes_init();
    psa_set_key_usage_flags(&attributes, PSA_KEY_USAGE_EXPORT);
    psa_set_key_algorithm(&attributes, ECDSA_SIGN);
    psa_set_key_type(&attributes, PSA_KEY_TYPE_ECC_KEY_PAIR(PSA_ECC_FAMILY_SECP_R1));
    psa_set_key_bits(&attributes, 256);
    psa_key_id_t key = 0;
    DUNLIN_TRY(dunlin__psa_begin(error));
    psa_status_t status = psa_generate_key(&attributes, &key);
    if (status == PSA_SUCCESS) {
        status = export_pair(key, out_private_key, out_public_key);
        (void)psa_destroy_key(key);
    }
    dunlin__psa_end();
    return (status == PSA_SUCCESS) ? DUNLIN_OK : dunlin__psa_fail(error, status, "making a key");
}

static dunlin_status key_public_psa(const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
                                    uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                    dunlin_error *error)
{
    psa_key_id_t key = 0;
    DUNLIN_TRY(dunlin__psa_begin(error));
    psa_status_t status = import_private(private_key, &key);
    if (status == PSA_SUCCESS) {
        status = export_pair(key, NULL, out_public_key);
        (void)psa_destroy_key(key);
    }
    dunlin__psa_end();
    if (status == PSA_ERROR_INVALID_ARGUMENT) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "crypto", (int)status,
                            "the private key is not a number from 1 to the curve's order less 1");
    }
    return (status == PSA_SUCCESS) ? DUNLIN_OK : dunlin__psa_fail(error, status, "reading a key");
}

static dunlin_status key_check_psa(const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                   dunlin_error *error)
{
    psa_key_id_t key = 0;
    DUNLIN_TRY(dunlin__psa_begin(error));
    psa_status_t status = import_public(public_key, &key);
    if (status == PSA_SUCCESS) {
        (void)psa_destroy_key(key);
    }
    dunlin__psa_end();
    if (status == PSA_ERROR_INSUFFICIENT_MEMORY) {
        return dunlin__psa_fail(error, status, "reading a public key");
    }
    if (status != PSA_SUCCESS) {
        return dunlin__fail(error, DUNLIN_SIGNATURE, "crypto", (int)status,
                            "the public key is not an uncompressed point of P-256");
    }
    return DUNLIN_OK;
}

static dunlin_status sign_psa(const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
                              const uint8_t sha256[DUNLIN_SHA256_BYTES],
                              uint8_t out_signature[DUNLIN_SIGNATURE_BYTES], dunlin_error *error)
{
    psa_key_id_t key = 0;
    size_t n_written = 0;
    DUNLIN_TRY(dunlin__psa_begin(error));
    psa_status_t status = import_private(private_key, &key);
    if (status == PSA_SUCCESS) {
        status = psa_sign_hash(key, ECDSA_SIGN, sha256, DUNLIN_SHA256_BYTES, out_signature,
                               DUNLIN_SIGNATURE_BYTES, &n_written);
        (void)psa_destroy_key(key);
    }
    dunlin__psa_end();
    if (status == PSA_SUCCESS && n_written != DUNLIN_SIGNATURE_BYTES) {
        status = PSA_ERROR_GENERIC_ERROR;
    }
    return (status == PSA_SUCCESS) ? DUNLIN_OK : dunlin__psa_fail(error, status, "signing");
}

static dunlin_status verify_psa(const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                const uint8_t sha256[DUNLIN_SHA256_BYTES],
                                const uint8_t signature[DUNLIN_SIGNATURE_BYTES], bool *out_is_right,
                                dunlin_error *error)
{
    psa_key_id_t key = 0;
    *out_is_right = false;
    DUNLIN_TRY(dunlin__psa_begin(error));
    psa_status_t status = import_public(public_key, &key);
    if (status == PSA_SUCCESS) {
        status = psa_verify_hash(key, ECDSA_VERIFY, sha256, DUNLIN_SHA256_BYTES, signature,
                                 DUNLIN_SIGNATURE_BYTES);
        (void)psa_destroy_key(key);
    }
    dunlin__psa_end();
    *out_is_right = status == PSA_SUCCESS;
    return (status == PSA_ERROR_INSUFFICIENT_MEMORY) ? dunlin__psa_fail(error, status, "verifying")
                                                     : DUNLIN_OK;
}

const dunlin__crypto_provider dunlin__provider_psa = {
    .name = "psa",
    .sha256_begin_fn = sha256_begin_psa,
    .sha256_update_fn = sha256_update_psa,
    .sha256_end_fn = sha256_end_psa,
    .sha256_abort_fn = sha256_abort_psa,
    .sha256_of_fn = sha256_of_psa,
    .random_bytes_fn = random_bytes_psa,
    .key_generate_fn = key_generate_psa,
    .key_public_fn = key_public_psa,
    .key_check_fn = key_check_psa,
    .sign_fn = sign_psa,
    .verify_fn = verify_psa,
};
