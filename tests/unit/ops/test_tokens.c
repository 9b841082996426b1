/*
 * test_tokens.c - the operators of transformers: values and gradients against the double-precision
 * reference, shapes that must be refused, bits over slices.
 */
#include "check_net.h"
#include "one_net.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

TestSuite(tokens, .init = open_net, .fini = close_net);

static uint32_t layer_norm(uint32_t x)
{
    const dunlin_shape *in = &net.values[x].shape;
    const dunlin_shape shape = {1, {in->dims[in->n_dims - 1]}};
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_LAYER_NORM, &x, 1);
    for (int i = 0; i < 2; i++) {
        node->params[i] = make_param(&net, &shape, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    }
    node->n_params = 2;
    /* large: a row of almost equal numbers is not magnified */
    node->u.layer_norm.eps = 0.1F;
    return finish();
}

static uint32_t embedding(uint32_t x, int64_t rows, int64_t width)
{
    const dunlin_shape shape = {2, {rows, width}};
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_EMBEDDING, &x, 1);
    node->params[0] = make_param(&net, &shape, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    node->n_params = 1;
    return finish();
}

static uint32_t attention(const uint32_t *inputs, uint32_t n, int32_t heads, bool has_mask)
{
    make_node(&net, DUNLIN_OP_ATTENTION, inputs, n)->u.attention =
        (dunlin_net_attention){.heads = heads, .scale = 0.6F, .has_mask = has_mask};
    return finish();
}

static uint32_t transpose(uint32_t x, int32_t a, int32_t b, int32_t c)
{
    const int32_t perm[] = {a, b, c};
    memcpy(make_node(&net, DUNLIN_OP_TRANSPOSE, &x, 1)->u.transpose.perm, perm, sizeof perm);
    return finish();
}

static uint32_t multiply(uint32_t a, uint32_t b, bool is_left_transposed, bool is_right_transposed)
{
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_MATMUL, (uint32_t[]){a, b}, 2);
    node->u.matmul.is_left_transposed = is_left_transposed;
    node->u.matmul.is_right_transposed = is_right_transposed;
    return finish();
}

Test(tokens, two_operands_broadcast)
{
    static const dunlin_shape shapes[] = {{2, {4, 5}}, {2, {1, 5}},    {2, {4, 1}},
                                          {2, {1, 1}}, {3, {2, 1, 5}}, {3, {1, 4, 5}}};
    for (int fn = DUNLIN_BINARY_ADD; fn <= DUNLIN_BINARY_MIN; fn++) {
        for (size_t i = 0; i < 4; i++) {
            uint32_t x = begin_values(&shapes[0]);
            uint32_t y = reshape(x, &(dunlin_shape){1, {20}});
            int64_t n = 0;
            cr_assert_eq(dunlin_shape_count(&shapes[i], &n), DUNLIN_OK);
            y = reshape(make_dense(&net, y, n, true), &shapes[i]);
            /* away from 0, for quotients */
            y = apply(apply(y, DUNLIN_UNARY_POWER, 2.0F, 0.0F), DUNLIN_UNARY_AFFINE, 0.1F, 0.7F);
            end((i & 1) == 0 ? join(x, y, (dunlin_binary_fn)fn) : join(y, x, (dunlin_binary_fn)fn));
            check(100 + (uint64_t)fn * 10 + i);
            reopen();
        }
    }
    /* both sides repeated; three dimensions */
    uint32_t x = begin_values(&(dunlin_shape){3, {2, 1, 5}});
    uint32_t y = reshape(make_dense(&net, make_flatten(&net, x), 20, true), &shapes[5]);
    end(join(x, y, DUNLIN_BINARY_MUL));
    check(150);
}

Test(tokens, operands_that_are_parameters)
{
    static const dunlin_shape shapes[] = {{2, {4, 5}}, {1, {5}},       {2, {4, 1}},
                                          {1, {1}},    {3, {1, 4, 5}}, {0, {0}}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        uint32_t x = begin_values(&shapes[0]);
        x = join_param(x, &shapes[i], i % 2 == 0 ? DUNLIN_BINARY_ADD : DUNLIN_BINARY_SUB, i == 3);
        end(join_param(x, &shapes[i], DUNLIN_BINARY_MUL, i == 2));
        check(200 + i);
        reopen();
    }
    uint32_t x = begin_values(&(dunlin_shape){2, {4, 1}});
    end(join_param(x, &(dunlin_shape){1, {5}}, DUNLIN_BINARY_ADD, true));
    check(210);
}

