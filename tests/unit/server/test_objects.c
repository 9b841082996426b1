/*
 * test_objects.c - chunks down by hash and range; chunks up in pieces, and what is not let in.
 */
#include "server/device.h"

#include <wire/digest.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define N_MORE 100000u
#define N_VALUES (N_MORE + 10u)

static float values[N_VALUES];

static void begin(test_server *fixture, test_device *device)
{
    for (size_t i = 0; i < N_VALUES; i++) {
        values[i] = (float)i;
    }
    test_server_folder(fixture);
    test_server_open(fixture, ", \"rounds\": 2, \"cohort\": 2", N_MORE);
    test_join(device, fixture, -1);
}

static void end(test_server *fixture)
{
    test_server_close(fixture);
    test_server_end(fixture);
}

/* ---- down ---- */

static uint32_t get(test_server *fixture, const uint8_t *sha256, const char *range,
                    const char *if_range, dunlin__server_reply *reply)
{
    dunlin__server_request request = {.route = dunlin__route_make(DUNLIN_CALL_OBJECT_GET, NULL),
                                      .method = "GET",
                                      .path = "",
                                      .range = range,
                                      .if_range = if_range};
    memcpy(request.route.sha256, sha256, DUNLIN_SHA256_BYTES);
    dunlin__server_handle(&fixture->server, &request, reply);
    return reply->http_code;
}

static void read_body(dunlin__server_reply *reply, uint8_t *out_bytes)
{
    cr_assert_eq(pread(reply->fd, out_bytes, reply->n_fd_bytes, (off_t)reply->fd_offset),
                 (ssize_t)reply->n_fd_bytes);
    (void)close(reply->fd);
    reply->fd = -1;
}

Test(objects, a_model_can_be_fetched_by_its_manifest)
{
    test_server fixture;
    test_device device;
    dunlin__server_reply reply;
    dunlin_error error = {0};
    static uint8_t manifest[DUNLIN_WIRE_MANIFEST_BYTES];
    static uint8_t chunk[DUNLIN_WIRE_CHUNK_MAX_BYTES];
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    begin(&fixture, &device);
    cr_assert_eq(get(&fixture, device.assignment.base_manifest_sha256, NULL, NULL, &reply), 200);
    cr_assert(reply.is_object);
    size_t n_manifest = (size_t)reply.n_fd_bytes;
    cr_assert_eq(n_manifest, device.assignment.base_manifest_bytes);
    read_body(&reply, manifest);
    dunlin__manifest_source source = dunlin__manifest_source_memory(manifest, n_manifest);
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    uint64_t n_bytes = 0;
    cr_assert_eq(dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_BASE, &error),
                 DUNLIN_OK);
    do {
        cr_assert_eq(dunlin__manifest_reader_next(&reader, &record, &error), DUNLIN_OK, "%s",
                     error.text);
        if (record.item == DUNLIN_MANIFEST_CHUNK) {
            cr_assert_eq(get(&fixture, record.sha256, NULL, NULL, &reply), 200);
            cr_assert_eq(reply.n_fd_bytes, record.n_bytes);
            read_body(&reply, chunk);
            cr_assert_eq(dunlin__sha256_of(chunk, (size_t)record.n_bytes, sha256, &error),
                         DUNLIN_OK);
            cr_assert_arr_eq(sha256, record.sha256, sizeof sha256);
            n_bytes += record.n_bytes;
        }
    } while (record.item != DUNLIN_MANIFEST_END);
    cr_assert_eq(n_bytes, N_VALUES * sizeof(float));
    memset(sha256, 7, sizeof sha256);
    cr_assert_eq(get(&fixture, sha256, NULL, NULL, &reply), 404);
    memcpy(sha256, device.assignment.base_manifest_sha256, sizeof sha256);
    sha256[DUNLIN_SHA256_BYTES - 1] ^= 1;
    cr_assert_eq(get(&fixture, sha256, NULL, NULL, &reply), 404, "a name wrong in its last byte");
    end(&fixture);
}

