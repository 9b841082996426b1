/*
 * test_zoo.c - the ready-made networks against torchvision's known figures.
 */
#include "net_support.h"

#include <criterion/criterion.h>

#include <string.h>

static dunlin_model *make(const char *name, const dunlin_zoo_options *options)
{
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    dunlin_status status = dunlin_model_from_zoo(name, options, NULL, &model, &error);
    cr_assert_eq(status, DUNLIN_OK, "%s: %s", name, error.text);
    return model;
}

Test(zoo, counts_of_torchvision)
{
    const struct {
        const char *name;
        int64_t n_trainable;  /* sum of numel() over parameters() */
        int32_t n_parameters; /* entries of state_dict() but num_batches_tracked */
        const char *some_name;
        int64_t some_dims[4];
    } known[] = {
        {"lenet5", 61706, 10, "classifier.1.weight", {120, 400}},
        {"mobilenet_v2", 3504872, 262, "features.1.conv.0.0.weight", {32, 1, 3, 3}},
        {"mobilenet_v2", 3504872, 262, "features.17.conv.2.weight", {320, 960, 1, 1}},
        {"resnet18", 11689512, 102, "layer4.0.downsample.0.weight", {512, 256, 1, 1}},
        {"squeezenet1_1", 1235496, 52, "features.12.expand3x3.weight", {256, 64, 3, 3}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        dunlin_model *model = make(known[i].name, NULL);
        cr_expect_eq(dunlin_model_n_trainable_elements(model), known[i].n_trainable, "%s",
                     known[i].name);
        cr_expect_eq(dunlin_model_n_parameters(model), known[i].n_parameters, "%s", known[i].name);
        const dunlin_net_param *param =
            &model->net.params[net_find_param(&model->net, known[i].some_name)];
        for (int32_t j = 0; j < param->shape.n_dims; j++) {
            cr_expect_eq(param->shape.dims[j], known[i].some_dims[j], "%s", known[i].some_name);
        }
        dunlin_model_destroy(model);
    }
}

/* Heights of the images a network goes through, each change once. */
static void expect_heights(const char *name, const int64_t *heights, size_t n)
{
    dunlin_model *model = make(name, NULL);
    size_t at = 0;
    for (size_t i = 0; i < model->net.n_values; i++) {
        const dunlin_net_value *value = &model->net.values[i];
        if (value->layout == DUNLIN_LAYOUT_IMAGE && value->shape.dims[1] != heights[at]) {
            at++;
            cr_assert_lt(at, n, "%s: '%s' has height %lld", name, value->name,
                         (long long)value->shape.dims[1]);
            cr_expect_eq(value->shape.dims[1], heights[at], "%s: %s", name, value->name);
        }
    }
    cr_expect_eq(at + 1, n, "%s", name);
    dunlin_model_destroy(model);
}

Test(zoo, sizes_of_images)
{
    expect_heights("lenet5", (int64_t[]){28, 14, 10, 5}, 4);
    expect_heights("mobilenet_v2", (int64_t[]){224, 112, 56, 28, 14, 7, 1}, 7);
    expect_heights("resnet18", (int64_t[]){224, 112, 56, 28, 14, 7, 1}, 7);
    /* The pools round up: (111 - 3) / 2 + 1 = 55, (55 - 3) / 2 + 1 = 27, 13. */
    expect_heights("squeezenet1_1", (int64_t[]){224, 111, 55, 27, 13, 1}, 6);
}

Test(zoo, options_and_names)
{
    int32_t n = 0;
    for (; dunlin_zoo_name(n) != NULL; n++) {
        dunlin_zoo_options options = {.image = 64, .channels = 2, .classes = 5};
        dunlin_model *model = make(dunlin_zoo_name(n), &options);
        dunlin_shape shape = dunlin_model_input_shape(model);
        cr_expect(shape.dims[0] == 2 && shape.dims[1] == 64 && shape.dims[2] == 64);
        cr_expect_eq(dunlin_model_n_outputs(model), 5, "%s", dunlin_zoo_name(n));
        dunlin_model_destroy(model);
    }
    cr_assert_geq(n, 5);
    cr_assert_null(dunlin_zoo_name(-1));

    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_model_from_zoo("alexnet", NULL, NULL, &model, &error), DUNLIN_UNSUPPORTED);
    net_expect_line(&error, DUNLIN_UNSUPPORTED, "alexnet");
    for (int32_t i = 0; i < n; i++) {
        cr_expect_not_null(strstr(error.text, dunlin_zoo_name(i)), "%s is not named",
                           dunlin_zoo_name(i));
    }
    dunlin_zoo_options options = {.classes = -1};
    cr_assert_eq(dunlin_model_from_zoo("mlp", &options, NULL, &model, &error), DUNLIN_ARGUMENT);
    options = (dunlin_zoo_options){.image = 3};
    cr_assert_eq(dunlin_model_from_zoo("lenet5", &options, NULL, &model, &error), DUNLIN_MODEL);
    net_expect_line(&error, DUNLIN_MODEL, "an image too small");
    cr_assert_eq(dunlin_model_from_zoo(NULL, NULL, NULL, &model, NULL), DUNLIN_ARGUMENT);
}

Test(zoo, first_values_of_torchvision)
{
    dunlin_model *model = make("mobilenet_v2", NULL);
    const dunlin_net *net = &model->net;
    const dunlin_net_param *conv = &net->params[net_find_param(net, "features.0.0.weight")];
    cr_assert_eq(conv->origin, DUNLIN_PARAM_NORMAL);
    cr_assert_float_eq(conv->bound, 0.0833333, 1e-6); /* sqrt(2 / (32 * 3 * 3)) */
    cr_assert_float_eq(net->params[net_find_param(net, "classifier.1.weight")].bound, 0.01, 1e-9);
    cr_assert_eq(net->params[net_find_param(net, "classifier.1.bias")].origin,
                 DUNLIN_PARAM_CONSTANT);
    dunlin_model_destroy(model);
}
