/*
 * test_exact.c - random networks: whatever the policy, the limit and the number of threads, three
 * steps give the same weights, to the bit.
 */
#include "exact.h"
#include "exact_nets.h"
#include "random.h"
#include "step/step_support.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#define MANY 50 /* so many networks must have shown what they are for */

typedef struct family {
    const char *name;
    dunlin_model *(*make_fn)(uint64_t *rng);
    bool has_batch_norm;
    const char *stem; /* prefix of a parameter that every network of it has, or NULL */
    uint64_t first_seed;
    bool is_ghost; /* statistics of slices of a fixed size */
    dunlin_storage storage;
} family;

/* Everything about a step that a plan has to take into account. */
static dunlin_trainer_options random_options(uint64_t *rng, const family *of, int64_t batch)
{
    dunlin_trainer_options options = test_options(batch);
    switch (test_random_below(rng, 6)) {
    case 0:
        options.optimizer = DUNLIN_OPTIMIZER_ADAM;
        options.momentum = 0.0F;
        options.lr = 1e-3F;
        break;
    case 1:
        options.momentum = 0.0F;
        break;
    case 2:
        options.is_nesterov = true;
        break;
    default:
        break;
    }
    /* All gradients are kept until their norm is known. */
    options.clip_norm = test_random_below(rng, 5) == 0 ? 0.5F : 0.0F;
    options.freeze_batch_norm = of->has_batch_norm && test_random_below(rng, 5) == 0;
    options.no_fuse = test_random_below(rng, 6) == 0 && of->storage == DUNLIN_STORAGE_EXACT;
    options.storage = of->storage;
    options.frozen_prefixes = test_random_below(rng, 6) == 0 ? of->stem : NULL;
    options.ghost_statistics = of->is_ghost;
    options.micro_batch = of->is_ghost ? 1 + (int64_t)test_random_below(rng, (uint64_t)batch) : 0;
    return options;
}

/* The policy of a network beside `auto`: each in turn, of those that go with the storage. */
static const exact_policy *other_policy(int index, const family *of)
{
    const exact_policy *policy = &exact_policies[1 + index % (exact_n_policies - 1)];
    while (of->storage != DUNLIN_STORAGE_EXACT && !policy->is_stored) {
        policy = policy + 1 < exact_policies + exact_n_policies ? policy + 1 : exact_policies;
    }
    return policy;
}

static void check_net(uint64_t seed, int index, const family *of, exact_counts *counts)
{
    uint64_t rng = seed;
    dunlin_model *model = of->make_fn(&rng);
    const int64_t batch = 3 + (int64_t)test_random_below(&rng, 6);
    exact_case at = {.model = model,
                     .options = random_options(&rng, of, batch),
                     .name = of->name,
                     .seed = seed,
                     .rng = rng,
                     .counts = counts};
    at.may_slice = !of->has_batch_norm || at.options.freeze_batch_norm;
    exact_open(&at);
    /* Each network sees `auto` and one of the others in turn. */
    exact_check_policy(&at, &exact_policies[0], 2, index % 4 == 1);
    exact_check_policy(&at, other_policy(index, of), 1, index % 4 == 2);
    if (index % 8 == 0) {
        exact_check_budgets(&at);
    }
    if (index % 8 == 3 && !of->is_ghost) {
        exact_check_slices(&at);
    }
    exact_close(&at);
    dunlin_model_destroy(model);
}

/* DUNLIN_SEED runs the networks from the one that a failure named. */
static exact_counts check_nets(const family *of, int n_nets)
{
    exact_counts counts = {.n_runs = 0};
    const uint64_t first = test_seed(of->first_seed);
    for (int i = 0; i < n_nets; i++) {
        check_net(first + (uint64_t)i, i, of, &counts);
    }
    cr_log_info(
        "%s: %d nets, %d runs, %d of them recompute, %d in slices, %d both, %d cut into regions, "
        "%d swap, %d of them recompute too; unfused ones are up to %g away",
        of->name, n_nets, counts.n_runs, counts.n_recompute_ops, counts.n_sliced, counts.n_both,
        counts.n_cut, counts.n_swapped, counts.n_mixed, counts.max_error);
    return counts;
}

static dunlin_model *with_batch_norm(uint64_t *rng)
{
    return exact_image_model(rng, EXACT_NORM_BATCH);
}

static dunlin_model *with_group_norm(uint64_t *rng)
{
    return exact_image_model(rng, EXACT_NORM_GROUP);
}

static dunlin_model *without_norm(uint64_t *rng)
{
    return exact_image_model(rng, EXACT_NORM_NONE);
}

static dunlin_model *odd(uint64_t *rng)
{
    return test_random_model(rng, false);
}

static dunlin_model *odd_with_batch_norm(uint64_t *rng)
{
    return test_random_model(rng, true);
}

static dunlin_model *pair(uint64_t *rng)
{
    return test_random_pair_model(rng, false);
}

static dunlin_model *pair_with_batch_norm(uint64_t *rng)
{
    return test_random_pair_model(rng, true);
}

