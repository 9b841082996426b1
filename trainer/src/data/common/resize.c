/*
 * resize.c - resizes one plane of bytes, linearly between pixel centres.
 *
 * Invariant: whole-number arithmetic throughout (16 fractional bits), so the bytes are the same on
 * every machine.
 */
#include "data.h"

#define ONE 65536

/* The two neighbours of output pixel i and the weight of the second, of ONE. */
static void neighbours(int32_t i, int32_t n_from, int32_t n_to, int32_t *out_first,
                       int32_t *out_second, int64_t *out_weight)
{
    int64_t centre = ((2 * (int64_t)i + 1) * n_from * ONE) / (2 * (int64_t)n_to) - ONE / 2;
    int64_t last = ((int64_t)n_from - 1) * ONE;
    centre = centre < 0 ? 0 : centre > last ? last : centre;
    *out_first = (int32_t)(centre / ONE);
    *out_second = *out_first + 1 < n_from ? *out_first + 1 : *out_first;
    *out_weight = centre % ONE;
}

void dunlin__data_resize(const uint8_t *from, int32_t from_height, int32_t from_width, uint8_t *to,
                         int32_t height, int32_t width)
{
    for (int32_t y = 0; y < height; y++) {
        int32_t above = 0;
        int32_t below = 0;
        int64_t down = 0;
        neighbours(y, from_height, height, &above, &below, &down);
        const uint8_t *upper = from + (size_t)above * (size_t)from_width;
        const uint8_t *lower = from + (size_t)below * (size_t)from_width;
        for (int32_t x = 0; x < width; x++) {
            int32_t left = 0;
            int32_t right = 0;
            int64_t along = 0;
            neighbours(x, from_width, width, &left, &right, &along);
            int64_t top = upper[left] * (ONE - along) + upper[right] * along;
            int64_t bottom = lower[left] * (ONE - along) + lower[right] * along;
            int64_t value = top * (ONE - down) + bottom * down;
            to[(size_t)y * (size_t)width + (size_t)x] =
                (uint8_t)((value + (int64_t)ONE * ONE / 2) / ((int64_t)ONE * ONE));
        }
    }
}
