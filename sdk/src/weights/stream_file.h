/*
 * stream_file.h - streams of tensors as two files of a folder: NAME.bin has the values, one stream
 * after the other, NAME.manifest what they are.
 *
 * The manifest is written record by record under another name and gets its own when it is whole and
 * the values that it describes are on the storage; so if there is a manifest, all values are there.
 * Only a block of the values and a few records are in memory at a time.
 */
#ifndef DUNLIN_SDK_STREAM_FILE_H
#define DUNLIN_SDK_STREAM_FILE_H

#include "context/client_context.h"

#include <wire/tensor_stream.h>

/* What values are made in; and what is read beside a block, on the stack: threads of apps may have
 * little of it. */
#define DUNLIN_STREAM_BLOCK_FLOATS 1024
#define DUNLIN_STREAM_PIECE_FLOATS 1024

typedef struct dunlin__stream_file {
    dunlin_client *client;
    const char *folder;
    const char *name;
    int fd;
    int manifest_fd;
    uint64_t n_written;
    uint8_t *buffer; /* of the manifest's records that are not in its file yet */
    float *block;    /* of DUNLIN_STREAM_BLOCK_FLOATS: values on their way */
    dunlin__manifest_writer manifest;
} dunlin__stream_file;

/* One stream: tensors of the base, by their places in it, and where their values come from.
 * `read_fn` gives elements [first, first + n) of the stream's tensor `index`, at most a block. */
typedef struct dunlin__stream_plan {
    const char *name;
    const int32_t *base_index;
    int32_t n_tensors;
    uint32_t chunk_bytes;
    void *ctx;
    dunlin_status (*read_fn)(void *ctx, int32_t index, int64_t first, int64_t n, float *out);
} dunlin__stream_plan;

/* Begins both files anew. Whatever comes of it, dunlin__stream_file_close() follows. */
dunlin_status dunlin__stream_file_begin(dunlin__stream_file *file, dunlin_client *client,
                                        const char *folder, const char *name,
                                        dunlin__manifest_kind kind);
/* The next stream. NUMERIC for a value that is no number. */
dunlin_status dunlin__stream_file_add(dunlin__stream_file *file, const dunlin__stream_plan *plan);
/* The records of a stream whose bytes come by dunlin__stream_chunks_write(): the stream's own, then
 * its tensors'. */
dunlin_status dunlin__stream_file_stream(dunlin__stream_file *file, const dunlin__stream *stream);
dunlin_status dunlin__stream_file_tensor(dunlin__stream_file *file,
                                         const dunlin__tensor_entry *tensor);
/* Gives the block back before the close: no more values are made in it. */
void dunlin__stream_file_drop_block(dunlin__stream_file *file);

/* Bytes of a stream whose records are in the manifest already, cut into its chunks. */
typedef struct dunlin__stream_chunks {
    dunlin__stream_file *file;
    uint32_t chunk_bytes;
    uint32_t fill; /* of the current chunk */
    dunlin__sha256 hash;
} dunlin__stream_chunks;

void dunlin__stream_chunks_begin(dunlin__stream_chunks *chunks, dunlin__stream_file *file,
                                 uint32_t chunk_bytes);
/* `ctx` is the dunlin__stream_chunks. */
dunlin_status dunlin__stream_chunks_write(void *ctx, const void *data, size_t n_bytes,
                                          dunlin_error *error);
/* Ends the last chunk, or gives up if the status is not OK; that comes back. */
dunlin_status dunlin__stream_chunks_end(dunlin__stream_chunks *chunks, dunlin_status status);

/* Values, then manifest, are on the storage. */
dunlin_status dunlin__stream_file_end(dunlin__stream_file *file);
void dunlin__stream_file_close(dunlin__stream_file *file);

#endif
