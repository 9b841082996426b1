/*
 * test_train.c - losses, learning rates and optimisers against PyTorch in float64: rows of losses
 * and their gradients, rates step by step, a small network after ten steps.
 *
 * Weights may err four times as much as PyTorch's own float32 does, which the file holds, or one
 * rounding of the largest number where that is smaller still.
 */
#include "golden.h"
#include "kernels/api/kernels.h"
#include "step/context/schedule.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ERRORS 4.0

static golden file;

static void open_file(void)
{
    golden_open(&file, "train.golden");
}

static void close_file(void)
{
    golden_close(&file);
}

TestSuite(golden_train, .init = open_file, .fini = close_file);

/* The numbers of SETTING in make_train.py. */
enum {
    AT_LOSS = 0,
    AT_SMOOTHING,
    AT_OPTIMIZER,
    AT_LR,
    AT_MOMENTUM,
    AT_NESTEROV,
    AT_DECAY,
    AT_CLIP_VALUE,
    AT_CLIP_NORM,
    AT_SCHEDULE,
    AT_WARMUP,
    AT_PERIOD,
    AT_TOTAL,
    AT_GAMMA,
    AT_MIN_LR
};

static dunlin_schedule schedule_of(const double *setting)
{
    return (dunlin_schedule){.struct_size = sizeof(dunlin_schedule),
                             .kind = (dunlin_schedule_kind)setting[AT_SCHEDULE],
                             .warmup_steps = (int64_t)setting[AT_WARMUP],
                             .period_steps = (int64_t)setting[AT_PERIOD],
                             .total_steps = (int64_t)setting[AT_TOTAL],
                             .gamma = setting[AT_GAMMA],
                             .min_lr = setting[AT_MIN_LR]};
}

/* The schedule must stay as long as the options are used. */
static dunlin_trainer_options options_of(const double *setting, const dunlin_schedule *schedule)
{
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.loss = (dunlin_loss)setting[AT_LOSS];
    options.label_smoothing = (float)setting[AT_SMOOTHING];
    options.optimizer = (dunlin_optimizer)setting[AT_OPTIMIZER];
    options.lr = (float)setting[AT_LR];
    options.momentum = (float)setting[AT_MOMENTUM];
    options.is_nesterov = setting[AT_NESTEROV] != 0.0;
    options.weight_decay = (float)setting[AT_DECAY];
    options.clip_value = (float)setting[AT_CLIP_VALUE];
    options.clip_norm = (float)setting[AT_CLIP_NORM];
    options.schedule = schedule;
    return options;
}

/* --- learning rates --- */