Test(tokens, layer_norm)
{
    static const int64_t widths[] = {1, 5, 16, 37};
    for (size_t i = 0; i < 4; i++) {
        uint32_t x = begin_values(&(dunlin_shape){2, {3, widths[i]}});
        end(layer_norm(x));
        check(300 + i);
        reopen();
    }
    uint32_t x = layer_norm(begin_values(&(dunlin_shape){1, {9}}));
    end(layer_norm(x));
    static const char *const frozen[] = {"param2", "param3", "param2,param3",
                                         "param0,param1,param2", "param0,param1"};
    for (size_t i = 0; i < 5; i++) {
        cr_assert(check_net(
            &net, &(check_options){.n = 3, .seed = 320 + i, .frozen_prefixes = frozen[i]}));
    }
}

/* Over as many of the last dimensions as the scale has. */
Test(tokens, layer_norm_over_several_dimensions)
{
    static const dunlin_shape scales[] = {{2, {4, 5}}, {3, {3, 4, 5}}, {3, {3, 1, 1}}};
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        const dunlin_shape shape = i < 2 ? (dunlin_shape){3, {3, 4, 5}} : scales[2];
        const uint32_t x = begin_values(&shape);
        dunlin_net_node *node = make_node(&net, DUNLIN_OP_LAYER_NORM, &x, 1);
        for (int k = 0; k < 2; k++) {
            node->params[k] =
                make_param(&net, &scales[i], DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
        }
        node->n_params = 2;
        node->u.layer_norm.eps = 0.1F;
        end(finish());
        check(350 + i);
        reopen();
    }
}

/* About 0, with a scale alone; also where the scale is frozen, or is all that is trained. */
Test(tokens, rms_norm)
{
    static const int64_t widths[] = {1, 5, 16, 37};
    for (size_t i = 0; i < 5; i++) {
        uint32_t x = begin_values(&(dunlin_shape){2, {i < 4 ? 3 : 70, widths[i % 4]}});
        dunlin_net_node *node = make_node(&net, DUNLIN_OP_LAYER_NORM, &x, 1);
        node->params[0] = make_param(&net, &(dunlin_shape){1, {widths[i % 4]}}, DUNLIN_PARAM_PLAIN,
                                     DUNLIN_PARAMETER_TRAINABLE);
        node->n_params = 1;
        node->u.layer_norm.eps = 0.1F;
        node->u.layer_norm.is_about_zero = true;
        x = finish();
        end(i < 4 ? x : mean(x, 1, false));
        check(360 + i);
        static const char *const frozen[] = {"param2", "param0,param1"};
        for (size_t k = 0; k < 2; k++) {
            cr_assert(check_net(
                &net, &(check_options){.n = 3, .seed = 370 + k, .frozen_prefixes = frozen[k]}));
        }
        reopen();
    }
}

Test(tokens, embedding_and_positions)
{
    uint32_t x = embedding(make_input(&net, 6, 0, 0), 9, 5);
    x = join_param(x, &(dunlin_shape){2, {6, 5}}, DUNLIN_BINARY_ADD, false);
    end(layer_norm(x));
    check(400);
    cr_assert(check_net(&net, &(check_options){.n = 3, .seed = 401, .frozen_prefixes = "param0"}));
    reopen();
    /* more tokens than a partial has rows, so the same row is met often */
    x = embedding(make_input(&net, 70, 0, 0), 4, 3);
    end(mean(x, 1, false));
    check(402);
}

