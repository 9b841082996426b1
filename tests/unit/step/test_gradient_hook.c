/*
 * test_gradient_hook.c - an application's hook between gradients and update, and the slots it
 * keeps.
 */
#include "step/step_support.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct hook_log {
    int32_t n_slots;
    int64_t n_calls;
    float mu;
} hook_log;

/* FedProx: the gradient of mu/2 |w - base|^2, with the base in slot 0; counts calls in slot 1. */
static void add_proximal(void *ctx, int32_t parameter_index, int64_t n, const float *weights,
                         float *gradient, float *const *slots)
{
    hook_log *log = ctx;
    cr_assert_geq(parameter_index, 0);
    log->n_calls++;
    for (int64_t i = 0; i < n; i++) {
        gradient[i] += log->mu * (weights[i] - slots[0][i]);
        slots[1][i] += 1.0F;
    }
}

Test(state, the_gradient_hook_holds_weights_back)
{
    dunlin_model *model = test_small_model(false);
    double distances[2];
    for (int k = 0; k < 2; k++) {
        hook_log log = {.mu = k == 0 ? 0.0F : 5.0F};
        dunlin_trainer_options options = test_options(8);
        options.momentum = 0.0F;
        options.gradient_fn = add_proximal;
        options.gradient_ctx = &log;
        options.n_gradient_slots = 2;
        dunlin_trainer *trainer = test_create(model, &options);
        cr_expect_eq(dunlin_trainer_copy_weights_to_slot(trainer, 2), DUNLIN_ARGUMENT);
        cr_assert_eq(dunlin_trainer_copy_weights_to_slot(trainer, 0), DUNLIN_OK);
        int64_t n = 0;
        float *before = test_weights(trainer, &n);
        test_fit_epochs(trainer, model, 2);
        /* 6 parameters, 2 epochs of 5 steps. */
        cr_expect_eq(log.n_calls, 60);
        float *after = test_weights(trainer, NULL);
        distances[k] = 0.0;
        for (int64_t i = 0; i < n; i++) {
            distances[k] += fabs((double)after[i] - (double)before[i]);
        }
        free(before);
        free(after);
        dunlin_trainer_destroy(trainer);
    }
    cr_expect_lt(distances[1], distances[0] * 0.9);
    cr_expect_gt(distances[1], 0.0);
    dunlin_model_destroy(model);
}

Test(state, a_hook_that_does_nothing_changes_no_bit)
{
    dunlin_model *model = test_small_model(true);
    hook_log log = {.mu = 0.0F};
    dunlin_trainer_options options = test_options(8);
    int64_t n = 0;
    float *plain = test_train(model, &options, 3, &n);
    options.gradient_fn = add_proximal;
    options.gradient_ctx = &log;
    options.n_gradient_slots = 2;
    float *hooked = test_train(model, &options, 3, &n);
    cr_expect(test_same_bits(plain, hooked, n));
    cr_expect_gt(log.n_calls, 0);
    free(plain);
    free(hooked);
    dunlin_model_destroy(model);
}

/* Slots are part of a checkpoint: a counting hook goes on where it was. */
Test(state, slots_are_kept_in_checkpoints)
{
    dunlin_model *model = test_small_model(false);
    hook_log log = {.mu = 0.5F};
    dunlin_trainer_options options = test_options(8);
    options.gradient_fn = add_proximal;
    options.gradient_ctx = &log;
    options.n_gradient_slots = 2;
    char *path = test_temp_path("slots");
    dunlin_trainer *whole = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_copy_weights_to_slot(whole, 0), DUNLIN_OK);
    test_fit_epochs(whole, model, 1);
    cr_assert_eq(dunlin_trainer_save_checkpoint(whole, path), DUNLIN_OK);
    dunlin_trainer *resumed = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_load_checkpoint(resumed, path), DUNLIN_OK);
    test_fit_epochs(whole, model, 1);
    test_fit_epochs(resumed, model, 1);
    test_expect_same_weights(whole, resumed, true);
    (void)unlink(path);
    free(path);
    dunlin_trainer_destroy(whole);
    dunlin_trainer_destroy(resumed);
    dunlin_model_destroy(model);
}

Test(state, resetting_the_optimizer_starts_anew)
{
    dunlin_model *model = test_small_model(false);
    const dunlin_trainer_options options = test_options(8);
    dunlin_trainer *used = test_create(model, &options);
    dunlin_trainer *fresh = test_create(model, &options);
    test_fit_epochs(used, model, 1);
    int64_t n = 0;
    float *weights = test_weights(fresh, &n);
    cr_assert_eq(dunlin_trainer_set_weights(used, DUNLIN_WEIGHTS_ALL, 0, n, weights), DUNLIN_OK);
    dunlin_trainer_reset_optimizer(used);
    test_fit_epochs(used, model, 1);
    test_fit_epochs(fresh, model, 1);
    test_expect_same_weights(used, fresh, true);
    free(weights);
    dunlin_trainer_destroy(used);
    dunlin_trainer_destroy(fresh);
    dunlin_model_destroy(model);
}
