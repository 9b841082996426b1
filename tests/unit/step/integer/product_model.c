/*
 * product_model.c - see product_model.h.
 */
#include "product_model.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *zeros(int64_t n, size_t size)
{
    void *array = calloc((size_t)n, size);
    cr_assert_not_null(array);
    return array;
}

static int64_t n_weights(const product_layer *l)
{
    return l->out_c * (l->in_c / l->groups) * l->kernel * l->kernel;
}

/* --- rounding --- */

static float unit_of(const product_rule *rule, float range)
{
    const float whole = range > 0.0F ? range : 1.0F;
    const float unit = (whole < 1e-30F ? 1e-30F : whole) * rule->kept / 127.0F;
    if (rule->is_fixed) {
        return 1.0F / 128.0F;
    }
    if (rule->is_nearest) {
        return (float)exp2(round(log2((double)whole))) / 128.0F;
    }
    if (rule->is_group) {
        const float above = (float)exp2(ceil(log2((double)unit)));
        return unit <= 0.75F * above ? 0.75F * above : above;
    }
    return rule->is_power ? (float)exp2(ceil(log2((double)unit))) : unit;
}

static int8_t rounded(float x, float unit)
{
    const float scaled = fabsf(x) * (1.0F / unit);
    const double whole = floor((double)scaled + 0.5);
    const double q = whole > 127.0 ? 127.0 : whole;
    return (int8_t)(x < 0.0F ? -q : q);
}

/* As 128 * high + low; a number that is not wide has no low half. */
static void halves(float x, float unit, bool is_wide, int8_t *high, int8_t *low)
{
    const double most = is_wide ? 127.0 * 128.0 : 127.0;
    const float scaled = fabsf(x) * (1.0F / unit);
    const double whole = floor((double)scaled + 0.5);
    const int32_t q = (int32_t)(whole > most ? most : whole);
    const int32_t up = is_wide ? (q + 64) / 128 : q;
    const int32_t rest = is_wide ? q - 128 * up : 0;
    *high = (int8_t)(x < 0.0F ? -up : up);
    *low = (int8_t)(x < 0.0F ? -rest : rest);
}

static float largest_of(const float *x, int64_t n)
{
    float largest = 0.0F;
    for (int64_t i = 0; i < n; i++) {
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    }
    return largest;
}

/* The range of the next batch, of these n values, `step` apart. */
static void adapt(const product_rule *rule, const float *x, int64_t n, int64_t step,
                  bool is_calibrating, product_range *range)
{
    const float before = range->range;
    const float unit = unit_of(rule, before);
    float largest = 0.0F;
    double squares = 0.0;
    double fines = 0.0;
    double wholes = 0.0;
    int64_t n_beyond = 0;
    for (int64_t i = 0; i < n; i++) {
        const float size = fabsf(x[i * step]);
        const float scaled = size * (1.0F / unit);
        const double fine = floor(64.0 * (scaled < 127.5F ? (double)scaled : 127.5));
        largest = size > largest ? size : largest;
        squares += fine * fine;
        fines += fine;
        wholes += fabs((double)rounded(x[i * step], unit));
        n_beyond += size > range->spread ? 1 : 0;
    }
    if (is_calibrating || before == 0.0F) {
        *range = (product_range){.range = largest, .spread = 0.0F};
        return;
    }
    if (rule->may_widen && !range->is_wide && fines > 0.0 &&
        log2(fabs(fines / 64.0 - wholes) / (fines / 64.0) + 1.0) > 0.03) {
        range->is_wide = true;
    }
    const bool is_tailed =
        rule->is_distribution && range->spread > 0.0F && (double)n_beyond <= 0.3 * (double)n;
    range->range = is_tailed          ? (1.0F - 0.8F) * before + 0.8F * largest
                   : largest > before ? largest
                                      : before - (before - largest) / 8.0F;
    range->spread =
        rule->is_distribution ? (float)(sqrt(squares / (double)n) * (double)unit / 64.0) : 0.0F;
}

/* --- products --- */

/* One product of an output and an input: its weight's place; -1: there is none. */
static int64_t weight_at(const product_layer *l, int64_t o, int64_t y, int64_t x, int64_t i,
                         int64_t iy, int64_t ix)
{
    const int64_t width = l->in_c / l->groups;
    const int64_t group = o / (l->out_c / l->groups);
    const int64_t ky = iy - (y * l->stride - l->padding);
    const int64_t kx = ix - (x * l->stride - l->padding);
    if (i / width != group || ky < 0 || ky >= l->kernel || kx < 0 || kx >= l->kernel) {
        return -1;
    }
    return ((o * width + i % width) * l->kernel + ky) * l->kernel + kx;
}

