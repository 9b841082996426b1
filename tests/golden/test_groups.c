/*
 * test_groups.c - groups of parameters, parameters that are not trained, and labels that do not
 * count, against PyTorch's param_groups and ignore_index in float64: a small network with layer
 * norm after ten steps, whole and in slices, on every instruction set.
 *
 * Weights may err four times as much as PyTorch's own float32 does, or one rounding of the largest
 * number where that is smaller still.
 */
#include "golden.h"
#include "kernels/api/kernels.h"

#include <dunlin/trainer.h>

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_ERRORS 4.0
#define N_HIDDEN 8
#define N_OUTPUTS 7

static golden file;

static void open_file(void)
{
    golden_open(&file, "groups.golden");
}

static void close_file(void)
{
    golden_close(&file);
}

TestSuite(golden_groups, .init = open_file, .fini = close_file);

/* The numbers of SETTING in make_groups.py. */
enum {
    AT_OPTIMIZER = 0,
    AT_LR,
    AT_DECAY,
    AT_TRAINED,
    AT_HEAD_LR,
    AT_HEAD_DECAY,
    AT_BIAS_LR,
    AT_NORM_DECAY,
    AT_IGNORED
};

typedef struct examples {
    const float *x, *weights;
    const int32_t *labels;
    int64_t n_inputs;
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

static float weight_of(void *ctx, int64_t index)
{
    return ((const examples *)ctx)->weights[index];
}

static dunlin_model *make_model(int64_t n_inputs)
{
    dunlin_builder *builder = NULL;
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "x", &(dunlin_shape){1, {n_inputs}});
    x = dunlin_builder_dense(builder, "fc1", x, N_HIDDEN);
    x = dunlin_builder_relu(builder, dunlin_builder_layer_norm(builder, "norm", x));
    x = dunlin_builder_dense(builder, "fc2", x, N_OUTPUTS);
    cr_assert_eq(dunlin_builder_finish(builder, x, &model, NULL), DUNLIN_OK);
    return model;
}

/* Points into `groups`. */
static dunlin_trainer_options options_of(const double *setting, dunlin_parameter_group groups[2])
{
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.optimizer = (dunlin_optimizer)setting[AT_OPTIMIZER];
    options.momentum = options.optimizer == DUNLIN_OPTIMIZER_SGD ? 0.9F : 0.0F;
    options.lr = (float)setting[AT_LR];
    options.weight_decay = (float)setting[AT_DECAY];
    if (setting[AT_TRAINED] < 3.0) {
        options.trained = (dunlin_trained)setting[AT_TRAINED];
    } else {
        options.trained_prefixes = "fc1";
    }
    options.no_norm_decay = setting[AT_NORM_DECAY] == 0.0;
    options.has_ignore_label = (int)setting[AT_IGNORED] % 2 == 1;
    options.ignore_label = -100;
    options.label_smoothing = setting[AT_IGNORED] == 3.0 ? 0.1F : 0.0F;
    groups[0] = (dunlin_parameter_group)DUNLIN_PARAMETER_GROUP_INIT;
    groups[0].patterns = "fc2.*";
    groups[0].lr_factor = (float)setting[AT_HEAD_LR];
    groups[0].decay_factor = (float)setting[AT_HEAD_DECAY];
    groups[1] = (dunlin_parameter_group)DUNLIN_PARAMETER_GROUP_INIT;
    groups[1].uses = DUNLIN_USE_BIT(DUNLIN_USE_BIAS);
    groups[1].lr_factor = (float)setting[AT_BIAS_LR];
    options.groups = groups;
    options.n_groups = 2;
    return options;
}

static double part_error(const char *name, const char *part, double largest)
{
    char full[64];
    (void)snprintf(full, sizeof full, "%s%s", name, part);
    return fmax(MAX_ERRORS * *golden_doubles(&file, "steps", full), largest * (double)FLT_EPSILON);
}

static const golden_array *part_of(const char *name, const char *part)
{
    char full[64];
    (void)snprintf(full, sizeof full, "%s%s", name, part);
    const golden_array *found = golden_find(&file, "steps", full);
    cr_assert_not_null(found, "%s", full);
    return found;
}

static void check_weights(const char *name, const dunlin_trainer *trainer, const char *isa)
{
    const golden_array *after = part_of(name, ".after");
    const double *expected = after->data;
    float weights[256];
    cr_assert_eq(dunlin_trainer_n_weights(trainer, DUNLIN_WEIGHTS_ALL), after->n);
    cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, after->n, weights),
                 DUNLIN_OK);
    const double limit = part_error(name, ".error", 1.0);
    for (int64_t i = 0; i < after->n; i++) {
        cr_assert(fabs((double)weights[i] - expected[i]) <= limit,
                  "%s on %s: weight %lld is %.9g, not %.9g +- %.2g", name, isa, (long long)i,
                  (double)weights[i], expected[i], limit);
    }
}

static void check_steps(const char *name, const char *isa, int32_t n_threads, int64_t slice)
{
    const golden_array *x = golden_find(&file, "steps", "x");
    const golden_array *before = golden_find(&file, "steps", "before");
    const double *setting = golden_doubles(&file, "steps", name);
    dunlin_parameter_group groups[2];
    dunlin_trainer_options options = options_of(setting, groups);
    examples data = {.x = x->data,
                     .labels = part_of(name, ".labels")->data,
                     .weights = part_of(name, ".weights")->data,
                     .n_inputs = x->shape.dims[1]};
    const dunlin_source source = {.struct_size = sizeof(dunlin_source),
                                  .ctx = &data,
                                  .read_fn = read_labels,
                                  .weight_fn = setting[AT_IGNORED] >= 2.0 ? weight_of : NULL,
                                  .n_examples = x->shape.dims[0],
                                  .dtype = DUNLIN_F32};
    dunlin_model *model = make_model(data.n_inputs);
    const int64_t batch = source.n_examples / 2;
    options.batch = batch;
    options.isa = isa;
    options.n_threads = n_threads;
    options.policy = slice > 0 ? DUNLIN_POLICY_MICROBATCH : DUNLIN_POLICY_AUTO;
    options.micro_batch = slice;
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(
        dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, before->n, before->data),
        DUNLIN_OK);
    const golden_array *loss = part_of(name, ".loss");
    const double *losses = loss->data;
    for (int64_t step = 0; step < loss->n; step++) {
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

Test(golden_groups, ten_steps)
{
    static const char end[] = ".after";
    int n_cases = 0;
    for (size_t i = 0; i < file.n_arrays; i++) {
        const char *name = file.arrays[i].name + strlen("steps/");
        const size_t n = strlen(file.arrays[i].name);
        if (n <= sizeof end || strcmp(file.arrays[i].name + n - (sizeof end - 1), end) != 0) {
            continue;
        }
        char case_name[64];
        (void)snprintf(case_name, sizeof case_name, "%.*s", (int)(strlen(name) - strlen(end)),
                       name);
        for (int k = 0; dunlin__kernels_isa(k) != NULL; k++) {
            check_steps(case_name, dunlin__kernels_isa(k), 1 + k % 2, 0);
            check_steps(case_name, dunlin__kernels_isa(k), 1, 4);
        }
        n_cases++;
    }
    cr_assert_eq(n_cases, 14);
}
