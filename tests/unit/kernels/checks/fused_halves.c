/*
 * fused_halves.c - see fused_halves.h.
 */
#include "fused_halves.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float x = 0.0F;
    memcpy(&x, &bits, sizeof x);
    return x;
}

float fused_rounded(float x)
{
    const uint32_t bits = bits_of(x);
    return float_of((uint16_t)((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16));
}

static void round_all(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = fused_rounded(x[i]);
    }
}

void fused_data_round(fused_data *d)
{
    const dunlin_conv_shape *s = &d->conv.shape;
    round_all(d->x, d->n_in * d->pitch[PX]);
    round_all(d->g, d->n_out * d->pitch[PG]);
    round_all(d->raw, d->n_out * d->pitch[PRAW]);
    round_all(d->addend, d->n_in * d->pitch[PADDEND]);
    round_all(d->mask, d->n_in * (s->in_c + d->choice.gap[PMASK]));
    round_all(d->plus, d->n_in * s->in_c);
    for (int i = 0; i < 2; i++) {
        round_all(d->stat_raw[i], d->n_in * d->pitch[PSTAT]);
    }
}

bool fused_may_store_halves(const fused_choice *choice)
{
    return !choice->has_factor && (choice->is_direct || !choice->has_addend);
}

static uint16_t *halves_of(const float *x, int64_t n)
{
    uint16_t *halves = malloc((size_t)n * sizeof *halves + 1);
    cr_assert_not_null(halves);
    for (int64_t i = 0; i < n; i++) {
        halves[i] = (uint16_t)(bits_of(x[i]) >> 16);
    }
    return halves;
}

/* The last row ends with its channels: what comes after them is not there. */
static void take(fused_halves *all, const float **tensor, bool *is_half, int64_t rows,
                 int64_t pitch, int64_t channels)
{
    if (*tensor == NULL) {
        return;
    }
    *is_half = true;
    for (int i = 0; i < all->n; i++) {
        if (all->floats[i] == *tensor) {
            *tensor = (const float *)(const void *)all->halves[i];
            return;
        }
    }
    cr_assert_lt(all->n, FUSED_MOST_HALVES);
    all->floats[all->n] = *tensor;
    all->halves[all->n] = halves_of(*tensor, (rows - 1) * pitch + channels);
    *tensor = (const float *)(const void *)all->halves[all->n++];
}

static void take_out(const fused_data *d, dunlin_epilogue *dx, int64_t rows, fused_halves *all)
{
    const int64_t n = (rows - 1) * dx->pitch + d->conv.shape.in_c;
    const bool is_in_place = dx->addend == dx->out;
    all->out = dx->out;
    all->n_out = n;
    all->out_halves = halves_of(dx->out, n);
    dx->out = (float *)(void *)all->out_halves;
    dx->is_out_half = true;
    if (is_in_place) {
        dx->addend = dx->out;
        dx->is_addend_half = true;
    }
}

void fused_halves_open(const fused_data *d, dunlin_fused_call *call, fused_halves *all)
{
    const dunlin_conv_shape *s = &d->conv.shape;
    const int64_t in = call->n_samples * s->in_h * s->in_w;
    const int64_t out = call->n_samples * s->out_h * s->out_w;
    dunlin_epilogue *dx = &call->dx;
    memset(all, 0, sizeof *all);
    take(all, &call->x.x, &call->x.is_half, in, call->x.pitch, s->in_c);
    take(all, &call->x.plus, &call->x.is_plus_half, in, call->x.plus_pitch, s->in_c);
    take(all, &call->dy.g, &call->dy.is_half, out, call->dy.pitch, s->out_c);
    take(all, &call->dy.raw, &call->dy.is_raw_half, out, call->dy.raw_pitch, s->out_c);
    take(all, &dx->mask, &dx->is_mask_half, in, dx->mask_pitch, s->in_c);
    take(all, &dx->plus, &dx->is_plus_half, in, dx->plus_pitch, s->in_c);
    for (uint32_t i = 0; i < dx->n_stats; i++) {
        dunlin_stat *stat = &dx->stats[i];
        take(all, &stat->raw, &stat->is_raw_half, in, stat->raw_pitch, s->in_c);
    }
    if (dx->out != NULL && d->stores_halves) {
        take_out(d, dx, in, all);
    }
    if (dx->addend != NULL && !dx->is_addend_half && dx->addend != dx->out) {
        take(all, &dx->addend, &dx->is_addend_half, in, dx->addend_pitch, s->in_c);
    }
}

void fused_halves_close(const dunlin_fused_call *call, fused_halves *all)
{
    const int64_t pitch = call->dx.pitch;
    const int64_t channels = call->shape->in_c;
    for (int64_t i = 0; all->out != NULL && i < all->n_out; i++) {
        if (i % pitch < channels) {
            all->out[i] = float_of(all->out_halves[i]);
        }
    }
    for (int i = 0; i < all->n; i++) {
        free(all->halves[i]);
    }
    free(all->out_halves);
}
