/*
 * int8.c - int8 under one scale, from and to float32.
 *
 * Invariant: what is encoded is decoded to the same float32, bit for bit, but for the sign of a
 * zero.
 */
#include <mem/support.h>
#include <wire/int8.h>

#include <math.h>
#include <string.h>

#define FRACTION_BITS 23
#define EXPONENT_MASK 255u
#define EXPONENT_BIAS 150 /* of the significand as a whole number */
#define INT8_BITS 7       /* of a magnitude */

static int32_t place_of_lowest(uint32_t significand)
{
    int32_t place = 0;
    while ((significand >> place & 1u) == 0) {
        place++;
    }
    return place;
}

static int32_t place_of_highest(uint32_t significand)
{
    int32_t place = FRACTION_BITS;
    while ((significand >> place & 1u) == 0) {
        place--;
    }
    return place;
}

dunlin_status dunlin__int8_range_add(dunlin__int8_range *range, const char *name,
                                     const float *values, size_t n, dunlin_error *error)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        memcpy(&bits, &values[i], sizeof bits);
        const uint32_t field = bits >> FRACTION_BITS & EXPONENT_MASK;
        const uint32_t fraction = bits & ((UINT32_C(1) << FRACTION_BITS) - 1);
        if (field == EXPONENT_MASK) {
            return dunlin__fail(error, DUNLIN_NUMERIC, "stream", 0,
                                "tensor \"%.100s\" has a value that is not finite", name);
        }
        const uint32_t significand = fraction | (field > 0 ? UINT32_C(1) << FRACTION_BITS : 0);
        if (significand == 0) {
            continue;
        }
        const int32_t unit = (field > 0 ? (int32_t)field : 1) - EXPONENT_BIAS;
        const int32_t low = unit + place_of_lowest(significand);
        const int32_t high = unit + place_of_highest(significand);
        range->lowest = range->has_values && range->lowest < low ? range->lowest : low;
        range->highest = range->has_values && range->highest > high ? range->highest : high;
        range->has_values = true;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__int8_scale_of(const dunlin__int8_range *range, const char *name,
                                    float *out_scale, dunlin_error *error)
{
    *out_scale = 1.0F;
    if (!range->has_values) {
        return DUNLIN_OK;
    }
    if (range->highest - range->lowest >= INT8_BITS || range->lowest < DUNLIN_INT8_SCALE_LEAST ||
        range->lowest > DUNLIN_INT8_SCALE_MOST) {
        return dunlin__fail(error, DUNLIN_NUMERIC, "stream", 0,
                            "tensor \"%.100s\" is no int8 with one exponent: its values are "
                            "multiples of 2^%d of up to 2^%d",
                            name, (int)range->lowest, (int)range->highest + 1);
    }
    *out_scale = ldexpf(1.0F, range->lowest);
    return DUNLIN_OK;
}

void dunlin__int8_encode(float scale, const float *values, size_t n, int8_t *out_bytes)
{
    for (size_t i = 0; i < n; i++) {
        out_bytes[i] = (int8_t)(values[i] / scale);
    }
}

dunlin_status dunlin__int8_scale_read(const char *name,
                                      const uint8_t bytes[DUNLIN_INT8_SCALE_BYTES],
                                      float *out_scale, dunlin_error *error)
{
    const uint32_t bits = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                          (uint32_t)bytes[3] << 24;
    const int32_t exponent = (int32_t)(bits >> FRACTION_BITS) - EXPONENT_BIAS + FRACTION_BITS;
    if ((bits & ((UINT32_C(1) << FRACTION_BITS) - 1)) != 0 || exponent < DUNLIN_INT8_SCALE_LEAST ||
        exponent > DUNLIN_INT8_SCALE_MOST) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "stream", 0,
                            "tensor \"%.100s\": its scale 0x%08x is no power of two from 2^%d to "
                            "2^%d",
                            name, (unsigned)bits, DUNLIN_INT8_SCALE_LEAST, DUNLIN_INT8_SCALE_MOST);
    }
    memcpy(out_scale, &bits, sizeof bits);
    return DUNLIN_OK;
}

void dunlin__int8_scale_write(float scale, uint8_t out_bytes[DUNLIN_INT8_SCALE_BYTES])
{
    uint32_t bits = 0;
    memcpy(&bits, &scale, sizeof bits);
    for (unsigned i = 0; i < DUNLIN_INT8_SCALE_BYTES; i++) {
        out_bytes[i] = (uint8_t)(bits >> (8 * i));
    }
}

dunlin_status dunlin__int8_decode(const char *name, float scale, const int8_t *bytes, size_t n,
                                  float *out_values, dunlin_error *error)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == INT8_MIN) {
            return dunlin__fail(error, DUNLIN_PROTOCOL, "stream", 0,
                                "tensor \"%.100s\" has the byte -128; -127 to 127 are allowed",
                                name);
        }
        out_values[i] = (float)bytes[i] * scale;
    }
    return DUNLIN_OK;
}
