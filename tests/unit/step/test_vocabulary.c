/*
 * test_vocabulary.c - networks whose last dense layer has many classes for each token: the loss
 * makes its product itself. Against the same step with the layer and the loss apart (no_fuse), in
 * slices, by budgets and threads; what is asked for of the logits; tied tables.
 */
#include "random.h"
#include "step/step_support.h"

#include <dunlin/pixels.h>
#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(vocabulary, .timeout = 900);

#define N 9
#define TOKENS 12
#define WIDTH 20
#define CLASSES 1100
#define IGNORED -100

static dunlin_status read_tokens(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_y)
{
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        uint64_t state = (uint64_t)indices[i] + 5;
        for (int64_t t = 0; t < TOKENS; t++) {
            ((int32_t *)out_x)[i * TOKENS + t] = (int32_t)test_random_below(&state, CLASSES);
            const int32_t label = (int32_t)test_random_below(&state, CLASSES);
            out_y[i * TOKENS + t] = (indices[i] + t) % 4 == 0 ? IGNORED : label;
        }
    }
    return DUNLIN_OK;
}

static float weight_of(void *ctx, int64_t index)
{
    (void)ctx;
    return index % 4 == 0 ? 0.0F : 0.5F * (float)(index % 4);
}

static dunlin_source open_source(bool is_weighted)
{
    dunlin_source source = DUNLIN_SOURCE_INIT;
    source.read_fn = read_tokens;
    source.n_examples = N;
    source.dtype = DUNLIN_I32;
    source.n_labels = TOKENS;
    source.weight_fn = is_weighted ? weight_of : NULL;
    return source;
}

typedef struct token_kind {
    const char *name;
    bool is_tied, has_softmax, is_weighted, has_classes;
    float smoothing;
} token_kind;

