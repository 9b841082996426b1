/*
 * calls_update.c - announcing an update, committing it, or saying that none will come.
 */
#include "calls_update.h"

#include "calls.h"
#include "context/app_metrics.h"
#include "context/client_context.h"

#include <string.h>

/* One POST on the assignment; the reply is small. */
static dunlin_status post(dunlin_client *client, dunlin__call call, const uint8_t *body,
                          size_t n_bytes, uint8_t **out_reply, size_t *out_reply_bytes,
                          dunlin__fault *out_fault)
{
    *out_reply = dunlin__alloc_array(&client->runtime->alloc, DUNLIN_WIRE_BODY_BYTES, 1);
    if (*out_reply == NULL) {
        return dunlin__fault_judge(
            dunlin__fail(&client->error, DUNLIN_MEMORY, "client", 0, "no memory for a reply"),
            out_fault);
    }
    dunlin__route route = dunlin__route_make(call, client->round->assignment.assignment_id);
    return dunlin__call_post(client, &route, body, n_bytes, *out_reply, out_reply_bytes, out_fault);
}

static void give(dunlin_client *client, uint8_t *reply)
{
    dunlin__free_array(&client->runtime->alloc, reply, DUNLIN_WIRE_BODY_BYTES, 1);
}

dunlin_status dunlin__call_put(dunlin_client *client, dunlin__event *out_event,
                               dunlin__fault *out_fault)
{
    dunlin__round *round = client->round;
    uint8_t *reply = NULL;
    size_t n_bytes = 0;
    dunlin_status status = post(client, DUNLIN_CALL_PUT, round->manifest, round->manifest_bytes,
                                &reply, &n_bytes, out_fault);
    if (status == DUNLIN_OK) {
        status = dunlin__fault_judge(
            dunlin__put_response_decode(reply, n_bytes, &round->put, &client->error), out_fault);
    }
    if (status == DUNLIN_OK &&
        memcmp(round->put.manifest_sha256, round->manifest_sha256, DUNLIN_SHA256_BYTES) != 0) {
        status = dunlin__fault_judge(
            dunlin__fail(&client->error, DUNLIN_MISMATCH, "client", 0,
                         "the server answers for a manifest of hash %02x%02x%02x%02x..., and "
                         "%02x%02x%02x%02x... was put",
                         round->put.manifest_sha256[0], round->put.manifest_sha256[1],
                         round->put.manifest_sha256[2], round->put.manifest_sha256[3],
                         round->manifest_sha256[0], round->manifest_sha256[1],
                         round->manifest_sha256[2], round->manifest_sha256[3]),
            out_fault);
    }
    if (status == DUNLIN_OK) {
        out_event->kind = DUNLIN_EVENT_PUT;
        for (uint32_t i = 0; i < round->put.n_chunks; i++) {
            bool is_missing = i / 8 < round->put.missing.size &&
                              (round->put.missing.bytes[i / 8] >> (i % 8) & 1) != 0;
            out_event->n_missing += is_missing ? 1U : 0U;
        }
    }
    give(client, reply);
    return status;
}

/* The learner's numbers have been judged when they came. */
static void add_metric(dunlin__commit_request *request, const char *name, double value)
{
    dunlin__metric *metric = &request->metrics[request->metrics_count++];
    (void)strncpy(metric->name, name, sizeof metric->name - 1);
    metric->value = value;
}

/* Nothing of a single device goes up beside its masked update. */
static bool is_secure_round(const dunlin__round *round)
{
    return round->assignment.aggregation == DUNLIN_V1_AGGREGATION_SECURE;
}