Test(tokens, matmul_transposed_in_all_ways)
{
    for (int transposed = 0; transposed < 4; transposed++) {
        const bool is_left = (transposed & 1) != 0;
        const bool is_right = (transposed & 2) != 0;
        uint32_t x = begin_values(&(dunlin_shape){1, {4}});
        uint32_t a =
            reshape(make_dense(&net, x, 2 * 3 * 5, true),
                    is_left ? &(dunlin_shape){3, {2, 5, 3}} : &(dunlin_shape){3, {2, 3, 5}});
        uint32_t b =
            reshape(make_dense(&net, x, 2 * 5 * 19, true),
                    is_right ? &(dunlin_shape){3, {2, 19, 5}} : &(dunlin_shape){3, {2, 5, 19}});
        end(multiply(a, b, is_left, is_right));
        check(500 + (uint64_t)transposed);
        reopen();
    }
    uint32_t x = begin_values(&(dunlin_shape){2, {4, 4}});
    end(multiply(x, x, false, true));
    check(510);
}

Test(tokens, log_softmax)
{
    const uint32_t x = begin_values(&(dunlin_shape){2, {3, 19}});
    make_node(&net, DUNLIN_OP_SOFTMAX, &x, 1)->u.softmax.is_log = true;
    end(finish());
    check(601);
}

Test(tokens, softmax)
{
    end(make_node(&net, DUNLIN_OP_SOFTMAX, (uint32_t[]){begin_values(&(dunlin_shape){2, {3, 19}})},
                  1) != NULL
            ? finish()
            : 0);
    check(600);
}

Test(tokens, shapes_and_orders)
{
    uint32_t x = begin_values(&(dunlin_shape){3, {2, 3, 4}});
    uint32_t y = transpose(x, 2, 0, 1);
    y = transpose(y, 0, 2, 1);
    y = slice(y, 1, 1, 3);
    y = slice(y, 0, 2, 4);
    end(slice(y, 2, 1, 2));
    check(700);
    reopen();
    static const uint32_t axes[] = {1, 2, 4, 3, 5, 6, 7};
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        end(mean(begin_values(&(dunlin_shape){3, {2, 3, 4}}), axes[i], i % 2 == 0));
        check(710 + i);
        reopen();
    }
}

Test(tokens, dense_layers_over_rows)
{
    uint32_t x = begin_values(&(dunlin_shape){2, {4, 5}});
    x = make_dense(&net, x, 7, true);
    x = apply(x, DUNLIN_UNARY_GELU, 0.0F, 0.0F);
    end(make_dense(&net, x, 3, false));
    check(800);
    reopen();
    /* many rows: a sample's partial is made from zero */
    x = begin_values(&(dunlin_shape){2, {66, 2}});
    end(mean(make_dense(&net, x, 3, true), 1, false));
    check(801);
}

Test(tokens, attention_of_all_forms)
{
    uint32_t x = begin_values(&(dunlin_shape){2, {5, 4}});
    uint32_t packed = make_dense(&net, x, 18, true);
    end(attention(&packed, 1, 3, false));
    check(900);
    reopen();
    /* two blocks of queries, more keys than a block */
    x = begin_values(&(dunlin_shape){2, {70, 2}});
    packed = make_dense(&net, x, 12, true);
    end(mean(attention(&packed, 1, 2, false), 1, false));
    cr_assert(check_net(&net, &(check_options){.n = 2, .seed = 901, .n_probes = 8}));
    check_same_bits(&net, 901);
    reopen();
    for (int64_t rows = 1; rows <= 5; rows += 4) {
        /* the first 5 of the input are tokens of the queries, the rest is a mask */
        const uint32_t input = make_input(&net, 5 + rows * 7, 0, 0);
        uint32_t mask = slice(input, 0, 5, 5 + rows * 7);
        mask = reshape(mask, &(dunlin_shape){3, {1, rows, 7}});
        uint32_t q = make_dense(&net, slice(input, 0, 0, 5), 5 * 4, true);
        uint32_t k = make_dense(&net, q, 7 * 4, true);
        uint32_t v = make_dense(&net, q, 7 * 4, true);
        const uint32_t inputs[4] = {reshape(q, &(dunlin_shape){2, {5, 4}}),
                                    reshape(k, &(dunlin_shape){2, {7, 4}}),
                                    reshape(v, &(dunlin_shape){2, {7, 4}}), mask};
        end(attention(inputs, 4, 2, true));
        check(910 + (uint64_t)rows);
        reopen();
    }
    /* only keys and queries lead to weights */
    const uint32_t input = make_input(&net, 12, 0, 0);
    const uint32_t v = reshape(input, &(dunlin_shape){2, {3, 4}});
    const uint32_t inputs[3] = {make_dense(&net, v, 4, true), make_dense(&net, v, 4, true), v};
    end(attention(inputs, 3, 4, false));
    check(920);
}

