/*
 * fetch_object.c - downloads an object: its manifest, then its chunks into one file, in order.
 *
 * Invariant: the file holds verified chunks up to the current one, and the beginning of that one.
 * So its length says where to resume after a cut or a kill, and everything in it is hashed again
 * before it is used.
 */
#include "fetch_object.h"

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
#define NAME_BYTES 64

/* GETs an object, or its end from `skip` on, to a place in a file. */
static dunlin_status get_object(dunlin_client *client, const uint8_t sha256[DUNLIN_SHA256_BYTES],
                                int fd, uint64_t offset, uint64_t skip, uint64_t n_bytes,
                                dunlin__fault *out_fault)
{
    char path[DUNLIN_WIRE_PATH_BYTES];
    char url[URL_BYTES];
    char range[64];
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_OBJECT_GET, NULL);
    memcpy(route.sha256, sha256, sizeof route.sha256);
    *out_fault = dunlin__fault_of(DUNLIN_ARGUMENT);
    DUNLIN_TRY(dunlin__route_format(&route, path, sizeof path, &client->error));
    (void)snprintf(url, sizeof url, "%s%s", client->origin.url, path);
    (void)snprintf(range, sizeof range, "Range: bytes=%llu-", (unsigned long long)skip);
    dunlin_http_request request = DUNLIN_HTTP_REQUEST_INIT;
    request.method = "GET";
    request.url = url;
    request.headers[request.n_headers++] = DUNLIN_HEADER_PROTOCOL ": " DUNLIN_WIRE_VERSION_TEXT;
    if (skip > 0) {
        request.headers[request.n_headers++] = range;
    }
    request.reply_fd = fd;
    request.reply_offset = offset + skip;
    request.reply_limit_bytes = n_bytes - skip;
    dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
    DUNLIN_TRY(dunlin__client_exchange(client, &request, &reply, out_fault));
    if (reply.status >= 200 && reply.status < 300 && skip > 0 &&
        (reply.status != 206 || reply.range_first != (int64_t)skip)) {
        *out_fault = dunlin__fault_of(DUNLIN_MISMATCH);
        return dunlin__fail(&client->error, DUNLIN_MISMATCH, "fetch", reply.status,
                            "the server was asked for an object from byte %llu on and sent "
                            "another part",
                            (unsigned long long)skip);
    }
    if (reply.status < 200 || reply.status >= 300) {
        dunlin__status refusal;
        return dunlin__call_refused(client, &reply, &refusal, out_fault);
    }
    if (skip + reply.body_bytes != n_bytes) {
        *out_fault = dunlin__fault_of(DUNLIN_CLOSED);
        return dunlin__fail(&client->error, DUNLIN_CLOSED, "fetch", 0,
                            "an object of %llu bytes came with %llu", (unsigned long long)n_bytes,
                            (unsigned long long)skip + (unsigned long long)reply.body_bytes);
    }
    return DUNLIN_OK;
}

uint64_t dunlin__object_length(int fd)
{
    struct stat about = {0};
    return fstat(fd, &about) == 0 ? (uint64_t)about.st_size : 0;
}

/* The manifest, from an earlier attempt or from the server; verified before it gets its name. */
dunlin_status dunlin__object_fetch_manifest(dunlin_client *client,
                                            const dunlin__fetched_object *what, int *out_fd,
                                            dunlin__fault *out_fault)
{
    uint64_t n_bytes = what->manifest_bytes;
    const uint8_t *sha256 = what->manifest_sha256;
    char name[NAME_BYTES];
    char path[DUNLIN_FILE_PATH_BYTES];
    char part[DUNLIN_FILE_PATH_BYTES];
    (void)snprintf(name, sizeof name, "%s.manifest", what->name);
    DUNLIN_TRY(dunlin__file_path(what->folder, name, path, &client->error));
    (void)snprintf(name, sizeof name, "%s.manifest.part", what->name);
    DUNLIN_TRY(dunlin__file_path(what->folder, name, part, &client->error));
    if (access(path, F_OK) == 0) {
        DUNLIN_TRY(dunlin__file_open(path, out_fd, &client->error));
        if (dunlin__object_length(*out_fd) == n_bytes &&
            dunlin__file_matches(*out_fd, 0, n_bytes, sha256)) {
            return DUNLIN_OK;
        }
        (void)close(*out_fd);
        *out_fd = -1;
    }
    DUNLIN_TRY(dunlin__file_open(part, out_fd, &client->error));
    if (ftruncate(*out_fd, 0) != 0) {
        return dunlin__fail(&client->error, DUNLIN_IO, "fetch", errno, "%s cannot be emptied",
                            part);
    }
    DUNLIN_TRY(get_object(client, sha256, *out_fd, 0, 0, n_bytes, out_fault));
    if (!dunlin__file_matches(*out_fd, 0, n_bytes, sha256)) {
        *out_fault = dunlin__fault_of(DUNLIN_DIGEST);
        return dunlin__fail(&client->error, DUNLIN_DIGEST, "fetch", 0,
                            "%s.manifest does not match the hash in the %s", what->name,
                            what->is_of_round ? "assignment" : "statement that the run is over");
    }
    return dunlin__file_rename(*out_fd, part, path, &client->error);
}

