/*
 * fetch_packed.c - packed bytes down, and the base out of them.
 *
 * Invariant: packed bytes are verified by the hashes of their manifest whichever way they came, and
 * the values that they decode to by those of the base's; so a delta from the wrong base, or
 * arithmetic that is not the server's, costs bytes and nothing else.
 */
#include "fetch_packed.h"

#include "fetch.h"
#include "fetch_object.h"
#include "store/app_model_files.h"
#include "store/files.h"
#include "weights/app_model_keep.h"
#include "weights/base_weights.h"
#include "weights/tensor_table.h"

#include <wire/delta.h>

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* A file, read or written in order. */
typedef struct in_order {
    int fd;
    uint64_t offset;
} in_order;

static dunlin_status read_in_order(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error)
{
    in_order *file = ctx;
    DUNLIN_TRY(dunlin__file_read(file->fd, buffer, n_bytes, file->offset, error));
    file->offset += n_bytes;
    return DUNLIN_OK;
}

static dunlin_status write_in_order(void *ctx, const void *data, size_t n_bytes,
                                    dunlin_error *error)
{
    in_order *file = ctx;
    DUNLIN_TRY(dunlin__file_write(file->fd, data, n_bytes, file->offset, error));
    file->offset += n_bytes;
    return DUNLIN_OK;
}

static dunlin_status empty_file(dunlin_client *client, int fd)
{
    return ftruncate(fd, 0) == 0 ? DUNLIN_OK
                                 : dunlin__fail(&client->error, DUNLIN_IO, "fetch", errno,
                                                "the base's file cannot be emptied");
}

/* A packed base on its way. */
typedef struct packed_job {
    dunlin_client *client;
    const dunlin__packed_target *target;
    int manifest_fd;
    int fd;           /* of packed.bin */
    int delta_fds[2]; /* manifest, bytes */
    int kept_fd;
    dunlin__manifest_source manifest;
    dunlin__manifest_summary summary;
    dunlin__fault *fault;
} packed_job;

static const dunlin_v1_packed_base_t *packed_base(const packed_job *job)
{
    return &job->client->round->assignment.packed_base;
}

/* Another way of fetching may help: the bytes are at fault, not the network or the storage. */
static bool is_of_bytes(dunlin_status status, const dunlin__fault *fault)
{
    return fault->is_permanent && fault->is_closed == fault->is_gone && !fault->is_unknown_device &&
           status != DUNLIN_STOPPED;
}

/* Both streams of weights, each at its first tensor; what is no packed form of the base is refused
 * before its bytes are fetched. */
static dunlin_status find_streams(const packed_job *job, dunlin__manifest_reader *out_packed,
                                  dunlin__stream *out_stream, dunlin__base_stream *out_base)
{
    dunlin_client *client = job->client;
    DUNLIN_TRY(
        dunlin__base_find(job->target->manifest, DUNLIN_STREAM_WEIGHTS, out_base, &client->error));
    DUNLIN_TRY(dunlin__manifest_reader_begin(out_packed, &job->manifest, DUNLIN_MANIFEST_BASE,
                                             &client->error));
    DUNLIN_TRY(dunlin__manifest_reader_find(out_packed, DUNLIN_STREAM_WEIGHTS, out_stream,
                                            &client->error));
    if (out_stream->encoding != DUNLIN_V1_ENCODING_PACKED || job->summary.n_streams != 1 ||
        out_stream->n_tensors != out_base->stream.n_tensors) {
        return dunlin__fail(&client->error, DUNLIN_MISMATCH, "fetch", 0,
                            "the packed base is %s of %u tensors in %u streams; wanted is PACKED "
                            "of %u in one",
                            dunlin__encoding_name(out_stream->encoding), out_stream->n_tensors,
                            job->summary.n_streams, out_base->stream.n_tensors);
    }
    return DUNLIN_OK;
}

/* ---- the delta ---- */

