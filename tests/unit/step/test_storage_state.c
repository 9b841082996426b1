/*
 * test_storage_state.c - storage in bfloat16: what is refused by name, what reports say, what goes
 * with checkpoints and kept plans, and values that are not finite.
 */
#include "step/step_support.h"

#include <dunlin/baselines.h>
#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(storage_state, .timeout = 900);

static dunlin_trainer_options bf16_options(int64_t batch)
{
    dunlin_trainer_options options = test_options(batch);
    options.storage = DUNLIN_STORAGE_BF16;
    return options;
}

static dunlin_model *zoo_model(const char *name, int32_t image)
{
    const dunlin_zoo_options sizes = {.struct_size = sizeof(dunlin_zoo_options), .image = image};
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_from_zoo(name, &sizes, NULL, &model, NULL), DUNLIN_OK);
    return model;
}

static void expect_refused(const dunlin_model *model, const dunlin_trainer_options *options,
                           dunlin_status status, const char *text)
{
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {.status = DUNLIN_OK};
    cr_expect_eq(dunlin_trainer_create(model, options, &trainer, &error), status, "%s: %s", text,
                 error.text);
    cr_expect_null(trainer);
    cr_expect_not_null(strstr(error.text, text), "\"%s\" is not in: %s", text, error.text);
}

Test(storage_state, what_cannot_be_yet_is_refused_by_name)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = bf16_options(4);
    options.storage = DUNLIN_STORAGE_INT8;
    expect_refused(model, &options, DUNLIN_UNSUPPORTED, "int8 is not there yet");
    options.storage = (dunlin_storage)3;
    expect_refused(model, &options, DUNLIN_ARGUMENT, "option storage is 3");
    options = bf16_options(4);
    options.no_fuse = true;
    expect_refused(model, &options, DUNLIN_UNSUPPORTED, "no_fuse");
    options = bf16_options(4);
    options.policy = DUNLIN_POLICY_NONE;
    expect_refused(model, &options, DUNLIN_UNSUPPORTED, "policy none");
    options = bf16_options(4);
    options.baselines = dunlin_baselines_published();
    options.policy = DUNLIN_POLICY_VDNN;
    expect_refused(model, &options, DUNLIN_UNSUPPORTED, "vdnn");
    options.policy = DUNLIN_POLICY_CAPUCHIN;
    expect_refused(model, &options, DUNLIN_UNSUPPORTED, "capuchin");
    options = bf16_options(4);
    options.ghost_statistics = true;
    expect_refused(model, &options, DUNLIN_UNSUPPORTED, "ghost_statistics");
    options = bf16_options(4);
    options.precision = "niti";
    expect_refused(model, &options, DUNLIN_UNSUPPORTED, "precision");
    dunlin_model_destroy(model);
    model = zoo_model("squeezenet1_1", 32);
    options = bf16_options(4);
    expect_refused(model, &options, DUNLIN_UNSUPPORTED, "a concatenation");
    dunlin_model_destroy(model);
}

Test(storage_state, the_report_says_what_is_rounded)
{
    dunlin_model *model = zoo_model("mobilenet_v2", 32);
    dunlin_trainer_options options = bf16_options(32);
    dunlin_trainer_report rounded = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_trainer_report exact = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &rounded, NULL), DUNLIN_OK);
    options.storage = DUNLIN_STORAGE_EXACT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &exact, NULL), DUNLIN_OK);
    cr_expect_eq(rounded.storage, DUNLIN_STORAGE_BF16);
    cr_expect_not(rounded.is_exact);
    cr_expect_eq(exact.storage, DUNLIN_STORAGE_EXACT);
    cr_expect(exact.is_exact);
    cr_expect_eq(exact.n_narrow, 0);
    /* 52 convolutions, 10 sums, the gradient of each of 52 batch norms; the last dense layer is
     * the output */
    cr_expect_eq(rounded.n_narrow, 52 + 10 + 52);
    cr_expect_lt((double)rounded.by_class.activations, 0.52 * (double)exact.by_class.activations);
    cr_expect_lt(rounded.least_budget_bytes, exact.least_budget_bytes);
    dunlin_model_destroy(model);
}

Test(storage_state, the_weights_are_other_ones)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = bf16_options(6);
    int64_t n = 0;
    float *rounded = test_train(model, &options, 2, &n);
    options.storage = DUNLIN_STORAGE_EXACT;
    float *exact = test_train(model, &options, 2, &n);
    double error = 0.0;
    double norm = 0.0;
    for (int64_t i = 0; i < n; i++) {
        error += pow((double)rounded[i] - (double)exact[i], 2.0);
        norm += pow((double)exact[i], 2.0);
    }
    cr_expect_gt(error, 0.0);
    cr_expect_lt(sqrt(error / norm), 0.05, "%g", sqrt(error / norm));
    free(rounded);
    free(exact);
    dunlin_model_destroy(model);
}

