/*
 * request.c - the bytes a request's signature covers.
 *
 * Every part is written with its length before it, so no byte can move from one part into another
 * without changing the message.
 */
#include <mem/support.h>
#include <wire/digest.h>
#include <wire/signature.h>

#include <string.h>

/* Names the use and the format, so that no signature of ours fits another purpose. */
#define REQUEST_TAG "dunlin.v1.request"

typedef struct message_writer {
    uint8_t *bytes;
    size_t n_bytes;
} message_writer;

static void put_u64(message_writer *writer, uint64_t value)
{
    for (int shift = 56; shift >= 0; shift -= 8) {
        writer->bytes[writer->n_bytes++] = (uint8_t)(value >> shift);
    }
}

/* A length of two bytes, then the bytes. */
static void put_part(message_writer *writer, const void *data, size_t n_bytes)
{
    writer->bytes[writer->n_bytes++] = (uint8_t)(n_bytes >> 8);
    writer->bytes[writer->n_bytes++] = (uint8_t)n_bytes;
    memcpy(writer->bytes + writer->n_bytes, data, n_bytes);
    writer->n_bytes += n_bytes;
}

typedef struct request_part {
    const char *name;
    const char *value;
    size_t max_chars;
    bool may_be_empty;
} request_part;

#define N_PARTS 6

static dunlin_status check_part(const request_part *part, dunlin_error *error)
{
    if (part->value == NULL || (part->value[0] == '\0' && !part->may_be_empty)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "request", 0, "the request to sign has no %s",
                            part->name);
    }
    size_t n_chars = strnlen(part->value, part->max_chars + 1);
    if (n_chars > part->max_chars) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "request", 0,
                            "the %s of the request to sign is longer than %zu characters",
                            part->name, part->max_chars);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__request_message(const dunlin__signed_request *request,
                                      uint8_t out_message[DUNLIN_REQUEST_MESSAGE_BYTES],
                                      size_t *out_n_bytes, dunlin_error *error)
{
    /* The longest of all: tag and version, six parts with their lengths, body hash, counter. */
    _Static_assert(2 + sizeof(REQUEST_TAG) + 8 + N_PARTS * 2 + 8 + DUNLIN_WIRE_AUTHORITY_CHARS +
                           DUNLIN_WIRE_PATH_BYTES + 3 * DUNLIN_WIRE_ID_CHARS + 2 +
                           DUNLIN_SHA256_BYTES + 8 <=
                       DUNLIN_REQUEST_MESSAGE_BYTES,
                   "a request message fits");
    const request_part parts[N_PARTS] = {
        {"method", request->method, 8, false},
        {"authority", request->authority, DUNLIN_WIRE_AUTHORITY_CHARS, false},
        {"path", request->path, DUNLIN_WIRE_PATH_BYTES - 1, false},
        {"device id", request->device_id, DUNLIN_WIRE_ID_CHARS, true},
        {"idempotency key", request->idempotency_key, DUNLIN_WIRE_ID_CHARS, false},
        {"challenge", request->challenge, DUNLIN_WIRE_ID_CHARS, true},
    };
    *out_n_bytes = 0;
    memset(out_message, 0, DUNLIN_REQUEST_MESSAGE_BYTES);
    message_writer writer = {.bytes = out_message};
    put_part(&writer, REQUEST_TAG, sizeof(REQUEST_TAG) - 1);
    put_u64(&writer, DUNLIN_WIRE_VERSION);
    for (size_t i = 0; i < N_PARTS; i++) {
        DUNLIN_TRY(check_part(&parts[i], error));
        put_part(&writer, parts[i].value, strlen(parts[i].value));
    }
    put_u64(&writer, request->counter);
    put_part(&writer, request->body_sha256, DUNLIN_SHA256_BYTES);
    *out_n_bytes = writer.n_bytes;
    return DUNLIN_OK;
}

dunlin_status dunlin__request_digest(const dunlin__signed_request *request,
                                     uint8_t out_sha256[DUNLIN_SHA256_BYTES], dunlin_error *error)
{
    uint8_t message[DUNLIN_REQUEST_MESSAGE_BYTES];
    size_t n_bytes = 0;
    DUNLIN_TRY(dunlin__request_message(request, message, &n_bytes, error));
    return dunlin__sha256_of(message, n_bytes, out_sha256, error);
}

dunlin_status dunlin__request_sign(const dunlin__signed_request *request,
                                   const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
                                   uint8_t out_signature[DUNLIN_SIGNATURE_BYTES],
                                   dunlin_error *error)
{
    uint8_t message[DUNLIN_REQUEST_MESSAGE_BYTES];
    size_t n_bytes = 0;
    DUNLIN_TRY(dunlin__request_message(request, message, &n_bytes, error));
    return dunlin__sign(private_key, message, n_bytes, out_signature, error);
}

dunlin_status dunlin__request_verify(const dunlin__signed_request *request,
                                     const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES],
                                     const uint8_t signature[DUNLIN_SIGNATURE_BYTES],
                                     dunlin_error *error)
{
    uint8_t message[DUNLIN_REQUEST_MESSAGE_BYTES];
    size_t n_bytes = 0;
    DUNLIN_TRY(dunlin__request_message(request, message, &n_bytes, error));
    return dunlin__verify(public_key, message, n_bytes, signature, error);
}
