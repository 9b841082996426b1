/*
 * sink.c - rows of gradients through sinks, and the sums of batch norm, eight rows of one vector of
 * channels at a time: a channel's numbers are loaded once for all, and rows are fetched ahead.
 *
 * A row's element passes through the same operations in the same order wherever it is done.
 */
#include "sink.h"

#include "activation.h"
#include "kernels/simd/stored.h"

#define TILE 8
#define ROW_PREFETCH 1024 /* floats */

/* What is done, so that the hot forms have no questions to ask. */
typedef struct epilogue_form {
    bool is_stored, is_streamed, is_direct, has_addend, has_mask, is_scaled, has_factor;
    uint32_t n_stats;
    bool is_raw_mask; /* the first statistic's raw is the mask's tensor */
    bool has_plus, is_plus_scaled, is_plus_rounded;
    bool is_addend_half, is_mask_half, is_plus_half, is_raw_half[DUNLIN_EPILOGUE_MAX_STATS];
    bool is_out_half;
    dunlin_view_fn mask_fn;
} epilogue_form;

/* Addresses of a tile's first row and channel 0 of the run; steps from row to row. */
typedef struct epilogue_tile {
    const float *dx, *addend, *mask, *plus;
    const float *raw[DUNLIN_EPILOGUE_MAX_STATS];
    float *out;
    int64_t dx_step, addend_step, mask_step, plus_step, out_step;
    int64_t raw_step[DUNLIN_EPILOGUE_MAX_STATS];
} epilogue_tile;

ALWAYS_INLINE void tile_advance(epilogue_tile *tile, const epilogue_form *form, int64_t n)
{
    tile->dx += n * tile->dx_step;
    if (form->has_addend) {
        tile->addend = stored_at(tile->addend, n * tile->addend_step, form->is_addend_half);
    }
    if (form->has_mask) {
        tile->mask = stored_at(tile->mask, n * tile->mask_step, form->is_mask_half);
    }
    if (form->has_plus) {
        tile->plus = stored_at(tile->plus, n * tile->plus_step, form->is_plus_half);
    }
    if (form->is_stored) {
        tile->out = stored_to(tile->out, n * tile->out_step, form->is_out_half);
    }
    for (uint32_t s = 0; s < form->n_stats; s++) {
        tile->raw[s] = stored_at(tile->raw[s], n * tile->raw_step[s], form->is_raw_half[s]);
    }
}

/* n channels of a row from c on. */
ALWAYS_INLINE vfloat stored_part(const float *row, int64_t c, int32_t n, bool is_half)
{
    return vload_stored(stored_at(row, c, is_half), n, is_half);
}

