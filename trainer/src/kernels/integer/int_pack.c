/*
 * int_pack.c - operands of integer products: rows side by side in groups of DOT_GROUP, and windows
 * of a view as rows.
 */
#include "int_gemm.h"

#define CHUNK 16 /* columns at once */

typedef int8_t chars16 __attribute__((vector_size(16)));
typedef int16_t shorts8 __attribute__((vector_size(16)));
typedef int32_t ints4 __attribute__((vector_size(16)));
typedef int8_t chars8 __attribute__((vector_size(8)));

/* n of CHUNK elements of a row; beyond it and where there is no row zero. */
ALWAYS_INLINE chars16 chunk_load(const int8_t *from, int64_t n)
{
    chars16 v = {0};
    if (n == CHUNK) {
        memcpy(&v, from, CHUNK);
    } else if (n > 0) {
#if defined(__AVX512F__)
        v = (chars16)_mm_maskz_loadu_epi8((__mmask16)(0xFFFFU >> (CHUNK - n)), from);
#else
        memcpy(&v, from, (size_t)n);
#endif
    }
    return v;
}

#define PAIRS_LOW(a, b)                                                                            \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define PAIRS_HIGH(a, b)                                                                           \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

ALWAYS_INLINE void widen_store(dot_b *to, chars16 v)
{
    if (sizeof(dot_b) == 1) {
        memcpy(to, &v, sizeof v);
        return;
    }
    const chars8 low = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
    const chars8 high = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
    const shorts8 wide_low = __builtin_convertvector(low, shorts8);
    const shorts8 wide_high = __builtin_convertvector(high, shorts8);
    memcpy(to, &wide_low, sizeof wide_low);
    memcpy(to + 8, &wide_high, sizeof wide_high);
}

/* CHUNK columns of one group: rows[i] as it is loaded. */
ALWAYS_INLINE void group_store(const chars16 *rows, dot_b *to)
{
#if DOT_GROUP == 4
    const shorts8 ab_low = (shorts8)PAIRS_LOW(rows[0], rows[1]);
    const shorts8 ab_high = (shorts8)PAIRS_HIGH(rows[0], rows[1]);
    const shorts8 cd_low = (shorts8)PAIRS_LOW(rows[2], rows[3]);
    const shorts8 cd_high = (shorts8)PAIRS_HIGH(rows[2], rows[3]);
    widen_store(to, (chars16)__builtin_shufflevector(ab_low, cd_low, 0, 8, 1, 9, 2, 10, 3, 11));
    widen_store(to + 16,
                (chars16)__builtin_shufflevector(ab_low, cd_low, 4, 12, 5, 13, 6, 14, 7, 15));
    widen_store(to + 32,
                (chars16)__builtin_shufflevector(ab_high, cd_high, 0, 8, 1, 9, 2, 10, 3, 11));
    widen_store(to + 48,
                (chars16)__builtin_shufflevector(ab_high, cd_high, 4, 12, 5, 13, 6, 14, 7, 15));
#elif DOT_GROUP == 2
    widen_store(to, PAIRS_LOW(rows[0], rows[1]));
    widen_store(to + 16, PAIRS_HIGH(rows[0], rows[1]));
#else
    widen_store(to, rows[0]);
#endif
}

/* A panel is VEC or more columns wide, which may be less than a chunk. */
static void group_store_narrow(const chars16 *rows, dot_b *to, int64_t width)
{
    dot_b whole[CHUNK * DOT_GROUP];
    group_store(rows, whole);
    memcpy(to, whole, (size_t)(width * DOT_GROUP) * sizeof(dot_b));
}

#if defined(__AVX512F__) && DOT_OFFSET != 0

/* Four rows of 64 columns, side by side and in order. */
ALWAYS_INLINE void store_64(const __m512i *rows, dot_b *to)
{
    const __m512i ab_low = _mm512_unpacklo_epi8(rows[0], rows[1]);
    const __m512i ab_high = _mm512_unpackhi_epi8(rows[0], rows[1]);
    const __m512i cd_low = _mm512_unpacklo_epi8(rows[2], rows[3]);
    const __m512i cd_high = _mm512_unpackhi_epi8(rows[2], rows[3]);
    /* of lane i: columns 16 i to 16 i + 3, and so on */
    const __m512i a = _mm512_unpacklo_epi16(ab_low, cd_low);
    const __m512i b = _mm512_unpackhi_epi16(ab_low, cd_low);
    const __m512i c = _mm512_unpacklo_epi16(ab_high, cd_high);
    const __m512i d = _mm512_unpackhi_epi16(ab_high, cd_high);
    const __m512i ab_01 = _mm512_shuffle_i32x4(a, b, 0x44);
    const __m512i ab_23 = _mm512_shuffle_i32x4(a, b, 0xEE);
    const __m512i cd_01 = _mm512_shuffle_i32x4(c, d, 0x44);
    const __m512i cd_23 = _mm512_shuffle_i32x4(c, d, 0xEE);
    _mm512_storeu_si512(to, _mm512_shuffle_i32x4(ab_01, cd_01, 0x88));
    _mm512_storeu_si512(to + 64, _mm512_shuffle_i32x4(ab_01, cd_01, 0xDD));
    _mm512_storeu_si512(to + 128, _mm512_shuffle_i32x4(ab_23, cd_23, 0x88));
    _mm512_storeu_si512(to + 192, _mm512_shuffle_i32x4(ab_23, cd_23, 0xDD));
}

