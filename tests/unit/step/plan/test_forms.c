/*
 * test_forms.c - both forms of a training graph, residual sums read through their terms or as they
 * were stored: the better one is taken, the least budget is the smaller of both, and kept plans,
 * measured costs and fallback plans go with either.
 */
#include "forms_support.h"
#include "net/net.h"
#include "random.h"
#include "step/adapt_support.h"
#include "step/lower/costs.h"
#include "step/plan/budget.h"
#include "step/plan/forms.h"
#include "step/step_support.h"

#include <dunlin/trainer_advanced.h>
#include <mem/hash.h>
#include <mem/store.h>
#include <mem/support.h>

#include <criterion/criterion.h>

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static dunlin_model *zoo_model(const char *name, int32_t image)
{
    const dunlin_zoo_options sizes = {.struct_size = sizeof(dunlin_zoo_options), .image = image};
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_from_zoo(name, &sizes, NULL, &model, NULL), DUNLIN_OK);
    return model;
}

/* What holds at every budget; returns the form taken, -1 for none. */
static int check_at(const dunlin_model *model, const dunlin_trainer_options *options, uint64_t seed)
{
    const made terms = test_plan_in(model, options, DUNLIN_FORM_TERMS);
    const made sums = test_plan_in(model, options, DUNLIN_FORM_SUMS);
    const made any = test_plan_in(model, options, ANY_FORM);
    const uint64_t least =
        sums.least_bytes < terms.least_bytes ? sums.least_bytes : terms.least_bytes;
    const uint64_t fastest = sums.cost_ns < terms.cost_ns ? sums.cost_ns : terms.cost_ns;
    cr_expect_eq(any.least_bytes, least,
                 "seed %" PRIu64 ", budget %" PRIu64 ": least %" PRIu64 ", of the forms %" PRIu64
                 " and %" PRIu64,
                 seed, options->budget_bytes, any.least_bytes, terms.least_bytes, sums.least_bytes);
    cr_expect_eq(any.cost_ns, terms.is_plain ? terms.cost_ns : fastest,
                 "seed %" PRIu64 ", budget %" PRIu64 ": %" PRIu64 " ns, in the forms %" PRIu64
                 " and %" PRIu64,
                 seed, options->budget_bytes, any.cost_ns, terms.cost_ns, sums.cost_ns);
    cr_expect(options->budget_bytes == 0 || options->budget_bytes < least ||
                  any.status == DUNLIN_OK,
              "seed %" PRIu64 ", budget %" PRIu64, seed, options->budget_bytes);
    if (any.status == DUNLIN_OK && any.cost_ns == terms.cost_ns) {
        cr_expect_eq(any.form, DUNLIN_FORM_TERMS);
    }
    return any.status == DUNLIN_OK ? (int)any.form : -1;
}

static void check_budgets(const dunlin_model *model, dunlin_trainer_options options, uint64_t n,
                          uint64_t seed)
{
    options.budget_bytes = 0;
    const made whole = test_plan_in(model, &options, ANY_FORM);
    const uint64_t least = whole.least_bytes;
    const uint64_t most = whole.total_bytes > least ? whole.total_bytes : least;
    for (uint64_t i = 0; i <= n; i++) {
        options.budget_bytes = least - 1 + (most - least) * i / n;
        (void)check_at(model, &options, seed);
        options.budget_bytes++;
        (void)check_at(model, &options, seed);
    }
}

Test(forms, the_better_one_of_random_nets, .timeout = 900)
{
    uint64_t rng = test_seed(51001);
    const uint64_t seed = rng;
    for (int i = 0; i < test_cases(1); i++) {
        dunlin_model *model = test_random_model(&rng, true);
        check_budgets(model, test_options(1 + (int64_t)test_random_below(&rng, 12)), 2, seed);
        dunlin_model_destroy(model);
        const int32_t n_blocks = 1 + (int32_t)test_random_below(&rng, 6);
        const int32_t channels = 1 + (int32_t)test_random_below(&rng, 16);
        model = test_residual_model(n_blocks, channels, 4 + (int32_t)test_random_below(&rng, 9));
        check_budgets(model, test_options(1 + (int64_t)test_random_below(&rng, 24)), 3, seed);
        dunlin_model_destroy(model);
    }
}

