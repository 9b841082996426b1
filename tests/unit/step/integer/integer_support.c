/*
 * integer_support.c - options and networks of the tests of steps in integers.
 */
#include "integer_support.h"

#include <criterion/criterion.h>

dunlin_trainer_options integer_options(int64_t batch)
{
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = batch;
    options.seed = 7;
    options.precision = "niti";
    return options;
}

dunlin_model *integer_finish(dunlin_builder *builder, dunlin_value end)
{
    dunlin_model *model = NULL;
    dunlin_error error;
    cr_assert_eq(dunlin_builder_finish(builder, end, &model, &error), DUNLIN_OK, "%s", error.text);
    return model;
}

dunlin_model *integer_branched_model(void)
{
    dunlin_builder *builder = NULL;
    const dunlin_shape shape = {.n_dims = 3, .dims = {3, 11, 10}};
    const dunlin_conv_options padded = {.struct_size = sizeof padded, .padding = 1};
    const dunlin_conv_options depthwise = {
        .struct_size = sizeof depthwise, .padding = 1, .groups = 8, .no_bias = true};
    const dunlin_conv_options grouped = {
        .struct_size = sizeof grouped, .padding = 2, .dilation = 2, .groups = 2};
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "x", &shape);
    x = dunlin_builder_relu6(builder, dunlin_builder_conv(builder, "stem", x, 8, 3, &padded));
    dunlin_value a = dunlin_builder_conv(builder, "depthwise", x, 8, 3, &depthwise);
    a = dunlin_builder_relu(builder, dunlin_builder_conv(builder, "grouped", a, 8, 3, &grouped));
    a = dunlin_builder_add(builder, a, x);
    a = dunlin_builder_max_pool(builder, a, 3, 2, 1); /* windows overlap */
    const dunlin_value b = dunlin_builder_average_pool(builder, a, 2, 1, 0);
    const dunlin_value c = dunlin_builder_conv(builder, "side", a, 6, 2, NULL);
    const dunlin_value both[] = {b, dunlin_builder_relu(builder, c)};
    x = dunlin_builder_concat(builder, both, 2);
    x = dunlin_builder_dropout(builder, x, 0.5F);
    a = dunlin_builder_flatten(builder, dunlin_builder_global_average_pool(builder, x));
    x = dunlin_builder_dense(builder, "wide", dunlin_builder_flatten(builder, x), 14);
    x = dunlin_builder_relu(builder, dunlin_builder_add(builder, x, a));
    return integer_finish(builder, dunlin_builder_dense(builder, "head", x, 4));
}

static dunlin_value clipped_conv(dunlin_builder *builder, const char *name, dunlin_value x,
                                 int64_t channels)
{
    const dunlin_conv_options padded = {.struct_size = sizeof padded, .padding = 1};
    return dunlin_builder_relu(builder,
                               dunlin_builder_conv(builder, name, x, channels, 3, &padded));
}

dunlin_model *integer_plain_model(void)
{
    dunlin_builder *builder = NULL;
    const dunlin_shape shape = {.n_dims = 3, .dims = {3, 32, 32}};
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "x", &shape);
    x = dunlin_builder_max_pool(builder, clipped_conv(builder, "a", x, 32), 2, 2, 0);
    x = dunlin_builder_max_pool(builder, clipped_conv(builder, "b", x, 48), 2, 2, 0);
    x = clipped_conv(builder, "d", clipped_conv(builder, "c", x, 64), 64);
    x = dunlin_builder_flatten(builder, dunlin_builder_max_pool(builder, x, 2, 2, 0));
    x = dunlin_builder_relu(builder, dunlin_builder_dense(builder, "e", x, 32));
    return integer_finish(builder, dunlin_builder_dense(builder, "head", x, 10));
}

dunlin_model *integer_folded_model(void)
{
    dunlin_builder *builder = NULL;
    const dunlin_shape shape = {.n_dims = 3, .dims = {3, 12, 11}};
    const dunlin_conv_options padded = {.struct_size = sizeof padded, .padding = 1};
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "x", &shape);
    x = dunlin_builder_max_pool(builder, clipped_conv(builder, "a", x, 7), 3, 2, 1);
    const dunlin_value b = dunlin_builder_conv(builder, "b", x, 7, 3, &padded);
    x = dunlin_builder_relu(builder, dunlin_builder_add(builder, b, x));
    dunlin_value d = dunlin_builder_conv(builder, "c", x, 7, 3, &padded);
    d = dunlin_builder_relu6(builder, d);
    d = dunlin_builder_conv(builder, "d", d, 7, 3, &padded);
    x = dunlin_builder_relu(builder, dunlin_builder_add(builder, d, x));
    x = dunlin_builder_average_pool(builder, x, 2, 1, 0);
    x = dunlin_builder_relu6(builder, dunlin_builder_conv(builder, "e", x, 9, 3, &padded));
    x = dunlin_builder_relu(builder, dunlin_builder_max_pool(builder, x, 2, 2, 0));
    x = clipped_conv(builder, "f", x, 9);
    x = dunlin_builder_flatten(builder, dunlin_builder_dropout(builder, x, 0.5F));
    x = dunlin_builder_relu(builder, dunlin_builder_dense(builder, "g", x, 20));
    return integer_finish(builder, dunlin_builder_dense(builder, "head", x, 5));
}
