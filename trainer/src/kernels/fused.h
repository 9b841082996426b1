/*
 * fused.h - the two engines behind fused convolution calls: maps (forward, input gradient), and the
 * reducer of weights and biases.
 */
#ifndef DUNLIN_KERNELS_FUSED_H
#define DUNLIN_KERNELS_FUSED_H

#include "strip.h"

/* A map over all pixels of a view, or of several that share out the same output pixels. */
typedef struct map_pass {
    const dunlin_conv_shape *shape;
    int64_t n_samples;
    strip_source source;
    const float *w;
    bool is_turned; /* input gradient: the weights stand the other way */
    const float *bias;
    float *out;
    int64_t out_pitch;
    bool is_clipped;
    float low, high;
    const dunlin_stat *stat; /* forward: sums of what is written; NULL: none */
    const dunlin_sink *sink; /* input gradient; NULL: it lies as it is made */
    double *partials;        /* [sample][unit][stat][2][channels] */
    int64_t units;           /* of a sample */
    float *workspace;
    pthreadpool_t threads;
} map_pass;

/* Units of all views of a pass, and the bytes of its panels. */
int64_t K(map_units)(const dunlin_conv_shape *shape, bool is_input_grad);
size_t K(map_bytes)(const dunlin_conv_shape *shape, bool is_input_grad, uint32_t uses,
                    size_t n_threads);
void K(map_run)(const map_pass *pass, bool is_input_grad);

size_t K(reduce_bytes)(const dunlin_conv_shape *shape, size_t n_threads);
void K(reduce_run)(const dunlin_fused_call *call, float *workspace);

#endif