static const token_kind kinds[] = {
    {.name = "tied", .is_tied = true},
    {.name = "with a bias"},
    {.name = "weighted", .is_tied = true, .is_weighted = true, .smoothing = 0.125F},
    {.name = "classes", .has_classes = true, .smoothing = 0.125F, .has_softmax = true},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

static dunlin_model *token_model(const token_kind *kind)
{
    const dunlin_shape tokens = {1, {TOKENS}};
    dunlin_builder *builder = NULL;
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "x", &tokens);
    x = dunlin_builder_embedding(builder, "table", x, CLASSES, WIDTH);
    x = dunlin_builder_gelu(builder, dunlin_builder_dense(builder, "body", x, WIDTH));
    x = dunlin_builder_layer_norm(builder, "norm", x);
    x = kind->is_tied ? dunlin_builder_dense_tied(builder, "head", x, "table.weight")
                      : dunlin_builder_dense(builder, "head", x, CLASSES);
    x = kind->has_softmax ? dunlin_builder_softmax(builder, x) : x;
    cr_assert_eq(dunlin_builder_finish(builder, x, &model, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(dunlin_model_n_labels(model), TOKENS);
    return model;
}

static float class_weights[CLASSES];

static dunlin_trainer_options token_options(const token_kind *kind)
{
    dunlin_trainer_options options = test_options(5);
    options.optimizer = DUNLIN_OPTIMIZER_ADAMW;
    options.lr = 0.01F;
    options.momentum = 0.0F;
    options.has_ignore_label = true;
    options.ignore_label = IGNORED;
    options.label_smoothing = kind->smoothing;
    for (int i = 0; i < CLASSES; i++) {
        class_weights[i] = 0.25F * (float)(i % 7);
    }
    options.class_weights = kind->has_classes ? class_weights : NULL;
    options.n_class_weights = kind->has_classes ? CLASSES : 0;
    return options;
}

static float *train(const dunlin_model *model, const dunlin_trainer_options *options,
                    bool is_weighted, dunlin_metrics *out_metrics, int64_t *out_n)
{
    const dunlin_source source = open_source(is_weighted);
    dunlin_trainer *trainer = test_create(model, options);
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = 3;
    cr_assert_eq(dunlin_trainer_fit(trainer, &source, &fit, NULL, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &source, 0, N, out_metrics), DUNLIN_OK);
    float *weights = test_weights(trainer, out_n);
    dunlin_trainer_destroy(trainer);
    return weights;
}

/* Of a layer with a bias, which it adds last where it is apart, all but rounding. */
static void expect_same(const token_kind *kind, const float *fused, const float *apart, int64_t n,
                        float most)
{
    if (kind->is_tied) {
        cr_expect(test_same_bits(fused, apart, n), "%s", kind->name);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        cr_assert_float_eq(fused[i], apart[i], most, "%s, number %d", kind->name, (int)i);
    }
}

Test(vocabulary, the_layer_and_the_loss_apart_are_the_same)
{
    for (size_t k = 0; k < N_KINDS; k++) {
        dunlin_model *model = token_model(&kinds[k]);
        dunlin_trainer_options options = token_options(&kinds[k]);
        dunlin_metrics metrics[2];
        int64_t n = 0;
        float *fused = train(model, &options, kinds[k].is_weighted, &metrics[0], &n);
        options.no_fuse = true;
        float *apart = train(model, &options, kinds[k].is_weighted, &metrics[1], &n);
        expect_same(&kinds[k], fused, apart, n, 2e-3F);
        cr_expect_float_eq(metrics[0].loss, metrics[1].loss,
                           kinds[k].is_tied ? 0.0 : 1e-5 * metrics[0].loss, "%s", kinds[k].name);
        cr_expect_float_eq(metrics[0].accuracy, metrics[1].accuracy, 0.0, "%s", kinds[k].name);
        cr_expect_float_eq(metrics[0].top5_accuracy, metrics[1].top5_accuracy, 0.0);
        free(fused);
        free(apart);
        dunlin_model_destroy(model);
    }
}

Test(vocabulary, slices_budgets_and_threads_give_the_same_bits)
{
    for (size_t k = 0; k < N_KINDS; k++) {
        dunlin_model *model = token_model(&kinds[k]);
        const dunlin_trainer_options base = token_options(&kinds[k]);
        dunlin_metrics metrics;
        int64_t n = 0;
        float *expected = train(model, &base, kinds[k].is_weighted, &metrics, &n);
        for (int way = 0; way < 4; way++) {
            dunlin_trainer_options options = base;
            dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
            options.micro_batch = way < 2 ? way + 1 : 0;
            options.n_threads = way == 3 ? 3 : 1;
            if (way == 2) {
                cr_assert_eq(dunlin_trainer_estimate(model, &base, &report, NULL), DUNLIN_OK);
                options.budget_bytes = report.least_budget_bytes;
            }
            float *weights = train(model, &options, kinds[k].is_weighted, &metrics, &n);
            cr_expect(test_same_bits(expected, weights, n), "%s, way %d", kinds[k].name, way);
            free(weights);
        }
        free(expected);
        dunlin_model_destroy(model);
    }
}

/* A batch's logits and their gradient would take 64 x 12 x 1100 floats each, 3.2 MiB. */
Test(vocabulary, logits_are_never_whole)
{
    dunlin_model *model = token_model(&kinds[0]);
    dunlin_trainer_options options = token_options(&kinds[0]);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    const uint64_t logits = UINT64_C(64) * TOKENS * CLASSES * sizeof(float);
    options.batch = 64;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, NULL), DUNLIN_OK);
    const uint64_t fused = report.planned_bytes;
    options.no_fuse = true;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, NULL), DUNLIN_OK);
    cr_expect_lt(fused + logits, report.planned_bytes, "%llu and %llu bytes",
                 (unsigned long long)fused, (unsigned long long)report.planned_bytes);
    dunlin_model_destroy(model);
}

/* Predictions are all logits (or what the model's softmax makes of them), and the evaluation is
 * what they say. */
