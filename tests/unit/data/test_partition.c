/*
 * test_partition.c - partitions: disjoint, complete, repeatable, as skewed as they claim.
 */
#include "data_files.h"
#include "random.h"

#include <dunlin/tools.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static dunlin_dataset *open_synthetic(int64_t n_writers, int64_t n_per_writer, uint64_t seed)
{
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.n_writers = n_writers;
    options.n_per_writer = n_per_writer;
    options.seed = seed;
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TRAIN, &options, NULL,
                                           &set, &error),
                 DUNLIN_OK, "%s", error.text);
    return set;
}

static dunlin_partition *split(const dunlin_dataset *set, dunlin_partition_kind kind,
                               int64_t n_clients, double alpha, uint64_t seed)
{
    dunlin_partition_options options = DUNLIN_PARTITION_OPTIONS_INIT;
    options.kind = kind;
    options.n_clients = n_clients;
    options.alpha = alpha;
    options.seed = seed;
    dunlin_partition *made = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_partition_create(set, &options, NULL, &made, &error), DUNLIN_OK, "%s",
                 error.text);
    return made;
}

/* Every example exactly once, each list ascending; returns the smallest client's count. */
static int64_t check_complete(const dunlin_dataset *set, const dunlin_partition *partition)
{
    int64_t n = dunlin_dataset_n_examples(set);
    uint8_t *seen = calloc((size_t)n, 1);
    int64_t total = 0;
    int64_t least = INT64_MAX;
    for (int64_t client = 0; client < dunlin_partition_n_clients(partition); client++) {
        int64_t n_mine = 0;
        const int64_t *mine = dunlin_partition_indices(partition, client, &n_mine);
        for (int64_t i = 0; i < n_mine; i++) {
            cr_assert(mine[i] >= 0 && mine[i] < n);
            cr_assert(i == 0 || mine[i] > mine[i - 1]);
            cr_assert_eq(seen[mine[i]], 0, "example %d twice", (int)mine[i]);
            seen[mine[i]] = 1;
        }
        total += n_mine;
        least = n_mine < least ? n_mine : least;
    }
    cr_assert_eq(total, n);
    free(seen);
    return least;
}

/* Mean over the clients of the total-variation distance between their labels and all labels. */
static double skew(const dunlin_dataset *set, const dunlin_partition *partition)
{
    double all[10] = {0};
    int64_t n = dunlin_dataset_n_examples(set);
    for (int64_t i = 0; i < n; i++) {
        all[dunlin_dataset_label(set, i)] += 1.0 / (double)n;
    }
    double sum = 0.0;
    int64_t n_clients = dunlin_partition_n_clients(partition);
    for (int64_t client = 0; client < n_clients; client++) {
        double mix[10] = {0};
        int64_t n_mine = 0;
        const int64_t *mine = dunlin_partition_indices(partition, client, &n_mine);
        for (int64_t i = 0; i < n_mine; i++) {
            mix[dunlin_dataset_label(set, mine[i])] += 1.0 / (double)n_mine;
        }
        for (int c = 0; c < 10; c++) {
            sum += 0.5 * fabs(mix[c] - all[c]);
        }
    }
    return sum / (double)n_clients;
}

static bool is_same(const dunlin_partition *a, const dunlin_partition *b)
{
    for (int64_t client = 0; client < dunlin_partition_n_clients(a); client++) {
        int64_t n_a = 0;
        int64_t n_b = 0;
        const int64_t *in_a = dunlin_partition_indices(a, client, &n_a);
        const int64_t *in_b = dunlin_partition_indices(b, client, &n_b);
        if (n_a != n_b || memcmp(in_a, in_b, (size_t)n_a * sizeof *in_a) != 0) {
            return false;
        }
    }
    return true;
}

