/*
 * test_nets.c - two whole networks against PyTorch in float64: the first step's gradients, three
 * losses, and all weights and running statistics after three steps of SGD. One of them again with
 * gradients accumulated over slices of 4, 4 and 3 of 11 examples, whose batch norm statistics are
 * each slice's own.
 *
 * Errors may be four times those that PyTorch's own float32 makes, which the file holds, or one
 * rounding of the largest number where those are smaller still.
 */
#include "golden.h"
#include "step/plain_run.h"

#include <dunlin/trainer.h>

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_STEPS 3
#define N_CLASSES 5
#define MAX_ERRORS 4.0

static golden file;

static void open_file(void)
{
    golden_open(&file, "nets.golden");
}

static void open_ghost_file(void)
{
    golden_open(&file, "ghost.golden");
}

static void close_file(void)
{
    golden_close(&file);
}

TestSuite(golden_nets, .init = open_file, .fini = close_file);
TestSuite(golden_ghost, .init = open_ghost_file, .fini = close_file);

static dunlin_model *finish(dunlin_builder *builder, dunlin_value output)
{
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    dunlin_status status = dunlin_builder_finish(builder, output, &model, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    return model;
}

static dunlin_model *make_lenet(void)
{
    dunlin_builder *b = NULL;
    cr_assert(dunlin_builder_create(NULL, &b) == DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(b, "x", &(dunlin_shape){3, {1, 16, 16}});
    x = dunlin_builder_conv(
        b, "conv1", x, 4, 5,
        &(dunlin_conv_options){.struct_size = sizeof(dunlin_conv_options), .padding = 2});
    x = dunlin_builder_max_pool(b, dunlin_builder_relu(b, x), 2, 2, 0);
    x = dunlin_builder_conv(b, "conv2", x, 6, 5, NULL);
    x = dunlin_builder_max_pool(b, dunlin_builder_relu(b, x), 2, 2, 0);
    x = dunlin_builder_dense(b, "fc1", dunlin_builder_flatten(b, x), 12);
    x = dunlin_builder_dense(b, "fc2", dunlin_builder_relu(b, x), N_CLASSES);
    return finish(b, x);
}

static dunlin_model *make_residual(void)
{
    dunlin_builder *b = NULL;
    cr_assert(dunlin_builder_create(NULL, &b) == DUNLIN_OK);
    dunlin_conv_options first = {
        .struct_size = sizeof(dunlin_conv_options), .stride = 2, .padding = 1, .no_bias = true};
    dunlin_conv_options depthwise = {
        .struct_size = sizeof(dunlin_conv_options), .padding = 1, .groups = 8, .no_bias = true};
    dunlin_conv_options project = {.struct_size = sizeof(dunlin_conv_options), .no_bias = true};
    dunlin_value x = dunlin_builder_input(b, "x", &(dunlin_shape){3, {3, 9, 8}});
    x = dunlin_builder_conv(b, "conv1", x, 8, 3, &first);
    x = dunlin_builder_relu6(b, dunlin_builder_batch_norm(b, "bn1", x));
    dunlin_value y = dunlin_builder_conv(b, "depthwise", x, 8, 3, &depthwise);
    y = dunlin_builder_relu6(b, dunlin_builder_batch_norm(b, "bn2", y));
    y = dunlin_builder_conv(b, "project", y, 8, 1, &project);
    y = dunlin_builder_add(b, x, dunlin_builder_batch_norm(b, "bn3", y));
    y = dunlin_builder_concat(b, (dunlin_value[]){y, x}, 2);
    y = dunlin_builder_flatten(b, dunlin_builder_global_average_pool(b, y));
    return finish(b, dunlin_builder_dense(b, "fc", y, N_CLASSES));
}

/* Gives out the file's examples. */
typedef struct examples {
    const float *x;
    const int32_t *labels;
    int64_t width;
} examples;

static dunlin_status read_examples(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    const examples *e = ctx;
    for (int64_t i = 0; i < n; i++) {
        memcpy((float *)out_x + i * e->width, e->x + indices[i] * e->width,
               (size_t)e->width * sizeof(float));
        out_y[i] = e->labels[indices[i]];
    }
    return DUNLIN_OK;
}

static dunlin_source open_examples(const char *name, examples *out_examples, int64_t *out_batch)
{
    const golden_array *x = golden_find(&file, name, "x");
    const golden_array *labels = golden_find(&file, name, "labels");
    cr_assert(x != NULL && labels != NULL && labels->dtype == DUNLIN_I32);
    *out_examples = (examples){x->data, labels->data, x->n / labels->n};
    *out_batch = labels->n / N_STEPS;
    return (dunlin_source){.struct_size = sizeof(dunlin_source),
                           .ctx = out_examples,
                           .read_fn = read_examples,
                           .n_examples = labels->n,
                           .dtype = DUNLIN_F32};
}

/* PART of the file against n numbers; `what` tells the configuration. */
static void compare(const char *name, const char *part, const float *found, int64_t n,
                    const char *what)
{
    char error_part[64];
    snprintf(error_part, sizeof error_part, "%s.error", part);
    const double *wanted = golden_doubles(&file, name, part);
    cr_assert_eq(golden_find(&file, name, part)->n, n);
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs(wanted[i]));
    }
    double limit = MAX_ERRORS * fmax(*golden_doubles(&file, name, error_part),
                                     largest * (double)FLT_EPSILON / MAX_ERRORS);
    for (int64_t i = 0; i < n; i++) {
        cr_assert(fabs((double)found[i] - wanted[i]) <= limit,
                  "%s, %s: %s[%lld] is %.9g, not %.9g +- %.2g", name, what, part, (long long)i,
                  (double)found[i], wanted[i], limit);
    }
}

