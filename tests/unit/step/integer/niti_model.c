/*
 * niti_model.c - a step of NITI, sample by sample and loop by loop.
 */
#include "niti_model.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t *numbers(int64_t n)
{
    int64_t *made = calloc((size_t)n, sizeof *made);
    cr_assert_not_null(made);
    return made;
}

static int64_t count(const int64_t shape[3])
{
    return shape[0] * shape[1] * shape[2];
}

void niti_begin(niti_net *net, int64_t channels, int64_t height, int64_t width)
{
    *net = (niti_net){.n_in = channels * height * width, .x.is_counted = true};
    net->layers[0].in[0] = channels;
    net->layers[0].in[1] = height;
    net->layers[0].in[2] = width;
    net->act = numbers(net->n_in);
}

static niti_layer *add(niti_net *net, niti_kind kind, int64_t c, int64_t h, int64_t w)
{
    niti_layer *layer = &net->layers[net->n_layers++];
    layer->kind = kind;
    layer->out[0] = c;
    layer->out[1] = h;
    layer->out[2] = w;
    layer->act = numbers(count(layer->out));
    layer->err = numbers(count(layer->in));
    layer->y.is_counted = kind == NITI_CONV || kind == NITI_DENSE;
    layer->dx.is_counted = kind == NITI_CONV || kind == NITI_DENSE;
    if (net->n_layers < NITI_MAX_LAYERS) {
        memcpy(net->layers[net->n_layers].in, layer->out, sizeof layer->out);
    }
    return layer;
}

static void add_params(niti_layer *layer, int64_t n_w, int64_t n_b)
{
    layer->n_w = n_w;
    layer->n_b = n_b;
    layer->w = numbers(n_w);
    layer->b = numbers(n_b);
    layer->gw = numbers(n_w);
    layer->gb = numbers(n_b);
    layer->whole_w = numbers(n_w);
    layer->whole_b = numbers(n_b);
}

void niti_conv(niti_net *net, int64_t channels, int64_t kernel, int64_t padding)
{
    const int64_t *in = net->layers[net->n_layers].in;
    const int64_t c = in[0];
    niti_layer *layer = add(net, NITI_CONV, channels, in[1] + 2 * padding - kernel + 1,
                            in[2] + 2 * padding - kernel + 1);
    layer->kernel = kernel;
    layer->padding = padding;
    add_params(layer, channels * c * kernel * kernel, channels);
}

void niti_relu(niti_net *net)
{
    const int64_t *in = net->layers[net->n_layers].in;
    (void)add(net, NITI_RELU, in[0], in[1], in[2]);
}

void niti_pool(niti_net *net)
{
    const int64_t *in = net->layers[net->n_layers].in;
    (void)add(net, NITI_POOL, in[0], in[1] / 2, in[2] / 2);
}

void niti_dense(niti_net *net, int64_t n_out)
{
    const int64_t n_in = count(net->layers[net->n_layers].in);
    add_params(add(net, NITI_DENSE, n_out, 1, 1), n_in * n_out, n_out);
    net->n_classes = n_out;
    free(net->err);
    net->err = numbers(n_out);
}

void niti_free(niti_net *net)
{
    for (int64_t i = 0; i < net->n_layers; i++) {
        niti_layer *layer = &net->layers[i];
        int64_t *all[] = {layer->w,   layer->b,   layer->gw,      layer->gb,
                          layer->act, layer->err, layer->whole_w, layer->whole_b};
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
            free(all[k]);
        }
    }
    free(net->act);
    free(net->err);
}

/* --- rounding --- */

static int64_t limit(int64_t v)
{
    return v > 127 ? 127 : v < -127 ? -127 : v;
}

static int64_t round_shift(int64_t v, int64_t s)
{
    const int64_t size = v < 0 ? -v : v;
    const int64_t down = s > 0 ? (size + (INT64_C(1) << (s - 1))) >> s : size;
    return limit(v < 0 ? -down : down);
}

static int64_t pseudo_shift(int64_t v, int64_t s)
{
    if (s <= 0) {
        return limit(v);
    }
    const int64_t size = v < 0 ? -v : v;
    const int64_t rest = size % (INT64_C(1) << s);
    const int64_t high = rest >> (s / 2);
    const int64_t low = (rest % (INT64_C(1) << (s / 2))) << (s % 2);
    const int64_t down = (size >> s) + (high > low ? 1 : 0);
    return limit(v < 0 ? -down : down);
}