Test(storage_state, a_checkpoint_goes_on_under_its_own_storage_alone)
{
    dunlin_model *model = test_small_model(true);
    char *path = test_temp_path("storage.ckpt");
    const dunlin_trainer_options options = bf16_options(5);
    dunlin_trainer *first = test_create(model, &options);
    test_fit_epochs(first, model, 1);
    cr_assert_eq(dunlin_trainer_save_checkpoint(first, path), DUNLIN_OK);
    dunlin_trainer *second = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_load_checkpoint(second, path), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(second)->text);
    test_expect_same_weights(first, second, true);
    test_fit_epochs(first, model, 1);
    test_fit_epochs(second, model, 1);
    test_expect_same_weights(first, second, true);
    const dunlin_trainer_options plain = test_options(5);
    dunlin_trainer *exact = test_create(model, &plain);
    cr_expect_eq(dunlin_trainer_load_checkpoint(exact, path), DUNLIN_MISMATCH);
    test_expect_text(exact, "option storage is bf16 there and exact in the trainer");
    cr_assert_eq(dunlin_trainer_save_checkpoint(exact, path), DUNLIN_OK);
    cr_expect_eq(dunlin_trainer_load_checkpoint(second, path), DUNLIN_MISMATCH);
    test_expect_text(second, "option storage is exact there and bf16 in the trainer");
    test_expect_same_weights(first, second, true);
    dunlin_trainer_destroy(first);
    dunlin_trainer_destroy(second);
    dunlin_trainer_destroy(exact);
    (void)unlink(path);
    free(path);
    dunlin_model_destroy(model);
}

static int empty_folder(const char *folder)
{
    int n = 0;
    DIR *list = opendir(folder);
    for (struct dirent *entry = list == NULL ? NULL : readdir(list); entry != NULL;
         entry = readdir(list)) {
        char path[4096];
        if (entry->d_name[0] != '.') {
            (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            n += unlink(path) == 0 ? 1 : 0;
        }
    }
    if (list != NULL) {
        (void)closedir(list);
    }
    (void)rmdir(folder);
    return n;
}

Test(storage_state, kept_plans_are_of_one_storage)
{
    dunlin_model *model = test_small_model(true);
    char *folder = test_temp_path("storage.plans");
    dunlin_trainer_options options = bf16_options(9);
    options.cache_dir = folder;
    bool is_kept[4];
    for (int i = 0; i < 4; i++) {
        options.storage = i % 2 == 0 ? DUNLIN_STORAGE_BF16 : DUNLIN_STORAGE_EXACT;
        dunlin_trainer *trainer = test_create(model, &options);
        dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
        cr_assert_eq(dunlin_trainer_get_report(trainer, &report), DUNLIN_OK);
        is_kept[i] = report.is_plan_kept;
        dunlin_trainer_destroy(trainer);
    }
    cr_expect(!is_kept[0] && !is_kept[1] && is_kept[2] && is_kept[3]);
    cr_expect_eq(empty_folder(folder), 2);
    free(folder);
    dunlin_model_destroy(model);
}

/* The first convolution's weights at `size`, the others as they are. */
static void scale_first(dunlin_trainer *trainer, float size)
{
    float weights[16];
    for (int i = 0; i < 16; i++) {
        weights[i] = size;
    }
    cr_assert_eq(dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_TRAINABLE, 0, 16, weights),
                 DUNLIN_OK);
}

Test(storage_state, what_is_not_finite_ends_the_step_before_anything_changes)
{
    for (int has_norm = 0; has_norm < 2; has_norm++) {
        dunlin_model *model = test_small_model(has_norm != 0);
        const dunlin_trainer_options options = bf16_options(4);
        dunlin_trainer *trainer = test_create(model, &options);
        dunlin_trainer *before = test_create(model, &options);
        test_source source;
        test_source_init(&source, model, 4, DUNLIN_F32);
        const int64_t indices[] = {0, 1, 2, 3};
        source.nan_index = 2;
        cr_expect_eq(dunlin_trainer_step(trainer, &source.source, indices, 4, NULL),
                     DUNLIN_NUMERIC);
        test_expect_same_weights(trainer, before, true);
        source.nan_index = -1;
        scale_first(trainer, 3.4e38F);
        scale_first(before, 3.4e38F);
        cr_expect_eq(dunlin_trainer_step(trainer, &source.source, indices, 4, NULL),
                     DUNLIN_NUMERIC);
        test_expect_same_weights(trainer, before, true);
        scale_first(trainer, 0.1F);
        cr_expect_eq(dunlin_trainer_step(trainer, &source.source, indices, 4, NULL), DUNLIN_OK,
                     "%s", dunlin_trainer_last_error(trainer)->text);
        dunlin_trainer_destroy(trainer);
        dunlin_trainer_destroy(before);
        dunlin_model_destroy(model);
    }
}
