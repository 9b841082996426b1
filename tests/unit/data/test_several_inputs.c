/*
 * test_several_inputs.c - arrays of a user with several inputs an example, and the made pairs.
 */
#include "own_support.h"

#include <dunlin/several.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(several_inputs, .init = own_setup, .fini = own_teardown);

#define IDS 3

/* Beside x.npy, images of bytes, and y.npy: floats and ids. */
static float numbers[N][2];
static int32_t ids[N][IDS];

static void write_inputs(void)
{
    for (int i = 0; i < N; i++) {
        numbers[i][0] = (float)i * 0.5F;
        numbers[i][1] = -3.0F;
        for (int k = 0; k < IDS; k++) {
            ids[i][k] = (i * 5 + k) % 9;
        }
    }
    own_write_bytes("numbers.npy", test_npy("<f4", "(20, 2)", numbers, sizeof numbers));
    own_write_bytes("ids.npy", test_npy("<i4", "(20, 3)", ids, sizeof ids));
}

static const dunlin_shape shapes[3] = {
    {3, {1, SIDE, SIDE}}, {.n_dims = 1, .dims = {2}}, {.n_dims = 1, .dims = {IDS}}};
static const int64_t vocabularies[3] = {0, 0, 9};

static dunlin_dataset_options three_inputs(void)
{
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.input_shapes = shapes;
    options.input_vocabularies = vocabularies;
    options.n_inputs = 3;
    return options;
}

Test(several_inputs, an_example_is_the_arrays_one_after_another)
{
    write_inputs();
    NAME(name, "npy:", "x.npy", "numbers.npy", "ids.npy", "y.npy");
    (void)strcat(name, ",inputs=3,test=20%");
    const dunlin_dataset_options options = three_inputs();
    dunlin_alloc_counter counter;
    dunlin_dataset *set = own_open_set(name, DUNLIN_SPLIT_TRAIN, &options, &counter);
    const dunlin_shape shape = dunlin_dataset_shape(set);
    cr_assert_eq(shape.n_dims, 1);
    cr_assert_eq(shape.dims[0], PIXELS + 2 + IDS);
    cr_assert_eq(dunlin_dataset_n_examples(set), 16);
    cr_expect_neq(dunlin_dataset_note(set)[0], '\0');

    /* The parts by themselves, as they are normalised there. */
    NAME(image_name, "npy:", "x.npy", "y.npy");
    dunlin_dataset_options image_options = DUNLIN_DATASET_OPTIONS_INIT;
    image_options.shape = shapes[0];
    dunlin_alloc_counter image_counter;
    dunlin_dataset *images =
        own_open_set(image_name, DUNLIN_SPLIT_TRAIN, &image_options, &image_counter);
    dunlin_source source;
    dunlin_source image_source;
    dunlin_dataset_source(set, &source);
    dunlin_dataset_source(images, &image_source);
    cr_assert_eq(source.dtype, DUNLIN_F32);
    for (int64_t i = 0; i < 16; i++) {
        float x[PIXELS + 2 + IDS];
        uint8_t raw[PIXELS];
        int32_t labels[2];
        cr_assert_eq(source.read_fn(source.ctx, &i, 1, x, &labels[0]), DUNLIN_OK);
        cr_assert_eq(image_source.read_fn(image_source.ctx, &i, 1, raw, &labels[1]), DUNLIN_OK);
        cr_expect_eq(labels[0], labels[1]);
        for (int k = 0; k < PIXELS; k++) {
            const float wanted =
                ((float)raw[k] * image_source.scale - image_source.mean[0]) / image_source.std[0];
            cr_expect_float_eq(x[k], wanted, 1e-6);
        }
        cr_expect_float_eq(x[PIXELS + 1], 0.0, 1e-6, "a constant");
        const int32_t first = (int32_t)x[PIXELS + 2];
        cr_expect(first >= 0 && first < 9 && (float)first == x[PIXELS + 2]);
        cr_expect_eq((int32_t)x[PIXELS + 3], (first + 1) % 9);
    }
    dunlin_dataset_close(images);
    dunlin_dataset_close(set);
}

