/*
 * maps.h - what operators without weights share: emitting a plain map, walks over broadcast
 * operands, checks of plain values.
 */
#ifndef DUNLIN_OPS_MAPS_H
#define DUNLIN_OPS_MAPS_H

#include "support.h"

/* An op whose accesses are given and whose flops are per sample; `params` are copied. */
void dunlin__op_emit_map(dunlin_emit *emit, const dunlin_step_kernel *kernel, const char *suffix,
                         const void *params, size_t params_bytes, const dunlin_mem_access *accesses,
                         uint32_t n_accesses, double flops);

/* The input's shape and layout are the output's too. */
void dunlin__op_keep_shape(dunlin_net *net, const dunlin_net_node *node);

/* MODEL unless input `index` is no image (whose elements lie in another order than its shape says)
 * and has at least `n_dims` dimensions. */
DUNLIN_NODISCARD dunlin_status dunlin__op_want_plain(const dunlin_net *net,
                                                     const dunlin_net_node *node, uint32_t index,
                                                     int32_t n_dims, dunlin_error *error);

/* Does a parameter that may be trained lead to the value, or more than 256 nodes? */
bool dunlin__op_has_param_before(const dunlin_net *net, uint32_t value);

/* A value's shape in the order that it lies in, and where dimension `axis` is in that. */
dunlin_shape dunlin__op_stored(const dunlin_net_value *value);
int32_t dunlin__op_stored_axis(const dunlin_net_value *value, int32_t axis);

/* Where a walk reads or writes. */
typedef struct dunlin_op_place {
    uint32_t tensor;
    const dunlin_shape *shape; /* broadcast against the walk's, right-aligned */
    bool is_fixed;             /* the same for all samples */
    bool is_image;             /* (C, H, W), stored H, W, C */
} dunlin_op_place;

/* A value of the network as a place, in this tensor. */
dunlin_op_place dunlin__op_place_of(const dunlin_emit *emit, uint32_t value, uint32_t tensor);
/* A parameter, or its gradient, that lies as the file has it. */
dunlin_op_place dunlin__op_param_place(const dunlin_emit *emit, uint32_t param, uint32_t tensor);

/* A walk over the elements of `shape`: nothing read or written yet, factor 1. */
dunlin_walk dunlin__walk_over(const dunlin_shape *shape, dunlin_walk_fn fn);
/* Strides of an operand of `shape`, repeated where the walk's dimension is wider. */
void dunlin__walk_operand(const dunlin_walk *walk, const dunlin_shape *shape, bool is_fixed,
                          dunlin_walk_operand *out_operand);

/* Two dimensions that every operand goes through as through one become one. */
void dunlin__walk_merge(dunlin_walk *walk);

/* Emits a walk from up to three places to one; sums where the output is repeated. Where one of them
 * is an image the walk goes through pixels, and through the channels of each. Its dimensions are
 * merged first. A fixed output is accumulated (a reducer). */
void dunlin__op_emit_walk(dunlin_emit *emit, const char *suffix, dunlin_walk *walk,
                          const dunlin_op_place *in, uint32_t n_in, const dunlin_op_place *out);
/* The same with strides already set; `tensors`: what is read, then what is written. */
void dunlin__op_emit_strided(dunlin_emit *emit, const char *suffix, dunlin_walk *walk,
                             const uint32_t *tensors, uint32_t n_in);

#endif