/* Columns of a group of rows, as many as come in whole vectors; returns how many. */
static int64_t interleave_wide(const int_rows *rows, int64_t row, dot_b *to)
{
    const __m512i flip = _mm512_set1_epi8((char)rows->flip);
    const int8_t *from = rows->from + row * rows->pitch;
    int64_t j = 0;
    if (rows->k - row < DOT_GROUP) {
        return 0;
    }
    for (; j + 64 <= rows->n; j += 64) {
        __m512i group[DOT_GROUP];
        UNROLL
        for (int64_t g = 0; g < DOT_GROUP; g++) {
            group[g] = _mm512_xor_si512(_mm512_loadu_si512(from + g * rows->pitch + j), flip);
        }
        store_64(group, to + j * DOT_GROUP);
    }
    return j;
}

/* Whole panels of 32 columns, two groups at once; returns the rows that are done. */
static int64_t interleave_panel(const int_rows *rows, dot_b *to)
{
    const __m512i flip = _mm512_set1_epi8((char)rows->flip);
    const int64_t pitch = rows->pitch;
    int64_t i = 0;
    if (rows->n != 32 || rows->width != 32) {
        return 0;
    }
    for (; i + 2 * DOT_GROUP <= rows->k; i += 2 * DOT_GROUP) {
        __m512i group[DOT_GROUP];
        UNROLL
        for (int64_t g = 0; g < DOT_GROUP; g++) {
            const int8_t *from = rows->from + (i + g) * pitch;
            const __m256i low = _mm256_loadu_si256((const __m256i_u *)from);
            const __m256i high = _mm256_loadu_si256((const __m256i_u *)(from + DOT_GROUP * pitch));
            const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
            group[g] = _mm512_xor_si512(both, flip);
        }
        store_64(group, to + i * 32);
    }
    return i;
}

#else

static int64_t interleave_wide(const int_rows *rows, int64_t row, dot_b *to)
{
    (void)rows;
    (void)row;
    (void)to;
    return 0;
}

static int64_t interleave_panel(const int_rows *rows, dot_b *to)
{
    (void)rows;
    (void)to;
    return 0;
}

#endif

void K(int_interleave)(const int_rows *rows, dot_b *to)
{
    const chars16 flip = (chars16){0} + (int8_t)rows->flip;
    const int64_t done = interleave_panel(rows, to);
    to += done * rows->width;
    for (int64_t i = done; i < rows->k; i += DOT_GROUP) {
        const int8_t *from = rows->from + i * rows->pitch;
        const int64_t here = min_i64(DOT_GROUP, rows->k - i);
        for (int64_t j = interleave_wide(rows, i, to); j < rows->width; j += CHUNK) {
            const int64_t n = max_i64(0, min_i64(CHUNK, rows->n - j));
            chars16 group[DOT_GROUP];
            UNROLL
            for (int64_t g = 0; g < DOT_GROUP; g++) {
                group[g] = chunk_load(from + g * rows->pitch + j, g < here ? n : 0) ^ flip;
            }
            if (rows->width - j >= CHUNK) {
                group_store(group, to + j * DOT_GROUP);
            } else {
                group_store_narrow(group, to + j * DOT_GROUP, rows->width - j);
            }
        }
        to += rows->width * DOT_GROUP;
    }
}

#if DOT_GROUP == 4

/* Four columns of 16 rows of depth: what lies in a group of a column is a whole. */
ALWAYS_INLINE void turn_groups(const int8_t *from, int64_t pitch, dot_b *to, int64_t step)
{
    ints4 a;
    ints4 b;
    ints4 c;
    ints4 d;
    memcpy(&a, from, sizeof a);
    memcpy(&b, from + pitch, sizeof b);
    memcpy(&c, from + 2 * pitch, sizeof c);
    memcpy(&d, from + 3 * pitch, sizeof d);
    const ints4 ac_low = __builtin_shufflevector(a, c, 0, 4, 1, 5);
    const ints4 ac_high = __builtin_shufflevector(a, c, 2, 6, 3, 7);
    const ints4 bd_low = __builtin_shufflevector(b, d, 0, 4, 1, 5);
    const ints4 bd_high = __builtin_shufflevector(b, d, 2, 6, 3, 7);
    const ints4 turned[4] = {__builtin_shufflevector(ac_low, bd_low, 0, 4, 1, 5),
                             __builtin_shufflevector(ac_low, bd_low, 2, 6, 3, 7),
                             __builtin_shufflevector(ac_high, bd_high, 0, 4, 1, 5),
                             __builtin_shufflevector(ac_high, bd_high, 2, 6, 3, 7)};
    for (int64_t i = 0; i < 4; i++) {
        memcpy(to + i * step, &turned[i], sizeof turned[i]);
    }
}

