/*
 * test_onnx_read.c - ONNX files that can be trained, and the reasons why others cannot be trained.
 */
#include "net_support.h"

#include <criterion/criterion.h>

#include <convert/read/onnx.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dunlin_model *open_file(const char *name)
{
    char path[512];
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    dunlin_status status = dunlin_model_open(net_onnx_path(name, path), NULL, &model, &error);
    cr_assert_eq(status, DUNLIN_OK, "%s: %s", name, error.text);
    return model;
}

static const dunlin_net_node *only_node(const dunlin_net *net, dunlin_op_kind kind)
{
    const dunlin_net_node *found = NULL;
    for (size_t i = 0; i < net->n_nodes; i++) {
        if (net->nodes[i].kind == kind) {
            cr_assert_null(found, "two nodes of kind %d", (int)kind);
            found = &net->nodes[i];
        }
    }
    cr_assert_not_null(found, "no node of kind %d", (int)kind);
    return found;
}

/* The network of class Tiny in make_onnx.py. */
static void expect_tiny(const dunlin_model *model)
{
    const char *names[] = {
        "conv.weight",        "bn.weight",         "bn.bias",      "bn.running_mean",
        "bn.running_var",     "dw.weight",         "dw_bn.weight", "dw_bn.bias",
        "dw_bn.running_mean", "dw_bn.running_var", "left.weight",  "left.bias",
        "right.weight",       "right.bias",        "fc.weight",    "fc.bias"};
    const dunlin_net *net = &model->net;
    cr_assert_eq(net->n_params, sizeof names / sizeof names[0]);
    for (size_t i = 0; i < net->n_params; i++) {
        cr_assert_str_eq(net->params[i].name, names[i]);
        cr_assert_eq(net->params[i].origin, DUNLIN_PARAM_FILE);
        bool is_statistic = strstr(names[i], "running") != NULL;
        cr_assert_eq(net->params[i].role == DUNLIN_PARAMETER_STATISTIC, is_statistic);
    }
    dunlin_shape shape = dunlin_model_input_shape(model);
    cr_assert(shape.n_dims == 3 && shape.dims[0] == 3 && shape.dims[1] == 9 && shape.dims[2] == 9);
    cr_assert_eq(dunlin_model_n_outputs(model), 5);

    /* 9x9, pooled with rounding up to 5x5, strided to 3x3; 4 + 4 channels. */
    const dunlin_net_node *pool = only_node(net, DUNLIN_OP_MAX_POOL);
    cr_assert(pool->u.pool.is_ceil && pool->u.pool.kernel_w == 2 && pool->u.pool.stride_h == 2);
    cr_assert_eq(net->values[pool->output].shape.dims[1], 5);
    const dunlin_net_node *concat = only_node(net, DUNLIN_OP_CONCAT);
    cr_assert_eq(net->values[concat->output].shape.dims[0], 8);
    cr_assert_eq(net->values[concat->output].shape.dims[1], 3);
    cr_assert_eq(only_node(net, DUNLIN_OP_DROPOUT)->u.dropout.ratio, 0.25f);
    cr_assert_eq(only_node(net, DUNLIN_OP_ADD)->n_inputs, 2);
    int n_depthwise = 0;
    int n_relu6 = 0;
    for (size_t i = 0; i < net->n_nodes; i++) {
        const dunlin_net_node *node = &net->nodes[i];
        if (node->kind == DUNLIN_OP_CONV && node->u.conv.groups == 4) {
            n_depthwise++;
            cr_assert(node->u.conv.stride_h == 2 && node->u.conv.pad_top == 1);
            cr_assert_eq(node->n_params > 1 ? node->params[1] : DUNLIN_NET_NONE, DUNLIN_NET_NONE);
        } else if (node->kind == DUNLIN_OP_CLIP) {
            bool is_relu6 = node->u.clip.high == 6.0f;
            n_relu6 += is_relu6;
            cr_assert(node->u.clip.low == 0.0f && (is_relu6 || isinf(node->u.clip.high)));
        } else if (node->kind == DUNLIN_OP_BATCH_NORM) {
            cr_assert_eq(node->u.batch_norm.momentum, 0.1f);
            cr_assert_eq(node->u.batch_norm.eps, 1e-5f);
        }
    }
    cr_assert_eq(n_depthwise, 1);
    cr_assert_eq(n_relu6, 1);
}

