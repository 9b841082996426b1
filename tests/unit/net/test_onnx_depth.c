/*
 * test_onnx_depth.c - stochastic depth that a file writes out.
 */
#include "net_support.h"

#include <criterion/criterion.h>

/* As exporters write it out, and as it was written by hand; the quotient before it is gone. */
Test(onnx_depth, is_one_node)
{
    char path[512];
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_open(net_onnx_path("depth.onnx", path), NULL, &model, NULL),
                 DUNLIN_OK);
    const dunlin_net *net = &model->net;
    const float ratios[] = {0.25F, 0.5F};
    int n = 0;
    for (size_t i = 0; i < net->n_nodes; i++) {
        const dunlin_net_node *node = &net->nodes[i];
        cr_assert_neq(node->kind, DUNLIN_OP_UNARY, "%s is left", node->name);
        if (node->kind == DUNLIN_OP_DROPOUT) {
            cr_assert(n < 2 && node->u.dropout.is_whole, "%s", node->name);
            cr_expect_eq(node->u.dropout.ratio, ratios[n++]);
        }
    }
    cr_expect_eq(n, 2);
    dunlin_model_destroy(model);
}
