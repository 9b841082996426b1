/*
 * fused_data.c - see fused_data.h.
 */
#include "fused_data.h"

#include "fused_halves.h"
#include "random.h"
#include "view_double.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool toss(uint64_t *state)
{
    return test_random_below(state, 2) == 0;
}

/* A residual sum read through its terms, as a step does it, or in any combination. */
static void choose_terms(fused_choice *c, uint64_t *state)
{
    const uint64_t form = test_random_below(state, 4);
    c->is_raw_mask = c->has_mask && c->n_stats > 0 && toss(state);
    c->x_terms = (int32_t)test_random_below(state, 3);
    c->mask_terms = (int32_t)test_random_below(state, 3);
    if (form == 0) {
        c->x_terms = c->mask_terms = 1 + (toss(state) ? 1 : 0);
        c->n_stats = (uint32_t)c->mask_terms;
        c->has_view = c->has_mask = c->has_mask_scale = c->is_raw_mask = true;
        c->is_direct = c->has_addend = true;
        c->has_factor = false;
    }
    c->x_terms = c->has_view ? c->x_terms : 0;
    c->mask_terms = c->has_mask && c->has_mask_scale ? c->mask_terms : 0;
}

/* Batch norm's view with an activation, as a step does it, or in any combination. */
static void choose_functions(fused_choice *c, uint64_t *state)
{
    const uint64_t form = test_random_below(state, 3);
    if (form == 0 && c->x_terms == 0 && c->mask_terms == 0) {
        c->is_own_mask = true;
        c->has_view = c->has_mask = c->has_mask_scale = c->is_raw_mask = true;
        c->n_stats = 1;
        c->has_addend = c->is_direct = toss(state);
        c->has_factor = false;
        c->x_fn = c->mask_fn = toss(state) ? DUNLIN_VIEW_SILU : DUNLIN_VIEW_HARD_SWISH;
    } else if (form == 1) {
        c->x_fn = c->has_view && c->x_terms == 0 ? view_fn_random(state) : DUNLIN_VIEW_CLIP;
        c->mask_fn = c->has_mask && c->has_mask_scale && c->mask_terms == 0 ? view_fn_random(state)
                                                                            : DUNLIN_VIEW_CLIP;
    }
}

static fused_choice choice_random(uint64_t *state, bool may_have_terms)
{
    fused_choice c = {.has_view = toss(state),
                      .has_clip = toss(state),
                      .has_grad_raw = toss(state),
                      .has_grad_factor = toss(state),
                      .has_bias = toss(state),
                      .clips_y = toss(state),
                      .is_direct = toss(state),
                      .has_addend = toss(state),
                      .is_in_place = toss(state),
                      .has_mask = toss(state),
                      .has_mask_scale = toss(state),
                      .has_db = toss(state),
                      .n_stats = (uint32_t)test_random_below(state, 3)};
    c.has_factor = !c.is_direct && toss(state);
    c.has_forward_stat = !c.clips_y && toss(state);
    if (may_have_terms) {
        choose_terms(&c, state);
    }
    choose_functions(&c, state);
    for (int i = 0; i < 8; i++) {
        c.gap[i] = toss(state) ? 0 : (int32_t)test_random_below(state, 20);
    }
    return c;
}

