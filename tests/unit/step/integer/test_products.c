/*
 * test_products.c - steps whose products are in integers and whose other numbers are float32:
 * against a model in plain C that knows nothing of it; the same bits however they are cut, placed
 * and shared out.
 */
#include "product_support.h"
#include "random.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <stdlib.h>

TestSuite(products, .timeout = 600);

/* --- against the model --- */

typedef struct regression {
    dunlin_source source; /* its ctx is this struct */
    int64_t n_in, n_out;
} regression;

static void example(const regression *r, int64_t index, float *x, float *targets)
{
    uint64_t state = 31 + (uint64_t)index;
    test_random_fill(x, r->n_in, -1.0, 2.0, &state);
    test_random_fill(targets, r->n_out, -0.5, 0.5, &state);
}

static dunlin_status read_targets(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                  float *out_targets)
{
    const regression *r = ctx;
    for (int64_t i = 0; i < n; i++) {
        example(r, indices[i], (float *)out_x + i * r->n_in, out_targets + i * r->n_out);
    }
    return DUNLIN_OK;
}

static void check_steps(const char *name, dunlin_model *model, product_net *net, int64_t batch,
                        int n_steps)
{
    dunlin_trainer_options options = product_options(name, batch);
    options.loss = DUNLIN_LOSS_MSE;
    dunlin_trainer *trainer = test_create(model, &options);
    regression r = {.n_in = net->n_in, .n_out = net->n_out};
    r.source = (dunlin_source){.struct_size = sizeof r.source,
                               .ctx = &r,
                               .read_targets_fn = read_targets,
                               .n_targets = net->n_out,
                               .n_examples = batch * n_steps,
                               .dtype = DUNLIN_F32,
                               .scale = 1.0F};
    float *x = malloc((size_t)(batch * net->n_in) * sizeof *x);
    float *targets = malloc((size_t)(batch * net->n_out) * sizeof *targets);
    int64_t *indices = malloc((size_t)batch * sizeof *indices);
    int64_t n_weights = 0;
    float *weights = test_weights(trainer, &n_weights);
    float *expected = malloc((size_t)n_weights * sizeof *expected);
    cr_assert(x != NULL && targets != NULL && indices != NULL && expected != NULL);
    product_import(net, weights);
    for (int step = 0; step < n_steps; step++) {
        const int64_t n = step == 1 && batch > 1 ? batch - 1 : batch; /* one is shorter */
        for (int64_t i = 0; i < n; i++) {
            indices[i] = step * batch + i;
            example(&r, indices[i], x + i * net->n_in, targets + i * net->n_out);
        }
        if (step == 0) {
            product_calibrate(net, x, targets, n < 32 ? n : 32, n);
        }
        product_step(net, x, targets, n, options.lr);
        cr_assert_eq(dunlin_trainer_step(trainer, &r.source, indices, n, NULL), DUNLIN_OK, "%s",
                     dunlin_trainer_last_error(trainer)->text);
        free(weights);
        weights = test_weights(trainer, &n_weights);
        product_export(net, expected);
        cr_assert(test_same_bits(weights, expected, n_weights), "%s: step %d", name, step);
    }
    free(weights);
    free(expected);
    free(x);
    free(targets);
    free(indices);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
    product_free(net);
}

static dunlin_model *chain(void)
{
    dunlin_builder *builder = NULL;
    const dunlin_shape shape = {.n_dims = 3, .dims = {3, 7, 6}};
    const dunlin_conv_options padded = {.struct_size = sizeof padded, .padding = 1};
    const dunlin_conv_options depthwise = {
        .struct_size = sizeof depthwise, .padding = 1, .groups = 8, .stride = 2};
    const dunlin_conv_options grouped = {.struct_size = sizeof grouped, .groups = 2};
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "x", &shape);
    x = dunlin_builder_relu(builder, dunlin_builder_conv(builder, "a", x, 8, 3, &padded));
    x = dunlin_builder_conv(builder, "b", x, 8, 3, &depthwise);
    x = dunlin_builder_relu(builder, dunlin_builder_conv(builder, "c", x, 6, 1, &grouped));
    x = dunlin_builder_dense(builder, "d", dunlin_builder_flatten(builder, x), 9);
    x = dunlin_builder_dense(builder, "e", dunlin_builder_relu(builder, x), 3);
    return integer_finish(builder, x);
}

static void chain_of(product_net *net, const product_rules *rules)
{
    product_begin(net, rules, 3, 7, 6);
    product_conv(net, 8, 3, 1, 1, 1, true);
    product_conv(net, 8, 3, 2, 1, 8, false);
    product_conv(net, 6, 1, 1, 0, 2, true);
    product_dense(net, 9, true);
    product_dense(net, 3, false);
}

