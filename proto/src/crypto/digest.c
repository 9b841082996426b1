/*
 * digest.c - SHA-256, hex and random bytes, by whatever library the program has.
 */
#include <mem/support.h>
#include <wire/provider.h>

#include <string.h>

dunlin_status dunlin__sha256_begin(dunlin__sha256 *hash, dunlin_error *error)
{
    return dunlin__crypto->sha256_begin_fn(hash, error);
}

dunlin_status dunlin__sha256_update(dunlin__sha256 *hash, const void *data, size_t n_bytes,
                                    dunlin_error *error)
{
    return n_bytes == 0 ? DUNLIN_OK : dunlin__crypto->sha256_update_fn(hash, data, n_bytes, error);
}

dunlin_status dunlin__sha256_end(dunlin__sha256 *hash, uint8_t out_sha256[DUNLIN_SHA256_BYTES],
                                 dunlin_error *error)
{
    return dunlin__crypto->sha256_end_fn(hash, out_sha256, error);
}

void dunlin__sha256_abort(dunlin__sha256 *hash)
{
    dunlin__crypto->sha256_abort_fn(hash);
}

dunlin_status dunlin__sha256_of(const void *data, size_t n_bytes,
                                uint8_t out_sha256[DUNLIN_SHA256_BYTES], dunlin_error *error)
{
    return dunlin__crypto->sha256_of_fn((data != NULL) ? data : "", n_bytes, out_sha256, error);
}

dunlin_status dunlin__sha256_expect(const char *what, const uint8_t wanted[DUNLIN_SHA256_BYTES],
                                    const uint8_t found[DUNLIN_SHA256_BYTES], dunlin_error *error)
{
    if (memcmp(wanted, found, DUNLIN_SHA256_BYTES) == 0) {
        return DUNLIN_OK;
    }
    char wanted_text[17];
    char found_text[17];
    dunlin__hex_encode(wanted, 8, wanted_text);
    dunlin__hex_encode(found, 8, found_text);
    return dunlin__fail(error, DUNLIN_DIGEST, "digest", 0,
                        "%s: SHA-256 begins %s, it should begin %s", what, found_text, wanted_text);
}

void dunlin__hex_encode(const uint8_t *bytes, size_t n_bytes, char *out_text)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n_bytes; i++) {
        out_text[2 * i] = digits[bytes[i] >> 4];
        out_text[2 * i + 1] = digits[bytes[i] & 15u];
    }
    out_text[2 * n_bytes] = '\0';
}

/* The value of a lower-case hex digit, or 16. */
static unsigned hex_value(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return (unsigned)(digit - '0');
    }
    if (digit >= 'a' && digit <= 'f') {
        return (unsigned)(digit - 'a') + 10u;
    }
    return 16u;
}

bool dunlin__hex_decode(const char *text, uint8_t *out_bytes, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        unsigned high = hex_value(text[2 * i]);
        if (high > 15u) {
            return false;
        }
        unsigned low = hex_value(text[2 * i + 1]);
        if (low > 15u) {
            return false;
        }
        out_bytes[i] = (uint8_t)((high << 4) | low);
    }
    return text[2 * n_bytes] == '\0';
}

dunlin_status dunlin__random_bytes(void *out_bytes, size_t n_bytes, dunlin_error *error)
{
    return dunlin__crypto->random_bytes_fn(out_bytes, n_bytes, error);
}

dunlin_status dunlin__idempotency_key(char out_key[DUNLIN_WIRE_IDEMPOTENCY_BYTES],
                                      dunlin_error *error)
{
    uint8_t bytes[(DUNLIN_WIRE_IDEMPOTENCY_BYTES - 1) / 2];
    out_key[0] = '\0';
    DUNLIN_TRY(dunlin__random_bytes(bytes, sizeof(bytes), error));
    dunlin__hex_encode(bytes, sizeof(bytes), out_key);
    return DUNLIN_OK;
}

void dunlin__wipe(void *memory, size_t n_bytes)
{
    volatile uint8_t *bytes = memory;
    for (size_t i = 0; i < n_bytes; i++) {
        bytes[i] = 0;
    }
}
