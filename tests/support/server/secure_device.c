/*
 * secure_device.c - devices of a round with secure aggregation.
 */
#include "secure_device.h"

#include "must.h"

#include <wire/digest.h>
#include <wire/signature.h>

#include <stdio.h>
#include <string.h>

void secure_join(secure_device *one, test_server *fixture, int index)
{
    dunlin__checkin_response answer;
    memset(one, 0, sizeof *one);
    test_device_make(&one->device, fixture);
    one->device.can_all = true;
    MUST_HOLD(test_enrol(&one->device, index) == 200, "%s", one->device.status.text);
    MUST_HOLD(test_checkin(&one->device, &answer) == 200, "%s", one->device.status.text);
    for (int i = 0; i < SECURE_VALUES; i++) {
        one->vector[i] = (uint32_t)((index * 37 + i * 101) % 257 - 128);
    }
    one->vector[SECURE_VALUES] = (uint32_t)(index % 3 + 1);
}

static dunlin_status sign(void *ctx, const uint8_t *message, size_t n_bytes,
                          uint8_t out_signature[DUNLIN_SIGNATURE_BYTES], dunlin_error *error)
{
    const secure_device *one = ctx;
    return dunlin__sign(one->device.private_key, message, n_bytes, out_signature, error);
}

void secure_open(secure_device *one)
{
    dunlin_error error = {0};
    dunlin__secagg_client_options options = {
        .plan = &one->device.assignment.plan.secagg, .ctx = one, .sign_fn = sign};
    secure_close(one);
    memcpy(options.device_key, one->device.public_key, sizeof options.device_key);
    MUST(dunlin__secagg_client_open(&options, &one->client, &error));
}

void secure_take_work(secure_device *one)
{
    MUST_HOLD(test_take_work(&one->device), "no work");
    MUST_HOLD(one->device.assignment.plan.has_secagg, "no terms");
    secure_open(one);
}

void secure_close(secure_device *one)
{
    dunlin__secagg_client_close(one->client);
    one->client = NULL;
}

uint32_t secure_send_again(secure_device *one)
{
    dunlin__route route =
        dunlin__route_make(DUNLIN_CALL_SECAGG, one->device.assignment.assignment_id);
    route.secagg_step = one->step;
    dunlin__server_reply_end(&one->device.reply, &one->device.fixture->server.alloc);
    return test_send(&one->device, &route, one->request, one->n_request, NULL);
}

uint32_t secure_step(secure_device *one)
{
    dunlin_error error = {0};
    one->step = dunlin__secagg_client_step(one->client);
    MUST(dunlin__secagg_client_write(one->client, one->request, sizeof one->request,
                                     &one->n_request, &error));
    const uint32_t code = secure_send_again(one);
    one->retry_ms = 0;
    if (code == 200 && one->step != (uint32_t)DUNLIN_V1_SECAGG_STEP_UNMASK) {
        MUST(dunlin__secagg_client_read(one->client, dunlin__server_reply_body(&one->device.reply),
                                        one->device.reply.n_body, &one->retry_ms, &error));
    }
    dunlin__server_reply_end(&one->device.reply, &one->device.fixture->server.alloc);
    return code;
}

/* ---- the vector ---- */

static void make_manifest(secure_device *one)
{
    dunlin_error error = {0};
    const dunlin__secagg_plan *plan = &one->device.assignment.plan.secagg;
    const dunlin_shape shape = {.n_dims = 1, .dims = {SECURE_VALUES + 1}};
    static uint8_t buffer[DUNLIN_WIRE_MANIFEST_BYTES];
    dunlin__manifest_writer writer;
    dunlin__tensor_entry entry;
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    dunlin__stream stream = {.encoding = DUNLIN_V1_ENCODING_MASKED_RING,
                             .ring_bits = plan->ring_bits,
                             .total_bytes = one->n_packed,
                             .chunk_bytes = one->device.assignment.plan.chunk_bytes,
                             .n_tensors = 1,
                             .n_chunks = 1};
    (void)snprintf(stream.name, sizeof stream.name, "%s", DUNLIN_STREAM_UPDATE);
    MUST(dunlin__manifest_writer_begin(&writer, DUNLIN_MANIFEST_UPDATE, buffer, sizeof buffer,
                                       &error));
    MUST(dunlin__manifest_writer_stream(&writer, &stream, &error));
    MUST(dunlin__tensor_entry_make(DUNLIN_SECAGG_TENSOR, &shape, DUNLIN_V1_RULE_AVERAGE, &entry,
                                   &error));
    entry.stored_bytes = one->n_packed;
    MUST(dunlin__manifest_writer_tensor(&writer, &entry, &error));
    MUST(dunlin__sha256_of(one->packed, one->n_packed, sha256, &error));
    MUST(dunlin__manifest_writer_chunk(&writer, sha256, &error));
    MUST(dunlin__manifest_writer_end(&writer, &one->n_manifest, &error));
    MUST_HOLD(one->n_manifest <= sizeof one->manifest, "%zu bytes", one->n_manifest);
    memcpy(one->manifest, buffer, one->n_manifest);
    MUST(dunlin__sha256_of(buffer, one->n_manifest, one->device.manifest_sha256, &error));
}

