/*
 * fake_calls.c - the fake server's answers to the calls of the protocol.
 */
#include "fake_exchange.h"

#include <wire/compress.h>
#include <wire/digest.h>
#include <wire/int8.h>
#include <wire/signature.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void fake_take_challenge(fake_server *server, char out[DUNLIN_WIRE_ID_BYTES])
{
    char key[DUNLIN_WIRE_IDEMPOTENCY_BYTES];
    fake_require(server, dunlin__idempotency_key(key, NULL), "challenge");
    (void)snprintf(server->challenge, sizeof server->challenge, "%s", key);
    (void)snprintf(out, DUNLIN_WIRE_ID_BYTES, "%s", key);
    server->counter = 0;
}

void fake_on_enrol(fake_server *server, fake_exchange *x)
{
    dunlin__enrol_request request;
    dunlin__enrol_response response = {.device_id = DEVICE, .has_window = true};
    fake_require(server, dunlin__enrol_request_decode(x->body, x->body_bytes, &request, NULL),
                 "enrol request");
    memcpy(server->device_key, request.public_key, sizeof server->device_key);
    server->forgets_device = false;
    server->n_enrolled++;
    fake_take_challenge(server, response.challenge);
    fake_require(
        server,
        dunlin__enrol_response_encode(&response, x->reply, sizeof x->reply, &x->reply_bytes, NULL),
        "enrol response");
}

static void state_end(fake_server *server, const dunlin__checkin_request *request,
                      dunlin__checkin_response *response)
{
    dunlin__run_over statement = {.population = "phones",
                                  .task = "sum",
                                  .device_id = DEVICE,
                                  .run_epoch = server->run_epoch,
                                  .round = server->round,
                                  .model_manifest_bytes = (uint32_t)server->manifest_bytes,
                                  .has_window = true,
                                  .window = {.min_ms = 500000, .max_ms = 600000},
                                  .key_id = "test-key"};
    bool is_known = false;
    for (size_t i = 0; i < request->capabilities.features_count; i++) {
        is_known = is_known || request->capabilities.features[i] == DUNLIN_V1_FEATURE_RUN_OVER;
    }
    if (!is_known) {
        fake_complain(server, "the client does not know %s", "that a run may be over");
    }
    memcpy(statement.model_manifest_sha256, server->manifest_sha256, DUNLIN_SHA256_BYTES);
    if (server->edit_over_fn != NULL) {
        server->edit_over_fn(&statement);
    }
    response->has_run_over = true;
    fake_require(server,
                 dunlin__run_over_seal(&statement, server->signing_key, &response->run_over, NULL),
                 "seal of the end");
    if (server->edit_sealed_over_fn != NULL) {
        server->edit_sealed_over_fn(&response->run_over);
    }
}

static dunlin_v1_aggregation_t aggregation_of(const fake_server *server)
{
    return server->is_secure ? DUNLIN_V1_AGGREGATION_SECURE : DUNLIN_V1_AGGREGATION_PLAIN;
}

void fake_on_checkin(fake_server *server, fake_exchange *x)
{
    dunlin__checkin_request request;
    dunlin__checkin_response response = {.has_accepted_window = true,
                                         .accepted_window = server->accepted,
                                         .has_rejected_window = true,
                                         .rejected_window = server->rejected};
    fake_require(server, dunlin__checkin_request_decode(x->body, x->body_bytes, &request, NULL),
                 "checkin request");
    server->capabilities = request.capabilities;
    if (server->has_offer) {
        (void)strcpy(response.session, SESSION);
        fake_take_challenge(server, response.challenge);
        dunlin__offer *offer = &response.offers[response.offers_count++];
        *offer = (dunlin__offer){
            .offer_id = OFFER,
            .task = "sum",
            .kind = server->is_evaluation ? DUNLIN_V1_KIND_EVALUATE : DUNLIN_V1_KIND_TRAIN,
            .run_epoch = server->run_epoch,
            .round = server->round,
            .has_policy = true,
            .policy = server->policy,
            .deadline_ms = server->deadline_ms,
            .download_bytes = sizeof server->values,
            .upload_bytes = server->upload_bytes > 0 ? server->upload_bytes : sizeof server->values,
            .aggregation = aggregation_of(server),
            .has_privacy = server->has_privacy,
            .privacy = server->privacy,
            .has_secagg = server->is_secure,
            .secagg = {.n_cohort = server->plan.secagg.n_cohort,
                       .n_neighbours = server->plan.secagg.n_neighbours,
                       .threshold = server->plan.secagg.threshold,
                       .least_devices = server->plan.secagg.least_devices,
                       .check_consistency = server->plan.secagg.check_consistency}};
        if (server->required_feature != 0) {
            offer->required_features[offer->required_features_count++] = server->required_feature;
        }
        server->is_assigned = false;
    } else {
        response.rejection = DUNLIN_V1_REJECTION_NO_WORK;
        if (server->is_over) {
            state_end(server, &request, &response);
        }
    }
    fake_require(server,
                 dunlin__checkin_response_encode(&response, x->reply, sizeof x->reply,
                                                 &x->reply_bytes, NULL),
                 "checkin response");
}