void fused_data_open(fused_data *d, const conv_recipe *recipe, uint64_t *state)
{
    memset(d, 0, sizeof *d);
    conv_data_open(&d->conv, recipe, state);
    const dunlin_conv_shape *s = &d->conv.shape;
    d->choice = choice_random(state, s->groups == 1);
    const int32_t channels[8] = {s->in_c, s->out_c, s->out_c, s->out_c,
                                 s->in_c, s->in_c,  s->in_c,  s->in_c};
    for (int i = 0; i < 8; i++) {
        d->pitch[i] = channels[i] + d->choice.gap[i];
    }
    if (d->choice.is_in_place) {
        d->pitch[PADDEND] = d->pitch[PDX];
    }
    d->n_in = d->conv.n * s->in_h * s->in_w;
    d->n_out = d->conv.n * s->out_h * s->out_w;
    d->x = buffer_random(d->n_in * d->pitch[PX], state);
    d->g = buffer_random(d->n_out * d->pitch[PG], state);
    d->raw = buffer_random(d->n_out * d->pitch[PRAW], state);
    d->addend = buffer_random(d->n_in * d->pitch[PADDEND], state);
    d->mask = buffer_random(d->n_in * d->pitch[PMASK], state);
    d->plus = buffer_random(d->n_in * s->in_c, state);
    float **of_in[] = {&d->scale,      &d->shift,           &d->mask_scale,
                       &d->mask_shift, &d->epilogue_factor, &d->about[0],
                       &d->about[1],   &d->plus_scale,      &d->plus_shift};
    for (size_t i = 0; i < sizeof of_in / sizeof of_in[0]; i++) {
        *of_in[i] = buffer_random(s->in_c, state);
    }
    float **of_out[] = {&d->factor, &d->slope, &d->offset, &d->about_y};
    for (size_t i = 0; i < sizeof of_out / sizeof of_out[0]; i++) {
        *of_out[i] = buffer_random(s->out_c, state);
    }
    for (int i = 0; i < 2; i++) {
        d->stat_raw[i] = buffer_random(d->n_in * d->pitch[PSTAT], state);
    }
    const fused_choice *c = &d->choice;
    for (int32_t i = 0; i < s->in_c; i++) { /* beyond the kinks */
        d->scale[i] *= c->x_fn != DUNLIN_VIEW_CLIP ? 4.0f : 1.0f;
        d->mask_scale[i] *= c->mask_fn != DUNLIN_VIEW_CLIP ? 4.0f : 1.0f;
    }
    if (c->is_own_mask) {
        d->pitch[PMASK] = d->pitch[PX];
    }
    const bool has_stats = c->has_forward_stat || c->n_stats > 0;
    d->uses = DUNLIN_FUSED_FORWARD | DUNLIN_FUSED_INPUT_GRAD | DUNLIN_FUSED_WEIGHT_GRAD |
              (c->has_view ? DUNLIN_FUSED_VIEW : 0) |
              (c->has_grad_raw || c->has_grad_factor ? DUNLIN_FUSED_GRAD : 0) |
              (has_stats ? DUNLIN_FUSED_STATS : 0);
}

const float *fused_mask(const fused_data *d)
{
    return d->choice.is_own_mask ? d->x : d->mask;
}

float fused_mask_value(const fused_data *d, int64_t row, int64_t c)
{
    const float *scale = d->choice.is_own_mask ? d->scale : d->mask_scale;
    const float *shift = d->choice.is_own_mask ? d->shift : d->mask_shift;
    const float m = fused_mask(d)[row * d->pitch[PMASK] + c];
    return d->choice.has_mask_scale ? fmaf(m, scale[c], shift[c]) : m;
}

void fused_data_close(fused_data *d)
{
    float *all[] = {d->x,
                    d->g,
                    d->raw,
                    d->addend,
                    d->mask,
                    d->stat_raw[0],
                    d->scale,
                    d->shift,
                    d->factor,
                    d->slope,
                    d->offset,
                    d->about_y,
                    d->about[0],
                    d->mask_scale,
                    d->mask_shift,
                    d->about[1],
                    d->epilogue_factor,
                    d->stat_raw[1],
                    d->plus,
                    d->plus_scale,
                    d->plus_shift};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        buffer_free(all[i]);
    }
    conv_data_close(&d->conv);
}

static double *sums_new(int64_t channels)
{
    double *sums = malloc((size_t)channels * 2 * sizeof *sums);
    cr_assert_not_null(sums);
    for (int64_t i = 0; i < 2 * channels; i++) {
        sums[i] = NAN;
    }
    return sums;
}

