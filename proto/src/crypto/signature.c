/*
 * signature.c - ECDSA P-256 with SHA-256 through PSA, DER, and the bytes of a signed request.
 *
 * No key outlives the call that was given it: imported as a volatile key, used, destroyed. DER as
 * in SEC 1, appendix C.5; the deterministic nonce is RFC 6979.
 */
#include <mem/support.h>
#include <wire/digest.h>
#include <wire/signature.h>

#include <string.h>

#define ECDSA_SIGN PSA_ALG_DETERMINISTIC_ECDSA(PSA_ALG_SHA_256)
#define ECDSA_VERIFY PSA_ALG_ECDSA(PSA_ALG_SHA_256)
#define COORDINATE_BYTES 32u

static dunlin_status fail_crypto(dunlin_error *error, psa_status_t status, const char *what)
{
    dunlin_status ours =
        (status == PSA_ERROR_INSUFFICIENT_MEMORY) ? DUNLIN_MEMORY : DUNLIN_INTERNAL;
    return dunlin__fail(error, ours, "crypto", (int)status, "%s failed (error %d)", what,
                        (int)status);
}

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

dunlin_status dunlin__key_generate(uint8_t out_private_key[DUNLIN_PRIVATE_KEY_BYTES],
                                   uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                   dunlin_error *error)
{
    psa_key_attributes_t attributes = psa_key_attributes_init();
    psa_set_key_usage_flags(&attributes, PSA_KEY_USAGE_EXPORT);
    psa_set_key_algorithm(&attributes, ECDSA_SIGN);
    psa_set_key_type(&attributes, PSA_KEY_TYPE_ECC_KEY_PAIR(PSA_ECC_FAMILY_SECP_R1));
    psa_set_key_bits(&attributes, 256);
    psa_key_id_t key = 0;
    DUNLIN_TRY(dunlin__crypto_begin(error));
    psa_status_t status = psa_generate_key(&attributes, &key);
    if (status == PSA_SUCCESS) {
        status = export_pair(key, out_private_key, out_public_key);
        (void)psa_destroy_key(key);
    }
    dunlin__crypto_end();
    return (status == PSA_SUCCESS) ? DUNLIN_OK : fail_crypto(error, status, "making a key");
}

dunlin_status dunlin__key_public(const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
                                 uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                 dunlin_error *error)
{
    psa_key_id_t key = 0;
    DUNLIN_TRY(dunlin__crypto_begin(error));
    psa_status_t status = import_private(private_key, &key);
    if (status == PSA_SUCCESS) {
        status = export_pair(key, NULL, out_public_key);
        (void)psa_destroy_key(key);
    }
    dunlin__crypto_end();
    if (status == PSA_ERROR_INVALID_ARGUMENT) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "crypto", (int)status,
                            "the private key is not a number from 1 to the curve's order less 1");
    }
    return (status == PSA_SUCCESS) ? DUNLIN_OK : fail_crypto(error, status, "reading a key");
}

dunlin_status dunlin__key_check(const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                dunlin_error *error)
{
    psa_key_id_t key = 0;
    DUNLIN_TRY(dunlin__crypto_begin(error));
    psa_status_t status = import_public(public_key, &key);
    if (status == PSA_SUCCESS) {
        (void)psa_destroy_key(key);
    }
    dunlin__crypto_end();
    if (status == PSA_ERROR_INSUFFICIENT_MEMORY) {
        return fail_crypto(error, status, "reading a public key");
    }
    if (status != PSA_SUCCESS) {
        return dunlin__fail(error, DUNLIN_SIGNATURE, "crypto", (int)status,
                            "the public key is not an uncompressed point of P-256");
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__sign(const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES], const void *message,
                           size_t n_bytes, uint8_t out_signature[DUNLIN_SIGNATURE_BYTES],
                           dunlin_error *error)
{
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    DUNLIN_TRY(dunlin__sha256_of(message, n_bytes, sha256, error));
    psa_key_id_t key = 0;
    size_t n_written = 0;
    DUNLIN_TRY(dunlin__crypto_begin(error));
    psa_status_t status = import_private(private_key, &key);
    if (status == PSA_SUCCESS) {
        status = psa_sign_hash(key, ECDSA_SIGN, sha256, sizeof(sha256), out_signature,
                               DUNLIN_SIGNATURE_BYTES, &n_written);
        (void)psa_destroy_key(key);
    }
    dunlin__crypto_end();
    if (status == PSA_SUCCESS && n_written != DUNLIN_SIGNATURE_BYTES) {
        status = PSA_ERROR_GENERIC_ERROR;
    }
    return (status == PSA_SUCCESS) ? DUNLIN_OK : fail_crypto(error, status, "signing");
}

dunlin_status dunlin__verify(const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES], const void *message,
                             size_t n_bytes, const uint8_t signature[DUNLIN_SIGNATURE_BYTES],
                             dunlin_error *error)
{
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    DUNLIN_TRY(dunlin__sha256_of(message, n_bytes, sha256, error));
    psa_key_id_t key = 0;
    DUNLIN_TRY(dunlin__crypto_begin(error));
    psa_status_t status = import_public(public_key, &key);
    if (status == PSA_SUCCESS) {
        status = psa_verify_hash(key, ECDSA_VERIFY, sha256, sizeof(sha256), signature,
                                 DUNLIN_SIGNATURE_BYTES);
        (void)psa_destroy_key(key);
    }
    dunlin__crypto_end();
    if (status == PSA_SUCCESS) {
        return DUNLIN_OK;
    }
    if (status == PSA_ERROR_INSUFFICIENT_MEMORY) {
        return fail_crypto(error, status, "verifying");
    }
    return dunlin__fail(error, DUNLIN_SIGNATURE, "crypto", (int)status,
                        "the signature of %zu bytes is wrong for this public key", n_bytes);
}

