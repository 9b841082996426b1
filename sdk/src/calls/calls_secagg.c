/*
 * calls_secagg.c - a step of a secure aggregation.
 */
#include "calls_secagg.h"

#include "calls.h"

#include <wire/signature.h>

#include <string.h>

dunlin_status dunlin__call_secagg(dunlin_client *client, uint32_t step, const uint8_t *body,
                                  size_t n_bytes, uint8_t *out_reply, size_t *out_reply_bytes,
                                  dunlin__fault *out_fault)
{
    char kept[DUNLIN_WIRE_IDEMPOTENCY_BYTES];
    dunlin__route route =
        dunlin__route_make(DUNLIN_CALL_SECAGG, client->round->assignment.assignment_id);
    route.secagg_step = step;
    *out_reply_bytes = 0;
    memcpy(kept, client->journal.key, sizeof kept);
    dunlin_status status = dunlin__fault_judge(
        dunlin__idempotency_key(client->journal.key, &client->error), out_fault);
    if (status == DUNLIN_OK) {
        status =
            dunlin__call_post(client, &route, body, n_bytes, out_reply, out_reply_bytes, out_fault);
    }
    memcpy(client->journal.key, kept, sizeof kept);
    return status;
}
