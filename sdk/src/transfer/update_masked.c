/*
 * update_masked.c - the update of a round with secure aggregation.
 *
 * Invariant: once there is a manifest, the masked bytes are final, and the unmasked ones are about
 * to go; without one nothing masked is ever sent.
 */
#include "update_masked.h"

#include "store/files.h"
#include "submit.h"
#include "weights/stream_file.h"

#include <wire/fixed_point.h>
#include <wire/secagg_noise.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WHOLE_NAME "update.whole"
#define BLOCK DUNLIN_SECAGG_BLOCK
/* Each roundings are too long with a chance of at most 2^-8. */
#define ROUNDING_TRIES 32

/* ---- whole numbers ---- */

/* What the device counts for, at least 1. */
static uint32_t weight_of(const dunlin_client *client)
{
    const dunlin__training_plan *plan = &client->round->assignment.plan;
    const uint64_t n = client->journal.n_examples > 1 ? (uint64_t)client->journal.n_examples : 1;
    const uint64_t most =
        plan->weight_cap < plan->secagg.weight_limit ? plan->weight_cap : plan->secagg.weight_limit;
    return (uint32_t)(n < most ? n : most);
}

typedef struct whole_file {
    const dunlin__update_whole *of;
    dunlin__fixed_point fixed;
    dunlin__secagg_noise noise; /* of version 2 of the terms */
    bool has_noise;
    bool is_measured; /* numbers are counted and not written */
    int fd;
    uint64_t n_written; /* elements */
    float *values;      /* BLOCK */
    uint32_t *elements; /* as many */
} whole_file;

static dunlin_status write_tensor(whole_file *file, int32_t index)
{
    dunlin_client *client = file->of->values->client;
    const int64_t n_elements = client->round->tensors[index].n_elements;
    for (int64_t first = 0; first < n_elements;) {
        const int64_t left = n_elements - first;
        const int64_t n = left < (int64_t)BLOCK ? left : (int64_t)BLOCK;
        DUNLIN_TRY(
            dunlin__clip_read(file->of->clip, file->of->values, index, first, n, file->values));
        DUNLIN_TRY(dunlin__fixed_point_next(&file->fixed, file->values, (size_t)n, file->elements,
                                            &client->error));
        first += n;
        if (file->is_measured) {
            continue;
        }
        if (file->has_noise) {
            DUNLIN_TRY(
                dunlin__secagg_noise_add(&file->noise, file->elements, (size_t)n, &client->error));
        }
        DUNLIN_TRY(dunlin__file_write(file->fd, file->elements, (size_t)n * sizeof(uint32_t),
                                      file->n_written * sizeof(uint32_t), &client->error));
        file->n_written += (uint64_t)n;
    }
    return DUNLIN_OK;
}

static dunlin_status write_tensors(whole_file *file, int32_t n_tensors)
{
    for (int32_t i = 0; i < n_tensors; i++) {
        DUNLIN_TRY(write_tensor(file, file->of->base_index[i]));
    }
    return DUNLIN_OK;
}

/* Draws roundings until the whole numbers are no longer than the clip, and keeps those: what is
 * written is written with noise, so the numbers without it are nowhere but in memory. */
static dunlin_status settle_roundings(whole_file *file, uint32_t weight, int32_t n_tensors)
{
    dunlin_client *client = file->of->values->client;
    const dunlin__secagg_plan *plan = &client->round->assignment.plan.secagg;
    file->is_measured = true;
    for (int i = 0; i < ROUNDING_TRIES; i++) {
        dunlin__fixed_point_end(&file->fixed);
        DUNLIN_TRY(dunlin__fixed_point_begin(plan, weight, &file->fixed, &client->error));
        DUNLIN_TRY(write_tensors(file, n_tensors));
        if (dunlin__fixed_point_is_within(&file->fixed, plan)) {
            file->is_measured = false;
            return dunlin__fixed_point_again(&file->fixed, &client->error);
        }
    }
    return dunlin__fail(&client->error, DUNLIN_NUMERIC, "update", 0,
                        "the update is longer than value_limit %" PRIu32 " in each of %d roundings",
                        plan->value_limit, ROUNDING_TRIES);
}

static dunlin_status write_rounded(whole_file *file, uint32_t weight, int32_t n_tensors)
{
    dunlin_client *client = file->of->values->client;
    const dunlin__secagg_plan *plan = &client->round->assignment.plan.secagg;
    if (!file->has_noise) {
        DUNLIN_TRY(dunlin__fixed_point_begin(plan, weight, &file->fixed, &client->error));
        return write_tensors(file, n_tensors);
    }
    DUNLIN_TRY(settle_roundings(file, weight, n_tensors));
    DUNLIN_TRY(dunlin__secagg_noise_begin(plan, &file->noise, &client->error));
    return write_tensors(file, n_tensors);
}

