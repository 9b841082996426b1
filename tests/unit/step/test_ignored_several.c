/*
 * test_ignored_several.c - labels that are ignored, of models with several outputs: what each loss
 * is a mean over, gradients against steps on those examples alone, slices, batches without a label.
 */
#include "random.h"
#include "step/step_support.h"

#include <dunlin/arrays.h>
#include <dunlin/several.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>

TestSuite(ignored_several, .timeout = 300);

#define N 15
#define FEATURES 5
#define KINDS 4
#define SIZES 3
#define IGNORED (-7)

typedef struct labelled {
    float x[N][FEATURES];
    int32_t kinds[N], sizes[N];
    dunlin_source_input input;
    dunlin_source_answer answers[2];
    dunlin_arrays_view view;
    dunlin_source source;
} labelled;

static labelled data;
static dunlin_output_loss losses[2];

/* Kinds are missing of every third example, sizes of every second one from `last_size` on. */
static void open_data(int last_size)
{
    uint64_t rng = 3;
    dunlin_error error = {0};
    test_random_fill(data.x[0], N * FEATURES, -1.0, 1.0, &rng);
    for (int i = 0; i < N; i++) {
        data.kinds[i] = i % 3 == 0 ? IGNORED : (int32_t)test_random_below(&rng, KINDS);
        data.sizes[i] =
            i >= last_size && i % 2 == 0 ? IGNORED : (int32_t)test_random_below(&rng, SIZES);
    }
    data.input = (dunlin_source_input){
        .name = "x", .values = data.x, .n_elements = FEATURES, .dtype = DUNLIN_F32};
    data.answers[0] = (dunlin_source_answer){.name = "kind", .values = data.kinds};
    data.answers[1] = (dunlin_source_answer){.name = "size", .values = data.sizes};
    dunlin_arrays arrays = DUNLIN_ARRAYS_INIT;
    arrays.n = N;
    arrays.inputs = &data.input;
    arrays.n_inputs = 1;
    arrays.answers = data.answers;
    arrays.n_answers = 2;
    cr_assert_eq(dunlin_source_from_arrays(&arrays, &data.view, &data.source, &error), DUNLIN_OK,
                 "%s", error.text);
}

static dunlin_model *make_model(int32_t n_sizes)
{
    static const char *const names[2] = {"kind", "size"};
    const dunlin_shape row = {1, {FEATURES}};
    dunlin_builder *b = NULL;
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(b, "x", &row);
    x = dunlin_builder_tanh(b, dunlin_builder_dense(b, "trunk", x, 8));
    const dunlin_value ends[2] = {dunlin_builder_dense(b, "to_kind", x, KINDS),
                                  dunlin_builder_dense(b, "to_size", x, n_sizes)};
    cr_assert_eq(dunlin_builder_finish_outputs(b, ends, names, 2, &model, NULL), DUNLIN_OK);
    return model;
}

static dunlin_trainer_options make_options(float kind, float size)
{
    dunlin_trainer_options options = test_options(N);
    for (int i = 0; i < 2; i++) {
        losses[i] = (dunlin_output_loss)DUNLIN_OUTPUT_LOSS_INIT;
        losses[i].name = i == 0 ? "kind" : "size";
        losses[i].weight = i == 0 ? kind : size;
    }
    options.outputs = losses;
    options.n_outputs = 2;
    options.has_ignore_label = true;
    options.ignore_label = IGNORED;
    options.lr = 0.25F;
    options.momentum = 0.0F;
    options.weight_decay = 0.0F;
    return options;
}

/* The mean of -log softmax over the rows that have a label. */
static double mean_loss(dunlin_trainer *trainer, int32_t output, const int32_t *labels,
                        int32_t n_classes, int64_t *out_n)
{
    float logits[N * KINDS];
    double sum = 0.0;
    cr_assert_eq(dunlin_trainer_predict_output(trainer, &data.source, output, 0, N, logits),
                 DUNLIN_OK);
    *out_n = 0;
    for (int i = 0; i < N; i++) {
        double total = 0.0;
        for (int32_t c = 0; c < n_classes; c++) {
            total += exp((double)logits[i * n_classes + c]);
        }
        if (labels[i] != IGNORED) {
            sum += log(total) - (double)logits[i * n_classes + labels[i]];
            ++*out_n;
        }
    }
    return sum / (double)*out_n;
}

Test(ignored_several, each_loss_is_a_mean_of_its_own)
{
    open_data(0);
    dunlin_model *model = make_model(SIZES);
    const dunlin_trainer_options options = make_options(1.0F, 0.5F);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_metrics all;
    double sum = 0.0;
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &data.source, 0, N, &all), DUNLIN_OK);
    for (int32_t i = 0; i < 2; i++) {
        dunlin_metrics own;
        int64_t n = 0;
        cr_assert_eq(dunlin_trainer_get_output_metrics(trainer, i, &own), DUNLIN_OK);
        const double wanted =
            mean_loss(trainer, i, i == 0 ? data.kinds : data.sizes, i == 0 ? KINDS : SIZES, &n);
        cr_expect_float_eq(own.loss, wanted, 1e-6);
        cr_expect_eq(own.n_counted, n);
        cr_expect_eq(own.n_counted, i == 0 ? 10 : 7);
        sum += wanted * (i == 0 ? 1.0 : 0.5);
    }
    cr_expect_float_eq(all.loss, sum, 1e-6);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* What one step adds to all weights; the caller frees it. */
