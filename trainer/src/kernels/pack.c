/*
 * pack.c - what the GEMM reads, brought into panels: windows of images as rows (implicit im2col,
 * a block at a time), B as columns of vectors.
 *
 * Every panel element is written, padding as zero, so no panel remembers an earlier one.
 */
#include "isa.h"

/*
 * How a view's windows are read: in runs of `length` elements, `runs` to a row of taps. When all
 * taps of a row lie one behind the other in memory, the row is one run.
 */
typedef struct window_runs {
    const conv_view *view;
    bool is_merged;
    int64_t length;
    int64_t runs;
    int64_t first_h, first_w, first_element; /* where the asked elements begin */
    int64_t n_elements;
} window_runs;

/* A window's place: source pixel of its first tap, perhaps outside. */
typedef struct window_place {
    const float *sample;
    int64_t y, x;
} window_place;

/* Elements [from, from + n) of a merged run that starts at column x of `row`: zeros, pixels,
 * zeros. */
static void copy_merged(const conv_view *view, const float *row, int64_t x, int64_t from, int64_t n,
                        float *out)
{
    const int64_t channels = view->channels;
    if (x >= 0 && x + view->w.n_taps <= view->w.n_source) {
        vcopy(out, row + x * channels + from, n);
        return;
    }
    const int64_t to = from + n;
    const int64_t first = min_i64(max_i64(max_i64(0, -x) * channels, from), to);
    const int64_t end =
        max_i64(min_i64(min_i64(view->w.n_taps, view->w.n_source - x) * channels, to), first);
    vclear(out, first - from);
    if (first < end) {
        vcopy(out + (first - from), row + x * channels + first, end - first);
    }
    vclear(out + (end - from), to - end);
}

static void copy_run(const window_runs *runs, const float *row, int64_t x, int64_t from, int64_t n,
                     float *out)
{
    const conv_view *view = runs->view;
    if (runs->is_merged) {
        copy_merged(view, row, x, from, n, out);
    } else if (x >= 0 && x < view->w.n_source) {
        vcopy(out, row + x * view->source_pitch + from, n);
    } else {
        vclear(out, n);
    }
}

/* The asked elements of one window. */
static void copy_window(const window_runs *runs, const window_place *place, float *out)
{
    const conv_view *view = runs->view;
    const int64_t row_floats = (int64_t)view->w.n_source * view->source_pitch;
    int64_t h = runs->first_h;
    int64_t w = runs->first_w;
    int64_t from = runs->first_element;
    int64_t left = runs->n_elements;
    while (left > 0) {
        const int64_t n = min_i64(runs->length - from, left);
        const int64_t y = place->y + h * view->h.pitch;
        if (y < 0 || y >= view->h.n_source) {
            vclear(out, n);
        } else {
            copy_run(runs, place->sample + y * row_floats, place->x + w * view->w.pitch, from, n,
                     out);
        }
        out += n;
        left -= n;
        from = 0;
        if (++w == runs->runs) {
            w = 0;
            h++;
        }
    }
}

static window_runs window_runs_of(const gather_call *call)
{
    const conv_view *view = call->view;
    window_runs runs = {.view = view, .n_elements = call->k1 - call->k0};
    runs.is_merged =
        view->w.n_taps > 1 && view->w.pitch == 1 && view->channels == view->source_pitch;
    runs.length = runs.is_merged ? (int64_t)view->channels * view->w.n_taps : view->channels;
    runs.runs = runs.is_merged ? 1 : max_i64(1, view->w.n_taps);
    runs.first_h = call->k0 / runs.length / runs.runs;
    runs.first_w = call->k0 / runs.length % runs.runs;
    runs.first_element = call->k0 % runs.length;
    return runs;
}

void K(gather)(const gather_call *call)
{
    const conv_view *view = call->view;
    const window_runs runs = window_runs_of(call);
    const int64_t sample_floats = (int64_t)view->h.n_source * view->w.n_source * view->source_pitch;
    const int64_t sample = call->first_row / view_rows(view);
    int64_t t = call->first_row % view_rows(view) / view->w.n_grid;
    int64_t u = call->first_row % view->w.n_grid;
    window_place place = {.sample = call->x + sample * sample_floats};
    for (int64_t i = 0; i < call->n_rows; i++) {
        place.y = t * view->h.step + view->h.offset;
        place.x = u * view->w.step + view->w.offset;
        copy_window(&runs, &place, call->out + i * call->pitch);
        if (++u == view->w.n_grid) {
            u = 0;
            if (++t == view->h.n_grid) {
                t = 0;
                place.sample += sample_floats;
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
