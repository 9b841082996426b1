/*
 * test_cache.c - plans kept in a folder: found again, the same in all that counts; never in the way
 * when files are damaged, cannot be written or do not fit the budget.
 */
#include "random.h"
#include "step/context/context.h"
#include "step/context/rungs.h"
#include "step/step_support.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder of the test's own, and what was logged. */
typedef struct place {
    char *folder;
    int n_warnings;
    char last[256];
} place;

static void note_line(void *ctx, dunlin_log_level level, const char *subsystem, const char *text)
{
    place *to = ctx;
    (void)subsystem;
    if (level <= DUNLIN_LOG_WARNING) {
        to->n_warnings++;
        (void)snprintf(to->last, sizeof to->last, "%s", text);
    }
}

static dunlin_trainer_options options_in(place *in, int64_t batch)
{
    dunlin_trainer_options options = test_options(batch);
    options.cache_dir = in->folder;
    options.log = (dunlin_log){.ctx = in, .write_fn = note_line, .level = DUNLIN_LOG_WARNING};
    return options;
}

static char *path_in(const place *in, const char *name)
{
    char *path = malloc(strlen(in->folder) + strlen(name) + 2);
    (void)sprintf(path, "%s/%s", in->folder, name);
    return path;
}

/* Returns how many files there are; `out_path` (may be NULL) is one of them. */
static int count_files(const place *in, char **out_path)
{
    int n = 0;
    DIR *list = opendir(in->folder);
    for (const struct dirent *entry = list == NULL ? NULL : readdir(list); entry != NULL;
         entry = readdir(list)) {
        if (entry->d_name[0] != '.') {
            n++;
            if (out_path != NULL) {
                free(*out_path);
                *out_path = path_in(in, entry->d_name);
            }
        }
    }
    if (list != NULL) {
        (void)closedir(list);
    }
    return n;
}

static void empty(place *in)
{
    char *path = NULL;
    while (count_files(in, &path) > 0) {
        cr_assert_eq(unlink(path), 0);
    }
    (void)rmdir(in->folder);
    free(path);
    free(in->folder);
}

static dunlin_trainer_report report_of(const dunlin_model *model,
                                       const dunlin_trainer_options *options)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_trainer_estimate(model, options, &report, &error), DUNLIN_OK, "%s",
                 error.text);
    return report;
}

static void expect_same_report(const dunlin_trainer_report *a, const dunlin_trainer_report *b)
{
    cr_expect_eq(a->planned_bytes, b->planned_bytes);
    cr_expect_eq(a->lower_bound_bytes, b->lower_bound_bytes);
    cr_expect_eq(a->least_budget_bytes, b->least_budget_bytes);
    cr_expect_eq(a->pool_bytes, b->pool_bytes);
    cr_expect_eq(a->micro_batch, b->micro_batch);
    cr_expect_eq(a->n_recomputed, b->n_recomputed);
    cr_expect_eq(a->n_loops, b->n_loops);
    cr_expect_float_eq(a->predicted_ms, b->predicted_ms, 1e-9);
    cr_expect_arr_eq(&a->by_class, &b->by_class, sizeof a->by_class);
}

/* Every budget has a plan of its own, which the second trainer finds; the bits are the same, and
 * neither passes the budget. */
Test(cache, the_second_trainer_finds_the_plan)
{
    for (int has_norm = 0; has_norm < 2; has_norm++) {
        dunlin_model *model = test_small_model(has_norm != 0);
        place in = {.folder = test_temp_path("cache")};
        dunlin_trainer_options options = options_in(&in, 9);
        const char *folder = options.cache_dir;
        options.cache_dir = NULL;
        int64_t n = 0;
        float *expected = test_train(model, &options, 3, &n);
        const dunlin_trainer_report free_report = report_of(model, &options);
        const uint64_t least = free_report.least_budget_bytes;
        const uint64_t most = free_report.planned_bytes;
        for (uint64_t part = 0; part <= 4; part++) {
            options.budget_bytes = least + (most - least) / 4 * part;
            options.cache_dir = NULL;
            const dunlin_trainer_report anew = report_of(model, &options);
            options.cache_dir = folder;
            const dunlin_trainer_report first = report_of(model, &options);
            cr_expect_not(first.is_plan_kept);
            cr_expect_eq(count_files(&in, NULL), (int)part + 1);
            expect_same_report(&anew, &first);
            dunlin_alloc_counter counter;
            dunlin_alloc_counter_init(&counter, NULL);
            options.alloc = counter.hooks;
            float *weights = test_train(model, &options, 3, NULL);
            cr_expect_leq(counter.peak_bytes, options.budget_bytes);
            options.alloc = (dunlin_alloc){.ctx = NULL};
            cr_expect(test_same_bits(weights, expected, n));
            free(weights);
            const dunlin_trainer_report second = report_of(model, &options);
            /* Reading a file takes memory of its own; at the least budget there may be none. */
            cr_expect(second.is_plan_kept || part == 0, "part %d", (int)part);
            expect_same_report(&first, &second);
        }
        cr_expect_eq(in.n_warnings, 0, "%s", in.last);
        free(expected);
        empty(&in);
        dunlin_model_destroy(model);
    }
}