void dunlin__commit_fill(const dunlin_client *client, dunlin__commit_request *out)
{
    const dunlin__journal *journal = &client->journal;
    const dunlin__round *round = client->round;
    bool is_training = round->assignment.kind == DUNLIN_V1_KIND_TRAIN;
    uint64_t cap = round->assignment.plan.weight_cap;
    uint64_t n_examples = journal->n_examples > 0 ? (uint64_t)journal->n_examples : 0;
    out->kind = round->assignment.kind;
    out->n_examples = cap > 0 && n_examples > cap ? cap : n_examples;
    out->n_steps = (uint64_t)journal->n_steps;
    /* A clock may have jumped; the message has room for a year. */
    out->train_ms = journal->learn_ms < (int64_t)DUNLIN_WIRE_MAX_WAIT_MS
                        ? (uint64_t)journal->learn_ms
                        : DUNLIN_WIRE_MAX_WAIT_MS;
    if (is_training) {
        out->encoding = round->assignment.plan.update_encoding;
        out->within_clip = (dunlin_v1_within_clip_t)journal->within_clip;
        memcpy(out->manifest_sha256, round->manifest_sha256, sizeof out->manifest_sha256);
    }
    const bool is_secure = is_secure_round(round);
    out->n_examples = is_secure ? 1 : out->n_examples; /* the weight is under the mask */
    if (round->assignment.has_privacy || is_secure) {
        out->n_steps = 0; /* numbers without noise stay here */
        out->train_ms = 0;
        out->within_clip = DUNLIN_V1_WITHIN_CLIP_UNSPECIFIED;
        return;
    }
    add_metric(out, "loss", journal->loss);
    add_metric(out, "accuracy", journal->accuracy);
    if ((journal->evaluated & DUNLIN_EVALUATED_BEFORE) != 0) {
        add_metric(out, "loss_before", journal->loss_before);
        add_metric(out, "accuracy_before", journal->accuracy_before);
    }
    if ((journal->evaluated & DUNLIN_EVALUATED_AFTER) != 0) {
        add_metric(out, "loss_after", journal->loss_after);
        add_metric(out, "accuracy_after", journal->accuracy_after);
    }
    add_metric(out, "peak_bytes", (double)journal->peak_bytes);
    add_metric(out, "bytes_down", (double)journal->received_bytes);
    add_metric(out, "bytes_up", (double)journal->sent_bytes);
}

static dunlin_outcome outcome_of(dunlin_v1_commit_outcome_t outcome)
{
    switch ((int)outcome) {
    case DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED:
        return DUNLIN_OUTCOME_ACCEPTED;
    case DUNLIN_V1_COMMIT_OUTCOME_LATE:
    case DUNLIN_V1_COMMIT_OUTCOME_GOAL_REACHED:
        return DUNLIN_OUTCOME_LATE;
    default:
        return DUNLIN_OUTCOME_REFUSED;
    }
}

dunlin_status dunlin__call_commit(dunlin_client *client, dunlin__event *out_event,
                                  dunlin__fault *out_fault)
{
    dunlin__commit_request request = {0};
    dunlin__commit_response response;
    uint8_t body[DUNLIN_V1_COMMIT_REQUEST_SIZE];
    uint8_t *reply = NULL;
    size_t n_bytes = 0;
    size_t n_reply_bytes = 0;
    if (!client->round->assignment.has_privacy && !is_secure_round(client->round)) {
        dunlin__metrics_fill(client, &request); /* first: a file of them is a whole message */
    }
    dunlin__commit_fill(client, &request);
    DUNLIN_TRY(dunlin__fault_judge(
        dunlin__commit_request_encode(&request, body, sizeof body, &n_bytes, &client->error),
        out_fault));
    dunlin_status status =
        post(client, DUNLIN_CALL_COMMIT, body, n_bytes, &reply, &n_reply_bytes, out_fault);
    if (status == DUNLIN_OK) {
        status = dunlin__fault_judge(
            dunlin__commit_response_decode(reply, n_reply_bytes, &response, &client->error),
            out_fault);
    }
    if (status == DUNLIN_OK) {
        out_event->kind = DUNLIN_EVENT_COMMITTED;
        out_event->outcome = outcome_of(response.outcome);
        out_event->has_window = response.has_window;
        out_event->accepted = (dunlin__wait_window){response.window.min_ms, response.window.max_ms};
    }
    give(client, reply);
    return status;
}

dunlin_status dunlin__call_abort(dunlin_client *client, int32_t reason, dunlin__fault *out_fault)
{
    dunlin__abort_request request = {.reason = (dunlin_v1_abort_reason_t)reason,
                                     .status = (int32_t)client->session.pending.status};
    uint8_t body[DUNLIN_V1_ABORT_REQUEST_SIZE];
    uint8_t *reply = NULL;
    size_t n_bytes = 0;
    size_t n_reply_bytes = 0;
    DUNLIN_TRY(dunlin__fault_judge(
        dunlin__abort_request_encode(&request, body, sizeof body, &n_bytes, &client->error),
        out_fault));
    dunlin_status status =
        post(client, DUNLIN_CALL_ABORT, body, n_bytes, &reply, &n_reply_bytes, out_fault);
    give(client, reply);
    return status;
}
