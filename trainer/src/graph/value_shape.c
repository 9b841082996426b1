/*
 * value_shape.c - a value's rows and channels in a step.
 */
#include "emit.h"

static void value_shape(const dunlin_emit *emit, uint32_t value, int64_t *out_rows,
                        int64_t *out_channels)
{
    int32_t h = 0;
    int32_t w = 0;
    int32_t c = 0;
    dunlin__value_hwc(&emit->net->values[value], &h, &w, &c);
    *out_rows = (int64_t)h * w;
    *out_channels = c;
}

int64_t dunlin__emit_channels(const dunlin_emit *emit, uint32_t value)
{
    int64_t rows = 0;
    int64_t channels = 0;
    value_shape(emit, value, &rows, &channels);
    return channels;
}

int64_t dunlin__emit_rows(const dunlin_emit *emit, uint32_t value)
{
    int64_t rows = 0;
    int64_t channels = 0;
    value_shape(emit, value, &rows, &channels);
    return rows;
}
