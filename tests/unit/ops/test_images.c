/*
 * test_images.c - arithmetic of images with what is broadcast against them, and moves of their
 * elements: values and gradients against the double-precision reference, bits over slices.
 */
#include "check_net.h"
#include "one_net.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

TestSuite(images, .init = open_net, .fini = close_net);

/* Away from 0, for quotients. */
static uint32_t lift(uint32_t x)
{
    x = apply(x, DUNLIN_UNARY_POWER, 2.0F, 0.0F);
    return apply(x, DUNLIN_UNARY_AFFINE, 0.1F, 0.7F);
}

/* Squeeze and excite: one number a channel, made of the image itself. */
Test(images, joined_with_one_number_a_channel)
{
    static const int64_t channels[] = {1, 3, 16, 70};
    for (int fn = DUNLIN_BINARY_ADD; fn <= DUNLIN_BINARY_MIN; fn++) {
        for (size_t i = 0; i < 4; i++) {
            const uint32_t x = begin_image(channels[i], 3, 2);
            uint32_t gate = make_global_pool(&net, x);
            gate = lift(make_conv(&net, gate, (int32_t)channels[i], &(dunlin_net_conv){0}, true));
            const dunlin_binary_fn f = (dunlin_binary_fn)fn;
            end(i % 2 == 0 || f == DUNLIN_BINARY_MUL ? join(x, gate, f) : join(gate, lift(x), f));
            check(100 + (uint64_t)fn * 10 + i);
            reopen();
        }
    }
}

/* One number a pixel; a row; a column; and plain values of three dimensions, which lie otherwise.
 */
Test(images, joined_with_values_of_other_shapes)
{
    static const dunlin_shape shapes[] = {{3, {1, 3, 4}}, {3, {1, 1, 4}}, {3, {1, 3, 1}},
                                          {3, {5, 1, 4}}, {3, {5, 3, 4}}, {3, {1, 1, 1}}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const uint32_t x = begin_image(5, 3, 4);
        int64_t n = 0;
        cr_assert_eq(dunlin_shape_count(&shapes[i], &n), DUNLIN_OK);
        uint32_t y = make_flatten(&net, make_global_pool(&net, x));
        y = lift(reshape(make_dense(&net, y, n, true), &shapes[i]));
        const dunlin_binary_fn fn = (dunlin_binary_fn)(i % 4);
        const uint32_t z = join(x, y, fn);
        cr_assert_eq(net.values[z].layout, DUNLIN_LAYOUT_IMAGE);
        end(join(y, lift(z), (dunlin_binary_fn)((i + 1) % 4)));
        check(200 + i);
        reopen();
    }
    /* an image of one pixel a channel against one of one channel */
    const uint32_t x = begin_image(4, 3, 2);
    const uint32_t pixels = make_conv(&net, x, 1, &(dunlin_net_conv){0}, true);
    end(join(make_global_pool(&net, x), pixels, DUNLIN_BINARY_MUL));
    check(210);
}

Test(images, joined_with_parameters)
{
    static const dunlin_shape shapes[] = {{3, {5, 1, 1}}, {4, {1, 5, 1, 1}}, {4, {1, 1, 3, 4}},
                                          {2, {3, 4}},    {1, {4}},          {2, {3, 1}},
                                          {3, {5, 3, 4}}, {1, {1}},          {0, {0}}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        uint32_t x = begin_image(5, 3, 4);
        x = join_param(x, &shapes[i], i % 2 == 0 ? DUNLIN_BINARY_ADD : DUNLIN_BINARY_SUB, i == 3);
        end(join_param(lift(x), &shapes[i], i % 3 == 0 ? DUNLIN_BINARY_DIV : DUNLIN_BINARY_MUL,
                       i % 3 == 0));
        check(300 + i);
        cr_assert(check_net(
            &net, &(check_options){.n = 3, .seed = 320 + i, .frozen_prefixes = "param2"}));
        reopen();
    }
    /* the parameter is the wider one */
    end(join_param(begin_image(5, 1, 1), &(dunlin_shape){2, {3, 4}}, DUNLIN_BINARY_MUL, true));
    check(330);
}

Test(images, what_does_not_fit_is_refused)
{
    const uint32_t x = begin_image(5, 3, 4);
    const uint32_t pooled =
        make_conv(&net, make_global_pool(&net, x), 4, &(dunlin_net_conv){0}, true);
    make_node(&net, DUNLIN_OP_BINARY, (uint32_t[]){x, pooled}, 2)->u.binary.fn = DUNLIN_BINARY_MUL;
    expect_refusal("joins (5, 3, 4) and (4, 1, 1)");
}

