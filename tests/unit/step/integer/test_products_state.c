/*
 * test_products_state.c - what a trainer whose products are in integers keeps and hands over, what
 * it refuses, and that it learns.
 */
#include "product_support.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(products_state, .timeout = 600);

/* --- state --- */

Test(products_state, go_on_from_a_checkpoint_to_the_bit)
{
    dunlin_model *model = product_normed_model();
    for (size_t i = 0; i < PRODUCT_ROWS; i++) {
        dunlin_trainer_options options = product_options(product_rows[i].name, 8);
        options.momentum = 0.9F;
        char *path = test_temp_path("products.ckpt");
        dunlin_trainer *from = test_create(model, &options);
        dunlin_trainer *to = test_create(model, &options);
        test_fit_epochs(from, model, 2);
        cr_assert_eq(dunlin_trainer_save_checkpoint(from, path), DUNLIN_OK);
        cr_assert_eq(dunlin_trainer_load_checkpoint(to, path), DUNLIN_OK, "%s",
                     dunlin_trainer_last_error(to)->text);
        test_fit_epochs(from, model, 2);
        test_fit_epochs(to, model, 2);
        test_expect_same_weights(from, to, true);
        dunlin_trainer_options floats = options;
        floats.precision = NULL;
        dunlin_trainer *other = test_create(model, &floats);
        cr_expect_eq(dunlin_trainer_load_checkpoint(other, path), DUNLIN_MISMATCH);
        cr_assert_eq(dunlin_trainer_save_checkpoint(other, path), DUNLIN_OK);
        cr_expect_eq(dunlin_trainer_load_checkpoint(to, path), DUNLIN_MISMATCH);
        test_expect_same_weights(from, to, true);
        (void)unlink(path);
        free(path);
        dunlin_trainer_destroy(other);
        dunlin_trainer_destroy(from);
        dunlin_trainer_destroy(to);
    }
    dunlin_model_destroy(model);
}

/* A calibration takes no step: neither weights nor statistics nor the optimiser see it, and an
 * evaluation before any leaves no trace. */
Test(products_state, an_evaluation_changes_no_bit_of_the_training)
{
    dunlin_model *model = product_normed_model();
    for (size_t i = 0; i < PRODUCT_ROWS; i++) {
        const dunlin_trainer_options options = product_options(product_rows[i].name, 8);
        dunlin_trainer *quiet = test_create(model, &options);
        dunlin_trainer *curious = test_create(model, &options);
        dunlin_metrics metrics[2];
        float logits[3 * 4];
        test_source source;
        test_source_init(&source, model, 40, DUNLIN_U8);
        cr_assert_eq(dunlin_trainer_evaluate(curious, &source.source, 5, 20, &metrics[0]),
                     DUNLIN_OK);
        cr_assert_eq(dunlin_trainer_evaluate(curious, &source.source, 5, 20, &metrics[1]),
                     DUNLIN_OK);
        cr_expect(metrics[0].loss > 0.0 && metrics[0].loss == metrics[1].loss);
        cr_assert_eq(dunlin_trainer_predict(curious, &source.source, 0, 3, logits), DUNLIN_OK);
        cr_expect(logits[0] != logits[1] || logits[1] != logits[2]);
        test_fit_epochs(quiet, model, 2);
        test_fit_epochs(curious, model, 2);
        test_expect_same_weights(quiet, curious, true);
        dunlin_trainer_destroy(quiet);
        dunlin_trainer_destroy(curious);
    }
    dunlin_model_destroy(model);
}

/* Rate 0: a step that moves nothing; with it the calibration before the first. */
Test(products_state, a_calibration_moves_nothing)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = product_options("adaptive-int8", 8);
    options.lr = 0.0F;
    dunlin_trainer *still = test_create(model, &options);
    dunlin_trainer *fresh = test_create(model, &options);
    test_fit_epochs(still, model, 1);
    test_expect_same_weights(still, fresh, true);
    dunlin_trainer_destroy(still);
    dunlin_trainer_destroy(fresh);
    dunlin_model_destroy(model);
}

/* --- learning --- */

