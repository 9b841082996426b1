/*
 * test_augment_fit.c - training on examples that a pipeline mixes: the same weights whatever the
 * threads, the budget and the reading ahead; labels as shares of classes.
 */
#include <dunlin/pipeline.h>
#include <dunlin/tools.h>
#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <string.h>

TestSuite(augment_fit, .timeout = 120);

/* Two epochs of LeNet-5 on mixed glyphs, by `n_threads` and within `budget_bytes`. */
static void fit_mixed(int32_t n_threads, uint64_t budget_bytes, uint64_t prefetch_bytes,
                      float out_weights[64])
{
    dunlin_dataset_options data_options = DUNLIN_DATASET_OPTIONS_INIT;
    data_options.max_examples = 80;
    dunlin_dataset *set = NULL;
    dunlin_model *model = NULL;
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {0};
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 16;
    options.n_threads = n_threads;
    options.budget_bytes = budget_bytes;
    options.loss = DUNLIN_LOSS_SOFT_CROSS_ENTROPY;
    cr_assert_eq(dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TRAIN, &data_options,
                                           NULL, &set, NULL),
                 DUNLIN_OK);
    cr_assert_eq(dunlin_model_from_zoo("lenet5", NULL, NULL, &model, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_OK, "%s",
                 error.text);
    dunlin_source below;
    dunlin_source source;
    dunlin_dataset_source(set, &below);
    const dunlin_shape shape = dunlin_dataset_shape(set);
    dunlin_pipeline_options drawn = DUNLIN_PIPELINE_OPTIONS_INIT;
    drawn.cutout = 8;
    drawn.mixup = 0.5F;
    drawn.n_classes = 10;
    drawn.noise = 0.1F;
    drawn.epoch_steps = 5;
    drawn.prefetch_bytes = prefetch_bytes;
    dunlin_pipeline *pipeline = NULL;
    cr_assert_eq(dunlin_pipeline_create(&below, &shape, &drawn, NULL, &pipeline, &error), DUNLIN_OK,
                 "%s", error.text);
    dunlin_pipeline_source(pipeline, &source);
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = 2;
    dunlin_metrics metrics = {0};
    cr_assert_eq(dunlin_trainer_fit(trainer, &source, &fit, NULL, &metrics), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &source, 0, 80, &metrics), DUNLIN_OK);
    cr_assert(metrics.accuracy > 0.0 && metrics.top5_accuracy >= metrics.accuracy);
    cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, 64, out_weights),
                 DUNLIN_OK);
    dunlin_trainer_destroy(trainer);
    dunlin_pipeline_destroy(pipeline);
    dunlin_model_destroy(model);
    dunlin_dataset_close(set);
}

/* Labels where shares are asked for are a share of 1: the same weights as over labels, to the bit.
 */
Test(augment_fit, labels_are_shares_of_one)
{
    float weights[2][64];
    double losses[2];
    for (int k = 0; k < 2; k++) {
        dunlin_dataset_options data_options = DUNLIN_DATASET_OPTIONS_INIT;
        data_options.max_examples = 60;
        dunlin_dataset *set = NULL;
        dunlin_model *model = NULL;
        dunlin_trainer *trainer = NULL;
        dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
        options.batch = 16;
        options.label_smoothing = 0.1F;
        options.loss = k == 0 ? DUNLIN_LOSS_CROSS_ENTROPY : DUNLIN_LOSS_SOFT_CROSS_ENTROPY;
        cr_assert_eq(dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TRAIN, &data_options,
                                               NULL, &set, NULL),
                     DUNLIN_OK);
        cr_assert_eq(dunlin_model_from_zoo("lenet5", NULL, NULL, &model, NULL), DUNLIN_OK);
        cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, NULL), DUNLIN_OK);
        dunlin_source source;
        dunlin_dataset_source(set, &source);
        dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
        dunlin_metrics metrics = {0};
        fit.epochs = 2;
        cr_assert_eq(dunlin_trainer_fit(trainer, &source, &fit, NULL, &metrics), DUNLIN_OK, "%s",
                     dunlin_trainer_last_error(trainer)->text);
        losses[k] = metrics.loss;
        cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, 64, weights[k]),
                     DUNLIN_OK);
        dunlin_trainer_destroy(trainer);
        dunlin_model_destroy(model);
        dunlin_dataset_close(set);
    }
    cr_assert_eq(losses[0], losses[1]);
    cr_assert_eq(memcmp(weights[0], weights[1], sizeof weights[0]), 0);
}

Test(augment_fit, a_fit_on_mixed_examples_ends_with_the_same_weights)
{
    float plain[64];
    float other[64];
    fit_mixed(1, 0, 0, plain);
    fit_mixed(3, 0, 1 << 18, other);
    cr_assert_eq(memcmp(plain, other, sizeof plain), 0, "threads and reading ahead");
    fit_mixed(1, 800 << 10, 0, other);
    cr_assert_eq(memcmp(plain, other, sizeof plain), 0, "a budget");
}