typedef void (*pair_fn)(void *ctx, int64_t out, int64_t in, int64_t weight);

/* Every product of an example. */
static void each_pair(const product_layer *l, pair_fn fn, void *ctx)
{
    for (int64_t o = 0; o < l->out_c; o++) {
        for (int64_t yx = 0; yx < l->out_h * l->out_w; yx++) {
            for (int64_t i = 0; i < l->in_c; i++) {
                for (int64_t at = 0; at < l->in_h * l->in_w; at++) {
                    const int64_t w = weight_at(l, o, yx / l->out_w, yx % l->out_w, i, at / l->in_w,
                                                at % l->in_w);
                    if (w >= 0) {
                        fn(ctx, o * l->out_h * l->out_w + yx, i * l->in_h * l->in_w + at, w);
                    }
                }
            }
        }
    }
}

typedef struct sums {
    const int8_t *x, *dy, *w;
    int64_t *y, *dx, *dw; /* NULL: not wanted */
} sums;

static void add_pair(void *ctx, int64_t out, int64_t in, int64_t weight)
{
    const sums *s = ctx;
    if (s->y != NULL) {
        s->y[out] += s->x[in] * s->w[weight];
    }
    if (s->dx != NULL) {
        s->dx[in] += s->dy[out] * s->w[weight];
    }
    if (s->dw != NULL) {
        s->dw[weight] += s->dy[out] * s->x[in];
    }
}

/* A whole step's tensors of a layer. */
typedef struct tape {
    float *x, *y, *dy; /* of all examples; y behind the ReLU */
    int8_t *q;         /* x as it was rounded */
    int64_t n_x, n_y;
} tape;

static void run_layer(const product_net *net, const product_layer *l, tape *t, int64_t n,
                      bool is_alone)
{
    const float w_unit = unit_of(&net->rules.weights, largest_of(l->weights, n_weights(l)));
    int8_t *w = zeros(n_weights(l), 1);
    int64_t *y = zeros(t->n_y, sizeof *y);
    for (int64_t i = 0; i < n_weights(l); i++) {
        w[i] = rounded(l->weights[i], w_unit);
    }
    for (int64_t k = 0; k < n; k++) {
        const float *x = t->x + k * t->n_x;
        const float range = is_alone ? largest_of(x, t->n_x) : l->values.range;
        const float unit = unit_of(&net->rules.values, range);
        memset(y, 0, (size_t)t->n_y * sizeof *y);
        for (int64_t i = 0; i < t->n_x; i++) {
            t->q[k * t->n_x + i] = rounded(x[i], unit);
        }
        sums s = {.x = t->q + k * t->n_x, .w = w, .y = y};
        each_pair(l, add_pair, &s);
        const float both = unit * w_unit;
        for (int64_t i = 0; i < t->n_y; i++) {
            float v = (float)y[i] * both;
            v = v + l->bias[i / (l->out_h * l->out_w)];
            t->y[k * t->n_y + i] = l->has_relu && !(v > 0.0F) ? 0.0F : v;
        }
    }
    free(w);
    free(y);
}

static void mask(const product_layer *l, const tape *t, int64_t n)
{
    for (int64_t i = 0; l->has_relu && i < n * t->n_y; i++) {
        t->dy[i] = t->y[i] > 0.0F ? t->dy[i] : 0.0F;
    }
}

/* The rule and the range of the errors that gradients of an output channel are made of. */
static const product_rule *errors_of(const product_net *net, const product_layer *l, int64_t o,
                                     const product_range **out_range)
{
    const bool is_by_channel = net->rules.weight_errors.is_by_channel;
    *out_range = is_by_channel ? &l->channels[o] : &l->errors;
    return is_by_channel ? &net->rules.weight_errors : &net->rules.errors;
}

/* The unit of whole numbers; of a pair that of its low half. */
static float number_unit(const product_rule *rule, const product_range *range)
{
    const float unit = unit_of(rule, range->range);
    return range->is_wide ? unit / 128.0F : unit;
}

