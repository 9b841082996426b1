/*
 * test_costs.c - measured costs: what a table does to plans, what it is refused for, and files of
 * it that are cut, changed or made up.
 */
#include "net/net.h"
#include "step/context/context.h"
#include "step/lower/costs.h"
#include "step/step_support.h"

#include <dunlin/trainer_advanced.h>
#include <mem/support.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

static dunlin_costs *measure(const dunlin_model *model, const dunlin_trainer_options *options)
{
    dunlin_costs *costs = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_costs_measure(model, options, &costs, &error), DUNLIN_OK, "%s", error.text);
    return costs;
}

static char *read_text(const char *path, size_t *out_n)
{
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file);
    char *text = calloc(1, 1 << 20);
    *out_n = fread(text, 1, (1 << 20) - 1, file);
    (void)fclose(file);
    return text;
}

static void write_text(const char *path, const char *text, size_t n)
{
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(text, 1, n, file), n);
    (void)fclose(file);
}

/* The lines and the checksum that belongs to them. */
static void write_summed(const char *path, const char *lines)
{
    char text[4096];
    const uLong crc = crc32(crc32(0, Z_NULL, 0), (const unsigned char *)lines, (uInt)strlen(lines));
    const int n = snprintf(text, sizeof text, "%scrc %08lx\n", lines, (unsigned long)crc);
    write_text(path, text, (size_t)n);
}

static dunlin_status load_of(const char *path, dunlin_error *out_error)
{
    dunlin_costs *costs = NULL;
    const dunlin_status status = dunlin_costs_load(path, NULL, &costs, out_error);
    cr_expect_eq(costs == NULL, status != DUNLIN_OK);
    dunlin_costs_free(costs);
    return status;
}

Test(costs, a_file_gives_the_same_table)
{
    dunlin_model *model = test_small_model(true);
    const dunlin_trainer_options options = test_options(6);
    char *path = test_temp_path("costs");
    char *again = test_temp_path("costs_again");
    dunlin_error error = {0};
    dunlin_costs *costs = measure(model, &options);
    cr_assert_eq(dunlin_costs_save(costs, path, &error), DUNLIN_OK, "%s", error.text);
    dunlin_costs *loaded = NULL;
    cr_assert_eq(dunlin_costs_load(path, NULL, &loaded, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(loaded->n_rows, costs->n_rows);
    cr_expect_eq(loaded->graph, costs->graph);
    for (size_t i = 0; i < costs->n_rows; i++) {
        cr_expect_eq(loaded->rows[i].fixed_ns, costs->rows[i].fixed_ns);
        cr_expect_eq(loaded->rows[i].sample_ns, costs->rows[i].sample_ns);
        cr_expect_str_eq(loaded->texts + loaded->rows[i].name, costs->texts + costs->rows[i].name);
        cr_expect_str_eq(loaded->texts + loaded->rows[i].kernel,
                         costs->texts + costs->rows[i].kernel);
        cr_expect_gt(costs->rows[i].fixed_ns, 0);
    }
    cr_assert_eq(dunlin_costs_save(loaded, again, &error), DUNLIN_OK, "%s", error.text);
    size_t n = 0;
    size_t n_again = 0;
    char *text = read_text(path, &n);
    char *text_again = read_text(again, &n_again);
    cr_expect_eq(n, n_again);
    cr_expect_arr_eq(text, text_again, n);
    free(text);
    free(text_again);
    (void)unlink(path);
    (void)unlink(again);
    free(path);
    free(again);
    dunlin_costs_free(costs);
    dunlin_costs_free(loaded);
    dunlin_model_destroy(model);
}

/* Every op costs 100 ns a slice and 10 a sample, so the time of any plan is known beforehand. */
static void make_plain(dunlin_costs *costs)
{
    for (size_t i = 0; i < costs->n_rows; i++) {
        costs->rows[i].fixed_ns = 100;
        costs->rows[i].sample_ns = 10;
    }
}

Test(costs, plans_go_by_them_and_bits_do_not)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = test_options(6);
    dunlin_costs *costs = measure(model, &options);
    make_plain(costs);
    int64_t n = 0;
    float *by_roofline = test_train(model, &options, 3, &n);
    options.costs = costs;
    float *by_costs = test_train(model, &options, 3, NULL);
    cr_expect(test_same_bits(by_roofline, by_costs, n));
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_get_report(trainer, &report), DUNLIN_OK);
    uint64_t expected_ns = 0;
    const dunlin_step_graph *step = trainer->train.step;
    for (size_t i = 0; i < step->n_ops; i++) {
        expected_ns += step->ops[i].kernel->parts == DUNLIN_MEM_FIXED ? 100 : 100 + 10 * 6;
    }
    cr_expect_eq(trainer->train.plan->cost_ns, expected_ns);
    cr_expect_float_eq(report.predicted_ms, (double)expected_ns * 1e-6, 1e-9);
    /* Inference finds the rows of the ops that it shares with training. */
    const dunlin_program *infer = &trainer->infer;
    size_t n_found = 0;
    for (size_t i = 0; i < infer->step->n_ops; i++) {
        n_found += infer->lowered.variants[i].cost_fixed_ns == 100 ? 1 : 0;
    }
    cr_expect_gt(n_found, infer->step->n_ops / 2);
    dunlin_trainer_destroy(trainer);
    free(by_roofline);
    free(by_costs);
    dunlin_costs_free(costs);
    dunlin_model_destroy(model);
}

