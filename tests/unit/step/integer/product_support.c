/*
 * product_support.c - rows, options and a network of the tests of steps whose products are in
 * integers.
 */
#include "product_support.h"

#include <criterion/criterion.h>

const product_row product_rows[PRODUCT_ROWS] = {
    {"adaptive-int8",
     {.weights = {.kept = 1.0F},
      .values = {.kept = 1.0F},
      .errors = {.kept = 1.0F},
      .weight_errors = {.is_by_channel = true, .is_distribution = true, .kept = 1.0F}}},
    {"adaptive-fixed",
     {.weights = {.is_power = true, .kept = 1.0F},
      .values = {.is_power = true, .kept = 1.0F},
      .errors = {.is_power = true, .may_widen = true, .kept = 1.0F}}},
    {"wageubn",
     {.weights = {.is_fixed = true, .kept = 1.0F},
      .values = {.is_nearest = true, .kept = 1.0F},
      .errors = {.is_nearest = true, .kept = 1.0F},
      .keeps_proportions = true,
      .update_bits = 24}},
    {"mls",
     {.weights = {.is_group = true, .kept = 1.0F},
      .values = {.is_group = true, .kept = 1.0F},
      .errors = {.is_group = true, .kept = 1.0F},
      .weight_errors = {.is_by_channel = true, .is_group = true, .kept = 1.0F}}},
    {"octo", {.weights = {.kept = 1.0F}, .values = {.kept = 1.0F}, .errors = {.kept = 0.95F}}},
};

dunlin_trainer_options product_options(const char *precision, int64_t batch)
{
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = batch;
    options.seed = PRODUCT_SEED;
    options.lr = 0.125F;
    options.precision = precision;
    return options;
}

dunlin_model *product_normed_model(void)
{
    dunlin_builder *builder = NULL;
    const dunlin_shape shape = {.n_dims = 3, .dims = {3, 12, 11}};
    const dunlin_conv_options plain = {.struct_size = sizeof plain, .padding = 1, .no_bias = true};
    const dunlin_conv_options depthwise = {
        .struct_size = sizeof depthwise, .padding = 1, .groups = 8, .no_bias = true};
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "x", &shape);
    x = dunlin_builder_conv(builder, "stem", x, 8, 3, &plain);
    x = dunlin_builder_relu6(builder, dunlin_builder_batch_norm(builder, "bn0", x));
    dunlin_value a = dunlin_builder_conv(builder, "a", x, 8, 3, &depthwise);
    a = dunlin_builder_relu(builder, dunlin_builder_batch_norm(builder, "bn1", a));
    a = dunlin_builder_batch_norm(builder, "bn2",
                                  dunlin_builder_conv(builder, "b", a, 8, 1, &plain));
    (void)a;
    x = dunlin_builder_add(builder, x, dunlin_builder_average_pool(builder, a, 3, 1, 0));
    x = dunlin_builder_max_pool(builder, dunlin_builder_relu(builder, x), 2, 2, 0);
    const dunlin_value c = dunlin_builder_conv(builder, "c", x, 6, 3, &plain);
    const dunlin_value both[] = {x, dunlin_builder_relu(builder, c)};
    x = dunlin_builder_batch_norm(builder, "bn3", dunlin_builder_concat(builder, both, 2));
    x = dunlin_builder_conv(builder, "d", dunlin_builder_relu(builder, x), 9, 1, NULL);
    x = dunlin_builder_flatten(builder, dunlin_builder_global_average_pool(builder, x));
    return integer_finish(builder, dunlin_builder_dense(builder, "head", x, 4));
}
