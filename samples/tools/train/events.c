/*
 * events.c - records of TensorBoard's event files: each one an Event message in the framing of
 * TFRecord.
 *
 * The framing: 8 bytes of length, 4 of its checksum, the data, 4 of theirs; all little-endian. A
 * checksum is CRC-32C (RFC 3720, appendix B.4), turned right by 15 bits plus 0xa282ead8. Of Event
 * and Summary (tensorflow/core/util/event.proto, framework/summary.proto) these fields are written:
 * wall_time 1, step 2, file_version 3, summary 5 with value 1 (tag 1, simple_value 2), session_log
 * 7 with status 1.
 */
#include "events.h"

#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

typedef struct writer {
    unsigned char *bytes;
    size_t n;
} writer;

uint32_t train_crc32c(const void *data, size_t n)
{
    const unsigned char *bytes = data;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (UINT32_C(0x82f63b78) & (0U - (crc & 1U)));
        }
    }
    return ~crc;
}

static uint32_t masked(const void *data, size_t n)
{
    const uint32_t crc = train_crc32c(data, n);
    return ((crc >> 15) | (crc << 17)) + UINT32_C(0xa282ead8);
}

static void put_little(writer *to, uint64_t value, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) {
        to->bytes[to->n++] = (unsigned char)(value >> (8 * i));
    }
}

static void put_varint(writer *to, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        to->bytes[to->n++] = (unsigned char)(value | 0x80);
    }
    to->bytes[to->n++] = (unsigned char)value;
}

static void put_key(writer *to, unsigned field, unsigned kind)
{
    put_varint(to, (uint64_t)field << 3 | kind);
}

static void put_bytes(writer *to, unsigned field, const void *data, size_t n)
{
    put_key(to, field, BYTES);
    put_varint(to, n);
    memcpy(to->bytes + to->n, data, n);
    to->n += n;
}

static void begin_event(writer *to, double wall_s, int64_t step)
{
    uint64_t bits = 0;
    memcpy(&bits, &wall_s, sizeof bits);
    put_key(to, 1, FIXED64);
    put_little(to, bits, 8);
    put_key(to, 2, VARINT);
    put_varint(to, (uint64_t)step);
}

static void put_scalar(writer *summary, const train_scalar *scalar)
{
    unsigned char bytes[TRAIN_TAG_BYTES + 16];
    writer value = {.bytes = bytes};
    const float number = (float)scalar->value;
    uint32_t bits = 0;
    memcpy(&bits, &number, sizeof bits);
    put_bytes(&value, 1, scalar->tag, strlen(scalar->tag));
    put_key(&value, 2, FIXED32);
    put_little(&value, bits, 4);
    put_bytes(summary, 1, value.bytes, value.n);
}

/* The record of an event. */
static size_t frame(const writer *event, unsigned char *out)
{
    writer to = {.bytes = out};
    put_little(&to, event->n, 8);
    put_little(&to, masked(out, 8), 4);
    memcpy(to.bytes + to.n, event->bytes, event->n);
    to.n += event->n;
    put_little(&to, masked(event->bytes, event->n), 4);
    return to.n;
}

size_t train_event_version(double wall_s, unsigned char out[TRAIN_EVENT_BYTES])
{
    static const char version[] = "brain.Event:2";
    unsigned char bytes[64];
    writer event = {.bytes = bytes};
    begin_event(&event, wall_s, 0);
    put_bytes(&event, 3, version, sizeof version - 1);
    return frame(&event, out);
}

size_t train_event_start(double wall_s, int64_t step, unsigned char out[TRAIN_EVENT_BYTES])
{
    static const unsigned char start[] = {1 << 3 | VARINT, 1};
    unsigned char bytes[64];
    writer event = {.bytes = bytes};
    begin_event(&event, wall_s, step);
    put_bytes(&event, 7, start, sizeof start);
    return frame(&event, out);
}

size_t train_event_scalars(double wall_s, int64_t step, const train_scalar *scalars, size_t n,
                           unsigned char out[TRAIN_EVENT_BYTES])
{
    unsigned char bytes[TRAIN_EVENT_BYTES];
    unsigned char summary_bytes[TRAIN_EVENT_BYTES];
    writer event = {.bytes = bytes};
    writer summary = {.bytes = summary_bytes};
    for (size_t i = 0; i < n && i < TRAIN_MAX_SCALARS; i++) {
        put_scalar(&summary, &scalars[i]);
    }
    begin_event(&event, wall_s, step);
    put_bytes(&event, 5, summary.bytes, summary.n);
    return frame(&event, out);
}