static uint32_t rearrange(uint32_t x, const dunlin_rearrangement *to, bool is_image)
{
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_REARRANGE, &x, 1);
    node->u.rearrange.to = *to;
    node->u.rearrange.is_image = is_image;
    return finish();
}

Test(images, elements_in_another_order)
{
    static const struct {
        int64_t c, h, w;
        dunlin_rearrangement to;
        bool is_image;
    } cases[] = {
        {6, 3, 4, {{5, {2, 3, 3, 4, 1}}, {1, 0, 2, 3, 4}, {3, {6, 3, 4}}}, true},  /* shuffle */
        {70, 3, 9, {{4, {2, 35, 3, 9}}, {1, 0, 2, 3}, {3, {70, 3, 9}}}, true},     /* wide */
        {6, 3, 4, {{3, {6, 3, 4}}, {0, 1, 2}, {3, {6, 3, 4}}}, false},             /* as plain */
        {20, 9, 9, {{3, {20, 9, 9}}, {0, 1, 2}, {2, {20, 81}}}, false},            /* turned */
        {6, 3, 4, {{3, {6, 3, 4}}, {1, 2, 0}, {3, {3, 4, 6}}}, false},             /* (H, W, C) */
        {6, 3, 4, {{3, {6, 3, 4}}, {0, 2, 1}, {3, {6, 4, 3}}}, true},              /* H and W */
        {6, 3, 4, {{3, {6, 3, 4}}, {2, 1, 0}, {3, {4, 3, 6}}}, true},              /* all */
        {8, 3, 4, {{5, {2, 2, 2, 3, 4}}, {2, 3, 0, 4, 1}, {3, {2, 6, 8}}}, true},  /* to space */
        {8, 3, 4, {{5, {2, 2, 2, 3, 4}}, {0, 3, 1, 4, 2}, {3, {2, 6, 8}}}, true},  /* CRD */
        {3, 4, 6, {{5, {3, 2, 2, 3, 2}}, {2, 4, 0, 1, 3}, {3, {12, 2, 3}}}, true}, /* to depth */
        {1, 1, 1, {{1, {1}}, {0}, {2, {1, 1}}}, false},                            /* nothing */
        {4, 4, 6, {{5, {4, 2, 2, 3, 2}}, {1, 3, 2, 4, 0}, {3, {6, 4, 4}}}, false}, /* windows */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t x = begin_image(cases[i].c, cases[i].h, cases[i].w);
        x = rearrange(x, &cases[i].to, cases[i].is_image);
        end(apply(x, DUNLIN_UNARY_TANH, 0.0F, 0.0F));
        check(400 + i);
        reopen();
    }
    /* a plain value as an image */
    uint32_t x = reshape(make_dense(&net, make_input(&net, 3, 0, 0), 60, true),
                         &(dunlin_shape){3, {5, 3, 4}});
    x = rearrange(x, &(dunlin_rearrangement){{3, {5, 3, 4}}, {0, 1, 2}, {3, {5, 3, 4}}}, true);
    end(make_conv(&net, x, 3, &(dunlin_net_conv){0}, true));
    check(450);
}

Test(images, parts_and_joints_along_every_dimension)
{
    for (int32_t axis = 0; axis < 3; axis++) {
        const uint32_t x = begin_image(6, 4, 5);
        const uint32_t parts[] = {slice(x, axis, 1, 3), slice(x, axis, 0, 4), slice(x, axis, 3, 4)};
        if (axis == 0) {
            end(make_concat(&net, parts, 3));
        } else {
            make_node(&net, DUNLIN_OP_STACK, parts, 3)->u.stack.axis = axis;
            end(finish());
        }
        check(500 + (uint64_t)axis);
        reopen();
        /* plain values, of which the last dimension is joined as channels are */
        const uint32_t y = reshape(make_dense(&net, make_input(&net, 3, 0, 0), 24, true),
                                   &(dunlin_shape){3, {2, 3, 4}});
        const uint32_t pair[] = {y, slice(y, axis, 1, 2)};
        if (axis == 2) {
            end(make_concat(&net, pair, 2));
        } else {
            make_node(&net, DUNLIN_OP_STACK, pair, 2)->u.stack.axis = axis;
            end(finish());
        }
        check(510 + (uint64_t)axis);
        reopen();
    }
}

