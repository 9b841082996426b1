/*
 * product_model.h - a step whose products are in integers, in plain C: a chain of convolutions and
 * dense layers, each perhaps with a ReLU, under a squared error. It knows nothing of the trainer:
 * values lie channel by channel, weights and order are ONNX's.
 */
#ifndef DUNLIN_TESTS_PRODUCT_MODEL_H
#define DUNLIN_TESTS_PRODUCT_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define PRODUCT_MAX_LAYERS 8
#define PRODUCT_SEED 7 /* the trainer's */

/* How an operand follows its range. */
typedef struct product_rule {
    bool is_by_channel, is_power, is_group, is_nearest, is_fixed, is_distribution, may_widen;
    float kept;
} product_rule;

typedef struct product_rules {
    product_rule weights, values, errors;
    bool keeps_proportions;     /* of gradients of weights */
    int update_bits;            /* 0: float32 */
    product_rule weight_errors; /* by channel; else `errors` are for the gradients too */
} product_rules;

typedef struct product_range {
    float range, spread;
    bool is_wide;
} product_range;

typedef struct product_layer {
    int64_t in_c, in_h, in_w, out_c, out_h, out_w;
    int64_t kernel, stride, padding, groups;
    bool has_relu;
    float *weights, *bias; /* ONNX's order: [out][in / groups][kh][kw] */
    float *weight_grad, *bias_grad;
    product_range values, errors;
    product_range *channels; /* out_c */
} product_layer;

typedef struct product_net {
    product_rules rules;
    product_layer layers[PRODUCT_MAX_LAYERS];
    int n_layers;
    uint64_t seed, step;
    int64_t c, h, w; /* of the end */
    int64_t n_in, n_out;
} product_net;

void product_begin(product_net *net, const product_rules *rules, int64_t c, int64_t h, int64_t w);
void product_conv(product_net *net, int64_t out_c, int64_t kernel, int64_t stride, int64_t padding,
                  int64_t groups, bool has_relu);
void product_dense(product_net *net, int64_t out, bool has_relu);
void product_free(product_net *net);

/* Weights and biases of all layers, as the trainer hands them out. */
void product_import(product_net *net, const float *weights);
void product_export(const product_net *net, float *weights);

/* Ranges from the first n examples, each by itself. */
void product_calibrate(product_net *net, const float *x, const float *targets, int64_t n,
                       int64_t n_batch);
/* A step of plain SGD with this rate, which is a power of two; the ranges of the next one. */
void product_step(product_net *net, const float *x, const float *targets, int64_t n, float rate);

#endif