static void fill_assignment(const fake_server *server, dunlin__assignment *out)
{
    *out = (dunlin__assignment){.population = "phones",
                                .task = "sum",
                                .assignment_id = "assignment-1",
                                .device_id = DEVICE,
                                .run_epoch = server->run_epoch,
                                .round = server->round,
                                .kind = server->is_evaluation ? DUNLIN_V1_KIND_EVALUATE
                                                              : DUNLIN_V1_KIND_TRAIN,
                                .deadline_ms = server->deadline_ms,
                                .token = TOKEN,
                                .has_plan = true,
                                .plan = server->plan,
                                .base_manifest_bytes = (uint32_t)server->manifest_bytes,
                                .aggregation = aggregation_of(server),
                                .has_privacy = server->has_privacy,
                                .privacy = server->privacy,
                                .key_id = "test-key"};
    memcpy(out->base_manifest_sha256, server->manifest_sha256, DUNLIN_SHA256_BYTES);
    if (server->wrong_base_byte >= 0) {
        out->base_manifest_sha256[server->wrong_base_byte] ^= 1;
    }
    uint32_t features[] = {server->required_feature, server->assignment_feature};
    for (size_t i = 0; i < 2; i++) {
        if (features[i] != 0) {
            out->required_features[out->required_features_count++] = features[i];
        }
    }
}

void fake_on_accept(fake_server *server, fake_exchange *x)
{
    dunlin__accept_request request;
    dunlin__accept_response response = {.has_window = true, .window = server->rejected};
    fake_require(server, dunlin__accept_request_decode(x->body, x->body_bytes, &request, NULL),
                 "accept request");
    server->decline_reason = request.decline_reason;
    if (request.decline_reason == DUNLIN_V1_DECLINE_REASON_NONE) {
        if (strcmp(request.offer_id, OFFER) != 0) {
            fake_complain(server, "accept of offer %s", request.offer_id);
        }
        dunlin__assignment assignment;
        fill_assignment(server, &assignment);
        if (server->edit_assignment_fn != NULL) {
            server->edit_assignment_fn(&assignment);
        }
        response.has_assignment = true;
        fake_require(
            server,
            dunlin__assignment_seal(&assignment, server->signing_key, &response.assignment, NULL),
            "seal");
        if (server->edit_sealed_fn != NULL) {
            server->edit_sealed_fn(&response.assignment);
        }
        server->is_assigned = true;
        server->is_committed = false;
        server->put_bytes = 0;
        memset(server->chunk_length, 0, sizeof server->chunk_length);
        memset(server->update, 0, sizeof server->update);
    }
    fake_require(
        server,
        dunlin__accept_response_encode(&response, x->reply, sizeof x->reply, &x->reply_bytes, NULL),
        "accept response");
}

/* Whether an object of this hash is given out by that name. */
static bool is_named(const fake_server *server, const uint8_t sha256[DUNLIN_SHA256_BYTES],
                     const uint8_t name[DUNLIN_SHA256_BYTES])
{
    int n_wrong = 0;
    for (size_t i = 0; i < DUNLIN_SHA256_BYTES; i++) {
        n_wrong += sha256[i] != name[i] ? 1 : 0;
    }
    bool is_lax = server->wrong_chunk_byte >= 0 || server->wrong_base_byte >= 0;
    return n_wrong <= (is_lax ? 1 : 0);
}

