/*
 * objects.c - chunks down, public by their hash; chunks of an update up, each under its assignment.
 *
 * Invariant: a file named by a hash holds bytes of that hash. A chunk on its way up is that name
 * with ".part", its size the offset to go on at, so the state of an upload needs no table and
 * survives any kill.
 */
#include "objects.h"

#include "base/files.h"
#include "contribution.h"
#include "model/models.h"
#include "object_find.h"
#include "rounds/buffered.h"
#include "state/context.h"
#include "state/db.h"
#include "state/reply.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- down ---- */

static bool read_digits(const char **text, uint64_t *out_value)
{
    char *end = NULL;
    if (**text < '0' || **text > '9') {
        return false;
    }
    errno = 0;
    unsigned long long value = strtoull(*text, &end, 10);
    *text = end;
    *out_value = value;
    return errno == 0;
}

typedef enum range_kind { RANGE_NONE, RANGE_PART, RANGE_OUTSIDE } range_kind;

/* One range, "bytes=a-b", "bytes=a-" or "bytes=-n" (RFC 9110, 14.1.2); others are ignored, as that
 * allows. */
static range_kind read_range(const char *value, uint64_t total, uint64_t *out_first,
                             uint64_t *out_last)
{
    if (value == NULL || strncmp(value, "bytes=", 6) != 0) {
        return RANGE_NONE;
    }
    const char *text = value + 6;
    bool has_first = read_digits(&text, out_first);
    if (*text != '-') {
        return RANGE_NONE;
    }
    text++;
    bool has_last = read_digits(&text, out_last);
    if (*text != 0 || (!has_first && !has_last) ||
        (has_first && has_last && *out_last < *out_first)) {
        return RANGE_NONE;
    }
    if (!has_first) {
        if (*out_last == 0) {
            return RANGE_OUTSIDE;
        }
        *out_first = *out_last < total ? total - *out_last : 0;
        *out_last = total - 1;
        return RANGE_PART;
    }
    if (*out_first >= total) {
        return RANGE_OUTSIDE;
    }
    if (!has_last || *out_last >= total) {
        *out_last = total - 1;
    }
    return RANGE_PART;
}

static void fill_range(const dunlin__server_request *request, const dunlin__found_object *found,
                       dunlin__server_reply *reply)
{
    uint64_t first = 0;
    uint64_t last = found->n_bytes - 1;
    bool is_same = request->if_range == NULL || strcmp(request->if_range, reply->etag) == 0;
    range_kind kind =
        is_same ? read_range(request->range, found->n_bytes, &first, &last) : RANGE_NONE;
    if (kind == RANGE_OUTSIDE) {
        (void)close(reply->fd);
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_INVALID,
                              "the range is outside the object's %" PRIu64 " bytes",
                              found->n_bytes);
        reply->http_code = 416;
        (void)snprintf(reply->content_range, sizeof reply->content_range, "bytes */%" PRIu64,
                       found->n_bytes);
        return;
    }
    if (kind == RANGE_NONE) {
        first = 0;
        last = found->n_bytes - 1;
    } else {
        reply->http_code = 206;
        (void)snprintf(reply->content_range, sizeof reply->content_range,
                       "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, first, last, found->n_bytes);
    }
    reply->fd_offset = found->offset + first;
    reply->n_fd_bytes = last - first + 1;
}

void dunlin__server_object_get(dunlin__server *server, const dunlin__server_request *request,
                               dunlin__server_reply *reply)
{
    dunlin__found_object found;
    (void)pthread_mutex_lock(&server->lock);
    bool is_found = dunlin__object_find(server, request->route.sha256, &found);
    if (is_found) {
        /* Opened under the lock: a file that is open stays readable when the model is dropped. */
        reply->fd = open(found.path.text, O_RDONLY | O_CLOEXEC);
    }
    (void)pthread_mutex_unlock(&server->lock);
    char name[DUNLIN_SHA256_HEX_BYTES];
    dunlin__hex_encode(request->route.sha256, DUNLIN_SHA256_BYTES, name);
    if (!is_found || reply->fd < 0) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_NOT_FOUND,
                              "there is no object %.8s... here (any more)", name);
        return;
    }
    reply->is_object = true;
    (void)snprintf(reply->etag, sizeof reply->etag, "\"%s\"", name);
    fill_range(request, &found, reply);
}

