/*
 * tensor_table.c - streams of tensors found by their manifest, and their chunks checked.
 */
#include "tensor_table.h"

#include "store/files.h"

#include <mem/support.h>

#include <string.h>
#include <sys/stat.h>

dunlin_status dunlin__base_find(const dunlin__manifest_source *source, const char *name,
                                dunlin__base_stream *out, dunlin_error *error)
{
    dunlin__manifest_record record;
    out->offset = 0;
    DUNLIN_TRY(dunlin__manifest_reader_begin(&out->reader, source, DUNLIN_MANIFEST_BASE, error));
    for (;;) {
        DUNLIN_TRY(dunlin__manifest_reader_next(&out->reader, &record, error));
        if (record.item == DUNLIN_MANIFEST_END) {
            return dunlin__fail(error, DUNLIN_MISMATCH, "base", 0, "the base has no stream \"%s\"",
                                name);
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
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "base", 0,
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

void dunlin__tensor_of(const dunlin__tensor_entry *entry, const char *name,
                       dunlin_weights_tensor *out)
{
    out->name = name;
    out->shape.n_dims = (int32_t)entry->dims_count;
    out->n_elements = (int64_t)(entry->stored_bytes / sizeof(float));
    out->aggregation = aggregation_of(entry->rule);
    for (pb_size_t i = 0; i < entry->dims_count; i++) {
        out->shape.dims[i] = (int64_t)entry->dims[i];
    }
}

/* Reads the stream's tensors: counts their names' bytes, or fills the table that is there by then.
 */
static dunlin_status read_tensors(const dunlin__base_stream *found, dunlin__tensor_table *table,
                                  dunlin_error *error)
{
    dunlin__manifest_reader reader = found->reader;
    dunlin__manifest_record record;
    size_t n_bytes = 0;
    for (uint32_t i = 0; i < found->stream.n_tensors; i++) {
        DUNLIN_TRY(dunlin__manifest_reader_next(&reader, &record, error));
        size_t length = strlen(record.tensor.name) + 1;
        if (table->names != NULL) {
            memcpy(table->names + n_bytes, record.tensor.name, length);
            dunlin__tensor_of(&record.tensor, table->names + n_bytes, &table->tensors[i]);
            table->offsets[i] = found->offset + record.offset;
        }
        n_bytes += length;
    }
    table->names_bytes = n_bytes;
    return DUNLIN_OK;
}

dunlin_status dunlin__tensor_table_build(const dunlin_alloc *alloc,
                                         const dunlin__manifest_source *source, const char *name,
                                         dunlin__tensor_table *out, dunlin_error *error)
{
    dunlin__base_stream found = {0};
    *out = (dunlin__tensor_table){0};
    DUNLIN_TRY(dunlin__base_find(source, name, &found, error));
    DUNLIN_TRY(read_tensors(&found, out, error));
    const uint32_t n_tensors = found.stream.n_tensors;
    out->n_tensors = (int32_t)n_tensors;
    out->tensors = dunlin__alloc_zeroed(alloc, n_tensors, sizeof *out->tensors);
    out->offsets = dunlin__alloc_zeroed(alloc, n_tensors, sizeof *out->offsets);
    out->names = dunlin__alloc_array(alloc, out->names_bytes, 1);
    if (out->tensors == NULL || out->offsets == NULL || out->names == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "base", 0, "no memory for a table of %u tensors",
                            n_tensors);
    }
    return read_tensors(&found, out, error);
}

void dunlin__tensor_table_free(const dunlin_alloc *alloc, dunlin__tensor_table *table)
{
    const size_t n_tensors = (size_t)table->n_tensors;
    dunlin__free_array(alloc, table->tensors, n_tensors, sizeof *table->tensors);
    dunlin__free_array(alloc, table->offsets, n_tensors, sizeof *table->offsets);
    dunlin__free_array(alloc, table->names, table->names_bytes, 1);
    *table = (dunlin__tensor_table){0};
}

dunlin_status dunlin__chunks_verify(const dunlin__manifest_source *source, int fd, const char *path,
                                    dunlin_error *error)
{
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    uint64_t stream_offset = 0;
    uint64_t next_offset = 0;
    struct stat about = {0};
    const uint64_t n_there = fstat(fd, &about) == 0 ? (uint64_t)about.st_size : 0;
    DUNLIN_TRY(dunlin__manifest_reader_begin(&reader, source, DUNLIN_MANIFEST_BASE, error));
    for (;;) {
        DUNLIN_TRY(dunlin__manifest_reader_next(&reader, &record, error));
        if (record.item == DUNLIN_MANIFEST_END) {
            return DUNLIN_OK;
        }
        if (record.item == DUNLIN_MANIFEST_STREAM) {
            stream_offset = next_offset;
            next_offset += record.stream.total_bytes;
            if (n_there < next_offset) {
                return dunlin__fail(error, DUNLIN_DATA, "base", 0,
                                    "%s has %llu bytes, its manifest speaks of %llu", path,
                                    (unsigned long long)n_there, (unsigned long long)next_offset);
            }
        } else if (record.item == DUNLIN_MANIFEST_CHUNK &&
                   !dunlin__file_matches(fd, stream_offset + record.offset, record.n_bytes,
                                         record.sha256)) {
            return dunlin__fail(error, DUNLIN_DIGEST, "base", 0,
                                "chunk %u of %s does not match its hash", record.chunk_index, path);
        }
    }
}
