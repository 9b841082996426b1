/*
 * test_attention.c - attention that looks back only, shares heads of keys, or adds a mask that all
 * samples share: values and gradients against the double-precision reference, bits over slices,
 * what is refused.
 */
#include "check_net.h"
#include "one_net.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdio.h>

TestSuite(attention, .init = open_net, .fini = close_net);

/* The name of the mask that all samples share, which is not trained; "": there is none. */
static char fixed_name[32];

static uint32_t attend(const uint32_t *inputs, uint32_t n, const dunlin_net_attention *attention,
                       const dunlin_shape *fixed)
{
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_ATTENTION, inputs, n);
    node->u.attention = *attention;
    node->u.attention.scale = 0.6F;
    fixed_name[0] = '\0';
    if (fixed != NULL) {
        node->params[0] = make_param(&net, fixed, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
        node->n_params = 1;
        net.params[node->params[0]].is_fixed_by_file = true;
        snprintf(fixed_name, sizeof fixed_name, "%s", net.params[node->params[0]].name);
    }
    return finish();
}

static uint32_t packed(int64_t tokens, int64_t width, const dunlin_net_attention *attention,
                       const dunlin_shape *fixed)
{
    const int64_t kv_heads = attention->kv_heads == 0 ? attention->heads : attention->kv_heads;
    const uint32_t x = begin_values(&(dunlin_shape){2, {tokens, 3}});
    const uint32_t qkv = make_dense(&net, x, (attention->heads + 2 * kv_heads) * width, true);
    return attend(&qkv, 1, attention, fixed);
}

static void check_fixed(uint64_t seed, int64_t n_probes)
{
    cr_assert(check_net(
        &net, &(check_options){
                  .n = 2, .seed = seed, .n_probes = n_probes, .frozen_prefixes = fixed_name}));
    check_same_bits(&net, seed);
}

Test(attention, looks_back)
{
    static const int64_t tokens[] = {1, 2, 5, 17};
    for (size_t i = 0; i < 4; i++) {
        end(packed(tokens[i], 3, &(dunlin_net_attention){.heads = 2, .is_causal = true}, NULL));
        check(10 + i);
        reopen();
    }
    /* whole blocks of queries, and a part of one */
    end(mean(packed(100, 2, &(dunlin_net_attention){.heads = 2, .is_causal = true}, NULL), 1,
             false));
    cr_assert(check_net(&net, &(check_options){.n = 2, .seed = 20, .n_probes = 8}));
    check_same_bits(&net, 20);
}

Test(attention, heads_share_keys)
{
    static const int32_t kv_heads[] = {1, 2, 3};
    for (int32_t i = 0; i < 3; i++) {
        end(packed(
            5, 2, &(dunlin_net_attention){.heads = 6, .kv_heads = kv_heads[i], .is_causal = i == 1},
            NULL));
        check(30 + (uint64_t)i);
        reopen();
    }
    /* q, k and v apart, with other keys than queries */
    const uint32_t x = begin_values(&(dunlin_shape){2, {4, 3}});
    const uint32_t y = reshape(make_dense(&net, reshape(x, &(dunlin_shape){1, {12}}), 14, true),
                               &(dunlin_shape){2, {7, 2}});
    const uint32_t parts[3] = {make_dense(&net, x, 8, true), make_dense(&net, y, 4, true),
                               make_dense(&net, y, 4, false)};
    end(attend(parts, 3, &(dunlin_net_attention){.heads = 4, .kv_heads = 2}, NULL));
    check(35);
}

Test(attention, masks_that_samples_share)
{
    static const dunlin_shape shapes[] = {{1, {5}},       {2, {1, 5}},    {2, {5, 5}},
                                          {3, {1, 5, 5}}, {3, {4, 5, 5}}, {4, {1, 4, 1, 5}}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        end(packed(5, 2,
                   &(dunlin_net_attention){
                       .heads = 4, .kv_heads = i % 2 == 0 ? 0 : 2, .is_causal = i >= 3},
                   &shapes[i]));
        check_fixed(40 + i, 0);
        reopen();
    }
}

/* A mask of the input's and one that samples share are added up. */
Test(attention, both_masks)
{
    for (int64_t rows = 1; rows <= 5; rows += 4) {
        const uint32_t input = make_input(&net, 20 + rows * 5, 0, 0);
        const uint32_t mask = slice(input, 0, 20, 20 + rows * 5);
        const uint32_t x = make_dense(&net, slice(input, 0, 0, 20), 60, true);
        const uint32_t inputs[2] = {reshape(x, &(dunlin_shape){2, {5, 12}}),
                                    reshape(mask, &(dunlin_shape){2, {rows, 5}})};
        end(attend(inputs, 2,
                   &(dunlin_net_attention){.heads = 2, .has_mask = true, .is_causal = rows > 1},
                   &(dunlin_shape){3, {2, 5, 5}}));
        check_fixed(50 + (uint64_t)rows, 0);
        reopen();
    }
}

