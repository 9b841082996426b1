/*
 * test_own.c - data sets of a user's own files: NumPy arrays and CSV, their splits and
 * forms.
 */
#include "own_support.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(own, .init = own_setup, .fini = own_teardown);

static dunlin_dataset_options image_options(void)
{
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.shape = (dunlin_shape){.n_dims = 3, .dims = {1, SIDE, SIDE}};
    return options;
}

/* Both sets have the same examples in the same order, to the byte. */
static void expect_same(const dunlin_dataset *a, const dunlin_dataset *b)
{
    dunlin_source left;
    dunlin_source right;
    dunlin_dataset_source(a, &left);
    dunlin_dataset_source(b, &right);
    cr_assert_eq(left.n_examples, right.n_examples);
    cr_assert_eq(left.dtype, right.dtype);
    cr_expect_eq(memcmp(left.mean, right.mean, sizeof(float)), 0);
    cr_expect_eq(memcmp(left.std, right.std, sizeof(float)), 0);
    for (int64_t i = 0; i < left.n_examples; i++) {
        uint8_t x[2][PIXELS] = {{0}};
        int32_t y[2] = {-1, -2};
        cr_assert_eq(left.read_fn(left.ctx, &i, 1, x[0], &y[0]), DUNLIN_OK);
        cr_assert_eq(right.read_fn(right.ctx, &i, 1, x[1], &y[1]), DUNLIN_OK);
        cr_expect_eq(memcmp(x[0], x[1], PIXELS), 0, "example %d", (int)i);
        cr_expect_eq(y[0], y[1]);
    }
}

Test(own, the_same_pixels_from_every_kind_of_file)
{
    NAME(npy, "npy:", "x.npy", "y.npy");
    NAME(doubles, "npy:", "doubles.npy", "y.npy");
    NAME(deflated, "npy:", "deflated.npz");
    NAME(table, "csv:", "pixels.csv", "label=label");
    const char *const others[] = {doubles, deflated, table};
    const dunlin_dataset_options options = image_options();
    for (int split = 0; split < 2; split++) {
        dunlin_alloc_counter counters[2];
        dunlin_dataset *set = own_open_set(npy, (dunlin_split)split, &options, &counters[0]);
        cr_assert_eq(dunlin_dataset_n_examples(set), split == 0 ? 16 : 4);
        cr_assert_eq(dunlin_dataset_n_classes(set), 3);
        cr_assert_str_eq(dunlin_dataset_title(set), "x.npy");
        cr_assert_str_eq(dunlin_dataset_note(set),
                         "4 of 20 examples are held out for testing, drawn with seed 0");
        for (size_t i = 0; i < 3; i++) {
            dunlin_dataset *other =
                own_open_set(others[i], (dunlin_split)split, &options, &counters[1]);
            expect_same(set, other);
            dunlin_dataset_close(other);
            cr_assert_eq(counters[1].now_bytes, 0U);
        }
        dunlin_dataset_close(set);
        cr_assert_eq(counters[0].now_bytes, 0U);
    }
}

/* Every example is in one of the splits, in the file's order; another seed draws others. */
Test(own, held_out_examples_are_drawn_by_the_seed)
{
    bool was_test[2][N] = {{false}};
    for (int seed = 0; seed < 2; seed++) {
        int n_seen = 0;
        for (int split = 0; split < 2; split++) {
            NAME(name, "npy:", "x.npy", "y.npy", "test=25%", seed == 0 ? "seed=0" : "seed=1");
            dunlin_alloc_counter counter;
            dunlin_dataset *set = own_open_set(name, (dunlin_split)split, NULL, &counter);
            dunlin_source source;
            dunlin_dataset_source(set, &source);
            cr_assert_eq(source.n_examples, split == 0 ? 15 : 5);
            int64_t at = 0;
            for (int64_t i = 0; i < source.n_examples; i++, at++, n_seen++) {
                uint8_t x[PIXELS];
                int32_t y = 0;
                cr_assert_eq(source.read_fn(source.ctx, &i, 1, x, &y), DUNLIN_OK);
                while (at < N && (x[0] != own_pixel(at, 0) || x[5] != own_pixel(at, 5))) {
                    at++;
                }
                cr_assert_lt(at, N, "the file's order");
                cr_assert_eq(y, at % 3);
                was_test[seed][at] = split == 1;
            }
            dunlin_dataset_close(set);
        }
        cr_assert_eq(n_seen, N);
    }
    cr_expect_neq(memcmp(was_test[0], was_test[1], sizeof was_test[0]), 0);
}