Test(costs, ops_without_a_row_are_scaled)
{
    dunlin_model *model = test_small_model(false);
    const dunlin_trainer_options options = test_options(4);
    dunlin_costs *costs = measure(model, &options);
    dunlin_trainer *trainer = test_create(model, &options);
    make_plain(costs);
    costs->scale = 3.0;
    costs->texts[costs->rows[1].name] ^= 1;
    dunlin_lowered *lowered = &trainer->train.lowered;
    const uint64_t fixed_ns = lowered->variants[1].cost_fixed_ns;
    const uint64_t sample_ns = lowered->variants[1].cost_sample_ns;
    dunlin__costs_apply(costs, trainer->train.step, false, lowered);
    cr_expect_eq(lowered->variants[0].cost_fixed_ns, 100);
    cr_expect_eq(lowered->variants[1].cost_fixed_ns, 3 * fixed_ns);
    cr_expect_eq(lowered->variants[1].cost_sample_ns, 3 * sample_ns);
    cr_expect_eq(lowered->variants[2].cost_fixed_ns, 100);
    dunlin_trainer_destroy(trainer);
    dunlin_costs_free(costs);
    dunlin_model_destroy(model);
}

static void expect_refused(const dunlin_model *model, const dunlin_trainer_options *options,
                           const char *word)
{
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {0};
    cr_expect_eq(dunlin_trainer_create(model, options, &trainer, &error), DUNLIN_MISMATCH);
    cr_expect_null(trainer);
    cr_expect_not_null(strstr(error.text, word), "\"%s\" is not in: %s", word, error.text);
}

Test(costs, of_another_step_are_refused)
{
    dunlin_model *model = test_small_model(false);
    dunlin_model *other = test_small_model(true);
    dunlin_trainer_options options = test_options(4);
    dunlin_costs *costs = measure(model, &options);
    options.costs = costs;
    expect_refused(other, &options, "another model");
    options.n_threads = 2;
    expect_refused(model, &options, "threads");
    options.n_threads = 0;
    options.momentum = options.momentum == 0.0F ? 0.5F : 0.0F;
    expect_refused(model, &options, "optimiser");
    options.momentum = test_options(4).momentum;
    costs->isa[0] = 'x';
    expect_refused(model, &options, "measured with x");
    dunlin_costs_free(costs);
    dunlin_model_destroy(model);
    dunlin_model_destroy(other);
}

Test(costs, a_damaged_file_is_refused)
{
    dunlin_model *model = test_dense_model(5, 3);
    const dunlin_trainer_options options = test_options(4);
    char *path = test_temp_path("costs_bad");
    dunlin_costs *costs = measure(model, &options);
    dunlin_error error = {0};
    cr_assert_eq(dunlin_costs_save(costs, path, NULL), DUNLIN_OK);
    size_t n = 0;
    char *text = read_text(path, &n);
    for (size_t i = 0; i < n; i++) {
        write_text(path, text, i);
        cr_expect_neq(load_of(path, &error), DUNLIN_OK, "cut to %zu of %zu bytes", i, n);
        text[i] ^= 1;
        write_text(path, text, n);
        cr_expect_eq(load_of(path, &error), DUNLIN_DIGEST, "bit 0 of byte %zu", i);
        cr_expect_not_null(strstr(error.text, path), "%s", error.text);
        text[i] ^= 1;
    }
    (void)unlink(path);
    cr_expect_eq(load_of(path, &error), DUNLIN_IO);
    free(text);
    free(path);
    dunlin_costs_free(costs);
    dunlin_model_destroy(model);
}