Test(forms, under_every_policy, .timeout = 900)
{
    dunlin_model *model = test_residual_model(3, 4, 8);
    for (int policy = DUNLIN_POLICY_AUTO; policy <= DUNLIN_POLICY_CAPUCHIN; policy++) {
        dunlin_trainer_options options = test_options(12);
        options.policy = (dunlin_policy)policy;
        options.baselines = dunlin_baselines_published();
        check_budgets(model, options, 3, (uint64_t)policy);
        const made any = test_plan_in(model, &options, ANY_FORM);
        cr_expect_eq(any.has_forms, policy != DUNLIN_POLICY_NONE);
    }
    dunlin_trainer_options options = test_options(12);
    options.no_fuse = true;
    cr_expect_not(test_plan_in(model, &options, ANY_FORM).has_forms);
    dunlin_model_destroy(model);
}

/* For each form the last of some budgets between the least and the whole step's at which it is
 * taken though something is recomputed; 0: there is none. */
static void find_budgets(const dunlin_model *model, dunlin_trainer_options options,
                         uint64_t out_budgets[2])
{
    options.budget_bytes = 0;
    const made whole = test_plan_in(model, &options, ANY_FORM);
    out_budgets[0] = 0;
    out_budgets[1] = 0;
    for (uint64_t i = 1; i <= 6; i++) {
        options.budget_bytes = whole.least_bytes + (whole.total_bytes - whole.least_bytes) * i / 12;
        const made taken = test_plan_only(model, &options, ANY_FORM, false);
        if (taken.status == DUNLIN_OK && !taken.is_plain) {
            out_budgets[taken.form] = options.budget_bytes;
        }
    }
}

/* A small network of which both forms win somewhere; which one that is depends on the instruction
 * set. */
static dunlin_model *mixed_model(const dunlin_trainer_options *options, uint64_t out_budgets[2])
{
    for (int32_t size = 8; size <= 16; size += 8) {
        for (int32_t n_blocks = 4; n_blocks <= 11; n_blocks++) {
            dunlin_model *model = test_residual_model(n_blocks, 16, size);
            find_budgets(model, *options, out_budgets);
            if (out_budgets[0] > 0 && out_budgets[1] > 0) {
                return model;
            }
            dunlin_model_destroy(model);
        }
    }
    cr_assert_fail("no such network");
    return NULL;
}

static void check_wins(const dunlin_model *model, dunlin_trainer_options options,
                       const uint64_t budgets[2])
{
    for (int form = 0; form < 2; form++) {
        cr_assert_gt(budgets[form], 0, "form %d", form);
        options.budget_bytes = budgets[form];
        cr_expect_eq(check_at(model, &options, 0), form);
    }
}

Test(forms, each_wins_somewhere, .timeout = 900)
{
    dunlin_trainer_options options = test_options(16);
    uint64_t budgets[2];
    dunlin_model *model = mixed_model(&options, budgets);
    check_wins(model, options, budgets);
    dunlin_model_destroy(model);
    options.batch = 32;
    options.budget_bytes = (uint64_t)500 << 20;
    model = zoo_model("resnet50", 224);
    (void)check_at(model, &options, 0);
    dunlin_model_destroy(model);
}

/* Weights do not depend on the form. */
Test(forms, the_bits_are_the_same)
{
    dunlin_trainer_options options = test_options(16);
    uint64_t budgets[2];
    int64_t n = 0;
    dunlin_model *model = mixed_model(&options, budgets);
    float *expected = test_train(model, &options, 3, &n);
    for (int form = 0; form < 2; form++) {
        options.budget_bytes = budgets[form];
        float *weights = test_train(model, &options, 3, NULL);
        cr_expect(test_same_bits(weights, expected, n), "form %d", form);
        free(weights);
    }
    free(expected);
    dunlin_model_destroy(model);
}

/* Fails one allocation. */
typedef struct failing {
    dunlin_alloc_counter counter;
    uint64_t fails_at;
} failing;

static void *failing_alloc(void *ctx, size_t bytes, size_t align)
{
    failing *to = ctx;
    if (to->counter.n_allocs == to->fails_at) {
        to->fails_at = UINT64_MAX;
        return NULL;
    }
    return to->counter.hooks.alloc_fn(to->counter.hooks.ctx, bytes, align);
}

