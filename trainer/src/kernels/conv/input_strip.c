/*
 * input_strip.c - blocks of output pixels, and the strips of source pixels that their windows read.
 *
 * Every element of a strip is written, padding as zero, so no strip remembers an earlier one.
 */
#include "input_strip.h"

#define PLAIN_PIXELS 16 /* of a pointwise convolution's source at a time */

depth_cuts K(depth_cuts_make)(const conv_view *view)
{
    depth_cuts cuts = {.depth = view_depth(view)};
    const int64_t row = (int64_t)view->w.n_taps * view->channels;
    const int64_t most = depth_block_most(view);
    cuts.n = max_i64(1, ceil_div(cuts.depth, most));
    cuts.block = max_i64(1, ceil_div(cuts.depth, cuts.n));
    if (cuts.n > 1 && view->h.n_taps * view->w.n_taps <= 1) {
        cuts.block = round_up(cuts.block, PART_DEPTH);
    }
    if (view->h.n_taps > 1 && row > 0 && row <= most) {
        cuts.block = ceil_div(cuts.block, row) * row;
        cuts.block = cuts.block > most ? most / row * row : cuts.block;
    }
    cuts.n = max_i64(1, ceil_div(cuts.depth, cuts.block));
    return cuts;
}

static strip_axis axis_of(const conv_axis *axis)
{
    int64_t a = axis->step;
    int64_t b = axis->n_taps > 1 ? axis->pitch : 0;
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    strip_axis out = {
        .skip = a, .step = axis->step / a, .tap = axis->n_taps > 1 ? axis->pitch / a : 1};
    return out;
}

/* No window leaves the source. */
static bool axis_is_inside(const conv_axis *axis)
{
    const int64_t last = (int64_t)(axis->n_grid - 1) * axis->step + axis->offset +
                         (int64_t)(axis->n_taps - 1) * axis->pitch;
    return axis->offset >= 0 && last < axis->n_source;
}

bool K(view_is_inside)(const conv_view *view)
{
    return axis_is_inside(&view->h) && axis_is_inside(&view->w);
}

/* Pixels a page apart, which share one set of the first cache, are worth moving. */
bool K(view_is_direct)(const conv_view *view)
{
    return K(view_is_inside)(view) && view->source_pitch % PAGE_FLOATS != 0;
}

static bool source_is_plain(strip_source source)
{
    return source.view != NULL ? view_is_as_it_lies(source.view) : grad_is_plain(source.grad);
}

static const float *source_base(strip_source source)
{
    return source.view != NULL ? source.view->x : source.grad->g;
}

static int64_t source_pitch(strip_source source)
{
    return source.view != NULL ? source.view->pitch : source.grad->pitch;
}

static int64_t pixel_pitch(const conv_view *view, int64_t n_channels, bool *out_is_merged)
{
    *out_is_merged = view->w.n_taps > 1 && view->w.pitch == 1 && n_channels < 64;
    return *out_is_merged ? n_channels : round_up(n_channels, 16) + 16;
}

strip_layout K(strip_layout_make)(const conv_view *view, strip_source source, int64_t group,
                                  bool is_for_columns)
{
    strip_layout layout = {.view = view,
                           .source = source,
                           .h = axis_of(&view->h),
                           .w = axis_of(&view->w),
                           .base = group * view->channels,
                           .channel = group * view->channels,
                           .n_channels = view->channels,
                           .tap_rows = max_i64(1, view->h.n_taps)};
    layout.pitch = pixel_pitch(view, view->channels, &layout.is_merged);
    layout.is_run = source_is_plain(source) && layout.is_merged && layout.w.skip == 1 &&
                    source_pitch(source) == view->channels;
    if (is_for_columns) {
        layout.is_merged = layout.is_merged && view->channels < LANES;
        layout.is_lanes = !layout.is_merged;
        layout.pitch = layout.is_lanes ? LANES : layout.pitch;
        layout.lane_pitch = LANES;
        layout.is_run = layout.is_run && layout.is_merged;
        return layout;
    }
    if (source_is_plain(source) && K(view_is_direct)(view)) {
        layout.is_direct = true;
        layout.pitch = source_pitch(source);
        layout.is_merged =
            view->w.n_taps > 1 && view->w.pitch == 1 && layout.pitch == view->channels;
        layout.width = view->w.n_source;
        layout.h = (strip_axis){.skip = 1, .step = view->h.step, .tap = view->h.pitch};
        layout.w = (strip_axis){.skip = 1, .step = view->w.step, .tap = view->w.pitch};
    }
    return layout;
}

/* Strip pixels along an axis for n grid pixels. */
static int64_t axis_reach(const conv_axis *axis, int64_t n)
{
    const strip_axis a = axis_of(axis);
    return (n - 1) * a.step + (max_i64(1, axis->n_taps) - 1) * a.tap + 1;
}

int64_t K(strip_pixels_most)(const conv_view *view, int64_t lines, int64_t columns)
{
    return axis_reach(&view->h, lines) * axis_reach(&view->w, columns);
}

