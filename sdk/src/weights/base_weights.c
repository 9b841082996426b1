/*
 * base_weights.c - the fetched base as the learner reads it: a table of tensors over one file, the
 * personal ones from the device's own.
 */
#include "base_weights.h"

#include "context/client_context.h"
#include "kept.h"
#include "scaffold.h"
#include "store/files.h"

#include <string.h>
#include <unistd.h>

static dunlin_status read_manifest(void *ctx, uint64_t offset, void *buffer, size_t n_bytes)
{
    const int *fd = ctx;
    return dunlin__file_read(*fd, buffer, n_bytes, offset, NULL);
}

dunlin__manifest_source dunlin__base_manifest(dunlin_client *client, int *manifest_fd)
{
    return (dunlin__manifest_source){.ctx = manifest_fd,
                                     .read_fn = read_manifest,
                                     .total_bytes = client->round->assignment.base_manifest_bytes};
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

dunlin_status dunlin__base_find(dunlin_client *client, const dunlin__manifest_source *source,
                                const char *name, dunlin__base_stream *out)
{
    dunlin__manifest_record record;
    out->offset = 0;
    DUNLIN_TRY(
        dunlin__manifest_reader_begin(&out->reader, source, DUNLIN_MANIFEST_BASE, &client->error));
    for (;;) {
        DUNLIN_TRY(dunlin__manifest_reader_next(&out->reader, &record, &client->error));
        if (record.item == DUNLIN_MANIFEST_END) {
            return dunlin__fail(&client->error, DUNLIN_MISMATCH, "base", 0,
                                "the base has no stream \"%s\"", name);
        }
        if (record.item != DUNLIN_MANIFEST_STREAM) {
            continue;
        }
        if (strcmp(record.stream.name, name) == 0) {
            out->stream = record.stream;
            break;
        }
        out->offset += record.stream.total_bytes;
    }
    if (out->stream.encoding != DUNLIN_V1_ENCODING_F32) {
        return dunlin__fail(&client->error, DUNLIN_UNSUPPORTED, "base", 0,
                            "the stream \"%s\" is encoded as %s, not as F32", name,
                            dunlin__encoding_name(out->stream.encoding));
    }
    return DUNLIN_OK;
}

static dunlin_aggregation aggregation_of(dunlin_v1_rule_t rule)
{
    if (rule == DUNLIN_V1_RULE_STATISTIC) {
        return DUNLIN_AGGREGATE_STATISTIC;
    }
    return rule == DUNLIN_V1_RULE_LOCAL ? DUNLIN_AGGREGATE_LOCAL : DUNLIN_AGGREGATE_AVERAGE;
}

static void fill_tensor(const dunlin__manifest_record *record, const char *name,
                        dunlin_weights_tensor *out)
{
    out->name = name;
    out->shape.n_dims = (int32_t)record->tensor.dims_count;
    out->n_elements = (int64_t)(record->tensor.stored_bytes / sizeof(float));
    out->aggregation = aggregation_of(record->tensor.rule);
    for (pb_size_t i = 0; i < record->tensor.dims_count; i++) {
        out->shape.dims[i] = (int64_t)record->tensor.dims[i];
    }
}

/* Reads the stream's tensors: counts their names' bytes, or fills the tables that are there by
 * then. */
static dunlin_status read_tensors(dunlin_client *client, dunlin__manifest_reader reader,
                                  uint32_t n_tensors, uint64_t offset)
{
    dunlin__round *round = client->round;
    dunlin__manifest_record record;
    size_t n_bytes = 0;
    for (uint32_t i = 0; i < n_tensors; i++) {
        DUNLIN_TRY(dunlin__manifest_reader_next(&reader, &record, &client->error));
        size_t length = strlen(record.tensor.name) + 1;
        if (round->names != NULL) {
            memcpy(round->names + n_bytes, record.tensor.name, length);
            fill_tensor(&record, round->names + n_bytes, &round->tensors[i]);
            round->places[i].file_offset = offset + record.offset;
        }
        n_bytes += length;
    }
    round->names_bytes = n_bytes;
    return DUNLIN_OK;
}

static dunlin_status build_table(dunlin_client *client, const dunlin__manifest_source *source)
{
    dunlin__round *round = client->round;
    const dunlin_alloc *alloc = &client->runtime->alloc;
    dunlin__base_stream found = {0};
    DUNLIN_TRY(dunlin__base_find(client, source, DUNLIN_STREAM_WEIGHTS, &found));
    uint32_t n_tensors = found.stream.n_tensors;
    DUNLIN_TRY(read_tensors(client, found.reader, n_tensors, found.offset));
    round->n_tensors = (int32_t)n_tensors;
    round->tensors = dunlin__alloc_zeroed(alloc, n_tensors, sizeof *round->tensors);
    round->places = dunlin__alloc_zeroed(alloc, n_tensors, sizeof *round->places);
    round->names = dunlin__alloc_array(alloc, round->names_bytes, 1);
    if (round->tensors == NULL || round->places == NULL || round->names == NULL) {
        return dunlin__fail(&client->error, DUNLIN_MEMORY, "base", 0,
                            "no memory for a table of %u tensors", n_tensors);
    }
    return read_tensors(client, found.reader, n_tensors, found.offset);
}

/* The server's variate: the tensors that are averaged, in the same order. */
static dunlin_status find_control(dunlin_client *client, const dunlin__manifest_source *source)
{
    dunlin__round *round = client->round;
    dunlin__base_stream control = {0};
    dunlin__manifest_record record;
    int32_t index = 0;
    DUNLIN_TRY(dunlin__base_find(client, source, DUNLIN_STREAM_CONTROL, &control));
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
    DUNLIN_TRY(dunlin__file_path(round->folder, "base.manifest", path, &client->error));
    DUNLIN_TRY(dunlin__file_open(path, &manifest_fd, &client->error));
    dunlin__manifest_source source = dunlin__base_manifest(client, &manifest_fd);
    dunlin_status status = build_table(client, &source);
    if (status == DUNLIN_OK && dunlin__round_is_scaffold(client)) {
        status = find_control(client, &source);
    }
    (void)close(manifest_fd);
    if (status == DUNLIN_OK) {
        status = dunlin__file_path(round->folder, "base.bin", path, &client->error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__file_open(path, &round->base_fd, &client->error);
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
