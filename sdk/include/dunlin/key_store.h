/*
 * key_store.h - the key pair of a device, kept where the platform keeps keys: the app gives the
 * functions as `key_store` of dunlin_client_options.
 *
 * Example: a signature as the platform's key store gives it becomes what sign_fn returns.
 *
 * @code
 * const uint8_t der[] = {0x30, 0x06, 0x02, 0x01, 0x05, 0x02, 0x01, 0x07}; // r = 5, s = 7
 * uint8_t signature[64];
 * dunlin_error error;
 * if (dunlin_signature_from_der(der, sizeof der, signature, &error) != DUNLIN_OK) {
 *     printf("%s\n", error.text);
 * }
 * printf("%d and %d\n", signature[31], signature[63]);
 * @endcode
 */
#ifndef DUNLIN_KEY_STORE_H
#define DUNLIN_KEY_STORE_H

#include <dunlin/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The device's key in the platform's key store (Android Keystore, Secure Enclave): the library then
 * never sees the private half. All functions come from the thread that uses the client, and answer
 * OK; LOCKED if the device must be unlocked first (asked again later); anything else ends the round
 * with CALLBACK. Frozen: it never gets another member.
 */
typedef struct dunlin_key_store {
    void *ctx;
    /** The public key of an ECDSA P-256 pair, made if there is none yet: 65 bytes, 04 x y. */
    dunlin_status (*public_key_fn)(void *ctx, uint8_t out_public_key[65]);
    /** Signs SHA-256(message); 64 bytes, r then s. Key stores give DER: see
     * dunlin_signature_from_der(). */
    dunlin_status (*sign_fn)(void *ctx, const void *message, size_t n_bytes,
                             uint8_t out_signature[64]);
    /** The client is forgotten: the pair may go. May be NULL. */
    void (*forget_fn)(void *ctx);
} dunlin_key_store;

/**
 * A signature as key stores give it (DER, SEQUENCE of two INTEGERs) into 64 bytes, r then s.
 *
 * @return OK; strict: SIGNATURE for anything else, and out_signature is zeros.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_signature_from_der(const uint8_t *der,
                                                                    size_t n_bytes,
                                                                    uint8_t out_signature[64],
                                                                    dunlin_error *out_error);

#ifdef __cplusplus
}
#endif

#endif
