/*
 * sink.c - rows of gradients through sinks, and the sums of batch norm, eight rows of one vector of
 * channels at a time: a channel's numbers are loaded once for all of them, and the rows are streams
 * that the processor fetches ahead.
 *
 * A row's element passes through the same operations in the same order wherever it is done.
 */
#include "sink.h"

#define TILE 8
#define ROW_AHEAD 1024 /* floats */

/* What is done, so that the hot forms have no questions to ask. */
typedef struct sink_form {
    bool is_stored, is_streamed, is_direct, has_addend, has_mask, is_scaled, has_factor;
    uint32_t n_stats;
    bool is_raw_mask; /* the first statistic's raw is the mask's tensor */
    bool has_plus, is_plus_scaled;
} sink_form;

/* Addresses of a tile's first row and channel 0 of the run; steps from row to row. */
typedef struct sink_tile {
    const float *dx, *addend, *mask, *plus;
    const float *raw[DUNLIN_SINK_MAX_STATS];
    float *out;
    int64_t dx_step, addend_step, mask_step, plus_step, out_step;
    int64_t raw_step[DUNLIN_SINK_MAX_STATS];
} sink_tile;

ALWAYS_INLINE void tile_advance(sink_tile *tile, const sink_form *form, int64_t n)
{
    tile->dx += n * tile->dx_step;
    if (form->has_addend) {
        tile->addend += n * tile->addend_step;
    }
    if (form->has_mask) {
        tile->mask += n * tile->mask_step;
    }
    if (form->has_plus) {
        tile->plus += n * tile->plus_step;
    }
    if (form->is_stored) {
        tile->out += n * tile->out_step;
    }
    for (uint32_t s = 0; s < form->n_stats; s++) {
        tile->raw[s] += n * tile->raw_step[s];
    }
}

/* One vector of channels from c on. */
ALWAYS_INLINE void sink_vector(const dunlin_sink *sink, const sink_rows *rows,
                               const sink_tile *tile, sink_form form, int64_t c, int32_t n,
                               int64_t n_rows)
{
    ahead_some(rows->ahead);
    const int64_t channel = rows->channel + c;
    const vfloat low = vset1(sink->low);
    const vfloat high = vset1(sink->high);
    const vfloat scale = form.is_scaled ? vload_n(sink->mask_scale + channel, n) : vzero();
    const vfloat shift = form.is_scaled ? vload_n(sink->mask_shift + channel, n) : vzero();
    const vfloat plus_scale =
        form.is_plus_scaled ? vload_n(sink->plus_scale + channel, n) : vzero();
    const vfloat plus_shift =
        form.is_plus_scaled ? vload_n(sink->plus_shift + channel, n) : vzero();
    const vfloat factor = form.has_factor ? vload_n(sink->factor + channel, n) : vzero();
    vfloat about[DUNLIN_SINK_MAX_STATS];
    vfloat sum[SINK_MAX_SUMS];
    UNROLL
    for (uint32_t s = 0; s < DUNLIN_SINK_MAX_STATS; s++) {
        about[s] = vzero();
        sum[2 * s] = vzero();
        sum[2 * s + 1] = vzero();
        if (s >= form.n_stats) {
            continue;
        }
        about[s] = vload_n(sink->stats[s].about + channel, n);
        sum[2 * s] = vload_n(rows->sums + (int64_t)(2 * s) * rows->sums_pitch + c, n);
        sum[2 * s + 1] = vload_n(rows->sums + (int64_t)(2 * s + 1) * rows->sums_pitch + c, n);
    }
    /* copies: what a vector is stored to might be one of them, for all the compiler knows */
    sink_tile row = *tile;
    for (int64_t i = 0; i < n_rows; i++) {
        vfloat t = vload_n(row.dx + c, n);
        vfloat mask = vzero();
        if (form.is_direct && form.has_addend) {
            t += vload_n(row.addend + c, n);
        }
        if (form.has_mask) {
            mask = vload_n(row.mask + c, n);
            vfloat by = form.is_scaled ? vfma(mask, scale, shift) : mask;
            if (form.has_plus) {
                const vfloat plus = vload_n(row.plus + c, n);
                by += form.is_plus_scaled ? vfma(plus, plus_scale, plus_shift) : plus;
            }
            t = vmasked(t, by, low, high);
        }
        UNROLL
        for (uint32_t s = 0; s < DUNLIN_SINK_MAX_STATS; s++) {
            if (s >= form.n_stats) {
                continue;
            }
            vfloat raw = s == 0 && form.is_raw_mask ? mask : vload_n(row.raw[s] + c, n);
            sum[2 * s] += t;
            sum[2 * s + 1] = vfma(t, raw - about[s], sum[2 * s + 1]);
        }
        if (form.is_stored) {
            if (!form.is_direct && form.has_addend) {
                vfloat addend = vload_n(row.addend + c, n);
                t = form.has_factor ? vfma(t, factor, addend) : t + addend;
            } else if (form.has_factor) {
                t *= factor;
            }
            if (form.is_streamed && n == VEC) {
                vstream(row.out + c, t);
            } else {
                vstore_n(row.out + c, t, n);
            }
        }
        tile_advance(&row, &form, 1);
    }
    UNROLL
    for (uint32_t s = 0; s < DUNLIN_SINK_MAX_STATS; s++) {
        if (s >= form.n_stats) {
            continue;
        }
        vstore_n(rows->sums + (int64_t)(2 * s) * rows->sums_pitch + c, sum[2 * s], n);
        vstore_n(rows->sums + (int64_t)(2 * s + 1) * rows->sums_pitch + c, sum[2 * s + 1], n);
    }
}

