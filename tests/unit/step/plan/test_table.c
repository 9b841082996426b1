/*
 * test_table.c - tables whose gradient is kept by rows, against the same with a gradient hook that
 * does nothing, for which it is dense.
 */
#include "graph/build.h"
#include "net/net.h"
#include "step/step_support.h"

#include <dunlin/costs.h>
#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(table, .timeout = 900);

#define N_TOKENS 6
#define WIDTH 20
#define N_ROWS 4000 /* of which the examples name 220 at most */
#define BATCH 8

static dunlin_model *table_model(int64_t n_rows, int64_t width)
{
    dunlin_builder *builder = NULL;
    dunlin_model *model = NULL;
    const dunlin_shape tokens = {1, {N_TOKENS}};
    const dunlin_shape row = {1, {N_TOKENS * width}};
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value end = dunlin_builder_input(builder, "x", &tokens);
    end = dunlin_builder_embedding(builder, "table", end, n_rows, width);
    end = dunlin_builder_tanh(builder, dunlin_builder_reshape(builder, end, &row));
    end = dunlin_builder_dense(builder, "head", end, 3);
    cr_assert_eq(dunlin_builder_finish(builder, end, &model, NULL), DUNLIN_OK);
    return model;
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

static dunlin_trainer_options plain_options(int64_t batch)
{
    dunlin_trainer_options options = test_options(batch);
    options.weight_decay = 0.0F;
    return options;
}

static dunlin_trainer_options dense(const dunlin_trainer_options *options)
{
    dunlin_trainer_options with_hook = *options;
    with_hook.gradient_fn = leave_gradient;
    return with_hook;
}

/* Steps [first, end) of a run; every third has two examples less. */
static void take_steps(dunlin_trainer *trainer, const dunlin_model *model, int first, int end)
{
    test_source source;
    test_source_init(&source, model, 1000, DUNLIN_U8);
    for (int step = first; step < end; step++) {
        int64_t indices[BATCH];
        for (int64_t i = 0; i < BATCH; i++) {
            indices[i] = step * BATCH + i;
        }
        const int64_t n = step % 3 == 2 ? BATCH - 2 : BATCH;
        cr_assert_eq(dunlin_trainer_step(trainer, &source.source, indices, n, NULL), DUNLIN_OK,
                     "%s", dunlin_trainer_last_error(trainer)->text);
    }
}

static void save(dunlin_trainer *trainer, const char *path)
{
    cr_assert_eq(dunlin_trainer_save_checkpoint(trainer, path), DUNLIN_OK);
}

static unsigned char *read_file(const char *path, size_t *out_n)
{
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file);
    const size_t room = 4 << 20;
    unsigned char *bytes = malloc(room);
    cr_assert_not_null(bytes);
    *out_n = fread(bytes, 1, room, file);
    cr_assert_lt(*out_n, room);
    (void)fclose(file);
    return bytes;
}

/* Weights, the optimiser's state, steps. */
static bool is_same_state(dunlin_trainer *a, dunlin_trainer *b)
{
    char *paths[2] = {test_temp_path("table_a"), test_temp_path("table_b")};
    unsigned char *bytes[2];
    size_t n[2];
    save(a, paths[0]);
    save(b, paths[1]);
    for (int i = 0; i < 2; i++) {
        bytes[i] = read_file(paths[i], &n[i]);
        (void)unlink(paths[i]);
        free(paths[i]);
    }
    const bool is_same = n[0] == n[1] && memcmp(bytes[0], bytes[1], n[0]) == 0;
    free(bytes[0]);
    free(bytes[1]);
    return is_same;
}

static dunlin_trainer_report report_of(const dunlin_trainer *trainer)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_get_report(trainer, &report), DUNLIN_OK);
    return report;
}

#define N_KINDS 11

