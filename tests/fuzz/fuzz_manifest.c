/*
 * fuzz_manifest.c - any bytes as a manifest: refused in one line, or read record by record with
 * sums that agree, then written again to a manifest of the same contents. The first byte picks base
 * or update.
 */
#include <wire/manifest.h>

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool is_kept)
{
    if (!is_kept) {
        __builtin_trap();
    }
}

static void copy_record(dunlin__manifest_writer *writer, const dunlin__manifest_record *record)
{
    dunlin_error error = {0};
    dunlin_status status = DUNLIN_OK;
    if (record->item == DUNLIN_MANIFEST_STREAM) {
        status = dunlin__manifest_writer_stream(writer, &record->stream, &error);
    } else if (record->item == DUNLIN_MANIFEST_TENSOR) {
        require(record->offset <= record->stream.total_bytes &&
                record->n_bytes <= record->stream.total_bytes - record->offset);
        status = dunlin__manifest_writer_tensor(writer, &record->tensor, &error);
    } else if (record->item == DUNLIN_MANIFEST_CHUNK) {
        require(record->n_bytes > 0 && record->n_bytes <= record->stream.chunk_bytes &&
                record->offset + record->n_bytes <= record->stream.total_bytes);
        status = dunlin__manifest_writer_chunk(writer, record->sha256, &error);
    }
    /* The reader has judged it, and no spelling of a record is shorter than the writer's. */
    require(status == DUNLIN_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[DUNLIN_WIRE_MANIFEST_BYTES];
    if (size == 0) {
        return 0;
    }
    dunlin__manifest_kind kind = (data[0] % 2 == 0) ? DUNLIN_MANIFEST_BASE : DUNLIN_MANIFEST_UPDATE;
    dunlin__manifest_source source = dunlin__manifest_source_memory(data + 1, size - 1);
    dunlin__manifest_summary summary;
    dunlin__manifest_summary again;
    dunlin_error error = {0};
    dunlin_status status = dunlin__manifest_check_all(&source, kind, &summary, &error);
    if (status != DUNLIN_OK) {
        require(error.status == status && error.text[0] != '\0');
        return 0;
    }
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    dunlin__manifest_writer writer;
    size_t n_bytes = 0;
    require(dunlin__manifest_reader_begin(&reader, &source, kind, &error) == DUNLIN_OK);
    require(dunlin__manifest_writer_begin(&writer, kind, bytes, sizeof(bytes), &error) ==
            DUNLIN_OK);
    do {
        require(dunlin__manifest_reader_next(&reader, &record, &error) == DUNLIN_OK);
        copy_record(&writer, &record);
    } while (record.item != DUNLIN_MANIFEST_END);
    require(dunlin__manifest_writer_end(&writer, &n_bytes, &error) == DUNLIN_OK);
    source = dunlin__manifest_source_memory(bytes, n_bytes);
    require(dunlin__manifest_check_all(&source, kind, &again, &error) == DUNLIN_OK);
    require(again.n_streams == summary.n_streams && again.n_tensors == summary.n_tensors &&
            again.n_chunks == summary.n_chunks && again.total_bytes == summary.total_bytes);
    return 0;
}
