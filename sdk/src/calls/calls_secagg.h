/*
 * calls_secagg.h - a step of a secure aggregation.
 */
#ifndef DUNLIN_SDK_CALLS_SECAGG_H
#define DUNLIN_SDK_CALLS_SECAGG_H

#include "context/client_context.h"

/* Sends a step's message; its answer goes to `out_reply`, with room for DUNLIN_WIRE_BODY_BYTES. The
 * journal's key stays: each of these calls has one of its own, for the server stores no answer. */
dunlin_status dunlin__call_secagg(dunlin_client *client, uint32_t step, const uint8_t *body,
                                  size_t n_bytes, uint8_t *out_reply, size_t *out_reply_bytes,
                                  dunlin__fault *out_fault);

#endif
