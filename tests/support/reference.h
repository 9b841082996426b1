/*
 * reference.h - what the kernels should compute, as plain loops in double over the same layouts
 * (images NHWC, weights [kh][kw][in_c / groups][out_c]).
 *
 * Where an output is a sum of products, `size` (may be NULL) gets the sum of their magnitudes: the
 * error of any float evaluation is a small multiple of eps * size.
 */
#ifndef DUNLIN_TESTS_REFERENCE_H
#define DUNLIN_TESTS_REFERENCE_H

#include "kernels/api/kernels.h"

int64_t reference_conv_x_count(const dunlin_conv_shape *shape); /* per sample */
int64_t reference_conv_y_count(const dunlin_conv_shape *shape); /* per sample */
int64_t reference_conv_w_count(const dunlin_conv_shape *shape);

/* bias may be NULL */
void reference_conv_forward(const dunlin_conv_shape *shape, int64_t n, const double *x,
                            const double *w, const double *bias, double *y, double *size);
void reference_conv_input_grad(const dunlin_conv_shape *shape, int64_t n, const double *w,
                               const double *dy, double *dx, double *size);
void reference_conv_weight_grad(const dunlin_conv_shape *shape, int64_t n, const double *x,
                                const double *dy, double *dw, double *size);
void reference_bias_grad(const dunlin_conv_shape *shape, int64_t n, const double *dy, double *db,
                         double *size);

/* index: place of the winner in its window, 255 for a window without a pixel; may be NULL */
void reference_max_pool(const dunlin_pool_shape *shape, int64_t n, const double *x, double *y,
                        uint8_t *index);
void reference_max_pool_grad(const dunlin_pool_shape *shape, int64_t n, const double *dy,
                             const uint8_t *index, double *dx);
void reference_average_pool(const dunlin_pool_shape *shape, int64_t n, const double *x, double *y);
void reference_average_pool_grad(const dunlin_pool_shape *shape, int64_t n, const double *dy,
                                 double *dx);

/* Mean over rows and the deviation's inverse (of variance + epsilon). */
void reference_norm_statistics(int64_t n_rows, int32_t channels, const double *x, double epsilon,
                               double *mean, double *inv_std);
/* y = (x - mean(x)) * inv_std(x) * gamma + beta, statistics of x itself */
void reference_norm(int64_t n_rows, int32_t channels, const double *x, const double *gamma,
                    const double *beta, double epsilon, double *y);

/* Loss of one row of scores; dlogits (may be NULL) gets softmax - onehot. */
double reference_softmax_loss(int32_t classes, const double *logits, int32_t label,
                              double *dlogits);

#endif
