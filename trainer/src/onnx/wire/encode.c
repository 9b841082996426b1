/*
 * encode.c - protobuf's wire format (protobuf.dev, "Encoding") into a growing buffer.
 *
 * Invariant: `n` never passes `capacity`; an integer that is negative takes ten bytes, as two's
 * complement does there.
 */
#include "encode.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <string.h>

enum { WIRE_VARINT = 0, WIRE_LENGTH = 2, WIRE_FIXED32 = 5 };

void dunlin__onnx_buffer_free(dunlin_onnx_buffer *buffer)
{
    dunlin__free_array(&buffer->alloc, buffer->bytes, buffer->capacity, 1);
    buffer->bytes = NULL;
    buffer->n = 0;
    buffer->capacity = 0;
}

void dunlin__onnx_put_raw(dunlin_onnx_buffer *buffer, const void *bytes, size_t n)
{
    size_t needed = 0;
    void *memory = buffer->bytes;
    if (n == 0 || buffer->has_failed) {
        return;
    }
    if (!dunlin__add_size(buffer->n, n, &needed) ||
        !dunlin__grow_array(&buffer->alloc, &memory, &buffer->capacity, needed, 1)) {
        buffer->has_failed = true;
        return;
    }
    buffer->bytes = memory;
    memcpy(buffer->bytes + buffer->n, bytes, n);
    buffer->n = needed;
}

void dunlin__onnx_put_varint(dunlin_onnx_buffer *buffer, uint64_t value)
{
    uint8_t bytes[10];
    size_t n = 0;
    while (value >= 0x80) {
        bytes[n++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    bytes[n++] = (uint8_t)value;
    dunlin__onnx_put_raw(buffer, bytes, n);
}

static void put_tag(dunlin_onnx_buffer *buffer, uint32_t field, uint32_t wire_type)
{
    dunlin__onnx_put_varint(buffer, (uint64_t)field << 3 | wire_type);
}

void dunlin__onnx_put_int(dunlin_onnx_buffer *buffer, uint32_t field, int64_t value)
{
    put_tag(buffer, field, WIRE_VARINT);
    dunlin__onnx_put_varint(buffer, (uint64_t)value);
}

void dunlin__onnx_put_float(dunlin_onnx_buffer *buffer, uint32_t field, float value)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    uint8_t bytes[4] = {(uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16),
                        (uint8_t)(bits >> 24)};
    put_tag(buffer, field, WIRE_FIXED32);
    dunlin__onnx_put_raw(buffer, bytes, sizeof bytes);
}

void dunlin__onnx_put_length(dunlin_onnx_buffer *buffer, uint32_t field, uint64_t n)
{
    put_tag(buffer, field, WIRE_LENGTH);
    dunlin__onnx_put_varint(buffer, n);
}

void dunlin__onnx_put_text(dunlin_onnx_buffer *buffer, uint32_t field, const char *text)
{
    size_t n = strlen(text);
    dunlin__onnx_put_length(buffer, field, n);
    dunlin__onnx_put_raw(buffer, text, n);
}

void dunlin__onnx_put_message(dunlin_onnx_buffer *buffer, uint32_t field,
                              const dunlin_onnx_buffer *message)
{
    buffer->has_failed = buffer->has_failed || message->has_failed;
    dunlin__onnx_put_length(buffer, field, message->n);
    dunlin__onnx_put_raw(buffer, message->bytes, message->n);
}