Test(cache, another_step_has_another_plan)
{
    dunlin_model *model = test_small_model(false);
    dunlin_model *other = test_small_model(true);
    place in = {.folder = test_temp_path("cache_other")};
    dunlin_trainer_options options = options_in(&in, 8);
    cr_expect_not(report_of(model, &options).is_plan_kept);
    cr_expect_not(report_of(other, &options).is_plan_kept);
    options.batch = 7;
    cr_expect_not(report_of(model, &options).is_plan_kept);
    options.policy = DUNLIN_POLICY_POOL;
    cr_expect_not(report_of(model, &options).is_plan_kept);
    options.optimizer = DUNLIN_OPTIMIZER_ADAM;
    options.momentum = 0.0F;
    cr_expect_not(report_of(model, &options).is_plan_kept);
    cr_expect_eq(count_files(&in, NULL), 5);
    cr_expect(report_of(model, &options).is_plan_kept);
    cr_expect_eq(in.n_warnings, 0, "%s", in.last);
    empty(&in);
    dunlin_model_destroy(model);
    dunlin_model_destroy(other);
}

static size_t read_all(const char *path, unsigned char *bytes, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file);
    const size_t n = fread(bytes, 1, capacity, file);
    (void)fclose(file);
    return n;
}

static void write_all(const char *path, const unsigned char *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, n, file), n);
    (void)fclose(file);
}

Test(cache, a_damaged_file_is_replaced)
{
    static unsigned char bytes[1 << 18];
    dunlin_model *model = test_dense_model(6, 3);
    place in = {.folder = test_temp_path("cache_damage")};
    const dunlin_trainer_options options = options_in(&in, 5);
    const dunlin_trainer_report first = report_of(model, &options);
    char *path = NULL;
    cr_assert_eq(count_files(&in, &path), 1);
    const size_t n = read_all(path, bytes, sizeof bytes);
    for (size_t i = 0; i < n; i += i < 64 ? 3 * TEST_STRIDE : 61 * TEST_STRIDE) {
        for (int kind = 0; kind < 2; kind++) {
            in.n_warnings = 0;
            bytes[i] ^= kind == 0 ? 4 : 0;
            write_all(path, bytes, kind == 0 ? n : i);
            bytes[i] ^= kind == 0 ? 4 : 0;
            const dunlin_trainer_report again = report_of(model, &options);
            cr_assert_not(again.is_plan_kept, "byte %zu", i);
            cr_assert_eq(in.n_warnings, 1, "byte %zu: %d lines", i, in.n_warnings);
            cr_assert_not_null(strstr(in.last, path), "%s", in.last);
            expect_same_report(&first, &again);
            cr_assert(report_of(model, &options).is_plan_kept);
        }
    }
    free(path);
    empty(&in);
    dunlin_model_destroy(model);
}

/* A file that is right, but of another step: its name alone says so no more. */
Test(cache, a_file_of_another_step_is_not_used)
{
    static unsigned char bytes[1 << 18];
    dunlin_model *model = test_dense_model(6, 3);
    place in = {.folder = test_temp_path("cache_moved")};
    dunlin_trainer_options options = options_in(&in, 5);
    (void)report_of(model, &options);
    char *path = NULL;
    cr_assert_eq(count_files(&in, &path), 1);
    const size_t n = read_all(path, bytes, sizeof bytes);
    cr_assert_eq(unlink(path), 0);
    options.batch = 6;
    (void)report_of(model, &options);
    cr_assert_eq(count_files(&in, &path), 1);
    write_all(path, bytes, n);
    cr_expect_not(report_of(model, &options).is_plan_kept);
    cr_expect_eq(in.n_warnings, 1);
    cr_expect(report_of(model, &options).is_plan_kept);
    free(path);
    empty(&in);
    dunlin_model_destroy(model);
}

