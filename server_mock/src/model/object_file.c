/*
 * object_file.c - writes a file in chunks with its manifest, and reads that again.
 */
#include "object_file.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

void dunlin__object_file_free(dunlin__object_file *object, const dunlin_alloc *alloc)
{
    dunlin__free_array(alloc, object->chunk_sha256, object->capacity, sizeof *object->chunk_sha256);
    memset(object, 0, sizeof *object);
}

/* Room for the hash of one more chunk, which comes out. */
static dunlin_status add_chunk(dunlin__object_file *object, const dunlin_alloc *alloc,
                               uint8_t **out_sha256, dunlin_error *error)
{
    if (object->n_chunks == DUNLIN_WIRE_CHUNKS) {
        return dunlin__fail(error, DUNLIN_LIMIT, "model", 0, "more than %u chunks",
                            DUNLIN_WIRE_CHUNKS);
    }
    void *list = object->chunk_sha256;
    const bool has_room =
        dunlin__grow_array(alloc, &list, &object->capacity, (size_t)object->n_chunks + 1,
                           sizeof *object->chunk_sha256);
    object->chunk_sha256 = list;
    if (!has_room) {
        return dunlin__fail(error, DUNLIN_MEMORY, "model", 0, "the hash of chunk %" PRIu32,
                            object->n_chunks);
    }
    *out_sha256 = object->chunk_sha256[object->n_chunks++];
    return DUNLIN_OK;
}

/* ---- writing ---- */

dunlin_status dunlin__object_writer_begin(dunlin__object_writer *writer,
                                          dunlin__object_file *object, const char *path,
                                          uint32_t chunk_bytes, const dunlin_alloc *alloc,
                                          dunlin_error *error)
{
    memset(writer, 0, sizeof *writer);
    memset(object, 0, sizeof *object);
    object->chunk_bytes = chunk_bytes;
    writer->object = object;
    writer->alloc = alloc;
    return dunlin__outfile_open(&writer->file, path, DUNLIN_SERVER_FILE_MODE, error);
}

static dunlin_status end_chunk(dunlin__object_writer *writer, dunlin_error *error)
{
    uint8_t *sha256 = NULL;
    writer->n_in_chunk = 0;
    DUNLIN_TRY(add_chunk(writer->object, writer->alloc, &sha256, error));
    return dunlin__sha256_end(&writer->hash, sha256, error);
}