ALWAYS_INLINE void sink_run(const dunlin_sink *sink, const sink_rows *rows, const sink_tile *tile,
                            sink_form form, int64_t n_rows)
{
    int64_t c = 0;
    for (; c + VEC <= rows->n_channels; c += VEC) {
        sink_vector(sink, rows, tile, form, c, VEC, n_rows);
    }
    if (c < rows->n_channels) {
        sink_vector(sink, rows, tile, form, c, (int32_t)(rows->n_channels - c), n_rows);
    }
}

ALWAYS_INLINE const float *at(const float *base, int64_t pitch, int64_t pixel, int64_t channel)
{
    return base == NULL ? NULL : base + pixel * pitch + channel;
}

static sink_tile tile_of(const dunlin_sink *sink, const sink_rows *rows)
{
    sink_tile tile = {
        .dx = rows->dx,
        .addend = at(sink->addend, sink->addend_pitch, rows->pixel, rows->channel),
        .mask = at(sink->mask, sink->mask_pitch, rows->pixel, rows->channel),
        .plus = at(sink->plus, sink->plus_pitch, rows->pixel, rows->channel),
        .out = sink->out == NULL ? NULL : sink->out + rows->pixel * sink->pitch + rows->channel,
        .dx_step = rows->dx_pitch,
        .addend_step = rows->pixel_step * sink->addend_pitch,
        .mask_step = rows->pixel_step * sink->mask_pitch,
        .plus_step = rows->pixel_step * sink->plus_pitch,
        .out_step = rows->pixel_step * sink->pitch};
    for (uint32_t s = 0; s < sink->n_stats; s++) {
        const dunlin_stat *stat = &sink->stats[s];
        tile.raw[s] = at(stat->raw, stat->raw_pitch, rows->pixel, rows->channel);
        tile.raw_step[s] = rows->pixel_step * stat->raw_pitch;
    }
    return tile;
}

ALWAYS_INLINE void sink_tiles(const dunlin_sink *sink, const sink_rows *rows, sink_form form)
{
    sink_tile tile = tile_of(sink, rows);
    for (int64_t left = rows->n_rows; left > 0; left -= TILE) {
        sink_run(sink, rows, &tile, form, min_i64(left, TILE));
        tile_advance(&tile, &form, TILE);
    }
}