Test(cache, a_folder_that_cannot_be_written_is_no_failure)
{
    dunlin_model *model = test_dense_model(6, 3);
    place in = {.folder = test_temp_path("cache_file")};
    write_all(in.folder, (const unsigned char *)"", 0);
    const dunlin_trainer_options options = options_in(&in, 5);
    cr_expect_not(report_of(model, &options).is_plan_kept);
    cr_expect_geq(in.n_warnings, 1);
    cr_expect_not(report_of(model, &options).is_plan_kept);
    (void)unlink(in.folder);
    free(in.folder);
    dunlin_model_destroy(model);
}

/* What a budget may change to, and one step on. */
static dunlin_trainer *make_adaptable(const dunlin_model *model, const place *in,
                                      dunlin_trainer_options *options, bool is_kept)
{
    options->least_budget_bytes = 1;
    dunlin_trainer *trainer = test_create(model, options);
    cr_assert_eq(trainer->ladder->is_kept, is_kept, "%s", in->last);
    cr_assert_gt(trainer->ladder->n_fallbacks, 1);
    return trainer;
}

static void expect_same_fallbacks(const dunlin_trainer *a, const dunlin_trainer *b)
{
    cr_assert_eq(a->ladder->n_fallbacks, b->ladder->n_fallbacks);
    cr_expect_eq(a->ladder->table_bytes, b->ladder->table_bytes);
    cr_expect_eq(a->ladder->least_arena_bytes, b->ladder->least_arena_bytes);
    for (uint32_t i = 0; i < a->ladder->n_fallbacks; i++) {
        const dunlin_fallback *left = &a->ladder->fallbacks[i];
        const dunlin_fallback *right = &b->ladder->fallbacks[i];
        cr_expect_eq(left->arena_bytes, right->arena_bytes);
        cr_expect_eq(left->train->cost_ns, right->train->cost_ns);
        cr_expect_eq(left->alike == NULL, right->alike == NULL);
        cr_assert_eq(left->train->n_places, right->train->n_places);
        cr_expect_arr_eq(left->train->places, right->train->places,
                         left->train->n_places * sizeof *left->train->places);
    }
}

Test(cache, a_ladder_is_found_again)
{
    for (int has_norm = 0; has_norm < 2; has_norm++) {
        dunlin_model *model = test_small_model(has_norm != 0);
        place in = {.folder = test_temp_path("cache_ladder")};
        dunlin_trainer_options options = options_in(&in, 9);
        dunlin_trainer *first = make_adaptable(model, &in, &options, false);
        cr_expect_eq(count_files(&in, NULL), 2);
        dunlin_trainer *second = make_adaptable(model, &in, &options, true);
        expect_same_fallbacks(first, second);
        dunlin_trainer_destroy(second);
        dunlin_trainer_destroy(first);
        /* Other budgets have other fallback plans. */
        options.least_budget_bytes = 1;
        options.budget_bytes = (uint64_t)64 << 20;
        first = make_adaptable(model, &in, &options, false);
        second = make_adaptable(model, &in, &options, true);
        expect_same_fallbacks(first, second);
        dunlin_trainer_destroy(second);
        dunlin_trainer_destroy(first);
        cr_expect_eq(in.n_warnings, 0, "%s", in.last);
        empty(&in);
        dunlin_model_destroy(model);
    }
}

Test(cache, a_damaged_ladder_is_replaced)
{
    static unsigned char bytes[1 << 20];
    dunlin_model *model = test_dense_model(6, 3);
    place in = {.folder = test_temp_path("cache_rungs")};
    dunlin_trainer_options options = options_in(&in, 5);
    dunlin_trainer *first = make_adaptable(model, &in, &options, false);
    char *path = NULL;
    for (int i = 0; i < 64 && (path == NULL || strstr(path, ".ladder") == NULL); i++) {
        /* Of two files one has the fallback plans; the other leaves for a moment. */
        cr_assert_eq(count_files(&in, &path), 2 - (i > 0));
        if (strstr(path, ".ladder") == NULL) {
            cr_assert_eq(unlink(path), 0);
        }
    }
    const size_t n = read_all(path, bytes, sizeof bytes);
    for (size_t i = 0; i < n; i += i < 128 ? 31 * TEST_STRIDE : n / 3) {
        for (int kind = 0; kind < 2; kind++) {
            in.n_warnings = 0;
            bytes[i] ^= kind == 0 ? 4 : 0;
            write_all(path, bytes, kind == 0 ? n : i);
            bytes[i] ^= kind == 0 ? 4 : 0;
            dunlin_trainer *again = make_adaptable(model, &in, &options, false);
            cr_assert_eq(in.n_warnings, 1, "byte %zu: %d lines", i, in.n_warnings);
            expect_same_fallbacks(first, again);
            dunlin_trainer_destroy(again);
        }
    }
    dunlin_trainer_destroy(first);
    free(path);
    empty(&in);
    dunlin_model_destroy(model);
}