Test(tokens, what_does_not_fit_is_refused)
{
    const uint32_t x = begin_values(&(dunlin_shape){2, {4, 6}});
    make_node(&net, DUNLIN_OP_RESHAPE, &x, 1)->u.reshape.shape = (dunlin_shape){1, {25}};
    expect_refusal("differ in size");
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_SLICE, &x, 1);
    node->u.slice.end = 5;
    expect_refusal("[0, 5)");
    node = make_node(&net, DUNLIN_OP_TRANSPOSE, &x, 1);
    expect_refusal("each once");
    make_node(&net, DUNLIN_OP_MEAN, &x, 1)->u.mean.axes = 4;
    expect_refusal("does not have");
    make_node(&net, DUNLIN_OP_MATMUL, (uint32_t[]){x, x}, 2);
    expect_refusal("does not fit");
    node = make_node(&net, DUNLIN_OP_UNARY, &x, 1);
    node->u.unary.fn = DUNLIN_UNARY_POWER;
    node->u.unary.a = INFINITY;
    expect_refusal("must be finite");
    make_node(&net, DUNLIN_OP_UNARY, &x, 1)->u.unary.fn = DUNLIN_UNARY_CELU;
    expect_refusal("must not be 0");
    node = make_node(&net, DUNLIN_OP_UNARY, &x, 1);
    node->u.unary.fn = DUNLIN_UNARY_LEAKY_RELU;
    node->u.unary.a = NAN;
    expect_refusal("must be finite");
    make_node(&net, DUNLIN_OP_ATTENTION, &x, 1)->u.attention =
        (dunlin_net_attention){.heads = 4, .scale = 1.0F};
    expect_refusal("multiple of the heads");
    make_node(&net, DUNLIN_OP_EMBEDDING, &x, 1);
    expect_refusal("only tokens");
    const uint32_t row = reshape(x, &(dunlin_shape){1, {24}});
    make_node(&net, DUNLIN_OP_BINARY, (uint32_t[]){x, row}, 2);
    expect_refusal("same or 1");
}

/* A token outside the table ends the step before a weight has changed. */
Test(tokens, bad_tokens_are_refused)
{
    static const float bad[] = {-1.0F, 9.0F, 0.5F, NAN, INFINITY};
    uint32_t x = embedding(make_input(&net, 6, 0, 0), 9, 5);
    end(x);
    const dunlin_step_build_options build = {.mode = DUNLIN_EMIT_TRAIN, .has_momentum = true};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_data data;
        plain_run plain;
        dunlin_error error = {0};
        check_data_open(&data, &net, 3, 5);
        data.x[1 * 6 + 4] = bad[i];
        cr_assert_eq(plain_run_open(&plain, &net, &build, 3, NULL), DUNLIN_OK);
        for (uint32_t p = 0; p < net.n_params; p++) {
            plain_run_set_param(&plain, p, data.params[p]);
        }
        dunlin_step_run run = check_data_run(&data, dunlin__kernels_select(NULL));
        run.error = &error;
        if (isfinite(bad[i])) {
            cr_assert_eq(plain_run_step(&plain, &run), DUNLIN_DATA);
            cr_assert_not_null(strstr(error.text, "token 4 of example 1"), "%s", error.text);
            cr_assert_not_null(strstr(error.text, "0 to 8"), "%s", error.text);
        } else {
            cr_assert_eq(plain_run_step(&plain, &run), DUNLIN_NUMERIC);
            cr_assert_not_null(strstr(error.text, "element 4 of example 1"), "%s", error.text);
        }
        for (uint32_t p = 0; p < net.n_params; p++) {
            float now[64];
            cr_assert_leq(net.params[p].n_elements, 90);
            if (net.params[p].n_elements <= 64) {
                plain_run_get_param(&plain, p, now);
                cr_assert_arr_eq(now, data.params[p],
                                 (size_t)net.params[p].n_elements * sizeof(float));
            }
        }
        plain_run_close(&plain);
        check_data_close(&data);
    }
}
