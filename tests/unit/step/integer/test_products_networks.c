/*
 * test_products_networks.c - residual networks and MobileNets in the precisions whose products are
 * in integers: steps under the least budget have the bits of steps without one; and why niti has
 * none of them.
 */
#include "product_support.h"
#include "random.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#define BATCH 3
#define N_STEPS 2

TestSuite(products_networks, .timeout = 900);

static dunlin_model *open_network(const char *name)
{
    const dunlin_zoo_options sizes = {
        .struct_size = sizeof(dunlin_zoo_options), .image = 32, .classes = 5};
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_model_from_zoo(name, &sizes, NULL, &model, &error), DUNLIN_OK, "%s",
                 error.text);
    return model;
}

/* The weights, running statistics too, after some steps; and what the plan takes. */
static float *train(const dunlin_model *model, const dunlin_trainer_options *options,
                    int64_t *out_n, dunlin_trainer_report *out_report)
{
    test_source source;
    dunlin_trainer *trainer = test_create(model, options);
    test_source_init(&source, model, BATCH * N_STEPS, DUNLIN_F32);
    for (int64_t step = 0; step < N_STEPS; step++) {
        int64_t indices[BATCH];
        for (int64_t i = 0; i < BATCH; i++) {
            indices[i] = step * BATCH + i;
        }
        cr_assert_eq(dunlin_trainer_step(trainer, &source.source, indices, BATCH, NULL), DUNLIN_OK,
                     "%s: %s", options->precision, dunlin_trainer_last_error(trainer)->text);
    }
    *out_n = dunlin_trainer_n_weights(trainer, DUNLIN_WEIGHTS_ALL);
    float *weights = malloc((size_t)*out_n * sizeof *weights);
    cr_assert_not_null(weights);
    cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, *out_n, weights),
                 DUNLIN_OK);
    *out_report = (dunlin_trainer_report)DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_get_report(trainer, out_report), DUNLIN_OK);
    dunlin_trainer_destroy(trainer);
    return weights;
}

static void check_network(const char *name)
{
    dunlin_model *model = open_network(name);
    float *first = NULL;
    const size_t n_rows = (size_t)test_cases(PRODUCT_ROWS);
    for (size_t i = 0; i < n_rows && i < PRODUCT_ROWS; i++) {
        dunlin_trainer_options options = product_options(product_rows[i].name, BATCH);
        dunlin_trainer_report planned = DUNLIN_TRAINER_REPORT_INIT;
        dunlin_trainer_report plain;
        dunlin_trainer_report tight;
        int64_t n = 0;
        int64_t n_tight = 0;
        options.lr = 1.0F / 64.0F;
        options.momentum = 0.5F;
        cr_assert_eq(dunlin_trainer_estimate(model, &options, &planned, NULL), DUNLIN_OK);
        float *weights = train(model, &options, &n, &plain);
        options.budget_bytes = planned.least_budget_bytes;
        float *budgeted = train(model, &options, &n_tight, &tight);
        cr_expect_lt(tight.planned_bytes, plain.planned_bytes, "%s %s", name, options.precision);
        cr_expect_leq(tight.peak_bytes, planned.least_budget_bytes);
        cr_assert_eq(n, n_tight);
        cr_expect(test_same_bits(weights, budgeted, n), "%s %s: the least budget changes bits",
                  name, options.precision);
        /* A row is not another one by a second name. */
        cr_expect(first == NULL || !test_same_bits(first, weights, n), "%s %s", name,
                  options.precision);
        free(budgeted);
        if (first == NULL) {
            first = weights;
        } else {
            free(weights);
        }
    }
    free(first);
    dunlin_model_destroy(model);
}

Test(products_networks, a_residual_network)
{
    check_network("resnet18");
}

Test(products_networks, a_mobile_network)
{
    check_network("mobilenet_v2");
}

/* By the operator, its first node, how many there are, and why. */
Test(products_networks, niti_names_what_it_has_not)
{
    static const struct {
        const char *name, *node;
        const char *count;
    } all[] = {{"resnet18", "batch_norm 'bn1'", "(20 of them)"},
               {"mobilenet_v2", "batch_norm 'features.0.1'", "(52 of them)"}};
    static const char *const precisions[] = {"niti", "niti16"};
    for (size_t i = 0; i < 4; i++) {
        dunlin_model *model = open_network(all[i / 2].name);
        dunlin_error error = {0};
        cr_expect_eq(dunlin_model_check_precision(model, precisions[i % 2], &error),
                     DUNLIN_UNSUPPORTED);
        cr_expect_not_null(strstr(error.text, all[i / 2].node), "%s", error.text);
        cr_expect_not_null(strstr(error.text, all[i / 2].count), "%s", error.text);
        cr_expect_not_null(strstr(error.text, "there is no such operator in integers"), "%s",
                           error.text);
        for (size_t k = 0; k < PRODUCT_ROWS; k++) {
            cr_expect_eq(dunlin_model_check_precision(model, product_rows[k].name, &error),
                         DUNLIN_OK, "%s", error.text);
        }
        dunlin_model_destroy(model);
    }
}
