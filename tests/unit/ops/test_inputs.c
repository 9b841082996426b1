/*
 * test_inputs.c - networks with several inputs and layers that are used more than once: values and
 * gradients against the double-precision reference, bits over slices.
 */
#include "check_net.h"

#include <dunlin/several.h>

#include <criterion/criterion.h>

TestSuite(inputs, .timeout = 300);

static dunlin_model *finish(dunlin_builder *b, dunlin_value end)
{
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_builder_finish(b, end, &model, &error), DUNLIN_OK, "%s", error.text);
    return model;
}

static void check_model(dunlin_model *model, uint64_t seed)
{
    const check_options options = {.n = 5, .seed = seed, .n_probes = 12};
    (void)check_net(&model->net, &options);
    check_same_bits(&model->net, seed);
    dunlin_model_destroy(model);
}

/* An image, a signal and a row; the image is read by two layers, one of them a plain one. */
static dunlin_model *mixed(dunlin_builder *b)
{
    const dunlin_shape image = {3, {2, 4, 5}};
    const dunlin_shape row = {1, {3}};
    const dunlin_value x = dunlin_builder_input(b, "image", &image);
    dunlin_value signal = dunlin_builder_input_signal(b, "signal", 2, 7);
    const dunlin_value features = dunlin_builder_input(b, "features", &row);
    dunlin_value y = dunlin_builder_tanh(b, dunlin_builder_conv(b, "conv", x, 3, 3, NULL));
    y = dunlin_builder_dense(b, "of_image", dunlin_builder_flatten(b, y), 6);
    signal = dunlin_builder_sigmoid(b, dunlin_builder_conv(b, "along", signal, 2, 3, NULL));
    signal = dunlin_builder_dense(b, "of_signal", dunlin_builder_flatten(b, signal), 6);
    const dunlin_value plain =
        dunlin_builder_dense(b, "of_pixels", dunlin_builder_flatten(b, x), 6);
    y = dunlin_builder_multiply(b, dunlin_builder_add(b, y, plain), signal);
    y = dunlin_builder_add(b, y, dunlin_builder_dense(b, "of_features", features, 6));
    return finish(b, dunlin_builder_dense(b, "head", y, 4));
}

Test(inputs, of_all_kinds)
{
    for (uint64_t seed = 1; seed < 4; seed++) {
        dunlin_builder *b = NULL;
        cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
        check_model(mixed(b), seed);
    }
}

/* Gradients of a layer's parameters are the sums over its uses: two towers of one network, and one
 * layer that is used three times in a row. */
Test(inputs, through_shared_layers)
{
    const dunlin_shape image = {3, {2, 5, 5}};
    for (uint64_t seed = 1; seed < 4; seed++) {
        dunlin_builder *b = NULL;
        dunlin_value sides[2];
        cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
        sides[0] = dunlin_builder_input(b, "left", &image);
        sides[1] = dunlin_builder_input(b, "right", &image);
        sides[0] = dunlin_builder_conv(b, "conv", sides[0], 4, 3, NULL);
        sides[1] = dunlin_builder_share(b, sides[0], sides[1]);
        for (int i = 0; i < 2; i++) {
            sides[i] = dunlin_builder_flatten(b, dunlin_builder_tanh(b, sides[i]));
        }
        sides[0] = dunlin_builder_dense(b, "embed", sides[0], 6);
        sides[1] = dunlin_builder_share(b, sides[0], sides[1]);
        dunlin_value y = dunlin_builder_multiply(b, sides[0], sides[1]);
        y = dunlin_builder_layer_norm(b, "norm", dunlin_builder_dense(b, "again", y, 6));
        for (int i = 0; i < 2; i++) {
            y = dunlin_builder_tanh(b, y);
            y = dunlin_builder_dense(b, i == 0 ? "over" : "after", y, 6);
            y = dunlin_builder_share(b, y, y);
        }
        check_model(finish(b, dunlin_builder_dense(b, "head", y, 3)), seed);
    }
}

/* Shared behind an activation, as the call finds it; and what both sides read as it is. */
Test(inputs, side_by_side)
{
    const dunlin_shape row = {1, {5}};
    dunlin_builder *b = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    const dunlin_value left = dunlin_builder_input(b, "left", &row);
    const dunlin_value right = dunlin_builder_input(b, "right", &row);
    const dunlin_value first = dunlin_builder_tanh(b, dunlin_builder_dense(b, "fc", left, 4));
    const dunlin_value second = dunlin_builder_share(b, first, right);
    const dunlin_value all[4] = {first, second, left, right};
    check_model(finish(b, dunlin_builder_dense(b, "head", dunlin_builder_concat(b, all, 4), 3)), 4);
}