dunlin_status dunlin__object_writer_bytes(void *ctx, const void *data, size_t n_bytes,
                                          dunlin_error *error)
{
    dunlin__object_writer *writer = ctx;
    const uint8_t *bytes = data;
    DUNLIN_TRY(dunlin__outfile_write(&writer->file, data, n_bytes, error));
    writer->object->n_bytes += n_bytes;
    while (n_bytes > 0) {
        const uint64_t room = writer->object->chunk_bytes - writer->n_in_chunk;
        const size_t n = n_bytes < room ? n_bytes : (size_t)room;
        if (writer->n_in_chunk == 0) {
            DUNLIN_TRY(dunlin__sha256_begin(&writer->hash, error));
        }
        DUNLIN_TRY(dunlin__sha256_update(&writer->hash, bytes, n, error));
        writer->n_in_chunk += n;
        bytes += n;
        n_bytes -= n;
        if (n == room) {
            DUNLIN_TRY(end_chunk(writer, error));
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__object_writer_end(dunlin__object_writer *writer, dunlin_status status,
                                        dunlin_error *error)
{
    if (status == DUNLIN_OK && writer->n_in_chunk > 0) {
        status = end_chunk(writer, error);
    }
    dunlin__sha256_abort(&writer->hash);
    return dunlin__outfile_close(&writer->file, status, error);
}

static dunlin_status write_records(const dunlin__object_file *object, const dunlin__stream *kind,
                                   const dunlin__layout *layout, const uint64_t *stored_bytes,
                                   dunlin__manifest_writer *writer, dunlin_error *error)
{
    dunlin__stream stream = *kind;
    stream.total_bytes = object->n_bytes;
    stream.chunk_bytes = object->chunk_bytes;
    stream.n_chunks = object->n_chunks;
    stream.n_tensors = stored_bytes != NULL ? layout->n_tensors : 0;
    DUNLIN_TRY(dunlin__manifest_writer_stream(writer, &stream, error));
    for (uint32_t i = 0; stored_bytes != NULL && i < stream.n_tensors; i++) {
        dunlin__tensor_entry entry = layout->tensors[i];
        entry.stored_bytes = stored_bytes[i];
        DUNLIN_TRY(dunlin__manifest_writer_tensor(writer, &entry, error));
    }
    for (uint32_t c = 0; c < object->n_chunks; c++) {
        DUNLIN_TRY(dunlin__manifest_writer_chunk(writer, object->chunk_sha256[c], error));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__object_manifest_write(dunlin__object_file *object, const char *path,
                                            const dunlin__stream *stream,
                                            const dunlin__layout *layout,
                                            const uint64_t *stored_bytes, const dunlin_alloc *alloc,
                                            dunlin_error *error)
{
    dunlin__manifest_writer writer;
    size_t n_bytes = 0;
    uint8_t *buffer = dunlin__alloc_array(alloc, DUNLIN_WIRE_MANIFEST_BYTES, 1);
    if (buffer == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "model", 0, "no memory for a manifest");
    }
    dunlin_status status = dunlin__manifest_writer_begin(&writer, DUNLIN_MANIFEST_BASE, buffer,
                                                         DUNLIN_WIRE_MANIFEST_BYTES, error);
    if (status == DUNLIN_OK) {
        status = write_records(object, stream, layout, stored_bytes, &writer, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__manifest_writer_end(&writer, &n_bytes, error);
    }
    if (status == DUNLIN_OK) {
        object->n_manifest_bytes = (uint32_t)n_bytes;
        status = dunlin__sha256_of(buffer, n_bytes, object->manifest_sha256, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__outfile_put(path, DUNLIN_SERVER_FILE_MODE, buffer, n_bytes, error);
    }
    dunlin__free_array(alloc, buffer, DUNLIN_WIRE_MANIFEST_BYTES, 1);
    return status;
}

/* ---- reading ---- */

static dunlin_status check_stream(const dunlin__stream *stream, const char *name,
                                  const dunlin__packing *packing, dunlin_error *error)
{
    if (strcmp(stream->name, name) != 0 || stream->has_packing != (packing != NULL)) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "model", 0,
                            "the manifest has a stream \"%.64s\" of %s; wanted is \"%s\"",
                            stream->name, dunlin__encoding_name(stream->encoding), name);
    }
    return packing != NULL ? dunlin__packing_compare(packing, &stream->packing, true, error)
                           : DUNLIN_OK;
}

static dunlin_status read_records(dunlin__object_file *object,
                                  const dunlin__manifest_source *source, const char *name,
                                  const dunlin__packing *packing, const dunlin_alloc *alloc,
                                  dunlin_error *error)
{
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    uint32_t n_streams = 0;
    DUNLIN_TRY(dunlin__manifest_reader_begin(&reader, source, DUNLIN_MANIFEST_BASE, error));
    do {
        DUNLIN_TRY(dunlin__manifest_reader_next(&reader, &record, error));
        if (record.item == DUNLIN_MANIFEST_STREAM) {
            DUNLIN_TRY(check_stream(&record.stream, name, packing, error));
            object->n_bytes = record.stream.total_bytes;
            object->chunk_bytes = record.stream.chunk_bytes;
            n_streams++;
        } else if (record.item == DUNLIN_MANIFEST_CHUNK) {
            uint8_t *sha256 = NULL;
            DUNLIN_TRY(add_chunk(object, alloc, &sha256, error));
            if (sha256 != NULL) {
                memcpy(sha256, record.sha256, DUNLIN_SHA256_BYTES);
            }
        }
    } while (record.item != DUNLIN_MANIFEST_END);
    return n_streams == 1
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_MISMATCH, "model", 0,
                              "the manifest has %" PRIu32 " streams; wanted is one", n_streams);
}

dunlin_status dunlin__object_file_load(dunlin__object_file *object, const char *path,
                                       const char *manifest_path, const char *name,
                                       const dunlin__packing *packing, const dunlin_alloc *alloc,
                                       dunlin_error *error)
{
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    memset(object, 0, sizeof *object);
    DUNLIN_TRY(dunlin__server_file_read(alloc, manifest_path, DUNLIN_WIRE_MANIFEST_BYTES, &bytes,
                                        &n_bytes, error));
    const dunlin__manifest_source source = dunlin__manifest_source_memory(bytes, n_bytes);
    dunlin_status status = read_records(object, &source, name, packing, alloc, error);
    if (status == DUNLIN_OK) {
        object->n_manifest_bytes = (uint32_t)n_bytes;
        status = dunlin__sha256_of(bytes, n_bytes, object->manifest_sha256, error);
    }
    dunlin__free_array(alloc, bytes, n_bytes + 1, 1);
    if (status == DUNLIN_OK && dunlin__server_file_size(path) != (int64_t)object->n_bytes) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "model", 0,
                            "%.140s does not have its manifest's %" PRIu64 " bytes", path,
                            object->n_bytes);
    }
    return status;
}