Test(objects, ranges)
{
    test_server fixture;
    test_device device;
    dunlin__server_reply reply;
    char expected[64];
    begin(&fixture, &device);
    const uint8_t *sha256 = device.assignment.base_manifest_sha256;
    unsigned total = device.assignment.base_manifest_bytes;
    cr_assert_eq(get(&fixture, sha256, "bytes=2-5", NULL, &reply), 206);
    (void)snprintf(expected, sizeof expected, "bytes 2-5/%u", total);
    cr_assert_str_eq(reply.content_range, expected);
    cr_assert_eq(reply.fd_offset, 2);
    cr_assert_eq(reply.n_fd_bytes, 4);
    char etag[sizeof reply.etag];
    memcpy(etag, reply.etag, sizeof etag);
    (void)close(reply.fd);
    static const struct {
        const char *range;
        uint32_t code;
        uint64_t offset;
        int64_t short_of; /* bytes less than the whole */
    } cases[] = {
        {"bytes=3-", 206, 3, 3},
        {"bytes=0-99999999", 206, 0, 0},
        {"bytes=5-2", 200, 0, 0},
        {"bytes=-", 200, 0, 0},
        {"bytes=1-2,4-5", 200, 0, 0},
        {"lines=1-2", 200, 0, 0},
        {"bytes=99999999999999999999-", 200, 0, 0},
        {"bytes=a-b", 200, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_expect_eq(get(&fixture, sha256, cases[i].range, NULL, &reply), cases[i].code, "%s",
                     cases[i].range);
        cr_expect_eq(reply.fd_offset, cases[i].offset, "%s", cases[i].range);
        cr_expect_eq((int64_t)total - (int64_t)reply.n_fd_bytes, cases[i].short_of, "%s",
                     cases[i].range);
        (void)close(reply.fd);
    }
    cr_assert_eq(get(&fixture, sha256, "bytes=-4", NULL, &reply), 206);
    cr_assert_eq(reply.fd_offset, total - 4);
    (void)close(reply.fd);
    cr_assert_eq(get(&fixture, sha256, "bytes=99999999-", NULL, &reply), 416);
    cr_assert_eq(get(&fixture, sha256, "bytes=-0", NULL, &reply), 416);
    cr_assert_eq(get(&fixture, sha256, "bytes=1-2", "\"other\"", &reply), 200);
    (void)close(reply.fd);
    cr_assert_eq(get(&fixture, sha256, "bytes=1-2", etag, &reply), 206);
    (void)close(reply.fd);
    end(&fixture);
}

/* ---- up ---- */

static uint32_t head(test_device *device, const uint8_t *sha256, const char *token)
{
    dunlin__server_request request = {
        .route = dunlin__route_make(DUNLIN_CALL_CHUNK_HEAD, device->assignment.assignment_id),
        .method = "HEAD",
        .path = "",
        .token = token};
    memcpy(request.route.sha256, sha256, DUNLIN_SHA256_BYTES);
    dunlin__server_handle(&device->fixture->server, &request, &device->reply);
    return device->reply.http_code;
}

Test(objects, a_chunk_goes_up_in_pieces_and_is_resumed_where_it_was_cut)
{
    test_server fixture;
    test_device device;
    dunlin__put_response put;
    dunlin_error error = {0};
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    begin(&fixture, &device);
    cr_assert_eq(test_put(&device, values, &put), 200);
    cr_assert_eq(put.n_chunks, 2);
    cr_assert_eq(put.missing.bytes[0], 3);
    cr_assert_eq(dunlin__sha256_of(values, 262144, sha256, &error), DUNLIN_OK);
    const char *token = device.assignment.token;
    cr_assert_eq(head(&device, sha256, token), 200);
    cr_assert_eq(device.reply.upload_offset, 0);

    cr_assert_eq(test_send_part(&device, values, 0, 0, 1000, "bytes 0-999/262144"), 200);
    cr_assert_eq(device.reply.upload_offset, 1000);
    /* The connection is cut: 500 of 2000 announced bytes have come. */
    dunlin__server_request request = {
        .route = dunlin__route_make(DUNLIN_CALL_CHUNK_PUT, device.assignment.assignment_id),
        .method = "PUT",
        .path = "",
        .token = token,
        .content_range = "bytes 1000-2999/262144"};
    memcpy(request.route.sha256, sha256, sizeof sha256);
    dunlin__server_upload upload;
    cr_assert(dunlin__server_upload_begin(&fixture.server, &request, &upload, &device.reply));
    cr_assert(
        dunlin__server_upload_write(&upload, (const uint8_t *)values + 1000, 500, &device.reply));
    dunlin__server_upload_abort(&upload);
    cr_assert_eq(head(&device, sha256, token), 200);
    cr_assert_eq(device.reply.upload_offset, 1500);

    cr_assert_eq(test_send_part(&device, values, 0, 0, 1000, "bytes 0-999/262144"), 409);
    cr_assert_eq(device.status.code, DUNLIN_V1_STATUS_CODE_WRONG_OFFSET);
    cr_assert_eq(device.status.upload_offset, 1500);
    cr_assert_eq(device.reply.upload_offset, 1500);
    cr_assert_eq(test_send_part(&device, values, 0, 1500, 260644, "bytes 1500-262143/262144"), 200);
    cr_assert_eq(device.reply.upload_offset, 262144);
    cr_assert_eq(test_send_chunk(&device, values, 0), 200, "a chunk that is there already");
    cr_assert_eq(test_put(&device, values, &put), 200);
    cr_assert_eq(put.missing.bytes[0], 2);
    cr_assert_eq(test_send_chunk(&device, values, 1), 200);
    dunlin__commit_response commit;
    cr_assert_eq(test_commit(&device, 1, NULL, &commit), 200);
    cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    end(&fixture);
}

Test(objects, wrong_bytes_do_not_become_a_chunk)
{
    test_server fixture;
    test_device device;
    dunlin__put_response put;
    begin(&fixture, &device);
    cr_assert_eq(test_put(&device, values, &put), 200);
    cr_assert_eq(test_send_part(&device, values, 0, 4, 262140, "bytes 0-262139/262144"), 200);
    cr_assert_eq(test_send_part(&device, values, 0, 0, 4, "bytes 262140-262143/262144"), 422);
    cr_assert_eq(device.status.code, DUNLIN_V1_STATUS_CODE_DIGEST_MISMATCH);
    cr_assert_eq(device.reply.upload_offset, 0);
    cr_assert_eq(test_send_chunk(&device, values, 0), 200);
    end(&fixture);
}

Test(objects, what_is_not_let_in)
{
    test_server fixture;
    test_device device;
    dunlin__put_response put;
    dunlin_error error = {0};
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    begin(&fixture, &device);
    cr_assert_eq(test_send_chunk(&device, values, 0), 404, "before any manifest");
    cr_assert_eq(test_put(&device, values, &put), 200);
    cr_assert_eq(test_send_part(&device, values, 0, 0, 10, "bytes 0-9/999"), 400);
    cr_assert_eq(test_send_part(&device, values, 0, 0, 10, "rubbish"), 400);
    cr_assert_eq(test_send_part(&device, values, 0, 0, 20, "bytes 0-9/262144"), 413);
    char token[DUNLIN_WIRE_TOKEN_BYTES];
    memcpy(token, device.assignment.token, sizeof token);
    device.assignment.token[0] = token[0] == 'a' ? 'b' : 'a';
    cr_assert_eq(test_send_chunk(&device, values, 0), 403);
    cr_assert_eq(dunlin__sha256_of(values, 262144, sha256, &error), DUNLIN_OK);
    cr_assert_eq(head(&device, sha256, NULL), 403);
    memcpy(device.assignment.token, token, sizeof token);
    cr_assert_eq(head(&device, sha256, token), 200);
    sha256[DUNLIN_SHA256_BYTES - 1] ^= 1;
    cr_assert_eq(head(&device, sha256, token), 404, "a name wrong in its last byte");
    memset(sha256, 1, sizeof sha256);
    cr_assert_eq(head(&device, sha256, token), 404, "a chunk outside the manifest");
    fixture.now_ms += 1000000000;
    cr_assert_eq(test_send_chunk(&device, values, 0), 410, "after the deadline");
    end(&fixture);
}

Test(objects, nothing_is_left_of_a_round)
{
    test_server fixture;
    test_device devices[2];
    begin(&fixture, &devices[0]);
    test_join(&devices[1], &fixture, -1);
    dunlin_error error = {0};
    dunlin__server_path path;
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(test_contribute(&devices[i], values, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    }
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 2);
    for (int i = 0; i < 2; i++) {
        const char *id = devices[i].assignment.assignment_id;
        cr_assert_eq(dunlin__server_upload_folder(&fixture.server, id, &path, &error), DUNLIN_OK);
        cr_assert_neq(access(path.text, F_OK), 0, "%s", path.text);
        cr_assert_eq(dunlin__server_spool_path(&fixture.server, id, &path, &error), DUNLIN_OK);
        cr_assert_neq(access(path.text, F_OK), 0, "%s", path.text);
    }
    end(&fixture);
}