Test(partition, random_splits_are_complete_and_repeatable)
{
    uint64_t seed = test_seed(11);
    uint64_t state = seed;
    for (int i = 0; i < test_cases(30); i++) {
        dunlin_dataset *set = open_synthetic(1 + (int64_t)test_random_below(&state, 12),
                                             1 + (int64_t)test_random_below(&state, 40), seed);
        int64_t n = dunlin_dataset_n_examples(set);
        int64_t n_clients = 1 + (int64_t)test_random_below(&state, (uint64_t)n);
        double alpha = exp(test_random_range(log(1e-4), log(1e4), &state));
        uint64_t key = test_random_u64(&state);
        dunlin_partition *iid = split(set, DUNLIN_PARTITION_IID, n_clients, 0, key);
        int64_t least = check_complete(set, iid);
        cr_assert_eq(least, n / n_clients, "seed %llu, case %d", (unsigned long long)seed, i);
        dunlin_partition *uneven = split(set, DUNLIN_PARTITION_DIRICHLET, n_clients, alpha, key);
        least = check_complete(set, uneven);
        int64_t promised = n / n_clients < 10 ? n / n_clients : 10;
        cr_assert_geq(least, promised, "seed %llu, case %d, alpha %g", (unsigned long long)seed, i,
                      alpha);
        dunlin_partition *again = split(set, DUNLIN_PARTITION_DIRICHLET, n_clients, alpha, key);
        cr_assert(is_same(uneven, again));
        dunlin_partition_destroy(iid);
        dunlin_partition_destroy(uneven);
        dunlin_partition_destroy(again);
        dunlin_dataset_close(set);
    }
}

Test(partition, alpha_sets_the_skew)
{
    dunlin_dataset *set = open_synthetic(40, 100, 3);
    dunlin_partition *iid = split(set, DUNLIN_PARTITION_IID, 10, 0, 5);
    double even = skew(set, iid);
    static const double alphas[] = {0.05, 0.3, 2.0, 1000.0};
    double skews[4];
    for (size_t i = 0; i < 4; i++) {
        dunlin_partition *made = split(set, DUNLIN_PARTITION_DIRICHLET, 10, alphas[i], 5);
        skews[i] = skew(set, made);
        dunlin_partition_destroy(made);
    }
    cr_assert_lt(even, 0.10, "IID: %g", even);
    cr_assert_gt(skews[0], 0.55, "alpha 0.05: %g", skews[0]);
    cr_assert(skews[0] > skews[1] && skews[1] > skews[2] && skews[2] > skews[3], "%g %g %g %g",
              skews[0], skews[1], skews[2], skews[3]);
    cr_assert_gt(skews[1], 3.0 * even, "alpha 0.3: %g", skews[1]);
    cr_assert_lt(skews[3], 0.12, "alpha 1000: %g", skews[3]);
    dunlin_partition *other = split(set, DUNLIN_PARTITION_IID, 10, 0, 6);
    cr_assert_not(is_same(iid, other), "another seed is another split");
    dunlin_partition_destroy(other);
    dunlin_partition_destroy(iid);
    dunlin_dataset_close(set);
}

/* Shares of a Dirichlet draw: mean 1/K each, variance (K - 1) / (K^2 (K alpha + 1)). */
Test(partition, shares_have_the_right_spread)
{
    dunlin_dataset *set = open_synthetic(20, 400, 3);
    int64_t per_class[10] = {0};
    for (int64_t i = 0; i < dunlin_dataset_n_examples(set); i++) {
        per_class[dunlin_dataset_label(set, i)]++;
    }
    for (double alpha = 0.5; alpha < 8.5; alpha *= 4) {
        double squares = 0.0;
        int n_draws = 0;
        for (uint64_t seed = 0; seed < 20; seed++) {
            dunlin_partition *made = split(set, DUNLIN_PARTITION_DIRICHLET, 4, alpha, seed);
            for (int64_t client = 0; client < 4; client++) {
                double counts[10] = {0};
                int64_t n = 0;
                const int64_t *mine = dunlin_partition_indices(made, client, &n);
                for (int64_t i = 0; i < n; i++) {
                    counts[dunlin_dataset_label(set, mine[i])]++;
                }
                for (int c = 0; c < 10; c++) {
                    double off = counts[c] / (double)per_class[c] - 0.25;
                    squares += off * off;
                    n_draws++;
                }
            }
            dunlin_partition_destroy(made);
        }
        double expected = 3.0 / (16.0 * (4.0 * alpha + 1.0));
        cr_assert_float_eq(squares / n_draws, expected, 0.2 * expected, "alpha %g: %g, not %g",
                           alpha, squares / n_draws, expected);
    }
    dunlin_dataset_close(set);
}