/* The gradients of a layer's parameters. */
static void find_gradients(const product_net *net, product_layer *l, const tape *t, int64_t n)
{
    const int64_t area = l->out_h * l->out_w;
    const product_range *range = NULL;
    int8_t *dy[2] = {zeros(t->n_y, 1), zeros(t->n_y, 1)};
    int64_t *dw[2] = {zeros(n_weights(l), sizeof(int64_t)), zeros(n_weights(l), sizeof(int64_t))};
    int64_t *db = zeros(l->out_c, sizeof *db);
    for (int64_t k = 0; k < n; k++) {
        for (int64_t i = 0; i < t->n_y; i++) {
            const product_rule *rule = errors_of(net, l, i / area, &range);
            halves(t->dy[k * t->n_y + i], number_unit(rule, range), range->is_wide, &dy[0][i],
                   &dy[1][i]);
            db[i / area] += dy[0][i] * (range->is_wide ? 128 : 1) + dy[1][i];
        }
        for (int half = 0; half < 2; half++) {
            sums s = {.x = t->q + k * t->n_x, .dy = dy[half], .dw = dw[half]};
            each_pair(l, add_pair, &s);
        }
    }
    const double x_unit = (double)unit_of(&net->rules.values, l->values.range);
    for (int64_t i = 0; i < n_weights(l); i++) {
        const product_rule *rule = errors_of(net, l, i / (n_weights(l) / l->out_c), &range);
        const double unit = (double)number_unit(rule, range);
        const int64_t whole = dw[0][i] * (range->is_wide ? 128 : 1) + dw[1][i];
        l->weight_grad[i] = (float)((double)whole * (x_unit * unit));
    }
    for (int64_t o = 0; o < l->out_c; o++) {
        const product_rule *rule = errors_of(net, l, o, &range);
        l->bias_grad[o] = (float)((double)db[o] * (double)number_unit(rule, range));
    }
    for (int half = 0; half < 2; half++) {
        free(dy[half]);
        free(dw[half]);
    }
    free(db);
}

static void find_error(const product_net *net, const product_layer *l, const tape *t, int64_t n,
                       bool is_alone, float *out)
{
    const float w_unit = unit_of(&net->rules.weights, largest_of(l->weights, n_weights(l)));
    const bool is_wide = !is_alone && l->errors.is_wide;
    int8_t *w = zeros(n_weights(l), 1);
    int8_t *dy[2] = {zeros(t->n_y, 1), zeros(t->n_y, 1)};
    int64_t *dx = zeros(t->n_x, sizeof *dx);
    for (int64_t i = 0; i < n_weights(l); i++) {
        w[i] = rounded(l->weights[i], w_unit);
    }
    for (int64_t k = 0; k < n; k++) {
        const float *from = t->dy + k * t->n_y;
        const float alone = unit_of(&net->rules.errors, largest_of(from, t->n_y));
        const float unit = is_alone ? alone : number_unit(&net->rules.errors, &l->errors);
        for (int64_t i = 0; i < t->n_y; i++) {
            halves(from[i], unit, is_wide, &dy[0][i], &dy[1][i]);
        }
        for (int half = 0; half < (is_wide ? 2 : 1); half++) {
            memset(dx, 0, (size_t)t->n_x * sizeof *dx);
            sums s = {.dy = dy[half], .w = w, .dx = dx};
            each_pair(l, add_pair, &s);
            const float both = unit * w_unit * (is_wide && half == 0 ? 128.0F : 1.0F);
            for (int64_t i = 0; i < t->n_x; i++) {
                const float part = (float)dx[i] * both;
                float *to = &out[k * t->n_x + i];
                *to = half == 0 ? part : *to + part;
            }
        }
    }
    free(w);
    free(dy[0]);
    free(dy[1]);
    free(dx);
}

/* --- a step --- */

static void adapt_channels(const product_net *net, product_layer *l, const tape *t, int64_t n,
                           bool is_calibrating)
{
    const product_rule *rule = &net->rules.weight_errors;
    const int64_t area = l->out_h * l->out_w;
    float *of_channel = zeros(n * area, sizeof *of_channel);
    for (int64_t o = 0; o < l->out_c; o++) {
        for (int64_t i = 0; i < n * area; i++) {
            of_channel[i] = t->dy[i / area * t->n_y + o * area + i % area];
        }
        adapt(rule, of_channel, n * area, 1, is_calibrating, &l->channels[o]);
    }
    free(of_channel);
}

static void open_tapes(const product_net *net, tape *tapes, int64_t n)
{
    for (int i = 0; i < net->n_layers; i++) {
        const product_layer *l = &net->layers[i];
        tapes[i] =
            (tape){.n_x = l->in_c * l->in_h * l->in_w, .n_y = l->out_c * l->out_h * l->out_w};
        tapes[i].q = zeros(n * tapes[i].n_x, 1);
        tapes[i].y = zeros(n * tapes[i].n_y, sizeof(float));
        tapes[i].dy = zeros(n * tapes[i].n_y, sizeof(float));
    }
}

