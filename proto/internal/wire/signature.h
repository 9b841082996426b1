/*
 * signature.h - ECDSA over P-256 with SHA-256, and the bytes a request is signed over.
 *
 * Private keys are 32 bytes, public keys 65 (04, x, y), signatures 64 (r, s), all big-endian. Keys
 * live with the caller; the crypto library (provider.h) gets one for the length of a call and
 * forgets it. Signing is deterministic (RFC 6979). Any thread.
 */
#ifndef DUNLIN_WIRE_SIGNATURE_H
#define DUNLIN_WIRE_SIGNATURE_H

#include <dunlin/base.h>
#include <wire/protocol.h>

DUNLIN_NODISCARD dunlin_status
dunlin__key_generate(uint8_t out_private_key[DUNLIN_PRIVATE_KEY_BYTES],
                     uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES], dunlin_error *error);

/* ARGUMENT if the private key is not in [1, n - 1]. */
DUNLIN_NODISCARD dunlin_status
dunlin__key_public(const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
                   uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES], dunlin_error *error);

/* SIGNATURE if the 65 bytes are not a point of the curve. */
DUNLIN_NODISCARD dunlin_status dunlin__key_check(const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                                 dunlin_error *error);

/* Signs SHA-256(message). */
DUNLIN_NODISCARD dunlin_status dunlin__sign(const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
                                            const void *message, size_t n_bytes,
                                            uint8_t out_signature[DUNLIN_SIGNATURE_BYTES],
                                            dunlin_error *error);

/* OK, or SIGNATURE. */
DUNLIN_NODISCARD dunlin_status dunlin__verify(const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                              const void *message, size_t n_bytes,
                                              const uint8_t signature[DUNLIN_SIGNATURE_BYTES],
                                              dunlin_error *error);

/* Platform key stores give DER (SEQUENCE of two INTEGERs). Strict: minimal lengths, positive, no
 * trailing bytes. */
#define DUNLIN_SIGNATURE_DER_BYTES 72u
DUNLIN_NODISCARD dunlin_status
dunlin__signature_from_der(const uint8_t *der, size_t n_bytes,
                           uint8_t out_signature[DUNLIN_SIGNATURE_BYTES], dunlin_error *error);
size_t dunlin__signature_to_der(const uint8_t signature[DUNLIN_SIGNATURE_BYTES],
                                uint8_t out_der[DUNLIN_SIGNATURE_DER_BYTES]);

/* The SubjectPublicKeyInfo of a public key, as certificates carry it and pins hash it. */
#define DUNLIN_SPKI_BYTES 91u
void dunlin__spki_from_key(const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES],
                           uint8_t out_spki[DUNLIN_SPKI_BYTES]);
DUNLIN_NODISCARD dunlin_status dunlin__spki_to_key(const uint8_t *spki, size_t n_bytes,
                                                   uint8_t out_public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                                   dunlin_error *error);

/*
 * What a request's signature covers. `authority` is the host and port the client connects to, in
 * lower case, the port left out if it is the scheme's own: what the Host header says. `challenge`
 * and `device_id` are "" at enrolment, where the device has neither. `counter` starts at 1 and
 * grows with each request signed over the same challenge; retries count too.
 */
typedef struct dunlin__signed_request {
    const char *method;
    const char *authority;
    const char *path;
    const char *device_id;
    const char *idempotency_key;
    const char *challenge;
    uint64_t counter;
    uint8_t body_sha256[DUNLIN_SHA256_BYTES];
} dunlin__signed_request;

/* The message that is signed: a tag with the protocol version, then each part with its length, so
 * that no two requests give the same bytes. ARGUMENT names a part that is NULL, too long, or empty
 * where it must not be. */
#define DUNLIN_REQUEST_MESSAGE_BYTES 1024u
DUNLIN_NODISCARD dunlin_status dunlin__request_message(
    const dunlin__signed_request *request, uint8_t out_message[DUNLIN_REQUEST_MESSAGE_BYTES],
    size_t *out_n_bytes, dunlin_error *error);

/* SHA-256 of that message. */
DUNLIN_NODISCARD dunlin_status dunlin__request_digest(const dunlin__signed_request *request,
                                                      uint8_t out_sha256[DUNLIN_SHA256_BYTES],
                                                      dunlin_error *error);

/* Both in one: sign with a key of one's own; verify with the device's. */
DUNLIN_NODISCARD dunlin_status dunlin__request_sign(
    const dunlin__signed_request *request, const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
    uint8_t out_signature[DUNLIN_SIGNATURE_BYTES], dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__request_verify(
    const dunlin__signed_request *request, const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES],
    const uint8_t signature[DUNLIN_SIGNATURE_BYTES], dunlin_error *error);

#endif
