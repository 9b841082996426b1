/*
 * provider_gnutls.c - SHA-256, ECDSA P-256 and random bytes through GnuTLS, any thread at a time.
 *
 * GnuTLS keeps no state of keys between calls, and a random generator per thread, so no lock is
 * needed. It derives no public key from a private one: that is Nettle's, the library under it.
 * Signing is deterministic, by RFC 6979 as with PSA.
 */
#include "provider_gnutls.h"

#include <mem/support.h>

#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <nettle/ecc-curve.h>
#include <nettle/ecc.h>
#include <string.h>

#define COORDINATE_BYTES 32u
#define CURVE GNUTLS_ECC_CURVE_SECP256R1

static dunlin_status fail_gnutls(dunlin_error *error, int code, const char *what)
{
    dunlin_status ours = (code == GNUTLS_E_MEMORY_ERROR) ? DUNLIN_MEMORY : DUNLIN_INTERNAL;
    return dunlin__fail(error, ours, "crypto", code, "%s failed: %s", what, gnutls_strerror(code));
}

/* ---- hashes and random bytes ---- */

static dunlin_status sha256_begin_gnutls(dunlin__sha256 *hash, dunlin_error *error)
{
    gnutls_hash_hd_t handle = NULL;
    memset(hash, 0, sizeof *hash);
    int code = gnutls_hash_init(&handle, GNUTLS_DIG_SHA256);
    if (code < 0) {
        return fail_gnutls(error, code, "SHA-256");
    }
    hash->handle = handle;
    return DUNLIN_OK;
}

static void sha256_abort_gnutls(dunlin__sha256 *hash)
{
    if (hash->handle != NULL) {
        gnutls_hash_deinit(hash->handle, NULL);
        hash->handle = NULL;
    }
}

static dunlin_status sha256_update_gnutls(dunlin__sha256 *hash, const void *data, size_t n_bytes,
                                          dunlin_error *error)
{
    int code = (hash->handle != NULL) ? gnutls_hash(hash->handle, data, n_bytes)
                                      : GNUTLS_E_INVALID_REQUEST;
    if (code < 0) {
        sha256_abort_gnutls(hash);
        return fail_gnutls(error, code, "SHA-256");
    }
    return DUNLIN_OK;
}

static dunlin_status sha256_end_gnutls(dunlin__sha256 *hash,
                                       uint8_t out_sha256[DUNLIN_SHA256_BYTES], dunlin_error *error)
{
    if (hash->handle == NULL) {
        return fail_gnutls(error, GNUTLS_E_INVALID_REQUEST, "SHA-256");
    }
    gnutls_hash_deinit(hash->handle, out_sha256);
    hash->handle = NULL;
    return DUNLIN_OK;
}

static dunlin_status sha256_of_gnutls(const void *data, size_t n_bytes,
                                      uint8_t out_sha256[DUNLIN_SHA256_BYTES], dunlin_error *error)
{
    int code = gnutls_hash_fast(GNUTLS_DIG_SHA256, data, n_bytes, out_sha256);
    return (code >= 0) ? DUNLIN_OK : fail_gnutls(error, code, "SHA-256");
}

static dunlin_status random_bytes_gnutls(void *out_bytes, size_t n_bytes, dunlin_error *error)
{
    int code = gnutls_rnd(GNUTLS_RND_KEY, out_bytes, n_bytes);
    return (code >= 0) ? DUNLIN_OK : fail_gnutls(error, code, "drawing random bytes");
}

/* ---- keys ---- */

/* Copies a number, big-endian, of any length into 32 bytes; false if it does not fit. */
static bool take_number(const gnutls_datum_t *number, uint8_t out_bytes[COORDINATE_BYTES])
{
    const uint8_t *bytes = number->data;
    size_t n_bytes = number->size;
    while (n_bytes > COORDINATE_BYTES && bytes[0] == 0) {
        bytes++;
        n_bytes--;
    }
    if (n_bytes > COORDINATE_BYTES) {
        return false;
    }
    memset(out_bytes, 0, COORDINATE_BYTES);
    memcpy(out_bytes + COORDINATE_BYTES - n_bytes, bytes, n_bytes);
    return true;
}

static void take_public(const mpz_t number, uint8_t out_bytes[COORDINATE_BYTES])
{
    nettle_mpz_get_str_256(COORDINATE_BYTES, out_bytes, number);
}

