/*
 * test_storage.c - steps that store in bfloat16 and in int8: one result at every budget, slice,
 * form and number of threads; and what evaluations round.
 */
#include "kernels/api/kernels.h"
#include "random.h"
#include "step/adapt_support.h"
#include "step/joining_model.h"

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

static const dunlin_storage narrow[] = {DUNLIN_STORAGE_BF16, DUNLIN_STORAGE_INT8};
#define N_NARROW 2

static dunlin_trainer_options narrow_options(dunlin_storage storage, int64_t batch)
{
    dunlin_trainer_options options = test_options(batch);
    options.storage = storage;
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
    cr_expect(test_same_bits(weights, plain->weights, n), "%s in %s: %s %" PRId64 " changes bits",
              plain->name, dunlin_storage_name(options->storage), what, number);
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

static void check_model(const dunlin_model *model, const char *name,
                        const dunlin_trainer_options *options)
{
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
}

Test(storage, one_result_for_mobilenet_v2, .timeout = 900)
{
    dunlin_model *model = zoo_model("mobilenet_v2", 32);
    for (int i = 0; i < N_NARROW; i++) {
        const dunlin_trainer_options options = narrow_options(narrow[i], 5);
        check_model(model, "mobilenet_v2", &options);
    }
    dunlin_model_destroy(model);
}

Test(storage, one_result_for_sums_and_their_terms, .timeout = 900)
{
    dunlin_model *model = zoo_model("resnet18", 32);
    for (int i = 0; i < N_NARROW; i++) {
        const dunlin_trainer_options options = narrow_options(narrow[i], 4);
        check_model(model, "resnet18", &options);
    }
    dunlin_model_destroy(model);
}

Test(storage, one_result_without_batch_norm, .timeout = 900)
{
    dunlin_model *model = zoo_model("lenet5", 0);
    for (int i = 0; i < N_NARROW; i++) {
        dunlin_trainer_options options = narrow_options(narrow[i], 16);
        check_model(model, "lenet5", &options);
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
    }
    dunlin_model_destroy(model);
}

/* Of each set its own bits, and those at every budget. */
Test(storage, one_result_on_each_instruction_set, .timeout = 900)
{
    for (int has_norm = 0; has_norm < 2; has_norm++) {
        dunlin_model *model = test_small_model(has_norm != 0);
        const char *isa = NULL;
        for (int i = 0; (isa = dunlin__kernels_isa(i)) != NULL; i++) {
            for (int k = 0; k < N_NARROW; k++) {
                dunlin_trainer_options options = narrow_options(narrow[k], 7);
                options.isa = isa;
                check_model(model, isa, &options);
            }
        }
        dunlin_model_destroy(model);
    }
}

static void check_random(uint64_t seed, bool has_batch_norm)
{
    uint64_t rng = test_seed(seed);
    for (int i = 0; i < test_cases(12); i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "seed %" PRIu64 ", net %d", seed, i);
        dunlin_model *model = test_random_model(&rng, has_batch_norm);
        const int64_t batch = 3 + (int64_t)test_random_below(&rng, 6);
        for (int k = 0; k < N_NARROW; k++) {
            dunlin_trainer_options options = narrow_options(narrow[k], batch);
            options.freeze_batch_norm = has_batch_norm && i % 4 == 3;
            check_model(model, name, &options);
        }
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

#define N_LOGITS (7 * 10)

static void predict_with(dunlin_trainer *trainer, const dunlin_model *model, float *logits)
{
    test_source source;
    test_source_init(&source, model, 7, DUNLIN_F32);
    cr_assert_eq(dunlin_trainer_predict(trainer, &source.source, 0, 7, logits), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
}

static void predict(const dunlin_model *model, const dunlin_trainer_options *options, float *logits)
{
    dunlin_trainer *trainer = test_create(model, options);
    predict_with(trainer, model, logits);
    dunlin_trainer_destroy(trainer);
}

/* --- concatenations --- */

Test(storage, one_result_for_networks_that_join, .timeout = 900)
{
    uint64_t rng = test_seed(20261129);
    for (int i = 0; i < test_cases(8); i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "joining net %d", i);
        dunlin_model *model = joining_model(&rng, i % 2 == 0);
        for (int k = 0; k < N_NARROW; k++) {
            dunlin_trainer_options options = narrow_options(narrow[k], 5);
            options.freeze_batch_norm = i % 4 == 2;
            check_model(model, name, &options);
        }
        dunlin_model_destroy(model);
    }
}

Test(storage, joins_have_one_result_on_each_instruction_set, .timeout = 900)
{
    uint64_t rng = 31;
    dunlin_model *model = joining_model(&rng, true);
    const char *isa = NULL;
    for (int i = 0; (isa = dunlin__kernels_isa(i)) != NULL; i++) {
        for (int k = 0; k < N_NARROW; k++) {
            dunlin_trainer_options options = narrow_options(narrow[k], 5);
            options.isa = isa;
            check_model(model, isa, &options);
        }
    }
    dunlin_model_destroy(model);
}

Test(storage, joins_stay_right_where_budgets_change, .timeout = 900)
{
    uint64_t rng = 32;
    for (int k = 0; k < N_NARROW; k++) {
        char name[64];
        dunlin_model *model = joining_model(&rng, k == 0);
        const dunlin_trainer_options options = narrow_options(narrow[k], 6);
        (void)snprintf(name, sizeof name, "a joining net in %s", dunlin_storage_name(narrow[k]));
        test_adapt_check(model, name, &options, 7, 73);
        test_adapt_infer(model, &options);
        dunlin_model_destroy(model);
    }
}

/* What is read of a concatenation is what its parts were stored as, which are the blocks of the
 * whole: so both networks predict the same, to the bit, rounded or not. */
Test(storage, a_whole_and_its_parts_are_stored_alike)
{
    static const dunlin_storage all[] = {DUNLIN_STORAGE_EXACT, DUNLIN_STORAGE_BF16,
                                         DUNLIN_STORAGE_INT8};
    dunlin_model *models[2] = {joining_pair_model(true), joining_pair_model(false)};
    float logits[3][2][N_LOGITS];
    float *weights = NULL;
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 2; k++) {
            const dunlin_trainer_options options = narrow_options(all[i], 7);
            dunlin_trainer *trainer = test_create(models[k], &options);
            const int64_t n = dunlin_trainer_n_weights(trainer, DUNLIN_WEIGHTS_ALL);
            if (weights == NULL) {
                weights = malloc((size_t)n * sizeof *weights);
                cr_assert_not_null(weights);
                cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, n, weights),
                             DUNLIN_OK);
            }
            cr_assert_eq(dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, n, weights),
                         DUNLIN_OK);
            predict_with(trainer, models[k], logits[i][k]);
            dunlin_trainer_destroy(trainer);
        }
        cr_expect(test_same_bits(logits[i][0], logits[i][1], N_LOGITS), "%s",
                  dunlin_storage_name(all[i]));
        cr_expect(i == 0 || !test_same_bits(logits[i][0], logits[0][0], N_LOGITS), "%s is exact",
                  dunlin_storage_name(all[i]));
    }
    free(weights);
    dunlin_model_destroy(models[0]);
    dunlin_model_destroy(models[1]);
}