void fake_on_object(fake_server *server, fake_exchange *x)
{
    uint64_t total = sizeof server->values;
    if (is_named(server, server->manifest_sha256, x->route.sha256)) {
        x->object = server->manifest;
        x->object_bytes = server->manifest_bytes;
    }
    for (uint64_t at = 0; at < total; at += CHUNK_BYTES) {
        uint64_t n = total - at < CHUNK_BYTES ? total - at : CHUNK_BYTES;
        uint8_t sha256[DUNLIN_SHA256_BYTES];
        const uint8_t *bytes = (const uint8_t *)server->values + at;
        fake_require(server, dunlin__sha256_of(bytes, (size_t)n, sha256, NULL), "hash");
        if (is_named(server, sha256, x->route.sha256)) {
            x->object = bytes;
            x->object_bytes = n;
        }
    }
    for (size_t i = 0; i < sizeof server->objects / sizeof server->objects[0]; i++) {
        uint8_t sha256[DUNLIN_SHA256_BYTES];
        const size_t n = server->objects[i].n_bytes;
        if (server->objects[i].bytes != NULL &&
            dunlin__sha256_of(server->objects[i].bytes, n, sha256, NULL) == DUNLIN_OK &&
            is_named(server, sha256, x->route.sha256)) {
            x->object = server->objects[i].bytes;
            x->object_bytes = n;
        }
    }
    if (x->object == NULL) {
        fake_refuse(server, x, DUNLIN_V1_STATUS_CODE_NOT_FOUND);
        return;
    }
    unsigned long long first = 0;
    x->range_total = x->object_bytes;
    if (!server->ignores_ranges && sscanf(fake_header(x, "Range"), "bytes=%llu-", &first) == 1 &&
        first < x->object_bytes) {
        x->status = 206;
        x->range_first = first;
        x->object += first;
        x->object_bytes -= first;
    }
    server->object_bytes += x->object_bytes;
}

/* Finds the chunk of the put manifest; false: there is none. */
static bool find_chunk(fake_server *server, const uint8_t sha256[DUNLIN_SHA256_BYTES],
                       dunlin__manifest_record *out)
{
    dunlin__manifest_source source =
        dunlin__manifest_source_memory(server->put_manifest, server->put_bytes);
    dunlin__manifest_reader reader;
    dunlin_status status =
        dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_UPDATE, NULL);
    while (status == DUNLIN_OK) {
        status = dunlin__manifest_reader_next(&reader, out, NULL);
        if (status != DUNLIN_OK || out->item == DUNLIN_MANIFEST_END) {
            break;
        }
        if (out->item == DUNLIN_MANIFEST_CHUNK &&
            memcmp(out->sha256, sha256, DUNLIN_SHA256_BYTES) == 0) {
            return true;
        }
    }
    return false;
}

/* Its bytes are not its values. */
static bool is_encoded(const fake_server *server)
{
    return server->plan.update_encoding != DUNLIN_V1_ENCODING_F32;
}

