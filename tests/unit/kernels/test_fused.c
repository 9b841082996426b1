/*
 * test_fused.c - fused convolution calls in all their combinations, against the same steps taken
 * one after another in double; and the same bits for every slice, thread count and part asked for.
 */
#include "conv_check.h"
#include "random.h"

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(fused, .timeout = 300);

/* What is used; drawn at random. */
typedef struct fused_choice {
    bool has_view, has_clip, has_grad_raw, has_grad_factor;
    bool has_bias, clips_y, has_forward_stat;
    bool is_direct, has_addend, is_in_place, has_mask, has_mask_scale, has_factor, has_db;
    uint32_t n_stats;
    int32_t gap[8]; /* pitch - channels of x, y, g, raw, dx, addend, mask, stat raw */
} fused_choice;

typedef struct fused_data {
    conv_data conv;
    fused_choice choice;
    uint32_t uses;
    int64_t n_in, n_out; /* pixels of all samples */
    int64_t pitch[8];
    float *x, *g, *raw, *addend, *mask, *stat_raw[2];
    float *scale, *shift, *factor, *slope, *offset, *mask_scale, *mask_shift, *sink_factor;
    float *about_y, *about[2];
} fused_data;

enum { PX, PY, PG, PRAW, PDX, PADDEND, PMASK, PSTAT };

typedef struct fused_results {
    float *y, *dx, *dw, *db;
    double *y_sums, *dx_sums[2];
} fused_results;

static bool toss(uint64_t *state)
{
    return test_random_below(state, 2) == 0;
}

static fused_choice choice_random(uint64_t *state)
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
    for (int i = 0; i < 8; i++) {
        c.gap[i] = toss(state) ? 0 : (int32_t)test_random_below(state, 20);
    }
    return c;
}

static void data_open(fused_data *d, const conv_recipe *recipe, uint64_t *state)
{
    memset(d, 0, sizeof *d);
    conv_data_open(&d->conv, recipe, state);
    const dunlin_conv_shape *s = &d->conv.shape;
    d->choice = choice_random(state);
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
    float **of_in[] = {&d->scale,       &d->shift,    &d->mask_scale, &d->mask_shift,
                       &d->sink_factor, &d->about[0], &d->about[1]};
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
    const bool has_stats = c->has_forward_stat || c->n_stats > 0;
    d->uses = DUNLIN_FUSED_FORWARD | DUNLIN_FUSED_INPUT_GRAD | DUNLIN_FUSED_WEIGHT_GRAD |
              (c->has_view ? DUNLIN_FUSED_VIEW : 0) |
              (c->has_grad_raw || c->has_grad_factor ? DUNLIN_FUSED_GRAD : 0) |
              (has_stats ? DUNLIN_FUSED_STATS : 0);
}

static void data_close(fused_data *d)
{
    float *all[] = {d->x,           d->g,           d->raw,        d->addend,     d->mask,
                    d->stat_raw[0], d->scale,       d->shift,      d->factor,     d->slope,
                    d->offset,      d->about_y,     d->about[0],   d->mask_scale, d->mask_shift,
                    d->about[1],    d->sink_factor, d->stat_raw[1]};
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

static void results_open(const fused_data *d, fused_results *r)
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

static void results_close(fused_results *r)
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
    call->dy = (dunlin_grad){.g = d->g + out * d->pitch[PG],
                             .pitch = d->pitch[PG],
                             .factor = c->has_grad_factor ? d->factor : NULL,
                             .raw = c->has_grad_raw ? d->raw + out * d->pitch[PRAW] : NULL,
                             .raw_pitch = d->pitch[PRAW],
                             .slope = d->slope,
                             .offset = d->offset};
    const float *addend = c->is_in_place ? r->dx : d->addend;
    call->dx = (dunlin_sink){
        .out = r->dx + in * d->pitch[PDX],
        .pitch = d->pitch[PDX],
        .is_direct = c->is_direct,
        .addend = c->has_addend ? addend + in * d->pitch[PADDEND] : NULL,
        .addend_pitch = d->pitch[PADDEND],
        .mask = c->has_mask ? d->mask + in * d->pitch[PMASK] : NULL,
        .mask_pitch = d->pitch[PMASK],
        .mask_scale = c->has_mask_scale ? d->mask_scale : NULL,
        .mask_shift = d->mask_shift,
        .low = -0.3f,
        .high = 0.5f,
        .factor = c->has_factor ? d->sink_factor : NULL,
        .n_stats = c->n_stats,
    };
    for (uint32_t i = 0; i < c->n_stats; i++) {
        call->dx.stats[i] = (dunlin_stat){.raw = d->stat_raw[i] + in * d->pitch[PSTAT],
                                          .raw_pitch = d->pitch[PSTAT],
                                          .about = d->about[i],
                                          .sums = r->dx_sums[i]};
    }
    call->dw = r->dw;
    call->db = c->has_db ? r->db : NULL;
}