static void fused_results_open(const fused_data *d, fused_results *r)
{
    const dunlin_conv_shape *s = &d->conv.shape;
    r->y = buffer_new(d->n_out * d->pitch[PY]);
    r->dx = buffer_new(d->n_in * d->pitch[PDX]);
    r->dw = buffer_new(d->conv.n_w);
    r->db = buffer_new(s->out_c);
    r->y_sums = sums_new(s->out_c);
    r->dx_sums[0] = sums_new(s->in_c);
    r->dx_sums[1] = sums_new(s->in_c);
    if (d->choice.is_in_place && d->choice.has_addend) {
        memcpy(r->dx, d->addend, (size_t)(d->n_in * d->pitch[PDX]) * sizeof(float));
    }
}

void fused_results_close(fused_results *r)
{
    buffer_free(r->y);
    buffer_free(r->dx);
    buffer_free(r->dw);
    buffer_free(r->db);
    free(r->y_sums);
    free(r->dx_sums[0]);
    free(r->dx_sums[1]);
}

/* The call's forward part for samples from `first`. */
static void set_forward(const fused_data *d, fused_results *r, int64_t first,
                        dunlin_fused_call *call)
{
    const dunlin_conv_shape *s = &d->conv.shape;
    const fused_choice *c = &d->choice;
    const int64_t in = first * s->in_h * s->in_w;
    const int64_t out = first * s->out_h * s->out_w;
    call->x = (dunlin_view){.x = d->x + in * d->pitch[PX],
                            .pitch = d->pitch[PX],
                            .scale = c->has_view ? d->scale : NULL,
                            .shift = d->shift,
                            .fn = c->x_fn,
                            .low = c->has_clip ? -0.4f : -INFINITY,
                            .high = c->has_clip ? 0.6f : INFINITY};
    call->w = d->conv.w;
    call->bias = c->has_bias ? d->conv.bias : NULL;
    call->y = r->y + out * d->pitch[PY];
    call->y_pitch = d->pitch[PY];
    call->low = c->clips_y ? -0.5f : -INFINITY;
    call->high = c->clips_y ? 0.7f : INFINITY;
    if (c->has_forward_stat) {
        call->stat = (dunlin_stat){.about = d->about_y, .sums = r->y_sums};
    }
}

static void set_backward(const fused_data *d, fused_results *r, int64_t first,
                         dunlin_fused_call *call)
{
    const dunlin_conv_shape *s = &d->conv.shape;
    const fused_choice *c = &d->choice;
    const int64_t in = first * s->in_h * s->in_w;
    const int64_t out = first * s->out_h * s->out_w;
    const float *plus = d->plus + in * s->in_c;
    call->x.plus = c->x_terms > 0 ? plus : NULL;
    call->x.plus_pitch = s->in_c;
    call->x.plus_scale = c->x_terms == 2 ? d->plus_scale : NULL;
    call->x.plus_shift = d->plus_shift;
    call->dy = (dunlin_grad){.g = d->g + out * d->pitch[PG],
                             .pitch = d->pitch[PG],
                             .factor = c->has_grad_factor ? d->factor : NULL,
                             .raw = c->has_grad_raw ? d->raw + out * d->pitch[PRAW] : NULL,
                             .raw_pitch = d->pitch[PRAW],
                             .slope = d->slope,
                             .offset = d->offset};
    const float *addend = c->is_in_place ? r->dx : d->addend;
    call->dx = (dunlin_epilogue){
        .out = r->dx + in * d->pitch[PDX],
        .pitch = d->pitch[PDX],
        .is_direct = c->is_direct,
        .addend = c->has_addend ? addend + in * d->pitch[PADDEND] : NULL,
        .addend_pitch = d->pitch[PADDEND],
        .mask = c->has_mask ? fused_mask(d) + in * d->pitch[PMASK] : NULL,
        .mask_pitch = d->pitch[PMASK],
        .mask_scale = c->is_own_mask      ? d->scale
                      : c->has_mask_scale ? d->mask_scale
                                          : NULL,
        .mask_shift = c->is_own_mask ? d->shift : d->mask_shift,
        .mask_fn = c->mask_fn,
        .plus = c->mask_terms > 0 ? plus : NULL,
        .plus_pitch = s->in_c,
        .plus_scale = c->mask_terms == 2 ? d->plus_scale : NULL,
        .plus_shift = d->plus_shift,
        .low = -0.3f,
        .high = 0.5f,
        .factor = c->has_factor ? d->epilogue_factor : NULL,
        .n_stats = c->n_stats,
    };
    for (uint32_t i = 0; i < c->n_stats; i++) {
        call->dx.stats[i] = (dunlin_stat){.raw = d->stat_raw[i] + in * d->pitch[PSTAT],
                                          .raw_pitch = d->pitch[PSTAT],
                                          .about = d->about[i],
                                          .sums = r->dx_sums[i]};
    }
    if (c->is_raw_mask) {
        call->dx.stats[0].raw = call->dx.mask;
        call->dx.stats[0].raw_pitch = call->dx.mask_pitch;
    }
    call->dw = r->dw;
    call->db = c->has_db ? r->db : NULL;
}