static int64_t turn_most(const int_rows *rows, dot_b *to)
{
    const int64_t step = rows->width * DOT_GROUP;
    const int64_t done = rows->k / 16 * 16;
    for (int64_t i = 0; rows->n == rows->width && i < done; i += 16) {
        for (int64_t j = 0; j < rows->width; j += 4) {
            turn_groups(rows->from + j * rows->pitch + i, rows->pitch,
                        to + i / DOT_GROUP * step + j * DOT_GROUP, step);
        }
    }
    return rows->n == rows->width ? done : 0;
}

#else

static int64_t turn_most(const int_rows *rows, dot_b *to)
{
    (void)rows;
    (void)to;
    return 0;
}

#endif

void K(int_interleave_turned)(const int_rows *rows, dot_b *to)
{
    const int64_t step = rows->width * DOT_GROUP;
    int64_t whole = turn_most(rows, to);
    /* what lies in a group of a column is a whole */
    for (; sizeof(dot_b) == 1 && whole + DOT_GROUP <= rows->k; whole += DOT_GROUP) {
        dot_b *line = to + whole / DOT_GROUP * step;
        for (int64_t j = 0; j < rows->n; j++) {
            memcpy(line + j * DOT_GROUP, rows->from + j * rows->pitch + whole, DOT_GROUP);
        }
        memset(line + rows->n * DOT_GROUP, 0, (size_t)((rows->width - rows->n) * DOT_GROUP));
    }
    for (int64_t i = whole; i < round_up(rows->k, DOT_GROUP); i++) {
        dot_b *line = to + i / DOT_GROUP * step + i % DOT_GROUP;
        for (int64_t j = 0; j < rows->width; j++) {
            const int8_t v = j < rows->n && i < rows->k ? rows->from[j * rows->pitch + i] : 0;
            line[j * DOT_GROUP] = (dot_b)v;
        }
    }
}

void K(int_start)(const dot_b *b, int64_t groups, int64_t width, const int32_t *bias, int64_t n,
                  int32_t *start)
{
    const dot_a one[4] = {1, 1, 1, 1};
    const vdot_operand ones = vdot_spread(one);
    const int64_t whole = DOT_OFFSET != 0 ? groups / 4 * 4 : 0;
    for (int64_t j = 0; j < width; j += VEC) {
        vint sums[4] = {{0}, {0}, {0}, {0}}; /* which do not wait for each other */
        for (int64_t k = 0; k < whole; k += 4) {
            UNROLL
            for (int64_t i = 0; i < 4; i++) {
                sums[i] = vdot(sums[i], ones, vdot_load(b + ((k + i) * width + j) * DOT_GROUP));
            }
        }
        for (int64_t k = whole; DOT_OFFSET != 0 && k < groups; k++) {
            sums[0] = vdot(sums[0], ones, vdot_load(b + (k * width + j) * DOT_GROUP));
        }
        const vuint sum = (vuint)(sums[0] + sums[1]) + (vuint)(sums[2] + sums[3]);
        /* without sign: it may wrap, and wraps back as the products are added */
        vint_store(start + j, (vint)(sum * (uint32_t)-DOT_OFFSET));
        for (int64_t i = j; bias != NULL && i < min_i64(n, j + VEC); i++) {
            start[i] = (int32_t)((uint32_t)start[i] + (uint32_t)bias[i]);
        }
    }
}

/* n elements of a row of A. */
ALWAYS_INLINE void a_copy(dot_a *to, const int8_t *from, int64_t n)
{
    int64_t i = 0;
#if defined(__AVX512F__) && DOT_OFFSET != 0
    const __m512i flip = _mm512_set1_epi8((char)DOT_OFFSET);
    for (; i + 64 <= n; i += 64) {
        _mm512_storeu_si512(to + i, _mm512_xor_si512(_mm512_loadu_si512(from + i), flip));
    }
    if (i < n) {
        const __mmask64 part = ~(__mmask64)0 >> (64 - (n - i));
        _mm512_mask_storeu_epi8(to + i, part,
                                _mm512_xor_si512(_mm512_maskz_loadu_epi8(part, from + i), flip));
    }
#else
    for (; i < n; i++) {
        to[i] = (dot_a)(from[i] + DOT_OFFSET);
    }
#endif
}

