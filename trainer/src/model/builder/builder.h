/*
 * builder.h - what the ready-made networks need of the builder beyond its public calls.
 */
#ifndef DUNLIN_MODEL_BUILDER_H
#define DUNLIN_MODEL_BUILDER_H

#include "net/net.h"

/* The network so far, to adjust first values; NULL when the builder has failed. */
dunlin_net *dunlin__builder_net(dunlin_builder *builder);

/* The builder fails with UNSUPPORTED and this text, unless it has failed before; returns -1. */
dunlin_value dunlin__builder_fail(dunlin_builder *builder, const char *format, ...)
    DUNLIN_PRINTF(2, 3);

/* A convolution with all its options, as dunlin_builder_conv() makes square ones; of a signal what
 * is said of width counts. */
dunlin_value dunlin__builder_conv(dunlin_builder *builder, const char *name, dunlin_value input,
                                  const dunlin_net_conv *conv, bool has_bias);

/* A pooling layer with all its options: MAX_POOL, of as many pixels as there may be, AVERAGE_POOL
 * or LP_POOL. */
dunlin_value dunlin__builder_pool(dunlin_builder *builder, dunlin_op_kind kind, dunlin_value input,
                                  const dunlin_net_pool *pool);

/* A node over earlier values, named or (NULL) after its kind; then its parameters "layer.suffix"
 * ("" for none), then its inference. NULL or negative when the builder has failed. */
dunlin_net_node *dunlin__builder_begin(dunlin_builder *builder, dunlin_op_kind kind,
                                       const char *name, const char *kind_name,
                                       const dunlin_value *inputs, int32_t n_inputs);
dunlin_net_param *dunlin__builder_param(dunlin_builder *builder, uint32_t index, const char *layer,
                                        const char *suffix, const dunlin_shape *shape);
dunlin_value dunlin__builder_end(dunlin_builder *builder);
/* Fails the builder with ARGUMENT; returns -1. */
dunlin_value dunlin__builder_refuse(dunlin_builder *builder, const char *text);

/* A model that takes over `net` (left empty on success). The net is inferred. */
DUNLIN_NODISCARD dunlin_status dunlin__model_from_net(dunlin_net *net, dunlin_model **out_model,
                                                      dunlin_error *error);

#endif