/* Reads one positive INTEGER of at most 32 bytes; the offset after it, or 0. */
static size_t read_integer(const uint8_t *der, size_t n_bytes, size_t offset, uint8_t *out_number)
{
    if (n_bytes - offset < 3 || der[offset] != 0x02) {
        return 0;
    }
    size_t length = der[offset + 1];
    const uint8_t *value = der + offset + 2;
    if (length == 0 || length > COORDINATE_BYTES + 1 || length > n_bytes - offset - 2) {
        return 0;
    }
    size_t next = offset + 2 + length;
    if ((value[0] & 0x80u) != 0) {
        return 0; /* negative */
    }
    if (value[0] == 0) {
        if (length == 1 || (value[1] & 0x80u) == 0) {
            return 0; /* zero, or a needless leading zero */
        }
        value++;
        length--;
    }
    if (length > COORDINATE_BYTES) {
        return 0;
    }
    memset(out_number, 0, COORDINATE_BYTES);
    memcpy(out_number + COORDINATE_BYTES - length, value, length);
    return next;
}

dunlin_status dunlin__signature_from_der(const uint8_t *der, size_t n_bytes,
                                         uint8_t out_signature[DUNLIN_SIGNATURE_BYTES],
                                         dunlin_error *error)
{
    bool is_right = n_bytes >= 8 && n_bytes <= DUNLIN_SIGNATURE_DER_BYTES && der[0] == 0x30 &&
                    der[1] == n_bytes - 2;
    if (is_right) {
        size_t second = read_integer(der, n_bytes, 2, out_signature);
        is_right = second != 0 &&
                   read_integer(der, n_bytes, second, out_signature + COORDINATE_BYTES) == n_bytes;
    }
    if (!is_right) {
        memset(out_signature, 0, DUNLIN_SIGNATURE_BYTES);
        return dunlin__fail(error, DUNLIN_SIGNATURE, "crypto", 0,
                            "%zu bytes are not an ECDSA signature in DER", n_bytes);
    }
    return DUNLIN_OK;
}

static size_t write_integer(const uint8_t *number, uint8_t *out_der)
{
    size_t skipped = 0;
    while (skipped < COORDINATE_BYTES - 1 && number[skipped] == 0) {
        skipped++;
    }
    size_t length = COORDINATE_BYTES - skipped;
    size_t pad = ((number[skipped] & 0x80u) != 0) ? 1 : 0;
    out_der[0] = 0x02;
    out_der[1] = (uint8_t)(length + pad);
    out_der[2] = 0;
    memcpy(out_der + 2 + pad, number + skipped, length);
    return 2 + pad + length;
}

size_t dunlin__signature_to_der(const uint8_t signature[DUNLIN_SIGNATURE_BYTES],
                                uint8_t out_der[DUNLIN_SIGNATURE_DER_BYTES])
{
    size_t n_bytes = 2;
    n_bytes += write_integer(signature, out_der + n_bytes);
    n_bytes += write_integer(signature + COORDINATE_BYTES, out_der + n_bytes);
    out_der[0] = 0x30;
    out_der[1] = (uint8_t)(n_bytes - 2);
    return n_bytes;
}

/* What stands before the point in the SubjectPublicKeyInfo of every P-256 key (RFC 5480). */
static const uint8_t spki_head[DUNLIN_SPKI_BYTES - DUNLIN_PUBLIC_KEY_BYTES] = {
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01,
    0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00};

void dunlin__spki_from_key(const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES],
                           uint8_t out_spki[DUNLIN_SPKI_BYTES])
{
    memcpy(out_spki, spki_head, sizeof(spki_head));
    memcpy(out_spki + sizeof(spki_head), public_key, DUNLIN_PUBLIC_KEY_BYTES);
}

dunlin_status dunlin__spki_to_key(const uint8_t *spki, size_t n_bytes,
                                  uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                  dunlin_error *error)
{
    if (n_bytes != DUNLIN_SPKI_BYTES || memcmp(spki, spki_head, sizeof(spki_head)) != 0) {
        return dunlin__fail(error, DUNLIN_SIGNATURE, "crypto", 0,
                            "%zu bytes are not the public key information of a P-256 key", n_bytes);
    }
    DUNLIN_TRY(dunlin__key_check(spki + sizeof(spki_head), error));
    memcpy(out_public_key, spki + sizeof(spki_head), DUNLIN_PUBLIC_KEY_BYTES);
    return DUNLIN_OK;
}