Test(vocabulary, predictions_have_all_classes)
{
    static float outputs[2][N * TOKENS * CLASSES];
    for (size_t k = 0; k < N_KINDS; k++) {
        dunlin_model *model = token_model(&kinds[k]);
        const dunlin_source source = open_source(false);
        dunlin_metrics metrics;
        for (int is_apart = 0; is_apart < 2; is_apart++) {
            dunlin_trainer_options options = test_options(4);
            options.has_ignore_label = true;
            options.ignore_label = IGNORED;
            options.no_fuse = is_apart == 1;
            dunlin_trainer *trainer = test_create(model, &options);
            cr_assert_eq(dunlin_trainer_predict(trainer, &source, 0, N, outputs[is_apart]),
                         DUNLIN_OK, "%s", dunlin_trainer_last_error(trainer)->text);
            cr_assert_eq(dunlin_trainer_evaluate(trainer, &source, 0, N, &metrics), DUNLIN_OK);
            dunlin_trainer_destroy(trainer);
        }
        expect_same(&kinds[k], outputs[0], outputs[1], N * TOKENS * CLASSES, 1e-5F);
        double loss = 0.0;
        int64_t n = 0;
        for (int64_t row = 0; row < N * TOKENS; row++) {
            int32_t x[TOKENS];
            int32_t labels[TOKENS];
            (void)read_tokens(NULL, &(int64_t){row / TOKENS}, 1, x, labels);
            const int32_t label = labels[row % TOKENS];
            const float *own = outputs[0] + row * CLASSES;
            double sum = 0.0;
            for (int c = 0; c < CLASSES; c++) {
                sum += kinds[k].has_softmax ? (double)own[c] : exp((double)own[c]);
            }
            if (label != IGNORED) {
                loss += log(sum) -
                        (kinds[k].has_softmax ? log((double)own[label]) : (double)own[label]);
                n++;
            }
        }
        cr_expect_eq(metrics.n_counted, n);
        cr_expect_float_eq(metrics.loss, loss / (double)n, 1e-5, "%s: %.9g, not %.9g",
                           kinds[k].name, metrics.loss, loss / (double)n);
        dunlin_model_destroy(model);
    }
}

/* How often rows of a label had their highest logit at each class. */
Test(vocabulary, answers_are_counted)
{
    dunlin_model *model = token_model(&kinds[0]);
    const dunlin_source source = open_source(false);
    int64_t *counts[2];
    for (int is_apart = 0; is_apart < 2; is_apart++) {
        dunlin_trainer_options options = token_options(&kinds[0]);
        options.no_fuse = is_apart == 1;
        dunlin_trainer *trainer = test_create(model, &options);
        counts[is_apart] = calloc((size_t)CLASSES * CLASSES, sizeof **counts);
        cr_assert_not_null(counts[is_apart]);
        cr_assert_eq(dunlin_trainer_confusion(trainer, &source, 0, N, CLASSES, counts[is_apart],
                                              &(dunlin_metrics){0}),
                     DUNLIN_OK, "%s", dunlin_trainer_last_error(trainer)->text);
        dunlin_trainer_destroy(trainer);
    }
    cr_expect_eq(memcmp(counts[0], counts[1], sizeof(int64_t) * CLASSES * CLASSES), 0);
    free(counts[0]);
    free(counts[1]);
    dunlin_model_destroy(model);
}

/* Both uses of a tied table move it: the row of a token that is no label and comes nowhere is
 * moved by the head, and a frozen table stays. */
Test(vocabulary, a_tied_table_is_one_parameter)
{
    dunlin_model *tied = token_model(&kinds[0]);
    dunlin_model *untied = token_model(&kinds[1]);
    cr_expect_eq(dunlin_model_n_trainable_elements(untied) -
                     dunlin_model_n_trainable_elements(tied),
                 CLASSES * WIDTH + CLASSES);
    dunlin_trainer_options options = token_options(&kinds[0]);
    const dunlin_source source = open_source(false);
    for (int is_frozen = 0; is_frozen < 2; is_frozen++) {
        static float before[CLASSES * WIDTH];
        static float after[CLASSES * WIDTH];
        options.frozen_prefixes = is_frozen == 1 ? "table" : NULL;
        dunlin_trainer *trainer = test_create(tied, &options);
        cr_assert_eq(dunlin_trainer_get_parameter(trainer, "table.weight", before, CLASSES * WIDTH),
                     DUNLIN_OK);
        cr_assert_eq(dunlin_trainer_step(trainer, &source, (int64_t[]){0, 1, 2, 3, 4}, 5, NULL),
                     DUNLIN_OK, "%s", dunlin_trainer_last_error(trainer)->text);
        cr_assert_eq(dunlin_trainer_get_parameter(trainer, "table.weight", after, CLASSES * WIDTH),
                     DUNLIN_OK);
        int n_moved = 0;
        for (int row = 0; row < CLASSES; row++) {
            n_moved +=
                memcmp(before + row * WIDTH, after + row * WIDTH, WIDTH * sizeof(float)) != 0;
        }
        cr_expect_eq(n_moved, is_frozen == 1 ? 0 : CLASSES);
        dunlin_trainer_destroy(trainer);
    }
    dunlin_model_destroy(tied);
    dunlin_model_destroy(untied);
}

