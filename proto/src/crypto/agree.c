/*
 * agree.c - X25519, HKDF and AES-256 in GCM and CTR through PSA, under its lock.
 *
 * No key outlives the call that was given it, but within a running CTR. RFC 7748, RFC 5869, NIST
 * SP 800-38A and 800-38D.
 */
#include "psa_lock.h"

#include <mem/support.h>
#include <wire/agree.h>
#include <wire/digest.h>

#include <string.h>

#define ZEROS_BYTES 4096u

static const uint8_t zeros[ZEROS_BYTES] = {0};

typedef struct key_use {
    psa_key_type_t type;
    psa_algorithm_t algorithm;
    psa_key_usage_t usage;
} key_use;

static const key_use x25519_use = {PSA_KEY_TYPE_ECC_KEY_PAIR(PSA_ECC_FAMILY_MONTGOMERY),
                                   PSA_ALG_ECDH, PSA_KEY_USAGE_DERIVE};
static const key_use gcm_use = {PSA_KEY_TYPE_AES, PSA_ALG_GCM,
                                PSA_KEY_USAGE_ENCRYPT | PSA_KEY_USAGE_DECRYPT};
static const key_use ctr_use = {PSA_KEY_TYPE_AES, PSA_ALG_CTR, PSA_KEY_USAGE_ENCRYPT};

/* Lock held; 32 bytes. */
static psa_status_t import_for(const key_use *use, const uint8_t *bytes, psa_key_id_t *out_key)
{
    psa_key_attributes_t attributes = psa_key_attributes_init();
    psa_set_key_usage_flags(&attributes, use->usage);
    psa_set_key_algorithm(&attributes, use->algorithm);
    psa_set_key_type(&attributes, use->type);
    return psa_import_key(&attributes, bytes, DUNLIN_AES256_BYTES, out_key);
}

dunlin_status dunlin__x25519_public(const uint8_t private_key[DUNLIN_X25519_BYTES],
                                    uint8_t out_public_key[DUNLIN_X25519_BYTES],
                                    dunlin_error *error)
{
    psa_key_id_t key = 0;
    size_t n_written = 0;
    DUNLIN_TRY(dunlin__psa_begin(error));
    psa_status_t status = import_for(&x25519_use, private_key, &key);
    if (status == PSA_SUCCESS) {
        status = psa_export_public_key(key, out_public_key, DUNLIN_X25519_BYTES, &n_written);
        (void)psa_destroy_key(key);
    }
    dunlin__psa_end();
    return status == PSA_SUCCESS ? DUNLIN_OK : dunlin__psa_fail(error, status, "reading a key");
}

dunlin_status dunlin__x25519_agree(const uint8_t private_key[DUNLIN_X25519_BYTES],
                                   const uint8_t public_key[DUNLIN_X25519_BYTES],
                                   uint8_t out_secret[DUNLIN_X25519_BYTES], dunlin_error *error)
{
    psa_key_id_t key = 0;
    size_t n_written = 0;
    memset(out_secret, 0, DUNLIN_X25519_BYTES);
    DUNLIN_TRY(dunlin__psa_begin(error));
    psa_status_t status = import_for(&x25519_use, private_key, &key);
    bool is_low = false;
    if (status == PSA_SUCCESS) {
        status = psa_raw_key_agreement(PSA_ALG_ECDH, key, public_key, DUNLIN_X25519_BYTES,
                                       out_secret, DUNLIN_X25519_BYTES, &n_written);
        is_low = status == PSA_ERROR_INVALID_ARGUMENT;
        (void)psa_destroy_key(key);
    }
    dunlin__psa_end();
    uint8_t any = 0;
    for (size_t i = 0; i < DUNLIN_X25519_BYTES; i++) {
        any |= out_secret[i];
    }
    if (is_low || (status == PSA_SUCCESS && any == 0)) {
        return dunlin__fail(error, DUNLIN_SIGNATURE, "crypto", (int)status,
                            "an X25519 public key of %u bytes is a point of low order",
                            DUNLIN_X25519_BYTES);
    }
    return status == PSA_SUCCESS ? DUNLIN_OK : dunlin__psa_fail(error, status, "a key agreement");
}

dunlin_status dunlin__hkdf_sha256(const dunlin__hkdf_input *input, uint8_t *out_bytes,
                                  size_t n_bytes, dunlin_error *error)
{
    psa_key_derivation_operation_t operation = psa_key_derivation_operation_init();
    DUNLIN_TRY(dunlin__psa_begin(error));
    psa_status_t status = psa_key_derivation_setup(&operation, PSA_ALG_HKDF(PSA_ALG_SHA_256));
    if (status == PSA_SUCCESS) {
        status = psa_key_derivation_input_bytes(&operation, PSA_KEY_DERIVATION_INPUT_SALT,
                                                input->salt, input->n_salt);
    }
    if (status == PSA_SUCCESS) {
        status = psa_key_derivation_input_bytes(&operation, PSA_KEY_DERIVATION_INPUT_SECRET,
                                                input->secret, input->n_secret);
    }
    if (status == PSA_SUCCESS) {
        status = psa_key_derivation_input_bytes(&operation, PSA_KEY_DERIVATION_INPUT_INFO,
                                                input->info, input->n_info);
    }
    if (status == PSA_SUCCESS) {
        status = psa_key_derivation_output_bytes(&operation, out_bytes, n_bytes);
    }
    (void)psa_key_derivation_abort(&operation);
    dunlin__psa_end();
    return status == PSA_SUCCESS ? DUNLIN_OK : dunlin__psa_fail(error, status, "deriving a key");
}