void secure_mask(secure_device *one)
{
    dunlin_error error = {0};
    uint32_t masked[SECURE_VALUES + 1];
    memcpy(masked, one->vector, sizeof masked);
    MUST(dunlin__secagg_client_mask(one->client, masked, SECURE_VALUES + 1, one->packed, &error));
    one->n_packed =
        (size_t)dunlin__ring_bytes(SECURE_VALUES + 1, one->device.assignment.plan.secagg.ring_bits);
    make_manifest(one);
    MUST(dunlin__secagg_client_mask_end(one->client, one->device.manifest_sha256, &error));
}

uint32_t secure_put(secure_device *one)
{
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_PUT, one->device.assignment.assignment_id);
    return test_send(&one->device, &route, one->manifest, one->n_manifest, NULL);
}

void secure_send_vector(secure_device *one)
{
    dunlin_error error = {0};
    dunlin__server_upload upload;
    dunlin__server *server = &one->device.fixture->server;
    dunlin__route route =
        dunlin__route_make(DUNLIN_CALL_CHUNK_PUT, one->device.assignment.assignment_id);
    MUST(dunlin__sha256_of(one->packed, one->n_packed, route.sha256, &error));
    dunlin__server_request request = {
        .route = route, .method = "PUT", .path = "", .token = one->device.assignment.token};
    MUST_HOLD(
        dunlin__server_upload_begin(server, &request, &upload, &one->device.reply) &&
            dunlin__server_upload_write(&upload, one->packed, one->n_packed, &one->device.reply),
        "%u", (unsigned)one->device.reply.http_code);
    dunlin__server_upload_end(&upload, &one->device.reply);
    MUST_HOLD(one->device.reply.http_code == 200, "%u", (unsigned)one->device.reply.http_code);
}

dunlin_v1_commit_outcome_t secure_contribute(secure_device *one)
{
    dunlin__commit_response answer = {0};
    MUST_HOLD(secure_put(one) == 200, "%s", one->device.status.text);
    secure_send_vector(one);
    MUST_HOLD(test_commit(&one->device, 77, NULL, &answer) == 200, "%s", one->device.status.text);
    return answer.outcome;
}

/* ---- all of them ---- */

static void step_all(secure_device *devices, int n)
{
    for (int i = 0; i < n; i++) { /* the last message ends the step */
        if (devices[i].client != NULL) {
            MUST_HOLD(secure_step(&devices[i]) == 200, "%s", devices[i].device.status.text);
        }
    }
    dunlin__server_tick(&devices[0].device.fixture->server);
    for (int i = 0; i < n; i++) {
        if (devices[i].client != NULL && devices[i].retry_ms > 0) {
            MUST_HOLD(secure_step(&devices[i]) == 200, "%s", devices[i].device.status.text);
        }
    }
}

void secure_agree_all(secure_device *devices, int n)
{
    step_all(devices, n);
    step_all(devices, n);
}

void secure_contribute_all(secure_device *devices, int n)
{
    for (int i = 0; i < n; i++) {
        if (devices[i].client != NULL) {
            secure_mask(&devices[i]);
            const dunlin_v1_commit_outcome_t outcome = secure_contribute(&devices[i]);
            MUST_HOLD(outcome == DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED, "outcome %d", (int)outcome);
        }
    }
    dunlin__server_tick(&devices[0].device.fixture->server);
}

void secure_tell_all(secure_device *devices, int n)
{
    for (uint32_t step = DUNLIN_V1_SECAGG_STEP_MASK; step <= (uint32_t)DUNLIN_WIRE_SECAGG_STEPS;
         step++) {
        const bool has_consistency =
            devices[0].device.fixture->server.task.secagg.check_consistency;
        if (has_consistency || step != (uint32_t)DUNLIN_V1_SECAGG_STEP_CONSISTENCY) {
            step_all(devices, n);
        }
    }
}