/* False if the private key is not in [1, n - 1]. */
static bool derive_public(const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
                          uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES])
{
    const struct ecc_curve *curve = nettle_get_secp_256r1();
    struct ecc_scalar scalar;
    struct ecc_point point;
    mpz_t x;
    mpz_t y;
    nettle_mpz_init_set_str_256_u(x, DUNLIN_PRIVATE_KEY_BYTES, private_key);
    mpz_init(y);
    ecc_scalar_init(&scalar, curve);
    ecc_point_init(&point, curve);
    bool is_good = ecc_scalar_set(&scalar, x) != 0;
    if (is_good) {
        ecc_point_mul_g(&point, &scalar);
        ecc_point_get(&point, x, y);
        out_public_key[0] = 4;
        take_public(x, out_public_key + 1);
        take_public(y, out_public_key + 1 + COORDINATE_BYTES);
    }
    ecc_point_clear(&point);
    ecc_scalar_clear(&scalar);
    mpz_clear(x);
    mpz_clear(y);
    return is_good;
}

static dunlin_status key_public_gnutls(const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
                                       uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                       dunlin_error *error)
{
    if (!derive_public(private_key, out_public_key)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "crypto", 0,
                            "the private key is not a number from 1 to the curve's order less 1");
    }
    return DUNLIN_OK;
}

static dunlin_status export_pair_gnutls(gnutls_privkey_t key, uint8_t *out_private_key,
                                        uint8_t *out_public_key, dunlin_error *error)
{
    gnutls_ecc_curve_t curve = GNUTLS_ECC_CURVE_INVALID;
    gnutls_datum_t x = {0};
    gnutls_datum_t y = {0};
    gnutls_datum_t k = {0};
    int code = gnutls_privkey_export_ecc_raw(key, &curve, &x, &y, &k);
    bool is_good = code >= 0 && take_number(&k, out_private_key) &&
                   take_number(&x, out_public_key + 1) &&
                   take_number(&y, out_public_key + 1 + COORDINATE_BYTES);
    out_public_key[0] = 4;
    if (k.data != NULL) {
        dunlin__wipe(k.data, k.size);
    }
    gnutls_free(x.data);
    gnutls_free(y.data);
    gnutls_free(k.data);
    return is_good ? DUNLIN_OK : fail_gnutls(error, code, "making a key");
}

static dunlin_status key_generate_gnutls(uint8_t out_private_key[DUNLIN_PRIVATE_KEY_BYTES],
                                         uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                         dunlin_error *error)
{
    gnutls_privkey_t key = NULL;
    int code = gnutls_privkey_init(&key);
    if (code >= 0) {
        code =
            gnutls_privkey_generate2(key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(CURVE), 0, NULL, 0);
    }
    dunlin_status status = (code >= 0)
                               ? export_pair_gnutls(key, out_private_key, out_public_key, error)
                               : fail_gnutls(error, code, "making a key");
    gnutls_privkey_deinit(key);
    return status;
}

/* The point is not on the curve, or the first byte is not 4: a code below 0. */
static int import_public_gnutls(const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                gnutls_pubkey_t *out_key)
{
    uint8_t coordinates[2 * COORDINATE_BYTES];
    memcpy(coordinates, public_key + 1, sizeof coordinates);
    const gnutls_datum_t x = {.data = coordinates, .size = COORDINATE_BYTES};
    const gnutls_datum_t y = {.data = coordinates + COORDINATE_BYTES, .size = COORDINATE_BYTES};
    int code = (public_key[0] == 4) ? gnutls_pubkey_init(out_key) : GNUTLS_E_ECC_UNSUPPORTED_CURVE;
    return (code >= 0) ? gnutls_pubkey_import_ecc_raw(*out_key, CURVE, &x, &y) : code;
}

/* Nettle looks whether the point is on the curve; GnuTLS itself does that at the first use alone.
 */
static bool is_point(const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES])
{
    struct ecc_point point;
    mpz_t x;
    mpz_t y;
    nettle_mpz_init_set_str_256_u(x, COORDINATE_BYTES, public_key + 1);
    nettle_mpz_init_set_str_256_u(y, COORDINATE_BYTES, public_key + 1 + COORDINATE_BYTES);
    ecc_point_init(&point, nettle_get_secp_256r1());
    bool is_good = public_key[0] == 4 && ecc_point_set(&point, x, y) != 0;
    ecc_point_clear(&point);
    mpz_clear(x);
    mpz_clear(y);
    return is_good;
}

