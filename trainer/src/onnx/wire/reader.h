/*
 * reader.h - what the files of the ONNX reader share.
 */
#ifndef DUNLIN_ONNX_READER_H
#define DUNLIN_ONNX_READER_H

#include "file.h"

#include <pb.h>

/* The state of one reading: where the fields being decoded go. */
typedef struct dunlin_onnx_reader {
    dunlin_onnx_file *file;
    dunlin_error *error;
    dunlin_status status; /* set by the first refusal */
    uint32_t attribute;   /* being read */
    uint32_t tensor;      /* being read */
    uint64_t external_offset;
    uint64_t external_bytes;
    bool has_external_bytes;
    bool is_branch; /* what is being read is no graph of its own, but a branch in one */
    uint32_t n_branch_outputs;
    dunlin_onnx_text branch_output;
} dunlin_onnx_reader;

/* All return false on failure, with the reader's status set unless protobuf itself is at fault. */
bool dunlin__onnx_reader_refuse(dunlin_onnx_reader *reader, const char *what, uint64_t limit);
bool dunlin__onnx_reader_no_memory(dunlin_onnx_reader *reader);
bool dunlin__onnx_reader_damaged(dunlin_onnx_reader *reader, const char *what);
bool dunlin__onnx_read_text(dunlin_onnx_reader *reader, pb_istream_t *stream, size_t max_bytes,
                            dunlin_onnx_text *out);
bool dunlin__onnx_add_int(dunlin_onnx_reader *reader, int64_t value);
bool dunlin__onnx_add_tensor(dunlin_onnx_reader *reader, uint32_t *out_index);

#define DUNLIN_ONNX_RESERVE(reader, table, limit, what)                                            \
    dunlin__onnx_reserve(reader, &(reader)->file->table, &(reader)->file->table##_capacity,        \
                         (reader)->file->n_##table, sizeof *(reader)->file->table, limit, what)

/* Makes room for one more element of a table; `array` is the address of a pointer of any type. */
bool dunlin__onnx_reserve(dunlin_onnx_reader *reader, void *array, size_t *capacity, size_t n,
                          size_t bytes, size_t limit, const char *what);

/* The stream callback of a model file, and a jump over the rest of a stream. */
bool dunlin__onnx_pb_read(pb_istream_t *stream, pb_byte_t *buffer, size_t n);
bool dunlin__onnx_skip(pb_istream_t *stream);

/* reader.c: one more node; the nodes and tensors of a branch, and the name of its output, which is
 * empty if it is a graph that no branch can be. */
bool dunlin__onnx_reader_add_op(dunlin_onnx_reader *reader, const dunlin_onnx_op *op);
bool dunlin__onnx_read_branch(dunlin_onnx_reader *reader, const dunlin_onnx_attribute *branch,
                              dunlin_onnx_text *out_name);

/* tensor.c */
bool dunlin__onnx_read_tensor(dunlin_onnx_reader *reader, pb_istream_t *stream, uint32_t index);
/* port.c */
bool dunlin__onnx_read_port(dunlin_onnx_reader *reader, pb_istream_t *stream,
                            dunlin_onnx_port *port);

/* metadata.c: one entry of the metadata of a tensor or a value; one of the model's. */
bool dunlin__onnx_read_kind(dunlin_onnx_reader *reader, pb_istream_t *stream, bool *is_buffer);
bool dunlin__onnx_read_model_entry(dunlin_onnx_reader *reader, pb_istream_t *stream);
/* What the graph says of one of its values. */
bool dunlin__onnx_read_value_info(dunlin_onnx_reader *reader, pb_istream_t *stream);

#endif
