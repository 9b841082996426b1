/*
 * check_net.h - runs one training step of a small network and measures everything it did against
 * the double-precision reference.
 */
#ifndef DUNLIN_TESTS_CHECK_NET_H
#define DUNLIN_TESTS_CHECK_NET_H

#include "net_double.h"
#include "step/plain_run.h"

typedef struct check_options {
    int64_t n;        /* samples */
    uint64_t seed;    /* of parameters, inputs and labels */
    int64_t n_probes; /* elements tried of each tensor; 0: all */
    const char *frozen_prefixes;
    bool freeze_batch_norm;
    bool has_one_isa; /* one instruction set, chosen by the seed, instead of all */
} check_options;

/*
 * Asserts, fused for every instruction set of this machine, not fused for the best one: the loss;
 * every value; the gradient of every trained parameter and of every value with one consumer against
 * central differences; that frozen parameters have no gradient and keep their bits; the running
 * statistics after the step.
 *
 * False, and nothing measured, if a batch norm divides by a deviation below 1/15 in this problem:
 * float32 then says little.
 */
bool check_net(const dunlin_net *net, const check_options *options);

/*
 * Asserts, for every instruction set, that the step of the same numbers, whole, in slices and with
 * recomputed maps, leaves the same bits in every parameter.
 */
void check_same_bits(const dunlin_net *net, uint64_t seed);

/* A problem for a network: parameters, inputs, labels. */
typedef struct check_data {
    const dunlin_net *net;
    int64_t n;
    float **params;   /* by parameter, ONNX's order */
    float *x;         /* n x elements, in the order of the input's shape */
    int64_t n_labels; /* of an example */
    int32_t *labels;
    dunlin_source source;
} check_data;

/* The data must not move while its source is used. */
void check_data_open(check_data *data, const dunlin_net *net, int64_t n, uint64_t seed);
void check_data_close(check_data *data);
/* A step over all of the data: learning rate 0.1, momentum 0.9, decay 0.01. */
dunlin_step_run check_data_run(const check_data *data, const dunlin_kernels *kernels);
/* Sets the parameters and runs that step. */
void check_data_step(const check_data *data, plain_run *plain, const dunlin_kernels *kernels,
                     double *out_loss);

#endif