/* None of the networks with concatenations is refused, nor what is kept of them exact. */
Test(storage, networks_with_concatenations_gain)
{
    static const struct {
        const char *name;
        int32_t image;
        double most; /* of what the exact step takes for activations */
    } networks[] = {{"densenet121", 64, 0.75},        {"squeezenet1_1", 64, 0.75},
                    {"googlenet", 64, 0.95},          {"inception_v3", 96, 0.95},
                    {"shufflenet_v2_x1_0", 64, 0.95}, {"unet_small", 0, 0.95}};
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        dunlin_model *model = zoo_model(networks[i].name, networks[i].image);
        dunlin_trainer_options options = test_options(4);
        options.policy = DUNLIN_POLICY_POOL;
        dunlin_trainer_report exact = DUNLIN_TRAINER_REPORT_INIT;
        dunlin_error error;
        cr_assert_eq(dunlin_trainer_estimate(model, &options, &exact, &error), DUNLIN_OK, "%s",
                     error.text);
        for (int k = 0; k < N_NARROW; k++) {
            dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
            options.storage = narrow[k];
            cr_assert_eq(dunlin_model_check_storage(model, narrow[k], NULL), DUNLIN_OK);
            cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, &error), DUNLIN_OK,
                         "%s: %s", networks[i].name, error.text);
            const double share = (double)report.kept_bytes / (double)exact.kept_bytes;
            cr_expect_lt(share, networks[i].most, "%s in %s keeps %.3f of exact", networks[i].name,
                         dunlin_storage_name(narrow[k]), share);
        }
        dunlin_model_destroy(model);
    }
}

