/*
 * test_rows.c - the table of operators, shapes by hand, refusals, and what each row puts into a
 * graph.
 */
#include "check_net.h"
#include "ops/common/op.h"
#include "ops/table/infer.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

#include <math.h>
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

TestSuite(rows, .init = open_net, .fini = close_net);

Test(rows, table_is_complete)
{
    for (int kind = 0; kind < DUNLIN_OP_N_KINDS; kind++) {
        const dunlin_op_row *row = dunlin__op_row((dunlin_op_kind)kind);
        cr_assert_not_null(row);
        cr_assert_eq(row->kind, (dunlin_op_kind)kind);
        cr_assert(row->infer_fn && row->from_onnx_fn && row->to_onnx_fn && row->forward_fn &&
                  row->backward_fn);
        for (const char *const *name = row->onnx_names; *name != NULL; name++) {
            cr_assert_eq(dunlin__op_row_for_onnx(*name), row, "%s", *name);
        }
    }
    cr_assert_null(dunlin__op_row(DUNLIN_OP_N_KINDS));
    cr_assert_null(dunlin__op_row_for_onnx("LSTM"));
}

static void expect_shape(uint32_t value, int32_t n_dims, int64_t c, int64_t h, int64_t w)
{
    const dunlin_net_value *v = &net.values[value];
    cr_assert_eq(v->shape.n_dims, n_dims);
    cr_assert_eq(v->shape.dims[0], c, "%s: %lld channels", v->name, (long long)v->shape.dims[0]);
    cr_assert_eq(v->layout, n_dims == 3 ? DUNLIN_LAYOUT_IMAGE : DUNLIN_LAYOUT_PLAIN);
    if (n_dims == 3) {
        cr_assert_eq(v->shape.dims[1], h, "%s: height %lld", v->name, (long long)v->shape.dims[1]);
        cr_assert_eq(v->shape.dims[2], w, "%s: width %lld", v->name, (long long)v->shape.dims[2]);
    }
}

Test(rows, shapes_by_hand)
{
    uint32_t x = make_input(&net, 3, 32, 31);
    dunlin_net_conv conv = {.kernel_h = 3,
                            .kernel_w = 5,
                            .stride_h = 2,
                            .stride_w = 2,
                            .pad_top = 1,
                            .pad_left = 2,
                            .pad_bottom = 0,
                            .pad_right = 1};
    uint32_t a = make_conv(&net, x, 8, &conv, true);
    expect_shape(a, 3, 8, 16, 15); /* (32 + 1 - 3) / 2 + 1; (31 + 3 - 5) / 2 + 1 */
    conv = (dunlin_net_conv){.kernel_h = 3, .kernel_w = 3, .dilation_h = 3, .dilation_w = 2};
    expect_shape(make_conv(&net, a, 4, &conv, false), 3, 4, 10, 11);
    dunlin_net_pool pool = {.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2};
    expect_shape(make_pool(&net, a, DUNLIN_OP_MAX_POOL, &pool), 3, 8, 7, 7);
    pool.is_ceil = true;
    expect_shape(make_pool(&net, a, DUNLIN_OP_MAX_POOL, &pool), 3, 8, 8, 7);
    expect_shape(make_global_pool(&net, a), 3, 8, 1, 1);
    expect_shape(make_concat(&net, (uint32_t[]){a, a, a}, 3), 3, 24, 16, 15);
    expect_shape(make_flatten(&net, a), 1, 8 * 16 * 15, 0, 0);
    uint32_t row = make_flatten(&net, a);
    expect_shape(make_concat(&net, (uint32_t[]){row, row}, 2), 1, 2 * 8 * 16 * 15, 0, 0);
    expect_shape(make_dense(&net, row, 10, true), 1, 10, 0, 0);
    expect_shape(make_dropout(&net, a, 0.5F), 3, 8, 16, 15);
    expect_shape(make_add(&net, a, make_clip(&net, a, 0.0F, 6.0F)), 3, 8, 16, 15);
}