static bool begins(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool ends(const char *text, const char *end)
{
    const size_t n = strlen(text);
    return n >= strlen(end) && strcmp(text + n - strlen(end), end) == 0;
}

Test(golden_train, learning_rates)
{
    int n_cases = 0;
    for (size_t i = 0; i < file.n_arrays; i++) {
        if (!begins(file.arrays[i].name, "rates/") || ends(file.arrays[i].name, ".lr")) {
            continue;
        }
        const char *name = file.arrays[i].name + strlen("rates/");
        char part[64];
        (void)snprintf(part, sizeof part, "%s.lr", name);
        const double *setting = golden_doubles(&file, "rates", name);
        const double *rates = golden_doubles(&file, "rates", part);
        const dunlin_schedule schedule = schedule_of(setting);
        cr_assert_eq(dunlin__schedule_check(&schedule, NULL), DUNLIN_OK);
        for (int64_t step = 0; step < golden_find(&file, "rates", part)->n; step++) {
            const double rate = dunlin__schedule_rate(&schedule, setting[AT_LR], step);
            cr_assert_float_eq(rate, rates[step], 1e-12, "%s: step %lld has %.15g, not %.15g", name,
                               (long long)step, rate, rates[step]);
        }
        n_cases++;
    }
    cr_assert_eq(n_cases, 9);
}

/* --- losses --- */

typedef struct loss_case {
    const char *name;
    dunlin_loss loss;
    float smoothing;
} loss_case;

static void run_loss(const dunlin_kernels *kernels, dunlin_loss loss, const dunlin_loss_call *call)
{
    void (*const fns[])(const dunlin_loss_call *) = {kernels->softmax_loss, kernels->squared_loss,
                                                     kernels->logistic_loss, kernels->softmax_loss};
    fns[loss](call);
}

/* An element's error in units of its rounding, and of the row's: softmax divides by a sum. */
#define LOSS_ERRORS 16.0

static void check_loss(const dunlin_kernels *kernels, const loss_case *c)
{
    const golden_array *y = golden_find(&file, "loss", "y");
    const int32_t n_rows = (int32_t)y->shape.dims[0];
    const int32_t classes = (int32_t)y->shape.dims[1];
    const float *weights = golden_floats(&file, "loss", "weights");
    const double *rows = golden_doubles(&file, "loss", c->name);
    char part[64];
    (void)snprintf(part, sizeof part, "%s.grad", c->name);
    const double *gradient = golden_doubles(&file, "loss", part);
    (void)snprintf(part, sizeof part, "%s.mean", c->name);
    const double mean = *golden_doubles(&file, "loss", part);
    double weight_sum = 0.0;
    for (int32_t i = 0; i < n_rows; i++) {
        weight_sum += (double)weights[i];
    }
    float dy[64];
    double sums[DUNLIN_N_LOSS_SUMS];
    cr_assert_leq(y->n, 64);
    dunlin_loss_call call = {.classes = classes,
                             .n_rows = n_rows,
                             .logits = y->data,
                             .labels = c->loss == DUNLIN_LOSS_SOFT_CROSS_ENTROPY
                                           ? NULL
                                           : golden_find(&file, "loss", "labels")->data,
                             .weights = weights,
                             .smoothing = c->smoothing,
                             .scale = (float)(1.0 / weight_sum),
                             .dlogits = dy,
                             .sums = sums,
                             .is_reset = true};
    if (c->loss != DUNLIN_LOSS_CROSS_ENTROPY) {
        call.targets =
            golden_floats(&file, "loss", c->loss == DUNLIN_LOSS_MSE ? "targets1" : "targets2");
    }
    run_loss(kernels, c->loss, &call);
    cr_assert_float_eq(sums[DUNLIN_SUM_LOSS] / weight_sum, mean, 8e-7 * fabs(mean), "%s on %s",
                       c->name, kernels->isa);
    for (int64_t i = 0; i < y->n; i++) {
        const double unit = (double)weights[i / classes] / weight_sum * (double)FLT_EPSILON;
        const double limit =
            LOSS_ERRORS * (unit / classes + fabs(gradient[i]) * (double)FLT_EPSILON);
        cr_assert(fabs((double)dy[i] - gradient[i]) <= limit,
                  "%s on %s: gradient %lld is %.9g, not %.9g +- %.2g", c->name, kernels->isa,
                  (long long)i, (double)dy[i], gradient[i], limit);
    }
    call.n_rows = 1;
    call.dlogits = NULL;
    call.weights = NULL;
    for (int32_t i = 0; i < n_rows; i++) {
        run_loss(kernels, c->loss, &call);
        cr_assert_float_eq(sums[DUNLIN_SUM_LOSS], rows[i], 8e-7 * (1.0 + fabs(rows[i])),
                           "%s on %s, row %d", c->name, kernels->isa, (int)i);
        call.logits += classes;
        call.labels += call.labels != NULL ? 1 : 0;
        if (call.targets != NULL) {
            call.targets += classes;
        }
    }
}

Test(golden_train, losses)
{
    static const loss_case cases[] = {{"ce", DUNLIN_LOSS_CROSS_ENTROPY, 0.0F},
                                      {"ce_smooth", DUNLIN_LOSS_CROSS_ENTROPY, 0.25F},
                                      {"mse", DUNLIN_LOSS_MSE, 0.0F},
                                      {"bce", DUNLIN_LOSS_BCE, 0.0F},
                                      {"soft", DUNLIN_LOSS_SOFT_CROSS_ENTROPY, 0.0F},
                                      {"soft_smooth", DUNLIN_LOSS_SOFT_CROSS_ENTROPY, 0.25F}};
    for (int i = 0; dunlin__kernels_isa(i) != NULL; i++) {
        for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
            check_loss(dunlin__kernels_select(dunlin__kernels_isa(i)), &cases[k]);
        }
    }
}

/* --- ten steps --- */

typedef struct examples {
    const float *x;
    const int32_t *labels;
    const float *targets;
    int64_t n_inputs, n_outputs;
} examples;

static dunlin_status read_labels(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_y)
{
    const examples *e = ctx;
    for (int64_t i = 0; i < n; i++) {
        memcpy((float *)out_x + i * e->n_inputs, e->x + indices[i] * e->n_inputs,
               (size_t)e->n_inputs * sizeof(float));
        out_y[i] = e->labels[indices[i]];
    }
    return DUNLIN_OK;
}

static dunlin_status read_targets(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                  float *out_targets)
{
    const examples *e = ctx;
    for (int64_t i = 0; i < n; i++) {
        memcpy((float *)out_x + i * e->n_inputs, e->x + indices[i] * e->n_inputs,
               (size_t)e->n_inputs * sizeof(float));
        memcpy(out_targets + i * e->n_outputs, e->targets + indices[i] * e->n_outputs,
               (size_t)e->n_outputs * sizeof(float));
    }
    return DUNLIN_OK;
}