Test(onnx_read, exports_for_training)
{
    dunlin_model *opset13 = open_file("train13.onnx");
    dunlin_model *opset17 = open_file("train17.onnx");
    expect_tiny(opset13);
    expect_tiny(opset17);
    cr_assert_eq(opset13->net.n_nodes, opset17->net.n_nodes);
    dunlin_model_destroy(opset13);
    dunlin_model_destroy(opset17);
}

/* view(x.size(0), -1) and a dense layer without bias: shape arithmetic, Transpose and MatMul. */
Test(onnx_read, written_out_shapes)
{
    const char *files[] = {"view13.onnx", "view17.onnx"};
    for (int i = 0; i < 2; i++) {
        dunlin_model *model = open_file(files[i]);
        const dunlin_net *net = &model->net;
        cr_assert_eq(net->n_nodes, 4);
        const dunlin_net_node *flatten = only_node(net, DUNLIN_OP_FLATTEN);
        cr_assert_eq(net->values[flatten->output].shape.dims[0], 32);
        const dunlin_net_node *dense = only_node(net, DUNLIN_OP_DENSE);
        const dunlin_net_param *weight = &net->params[dense->params[0]];
        cr_assert_str_eq(weight->name, "fc.weight");
        cr_assert(weight->shape.dims[0] == 3 && weight->shape.dims[1] == 32);
        cr_assert_not(weight->is_transposed_in_file);
        dunlin_model_destroy(model);
    }
}

/* In a file for one sample Reshape's first size of one is the batch. */
Test(onnx_read, shapes_of_a_fixed_batch)
{
    dunlin_model *model = open_file("one_batch.onnx");
    const dunlin_net *net = &model->net;
    const dunlin_net_node *dense = only_node(net, DUNLIN_OP_DENSE);
    const dunlin_shape *row = &net->values[dense->inputs[0]].shape;
    cr_assert(row->n_dims == 1 && row->dims[0] == 4);
    dunlin_model_destroy(model);
}

Test(onnx_read, equal_contents_are_not_one_weight)
{
    dunlin_model *model = open_file("identity.onnx");
    const dunlin_net *net = &model->net;
    cr_assert_eq(net->n_params, 4);
    uint32_t b = net_find_param(net, "b");
    uint32_t b2 = net_find_param(net, "b2");
    cr_assert_neq(b, b2);
    cr_assert_eq(net->params[b].file_offset, net->params[b2].file_offset);
    cr_assert_eq(net->nodes[0].params[1], b);
    cr_assert_eq(net->nodes[1].params[1], b2);
    dunlin_model_destroy(model);
}

Test(onnx_read, nodes_that_do_nothing)
{
    dunlin_model *model = open_file("nothing.onnx");
    const dunlin_net *net = &model->net;
    cr_assert_eq(net->n_nodes, 3); /* flatten of a row, dense, clip */
    const dunlin_net_node *clip = only_node(net, DUNLIN_OP_CLIP);
    cr_assert(isinf(clip->u.clip.low) && clip->u.clip.low < 0.0f && clip->u.clip.high == 6.0f);
    dunlin_model_destroy(model);
}

Test(onnx_read, storage)
{
    dunlin_model *b0 = open_file("trans_b0.onnx");
    dunlin_model *b1 = open_file("trans_b1.onnx");
    const dunlin_net_param *w0 = &b0->net.params[net_find_param(&b0->net, "w")];
    const dunlin_net_param *w1 = &b1->net.params[net_find_param(&b1->net, "w")];
    cr_assert(w0->is_transposed_in_file && !w1->is_transposed_in_file);
    cr_assert(w0->shape.dims[0] == 3 && w0->shape.dims[1] == 4);
    cr_assert(w1->shape.dims[0] == 3 && w1->shape.dims[1] == 4);
    dunlin_model_destroy(b0);
    dunlin_model_destroy(b1);

    dunlin_model *external = open_file("external.onnx");
    const dunlin_net_param *w = &external->net.params[net_find_param(&external->net, "w")];
    const dunlin_net_param *b = &external->net.params[net_find_param(&external->net, "b")];
    cr_assert_not_null(strstr(w->weights_path, "/external.bin"));
    cr_assert_eq(w->file_offset, 64);
    cr_assert_eq(b->file_offset, 64 + 48);
    dunlin_model_destroy(external);
}

