/*
 * test_functions.c - functions of one element: values and gradients against the double-precision
 * reference, bits over slices.
 */
#include "check_net.h"
#include "ops/table/infer.h"
#include "random.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

#include <string.h>

static dunlin_net net;

static void open_net(void)
{
    dunlin__net_init(&net, NULL);
}

static void close_net(void)
{
    dunlin__net_free(&net);
}

TestSuite(functions, .init = open_net, .fini = close_net);

static void reopen(void)
{
    close_net();
    open_net();
}

static uint32_t finish(void)
{
    dunlin_error error = {0};
    const uint32_t index = (uint32_t)net.n_nodes - 1;
    const dunlin_status status = dunlin__net_infer_node(&net, index, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    return net.nodes[index].output;
}

static uint32_t apply(uint32_t x, dunlin_unary_fn fn, float a, float b)
{
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_UNARY, &x, 1);
    node->u.unary.fn = fn;
    node->u.unary.a = a;
    node->u.unary.b = b;
    return finish();
}

static void end(uint32_t x)
{
    make_end(&net, make_dense(&net, make_flatten(&net, x), 3, true));
}

static void check(uint64_t seed)
{
    cr_assert(check_net(&net, &(check_options){.n = 3, .seed = test_seed(seed), .n_probes = 25}));
    check_same_bits(&net, seed);
}

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
                 {DUNLIN_UNARY_POWER, 9.0F, 0.0F, false}};
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

/* A value of this shape that needs a gradient. */
static uint32_t begin(const dunlin_shape *shape)
{
    int64_t n = 0;
    cr_assert_eq(dunlin_shape_count(shape, &n), DUNLIN_OK);
    const uint32_t x = make_dense(&net, make_input(&net, 3, 0, 0), n, true);
    make_node(&net, DUNLIN_OP_RESHAPE, &x, 1)->u.reshape.shape = *shape;
    return finish();
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
        (void)prelu(begin(&cases[i].shape), cases[i].axis, cases[i].n_slopes);
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
    (void)prelu(begin(&(dunlin_shape){2, {5, 7}}), 1, 7);
    end(finish());
    for (size_t i = 0; i < sizeof frozen / sizeof frozen[0]; i++) {
        cr_assert(check_net(
            &net, &(check_options){.n = 3, .seed = 240 + i, .frozen_prefixes = frozen[i]}));
    }
}

Test(functions, slopes_that_do_not_fit_are_refused)
{
    dunlin_error error = {0};
    (void)prelu(begin(&(dunlin_shape){2, {5, 7}}), 1, 5);
    cr_assert_eq(dunlin__net_infer_node(&net, (uint32_t)net.n_nodes - 1, &error), DUNLIN_MODEL);
    cr_assert_not_null(strstr(error.text, "has 5 slopes; 1 or 7 fit dimension 1 of (5, 7)"), "%s",
                       error.text);
    net.nodes[net.n_nodes - 1].n_params = 0;
    cr_assert_eq(dunlin__net_infer_node(&net, (uint32_t)net.n_nodes - 1, &error), DUNLIN_MODEL);
    cr_assert_not_null(strstr(error.text, "lacks its slopes"), "%s", error.text);
}
