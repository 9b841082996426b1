/*
 * manifest.h - what an object is made of: streams, their tensors, their chunks.
 *
 * A manifest is a sequence of small protobuf records (manifest.proto): a stream, then its tensors
 * in the order of the stream's bytes, then the hashes of its chunks, then the next stream. It is
 * written and read one record at a time, so that the tables are never in memory as a whole. Its
 * name is the SHA-256 of its bytes.
 *
 * Rules, checked by writer and reader alike: at most DUNLIN_WIRE_MANIFEST_BYTES, _STREAMS, _TENSORS
 * and _CHUNKS; unique stream names; chunks = ceil(total / chunk_bytes), chunk_bytes 256 KiB to
 * 1 MiB; every tensor's stored bytes follow from its shape and encoding, and their sum is the
 * stream's total; BYTES streams have no tensors, others at least one; in an update no tensor is
 * LOCAL. Tensor names may repeat: a tensor is identified by its index.
 *
 * No allocation, no state beside the structs; a struct is used by one thread at a time.
 */
#ifndef DUNLIN_WIRE_MANIFEST_H
#define DUNLIN_WIRE_MANIFEST_H

#include <dunlin/tensor.h>
#include <wire/common.pb.h>
#include <wire/manifest.pb.h>
#include <wire/protocol.h>

/* Names of the streams there are. */
#define DUNLIN_STREAM_MODEL "model"     /* down: BYTES, the model file */
#define DUNLIN_STREAM_WEIGHTS "weights" /* down: the base of the round */
#define DUNLIN_STREAM_CONTROL "control" /* down: SCAFFOLD's server variate */
#define DUNLIN_STREAM_UPDATE "update"   /* up: delta or weights */
#define DUNLIN_STREAM_DELTA "delta"     /* down: BYTES, from one packed base to the next */
#define DUNLIN_STREAM_CONTROL_DELTA                                                                \
    "control_delta" /* up: SCAFFOLD's change of the local variate                                  \
                     */

/* The most that a record takes, with its tag and its length. */
#define DUNLIN_MANIFEST_RECORD_BYTES 512u

typedef dunlin_v1_stream_t dunlin__stream;
typedef dunlin_v1_tensor_t dunlin__tensor_entry;

/* What the manifest describes: a base that goes down or an update that goes up. */
typedef enum dunlin__manifest_kind {
    DUNLIN_MANIFEST_BASE = 1,
    DUNLIN_MANIFEST_UPDATE = 2
} dunlin__manifest_kind;

/* Elements of a tensor; OVERFLOW names the tensor. */
DUNLIN_NODISCARD dunlin_status dunlin__tensor_entry_count(const dunlin__tensor_entry *tensor,
                                                          uint64_t *out_n_elements,
                                                          dunlin_error *error);

/* Bytes `n_elements` take in a stream of an encoding; UNSUPPORTED for SPARSE (its size depends on
 * the values) and BYTES, OVERFLOW. `ring_bits` matters to MASKED_RING alone. */
DUNLIN_NODISCARD dunlin_status dunlin__encoding_bytes(dunlin_v1_encoding_t encoding,
                                                      uint32_t ring_bits, uint64_t n_elements,
                                                      uint64_t *out_bytes, dunlin_error *error);

/* "F32" ...; never NULL. */
const char *dunlin__encoding_name(dunlin_v1_encoding_t encoding);

/* A row of the table for an F32 stream: name, shape, rule, stored bytes. */
DUNLIN_NODISCARD dunlin_status dunlin__tensor_entry_make(const char *name,
                                                         const dunlin_shape *shape,
                                                         dunlin_v1_rule_t rule,
                                                         dunlin__tensor_entry *out_tensor,
                                                         dunlin_error *error);

/* How many chunks `total_bytes` make. */
uint64_t dunlin__chunk_count(uint64_t total_bytes, uint32_t chunk_bytes);

/* ---- checks shared by writer and reader; filled by them, read by nobody else ---- */

typedef struct dunlin__manifest_check {
    dunlin__manifest_kind kind;
    bool is_reader;
    uint32_t n_streams;
    uint32_t n_tensors;
    uint32_t n_chunks;
    uint64_t total_bytes;
    dunlin__stream stream; /* the current one */
    uint32_t stream_tensors;
    uint32_t stream_chunks;
    uint64_t stream_bytes;
    char names[DUNLIN_WIRE_STREAMS][DUNLIN_WIRE_ID_BYTES];
} dunlin__manifest_check;

/* ---- writing ---- */

/*
 * Writes into the caller's buffer. Order: begin; for each stream: stream, its tensors, its chunks;
 * end. A call that fails adds nothing, and leaves the writer usable for the right one.
 *
 * The buffer holds the whole manifest, or, emptied by dunlin__manifest_writer_drain() before each
 * record, one record: then it has at least DUNLIN_MANIFEST_RECORD_BYTES.
 */
typedef struct dunlin__manifest_writer {
    uint8_t *bytes;
    size_t capacity;
    size_t n_bytes;   /* in the buffer */
    size_t n_drained; /* before those */
    dunlin__manifest_check check;
} dunlin__manifest_writer;