static void run_call(const dunlin_kernels *kernels, const fused_data *d, bool is_forward,
                     dunlin_fused_call *call)
{
    size_t n_threads = call->threads == NULL ? 1 : pthreadpool_get_threads_count(call->threads);
    size_t sample_bytes = 0;
    uint32_t uses = d->uses;
    uses &= is_forward ? ~(uint32_t)(DUNLIN_FUSED_INPUT_GRAD | DUNLIN_FUSED_WEIGHT_GRAD)
                       : ~(uint32_t)DUNLIN_FUSED_FORWARD;
    size_t bytes = kernels->fused_workspace_bytes(&d->conv.shape, uses, n_threads, &sample_bytes);
    bytes += sample_bytes * (size_t)call->n_samples;
    float *workspace = buffer_new((int64_t)((bytes + 3) / 4));
    call->workspace = workspace;
    if (is_forward) {
        kernels->fused_forward(call);
    } else {
        kernels->fused_backward(call);
    }
    cr_assert(buffer_is_intact(workspace), "%s: wrote outside its workspace", kernels->isa);
    buffer_free(workspace);
}

/* All of it, in slices, on threads; both gradients in one call or apart. */
static void run(const dunlin_kernels *kernels, const fused_data *d, int64_t slice,
                pthreadpool_t threads, bool is_joint, fused_results *r)
{
    results_open(d, r);
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
            weights.dx = (dunlin_sink){.out = NULL};
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

/* --- the reference --- */

static double clip(double v, double low, double high)
{
    return fmin(fmax(v, low), high);
}

static double *reference_x(const fused_data *d)
{
    const int64_t channels = d->conv.shape.in_c;
    double *x = buffer_doubles(NULL, d->n_in * channels);
    for (int64_t i = 0; i < d->n_in * channels; i++) {
        const int64_t c = i % channels;
        x[i] = (double)d->x[i / channels * d->pitch[PX] + c];
        if (d->choice.has_view) {
            x[i] = x[i] * (double)d->scale[c] + (double)d->shift[c];
            x[i] = d->choice.has_clip ? clip(x[i], (double)-0.4f, (double)0.6f) : x[i];
        }
    }
    return x;
}

static double *reference_dy(const fused_data *d)
{
    const int64_t channels = d->conv.shape.out_c;
    double *dy = buffer_doubles(NULL, d->n_out * channels);
    for (int64_t i = 0; i < d->n_out * channels; i++) {
        const int64_t c = i % channels;
        dy[i] = (double)d->g[i / channels * d->pitch[PG] + c];
        dy[i] *= d->choice.has_grad_factor ? (double)d->factor[c] : 1.0;
        if (d->choice.has_grad_raw) {
            dy[i] += (double)d->raw[i / channels * d->pitch[PRAW] + c] * (double)d->slope[c] +
                     (double)d->offset[c];
        }
    }
    return dy;
}

/* Of a chain of so many products, rounded inputs counted in. */
static double factor_of(double products)
{
    return 8.0 + 2.0 * sqrt(products);
}

static void want(const char *what, const dunlin_kernels *kernels, double got, double expected,
                 double size)
{
    cr_assert(fabs(got - expected) <= size * (double)FLT_EPSILON, "%s: %s is %g, not %g (%g off)",
              kernels->isa, what, got, expected, got - expected);
}

static void compare_forward(const dunlin_kernels *kernels, const fused_data *d,
                            const fused_results *r, const double *x)
{
    const dunlin_conv_shape *s = &d->conv.shape;
    const int64_t channels = s->out_c;
    const double depth = (double)s->kernel_h * s->kernel_w * s->in_c / s->groups;
    double *w = buffer_doubles(d->conv.w, d->conv.n_w);
    double *bias = buffer_doubles(d->conv.bias, channels);
    double *y = buffer_doubles(NULL, d->n_out * channels);
    double *size = buffer_doubles(NULL, d->n_out * channels);
    double *sums = buffer_doubles(NULL, 4 * channels);
    reference_conv_forward(s, d->conv.n, x, w, d->choice.has_bias ? bias : NULL, y, size);
    for (int64_t i = 0; i < d->n_out * channels; i++) {
        const int64_t c = i % channels;
        const double got = (double)r->y[i / channels * d->pitch[PY] + c];
        y[i] = d->choice.clips_y ? clip(y[i], (double)-0.5f, (double)0.7f) : y[i];
        want("y", kernels, got, y[i], (size[i] + depth) * factor_of(depth));
        const double t = got - (double)d->about_y[c];
        sums[c] += t;
        sums[channels + c] += t * t;
        sums[2 * channels + c] += fabs(t);
    }
    for (int64_t c = 0; d->choice.has_forward_stat && c < channels; c++) {
        double error = factor_of(1000.0);
        want("a sum of y", kernels, r->y_sums[c], sums[c], (sums[2 * channels + c] + 1.0) * error);
        want("a sum of squares", kernels, r->y_sums[channels + c], sums[channels + c],
             (sums[channels + c] + 1.0) * error);
    }
    double *all[] = {w, bias, y, size, sums};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

/* Element i = row * channels + c: what is stored, and t. */
static double sink_value(const fused_data *d, int64_t row, int64_t c, double dx, double *out_t)
{
    const fused_choice *k = &d->choice;
    const double addend = k->has_addend ? (double)d->addend[row * d->pitch[PADDEND] + c] : 0.0;
    double t = k->is_direct ? dx + addend : dx;
    if (k->has_mask) {
        float m = d->mask[row * d->pitch[PMASK] + c];
        m = k->has_mask_scale ? fmaf(m, d->mask_scale[c], d->mask_shift[c]) : m;
        t = m > -0.3f && m < 0.5f ? t : 0.0;
    }
    *out_t = t;
    return k->is_direct ? t : t * (k->has_factor ? (double)d->sink_factor[c] : 1.0) + addend;
}

static void compare_input(const dunlin_kernels *kernels, const fused_data *d,
                          const fused_results *r, const double *dy)
{
    const dunlin_conv_shape *s = &d->conv.shape;
    const int64_t channels = s->in_c;
    const double depth = (double)s->kernel_h * s->kernel_w * s->out_c / s->groups;
    double *w = buffer_doubles(d->conv.w, d->conv.n_w);
    double *dx = buffer_doubles(NULL, d->n_in * channels);
    double *size = buffer_doubles(NULL, d->n_in * channels);
    double *sums = buffer_doubles(NULL, 4 * channels);
    double *sizes = buffer_doubles(NULL, 4 * channels);
    reference_conv_input_grad(s, d->conv.n, w, dy, dx, size);
    for (int64_t i = 0; i < d->n_in * channels; i++) {
        const int64_t row = i / channels;
        const int64_t c = i % channels;
        double t = 0.0;
        double expected = sink_value(d, row, c, dx[i], &t);
        double error = (size[i] + depth + 2.0) * factor_of(depth);
        want("dx", kernels, (double)r->dx[row * d->pitch[PDX] + c], expected, error);
        for (uint32_t k = 0; k < d->choice.n_stats; k++) {
            double away =
                (double)d->stat_raw[k][row * d->pitch[PSTAT] + c] - (double)d->about[k][c];
            sums[2 * k * channels + c] += t;
            sums[(2 * k + 1) * channels + c] += t * away;
            sizes[2 * k * channels + c] += error + 12.0 * fabs(t);
            sizes[(2 * k + 1) * channels + c] += (error + 12.0 * fabs(t)) * fabs(away);
        }
    }
    for (int64_t i = 0; i < 2 * channels * d->choice.n_stats; i++) {
        want("a sum of the sink", kernels, r->dx_sums[i / channels / 2][i % (2 * channels)],
             sums[i], 4.0 * sizes[i] + 1.0);
    }
    double *all[] = {w, dx, size, sums, sizes};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

static void compare_weights(const dunlin_kernels *kernels, const fused_data *d,
                            const fused_results *r, const double *x, const double *dy)
{
    const dunlin_conv_shape *s = &d->conv.shape;
    const double pixels = (double)d->n_out;
    double *dw = buffer_doubles(NULL, d->conv.n_w);
    double *size = buffer_doubles(NULL, d->conv.n_w);
    double *db = buffer_doubles(NULL, s->out_c);
    double *db_size = buffer_doubles(NULL, s->out_c);
    reference_conv_weight_grad(s, d->conv.n, x, dy, dw, size);
    reference_bias_grad(s, d->conv.n, dy, db, db_size);
    for (int64_t i = 0; i < d->conv.n_w; i++) {
        want("dw", kernels, (double)r->dw[i], dw[i], (size[i] + pixels) * factor_of(pixels));
    }
    for (int64_t i = 0; d->choice.has_db && i < s->out_c; i++) {
        want("db", kernels, (double)r->db[i], db[i], (db_size[i] + pixels) * factor_of(pixels));
    }
    double *all[] = {dw, size, db, db_size};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

static void compare(const dunlin_kernels *kernels, const fused_data *d, const fused_results *r)
{
    double *x = reference_x(d);
    double *dy = reference_dy(d);
    compare_forward(kernels, d, r, x);
    compare_input(kernels, d, r, dy);
    compare_weights(kernels, d, r, x, dy);
    free(x);
    free(dy);
}

static void check_random(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(3100);
    for (int i = 0; i < test_cases(60); i++, seed++) {
        uint64_t state = seed * 613;
        conv_recipe recipe = conv_recipe_random(&state);
        fused_data data;
        fused_results results;
        data_open(&data, &recipe, &state);
        run(kernels, &data, recipe.n, NULL, true, &results);
        compare(kernels, &data, &results);
        results_close(&results);
        data_close(&data);
    }
}

Test(fused, agrees_with_double_on_random_calls)
{
    each_isa(check_random);
}

/* --- bits --- */

static bool rows_same(const float *a, const float *b, int64_t rows, int64_t pitch, int64_t n)
{
    for (int64_t i = 0; i < rows; i++) {
        if (!buffer_same_bits(a + i * pitch, b + i * pitch, n)) {
            return false;
        }
    }
    return true;
}

static const char *differs(const fused_data *d, const fused_results *a, const fused_results *b)
{
    const dunlin_conv_shape *s = &d->conv.shape;
    if (!rows_same(a->y, b->y, d->n_out, d->pitch[PY], s->out_c)) {
        return "y";
    }
    if (!rows_same(a->dx, b->dx, d->n_in, d->pitch[PDX], s->in_c)) {
        return "dx";
    }
    if (!buffer_same_bits(a->dw, b->dw, d->conv.n_w)) {
        return "dw";
    }
    if (d->choice.has_db && !buffer_same_bits(a->db, b->db, s->out_c)) {
        return "db";
    }
    if (d->choice.has_forward_stat &&
        memcmp(a->y_sums, b->y_sums, (size_t)s->out_c * 2 * sizeof(double)) != 0) {
        return "the sums of y";
    }
    for (uint32_t i = 0; i < d->choice.n_stats; i++) {
        if (memcmp(a->dx_sums[i], b->dx_sums[i], (size_t)s->in_c * 2 * sizeof(double)) != 0) {
            return "the sums of the sink";
        }
    }
    return NULL;
}

static void check_same(const dunlin_kernels *kernels, const fused_data *d,
                       const fused_results *whole, int64_t slice, size_t n_threads, bool is_joint)
{
    fused_results other;
    pthreadpool_t threads = n_threads == 0 ? NULL : pthreadpool_create(n_threads);
    run(kernels, d, slice, threads, is_joint, &other);
    const char *what = differs(d, whole, &other);
    cr_assert_null(what, "%s: %s by slices of %lld on %zu threads, %s", kernels->isa, what,
                   (long long)slice, n_threads, is_joint ? "at once" : "apart");
    results_close(&other);
    if (threads != NULL) {
        pthreadpool_destroy(threads);
    }
}

static void check_bits(const dunlin_kernels *kernels, const conv_recipe *recipe, uint64_t seed)
{
    uint64_t state = seed;
    fused_data data;
    fused_results whole;
    data_open(&data, recipe, &state);
    run(kernels, &data, recipe->n, NULL, true, &whole);
    check_same(kernels, &data, &whole, recipe->n, 0, false);
    check_same(kernels, &data, &whole, 1, 0, true);
    check_same(kernels, &data, &whole, 2, 3, false);
    check_same(kernels, &data, &whole, recipe->n, 2, true);
    check_same(kernels, &data, &whole, recipe->n, 4, false);
    results_close(&whole);
    data_close(&data);
}

static void check_bits_random(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(5200);
    for (int i = 0; i < test_cases(20); i++, seed++) {
        uint64_t state = seed * 71;
        conv_recipe recipe = conv_recipe_random(&state);
        check_bits(kernels, &recipe, seed);
    }
}

Test(fused, same_bits_for_slices_threads_and_parts)
{
    each_isa(check_bits_random);
}

/* Large enough that work is handed to threads and panels are cut. */
static const conv_recipe large[] = {
    {40, 40, 24, 40, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3},
    {33, 35, 30, 30, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 30, 3},
    {1, 1, 300, 500, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 11},
    {14, 14, 96, 150, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 4},
    {28, 28, 24, 144, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 4},
    {17, 17, 32, 64, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 4, 5},
    {7, 7, 160, 200, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4},
    {15, 15, 64, 70, 1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 3},
    {7, 7, 1100, 70, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 5},
    {31, 33, 3, 20, 7, 7, 2, 2, 3, 3, 3, 3, 1, 1, 1, 3},
    {61, 57, 20, 20, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 20, 2},
    {64, 56, 40, 40, 5, 5, 2, 2, 2, 2, 2, 2, 1, 1, 40, 2},
    {7, 7, 200, 200, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 200, 5},
    {16, 130, 24, 24, 3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 24, 2},
};

static void check_large(const dunlin_kernels *kernels)
{
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        for (uint64_t seed = 1; seed <= 3; seed++) {
            check_bits(kernels, &large[i], seed * 977 + i);
        }
    }
}

Test(fused, same_bits_on_large_shapes)
{
    each_isa(check_large);
}

static void check_large_values(const dunlin_kernels *kernels)
{
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        uint64_t state = i + 40;
        fused_data data;
        fused_results results;
        conv_recipe recipe = large[i];
        recipe.n = 2;
        data_open(&data, &recipe, &state);
        run(kernels, &data, recipe.n, NULL, true, &results);
        compare(kernels, &data, &results);
        results_close(&results);
        data_close(&data);
    }
}

Test(fused, agrees_with_double_on_large_shapes)
{
    each_isa(check_large_values);
}
