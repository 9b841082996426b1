/*
 * depthwise_chunk.h - where the chunks of a depthwise backward pass lie in its tensors, and what is
 * done with them.
 */
#ifndef DUNLIN_KERNELS_DEPTHWISE_CHUNK_H
#define DUNLIN_KERNELS_DEPTHWISE_CHUNK_H

#include "depthwise_back_tile.h"
#include "depthwise_backward.h"

#include <math.h>

/* A tensor's first row and column; NULL: zeros. */
static inline back_plane plane_of(const backward_worker *worker, const float *base, bool is_half,
                                  int64_t pitch, int64_t row_pixels, int64_t pixel)
{
    if (base == NULL) {
        return (back_plane){.at = worker->ring.zeros};
    }
    return (back_plane){.at = stored_at(base, pixel * pitch, is_half),
                        .row = row_pixels * pitch,
                        .pixel = pitch,
                        .is_half = is_half};
}

static inline const float *or_else(const float *values, const strip_unit *unit,
                                   const float *otherwise)
{
    return values == NULL ? otherwise : values + unit->channel;
}

static inline back_form form_of(const dunlin_fused_call *call)
{
    const dunlin_epilogue *epilogue = &call->dx;
    back_form form = {.stride = call->shape->stride_w,
                      .has_x = call->dw != NULL,
                      .is_stored = epilogue->out != NULL};
    form.has_values = form.has_x && call->x.scale != NULL && call->x.fn != DUNLIN_VIEW_CLIP;
    if (form.is_stored) {
        form.is_direct = epilogue->is_direct;
        form.has_addend = epilogue->addend != NULL;
        form.has_mask = epilogue->mask != NULL;
        form.is_scaled = epilogue->mask_scale != NULL;
        form.has_factor = epilogue->factor != NULL;
        form.n_stats = epilogue->n_stats;
        form.has_slopes = form.has_mask && epilogue->mask_fn != DUNLIN_VIEW_CLIP;
        form.is_raw_mask = form.has_mask && form.n_stats > 0 &&
                           epilogue->stats[0].raw == epilogue->mask &&
                           epilogue->stats[0].raw_pitch == epilogue->mask_pitch;
        form.is_mask_half = epilogue->is_mask_half;
        form.is_addend_half = epilogue->is_addend_half;
        form.is_out_half = epilogue->is_out_half;
        for (uint32_t s = 0; s < epilogue->n_stats; s++) {
            form.is_raw_half[s] = epilogue->stats[s].is_raw_half;
        }
    }
    form.is_x_half = form.has_x && call->x.is_half;
    return form;
}