void fake_on_put(fake_server *server, fake_exchange *x)
{
    dunlin__manifest_source source = dunlin__manifest_source_memory(x->body, x->body_bytes);
    dunlin__manifest_summary summary;
    dunlin_error error = {0};
    if (x->body_bytes > sizeof server->put_manifest ||
        dunlin__manifest_check_all(&source, DUNLIN_MANIFEST_UPDATE, &summary, &error) !=
            DUNLIN_OK ||
        (is_encoded(server) ? summary.total_bytes > sizeof server->packed
                            : summary.total_bytes != sizeof server->update) ||
        summary.n_tensors != FAKE_TENSORS) {
        fake_complain(server, "put: a wrong manifest %s", error.text);
        return;
    }
    if (server->put_bytes > 0 && (server->put_bytes != x->body_bytes ||
                                  memcmp(server->put_manifest, x->body, x->body_bytes) != 0)) {
        fake_complain(server, "put: the update has changed");
    }
    memcpy(server->put_manifest, x->body, x->body_bytes);
    server->update_bytes = summary.total_bytes;
    server->put_bytes = x->body_bytes;
    memcpy(server->put_sha256, summary.sha256, sizeof server->put_sha256);
    dunlin__put_response response = {.n_chunks = summary.n_chunks};
    memcpy(response.manifest_sha256, summary.sha256, sizeof summary.sha256);
    if (server->wrong_put_byte >= 0) {
        response.manifest_sha256[server->wrong_put_byte] ^= 1;
    }
    response.missing.size = (pb_size_t)((summary.n_chunks + 7) / 8);
    for (uint32_t i = 0; i < summary.n_chunks; i++) {
        uint64_t total = server->update_bytes;
        uint64_t length =
            total - i * CHUNK_BYTES < CHUNK_BYTES ? total - i * CHUNK_BYTES : CHUNK_BYTES;
        if (server->chunk_length[i] < length) {
            response.missing.bytes[i / 8] |= (uint8_t)(1U << (i % 8));
        }
    }
    fake_require(
        server,
        dunlin__put_response_encode(&response, x->reply, sizeof x->reply, &x->reply_bytes, NULL),
        "put response");
}

void fake_on_chunk(fake_server *server, fake_exchange *x)
{
    dunlin__manifest_record chunk;
    if (strcmp(fake_header(x, DUNLIN_HEADER_TOKEN), TOKEN) != 0) {
        fake_complain(server, "a chunk without the token");
    }
    if (!find_chunk(server, x->route.sha256, &chunk)) {
        fake_complain(server, "a chunk that no manifest names");
        x->status = 404;
        return;
    }
    uint64_t *length = &server->chunk_length[chunk.chunk_index];
    x->upload_offset = (int64_t)*length;
    if (x->route.call == DUNLIN_CALL_CHUNK_HEAD) {
        return;
    }
    dunlin__chunk_range range;
    fake_require(
        server,
        dunlin__chunk_range_parse(fake_header(x, DUNLIN_HEADER_CONTENT_RANGE), &range, NULL),
        "content range");
    if (range.n_bytes != x->body_bytes || range.total_bytes != chunk.n_bytes) {
        fake_complain(server, "a chunk's range does not fit its body");
    }
    if (range.offset != *length) {
        fake_refuse(server, x, DUNLIN_V1_STATUS_CODE_WRONG_OFFSET);
        return;
    }
    uint8_t *bytes = is_encoded(server) ? server->packed : (uint8_t *)server->update;
    memcpy(bytes + chunk.offset + range.offset, x->body, x->body_bytes);
    *length += range.n_bytes;
    x->upload_offset = (int64_t)*length;
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    fake_require(server,
                 dunlin__sha256_of(bytes + chunk.offset, (size_t)chunk.n_bytes, sha256, NULL),
                 "hash");
    if (*length == chunk.n_bytes && memcmp(sha256, chunk.sha256, sizeof sha256) != 0) {
        fake_complain(server, "a chunk that does not match its hash");
    }
}

typedef struct packed_bytes {
    const uint8_t *bytes;
    uint64_t left;
} packed_bytes;

static dunlin_status read_packed(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error)
{
    packed_bytes *from = ctx;
    if (n_bytes > from->left) {
        return dunlin__fail(error, DUNLIN_DATA, "fake", 0, "%zu bytes too many are read", n_bytes);
    }
    memcpy(buffer, from->bytes, n_bytes);
    from->bytes += n_bytes;
    from->left -= n_bytes;
    return DUNLIN_OK;
}

