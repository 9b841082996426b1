/*
 * weights.h - parameters in and out.
 */
#ifndef DUNLIN_STEP_WEIGHTS_H
#define DUNLIN_STEP_WEIGHTS_H

#include "step/context/context.h"

/* The first values of all parameters, straight into the arena. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_init_weights(dunlin_trainer *trainer,
                                                            dunlin_error *error);
/* What is known of the rows of tables' optimiser state holds no longer: it comes from elsewhere. */
void dunlin__trainer_forget_rows(const dunlin_trainer *trainer);
/* A persistent tensor's floats in the arena. */
float *dunlin__trainer_floats(const dunlin_trainer *trainer, uint32_t tensor);
/*
 * Elements [first, first + n) in ONNX's order, from and to the inner layout. `floats` is the
 * parameter's tensor or one of the optimiser's tensors that lie like it.
 */
void dunlin__layout_load(const dunlin_net_param *param, const float *floats, int64_t first,
                         int64_t n, float *out);
void dunlin__layout_store(const dunlin_net_param *param, float *floats, int64_t first, int64_t n,
                          const float *values);

#endif
