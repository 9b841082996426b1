/*
 * test_margins.c - losses over distances, cosines and triplets of embeddings: PyTorch's numbers,
 * gradients against differences, plans, what does not fit.
 */
#include "step/step_support.h"

#include <dunlin/arrays.h>
#include <dunlin/several.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(margins, .timeout = 300);

#define N 6
#define WIDTH 4

typedef struct margin_data {
    float rows[3][N][WIDTH];
    float targets[N];
    dunlin_source_input inputs[3];
    dunlin_arrays_view view;
    dunlin_source source;
} margin_data;

static margin_data data;

static void open_data(int32_t n_inputs)
{
    static const float targets[N] = {1.0F, 0.0F, 1.0F, 0.0F, 0.0F, 1.0F};
    dunlin_error error = {0};
    for (int a = 0; a < 3; a++) {
        for (int i = 0; i < N; i++) {
            for (int k = 0; k < WIDTH; k++) {
                data.rows[a][i][k] =
                    (float)sin(0.9 * i + 1.7 * k + 0.6 * a + 0.35 * a * k * (i % 3 + 1));
            }
        }
        data.inputs[a] =
            (dunlin_source_input){.values = data.rows[a], .n_elements = WIDTH, .dtype = DUNLIN_F32};
    }
    memcpy(data.targets, targets, sizeof targets);
    dunlin_arrays arrays = DUNLIN_ARRAYS_INIT;
    arrays.n = N;
    arrays.inputs = data.inputs;
    arrays.n_inputs = n_inputs;
    arrays.targets = data.targets;
    arrays.n_targets = 1;
    cr_assert_eq(dunlin_source_from_arrays(&arrays, &data.view, &data.source, &error), DUNLIN_OK,
                 "%s", error.text);
}

/* Embeddings of two or three rows by one layer, and what the loss is over. */
static dunlin_model *embedding_model(dunlin_loss loss)
{
    static const char *const names[3] = {"anchor", "positive", "negative"};
    const dunlin_shape row = {1, {WIDTH}};
    const int n = loss == DUNLIN_LOSS_TRIPLET ? 3 : 2;
    dunlin_builder *b = NULL;
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    dunlin_value rows[3];
    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    for (int i = 0; i < n; i++) {
        rows[i] = dunlin_builder_input(b, names[i], &row);
    }
    rows[0] = dunlin_builder_dense(b, "embed", rows[0], WIDTH);
    for (int i = 1; i < n; i++) {
        rows[i] = dunlin_builder_share(b, rows[0], rows[i]);
    }
    dunlin_value y = loss == DUNLIN_LOSS_COSINE ? dunlin_builder_cosine(b, rows[0], rows[1])
                                                : dunlin_builder_distance(b, rows[0], rows[1]);
    if (n == 3) {
        y = dunlin_builder_subtract(b, y, dunlin_builder_distance(b, rows[0], rows[2]));
    }
    cr_assert_eq(dunlin_builder_finish(b, y, &model, &error), DUNLIN_OK, "%s", error.text);
    return model;
}

static dunlin_output_loss own_loss;

static dunlin_trainer_options margin_options(const dunlin_model *model, dunlin_loss loss,
                                             float margin)
{
    dunlin_model_output output = DUNLIN_MODEL_OUTPUT_INIT;
    dunlin_trainer_options options = test_options(N);
    cr_assert_eq(dunlin_model_get_output(model, 0, &output), DUNLIN_OK);
    own_loss = (dunlin_output_loss)DUNLIN_OUTPUT_LOSS_INIT;
    own_loss.name = output.name;
    own_loss.loss = loss;
    own_loss.margin = margin;
    options.outputs = &own_loss;
    options.n_outputs = 1;
    return options;
}

/* The embedding is the row itself. */
static void set_identity(dunlin_trainer *trainer)
{
    float weight[WIDTH * WIDTH] = {0.0F};
    const float bias[WIDTH] = {0.0F};
    for (int i = 0; i < WIDTH; i++) {
        weight[i * WIDTH + i] = 1.0F;
    }
    cr_assert_eq(dunlin_trainer_set_parameter(trainer, "embed.weight", weight, WIDTH * WIDTH),
                 DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_set_parameter(trainer, "embed.bias", bias, WIDTH), DUNLIN_OK);
}