/* ---- up ---- */

/* Compares without telling by the time where they differ. */
static bool same_token(const char *a, const char *b)
{
    size_t n = strlen(b);
    if (strlen(a) != n) {
        return false;
    }
    unsigned different = 0;
    for (size_t i = 0; i < n; i++) {
        different |= (unsigned)(unsigned char)a[i] ^ (unsigned)(unsigned char)b[i];
    }
    return different == 0;
}

static bool check_token(dunlin__server *server, const dunlin__server_request *request,
                        dunlin__server_reply *reply)
{
    dunlin__assignment_row assignment;
    (void)pthread_mutex_lock(&server->lock);
    int64_t now_ms = dunlin__server_now(server);
    bool is_found =
        dunlin__server_find_assignment(server, request->route.id, NULL, &assignment, reply);
    bool is_present = is_found && assignment.state == DUNLIN_WORK_OPEN &&
                      dunlin__buffered_takes(server, assignment.round) &&
                      now_ms < assignment.deadline_ms;
    (void)pthread_mutex_unlock(&server->lock);
    if (!is_found) {
        return false;
    }
    if (request->token == NULL || !same_token(request->token, assignment.token)) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_FORBIDDEN,
                              "%s is not the assignment's token", DUNLIN_HEADER_TOKEN);
        return false;
    }
    if (!is_present) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_EXPIRED,
                              "the assignment of round %" PRIu64 " is over", assignment.round);
        return false;
    }
    return true;
}

static dunlin_status find_in_manifest(const uint8_t *bytes, size_t n_bytes,
                                      dunlin__server_upload *upload, bool *out_is_found,
                                      dunlin_error *error)
{
    dunlin__manifest_source source = dunlin__manifest_source_memory(bytes, n_bytes);
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    *out_is_found = false;
    DUNLIN_TRY(dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_UPDATE, error));
    do {
        DUNLIN_TRY(dunlin__manifest_reader_next(&reader, &record, error));
        if (record.item == DUNLIN_MANIFEST_CHUNK &&
            memcmp(record.sha256, upload->sha256, DUNLIN_SHA256_BYTES) == 0) {
            upload->total_bytes = record.n_bytes;
            *out_is_found = true;
            return DUNLIN_OK;
        }
    } while (record.item != DUNLIN_MANIFEST_END);
    return DUNLIN_OK;
}

/* Fills in paths and size of the chunk, and how much of it is there. */
static bool find_chunk(dunlin__server *server, const dunlin__server_request *request,
                       dunlin__server_upload *upload, dunlin__server_reply *reply)
{
    dunlin__server_path folder;
    dunlin__server_path path;
    dunlin_error error = {0};
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    char name[DUNLIN_SHA256_HEX_BYTES];
    bool is_found = false;
    memcpy(upload->sha256, request->route.sha256, DUNLIN_SHA256_BYTES);
    dunlin__hex_encode(upload->sha256, DUNLIN_SHA256_BYTES, name);
    dunlin_status status = dunlin__server_upload_folder(server, request->route.id, &folder, &error);
    if (status == DUNLIN_OK) {
        status = dunlin__server_path_make(&path, &error, "%s/manifest", folder.text);
    }
    if (status == DUNLIN_OK && dunlin__server_file_size(path.text) >= 0) {
        status = dunlin__server_file_read(&server->alloc, path.text, DUNLIN_WIRE_MANIFEST_BYTES,
                                          &bytes, &n_bytes, &error);
        if (status == DUNLIN_OK) {
            status = find_in_manifest(bytes, n_bytes, upload, &is_found, &error);
            dunlin__free_array(&server->alloc, bytes, n_bytes + 1, 1);
        }
    }
    if (status == DUNLIN_OK) {
        status = dunlin__server_path_make(&upload->whole, &error, "%s/%s", folder.text, name);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__server_path_make(&upload->part, &error, "%s/%s.part", folder.text, name);
    }
    if (status != DUNLIN_OK) {
        dunlin__server_refuse_error(reply, &error);
        return false;
    }
    if (!is_found) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_NOT_FOUND,
                              "chunk %.8s... is not in a manifest that was put", name);
        return false;
    }
    int64_t part_bytes = dunlin__server_file_size(upload->part.text);
    upload->offset = part_bytes > 0 ? (uint64_t)part_bytes : 0;
    if (upload->offset >= upload->total_bytes) {
        /* Whole, but never found right: a kill came between. It is sent again. */
        (void)unlink(upload->part.text);
        upload->offset = 0;
    }
    if (dunlin__server_file_size(upload->whole.text) == (int64_t)upload->total_bytes) {
        upload->offset = upload->total_bytes;
    }
    return true;
}