static int64_t bits_of(int64_t largest)
{
    return largest > 0 ? (int64_t)ceil(log2((double)largest)) : 0;
}

static int64_t down_to_7(int64_t largest)
{
    return bits_of(largest) > 7 ? bits_of(largest) - 7 : 0;
}

/* Rounds n sums of exponent e to a scale; a calibration raises it first. */
static void settle(niti_scale *scale, int64_t e, int64_t *v, int64_t n, bool calibrates)
{
    int64_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        largest = llabs(v[i]) > largest ? llabs(v[i]) : largest;
    }
    const int64_t needed = e + down_to_7(largest);
    if (calibrates && (!scale->is_known || needed > scale->e)) {
        scale->e = needed;
        scale->is_known = true;
    }
    scale->sum = e;
    scale->largest = largest > scale->largest ? largest : scale->largest;
    for (int64_t i = 0; i < n; i++) {
        v[i] = round_shift(v[i], scale->e - e);
    }
}

/* --- forward --- */

static int64_t aligned_bias(const niti_layer *layer, int64_t c, int64_t e)
{
    const int64_t up = layer->eb - e;
    const int64_t b = layer->b[c];
    return up >= 0 ? b * (INT64_C(1) << (up > 16 ? 16 : up)) : round_shift(b, -up);
}

static void conv_forward(niti_layer *layer, const int64_t *x, int64_t ex)
{
    const int64_t k = layer->kernel;
    for (int64_t o = 0; o < layer->out[0]; o++) {
        for (int64_t i = 0; i < layer->out[1] * layer->out[2]; i++) {
            int64_t sum = aligned_bias(layer, o, ex + layer->ew);
            for (int64_t t = 0; t < layer->in[0] * k * k; t++) {
                const int64_t row = i / layer->out[2] + t / k % k - layer->padding;
                const int64_t column = i % layer->out[2] + t % k - layer->padding;
                if (row >= 0 && row < layer->in[1] && column >= 0 && column < layer->in[2]) {
                    sum += x[(t / (k * k) * layer->in[1] + row) * layer->in[2] + column] *
                           layer->w[o * layer->in[0] * k * k + t];
                }
            }
            layer->act[o * layer->out[1] * layer->out[2] + i] = sum;
        }
    }
}

static void dense_forward(niti_layer *layer, const int64_t *x, int64_t ex)
{
    const int64_t n_in = count(layer->in);
    for (int64_t o = 0; o < layer->out[0]; o++) {
        layer->act[o] = aligned_bias(layer, o, ex + layer->ew);
        for (int64_t i = 0; i < n_in; i++) {
            layer->act[o] += x[i] * layer->w[o * n_in + i];
        }
    }
}

/* Where the first largest of a window of 2 x 2 lies in the input. */
static int64_t place_of(const niti_layer *layer, const int64_t *x, int64_t element)
{
    const int64_t c = element / (layer->out[1] * layer->out[2]);
    const int64_t row = element / layer->out[2] % layer->out[1] * 2;
    const int64_t column = element % layer->out[2] * 2;
    int64_t best = -1;
    for (int64_t t = 0; t < 4; t++) {
        const int64_t at = (c * layer->in[1] + row + t / 2) * layer->in[2] + column + t % 2;
        best = best < 0 || x[at] > x[best] ? at : best;
    }
    return best;
}

static void forward(niti_net *net, const float *x, bool calibrates)
{
    float largest = 0.0F;
    for (int64_t i = 0; i < net->n_in; i++) {
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    }
    if (calibrates && largest > 0.0F) {
        const int64_t needed = (int64_t)ceil(log2((double)largest)) - 7;
        net->x.e = !net->x.is_known || needed > net->x.e ? needed : net->x.e;
        net->x.is_known = true;
    }
    net->x.sum = net->x.e;
    for (int64_t i = 0; i < net->n_in; i++) {
        const double scaled = ldexp((double)x[i], (int)-net->x.e);
        const int64_t q = (int64_t)floor(fabs(scaled) + 0.5);
        net->x.largest = q > net->x.largest ? q : net->x.largest;
        net->act[i] = limit(scaled < 0.0 ? -q : q);
    }
    const int64_t *in = net->act;
    int64_t e = net->x.e;
    for (int64_t i = 0; i < net->n_layers; i++) {
        niti_layer *layer = &net->layers[i];
        const int64_t n = count(layer->out);
        if (layer->kind == NITI_CONV || layer->kind == NITI_DENSE) {
            (layer->kind == NITI_CONV ? conv_forward : dense_forward)(layer, in, e);
            settle(&layer->y, e + layer->ew, layer->act, n, calibrates);
            e = layer->y.e;
        }
        for (int64_t k = 0; k < n && layer->kind == NITI_RELU; k++) {
            layer->act[k] = in[k] > 0 ? in[k] : 0;
        }
        for (int64_t k = 0; k < n && layer->kind == NITI_POOL; k++) {
            layer->act[k] = in[place_of(layer, in, k)];
        }
        layer->y.e = e;
        in = layer->act;
    }
}

