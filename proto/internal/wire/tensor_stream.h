/*
 * tensor_stream.h - writes tensors to chunks and reads them back, in blocks, without holding the
 * model.
 *
 * A stream is the tensors' elements in the order of the manifest's table, little-endian, no gaps,
 * cut into chunks of a fixed size, the last one shorter. F32 is read and written; the other
 * encodings are refused by name with UNSUPPORTED. No allocation; a struct is used by one thread at
 * a time.
 */
#ifndef DUNLIN_WIRE_TENSOR_STREAM_H
#define DUNLIN_WIRE_TENSOR_STREAM_H

#include <dunlin/tensor.h>
#include <wire/digest.h>
#include <wire/manifest.h>

/* ---- writing ---- */

/*
 * Where a stream goes. write_fn gets up to DUNLIN_WIRE_BLOCK_BYTES at a time, never across the end
 * of a chunk. chunk_fn (may be NULL) follows the last block of each chunk. What they return other
 * than OK ends the stream and is passed on; they fill the error themselves.
 */
typedef struct dunlin__stream_sink {
    void *ctx;
    dunlin_status (*write_fn)(void *ctx, const void *data, size_t n_bytes, dunlin_error *error);
    dunlin_status (*chunk_fn)(void *ctx, uint32_t chunk_index, uint32_t chunk_bytes,
                              const uint8_t sha256[DUNLIN_SHA256_BYTES], dunlin_error *error);
} dunlin__stream_sink;

typedef struct dunlin__tensor_writer {
    dunlin__stream_sink sink;
    bool check_finite;
    uint64_t total_bytes; /* announced */
    uint64_t n_bytes;     /* written so far */
    uint32_t chunk_bytes;
    uint32_t chunk_fill; /* bytes in the current chunk */
    uint32_t n_chunks;   /* finished */
    dunlin__sha256 hash;
    dunlin_status failed; /* not OK: the stream is over */
} dunlin__tensor_writer;

/* `stream` gives encoding, total_bytes (a multiple of 4) and chunk_bytes; with `check_finite` a
 * value that is not finite is NUMERIC, named by tensor and element. Follow by end or abort. */
DUNLIN_NODISCARD dunlin_status dunlin__tensor_writer_begin(dunlin__tensor_writer *writer,
                                                           const dunlin__stream *stream,
                                                           bool check_finite,
                                                           const dunlin__stream_sink *sink,
                                                           dunlin_error *error);

/* The next piece: a whole tensor or a part of one, F32. The view's name is for errors; its shape
 * must agree with data_bytes. LIMIT beyond total_bytes. `data` needs no alignment. */
DUNLIN_NODISCARD dunlin_status dunlin__tensor_writer_add(dunlin__tensor_writer *writer,
                                                         const dunlin_tensor_view *piece,
                                                         dunlin_error *error);

/* The same for values without a view. */
DUNLIN_NODISCARD dunlin_status dunlin__tensor_writer_values(dunlin__tensor_writer *writer,
                                                            const char *name, const float *values,
                                                            size_t n_values, dunlin_error *error);

/* Finishes the last chunk; MISMATCH if fewer bytes came than announced. */
DUNLIN_NODISCARD dunlin_status dunlin__tensor_writer_end(dunlin__tensor_writer *writer,
                                                         dunlin_error *error);

/* Gives up; harmless after end or a failure. */
void dunlin__tensor_writer_abort(dunlin__tensor_writer *writer);

/* ---- reading ---- */

/* Where a stream's bytes come from, in order: fills `buffer` with exactly `n_bytes`, or fails and
 * fills the error. At most DUNLIN_WIRE_BLOCK_BYTES are asked for. */
typedef struct dunlin__stream_source {
    void *ctx;
    dunlin_status (*read_fn)(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error);
} dunlin__stream_source;

/* A part of one tensor. `values` lie in the reader's block until the next call. */
typedef struct dunlin__tensor_piece {
    const dunlin__tensor_entry *tensor;
    uint32_t tensor_index;
    uint64_t n_elements;    /* of the whole tensor */
    uint64_t first_element; /* of this piece */
    size_t n_values;        /* of this piece; 0 only for a tensor without elements */
    float *values;
} dunlin__tensor_piece;

typedef struct dunlin__tensor_reader {
    dunlin__stream_source source;
    dunlin__manifest_reader manifest;
    dunlin__manifest_record record; /* the current tensor */
    dunlin__stream stream;
    bool check_finite;
    bool has_tensor;
    uint64_t n_elements;
    uint64_t next_element;
    float *block;
    size_t block_values;
} dunlin__tensor_reader;

/* `manifest` is at the first tensor of the stream (dunlin__manifest_reader_find); it is copied, its
 * source must stay. `block` is the caller's, up to DUNLIN_WIRE_BLOCK_BYTES of it are used, at least
 * 4. */
DUNLIN_NODISCARD dunlin_status dunlin__tensor_reader_begin(dunlin__tensor_reader *reader,
                                                           const dunlin__manifest_reader *manifest,
                                                           const dunlin__stream_source *source,
                                                           bool check_finite, float *block,
                                                           size_t block_bytes, dunlin_error *error);

/* The next piece, never across two tensors; `out_piece->tensor` is NULL after the last. NUMERIC if
 * a value is not finite and that is asked for. A failure is final. */
DUNLIN_NODISCARD dunlin_status dunlin__tensor_reader_next(dunlin__tensor_reader *reader,
                                                          dunlin__tensor_piece *out_piece,
                                                          dunlin_error *error);

#endif