/* `buffer` is borrowed until end. */
DUNLIN_NODISCARD dunlin_status dunlin__manifest_writer_begin(dunlin__manifest_writer *writer,
                                                             dunlin__manifest_kind kind,
                                                             uint8_t *buffer, size_t capacity,
                                                             dunlin_error *error);
/* `stream->n_chunks` 0 is filled in from total and chunk bytes. */
DUNLIN_NODISCARD dunlin_status dunlin__manifest_writer_stream(dunlin__manifest_writer *writer,
                                                              const dunlin__stream *stream,
                                                              dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__manifest_writer_tensor(dunlin__manifest_writer *writer,
                                                              const dunlin__tensor_entry *tensor,
                                                              dunlin_error *error);
DUNLIN_NODISCARD dunlin_status
dunlin__manifest_writer_chunk(dunlin__manifest_writer *writer,
                              const uint8_t sha256[DUNLIN_SHA256_BYTES], dunlin_error *error);
/* Leaves the buffer empty for what comes; the bytes in it, which are the manifest's next ones, come
 * out: the caller has put them away, and they stay as they are until the next record. */
size_t dunlin__manifest_writer_drain(dunlin__manifest_writer *writer);
/* PROTOCOL with what is missing if a stream is not complete. The manifest's bytes come out, drained
 * ones included. */
DUNLIN_NODISCARD dunlin_status dunlin__manifest_writer_end(dunlin__manifest_writer *writer,
                                                           size_t *out_n_bytes,
                                                           dunlin_error *error);

/* ---- reading ---- */

/* Where a manifest's bytes are: read_fn fills `buffer` with the `n_bytes` at `offset`, or fails.
 * It is only asked for bytes below `total_bytes`. Borrowed by the reader. */
typedef struct dunlin__manifest_source {
    void *ctx;
    dunlin_status (*read_fn)(void *ctx, uint64_t offset, void *buffer, size_t n_bytes);
    uint64_t total_bytes;
} dunlin__manifest_source;

/* Bytes in memory as a source; both must stay. */
dunlin__manifest_source dunlin__manifest_source_memory(const uint8_t *bytes, size_t n_bytes);

typedef enum dunlin__manifest_item {
    DUNLIN_MANIFEST_END = 0,
    DUNLIN_MANIFEST_STREAM = 1,
    DUNLIN_MANIFEST_TENSOR = 2,
    DUNLIN_MANIFEST_CHUNK = 3
} dunlin__manifest_item;

/* One record as it is read, with its place. */
typedef struct dunlin__manifest_record {
    dunlin__manifest_item item;
    uint32_t index;       /* of the tensor or chunk within its stream, of the stream itself */
    uint32_t chunk_index; /* of a chunk in the whole manifest: its bit in put_response.missing */
    uint64_t offset;      /* in the stream, of the tensor or chunk */
    uint64_t n_bytes;     /* of the stream, tensor or chunk */
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    dunlin__stream stream; /* the current stream, with every record */
    dunlin__tensor_entry tensor;
} dunlin__manifest_record;

/* A place in a manifest. Plain data: copy it to come back to a place. */
typedef struct dunlin__manifest_reader {
    dunlin__manifest_source source;
    uint64_t offset;
    dunlin__manifest_check check;
} dunlin__manifest_reader;

/* Reads the version; VERSION for another than 1, LIMIT for too many bytes. */
DUNLIN_NODISCARD dunlin_status dunlin__manifest_reader_begin(dunlin__manifest_reader *reader,
                                                             const dunlin__manifest_source *source,
                                                             dunlin__manifest_kind kind,
                                                             dunlin_error *error);

/* The next record, every rule that can be judged by now judged; item END after the last, when the
 * whole has been found right. A failure is final. */
DUNLIN_NODISCARD dunlin_status dunlin__manifest_reader_next(dunlin__manifest_reader *reader,
                                                            dunlin__manifest_record *out_record,
                                                            dunlin_error *error);

/* Moves to the first tensor (or chunk) of the named stream: the next record is it. MISMATCH if
 * there is no such stream. */
DUNLIN_NODISCARD dunlin_status dunlin__manifest_reader_find(dunlin__manifest_reader *reader,
                                                            const char *stream_name,
                                                            dunlin__stream *out_stream,
                                                            dunlin_error *error);

typedef struct dunlin__manifest_summary {
    uint32_t n_streams;
    uint32_t n_tensors;
    uint32_t n_chunks;
    uint64_t total_bytes; /* of all streams */
    uint8_t sha256[DUNLIN_SHA256_BYTES];
} dunlin__manifest_summary;

/* Reads the whole once and judges it; hashes it too. What passed here can be iterated without
 * surprises as long as its bytes stay. */
DUNLIN_NODISCARD dunlin_status dunlin__manifest_check_all(const dunlin__manifest_source *source,
                                                          dunlin__manifest_kind kind,
                                                          dunlin__manifest_summary *out_summary,
                                                          dunlin_error *error);

#endif