/* --- the error of the logits --- */

static void loss_error(niti_net *net, int32_t label)
{
    const niti_layer *last = &net->layers[net->n_layers - 1];
    const int64_t n = net->n_classes;
    const int64_t e = last->y.e;
    int64_t t[64];
    int64_t top = INT64_MIN;
    int64_t sum = 0;
    for (int64_t i = 0; i < n && e > -7; i++) {
        t[i] = last->act[i] * 47274 / 32768;
        t[i] = e >= 0 ? t[i] * (INT64_C(1) << e) : t[i] / (INT64_C(1) << -e);
        top = t[i] > top ? t[i] : top;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t low = e < -14 ? -14 : e;
        if (e > -7) {
            t[i] = t[i] - top + 10 > 0 ? (INT64_C(1) << (t[i] - top + 10)) - 1 : 0;
        } else {
            t[i] = (INT64_C(1) << (1 - 2 * low)) + last->act[i] * (INT64_C(1) << (1 - low)) +
                   last->act[i] * last->act[i];
        }
        sum += t[i];
    }
    int64_t given = 0;
    for (int64_t i = 0; i < n; i++) {
        net->err[i] = t[i] * 2048 / sum;
        given += net->err[i];
    }
    net->err[label] -= given;
    for (int64_t i = 0; i < n; i++) {
        net->err[i] = pseudo_shift(net->err[i], 4);
    }
}

/* --- backward --- */

static void conv_backward(niti_layer *layer, const int64_t *x, const int64_t *dy)
{
    const int64_t k = layer->kernel;
    for (int64_t o = 0; o < layer->out[0]; o++) {
        for (int64_t i = 0; i < layer->out[1] * layer->out[2]; i++) {
            const int64_t d = dy[o * layer->out[1] * layer->out[2] + i];
            layer->gb[o] += d;
            for (int64_t t = 0; t < layer->in[0] * k * k; t++) {
                const int64_t row = i / layer->out[2] + t / k % k - layer->padding;
                const int64_t column = i % layer->out[2] + t % k - layer->padding;
                if (row >= 0 && row < layer->in[1] && column >= 0 && column < layer->in[2]) {
                    const int64_t at = (t / (k * k) * layer->in[1] + row) * layer->in[2] + column;
                    layer->gw[o * layer->in[0] * k * k + t] += d * x[at];
                    layer->err[at] += d * layer->w[o * layer->in[0] * k * k + t];
                }
            }
        }
    }
}

static void dense_backward(niti_layer *layer, const int64_t *x, const int64_t *dy)
{
    const int64_t n_in = count(layer->in);
    for (int64_t o = 0; o < layer->out[0]; o++) {
        layer->gb[o] += dy[o];
        for (int64_t i = 0; i < n_in; i++) {
            layer->gw[o * n_in + i] += dy[o] * x[i];
            layer->err[i] += dy[o] * layer->w[o * n_in + i];
        }
    }
}