ALWAYS_INLINE void sink_all(const dunlin_sink *sink, const sink_rows *rows, sink_form form)
{
    form.is_streamed = CAN_STREAM && rows->is_streamed;
    if (form.is_streamed) {
        sink_tiles(sink, rows, form);
    } else {
        sink_tiles(sink, rows, form);
    }
}

static sink_form form_of(const dunlin_sink *sink)
{
    sink_form form = {.is_stored = sink->out != NULL,
                      .is_direct = sink->is_direct && sink->addend != NULL, /* the same otherwise */
                      .has_addend = sink->addend != NULL,
                      .has_mask = sink->mask != NULL,
                      .has_factor = sink->factor != NULL,
                      .n_stats = sink->n_stats};
    form.is_scaled = form.has_mask && sink->mask_scale != NULL;
    form.is_raw_mask = form.has_mask && form.n_stats > 0 && sink->stats[0].raw == sink->mask &&
                       sink->stats[0].raw_pitch == sink->mask_pitch;
    form.has_plus = form.is_scaled && sink->plus != NULL;
    form.is_plus_scaled = form.has_plus && sink->plus_scale != NULL;
    return form;
}

/* Batch norm's view with an activation: mask and statistic from the raw output. */
static void sink_norm(const dunlin_sink *sink, const sink_rows *rows)
{
    const sink_form form = {
        .is_stored = true, .has_mask = true, .is_scaled = true, .n_stats = 1, .is_raw_mask = true};
    sink_all(sink, rows, form);
}

/* A residual sum: what came already, its own mask, the statistic of the norm before it. */
static void sink_residual(const dunlin_sink *sink, const sink_rows *rows)
{
    const sink_form form = {
        .is_stored = true, .is_direct = true, .has_addend = true, .has_mask = true, .n_stats = 1};
    sink_all(sink, rows, form);
}

/* The same read through its terms: batch norm's view and what it is added to. */
static void sink_terms(const dunlin_sink *sink, const sink_rows *rows)
{
    const sink_form form = {.is_stored = true,
                            .is_direct = true,
                            .has_addend = true,
                            .has_mask = true,
                            .is_scaled = true,
                            .n_stats = 1,
                            .is_raw_mask = true,
                            .has_plus = true};
    sink_all(sink, rows, form);
}

/* The same of two views, where a stage begins. */
static void sink_two_views(const dunlin_sink *sink, const sink_rows *rows)
{
    const sink_form form = {.is_stored = true,
                            .is_direct = true,
                            .has_addend = true,
                            .has_mask = true,
                            .is_scaled = true,
                            .n_stats = 2,
                            .is_raw_mask = true,
                            .has_plus = true,
                            .is_plus_scaled = true};
    sink_all(sink, rows, form);
}

/* Batch norm's view of a concatenation (DenseNet): as above, scaled onto what came already. */
static void sink_concat(const dunlin_sink *sink, const sink_rows *rows)
{
    const sink_form form = {.is_stored = true,
                            .has_addend = true,
                            .has_mask = true,
                            .is_scaled = true,
                            .has_factor = true,
                            .n_stats = 1,
                            .is_raw_mask = true};
    sink_all(sink, rows, form);
}

/* The first that comes to it. */
static void sink_concat_first(const dunlin_sink *sink, const sink_rows *rows)
{
    const sink_form form = {.is_stored = true,
                            .has_mask = true,
                            .is_scaled = true,
                            .has_factor = true,
                            .n_stats = 1,
                            .is_raw_mask = true};
    sink_all(sink, rows, form);
}

/* An activation alone, one long row: what the next ones read and write is asked for. */
static void sink_clip_row(const dunlin_sink *sink, const sink_rows *rows)
{
    const float *mask = sink->mask + rows->pixel * sink->mask_pitch + rows->channel;
    float *out = sink->out + rows->pixel * sink->pitch + rows->channel;
    const float *dx = rows->dx;
    const int64_t n = rows->n_channels;
    const vfloat low = vset1(sink->low);
    const vfloat high = vset1(sink->high);
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        __builtin_prefetch(mask + i + ROW_AHEAD);
        __builtin_prefetch(out + i + ROW_AHEAD, 1);
        vstore(out + i, vmasked(vload(dx + i), vload(mask + i), low, high));
    }
    if (i < n) {
        const int32_t left = (int32_t)(n - i);
        const vfloat t = vload_part(dx + i, left);
        vstore_n(out + i, vmasked(t, vload_part(mask + i, left), low, high), left);
    }
}