/* Opens the packed base that is kept beside the app's model, if it is what the delta goes from. */
static bool open_kept(packed_job *job)
{
    char model[DUNLIN_FILE_PATH_BYTES];
    char path[DUNLIN_FILE_PATH_BYTES];
    dunlin__app_model_head head = {0};
    dunlin_error ignored = {0};
    const dunlin_v1_packed_base_t *base = packed_base(job);
    return job->client->keeps_model && base->from_sha256.size == DUNLIN_SHA256_BYTES &&
           dunlin__client_model_folder(job->client, model, &ignored) == DUNLIN_OK &&
           dunlin__app_model_head_read(model, &head, &ignored) == DUNLIN_OK &&
           memcmp(head.manifest_sha256, base->from_sha256.bytes, DUNLIN_SHA256_BYTES) == 0 &&
           dunlin__app_model_path(model, head.manifest_sha256, DUNLIN_APP_MODEL_PACKED, path,
                                  &ignored) == DUNLIN_OK &&
           access(path, F_OK) == 0 &&
           dunlin__file_open_there(path, &job->kept_fd, &ignored) == DUNLIN_OK &&
           dunlin__object_length(job->kept_fd) == job->summary.total_bytes;
}

static dunlin_status fetch_delta_object(packed_job *job, uint64_t *out_bytes)
{
    dunlin_client *client = job->client;
    const dunlin_v1_packed_base_t *base = packed_base(job);
    const dunlin__fetched_object what = {.folder = job->target->folder,
                                         .name = DUNLIN_FETCH_DELTA,
                                         .manifest_sha256 = base->delta_manifest_sha256.bytes,
                                         .manifest_bytes = base->delta_manifest_bytes,
                                         .is_of_round = true};
    dunlin__manifest_summary summary;
    dunlin__stream stream;
    dunlin__manifest_reader reader;
    char path[DUNLIN_FILE_PATH_BYTES];
    DUNLIN_TRY(dunlin__object_fetch_manifest(client, &what, &job->delta_fds[0], job->fault));
    const dunlin__manifest_source source =
        dunlin__base_manifest(what.manifest_bytes, &job->delta_fds[0]);
    *job->fault = dunlin__fault_of(DUNLIN_PROTOCOL);
    DUNLIN_TRY(dunlin__manifest_check_all(&source, DUNLIN_MANIFEST_BASE, &summary, &client->error));
    DUNLIN_TRY(
        dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_BASE, &client->error));
    DUNLIN_TRY(dunlin__manifest_reader_find(&reader, DUNLIN_STREAM_DELTA, &stream, &client->error));
    if (summary.n_streams != 1 || summary.total_bytes > job->summary.total_bytes) {
        return dunlin__fail(&client->error, DUNLIN_MISMATCH, "fetch", 0,
                            "the delta has %u streams and %" PRIu64 " bytes; the packed base has "
                            "%" PRIu64,
                            summary.n_streams, summary.total_bytes, job->summary.total_bytes);
    }
    *out_bytes = summary.total_bytes;
    DUNLIN_TRY(dunlin__fault_judge(
        dunlin__file_path(what.folder, DUNLIN_FETCH_DELTA ".bin", path, &client->error),
        job->fault));
    DUNLIN_TRY(dunlin__fault_judge(dunlin__file_open(path, &job->delta_fds[1], &client->error),
                                   job->fault));
    return dunlin__object_fetch_chunks(client, &source, job->delta_fds[1], summary.total_bytes,
                                       job->fault);
}

