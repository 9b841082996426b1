/*
 * niti_whole.c - the model's weights from floats and back, those that are kept in 16 bits and
 * multiplied in 8, and their growth.
 */
#include "niti_model.h"

#include <math.h>
#include <stdlib.h>

static int64_t limit(int64_t v)
{
    return v > 127 ? 127 : v < -127 ? -127 : v;
}

static int64_t bits_of(int64_t largest)
{
    return largest > 0 ? (int64_t)ceil(log2((double)largest)) : 0;
}

/* What is multiplied: the nearest multiple of 256, halves upwards. */
static int64_t upper_of(int64_t whole)
{
    return (int64_t)floor(((double)whole + 128.0) / 256.0);
}

static int64_t limit_whole(int64_t v)
{
    return v > 32639 ? 32639 : v < -32639 ? -32639 : v;
}

void niti_update_whole(int64_t *whole, int64_t *w, int64_t *g, int64_t n, int64_t bits)
{
    int64_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        largest = llabs(g[i]) > largest ? llabs(g[i]) : largest;
    }
    const int64_t down = bits_of(largest) > bits ? bits_of(largest) - bits : 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t size = llabs(g[i]);
        int64_t step = size;
        for (int64_t k = down; k < 8; k++) {
            step = step * 2;
        }
        if (down > 8) {
            const int64_t s = down - 8;
            const int64_t rest = size % (INT64_C(1) << s);
            const int64_t low = (rest % (INT64_C(1) << (s / 2))) << (s % 2);
            step = (size >> s) + (rest >> (s / 2) > low ? 1 : 0);
        }
        step = limit_whole(step);
        whole[i] = limit_whole(whole[i] - (g[i] < 0 ? -step : step));
        w[i] = upper_of(whole[i]);
        g[i] = 0;
    }
}

void niti_import_whole(const float *values, int64_t e, int64_t *whole, int64_t *q, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double scaled = ldexp((double)values[i], (int)(8 - e));
        const int64_t size = (int64_t)floor(fabs(scaled) + 0.5);
        whole[i] = limit_whole(scaled < 0.0 ? -size : size);
        q[i] = upper_of(whole[i]);
    }
}

/* --- growth --- */

/* v / 2 to the nearest, to the even one of two. */
static int64_t half_of(int64_t v)
{
    return (int64_t)nearbyint((double)v / 2.0);
}

/* Whether more than one of `growth` weights is as large as there are. */
static bool is_full(const int64_t *w, int64_t n, int64_t most, int64_t growth)
{
    int64_t n_ends = 0;
    for (int64_t i = 0; i < n; i++) {
        n_ends += llabs(w[i]) == most ? 1 : 0;
    }
    return growth > 0 && n_ends * growth > n;
}

static void grow(const niti_net *net, int64_t *w, int64_t *whole, int64_t n, int64_t *e,
                 int64_t *n_grown)
{
    const bool has_16_bits = net->has_16_bits;
    if (!is_full(has_16_bits ? whole : w, n, has_16_bits ? 32639 : 127, net->growth)) {
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        whole[i] = half_of(whole[i]);
        w[i] = has_16_bits ? upper_of(whole[i]) : half_of(w[i]);
    }
    *e += 1;
    *n_grown += 1;
}

void niti_grow(const niti_net *net, niti_layer *layer)
{
    grow(net, layer->w, layer->whole_w, layer->n_w, &layer->ew, &layer->grown_w);
    grow(net, layer->b, layer->whole_b, layer->n_b, &layer->eb, &layer->grown_b);
}

int64_t niti_n_grown(const niti_net *net)
{
    int64_t n = 0;
    for (int64_t i = 0; i < net->n_layers; i++) {
        n += net->layers[i].grown_w + net->layers[i].grown_b;
    }
    return n;
}

/* --- floats --- */

static int64_t import(const float *values, int64_t *q, int64_t n)
{
    float largest = 0.0F;
    for (int64_t i = 0; i < n; i++) {
        largest = fabsf(values[i]) > largest ? fabsf(values[i]) : largest;
    }
    const int64_t e = largest > 0.0F ? (int64_t)ceil(log2((double)largest)) - 7 : -10;
    for (int64_t i = 0; i < n; i++) {
        const double scaled = ldexp((double)values[i], (int)-e);
        const int64_t size = (int64_t)floor(fabs(scaled) + 0.5);
        q[i] = limit(scaled < 0.0 ? -size : size);
    }
    return e;
}

void niti_import(niti_net *net, const float *values)
{
    for (int64_t i = 0; i < net->n_layers; i++) {
        niti_layer *layer = &net->layers[i];
        if (layer->w != NULL) {
            layer->ew = import(values, layer->w, layer->n_w);
            if (net->has_16_bits) {
                niti_import_whole(values, layer->ew, layer->whole_w, layer->w, layer->n_w);
            }
            values += layer->n_w;
            layer->eb = import(values, layer->b, layer->n_b);
            if (net->has_16_bits) {
                niti_import_whole(values, layer->eb, layer->whole_b, layer->b, layer->n_b);
            }
            values += layer->n_b;
        }
    }
}

void niti_export(const niti_net *net, float *out)
{
    for (int64_t i = 0; i < net->n_layers; i++) {
        const niti_layer *layer = &net->layers[i];
        for (int64_t k = 0; k < layer->n_w; k++) {
            *out++ = net->has_16_bits ? ldexpf((float)layer->whole_w[k], (int)layer->ew - 8)
                                      : ldexpf((float)layer->w[k], (int)layer->ew);
        }
        for (int64_t k = 0; k < layer->n_b; k++) {
            *out++ = net->has_16_bits ? ldexpf((float)layer->whole_b[k], (int)layer->eb - 8)
                                      : ldexpf((float)layer->b[k], (int)layer->eb);
        }
    }
}
