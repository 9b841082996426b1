/*
 * test_storage.c - steps that store in bfloat16: one result at every budget, slice, form and number
 * of threads; what is rounded, what is refused, and what says so.
 */
#include "random.h"
#include "step/adapt_support.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_STEPS 3

static dunlin_model *zoo_model(const char *name, int32_t image)
{
    const dunlin_zoo_options sizes = {
        .struct_size = sizeof(dunlin_zoo_options), .image = image, .classes = 10};
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_from_zoo(name, &sizes, NULL, &model, NULL), DUNLIN_OK);
    return model;
}

static dunlin_trainer_options bf16_options(int64_t batch)
{
    dunlin_trainer_options options = test_options(batch);
    options.storage = DUNLIN_STORAGE_BF16;
    return options;
}

/* What all others must equal. */
typedef struct plain_step {
    const dunlin_model *model;
    const char *name;
    float *weights;
    int64_t n;
} plain_step;

static void expect_same(const plain_step *plain, const dunlin_trainer_options *options,
                        const char *what, int64_t number)
{
    int64_t n = 0;
    float *weights = test_train(plain->model, options, N_STEPS, &n);
    cr_assert_eq(n, plain->n);
    cr_expect(test_same_bits(weights, plain->weights, n), "%s: %s %" PRId64 " changes bits",
              plain->name, what, number);
    free(weights);
}

static void check_budgets(const plain_step *plain, const dunlin_trainer_options *base)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(plain->model, base, &report, NULL), DUNLIN_OK);
    const uint64_t least = report.least_budget_bytes;
    const uint64_t most = report.planned_bytes > least ? report.planned_bytes : least;
    for (uint64_t i = 0; i < 4; i++) {
        dunlin_trainer_options options = *base;
        options.budget_bytes = least + (most - least) * i / 3;
        expect_same(plain, &options, "a budget of", (int64_t)options.budget_bytes);
    }
}

/* False: it is refused. */
static bool check_model(const dunlin_model *model, const char *name,
                        const dunlin_trainer_options *options)
{
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {.status = DUNLIN_OK};
    const dunlin_status status = dunlin_trainer_create(model, options, &trainer, &error);
    dunlin_trainer_destroy(trainer);
    if (status == DUNLIN_UNSUPPORTED) {
        cr_expect_not_null(strstr(error.text, "bf16"), "%s: %s", name, error.text);
        return false;
    }
    cr_assert_eq(status, DUNLIN_OK, "%s: %s", name, error.text);
    plain_step plain = {.model = model, .name = name};
    plain.weights = test_train(model, options, N_STEPS, &plain.n);
    for (int64_t i = 0; i < plain.n; i++) {
        cr_assert(isfinite(plain.weights[i]), "%s", name);
    }
    check_budgets(&plain, options);
    dunlin_trainer_options other = *options;
    other.n_threads = 3;
    expect_same(&plain, &other, "threads", 3);
    other = *options;
    other.policy = DUNLIN_POLICY_POOL;
    expect_same(&plain, &other, "policy pool", 0);
    free(plain.weights);
    return true;
}

Test(storage, one_result_for_mobilenet_v2, .timeout = 900)
{
    dunlin_model *model = zoo_model("mobilenet_v2", 32);
    const dunlin_trainer_options options = bf16_options(5);
    cr_expect(check_model(model, "mobilenet_v2", &options));
    dunlin_model_destroy(model);
}

Test(storage, one_result_for_sums_and_their_terms, .timeout = 900)
{
    dunlin_model *model = zoo_model("resnet18", 32);
    const dunlin_trainer_options options = bf16_options(4);
    cr_expect(check_model(model, "resnet18", &options));
    dunlin_model_destroy(model);
}

Test(storage, one_result_without_batch_norm, .timeout = 900)
{
    dunlin_model *model = zoo_model("lenet5", 0);
    dunlin_trainer_options options = bf16_options(16);
    cr_expect(check_model(model, "lenet5", &options));
    options.optimizer = DUNLIN_OPTIMIZER_ADAM;
    options.momentum = 0.0F;
    options.policy = DUNLIN_POLICY_MICROBATCH;
    plain_step plain = {.model = model, .name = "lenet5"};
    plain.weights = test_train(model, &options, N_STEPS, &plain.n);
    for (int64_t slice = 1; slice <= 7; slice += 3) {
        options.micro_batch = slice;
        expect_same(&plain, &options, "slices of", slice);
    }
    free(plain.weights);
    dunlin_model_destroy(model);
}

static void check_random(uint64_t seed, bool has_batch_norm)
{
    uint64_t rng = test_seed(seed);
    int n_taken = 0;
    for (int i = 0; i < test_cases(20) || n_taken < 2; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "seed %" PRIu64 ", net %d", seed, i);
        dunlin_model *model = test_random_model(&rng, has_batch_norm);
        dunlin_trainer_options options = bf16_options(3 + (int64_t)test_random_below(&rng, 6));
        options.freeze_batch_norm = has_batch_norm && i % 4 == 3;
        n_taken += check_model(model, name, &options) ? 1 : 0;
        dunlin_model_destroy(model);
    }
}

Test(storage, one_result_for_random_nets, .timeout = 900)
{
    check_random(20261127, false);
}

Test(storage, one_result_for_random_nets_with_batch_norm, .timeout = 900)
{
    check_random(20261128, true);
}

/* A budget that changes before any op of a step, also between the pieces that wait for sums. */
Test(storage, budgets_change_in_mid_step, .timeout = 900)
{
    for (int has_norm = 0; has_norm < 2; has_norm++) {
        dunlin_model *model = test_small_model(has_norm != 0);
        const dunlin_trainer_options options = bf16_options(6);
        test_adapt_check(model, "a small net in bf16", &options, 0, 71);
        dunlin_model_destroy(model);
    }
    dunlin_model *model = zoo_model("mobilenet_v2", 32);
    const dunlin_trainer_options options = bf16_options(6);
    test_adapt_check(model, "mobilenet_v2 in bf16", &options, 5, 72);
    dunlin_model_destroy(model);
}
