/*
 * messages_update.c - the rules of put, commit, abort, telemetry, and of a refused call's status.
 */
#include "codec/codec.h"

#include <string.h>

#define EXAMPLES_MAX (UINT64_C(1) << 40)
#define STEPS_MAX (UINT64_C(1) << 40)
/* Of a metric of a commit, or a value of telemetry: they go into means. */
#define METRIC_MAX DUNLIN_WIRE_METRIC_MAX
#define COUNT_MAX (UINT64_C(1) << 53)
#define STATUS_CODE_MAX 1023u /* a newer server may have codes we do not know */

static void check_put_response(dunlin__rules *rules, const void *data)
{
    const dunlin__put_response *m = data;
    dunlin__rule_given(rules, "manifest_sha256", m->manifest_sha256, sizeof(m->manifest_sha256));
    dunlin__rule_number(rules, "n_chunks", m->n_chunks, 0, DUNLIN_WIRE_CHUNKS);
    if (rules->status != DUNLIN_OK) {
        return;
    }
    size_t n_bytes = (m->n_chunks + 7u) / 8u;
    if (!dunlin__rule_count(rules, "missing", m->missing.size, n_bytes, n_bytes)) {
        return;
    }
    unsigned n_last = m->n_chunks % 8u;
    dunlin__rule_true(rules, "missing",
                      n_last == 0 || ((unsigned)m->missing.bytes[n_bytes - 1] >> n_last) == 0,
                      "has bits set beyond the last chunk");
}
DUNLIN_DEFINE_KIND(put_response, "PutResponse", DUNLIN_V1_PUT_RESPONSE, check_put_response);

/* Finite; shares are shares. */
static void check_metric(dunlin__rules *rules, const dunlin__metric *metric)
{
    static const char ACCURACY[] = "accuracy";
    dunlin__rule_finite(rules, "value", metric->value);
    if (rules->status == DUNLIN_OK && strncmp(metric->name, ACCURACY, sizeof ACCURACY - 1) == 0) {
        dunlin__rule_real(rules, "value", metric->value, 0.0, 1.0);
    } else if (rules->status == DUNLIN_OK) {
        dunlin__rule_real(rules, "value", metric->value, -METRIC_MAX, METRIC_MAX);
    }
}

/* The app's own numbers. */
static void check_app_metrics(dunlin__rules *rules, const dunlin__commit_request *m)
{
    if (!dunlin__rule_count(rules, "app_metrics", m->app_metrics_count, 0, DUNLIN_WIRE_METRICS)) {
        return;
    }
    for (unsigned i = 0; i < m->app_metrics_count; i++) {
        const dunlin__app_metric *metric = &m->app_metrics[i];
        dunlin__rules_enter_item(rules, "app_metrics", i);
        dunlin__rule_true(rules, "name", dunlin__metric_name_is_valid(metric->name),
                          "is not 1 to 64 letters, digits, _ . - /");
        dunlin__rule_finite(rules, "value", metric->value);
        if (rules->status == DUNLIN_OK) {
            dunlin__rule_real(rules, "value", metric->value, -METRIC_MAX, METRIC_MAX);
        }
    }
    dunlin__rules_leave(rules);
}

static void check_commit_request(dunlin__rules *rules, const void *data)
{
    const dunlin__commit_request *m = data;
    dunlin__rule_number(rules, "kind", (uint64_t)m->kind, DUNLIN_V1_KIND_TRAIN,
                        DUNLIN_V1_KIND_EVALUATE);
    bool has_manifest = !dunlin__bytes_are_zero(m->manifest_sha256, sizeof(m->manifest_sha256));
    if (m->kind == DUNLIN_V1_KIND_TRAIN) {
        dunlin__rule_true(rules, "manifest_sha256", has_manifest, "is missing");
        dunlin__rule_number(rules, "encoding", (uint64_t)m->encoding, DUNLIN_V1_ENCODING_F32,
                            m->encoding == DUNLIN_V1_ENCODING_PACKED
                                ? DUNLIN_V1_ENCODING_PACKED
                                : DUNLIN_V1_ENCODING_MASKED_RING);
    } else {
        dunlin__rule_true(rules, "manifest_sha256", !has_manifest,
                          "is given, but an evaluation has no update");
        dunlin__rule_number(rules, "encoding", (uint64_t)m->encoding, 0, 0);
    }
    dunlin__rule_number(rules, "n_examples", m->n_examples, 1, EXAMPLES_MAX);
    dunlin__rule_number(rules, "n_steps", m->n_steps, 0, STEPS_MAX);
    dunlin__rule_number(rules, "train_ms", m->train_ms, 0, DUNLIN_WIRE_MAX_WAIT_MS);
    if (dunlin__rule_count(rules, "metrics", m->metrics_count, 0,
                           sizeof(m->metrics) / sizeof(m->metrics[0]))) {
        for (unsigned i = 0; i < m->metrics_count; i++) {
            dunlin__rules_enter_item(rules, "metrics", i);
            dunlin__rule_id(rules, "name", m->metrics[i].name, sizeof(m->metrics[i].name), 1);
            check_metric(rules, &m->metrics[i]);
        }
        dunlin__rules_leave(rules);
    }
    check_app_metrics(rules, m);
    dunlin__rule_number(rules, "within_clip", (uint64_t)m->within_clip,
                        DUNLIN_V1_WITHIN_CLIP_UNSPECIFIED, DUNLIN_V1_WITHIN_CLIP_NO);
}
DUNLIN_DEFINE_KIND(commit_request, "CommitRequest", DUNLIN_V1_COMMIT_REQUEST, check_commit_request);

