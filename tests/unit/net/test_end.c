/*
 * test_end.c - the function at the end of a network that a loss includes: the training of a file
 * that ends in a Sigmoid is, bit for bit, that of the same network without it under binary
 * cross-entropy, and is not under another loss; predictions go through it. (Softmax and LogSoftmax:
 * test_onnx_nets.c.)
 */
#include "net_support.h"

#include <dunlin/trainer.h>

#include <criterion/criterion.h>

#include <graph/end.h>
#include <math.h>
#include <net/net.h>

enum { N = 4, N_IN = 6, N_OUT = 4, N_WEIGHTS = 54 };

static dunlin_status read_targets(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                  float *out_targets)
{
    (void)ctx;
    float *x = out_x;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < N_IN; k++) {
            x[i * N_IN + k] = sinf((float)(7 * indices[i] + 3 * k));
        }
        for (int64_t k = 0; k < N_OUT; k++) {
            out_targets[i * N_OUT + k] = (float)((indices[i] + k) % 2);
        }
    }
    return DUNLIN_OK;
}

static const dunlin_source source = {.struct_size = sizeof(dunlin_source),
                                     .read_targets_fn = read_targets,
                                     .n_targets = N_OUT,
                                     .n_examples = N,
                                     .dtype = DUNLIN_F32};

/* A trainer of the file, or of what it holds before the last node. */
static dunlin_trainer *open(dunlin_loss loss, bool is_cut)
{
    char path[512];
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    dunlin_trainer *trainer = NULL;
    cr_assert_eq(dunlin_model_open(net_onnx_path("end_sigmoid.onnx", path), NULL, &model, &error),
                 DUNLIN_OK, "%s", error.text);
    if (is_cut) {
        dunlin_net *net = &model->net;
        net->output = net->nodes[--net->n_nodes].inputs[0];
    }
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = N;
    options.lr = 0.5F;
    options.loss = loss;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_OK, "%s",
                 error.text);
    dunlin_model_destroy(model);
    return trainer;
}

