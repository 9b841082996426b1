/*
 * reply.h - a request and the reply to it as plain data, and how a call is refused.
 */
#ifndef DUNLIN_SERVER_REPLY_H
#define DUNLIN_SERVER_REPLY_H

#include "db.h"

#include <wire/digest.h>
#include <wire/messages.h>
#include <wire/protocol.h>

/* Header values are NULL where the request has none. */
typedef struct dunlin__server_request {
    dunlin__route route;
    const char *method;
    const char *path;
    const char *authority;
    const char *device_id;
    const char *challenge;
    const char *counter;
    const char *signature;
    const char *idempotency_key;
    const char *token;
    const char *content_range;
    const char *range;
    const char *if_range;
    const uint8_t *certificate_sha256; /* of the client's public key, verified by TLS */
    const uint8_t *body;
    size_t n_body;
    int64_t clock_skew_ms; /* of a fault script: how far the server's clock is off for this call */
} dunlin__server_request;

typedef struct dunlin__server_reply {
    uint32_t http_code;
    size_t n_body;
    uint8_t body[DUNLIN_SERVER_ANSWER_BYTES]; /* a protobuf message */
    uint8_t *long_body;                       /* not NULL: n_body bytes in place of body; */
    size_t n_long;                            /* the room there is. Ended by reply_end() */
    int fd;                                   /* >= 0: the body is a part of a file instead */
    uint64_t fd_offset;
    uint64_t n_fd_bytes;
    bool is_object; /* cacheable for ever, has an ETag */
    char etag[DUNLIN_SHA256_HEX_BYTES + 2];
    char content_range[DUNLIN_WIRE_RANGE_BYTES];
    bool has_upload_offset;
    uint64_t upload_offset;
    /* Of fault scripts: */
    const char *content_type; /* instead of the usual one; static */
    const char *location;     /* static */
    int64_t retry_after_ms;   /* as a header; -1: none */
} dunlin__server_reply;

/* An empty reply; not of one that has a long body. */
void dunlin__server_reply_clear(dunlin__server_reply *reply);
/* Gives back its long body, if it has one. */
void dunlin__server_reply_end(dunlin__server_reply *reply, const dunlin_alloc *alloc);
/* The bytes of the body. */
const uint8_t *dunlin__server_reply_body(const dunlin__server_reply *reply);
/* Makes the reply a typed status. */
void dunlin__server_refuse(dunlin__server_reply *reply, dunlin_v1_status_code_t code,
                           const char *format, ...) DUNLIN_PRINTF(3, 4);
/* Makes the reply from an error of ours: the code follows the status. */
void dunlin__server_refuse_error(dunlin__server_reply *reply, const dunlin_error *error);
void dunlin__server_refuse_with(dunlin__server_reply *reply, dunlin__status *status);

#endif