Test(onnx_read, leaky_relu_has_its_factor_or_the_default)
{
    dunlin_model *model = open_file("leaky.onnx");
    const dunlin_net *net = &model->net;
    cr_assert_eq(net->n_nodes, 4);
    for (int i = 0; i < 2; i++) {
        const dunlin_net_node *node = &net->nodes[1 + 2 * i];
        cr_assert(node->kind == DUNLIN_OP_UNARY && node->u.unary.fn == DUNLIN_UNARY_LEAKY_RELU);
        cr_expect_eq(node->u.unary.a, i == 0 ? 0.25f : 0.01f, "node %d", i);
    }
    dunlin_model_destroy(model);
}

static void expect_function(const dunlin_net *net, const char *name, dunlin_unary_fn fn, float a,
                            float b)
{
    for (size_t i = 0; i < net->n_nodes; i++) {
        const dunlin_net_node *node = &net->nodes[i];
        if (strcmp(node->name, name) == 0) {
            cr_expect(node->kind == DUNLIN_OP_UNARY && node->u.unary.fn == fn, "%s", name);
            cr_expect(node->u.unary.a == a && node->u.unary.b == b, "%s: %g, %g", name,
                      (double)node->u.unary.a, (double)node->u.unary.b);
            return;
        }
    }
    cr_expect_fail("there is no node %s", name);
}

Test(onnx_read, functions_of_one_element)
{
    static const struct {
        const char *name;
        dunlin_unary_fn fn;
        float a, b;
    } wanted[] = {{"sigmoid", DUNLIN_UNARY_SIGMOID, 0.0F, 0.0F},
                  {"hard_sigmoid", DUNLIN_UNARY_HARD_SIGMOID, 0.2F, 0.5F},
                  {"hard_sigmoid_given", DUNLIN_UNARY_HARD_SIGMOID, 0.25F, 0.75F},
                  {"hard_swish", DUNLIN_UNARY_HARD_SWISH, 0.0F, 0.0F},
                  {"silu", DUNLIN_UNARY_SILU, 0.0F, 0.0F},
                  {"silu_turned", DUNLIN_UNARY_SILU, 0.0F, 0.0F},
                  {"hard_swish_13", DUNLIN_UNARY_HARD_SWISH, 0.0F, 0.0F},
                  {"elu", DUNLIN_UNARY_ELU, 1.0F, 0.0F},
                  {"elu_given", DUNLIN_UNARY_ELU, 0.5F, 0.0F},
                  {"selu", DUNLIN_UNARY_SELU, 1.6732632F, 1.050701F},
                  {"selu_given", DUNLIN_UNARY_SELU, 1.5F, 2.0F},
                  {"celu", DUNLIN_UNARY_CELU, 1.0F, 0.0F},
                  {"softplus", DUNLIN_UNARY_SOFTPLUS, 0.0F, 0.0F},
                  {"softsign", DUNLIN_UNARY_SOFTSIGN, 0.0F, 0.0F},
                  {"mish", DUNLIN_UNARY_MISH, 0.0F, 0.0F},
                  {"abs", DUNLIN_UNARY_ABS, 0.0F, 0.0F},
                  {"exp", DUNLIN_UNARY_EXP, 0.0F, 0.0F},
                  {"log", DUNLIN_UNARY_LOG, 0.0F, 0.0F},
                  {"sin", DUNLIN_UNARY_SIN, 0.0F, 0.0F},
                  {"cos", DUNLIN_UNARY_COS, 0.0F, 0.0F},
                  {"threshold", DUNLIN_UNARY_THRESHOLD, 1.0F, 0.0F},
                  {"negative", DUNLIN_UNARY_AFFINE, -1.0F, 0.0F},
                  {"inverse", DUNLIN_UNARY_POWER, -1.0F, 0.0F},
                  {"power", DUNLIN_UNARY_POWER, 2.3F, 0.0F},
                  {"two_to", DUNLIN_UNARY_EXP, 0.0F, 0.0F},
                  {"two_to/product", DUNLIN_UNARY_AFFINE, 0.6931472F, 0.0F},
                  {"hard_swish_10", DUNLIN_UNARY_HARD_SWISH, 0.0F, 0.0F},
                  {"hard_sigmoid_10", DUNLIN_UNARY_HARD_SIGMOID, (float)(1.0 / 6.0), 0.5F},
                  {"hard_swish_relu6", DUNLIN_UNARY_HARD_SWISH, 0.0F, 0.0F},
                  {"hard_gate_relu6", DUNLIN_UNARY_HARD_SWISH, 0.0F, 0.0F},
                  {"gate", DUNLIN_UNARY_SIGMOID, 0.0F, 0.0F}};
    const size_t n = sizeof wanted / sizeof wanted[0];
    dunlin_model *model = open_file("functions.onnx");
    for (size_t i = 0; i < n; i++) {
        expect_function(&model->net, wanted[i].name, wanted[i].fn, wanted[i].a, wanted[i].b);
    }
    static const struct {
        const char *name;
        float low, high;
    } bounds[] = {{"least", -0.5F, INFINITY},
                  {"most", -INFINITY, 0.5F},
                  {"within", 0.0F, INFINITY},
                  {"apart", -2.0F, -1.0F}};
    /* Dense layers, what is listed (one of two nodes), bounds (the last two of one form), and of
     * the last form two nodes more. */
    cr_expect_eq(model->net.n_nodes, 2 * n + 2 * 2 + 3 + 2 - 1);
    for (size_t i = 0, k = 0; i < model->net.n_nodes; i++) {
        const dunlin_net_node *node = &model->net.nodes[i];
        if (node->kind == DUNLIN_OP_CLIP) {
            cr_assert_lt(k, sizeof bounds / sizeof bounds[0]);
            cr_expect_str_eq(node->name, bounds[k].name);
            cr_expect_eq(node->u.clip.low, bounds[k].low);
            cr_expect_eq(node->u.clip.high, bounds[k].high);
            k++;
        }
    }
    dunlin_model_destroy(model);
    model = open_file("mish18.onnx");
    expect_function(&model->net, "mish", DUNLIN_UNARY_MISH, 0.0F, 0.0F);
    dunlin_model_destroy(model);
}