static float *step_of(const dunlin_model *model, const dunlin_trainer_options *options,
                      const int64_t *indices, int64_t n, int64_t *out_n)
{
    dunlin_trainer *trainer = test_create(model, options);
    float *before = test_weights(trainer, out_n);
    cr_assert_eq(dunlin_trainer_step(trainer, &data.source, indices, n, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    float *after = test_weights(trainer, out_n);
    for (int64_t i = 0; i < *out_n; i++) {
        after[i] -= before[i];
    }
    free(before);
    dunlin_trainer_destroy(trainer);
    return after;
}

static int64_t with_label(const int32_t *labels, int64_t out[N])
{
    int64_t n = 0;
    for (int64_t i = 0; i < N; i++) {
        if (labels[i] != IGNORED) {
            out[n++] = i;
        }
    }
    return n;
}

/* A step is the sum of two: each on the examples that have the label, over one output alone. */
Test(ignored_several, a_step_is_that_of_the_examples_with_a_label)
{
    int64_t indices[N];
    int64_t n = 0;
    open_data(0);
    dunlin_model *model = make_model(SIZES);
    dunlin_trainer_options options = make_options(1.0F, 0.5F);
    for (int64_t i = 0; i < N; i++) {
        indices[i] = i;
    }
    float *both = step_of(model, &options, indices, N, &n);
    options = make_options(1.0F, 0.0F);
    float *kinds = step_of(model, &options, indices, with_label(data.kinds, indices), &n);
    options = make_options(0.0F, 0.5F);
    float *sizes = step_of(model, &options, indices, with_label(data.sizes, indices), &n);
    double most = 0.0;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)both[i]));
        cr_expect_float_eq(both[i], kinds[i] + sizes[i], 1e-6, "element %d", (int)i);
    }
    cr_expect_gt(most, 1e-3);
    free(sizes);
    free(kinds);
    free(both);
    dunlin_model_destroy(model);
}

Test(ignored_several, slices_change_no_bit)
{
    int64_t n = 0;
    int64_t indices[N];
    open_data(4);
    dunlin_model *model = make_model(SIZES);
    dunlin_trainer_options options = make_options(1.0F, 0.5F);
    for (int64_t i = 0; i < N; i++) {
        indices[i] = N - 1 - i;
    }
    float *whole = step_of(model, &options, indices, N, &n);
    options.policy = DUNLIN_POLICY_MICROBATCH;
    for (int64_t slice = 1; slice <= 4; slice++) {
        options.micro_batch = slice;
        float *sliced = step_of(model, &options, indices, N, &n);
        cr_expect(test_same_bits(whole, sliced, n), "slices of %d", (int)slice);
        free(sliced);
    }
    free(whole);
    dunlin_model_destroy(model);
}

/* An output of which a batch has no label adds nothing; a batch without any is refused. */
Test(ignored_several, batches_without_a_label)
{
    const int64_t no_kind[3] = {3, 9, 0}; /* of these 3 and 9 have a size */
    const int64_t no_label[2] = {6, 12};
    float before[KINDS * 8];
    float after[KINDS * 8];
    dunlin_metrics metrics;
    dunlin_metrics own;
    open_data(0);
    dunlin_model *model = make_model(SIZES);
    const dunlin_trainer_options options = make_options(1.0F, 0.5F);
    dunlin_trainer *trainer = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_get_parameter(trainer, "to_kind.weight", before, KINDS * 8),
                 DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_step(trainer, &data.source, no_kind, 3, &metrics), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    cr_assert_eq(dunlin_trainer_get_parameter(trainer, "to_kind.weight", after, KINDS * 8),
                 DUNLIN_OK);
    cr_expect(test_same_bits(before, after, KINDS * 8));
    cr_assert_eq(dunlin_trainer_get_output_metrics(trainer, 0, &own), DUNLIN_OK);
    cr_expect(own.n_counted == 0 && own.loss == 0.0 && own.accuracy == 0.0);
    cr_assert_eq(dunlin_trainer_get_output_metrics(trainer, 1, &own), DUNLIN_OK);
    cr_expect_eq(own.n_counted, 2);
    cr_expect_float_eq(metrics.loss, 0.5 * own.loss, 1e-9);
    cr_expect_eq(dunlin_trainer_step(trainer, &data.source, no_label, 2, NULL), DUNLIN_DATA);
    test_expect_text(trainer, "none counts");
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* As auxiliary heads take it: one label for all. */
Test(ignored_several, one_answer_for_all)
{
    open_data(0);
    dunlin_model *model = make_model(KINDS);
    const dunlin_trainer_options options = make_options(1.0F, 0.5F);
    dunlin_arrays arrays = DUNLIN_ARRAYS_INIT;
    arrays.n = N;
    arrays.x = data.x;
    arrays.shape = (dunlin_shape){1, {FEATURES}};
    arrays.dtype = DUNLIN_F32;
    arrays.labels = data.kinds;
    cr_assert_eq(dunlin_source_from_arrays(&arrays, &data.view, &data.source, NULL), DUNLIN_OK);
    dunlin_trainer *trainer = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &data.source, 0, N, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    for (int32_t i = 0; i < 2; i++) {
        dunlin_metrics own;
        int64_t n = 0;
        const double wanted = mean_loss(trainer, i, data.kinds, KINDS, &n);
        cr_assert_eq(dunlin_trainer_get_output_metrics(trainer, i, &own), DUNLIN_OK);
        cr_expect_eq(own.n_counted, 10);
        cr_expect_float_eq(own.loss, wanted, 1e-6);
    }
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}