/* As far as float32 gets, with the same recipe; a bound that no luck of a seed decides. */
Test(products_state, learn_as_float32_does)
{
    dunlin_model *model = product_normed_model();
    test_source source;
    dunlin_metrics floats = {.loss = 0.0};
    test_source_init(&source, model, 40, DUNLIN_U8);
    for (size_t i = 0; i <= PRODUCT_ROWS; i++) {
        dunlin_trainer_options options =
            product_options(i == 0 ? NULL : product_rows[i - 1].name, 8);
        /* Its gradients have one size, near 2^-7, whatever the loss. */
        const bool is_constant = i > 0 && product_rows[i - 1].rules.keeps_proportions;
        options.lr = is_constant ? 0.5F : 0.05F;
        options.momentum = 0.9F;
        dunlin_trainer *trainer = test_create(model, &options);
        dunlin_metrics before;
        dunlin_metrics after;
        cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, 40, &before), DUNLIN_OK);
        test_fit_epochs(trainer, model, 8);
        cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, 40, &after), DUNLIN_OK);
        if (i == 0) {
            floats = after;
            cr_assert_lt(after.loss, 0.7 * before.loss);
            dunlin_trainer_destroy(trainer);
            continue;
        }
        cr_expect_lt(after.loss, 0.7 * before.loss, "%s: %g, then %g", product_rows[i - 1].name,
                     before.loss, after.loss);
        cr_expect_lt(after.loss, floats.loss + 0.25 * before.loss, "%s: %g, in float32 %g",
                     product_rows[i - 1].name, after.loss, floats.loss);
        dunlin_trainer_destroy(trainer);
    }
    dunlin_model_destroy(model);
}

/* --- refusals --- */

static void expect_refusal(const dunlin_model *model, const dunlin_trainer_options *options,
                           dunlin_status status, const char *text)
{
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {.status = DUNLIN_OK};
    cr_expect_eq(dunlin_trainer_create(model, options, &trainer, &error), status, "%s", text);
    cr_expect(strstr(error.text, text) != NULL, "\"%s\" is not in \"%s\"", text, error.text);
    cr_expect_null(trainer);
}

Test(products_state, refuse_by_name)
{
    dunlin_model *model = product_normed_model();
    dunlin_trainer_options options = product_options("adaptive-int8", 4);
    options.grad_bits = "5";
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "grad_bits goes with precision niti");
    options.grad_bits = NULL;
    options.ghost_statistics = true;
    expect_refusal(model, &options, DUNLIN_ARGUMENT, "option ghost_statistics is set");
    options.ghost_statistics = false;
    options.storage = DUNLIN_STORAGE_BF16;
    expect_refusal(model, &options, DUNLIN_UNSUPPORTED, "precision");
    options.storage = DUNLIN_STORAGE_EXACT;
    options.precision = "adaptive";
    expect_refusal(model, &options, DUNLIN_UNSUPPORTED,
                   "precision \"adaptive\" is not in this build; it has fp32, niti");
    options.precision = "adaptive-int8";
    dunlin_trainer *trainer = test_create(model, &options);
    cr_expect_eq(dunlin_trainer_set_grad_bits(trainer, "5", 1), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_set_lr(trainer, 0.5F), DUNLIN_OK);
    cr_expect(dunlin_trainer_lr(trainer) == 0.5F);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(products_state, nothing_changes_when_a_source_is_refused)
{
    dunlin_model *model = product_normed_model();
    const dunlin_trainer_options options = product_options("adaptive-int8", 4);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_trainer *fresh = test_create(model, &options);
    const int64_t indices[] = {0, 1, 2, 3};
    test_source source;
    test_source_init(&source, model, 4, DUNLIN_F32);
    source.nan_index = 2;
    cr_expect_eq(dunlin_trainer_step(trainer, &source.source, indices, 4, NULL), DUNLIN_NUMERIC);
    test_expect_same_weights(trainer, fresh, true);
    source.nan_index = -1;
    cr_assert_eq(dunlin_trainer_step(trainer, &source.source, indices, 4, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_step(fresh, &source.source, indices, 4, NULL), DUNLIN_OK);
    test_expect_same_weights(trainer, fresh, true);
    dunlin_trainer_destroy(trainer);
    dunlin_trainer_destroy(fresh);
    dunlin_model_destroy(model);
}