Test(partition, writers_stay_whole)
{
    dunlin_dataset *set = open_synthetic(30, 10, 1);
    dunlin_partition *each = split(set, DUNLIN_PARTITION_NATURAL, 0, 0, 1);
    cr_assert_eq(dunlin_partition_n_clients(each), 30);
    check_complete(set, each);
    for (int64_t client = 0; client < 30; client++) {
        int64_t n = 0;
        const int64_t *mine = dunlin_partition_indices(each, client, &n);
        for (int64_t i = 0; i < n; i++) {
            cr_assert_eq(dunlin_dataset_client_of(set, mine[i]), client);
        }
    }
    dunlin_partition *fewer = split(set, DUNLIN_PARTITION_NATURAL, 7, 0, 1);
    check_complete(set, fewer);
    int64_t owner[30];
    memset(owner, -1, sizeof owner);
    int64_t n_writers[7] = {0};
    for (int64_t client = 0; client < 7; client++) {
        int64_t n = 0;
        const int64_t *mine = dunlin_partition_indices(fewer, client, &n);
        for (int64_t i = 0; i < n; i++) {
            int64_t writer = dunlin_dataset_client_of(set, mine[i]);
            n_writers[client] += owner[writer] == -1 ? 1 : 0;
            cr_assert(owner[writer] == -1 || owner[writer] == client, "a writer was cut in two");
            owner[writer] = client;
        }
    }
    for (int64_t client = 0; client < 7; client++) {
        cr_assert(n_writers[client] == 4 || n_writers[client] == 5);
    }
    dunlin_partition_destroy(each);
    dunlin_partition_destroy(fewer);
    dunlin_dataset_close(set);
}

/* More clients than writers: each has a part of one writer's, and nobody many times another's. */
Test(partition, writers_are_shared_by_more_clients)
{
    static const int64_t counts[] = {31, 100, 299, 300};
    dunlin_dataset *set = open_synthetic(30, 10, 1);
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        dunlin_partition_options options = DUNLIN_PARTITION_OPTIONS_INIT;
        dunlin_partition *parts = NULL;
        dunlin_error error = {0};
        options.kind = DUNLIN_PARTITION_NATURAL;
        options.n_clients = counts[k];
        options.shares_writers = true;
        cr_assert_eq(dunlin_partition_create(set, &options, NULL, &parts, &error), DUNLIN_OK, "%s",
                     error.text);
        cr_assert_eq(dunlin_partition_n_clients(parts), counts[k]);
        check_complete(set, parts);
        for (int64_t client = 0; client < counts[k]; client++) {
            int64_t n = 0;
            const int64_t *mine = dunlin_partition_indices(parts, client, &n);
            /* Those of 31 are whole writers but for two. */
            cr_assert(n >= 1 && n <= (counts[k] == 31 ? 20 : 300 / counts[k] + 3),
                      "%lld of %lld have %lld", (long long)client, (long long)counts[k],
                      (long long)n);
            for (int64_t i = 1; i < n; i++) {
                cr_assert_eq(dunlin_dataset_client_of(set, mine[i]),
                             dunlin_dataset_client_of(set, mine[0]), "of two writers");
            }
        }
        dunlin_partition_destroy(parts);
    }
    dunlin_dataset_close(set);
}

static void expect_refused(const dunlin_dataset *set, dunlin_partition_kind kind, int64_t n_clients,
                           double alpha, int64_t min_examples)
{
    dunlin_partition_options options = DUNLIN_PARTITION_OPTIONS_INIT;
    options.kind = kind;
    options.n_clients = n_clients;
    options.alpha = alpha;
    options.min_examples = min_examples;
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_partition *made = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_partition_create(set, &options, &counter.hooks, &made, &error),
                 DUNLIN_ARGUMENT);
    cr_assert_neq(error.text[0], '\0');
    cr_assert_null(made);
    cr_assert_eq(counter.now_bytes, 0U);
}