/* PyTorch drops a last window that would start in the padding after the image. */
Test(rows, ceil_windows_start_in_the_image)
{
    uint32_t x = make_input(&net, 1, 5, 4);
    dunlin_net_pool pool = {.kernel_h = 2,
                            .kernel_w = 2,
                            .stride_h = 3,
                            .stride_w = 3,
                            .pad_top = 1,
                            .pad_left = 1,
                            .pad_bottom = 1,
                            .pad_right = 1,
                            .is_ceil = true};
    /* height: 5 + 2 - 2 = 5, 5 / 3 rounds up to a third window at row 6 - 1 = 5: not in the image;
     * width: 4 + 2 - 2 = 4: a third one at column 5: neither. */
    expect_shape(make_pool(&net, x, DUNLIN_OP_AVERAGE_POOL, &pool), 3, 1, 2, 2);
}

/* The last node must be refused, with its name and `part` in the text. */
static void expect_refusal(const char *part)
{
    dunlin_error error = {0};
    dunlin_status status = dunlin__net_infer_node(&net, (uint32_t)net.n_nodes - 1, &error);
    cr_assert_eq(status, DUNLIN_MODEL, "wanted: %s", part);
    cr_assert_not_null(strstr(error.text, net.nodes[net.n_nodes - 1].name), "%s", error.text);
    cr_assert_not_null(strstr(error.text, part), "%s", error.text);
}

static dunlin_net_node *add_conv(uint32_t x, const dunlin_shape *weight)
{
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_CONV, &x, 1);
    node->u.conv = (dunlin_net_conv){.out_channels = (int32_t)weight->dims[0],
                                     .kernel_h = (int32_t)weight->dims[2],
                                     .kernel_w = (int32_t)weight->dims[3],
                                     .stride_h = 1,
                                     .stride_w = 1,
                                     .dilation_h = 1,
                                     .dilation_w = 1,
                                     .groups = 1};
    node->params[0] = make_param(&net, weight, DUNLIN_PARAM_CONV, DUNLIN_PARAMETER_TRAINABLE);
    node->n_params = 1;
    return node;
}

static dunlin_net_node *add_group_norm(uint32_t x, int64_t channels, int32_t groups, float eps)
{
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_GROUP_NORM, &x, 1);
    const dunlin_shape shape = {1, {channels}};
    for (uint32_t i = 0; i < 2; i++) {
        node->params[i] = make_param(&net, &shape, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    }
    node->n_params = 2;
    node->u.group_norm.groups = groups;
    node->u.group_norm.eps = eps;
    return node;
}

Test(rows, group_norm_refuses)
{
    uint32_t image = make_input(&net, 6, 4, 4);
    uint32_t row = make_flatten(&net, image);
    add_group_norm(row, 96, 2, 1e-5F);
    expect_refusal("needs an image");
    add_group_norm(image, 6, 4, 1e-5F);
    expect_refusal("6 channels do not divide into 4 groups");
    add_group_norm(image, 6, 0, 1e-5F);
    expect_refusal("into 0 groups");
    add_group_norm(image, 6, 3, 0.0F);
    expect_refusal("epsilon 0 must be in (0, 1]");
    add_group_norm(image, 3, 3, 1e-5F);
    expect_refusal("is (3), must be (6)");
    add_group_norm(image, 6, 3, 1e-5F)->n_params = 1;
    expect_refusal("lacks parameter 1");
}

Test(rows, convolution_refuses)
{
    uint32_t image = make_input(&net, 4, 6, 6);
    uint32_t row = make_flatten(&net, image);
    add_conv(row, &(dunlin_shape){4, {2, 4, 3, 3}});
    expect_refusal("needs an image");
    add_conv(image, &(dunlin_shape){4, {2, 4, 7, 3}});
    expect_refusal("spans 7 in height, the padded image has only 6");
    add_conv(image, &(dunlin_shape){4, {2, 4, 3, 3}})->u.conv.groups = 3;
    expect_refusal("3 groups must divide 4 input and 2 output channels");
    add_conv(image, &(dunlin_shape){4, {2, 3, 3, 3}});
    expect_refusal("is (2, 3, 3, 3), must be (2, 4, 3, 3)");
    dunlin_net_node *node = add_conv(image, &(dunlin_shape){4, {2, 4, 3, 3}});
    node->params[1] =
        make_param(&net, &(dunlin_shape){1, {3}}, DUNLIN_PARAM_PLAIN, DUNLIN_PARAMETER_TRAINABLE);
    node->n_params = 2;
    expect_refusal("is (3), must be (2)");
    add_conv(image, &(dunlin_shape){4, {2, 4, 3, 3}})->params[0] = DUNLIN_NET_NONE;
    expect_refusal("lacks parameter 0");
    add_conv(image, &(dunlin_shape){4, {2, 4, 3, 3}})->n_inputs = 2;
    expect_refusal("has 2 inputs, needs 1");
}