Test(own, a_test_part_of_the_archive_is_the_test_split)
{
    NAME(name, "npy:", "stored.npz");
    NAME(pair, "npy:", "x.npy", "y.npy", "x.npy", "y.npy");
    NAME(table, "csv:", "pixels.csv", "label=label", "test=pixels.csv");
    const char *const names[] = {name, pair, table};
    const dunlin_dataset_options options = image_options();
    for (size_t i = 0; i < 3; i++) {
        for (int split = 0; split < 2; split++) {
            dunlin_alloc_counter counter;
            dunlin_dataset *set = own_open_set(names[i], (dunlin_split)split, &options, &counter);
            cr_assert_eq(dunlin_dataset_n_examples(set), N);
            cr_assert_str_eq(dunlin_dataset_note(set), "");
            dunlin_dataset_close(set);
        }
    }
}

Test(own, means_are_of_the_training_examples)
{
    NAME(name, "npy:", "x.npy", "y.npy", "x.npy", "y.npy");
    dunlin_alloc_counter counter;
    dunlin_dataset *set = own_open_set(name, DUNLIN_SPLIT_TEST, NULL, &counter);
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    double sum = 0.0;
    double squares = 0.0;
    for (int64_t i = 0; i < N; i++) {
        for (int64_t k = 0; k < PIXELS; k++) {
            sum += own_pixel(i, k) / 255.0;
            squares += own_pixel(i, k) / 255.0 * (own_pixel(i, k) / 255.0);
        }
    }
    const double mean = sum / (N * PIXELS);
    cr_expect_float_eq((double)source.mean[0], mean, 1e-6);
    cr_expect_float_eq((double)source.std[0], sqrt(squares / (N * PIXELS) - mean * mean), 1e-6);
    dunlin_dataset_close(set);
}

Test(own, images_take_the_size_and_channels_of_the_model)
{
    NAME(name, "npy:", "x.npy", "y.npy");
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.shape = (dunlin_shape){.n_dims = 3, .dims = {3, 2, 8}};
    dunlin_alloc_counter counter;
    dunlin_dataset *set = own_open_set(name, DUNLIN_SPLIT_TRAIN, &options, &counter);
    const dunlin_shape shape = dunlin_dataset_shape(set);
    cr_assert(shape.n_dims == 3 && shape.dims[0] == 3 && shape.dims[1] == 2 && shape.dims[2] == 8);
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    uint8_t x[3][16];
    int32_t y = 0;
    const int64_t first = 0;
    cr_assert_eq(source.read_fn(source.ctx, &first, 1, x, &y), DUNLIN_OK);
    cr_expect_eq(memcmp(x[0], x[2], sizeof x[0]), 0, "grey three times");
    dunlin_dataset_close(set);
    options.shape = (dunlin_shape){.n_dims = 1, .dims = {5}};
    own_expect_refused(name, &options, DUNLIN_MISMATCH, "(4, 4) do not fit the model's input (5)");
    options.shape = (dunlin_shape){.n_dims = 3, .dims = {4, 2, 2}};
    own_expect_refused(name, &options, DUNLIN_MISMATCH, "(4, 2, 2)");
}

Test(own, channels_last_become_channels_first)
{
    uint8_t last[4][2][2][3];
    uint8_t first[4][3][2][2];
    const int32_t labels[4] = {0, 1, 0, 1};
    for (int i = 0; i < 4; i++) {
        for (int c = 0; c < 3; c++) {
            for (int k = 0; k < 4; k++) {
                last[i][k / 2][k % 2][c] = first[i][c][k / 2][k % 2] =
                    (uint8_t)(i * 40 + c * 10 + k);
            }
        }
    }
    own_write_bytes("last.npy", test_npy("|u1", "(4, 2, 2, 3)", last, sizeof last));
    own_write_bytes("first.npy", test_npy("|u1", "(4, 3, 2, 2)", first, sizeof first));
    own_write_bytes("four.npy", test_npy("<i4", "(4, 1)", labels, sizeof labels));
    NAME(a, "npy:", "last.npy", "four.npy");
    NAME(b, "npy:", "first.npy", "four.npy");
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.shape = (dunlin_shape){.n_dims = 3, .dims = {3, 2, 2}};
    for (int is_asked = 0; is_asked < 2; is_asked++) {
        dunlin_alloc_counter counters[2];
        const dunlin_dataset_options *asked = is_asked == 1 ? &options : NULL;
        dunlin_dataset *left = own_open_set(a, DUNLIN_SPLIT_TRAIN, asked, &counters[0]);
        dunlin_dataset *right = own_open_set(b, DUNLIN_SPLIT_TRAIN, asked, &counters[1]);
        const dunlin_shape shape = dunlin_dataset_shape(left);
        cr_assert(shape.dims[0] == 3 && shape.dims[1] == 2 && shape.dims[2] == 2);
        expect_same(left, right);
        dunlin_dataset_close(left);
        dunlin_dataset_close(right);
    }
}

