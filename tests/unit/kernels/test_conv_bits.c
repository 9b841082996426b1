/*
 * test_conv_bits.c - convolutions give the same bits however the batch is cut and however many
 * threads share the work.
 */
#include "checks/conv_check.h"
#include "random.h"
#include "start_threads.h"

#include <criterion/criterion.h>

TestSuite(conv_bits, .timeout = 900);

typedef struct bits_case {
    const dunlin_kernels *kernels;
    const conv_recipe *recipe;
    uint64_t seed;
} bits_case;

static void check_same(const bits_case *c, const conv_data *data, const conv_results *whole,
                       int64_t slice, size_t n_threads)
{
    char text[200];
    conv_results other;
    dunlin_threads *threads = n_threads == 0 ? NULL : start_threads(n_threads);
    conv_run(c->kernels, data, slice, threads, &other);
    const char *differs = conv_bits_differ(data, whole, &other);
    cr_assert_null(differs, "%s: %s of %s by slices of %lld on %zu threads, seed %llu",
                   c->kernels->isa, differs, conv_recipe_text(c->recipe, text, sizeof text),
                   (long long)slice, n_threads, (unsigned long long)c->seed);
    conv_results_free(&other);
    if (threads != NULL) {
        stop_threads(threads);
    }
}

static void check(const bits_case *c)
{
    uint64_t state = c->seed;
    conv_data data;
    conv_results whole;
    conv_data_open(&data, c->recipe, &state);
    conv_run(c->kernels, &data, c->recipe->n, NULL, &whole);
    for (int64_t slice = 1; slice < c->recipe->n; slice++) {
        check_same(c, &data, &whole, slice, 0);
    }
    for (size_t n_threads = 1; n_threads <= 4; n_threads *= 2) {
        check_same(c, &data, &whole, c->recipe->n, n_threads);
    }
    check_same(c, &data, &whole, 2, 3);
    conv_results_free(&whole);
    conv_data_close(&data);
}

static void check_random(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(77);
    for (int i = 0; i < test_cases(25); i++, seed++) {
        uint64_t state = seed * 131;
        conv_recipe recipe = conv_recipe_random(&state);
        check(&(bits_case){kernels, &recipe, seed});
    }
}

Test(conv_bits, random_shapes)
{
    each_isa(check_random);
}

/* Large enough that work is really handed to threads, in rows, in columns and in groups. */
static const conv_recipe large[] = {
    {40, 40, 24, 40, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3},
    {33, 35, 30, 30, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 30, 3},
    {1, 1, 300, 500, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 11},
    {14, 14, 96, 150, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 4},
    {17, 17, 32, 64, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 4, 5},
    {7, 7, 64, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 9},
    /* Winograd: many blocks a sample; weights in several parts; odd sizes, read as it lies */
    {42, 40, 48, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3},
    {12, 12, 160, 256, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4},
    {15, 14, 24, 40, 3, 3, 1, 1, 0, 0, 0, 0, 1, 1, 1, 5},
    /* few channels: planes, in one band and in several */
    {28, 28, 1, 6, 5, 5, 1, 1, 2, 2, 2, 2, 1, 1, 1, 19},
    {14, 14, 6, 16, 5, 5, 1, 1, 0, 0, 0, 0, 1, 1, 1, 5},
    {13, 40, 3, 8, 3, 2, 1, 1, 1, 2, 3, 0, 2, 1, 1, 3},
    {90, 130, 5, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 2, 1, 3},
    {70, 150, 4, 1, 1, 5, 1, 1, 0, 3, 1, 2, 1, 1, 1, 2},
    /* groups of few channels: kernels as tall, or as wide, as the input; parts of a line; chunks of
       groups, the last one shorter; odd outputs; dilated; pointwise; taps that a band never meets
     */
    {22, 61, 8, 16, 22, 1, 1, 1, 0, 0, 0, 0, 1, 1, 8, 3},
    {22, 61, 12, 10, 22, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},
    {61, 9, 12, 10, 1, 9, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},
    {9, 40, 6, 9, 9, 3, 1, 1, 2, 1, 1, 1, 1, 1, 3, 2},
    {1, 3000, 6, 24, 1, 9, 1, 1, 0, 4, 0, 4, 1, 1, 6, 2},
    {40, 44, 68, 68, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 17, 3},
    {20, 20, 10, 15, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 5, 4},
    {16, 16, 33, 11, 3, 2, 1, 1, 2, 1, 0, 3, 2, 1, 11, 5},
    {12, 12, 40, 40, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 20, 5},
    {14, 40, 4, 8, 21, 1, 1, 1, 20, 0, 11, 0, 1, 1, 4, 3},
    {1, 700, 1, 8, 1, 65, 1, 1, 0, 32, 0, 32, 1, 1, 1, 18},
    /* blocks in groups: several samples', several of a sample, chunks of channels, more columns
       than are packed at once */
    {9, 8, 90, 96, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3},
    {2, 301, 80, 92, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
    {64, 1, 410, 400, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 2},
    {8, 8, 160, 1100, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 2},
};

static void check_large(const dunlin_kernels *kernels)
{
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i += TEST_STRIDE) {
        check(&(bits_case){kernels, &large[i], i + 1});
    }
}

Test(conv_bits, large_shapes)
{
    each_isa(check_large);
}