/* The values that a packed update stands for take the place of its bytes. */
static void unpack_update(fake_server *server)
{
    packed_bytes from = {.bytes = server->packed, .left = server->update_bytes};
    const dunlin__unpack_source source = {.ctx = &from, .read_fn = read_packed};
    dunlin__manifest_source manifest =
        dunlin__manifest_source_memory(server->put_manifest, server->put_bytes);
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    dunlin__tensor_unpacker *unpacker = NULL;
    dunlin_error error = {0};
    size_t at = 0;
    fake_require(server,
                 dunlin__manifest_reader_begin(&reader, &manifest, DUNLIN_MANIFEST_UPDATE, NULL),
                 "manifest");
    fake_require(server, dunlin__manifest_reader_next(&reader, &record, NULL), "stream");
    fake_require(server,
                 dunlin__packing_compare(&server->plan.packing, &record.stream.packing, true, NULL),
                 "packing");
    fake_require(
        server,
        dunlin__tensor_unpacker_open(&server->plan.packing, &source, NULL, &unpacker, &error),
        "unpacker");
    for (int t = 0; t < FAKE_TENSORS; t++) {
        const float *values = NULL;
        size_t n = 0;
        fake_require(server, dunlin__manifest_reader_next(&reader, &record, NULL), "tensor");
        fake_require(server,
                     dunlin__tensor_unpacker_tensor(unpacker, (uint32_t)t, record.tensor.rule,
                                                    (uint64_t)fake_tensors[t].n,
                                                    record.tensor.stored_bytes, &error),
                     "packed tensor");
        do {
            fake_require(server, dunlin__tensor_unpacker_next(unpacker, &values, &n, &error),
                         "packed values");
            memcpy(server->update + at, values, n * sizeof(float));
            at += n;
        } while (n > 0);
    }
    server->packed_square = dunlin__tensor_unpacker_square(unpacker);
    dunlin__tensor_unpacker_close(unpacker);
}

static void decode_int8(fake_server *server)
{
    const uint8_t *from = server->packed;
    float *to = server->update;
    dunlin_error error = {0};
    for (int t = 0; t < FAKE_TENSORS; t++) {
        float scale = 0.0F;
        const size_t n = (size_t)fake_tensors[t].n;
        fake_require(server, dunlin__int8_scale_read(fake_tensors[t].name, from, &scale, &error),
                     "scale");
        from += DUNLIN_INT8_SCALE_BYTES;
        fake_require(
            server,
            dunlin__int8_decode(fake_tensors[t].name, scale, (const int8_t *)from, n, to, &error),
            "int8 values");
        from += n;
        to += n;
    }
}

void fake_on_commit(fake_server *server, fake_exchange *x)
{
    dunlin__commit_response response = {
        .outcome = server->outcome, .has_window = true, .window = server->accepted};
    fake_require(server,
                 dunlin__commit_request_decode(x->body, x->body_bytes, &server->commit, NULL),
                 "commit request");
    uint64_t have = 0;
    for (size_t i = 0; i < 8; i++) {
        have += server->chunk_length[i];
    }
    if (server->commit.kind == DUNLIN_V1_KIND_TRAIN &&
        (have != server->update_bytes ||
         memcmp(server->commit.manifest_sha256, server->put_sha256, DUNLIN_SHA256_BYTES) != 0)) {
        fake_complain(server, "a commit of what is not there");
    }
    if (server->is_committed) {
        fake_complain(server, "a second commit");
    }
    if (server->plan.has_packing && !server->is_committed &&
        server->commit.kind == DUNLIN_V1_KIND_TRAIN) {
        unpack_update(server);
    }
    if (server->plan.update_encoding == DUNLIN_V1_ENCODING_INT8_SCALE && !server->is_committed &&
        server->commit.kind == DUNLIN_V1_KIND_TRAIN) {
        decode_int8(server);
    }
    server->is_committed = true;
    server->n_contributions += server->outcome == DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED ? 1 : 0;
    fake_require(
        server,
        dunlin__commit_response_encode(&response, x->reply, sizeof x->reply, &x->reply_bytes, NULL),
        "commit response");
}

void fake_on_abort(fake_server *server, fake_exchange *x)
{
    dunlin__abort_response response = {.has_window = true, .window = server->rejected};
    fake_require(server,
                 dunlin__abort_request_decode(x->body, x->body_bytes, &server->last_abort, NULL),
                 "abort request");
    server->n_aborts++;
    fake_require(
        server,
        dunlin__abort_response_encode(&response, x->reply, sizeof x->reply, &x->reply_bytes, NULL),
        "abort response");
}