static dunlin_status apply_delta(packed_job *job)
{
    dunlin_client *client = job->client;
    uint64_t n_bytes = 0;
    DUNLIN_TRY(fetch_delta_object(job, &n_bytes));
    in_order kept = {.fd = job->kept_fd};
    in_order delta = {.fd = job->delta_fds[1]};
    in_order to = {.fd = job->fd};
    const dunlin__unpack_source from = {.ctx = &kept, .read_fn = read_in_order};
    const dunlin__unpack_source bytes = {.ctx = &delta, .read_fn = read_in_order};
    const dunlin__pack_sink sink = {.ctx = &to, .write_fn = write_in_order};
    DUNLIN_TRY(dunlin__fault_judge(empty_file(client, job->fd), job->fault));
    return dunlin__fault_judge(dunlin__delta_read(job->summary.total_bytes, &from, &bytes, n_bytes,
                                                  &sink, &client->runtime->alloc, &client->error),
                               job->fault);
}

/* A delta that is of no use is not tried again: what it would go from is removed. */
static void drop_kept(const packed_job *job)
{
    char model[DUNLIN_FILE_PATH_BYTES];
    char path[DUNLIN_FILE_PATH_BYTES];
    if (dunlin__client_model_folder(job->client, model, NULL) == DUNLIN_OK &&
        dunlin__app_model_path(model, packed_base(job)->from_sha256.bytes, DUNLIN_APP_MODEL_PACKED,
                               path, NULL) == DUNLIN_OK) {
        (void)unlink(path);
    }
}

/* Fills packed.bin from a delta, if there is one for this device. */
static dunlin_status try_delta(packed_job *job)
{
    dunlin_client *client = job->client;
    if (dunlin__object_length(job->fd) >= job->summary.total_bytes || !open_kept(job)) {
        return DUNLIN_OK;
    }
    dunlin_status status = apply_delta(job);
    dunlin_error why = client->error;
    if (status == DUNLIN_OK) {
        status = dunlin__chunks_verify(&job->manifest, job->fd, "packed.bin", &why);
        *job->fault = dunlin__fault_of(DUNLIN_PROTOCOL);
    }
    if (status == DUNLIN_OK || !is_of_bytes(status, job->fault)) {
        return status;
    }
    dunlin__log(&client->runtime->log, DUNLIN_LOG_WARNING, "client",
                "the delta of the base cannot be used, it is fetched whole: %s", why.text);
    dunlin__error_clear(&client->error);
    drop_kept(job);
    return dunlin__fault_judge(empty_file(client, job->fd), job->fault);
}

/* ---- decoding ---- */

/* One tensor of the packed stream, which is to be that of the base. */
static dunlin_status check_tensor(packed_job *job, const dunlin__tensor_entry *packed,
                                  const dunlin__tensor_entry *wanted)
{
    if (strcmp(packed->name, wanted->name) != 0 || packed->rule != wanted->rule ||
        packed->dims_count != wanted->dims_count ||
        memcmp(packed->dims, wanted->dims, packed->dims_count * sizeof packed->dims[0]) != 0) {
        return dunlin__fail(&job->client->error, DUNLIN_MISMATCH, "fetch", 0,
                            "the packed base has tensor \"%.80s\" where the base has \"%.80s\", or "
                            "another shape or rule",
                            packed->name, wanted->name);
    }
    return DUNLIN_OK;
}

static dunlin_status decode_tensor(packed_job *job, dunlin__tensor_unpacker *unpacker,
                                   const dunlin__manifest_record *packed, in_order *to)
{
    dunlin_error *error = &job->client->error;
    const float *values = NULL;
    size_t n_values = 0;
    uint64_t n_elements = 0;
    /* Only what is averaged is packed. */
    const dunlin_v1_rule_t rule = packed->tensor.rule == DUNLIN_V1_RULE_AVERAGE
                                      ? DUNLIN_V1_RULE_AVERAGE
                                      : DUNLIN_V1_RULE_STATISTIC;
    DUNLIN_TRY(dunlin__tensor_entry_count(&packed->tensor, &n_elements, error));
    DUNLIN_TRY(dunlin__tensor_unpacker_tensor(unpacker, packed->index, rule, n_elements,
                                              packed->n_bytes, error));
    do {
        DUNLIN_TRY(dunlin__tensor_unpacker_next(unpacker, &values, &n_values, error));
        DUNLIN_TRY(write_in_order(to, values, n_values * sizeof(float), error));
    } while (n_values > 0);
    return DUNLIN_OK;
}

