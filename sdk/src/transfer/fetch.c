/*
 * fetch.c - downloads the base of a round, or the model that a run has left: its manifest, then its
 * chunks into one file, in order.
 *
 * Invariant: the file holds verified chunks up to the current one, and the beginning of that one.
 * So its length says where to resume after a cut or a kill, and everything in it is hashed again
 * before it is used.
 */
#include "fetch.h"

#include "calls/calls.h"
#include "calls/exchange.h"
#include "context/client_context.h"
#include "store/files.h"
#include "weights/app_model_keep.h"
#include "weights/base_weights.h"
#include "weights/scaffold.h"
#include "weights/tensor_table.h"

#include <wire/digest.h>
#include <wire/tensor_stream.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define URL_BYTES 2304
#define SPARE_BYTES (1U << 20)

/* What is fetched, and where to. */
typedef struct fetched {
    const char *folder;
    const uint8_t *manifest_sha256;
    uint64_t manifest_bytes;
    bool is_of_round; /* an update as large will follow */
    bool has_control; /* SCAFFOLD's variate goes with the weights */
    bool has_left;    /* what packing leaves out of the update is kept */
} fetched;

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

static uint64_t file_length(int fd)
{
    struct stat about = {0};
    return fstat(fd, &about) == 0 ? (uint64_t)about.st_size : 0;
}

/* The manifest, from an earlier attempt or from the server; verified before it gets its name. */
static dunlin_status fetch_manifest(dunlin_client *client, const fetched *what, int *out_fd,
                                    dunlin__fault *out_fault)
{
    uint64_t n_bytes = what->manifest_bytes;
    const uint8_t *sha256 = what->manifest_sha256;
    char path[DUNLIN_FILE_PATH_BYTES];
    char part[DUNLIN_FILE_PATH_BYTES];
    const char *folder = what->folder;
    DUNLIN_TRY(dunlin__file_path(folder, "base.manifest", path, &client->error));
    DUNLIN_TRY(dunlin__file_path(folder, "base.manifest.part", part, &client->error));
    if (access(path, F_OK) == 0) {
        DUNLIN_TRY(dunlin__file_open(path, out_fd, &client->error));
        if (file_length(*out_fd) == n_bytes && dunlin__file_matches(*out_fd, 0, n_bytes, sha256)) {
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
                            "the base's manifest does not match the hash in the %s",
                            what->is_of_round ? "assignment" : "statement that the run is over");
    }
    return dunlin__file_rename(*out_fd, part, path, &client->error);
}