static uint32_t reduce(uint32_t x, dunlin_reduce_fn fn, uint32_t axes, bool keeps_dims)
{
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_REDUCE, &x, 1);
    node->u.reduce.fn = fn;
    node->u.reduce.axes = axes;
    node->u.reduce.keeps_dims = keeps_dims;
    return finish();
}

/* What is left is a value that layers read: a dimension is kept. */
static void check_reduced(uint32_t y, uint64_t seed)
{
    end(apply(y, DUNLIN_UNARY_AFFINE, 0.25F, 0.0F));
    check(seed);
    reopen();
}

Test(images, reduced_over_every_set_of_dimensions)
{
    for (uint32_t axes = 1; axes < 8; axes++) {
        for (int keeps = 0; keeps < 2; keeps++) {
            const bool keeps_dims = keeps == 1 || axes == 7;
            for (int fn = DUNLIN_REDUCE_SUM; fn <= DUNLIN_REDUCE_LOG_SUM_EXP; fn++) {
                const uint64_t seed = 600 + axes * 20 + (uint64_t)fn * 2 + (uint64_t)keeps;
                const dunlin_reduce_fn f = (dunlin_reduce_fn)fn;
                check_reduced(reduce(begin_image(5, 3, 4), f, axes, keeps_dims), seed);
                if ((axes + (uint32_t)fn) % 2 == (uint32_t)keeps) {
                    continue;
                }
                const uint32_t x = reshape(make_dense(&net, make_input(&net, 3, 0, 0), 42, true),
                                           &(dunlin_shape){3, {2, 3, 7}});
                check_reduced(reduce(x, f, axes, keeps_dims), seed + 200);
            }
            check_reduced(mean(begin_image(19, 3, 4), axes, keeps_dims), 1100 + axes);
        }
    }
}

/* Where nothing meets, a reduction of one element: as over the only channel, or of one pixel. */
Test(images, reduced_over_dimensions_of_one)
{
    static const dunlin_shape shapes[] = {{3, {1, 3, 4}}, {3, {5, 1, 1}}, {3, {1, 1, 1}}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const int64_t *dims = shapes[i].dims;
        const uint32_t axes = dims[0] == 1 ? 1 : 6;
        for (int fn = DUNLIN_REDUCE_SUM; fn <= DUNLIN_REDUCE_LOG_SUM_EXP; fn++) {
            const dunlin_reduce_fn f = (dunlin_reduce_fn)fn;
            const uint64_t seed = 1300 + (uint64_t)fn * 10 + i * 2;
            check_reduced(reduce(begin_image(dims[0], dims[1], dims[2]), f, axes, true), seed);
            const int64_t n = dims[0] * dims[1] * dims[2];
            const uint32_t x =
                reshape(make_dense(&net, make_input(&net, 3, 0, 0), n, true), &shapes[i]);
            check_reduced(reduce(x, f, axes, true), seed + 1);
        }
    }
}

/* Several elements are the largest, and rows are zero: gradients are shared, and 0. */
Test(images, ties_share_a_gradient_and_a_norm_of_zero_has_none)
{
    for (int fn = DUNLIN_REDUCE_LARGEST; fn <= DUNLIN_REDUCE_L2; fn++) {
        const uint32_t x = make_dense(&net, make_input(&net, 2, 0, 0), 1, true);
        dunlin_net_node *node = make_node(&net, DUNLIN_OP_EXPAND, &x, 1);
        node->u.expand.shape = (dunlin_shape){1, {3}};
        uint32_t y = finish();
        if (fn == DUNLIN_REDUCE_L2) { /* x - x, whose norm is 0 */
            y = join(y, y, DUNLIN_BINARY_SUB);
        }
        const uint32_t norm = reduce(y, (dunlin_reduce_fn)fn, 1, true);
        end(join(norm, x, DUNLIN_BINARY_ADD));
        check(1200 + (uint64_t)fn);
        reopen();
    }
}

/* x / |x|, the norm of each pixel's channels; and repeated by hand. */
Test(images, normalised_by_their_length)
{
    uint32_t x = begin_image(6, 3, 4);
    end(join(x, reduce(x, DUNLIN_REDUCE_L2, 1, true), DUNLIN_BINARY_DIV));
    check(1300);
    reopen();
    x = begin_image(6, 3, 4);
    const uint32_t norm = reduce(x, DUNLIN_REDUCE_L2, 6, true);
    make_node(&net, DUNLIN_OP_EXPAND, &norm, 1)->u.expand.shape = (dunlin_shape){3, {6, 3, 4}};
    end(join(x, finish(), DUNLIN_BINARY_DIV));
    check(1301);
}