static dunlin_status decode_all(packed_job *job, dunlin__manifest_reader *packed,
                                dunlin__base_stream *base, dunlin__tensor_unpacker *unpacker)
{
    dunlin_error *error = &job->client->error;
    in_order to = {.fd = job->target->fd, .offset = base->offset};
    dunlin__manifest_record record;
    dunlin__manifest_record wanted;
    for (uint32_t i = 0; i < base->stream.n_tensors; i++) {
        DUNLIN_TRY(dunlin__manifest_reader_next(packed, &record, error));
        DUNLIN_TRY(dunlin__manifest_reader_next(&base->reader, &wanted, error));
        DUNLIN_TRY(check_tensor(job, &record.tensor, &wanted.tensor));
        DUNLIN_TRY(decode_tensor(job, unpacker, &record, &to));
    }
    return DUNLIN_OK;
}

/* The values that came out must be the base's to the bit. */
static dunlin_status verify_values(packed_job *job, const dunlin__base_stream *base)
{
    dunlin__manifest_reader reader = base->reader; /* at the stream's chunks */
    dunlin__manifest_record record;
    for (uint32_t i = 0; i < base->stream.n_chunks; i++) {
        DUNLIN_TRY(dunlin__manifest_reader_next(&reader, &record, &job->client->error));
        if (!dunlin__file_matches(job->target->fd, base->offset + record.offset, record.n_bytes,
                                  record.sha256)) {
            return dunlin__fail(&job->client->error, DUNLIN_MISMATCH, "fetch", 0,
                                "the packed base decodes to other values than the base has in "
                                "chunk %u",
                                record.chunk_index);
        }
    }
    return DUNLIN_OK;
}

static dunlin_status decode(packed_job *job, bool *out_is_kept)
{
    dunlin_client *client = job->client;
    dunlin__manifest_reader packed;
    dunlin__stream stream;
    dunlin__base_stream base = {0};
    dunlin__tensor_unpacker *unpacker = NULL;
    in_order bytes = {.fd = job->fd};
    const dunlin__unpack_source source = {.ctx = &bytes, .read_fn = read_in_order};
    DUNLIN_TRY(find_streams(job, &packed, &stream, &base));
    DUNLIN_TRY(dunlin__tensor_unpacker_open(&stream.packing, &source, &client->runtime->alloc,
                                            &unpacker, &client->error));
    dunlin_status status = decode_all(job, &packed, &base, unpacker);
    dunlin__tensor_unpacker_close(unpacker);
    *out_is_kept = !stream.packing.is_entropy_coded; /* whose places move: no delta goes from it */
    return status == DUNLIN_OK ? verify_values(job, &base) : status;
}

/* ---- the whole ---- */

static dunlin_status fetch_bytes(packed_job *job)
{
    dunlin_client *client = job->client;
    const dunlin__fetched_object what = {.folder = job->target->folder,
                                         .name = DUNLIN_FETCH_PACKED,
                                         .manifest_sha256 = packed_base(job)->manifest_sha256,
                                         .manifest_bytes = packed_base(job)->manifest_bytes,
                                         .is_of_round = true};
    dunlin__manifest_reader packed;
    dunlin__stream stream;
    dunlin__base_stream base = {0};
    char path[DUNLIN_FILE_PATH_BYTES];
    DUNLIN_TRY(dunlin__object_fetch_manifest(client, &what, &job->manifest_fd, job->fault));
    job->manifest = dunlin__base_manifest(what.manifest_bytes, &job->manifest_fd);
    *job->fault = dunlin__fault_of(DUNLIN_PROTOCOL);
    DUNLIN_TRY(dunlin__manifest_check_all(&job->manifest, DUNLIN_MANIFEST_BASE, &job->summary,
                                          &client->error));
    DUNLIN_TRY(find_streams(job, &packed, &stream, &base));
    *job->fault = dunlin__fault_of(DUNLIN_IO);
    DUNLIN_TRY(dunlin__file_path(what.folder, DUNLIN_FETCH_PACKED ".bin", path, &client->error));
    DUNLIN_TRY(dunlin__file_open(path, &job->fd, &client->error));
    const uint64_t n_there = dunlin__object_length(job->fd);
    const uint64_t total = job->summary.total_bytes;
    DUNLIN_TRY(dunlin__fetch_check_room(
        client, what.folder, total,
        (n_there < total ? total - n_there : 0) + job->target->beside_bytes, job->fault));
    DUNLIN_TRY(try_delta(job));
    return dunlin__object_fetch_chunks(client, &job->manifest, job->fd, total, job->fault);
}

