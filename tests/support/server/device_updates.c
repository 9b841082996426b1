/*
 * device_updates.c - what a test's client sends in a round: its update in parts, the commit or the
 * abort; and the model that comes of it.
 */
#include "device.h"
#include "must.h"

#include <wire/digest.h>

#include <stdio.h>
#include <string.h>

/* The values of an update, then with SCAFFOLD those of its control delta. */
static uint64_t stream_values(const test_device *device, int stream)
{
    const dunlin__layout *layout = &device->fixture->server.layout;
    return stream == 0 ? layout->n_shared_values : layout->n_averaged_values;
}

static int n_streams(const test_device *device)
{
    return device->fixture->server.layout.has_control ? 2 : 1;
}

static uint32_t stream_chunks(const test_device *device, int stream)
{
    return (uint32_t)dunlin__chunk_count(stream_values(device, stream) * sizeof(float),
                                         device->assignment.plan.chunk_bytes);
}

static const uint8_t *chunk_at(const test_device *device, const float *values, uint32_t index,
                               size_t *out_n_bytes)
{
    const int stream = index < stream_chunks(device, 0) ? 0 : 1;
    const uint64_t begin = stream == 0 ? 0 : stream_values(device, 0) * sizeof(float);
    const uint64_t chunk_bytes = device->assignment.plan.chunk_bytes;
    const uint64_t offset = chunk_bytes * (stream == 0 ? index : index - stream_chunks(device, 0));
    const uint64_t left = stream_values(device, stream) * sizeof(float) - offset;
    *out_n_bytes = (size_t)(left < chunk_bytes ? left : chunk_bytes);
    return (const uint8_t *)values + begin + offset;
}

static void write_stream(const test_device *device, const float *values, int at,
                         dunlin__manifest_writer *writer)
{
    dunlin_error error = {0};
    const dunlin__layout *layout = &device->fixture->server.layout;
    const dunlin__layout_part part = at == 0 ? DUNLIN_LAYOUT_SHARED : DUNLIN_LAYOUT_AVERAGED;
    dunlin__stream stream = {.encoding = DUNLIN_V1_ENCODING_F32,
                             .total_bytes = stream_values(device, at) * sizeof(float),
                             .chunk_bytes = device->assignment.plan.chunk_bytes,
                             .n_tensors =
                                 at == 0 ? layout->n_shared_tensors : layout->n_averaged_tensors};
    (void)snprintf(stream.name, sizeof stream.name, "%s",
                   at == 0 ? DUNLIN_STREAM_UPDATE : DUNLIN_STREAM_CONTROL_DELTA);
    MUST(dunlin__manifest_writer_stream(writer, &stream, &error));
    for (uint32_t i = 0; i < layout->n_tensors; i++) {
        if (dunlin__layout_has(layout, i, part)) {
            MUST(dunlin__manifest_writer_tensor(writer, &layout->tensors[i], &error));
        }
    }
    const uint32_t first = at == 0 ? 0 : stream_chunks(device, 0);
    for (uint32_t i = 0; i < stream_chunks(device, at); i++) {
        uint8_t sha256[DUNLIN_SHA256_BYTES];
        size_t n_bytes = 0;
        const uint8_t *bytes = chunk_at(device, values, first + i, &n_bytes);
        MUST(dunlin__sha256_of(bytes, n_bytes, sha256, &error));
        MUST(dunlin__manifest_writer_chunk(writer, sha256, &error));
    }
}

static size_t make_manifest(test_device *device, const float *values, uint8_t *buffer)
{
    dunlin_error error = {0};
    dunlin__manifest_writer writer;
    MUST(dunlin__manifest_writer_begin(&writer, DUNLIN_MANIFEST_UPDATE, buffer,
                                       DUNLIN_WIRE_MANIFEST_BYTES, &error));
    for (int at = 0; at < n_streams(device); at++) {
        write_stream(device, values, at, &writer);
    }
    size_t n_manifest = 0;
    MUST(dunlin__manifest_writer_end(&writer, &n_manifest, &error));
    return n_manifest;
}

uint32_t test_put(test_device *device, const float *values, dunlin__put_response *out_answer)
{
    dunlin_error error = {0};
    static uint8_t buffer[DUNLIN_WIRE_MANIFEST_BYTES];
    size_t n_manifest = make_manifest(device, values, buffer);
    MUST(dunlin__sha256_of(buffer, n_manifest, device->manifest_sha256, &error));
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_PUT, device->assignment.assignment_id);
    uint32_t code = test_send(device, &route, buffer, n_manifest, NULL);
    if (code == 200) {
        MUST(dunlin__put_response_decode(device->reply.body, device->reply.n_body, out_answer,
                                         &error));
    }
    return code;
}

uint32_t test_send_part(test_device *device, const float *values, uint32_t chunk_index,
                        uint64_t offset, uint64_t n_bytes, const char *range)
{
    dunlin_error error = {0};
    size_t n_chunk = 0;
    const uint8_t *bytes = chunk_at(device, values, chunk_index, &n_chunk);
    dunlin__route route =
        dunlin__route_make(DUNLIN_CALL_CHUNK_PUT, device->assignment.assignment_id);
    MUST(dunlin__sha256_of(bytes, n_chunk, route.sha256, &error));
    dunlin__server_request request = {.route = route,
                                      .method = "PUT",
                                      .path = "",
                                      .token = device->assignment.token,
                                      .content_range = range};
    dunlin__server_upload upload;
    memset(&device->status, 0, sizeof device->status);
    if (dunlin__server_upload_begin(&device->fixture->server, &request, &upload, &device->reply) &&
        dunlin__server_upload_write(&upload, bytes + offset, (size_t)n_bytes, &device->reply)) {
        dunlin__server_upload_end(&upload, &device->reply);
    }
    if (device->reply.http_code >= 400) {
        MUST(dunlin__status_decode(device->reply.body, device->reply.n_body, &device->status,
                                   &error));
    }
    return device->reply.http_code;
}