static const struct {
    dunlin_loss loss;
    float margin;
    double wanted; /* by PyTorch 1.13 in float64: cosine_embedding_loss, triplet_margin_loss with
                      eps 0, and the formula over pairwise_distance */
} cases[] = {
    {DUNLIN_LOSS_COSINE, 0.0F, 0.5834793921483037},
    {DUNLIN_LOSS_COSINE, 0.25F, 0.5214530429510856},
    {DUNLIN_LOSS_TRIPLET, 1.0F, 0.9680783297931539},
    {DUNLIN_LOSS_TRIPLET, 0.5F, 0.6090008758049849},
    {DUNLIN_LOSS_CONTRASTIVE, 1.0F, 2.48802976172669},
    {DUNLIN_LOSS_CONTRASTIVE, 2.5F, 2.7413506113583472},
};
#define N_CASES ((int)(sizeof cases / sizeof cases[0]))

Test(margins, losses_are_those_of_pytorch)
{
    for (int i = 0; i < N_CASES; i++) {
        open_data(cases[i].loss == DUNLIN_LOSS_TRIPLET ? 3 : 2);
        if (cases[i].loss == DUNLIN_LOSS_TRIPLET) {
            for (int k = 0; k < N; k++) {
                data.targets[k] = 1.0F;
            }
        }
        dunlin_model *model = embedding_model(cases[i].loss);
        const dunlin_trainer_options options =
            margin_options(model, cases[i].loss, cases[i].margin);
        dunlin_trainer *trainer = test_create(model, &options);
        dunlin_metrics metrics;
        float y[N];
        set_identity(trainer);
        cr_assert_eq(dunlin_trainer_evaluate(trainer, &data.source, 0, N, &metrics), DUNLIN_OK,
                     "%s", dunlin_trainer_last_error(trainer)->text);
        cr_expect_float_eq(metrics.loss, cases[i].wanted, 2e-6, "case %d: %.9g", i, metrics.loss);
        cr_assert_eq(dunlin_trainer_predict(trainer, &data.source, 0, N, y), DUNLIN_OK);
        int n_right = 0;
        for (int k = 0; k < N; k++) {
            const float margin = cases[i].margin;
            const bool is_alike = data.targets[k] > 0.5F;
            n_right += cases[i].loss == DUNLIN_LOSS_TRIPLET ? y[k] < 0.0F
                       : cases[i].loss == DUNLIN_LOSS_COSINE
                           ? (y[k] > 0.5F * (1.0F + margin)) == is_alike
                           : (y[k] < 0.5F * margin) == is_alike;
        }
        cr_expect_float_eq(metrics.accuracy, n_right / (double)N, 1e-12, "case %d", i);
        dunlin_trainer_destroy(trainer);
        dunlin_model_destroy(model);
    }
}

static float seen[2][WIDTH * WIDTH];

static void keep_gradient(void *ctx, int32_t parameter_index, int64_t n, const float *weights,
                          float *gradient, float *const *slots)
{
    (void)ctx;
    (void)weights;
    (void)slots;
    memcpy(seen[parameter_index], gradient, (size_t)n * sizeof *gradient);
}

static double loss_with(dunlin_trainer *trainer, float *weight, int at, float change)
{
    dunlin_metrics metrics;
    weight[at] += change;
    cr_assert_eq(dunlin_trainer_set_parameter(trainer, "embed.weight", weight, WIDTH * WIDTH),
                 DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &data.source, 0, N, &metrics), DUNLIN_OK);
    weight[at] -= change;
    return metrics.loss;
}