static void backward(niti_net *net, bool calibrates)
{
    const int64_t *dy = net->err;
    int64_t e = 0;
    for (int64_t i = net->n_layers - 1; i >= 0; i--) {
        niti_layer *layer = &net->layers[i];
        const int64_t *x = i > 0 ? net->layers[i - 1].act : net->act;
        const int64_t n = count(layer->in);
        memset(layer->err, 0, (size_t)n * sizeof *layer->err);
        if (layer->kind == NITI_CONV) {
            conv_backward(layer, x, dy);
        } else if (layer->kind == NITI_DENSE) {
            dense_backward(layer, x, dy);
        }
        for (int64_t k = 0; k < count(layer->out) && layer->kind == NITI_POOL; k++) {
            layer->err[place_of(layer, x, k)] += dy[k];
        }
        for (int64_t k = 0; k < n && layer->kind == NITI_RELU; k++) {
            layer->err[k] = layer->act[k] > 0 ? dy[k] : 0;
        }
        if (i == 0) {
            return; /* nobody asks for the error of the input */
        }
        if (layer->kind == NITI_CONV || layer->kind == NITI_DENSE) {
            settle(&layer->dx, e + layer->ew, layer->err, n, calibrates);
            e = layer->dx.e;
        }
        dy = layer->err;
    }
}

/* --- the step --- */

static void update(int64_t *w, int64_t *g, int64_t n, int64_t bits)
{
    int64_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        largest = llabs(g[i]) > largest ? llabs(g[i]) : largest;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t step = bits_of(largest) > 0 ? pseudo_shift(g[i], bits_of(largest) - bits) : 0;
        w[i] = limit(w[i] - step);
        g[i] = 0;
    }
}

/* By the batch that was. */
static void move(niti_scale *scale)
{
    const int64_t needed = scale->sum + down_to_7(scale->largest);
    if (needed > scale->e) {
        scale->e = needed;
    } else if (scale->largest > 0 && scale->largest < INT64_C(48) << (scale->e - scale->sum)) {
        scale->e--;
    }
}

static void raise_to(niti_scale *scale, int64_t e)
{
    scale->e = scale->e > e ? scale->e : e;
}

static void adapt(niti_net *net)
{
    move(&net->x);
    for (int64_t i = 0; i < net->n_layers; i++) {
        niti_layer *layer = &net->layers[i];
        if (layer->y.is_counted) {
            move(&layer->y);
        }
        if (layer->dx.is_counted && i > 0) {
            move(&layer->dx);
        }
    }
    int64_t e = net->x.e;
    for (int64_t i = 0; i < net->n_layers; i++) {
        niti_layer *layer = &net->layers[i];
        if (layer->y.is_counted) {
            raise_to(&layer->y, e + layer->ew);
            e = layer->y.e;
        }
    }
    e = 0;
    for (int64_t i = net->n_layers - 1; i > 0; i--) {
        niti_layer *layer = &net->layers[i];
        if (layer->dx.is_counted) {
            raise_to(&layer->dx, e + layer->ew);
            e = layer->dx.e;
        }
    }
}

static void clear(niti_net *net)
{
    net->x.largest = 0;
    for (int64_t i = 0; i < net->n_layers; i++) {
        niti_layer *layer = &net->layers[i];
        layer->y.largest = 0;
        layer->dx.largest = 0;
        if (layer->w != NULL) {
            memset(layer->gw, 0, (size_t)layer->n_w * sizeof *layer->gw);
            memset(layer->gb, 0, (size_t)layer->n_b * sizeof *layer->gb);
        }
    }
}

static void pass(niti_net *net, const float *x, const int32_t *labels, int64_t n, bool calibrates)
{
    for (int64_t i = 0; i < n; i++) {
        forward(net, x + i * net->n_in, calibrates);
        loss_error(net, labels[i]);
        backward(net, calibrates);
    }
}

void niti_step(niti_net *net, const float *x, const int32_t *labels, int64_t n, int64_t bits)
{
    if (!net->is_calibrated) {
        pass(net, x, labels, n < 32 ? n : 32, true);
        net->is_calibrated = true;
    }
    clear(net);
    pass(net, x, labels, n, false);
    for (int64_t i = 0; i < net->n_layers; i++) {
        niti_layer *layer = &net->layers[i];
        const int64_t bits_w = bits - layer->grown_w; /* of a unit that is larger now */
        const int64_t bits_b = bits - layer->grown_b;
        if (layer->w != NULL && net->has_16_bits) {
            niti_update_whole(layer->whole_w, layer->w, layer->gw, layer->n_w, bits_w);
            niti_update_whole(layer->whole_b, layer->b, layer->gb, layer->n_b, bits_b);
        } else if (layer->w != NULL) {
            update(layer->w, layer->gw, layer->n_w, bits_w);
            update(layer->b, layer->gb, layer->n_b, bits_b);
        }
        if (layer->w != NULL) {
            niti_grow(net, layer);
        }
    }
    adapt(net);
}