static dunlin_status write_elements(whole_file *file, int32_t n_tensors)
{
    dunlin_client *client = file->of->values->client;
    const uint32_t weight = weight_of(client);
    const dunlin_status status = write_rounded(file, weight, n_tensors);
    dunlin__fixed_point_end(&file->fixed);
    dunlin__secagg_noise_end(&file->noise);
    dunlin__wipe(file->elements, BLOCK * sizeof file->elements[0]);
    DUNLIN_TRY(status);
    DUNLIN_TRY(dunlin__file_write(file->fd, &weight, sizeof weight,
                                  file->n_written * sizeof(uint32_t), &client->error));
    return dunlin__file_sync(file->fd, client->round->folder, &client->error);
}

static dunlin_status write_whole(whole_file *file, int32_t n_tensors)
{
    dunlin_client *client = file->of->values->client;
    const dunlin_alloc *alloc = &client->runtime->alloc;
    char path[DUNLIN_FILE_PATH_BYTES];
    DUNLIN_TRY(dunlin__file_path(client->round->folder, WHOLE_NAME, path, &client->error));
    DUNLIN_TRY(dunlin__file_open(path, &file->fd, &client->error));
    file->values = dunlin__alloc_array(alloc, BLOCK, sizeof file->values[0]);
    file->elements = dunlin__alloc_array(alloc, BLOCK, sizeof file->elements[0]);
    dunlin_status status = file->values != NULL && file->elements != NULL
                               ? write_elements(file, n_tensors)
                               : dunlin__fail(&client->error, DUNLIN_MEMORY, "update", 0,
                                              "no memory for a block of %u values", BLOCK);
    dunlin__free_array(alloc, file->values, BLOCK, sizeof file->values[0]);
    dunlin__free_array(alloc, file->elements, BLOCK, sizeof file->elements[0]);
    (void)close(file->fd);
    return status;
}

dunlin_status dunlin__update_whole_write(const dunlin__update_whole *whole)
{
    dunlin_client *client = whole->values->client;
    const dunlin__round *round = client->round;
    const dunlin__secagg_plan *plan = &round->assignment.plan.secagg;
    const uint64_t n_bytes = dunlin__ring_bytes(dunlin__secagg_elements(plan), plan->ring_bits);
    uint64_t total_bytes = 0;
    const int32_t n_tensors =
        dunlin__update_choose(round, true, true, whole->base_index, &total_bytes);
    for (int32_t i = 0; i < n_tensors; i++) {
        const dunlin_weights_tensor *tensor = &round->tensors[whole->base_index[i]];
        if (tensor->aggregation == DUNLIN_AGGREGATE_STATISTIC) {
            return dunlin__fail(&client->error, DUNLIN_UNSUPPORTED, "update", 0,
                                "tensor %.100s is a running statistic, which is not aggregated "
                                "securely",
                                tensor->name);
        }
    }
    if (total_bytes / sizeof(float) != plan->n_values) {
        return dunlin__fail(&client->error, DUNLIN_MISMATCH, "update", 0,
                            "the update has %" PRIu64 " values, the secure aggregation %" PRIu64,
                            total_bytes / (uint64_t)sizeof(float), plan->n_values);
    }
    if (n_bytes > client->options.max_upload_bytes) {
        return dunlin__fail(&client->error, DUNLIN_LIMIT, "update", 0,
                            "the masked update has %" PRIu64 " bytes; this client sends at most "
                            "%" PRIu64 " a round",
                            n_bytes, client->options.max_upload_bytes);
    }
    whole_file file = {.of = whole, .fd = -1, .has_noise = plan->version >= 2};
    return write_whole(&file, n_tensors);
}

/* ---- masked ---- */

bool dunlin__update_is_masked(dunlin_client *client)
{
    char path[DUNLIN_FILE_PATH_BYTES];
    dunlin_error ignored = {0};
    int fd = -1;
    uint8_t first = 0;
    if (dunlin__file_path(client->round->folder, "update.manifest", path, &ignored) != DUNLIN_OK ||
        dunlin__file_open_there(path, &fd, &ignored) != DUNLIN_OK) {
        return false;
    }
    const bool is_there = dunlin__file_read(fd, &first, 1, 0, &ignored) == DUNLIN_OK;
    (void)close(fd);
    return is_there;
}