/* A class token: a parameter for each sample, joined to rows of the sample's own. */
Test(images, a_parameter_for_each_sample)
{
    const dunlin_shape token = {3, {1, 2, 4}};
    const uint32_t x = begin_values(&(dunlin_shape){2, {3, 4}});
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_EXPAND, &net.input, 1);
    node->params[0] = make_param(&net, &token, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    node->n_params = 1;
    const uint32_t row = finish();
    make_node(&net, DUNLIN_OP_STACK, (uint32_t[]){row, x}, 2)->u.stack.axis = 0;
    end(apply(finish(), DUNLIN_UNARY_TANH, 0.0F, 0.0F));
    check(1400);
    cr_assert(check_net(&net, &(check_options){.n = 3, .seed = 1401, .frozen_prefixes = "param2"}));
}

/* A whole parameter for each sample: a row of biases, one number, one channel each. */
Test(images, a_whole_parameter_for_each_sample)
{
    static const dunlin_shape shapes[] = {{1, {4}}, {0, {0}}, {2, {3, 4}}, {3, {2, 1, 1}}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const uint32_t x = begin_values(&(dunlin_shape){3, {2, 3, 4}});
        dunlin_net_node *node = make_node(&net, DUNLIN_OP_EXPAND, &net.input, 1);
        node->params[0] =
            make_param(&net, &shapes[i], DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
        node->n_params = 1;
        const uint32_t copy = finish();
        cr_assert_eq(net.values[copy].shape.n_dims, i == 1 ? 1 : shapes[i].n_dims);
        node =
            make_node(&net, DUNLIN_OP_RESHAPE, &copy, 1); /* two values have as many dimensions */
        node->u.reshape.shape = (dunlin_shape){3, {1, 1, 1}};
        for (int32_t d = 0; d < shapes[i].n_dims; d++) {
            node->u.reshape.shape.dims[3 - shapes[i].n_dims + d] = shapes[i].dims[d];
        }
        end(join(x, apply(finish(), DUNLIN_UNARY_TANH, 0.0F, 0.0F), DUNLIN_BINARY_MUL));
        check(1410 + i);
        reopen();
    }
}

Test(images, moves_that_are_none_are_refused)
{
    const uint32_t x = begin_image(6, 4, 3);
    static const struct {
        dunlin_rearrangement to;
        bool is_image;
        const char *text;
    } cases[] = {
        {{{2, {6, 4}}, {0, 1}, {2, {6, 12}}}, false, "differ in size"},
        {{{2, {6, 12}}, {0, 1}, {2, {6, 4}}}, false, "differ in size"},
        {{{2, {6, 12}}, {1, 1}, {2, {12, 6}}}, false, "each of 2 dimensions once"},
        {{{2, {6, 12}}, {0, 1}, {1, {72}}}, true, "in one step"},
        {{{2, {9, 8}}, {1, 0}, {2, {8, 9}}}, false, "in one step"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin_net_node *node = make_node(&net, DUNLIN_OP_REARRANGE, &x, 1);
        node->u.rearrange.to = cases[i].to;
        node->u.rearrange.is_image = cases[i].is_image;
        expect_refusal(cases[i].text);
    }
    make_node(&net, DUNLIN_OP_STACK, (uint32_t[]){x, x}, 2)->u.stack.axis = 3;
    expect_refusal("along dimension 3");
    make_node(&net, DUNLIN_OP_STACK, (uint32_t[]){x, slice(x, 2, 0, 1)}, 2)->u.stack.axis = 1;
    expect_refusal("all others must be the same");
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_REDUCE, &x, 1);
    node->u.reduce.axes = 9;
    expect_refusal("(bits 9) that its input, of 3, does not have");
    make_node(&net, DUNLIN_OP_REDUCE, &x, 1);
    expect_refusal("(bits 0)");
    make_node(&net, DUNLIN_OP_EXPAND, &x, 1)->u.expand.shape = (dunlin_shape){3, {6, 8, 3}};
    expect_refusal("only dimensions of 1 can be");
    const uint32_t part = slice(x, 2, 0, 1);
    node = make_node(&net, DUNLIN_OP_EXPAND, &part, 1);
    node->params[0] =
        make_param(&net, &(dunlin_shape){1, {4}}, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    node->n_params = 1;
    expect_refusal("for each sample of what is no input of the network");
}
