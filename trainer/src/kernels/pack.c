/*
 * pack.c - what the GEMM reads, brought into panels: windows of images as rows (implicit im2col,
 * a block at a time), B as columns of vectors.
 *
 * Every panel element is written, padding as zero, so no panel remembers an earlier one.
 */
#include "isa.h"

/* A window's row of taps on one source row; columns count pixels from the window's first. */
typedef struct tap_run {
    const conv_view *view;
    const float *row; /* of the source; NULL: outside */
    int64_t first_column;
    bool is_merged; /* all taps of the run lie one behind the other in memory */
} tap_run;

/* Elements [from, from + n) of a merged run: zeros, pixels, zeros. */
static void copy_merged(const tap_run *run, int64_t from, int64_t n, float *out)
{
    const conv_view *view = run->view;
    const int64_t channels = view->channels;
    int64_t first = max_i64(0, -run->first_column) * channels;
    int64_t end = min_i64(view->w.n_taps, view->w.n_source - run->first_column) * channels;
    int64_t to = from + n;
    int64_t a = min_i64(max_i64(first, from), to);
    int64_t b = max_i64(min_i64(end, to), a);
    vclear(out, a - from);
    vcopy(out + (a - from), run->row + run->first_column * channels + a, b - a);
    vclear(out + (b - from), to - b);
}

/* Elements [k0, k1) of one window. */
static void copy_window(const gather_call *call, tap_run *run, const float *sample, int64_t y0,
                        float *out)
{
    const conv_view *view = call->view;
    const int64_t channels = view->channels;
    const int64_t length = run->is_merged ? channels * view->w.n_taps : channels;
    int64_t k = call->k0;
    while (k < call->k1) {
        int64_t segment = k / length;
        int64_t from = k - segment * length;
        int64_t n = min_i64(length - from, call->k1 - k);
        int64_t tap_h = run->is_merged ? segment : segment / view->w.n_taps;
        int64_t y = y0 + tap_h * view->h.pitch;
        int64_t x = run->first_column;
        if (!run->is_merged) {
            x += (segment - tap_h * view->w.n_taps) * view->w.pitch;
        }
        bool is_inside =
            y >= 0 && y < view->h.n_source && (run->is_merged || (x >= 0 && x < view->w.n_source));
        if (!is_inside) {
            vclear(out, n);
        } else if (run->is_merged) {
            run->row = sample + y * view->w.n_source * view->source_pitch;
            copy_merged(run, from, n, out);
        } else {
            vcopy(out, sample + (y * view->w.n_source + x) * view->source_pitch + from, n);
        }
        out += n;
        k += n;
    }
}

void K(gather)(const gather_call *call)
{
    const conv_view *view = call->view;
    const int64_t sample_floats = (int64_t)view->h.n_source * view->w.n_source * view->source_pitch;
    tap_run run = {.view = view,
                   .is_merged = view->w.n_taps > 1 && view->w.pitch == 1 &&
                                view->channels == view->source_pitch};
    int64_t sample = call->first_row / view_rows(view);
    int64_t t = call->first_row % view_rows(view) / view->w.n_grid;
    int64_t u = call->first_row % view->w.n_grid;
    for (int64_t i = 0; i < call->n_rows; i++) {
        run.first_column = u * view->w.step + view->w.offset;
        copy_window(call, &run, call->x + sample * sample_floats, t * view->h.step + view->h.offset,
                    call->out + i * call->pitch);
        if (++u == view->w.n_grid) {
            u = 0;
            if (++t == view->h.n_grid) {
                t = 0;
                sample++;
            }
        }
    }
}

void K(pack_b)(const float *b, int64_t pitch, int64_t k, int64_t n, float *out)
{
    int64_t column = 0;
    while (column < n) {
        const int32_t vectors = panel_vectors(ceil_div(n - column, VEC));
        const int32_t n_last = vec_left(n, column + (int64_t)(vectors - 1) * VEC);
        for (int64_t i = 0; i < k; i++) {
            const float *from = b + i * pitch + column;
            for (int32_t j = 0; j < vectors - 1; j++) {
                vstore(out + j * VEC, vload(from + j * VEC));
            }
            vstore(out + (vectors - 1) * VEC, vload_n(from + (vectors - 1) * VEC, n_last));
            out += vectors * VEC;
        }
        column += (int64_t)vectors * VEC;
    }
}

typedef float quad __attribute__((vector_size(16)));
typedef float quad_unaligned __attribute__((vector_size(16), aligned(4), may_alias));

/* to[j * to_pitch + i] = from[i * from_pitch + j], 4 x 4. */
ALWAYS_INLINE void turn_quad(const float *from, int64_t from_pitch, float *to, int64_t to_pitch)
{
    quad a = *(const quad_unaligned *)from;
    quad b = *(const quad_unaligned *)(from + from_pitch);
    quad c = *(const quad_unaligned *)(from + 2 * from_pitch);
    quad d = *(const quad_unaligned *)(from + 3 * from_pitch);
    quad ac_low = __builtin_shufflevector(a, c, 0, 4, 1, 5);
    quad ac_high = __builtin_shufflevector(a, c, 2, 6, 3, 7);
    quad bd_low = __builtin_shufflevector(b, d, 0, 4, 1, 5);
    quad bd_high = __builtin_shufflevector(b, d, 2, 6, 3, 7);
    *(quad_unaligned *)to = __builtin_shufflevector(ac_low, bd_low, 0, 4, 1, 5);
    *(quad_unaligned *)(to + to_pitch) = __builtin_shufflevector(ac_low, bd_low, 2, 6, 3, 7);
    *(quad_unaligned *)(to + 2 * to_pitch) = __builtin_shufflevector(ac_high, bd_high, 0, 4, 1, 5);
    *(quad_unaligned *)(to + 3 * to_pitch) = __builtin_shufflevector(ac_high, bd_high, 2, 6, 3, 7);
}

void K(turn)(const float *from, int64_t from_pitch, int64_t rows, int64_t columns, float *to,
             int64_t to_pitch)
{
    const int64_t rows_by_4 = rows & ~(int64_t)3;
    const int64_t columns_by_4 = columns & ~(int64_t)3;
    for (int64_t i = 0; i < rows_by_4; i += 4) {
        for (int64_t j = 0; j < columns_by_4; j += 4) {
            turn_quad(from + i * from_pitch + j, from_pitch, to + j * to_pitch + i, to_pitch);
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = i < rows_by_4 ? columns_by_4 : 0; j < columns; j++) {
            to[j * to_pitch + i] = from[i * from_pitch + j];
        }
    }
}

void K(pack_b_turned)(const float *b, int64_t pitch, int64_t n, int64_t k, int64_t first_k,
                      int64_t panel_k, float *out)
{
    int64_t column = 0;
    while (column < n) {
        const int64_t width = (int64_t)panel_vectors(ceil_div(n - column, VEC)) * VEC;
        const int64_t used = min_i64(width, n - column);
        float *to = out + first_k * width;
        K(turn)(b + column * pitch, pitch, used, k, to, width);
        for (int64_t i = 0; used < width && i < k; i++) {
            for (int64_t j = used; j < width; j++) {
                to[i * width + j] = 0.0f;
            }
        }
        column += width;
        out += panel_k * width;
    }
}