/* One vector of channels from c on. */
ALWAYS_INLINE void epilogue_vector(const dunlin_epilogue *epilogue, const epilogue_rows *rows,
                                   const epilogue_tile *tile, epilogue_form form, int64_t c,
                                   int32_t n, int64_t n_rows)
{
    prefetch_some(rows->prefetch);
    const int64_t channel = rows->channel + c;
    const vfloat low = vset1(epilogue->low);
    const vfloat high = vset1(epilogue->high);
    const vfloat scale = form.is_scaled ? vload_n(epilogue->mask_scale + channel, n) : vzero();
    const vfloat shift = form.is_scaled ? vload_n(epilogue->mask_shift + channel, n) : vzero();
    const vfloat plus_scale =
        form.is_plus_scaled ? vload_n(epilogue->plus_scale + channel, n) : vzero();
    const vfloat plus_shift =
        form.is_plus_scaled ? vload_n(epilogue->plus_shift + channel, n) : vzero();
    const vfloat factor = form.has_factor ? vload_n(epilogue->factor + channel, n) : vzero();
    vfloat about[DUNLIN_EPILOGUE_MAX_STATS];
    vfloat sum[EPILOGUE_MAX_SUMS];
    UNROLL
    for (uint32_t s = 0; s < DUNLIN_EPILOGUE_MAX_STATS; s++) {
        about[s] = vzero();
        sum[2 * s] = vzero();
        sum[2 * s + 1] = vzero();
        if (s >= form.n_stats) {
            continue;
        }
        about[s] = vload_n(epilogue->stats[s].about + channel, n);
        sum[2 * s] = vload_n(rows->sums + (int64_t)(2 * s) * rows->sums_pitch + c, n);
        sum[2 * s + 1] = vload_n(rows->sums + (int64_t)(2 * s + 1) * rows->sums_pitch + c, n);
    }
    /* copies: what a vector is stored to might be one of them, for all the compiler knows */
    epilogue_tile row = *tile;
    for (int64_t i = 0; i < n_rows; i++) {
        vfloat t = vload_n(row.dx + c, n);
        vfloat mask = vzero();
        if (form.is_direct && form.has_addend) {
            t += stored_part(row.addend, c, n, form.is_addend_half);
        }
        if (form.has_mask) {
            mask = stored_part(row.mask, c, n, form.is_mask_half);
            vfloat by = form.is_scaled ? vfma(mask, scale, shift) : mask;
            if (form.has_plus) {
                const vfloat plus = stored_part(row.plus, c, n, form.is_plus_half);
                by += form.is_plus_scaled ? vfma(plus, plus_scale, plus_shift) : plus;
                by = form.is_plus_rounded ? vround_bf16(vclip(by, low, high)) : by;
            }
            t = view_grad(form.mask_fn, t, by, low, high);
        }
        t = form.is_out_half ? vround_bf16(t) : t;
        UNROLL
        for (uint32_t s = 0; s < DUNLIN_EPILOGUE_MAX_STATS; s++) {
            if (s >= form.n_stats) {
                continue;
            }
            vfloat raw = s == 0 && form.is_raw_mask
                             ? mask
                             : stored_part(row.raw[s], c, n, form.is_raw_half[s]);
            sum[2 * s] += t;
            sum[2 * s + 1] = vfma(t, raw - about[s], sum[2 * s + 1]);
        }
        if (form.is_stored) {
            if (!form.is_direct && form.has_addend) {
                vfloat addend = stored_part(row.addend, c, n, form.is_addend_half);
                t = form.has_factor ? vfma(t, factor, addend) : t + addend;
            } else if (form.has_factor) {
                t *= factor;
            }
            if (form.is_streamed && n == VEC) {
                vstream(row.out + c, t);
            } else {
                vstore_stored(stored_to(row.out, c, form.is_out_half), t, n, form.is_out_half);
            }
        }
        tile_advance(&row, &form, 1);
    }
    UNROLL
    for (uint32_t s = 0; s < DUNLIN_EPILOGUE_MAX_STATS; s++) {
        if (s >= form.n_stats) {
            continue;
        }
        vstore_n(rows->sums + (int64_t)(2 * s) * rows->sums_pitch + c, sum[2 * s], n);
        vstore_n(rows->sums + (int64_t)(2 * s + 1) * rows->sums_pitch + c, sum[2 * s + 1], n);
    }
}

ALWAYS_INLINE void epilogue_run(const dunlin_epilogue *epilogue, const epilogue_rows *rows,
                                const epilogue_tile *tile, epilogue_form form, int64_t n_rows)
{
    int64_t c = 0;
    for (; c + VEC <= rows->n_channels; c += VEC) {
        epilogue_vector(epilogue, rows, tile, form, c, VEC, n_rows);
    }
    if (c < rows->n_channels) {
        epilogue_vector(epilogue, rows, tile, form, c, (int32_t)(rows->n_channels - c), n_rows);
    }
}

ALWAYS_INLINE const float *at(const float *base, bool is_half, int64_t pitch,
                              const epilogue_rows *rows)
{
    return base == NULL ? NULL : stored_at(base, rows->pixel * pitch + rows->channel, is_half);
}

static epilogue_tile tile_of(const dunlin_epilogue *epilogue, const epilogue_rows *rows)
{
    epilogue_tile tile = {
        .dx = rows->dx,
        .addend = at(epilogue->addend, epilogue->is_addend_half, epilogue->addend_pitch, rows),
        .mask = at(epilogue->mask, epilogue->is_mask_half, epilogue->mask_pitch, rows),
        .plus = at(epilogue->plus, epilogue->is_plus_half, epilogue->plus_pitch, rows),
        .out = epilogue->out == NULL
                   ? NULL
                   : stored_to(epilogue->out, rows->pixel * epilogue->pitch + rows->channel,
                               epilogue->is_out_half),
        .dx_step = rows->dx_pitch,
        .addend_step = rows->pixel_step * epilogue->addend_pitch,
        .mask_step = rows->pixel_step * epilogue->mask_pitch,
        .plus_step = rows->pixel_step * epilogue->plus_pitch,
        .out_step = rows->pixel_step * epilogue->pitch};
    for (uint32_t s = 0; s < epilogue->n_stats; s++) {
        const dunlin_stat *stat = &epilogue->stats[s];
        tile.raw[s] = at(stat->raw, stat->is_raw_half, stat->raw_pitch, rows);
        tile.raw_step[s] = rows->pixel_step * stat->raw_pitch;
    }
    return tile;
}