/* One chunk: from the file if it is there, its missing end, or whole. */
static dunlin_status fetch_chunk(dunlin_client *client, int fd, uint64_t offset,
                                 const dunlin__manifest_record *chunk, dunlin__fault *out_fault)
{
    uint64_t length = file_length(fd);
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

static dunlin_status check_room(dunlin_client *client, const fetched *what, uint64_t total_bytes,
                                uint64_t have_bytes, dunlin__fault *out_fault)
{
    if (total_bytes > client->options.max_download_bytes) {
        *out_fault = dunlin__fault_of(DUNLIN_LIMIT);
        return dunlin__fail(&client->error, DUNLIN_LIMIT, "fetch", 0,
                            "the base has %llu bytes; this client takes at most %llu a round",
                            (unsigned long long)total_bytes,
                            (unsigned long long)client->options.max_download_bytes);
    }
    uint64_t room = 0;
    DUNLIN_TRY(dunlin__folder_room(what->folder, &room, &client->error));
    uint64_t missing = total_bytes > have_bytes ? total_bytes - have_bytes : 0;
    /* The base, an update as large, and what is kept of the round beside it. */
    uint64_t kept = (what->has_control ? total_bytes / 2 : 0) + (what->has_left ? total_bytes : 0);
    uint64_t needed = missing + SPARE_BYTES + (what->is_of_round ? total_bytes + kept : 0);
    if (room < needed) {
        *out_fault = dunlin__fault_of(DUNLIN_SPACE);
        return dunlin__fail(&client->error, DUNLIN_SPACE, "fetch", 0,
                            "the round needs %llu bytes of storage, %llu are free",
                            (unsigned long long)needed, (unsigned long long)room);
    }
    return DUNLIN_OK;
}

static dunlin_status fetch_chunks(dunlin_client *client, const dunlin__manifest_source *source,
                                  int fd, uint64_t total_bytes, dunlin__fault *out_fault)
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

/* Every value of the weights must be a number before anything is trained on them. */
typedef struct file_source {
    int fd;
    uint64_t offset;
} file_source;

static dunlin_status read_stream(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error)
{
    file_source *source = ctx;
    DUNLIN_TRY(dunlin__file_read(source->fd, buffer, n_bytes, source->offset, error));
    source->offset += n_bytes;
    return DUNLIN_OK;
}

static dunlin_status check_finite(dunlin_client *client, const dunlin__manifest_source *source,
                                  const char *name, int fd)
{
    dunlin__base_stream found = {0};
    DUNLIN_TRY(dunlin__base_find(source, name, &found, &client->error));
    float block[1024];
    file_source values = {.fd = fd, .offset = found.offset};
    dunlin__stream_source stream = {.ctx = &values, .read_fn = read_stream};
    dunlin__tensor_reader tensors;
    DUNLIN_TRY(dunlin__tensor_reader_begin(&tensors, &found.reader, &stream, true, block,
                                           sizeof block, &client->error));
    dunlin__tensor_piece piece;
    do {
        DUNLIN_TRY(dunlin__tensor_reader_next(&tensors, &piece, &client->error));
    } while (piece.tensor != NULL);
    return DUNLIN_OK;
}

static dunlin_status fetch_all(dunlin_client *client, const fetched *what, int *manifest_fd,
                               int *base_fd, dunlin__fault *out_fault)
{
    DUNLIN_TRY(fetch_manifest(client, what, manifest_fd, out_fault));
    dunlin__manifest_source source = dunlin__base_manifest(what->manifest_bytes, manifest_fd);
    dunlin__manifest_summary summary;
    char path[DUNLIN_FILE_PATH_BYTES];
    *out_fault = dunlin__fault_of(DUNLIN_PROTOCOL);
    DUNLIN_TRY(dunlin__manifest_check_all(&source, DUNLIN_MANIFEST_BASE, &summary, &client->error));
    DUNLIN_TRY(dunlin__file_path(what->folder, "base.bin", path, &client->error));
    DUNLIN_TRY(dunlin__file_open(path, base_fd, &client->error));
    DUNLIN_TRY(check_room(client, what, summary.total_bytes, file_length(*base_fd), out_fault));
    DUNLIN_TRY(fetch_chunks(client, &source, *base_fd, summary.total_bytes, out_fault));
    *out_fault = dunlin__fault_of(DUNLIN_NUMERIC);
    DUNLIN_TRY(check_finite(client, &source, DUNLIN_STREAM_WEIGHTS, *base_fd));
    if (what->has_control) {
        DUNLIN_TRY(check_finite(client, &source, DUNLIN_STREAM_CONTROL, *base_fd));
    }
    return dunlin__file_sync(*base_fd, what->folder, &client->error);
}

static dunlin_status fetch_files(dunlin_client *client, const fetched *what,
                                 dunlin__fault *out_fault)
{
    int manifest_fd = -1;
    int base_fd = -1;
    const dunlin_status status = fetch_all(client, what, &manifest_fd, &base_fd, out_fault);
    if (manifest_fd >= 0) {
        (void)close(manifest_fd);
    }
    if (base_fd >= 0) {
        (void)close(base_fd);
    }
    return status;
}

/* Unless it is here: then it is named anew, as what it is now. */
static dunlin_status fetch_model(dunlin_client *client, const fetched *what,
                                 dunlin__app_model_head *head, bool keeps, dunlin__fault *out_fault)
{
    *out_fault = dunlin__fault_of(DUNLIN_IO);
    dunlin_status status = dunlin__folder_make(what->folder, &client->error);
    const bool is_here =
        status == DUNLIN_OK && keeps && dunlin__app_model_is_here(client, head, what->folder);
    if (status == DUNLIN_OK && !is_here) {
        status = fetch_files(client, what, out_fault);
    }
    if (status == DUNLIN_OK && keeps) {
        *out_fault = dunlin__fault_of(DUNLIN_IO);
        status = dunlin__app_model_take(client, what->folder, head);
    }
    if (status == DUNLIN_IO || status == DUNLIN_SPACE || status == DUNLIN_LOCKED) {
        *out_fault = dunlin__fault_of(status);
    }
    return status;
}

dunlin_status dunlin__fetch_base(dunlin_client *client, dunlin__fault *out_fault)
{
    dunlin__app_model_head head = dunlin__app_model_of_round(client);
    const fetched what = {.folder = client->round->folder,
                          .manifest_sha256 = head.manifest_sha256,
                          .manifest_bytes = head.manifest_bytes,
                          .is_of_round = true,
                          .has_control = dunlin__round_is_scaffold(client),
                          .has_left = client->round->assignment.plan.feedback_rounds > 0};
    return fetch_model(client, &what, &head, client->keeps_model, out_fault);
}

/* It comes down in its own folder: that of the round is emptied when the call ends. */
static dunlin_status fetch_named(dunlin_client *client, dunlin__fault *out_fault)
{
    char folder[DUNLIN_FILE_PATH_BYTES];
    dunlin__app_model_head head = dunlin__app_model_of_statement(&client->round->run_over);
    const fetched what = {.folder = folder,
                          .manifest_sha256 = head.manifest_sha256,
                          .manifest_bytes = head.manifest_bytes};
    *out_fault = dunlin__fault_of(DUNLIN_IO);
    DUNLIN_TRY(dunlin__client_model_folder(client, folder, &client->error));
    client->round->is_fetching_last = true;
    const dunlin_status status = fetch_model(client, &what, &head, true, out_fault);
    client->round->is_fetching_last = false;
    return status;
}

dunlin_status dunlin__fetch_last(dunlin_client *client, dunlin__event *out_event,
                                 dunlin__fault *out_fault)
{
    const dunlin_status status = fetch_named(client, out_fault);
    if (status == DUNLIN_OK) {
        return DUNLIN_OK;
    }
    if (status == DUNLIN_STOPPED && !dunlin__client_is_interrupted(client)) {
        out_event->kind = DUNLIN_EVENT_INELIGIBLE; /* the conditions changed: another time */
        return DUNLIN_OK;
    }
    if (status != DUNLIN_STOPPED && out_fault->is_permanent) {
        dunlin__log(&client->runtime->log, DUNLIN_LOG_WARNING, "client",
                    "the model that the run has left was not fetched: %s", client->error.text);
        dunlin__error_clear(&client->error);
        return DUNLIN_OK;
    }
    return status;
}
