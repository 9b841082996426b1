/*
 * int_store.c - a tile of sums to int8: rounded, counted, added to, masked and clipped.
 */
#include "int_gemm.h"

/* |v|, its sign as a mask in *out_sign. */
ALWAYS_INLINE vint size_of(vint v, vint *out_sign)
{
    *out_sign = v >> 31;
    return (v ^ *out_sign) - *out_sign;
}

typedef uint32_t vuint __attribute__((vector_size(VEC * 4)));

ALWAYS_INLINE vint rounded(vint size, int32_t shift, int32_t half)
{
    return (vint)((vuint)(size + half) >> (uint32_t)shift);
}

ALWAYS_INLINE int64_t lanes(vint mask)
{
    int64_t n = 0;
    for (int i = 0; i < VEC; i++) {
        n -= mask[i];
    }
    return n;
}

/* Lanes of a row's vector that count. */
ALWAYS_INLINE vint first_lanes(int32_t n)
{
    int32_t ones[VEC];
    for (int i = 0; i < VEC; i++) {
        ones[i] = i < n ? -1 : 0;
    }
    return vint_load(ones);
}

/* What an addend makes of q; counted are lanes that either rounding clipped. */
static vint added(const int_target *target, int64_t at, int32_t n, vint q, vint *clipped)
{
    const int32_t shift = (int32_t)min_i64(9, max_i64(0, target->addend_shift));
    vint sign;
    const vint addend = vint_chars(target->addend + at, n);
    const vint size = rounded(size_of(addend, &sign), shift, (int32_t)int_half(shift));
    const vint most = (vint){0} + DUNLIN_INT_MOST;
    q += (size ^ sign) - sign;
    *clipped |= (q > most) | (q < -most);
    return vint_max(-most, vint_min(most, q));
}

void K(int_store)(const int_block *block, int64_t row, int64_t n_rows, int64_t column, int64_t n,
                  const int32_t *tile)
{
    int_target *target = (int_target *)block->target;
    const int32_t shift = target->shift > 0 ? target->shift : 0;
    const int32_t half = (int32_t)int_half(shift);
    const vint most = (vint){0} + DUNLIN_INT_MOST;
    const vint low = (vint){0} + target->low;
    const vint high = (vint){0} + target->high;
    const bool is_plain = target->addend == NULL && target->mask == NULL;
    vint largest = {0};
    for (int64_t j = 0; j < n; j += VEC) {
        const int32_t used = vec_left(n, j);
        const vint counts = first_lanes(used);
        for (int64_t i = 0; i < n_rows; i++) {
            const int64_t at = target->at[row + i] + target->column + column + j;
            vint sign;
            const vint size = size_of(vint_load(tile + i * INT_WIDTH + j), &sign);
            const vint whole = rounded(size, shift, half);
            vint q = vint_min(whole, most);
            q = (q ^ sign) - sign;
            largest = vint_max(largest, size & counts);
            if (!is_plain) {
                vint clipped = whole > most;
                if (target->addend != NULL) {
                    q = added(target, at, used, q, &clipped);
                }
                if (target->mask != NULL) {
                    const vint mask = vint_chars(target->mask + at, used);
                    q &= (mask > target->mask_low) & (mask < target->mask_high);
                }
                target->count.n_clipped += lanes(clipped & counts);
            }
            q = vint_max(low, vint_min(high, q));
            vint_store_chars(target->out + at, q, used);
        }
    }
    int32_t most_of_tile = 0;
    for (int i = 0; i < VEC; i++) {
        most_of_tile = largest[i] > most_of_tile ? largest[i] : most_of_tile;
    }
    target->count.largest = max_i64(target->count.largest, most_of_tile);
    /* Seldom: so it is counted only where there is one. */
    if (is_plain && int_shifted((uint32_t)most_of_tile, shift, (uint32_t)half) > DUNLIN_INT_MOST) {
        for (int64_t i = 0; i < n_rows; i++) {
            for (int64_t j = 0; j < n; j++) {
                const uint32_t size = int_size(tile[i * INT_WIDTH + j]);
                target->count.n_clipped +=
                    int_shifted(size, shift, (uint32_t)half) > DUNLIN_INT_MOST ? 1 : 0;
            }
        }
    }
}