/* Rows [y, y + n_rows) of the unit, at column 0 from the padding's corner on. */
static inline back_chunk band_of(backward_worker *worker, const strip_unit *unit, int64_t sample,
                                 int64_t y, int64_t n_rows)
{
    const dunlin_fused_call *call = worker->job->call;
    const dunlin_conv_shape *shape = call->shape;
    const dunlin_epilogue *epilogue = &call->dx;
    const float *zeros = worker->ring.zeros;
    const float *ones = worker->ones;
    const int64_t stride = shape->stride_h;
    const int64_t top = y + shape->pad_top;
    const int64_t g_row = top / stride - (BACK_TAPS - 1) / stride;
    const int64_t g_at = (sample * shape->out_h + g_row) * shape->out_w;
    const int64_t at = (sample * shape->in_h + y) * shape->in_w;
    const bool is_viewed = call->dw != NULL && call->x.scale != NULL;
    back_chunk band = {.n_rows = n_rows,
                       .parity = top % stride,
                       .n_g_rows = (top + n_rows - 1) / stride - g_row + 1,
                       .first_g_row = max_i64(0, -g_row),
                       .end_g_row = shape->out_h - g_row,
                       .w = worker->w,
                       .factor = or_else(call->dy.factor, unit, ones),
                       .slope = call->dy.raw == NULL ? zeros : call->dy.slope + unit->channel,
                       .offset = call->dy.raw == NULL ? zeros : call->dy.offset + unit->channel,
                       .scale = is_viewed ? call->x.scale + unit->channel : ones,
                       .shift = is_viewed ? call->x.shift + unit->channel : zeros,
                       .mask_scale = or_else(epilogue->mask_scale, unit, ones),
                       .mask_shift = or_else(epilogue->mask_shift, unit, zeros),
                       .epilogue_factor = or_else(epilogue->factor, unit, ones),
                       .lines = worker->lines,
                       .dw = worker->dw,
                       .kept = worker->sums,
                       .tap_step = worker->ring.width,
                       .sums_step = shape->in_c,
                       .n_channels = unit->n_channels,
                       .x_fn = call->x.fn,
                       .mask_fn = epilogue->mask_fn,
                       .x_low = is_viewed ? call->x.low : -INFINITY,
                       .x_high = is_viewed ? call->x.high : INFINITY,
                       .low = epilogue->low,
                       .high = epilogue->high,
                       .is_streamed = worker->job->is_streamed};
    band.g = plane_of(worker, call->dy.g, call->dy.is_half, call->dy.pitch, shape->out_w, g_at);
    band.raw = plane_of(worker, call->dy.raw, call->dy.is_raw_half, call->dy.raw_pitch,
                        shape->out_w, g_at);
    band.x = plane_of(worker, call->dw == NULL ? NULL : call->x.x, call->x.is_half, call->x.pitch,
                      shape->in_w, at);
    band.mask = plane_of(worker, epilogue->mask, epilogue->is_mask_half, epilogue->mask_pitch,
                         shape->in_w, at);
    band.addend = plane_of(worker, epilogue->addend, epilogue->is_addend_half,
                           epilogue->addend_pitch, shape->in_w, at);
    band.out =
        plane_of(worker, epilogue->out, epilogue->is_out_half, epilogue->pitch, shape->in_w, at);
    band.to = epilogue->out == NULL ? worker->sums
                                    : stored_to(epilogue->out, at * epilogue->pitch + unit->channel,
                                                epilogue->is_out_half);
    for (uint32_t s = 0; s < DUNLIN_EPILOGUE_MAX_STATS; s++) {
        const bool is_there = s < epilogue->n_stats;
        band.about[s] = is_there ? epilogue->stats[s].about + unit->channel : zeros;
        band.stat_raw[s] = plane_of(worker, is_there ? epilogue->stats[s].raw : NULL,
                                    is_there && epilogue->stats[s].is_raw_half,
                                    is_there ? epilogue->stats[s].raw_pitch : 0, shape->in_w, at);
    }
    back_plane *planes[] = {&band.g,      &band.raw,         &band.x,          &band.mask,
                            &band.addend, &band.stat_raw[0], &band.stat_raw[1]};
    for (size_t i = 0; i < sizeof planes / sizeof planes[0]; i++) {
        planes[i]->at =
            stored_at(planes[i]->at, planes[i]->pixel == 0 ? 0 : unit->channel, planes[i]->is_half);
    }
    return band;
}

static inline void plane_move(back_plane *plane, int64_t pixels, int64_t next, int64_t rows)
{
    plane->at = stored_at(plane->at, pixels * plane->pixel, plane->is_half);
    plane->chunk = next * plane->pixel + rows * plane->row;
}

/* The band's chunk at columns [p, p + n) from the padding's corner on; from there to the next. */
static inline back_chunk chunk_at(const backward_worker *worker, const back_chunk *band, int64_t p,
                                  int64_t n, int64_t next, int64_t rows)
{
    const dunlin_conv_shape *shape = worker->job->call->shape;
    const int64_t stride = shape->stride_w;
    const int64_t x = p - shape->pad_left;
    const int64_t g = p / stride - (BACK_TAPS - 1) / stride;
    back_chunk chunk = *band;
    chunk.n_pixels = n;
    chunk.n_g = (p + round_up(n, BACK_PIXELS) - 1) / stride - g + 1;
    chunk.first_pixel = max_i64(0, -x);
    chunk.end_pixel = min_i64(n, shape->in_w - x);
    chunk.first_g = min_i64(chunk.n_g, max_i64(0, -g));
    chunk.end_g = max_i64(chunk.first_g, min_i64(chunk.n_g, shape->out_w - g));
    plane_move(&chunk.g, g, next / stride, rows / stride);
    plane_move(&chunk.raw, g, next / stride, rows / stride);
    plane_move(&chunk.x, x, next, rows);
    plane_move(&chunk.mask, x, next, rows);
    plane_move(&chunk.addend, x, next, rows);
    plane_move(&chunk.stat_raw[0], x, next, rows);
    plane_move(&chunk.stat_raw[1], x, next, rows);
    chunk.to = stored_to(chunk.to, x * chunk.out.pixel, chunk.out.is_half);
    plane_move(&chunk.out, 0, next, rows);
    return chunk;
}

#endif
