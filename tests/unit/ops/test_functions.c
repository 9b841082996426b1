/*
 * test_functions.c - functions of one element: values and gradients against the double-precision
 * reference, bits over slices.
 */
#include "check_net.h"
#include "ops/table/infer.h"
#include "random.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

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