static void train(dunlin_trainer *trainer, float weights[N_WEIGHTS], float outputs[N * N_OUT],
                  double *out_loss)
{
    const int64_t indices[N] = {0, 1, 2, 3};
    dunlin_metrics metrics = {0};
    for (int step = 0; step < 3; step++) {
        cr_assert_eq(dunlin_trainer_step(trainer, &source, indices, N, &metrics), DUNLIN_OK, "%s",
                     dunlin_trainer_last_error(trainer)->text);
    }
    *out_loss = metrics.loss;
    cr_assert_eq(dunlin_trainer_get_parameter(trainer, "body.0.weight", weights, N_WEIGHTS),
                 DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_predict(trainer, &source, 0, N, outputs), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    dunlin_trainer_destroy(trainer);
}

Test(end, a_sigmoid_under_binary_cross_entropy)
{
    float whole[N_WEIGHTS];
    float cut[N_WEIGHTS];
    float chances[N * N_OUT];
    float logits[N * N_OUT];
    double losses[2];
    train(open(DUNLIN_LOSS_BCE, false), whole, chances, &losses[0]);
    train(open(DUNLIN_LOSS_BCE, true), cut, logits, &losses[1]);
    cr_assert_arr_eq(whole, cut, sizeof whole);
    cr_assert(losses[0] == losses[1]);
    for (int i = 0; i < N * N_OUT; i++) {
        const double wanted = 1.0 / (1.0 + exp(-(double)logits[i]));
        cr_assert_float_eq((double)chances[i], wanted, 3e-7, "%d: %g, not %g", i,
                           (double)chances[i], wanted);
    }
}

/* Mean squared error is of what comes out of the Sigmoid. */
Test(end, a_sigmoid_under_squared_error)
{
    float whole[N_WEIGHTS];
    float cut[N_WEIGHTS];
    float chances[N * N_OUT];
    float logits[N * N_OUT];
    double losses[2];
    train(open(DUNLIN_LOSS_MSE, false), whole, chances, &losses[0]);
    train(open(DUNLIN_LOSS_MSE, true), cut, logits, &losses[1]);
    cr_assert_arr_neq(whole, cut, sizeof whole);
    for (int i = 0; i < N * N_OUT; i++) {
        cr_assert(chances[i] > 0.0F && chances[i] < 1.0F);
    }
    /* The outputs are near their loss: a step of 0.5 moves it little. */
    double squares = 0.0;
    float x[N * N_IN];
    float targets[N * N_OUT];
    const int64_t indices[N] = {0, 1, 2, 3};
    cr_assert_eq(read_targets(NULL, indices, N, x, targets), DUNLIN_OK);
    for (int i = 0; i < N * N_OUT; i++) {
        squares += pow((double)chances[i] - (double)targets[i], 2.0) / (N * N_OUT);
    }
    cr_assert_lt(squares, losses[0]);
    cr_assert_gt(squares, 0.7 * losses[0]);
}

/* Nodes that only rename a row do not hide the function before them; what reads it elsewhere does.
 */
Test(end, behind_shapes_that_change_nothing)
{
    const dunlin_shape shape = {1, {N_IN}};
    const dunlin_shape row = {1, {N_OUT}};
    for (int has_other = 0; has_other < 2; has_other++) {
        dunlin_builder *builder = NULL;
        dunlin_model *model = NULL;
        dunlin_net cut;
        cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
        dunlin_value at = dunlin_builder_input(builder, "x", &shape);
        at = dunlin_builder_dense(builder, "fc", at, N_OUT);
        const dunlin_value chances = dunlin_builder_softmax(builder, at);
        at = dunlin_builder_flatten(builder, dunlin_builder_reshape(builder, chances, &row));
        at = has_other != 0 ? dunlin_builder_add(builder, at, chances) : at;
        cr_assert_eq(dunlin_builder_finish(builder, at, &model, NULL), DUNLIN_OK);
        const dunlin_net *net = &model->net;
        const dunlin_end end = dunlin__end_cut(net, DUNLIN_LOSS_CROSS_ENTROPY, &cut);
        cr_expect_eq(end, has_other != 0 ? DUNLIN_END_NONE : DUNLIN_END_SOFTMAX);
        cr_expect_eq(cut.n_nodes, has_other != 0 ? net->n_nodes : net->n_nodes - 3);
        if (has_other == 0) {
            cr_expect_eq(net->nodes[net->values[cut.output].producer].kind, DUNLIN_OP_DENSE);
        }
        cr_expect_eq(dunlin__end_cut(net, DUNLIN_LOSS_BCE, &cut), DUNLIN_END_NONE);
        cr_expect(cut.output == net->output && cut.n_nodes == net->n_nodes);
        dunlin_model_destroy(model);
    }
}

/* The channels of one pixel are a row; those of two are none. */
Test(end, of_one_pixel)
{
    for (int32_t n_pixels = 1; n_pixels < 3; n_pixels++) {
        const dunlin_shape shape = {3, {2, 1, n_pixels}};
        dunlin_builder *builder = NULL;
        dunlin_model *model = NULL;
        dunlin_net cut;
        cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
        dunlin_value at = dunlin_builder_input(builder, "x", &shape);
        at = dunlin_builder_conv(builder, "fc", at, N_OUT, 1, NULL);
        at = dunlin_builder_flatten(builder, dunlin_builder_softmax(builder, at));
        cr_assert_eq(dunlin_builder_finish(builder, at, &model, NULL), DUNLIN_OK);
        const dunlin_end end = dunlin__end_cut(&model->net, DUNLIN_LOSS_CROSS_ENTROPY, &cut);
        cr_expect_eq(end, n_pixels == 1 ? DUNLIN_END_SOFTMAX : DUNLIN_END_NONE);
        cr_expect_eq(cut.n_nodes, n_pixels == 1 ? 1 : 3);
        dunlin_model_destroy(model);
    }
}
