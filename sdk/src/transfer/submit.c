/*
 * submit.c - the written update: its manifest read back, its chunks sent.
 *
 * Invariant: once the journal says PUT the two files do not change any more, so a retry sends the
 * same bytes.
 */
#include "submit.h"

#include "calls/calls.h"
#include "calls/exchange.h"
#include "context/client_context.h"
#include "store/files.h"

#include <wire/digest.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define URL_BYTES 2304
#define HEADER_BYTES 192
#define N_OFFSET_ANSWERS 8

dunlin_status dunlin__update_read_manifest(dunlin_client *client)
{
    dunlin__round *round = client->round;
    if (round->manifest != NULL) {
        return DUNLIN_OK;
    }
    char path[DUNLIN_FILE_PATH_BYTES];
    int fd = -1;
    DUNLIN_TRY(dunlin__file_path(round->folder, "update.manifest", path, &client->error));
    DUNLIN_TRY(dunlin__file_open(path, &fd, &client->error));
    struct stat about = {0};
    dunlin_status status = DUNLIN_OK;
    if (fstat(fd, &about) != 0 || about.st_size <= 0 ||
        about.st_size > (off_t)DUNLIN_WIRE_MANIFEST_BYTES) {
        status = dunlin__fail(&client->error, DUNLIN_DATA, "update", 0,
                              "update.manifest has %lld bytes; a manifest has 1 to %d",
                              (long long)about.st_size, (int)DUNLIN_WIRE_MANIFEST_BYTES);
    }
    size_t n_bytes = (size_t)about.st_size;
    if (status == DUNLIN_OK) {
        round->manifest = dunlin__alloc_array(&client->runtime->alloc, n_bytes, 1);
        round->manifest_bytes = n_bytes;
        status = round->manifest == NULL
                     ? dunlin__fail(&client->error, DUNLIN_MEMORY, "update", 0,
                                    "no memory for a manifest")
                     : dunlin__file_read(fd, round->manifest, n_bytes, 0, &client->error);
    }
    if (status == DUNLIN_OK) {
        status =
            dunlin__sha256_of(round->manifest, n_bytes, round->manifest_sha256, &client->error);
    }
    (void)close(fd);
    return status;
}

/* One request on a chunk of the update: HEAD asks how much is there, PUT sends from `offset` on. */
static dunlin_status exchange_chunk(dunlin_client *client, const dunlin__manifest_record *chunk,
                                    int fd, bool is_put, uint64_t offset,
                                    dunlin_http_reply *out_reply, dunlin__fault *out_fault)
{
    char path[DUNLIN_WIRE_PATH_BYTES];
    char url[URL_BYTES];
    char token[HEADER_BYTES];
    char range[HEADER_BYTES];
    char value[DUNLIN_WIRE_RANGE_BYTES];
    dunlin__route route =
        dunlin__route_make(is_put ? DUNLIN_CALL_CHUNK_PUT : DUNLIN_CALL_CHUNK_HEAD,
                           client->round->assignment.assignment_id);
    memcpy(route.sha256, chunk->sha256, sizeof route.sha256);
    DUNLIN_TRY(dunlin__route_format(&route, path, sizeof path, &client->error));
    (void)snprintf(url, sizeof url, "%s%s", client->origin.url, path);
    (void)snprintf(token, sizeof token, "%s: %s", DUNLIN_HEADER_TOKEN,
                   client->round->assignment.token);
    dunlin_http_request request = DUNLIN_HTTP_REQUEST_INIT;
    request.method = is_put ? "PUT" : "HEAD";
    request.url = url;
    request.headers[request.n_headers++] = DUNLIN_HEADER_PROTOCOL ": " DUNLIN_WIRE_VERSION_TEXT;
    request.headers[request.n_headers++] = token;
    if (is_put) {
        dunlin__chunk_range place = {
            .offset = offset, .n_bytes = chunk->n_bytes - offset, .total_bytes = chunk->n_bytes};
        DUNLIN_TRY(dunlin__chunk_range_format(&place, value, &client->error));
        (void)snprintf(range, sizeof range, "%s: %s", DUNLIN_HEADER_CONTENT_RANGE, value);
        request.headers[request.n_headers++] = range;
        request.headers[request.n_headers++] =
            DUNLIN_HEADER_CONTENT_TYPE ": " DUNLIN_WIRE_CONTENT_TYPE_CHUNK;
        request.body_fd = fd;
        request.body_offset = chunk->offset + offset;
        request.body_bytes = chunk->n_bytes - offset;
    }
    uint8_t body[256];
    request.reply = body;
    request.reply_limit_bytes = sizeof body;
    return dunlin__client_exchange(client, &request, out_reply, out_fault);
}