static const char *set_kind(dunlin_trainer_options *options, int kind)
{
    static const char *const names[N_KINDS] = {"plain",
                                               "momentum",
                                               "nesterov",
                                               "adam",
                                               "adamw",
                                               "plain, decay",
                                               "mom, decay",
                                               "adam, decay",
                                               "adamw, decay",
                                               "momentum, value",
                                               "momentum, few batches"};
    const bool is_adam = kind == 3 || kind == 4 || kind == 7 || kind == 8;
    options->momentum = kind == 0 || kind == 5 || is_adam ? 0.0F : 0.9F;
    options->is_nesterov = kind == 2;
    options->weight_decay = kind >= 5 && kind <= 8 ? 0.01F : 0.0F;
    options->clip_value = kind == 9 ? 1e-3F : 0.0F;
    if (is_adam) {
        options->optimizer =
            kind == 3 || kind == 7 ? DUNLIN_OPTIMIZER_ADAM : DUNLIN_OPTIMIZER_ADAMW;
        options->lr = 0.01F;
    }
    return names[kind];
}

/* In slices or whole, on one thread or two, fused or not. */
static void set_way(dunlin_trainer_options *options, int way)
{
    static const dunlin_policy policies[] = {DUNLIN_POLICY_AUTO, DUNLIN_POLICY_MICROBATCH,
                                             DUNLIN_POLICY_NONE, DUNLIN_POLICY_AUTO};
    static const int64_t slices[] = {0, 3, 0, 1};
    options->policy = policies[way];
    options->micro_batch = slices[way];
    options->n_threads = way % 2 == 0 ? 1 : 2;
}

Test(table, rows_have_the_bits_of_a_dense_gradient)
{
    dunlin_model *model = table_model(N_ROWS, WIDTH);
    for (int kind = 0; kind < N_KINDS; kind++) {
        dunlin_trainer_options options = plain_options(BATCH);
        const char *name = set_kind(&options, kind);
        const dunlin_trainer_options whole = dense(&options);
        dunlin_trainer *expected = test_create(model, &whole);
        take_steps(expected, model, 0, 7);
        for (int way = 0; way < 4; way++) {
            set_way(&options, way);
            dunlin_trainer *trainer = test_create(model, &options);
            take_steps(trainer, model, 0, 7);
            cr_expect(is_same_state(trainer, expected), "%s, way %d", name, way);
            const uint64_t accumulators = report_of(trainer).by_class.accumulators;
            cr_expect_lt(accumulators, N_ROWS * WIDTH * sizeof(float) / 2, "it is kept by rows");
            dunlin_trainer_destroy(trainer);
        }
        dunlin_trainer_destroy(expected);
    }
    dunlin_model_destroy(model);
}

/* A table that is hardly larger than what a batch names, and one that is smaller. */
Test(table, tables_of_all_sizes)
{
    static const int64_t rows[] = {2, N_TOKENS, N_TOKENS + 1, 47, 48, 49, 60, 100};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int64_t width = 1; width <= 9; width += 4) {
            dunlin_model *model = table_model(rows[i], width);
            dunlin_trainer_options options = plain_options(BATCH);
            set_way(&options, 1);
            const dunlin_trainer_options whole = dense(&options);
            dunlin_trainer *expected = test_create(model, &whole);
            dunlin_trainer *trainer = test_create(model, &options);
            take_steps(expected, model, 0, 4);
            take_steps(trainer, model, 0, 4);
            cr_expect(is_same_state(trainer, expected), "%d rows of %d", (int)rows[i], (int)width);
            cr_expect_leq(report_of(trainer).by_class.accumulators,
                          report_of(expected).by_class.accumulators);
            dunlin_trainer_destroy(trainer);
            dunlin_trainer_destroy(expected);
            dunlin_model_destroy(model);
        }
    }
}

/* --- where the optimiser's state comes from elsewhere --- */

/* Rows that are skippable in the trainer that loads move in the one that saved, and vice versa. */
Test(table, a_checkpoint_says_which_rows_move)
{
    dunlin_model *model = table_model(N_ROWS, WIDTH);
    char *path = test_temp_path("table");
    for (int kind = 0; kind < 5; kind++) {
        dunlin_trainer_options options = plain_options(BATCH);
        const char *name = set_kind(&options, kind);
        const dunlin_trainer_options whole = dense(&options);
        dunlin_trainer *expected = test_create(model, &whole);
        dunlin_trainer *from = test_create(model, &options);
        dunlin_trainer *to = test_create(model, &options);
        take_steps(expected, model, 0, 3);
        take_steps(from, model, 0, 3);
        take_steps(to, model, 20, 22);
        save(from, path);
        cr_assert_eq(dunlin_trainer_load_checkpoint(to, path), DUNLIN_OK);
        cr_expect(is_same_state(to, expected), "%s", name);
        take_steps(expected, model, 3, 7);
        take_steps(to, model, 3, 7);
        take_steps(from, model, 3, 7);
        cr_expect(is_same_state(to, expected), "%s, loaded", name);
        cr_expect(is_same_state(from, expected), "%s, saved", name);
        dunlin_trainer_destroy(to);
        dunlin_trainer_destroy(from);
        dunlin_trainer_destroy(expected);
    }
    (void)unlink(path);
    free(path);
    dunlin_model_destroy(model);
}