ALWAYS_INLINE void epilogue_tiles(const dunlin_epilogue *epilogue, const epilogue_rows *rows,
                                  epilogue_form form)
{
    epilogue_tile tile = tile_of(epilogue, rows);
    for (int64_t left = rows->n_rows; left > 0; left -= TILE) {
        epilogue_run(epilogue, rows, &tile, form, min_i64(left, TILE));
        tile_advance(&tile, &form, TILE);
    }
}

ALWAYS_INLINE void epilogue_all(const dunlin_epilogue *epilogue, const epilogue_rows *rows,
                                epilogue_form form)
{
    form.is_streamed = CAN_STREAM && rows->is_streamed;
    if (form.is_streamed) {
        epilogue_tiles(epilogue, rows, form);
    } else {
        epilogue_tiles(epilogue, rows, form);
    }
}

static epilogue_form form_of(const dunlin_epilogue *epilogue)
{
    epilogue_form form = {.is_stored = epilogue->out != NULL,
                          .is_direct = epilogue->is_direct &&
                                       epilogue->addend != NULL, /* the same otherwise */
                          .has_addend = epilogue->addend != NULL,
                          .has_mask = epilogue->mask != NULL,
                          .has_factor = epilogue->factor != NULL,
                          .n_stats = epilogue->n_stats,
                          .is_addend_half = epilogue->is_addend_half,
                          .is_mask_half = epilogue->is_mask_half,
                          .is_plus_half = epilogue->is_plus_half,
                          .is_out_half = epilogue->is_out_half,
                          .mask_fn = epilogue->mask_fn};
    for (uint32_t s = 0; s < epilogue->n_stats; s++) {
        form.is_raw_half[s] = epilogue->stats[s].is_raw_half;
    }
    form.is_scaled = form.has_mask && epilogue->mask_scale != NULL;
    form.is_raw_mask = form.has_mask && form.n_stats > 0 &&
                       epilogue->stats[0].raw == epilogue->mask &&
                       epilogue->stats[0].raw_pitch == epilogue->mask_pitch;
    form.has_plus = form.is_scaled && epilogue->plus != NULL;
    form.is_plus_scaled = form.has_plus && epilogue->plus_scale != NULL;
    form.is_plus_rounded = form.has_plus && epilogue->is_plus_rounded;
    return form;
}

/* Batch norm's view with an activation: mask and statistic from the raw output. */
static void epilogue_norm(const dunlin_epilogue *epilogue, const epilogue_rows *rows)
{
    const epilogue_form form = {
        .is_stored = true, .has_mask = true, .is_scaled = true, .n_stats = 1, .is_raw_mask = true};
    epilogue_all(epilogue, rows, form);
}

/* The same whose activation has a derivative of its own, alone or as the last that comes to it. */
ALWAYS_INLINE void epilogue_active(const dunlin_epilogue *epilogue, const epilogue_rows *rows,
                                   dunlin_view_fn fn)
{
    const bool has_addend = epilogue->addend != NULL;
    const epilogue_form form = {.is_stored = true,
                                .is_streamed = CAN_STREAM && rows->is_streamed,
                                .is_direct = has_addend,
                                .has_addend = has_addend,
                                .has_mask = true,
                                .is_scaled = true,
                                .n_stats = 1,
                                .is_raw_mask = true,
                                .mask_fn = fn};
    epilogue_tiles(epilogue, rows, form);
}

static void epilogue_hard_swish(const dunlin_epilogue *epilogue, const epilogue_rows *rows)
{
    epilogue_active(epilogue, rows, DUNLIN_VIEW_HARD_SWISH);
}

static void epilogue_silu(const dunlin_epilogue *epilogue, const epilogue_rows *rows)
{
    epilogue_active(epilogue, rows, DUNLIN_VIEW_SILU);
}

