/*
 * call_macros.h - how a call reads its request and writes its answer.
 */
#ifndef DUNLIN_SERVER_CALL_MACROS_H
#define DUNLIN_SERVER_CALL_MACROS_H

#include "call.h"

/* Encodes a message of the table into the reply, or refuses. */
#define REPLY(call, name, message)                                                                 \
    do {                                                                                           \
        dunlin_error reply_error_ = {0};                                                           \
        if (dunlin__##name##_encode(message, (call)->reply->body, sizeof(call)->reply->body,       \
                                    &(call)->reply->n_body, &reply_error_) != DUNLIN_OK) {         \
            dunlin__server_refuse_error((call)->reply, &reply_error_);                             \
        }                                                                                          \
    } while (0)

/* Decodes the request, or refuses and returns. */
#define REQUEST(call, name, out_message)                                                           \
    do {                                                                                           \
        dunlin_error request_error_ = {0};                                                         \
        if (dunlin__##name##_decode((call)->request->body, (call)->request->n_body, out_message,   \
                                    &request_error_) != DUNLIN_OK) {                               \
            dunlin__server_refuse_error((call)->reply, &request_error_);                           \
            return;                                                                                \
        }                                                                                          \
    } while (0)

#endif