static void leave_gradient(void *ctx, int32_t parameter_index, int64_t n, const float *weights,
                           float *gradient, float *const *slots)
{
    (void)ctx;
    (void)parameter_index;
    (void)n;
    (void)weights;
    (void)gradient;
    (void)slots;
}

/* The tokens' part of a tied table's gradient is kept by rows, and with a hook dense. */
Test(vocabulary, rows_of_a_tied_table_have_the_bits_of_a_dense_gradient)
{
    dunlin_model *model = token_model(&kinds[0]);
    for (int way = 0; way < 3; way++) {
        dunlin_trainer_options options = token_options(&kinds[0]);
        dunlin_metrics metrics;
        int64_t n = 0;
        options.no_fuse = way == 1;
        options.clip_norm = way == 2 ? 1e9F : 0.0F; /* updates wait; nothing is clipped */
        options.n_threads = way == 2 ? 2 : 1;
        float *by_rows = train(model, &options, false, &metrics, &n);
        options.gradient_fn = leave_gradient;
        float *dense = train(model, &options, false, &metrics, &n);
        cr_expect(test_same_bits(by_rows, dense, n), "way %d", way);
        free(by_rows);
        free(dense);
    }
    dunlin_model_destroy(model);
}

/* A file with one stored table, which is picked from and multiplied by, is the same network. */
Test(vocabulary, a_file_comes_back)
{
    for (size_t k = 0; k < 2; k++) {
        char *path = test_temp_path("vocabulary.onnx");
        dunlin_model *model = token_model(&kinds[k]);
        dunlin_model *back = NULL;
        dunlin_error error = {0};
        const dunlin_trainer_options options = token_options(&kinds[k]);
        dunlin_metrics metrics;
        int64_t n = 0;
        int64_t n_back = 0;
        dunlin_trainer *trainer = test_create(model, &options);
        cr_assert_eq(dunlin_trainer_export_onnx(trainer, path), DUNLIN_OK);
        dunlin_trainer_destroy(trainer);
        cr_assert_eq(dunlin_model_open(path, NULL, &back, &error), DUNLIN_OK, "%s", error.text);
        cr_expect_eq(dunlin_model_n_parameters(back), dunlin_model_n_parameters(model));
        float *expected = train(model, &options, false, &metrics, &n);
        float *weights = train(back, &options, false, &metrics, &n_back);
        cr_assert_eq(n, n_back);
        cr_expect(test_same_bits(expected, weights, n), "%s", kinds[k].name);
        free(expected);
        free(weights);
        dunlin_model_destroy(model);
        dunlin_model_destroy(back);
        (void)unlink(path);
        free(path);
    }
}

Test(vocabulary, what_a_tied_layer_refuses)
{
    static const struct {
        const char *parameter, *text;
    } cases[] = {{"nothing", "a tied layer names a parameter that is not there"},
                 {NULL, "a tied layer names a parameter that is not there"},
                 {"body.bias", "parameter 'body.bias'"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const dunlin_shape tokens = {1, {TOKENS}};
        dunlin_builder *builder = NULL;
        dunlin_model *model = NULL;
        dunlin_error error = {0};
        cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
        dunlin_value x = dunlin_builder_input(builder, "x", &tokens);
        x = dunlin_builder_embedding(builder, "table", x, CLASSES, WIDTH);
        x = dunlin_builder_dense(builder, "body", x, WIDTH);
        x = dunlin_builder_dense_tied(builder, "head", x, cases[i].parameter);
        cr_expect_neq(dunlin_builder_finish(builder, x, &model, &error), DUNLIN_OK);
        cr_expect_not_null(strstr(error.text, cases[i].text), "case %zu: %s", i, error.text);
        cr_expect_null(model);
    }
}
