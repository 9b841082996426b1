/*
 * input_strip.h - the windows of a block of output pixels as something the GEMM reads in place: the
 * source pixels under them are brought into a strip once, through their view or gradient, with the
 * padding as zeros, and every tap of every window is an address inside it. No im2col.
 *
 * The source itself serves where nothing is to be done: a plain image, and no window that leaves
 * it. What a block is depends on the shape alone.
 */
#ifndef DUNLIN_KERNELS_INPUT_STRIP_H
#define DUNLIN_KERNELS_INPUT_STRIP_H

#include "kernels/epilogue/sink.h"
#include "kernels/gemm/gemm.h"

#define BLOCK_ROWS 224           /* pixels of a block, at most */
#define UNIT_ROWS 768            /* pixels of a unit of work, about */
#define STRIP_FLOATS (176 << 10) /* of a strip, at most: it stays near */
#define PLAIN_FLOATS (36 << 10)  /* that a pointwise block reads and writes, about */
#define FEW_WEIGHTS (100 << 10)  /* passed so often, they still come from the second cache */
#define MANY_WEIGHTS (200 << 10) /* only read: forward */
#define STRIP_COLUMNS 16         /* that a block keeps however large its strip is */
#define DEPTH_BLOCK 1536         /* of the depth that the GEMM takes at once */
#define PAGE_FLOATS 1024
#define DEPTH_RUNS 256 /* and in how many runs, at most */

/*
 * Pixels of a view's grid in blocks: of `lines` lines by `columns` columns of one sample, or of
 * `samples` whole samples. A unit is some lines of a sample, or one block of whole samples.
 */
typedef struct row_tiling {
    int64_t samples;
    int64_t lines, columns;
    int64_t unit_lines, units_per_sample;
} row_tiling;

/* A block's pixels of one sample: lines [t0, t1), columns [u0, u1). */
typedef struct grid_piece {
    int64_t sample;
    int32_t t0, t1, u0, u1; /* narrow, for a block has hundreds of pieces on the stack */
} grid_piece;

static inline int64_t piece_rows(const grid_piece *piece)
{
    return (int64_t)(piece->t1 - piece->t0) * (piece->u1 - piece->u0);
}

/* Where source pixels come from: one of them is set. */
typedef struct strip_source {
    const dunlin_view *view;
    const dunlin_grad *grad;
} strip_source;

/* Along an axis, strip pixels lie `skip` source pixels apart; a grid pixel is `step` strip pixels
 * from the one before, a tap `tap`. */
typedef struct strip_axis {
    int64_t skip, step, tap;
} strip_axis;

/* How strips of a pass and a group are laid out. */
typedef struct strip_layout {
    const conv_view *view;
    strip_source source;
    strip_axis h, w;
    bool is_direct;              /* no strip: the source itself */
    bool is_run;                 /* a line is copied as it lies */
    bool is_merged;              /* the taps of a row lie one after another */
    bool is_lanes;               /* [channel / LANES][pixel][LANES], for the column form */
    int64_t base;                /* the group's first channel */
    int64_t channel, n_channels; /* of the source, in the strip */
    int64_t tap_row, tap_rows;   /* of the windows, in the strip */
    int64_t pitch;               /* floats from pixel to pixel */
    int64_t lane_pitch;          /* floats from lanes to lanes */
    int64_t width;               /* pixels of a strip's line */
} strip_layout;

static inline int64_t depth_block_most(const conv_view *view)
{
    const bool is_one_tap = view->h.n_taps * view->w.n_taps <= 1;
    return is_one_tap ? DEPTH_BLOCK / 2
                      : min_i64(DEPTH_BLOCK, DEPTH_RUNS * (int64_t)view->channels);
}

/* The depth in equal blocks, each a multiple of the unit where that is possible: of a row of taps;
 * of one tap, of a chain, as other engines' cuts are. An element's chains begin with its blocks. */
typedef struct depth_cuts {
    int64_t depth, block, n;
} depth_cuts;

depth_cuts K(depth_cuts_make)(const conv_view *view);

/* Up to where the depth from k0 on is taken at once: to the block's end, at most `most`. */
static inline int64_t depth_end(const depth_cuts *cuts, int64_t k0, int64_t most)
{
    const int64_t end = min_i64(cuts->depth, (k0 / cuts->block + 1) * cuts->block);
    return min_i64(end, k0 + most);
}

/* No window leaves the source. */
bool K(view_is_inside)(const conv_view *view);

/* A plain source is read as it lies. */
bool K(view_is_direct)(const conv_view *view);

strip_layout K(strip_layout_make)(const conv_view *view, strip_source source, int64_t group,
                                  bool is_for_columns);

/* What a block may be: pixels, floats of its strip; and pixels of a unit. */
typedef struct block_limits {
    int64_t rows, floats;
    int64_t unit_rows;
} block_limits;

/*
 * Blocks of a map. A pointwise one computes little on each pixel, so what the next block reads is
 * on its way meanwhile, and both should lie in the second cache; but all weights pass every block,
 * and backward their gradients too. Blocks of the joint pass finish in any order, so there they are
 * the units.
 */
static inline block_limits map_limits(const conv_view *view, bool is_input_grad)
{
    block_limits limits = {BLOCK_ROWS, STRIP_FLOATS, UNIT_ROWS};
    if (!dunlin__view_is_plain(view)) {
        return limits;
    }
    const int64_t weights = (int64_t)view->channels * view->outputs;
    int64_t least = weights <= MANY_WEIGHTS ? BLOCK_ROWS / 4 : BLOCK_ROWS / 2;
    if (is_input_grad) {
        least = weights <= FEW_WEIGHTS ? BLOCK_ROWS / 2 : BLOCK_ROWS;
    }
    const int64_t fit = PLAIN_FLOATS / max_i64(1, (int64_t)view->channels + view->outputs);
    limits.rows = max_i64(least, min_i64(BLOCK_ROWS, fit));
    limits.unit_rows = is_input_grad ? 1 : BLOCK_ROWS;
    return limits;
}

