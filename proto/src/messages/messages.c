/*
 * messages.c - the typed functions over the codec, and what a server's status code means.
 */
#include "codec/codec.h"

#include <wire/messages.h>

#define DEFINE_MESSAGE(name, generated)                                                            \
    dunlin_status dunlin__##name##_encode(const dunlin__##name *message, uint8_t *out_bytes,       \
                                          size_t capacity, size_t *out_n_bytes,                    \
                                          dunlin_error *error)                                     \
    {                                                                                              \
        return dunlin__message_encode(&dunlin__kind_##name, message, out_bytes, capacity,          \
                                      out_n_bytes, error);                                         \
    }                                                                                              \
    dunlin_status dunlin__##name##_decode(const uint8_t *bytes, size_t n_bytes,                    \
                                          dunlin__##name *out_message, dunlin_error *error)        \
    {                                                                                              \
        return dunlin__message_decode(&dunlin__kind_##name, bytes, n_bytes, out_message, error);   \
    }
DUNLIN_MESSAGE_MAP(DEFINE_MESSAGE)
#undef DEFINE_MESSAGE

/* One row a code, in the order of their numbers. */
static const dunlin__status_meaning meanings[] = {
    {DUNLIN_PROTOCOL, true, 500, "UNSPECIFIED"},
    [DUNLIN_V1_STATUS_CODE_INVALID] = {DUNLIN_PROTOCOL, true, 400, "INVALID"},
    [DUNLIN_V1_STATUS_CODE_NOT_FOUND] = {DUNLIN_REJECTED, true, 404, "NOT_FOUND"},
    [DUNLIN_V1_STATUS_CODE_UNAUTHENTICATED] = {DUNLIN_SIGNATURE, true, 401, "UNAUTHENTICATED"},
    [DUNLIN_V1_STATUS_CODE_STALE_CHALLENGE] = {DUNLIN_REJECTED, false, 401, "STALE_CHALLENGE"},
    [DUNLIN_V1_STATUS_CODE_REPLAYED] = {DUNLIN_REJECTED, false, 401, "REPLAYED"},
    [DUNLIN_V1_STATUS_CODE_IDEMPOTENCY_CONFLICT] = {DUNLIN_REJECTED, true, 409,
                                                    "IDEMPOTENCY_CONFLICT"},
    [DUNLIN_V1_STATUS_CODE_WRONG_OFFSET] = {DUNLIN_MISMATCH, false, 409, "WRONG_OFFSET"},
    [DUNLIN_V1_STATUS_CODE_DIGEST_MISMATCH] = {DUNLIN_DIGEST, false, 422, "DIGEST_MISMATCH"},
    [DUNLIN_V1_STATUS_CODE_TOO_LARGE] = {DUNLIN_LIMIT, true, 413, "TOO_LARGE"},
    [DUNLIN_V1_STATUS_CODE_QUOTA] = {DUNLIN_LIMIT, false, 429, "QUOTA"},
    [DUNLIN_V1_STATUS_CODE_EXPIRED] = {DUNLIN_REJECTED, true, 410, "EXPIRED"},
    [DUNLIN_V1_STATUS_CODE_STALE_ROUND] = {DUNLIN_ROLLBACK, true, 409, "STALE_ROUND"},
    [DUNLIN_V1_STATUS_CODE_VERSION] = {DUNLIN_VERSION, true, 400, "VERSION"},
    [DUNLIN_V1_STATUS_CODE_UNIMPLEMENTED] = {DUNLIN_UNSUPPORTED, true, 501, "UNIMPLEMENTED"},
    [DUNLIN_V1_STATUS_CODE_UNAVAILABLE] = {DUNLIN_UNREACHABLE, false, 503, "UNAVAILABLE"},
    [DUNLIN_V1_STATUS_CODE_INTERNAL] = {DUNLIN_REJECTED, false, 500, "INTERNAL"},
    [DUNLIN_V1_STATUS_CODE_FORBIDDEN] = {DUNLIN_REJECTED, true, 403, "FORBIDDEN"},
};

const dunlin__status_meaning *dunlin__status_describe(dunlin_v1_status_code_t code)
{
    size_t n_codes = sizeof(meanings) / sizeof(meanings[0]);
    size_t index = (size_t)code;
    return (index > 0 && index < n_codes) ? &meanings[index]
                                          : &meanings[DUNLIN_V1_STATUS_CODE_INTERNAL];
}