Test(products, a_whole_step_is_that_of_the_model)
{
    for (size_t i = 0; i < PRODUCT_ROWS; i++) {
        product_net net;
        chain_of(&net, &product_rows[i].rules);
        check_steps(product_rows[i].name, chain(), &net, 6, 7);
    }
}

Test(products, more_examples_than_a_calibration_takes)
{
    for (size_t i = 0; i < PRODUCT_ROWS; i++) {
        product_net net;
        product_begin(&net, &product_rows[i].rules, 20, 1, 1);
        product_dense(&net, 16, true);
        product_dense(&net, 5, false);
        check_steps(product_rows[i].name, test_dense_model(20, 5), &net, 48, 5);
    }
}

/* Shapes at random, one convolution each, the second of a chain so that it hands an error on. */
Test(products, shapes_at_random)
{
    uint64_t state = test_seed(20261127);
    for (int i = 0; i < test_cases(12); i++) {
        const int64_t groups = 1 + (int64_t)test_random_below(&state, 3);
        const int64_t c = groups * (1 + (int64_t)test_random_below(&state, 4));
        const int64_t out_c = groups * (1 + (int64_t)test_random_below(&state, 5));
        const int64_t h = 4 + (int64_t)test_random_below(&state, 5);
        const int64_t w = 4 + (int64_t)test_random_below(&state, 5);
        const int64_t kernel = 1 + (int64_t)test_random_below(&state, 3);
        const int64_t stride = 1 + (int64_t)test_random_below(&state, 2);
        const int64_t padding = (int64_t)test_random_below(&state, 2);
        const dunlin_shape shape = {.n_dims = 3, .dims = {2, h, w}};
        const dunlin_conv_options options = {.struct_size = sizeof options,
                                             .stride = (int32_t)stride,
                                             .padding = (int32_t)padding,
                                             .groups = (int32_t)groups};
        dunlin_builder *builder = NULL;
        cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
        dunlin_value x = dunlin_builder_input(builder, "x", &shape);
        x = dunlin_builder_relu(builder, dunlin_builder_conv(builder, "a", x, (int32_t)c, 1, NULL));
        x = dunlin_builder_conv(builder, "b", x, (int32_t)out_c, (int32_t)kernel, &options);
        x = dunlin_builder_dense(builder, "c", dunlin_builder_flatten(builder, x), 2);
        product_net net;
        const size_t row = (size_t)i % PRODUCT_ROWS;
        product_begin(&net, &product_rows[row].rules, 2, h, w);
        product_conv(&net, c, 1, 1, 0, 1, true);
        product_conv(&net, out_c, kernel, stride, padding, groups, false);
        product_dense(&net, 2, false);
        check_steps(product_rows[row].name, integer_finish(builder, x), &net, 4, 3);
    }
}

/* --- the same bits --- */

typedef struct witness {
    const dunlin_model *model;
    const float *weights;
    int64_t n;
} witness;

static void expect_same(const witness *w, const dunlin_trainer_options *options, const char *what,
                        int64_t number)
{
    int64_t n = 0;
    float *weights = test_train(w->model, options, 4, &n);
    cr_assert_eq(n, w->n);
    cr_expect(test_same_bits(weights, w->weights, n), "%s: %s %lld changes bits",
              options->precision, what, (long long)number);
    free(weights);
}

static void check_bits(const dunlin_model *model, const dunlin_trainer_options *base, bool has_norm)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    witness w = {.model = model};
    float *weights = test_train(model, base, 4, &w.n);
    w.weights = weights;
    /* Equal slices throughout have statistics of their own; a budget's keep those of the batch. */
    for (int64_t slice = 1; slice <= (has_norm ? 0 : 3); slice++) {
        dunlin_trainer_options options = *base;
        options.policy = DUNLIN_POLICY_MICROBATCH;
        options.micro_batch = slice;
        options.n_threads = 1 + (int32_t)slice % 2;
        expect_same(&w, &options, "slices of", slice);
    }
    dunlin_trainer_options options = *base;
    options.n_threads = 3;
    expect_same(&w, &options, "threads", 3);
    options = *base;
    options.least_budget_bytes = 1;
    expect_same(&w, &options, "updates at the end", 1);
    cr_assert_eq(dunlin_trainer_estimate(model, base, &report, NULL), DUNLIN_OK);
    /* A small network's plan is smaller than the least budget, which the planner's tables are in.
     */
    const bool has_budgets = report.least_budget_bytes < report.planned_bytes;
    cr_expect(has_budgets || !has_norm || base->batch < 32);
    for (uint64_t i = 0; has_budgets && i < 4; i++) {
        options = *base;
        options.budget_bytes =
            report.least_budget_bytes + (report.planned_bytes - report.least_budget_bytes) * i / 3;
        expect_same(&w, &options, "a budget of", (int64_t)options.budget_bytes);
    }
    free(weights);
}