static void check_gradients(const char *name, const dunlin_net *net, const dunlin_kernels *kernels)
{
    examples data;
    int64_t batch = 0;
    dunlin_source source = open_examples(name, &data, &batch);
    dunlin_error error = {0};
    plain_run plain;
    dunlin_step_build_options options = {.mode = DUNLIN_EMIT_TRAIN, .has_gradient_hook = true};
    dunlin_status status = plain_run_open(&plain, net, &options, batch, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    for (uint32_t p = 0; p < net->n_params; p++) {
        plain_run_set_param(&plain, p, golden_floats(&file, name, net->params[p].name));
    }
    dunlin_step_run run = {.kernels = kernels,
                           .source = &source,
                           .n_batch = batch,
                           .weight_sums = {(double)batch},
                           .error = &error};
    status = plain_run_step(&plain, &run);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    for (uint32_t p = 0; p < net->n_params; p++) {
        if (net->params[p].role == DUNLIN_PARAMETER_TRAINABLE) {
            char part[64];
            snprintf(part, sizeof part, "%s.gradient", net->params[p].name);
            cr_assert_not_null(plain.gradients[p], "%s", part);
            compare(name, part, plain.gradients[p], net->params[p].n_elements, kernels->isa);
        }
    }
    plain_run_close(&plain);
}

static void check_all_gradients(const char *name, dunlin_model *model)
{
    for (int i = 0; dunlin__kernels_isa(i) != NULL; i++) {
        check_gradients(name, &model->net, dunlin__kernels_select(dunlin__kernels_isa(i)));
    }
    dunlin_model_destroy(model);
}

Test(golden_nets, lenet_gradients)
{
    check_all_gradients("lenet", make_lenet());
}

Test(golden_nets, residual_gradients)
{
    check_all_gradients("residual", make_residual());
}

/* --- through the public calls --- */

static dunlin_trainer *make_trainer(const char *name, const dunlin_model *model,
                                    const dunlin_trainer_options *options)
{
    dunlin_error error = {0};
    dunlin_trainer *trainer = NULL;
    dunlin_status status = dunlin_trainer_create(model, options, &trainer, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    for (int32_t p = 0; p < dunlin_trainer_n_parameters(trainer); p++) {
        dunlin_parameter_info info;
        cr_assert(dunlin_trainer_parameter(trainer, p, &info) == DUNLIN_OK);
        const float *values = golden_floats(&file, name, info.name);
        cr_assert(dunlin_trainer_set_parameter(trainer, info.name, values, info.n_elements) ==
                  DUNLIN_OK);
    }
    return trainer;
}

static void compare_weights(const char *name, const dunlin_trainer *trainer, const char *what)
{
    for (int32_t p = 0; p < dunlin_trainer_n_parameters(trainer); p++) {
        dunlin_parameter_info info;
        char part[64];
        cr_assert(dunlin_trainer_parameter(trainer, p, &info) == DUNLIN_OK);
        float *values = calloc((size_t)info.n_elements, sizeof *values);
        cr_assert(dunlin_trainer_get_parameter(trainer, info.name, values, info.n_elements) ==
                  DUNLIN_OK);
        snprintf(part, sizeof part, "%s.after", info.name);
        compare(name, part, values, info.n_elements, what);
        free(values);
    }
}

static void check_steps(const char *name, const dunlin_model *model,
                        const dunlin_trainer_options *setting, const char *what)
{
    examples data;
    int64_t batch = 0;
    dunlin_source source = open_examples(name, &data, &batch);
    dunlin_trainer_options options = *setting;
    options.batch = batch;
    options.lr = 0.1F;
    options.momentum = 0.9F;
    options.weight_decay = 1e-4F;
    dunlin_trainer *trainer = make_trainer(name, model, &options);
    const double *losses = golden_doubles(&file, name, "loss");
    double error = *golden_doubles(&file, name, "loss.error");
    for (int64_t step = 0; step < N_STEPS; step++) {
        int64_t indices[32];
        dunlin_metrics metrics;
        for (int64_t i = 0; i < batch; i++) {
            indices[i] = step * batch + i;
        }
        cr_assert(dunlin_trainer_step(trainer, &source, indices, batch, &metrics) == DUNLIN_OK,
                  "%s", dunlin_trainer_last_error(trainer)->text);
        cr_assert(fabs(metrics.loss - losses[step]) <= MAX_ERRORS * error,
                  "%s, %s: loss %lld is %.9g, not %.9g", name, what, (long long)step, metrics.loss,
                  losses[step]);
    }
    compare_weights(name, trainer, what);
    dunlin_trainer_destroy(trainer);
}

/* Every instruction set, on one thread and on two. */
static void check_threads(const char *name, const dunlin_model *model)
{
    for (int i = 0; dunlin__kernels_isa(i) != NULL; i++) {
        for (int32_t n = 1; n <= 2; n++) {
            char what[64];
            dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
            options.isa = dunlin__kernels_isa(i);
            options.n_threads = n;
            snprintf(what, sizeof what, "%s, threads: %d", options.isa, (int)n);
            check_steps(name, model, &options, what);
        }
    }
}

Test(golden_nets, lenet_steps)
{
    dunlin_model *model = make_lenet();
    check_threads("lenet", model);
    for (int64_t slice = 1; slice <= 5; slice += 2) {
        dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
        options.policy = DUNLIN_POLICY_MICROBATCH;
        options.micro_batch = slice;
        check_steps("lenet", model, &options, "slices");
    }
    dunlin_model_destroy(model);
}

Test(golden_nets, residual_steps)
{
    dunlin_model *model = make_residual();
    check_threads("residual", model);
    dunlin_model_destroy(model);
}

Test(golden_ghost, residual_steps)
{
    dunlin_model *model = make_residual();
    const dunlin_policy policies[] = {DUNLIN_POLICY_MICROBATCH, DUNLIN_POLICY_AUTO,
                                      DUNLIN_POLICY_NONE, DUNLIN_POLICY_SAGE};
    for (int i = 0; dunlin__kernels_isa(i) != NULL; i++) {
        for (int32_t k = 0; k < 8; k++) {
            char what[64];
            dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
            options.ghost_statistics = true;
            options.micro_batch = 4;
            options.isa = dunlin__kernels_isa(i);
            options.policy = policies[k % 4];
            options.baselines = dunlin_baselines_published();
            options.no_fuse = k >= 4;
            options.n_threads = 1 + k / 2 % 2;
            snprintf(what, sizeof what, "%s, threads: %d, policy %d, %s", options.isa,
                     (int)options.n_threads, (int)options.policy, k >= 4 ? "unfused" : "fused");
            check_steps("residual", model, &options, what);
        }
    }
    dunlin_model_destroy(model);
}