static void run(product_net *net, const float *x, const float *targets, int64_t n, int64_t n_batch,
                bool is_alone)
{
    tape tapes[PRODUCT_MAX_LAYERS];
    open_tapes(net, tapes, n);
    float *input = zeros(n * net->n_in, sizeof *input);
    memcpy(input, x, (size_t)(n * net->n_in) * sizeof *input);
    for (int i = 0; i < net->n_layers; i++) {
        tapes[i].x = i == 0 ? input : tapes[i - 1].y;
        run_layer(net, &net->layers[i], &tapes[i], n, is_alone);
    }
    tape *last = &tapes[net->n_layers - 1];
    const float factor = 2.0F * (1.0F / (float)n_batch) / (float)net->n_out;
    for (int64_t i = 0; i < n * net->n_out; i++) {
        last->dy[i] = (last->y[i] - targets[i]) * factor;
    }
    for (int i = net->n_layers; i-- > 0;) {
        product_layer *l = &net->layers[i];
        mask(l, &tapes[i], n);
        find_gradients(net, l, &tapes[i], n);
        const bool is_by_channel = net->rules.weight_errors.is_by_channel;
        if (i > 0) {
            find_error(net, l, &tapes[i], n, is_alone, tapes[i - 1].dy);
        }
        if (i > 0 || !is_by_channel) {
            adapt(&net->rules.errors, tapes[i].dy, n * tapes[i].n_y, 1, is_alone, &l->errors);
        }
        adapt(&net->rules.values, tapes[i].x, n * tapes[i].n_x, 1, is_alone, &l->values);
        if (is_by_channel) {
            adapt_channels(net, l, &tapes[i], n, is_alone);
        }
    }
    for (int i = 0; i < net->n_layers; i++) {
        free(tapes[i].q);
        free(tapes[i].y);
        free(tapes[i].dy);
    }
    free(input);
}

void product_calibrate(product_net *net, const float *x, const float *targets, int64_t n,
                       int64_t n_batch)
{
    run(net, x, targets, n, n_batch, true);
}

/* SplitMix64's finaliser, as the trainer's draws are defined. */
static uint64_t draw(uint64_t key, uint64_t counter)
{
    uint64_t z = key + (counter + 1) * 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

/* Where the trainer has an element of a weight: [kh][kw][in / groups][out]. */
static int64_t inner_place(const product_layer *l, int64_t i)
{
    const int64_t taps = l->kernel * l->kernel;
    const int64_t width = l->in_c / l->groups;
    return (i % taps * width + i / taps % width) * l->out_c + i / (taps * width);
}

static void keep_proportions(const product_net *net, product_layer *l, int64_t param)
{
    const float largest = largest_of(l->weight_grad, n_weights(l));
    const uint64_t key = draw(draw(net->seed, net->step), (uint64_t)param);
    const double power = exp2(round(log2((double)largest)));
    for (int64_t i = 0; largest > 0.0F && i < n_weights(l); i++) {
        const double size = fabs((double)l->weight_grad[i]) * (128.0 / power);
        const double u = (double)(draw(key, (uint64_t)inner_place(l, i)) >> 11) / 0x1p53;
        double q = floor(size) + (size - floor(size) > u ? 1.0 : 0.0);
        q = q > 127.0 ? 127.0 : q;
        l->weight_grad[i] = (float)((l->weight_grad[i] < 0.0F ? -q : q) / 16384.0);
    }
}

static float kept(const product_net *net, float w)
{
    const double unit = exp2(1 - net->rules.update_bits);
    const double q = rint((double)w / unit) * unit;
    const double most = 1.0 - unit;
    return net->rules.update_bits == 0 ? w : (float)(q > most ? most : q < -most ? -most : q);
}

void product_step(product_net *net, const float *x, const float *targets, int64_t n, float rate)
{
    run(net, x, targets, n, n, false);
    for (int i = 0; i < net->n_layers; i++) {
        product_layer *l = &net->layers[i];
        if (net->rules.keeps_proportions) {
            keep_proportions(net, l, 2 * i);
        }
        for (int64_t k = 0; k < n_weights(l); k++) {
            l->weights[k] = kept(net, l->weights[k] - rate * l->weight_grad[k]);
        }
        for (int64_t k = 0; k < l->out_c; k++) {
            l->bias[k] -= rate * l->bias_grad[k];
        }
    }
    net->step++;
}
