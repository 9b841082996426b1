/*
 * test_arrays.c - arrays of the app as a source: what is read, what is refused, and the same bits
 * as from a data set.
 */
#include <dunlin/arrays.h>
#include <dunlin/tools.h>
#include <dunlin/trainer.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N 5
#define WIDTH 6

static const float values[N][WIDTH] = {{0, 1, 2, 3, 4, 5},
                                       {10, 11, 12, 13, 14, 15},
                                       {20, 21, 22, 23, 24, 25},
                                       {30, 31, 32, 33, 34, 35},
                                       {40, 41, 42, 43, 44, 45}};
static const int32_t labels[N] = {0, 1, 2, 1, 0};

static dunlin_arrays make_arrays(void)
{
    dunlin_arrays arrays = DUNLIN_ARRAYS_INIT;
    arrays.x = values;
    arrays.dtype = DUNLIN_F32;
    arrays.shape = (dunlin_shape){.n_dims = 2, .dims = {2, 3}};
    arrays.n = N;
    arrays.labels = labels;
    arrays.n_classes = 3;
    return arrays;
}

static void expect_refused(const dunlin_arrays *arrays, dunlin_status expected, const char *word)
{
    dunlin_arrays_view view;
    dunlin_source source;
    dunlin_error error = {0};
    memset(&source, 0x5A, sizeof source);
    const dunlin_source before = source;
    const dunlin_status status = dunlin_source_from_arrays(arrays, &view, &source, &error);
    cr_expect_eq(status, expected, "%s instead of %s: %s", dunlin_status_name(status),
                 dunlin_status_name(expected), error.text);
    cr_expect_not_null(strstr(error.text, word), "\"%s\" is not in: %s", word, error.text);
    cr_expect_eq(memcmp(&before, &source, sizeof source), 0, "the source was written to");
}

Test(arrays, examples_and_labels_are_read)
{
    const dunlin_arrays arrays = make_arrays();
    dunlin_arrays_view view;
    dunlin_source source;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_source_from_arrays(&arrays, &view, &source, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_expect_eq(source.struct_size, sizeof source);
    cr_expect_eq(source.n_examples, N);
    cr_expect_eq(source.dtype, DUNLIN_F32);
    cr_expect_null(source.weight_fn);
    cr_expect_null(source.read_targets_fn);
    const int64_t indices[3] = {4, 0, 2};
    float x[3][WIDTH];
    int32_t y[3];
    cr_assert_eq(source.read_fn(source.ctx, indices, 3, x, y), DUNLIN_OK);
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(memcmp(x[i], values[indices[i]], sizeof x[i]), 0);
        cr_expect_eq(y[i], labels[indices[i]]);
    }
    const int64_t outside[2] = {N, -1};
    cr_expect_eq(source.read_fn(source.ctx, outside, 1, x, y), DUNLIN_ARGUMENT);
    cr_expect_eq(source.read_fn(source.ctx, outside + 1, 1, x, y), DUNLIN_ARGUMENT);
}

Test(arrays, targets_weights_and_nothing)
{
    static const float targets[N * 2] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    static const float weights[N] = {1, 0, 0.5F, 2, 3};
    dunlin_arrays arrays = make_arrays();
    dunlin_arrays_view view;
    dunlin_source source;
    arrays.labels = NULL;
    arrays.targets = targets;
    arrays.n_targets = 2;
    arrays.weights = weights;
    cr_assert_eq(dunlin_source_from_arrays(&arrays, &view, &source, NULL), DUNLIN_OK);
    cr_assert_eq(source.n_targets, 2);
    const int64_t indices[2] = {3, 1};
    float x[2][WIDTH];
    float out[4];
    cr_assert_eq(source.read_targets_fn(source.ctx, indices, 2, x, out), DUNLIN_OK);
    cr_expect_eq(x[0][0], 30.0F);
    cr_expect(out[0] == 7.0F && out[1] == 8.0F && out[2] == 3.0F && out[3] == 4.0F);
    cr_expect_eq(source.weight_fn(source.ctx, 2), 0.5F);
    arrays.targets = NULL; /* for predictions */
    cr_assert_eq(dunlin_source_from_arrays(&arrays, &view, &source, NULL), DUNLIN_OK);
    int32_t y[2] = {7, 7};
    cr_assert_eq(source.read_fn(source.ctx, indices, 2, x, y), DUNLIN_OK);
    cr_expect_eq(y[0], -1, "a step refuses it");
}

