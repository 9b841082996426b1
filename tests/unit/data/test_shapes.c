/*
 * test_shapes.c - the made set with a label a pixel, and arrays with labels of any type.
 */
#include <dunlin/arrays.h>
#include <dunlin/dataset.h>
#include <dunlin/pipeline.h>

#include <criterion/criterion.h>

#include <string.h>

#define SIDE 32
#define PIXELS (SIDE * SIDE)

static dunlin_dataset *open_shapes(dunlin_split split, uint64_t seed, int64_t n)
{
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.seed = seed;
    options.max_examples = n;
    cr_assert_eq(dunlin_dataset_open("shapes", NULL, split, &options, NULL, &set, &error),
                 DUNLIN_OK, "%s", error.text);
    return set;
}

static void read_one(const dunlin_source *source, int64_t index, uint8_t *x, int32_t *labels)
{
    cr_assert_eq(source->read_fn(source->ctx, &index, 1, x, labels), DUNLIN_OK);
}

/* Every class is there; pixels of one label differ less than the noise from each other's colour. */
Test(shapes, an_example_and_its_labels)
{
    static uint8_t x[3 * PIXELS];
    static int32_t labels[PIXELS];
    dunlin_dataset *set = open_shapes(DUNLIN_SPLIT_TRAIN, 3, 60);
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    cr_assert_eq(dunlin_dataset_n_classes(set), 4);
    cr_assert_eq(dunlin_dataset_n_labels(set), PIXELS);
    cr_assert_eq(source.n_labels, PIXELS);
    cr_assert_eq(source.n_examples, 60);
    int64_t n_of[4] = {0};
    for (int64_t i = 0; i < 60; i++) {
        read_one(&source, i, x, labels);
        int32_t least = 255;
        int32_t most = 0;
        for (int64_t k = 0; k < PIXELS; k++) {
            cr_assert(labels[k] >= 0 && labels[k] < 4);
            n_of[labels[k]]++;
            if (labels[k] == 0) {
                least = x[k] < least ? x[k] : least;
                most = x[k] > most ? x[k] : most;
            }
        }
        cr_expect_leq(most - least, 48, "the ground has one colour");
    }
    for (int c = 0; c < 4; c++) {
        cr_expect_gt(n_of[c], PIXELS, "class %d", c);
    }
    cr_expect_gt(n_of[0], n_of[1] + n_of[2] + n_of[3]);
    dunlin_dataset_close(set);
}

/* An example is the same in a part of the set, and others differ by seed and split. */
Test(shapes, follow_from_seed_and_split)
{
    static uint8_t x[4][3 * PIXELS];
    static int32_t labels[4][PIXELS];
    for (int i = 0; i < 3; i++) {
        dunlin_dataset *set =
            open_shapes(i == 2 ? DUNLIN_SPLIT_TEST : DUNLIN_SPLIT_TRAIN, i == 1 ? 8 : 7, 20);
        dunlin_source source;
        dunlin_dataset_source(set, &source);
        read_one(&source, 5, x[i], labels[i]);
        if (i == 0) {
            const int64_t part[2] = {9, 5};
            dunlin_dataset_view view;
            dunlin_source of_part;
            cr_assert_eq(dunlin_dataset_subset(set, part, 2, &view, &of_part), DUNLIN_OK);
            read_one(&of_part, 1, x[3], labels[3]);
        }
        dunlin_dataset_close(set);
    }
    cr_expect_eq(memcmp(x[0], x[3], sizeof x[0]), 0);
    cr_expect_eq(memcmp(labels[0], labels[3], sizeof labels[0]), 0);
    cr_expect_neq(memcmp(labels[0], labels[1], sizeof labels[0]), 0);
    cr_expect_neq(memcmp(labels[0], labels[2], sizeof labels[0]), 0);
}

Test(shapes, refused)
{
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.shape = (dunlin_shape){.n_dims = 3, .dims = {3, 4, 64}};
    cr_expect_eq(
        dunlin_dataset_open("shapes", NULL, DUNLIN_SPLIT_TRAIN, &options, NULL, &set, &error),
        DUNLIN_UNSUPPORTED);
    cr_expect_not_null(strstr(error.text, "8 pixels a side or more"), "%s", error.text);
    /* What is done to an image is not done to its labels. */
    set = open_shapes(DUNLIN_SPLIT_TRAIN, 1, 4);
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    const dunlin_shape shape = dunlin_dataset_shape(set);
    const dunlin_pipeline_options of_pipeline = DUNLIN_PIPELINE_OPTIONS_INIT;
    dunlin_pipeline *pipeline = NULL;
    cr_expect_eq(dunlin_pipeline_create(&source, &shape, &of_pipeline, NULL, &pipeline, &error),
                 DUNLIN_UNSUPPORTED);
    cr_expect_not_null(strstr(error.text, "examples of one label, not of 1024"), "%s", error.text);
    dunlin_dataset_close(set);
}

/* Two examples of three labels each, in every type; one that 32 bits do not hold is no class. */
Test(shapes, labels_of_any_type)
{
    static const float x[2] = {1.0F, 2.0F};
    static const uint8_t u8[6] = {0, 1, 255, 3, 4, 5};
    static const int8_t i8[6] = {0, 1, -1, 3, 4, 5};
    static const int32_t i32[6] = {0, 1, -100, 3, 4, 5};
    static const int64_t i64[6] = {0, 1, INT64_C(1) << 32, 3, 4, 5};
    const struct {
        const void *rows;
        dunlin_dtype dtype;
        int32_t third;
    } cases[] = {
        {u8, DUNLIN_U8, 255}, {i8, DUNLIN_I8, -1}, {i32, DUNLIN_I32, -100}, {i64, DUNLIN_I64, -1}};
    dunlin_arrays arrays = DUNLIN_ARRAYS_INIT;
    arrays.x = x;
    arrays.dtype = DUNLIN_F32;
    arrays.shape = (dunlin_shape){.n_dims = 1, .dims = {1}};
    arrays.n = 2;
    arrays.n_labels = 3;
    dunlin_arrays_view view;
    dunlin_source source;
    dunlin_error error = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int64_t indices[2] = {1, 0};
        float out_x[2];
        int32_t out_y[6];
        arrays.label_rows = cases[i].rows;
        arrays.label_dtype = cases[i].dtype;
        cr_assert_eq(dunlin_source_from_arrays(&arrays, &view, &source, &error), DUNLIN_OK, "%s",
                     error.text);
        cr_expect_eq(source.n_labels, 3);
        cr_assert_eq(source.read_fn(source.ctx, indices, 2, out_x, out_y), DUNLIN_OK);
        const int32_t wanted[6] = {3, 4, 5, 0, 1, cases[i].third};
        cr_expect_eq(memcmp(out_y, wanted, sizeof wanted), 0, "type %d", (int)cases[i].dtype);
    }
    arrays.label_dtype = DUNLIN_F32;
    cr_expect_eq(dunlin_source_from_arrays(&arrays, &view, &source, &error), DUNLIN_UNSUPPORTED);
    cr_expect_not_null(strstr(error.text, "dtype 1 of labels"), "%s", error.text);
    arrays.label_dtype = DUNLIN_U8;
    arrays.n_labels = 0;
    cr_expect_eq(dunlin_source_from_arrays(&arrays, &view, &source, &error), DUNLIN_ARGUMENT);
    arrays.n_labels = 3;
    arrays.labels = i32;
    cr_expect_eq(dunlin_source_from_arrays(&arrays, &view, &source, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "label_rows beside labels"), "%s", error.text);
}
