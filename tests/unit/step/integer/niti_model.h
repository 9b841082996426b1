/*
 * niti_model.h - NITI over a chain of layers in plain C, written from the papers' formulas alone:
 * no kernel, no slice, no plan. Tensors are in ONNX's order, all numbers 64 bits wide.
 */
#ifndef DUNLIN_TESTS_NITI_MODEL_H
#define DUNLIN_TESTS_NITI_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define NITI_MAX_LAYERS 10

typedef enum niti_kind { NITI_CONV = 0, NITI_RELU, NITI_POOL, NITI_DENSE } niti_kind;

/* A scale, and what the batch counts at it. */
typedef struct niti_scale {
    bool is_counted; /* it moves by what is counted; else it follows another */
    bool is_known;
    int64_t e, largest;
    int64_t sum; /* exponent of the sums in this batch */
} niti_scale;

typedef struct niti_layer {
    niti_kind kind;
    int64_t in[3], out[3]; /* C, H, W */
    int64_t kernel, padding;
    int64_t *w, *b, *gw, *gb;   /* NULL: none */
    int64_t *whole_w, *whole_b; /* 256 times as fine, where they are kept in 16 bits */
    int64_t n_w, n_b, ew, eb;
    int64_t grown_w,
        grown_b; /* how often the range was doubled since the weights came from outside */
    niti_scale y, dx;
    int64_t *act, *err; /* of one sample: the output, and the error of the input */
} niti_layer;

typedef struct niti_net {
    niti_layer layers[NITI_MAX_LAYERS];
    int64_t n_layers, n_in, n_classes;
    niti_scale x;
    int64_t *act, *err; /* the input, the error of the logits */
    bool is_calibrated;
    bool has_16_bits; /* weights are kept in 16 bits, and multiplied in 8 */
    int64_t growth;   /* a range is doubled when more than one weight in so many is at its ends; 0:
                         never */
} niti_net;

/* Layers one after the other; sizes follow. */
void niti_begin(niti_net *net, int64_t channels, int64_t height, int64_t width);
void niti_conv(niti_net *net, int64_t channels, int64_t kernel, int64_t padding);
void niti_relu(niti_net *net);
void niti_pool(niti_net *net);
void niti_dense(niti_net *net, int64_t n_out);
void niti_free(niti_net *net);

/* All parameters from one row of floats, in order. */
void niti_import(niti_net *net, const float *values);
/* The same back. */
void niti_export(const niti_net *net, float *out);
/* One step on n samples of n_in floats. */
void niti_step(niti_net *net, const float *x, const int32_t *labels, int64_t n, int64_t bits);

/* How often a range was doubled, of all parameters. */
int64_t niti_n_grown(const niti_net *net);

/* --- niti_whole.c: n weights in 16 bits, `whole`, with what is multiplied of them, `q` --- */

/* From floats, under the exponent of q. */
void niti_import_whole(const float *values, int64_t e, int64_t *whole, int64_t *q, int64_t n);
/* The largest update has `bits` bits of what is multiplied, and eight below them; g is zeroed. */
void niti_update_whole(int64_t *whole, int64_t *q, int64_t *g, int64_t n, int64_t bits);
/* After an update, the ranges of a layer's weights and biases. */
void niti_grow(const niti_net *net, niti_layer *layer);

#endif
