/*
 * test_predictor.c - inference alone: the trainer's outputs to the bit, within its budget, for any
 * budget, batch and number of threads.
 */
#include "random.h"
#include "step/step_support.h"

#include <dunlin/predictor.h>
#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_EXAMPLES = 21 };

/* A predictor with the weights of a trainer. */
static dunlin_predictor *predictor_like(const dunlin_model *model, const dunlin_trainer *trainer,
                                        const dunlin_predictor_options *options)
{
    dunlin_error error = {0};
    dunlin_predictor *predictor = NULL;
    cr_assert_eq(dunlin_predictor_create(model, options, &predictor, &error), DUNLIN_OK, "%s",
                 error.text);
    const int64_t n = dunlin_trainer_n_weights(trainer, DUNLIN_WEIGHTS_ALL);
    cr_assert_eq(dunlin_predictor_n_weights(predictor, DUNLIN_WEIGHTS_ALL), n);
    float *weights = malloc((size_t)n * sizeof *weights);
    cr_assert_not_null(weights);
    cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, n, weights), DUNLIN_OK);
    /* In two pieces, the border anywhere. */
    const int64_t half = n / 2;
    cr_assert_eq(dunlin_predictor_set_weights(predictor, DUNLIN_WEIGHTS_ALL, half, n - half,
                                              weights + half, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_assert_eq(
        dunlin_predictor_set_weights(predictor, DUNLIN_WEIGHTS_ALL, 0, half, weights, &error),
        DUNLIN_OK, "%s", error.text);
    free(weights);
    return predictor;
}

static void expect_outputs(dunlin_predictor *predictor, const dunlin_source *source,
                           const float *expected, int64_t n_outputs, const char *what)
{
    dunlin_error error = {0};
    float *outputs = malloc((size_t)(N_EXAMPLES * n_outputs) * sizeof *outputs);
    cr_assert_not_null(outputs);
    cr_assert_eq(dunlin_predictor_predict(predictor, source, 0, N_EXAMPLES, outputs, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect(test_same_bits(outputs, expected, N_EXAMPLES * n_outputs), "%s", what);
    free(outputs);
}

static void check_model(const dunlin_model *model)
{
    const dunlin_trainer_options options = test_options(4);
    dunlin_trainer *trainer = test_create(model, &options);
    test_source source;
    test_source_init(&source, model, N_EXAMPLES, DUNLIN_U8);
    const int64_t n_outputs = dunlin_model_n_outputs(model);
    float *expected = malloc((size_t)(N_EXAMPLES * n_outputs) * sizeof *expected);
    const int64_t indices[4] = {0, 1, 2, 3};
    cr_assert_eq(dunlin_trainer_step(trainer, &source.source, indices, 4, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_predict(trainer, &source.source, 0, N_EXAMPLES, expected),
                 DUNLIN_OK);

    static const int64_t batches[] = {1, 4, 32};
    for (int i = 0; i < 6; i++) {
        dunlin_predictor_options wanted = DUNLIN_PREDICTOR_OPTIONS_INIT;
        wanted.batch = batches[i % 3];
        wanted.n_threads = i < 3 ? 1 : 3;
        dunlin_predictor *predictor = predictor_like(model, trainer, &wanted);
        expect_outputs(predictor, &source.source, expected, n_outputs, "without a budget");
        dunlin_predictor_destroy(predictor);
    }
    free(expected);
    dunlin_trainer_destroy(trainer);
}

Test(predictor, outputs_are_the_trainers_to_the_bit)
{
    uint64_t rng = test_seed(20261126);
    for (int i = 0; i < 8; i++) {
        dunlin_model *model = test_random_model(&rng, i % 2 == 0);
        check_model(model);
        dunlin_model_destroy(model);
    }
}

/* The least that does for a batch, as the refusal of one byte says. */
static uint64_t least_of(const dunlin_model *model, int64_t batch)
{
    dunlin_error error = {0};
    dunlin_predictor *predictor = NULL;
    dunlin_predictor_options options = DUNLIN_PREDICTOR_OPTIONS_INIT;
    options.batch = batch;
    options.budget_bytes = 1;
    cr_assert_eq(dunlin_predictor_create(model, &options, &predictor, &error), DUNLIN_BUDGET);
    cr_assert_null(predictor);
    cr_assert_gt(error.needed_bytes, 1);
    return error.needed_bytes;
}

Test(predictor, every_budget_from_the_least_on_gives_the_same_bits)
{
    dunlin_model *model = test_small_model(true);
    const dunlin_trainer_options options = test_options(4);
    dunlin_trainer *trainer = test_create(model, &options);
    test_source source;
    test_source_init(&source, model, N_EXAMPLES, DUNLIN_U8);
    const int64_t n_outputs = dunlin_model_n_outputs(model);
    float *expected = malloc((size_t)(N_EXAMPLES * n_outputs) * sizeof *expected);
    cr_assert_eq(dunlin_trainer_predict(trainer, &source.source, 0, N_EXAMPLES, expected),
                 DUNLIN_OK);
    const uint64_t least = least_of(model, 16);
    for (uint64_t i = 0; i < 6; i++) {
        dunlin_predictor_options wanted = DUNLIN_PREDICTOR_OPTIONS_INIT;
        wanted.batch = 16;
        wanted.budget_bytes = least + i * i * 4096;
        dunlin_predictor_report report = DUNLIN_PREDICTOR_REPORT_INIT;
        dunlin_predictor *predictor = predictor_like(model, trainer, &wanted);
        cr_assert_eq(dunlin_predictor_get_report(predictor, &report), DUNLIN_OK);
        cr_expect_leq(report.planned_bytes, wanted.budget_bytes);
        cr_expect_eq(report.planned_bytes,
                     report.weights_bytes + report.activations_bytes + report.tables_bytes);
        expect_outputs(predictor, &source.source, expected, n_outputs, "within a budget");
        dunlin_predictor_destroy(predictor);
    }
    free(expected);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(predictor, takes_no_more_than_it_planned)
{
    dunlin_model *model = test_small_model(true);
    test_source source;
    test_source_init(&source, model, N_EXAMPLES, DUNLIN_U8);
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_predictor_options options = DUNLIN_PREDICTOR_OPTIONS_INIT;
    options.batch = 8;
    options.alloc = counter.hooks;
    dunlin_predictor *predictor = NULL;
    float outputs[N_EXAMPLES * 16];
    cr_assert_eq(dunlin_predictor_create(model, &options, &predictor, NULL), DUNLIN_OK);
    dunlin_predictor_report report = DUNLIN_PREDICTOR_REPORT_INIT;
    cr_assert_eq(dunlin_predictor_get_report(predictor, &report), DUNLIN_OK);
    const uint64_t before = counter.now_bytes;
    counter.peak_bytes = before;
    cr_expect_leq(before, report.planned_bytes + 64); /* the arena's alignment */
    cr_expect_geq(before, report.planned_bytes);
    cr_assert_eq(dunlin_predictor_predict(predictor, &source.source, 0, N_EXAMPLES, outputs, NULL),
                 DUNLIN_OK);
    cr_expect_eq(counter.peak_bytes, before, "predicting allocates");
    dunlin_predictor_destroy(predictor);
    cr_expect_eq(counter.now_bytes, 0);
    dunlin_model_destroy(model);
}

/* Asks for outputs of the predictor that is asking it. */
typedef struct nosy {
    dunlin_source inner, source;
    dunlin_predictor *predictor;
    dunlin_status answer;
} nosy;

static dunlin_status read_nosily(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_y)
{
    nosy *self = ctx;
    float outputs[16];
    self->answer = dunlin_predictor_predict(self->predictor, &self->inner, 0, 1, outputs, NULL);
    return self->inner.read_fn(self->inner.ctx, indices, n, out_x, out_y);
}

/* Never called: whoever gives this alone is refused. */
static dunlin_status read_targets(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                  float *out_targets)
{
    (void)ctx, (void)indices, (void)n, (void)out_x, (void)out_targets;
    return DUNLIN_CALLBACK;
}

Test(predictor, refusals)
{
    dunlin_model *model = test_small_model(false);
    test_source source;
    test_source_init(&source, model, N_EXAMPLES, DUNLIN_F32);
    dunlin_error error = {0};
    dunlin_predictor *predictor = NULL;
    float outputs[N_EXAMPLES * 16];
    dunlin_predictor_options options = DUNLIN_PREDICTOR_OPTIONS_INIT;
    cr_expect_eq(dunlin_predictor_create(NULL, NULL, &predictor, &error), DUNLIN_ARGUMENT);
    options.batch = -1;
    cr_expect_eq(dunlin_predictor_create(model, &options, &predictor, &error), DUNLIN_ARGUMENT);
    options.batch = 1;
    options.n_threads = 257;
    cr_expect_eq(dunlin_predictor_create(model, &options, &predictor, &error), DUNLIN_ARGUMENT);
    options.n_threads = 1;
    options.isa = "abacus";
    cr_expect_eq(dunlin_predictor_create(model, &options, &predictor, &error), DUNLIN_UNSUPPORTED);
    options.struct_size = 0;
    cr_expect_eq(dunlin_predictor_create(model, &options, &predictor, &error), DUNLIN_ARGUMENT);
    cr_expect_null(predictor);

    cr_assert_eq(dunlin_predictor_create(model, NULL, &predictor, &error), DUNLIN_OK);
    const dunlin_source *from = &source.source;
    cr_expect_eq(dunlin_predictor_predict(predictor, NULL, 0, 1, outputs, &error), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_predictor_predict(predictor, from, 0, 1, NULL, &error), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_predictor_predict(predictor, from, 0, 0, outputs, &error), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_predictor_predict(predictor, from, 1, N_EXAMPLES, outputs, &error),
                 DUNLIN_ARGUMENT);
    dunlin_source targets = source.source;
    targets.read_fn = NULL;
    targets.read_targets_fn = read_targets;
    cr_expect_eq(dunlin_predictor_predict(predictor, &targets, 0, 1, outputs, &error),
                 DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "read_targets_fn alone"), "%s", error.text);
    cr_expect_eq(error.code, 0);
    source.nan_index = 3;
    cr_expect_eq(dunlin_predictor_predict(predictor, from, 0, N_EXAMPLES, outputs, &error),
                 DUNLIN_NUMERIC);
    cr_expect_not_null(strstr(error.text, "3"), "%s", error.text);
    source.nan_index = -1;
    source.fail_at_read = source.n_read + 2;
    cr_expect_eq(dunlin_predictor_predict(predictor, from, 0, N_EXAMPLES, outputs, &error),
                 DUNLIN_CALLBACK);
    source.fail_at_read = -1;

    const float values[2] = {0.0F, NAN};
    const int64_t n = dunlin_predictor_n_weights(predictor, DUNLIN_WEIGHTS_ALL);
    cr_expect_eq(dunlin_predictor_set_weights(predictor, DUNLIN_WEIGHTS_ALL, 0, 2, values, &error),
                 DUNLIN_NUMERIC);
    cr_expect_eq(dunlin_predictor_set_weights(predictor, DUNLIN_WEIGHTS_ALL, n, 1, values, &error),
                 DUNLIN_MISMATCH);
    cr_expect_eq(dunlin_predictor_set_weights(predictor, DUNLIN_WEIGHTS_ALL, 0, 1, NULL, &error),
                 DUNLIN_ARGUMENT);

    nosy self = {.inner = source.source, .source = source.source, .predictor = predictor};
    self.source.ctx = &self;
    self.source.read_fn = read_nosily;
    cr_expect_eq(dunlin_predictor_predict(predictor, &self.source, 0, 2, outputs, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect_eq(self.answer, DUNLIN_STATE);
    dunlin_predictor_destroy(predictor);
    dunlin_predictor_destroy(NULL);
    dunlin_model_destroy(model);
}