static void failing_free(void *ctx, void *memory, size_t bytes)
{
    failing *to = ctx;
    to->counter.hooks.free_fn(to->counter.hooks.ctx, memory, bytes);
}

/* Each of so many allocations of a trainer's creation fails once; how often it was made in each
 * form. */
static void fail_in_turn(const dunlin_model *model, dunlin_trainer_options options,
                         uint64_t n_tries, int n_made[2])
{
    uint64_t n_allocs = 1;
    for (uint64_t n = 0; n < n_allocs; n += 1 + n_allocs / n_tries) {
        failing to = {.fails_at = n == 0 ? UINT64_MAX : n};
        dunlin_alloc_counter_init(&to.counter, NULL);
        options.alloc =
            (dunlin_alloc){.ctx = &to, .alloc_fn = failing_alloc, .free_fn = failing_free};
        dunlin_trainer *trainer = NULL;
        dunlin_error error;
        const dunlin_status status = dunlin_trainer_create(model, &options, &trainer, &error);
        cr_assert(status == DUNLIN_OK || status == DUNLIN_MEMORY, "allocation %" PRIu64 ": %s", n,
                  error.text);
        if (status == DUNLIN_OK) {
            n_made[trainer->form]++;
            cr_expect_eq(trainer->aside_bytes, 0);
            dunlin_trainer_destroy(trainer);
        }
        n_allocs = n == 0 ? to.counter.n_allocs : n_allocs;
        cr_assert_eq(to.counter.now_bytes, 0,
                     "allocation %" PRIu64 " fails and something is not freed", n);
        cr_assert_leq(to.counter.peak_bytes, options.budget_bytes);
    }
}

/* Where the second form cannot be planned beside the first, they are planned one after the other.
 */
Test(forms, memory_fails_while_both_are_planned, .timeout = 900)
{
    dunlin_trainer_options options = test_options(16);
    uint64_t budgets[2];
    int n_made[2] = {0, 0};
    dunlin_model *model = mixed_model(&options, budgets);
    options.budget_bytes = budgets[DUNLIN_FORM_SUMS];
    fail_in_turn(model, options, 20, n_made);
    cr_expect_gt(n_made[DUNLIN_FORM_SUMS], 4 * n_made[DUNLIN_FORM_TERMS], "%d and %d",
                 n_made[DUNLIN_FORM_TERMS], n_made[DUNLIN_FORM_SUMS]);
    dunlin_model_destroy(model);
}

/* The first form's swaps are put aside with it, and each is freed once. */
Test(forms, memory_fails_while_both_are_planned_with_swaps, .timeout = 900)
{
    dunlin_model *model = test_residual_model(3, 4, 8);
    for (int policy = DUNLIN_POLICY_VDNN; policy <= DUNLIN_POLICY_CAPUCHIN; policy++) {
        dunlin_trainer_options options = test_options(12);
        int n_made[2] = {0, 0};
        options.policy = (dunlin_policy)policy;
        options.baselines = dunlin_baselines_published();
        const made whole = test_plan_in(model, &options, ANY_FORM);
        options.budget_bytes = 3 * whole.total_bytes;
        fail_in_turn(model, options, 400, n_made);
        cr_expect_gt(n_made[0] + n_made[1], 1);
    }
    dunlin_model_destroy(model);
}

/* The largest batch is that of the form which needs less. */
Test(forms, the_largest_batch, .timeout = 900)
{
    dunlin_model *model = test_residual_model(4, 16, 8);
    dunlin_trainer_options options = test_options(16);
    options.policy = DUNLIN_POLICY_RECOMPUTE;
    options.baselines = dunlin_baselines_published();
    const made terms = test_plan_in(model, &options, DUNLIN_FORM_TERMS);
    const made sums = test_plan_in(model, &options, DUNLIN_FORM_SUMS);
    const made least[2] = {terms.least_bytes < sums.least_bytes ? terms : sums,
                           terms.least_bytes < sums.least_bytes ? sums : terms};
    cr_assert_lt(least[0].least_bytes, least[1].least_bytes);
    for (uint64_t i = 0; i < 2; i++) {
        int64_t batch = 0;
        bool is_unbounded = false;
        options.budget_bytes = least[0].least_bytes - i;
        options.max_ratio = (double)INFINITY;
        cr_assert_eq(dunlin_trainer_max_batch(model, &options, &batch, &is_unbounded, NULL),
                     DUNLIN_OK);
        cr_expect_eq(batch >= 16, i == 0, "%lld", (long long)batch);
    }
    dunlin_model_destroy(model);
}