uint32_t test_send_chunk(test_device *device, const float *values, uint32_t chunk_index)
{
    size_t n_chunk = 0;
    (void)chunk_at(device, values, chunk_index, &n_chunk);
    return test_send_part(device, values, chunk_index, 0, n_chunk, NULL);
}

void test_send_chunks(test_device *device, const float *values)
{
    uint32_t n_chunks = 0;
    for (int at = 0; at < n_streams(device); at++) {
        n_chunks += stream_chunks(device, at);
    }
    for (uint32_t i = 0; i < n_chunks; i++) {
        MUST_HOLD(test_send_chunk(device, values, i) == 200, "%s", device->status.text);
    }
}

/* A client's own encoder refuses numbers that are out of range; a device of its own need not. */
static double marker(size_t i)
{
    return 0.125 + (double)i / 1024.0;
}

static void put_metrics(uint8_t *body, size_t n_body, const dunlin__commit_request *request)
{
    for (size_t i = 0; i < request->metrics_count; i++) {
        double placed = marker(i);
        for (size_t at = 0; at + sizeof placed <= n_body; at++) {
            if (memcmp(body + at, &placed, sizeof placed) == 0) {
                memcpy(body + at, &request->metrics[i].value, sizeof placed);
                break;
            }
        }
    }
}

static uint32_t send_commit(test_device *device, const dunlin__commit_request *request,
                            const char *key, dunlin__commit_response *out_answer)
{
    dunlin_error error = {0};
    uint8_t body[DUNLIN_V1_COMMIT_REQUEST_SIZE];
    size_t n_body = 0;
    memset(out_answer, 0, sizeof *out_answer);
    dunlin__commit_request marked = *request;
    for (size_t i = 0; i < marked.metrics_count; i++) {
        marked.metrics[i].value = marker(i);
    }
    MUST(dunlin__commit_request_encode(&marked, body, sizeof body, &n_body, &error));
    put_metrics(body, n_body, request);
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_COMMIT, device->assignment.assignment_id);
    uint32_t code = test_send(device, &route, body, n_body, key);
    if (code == 200) {
        MUST(dunlin__commit_response_decode(device->reply.body, device->reply.n_body, out_answer,
                                            &error));
    }
    return code;
}

uint32_t test_commit_evaluation(test_device *device, uint64_t n_examples, double loss,
                                double accuracy, dunlin__commit_response *out_answer)
{
    dunlin__commit_request request = {
        .kind = DUNLIN_V1_KIND_EVALUATE,
        .n_examples = n_examples,
        .metrics_count = 2,
        .metrics = {{.name = "loss", .value = loss}, {.name = "accuracy", .value = accuracy}}};
    return send_commit(device, &request, NULL, out_answer);
}

uint32_t test_commit(test_device *device, uint64_t n_examples, const char *key,
                     dunlin__commit_response *out_answer)
{
    dunlin__commit_request request = {.kind = DUNLIN_V1_KIND_TRAIN,
                                      .encoding = device->assignment.plan.update_encoding,
                                      .n_examples = n_examples,
                                      .n_steps = 3,
                                      .metrics_count = 1};
    memcpy(request.manifest_sha256, device->manifest_sha256, DUNLIN_SHA256_BYTES);
    (void)snprintf(request.metrics[0].name, sizeof request.metrics[0].name, "loss");
    request.metrics[0].value = 0.5;
    request.within_clip = device->within_clip;
    request.app_metrics_count = (pb_size_t)device->n_app_metrics;
    for (size_t i = 0; i < device->n_app_metrics; i++) {
        request.app_metrics[i] = device->app_metrics[i];
    }
    return send_commit(device, &request, key, out_answer);
}

uint32_t test_abort(test_device *device)
{
    dunlin_error error = {0};
    dunlin__abort_request request = {.reason = DUNLIN_V1_ABORT_REASON_STOPPED};
    uint8_t body[64];
    size_t n_body = 0;
    MUST(dunlin__abort_request_encode(&request, body, sizeof body, &n_body, &error));
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_ABORT, device->assignment.assignment_id);
    return test_send(device, &route, body, n_body, NULL);
}

dunlin_v1_commit_outcome_t test_contribute(test_device *device, const float *values,
                                           uint64_t n_examples)
{
    dunlin__put_response put;
    dunlin__commit_response commit;
    MUST_HOLD(test_put(device, values, &put) == 200, "%s", device->status.text);
    test_send_chunks(device, values);
    MUST_HOLD(test_commit(device, n_examples, NULL, &commit) == 200, "%s", device->status.text);
    return commit.outcome;
}

void test_read_model(test_server *fixture, uint64_t round, float *out_values)
{
    dunlin_error error = {0};
    dunlin__server_path folder;
    dunlin__server_path path;
    dunlin__weights_file file;
    size_t n_values = (size_t)fixture->server.layout.n_values;
    MUST(dunlin__server_path_make(&folder, &error, "%s/models", fixture->server.folder.text));
    MUST(dunlin__model_path(folder.text, round, "weights", &path, &error));
    MUST(dunlin__weights_file_open(path.text, n_values, &file, &error));
    dunlin__values values = dunlin__weights_file_values(&file);
    MUST(values.values_fn(values.ctx, 0, n_values, out_values, &error));
    dunlin__weights_file_close(&file);
}