Test(partition, bad_options_are_refused)
{
    dunlin_dataset *set = open_synthetic(3, 20, 1);
    int64_t n = dunlin_dataset_n_examples(set);
    expect_refused(set, DUNLIN_PARTITION_IID, 0, 0, 0);
    expect_refused(set, DUNLIN_PARTITION_IID, -1, 0, 0);
    expect_refused(set, DUNLIN_PARTITION_IID, n + 1, 0, 0);
    expect_refused(set, DUNLIN_PARTITION_DIRICHLET, 3, 0.0, 0);
    expect_refused(set, DUNLIN_PARTITION_DIRICHLET, 3, -1.0, 0);
    expect_refused(set, DUNLIN_PARTITION_DIRICHLET, 3, NAN, 0);
    expect_refused(set, DUNLIN_PARTITION_DIRICHLET, 3, 0.5, n / 3 + 1);
    expect_refused(set, DUNLIN_PARTITION_NATURAL, 4, 0, 0);
    expect_refused(set, (dunlin_partition_kind)7, 2, 0, 0);
    int64_t n_of_nobody = 1;
    dunlin_partition *made = split(set, DUNLIN_PARTITION_IID, 2, 0, 0);
    cr_assert_null(dunlin_partition_indices(made, 2, &n_of_nobody));
    cr_assert_eq(n_of_nobody, 0);
    dunlin_partition_destroy(made);
    dunlin_dataset_close(set);
}

Test(partition, what_is_null_is_named)
{
    dunlin_dataset *set = open_synthetic(2, 4, 1);
    const dunlin_partition_options options = DUNLIN_PARTITION_OPTIONS_INIT;
    const struct {
        const dunlin_dataset *set;
        const dunlin_partition_options *options;
        bool has_out;
        const char *text;
    } wrong[] = {
        {NULL, &options, true, "dataset is NULL"},
        {set, NULL, true, "options is NULL"},
        {set, &options, false, "out_partition is NULL"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        dunlin_partition *made = NULL;
        dunlin_error error = {0};
        cr_expect_eq(dunlin_partition_create(wrong[i].set, wrong[i].options, NULL,
                                             wrong[i].has_out ? &made : NULL, &error),
                     DUNLIN_ARGUMENT);
        cr_expect_str_eq(error.text, wrong[i].text);
    }
    dunlin_dataset_close(set);
}

Test(partition, a_minimum_that_is_asked_for_is_kept)
{
    dunlin_dataset *set = open_synthetic(10, 60, 1);
    dunlin_partition_options options = DUNLIN_PARTITION_OPTIONS_INIT;
    options.kind = DUNLIN_PARTITION_DIRICHLET;
    options.n_clients = 20;
    options.alpha = 0.01;
    for (int64_t least = 1; least <= dunlin_dataset_n_examples(set) / 20; least += 5) {
        options.min_examples = least;
        dunlin_partition *made = NULL;
        cr_assert_eq(dunlin_partition_create(set, &options, NULL, &made, NULL), DUNLIN_OK);
        cr_assert_geq(check_complete(set, made), least);
        dunlin_partition_destroy(made);
    }
    dunlin_dataset_close(set);
}

Test(partition, memory_is_as_promised)
{
    dunlin_dataset *set = open_synthetic(40, 100, 1);
    static const dunlin_partition_kind kinds[] = {DUNLIN_PARTITION_IID, DUNLIN_PARTITION_DIRICHLET,
                                                  DUNLIN_PARTITION_NATURAL};
    for (size_t i = 0; i < 3; i++) {
        dunlin_partition_options options = DUNLIN_PARTITION_OPTIONS_INIT;
        options.kind = kinds[i];
        options.n_clients = 25;
        options.alpha = 1.0;
        dunlin_alloc_counter counter;
        dunlin_alloc_counter_init(&counter, NULL);
        dunlin_partition *made = NULL;
        cr_assert_eq(dunlin_partition_create(set, &options, &counter.hooks, &made, NULL),
                     DUNLIN_OK);
        uint64_t most = 8 * (uint64_t)dunlin_dataset_n_examples(set) + 8 * 26 + 128;
        cr_assert_leq(counter.now_bytes, most);
        uint64_t n_allocs = counter.n_allocs;
        dunlin_partition_destroy(made);
        cr_assert_eq(counter.now_bytes, 0U);
        /* Each allocation may fail. */
        for (uint64_t limit = 1; limit < 8 * most; limit += most / 9) {
            dunlin_alloc_counter_init(&counter, NULL);
            counter.limit_bytes = limit;
            dunlin_error error = {0};
            dunlin_status status =
                dunlin_partition_create(set, &options, &counter.hooks, &made, &error);
            cr_assert(status == DUNLIN_OK || status == DUNLIN_MEMORY);
            dunlin_partition_destroy(status == DUNLIN_OK ? made : NULL);
            cr_assert_eq(counter.now_bytes, 0U);
        }
        cr_assert_geq(n_allocs, 4U);
    }
    dunlin_dataset_close(set);
}