/* --- kept plans --- */

static void ignore_line(void *ctx, dunlin_log_level level, const char *subsystem, const char *text)
{
    (void)subsystem;
    (void)text;
    *(int *)ctx += level <= DUNLIN_LOG_WARNING ? 1 : 0;
}

/* The only file of a folder. */
static char *file_in(const char *folder)
{
    char *path = NULL;
    DIR *list = opendir(folder);
    cr_assert_not_null(list);
    for (const struct dirent *at = readdir(list); at != NULL; at = readdir(list)) {
        if (at->d_name[0] != '.') {
            cr_assert_null(path, "%s is one too many", at->d_name);
            path = malloc(strlen(folder) + strlen(at->d_name) + 2);
            (void)sprintf(path, "%s/%s", folder, at->d_name);
        }
    }
    (void)closedir(list);
    cr_assert_not_null(path);
    return path;
}

/* Another number in the head of the file, with the checksum that belongs to it. */
static void change_head(const char *path, long at, unsigned char number)
{
    unsigned char head[52];
    FILE *file = fopen(path, "r+b");
    cr_assert_not_null(file);
    cr_assert_eq(fread(head, 1, sizeof head, file), sizeof head);
    cr_assert_neq(head[at], number);
    head[at] = number;
    const uint32_t crc = dunlin__crc32(0, head, sizeof head - 4);
    for (size_t i = 0; i < 4; i++) {
        head[sizeof head - 4 + i] = (unsigned char)(crc >> (8 * i));
    }
    rewind(file);
    cr_assert_eq(fwrite(head, 1, sizeof head, file), sizeof head);
    (void)fclose(file);
}

static void expect_found(const dunlin_model *model, const dunlin_trainer_options *options,
                         const made *expected, bool is_kept)
{
    const made again = test_plan_in(model, options, ANY_FORM);
    cr_expect_eq(again.is_kept, is_kept);
    cr_expect_eq(again.form, expected->form);
    cr_expect_eq(again.cost_ns, expected->cost_ns);
    cr_expect_eq(again.least_bytes, expected->least_bytes);
    cr_expect_eq(again.total_bytes, expected->total_bytes);
}

Test(forms, plans_of_either_are_kept)
{
    dunlin_trainer_options options = test_options(16);
    uint64_t budgets[2];
    dunlin_model *model = mixed_model(&options, budgets);
    for (int form = 0; form < 2; form++) {
        int n_warnings = 0;
        char *folder = test_temp_path("forms");
        options.cache_dir = NULL;
        options.budget_bytes = budgets[form];
        options.log =
            (dunlin_log){.ctx = &n_warnings, .write_fn = ignore_line, .level = DUNLIN_LOG_WARNING};
        const made anew = test_plan_in(model, &options, ANY_FORM);
        cr_assert_eq((int)anew.form, form);
        options.cache_dir = folder;
        expect_found(model, &options, &anew, false);
        expect_found(model, &options, &anew, true);
        cr_expect_eq(n_warnings, 0);
        char *path = file_in(folder);
        /* Said to be of the other form, of none, or of an older format. */
        static const struct {
            long at;
            int number;
        } changes[] = {{20, -1}, {20, 2}, {8, 1}};
        for (size_t i = 0; i < 3; i++) {
            const int number = changes[i].number < 0 ? 1 - form : changes[i].number;
            change_head(path, changes[i].at, (unsigned char)number);
            expect_found(model, &options, &anew, false);
            cr_expect_eq(n_warnings, (int)i + 1);
            expect_found(model, &options, &anew, true);
        }
        cr_assert_eq(unlink(path), 0);
        (void)rmdir(folder);
        free(path);
        free(folder);
    }
    dunlin_model_destroy(model);
}

