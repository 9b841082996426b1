/*
 * signature.c - ECDSA P-256 with SHA-256 by whatever library the program has, and DER.
 *
 * DER as in SEC 1, appendix C.5.
 */
#include <mem/support.h>
#include <wire/provider.h>

#include <string.h>

#define COORDINATE_BYTES 32u

dunlin_status dunlin__key_generate(uint8_t out_private_key[DUNLIN_PRIVATE_KEY_BYTES],
                                   uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                   dunlin_error *error)
{
    return dunlin__crypto->key_generate_fn(out_private_key, out_public_key, error);
}

dunlin_status dunlin__key_public(const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
                                 uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                 dunlin_error *error)
{
    return dunlin__crypto->key_public_fn(private_key, out_public_key, error);
}

dunlin_status dunlin__key_check(const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                dunlin_error *error)
{
    return dunlin__crypto->key_check_fn(public_key, error);
}

dunlin_status dunlin__sign(const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES], const void *message,
                           size_t n_bytes, uint8_t out_signature[DUNLIN_SIGNATURE_BYTES],
                           dunlin_error *error)
{
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    DUNLIN_TRY(dunlin__sha256_of(message, n_bytes, sha256, error));
    return dunlin__crypto->sign_fn(private_key, sha256, out_signature, error);
}

dunlin_status dunlin__verify(const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES], const void *message,
                             size_t n_bytes, const uint8_t signature[DUNLIN_SIGNATURE_BYTES],
                             dunlin_error *error)
{
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    DUNLIN_TRY(dunlin__sha256_of(message, n_bytes, sha256, error));
    bool is_right = false;
    DUNLIN_TRY(dunlin__crypto->verify_fn(public_key, sha256, signature, &is_right, error));
    return is_right
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_SIGNATURE, "crypto", 0,
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