/* Sends a chunk from where the server has it, and goes on where the server says. */
static dunlin_status send_chunk(dunlin_client *client, const dunlin__manifest_record *chunk, int fd,
                                bool ask_first, dunlin__fault *out_fault)
{
    uint64_t offset = 0;
    dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
    bool is_put = !ask_first;
    for (int i = 0; i < N_OFFSET_ANSWERS; i++) {
        DUNLIN_TRY(exchange_chunk(client, chunk, fd, is_put, offset, &reply, out_fault));
        bool is_success = reply.status >= 200 && reply.status < 300;
        if (!is_success && reply.status != 409 && !(reply.status == 404 && !is_put)) {
            dunlin__status refusal;
            return dunlin__call_refused(client, &reply, &refusal, out_fault);
        }
        if (is_put && is_success && reply.upload_offset < 0) {
            return DUNLIN_OK;
        }
        offset = reply.upload_offset > 0 ? (uint64_t)reply.upload_offset : 0;
        if (offset >= chunk->n_bytes) {
            return DUNLIN_OK;
        }
        is_put = true;
    }
    *out_fault = dunlin__fault_of(DUNLIN_CLOSED);
    return dunlin__fail(&client->error, DUNLIN_CLOSED, "upload", 0,
                        "chunk %" PRIu32 ": the server has asked for another offset %d times",
                        chunk->chunk_index, N_OFFSET_ANSWERS);
}

static bool is_missing(const dunlin__round *round, uint32_t chunk_index)
{
    if (round->put.n_chunks == 0) {
        return true; /* resumed after a kill: the server is asked for each chunk */
    }
    return chunk_index / 8 < round->put.missing.size &&
           (round->put.missing.bytes[chunk_index / 8] >> (chunk_index % 8) & 1) != 0;
}

dunlin_status dunlin__update_send(dunlin_client *client, dunlin__fault *out_fault)
{
    dunlin__round *round = client->round;
    char path[DUNLIN_FILE_PATH_BYTES];
    int fd = -1;
    *out_fault = dunlin__fault_of(DUNLIN_DATA);
    DUNLIN_TRY(dunlin__file_path(round->folder, "update.bin", path, &client->error));
    DUNLIN_TRY(dunlin__file_open(path, &fd, &client->error));
    bool ask_first = round->put.n_chunks == 0 || client->session.n_failures > 0;
    dunlin__manifest_source source =
        dunlin__manifest_source_memory(round->manifest, round->manifest_bytes);
    dunlin__manifest_reader reader;
    dunlin__manifest_record record = {.item = DUNLIN_MANIFEST_STREAM};
    uint64_t stream_offset = 0; /* in the file, where the streams follow each other */
    uint64_t next_offset = 0;
    dunlin_status status =
        dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_UPDATE, &client->error);
    while (status == DUNLIN_OK && record.item != DUNLIN_MANIFEST_END) {
        status = dunlin__manifest_reader_next(&reader, &record, &client->error);
        if (status == DUNLIN_OK && record.item == DUNLIN_MANIFEST_STREAM) {
            stream_offset = next_offset;
            next_offset += record.stream.total_bytes;
        }
        if (status != DUNLIN_OK || record.item != DUNLIN_MANIFEST_CHUNK ||
            !is_missing(round, record.chunk_index)) {
            continue;
        }
        record.offset += stream_offset;
        status = send_chunk(client, &record, fd, ask_first, out_fault);
        if (status == DUNLIN_OK && !dunlin__client_tell(client, DUNLIN_PHASE_UPLOAD,
                                                        (int64_t)(record.offset + record.n_bytes),
                                                        (int64_t)next_offset, 0.0)) {
            *out_fault = dunlin__fault_of(DUNLIN_STOPPED);
            status =
                dunlin__fail(&client->error, DUNLIN_STOPPED, "client", 0,
                             "stopped on request at byte %" PRIu64 " of %" PRIu64 " of the update",
                             record.offset + record.n_bytes, next_offset);
        }
    }
    (void)close(fd);
    return status;
}