static dunlin_model *make_model(int64_t n_inputs, int32_t n_outputs)
{
    dunlin_builder *builder = NULL;
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "x", &(dunlin_shape){1, {n_inputs}});
    x = dunlin_builder_relu(builder, dunlin_builder_dense(builder, "fc1", x, 8));
    x = dunlin_builder_dense(builder, "fc2", x, n_outputs);
    cr_assert_eq(dunlin_builder_finish(builder, x, &model, NULL), DUNLIN_OK);
    return model;
}

static double part_error(const char *name, const char *part, double largest)
{
    char full[64];
    (void)snprintf(full, sizeof full, "%s%s", name, part);
    return fmax(MAX_ERRORS * *golden_doubles(&file, "steps", full), largest * (double)FLT_EPSILON);
}

static void check_weights(const char *name, const dunlin_trainer *trainer, const char *isa)
{
    char part[64];
    (void)snprintf(part, sizeof part, "%s.after", name);
    const double *after = golden_doubles(&file, "steps", part);
    const int64_t n = golden_find(&file, "steps", part)->n;
    float weights[256];
    cr_assert_eq(dunlin_trainer_n_weights(trainer, DUNLIN_WEIGHTS_ALL), n);
    cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, n, weights), DUNLIN_OK);
    const double limit = part_error(name, ".error", 1.0);
    for (int64_t i = 0; i < n; i++) {
        cr_assert(fabs((double)weights[i] - after[i]) <= limit,
                  "%s on %s: weight %lld is %.9g, not %.9g +- %.2g", name, isa, (long long)i,
                  (double)weights[i], after[i], limit);
    }
}

static void check_steps(const char *name, const char *isa, int32_t n_threads)
{
    const golden_array *x = golden_find(&file, "steps", "x");
    const golden_array *before = golden_find(&file, "steps", "before");
    const double *setting = golden_doubles(&file, "steps", name);
    const dunlin_schedule schedule = schedule_of(setting);
    dunlin_trainer_options options = options_of(setting, &schedule);
    examples data = {.x = x->data,
                     .labels = golden_find(&file, "steps", "labels")->data,
                     .targets = golden_floats(
                         &file, "steps", options.loss == DUNLIN_LOSS_BCE ? "targets2" : "targets1"),
                     .n_inputs = x->shape.dims[1],
                     .n_outputs = golden_find(&file, "steps", "targets1")->shape.dims[1]};
    const dunlin_source source = {.struct_size = sizeof(dunlin_source),
                                  .ctx = &data,
                                  .read_fn = read_labels,
                                  .read_targets_fn = read_targets,
                                  .n_targets = data.n_outputs,
                                  .n_examples = x->shape.dims[0],
                                  .dtype = DUNLIN_F32};
    dunlin_model *model = make_model(data.n_inputs, (int32_t)data.n_outputs);
    const int64_t batch = source.n_examples / 2;
    options.batch = batch;
    options.isa = isa;
    options.n_threads = n_threads;
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(
        dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, before->n, before->data),
        DUNLIN_OK);
    char part[64];
    (void)snprintf(part, sizeof part, "%s.loss", name);
    const double *losses = golden_doubles(&file, "steps", part);
    const int64_t n_steps = golden_find(&file, "steps", part)->n;
    for (int64_t step = 0; step < n_steps; step++) {
        int64_t indices[16];
        dunlin_metrics metrics;
        for (int64_t i = 0; i < batch; i++) {
            indices[i] = step % 2 * batch + i;
        }
        cr_assert_eq(dunlin_trainer_step(trainer, &source, indices, batch, &metrics), DUNLIN_OK,
                     "%s", dunlin_trainer_last_error(trainer)->text);
        cr_assert_float_eq(metrics.loss, losses[step],
                           part_error(name, ".loss.error", losses[step]),
                           "%s on %s: loss %lld is %.9g, not %.9g", name, isa, (long long)step,
                           metrics.loss, losses[step]);
    }
    check_weights(name, trainer, isa);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(golden_train, ten_steps)
{
    int n_cases = 0;
    for (size_t i = 0; i < file.n_arrays; i++) {
        const char *name = file.arrays[i].name + strlen("steps/");
        if (!begins(file.arrays[i].name, "steps/") || !ends(file.arrays[i].name, ".after")) {
            continue;
        }
        char case_name[64];
        (void)snprintf(case_name, sizeof case_name, "%.*s", (int)(strlen(name) - strlen(".after")),
                       name);
        for (int k = 0; dunlin__kernels_isa(k) != NULL; k++) {
            check_steps(case_name, dunlin__kernels_isa(k), 1 + k % 2);
        }
        n_cases++;
    }
    cr_assert_eq(n_cases, 11);
}