/* A residual sum: what came already, its own mask, the statistic of the norm before it. */
static void epilogue_residual(const dunlin_epilogue *epilogue, const epilogue_rows *rows)
{
    const epilogue_form form = {
        .is_stored = true, .is_direct = true, .has_addend = true, .has_mask = true, .n_stats = 1};
    epilogue_all(epilogue, rows, form);
}

/* The same read through its terms: batch norm's view and what it is added to. */
static void epilogue_terms(const dunlin_epilogue *epilogue, const epilogue_rows *rows)
{
    const epilogue_form form = {.is_stored = true,
                                .is_direct = true,
                                .has_addend = true,
                                .has_mask = true,
                                .is_scaled = true,
                                .n_stats = 1,
                                .is_raw_mask = true,
                                .has_plus = true};
    epilogue_all(epilogue, rows, form);
}

/* The same of two views, where a stage begins. */
static void epilogue_two_views(const dunlin_epilogue *epilogue, const epilogue_rows *rows)
{
    const epilogue_form form = {.is_stored = true,
                                .is_direct = true,
                                .has_addend = true,
                                .has_mask = true,
                                .is_scaled = true,
                                .n_stats = 2,
                                .is_raw_mask = true,
                                .has_plus = true,
                                .is_plus_scaled = true};
    epilogue_all(epilogue, rows, form);
}

/* Batch norm's view of a concatenation (DenseNet): as above, scaled onto what came already. */
static void epilogue_concat(const dunlin_epilogue *epilogue, const epilogue_rows *rows)
{
    const epilogue_form form = {.is_stored = true,
                                .has_addend = true,
                                .has_mask = true,
                                .is_scaled = true,
                                .has_factor = true,
                                .n_stats = 1,
                                .is_raw_mask = true};
    epilogue_all(epilogue, rows, form);
}

/* The first that comes to it. */
static void epilogue_concat_first(const dunlin_epilogue *epilogue, const epilogue_rows *rows)
{
    const epilogue_form form = {.is_stored = true,
                                .has_mask = true,
                                .is_scaled = true,
                                .has_factor = true,
                                .n_stats = 1,
                                .is_raw_mask = true};
    epilogue_all(epilogue, rows, form);
}

/* An activation alone, one long row: what the next ones read and write is asked for. */
static void epilogue_clip_row(const dunlin_epilogue *epilogue, const epilogue_rows *rows)
{
    const float *mask = epilogue->mask + rows->pixel * epilogue->mask_pitch + rows->channel;
    float *out = epilogue->out + rows->pixel * epilogue->pitch + rows->channel;
    const float *dx = rows->dx;
    const int64_t n = rows->n_channels;
    const vfloat low = vset1(epilogue->low);
    const vfloat high = vset1(epilogue->high);
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        __builtin_prefetch(mask + i + ROW_PREFETCH);
        __builtin_prefetch(out + i + ROW_PREFETCH, 1);
        vstore(out + i, vmasked(vload(dx + i), vload(mask + i), low, high));
    }
    if (i < n) {
        const int32_t left = (int32_t)(n - i);
        const vfloat t = vload_part(dx + i, left);
        vstore_n(out + i, vmasked(t, vload_part(mask + i, left), low, high), left);
    }
}

/* An activation alone. */
static void epilogue_clip(const dunlin_epilogue *epilogue, const epilogue_rows *rows)
{
    if (rows->n_rows == 1 && rows->prefetch == NULL) {
        epilogue_clip_row(epilogue, rows);
        return;
    }
    const epilogue_form form = {.is_stored = true, .has_mask = true};
    epilogue_all(epilogue, rows, form);
}

/* Nothing but where it goes; of one long row what the next ones write is asked for. */
static void epilogue_plain(const dunlin_epilogue *epilogue, const epilogue_rows *rows)
{
    const epilogue_form form = {.is_stored = true};
    if (rows->n_rows > 1 || rows->prefetch != NULL) {
        epilogue_all(epilogue, rows, form);
        return;
    }
    float *out = epilogue->out + rows->pixel * epilogue->pitch + rows->channel;
    const int64_t n = rows->n_channels;
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        __builtin_prefetch(out + i + ROW_PREFETCH, 1);
        vstore(out + i, vload(rows->dx + i));
    }
    if (i < n) {
        vstore_n(out + i, vload_part(rows->dx + i, (int32_t)(n - i)), (int32_t)(n - i));
    }
}

/* One batch norm's sums of a gradient that lies there. */
static void epilogue_sums(const dunlin_epilogue *epilogue, const epilogue_rows *rows)
{
    const epilogue_form form = {.n_stats = 1};
    epilogue_all(epilogue, rows, form);
}