row_tiling K(row_tiling_make)(const conv_view *view, block_limits limits);

/* Strip pixels of so many lines and columns. */
int64_t K(strip_pixels_most)(const conv_view *view, int64_t lines, int64_t columns);

/* A bound of the floats of a block's strip. */
int64_t K(strip_floats)(const conv_view *view, block_limits limits);

/* The strip of a block: for so many columns and the depth [k0, k1). */
void K(strip_fit)(strip_layout *layout, int64_t n_columns, int64_t k0, int64_t k1);

/* Strip pixels of a piece. */
static inline int64_t strip_pixels(const strip_layout *layout, const grid_piece *piece)
{
    const int64_t lines =
        (piece->t1 - piece->t0 - 1) * layout->h.step + (layout->tap_rows - 1) * layout->h.tap + 1;
    return lines * layout->width;
}

/* Writes a piece's strip from `to` on; lanes of a block lie lane_pitch apart. */
void K(strip_write)(const strip_layout *layout, const grid_piece *piece, float *to);

/* The depth [k0, k1) as runs; returns how many. */
int64_t K(strip_runs)(const strip_layout *layout, int64_t k0, int64_t k1, gemm_run *out);

/* Asks for pixels of a source. */
static inline void prefetch_pixels(prefetch_list *prefetch, strip_source source, int64_t channels,
                                   int64_t pixel, int64_t n)
{
    if (source.view != NULL) {
        const dunlin_view *view = source.view;
        prefetch_stored(prefetch, view->x, view->is_half, view->pitch, channels, pixel, n);
        prefetch_stored(prefetch, view->plus, view->is_plus_half, view->plus_pitch, channels, pixel,
                        n);
    } else if (source.grad != NULL) {
        prefetch_grad(prefetch, source.grad, channels, pixel, n);
    }
}

/* Channels [channel, channel + n) of pixels from `pixel` on, as the source gives them. */
static inline void source_rows(strip_source source, const load_rows *rows)
{
    if (source.view != NULL) {
        K(view_rows)(source.view, rows);
    } else {
        K(grad_rows)(source.grad, rows);
    }
}

/*
 * Asks for the source pixels of the n_rows from a piece's first on, without the lines that the
 * block above has read. Nothing where windows pass pixels over.
 */
static inline void prefetch_source(prefetch_list *prefetch, const conv_view *view,
                                   strip_source source, const grid_piece *first, int64_t n_rows)
{
    const int64_t reach = (int64_t)(view->h.n_taps - 1) * view->h.pitch;
    if (view->groups > 1 || view->h.step > reach + 1 || view->w.step > view->w.n_taps ||
        view->w.n_grid == 0) {
        return;
    }
    const int64_t height = view->h.n_source;
    const int64_t width = view->w.n_source;
    int64_t y = first->t0 == 0 ? 0 : (first->t0 - 1) * view->h.step + view->h.offset + reach + 1;
    int64_t n = ceil_div(n_rows, view->w.n_grid) * view->h.step;
    y = min_i64(max_i64(y, 0), height);
    n = n_rows > view_rows(view) ? ceil_div(n_rows, view_rows(view)) * height
                                 : min_i64(n, height - y);
    const int64_t pixel = (first->sample * height + y) * width;
    if (dunlin__view_is_plain(view)) {
        prefetch_pixels(prefetch, source, view->channels, pixel + first->u0, n_rows);
    } else {
        prefetch_pixels(prefetch, source, view->channels, pixel, n * width);
    }
}

/* Columns of the GEMM in cuts that begin where its panels do. */
typedef struct column_cuts {
    int64_t columns, width, n;
} column_cuts;

static inline column_cuts column_cuts_make(int64_t columns, int64_t most)
{
    const int64_t panel = (int64_t)TILE_VECTORS * VEC;
    column_cuts cuts = {.columns = columns};
    const int64_t width = max_i64(panel, most / panel * panel);
    cuts.width = max_i64(panel, round_up(ceil_div(columns, ceil_div(columns, width)), panel));
    cuts.n = ceil_div(columns, cuts.width);
    if (cuts.n > 1 && columns - (cuts.n - 1) * cuts.width <= VEC) {
        cuts.n--; /* a panel never has one vector where it could have two */
    }
    return cuts;
}

/* Columns in equal shares of whole vectors, each not more than `most`, the same number for each
 * thread. */
static inline column_cuts even_cuts(int64_t columns, int64_t most, int64_t threads)
{
    const int64_t n = round_up(ceil_div(columns, most), threads);
    column_cuts cuts = {.columns = columns, .width = round_up(ceil_div(columns, n), VEC)};
    cuts.n = ceil_div(columns, cuts.width);
    return cuts;
}

/* Columns for units of whole samples. Every cut brings the same rows into its strip again, so there
 * are only as many as make even work of a few units. */
static inline column_cuts sample_cuts(int64_t columns, int64_t n_units, int64_t threads)
{
    const bool is_even = n_units % threads == 0 || n_units >= 4 * threads;
    return threads == 1 ? column_cuts_make(columns, columns)
                        : even_cuts(columns, columns, is_even ? 1 : threads);
}

static inline int64_t cut_size(const column_cuts *cuts, int64_t i)
{
    return i == cuts->n - 1 ? cuts->columns - i * cuts->width : cuts->width;
}

/* The largest. */
static inline int64_t cut_most(const column_cuts *cuts)
{
    return max_i64(cut_size(cuts, 0), cut_size(cuts, cuts->n - 1));
}

#endif
