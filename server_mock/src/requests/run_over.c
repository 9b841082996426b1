/*
 * run_over.c - the statement that a run is over, signed for the device that asks.
 *
 * Invariant: it names a model that can be fetched, and that no evaluation takes back any more.
 */
#include "run_over.h"

#include "state/context.h"

#include <mem/support.h>

#include <string.h>

#define OVER_MS UINT64_C(3600000)

static bool knows_end(const dunlin__capabilities *can)
{
    for (size_t i = 0; i < can->features_count; i++) {
        if (can->features[i] == DUNLIN_V1_FEATURE_RUN_OVER) {
            return true;
        }
    }
    return false;
}

dunlin_status dunlin__server_state_end(const dunlin__call_state *call,
                                       const dunlin__capabilities *can,
                                       dunlin__checkin_response *answer, dunlin_error *error)
{
    const dunlin__server *server = call->server;
    const bool is_settled = server->is_done && server->is_exported && !server->is_stale;
    if (!is_settled || answer->rejection != DUNLIN_V1_REJECTION_NO_WORK || !knows_end(can)) {
        return DUNLIN_OK;
    }
    const dunlin__published *model = &server->models[0];
    const uint64_t least_ms = server->options.over_ms;
    dunlin__run_over statement = {.run_epoch = (uint64_t)server->run_epoch,
                                  .round = server->round.round - 1,
                                  .model_manifest_bytes = model->n_manifest_bytes,
                                  .has_window = true};
    memcpy(statement.population, server->task.population, sizeof server->task.population);
    memcpy(statement.task, server->task.name, sizeof server->task.name);
    memcpy(statement.device_id, call->device->row.id, sizeof call->device->row.id);
    memcpy(statement.model_manifest_sha256, model->manifest_sha256, DUNLIN_SHA256_BYTES);
    memcpy(statement.key_id, server->certs.key_id, sizeof server->certs.key_id);
    statement.window = dunlin__server_window(least_ms > 0 ? least_ms : OVER_MS);
    answer->has_run_over = true;
    return dunlin__run_over_seal(&statement, server->certs.signing_key, &answer->run_over, error);
}