Test(own, features_are_normalised_with_the_training_part)
{
    own_write_text("train.csv", "height, weight ,kind\n1,10,b\n\n3,20,a\n5,30,\"a\"\n");
    own_write_text("test.csv", "h;w;k\r\n7;\"10\";b\r\n");
    NAME(name, "csv:", "train.csv", "test=test.csv");
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.shape = (dunlin_shape){.n_dims = 1, .dims = {2}};
    for (int is_asked = 0; is_asked < 2; is_asked++) {
        dunlin_alloc_counter counter;
        dunlin_dataset *set =
            own_open_set(name, DUNLIN_SPLIT_TEST, is_asked == 1 ? &options : NULL, &counter);
        const dunlin_shape shape = dunlin_dataset_shape(set);
        cr_assert(shape.dims[0] == 2 && shape.n_dims == (is_asked == 1 ? 1 : 3));
        cr_assert_eq(dunlin_dataset_n_classes(set), 2);
        dunlin_source source;
        dunlin_dataset_source(set, &source);
        cr_assert_eq(source.dtype, DUNLIN_F32);
        cr_assert_eq(source.n_examples, 1);
        float x[2];
        int32_t y = -1;
        const int64_t first = 0;
        cr_assert_eq(source.read_fn(source.ctx, &first, 1, x, &y), DUNLIN_OK);
        cr_expect_float_eq((double)x[0], (7.0 - 3.0) / sqrt(8.0 / 3.0), 1e-6);
        cr_expect_float_eq((double)x[1], (10.0 - 20.0) / sqrt(200.0 / 3.0), 1e-6);
        cr_expect_eq(y, 1, "classes are in the order of their names: a, b");
        dunlin_dataset_close(set);
    }
}

Test(own, a_column_of_clients_makes_a_natural_federation)
{
    own_write_text("who.csv", "who,v,kind\nzoe,1,0\nann,2,1\nzoe,3,0\nbob,4,1\nann,5,0\n");
    NAME(name, "csv:", "who.csv", "client=who", "label=kind", "test=who.csv");
    dunlin_alloc_counter counter;
    dunlin_dataset *set = own_open_set(name, DUNLIN_SPLIT_TRAIN, NULL, &counter);
    cr_assert_eq(dunlin_dataset_n_natural_clients(set), 3);
    const int64_t expected[5] = {2, 0, 2, 1, 0};
    for (int64_t i = 0; i < 5; i++) {
        cr_expect_eq(dunlin_dataset_client_of(set, i), expected[i]);
    }
    dunlin_dataset_close(set);
}

Test(own, tokens_of_a_model_that_reads_them)
{
    const int64_t tokens[3][2] = {{0, 300}, {299, 5}, {7, 7}};
    const int32_t labels[3] = {0, 1, 0};
    own_write_bytes("tokens.npy", test_npy("<i8", "(3, 2)", tokens, sizeof tokens));
    own_write_bytes("three.npy", test_npy("<i4", "(3,)", labels, sizeof labels));
    NAME(name, "npy:", "tokens.npy", "three.npy", "tokens.npy", "three.npy");
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.shape = (dunlin_shape){.n_dims = 1, .dims = {2}};
    options.vocabulary = 301;
    dunlin_alloc_counter counter;
    dunlin_dataset *set = own_open_set(name, DUNLIN_SPLIT_TRAIN, &options, &counter);
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    cr_assert_eq(source.dtype, DUNLIN_I32);
    int32_t x[2];
    int32_t y = 0;
    const int64_t first = 0;
    cr_assert_eq(source.read_fn(source.ctx, &first, 1, x, &y), DUNLIN_OK);
    cr_expect(x[0] == 0 && x[1] == 300);
    dunlin_dataset_close(set);
    options.vocabulary = 300;
    own_expect_refused(name, &options, DUNLIN_DATA, "tokens.npy: row 0: column 1 is 300");
}