static dunlin_status fetch_and_decode(packed_job *job, bool *out_is_kept)
{
    DUNLIN_TRY(fetch_bytes(job));
    DUNLIN_TRY(dunlin__fault_judge(empty_file(job->client, job->target->fd), job->fault));
    return dunlin__fault_judge(decode(job, out_is_kept), job->fault);
}

static void close_job(packed_job *job)
{
    const int fds[] = {job->manifest_fd, job->fd, job->delta_fds[0], job->delta_fds[1],
                       job->kept_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
}

/* True if the stream of weights is there already, as far as its length tells. */
static bool is_there(const dunlin__packed_target *target)
{
    dunlin__base_stream base = {0};
    dunlin_error ignored = {0};
    return dunlin__base_find(target->manifest, DUNLIN_STREAM_WEIGHTS, &base, &ignored) !=
               DUNLIN_OK ||
           dunlin__object_length(target->fd) >= base.offset + base.stream.total_bytes;
}

dunlin_status dunlin__fetch_packed(dunlin_client *client, const dunlin__packed_target *target,
                                   bool *out_is_kept, dunlin__fault *out_fault)
{
    packed_job job = {.client = client,
                      .target = target,
                      .manifest_fd = -1,
                      .fd = -1,
                      .delta_fds = {-1, -1},
                      .kept_fd = -1,
                      .fault = out_fault};
    *out_is_kept = false;
    if (!client->round->assignment.has_packed_base || is_there(target)) {
        return DUNLIN_OK;
    }
    const dunlin_status status = fetch_and_decode(&job, out_is_kept);
    close_job(&job);
    if (status == DUNLIN_OK || !is_of_bytes(status, out_fault)) {
        return status;
    }
    *out_is_kept = false;
    dunlin__log(&client->runtime->log, DUNLIN_LOG_WARNING, "client",
                "the packed base cannot be used, the base is fetched as float32: %s",
                client->error.text);
    dunlin__error_clear(&client->error);
    dunlin__fetch_packed_clear(target->folder, false);
    return dunlin__fault_judge(empty_file(client, target->fd), out_fault);
}

void dunlin__fetch_packed_clear(const char *folder, bool keeps_packed)
{
    static const char *const names[] = {
        DUNLIN_FETCH_PACKED ".manifest", DUNLIN_FETCH_PACKED ".manifest.part",
        DUNLIN_FETCH_DELTA ".manifest",  DUNLIN_FETCH_DELTA ".manifest.part",
        DUNLIN_FETCH_DELTA ".bin",       DUNLIN_FETCH_PACKED ".bin"};
    const size_t n_names = sizeof names / sizeof names[0] - (keeps_packed ? 1 : 0);
    char path[DUNLIN_FILE_PATH_BYTES];
    for (size_t i = 0; i < n_names; i++) {
        if (dunlin__file_path(folder, names[i], path, NULL) == DUNLIN_OK) {
            (void)unlink(path);
        }
    }
}