/* The least memory, in which slices are the shortest and most is recomputed. */
static void expect_at_least_budget(const dunlin_model *model, const dunlin_trainer_options *base)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_trainer_options options = *base;
    witness w = {.model = model};
    float *weights = test_train(model, base, 4, &w.n);
    w.weights = weights;
    cr_assert_eq(dunlin_trainer_estimate(model, base, &report, NULL), DUNLIN_OK);
    cr_assert_lt(report.least_budget_bytes, report.planned_bytes);
    options.budget_bytes = report.least_budget_bytes;
    expect_same(&w, &options, "a budget of", (int64_t)options.budget_bytes);
    free(weights);
}

Test(products, bits_of_a_network_with_batch_norm)
{
    dunlin_model *model = product_normed_model();
    for (size_t i = 0; i < PRODUCT_ROWS; i++) {
        dunlin_trainer_options options = product_options(product_rows[i].name, 32);
        if (i > 0) { /* rows differ in what they round, not in where it stands */
            expect_at_least_budget(model, &options);
            continue;
        }
        check_bits(model, &options, true);
        options.momentum = 0.9F;
        options.weight_decay = 1e-3F;
        options.clip_norm = 1.0F;
        expect_at_least_budget(model, &options);
    }
    dunlin_model_destroy(model);
}

Test(products, bits_of_random_networks)
{
    uint64_t state = test_seed(5);
    for (int i = 0; i < test_cases(4); i++) {
        dunlin_model *model = test_random_model(&state, i % 2 == 0);
        const dunlin_trainer_options options =
            product_options(product_rows[(size_t)i % PRODUCT_ROWS].name, 6);
        check_bits(model, &options, i % 2 == 0);
        dunlin_model_destroy(model);
    }
}

/* Without batch norm and with rates that are powers of two, sums are whole numbers and the rest
 * rounds the same way everywhere: all instruction sets agree. */
Test(products, every_instruction_set_agrees_on_sums)
{
    static const char *const sets[] = {"sse2",   "avx2",        "avx2-vnni", "avx2+vnni",
                                       "avx512", "avx512-vnni", "neon",      "generic"};
    for (size_t row = 0; row < PRODUCT_ROWS; row++) {
        for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
            dunlin_model *model = chain();
            dunlin_trainer_options options = product_options(product_rows[row].name, 6);
            dunlin_trainer *trainer = NULL;
            options.isa = sets[i];
            options.loss = DUNLIN_LOSS_MSE;
            if (dunlin_trainer_create(model, &options, &trainer, NULL) != DUNLIN_OK) {
                dunlin_model_destroy(model);
                continue;
            }
            product_net net;
            regression r = {.n_in = 3 * 7 * 6, .n_out = 3};
            r.source = (dunlin_source){.struct_size = sizeof r.source,
                                       .ctx = &r,
                                       .read_targets_fn = read_targets,
                                       .n_targets = 3,
                                       .n_examples = 6,
                                       .dtype = DUNLIN_F32,
                                       .scale = 1.0F};
            float x[6 * 3 * 7 * 6];
            float targets[6 * 3];
            int64_t n = 0;
            float *weights = test_weights(trainer, &n);
            chain_of(&net, &product_rows[row].rules);
            product_import(&net, weights);
            for (int64_t k = 0; k < 6; k++) {
                example(&r, k, x + k * r.n_in, targets + k * r.n_out);
            }
            const int64_t indices[] = {0, 1, 2, 3, 4, 5};
            product_calibrate(&net, x, targets, 6, 6);
            for (int step = 0; step < 3; step++) {
                product_step(&net, x, targets, 6, options.lr);
                cr_assert_eq(dunlin_trainer_step(trainer, &r.source, indices, 6, NULL), DUNLIN_OK);
            }
            free(weights);
            weights = test_weights(trainer, &n);
            float *expected = malloc((size_t)n * sizeof *expected);
            cr_assert_not_null(expected);
            product_export(&net, expected);
            cr_expect(test_same_bits(weights, expected, n), "%s", sets[i]);
            free(expected);
            free(weights);
            product_free(&net);
            dunlin_trainer_destroy(trainer);
            dunlin_model_destroy(model);
        }
    }
}
