/*
 * encode.h - protobuf's wire format into a growing buffer.
 */
#ifndef DUNLIN_ONNX_ENCODE_H
#define DUNLIN_ONNX_ENCODE_H

#include <dunlin/alloc.h>

/* After a failed allocation all calls do nothing and `has_failed` stays set. */
typedef struct dunlin_onnx_buffer {
    dunlin_alloc alloc;
    uint8_t *bytes;
    size_t n, capacity;
    bool has_failed;
} dunlin_onnx_buffer;

void dunlin__onnx_buffer_free(dunlin_onnx_buffer *buffer);
void dunlin__onnx_put_raw(dunlin_onnx_buffer *buffer, const void *bytes, size_t n);
void dunlin__onnx_put_varint(dunlin_onnx_buffer *buffer, uint64_t value);
/* Fields: their number and value. */
void dunlin__onnx_put_int(dunlin_onnx_buffer *buffer, uint32_t field, int64_t value);
void dunlin__onnx_put_float(dunlin_onnx_buffer *buffer, uint32_t field, float value);
void dunlin__onnx_put_text(dunlin_onnx_buffer *buffer, uint32_t field, const char *text);
void dunlin__onnx_put_message(dunlin_onnx_buffer *buffer, uint32_t field,
                              const dunlin_onnx_buffer *message);
/* The head of a field of n bytes that follow elsewhere. */
void dunlin__onnx_put_length(dunlin_onnx_buffer *buffer, uint32_t field, uint64_t n);

#endif