/* With files to test on; the split's own examples. */
Test(several_inputs, a_test_part_is_as_many_files_again)
{
    write_inputs();
    NAME(name, "npy:", "x.npy", "numbers.npy", "y.npy", "x.npy", "numbers.npy", "y.npy");
    (void)strcat(name, ",inputs=2");
    dunlin_dataset_options options = three_inputs();
    dunlin_alloc_counter counter;
    options.n_inputs = 2;
    dunlin_dataset *set = own_open_set(name, DUNLIN_SPLIT_TEST, &options, &counter);
    cr_expect_eq(dunlin_dataset_n_examples(set), N);
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    float x[PIXELS + 2];
    int32_t label = 0;
    const int64_t last = N - 1;
    cr_assert_eq(source.read_fn(source.ctx, &last, 1, x, &label), DUNLIN_OK);
    /* 0, 0.5, ... 9.5: mean 4.75, deviation 0.5 sqrt((400 - 1) / 12). */
    cr_expect_float_eq(x[PIXELS], 4.75 / (0.5 * sqrt(399.0 / 12.0)), 1e-5);
    dunlin_dataset_close(set);
}

Test(several_inputs, names_that_do_not_fit_are_refused)
{
    write_inputs();
    dunlin_dataset_options options = three_inputs();
    NAME(three, "npy:", "x.npy", "numbers.npy", "y.npy");
    char name[2100];
    (void)snprintf(name, sizeof name, "%s,inputs=3", three);
    own_expect_refused(name, &options, DUNLIN_ARGUMENT, "takes 4 files, or 8");
    (void)snprintf(name, sizeof name, "%s,inputs=2", three);
    own_expect_refused(name, &options, DUNLIN_MISMATCH, "the model has 3 inputs");
    (void)snprintf(name, sizeof name, "%s,inputs=0", three);
    own_expect_refused(name, &options, DUNLIN_ARGUMENT, "from 1 to 16");
    (void)snprintf(name, sizeof name, "%s,inputs=17", three);
    own_expect_refused(name, &options, DUNLIN_ARGUMENT, "from 1 to 16");
    (void)snprintf(name, sizeof name, "%s,inputs=two", three);
    own_expect_refused(name, &options, DUNLIN_ARGUMENT, "from 1 to 16");
    NAME(table, "csv:", "pixels.csv");
    (void)strcat(table, ",inputs=2");
    own_expect_refused(table, NULL, DUNLIN_ARGUMENT, "npy: alone");
    NAME(five, "npy:", "x.npy", "x.npy", "x.npy", "x.npy", "y.npy");
    own_expect_refused(five, NULL, DUNLIN_ARGUMENT, "expected X,Y");
    options.n_inputs = 2;
    own_write_bytes("few.npy", test_npy("<f4", "(19, 2)", numbers, 19 * sizeof numbers[0]));
    NAME(few, "npy:", "x.npy", "few.npy", "y.npy");
    (void)strcat(few, ",inputs=2");
    own_expect_refused(few, &options, DUNLIN_MISMATCH, "few.npy");
    static const dunlin_shape wide[2] = {{3, {1, SIDE, SIDE}}, {.n_dims = 1, .dims = {5}}};
    options.input_shapes = wide;
    (void)snprintf(name, sizeof name, "%s,inputs=2", three);
    own_expect_refused(name, &options, DUNLIN_MISMATCH, "do not fit");
}

/* --- the made pairs --- */

#define PAIR_SIDE 20
#define PAIR_PIXELS (PAIR_SIDE * PAIR_SIDE)

static dunlin_dataset *open_pairs(dunlin_split split, uint64_t seed)
{
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.seed = seed;
    options.max_examples = 200;
    options.shape = (dunlin_shape){.n_dims = 1, .dims = {2 * PAIR_PIXELS}};
    cr_assert_eq(dunlin_dataset_open("pairs", NULL, split, &options, NULL, &set, &error), DUNLIN_OK,
                 "%s", error.text);
    return set;
}

