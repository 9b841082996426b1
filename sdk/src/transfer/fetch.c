/*
 * fetch.c - the base of a round, or the model that a run has left.
 *
 * Invariant: whichever way the base comes, each of its bytes is verified by the hashes of its own
 * manifest before it is used.
 */
#include "fetch.h"

#include "context/client_context.h"
#include "fetch_object.h"
#include "fetch_packed.h"
#include "store/files.h"
#include "weights/app_model_keep.h"
#include "weights/base_weights.h"
#include "weights/scaffold.h"
#include "weights/tensor_table.h"

#include <wire/digest.h>
#include <wire/tensor_stream.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

dunlin_status dunlin__fetch_check_room(dunlin_client *client, const char *folder,
                                       uint64_t download_bytes, uint64_t storage_bytes,
                                       dunlin__fault *out_fault)
{
    if (download_bytes > client->options.max_download_bytes) {
        *out_fault = dunlin__fault_of(DUNLIN_LIMIT);
        return dunlin__fail(&client->error, DUNLIN_LIMIT, "fetch", 0,
                            "the base has %llu bytes; this client takes at most %llu a round",
                            (unsigned long long)download_bytes,
                            (unsigned long long)client->options.max_download_bytes);
    }
    uint64_t room = 0;
    DUNLIN_TRY(dunlin__folder_room(folder, &room, &client->error));
    if (room < storage_bytes) {
        *out_fault = dunlin__fault_of(DUNLIN_SPACE);
        return dunlin__fail(&client->error, DUNLIN_SPACE, "fetch", 0,
                            "the round needs %llu bytes of storage, %llu are free",
                            (unsigned long long)storage_bytes, (unsigned long long)room);
    }
    return DUNLIN_OK;
}

/* What is missing of the base, an update as large, and what is kept of the round beside it. */
static uint64_t storage_of(const fetched *what, uint64_t total_bytes, uint64_t have_bytes)
{
    const uint64_t missing = total_bytes > have_bytes ? total_bytes - have_bytes : 0;
    const uint64_t kept =
        (what->has_control ? total_bytes / 2 : 0) + (what->has_left ? total_bytes : 0);
    return missing + SPARE_BYTES + (what->is_of_round ? total_bytes + kept : 0);
}

/* The packed form first, if there is one; then whatever is not there yet. */
static dunlin_status fetch_values(dunlin_client *client, const fetched *what,
                                  const dunlin__manifest_source *source, int base_fd,
                                  uint64_t total_bytes, bool *out_has_packed,
                                  dunlin__fault *out_fault)
{
    const uint64_t n_there = dunlin__object_length(base_fd);
    const dunlin__packed_target target = {.folder = what->folder,
                                          .manifest = source,
                                          .fd = base_fd,
                                          .beside_bytes = storage_of(what, total_bytes, n_there)};
    if (what->is_of_round) {
        DUNLIN_TRY(dunlin__fetch_packed(client, &target, out_has_packed, out_fault));
    }
    const uint64_t n_here = dunlin__object_length(base_fd);
    const uint64_t n_missing = total_bytes > n_here ? total_bytes - n_here : 0;
    DUNLIN_TRY(dunlin__fetch_check_room(
        client, what->folder, client->round->assignment.has_packed_base ? n_missing : total_bytes,
        storage_of(what, total_bytes, n_here), out_fault));
    return dunlin__object_fetch_chunks(client, source, base_fd, total_bytes, out_fault);
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
    const dunlin__fetched_object object = {.folder = what->folder,
                                           .name = "base",
                                           .manifest_sha256 = what->manifest_sha256,
                                           .manifest_bytes = what->manifest_bytes,
                                           .is_of_round = what->is_of_round};
    bool has_packed = false;
    DUNLIN_TRY(dunlin__object_fetch_manifest(client, &object, manifest_fd, out_fault));
    dunlin__manifest_source source = dunlin__base_manifest(what->manifest_bytes, manifest_fd);
    dunlin__manifest_summary summary;
    char path[DUNLIN_FILE_PATH_BYTES];
    *out_fault = dunlin__fault_of(DUNLIN_PROTOCOL);
    DUNLIN_TRY(dunlin__manifest_check_all(&source, DUNLIN_MANIFEST_BASE, &summary, &client->error));
    DUNLIN_TRY(dunlin__file_path(what->folder, "base.bin", path, &client->error));
    DUNLIN_TRY(dunlin__file_open(path, base_fd, &client->error));
    DUNLIN_TRY(
        fetch_values(client, what, &source, *base_fd, summary.total_bytes, &has_packed, out_fault));
    *out_fault = dunlin__fault_of(DUNLIN_NUMERIC);
    DUNLIN_TRY(check_finite(client, &source, DUNLIN_STREAM_WEIGHTS, *base_fd));
    if (what->has_control) {
        DUNLIN_TRY(check_finite(client, &source, DUNLIN_STREAM_CONTROL, *base_fd));
    }
    dunlin__fetch_packed_clear(what->folder, has_packed && client->keeps_model);
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