Test(table, the_optimizer_starts_anew)
{
    dunlin_model *model = table_model(N_ROWS, WIDTH);
    for (int kind = 0; kind < 5; kind++) {
        dunlin_trainer_options options = plain_options(BATCH);
        const char *name = set_kind(&options, kind);
        const dunlin_trainer_options whole = dense(&options);
        dunlin_trainer *expected = test_create(model, &whole);
        dunlin_trainer *trainer = test_create(model, &options);
        for (int round = 0; round < 3; round++) {
            take_steps(expected, model, 3 * round, 3 * round + 3);
            take_steps(trainer, model, 3 * round, 3 * round + 3);
            cr_expect(is_same_state(trainer, expected), "%s, round %d", name, round);
            dunlin_trainer_reset_optimizer(expected);
            dunlin_trainer_reset_optimizer(trainer);
            cr_expect(is_same_state(trainer, expected), "%s, round %d, anew", name, round);
        }
        dunlin_trainer_destroy(trainer);
        dunlin_trainer_destroy(expected);
    }
    dunlin_model_destroy(model);
}

/* --- the global norm --- */

Test(table, the_global_norm_is_that_of_the_rows)
{
    dunlin_model *model = table_model(N_ROWS, WIDTH);
    dunlin_trainer_options options = plain_options(BATCH);
    options.clip_norm = 0.05F;
    const dunlin_trainer_options whole = dense(&options);
    int64_t n = 0;
    float *expected = test_train(model, &whole, 5, &n);
    float *first = test_train(model, &options, 5, NULL);
    const dunlin_trainer_options free_options = plain_options(BATCH);
    float *unclipped = test_train(model, &free_options, 5, NULL);
    cr_expect_not(test_same_bits(expected, unclipped, n), "the norm does clip");
    for (int64_t i = 0; i < n; i++) {
        cr_assert_float_eq(first[i], expected[i], 1e-6 * fmax(1.0, fabs((double)expected[i])));
    }
    for (int way = 1; way < 4; way++) {
        set_way(&options, way);
        float *weights = test_train(model, &options, 5, NULL);
        cr_expect(test_same_bits(weights, first, n), "way %d", way);
        free(weights);
    }
    free(expected);
    free(first);
    free(unclipped);
    dunlin_model_destroy(model);
}

/* --- bytes, batches, costs --- */

static dunlin_trainer_report estimate(const dunlin_model *model,
                                      const dunlin_trainer_options *options)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_error error = {.status = DUNLIN_OK};
    cr_assert_eq(dunlin_trainer_estimate(model, options, &report, &error), DUNLIN_OK, "%s",
                 error.text);
    return report;
}

Test(table, the_least_budget_is_lower_by_the_table)
{
    dunlin_model *model = table_model(20000, 64);
    const uint64_t table_bytes = 20000 * 64 * sizeof(float);
    const dunlin_trainer_options options = plain_options(BATCH);
    const dunlin_trainer_options whole = dense(&options);
    const uint64_t by_rows = estimate(model, &options).least_budget_bytes;
    const uint64_t as_dense = estimate(model, &whole).least_budget_bytes;
    cr_expect_gt(as_dense, by_rows);
    cr_expect_gt(as_dense - by_rows, table_bytes - table_bytes / 20, "%llu, dense %llu",
                 (unsigned long long)by_rows, (unsigned long long)as_dense);
    cr_expect_leq(as_dense - by_rows, table_bytes);
    dunlin_model_destroy(model);
}

