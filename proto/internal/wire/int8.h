/*
 * int8.h - the bytes of an INT8_SCALE tensor: whole numbers of [-127, 127] times one power of two.
 *
 * What a device has trained in int8 goes up so, exactly: a float32 scale of 4 bytes, then a byte a
 * value (FORMATS.md). The scale follows from the values alone: it is the highest power of two that
 * all of them are whole multiples of, 1 where all are 0; so what is written twice is the same. A
 * difference of two such tensors needs nine bits, so whole weights are sent.
 */
#ifndef DUNLIN_WIRE_INT8_H
#define DUNLIN_WIRE_INT8_H

#include <dunlin/base.h>

#include <stddef.h>
#include <stdint.h>

#define DUNLIN_INT8_SCALE_BYTES 4u
#define DUNLIN_INT8_SCALE_LEAST (-126) /* exponents of a scale */
#define DUNLIN_INT8_SCALE_MOST 120

/* The powers of two between which a tensor's values lie. Zero-initialise. */
typedef struct dunlin__int8_range {
    int32_t lowest;  /* that divides all values so far */
    int32_t highest; /* not above the largest magnitude */
    bool has_values; /* other than 0 */
} dunlin__int8_range;

/* Takes in some more values; NUMERIC for one that is not finite. `name` is the tensor's, for
 * errors, as in what follows. */
DUNLIN_NODISCARD dunlin_status dunlin__int8_range_add(dunlin__int8_range *range, const char *name,
                                                      const float *values, size_t n,
                                                      dunlin_error *error);
/* The scale; NUMERIC if the values are no int8 under one. */
DUNLIN_NODISCARD dunlin_status dunlin__int8_scale_of(const dunlin__int8_range *range,
                                                     const char *name, float *out_scale,
                                                     dunlin_error *error);
/* The values of a tensor with this scale as bytes, exactly. */
void dunlin__int8_encode(float scale, const float *values, size_t n, int8_t *out_bytes);

/* The scale of a tensor that has come; PROTOCOL unless it is a power of two within the limits. */
DUNLIN_NODISCARD dunlin_status dunlin__int8_scale_read(const char *name,
                                                       const uint8_t bytes[DUNLIN_INT8_SCALE_BYTES],
                                                       float *out_scale, dunlin_error *error);
void dunlin__int8_scale_write(float scale, uint8_t out_bytes[DUNLIN_INT8_SCALE_BYTES]);
/* Bytes that have come as values; PROTOCOL for -128. */
DUNLIN_NODISCARD dunlin_status dunlin__int8_decode(const char *name, float scale,
                                                   const int8_t *bytes, size_t n, float *out_values,
                                                   dunlin_error *error);

#endif