Test(rows, dense_refuses)
{
    uint32_t image = make_input(&net, 4, 6, 6);
    make_node(&net, DUNLIN_OP_DENSE, &image, 1);
    expect_refusal("flatten it first");
    uint32_t row = make_flatten(&net, image);
    make_node(&net, DUNLIN_OP_DENSE, &row, 1);
    expect_refusal("lacks its weight");
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_DENSE, &row, 1);
    node->n_params = 1;
    node->params[0] = make_param(&net, &(dunlin_shape){2, {10, 143}}, DUNLIN_PARAM_DENSE,
                                 DUNLIN_PARAMETER_TRAINABLE);
    expect_refusal("is (10, 143), must be (10, 144)");
}

static dunlin_net_node *add_batch_norm(uint32_t x, int64_t channels)
{
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_BATCH_NORM, &x, 1);
    node->n_params = 4;
    node->u.batch_norm = (dunlin_net_batch_norm){1e-5F, 0.1F};
    for (int i = 0; i < 4; i++) {
        node->params[i] = make_param(&net, &(dunlin_shape){1, {channels}}, DUNLIN_PARAM_PLAIN,
                                     DUNLIN_PARAMETER_TRAINABLE);
    }
    return node;
}

Test(rows, batch_norm_refuses)
{
    uint32_t image = make_input(&net, 4, 6, 6);
    add_batch_norm(image, 5);
    expect_refusal("is (5), must be (4)");
    add_batch_norm(image, 4)->u.batch_norm.eps = 0.0F;
    expect_refusal("epsilon 0 must be");
    add_batch_norm(image, 4)->u.batch_norm.momentum = NAN;
    expect_refusal("momentum");
    add_batch_norm(image, 4)->n_params = 3;
    expect_refusal("lacks parameter 3");
}

static void add_pool(uint32_t x, dunlin_op_kind kind, int32_t kernel, int32_t padding)
{
    make_node(&net, kind, &x, 1)->u.pool = (dunlin_net_pool){
        .kernel_h = kernel, .kernel_w = kernel, .stride_h = 1, .stride_w = 1, .pad_left = padding};
}

Test(rows, pooling_refuses)
{
    uint32_t image = make_input(&net, 4, 20, 20);
    add_pool(image, DUNLIN_OP_MAX_POOL, 16, 0);
    expect_refusal("16x16 has more than 255 pixels");
    add_pool(image, DUNLIN_OP_AVERAGE_POOL, 3, 3);
    expect_refusal("padding must be smaller");
    add_pool(image, DUNLIN_OP_AVERAGE_POOL, 21, 0);
    expect_refusal("spans 21 in height");
    uint32_t row = make_flatten(&net, image);
    make_node(&net, DUNLIN_OP_GLOBAL_AVERAGE_POOL, &row, 1);
    expect_refusal("needs an image");
}

Test(rows, the_others_refuse)
{
    uint32_t image = make_input(&net, 4, 6, 6);
    uint32_t other = make_global_pool(&net, image);
    uint32_t row = make_flatten(&net, image);
    make_node(&net, DUNLIN_OP_ADD, (uint32_t[]){image, other}, 2);
    expect_refusal("adds (4, 6, 6) and (4, 1, 1)");
    make_node(&net, DUNLIN_OP_ADD, &image, 1);
    expect_refusal("has 1 inputs, needs 2");
    make_node(&net, DUNLIN_OP_CONCAT, (uint32_t[]){image, other}, 2);
    expect_refusal("joins (4, 6, 6) and (4, 1, 1)");
    make_node(&net, DUNLIN_OP_CONCAT, (uint32_t[]){row, image}, 2);
    expect_refusal("joins (144) and (4, 6, 6)");
    dunlin_net_node *clip = make_node(&net, DUNLIN_OP_CLIP, &image, 1);
    clip->u.clip.low = 6.0F;
    clip->u.clip.high = 6.0F;
    expect_refusal("the range is empty");
    make_node(&net, DUNLIN_OP_DROPOUT, &image, 1)->u.dropout.ratio = 1.0F;
    expect_refusal("probability 1");
    make_node(&net, DUNLIN_OP_DROPOUT, &image, 1)->u.dropout.ratio = NAN;
    expect_refusal("probability");
}

