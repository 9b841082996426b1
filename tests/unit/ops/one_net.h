/*
 * one_net.h - the one network that a test of operators builds, measures and gives up: common steps
 * of the suites that go through operator by operator.
 *
 * Calls return the value they made; a failure is an assertion of the test.
 */
#ifndef DUNLIN_TESTS_ONE_NET_H
#define DUNLIN_TESTS_ONE_NET_H

#include "net/net.h"

extern dunlin_net net;

/* A suite's .init and .fini; a test that goes on with another network reopens it. */
void open_net(void);
void close_net(void);
void reopen(void);

/* Infers the last node and returns its output. */
uint32_t finish(void);
/* The last node must be refused, with its name and `part` in the text. */
void expect_refusal(const char *part);

/* Values of this shape, (c, h, w) an image, that need a gradient. */
uint32_t begin_values(const dunlin_shape *shape);
uint32_t begin_image(int64_t c, int64_t h, int64_t w);

uint32_t apply(uint32_t x, dunlin_unary_fn fn, float a, float b);
uint32_t join(uint32_t a, uint32_t b, dunlin_binary_fn fn);
uint32_t join_param(uint32_t x, const dunlin_shape *shape, dunlin_binary_fn fn, bool is_left);
uint32_t reshape(uint32_t x, const dunlin_shape *shape);
uint32_t slice(uint32_t x, int32_t axis, int64_t start, int64_t stop);
uint32_t mean(uint32_t x, uint32_t axes, bool keeps_dims);

/* Ends the network with a dense layer of three classes over all of x. */
void end(uint32_t x);
/* Holds it to the double-precision reference, and its bits over slices. */
void check(uint64_t seed);

#endif