/* Tables of any numbers, not the same for both halves. */
static uint32_t place(int64_t tokens, int64_t width, const dunlin_net_attention *attention,
                      const dunlin_shape *fixed)
{
    const int64_t kv_heads = attention->kv_heads == 0 ? attention->heads : attention->kv_heads;
    const dunlin_shape table = {3, {1, tokens, width}};
    const uint32_t x = begin_values(&(dunlin_shape){2, {tokens, 3}});
    const uint32_t qkv = make_dense(&net, x, (attention->heads + 2 * kv_heads) * width, true);
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_ATTENTION, &qkv, 1);
    node->u.attention = *attention;
    node->u.attention.scale = 0.6F;
    node->params[0] = DUNLIN_NET_NONE;
    node->n_params = 3;
    for (uint32_t slot = fixed != NULL ? 0 : 1; slot <= 2; slot++) {
        node->params[slot] = make_param(&net, slot == 0 ? fixed : &table, DUNLIN_PARAM_PLAIN,
                                        DUNLIN_PARAMETER_TRAINABLE);
        net.params[node->params[slot]].is_fixed_by_file = true;
    }
    snprintf(fixed_name, sizeof fixed_name, "param%" PRIu32 ",param%" PRIu32 ",param%" PRIu32,
             node->params[1], node->params[2], fixed != NULL ? node->params[0] : node->params[1]);
    return finish();
}

Test(attention, rotary_positions)
{
    static const int64_t widths[] = {2, 4, 34};
    for (size_t i = 0; i < 3; i++) {
        end(place(
            5, widths[i],
            &(dunlin_net_attention){.heads = 4, .kv_heads = i == 1 ? 2 : 0, .is_causal = i > 0},
            i == 1 ? &(dunlin_shape){2, {5, 5}} : NULL));
        check_fixed(60 + i, i == 2 ? 6 : 0);
        reopen();
    }
    /* more than one block of queries */
    end(mean(
        place(60, 2, &(dunlin_net_attention){.heads = 2, .kv_heads = 1, .is_causal = true}, NULL),
        1, false));
    check_fixed(65, 8);
}

Test(attention, tables_that_do_not_fit_are_refused)
{
    static const dunlin_shape bad[] = {{2, {4, 5}}, {2, {3, 6}}, {3, {2, 4, 6}}, {1, {6}}};
    const uint32_t x = begin_values(&(dunlin_shape){2, {4, 18}});
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        dunlin_net_node *node = make_node(&net, DUNLIN_OP_ATTENTION, &x, 1);
        node->u.attention = (dunlin_net_attention){.heads = 1, .scale = 1.0F};
        node->params[0] = DUNLIN_NET_NONE;
        for (uint32_t slot = 1; slot <= 2; slot++) {
            node->params[slot] =
                make_param(&net, &bad[i], DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
            net.params[node->params[slot]].is_fixed_by_file = true;
        }
        node->n_params = 3;
        expect_refusal("must be (tokens, width)");
    }
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_ATTENTION, &x, 1);
    node->u.attention = (dunlin_net_attention){.heads = 2, .scale = 1.0F};
    node->params[0] = DUNLIN_NET_NONE;
    for (uint32_t slot = 1; slot <= 2; slot++) {
        node->params[slot] = make_param(&net, &(dunlin_shape){2, {4, 3}}, DUNLIN_PARAM_PLAIN,
                                        DUNLIN_PARAMETER_TRAINABLE);
        net.params[node->params[slot]].is_fixed_by_file = true;
    }
    node->n_params = 3;
    expect_refusal("the width even"); /* 3 */
}

Test(attention, what_does_not_fit_is_refused)
{
    const uint32_t x = begin_values(&(dunlin_shape){2, {4, 12}});
    const uint32_t y = slice(x, 0, 0, 3);
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_ATTENTION, &x, 1);
    node->u.attention = (dunlin_net_attention){.heads = 4, .kv_heads = 3, .scale = 1.0F};
    expect_refusal("3 heads of keys");
    node = make_node(&net, DUNLIN_OP_ATTENTION, &x, 1);
    node->u.attention = (dunlin_net_attention){.heads = 4, .kv_heads = -1, .scale = 1.0F};
    expect_refusal("-1 heads of keys");
    node = make_node(&net, DUNLIN_OP_ATTENTION, (uint32_t[]){x, x, x}, 3);
    node->u.attention = (dunlin_net_attention){.heads = 4, .kv_heads = 2, .scale = 1.0F};
    expect_refusal("multiple of the heads");
    node = make_node(&net, DUNLIN_OP_ATTENTION, (uint32_t[]){x, y, y}, 3);
    node->u.attention = (dunlin_net_attention){.heads = 2, .is_causal = true, .scale = 1.0F};
    expect_refusal("look back only");
    static const dunlin_shape bad[] = {{1, {5}}, {2, {3, 4}}, {3, {3, 4, 4}}, {4, {2, 1, 4, 4}}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        node = make_node(&net, DUNLIN_OP_ATTENTION, &x, 1);
        node->u.attention = (dunlin_net_attention){.heads = 2, .scale = 1.0F};
        node->params[0] = make_param(&net, &bad[i], DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
        node->n_params = 1;
        net.params[node->params[0]].is_fixed_by_file = true;
        expect_refusal("heads, queries, keys");
    }
    node = make_node(&net, DUNLIN_OP_ATTENTION, &x, 1);
    node->u.attention = (dunlin_net_attention){.heads = 2, .scale = 1.0F};
    node->params[0] =
        make_param(&net, &(dunlin_shape){1, {4}}, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    node->n_params = 1;
    expect_refusal("and trained");
}