Test(arrays, what_is_wrong_is_named)
{
    dunlin_arrays arrays = make_arrays();
    arrays.x = NULL;
    expect_refused(&arrays, DUNLIN_ARGUMENT, "x is NULL");
    arrays = make_arrays();
    arrays.dtype = DUNLIN_F64;
    expect_refused(&arrays, DUNLIN_UNSUPPORTED, "dtype 5");
    arrays = make_arrays();
    arrays.n = 0;
    expect_refused(&arrays, DUNLIN_ARGUMENT, "0 examples");
    arrays = make_arrays();
    arrays.shape.n_dims = 0;
    expect_refused(&arrays, DUNLIN_ARGUMENT, "0 dimensions");
    arrays = make_arrays();
    arrays.shape.dims[1] = 0;
    expect_refused(&arrays, DUNLIN_ARGUMENT, "dimension 1");
    arrays = make_arrays();
    arrays.shape.dims[1] = INT64_MAX / 2;
    expect_refused(&arrays, DUNLIN_OVERFLOW, "address space");
    arrays = make_arrays();
    arrays.n_classes = 2;
    expect_refused(&arrays, DUNLIN_DATA, "label 2 of example 2: the limits are 0 and 1");
    arrays.struct_size = 3;
    expect_refused(&arrays, DUNLIN_ARGUMENT, "DUNLIN_ARRAYS_INIT");
    const float targets[N] = {0, 1, NAN, 0, 0};
    arrays = make_arrays();
    arrays.targets = targets;
    arrays.n_targets = 1;
    expect_refused(&arrays, DUNLIN_ARGUMENT, "neither labels nor targets is NULL");
    arrays.labels = NULL;
    expect_refused(&arrays, DUNLIN_DATA, "target 0 of example 2");
    arrays.n_targets = 0;
    expect_refused(&arrays, DUNLIN_ARGUMENT, "n_targets is 0");
    arrays = make_arrays();
    expect_refused(NULL, DUNLIN_ARGUMENT, "dunlin_arrays");
    dunlin_source source;
    dunlin_error error = {0};
    cr_expect_eq(dunlin_source_from_arrays(&arrays, NULL, &source, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "the view is NULL"));
}

Test(arrays, weights_and_normalisation_are_looked_at)
{
    float weights[N] = {1, 1, -1, 1, 1};
    dunlin_arrays arrays = make_arrays();
    arrays.weights = weights;
    expect_refused(&arrays, DUNLIN_ARGUMENT, "weight of example 2 is -1");
    memset(weights, 0, sizeof weights);
    expect_refused(&arrays, DUNLIN_ARGUMENT, "all 5 examples are 0");
    weights[0] = 1.0F; /* of the others the label may be anything */
    arrays.n_classes = 1;
    dunlin_arrays_view view;
    dunlin_source source;
    cr_expect_eq(dunlin_source_from_arrays(&arrays, &view, &source, NULL), DUNLIN_OK);
    const float deviations[3] = {1.0F, 0.0F, 1.0F};
    arrays = make_arrays();
    arrays.std = deviations; /* of a shape that is no image one counts */
    cr_expect_eq(dunlin_source_from_arrays(&arrays, &view, &source, NULL), DUNLIN_OK);
    arrays.shape = (dunlin_shape){.n_dims = 3, .dims = {3, 2, 1}};
    expect_refused(&arrays, DUNLIN_ARGUMENT, "deviation of channel 1 is 0");
    const float means[3] = {0.0F, 0.0F, INFINITY};
    arrays.std = NULL;
    arrays.mean = means;
    expect_refused(&arrays, DUNLIN_ARGUMENT, "mean of channel 2");
}

#define PIXELS (28 * 28)
#define N_IMAGES 96

/* Two epochs of LeNet-5 on a source; the last weights. */
static void fit(const dunlin_source *source, float out[64])
{
    dunlin_model *model = NULL;
    dunlin_trainer *trainer = NULL;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 16;
    dunlin_fit_options fit_options = DUNLIN_FIT_OPTIONS_INIT;
    fit_options.epochs = 2;
    dunlin_fit_cursor cursor = {0};
    dunlin_metrics metrics = {0};
    cr_assert_eq(dunlin_model_from_zoo("lenet5", NULL, NULL, &model, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_fit(trainer, source, &fit_options, &cursor, &metrics), DUNLIN_OK,
                 "%s", dunlin_trainer_last_error(trainer)->text);
    cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, 64, out), DUNLIN_OK);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(arrays, the_same_examples_give_the_same_bits)
{
    dunlin_dataset *set = NULL;
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.max_examples = N_IMAGES;
    cr_assert_eq(dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TRAIN, &options, NULL,
                                           &set, NULL),
                 DUNLIN_OK);
    dunlin_source stored;
    dunlin_dataset_source(set, &stored);
    uint8_t *x = malloc((size_t)N_IMAGES * PIXELS);
    int32_t y[N_IMAGES];
    cr_assert_not_null(x);
    for (int64_t i = 0; i < N_IMAGES; i++) {
        cr_assert_eq(stored.read_fn(stored.ctx, &i, 1, x + i * PIXELS, y + i), DUNLIN_OK);
    }
    dunlin_arrays arrays = DUNLIN_ARRAYS_INIT;
    arrays.x = x;
    arrays.dtype = DUNLIN_U8;
    arrays.shape = (dunlin_shape){.n_dims = 3, .dims = {1, 28, 28}};
    arrays.n = N_IMAGES;
    arrays.labels = y;
    arrays.n_classes = 10;
    arrays.scale = stored.scale;
    arrays.mean = stored.mean;
    arrays.std = stored.std;
    dunlin_arrays_view view;
    dunlin_source source;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_source_from_arrays(&arrays, &view, &source, &error), DUNLIN_OK, "%s",
                 error.text);
    float from_set[64];
    float from_arrays[64];
    fit(&stored, from_set);
    fit(&source, from_arrays);
    cr_expect_eq(memcmp(from_set, from_arrays, sizeof from_set), 0);
    dunlin_dataset_close(set);
    free(x);
}