#define HEAD "dunlin costs 1\ngraph 0123456789abcdef\nisa avx2\nthreads 1\nbatches 2 8\nscale 0.5\n"

Test(costs, a_wrong_line_is_named)
{
    static const struct {
        const char *lines;
        dunlin_status status;
        const char *where;
    } cases[] = {
        {HEAD "ops 1\nconv 1 2 a%20b\n", DUNLIN_OK, ""},
        {"", DUNLIN_DATA, ":1:"},
        {"costs 1\n", DUNLIN_DATA, ":1:"},
        {"dunlin costs 2\n", DUNLIN_VERSION, ":1:"},
        {"dunlin costs 1\ngraph 12\n", DUNLIN_DATA, ":2:"},
        {"dunlin costs 1\nisa avx2\n", DUNLIN_DATA, ":2: expected \"graph\""},
        {"dunlin costs 1\ngraph 0123456789abcdef\nisa an_isa_with_a_long_name\n", DUNLIN_DATA,
         ":3:"},
        {"dunlin costs 1\ngraph 0123456789abcdef\nisa avx2\nthreads 0\n", DUNLIN_DATA, ":4:"},
        {"dunlin costs 1\ngraph 0123456789abcdef\nisa avx2\nthreads 1\nbatches 8 2\n", DUNLIN_DATA,
         ":5:"},
        {"dunlin costs 1\ngraph 0123456789abcdef\nisa avx2\nthreads 1\nbatches 2 8\nscale nan\n",
         DUNLIN_DATA, ":6:"},
        {HEAD "ops 0\n", DUNLIN_DATA, ":7:"},
        {HEAD "ops 999999\nconv 1 2 a\n", DUNLIN_DATA, ":7:"},
        {HEAD "ops 2\nconv 1 2 a\nconv 1 2 \n", DUNLIN_OK, ""},
        {HEAD "ops 2\nconv 1 2 a\nconv 1 -2 b\n", DUNLIN_DATA, ":9:"},
        {HEAD "ops 2\nconv 1 2 a\nconv 1 b\nc\n", DUNLIN_DATA, ":9:"},
        {HEAD "ops 2\nconv 1 2 a\nconv 1 1000000000000001 b\n", DUNLIN_DATA, ":9:"},
        {HEAD "ops 1\nconv 1 2 a%2\n", DUNLIN_DATA, ":8:"},
        {HEAD "ops 1\nconv 1 2 a%00\n", DUNLIN_DATA, ":8:"},
        {HEAD "ops 2\nconv 1 2 abcdefghijk\n", DUNLIN_DATA, ":9:"},
        {HEAD "ops 1\nconv 1 2 a\nconv 1 2 b\n", DUNLIN_DATA, ":9:"},
    };
    char *path = test_temp_path("costs_line");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin_error error = {0};
        write_summed(path, cases[i].lines);
        const dunlin_status status = load_of(path, &error);
        cr_expect_eq(status, cases[i].status, "case %zu: %s, %s", i, dunlin_status_name(status),
                     error.text);
        cr_expect_not_null(strstr(error.text, cases[i].where), "case %zu: %s", i, error.text);
        cr_expect(status == DUNLIN_OK || strstr(error.text, path) != NULL, "%s", error.text);
    }
    (void)unlink(path);
    free(path);
}

static void never_called(void *ctx, int32_t parameter_index, int64_t n, const float *weights,
                         float *gradient, float *const *slots)
{
    (void)parameter_index;
    (void)n;
    (void)weights;
    (void)gradient;
    (void)slots;
    *(int *)ctx += 1;
}