static int64_t block_floats(const conv_view *view, int64_t lines, int64_t columns)
{
    bool is_merged = false;
    int64_t pitch = pixel_pitch(view, view->channels, &is_merged);
    if (view->h.n_taps * view->w.n_taps <= 1) {
        /* the same for both directions: their joint pass shares blocks */
        pitch = max_i64(pitch, round_up(view->outputs, 16) + 16);
        pitch = min_i64(pitch, depth_block_most(view) + 16);
    } else {
        pitch = max_i64(pitch, round_up(view->channels, LANES));
    }
    return K(strip_pixels_most)(view, lines, columns) * pitch;
}

/* The last tile of so many rows would have one or two of them, and take as long as four. */
static bool is_ragged(int64_t rows)
{
    return rows % TILE_ROWS % 4 != 0;
}

row_tiling K(row_tiling_make)(const conv_view *view, block_limits limits)
{
    const int64_t most_rows = limits.rows;
    const int64_t grid_h = view->h.n_grid;
    const int64_t grid_w = view->w.n_grid;
    row_tiling tiling = {.samples = 1};
    tiling.columns = ceil_div(grid_w, ceil_div(grid_w, most_rows));
    while (tiling.columns > STRIP_COLUMNS &&
           block_floats(view, 1, tiling.columns) > limits.floats) {
        tiling.columns = ceil_div(tiling.columns, 2);
    }
    tiling.lines = tiling.columns < grid_w ? 1 : min_i64(grid_h, max_i64(1, most_rows / grid_w));
    while (tiling.lines > 1 && block_floats(view, tiling.lines, tiling.columns) > limits.floats) {
        tiling.lines--;
    }
    const int64_t most_lines = tiling.lines;
    const int64_t even_lines = ceil_div(grid_h, ceil_div(grid_h, most_lines));
    tiling.lines = even_lines;
    while (tiling.lines < most_lines && is_ragged(tiling.lines * tiling.columns)) {
        tiling.lines++;
    }
    if (is_ragged(tiling.lines * tiling.columns)) {
        tiling.lines = even_lines;
    }
    tiling.unit_lines = grid_h;
    tiling.units_per_sample = 1;
    if (tiling.lines == grid_h && tiling.columns == grid_w) {
        const int64_t floats = block_floats(view, grid_h, grid_w);
        tiling.samples =
            max_i64(1, min_i64(most_rows / (grid_h * grid_w), limits.floats / max_i64(1, floats)));
        return tiling;
    }
    const int64_t blocks =
        max_i64(1, limits.unit_rows / (tiling.lines * min_i64(grid_w, UNIT_ROWS)));
    tiling.unit_lines = min_i64(grid_h, tiling.lines * blocks);
    tiling.units_per_sample = ceil_div(grid_h, tiling.unit_lines);
    return tiling;
}

int64_t K(strip_floats)(const conv_view *view, block_limits limits)
{
    if (view_rows(view) == 0) {
        return 0;
    }
    const row_tiling tiling = K(row_tiling_make)(view, limits);
    return round_up(tiling.samples * block_floats(view, tiling.lines, tiling.columns), 16);
}

void K(strip_fit)(strip_layout *layout, int64_t n_columns, int64_t k0, int64_t k1)
{
    const conv_view *view = layout->view;
    if (layout->is_direct) {
        return;
    }
    layout->width =
        (n_columns - 1) * layout->w.step + (max_i64(1, view->w.n_taps) - 1) * layout->w.tap + 1;
    if (view->h.n_taps * view->w.n_taps == 1) {
        layout->channel = layout->base + k0;
        layout->n_channels = k1 - k0;
        layout->pitch = layout->is_lanes ? LANES : round_up(k1 - k0, 16) + 16;
        return;
    }
    const int64_t row = (int64_t)view->w.n_taps * view->channels;
    if (k1 > k0) {
        layout->tap_row = k0 / row;
        layout->tap_rows = (k1 - 1) / row + 1 - layout->tap_row;
    }
}

/* Strip pixels [*out_first, *out_end) of n whose source pixel start + i * skip lies inside. */
static void inside(int64_t start, int64_t skip, int64_t n, int64_t n_source, int64_t *out_first,
                   int64_t *out_end)
{
    const int64_t first = start >= 0 ? 0 : ceil_div(-start, skip);
    const int64_t end = start >= n_source ? 0 : ceil_div(n_source - start, skip);
    *out_first = min_i64(first, n);
    *out_end = max_i64(*out_first, min_i64(end, n));
}

/* `n` pixels of channels [c, c + n_channels) of a line: zeros, pixels, zeros. */
typedef struct line_part {
    int64_t n, first, end; /* pixels; those inside */
    int64_t pixel;         /* the source pixel of the first one inside */
    int64_t c, n_channels;
    int64_t pitch;
} line_part;