/* An activation alone. */
static void sink_clip(const dunlin_sink *sink, const sink_rows *rows)
{
    if (rows->n_rows == 1 && rows->ahead == NULL) {
        sink_clip_row(sink, rows);
        return;
    }
    const sink_form form = {.is_stored = true, .has_mask = true};
    sink_all(sink, rows, form);
}

static bool is_clip(const sink_form *form)
{
    return form->is_stored && form->has_mask && !form->is_scaled && !form->has_addend &&
           !form->has_factor && form->n_stats == 0;
}

static bool is_form(const sink_form *a, bool has_factor, bool is_direct, bool has_addend,
                    bool is_scaled, bool is_raw_mask)
{
    return a->is_stored && a->has_mask && a->has_factor == has_factor && a->n_stats == 1 &&
           !a->has_plus && a->is_direct == is_direct && a->has_addend == has_addend &&
           a->is_scaled == is_scaled && a->is_raw_mask == is_raw_mask;
}

/* A residual sum's that is read through its terms, with the statistics of each that is a view. */
static bool is_terms(const sink_form *form)
{
    return form->has_plus && form->is_stored && form->is_direct && form->is_raw_mask &&
           form->n_stats == (form->is_plus_scaled ? 2U : 1U);
}

void K(sink_rows)(const dunlin_sink *sink, const sink_rows *rows)
{
    const sink_form form = form_of(sink);
    if (is_terms(&form)) {
        if (form.is_plus_scaled) {
            sink_two_views(sink, rows);
        } else {
            sink_terms(sink, rows);
        }
    } else if (is_form(&form, false, false, false, true, true)) {
        sink_norm(sink, rows);
    } else if (is_form(&form, false, true, true, false, false)) {
        sink_residual(sink, rows);
    } else if (is_form(&form, true, false, true, true, true)) {
        sink_concat(sink, rows);
    } else if (is_form(&form, true, false, false, true, true)) {
        sink_concat_first(sink, rows);
    } else if (is_clip(&form)) {
        sink_clip(sink, rows);
    } else {
        sink_all(sink, rows, form);
    }
}

ALWAYS_INLINE void stat_vector(const float *y, int64_t pitch, vfloat about, float *a, float *b,
                               int32_t n, int64_t n_rows)
{
    vfloat sum = vload_n(a, n);
    vfloat square = vload_n(b, n);
    for (int64_t i = 0; i < n_rows; i++) {
        vfloat d = vload_n(y + i * pitch, n) - about;
        sum += d;
        square = vfma(d, d, square);
    }
    vstore_n(a, sum, n);
    vstore_n(b, square, n);
}

ALWAYS_INLINE void stat_run(const float *y, int64_t pitch, int64_t n_channels, const float *about,
                            float *sums, int64_t n_rows)
{
    int64_t c = 0;
    for (; c + VEC <= n_channels; c += VEC) {
        stat_vector(y + c, pitch, vload(about + c), sums + c, sums + n_channels + c, VEC, n_rows);
    }
    if (c < n_channels) {
        const int32_t n = (int32_t)(n_channels - c);
        stat_vector(y + c, pitch, vload_part(about + c, n), sums + c, sums + n_channels + c, n,
                    n_rows);
    }
}

void K(stat_rows)(const float *y, int64_t pitch, int64_t n_rows, int64_t n_channels,
                  const float *about, float *sums)
{
    for (int64_t i = 0; i < n_rows; i += TILE) {
        stat_run(y + i * pitch, pitch, n_channels, about, sums, min_i64(TILE, n_rows - i));
    }
}
