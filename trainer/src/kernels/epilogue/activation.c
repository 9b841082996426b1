/*
 * activation.c - the activations of a block of pixels, and their derivatives, one vector of
 * channels wide.
 *
 * An element has the bits that view_value() and view_grad() give it.
 */
#include "activation.h"

#include "kernels/simd/prefetch.h"
#include "kernels/simd/stored.h"

ALWAYS_INLINE void block_row(const activation_block *block, dunlin_view_fn fn, int64_t r,
                             bool has_values, bool has_slopes)
{
    const vfloat scale = vload(block->scale);
    const vfloat shift = vload(block->shift);
    const float *x =
        stored_at(block->x, r * block->row + block->first_pixel * block->pixel, block->is_half);
    const int64_t at = (r * block->n_pixels + block->first_pixel) * VEC;
    float *values = has_values ? block->values + at : NULL;
    float *slopes = has_slopes ? block->slopes + at : NULL;
    for (int64_t p = block->first_pixel; p < block->end_pixel; p++) {
        const vfloat v = vfma(vload_stored(x, VEC, block->is_half), scale, shift);
        x = stored_at(x, block->pixel, block->is_half);
        vfloat slope;
        const vfloat value =
            fn == DUNLIN_VIEW_SILU ? vsilu_both(v, &slope) : vhard_swish_both(v, &slope);
        if (has_values) {
            vstore(values, value);
            values += VEC;
        }
        if (has_slopes) {
            vstore(slopes, slope);
            slopes += VEC;
        }
    }
}

static void zero_outside(const activation_block *block, float *to, int64_t r)
{
    if (to != NULL) {
        to += r * block->n_pixels * VEC;
        memset(to, 0, (size_t)(block->first_pixel * VEC) * sizeof(float));
        memset(to + block->end_pixel * VEC, 0,
               (size_t)((block->n_pixels - block->end_pixel) * VEC) * sizeof(float));
    }
}

ALWAYS_INLINE void block_rows(const activation_block *block, dunlin_view_fn fn, bool has_values,
                              bool has_slopes)
{
    const bool is_whole = block->first_pixel == 0 && block->end_pixel == block->n_pixels;
    for (int64_t r = block->first_row; r < block->end_row; r++) {
        for (int i = 0; i < block->n_lines; i++) {
            const int64_t at = r * block->row + block->lines[i];
            prefetch_line((const char *)stored_at(block->x, at, block->is_half), block->is_near);
        }
        if (!is_whole) {
            zero_outside(block, block->values, r);
            zero_outside(block, block->slopes, r);
        }
        block_row(block, fn, r, has_values, has_slopes);
    }
}

ALWAYS_INLINE void block_of(const activation_block *block, dunlin_view_fn fn)
{
    if (block->slopes == NULL) {
        block_rows(block, fn, true, false);
    } else if (block->values == NULL) {
        block_rows(block, fn, false, true);
    } else {
        block_rows(block, fn, true, true);
    }
}

void K(activation_block)(const activation_block *given)
{
    const activation_block block = *given; /* nothing stored can be it */
    if (block.fn == DUNLIN_VIEW_SILU) {
        block_of(&block, DUNLIN_VIEW_SILU);
    } else {
        block_of(&block, DUNLIN_VIEW_HARD_SWISH);
    }
}