static dunlin_status write_records(dunlin__stream_file *file, const dunlin__training_plan *plan)
{
    dunlin_client *client = file->client;
    const uint64_t n_elements = dunlin__secagg_elements(&plan->secagg);
    const dunlin_shape shape = {.n_dims = 1, .dims = {(int64_t)n_elements}};
    dunlin__stream stream = {.encoding = DUNLIN_V1_ENCODING_MASKED_RING,
                             .ring_bits = plan->secagg.ring_bits,
                             .total_bytes = dunlin__ring_bytes(n_elements, plan->secagg.ring_bits),
                             .chunk_bytes = plan->chunk_bytes,
                             .n_tensors = 1};
    dunlin__tensor_entry entry;
    (void)snprintf(stream.name, sizeof stream.name, "%s", DUNLIN_STREAM_UPDATE);
    stream.n_chunks = (uint32_t)dunlin__chunk_count(stream.total_bytes, stream.chunk_bytes);
    DUNLIN_TRY(dunlin__stream_file_stream(file, &stream));
    DUNLIN_TRY(dunlin__tensor_entry_make(DUNLIN_SECAGG_TENSOR, &shape, DUNLIN_V1_RULE_AVERAGE,
                                         &entry, &client->error));
    entry.stored_bytes = stream.total_bytes;
    return dunlin__stream_file_tensor(file, &entry);
}

/* Block by block: what was read becomes masked and packed in its place. */
static dunlin_status mask_blocks(dunlin__stream_chunks *chunks, dunlin__secagg_client *session,
                                 int fd, uint32_t *block)
{
    dunlin_client *client = chunks->file->client;
    const dunlin__secagg_plan *plan = &client->round->assignment.plan.secagg;
    const uint64_t n_elements = dunlin__secagg_elements(plan);
    for (uint64_t at = 0; at < n_elements; at += BLOCK) {
        const size_t n = n_elements - at < BLOCK ? (size_t)(n_elements - at) : BLOCK;
        DUNLIN_TRY(dunlin__file_read(fd, block, n * sizeof block[0], at * sizeof block[0],
                                     &client->error));
        DUNLIN_TRY(dunlin__secagg_client_mask(session, block, n, (uint8_t *)block, &client->error));
        DUNLIN_TRY(dunlin__stream_chunks_write(
            chunks, block, (size_t)dunlin__ring_bytes(n, plan->ring_bits), &client->error));
    }
    return DUNLIN_OK;
}

static dunlin_status write_masked(dunlin__stream_file *file, dunlin__secagg_client *session, int fd)
{
    dunlin_client *client = file->client;
    const dunlin__training_plan *plan = &client->round->assignment.plan;
    dunlin__stream_chunks chunks;
    DUNLIN_TRY(dunlin__stream_file_begin(file, client, client->round->folder, "update",
                                         DUNLIN_MANIFEST_UPDATE));
    DUNLIN_TRY(write_records(file, plan));
    uint32_t *block = dunlin__alloc_array(&client->runtime->alloc, BLOCK, sizeof block[0]);
    if (block == NULL) {
        return dunlin__fail(&client->error, DUNLIN_MEMORY, "update", 0,
                            "no memory for a block of %u elements", BLOCK);
    }
    dunlin__stream_chunks_begin(&chunks, file, plan->chunk_bytes);
    const dunlin_status status =
        dunlin__stream_chunks_end(&chunks, mask_blocks(&chunks, session, fd, block));
    dunlin__wipe(block, BLOCK * sizeof block[0]);
    dunlin__free_array(&client->runtime->alloc, block, BLOCK, sizeof block[0]);
    return status == DUNLIN_OK ? dunlin__stream_file_end(file) : status;
}

dunlin_status dunlin__update_mask(dunlin_client *client, dunlin__secagg_client *session)
{
    char path[DUNLIN_FILE_PATH_BYTES];
    dunlin__stream_file file = {.client = client, .fd = -1, .manifest_fd = -1};
    int fd = -1;
    DUNLIN_TRY(dunlin__file_path(client->round->folder, WHOLE_NAME, path, &client->error));
    DUNLIN_TRY(dunlin__file_open_there(path, &fd, &client->error));
    const dunlin_status status = write_masked(&file, session, fd);
    dunlin__stream_file_close(&file);
    (void)close(fd);
    DUNLIN_TRY(status);
    (void)unlink(path);
    DUNLIN_TRY(dunlin__update_read_manifest(client));
    return dunlin__secagg_client_mask_end(session, client->round->manifest_sha256, &client->error);
}
