/*
 * test_functions.c - functions of one element: values and gradients against the double-precision
 * reference, bits over slices.
 */
#include "check_net.h"
#include "one_net.h"
#include "random.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

TestSuite(functions, .init = open_net, .fini = close_net);

Test(functions, of_one_operand)
{
    static const struct {
        dunlin_unary_fn fn;
        float a, b;
        bool is_positive;
    } cases[] = {{DUNLIN_UNARY_AFFINE, -0.75F, 0.5F, false},
                 {DUNLIN_UNARY_TANH, 0.0F, 0.0F, false},
                 {DUNLIN_UNARY_ERF, 0.0F, 0.0F, false},
                 {DUNLIN_UNARY_SQRT, 0.0F, 0.0F, true},
                 {DUNLIN_UNARY_POWER, 2.0F, 0.0F, false},
                 {DUNLIN_UNARY_POWER, -1.5F, 0.0F, true},
                 {DUNLIN_UNARY_POWER, 3.0F, 0.0F, false},
                 {DUNLIN_UNARY_GELU, 0.0F, 0.0F, false},
                 {DUNLIN_UNARY_GELU_TANH, 0.0F, 0.0F, false},
                 {DUNLIN_UNARY_SIGMOID, 0.0F, 0.0F, false},
                 {DUNLIN_UNARY_LEAKY_RELU, 0.01F, 0.0F, false},
                 {DUNLIN_UNARY_LEAKY_RELU, 0.0F, 0.0F, false},
                 {DUNLIN_UNARY_LEAKY_RELU, -0.5F, 0.0F, false},
                 {DUNLIN_UNARY_LEAKY_RELU, 1.5F, 0.0F, false},
                 {DUNLIN_UNARY_SILU, 0.0F, 0.0F, false},
                 {DUNLIN_UNARY_HARD_SIGMOID, 0.2F, 0.5F, false},
                 {DUNLIN_UNARY_HARD_SIGMOID, -0.4F, 0.3F, false},
                 {DUNLIN_UNARY_HARD_SWISH, 0.0F, 0.0F, false},
                 {DUNLIN_UNARY_ELU, 1.0F, 0.0F, false},
                 {DUNLIN_UNARY_ELU, -0.5F, 0.0F, false},
                 {DUNLIN_UNARY_SELU, 1.6732632F, 1.050701F, false},
                 {DUNLIN_UNARY_SELU, 1.5F, -0.5F, false},
                 {DUNLIN_UNARY_CELU, 0.5F, 0.0F, false},
                 {DUNLIN_UNARY_CELU, -2.0F, 0.0F, false},
                 {DUNLIN_UNARY_SOFTPLUS, 0.0F, 0.0F, false},
                 {DUNLIN_UNARY_SOFTSIGN, 0.0F, 0.0F, false},
                 {DUNLIN_UNARY_MISH, 0.0F, 0.0F, false},
                 {DUNLIN_UNARY_ABS, 0.0F, 0.0F, false},
                 {DUNLIN_UNARY_EXP, 0.0F, 0.0F, false},
                 {DUNLIN_UNARY_LOG, 0.0F, 0.0F, true},
                 {DUNLIN_UNARY_SIN, 0.0F, 0.0F, false},
                 {DUNLIN_UNARY_COS, 0.0F, 0.0F, false},
                 {DUNLIN_UNARY_THRESHOLD, 0.1F, 0.0F, false},
                 {DUNLIN_UNARY_THRESHOLD, -0.1F, 0.0F, false},
                 {DUNLIN_UNARY_POWER, 0.3F, 0.0F, true},
                 {DUNLIN_UNARY_POWER, -2.7F, 0.0F, true},
                 {DUNLIN_UNARY_POWER, 9.0F, 0.0F, false},
                 {DUNLIN_UNARY_SIGN, 0.0F, 0.0F, false},
                 {DUNLIN_UNARY_ABS_POWER, 2.0F, 0.0F, false},
                 {DUNLIN_UNARY_ABS_POWER, 1.7F, 0.0F, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t x = make_dense(&net, make_input(&net, 3, 0, 0), 21, true);
        if (cases[i].is_positive) {
            x = apply(apply(x, DUNLIN_UNARY_POWER, 2.0F, 0.0F), DUNLIN_UNARY_AFFINE, 1.0F, 0.5F);
        }
        end(apply(x, cases[i].fn, cases[i].a, cases[i].b));
        check(10 + i);
        reopen();
    }
}

/* --- behind batch norms --- */

static uint32_t depthwise(uint32_t x, int32_t channels, int32_t kernel, int32_t stride)
{
    return make_conv(&net, x, channels,
                     &(dunlin_net_conv){.kernel_h = kernel,
                                        .kernel_w = kernel,
                                        .stride_h = stride,
                                        .stride_w = stride,
                                        .pad_top = kernel / 2,
                                        .pad_left = kernel / 2,
                                        .pad_bottom = kernel / 2,
                                        .pad_right = kernel / 2,
                                        .groups = channels},
                     false);
}

static uint32_t normalised(uint32_t x, dunlin_unary_fn fn)
{
    return make_function(&net, make_batch_norm(&net, x), fn);
}

/* The first of twenty problems in which no batch norm divides by too little. */
static void check_well_posed(uint64_t seed)
{
    for (uint64_t i = 0; i < 20; i++) {
        if (check_net(&net, &(check_options){.n = 4, .seed = seed + i, .n_probes = 25})) {
            return;
        }
    }
    cr_assert_fail("all problems from seed %llu on are ill-conditioned", (unsigned long long)seed);
}

/* A view is read by windows of each size and stride, by products, poolings, sums and one after the
 * other; its gradient comes in one part and in several. */
Test(functions, behind_batch_norms, .timeout = 600)
{
    static const dunlin_unary_fn functions[] = {DUNLIN_UNARY_SILU, DUNLIN_UNARY_HARD_SWISH};
    for (size_t i = 0; i < 4; i++) {
        const dunlin_unary_fn fn = functions[i % 2];
        const dunlin_unary_fn other = functions[1 - i % 2];
        uint32_t x = normalised(begin_image(16, 7, 6), fn);
        x = normalised(depthwise(x, 16, 3, 1 + (int32_t)(i / 2)), other);
        x = normalised(depthwise(x, 16, 5, 1), fn);
        const uint32_t gate =
            make_conv(&net, make_global_pool(&net, x), 16, &(dunlin_net_conv){.groups = 1}, true);
        x = join(x, gate, DUNLIN_BINARY_MUL);
        x = normalised(make_conv(&net, x, 5, &(dunlin_net_conv){.groups = 1}, false), other);
        const uint32_t y = make_conv(&net, x, 5, &(dunlin_net_conv){.groups = 1}, true);
        x = make_add(&net, x, normalised(y, fn));
        end(make_concat(&net, (uint32_t[]){x, normalised(x, other)}, 2));
        check_well_posed(60 + 20 * i);
        reopen();
    }
}

/* --- PReLU --- */

static uint32_t prelu(uint32_t x, int32_t axis, int64_t n_slopes)
{
    const dunlin_shape shape = {1, {n_slopes}};
    const uint32_t param = make_param(&net, &shape, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_PRELU, &x, 1);
    node->u.prelu.axis = axis;
    node->params[0] = param;
    node->n_params = 1;
    return net.nodes[net.n_nodes - 1].output;
}

Test(functions, prelu_of_rows)
{
    static const struct {
        dunlin_shape shape;
        int32_t axis;
        int64_t n_slopes;
    } cases[] = {{{1, {37}}, 0, 37},  {{1, {37}}, 0, 1},       {{2, {5, 7}}, 1, 7},
                 {{2, {5, 7}}, 0, 5}, {{3, {2, 3, 4}}, 1, 3},  {{1, {300}}, 0, 300},
                 {{2, {1, 9}}, 1, 9}, {{3, {2, 3, 40}}, 0, 2}, {{2, {150, 2}}, 1, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)prelu(begin_values(&cases[i].shape), cases[i].axis, cases[i].n_slopes);
        end(finish());
        check(200 + i);
        reopen();
    }
}

Test(functions, prelu_of_images)
{
    static const int64_t slopes[] = {1, 3, 20, 130};
    for (size_t i = 0; i < 7; i++) {
        const int64_t n = slopes[i / 2];
        const bool has_norm = i % 2 == 1; /* a view in a fused step; it waits for the batch */
        uint32_t x = make_input(&net, 2, 5, 4);
        x = make_conv(&net, x, n == 1 ? 5 : (int32_t)n, &(dunlin_net_conv){0}, true);
        (void)prelu(has_norm ? make_batch_norm(&net, x) : x, 0, n);
        end(finish());
        if (has_norm) {
            uint64_t seed = 220 + i; /* one whose deviations are not too small to check */
            check_options options = {.n = 3, .n_probes = 25};
            do {
                seed += 100;
                cr_assert_lt(seed, 4000);
                options.seed = test_seed(seed);
            } while (!check_net(&net, &options));
        } else {
            check(220 + i);
        }
        reopen();
    }
}

/* Slopes alone, the input alone, or neither is trained. */
Test(functions, prelu_with_what_is_frozen)
{
    static const char *const frozen[] = {"param2", "param0,param1", "param0,param1,param2"};
    (void)prelu(begin_values(&(dunlin_shape){2, {5, 7}}), 1, 7);
    end(finish());
    for (size_t i = 0; i < sizeof frozen / sizeof frozen[0]; i++) {
        cr_assert(check_net(
            &net, &(check_options){.n = 3, .seed = 240 + i, .frozen_prefixes = frozen[i]}));
    }
}

Test(functions, slopes_that_do_not_fit_are_refused)
{
    (void)prelu(begin_values(&(dunlin_shape){2, {5, 7}}), 1, 5);
    expect_refusal("has 5 slopes; 1 or 7 fit dimension 1 of (5, 7)");
    net.nodes[net.n_nodes - 1].n_params = 0;
    expect_refusal("lacks its slopes");
}
