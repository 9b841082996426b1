/*
 * assignment_read.c - the assignment that a device got: its signature, and what it asks for beside
 * what this client and its app allow.
 */
#include "calls_fleet.h"
#include "floor.h"

#include <wire/secagg.h>
#include <wire/signature.h>

#include <string.h>

/* Its variates follow from plain steps at one rate, and go up unclipped. */
static dunlin_status check_scaffold(dunlin_client *client, const dunlin__assignment *assignment)
{
    const dunlin__training_plan *plan = &assignment->plan;
    if (assignment->kind != DUNLIN_V1_KIND_TRAIN ||
        plan->algorithm != DUNLIN_V1_ALGORITHM_SCAFFOLD) {
        return DUNLIN_OK;
    }
    if (client->options.max_update_norm > 0.0F) {
        return dunlin__fail(&client->error, DUNLIN_LIMIT, "client", 0,
                            "the plan is SCAFFOLD, whose control variates are not clipped; this "
                            "app wants at most %g",
                            (double)client->options.max_update_norm);
    }
    if (plan->momentum > 0.0F || plan->clip_norm > 0.0F || !(plan->learning_rate > 0.0F) ||
        plan->update_form == DUNLIN_V1_UPDATE_FORM_WEIGHTS) {
        return dunlin__fail(&client->error, DUNLIN_UNSUPPORTED, "client", 0,
                            "the plan is SCAFFOLD with momentum, clipping, whole weights or no "
                            "learning rate");
    }
    return DUNLIN_OK;
}

/* What an update is to look like on its way up. */
static dunlin_status check_encoding(dunlin_client *client, const dunlin__assignment *assignment)
{
    const dunlin__training_plan *plan = &assignment->plan;
    const dunlin_v1_encoding_t encoding = plan->update_encoding;
    const bool is_training = assignment->kind == DUNLIN_V1_KIND_TRAIN;
    const bool is_int8 = is_training && encoding == DUNLIN_V1_ENCODING_INT8_SCALE;
    const bool is_sent = encoding == DUNLIN_V1_ENCODING_F32 ||
                         encoding == DUNLIN_V1_ENCODING_PACKED || is_int8 ||
                         (encoding == DUNLIN_V1_ENCODING_MASKED_RING && plan->has_secagg);
    const char *why = NULL;
    if (is_training && (!is_sent || plan->noise_multiplier > 0.0F)) {
        why = "noise or an encoding other than F32, INT8_SCALE, PACKED and MASKED_RING";
    } else if (is_int8 && plan->precision[0] == '\0') {
        why = "an update in INT8_SCALE without a precision of int8";
    } else if ((plan->has_packing || is_int8) && client->options.sends_plain) {
        why = "a packed or int8 update; this app sends float32 alone";
    }
    return why == NULL ? DUNLIN_OK
                       : dunlin__fail(&client->error, DUNLIN_UNSUPPORTED, "client", 0,
                                      "the plan asks for %s", why);
}

/* What a masked update cannot be, and a bit about a single one. */
static dunlin_status check_secure(dunlin_client *client, const dunlin__assignment *assignment)
{
    const dunlin__training_plan *plan = &assignment->plan;
    const char *why = NULL;
    if (assignment->kind != DUNLIN_V1_KIND_TRAIN || !plan->has_secagg) {
        return DUNLIN_OK;
    }
    if (plan->algorithm == DUNLIN_V1_ALGORITHM_SCAFFOLD) {
        why = "control variates, which are a second vector";
    } else if (plan->update_form != DUNLIN_V1_UPDATE_FORM_DELTA) {
        why = "whole weights, where differences are clipped";
    } else if (plan->evaluates || plan->reports_clip) {
        why = "evaluations or reports_clip, which tell of single devices";
    } else if (plan->secagg.ring_bits % 8 != 0) {
        why = "ring_bits other than 16, 24 and 32";
    }
    if (why != NULL) {
        return dunlin__fail(&client->error, DUNLIN_UNSUPPORTED, "client", 0,
                            "the plan is a secure aggregation with %s", why);
    }
    return dunlin__secagg_check(&plan->secagg, &client->error);
}

dunlin_status dunlin__assignment_check(dunlin_client *client)
{
    const dunlin__assignment *assignment = &client->round->assignment;
    const uint32_t *unknown =
        dunlin__find_unknown(assignment->required_features, assignment->required_features_count);
    if (unknown != NULL) {
        return dunlin__fail(&client->error, DUNLIN_UNSUPPORTED, "client", 0,
                            "the assignment requires feature %u, which this client does not have",
                            (unsigned)*unknown);
    }
    DUNLIN_TRY(check_encoding(client, assignment));
    DUNLIN_TRY(check_scaffold(client, assignment));
    DUNLIN_TRY(check_secure(client, assignment));
    return dunlin__floor_take(client, assignment);
}

dunlin_status dunlin__assignment_read(dunlin_client *client)
{
    dunlin__round *round = client->round;
    dunlin__accept_response response;
    DUNLIN_TRY(dunlin__accept_response_decode(round->sealed, round->sealed_bytes, &response,
                                              &client->error));
    if (!response.has_assignment) {
        return dunlin__fail(&client->error, DUNLIN_PROTOCOL, "client", 0,
                            "offer %.32s was taken back by the server", client->journal.offer_id);
    }
    dunlin_status status = DUNLIN_SIGNATURE;
    for (int32_t i = 0; status == DUNLIN_SIGNATURE && i < client->n_signing_keys; i++) {
        /* A pinned key is trusted whatever name the server gives it. */
        dunlin__trusted_key key = {0};
        memcpy(key.key_id, response.assignment.key_id, sizeof key.key_id);
        memcpy(key.public_key, client->signing_keys[i], sizeof key.public_key);
        status = dunlin__assignment_open(&response.assignment, &key, 1, &round->assignment,
                                         &client->error);
    }
    DUNLIN_TRY(status);
    const dunlin__assignment *assignment = &round->assignment;
    if (strcmp(assignment->population, client->population) != 0 ||
        strcmp(assignment->device_id, client->journal.device_id) != 0) {
        return dunlin__fail(&client->error, DUNLIN_MISMATCH, "client", 0,
                            "the assignment is for another device or population (%.64s)",
                            assignment->population);
    }
    DUNLIN_TRY(dunlin__assignment_check(client));
    round->has_assignment = true;
    return DUNLIN_OK;
}