/* --- measured costs --- */

/* Whichever form was measured, the table serves both. */
Test(forms, costs_serve_both)
{
    dunlin_model *model = test_residual_model(4, 16, 8);
    dunlin_trainer_options options = test_options(16);
    dunlin_costs *costs = NULL;
    uint64_t budgets[2];
    find_budgets(model, options, budgets);
    cr_assert_eq(dunlin_costs_measure(model, &options, &costs, NULL), DUNLIN_OK);
    for (size_t i = 0; i < costs->n_rows; i++) {
        costs->rows[i].fixed_ns = 10;
        costs->rows[i].sample_ns = 6;
    }
    costs->scale = 1000.0; /* of rows that are not found */
    options.costs = costs;
    for (int measured = 0; measured < 2; measured++) {
        options.budget_bytes = 0;
        options.costs = NULL;
        costs->graph = test_plan_only(model, &options, measured, false).graph;
        options.costs = costs;
        const made terms = test_plan_in(model, &options, DUNLIN_FORM_TERMS);
        const made sums = test_plan_in(model, &options, DUNLIN_FORM_SUMS);
        cr_expect(terms.is_plain);
        cr_expect_eq(terms.cost_ns, sums.cost_ns);
        for (int form = 0; form < 2; form++) {
            options.budget_bytes = budgets[form];
            (void)check_at(model, &options, (uint64_t)form);
        }
    }
    costs->graph ^= 1;
    dunlin_trainer *trainer = NULL;
    cr_expect_eq(dunlin_trainer_create(model, &options, &trainer, NULL), DUNLIN_MISMATCH);
    dunlin_costs_free(costs);
    dunlin_model_destroy(model);
}

/* --- fallback plans --- */

static uint64_t lowest_of(const dunlin_model *model, const dunlin_trainer_options *options,
                          int form, dunlin_step_form *out_form)
{
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {.status = DUNLIN_OK};
    cr_assert_eq(dunlin__trainer_make(options, &trainer, &error), DUNLIN_OK);
    if (form != ANY_FORM) {
        trainer->form = (dunlin_step_form)form;
        trainer->is_form_fixed = true;
    }
    cr_assert_eq(dunlin__trainer_plan(trainer, &model->net, &error), DUNLIN_OK, "%s", error.text);
    const dunlin_plan_options least = dunlin__trainer_plan_options(trainer, options->batch, 0);
    uint64_t bytes = 0;
    cr_assert_eq(dunlin__plan_least_bytes(&trainer->train.lowered.graph, &least, &bytes, &error),
                 DUNLIN_OK);
    *out_form = trainer->form;
    dunlin_trainer_destroy(trainer);
    return bytes;
}

/* Fallback plans are of the form of the first budget, unless the other one alone comes as low as it
 * is to. */
Test(forms, a_ladder_comes_as_low_as_either)
{
    bool is_seen[2] = {false, false};
    for (int32_t n_blocks = 1; n_blocks <= 8; n_blocks++) {
        dunlin_model *model = test_residual_model(n_blocks, 16, 8 + n_blocks % 8);
        dunlin_trainer_options options = test_options(4);
        dunlin_step_form form;
        options.least_budget_bytes = 1;
        const uint64_t terms = lowest_of(model, &options, DUNLIN_FORM_TERMS, &form);
        const uint64_t sums = lowest_of(model, &options, DUNLIN_FORM_SUMS, &form);
        cr_expect_eq(lowest_of(model, &options, ANY_FORM, &form), terms < sums ? terms : sums);
        cr_expect_eq(form, sums < terms ? DUNLIN_FORM_SUMS : DUNLIN_FORM_TERMS);
        is_seen[form] = true;
        if (form == DUNLIN_FORM_SUMS) {
            test_adapt_check(model, "residual sums", &options, 6, test_seed(51002));
        }
        options.least_budget_bytes = (uint64_t)1 << 30;
        cr_expect_eq(lowest_of(model, &options, ANY_FORM, &form), terms);
        cr_expect_eq(form, DUNLIN_FORM_TERMS);
        dunlin_model_destroy(model);
    }
    cr_expect(is_seen[DUNLIN_FORM_TERMS] && is_seen[DUNLIN_FORM_SUMS]);
}