static void tell_offset(dunlin__server_reply *reply, uint64_t offset)
{
    reply->has_upload_offset = true;
    reply->upload_offset = offset;
}

static void refuse_offset(dunlin__server_reply *reply, uint64_t offset)
{
    dunlin__status status = {.code = DUNLIN_V1_STATUS_CODE_WRONG_OFFSET, .upload_offset = offset};
    (void)snprintf(status.text, sizeof status.text, "go on at byte %" PRIu64, offset);
    dunlin__server_refuse_with(reply, &status);
}

void dunlin__server_chunk_head(dunlin__server *server, const dunlin__server_request *request,
                               dunlin__server_reply *reply)
{
    dunlin__server_upload upload = {.fd = -1};
    if (check_token(server, request, reply) && find_chunk(server, request, &upload, reply)) {
        tell_offset(reply, upload.offset);
    }
}

bool dunlin__server_upload_begin(dunlin__server *server, const dunlin__server_request *request,
                                 dunlin__server_upload *upload, dunlin__server_reply *reply)
{
    memset(upload, 0, sizeof *upload);
    upload->fd = -1;
    dunlin__server_reply_clear(reply);
    if (!check_token(server, request, reply) || !find_chunk(server, request, upload, reply)) {
        return false;
    }
    dunlin__chunk_range range = {.n_bytes = upload->total_bytes,
                                 .total_bytes = upload->total_bytes};
    dunlin_error error = {0};
    if (request->content_range != NULL &&
        dunlin__chunk_range_parse(request->content_range, &range, &error) != DUNLIN_OK) {
        dunlin__server_refuse_error(reply, &error);
        return false;
    }
    if (range.total_bytes != upload->total_bytes) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_INVALID,
                              "%s says %" PRIu64 " bytes; the manifest has %" PRIu64
                              " for this chunk",
                              DUNLIN_HEADER_CONTENT_RANGE, range.total_bytes, upload->total_bytes);
        return false;
    }
    if (upload->offset == upload->total_bytes &&
        dunlin__server_file_size(upload->whole.text) >= 0) {
        tell_offset(reply, upload->total_bytes);
        return false;
    }
    if (range.offset != upload->offset) {
        refuse_offset(reply, upload->offset);
        return false;
    }
    upload->end = range.offset + range.n_bytes;
    upload->fd = open(upload->part.text, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (upload->fd < 0) {
        (void)dunlin__file_fail(&error, "making", upload->part.text, errno);
        dunlin__server_refuse_error(reply, &error);
        return false;
    }
    return true;
}