/* --- what is put into a graph --- */

static size_t count_ops(const dunlin_step_graph *graph, const char *kernel)
{
    size_t n = 0;
    for (size_t i = 0; i < graph->n_ops; i++) {
        n += strcmp(graph->ops[i].kernel->name, kernel) == 0;
    }
    return n;
}

static dunlin_step_graph *build(dunlin_emit_mode mode, const char *frozen, bool freeze_norm)
{
    dunlin_error error = {0};
    dunlin_step_graph *graph = NULL;
    dunlin_step_build_options options = {
        .mode = mode, .frozen_prefixes = frozen, .freeze_batch_norm = freeze_norm};
    dunlin_status status = dunlin__step_build(&net, &options, NULL, &graph, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    return graph;
}

static void make_all_kinds(void)
{
    uint32_t x = make_input(&net, 2, 8, 8);
    x = make_conv(&net, x, 4, &(dunlin_net_conv){0}, true); /* param0, param1 */
    x = make_batch_norm(&net, x);                           /* param2 to param5 */
    x = make_clip(&net, x, 0.0F, 6.0F);
    x = make_pool(&net, x, DUNLIN_OP_MAX_POOL,
                  &(dunlin_net_pool){.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2});
    x = make_dropout(&net, x, 0.5F);
    x = make_global_pool(&net, x);
    make_end(&net, make_dense(&net, make_flatten(&net, x), 3, true)); /* param6, param7 */
}

Test(rows, training_emits_what_is_needed)
{
    make_all_kinds();
    dunlin_step_graph *graph = build(DUNLIN_EMIT_TRAIN, NULL, false);
    cr_assert_eq(count_ops(graph, "conv"), 2);
    cr_assert_eq(count_ops(graph, "conv_weight_grad"), 2);
    cr_assert_eq(count_ops(graph, "conv_input_grad"), 1, "the first one's input needs none");
    cr_assert_eq(count_ops(graph, "dropout"), 2);
    cr_assert_eq(count_ops(graph, "norm_sums"), 1);
    cr_assert_eq(count_ops(graph, "norm_grad_apply"), 1);
    cr_assert_eq(count_ops(graph, "transpose"), 0, "one pixel needs no change of order");
    cr_assert_str_eq(graph->ops[graph->n_ops - 1].kernel->name, "norm_commit");
    dunlin__step_graph_destroy(graph);
}

Test(rows, frozen_parts_emit_nothing_backward)
{
    make_all_kinds();
    dunlin_step_graph *graph = build(DUNLIN_EMIT_TRAIN, "param0,param1,param2,param3", true);
    cr_assert_eq(count_ops(graph, "conv_weight_grad"), 1);
    cr_assert_eq(count_ops(graph, "conv_input_grad"), 0);
    cr_assert_eq(count_ops(graph, "max_pool_grad"), 0);
    cr_assert_eq(count_ops(graph, "norm_sums"), 0);
    cr_assert_eq(count_ops(graph, "norm_commit"), 0);
    for (size_t i = 0; i < graph->n_tensors; i++) {
        cr_assert_neq(graph->tensors[i].dtype, DUNLIN_U8, "no index is kept for a dead gradient");
    }
    dunlin__step_graph_destroy(graph);
}

Test(rows, inference_keeps_and_drops_nothing)
{
    make_all_kinds();
    dunlin_step_graph *graph = build(DUNLIN_EMIT_INFER, NULL, false);
    cr_assert_eq(count_ops(graph, "dropout"), 0);
    cr_assert_eq(count_ops(graph, "norm_apply_running"), 1);
    cr_assert_eq(count_ops(graph, "norm_sums"), 0);
    for (size_t i = 0; i < graph->n_tensors; i++) {
        cr_assert_neq(graph->tensors[i].mem_class, DUNLIN_MEM_SAVED);
        cr_assert_neq(graph->tensors[i].mem_class, DUNLIN_MEM_GRADIENT);
    }
    dunlin__step_graph_destroy(graph);
}

/* Evaluation against the reference, with running statistics. */
Test(rows, inference_computes_the_logits)
{
    make_all_kinds();
    check_data data;
    plain_run plain;
    net_double reference;
    double loss = 0.0;
    float logits[5 * 3];
    const dunlin_step_build_options options = {.mode = DUNLIN_EMIT_INFER};
    check_data_open(&data, &net, 5, 17);
    cr_assert(plain_run_open(&plain, &net, &options, 5, NULL) == DUNLIN_OK);
    check_data_step(&data, &plain, dunlin__kernels_select(NULL), &loss);
    memcpy(logits, plain.tensors[plain.graph->logits], sizeof logits);
    net_double_open(&reference, &net, 5, data.labels);
    reference.has_running_norm = true;
    for (uint32_t p = 0; p < net.n_params; p++) {
        for (int64_t i = 0; i < net.params[p].n_elements; i++) {
            reference.params[p][i] = (double)data.params[p][i];
        }
    }
    for (int64_t i = 0; i < 5 * 2 * 64; i++) {
        reference.values[net.input][i] = (double)data.x[i];
    }
    double wanted = net_double_loss(&reference);
    cr_assert(fabs(loss - wanted) < 1e-5, "loss %g, not %g", loss, wanted);
    for (int i = 0; i < 15; i++) {
        cr_assert(fabs((double)logits[i] - reference.values[net.output][i]) < 1e-5);
    }
    net_double_close(&reference);
    plain_run_close(&plain);
    check_data_close(&data);
}

/* --- dropout's mask --- */

static void drop(uint64_t seed, int64_t step, const dunlin_net_node *node, float *out)
{
    check_data data;
    plain_run plain;
    const dunlin_step_build_options options = {.mode = DUNLIN_EMIT_TRAIN};
    check_data_open(&data, &net, 4, 1);
    cr_assert(plain_run_open(&plain, &net, &options, 4, NULL) == DUNLIN_OK);
    dunlin_step_run run = {.kernels = dunlin__kernels_select(NULL),
                           .source = &data.source,
                           .n_batch = 4,
                           .weight_sums = {4.0},
                           .seed = seed,
                           .step = step};
    for (int i = 0; i < 4 * 1000; i++) {
        data.x[i] = 1.0F;
    }
    cr_assert(plain_run_step(&plain, &run) == DUNLIN_OK);
    uint32_t tensor = plain_run_find(&plain, net.values[node->output].name);
    memcpy(out, plain.tensors[tensor], 4 * 1000 * sizeof(float));
    plain_run_close(&plain);
    check_data_close(&data);
}

Test(rows, dropout_draws_by_seed_step_and_node)
{
    static float masks[5][4000];
    uint32_t x = make_input(&net, 1000, 0, 0);
    uint32_t a = make_dropout(&net, x, 0.3F);
    uint32_t b = make_dropout(&net, x, 0.3F);
    make_end(&net, make_dense(&net, make_add(&net, a, b), 2, true));
    drop(1, 0, &net.nodes[0], masks[0]);
    drop(1, 0, &net.nodes[0], masks[1]);
    drop(1, 1, &net.nodes[0], masks[2]);
    drop(2, 0, &net.nodes[0], masks[3]);
    drop(1, 0, &net.nodes[1], masks[4]);
    cr_assert_arr_eq(masks[0], masks[1], sizeof masks[0], "the same draw twice");
    for (int k = 2; k < 5; k++) {
        int n_same = 0;
        int n_kept = 0;
        for (int i = 0; i < 4000; i++) {
            n_same += (masks[0][i] > 0.0F) == (masks[k][i] > 0.0F);
            n_kept += masks[k][i] > 0.0F;
            cr_assert(masks[k][i] == 0.0F || fabsf(masks[k][i] - 1.0F / 0.7F) < 1e-6F);
        }
        /* binomial: 2800 and 0.58 x 4000 = 2320, deviations 29 and 31; six of them allowed */
        cr_assert(abs(n_kept - 2800) < 175, "%d of 4000 kept", n_kept);
        cr_assert(abs(n_same - 2320) < 188, "%d of 4000 agree", n_same);
    }
}
