/*
 * reply.c - an empty reply, and how a call is refused.
 */
#include "reply.h"

#include <mem/support.h>

#include <stdarg.h>
#include <stdio.h>

void dunlin__server_reply_clear(dunlin__server_reply *reply)
{
    reply->http_code = 200;
    reply->n_body = 0;
    reply->long_body = NULL;
    reply->n_long = 0;
    reply->fd = -1;
    reply->fd_offset = 0;
    reply->n_fd_bytes = 0;
    reply->is_object = false;
    reply->etag[0] = 0;
    reply->content_range[0] = 0;
    reply->has_upload_offset = false;
    reply->upload_offset = 0;
    reply->content_type = NULL;
    reply->location = NULL;
    reply->retry_after_ms = -1;
}

void dunlin__server_reply_end(dunlin__server_reply *reply, const dunlin_alloc *alloc)
{
    if (reply->long_body != NULL) {
        dunlin__free_array(alloc, reply->long_body, reply->n_long, 1);
        reply->long_body = NULL;
    }
}

const uint8_t *dunlin__server_reply_body(const dunlin__server_reply *reply)
{
    return reply->long_body != NULL ? reply->long_body : reply->body;
}

void dunlin__server_refuse_with(dunlin__server_reply *reply, dunlin__status *status)
{
    dunlin_error ignored;
    dunlin__server_reply_clear(reply);
    reply->http_code = (uint32_t)dunlin__status_describe(status->code)->http_code;
    if (status->code == DUNLIN_V1_STATUS_CODE_WRONG_OFFSET) {
        reply->has_upload_offset = true;
        reply->upload_offset = status->upload_offset;
    }
    for (char *c = status->text; *c != 0; c++) {
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7E) {
            *c = '?';
        }
    }
    if (dunlin__status_encode(status, reply->body, sizeof reply->body, &reply->n_body, &ignored) !=
        DUNLIN_OK) {
        reply->n_body = 0;
    }
}

void dunlin__server_refuse(dunlin__server_reply *reply, dunlin_v1_status_code_t code,
                           const char *format, ...)
{
    dunlin__status status = {.code = code};
    va_list args;
    va_start(args, format);
    (void)vsnprintf(status.text, sizeof status.text, format, args);
    va_end(args);
    if (code == DUNLIN_V1_STATUS_CODE_UNAVAILABLE) {
        status.retry_after_ms = 1000;
    }
    dunlin__server_refuse_with(reply, &status);
}

void dunlin__server_refuse_error(dunlin__server_reply *reply, const dunlin_error *error)
{
    static const struct {
        dunlin_status status;
        dunlin_v1_status_code_t code;
    } codes[] = {
        {DUNLIN_PROTOCOL, DUNLIN_V1_STATUS_CODE_INVALID},
        {DUNLIN_MISMATCH, DUNLIN_V1_STATUS_CODE_INVALID},
        {DUNLIN_OVERFLOW, DUNLIN_V1_STATUS_CODE_INVALID},
        {DUNLIN_ARGUMENT, DUNLIN_V1_STATUS_CODE_INVALID},
        {DUNLIN_LIMIT, DUNLIN_V1_STATUS_CODE_TOO_LARGE},
        {DUNLIN_VERSION, DUNLIN_V1_STATUS_CODE_VERSION},
        {DUNLIN_UNSUPPORTED, DUNLIN_V1_STATUS_CODE_UNIMPLEMENTED},
        {DUNLIN_SIGNATURE, DUNLIN_V1_STATUS_CODE_UNAUTHENTICATED},
        {DUNLIN_SPACE, DUNLIN_V1_STATUS_CODE_UNAVAILABLE},
        {DUNLIN_LOCKED, DUNLIN_V1_STATUS_CODE_UNAVAILABLE},
        {DUNLIN_MEMORY, DUNLIN_V1_STATUS_CODE_UNAVAILABLE},
    };
    dunlin_v1_status_code_t code = DUNLIN_V1_STATUS_CODE_INTERNAL;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        if (codes[i].status == error->status) {
            code = codes[i].code;
        }
    }
    /* The detail of an internal failure is not sent: it may name files. */
    bool is_ours =
        code == DUNLIN_V1_STATUS_CODE_INTERNAL || code == DUNLIN_V1_STATUS_CODE_UNAVAILABLE;
    dunlin__server_refuse(reply, code, "%s",
                          is_ours ? dunlin_status_text(error->status) : error->text);
}