static void run_call(const dunlin_kernels *kernels, const fused_data *d, bool is_forward,
                     const dunlin_fused_call *given)
{
    dunlin_fused_call copy = *given;
    dunlin_fused_call *call = &copy;
    fused_halves halves;
    if (d->reads_halves) {
        fused_halves_open(d, call, &halves);
    }
    size_t n_threads = dunlin__threads_count(call->threads);
    uint64_t sample_bytes = 0;
    uint32_t uses = d->uses;
    uses &= is_forward ? ~(uint32_t)(DUNLIN_FUSED_INPUT_GRAD | DUNLIN_FUSED_WEIGHT_GRAD)
                       : ~(uint32_t)DUNLIN_FUSED_FORWARD;
    uses |= d->reads_halves ? DUNLIN_FUSED_VIEW | DUNLIN_FUSED_GRAD : 0;
    uint64_t bytes = kernels->fused_workspace_bytes(&d->conv.shape, uses, n_threads, &sample_bytes);
    bytes += sample_bytes * (uint64_t)call->n_samples;
    float *workspace = buffer_new((int64_t)((bytes + 3) / 4));
    call->workspace = workspace;
    if (is_forward) {
        kernels->fused_forward(call);
    } else {
        kernels->fused_backward(call);
    }
    cr_assert(buffer_is_intact(workspace), "%s: wrote outside its workspace", kernels->isa);
    buffer_free(workspace);
    if (d->reads_halves) {
        fused_halves_close(call, &halves);
    }
}

void fused_run(const dunlin_kernels *kernels, const fused_data *d, int64_t slice,
               dunlin_threads *threads, bool is_joint, fused_results *r)
{
    fused_results_open(d, r);
    for (int64_t first = 0; first < d->conv.n; first += slice) {
        dunlin_fused_call call = {.shape = &d->conv.shape,
                                  .n_samples =
                                      d->conv.n - first < slice ? d->conv.n - first : slice,
                                  .is_reset = first == 0,
                                  .threads = threads};
        set_forward(d, r, first, &call);
        run_call(kernels, d, true, &call);
        set_backward(d, r, first, &call);
        dunlin_fused_call weights = call;
        if (!is_joint) {
            weights.dx = (dunlin_epilogue){.out = NULL};
            run_call(kernels, d, false, &weights);
            call.dw = NULL;
            call.db = NULL;
        }
        run_call(kernels, d, false, &call);
    }
    cr_assert(buffer_is_intact(r->y) && buffer_is_intact(r->dx) && buffer_is_intact(r->dw) &&
                  buffer_is_intact(r->db),
              "%s: wrote outside an output", kernels->isa);
}