bool dunlin__server_upload_write(dunlin__server_upload *upload, const void *bytes, size_t n_bytes,
                                 dunlin__server_reply *reply)
{
    dunlin_error error = {0};
    if (n_bytes > upload->end - upload->offset) {
        dunlin__server_upload_abort(upload);
        dunlin__server_refuse(
            reply, DUNLIN_V1_STATUS_CODE_TOO_LARGE,
            "the body is longer than the announced range, which ends at byte %" PRIu64,
            upload->end);
        return false;
    }
    if (dunlin__server_write_at(upload->fd, upload->part.text, upload->offset, bytes, n_bytes,
                                &error) != DUNLIN_OK) {
        dunlin__server_upload_abort(upload);
        dunlin__server_refuse_error(reply, &error);
        return false;
    }
    upload->offset += n_bytes;
    return true;
}

/* The hash of what the file holds now, as it may have been written in several turns. */
static dunlin_status hash_part(const dunlin__server_upload *upload,
                               uint8_t out_sha256[DUNLIN_SHA256_BYTES], dunlin_error *error)
{
    uint8_t block[16 * 1024];
    dunlin__sha256 hash;
    DUNLIN_TRY(dunlin__sha256_begin(&hash, error));
    dunlin_status status = DUNLIN_OK;
    uint64_t done = 0;
    while (status == DUNLIN_OK && done < upload->total_bytes) {
        uint64_t left = upload->total_bytes - done;
        size_t n_bytes = left < sizeof block ? (size_t)left : sizeof block;
        status = dunlin__server_read_at(upload->fd, upload->part.text, done, block, n_bytes, error);
        if (status == DUNLIN_OK) {
            status = dunlin__sha256_update(&hash, block, n_bytes, error);
        }
        done += n_bytes;
    }
    if (status == DUNLIN_OK) {
        return dunlin__sha256_end(&hash, out_sha256, error);
    }
    dunlin__sha256_abort(&hash);
    return status;
}

/* All bytes are there: they become the chunk, or nothing. What is acknowledged outlives a loss of
 * power. */
static void finish_chunk(dunlin__server_upload *upload, dunlin__server_reply *reply)
{
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    dunlin_error error = {0};
    struct stat info = {0};
    dunlin_status status = hash_part(upload, sha256, &error);
    if (status == DUNLIN_OK && memcmp(sha256, upload->sha256, DUNLIN_SHA256_BYTES) != 0) {
        (void)unlink(upload->part.text);
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_DIGEST_MISMATCH,
                              "the chunk's bytes do not have its hash; send it again");
        tell_offset(reply, 0);
        return;
    }
    if (status == DUNLIN_OK && fstat(upload->fd, &info) != 0) {
        status = dunlin__file_fail(&error, "looking at", upload->part.text, errno);
    }
    if (status == DUNLIN_OK && info.st_nlink == 0) {
        /* Another connection sent the same chunk at the same time, and is done with it. */
        refuse_offset(reply, 0);
        return;
    }
    if (status == DUNLIN_OK) {
        status =
            dunlin__server_file_settle(upload->fd, upload->part.text, upload->whole.text, &error);
        if (status != DUNLIN_OK && dunlin__server_file_size(upload->whole.text) >= 0) {
            /* The other one was faster by a moment: the chunk has its name. */
            const int code = dunlin__file_sync_folder(upload->whole.text);
            status = code == 0 ? DUNLIN_OK
                               : dunlin__file_fail(&error, "synchronising the folder of",
                                                   upload->whole.text, code);
        }
    }
    if (status != DUNLIN_OK) {
        dunlin__server_refuse_error(reply, &error);
        return;
    }
    tell_offset(reply, upload->total_bytes);
}

void dunlin__server_upload_end(dunlin__server_upload *upload, dunlin__server_reply *reply)
{
    if (upload->offset == upload->total_bytes) {
        finish_chunk(upload, reply);
    } else {
        tell_offset(reply, upload->offset);
    }
    dunlin__server_upload_abort(upload);
}

void dunlin__server_upload_abort(dunlin__server_upload *upload)
{
    if (upload->fd >= 0) {
        (void)close(upload->fd);
        upload->fd = -1;
    }
}
