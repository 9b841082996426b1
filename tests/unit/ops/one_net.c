/*
 * one_net.c - see one_net.h.
 */
#include "one_net.h"

#include "check_net.h"
#include "ops/table/infer.h"
#include "random.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

#include <string.h>

dunlin_net net;

void open_net(void)
{
    dunlin__net_init(&net, NULL);
}

void close_net(void)
{
    dunlin__net_free(&net);
}

void reopen(void)
{
    close_net();
    open_net();
}

uint32_t finish(void)
{
    dunlin_error error = {0};
    const uint32_t index = (uint32_t)net.n_nodes - 1;
    const dunlin_status status = dunlin__net_infer_node(&net, index, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    return net.nodes[index].output;
}

void expect_refusal(const char *part)
{
    dunlin_error error = {0};
    const uint32_t index = (uint32_t)net.n_nodes - 1;
    cr_assert_eq(dunlin__net_infer_node(&net, index, &error), DUNLIN_MODEL, "wanted: %s", part);
    cr_assert_not_null(strstr(error.text, net.nodes[index].name), "%s", error.text);
    cr_assert_not_null(strstr(error.text, part), "%s", error.text);
}

uint32_t begin_values(const dunlin_shape *shape)
{
    int64_t n = 0;
    cr_assert_eq(dunlin_shape_count(shape, &n), DUNLIN_OK);
    return reshape(make_dense(&net, make_input(&net, 3, 0, 0), n, true), shape);
}

uint32_t begin_image(int64_t c, int64_t h, int64_t w)
{
    const uint32_t x = make_input(&net, 2, h, w);
    return make_conv(&net, x, (int32_t)c, &(dunlin_net_conv){.groups = 1}, true);
}

uint32_t apply(uint32_t x, dunlin_unary_fn fn, float a, float b)
{
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_UNARY, &x, 1);
    node->u.unary.fn = fn;
    node->u.unary.a = a;
    node->u.unary.b = b;
    return finish();
}

uint32_t join(uint32_t a, uint32_t b, dunlin_binary_fn fn)
{
    make_node(&net, DUNLIN_OP_BINARY, (uint32_t[]){a, b}, 2)->u.binary.fn = fn;
    return finish();
}

uint32_t join_param(uint32_t x, const dunlin_shape *shape, dunlin_binary_fn fn, bool is_left)
{
    const uint32_t param = make_param(&net, shape, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_BINARY, &x, 1);
    node->u.binary.fn = fn;
    node->u.binary.is_param_left = is_left;
    node->params[0] = param;
    node->n_params = 1;
    return finish();
}

uint32_t reshape(uint32_t x, const dunlin_shape *shape)
{
    make_node(&net, DUNLIN_OP_RESHAPE, &x, 1)->u.reshape.shape = *shape;
    return finish();
}

uint32_t slice(uint32_t x, int32_t axis, int64_t start, int64_t stop)
{
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_SLICE, &x, 1);
    node->u.slice.axis = axis;
    node->u.slice.start = start;
    node->u.slice.end = stop;
    return finish();
}

uint32_t mean(uint32_t x, uint32_t axes, bool keeps_dims)
{
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_MEAN, &x, 1);
    node->u.mean.axes = axes;
    node->u.mean.keeps_dims = keeps_dims;
    return finish();
}

void end(uint32_t x)
{
    make_end(&net, make_dense(&net, make_flatten(&net, x), 3, true));
}

void check(uint64_t seed)
{
    cr_assert(check_net(&net, &(check_options){.n = 3, .seed = test_seed(seed), .n_probes = 25}));
    check_same_bits(&net, seed);
}