/* keras2onnx lists nodes in no order. */
Test(onnx_read, nodes_in_no_order)
{
    const char *names[] = {"fc1", "relu", "fc2"};
    dunlin_model *model = open_file("disorder.onnx");
    cr_assert_eq(model->net.n_nodes, 3);
    for (int i = 0; i < 3; i++) {
        cr_expect_str_eq(model->net.nodes[i].name, names[i]);
    }
    dunlin_model_destroy(model);
}

Test(onnx_read, options_that_were_attributes)
{
    dunlin_model *model = open_file("aged9.onnx");
    const dunlin_net *net = &model->net;
    cr_expect_eq(only_node(net, DUNLIN_OP_DROPOUT)->u.dropout.ratio, 0.25f);
    for (size_t i = 0; i < net->n_params; i++) {
        cr_expect(net->params[i].name[0] >= ' ', "an attribute has become a parameter");
    }
    dunlin_model_destroy(model);
}

Test(onnx_read, prelu)
{
    static const struct {
        const char *name, *param;
        int32_t axis;
    } wanted[] = {{"spread", "s", 0}, {"stored", "t", 0}, {"one", "one", 0}, {"row", "r", 0}};
    dunlin_model *model = open_file("prelu.onnx");
    const dunlin_net *net = &model->net;
    size_t n = 0;
    for (size_t i = 0; i < net->n_nodes; i++) {
        const dunlin_net_node *node = &net->nodes[i];
        if (node->kind == DUNLIN_OP_PRELU) {
            cr_assert_lt(n, 4);
            cr_expect_str_eq(node->name, wanted[n].name);
            cr_expect_str_eq(net->params[node->params[0]].name, wanted[n].param);
            cr_expect_eq(node->u.prelu.axis, wanted[n].axis, "%s", node->name);
            cr_expect(net->params[node->params[0]].is_trained_by_default, "%s", node->name);
            n++;
        }
    }
    cr_assert_eq(n, 4);
    dunlin_model_destroy(model);
}

Test(onnx_read, group_norm_of_opset_21)
{
    dunlin_model *model = open_file("norm_opset21.onnx");
    const dunlin_net_node *norm = only_node(&model->net, DUNLIN_OP_GROUP_NORM);
    cr_assert(norm->u.group_norm.groups == 2 && norm->u.group_norm.eps == 1e-5f);
    cr_assert_str_eq(model->net.params[norm->params[0]].name, "s");
    dunlin_model_destroy(model);
}