/* One chunk: from the file if it is there, its missing end, or whole. */
static dunlin_status fetch_chunk(dunlin_client *client, int fd, uint64_t offset,
                                 const dunlin__manifest_record *chunk, dunlin__fault *out_fault)
{
    uint64_t length = dunlin__object_length(fd);
    uint64_t have = length > offset ? length - offset : 0;
    if (have >= chunk->n_bytes) {
        if (dunlin__file_matches(fd, offset, chunk->n_bytes, chunk->sha256)) {
            return DUNLIN_OK;
        }
        have = 0;
    }
    if (have > 0) {
        dunlin_status status =
            get_object(client, chunk->sha256, fd, offset, have, chunk->n_bytes, out_fault);
        if (status == DUNLIN_OK &&
            dunlin__file_matches(fd, offset, chunk->n_bytes, chunk->sha256)) {
            return DUNLIN_OK;
        }
        /* LIMIT and MISMATCH: a server or cache that does not do ranges, and sends the whole. */
        if (status != DUNLIN_OK && status != DUNLIN_LIMIT && status != DUNLIN_MISMATCH) {
            return status;
        }
    }
    /* Whatever lay there was wrong: the file ends before this chunk again. */
    if (ftruncate(fd, (off_t)offset) != 0) {
        return dunlin__fail(&client->error, DUNLIN_IO, "fetch", errno,
                            "the base's file cannot be cut");
    }
    DUNLIN_TRY(get_object(client, chunk->sha256, fd, offset, 0, chunk->n_bytes, out_fault));
    if (!dunlin__file_matches(fd, offset, chunk->n_bytes, chunk->sha256)) {
        (void)ftruncate(fd, (off_t)offset);
        *out_fault = dunlin__fault_of(DUNLIN_DIGEST);
        return dunlin__fail(&client->error, DUNLIN_DIGEST, "fetch", 0,
                            "chunk %u of the base does not match its hash", chunk->chunk_index);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__object_fetch_chunks(dunlin_client *client,
                                          const dunlin__manifest_source *source, int fd,
                                          uint64_t total_bytes, dunlin__fault *out_fault)
{
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    uint64_t stream_offset = 0;
    uint64_t next_offset = 0;
    DUNLIN_TRY(
        dunlin__manifest_reader_begin(&reader, source, DUNLIN_MANIFEST_BASE, &client->error));
    for (;;) {
        DUNLIN_TRY(dunlin__manifest_reader_next(&reader, &record, &client->error));
        if (record.item == DUNLIN_MANIFEST_END) {
            return DUNLIN_OK;
        }
        if (record.item == DUNLIN_MANIFEST_STREAM) {
            stream_offset = next_offset;
            next_offset += record.stream.total_bytes;
        } else if (record.item == DUNLIN_MANIFEST_CHUNK) {
            uint64_t offset = stream_offset + record.offset;
            if (client->round->is_fetching_last && dunlin__client_should_stop(client)) {
                *out_fault = dunlin__fault_of(DUNLIN_STOPPED);
                return dunlin__fail(&client->error, DUNLIN_STOPPED, "client", 0,
                                    "stopped at byte %" PRIu64 " of %" PRIu64 " of the model",
                                    offset, total_bytes);
            }
            DUNLIN_TRY(fetch_chunk(client, fd, offset, &record, out_fault));
            if (!dunlin__client_tell(client, DUNLIN_PHASE_FETCH, (int64_t)(offset + record.n_bytes),
                                     (int64_t)total_bytes, 0.0)) {
                *out_fault = dunlin__fault_of(DUNLIN_STOPPED);
                return dunlin__fail(&client->error, DUNLIN_STOPPED, "client", 0,
                                    "stopped on request at byte %" PRIu64 " of %" PRIu64
                                    " of the model",
                                    offset + record.n_bytes, total_bytes);
            }
        }
    }
}