Test(margins, gradients_are_slopes)
{
    for (int i = 0; i < N_CASES; i++) {
        open_data(cases[i].loss == DUNLIN_LOSS_TRIPLET ? 3 : 2);
        data.targets[2] = 0.75F; /* shares are allowed */
        dunlin_model *model = embedding_model(cases[i].loss);
        dunlin_trainer_options options = margin_options(model, cases[i].loss, cases[i].margin);
        options.lr = 0.0F;
        options.momentum = 0.0F;
        options.weight_decay = 0.0F;
        options.gradient_fn = keep_gradient;
        dunlin_trainer *trainer = test_create(model, &options);
        const int64_t indices[N] = {0, 1, 2, 3, 4, 5};
        float weight[WIDTH * WIDTH];
        cr_assert_eq(dunlin_trainer_step(trainer, &data.source, indices, N, NULL), DUNLIN_OK, "%s",
                     dunlin_trainer_last_error(trainer)->text);
        cr_assert_eq(dunlin_trainer_get_parameter(trainer, "embed.weight", weight, WIDTH * WIDTH),
                     DUNLIN_OK);
        for (int at = 0; at < WIDTH * WIDTH; at++) {
            const float step = 1.0F / 256.0F;
            const double slope =
                (loss_with(trainer, weight, at, step) - loss_with(trainer, weight, at, -step)) /
                (2.0 * (double)step);
            const int inner = at % WIDTH * WIDTH + at / WIDTH;
            cr_expect_float_eq(seen[0][inner], slope, 1e-3 + 1e-2 * fabs(slope),
                               "case %d, element %d", i, at);
        }
        dunlin_trainer_destroy(trainer);
        dunlin_model_destroy(model);
    }
}

static float *fit(const dunlin_model *model, const dunlin_trainer_options *options, int64_t *out_n)
{
    dunlin_trainer *trainer = test_create(model, options);
    dunlin_fit_options epochs = DUNLIN_FIT_OPTIONS_INIT;
    epochs.epochs = 3;
    cr_assert_eq(dunlin_trainer_fit(trainer, &data.source, &epochs, NULL, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    float *weights = test_weights(trainer, out_n);
    dunlin_trainer_destroy(trainer);
    return weights;
}

Test(margins, slices_change_no_bit)
{
    for (int i = 0; i < N_CASES; i++) {
        open_data(cases[i].loss == DUNLIN_LOSS_TRIPLET ? 3 : 2);
        dunlin_model *model = embedding_model(cases[i].loss);
        dunlin_trainer_options options = margin_options(model, cases[i].loss, cases[i].margin);
        int64_t n = 0;
        options.batch = 4;
        float *whole = fit(model, &options, &n);
        options.policy = DUNLIN_POLICY_MICROBATCH;
        options.micro_batch = 1;
        float *sliced = fit(model, &options, &n);
        cr_expect(test_same_bits(whole, sliced, n), "case %d", i);
        free(whole);
        free(sliced);
        dunlin_model_destroy(model);
    }
}

Test(margins, what_does_not_fit_is_refused)
{
    open_data(2);
    dunlin_model *model = embedding_model(DUNLIN_LOSS_CONTRASTIVE);
    dunlin_trainer_options options = margin_options(model, DUNLIN_LOSS_CONTRASTIVE, NAN);
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {0};
    cr_expect_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_ARGUMENT);
    cr_expect(strstr(error.text, "margin is") != NULL, "%s", error.text);
    own_loss.margin = 1.0F;
    own_loss.loss = DUNLIN_LOSS_MSE;
    cr_expect_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_ARGUMENT);
    cr_expect(strstr(error.text, "margin is 1") != NULL, "%s", error.text);
    options = margin_options(model, DUNLIN_LOSS_CONTRASTIVE, 2.0F);
    trainer = test_create(model, &options);
    const int64_t indices[2] = {0, 1};
    data.targets[1] = 1.5F;
    cr_expect_eq(dunlin_trainer_step(trainer, &data.source, indices, 2, NULL), DUNLIN_DATA);
    test_expect_text(trainer, "target 0 of example 1 is 1.5; it must be in [0, 1]");
    data.targets[1] = 0.0F;
    data.rows[1][1][2] = NAN;
    cr_expect_eq(dunlin_trainer_step(trainer, &data.source, indices, 2, NULL), DUNLIN_NUMERIC);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}