/* The room for rows grows with the batch that is asked about. */
Test(table, the_largest_batch_that_fits)
{
    dunlin_model *model = table_model(N_ROWS, WIDTH);
    dunlin_trainer_options options = plain_options(BATCH);
    const uint64_t least = estimate(model, &options).least_budget_bytes;
    for (uint64_t more = 0; more < 200000; more += 45000) {
        int64_t batch = 0;
        bool is_unbounded = false;
        dunlin_error error = {.status = DUNLIN_OK};
        options.budget_bytes = least + more;
        options.batch = BATCH;
        options.max_ratio = (double)INFINITY;
        cr_assert_eq(dunlin_trainer_max_batch(model, &options, &batch, &is_unbounded, &error),
                     DUNLIN_OK, "%s", error.text);
        cr_assert_not(is_unbounded);
        cr_expect_geq(batch, BATCH);
        options.budget_bytes = 0;
        options.batch = batch;
        cr_expect_leq(estimate(model, &options).least_budget_bytes, least + more);
        options.batch = batch + 1;
        cr_expect_gt(estimate(model, &options).least_budget_bytes, least + more);
    }
    dunlin_model_destroy(model);
}

Test(table, costs_of_one_batch_serve_for_others)
{
    static const int64_t batches[] = {2, BATCH, 64, 2000};
    dunlin_model *model = table_model(N_ROWS, WIDTH);
    dunlin_costs *costs = NULL;
    dunlin_error error = {.status = DUNLIN_OK};
    for (int clips_norm = 0; clips_norm < 2; clips_norm++) {
        dunlin_trainer_options options = plain_options(BATCH);
        options.clip_norm = clips_norm != 0 ? 1.0F : 0.0F;
        cr_assert_eq(dunlin_costs_measure(model, &options, &costs, &error), DUNLIN_OK, "%s",
                     error.text);
        options.costs = costs;
        for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
            options.batch = batches[i];
            cr_expect_gt(estimate(model, &options).predicted_ms, 0.0);
        }
        dunlin_costs_free(costs);
    }
    dunlin_model_destroy(model);
}

/* --- which tables --- */

static const dunlin_step_tensor *find_tensor(const dunlin_step_graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->n_tensors; i++) {
        if (strcmp(graph->tensors[i].name, name) == 0) {
            return &graph->tensors[i];
        }
    }
    return NULL;
}

static void expect_gradient(const dunlin_net *net, const dunlin_step_build_options *options,
                            bool is_by_rows)
{
    dunlin_step_graph *graph = NULL;
    cr_assert_eq(dunlin__step_build(net, options, NULL, &graph, NULL), DUNLIN_OK);
    const dunlin_step_tensor *gradient = find_tensor(graph, "one.weight/grad");
    cr_assert_not_null(gradient);
    cr_expect_eq(gradient->n_elements < net->params[0].n_elements, is_by_rows);
    cr_expect_eq(find_tensor(graph, "one.weight/rows") != NULL, is_by_rows);
    dunlin__step_graph_destroy(graph);
}

Test(table, one_that_is_read_twice_has_a_dense_gradient)
{
    dunlin_builder *builder = NULL;
    dunlin_model *model = NULL;
    const dunlin_shape row = {1, {N_TOKENS * WIDTH}};
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    const dunlin_value x = dunlin_builder_input(builder, "x", &(dunlin_shape){1, {N_TOKENS}});
    const dunlin_value one = dunlin_builder_embedding(builder, "one", x, N_ROWS, WIDTH);
    const dunlin_value two = dunlin_builder_embedding(builder, "two", x, N_ROWS, WIDTH);
    dunlin_value end = dunlin_builder_add(builder, one, two);
    end = dunlin_builder_dense(builder, "head", dunlin_builder_reshape(builder, end, &row), 3);
    cr_assert_eq(dunlin_builder_finish(builder, end, &model, NULL), DUNLIN_OK);
    dunlin_step_build_options options = {
        .mode = DUNLIN_EMIT_TRAIN, .batch = BATCH, .has_momentum = true};
    expect_gradient(&model->net, &options, true);
    options.has_gradient_hook = true;
    expect_gradient(&model->net, &options, false);
    options.has_gradient_hook = false;
    uint32_t *table = model->net.nodes[1].params;
    cr_assert_eq(model->net.nodes[1].kind, DUNLIN_OP_EMBEDDING);
    table[0] = model->net.nodes[0].params[0];
    expect_gradient(&model->net, &options, false);
    dunlin_model_destroy(model);
}