static void check_commit_response(dunlin__rules *rules, const void *data)
{
    const dunlin__commit_response *m = data;
    dunlin__rule_number(rules, "outcome", (uint64_t)m->outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED,
                        DUNLIN_V1_COMMIT_OUTCOME_REFUSED);
    dunlin__rule_text(rules, "text", m->text, sizeof(m->text));
    dunlin__rule_window(rules, "window", m->has_window, &m->window);
}
DUNLIN_DEFINE_KIND(commit_response, "CommitResponse", DUNLIN_V1_COMMIT_RESPONSE,
                   check_commit_response);

static void check_abort_request(dunlin__rules *rules, const void *data)
{
    const dunlin__abort_request *m = data;
    dunlin__rule_number(rules, "reason", (uint64_t)m->reason, DUNLIN_V1_ABORT_REASON_CONDITIONS,
                        DUNLIN_V1_ABORT_REASON_REFUSED);
    dunlin__rule_true(rules, "status", m->status <= 0 && m->status >= -999, "is not -999 to 0");
}
DUNLIN_DEFINE_KIND(abort_request, "AbortRequest", DUNLIN_V1_ABORT_REQUEST, check_abort_request);

static void check_abort_response(dunlin__rules *rules, const void *data)
{
    const dunlin__abort_response *m = data;
    dunlin__rule_window(rules, "window", m->has_window, &m->window);
}
DUNLIN_DEFINE_KIND(abort_response, "AbortResponse", DUNLIN_V1_ABORT_RESPONSE, check_abort_response);

static void check_telemetry_request(dunlin__rules *rules, const void *data)
{
    const dunlin__telemetry_request *m = data;
    dunlin__rule_id(rules, "batch_id", m->batch_id, sizeof(m->batch_id),
                    DUNLIN_WIRE_SECRET_CHARS_MIN);
    if (!dunlin__rule_count(rules, "records", m->records_count, 1,
                            sizeof(m->records) / sizeof(m->records[0]))) {
        return;
    }
    for (unsigned i = 0; i < m->records_count; i++) {
        dunlin__rules_enter_item(rules, "records", i);
        dunlin__rule_number(rules, "event", m->records[i].event, 1, UINT32_MAX);
        dunlin__rule_number(rules, "age_ms", m->records[i].age_ms, 0, DUNLIN_WIRE_MAX_WAIT_MS);
        int64_t count = m->records[i].count;
        dunlin__rule_true(rules, "count",
                          count >= -(int64_t)COUNT_MAX && count <= (int64_t)COUNT_MAX,
                          "is not -2^53 to 2^53");
        dunlin__rule_finite(rules, "value", m->records[i].value);
        if (rules->status == DUNLIN_OK) {
            dunlin__rule_real(rules, "value", m->records[i].value, -METRIC_MAX, METRIC_MAX);
        }
    }
    dunlin__rules_leave(rules);
}
DUNLIN_DEFINE_KIND(telemetry_request, "TelemetryRequest", DUNLIN_V1_TELEMETRY_REQUEST,
                   check_telemetry_request);

static void check_telemetry_response(dunlin__rules *rules, const void *data)
{
    const dunlin__telemetry_response *m = data;
    const dunlin__telemetry_request *request = NULL;
    dunlin__rule_number(rules, "n_stored", m->n_stored, 0,
                        sizeof(request->records) / sizeof(request->records[0]));
}
DUNLIN_DEFINE_KIND(telemetry_response, "TelemetryResponse", DUNLIN_V1_TELEMETRY_RESPONSE,
                   check_telemetry_response);

static void check_status(dunlin__rules *rules, const void *data)
{
    const dunlin__status *m = data;
    dunlin__rule_number(rules, "code", (uint64_t)m->code, 1, STATUS_CODE_MAX);
    dunlin__rule_text(rules, "text", m->text, sizeof(m->text));
    dunlin__rule_number(rules, "retry_after_ms", m->retry_after_ms, 0, DUNLIN_WIRE_MAX_WAIT_MS);
    dunlin__rule_number(rules, "upload_offset", m->upload_offset, 0, DUNLIN_WIRE_CHUNK_MAX_BYTES);
    bool has_challenge = m->challenge[0] != '\0';
    dunlin__rule_id(rules, "challenge", m->challenge, sizeof(m->challenge),
                    has_challenge ? DUNLIN_WIRE_SECRET_CHARS_MIN : 0);
    dunlin__rule_true(rules, "challenge",
                      has_challenge || m->code != DUNLIN_V1_STATUS_CODE_STALE_CHALLENGE,
                      "is missing");
}
DUNLIN_DEFINE_KIND(status, "Status", DUNLIN_V1_STATUS, check_status);
