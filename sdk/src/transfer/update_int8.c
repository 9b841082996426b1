/*
 * update_int8.c - writes whole weights of int8.
 *
 * Invariant: every value that goes up is decoded to the learner's own, bit for bit.
 */
#include "update_int8.h"

#include <wire/int8.h>

#include <inttypes.h>
#include <stdio.h>

static const dunlin_weights_tensor *tensor_of(const dunlin__update_int8 *update, int32_t index)
{
    return &update->values->client->round->tensors[update->base_index[index]];
}

/* The next block of a tensor from `first` on; its values are in `block`. */
static dunlin_status read_block(const dunlin__update_int8 *update, int32_t index, int64_t first,
                                float *block, int64_t *out_n)
{
    const int64_t left = tensor_of(update, index)->n_elements - first;
    *out_n = left < DUNLIN_STREAM_BLOCK_FLOATS ? left : DUNLIN_STREAM_BLOCK_FLOATS;
    return dunlin__clip_read(update->clip, update->values, update->base_index[index], first, *out_n,
                             block);
}

static dunlin_status find_scale(const dunlin__update_int8 *update, int32_t index, float *block,
                                float *out_scale)
{
    const dunlin_weights_tensor *tensor = tensor_of(update, index);
    dunlin_error *error = &update->values->client->error;
    dunlin__int8_range range = {.has_values = false};
    int64_t n = 0;
    for (int64_t first = 0; first < tensor->n_elements; first += n) {
        DUNLIN_TRY(read_block(update, index, first, block, &n));
        DUNLIN_TRY(dunlin__int8_range_add(&range, tensor->name, block, (size_t)n, error));
    }
    return dunlin__int8_scale_of(&range, tensor->name, out_scale, error);
}

/* What lies between the two passes may have changed only by an error of the learner's. */
static dunlin_status check_block(const dunlin__update_int8 *update, int32_t index, float scale,
                                 const float *block, const int8_t *bytes, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float back = (float)bytes[i] * scale;
        if (back < block[i] || back > block[i]) {
            return dunlin__fail(&update->values->client->error, DUNLIN_CALLBACK, "update", 0,
                                "the learner gave other weights of tensor %.100s when it was read "
                                "again",
                                tensor_of(update, index)->name);
        }
    }
    return DUNLIN_OK;
}

static dunlin_status write_tensor(const dunlin__update_int8 *update, int32_t index,
                                  dunlin__stream_chunks *chunks, float *block)
{
    const dunlin_weights_tensor *tensor = tensor_of(update, index);
    dunlin_error *error = &update->values->client->error;
    uint8_t head[DUNLIN_INT8_SCALE_BYTES];
    int8_t bytes[DUNLIN_STREAM_BLOCK_FLOATS];
    float scale = 1.0F;
    int64_t n = 0;
    DUNLIN_TRY(find_scale(update, index, block, &scale));
    dunlin__int8_scale_write(scale, head);
    DUNLIN_TRY(dunlin__stream_chunks_write(chunks, head, sizeof head, error));
    for (int64_t first = 0; first < tensor->n_elements; first += n) {
        DUNLIN_TRY(read_block(update, index, first, block, &n));
        dunlin__int8_encode(scale, block, (size_t)n, bytes);
        DUNLIN_TRY(check_block(update, index, scale, block, bytes, n));
        DUNLIN_TRY(dunlin__stream_chunks_write(chunks, bytes, (size_t)n, error));
    }
    return DUNLIN_OK;
}

static dunlin_status write_records(const dunlin__update_int8 *update, dunlin__stream_file *file)
{
    dunlin_client *client = file->client;
    dunlin__stream stream = {.encoding = DUNLIN_V1_ENCODING_INT8_SCALE,
                             .chunk_bytes = client->round->assignment.plan.chunk_bytes,
                             .n_tensors = (uint32_t)update->n_tensors};
    (void)snprintf(stream.name, sizeof stream.name, "%s", DUNLIN_STREAM_UPDATE);
    for (int32_t i = 0; i < update->n_tensors; i++) {
        stream.total_bytes += (uint64_t)tensor_of(update, i)->n_elements + DUNLIN_INT8_SCALE_BYTES;
    }
    if (stream.total_bytes > client->options.max_upload_bytes) {
        return dunlin__fail(&client->error, DUNLIN_LIMIT, "update", 0,
                            "the update of int8 has %" PRIu64 " bytes; this client sends at most "
                            "%" PRIu64 " a round",
                            stream.total_bytes, client->options.max_upload_bytes);
    }
    stream.n_chunks = (uint32_t)dunlin__chunk_count(stream.total_bytes, stream.chunk_bytes);
    DUNLIN_TRY(dunlin__stream_file_stream(file, &stream));
    for (int32_t i = 0; i < update->n_tensors; i++) {
        const dunlin_weights_tensor *tensor = tensor_of(update, i);
        dunlin__tensor_entry entry;
        DUNLIN_TRY(dunlin__tensor_entry_make(tensor->name, &tensor->shape, DUNLIN_V1_RULE_AVERAGE,
                                             &entry, &client->error));
        entry.stored_bytes = (uint64_t)tensor->n_elements + DUNLIN_INT8_SCALE_BYTES;
        DUNLIN_TRY(dunlin__stream_file_tensor(file, &entry));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__update_int8_write(const dunlin__update_int8 *update,
                                        dunlin__stream_file *file)
{
    dunlin_client *client = file->client;
    for (int32_t i = 0; i < update->n_tensors; i++) {
        const dunlin_weights_tensor *tensor = tensor_of(update, i);
        if (tensor->aggregation == DUNLIN_AGGREGATE_STATISTIC) {
            return dunlin__fail(&client->error, DUNLIN_UNSUPPORTED, "update", 0,
                                "tensor %.100s is a running statistic, which has no int8",
                                tensor->name);
        }
    }
    DUNLIN_TRY(write_records(update, file));
    dunlin__stream_chunks chunks;
    dunlin_status status = DUNLIN_OK;
    dunlin__stream_chunks_begin(&chunks, file, client->round->assignment.plan.chunk_bytes);
    for (int32_t i = 0; status == DUNLIN_OK && i < update->n_tensors; i++) {
        status = write_tensor(update, i, &chunks, file->block);
    }
    return dunlin__stream_chunks_end(&chunks, status);
}