dunlin_status dunlin__gcm_seal(const dunlin__gcm_binding *binding, const uint8_t *text,
                               size_t n_bytes, uint8_t *out_sealed, dunlin_error *error)
{
    psa_key_id_t key = 0;
    size_t n_written = 0;
    DUNLIN_TRY(dunlin__psa_begin(error));
    psa_status_t status = import_for(&gcm_use, binding->key, &key);
    if (status == PSA_SUCCESS) {
        status = psa_aead_encrypt(key, PSA_ALG_GCM, binding->nonce, DUNLIN_GCM_NONCE_BYTES,
                                  binding->data, binding->n_data, text, n_bytes, out_sealed,
                                  n_bytes + DUNLIN_GCM_TAG_BYTES, &n_written);
        (void)psa_destroy_key(key);
    }
    dunlin__psa_end();
    return status == PSA_SUCCESS ? DUNLIN_OK : dunlin__psa_fail(error, status, "sealing");
}

dunlin_status dunlin__gcm_open(const dunlin__gcm_binding *binding, const uint8_t *sealed,
                               size_t n_sealed, uint8_t *out_text, dunlin_error *error)
{
    psa_key_id_t key = 0;
    size_t n_written = 0;
    const size_t n_text = n_sealed - DUNLIN_GCM_TAG_BYTES;
    DUNLIN_TRY(dunlin__psa_begin(error));
    psa_status_t status = import_for(&gcm_use, binding->key, &key);
    if (status == PSA_SUCCESS) {
        status = psa_aead_decrypt(key, PSA_ALG_GCM, binding->nonce, DUNLIN_GCM_NONCE_BYTES,
                                  binding->data, binding->n_data, sealed, n_sealed, out_text,
                                  n_text, &n_written);
        (void)psa_destroy_key(key);
    }
    dunlin__psa_end();
    if (status == PSA_SUCCESS) {
        return DUNLIN_OK;
    }
    dunlin__wipe(out_text, n_text);
    if (status == PSA_ERROR_INVALID_SIGNATURE) {
        return dunlin__fail(error, DUNLIN_DIGEST, "crypto", (int)status,
                            "%zu sealed bytes are not what was sealed", n_sealed);
    }
    return dunlin__psa_fail(error, status, "opening sealed bytes");
}

dunlin_status dunlin__ctr_begin(dunlin__ctr *ctr, const uint8_t key[DUNLIN_AES256_BYTES],
                                const uint8_t counter[DUNLIN_AES_BLOCK_BYTES], dunlin_error *error)
{
    psa_key_id_t id = 0;
    ctr->operation = psa_cipher_operation_init();
    DUNLIN_TRY(dunlin__psa_begin(error));
    psa_status_t status = import_for(&ctr_use, key, &id);
    if (status == PSA_SUCCESS) {
        status = psa_cipher_encrypt_setup(&ctr->operation, id, PSA_ALG_CTR);
        (void)psa_destroy_key(id);
    }
    if (status == PSA_SUCCESS) {
        status = psa_cipher_set_iv(&ctr->operation, counter, DUNLIN_AES_BLOCK_BYTES);
    }
    if (status != PSA_SUCCESS) {
        (void)psa_cipher_abort(&ctr->operation);
    }
    dunlin__psa_end();
    return status == PSA_SUCCESS ? DUNLIN_OK : dunlin__psa_fail(error, status, "starting AES-CTR");
}

dunlin_status dunlin__ctr_next(dunlin__ctr *ctr, const uint8_t *text, size_t n_bytes,
                               uint8_t *out_bytes, dunlin_error *error)
{
    psa_status_t status = PSA_SUCCESS;
    DUNLIN_TRY(dunlin__psa_begin(error));
    for (size_t at = 0; at < n_bytes && status == PSA_SUCCESS; at += ZEROS_BYTES) {
        const size_t part = n_bytes - at < ZEROS_BYTES ? n_bytes - at : ZEROS_BYTES;
        size_t n_written = 0;
        status = psa_cipher_update(&ctr->operation, text != NULL ? text + at : zeros, part,
                                   out_bytes + at, part, &n_written);
    }
    dunlin__psa_end();
    return status == PSA_SUCCESS ? DUNLIN_OK : dunlin__psa_fail(error, status, "AES-CTR");
}

void dunlin__ctr_end(dunlin__ctr *ctr)
{
    if (dunlin__psa_begin(NULL) != DUNLIN_OK) {
        return;
    }
    (void)psa_cipher_abort(&ctr->operation);
    dunlin__psa_end();
}