static void read_pair(const dunlin_dataset *set, int64_t index, uint8_t *x, int32_t *label)
{
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    cr_assert_eq(source.read_fn(source.ctx, &index, 1, x, label), DUNLIN_OK);
}

/* Pixels of both sides that agree when one is moved by up to four pixels, at best. */
static int best_overlap(const uint8_t *x)
{
    int best = 0;
    for (int dy = -4; dy <= 4; dy++) {
        for (int dx = -4; dx <= 4; dx++) {
            int n = 0;
            for (int i = 0; i < PAIR_PIXELS; i++) {
                const int row = i / PAIR_SIDE + dy;
                const int column = i % PAIR_SIDE + dx;
                const bool is_inside =
                    row >= 0 && row < PAIR_SIDE && column >= 0 && column < PAIR_SIDE;
                const bool right = is_inside && x[PAIR_PIXELS + row * PAIR_SIDE + column] >= 128;
                n += (x[i] >= 128) == right ? 1 : 0;
            }
            best = n > best ? n : best;
        }
    }
    return best;
}

/* About half are of the same mark, which is the other side moved. */
Test(several_inputs, pairs_are_marks_that_are_the_same_or_not)
{
    static uint8_t x[2 * PAIR_PIXELS];
    dunlin_dataset *set = open_pairs(DUNLIN_SPLIT_TRAIN, 3);
    int n_same = 0;
    int least_same = PAIR_PIXELS;
    double others = 0.0;
    cr_assert_eq(dunlin_dataset_n_classes(set), 2);
    for (int64_t i = 0; i < 200; i++) {
        int32_t label = -1;
        read_pair(set, i, x, &label);
        cr_assert(label == 0 || label == 1);
        cr_assert_eq(label, dunlin_dataset_label(set, i));
        const int overlap = best_overlap(x);
        n_same += label;
        least_same = label == 1 && overlap < least_same ? overlap : least_same;
        others += label == 0 ? overlap : 0;
    }
    cr_expect(n_same > 70 && n_same < 130, "%d", n_same);
    cr_expect_geq(least_same, PAIR_PIXELS - PAIR_PIXELS / 20, "%d", least_same);
    cr_expect_lt(others / (200 - n_same), PAIR_PIXELS - PAIR_PIXELS / 20);
    dunlin_dataset_close(set);
}

Test(several_inputs, pairs_follow_from_seed_split_and_index)
{
    static uint8_t x[4][2 * PAIR_PIXELS];
    int32_t label = 0;
    dunlin_dataset *sets[4] = {open_pairs(DUNLIN_SPLIT_TRAIN, 3), open_pairs(DUNLIN_SPLIT_TRAIN, 3),
                               open_pairs(DUNLIN_SPLIT_TRAIN, 4), open_pairs(DUNLIN_SPLIT_TEST, 3)};
    for (int i = 0; i < 4; i++) {
        read_pair(sets[i], 7, x[i], &label);
        dunlin_dataset_close(sets[i]);
    }
    cr_expect(memcmp(x[0], x[1], sizeof x[0]) == 0);
    cr_expect(memcmp(x[0], x[2], sizeof x[0]) != 0);
    cr_expect(memcmp(x[0], x[3], sizeof x[0]) != 0);
}

Test(several_inputs, pairs_of_another_shape_are_refused)
{
    static const dunlin_shape bad[] = {{1, {2 * 20 * 20 + 1}},
                                       {1, {2 * 15 * 15}},
                                       {3, {2, 20, 20}},
                                       {1, {INT64_C(2) * 2000 * 2000}}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        dunlin_dataset *set = NULL;
        dunlin_error error = {0};
        dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
        options.shape = bad[i];
        cr_expect_eq(
            dunlin_dataset_open("pairs", NULL, DUNLIN_SPLIT_TRAIN, &options, NULL, &set, &error),
            DUNLIN_UNSUPPORTED, "%d", (int)i);
        cr_expect(strstr(error.text, "pairs are two square images") != NULL, "%s", error.text);
    }
}
