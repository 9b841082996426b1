/*
 * several.c - a network with several inputs and arrays for it.
 */
#include "several.h"

#include "random.h"
#include "step_support.h"

#include <criterion/criterion.h>

dunlin_model *several_model(bool has_batch_norm)
{
    const dunlin_shape image = {3, {2, SEVERAL_SIDE, SEVERAL_SIDE}};
    const dunlin_shape ids = {1, {SEVERAL_IDS}};
    const dunlin_shape features = {1, {SEVERAL_FEATURES}};
    const dunlin_conv_options padded = {.struct_size = sizeof padded, .padding = 1};
    dunlin_builder *b = NULL;
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    dunlin_value sides[2] = {dunlin_builder_input(b, "left", &image),
                             dunlin_builder_input(b, "right", &image)};
    dunlin_value words = dunlin_builder_input(b, "words", &ids);
    dunlin_value extra = dunlin_builder_input(b, "extra", &features);
    sides[0] = dunlin_builder_conv(b, "conv", sides[0], 5, 3, &padded);
    sides[1] = dunlin_builder_share(b, sides[0], sides[1]);
    if (has_batch_norm) {
        sides[0] = dunlin_builder_batch_norm(b, "bn", sides[0]);
        sides[1] = dunlin_builder_share(b, sides[0], sides[1]);
    }
    for (int i = 0; i < 2; i++) {
        sides[i] = dunlin_builder_max_pool(b, dunlin_builder_tanh(b, sides[i]), 2, 2, 0);
    }
    dunlin_value x = dunlin_builder_abs_difference(b, sides[0], sides[1]);
    x = dunlin_builder_dense(b, "images", dunlin_builder_flatten(b, x), 8);
    words = dunlin_builder_embedding(b, "table", words, SEVERAL_VOCABULARY, 4);
    words = dunlin_builder_dense(b, "words.fc", dunlin_builder_mean(b, words, 0), 8);
    extra = dunlin_builder_dense(b, "extra.fc", extra, 8);
    x = dunlin_builder_add(b, dunlin_builder_add(b, x, words), extra);
    x = dunlin_builder_dense(b, "head", dunlin_builder_relu(b, x), SEVERAL_CLASSES);
    cr_assert_eq(dunlin_builder_finish(b, x, &model, &error), DUNLIN_OK, "%s", error.text);
    return model;
}

static void fill(several_data *data)
{
    uint64_t rng = 5;
    for (int i = 0; i < SEVERAL_N; i++) {
        float *to = data->joined[i];
        data->labels[i] = (int32_t)test_random_below(&rng, SEVERAL_CLASSES);
        for (int k = 0; k < SEVERAL_PIXELS; k++) {
            data->left[i][k] = (uint8_t)test_random_below(&rng, 5);
            *to++ = (float)data->left[i][k];
        }
        test_random_fill(data->right[i], SEVERAL_PIXELS, -1.0, 3.0, &rng);
        for (int k = 0; k < SEVERAL_PIXELS; k++) {
            *to++ = data->right[i][k];
        }
        for (int k = 0; k < SEVERAL_IDS; k++) {
            data->ids[i][k] = (int32_t)test_random_below(&rng, SEVERAL_VOCABULARY);
            *to++ = (float)data->ids[i][k];
        }
        test_random_fill(data->features[i], SEVERAL_FEATURES, -1.0, 1.0, &rng);
        for (int k = 0; k < SEVERAL_FEATURES; k++) {
            *to++ = data->features[i][k];
        }
    }
}

static dunlin_source_input input_of(const char *name, const void *values, int64_t n,
                                    dunlin_dtype dtype)
{
    return (dunlin_source_input){
        .name = name, .values = values, .n_elements = n, .dtype = dtype, .scale = 1.0F};
}

void several_open(several_data *data)
{
    dunlin_error error = {0};
    fill(data);
    data->inputs[0] = input_of("left", data->left, SEVERAL_PIXELS, DUNLIN_U8);
    data->inputs[1] = input_of("right", data->right, SEVERAL_PIXELS, DUNLIN_F32);
    data->inputs[2] = input_of("words", data->ids, SEVERAL_IDS, DUNLIN_I32);
    data->inputs[3] = input_of(NULL, data->features, SEVERAL_FEATURES, DUNLIN_F32);
    dunlin_arrays arrays = DUNLIN_ARRAYS_INIT;
    arrays.n = SEVERAL_N;
    arrays.labels = data->labels;
    arrays.n_classes = SEVERAL_CLASSES;
    arrays.inputs = data->inputs;
    arrays.n_inputs = 4;
    cr_assert_eq(dunlin_source_from_arrays(&arrays, &data->view, &data->arrays, &error), DUNLIN_OK,
                 "%s", error.text);
    arrays.inputs = NULL;
    arrays.x = data->joined;
    arrays.dtype = DUNLIN_F32;
    arrays.shape = (dunlin_shape){1, {SEVERAL_ALL}};
    cr_assert_eq(dunlin_source_from_arrays(&arrays, &data->joined_view, &data->one, &error),
                 DUNLIN_OK, "%s", error.text);
}

float *several_fit(const dunlin_model *model, const dunlin_trainer_options *options,
                   const dunlin_source *source, int64_t *out_n)
{
    dunlin_trainer *trainer = test_create(model, options);
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = 2;
    cr_assert_eq(dunlin_trainer_fit(trainer, source, &fit, NULL, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    float *weights = test_weights(trainer, out_n);
    dunlin_trainer_destroy(trainer);
    return weights;
}