/* --- the list --- */

typedef struct listed {
    int n;
    char lines[16][160];
} listed;

static void list(void *ctx, const dunlin_model_issue *issue)
{
    listed *all = ctx;
    cr_assert_lt(all->n, 16);
    (void)snprintf(all->lines[all->n++], sizeof all->lines[0], "%s/%s/%s: %s", issue->node,
                   issue->op, issue->attribute, issue->reason);
}

Test(onnx_check, lists_everything_at_once)
{
    const char *wanted[] = {
        "/model/opset_import: opset 22",
        "hardmax/Hardmax/: ",
        "if/If/else_branch: control",
        "mish/Mish/: its domain",
    };
    const int n_wanted = (int)(sizeof wanted / sizeof wanted[0]);
    char path[512];
    listed all = {0};
    int32_t n = 0;
    dunlin_error error = {0};
    net_onnx_path("many.onnx", path);
    cr_assert_eq(dunlin_model_check(path, NULL, list, &all, &n, &error), DUNLIN_OK);
    cr_assert_eq(error.status, DUNLIN_OK);
    cr_assert_eq(n, n_wanted);
    cr_assert_eq(all.n, n_wanted);
    for (int i = 0; i < n_wanted; i++) {
        cr_expect_eq(strncmp(all.lines[i], wanted[i], strlen(wanted[i])), 0, "'%s' is not '%s'",
                     all.lines[i], wanted[i]);
    }
    /* Opening names the first, and how many. */
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_open(path, NULL, &model, &error), DUNLIN_UNSUPPORTED);
    net_expect_line(&error, DUNLIN_UNSUPPORTED, "many");
    cr_assert_not_null(strstr(error.text, "opset 22"));
    cr_assert_not_null(strstr(error.text, "4 in all"));
    cr_assert_null(model);
}

typedef struct groups {
    int n;
    char first[2][200], way[2][200];
    int32_t n_nodes[2];
} groups;

static void take_group(void *ctx, const dunlin_model_issue *issue)
{
    groups *all = ctx;
    if (all->n < 2) {
        (void)snprintf(all->first[all->n], sizeof all->first[0], "%s/%s: %s", issue->node,
                       issue->op, issue->reason);
        (void)snprintf(all->way[all->n], sizeof all->way[0], "%s", issue->way_out);
        all->n_nodes[all->n] = issue->n_nodes;
    }
    all->n++;
}

Test(onnx_check, issues_of_a_kind_are_counted)
{
    char path[512];
    groups all = {0};
    int32_t n = 0;
    cr_assert_eq(
        dunlin_model_check(net_onnx_path("crowded.onnx", path), NULL, take_group, &all, &n, NULL),
        DUNLIN_OK);
    cr_assert(n == 31 && all.n == 31, "%d, %d", (int)n, all.n);
    cr_expect_str_eq(all.first[0], "/model: opset 8 is too old; 9 to 21 are read");
    cr_expect_not_null(strstr(all.way[0], "export again with opset 9 or later"), "%s", all.way[0]);
    cr_expect_str_eq(all.first[1], "up1/RoiAlign: the operator is not supported");
    cr_expect(all.n_nodes[0] == 1 && all.n_nodes[1] == 12);
    cr_expect_str_eq(all.way[1], "");

    all = (groups){0};
    cr_assert_eq(
        dunlin_model_check(net_onnx_path("halves.onnx", path), NULL, take_group, &all, &n, NULL),
        DUNLIN_OK);
    cr_assert(n == 1 && all.n == 1, "%d, %d", (int)n, all.n);
    cr_expect_str_eq(all.first[0], "fc0/Gemm: 'v0' is not float32");
    cr_expect_eq(all.n_nodes[0], 3);
    cr_expect_str_eq(all.way[0], "export in float32");
}

Test(onnx_check, nothing_to_list)
{
    char path[512];
    listed all = {0};
    int32_t n = -1;
    cr_assert_eq(
        dunlin_model_check(net_onnx_path("train17.onnx", path), NULL, list, &all, &n, NULL),
        DUNLIN_OK);
    cr_assert(n == 0 && all.n == 0);
    /* Without a listener they are counted. */
    cr_assert_eq(dunlin_model_check(net_onnx_path("many.onnx", path), NULL, NULL, NULL, &n, NULL),
                 DUNLIN_OK);
    cr_assert_eq(n, 4);
    cr_assert_eq(dunlin_model_check(NULL, NULL, list, &all, &n, NULL), DUNLIN_ARGUMENT);
    cr_assert_eq(dunlin_model_check(path, NULL, list, &all, NULL, NULL), DUNLIN_ARGUMENT);
}

