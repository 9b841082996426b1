/*
 * base_weights.c - the fetched base as the learner reads it: a table of tensors over one file, the
 * personal ones from the device's own.
 */
#include "base_weights.h"

#include "app_model_keep.h"
#include "context/client_context.h"
#include "kept.h"
#include "scaffold.h"
#include "store/files.h"
#include "tensor_table.h"

#include <string.h>
#include <unistd.h>

static dunlin_status read_manifest(void *ctx, uint64_t offset, void *buffer, size_t n_bytes)
{
    const int *fd = ctx;
    return dunlin__file_read(*fd, buffer, n_bytes, offset, NULL);
}

dunlin__manifest_source dunlin__base_manifest(uint64_t n_bytes, int *manifest_fd)
{
    return (dunlin__manifest_source){
        .ctx = manifest_fd, .read_fn = read_manifest, .total_bytes = n_bytes};
}

static dunlin_status read_values(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    dunlin_client *client = ctx;
    const dunlin__round *round = client->round;
    if (index < 0 || index >= round->n_tensors || first < 0 || n < 0 ||
        first > round->tensors[index].n_elements - n) {
        return DUNLIN_ARGUMENT;
    }
    const dunlin__base_tensor *place = &round->places[index];
    bool is_own = place->is_kept && round->tensors[index].aggregation == DUNLIN_AGGREGATE_LOCAL;
    uint64_t offset = is_own ? place->kept_offset : place->file_offset;
    return dunlin__file_read(is_own ? round->kept_fd : round->base_fd, out,
                             (size_t)n * sizeof(float), offset + (uint64_t)first * sizeof(float),
                             &client->error);
}

static dunlin_status build_table(dunlin_client *client, const dunlin__manifest_source *source)
{
    dunlin__round *round = client->round;
    const dunlin_alloc *alloc = &client->runtime->alloc;
    dunlin__tensor_table table;
    dunlin_status status =
        dunlin__tensor_table_build(alloc, source, DUNLIN_STREAM_WEIGHTS, &table, &client->error);
    const size_t n_tensors = (size_t)table.n_tensors;
    if (status == DUNLIN_OK) {
        round->places = dunlin__alloc_zeroed(alloc, n_tensors, sizeof *round->places);
        if (round->places == NULL) {
            status = dunlin__fail(&client->error, DUNLIN_MEMORY, "base", 0,
                                  "no memory for the places of %zu tensors", n_tensors);
        }
    }
    if (status != DUNLIN_OK) {
        dunlin__tensor_table_free(alloc, &table);
        return status;
    }
    for (int32_t i = 0; i < table.n_tensors && round->places != NULL; i++) {
        round->places[i].file_offset = table.offsets[i];
    }
    dunlin__free_array(alloc, table.offsets, n_tensors, sizeof *table.offsets);
    round->tensors = table.tensors;
    round->n_tensors = table.n_tensors;
    round->names = table.names;
    round->names_bytes = table.names_bytes;
    return DUNLIN_OK;
}

/* The server's variate: the tensors that are averaged, in the same order. */
static dunlin_status find_control(dunlin_client *client, const dunlin__manifest_source *source)
{
    dunlin__round *round = client->round;
    dunlin__base_stream control = {0};
    dunlin__manifest_record record;
    int32_t index = 0;
    DUNLIN_TRY(dunlin__base_find(source, DUNLIN_STREAM_CONTROL, &control, &client->error));
    for (uint32_t i = 0; i <= control.stream.n_tensors; i++) {
        while (index < round->n_tensors &&
               round->tensors[index].aggregation != DUNLIN_AGGREGATE_AVERAGE) {
            index++;
        }
        if (i == control.stream.n_tensors) {
            break;
        }
        DUNLIN_TRY(dunlin__manifest_reader_next(&control.reader, &record, &client->error));
        if (index == round->n_tensors ||
            strcmp(round->tensors[index].name, record.tensor.name) != 0 ||
            (uint64_t)round->tensors[index].n_elements * sizeof(float) != record.n_bytes) {
            return dunlin__fail(&client->error, DUNLIN_MISMATCH, "base", 0,
                                "the control variate has tensor %.100s where the weights have "
                                "another that is averaged",
                                record.tensor.name);
        }
        round->places[index++].control_offset = control.offset + record.offset;
    }
    if (index != round->n_tensors) {
        return dunlin__fail(&client->error, DUNLIN_MISMATCH, "base", 0,
                            "the control variate lacks tensor %.100s", round->tensors[index].name);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__base_open(dunlin_client *client)
{
    dunlin__round *round = client->round;
    if (round->base_fd >= 0) {
        return DUNLIN_OK;
    }
    char path[DUNLIN_FILE_PATH_BYTES];
    int manifest_fd = -1;
    DUNLIN_TRY(dunlin__base_path(client, DUNLIN_APP_MODEL_MANIFEST, path));
    DUNLIN_TRY(dunlin__file_open_there(path, &manifest_fd, &client->error));
    dunlin__manifest_source source =
        dunlin__base_manifest(round->assignment.base_manifest_bytes, &manifest_fd);
    dunlin_status status = build_table(client, &source);
    if (status == DUNLIN_OK && dunlin__round_is_scaffold(client)) {
        status = find_control(client, &source);
    }
    (void)close(manifest_fd);
    if (status == DUNLIN_OK) {
        status = dunlin__base_path(client, DUNLIN_APP_MODEL_VALUES, path);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__file_open_there(path, &round->base_fd, &client->error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__local_open(client);
    }
    if (status != DUNLIN_OK) {
        dunlin__base_close(client);
        return status;
    }
    round->base = (dunlin_weights_reader){.ctx = client,
                                          .tensors = round->tensors,
                                          .n_tensors = round->n_tensors,
                                          .read_fn = read_values};
    return DUNLIN_OK;
}

void dunlin__base_close(dunlin_client *client)
{
    dunlin__round *round = client->round;
    const dunlin_alloc *alloc = &client->runtime->alloc;
    size_t n_tensors = (size_t)round->n_tensors;
    if (round->base_fd >= 0) {
        (void)close(round->base_fd);
        round->base_fd = -1;
    }
    dunlin__local_close(client);
    dunlin__free_array(alloc, round->tensors, n_tensors, sizeof *round->tensors);
    dunlin__free_array(alloc, round->places, n_tensors, sizeof *round->places);
    dunlin__free_array(alloc, round->names, round->names_bytes, 1);
    round->tensors = NULL;
    round->places = NULL;
    round->names = NULL;
    round->n_tensors = 0;
    round->names_bytes = 0;
}