/* Losses, optimisers, hooks, tokens: measured, and taken by a trainer with the same options. */
Test(costs, any_step_can_be_measured)
{
    static const dunlin_zoo_options small = {
        .struct_size = sizeof(dunlin_zoo_options), .classes = 5, .sequence = 6, .vocabulary = 40};
    int n_calls = 0;
    dunlin_model *models[3] = {test_small_model(true), test_dense_model(7, 4), NULL};
    cr_assert_eq(dunlin_model_from_zoo("bert_small", &small, NULL, &models[2], NULL), DUNLIN_OK);
    for (size_t m = 0; m < 3; m++) {
        dunlin_trainer_options options = test_options(3);
        if (m == 0) {
            options.loss = DUNLIN_LOSS_BCE;
            options.momentum = 0.0F;
            options.optimizer = DUNLIN_OPTIMIZER_ADAMW;
            options.policy = DUNLIN_POLICY_NONE;
        }
        if (m == 1) {
            options.clip_norm = 1.0F;
            options.gradient_fn = never_called;
            options.gradient_ctx = &n_calls;
            options.n_gradient_slots = 2;
            options.n_threads = 2;
        }
        dunlin_costs *costs = measure(models[m], &options);
        cr_expect_eq(n_calls, 0);
        options.costs = costs;
        dunlin_trainer *trainer = test_create(models[m], &options);
        dunlin_trainer_destroy(trainer);
        dunlin_costs_free(costs);
        dunlin_model_destroy(models[m]);
    }
}

Test(costs, measuring_stays_within_the_budget)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = test_options(1);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, NULL), DUNLIN_OK);
    options.batch = 64;
    options.budget_bytes = report.least_budget_bytes;
    dunlin_costs *costs = measure(model, &options);
    cr_expect_eq(costs->batches[1], 1);
    dunlin_costs_free(costs);
    options.budget_bytes = report.least_budget_bytes / 2;
    dunlin_error error = {0};
    cr_expect_eq(dunlin_costs_measure(model, &options, &costs, &error), DUNLIN_BUDGET);
    cr_expect_null(costs);
    cr_expect_eq(error.needed_bytes, report.least_budget_bytes);
    dunlin_model_destroy(model);
}

/* Fails one allocation. */
typedef struct failing {
    dunlin_alloc_counter counter;
    int64_t n_left;
} failing;

static void *failing_alloc(void *ctx, size_t bytes, size_t alignment)
{
    failing *to = ctx;
    const dunlin_alloc *hooks = &to->counter.hooks;
    return to->n_left-- == 0 ? NULL : hooks->alloc_fn(hooks->ctx, bytes, alignment);
}

static void failing_free(void *ctx, void *memory, size_t bytes)
{
    const dunlin_alloc *hooks = &((failing *)ctx)->counter.hooks;
    hooks->free_fn(hooks->ctx, memory, bytes);
}

Test(costs, failing_allocations_leave_nothing)
{
    dunlin_model *model = test_dense_model(5, 3);
    char *path = test_temp_path("costs_memory");
    dunlin_status status = DUNLIN_MEMORY;
    for (int64_t n = 0; status != DUNLIN_OK; n++) {
        failing to = {.n_left = n};
        dunlin_alloc_counter_init(&to.counter, NULL);
        dunlin_trainer_options options = test_options(2);
        options.alloc =
            (dunlin_alloc){.ctx = &to, .alloc_fn = failing_alloc, .free_fn = failing_free};
        dunlin_costs *costs = NULL;
        status = dunlin_costs_measure(model, &options, &costs, NULL);
        cr_assert(status == DUNLIN_OK || status == DUNLIN_MEMORY);
        cr_assert(status != DUNLIN_OK || dunlin_costs_save(costs, path, NULL) == DUNLIN_OK);
        dunlin_costs_free(costs);
        cr_assert_eq(to.counter.now_bytes, 0, "allocation %lld leaks", (long long)n);
    }
    status = DUNLIN_MEMORY;
    for (int64_t n = 0; status != DUNLIN_OK; n++) {
        failing to = {.n_left = n};
        dunlin_alloc_counter_init(&to.counter, NULL);
        const dunlin_alloc hooks = {.ctx = &to, .alloc_fn = failing_alloc, .free_fn = failing_free};
        dunlin_costs *costs = NULL;
        status = dunlin_costs_load(path, &hooks, &costs, NULL);
        cr_assert(status == DUNLIN_OK || status == DUNLIN_MEMORY);
        dunlin_costs_free(costs);
        cr_assert_eq(to.counter.now_bytes, 0, "allocation %lld leaks", (long long)n);
    }
    (void)unlink(path);
    free(path);
    dunlin_model_destroy(model);
}