static dunlin_status key_check_gnutls(const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                      dunlin_error *error)
{
    if (!is_point(public_key)) {
        return dunlin__fail(error, DUNLIN_SIGNATURE, "crypto", 0,
                            "the public key is not an uncompressed point of P-256");
    }
    return DUNLIN_OK;
}

/* ---- signatures ---- */

static int import_private_gnutls(const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
                                 gnutls_privkey_t *out_key)
{
    uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES];
    uint8_t number[DUNLIN_PRIVATE_KEY_BYTES];
    if (!derive_public(private_key, public_key)) {
        return GNUTLS_E_PK_SIGN_FAILED;
    }
    int code = gnutls_privkey_init(out_key);
    if (code < 0) {
        return code;
    }
    memcpy(number, private_key, sizeof number);
    const gnutls_datum_t x = {.data = public_key + 1, .size = COORDINATE_BYTES};
    const gnutls_datum_t y = {.data = public_key + 1 + COORDINATE_BYTES, .size = COORDINATE_BYTES};
    const gnutls_datum_t k = {.data = number, .size = sizeof number};
    code = gnutls_privkey_import_ecc_raw(*out_key, CURVE, &x, &y, &k);
    dunlin__wipe(number, sizeof number);
    return code;
}

static dunlin_status sign_gnutls(const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
                                 const uint8_t sha256[DUNLIN_SHA256_BYTES],
                                 uint8_t out_signature[DUNLIN_SIGNATURE_BYTES], dunlin_error *error)
{
    uint8_t copy[DUNLIN_SHA256_BYTES];
    memcpy(copy, sha256, sizeof copy);
    const gnutls_datum_t hash = {.data = copy, .size = sizeof copy};
    gnutls_datum_t der = {0};
    gnutls_privkey_t key = NULL;
    int code = import_private_gnutls(private_key, &key);
    if (code >= 0) {
        code = gnutls_privkey_sign_hash2(key, GNUTLS_SIGN_ECDSA_SHA256,
                                         GNUTLS_PRIVKEY_FLAG_REPRODUCIBLE, &hash, &der);
    }
    gnutls_privkey_deinit(key);
    dunlin_status status =
        (code >= 0) ? dunlin__signature_from_der(der.data, der.size, out_signature, error)
                    : fail_gnutls(error, code, "signing");
    gnutls_free(der.data);
    return status;
}

static dunlin_status verify_gnutls(const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                   const uint8_t sha256[DUNLIN_SHA256_BYTES],
                                   const uint8_t signature[DUNLIN_SIGNATURE_BYTES],
                                   bool *out_is_right, dunlin_error *error)
{
    uint8_t copy[DUNLIN_SHA256_BYTES];
    uint8_t der[DUNLIN_SIGNATURE_DER_BYTES];
    memcpy(copy, sha256, sizeof copy);
    const gnutls_datum_t hash = {.data = copy, .size = sizeof copy};
    const gnutls_datum_t signed_by = {.data = der,
                                      .size = (unsigned)dunlin__signature_to_der(signature, der)};
    gnutls_pubkey_t key = NULL;
    int code = is_point(public_key) ? import_public_gnutls(public_key, &key)
                                    : GNUTLS_E_PK_SIG_VERIFY_FAILED;
    if (code >= 0) {
        code = gnutls_pubkey_verify_hash2(key, GNUTLS_SIGN_ECDSA_SHA256, 0, &hash, &signed_by);
    }
    if (key != NULL) {
        gnutls_pubkey_deinit(key);
    }
    *out_is_right = code >= 0;
    return (code == GNUTLS_E_MEMORY_ERROR) ? fail_gnutls(error, code, "verifying") : DUNLIN_OK;
}

const dunlin__crypto_provider dunlin__provider_gnutls = {
    .name = "gnutls",
    .sha256_begin_fn = sha256_begin_gnutls,
    .sha256_update_fn = sha256_update_gnutls,
    .sha256_end_fn = sha256_end_gnutls,
    .sha256_abort_fn = sha256_abort_gnutls,
    .sha256_of_fn = sha256_of_gnutls,
    .random_bytes_fn = random_bytes_gnutls,
    .key_generate_fn = key_generate_gnutls,
    .key_public_fn = key_public_gnutls,
    .key_check_fn = key_check_gnutls,
    .sign_fn = sign_gnutls,
    .verify_fn = verify_gnutls,
};