static void write_line(const strip_layout *layout, const line_part *part, float *to)
{
    vclear(to, part->first * part->pitch);
    if (part->end > part->first && layout->is_run) {
        const float *from = source_base(layout->source) + part->pixel * part->pitch;
        vcopy(to + part->first * part->pitch, from, (part->end - part->first) * part->pitch);
    } else if (part->end > part->first) {
        const load_rows rows = {.pixel = part->pixel,
                                .pixel_step = layout->w.skip,
                                .n_rows = part->end - part->first,
                                .channel = part->c,
                                .n_channels = part->n_channels,
                                .out = to + part->first * part->pitch,
                                .out_pitch = part->pitch};
        source_rows(layout->source, &rows);
    }
    vclear(to + part->end * part->pitch, (part->n - part->end) * part->pitch);
}

/* Plain pixels into lanes, each read as it lies: memory gives whole rows faster than columns. */
static void copy_lanes(const strip_layout *layout, int64_t pixel, int64_t n_pixels, float *to)
{
    const int64_t pitch = source_pitch(layout->source);
    const float *from = source_base(layout->source) + pixel * pitch + layout->channel;
    for (int64_t i = 0; i < n_pixels; i++, from += pitch, to += LANES) {
        float *lane = to;
        for (int64_t c = 0; c < layout->n_channels; c += LANES, lane += layout->lane_pitch) {
            UNROLL
            for (int64_t v = 0; v < LANES; v += VEC) {
                vstore(lane + v, vload(from + c + v));
            }
        }
    }
}

/* Pixels that follow one another as the strip's do, some of them and all their channels at a time.
 */
static void write_plain(const strip_layout *layout, int64_t pixel, int64_t n_pixels, float *to)
{
    const int64_t lanes = layout->is_lanes ? LANES : layout->n_channels;
    line_part part = {.pixel = pixel, .pitch = layout->pitch};
    if (layout->is_lanes && LANES % VEC == 0 && layout->n_channels % LANES == 0 &&
        source_is_plain(layout->source)) {
        copy_lanes(layout, pixel, n_pixels, to);
        return;
    }
    for (int64_t left = n_pixels; left > 0; left -= PLAIN_PIXELS) {
        part.n = part.end = min_i64(left, PLAIN_PIXELS);
        for (int64_t c = 0; c < layout->n_channels; c += lanes) {
            part.c = layout->channel + c;
            part.n_channels = min_i64(lanes, layout->n_channels - c);
            write_line(layout, &part, to + c / lanes * layout->lane_pitch);
        }
        part.pixel += part.n;
        to += part.n * layout->pitch;
    }
}

void K(strip_write)(const strip_layout *layout, const grid_piece *piece, float *to)
{
    const conv_view *view = layout->view;
    const int64_t n_lines = strip_pixels(layout, piece) / layout->width;
    if (dunlin__view_is_plain(view)) {
        const int64_t line = piece->sample * view->h.n_source + piece->t0;
        const bool is_whole = layout->width == view->w.n_source;
        write_plain(layout, line * view->w.n_source + (is_whole ? 0 : piece->u0),
                    n_lines * layout->width, to);
        return;
    }
    const int64_t y = piece->t0 * view->h.step + view->h.offset + layout->tap_row * view->h.pitch;
    const int64_t x = piece->u0 * view->w.step + view->w.offset;
    const int64_t lanes = layout->is_lanes ? LANES : layout->n_channels;
    line_part part = {.n = layout->width, .pitch = layout->pitch};
    int64_t first = 0;
    int64_t end = 0;
    inside(x, layout->w.skip, layout->width, view->w.n_source, &first, &end);
    for (int64_t i = 0; i < n_lines; i++) {
        const int64_t line = y + i * layout->h.skip;
        const bool is_inside = line >= 0 && line < view->h.n_source;
        part.first = is_inside ? first : part.n;
        part.end = is_inside ? end : part.n;
        part.pixel = (piece->sample * view->h.n_source + line) * view->w.n_source + x +
                     first * layout->w.skip;
        for (int64_t c = 0; c < layout->n_channels; c += lanes) {
            part.c = layout->channel + c;
            part.n_channels = min_i64(lanes, layout->n_channels - c);
            write_line(layout, &part, to + c / lanes * layout->lane_pitch);
        }
        to += layout->width * layout->pitch;
    }
}

int64_t K(strip_runs)(const strip_layout *layout, int64_t k0, int64_t k1, gemm_run *out)
{
    const conv_view *view = layout->view;
    const bool is_one_tap = view->h.n_taps * view->w.n_taps == 1;
    if (is_one_tap) {
        out[0] = (gemm_run){layout->is_direct ? k0 : 0, k1 - k0};
        return 1;
    }
    const int64_t length =
        layout->is_merged ? (int64_t)view->channels * view->w.n_taps : view->channels;
    const int64_t per_row = layout->is_merged ? 1 : max_i64(1, view->w.n_taps);
    int64_t n = 0;
    for (int64_t k = k0; k < k1;) {
        const int64_t run = k / length;
        const int64_t from = k - run * length;
        const int64_t h = run / per_row - (layout->is_direct ? 0 : layout->tap_row);
        const int64_t pixel = h * layout->h.tap * layout->width + run % per_row * layout->w.tap;
        out[n] = (gemm_run){pixel * layout->pitch + from, min_i64(length - from, k1 - k)};
        k += out[n++].n;
    }
    return n;
}