Test(exact, batch_norm, .timeout = 1800)
{
    const family of = {"batch norm", with_batch_norm,     true, "conv0", 20250100000,
                       false,        DUNLIN_STORAGE_EXACT};
    const int n = test_cases(EXACT_NETS * 30 / 100);
    const exact_counts counts = check_nets(&of, n);
    cr_expect(n < MANY || counts.n_recompute_ops > counts.n_runs / 10, "%d of %d redo",
              counts.n_recompute_ops, counts.n_runs);
    cr_expect(n < MANY || counts.n_cut > counts.n_runs / 10, "%d of %d in regions", counts.n_cut,
              counts.n_runs);
}

Test(exact, group_norm, .timeout = 1800)
{
    const family of = {"group norm", with_group_norm,     false, "conv0", 20250200000,
                       false,        DUNLIN_STORAGE_EXACT};
    const int n = test_cases(EXACT_NETS * 10 / 100);
    const exact_counts counts = check_nets(&of, n);
    cr_expect(n < MANY || counts.n_both > 0, "none recomputes in slices");
}

Test(exact, no_norm, .timeout = 1800)
{
    const family of = {"no norm", without_norm,        false, "conv0", 20250300000,
                       false,     DUNLIN_STORAGE_EXACT};
    const int n = test_cases(EXACT_NETS * 10 / 100);
    const exact_counts counts = check_nets(&of, n);
    cr_expect(n < MANY || counts.n_sliced > counts.n_runs / 20, "%d of %d in slices",
              counts.n_sliced, counts.n_runs);
}

Test(exact, tokens, .timeout = 1800)
{
    const family of = {"tokens", exact_token_model,   false, "table", 20250300000,
                       false,    DUNLIN_STORAGE_EXACT};
    const int n = test_cases(EXACT_NETS * 15 / 100);
    const exact_counts counts = check_nets(&of, n);
    cr_expect(n < MANY || counts.n_sliced > counts.n_runs / 20, "%d of %d in slices",
              counts.n_sliced, counts.n_runs);
}

Test(exact, odd_shapes, .timeout = 1800)
{
    const family of = {"odd", odd, false, NULL, 20250500000, false, DUNLIN_STORAGE_EXACT};
    (void)check_nets(&of, test_cases(EXACT_NETS * 15 / 100));
}

Test(exact, odd_shapes_with_batch_norm, .timeout = 1800)
{
    const family of = {"odd, batch norm",   odd_with_batch_norm, true, NULL, 20250600000, false,
                       DUNLIN_STORAGE_EXACT};
    (void)check_nets(&of, test_cases(EXACT_NETS * 20 / 100));
}

/* At one slice size all plans agree, on the last, shorter slices too. */
Test(exact, ghost_statistics, .timeout = 1800)
{
    const family of = {"ghost", with_batch_norm,     true, "conv0", 20250700000,
                       true,    DUNLIN_STORAGE_EXACT};
    const int n = test_cases(EXACT_NETS * 15 / 100);
    const exact_counts counts = check_nets(&of, n);
    cr_expect(n < MANY || counts.n_both > counts.n_runs / 20, "%d of %d recompute in slices",
              counts.n_both, counts.n_runs);
}

Test(exact, odd_shapes_with_ghost_statistics, .timeout = 1800)
{
    const family of = {"odd, ghost", odd_with_batch_norm, true, NULL, 20250800000,
                       true,         DUNLIN_STORAGE_EXACT};
    (void)check_nets(&of, test_cases(EXACT_NETS * 10 / 100));
}

/* A second output, as of an auxiliary head: gradients meet in the middle. */
Test(exact, two_outputs, .timeout = 1800)
{
    const family of = {"two outputs", pair, false, NULL, 20250900000, false, DUNLIN_STORAGE_EXACT};
    const int n = test_cases(EXACT_NETS * 10 / 100);
    const exact_counts counts = check_nets(&of, n);
    cr_expect(n < MANY || counts.n_both > 0, "none recomputes in slices");
}

Test(exact, two_outputs_with_batch_norm, .timeout = 1800)
{
    const family of = {
        "two outputs, batch norm", pair_with_batch_norm, true, NULL, 20251000000, false,
        DUNLIN_STORAGE_EXACT};
    const int n = test_cases(EXACT_NETS * 10 / 100);
    const exact_counts counts = check_nets(&of, n);
    cr_expect(n < MANY || counts.n_cut > counts.n_runs / 10, "%d of %d in regions", counts.n_cut,
              counts.n_runs);
}

/* Of all kinds. */
static void check_stored(dunlin_storage storage, uint64_t first_seed)
{
    const family families[] = {
        {"stored, batch norm", with_batch_norm, true, "conv0", first_seed, false, storage},
        {"stored, no norm", without_norm, false, "conv0", first_seed + 10000, false, storage},
        {"stored, tokens", exact_token_model, false, "table", first_seed + 20000, false, storage},
        {"stored, odd", odd_with_batch_norm, true, NULL, first_seed + 30000, false, storage},
    };
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        const int n = test_cases(EXACT_NETS * 2 / 100);
        const exact_counts counts = check_nets(&families[i], n);
        cr_expect(n < MANY || counts.n_recompute_ops > counts.n_runs / 20, "%s: %d of %d redo",
                  families[i].name, counts.n_recompute_ops, counts.n_runs);
    }
}

Test(exact, stored_in_bf16, .timeout = 1800)
{
    check_stored(DUNLIN_STORAGE_BF16, 20260100000);
}

Test(exact, stored_in_int8, .timeout = 1800)
{
    check_stored(DUNLIN_STORAGE_INT8, 20260200000);
}