void K(int_pack_row)(const int8_t *from, int64_t n, dot_a *to)
{
    a_copy(to, from, n);
}

ALWAYS_INLINE void a_clear(dot_a *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = (dot_a)DOT_OFFSET;
    }
}

void K(int_clear_row)(int64_t n, dot_a *to)
{
    a_clear(to, n);
}

ALWAYS_INLINE void chars_copy(int8_t *to, const int8_t *from, int64_t n)
{
    memcpy(to, from, (size_t)n);
}

ALWAYS_INLINE void chars_clear(int8_t *to, int64_t n)
{
    memset(to, 0, (size_t)n);
}

/* A window of short lines that lies in the source: each line as a chunk, of which the next line
 * overwrites what is too much. False: it is not one. */
static bool copy_short(const int_window *window, uint8_t flip, int8_t *to)
{
    const conv_view *view = window->view;
    const int64_t line = (int64_t)view->w.n_taps * view->channels;
    const int64_t y0 = window->t * view->h.step + view->h.offset;
    const int64_t x0 = window->u * view->w.step + view->w.offset;
    const int64_t last = y0 + (int64_t)(view->h.n_taps - 1) * view->h.pitch;
    if (line > CHUNK || view->w.pitch != 1 || view->channels != view->source_pitch || y0 < 0 ||
        last >= view->h.n_source || x0 < 0 || x0 + view->w.n_taps > view->w.n_source) {
        return false;
    }
    const int64_t pitch = (int64_t)view->w.n_source * view->source_pitch;
    const int8_t *from = window->source + y0 * pitch + x0 * view->source_pitch;
    if (window->end - (from + (last - y0) * pitch) < CHUNK) {
        return false;
    }
    const chars16 with = (chars16){0} + (int8_t)flip;
    for (int64_t i = 0; i < view->h.n_taps; i++) {
        chars16 v;
        memcpy(&v, from + i * view->h.pitch * pitch, sizeof v);
        v ^= with;
        memcpy(to + i * line, &v, sizeof v);
    }
    return true;
}

/* A window's taps, those outside the source as zero; a row of taps at once where they lie together.
 */
#define WINDOW(name, type, copy, clear)                                                            \
    void K(name)(const int_window *window, type *to)                                               \
    {                                                                                              \
        const conv_view *view = window->view;                                                      \
        const int64_t channels = view->channels;                                                   \
        const int64_t y0 = window->t * view->h.step + view->h.offset;                              \
        const int64_t x0 = window->u * view->w.step + view->w.offset;                              \
        const bool is_run = view->w.pitch == 1 && channels == view->source_pitch;                  \
        for (int64_t i = 0; i < view->h.n_taps; i++) {                                             \
            const int64_t y = y0 + i * view->h.pitch;                                              \
            if (y < 0 || y >= view->h.n_source) {                                                  \
                clear(to, view->w.n_taps *channels);                                               \
                to += view->w.n_taps * channels;                                                   \
                continue;                                                                          \
            }                                                                                      \
            const int8_t *line = window->source + y * view->w.n_source * view->source_pitch;       \
            if (is_run) {                                                                          \
                const int64_t first = min_i64(view->w.n_taps, max_i64(0, -x0));                    \
                const int64_t end =                                                                \
                    max_i64(first, min_i64(view->w.n_taps, view->w.n_source - x0));                \
                clear(to, first *channels);                                                        \
                copy(to + first * channels, line + (x0 + first) * channels,                        \
                     (end - first) * channels);                                                    \
                clear(to + end * channels, (view->w.n_taps - end) * channels);                     \
                to += view->w.n_taps * channels;                                                   \
                continue;                                                                          \
            }                                                                                      \
            for (int64_t j = 0; j < view->w.n_taps; j++) {                                         \
                const int64_t x = x0 + j * view->w.pitch;                                          \
                if (x < 0 || x >= view->w.n_source) {                                              \
                    clear(to, channels);                                                           \
                } else {                                                                           \
                    copy(to, line + x * view->source_pitch, channels);                             \
                }                                                                                  \
                to += channels;                                                                    \
            }                                                                                      \
        }                                                                                          \
    }

WINDOW(int_pack_long, dot_a, a_copy, a_clear)
WINDOW(int_copy_long, int8_t, chars_copy, chars_clear)

void K(int_pack_window)(const int_window *window, dot_a *to)
{
    if (sizeof(dot_a) != 1 || !copy_short(window, DOT_OFFSET, (int8_t *)to)) {
        K(int_pack_long)(window, to);
    }
}

void K(int_copy_window)(const int_window *window, int8_t *to)
{
    if (!copy_short(window, 0, to)) {
        K(int_copy_long)(window, to);
    }
}