static bool is_sums(const epilogue_form *form)
{
    return !form->is_stored && !form->has_mask && !form->has_addend && !form->has_factor &&
           form->n_stats == 1;
}

static bool is_plain(const epilogue_form *form)
{
    return form->is_stored && !form->has_mask && !form->has_addend && !form->has_factor &&
           form->n_stats == 0;
}

static bool is_clip(const epilogue_form *form)
{
    return form->is_stored && form->has_mask && !form->is_scaled && !form->has_addend &&
           !form->has_factor && form->n_stats == 0;
}

static bool is_form(const epilogue_form *a, bool has_factor, bool is_direct, bool has_addend,
                    bool is_scaled, bool is_raw_mask)
{
    return a->is_stored && a->has_mask && a->has_factor == has_factor && a->n_stats == 1 &&
           !a->has_plus && a->mask_fn == DUNLIN_VIEW_CLIP && a->is_direct == is_direct &&
           a->has_addend == has_addend && a->is_scaled == is_scaled &&
           a->is_raw_mask == is_raw_mask;
}

/* A residual sum's that is read through its terms, with the statistics of each that is a view. */
static bool is_terms(const epilogue_form *form)
{
    return form->has_plus && !form->is_plus_rounded && form->is_stored && form->is_direct &&
           form->is_raw_mask && form->n_stats == (form->is_plus_scaled ? 2U : 1U);
}

/* What epilogue_active() does. */
static bool is_active(const epilogue_form *form)
{
    return form->mask_fn != DUNLIN_VIEW_CLIP && form->is_stored && form->is_raw_mask &&
           form->n_stats == 1 && !form->has_factor && form->is_direct == form->has_addend;
}

static bool has_halves(const epilogue_form *form)
{
    return form->is_addend_half || form->is_mask_half || form->is_plus_half ||
           form->is_raw_half[0] || form->is_raw_half[1] || form->is_out_half;
}

/* Of what lies there in bfloat16: batch norm's view with an activation, and all others. */
static void epilogue_halves(const dunlin_epilogue *epilogue, const epilogue_rows *rows,
                            const epilogue_form *form)
{
    const epilogue_form norm = {.is_stored = true,
                                .has_mask = true,
                                .is_scaled = true,
                                .n_stats = 1,
                                .is_raw_mask = true,
                                .is_out_half = true};
    if (!is_form(form, false, false, false, true, true) || !form->is_out_half) {
        epilogue_all(epilogue, rows, *form);
    } else if (form->is_mask_half) {
        epilogue_form half = norm;
        half.is_mask_half = true;
        half.is_raw_half[0] = true;
        epilogue_tiles(epilogue, rows, half);
    } else {
        epilogue_tiles(epilogue, rows, norm);
    }
}

void K(epilogue_rows)(const dunlin_epilogue *epilogue, const epilogue_rows *rows)
{
    const epilogue_form form = form_of(epilogue);
    if (has_halves(&form)) {
        epilogue_halves(epilogue, rows, &form);
    } else if (is_active(&form) && form.mask_fn == DUNLIN_VIEW_HARD_SWISH) {
        epilogue_hard_swish(epilogue, rows);
    } else if (is_active(&form) && form.mask_fn == DUNLIN_VIEW_SILU) {
        epilogue_silu(epilogue, rows);
    } else if (is_terms(&form)) {
        if (form.is_plus_scaled) {
            epilogue_two_views(epilogue, rows);
        } else {
            epilogue_terms(epilogue, rows);
        }
    } else if (is_sums(&form)) {
        epilogue_sums(epilogue, rows);
    } else if (is_plain(&form)) {
        epilogue_plain(epilogue, rows);
    } else if (is_form(&form, false, false, false, true, true)) {
        epilogue_norm(epilogue, rows);
    } else if (is_form(&form, false, true, true, false, false)) {
        epilogue_residual(epilogue, rows);
    } else if (is_form(&form, true, false, true, true, true)) {
        epilogue_concat(epilogue, rows);
    } else if (is_form(&form, true, false, false, true, true)) {
        epilogue_concat_first(epilogue, rows);
    } else if (is_clip(&form)) {
        epilogue_clip(epilogue, rows);
    } else {
        epilogue_all(epilogue, rows, form);
    }
}