/* A budget that changes before any op of a step, also between the pieces that wait for sums. */
Test(storage, budgets_change_in_mid_step, .timeout = 900)
{
    dunlin_model *large = zoo_model("mobilenet_v2", 32);
    for (int i = 0; i < N_NARROW; i++) {
        char name[64];
        for (int has_norm = 0; has_norm < 2; has_norm++) {
            dunlin_model *model = test_small_model(has_norm != 0);
            const dunlin_trainer_options options = narrow_options(narrow[i], 6);
            (void)snprintf(name, sizeof name, "a small net in %s", dunlin_storage_name(narrow[i]));
            test_adapt_check(model, name, &options, 0, 71);
            test_adapt_infer(model, &options);
            dunlin_model_destroy(model);
        }
        const dunlin_trainer_options options = narrow_options(narrow[i], 6);
        (void)snprintf(name, sizeof name, "mobilenet_v2 in %s", dunlin_storage_name(narrow[i]));
        test_adapt_check(large, name, &options, 5, 72);
    }
    dunlin_model_destroy(large);
}

/* What is predicted is rounded to the nearest: by no draw, so neither the place in a batch nor the
 * steps before it change a bit; and it is rounded, so it is not what float32 gives. */
Test(storage, predictions_depend_on_no_draw)
{
    dunlin_model *model = zoo_model("lenet5", 0);
    float exact[N_LOGITS];
    float first[N_LOGITS];
    float other[N_LOGITS];
    dunlin_trainer_options options = test_options(7);
    predict(model, &options, exact);
    for (int i = 0; i < N_NARROW; i++) {
        options = narrow_options(narrow[i], 7);
        predict(model, &options, first);
        cr_expect_not(test_same_bits(first, exact, N_LOGITS));
        for (int64_t batch = 1; batch < 7; batch += 2) {
            options.batch = batch;
            predict(model, &options, other);
            cr_expect(test_same_bits(first, other, N_LOGITS), "batches of %d", (int)batch);
        }
        for (int k = 0; k < N_LOGITS; k++) {
            cr_expect_lt(fabs((double)first[k] - (double)exact[k]), 0.05, "%g, not %g",
                         (double)first[k], (double)exact[k]);
        }
    }
    dunlin_model_destroy(model);
}

/* A step's draws are those of the seed: from the same weights another seed goes elsewhere, under
 * int8 alone. */
Test(storage, a_seed_draws_in_int8_alone)
{
    dunlin_model *model = test_small_model(true);
    static const dunlin_storage all[] = {DUNLIN_STORAGE_EXACT, DUNLIN_STORAGE_BF16,
                                         DUNLIN_STORAGE_INT8};
    for (int i = 0; i < 3; i++) {
        dunlin_trainer_options options = narrow_options(all[i], 6);
        options.seed = 5;
        dunlin_trainer *first = test_create(model, &options);
        options.seed = 6;
        dunlin_trainer *second = test_create(model, &options);
        const int64_t n = dunlin_trainer_n_weights(first, DUNLIN_WEIGHTS_TRAINABLE);
        float *weights = malloc((size_t)n * sizeof *weights);
        cr_assert_not_null(weights);
        cr_assert_eq(dunlin_trainer_get_weights(first, DUNLIN_WEIGHTS_TRAINABLE, 0, n, weights),
                     DUNLIN_OK);
        cr_assert_eq(dunlin_trainer_set_weights(second, DUNLIN_WEIGHTS_TRAINABLE, 0, n, weights),
                     DUNLIN_OK);
        test_source source;
        test_source_init(&source, model, 6, DUNLIN_F32);
        const int64_t indices[] = {0, 1, 2, 3, 4, 5};
        cr_assert_eq(dunlin_trainer_step(first, &source.source, indices, 6, NULL), DUNLIN_OK);
        cr_assert_eq(dunlin_trainer_step(second, &source.source, indices, 6, NULL), DUNLIN_OK);
        test_expect_same_weights(first, second, all[i] != DUNLIN_STORAGE_INT8);
        free(weights);
        dunlin_trainer_destroy(first);
        dunlin_trainer_destroy(second);
    }
    dunlin_model_destroy(model);
}
