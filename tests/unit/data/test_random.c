/*
 * test_random.c - the set "random": repeatable, in the shape that is asked for, drawn as it says.
 */
#include <dunlin/dataset.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 60

static dunlin_dataset *open_random(dunlin_split split, const dunlin_dataset_options *options,
                                   dunlin_alloc_counter *counter)
{
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    dunlin_alloc_counter_init(counter, NULL);
    cr_assert_eq(dunlin_dataset_open("random", NULL, split, options, &counter->hooks, &set, &error),
                 DUNLIN_OK, "%s", error.text);
    return set;
}

static dunlin_dataset_options make_options(uint64_t seed)
{
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.shape = (dunlin_shape){.n_dims = 4, .dims = {3, 2, 5, 2}};
    options.classes = 7;
    options.seed = seed;
    return options;
}

static void read_one(const dunlin_dataset *set, int64_t index, void *out_x, int32_t *out_y)
{
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    cr_assert_eq(source.read_fn(source.ctx, &index, 1, out_x, out_y), DUNLIN_OK);
}

Test(random, has_the_shape_and_the_moments)
{
    dunlin_alloc_counter counter;
    const dunlin_dataset_options options = make_options(3);
    dunlin_dataset *set = open_random(DUNLIN_SPLIT_TRAIN, &options, &counter);
    const dunlin_shape shape = dunlin_dataset_shape(set);
    cr_assert(shape.n_dims == 4 && shape.dims[0] == 3 && shape.dims[3] == 2);
    cr_assert_eq(dunlin_dataset_n_examples(set), 1024);
    cr_assert_eq(dunlin_dataset_n_classes(set), 7);
    cr_assert(dunlin_dataset_is_synthetic(set));
    cr_assert_eq(counter.now_bytes, dunlin_dataset_bytes(set), "bytes held are those told");
    double sum = 0.0;
    double squares = 0.0;
    double largest = 0.0;
    int64_t counts[7] = {0};
    for (int64_t i = 0; i < 1024; i++) {
        float x[WIDTH];
        int32_t y = -1;
        read_one(set, i, x, &y);
        cr_assert(y >= 0 && y < 7);
        counts[y]++;
        for (int k = 0; k < WIDTH; k++) {
            sum += (double)x[k];
            squares += (double)x[k] * (double)x[k];
            largest = fmax(largest, fabs((double)x[k]));
        }
    }
    const double n = 1024.0 * WIDTH;
    cr_expect_float_eq(sum / n, 0.0, 0.02);
    cr_expect_float_eq(squares / n, 1.0, 0.02);
    cr_expect(largest > 3.0 && largest <= 6.0);
    for (int c = 0; c < 7; c++) {
        cr_expect(counts[c] > 100, "class %d: %d", c, (int)counts[c]);
    }
    dunlin_dataset_close(set);
    cr_assert_eq(counter.now_bytes, 0U);
}

Test(random, repeats_and_differs_by_split_and_seed)
{
    dunlin_alloc_counter counters[4];
    const dunlin_dataset_options options = make_options(3);
    const dunlin_dataset_options other = make_options(4);
    dunlin_dataset *sets[4] = {open_random(DUNLIN_SPLIT_TRAIN, &options, &counters[0]),
                               open_random(DUNLIN_SPLIT_TRAIN, &options, &counters[1]),
                               open_random(DUNLIN_SPLIT_TEST, &options, &counters[2]),
                               open_random(DUNLIN_SPLIT_TRAIN, &other, &counters[3])};
    cr_expect_eq(dunlin_dataset_n_examples(sets[2]), 256);
    float x[4][WIDTH];
    int32_t y = 0;
    for (int i = 0; i < 4; i++) {
        read_one(sets[i], 5, x[i], &y);
    }
    cr_expect_eq(memcmp(x[0], x[1], sizeof x[0]), 0);
    cr_expect_neq(memcmp(x[0], x[2], sizeof x[0]), 0);
    cr_expect_neq(memcmp(x[0], x[3], sizeof x[0]), 0);
    /* A client's examples are those of the whole set. */
    const int64_t indices[2] = {9, 5};
    dunlin_dataset_view view;
    dunlin_source source;
    cr_assert_eq(dunlin_dataset_subset(sets[0], indices, 2, &view, &source), DUNLIN_OK);
    const int64_t second = 1;
    cr_assert_eq(source.read_fn(source.ctx, &second, 1, x[1], &y), DUNLIN_OK);
    cr_expect_eq(memcmp(x[0], x[1], sizeof x[0]), 0);
    cr_expect_eq(y, dunlin_dataset_label(sets[0], 5));
    for (int i = 0; i < 4; i++) {
        dunlin_dataset_close(sets[i]);
    }
}

Test(random, tokens_are_below_the_vocabulary)
{
    dunlin_alloc_counter counter;
    dunlin_dataset_options options = make_options(1);
    options.shape = (dunlin_shape){.n_dims = 1, .dims = {WIDTH}};
    options.vocabulary = 3;
    options.max_examples = 20;
    options.classes = 300;
    dunlin_dataset *set = open_random(DUNLIN_SPLIT_TRAIN, &options, &counter);
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    cr_assert_eq(source.dtype, DUNLIN_I32);
    bool has_wide_label = false;
    int64_t counts[3] = {0};
    for (int64_t i = 0; i < 20; i++) {
        int32_t x[WIDTH];
        int32_t y = 0;
        cr_assert_eq(source.read_fn(source.ctx, &i, 1, x, &y), DUNLIN_OK);
        has_wide_label = has_wide_label || y > 255;
        for (int k = 0; k < WIDTH; k++) {
            cr_assert(x[k] >= 0 && x[k] < 3);
            counts[x[k]]++;
        }
    }
    cr_expect(counts[0] > 0 && counts[1] > 0 && counts[2] > 0);
    cr_expect(has_wide_label);
    dunlin_dataset_close(set);
}

Test(random, wrong_options_are_refused)
{
    dunlin_dataset_options options = make_options(1);
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    options.shape.dims[2] = 0;
    cr_expect_eq(
        dunlin_dataset_open("random", NULL, DUNLIN_SPLIT_TRAIN, &options, NULL, &set, &error),
        DUNLIN_ARGUMENT);
    options = make_options(1);
    options.shape.dims[2] = INT64_MAX;
    cr_expect_eq(
        dunlin_dataset_open("random", NULL, DUNLIN_SPLIT_TRAIN, &options, NULL, &set, &error),
        DUNLIN_ARGUMENT);
    options = make_options(1);
    options.classes = 65537;
    cr_expect_eq(
        dunlin_dataset_open("random", NULL, DUNLIN_SPLIT_TRAIN, &options, NULL, &set, &error),
        DUNLIN_LIMIT);
    cr_expect_not_null(strstr(error.text, "65537"));
    options.classes = -1;
    cr_expect_eq(
        dunlin_dataset_open("random", NULL, DUNLIN_SPLIT_TRAIN, &options, NULL, &set, &error),
        DUNLIN_ARGUMENT);
}