Test(onnx_check, one_issue_each)
{
    const struct {
        const char *file;
        const char *line;
    } cases[] = {
        {"opset8.onnx", "/model/opset_import: opset 8"},
        {"opset22.onnx", "/model/opset_import: opset 22"},
        {"norm_broken.onnx", "relu/Relu/: it reads a part of what can only be a group norm"},
        {"norm_scaled.onnx", "norm/InstanceNormalization/: it reads a part"},
        {"norm_opset18.onnx", "norm/GroupNormalization/num_groups: below opset 21"},
        {"powers.onnx", "powers/Pow/: its exponent is not one constant"},
        {"prelu_wide.onnx", "wide/PRelu/: its slopes are not for one dimension"},
        {"depth_unscaled.onnx",
         "depth1/Mul/: what is kept with a chance of 0.75 is multiplied by 1,"},
        {"split_less.onnx", "split/Split/split: leaves 1 of 4"},
        {"split_more.onnx", "split/Split/split: part 1 of 2"},
        {"split_count.onnx", "split/Split/split: is not a constant"},
        {"mean_batch.onnx", "mean/ReduceMean/axes: has 0"},
        {"dynamic.onnx", "/model/input: dimension 1 of input 'x'"},
        {"rank.onnx", "fc/Gemm/: Gemm takes one row"},
        {"attribute.onnx", "fc/Gemm/fancy: "},
        {"shared_table.onnx",
         "table/Gather/: 'w' is the weight of another layer too, which reads it transposed"},
        {"unknown_name.onnx", "/model/dunlin.trained: names 'gone', which"},
        {"half.onnx", "fc/Gemm/: 'w' is not float32"},
        {"shape.onnx", "fc/Gemm/: "},
        {"other_batch.onnx", "flat/Reshape/shape: only shapes that keep the batch"},
        {"below_zero.onnx", "fill/ConstantOfShape/: dimension 0 would have size -4294967287"},
        {"weights_added.onnx", "fc/Gemm/: input 1 is computed from stored weights"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        listed all = {0};
        int32_t n = 0;
        net_onnx_path(cases[i].file, path);
        cr_expect_eq(dunlin_model_check(path, NULL, list, &all, &n, NULL), DUNLIN_OK);
        cr_expect_eq(n, 1, "%s", cases[i].file);
        cr_expect_eq(strncmp(all.lines[0], cases[i].line, strlen(cases[i].line)), 0,
                     "%s: '%s' is not '%s'", cases[i].file, all.lines[0], cases[i].line);
        dunlin_model *model = NULL;
        dunlin_error error = {0};
        cr_expect_eq(dunlin_model_open(path, NULL, &model, &error), DUNLIN_UNSUPPORTED);
        net_expect_line(&error, DUNLIN_UNSUPPORTED, cases[i].file);
    }
}

Test(onnx_read, survives_every_failed_allocation)
{
    const char *files[] = {"train17.onnx", "view17.onnx",   "many.onnx",     "external.onnx",
                           "forms18.onnx", "groups13.onnx", "mirrored.onnx", "pieces.onnx"};
    char path[512];
    for (int f = 0; f < 8; f++) {
        net_onnx_path(files[f], path);
        dunlin_status status = DUNLIN_MEMORY;
        for (int64_t n = 1; status == DUNLIN_MEMORY && n < 2000; n++) {
            net_failing failing;
            dunlin_model *model = NULL;
            dunlin_error error = {0};
            net_failing_init(&failing, n);
            status = dunlin_model_open(path, &failing.hooks, &model, &error);
            dunlin_model_destroy(model);
            cr_assert_eq(failing.n_live, 0, "%s: allocation %lld leaks", files[f], (long long)n);
            if (status != DUNLIN_OK) {
                net_expect_line(&error, status, files[f]);
            }
        }
        cr_assert_eq(status, f == 2 ? DUNLIN_UNSUPPORTED : DUNLIN_OK, "%s", files[f]);
    }
}
