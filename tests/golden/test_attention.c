/*
 * test_attention.c - attention that looks back, shares keys or adds a mask to all samples, against
 * PyTorch in float64 (make_attention.py).
 */
#include "op_check.h"
#include "ops/table/infer.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

#include <math.h>

static dunlin_net *net;

static void open_all(void)
{
    net = op_check_open("attention.golden");
}

TestSuite(golden_attention, .init = open_all, .fini = op_check_close);

static uint32_t infer_last(void)
{
    dunlin_error error = {0};
    const uint32_t index = (uint32_t)net->n_nodes - 1;
    const dunlin_status status = dunlin__net_infer_node(net, index, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    return net->nodes[index].output;
}

/* `shape` of the mask that all samples share; NULL: none. */
static void check_attention(const char *name, int64_t tokens, int64_t width,
                            const dunlin_net_attention *attention, const dunlin_shape *shape)
{
    const int64_t kv_heads = attention->kv_heads == 0 ? attention->heads : attention->kv_heads;
    const int64_t columns = (attention->heads + 2 * kv_heads) * width;
    const uint32_t rows = op_check_begin(name);
    make_node(net, DUNLIN_OP_RESHAPE, &rows, 1)->u.reshape.shape =
        (dunlin_shape){2, {tokens, columns}};
    const uint32_t x = infer_last();
    dunlin_net_node *node = make_node(net, DUNLIN_OP_ATTENTION, &x, 1);
    node->u.attention = *attention;
    node->u.attention.scale = (float)(1.0 / sqrt((double)width));
    if (shape != NULL) {
        node->params[0] = make_param(net, shape, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
        node->n_params = 1;
        net->params[node->params[0]].is_fixed_by_file = true;
    }
    if (op_check_find(name, "cos") != NULL) {
        const dunlin_shape table = {2, {tokens, width}};
        node->params[0] = shape != NULL ? node->params[0] : DUNLIN_NET_NONE;
        for (uint32_t slot = 1; slot <= 2; slot++) {
            node->params[slot] =
                make_param(net, &table, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
            net->params[node->params[slot]].is_fixed_by_file = true;
        }
        node->n_params = 3;
    }
    op_check(name, x, infer_last());
}

/* Two whole blocks of queries and a part, one block, less than one. */
Test(golden_attention, looking_back)
{
    check_attention("causal", 100, 2, &(dunlin_net_attention){.heads = 2, .is_causal = true}, NULL);
}

Test(golden_attention, looking_back_over_one_block)
{
    check_attention("causal_block", 48, 3, &(dunlin_net_attention){.heads = 1, .is_causal = true},
                    NULL);
}

Test(golden_attention, looking_back_over_few_tokens)
{
    check_attention("causal_few", 5, 2, &(dunlin_net_attention){.heads = 3, .is_causal = true},
                    NULL);
}

Test(golden_attention, shared_keys)
{
    check_attention("shared_keys", 7, 3, &(dunlin_net_attention){.heads = 6, .kv_heads = 2}, NULL);
}

Test(golden_attention, shared_keys_looking_back)
{
    check_attention("shared_causal", 50, 2,
                    &(dunlin_net_attention){.heads = 4, .kv_heads = 1, .is_causal = true}, NULL);
}

Test(golden_attention, rotary_positions)
{
    check_attention("rotary", 20, 6,
                    &(dunlin_net_attention){.heads = 4, .kv_heads = 2, .is_causal = true}, NULL);
}

Test(golden_attention, a_mask_of_keys)
{
    check_attention("fixed_keys", 6, 3, &(dunlin_net_attention){.heads = 2},
                    &(dunlin_shape){1, {6}});
}

Test(golden_attention, a_mask_of_rows)
{
    check_attention("fixed_rows", 6, 3, &(dunlin_net_attention){.heads = 2},
                    &(dunlin_shape){2, {6, 6}});
}

Test(golden_attention, a_mask_of_heads)
{
    check_attention("fixed_heads", 9, 2,
                    &(dunlin_net_attention){.heads = 4, .kv_heads = 2, .is_causal = true},
                    &(dunlin_shape){3, {4, 9, 9}});
}
