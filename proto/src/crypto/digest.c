/*
 * digest.c - SHA-256 and random bytes through PSA, behind one lock.
 *
 * The crypto library keeps key slots and its random generator in process-wide state without locks
 * of its own; no PSA call is made outside crypto_begin/crypto_end. The mutex is the one
 * process-wide state of this layer.
 */
#include <mem/support.h>
#include <wire/digest.h>

#include <pthread.h>
#include <string.h>

static pthread_mutex_t crypto_lock = PTHREAD_MUTEX_INITIALIZER;

dunlin_status dunlin__crypto_begin(dunlin_error *error)
{
    int code = pthread_mutex_lock(&crypto_lock);
    if (code != 0) {
        return dunlin__fail(error, DUNLIN_INTERNAL, "crypto", code,
                            "the lock around the crypto library cannot be taken (error %d)", code);
    }
    psa_status_t status = psa_crypto_init(); /* nothing to do after the first time */
    if (status != PSA_SUCCESS) {
        (void)pthread_mutex_unlock(&crypto_lock);
        return dunlin__fail(error, DUNLIN_INTERNAL, "crypto", (int)status,
                            "the crypto library does not start (error %d)", (int)status);
    }
    return DUNLIN_OK;
}

void dunlin__crypto_end(void)
{
    (void)pthread_mutex_unlock(&crypto_lock);
}

static dunlin_status fail_hash(dunlin_error *error, psa_status_t status)
{
    dunlin_status ours =
        (status == PSA_ERROR_INSUFFICIENT_MEMORY) ? DUNLIN_MEMORY : DUNLIN_INTERNAL;
    return dunlin__fail(error, ours, "crypto", (int)status, "SHA-256 failed (error %d)",
                        (int)status);
}

dunlin_status dunlin__sha256_begin(dunlin__sha256 *hash, dunlin_error *error)
{
    hash->operation = psa_hash_operation_init();
    DUNLIN_TRY(dunlin__crypto_begin(error));
    psa_status_t status = psa_hash_setup(&hash->operation, PSA_ALG_SHA_256);
    dunlin__crypto_end();
    return (status == PSA_SUCCESS) ? DUNLIN_OK : fail_hash(error, status);
}

dunlin_status dunlin__sha256_update(dunlin__sha256 *hash, const void *data, size_t n_bytes,
                                    dunlin_error *error)
{
    if (n_bytes == 0) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__crypto_begin(error));
    psa_status_t status = psa_hash_update(&hash->operation, data, n_bytes);
    if (status != PSA_SUCCESS) {
        (void)psa_hash_abort(&hash->operation);
    }
    dunlin__crypto_end();
    return (status == PSA_SUCCESS) ? DUNLIN_OK : fail_hash(error, status);
}

dunlin_status dunlin__sha256_end(dunlin__sha256 *hash, uint8_t out_sha256[DUNLIN_SHA256_BYTES],
                                 dunlin_error *error)
{
    size_t n_bytes = 0;
    DUNLIN_TRY(dunlin__crypto_begin(error));
    psa_status_t status =
        psa_hash_finish(&hash->operation, out_sha256, DUNLIN_SHA256_BYTES, &n_bytes);
    if (status != PSA_SUCCESS) {
        (void)psa_hash_abort(&hash->operation);
    }
    dunlin__crypto_end();
    return (status == PSA_SUCCESS) ? DUNLIN_OK : fail_hash(error, status);
}

void dunlin__sha256_abort(dunlin__sha256 *hash)
{
    if (dunlin__crypto_begin(NULL) != DUNLIN_OK) {
        return;
    }
    (void)psa_hash_abort(&hash->operation);
    dunlin__crypto_end();
}

dunlin_status dunlin__sha256_of(const void *data, size_t n_bytes,
                                uint8_t out_sha256[DUNLIN_SHA256_BYTES], dunlin_error *error)
{
    dunlin__sha256 hash;
    DUNLIN_TRY(dunlin__sha256_begin(&hash, error));
    DUNLIN_TRY(dunlin__sha256_update(&hash, data, n_bytes, error));
    return dunlin__sha256_end(&hash, out_sha256, error);
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
    uint8_t *next = out_bytes;
    DUNLIN_TRY(dunlin__crypto_begin(error));
    psa_status_t status = PSA_SUCCESS;
    while (n_bytes > 0 && status == PSA_SUCCESS) {
        size_t part = (n_bytes < 1024) ? n_bytes : 1024; /* the generator's own limit per request */
        status = psa_generate_random(next, part);
        next += part;
        n_bytes -= part;
    }
    dunlin__crypto_end();
    if (status != PSA_SUCCESS) {
        return dunlin__fail(error, DUNLIN_INTERNAL, "crypto", (int)status,
                            "no random bytes (error %d)", (int)status);
    }
    return DUNLIN_OK;
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
