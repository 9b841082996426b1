/*
 * net_make.h - small networks for tests, put together by hand: every attribute can be set, which
 * the public builder does not offer.
 *
 * Calls return the value they made; a failure is an assertion of the test.
 */
#ifndef DUNLIN_TESTS_NET_MAKE_H
#define DUNLIN_TESTS_NET_MAKE_H

#include "net/net.h"

/* Shape of an input: h = w = 0 for a row of c features. */
uint32_t make_input(dunlin_net *net, int64_t c, int64_t h, int64_t w);
/* (C, L), stored as an image of one row. */
uint32_t make_signal(dunlin_net *net, int64_t c, int64_t length);
/* `conv` without out_channels: kernel sizes and strides of 0 mean 1, dilations and groups too. */
uint32_t make_conv(dunlin_net *net, uint32_t x, int32_t out_channels, const dunlin_net_conv *conv,
                   bool has_bias);
/* The same transposed, with extra_h and extra_w. */
uint32_t make_conv_transposed(dunlin_net *net, uint32_t x, int32_t out_channels,
                              const dunlin_net_conv *conv, bool has_bias);
uint32_t make_resize(dunlin_net *net, uint32_t x, const dunlin_net_resize *how);
uint32_t make_dense(dunlin_net *net, uint32_t x, int64_t n_out, bool has_bias);
uint32_t make_batch_norm(dunlin_net *net, uint32_t x);
uint32_t make_group_norm(dunlin_net *net, uint32_t x, int32_t groups);
uint32_t make_clip(dunlin_net *net, uint32_t x, float low, float high);
uint32_t make_function(dunlin_net *net, uint32_t x, dunlin_unary_fn fn); /* without constants */
uint32_t make_pool(dunlin_net *net, uint32_t x, dunlin_op_kind kind, const dunlin_net_pool *pool);
uint32_t make_global_pool(dunlin_net *net, uint32_t x);
uint32_t make_add(dunlin_net *net, uint32_t a, uint32_t b);
uint32_t make_concat(dunlin_net *net, const uint32_t *inputs, uint32_t n_inputs);
uint32_t make_flatten(dunlin_net *net, uint32_t x);
uint32_t make_dropout(dunlin_net *net, uint32_t x, float ratio);
/* Ends the network and infers it as a whole. */
void make_end(dunlin_net *net, uint32_t output);

/* The raw pieces, for networks that must fail: no inference. */
uint32_t make_param(dunlin_net *net, const dunlin_shape *shape, dunlin_param_layout layout,
                    dunlin_parameter_role role);
dunlin_net_node *make_node(dunlin_net *net, dunlin_op_kind kind, const uint32_t *inputs,
                           uint32_t n_inputs);

#endif
