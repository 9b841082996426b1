/* joining_model.c - see joining_model.h. */
#include "joining_model.h"

#include "random_draft.h"

#include <criterion/criterion.h>

#include <stdio.h>

static const char *name_of(draft *d, const char *kind)
{
    (void)snprintf(d->name, sizeof d->name, "%s%d", kind, d->n_layers++);
    return d->name;
}

static dunlin_value conv(draft *d, dunlin_value x, int32_t channels, int32_t kernel)
{
    const dunlin_conv_options options = {.struct_size = sizeof(dunlin_conv_options),
                                         .stride = 1,
                                         .padding = kernel / 2,
                                         .groups = 1,
                                         .no_bias = d->has_batch_norm};
    return dunlin_builder_conv(d->builder, name_of(d, "conv"), x, channels, kernel, &options);
}

/* Before what reads it. */
static dunlin_value activated(draft *d, dunlin_value x)
{
    if (d->has_batch_norm) {
        x = dunlin_builder_batch_norm(d->builder, name_of(d, "bn"), x);
    }
    return dunlin_builder_relu(d->builder, x);
}

static int32_t some_width(draft *d)
{
    static const int32_t widths[] = {1, 7, 31, 32, 33, 64, 70};
    return widths[between(d->rng, 0, 6)];
}

static void add_chain(draft *d)
{
    dunlin_value values[5] = {d->end};
    const int32_t n = between(d->rng, 3, 5);
    for (int32_t i = 1; i < n; i++) {
        const dunlin_value all = i == 1 ? values[0] : dunlin_builder_concat(d->builder, values, i);
        const int32_t width = some_width(d);
        values[i] = conv(d, activated(d, conv(d, activated(d, all), 9, 1)), width, 3);
        d->channels += width;
    }
    d->end = activated(d, dunlin_builder_concat(d->builder, values, n));
}

static void add_fire(draft *d)
{
    const dunlin_value narrow = dunlin_builder_relu(d->builder, conv(d, d->end, 5, 1));
    const int32_t left = some_width(d);
    const int32_t right = some_width(d);
    const dunlin_value values[2] = {
        dunlin_builder_relu(d->builder, conv(d, narrow, left, 1)),
        dunlin_builder_relu(d->builder, conv(d, narrow, right, 3)),
    };
    d->end = dunlin_builder_concat(d->builder, values, 2);
    d->channels = left + right;
    if (d->size >= 4) {
        d->end = dunlin_builder_max_pool(d->builder, d->end, 2, 2, 0);
        d->size /= 2;
    }
}

/* What is rounded beside what is not, some of it in two concatenations, one within another. */
static void add_mixed(draft *d)
{
    const int32_t width = some_width(d);
    const dunlin_value own = conv(d, d->end, width, 1);
    const dunlin_value most = dunlin_builder_max_pool(d->builder, d->end, 3, 1, 1);
    const dunlin_value inner[2] = {own, most};
    const dunlin_value outer[3] = {conv(d, most, 3, 1), dunlin_builder_concat(d->builder, inner, 2),
                                   own};
    d->end = dunlin_builder_concat(d->builder, outer, 3);
    d->channels += 3 + 2 * width;
}

/* As in Inception-ResNet: a concatenation is a term of a sum, whose gradient is that of its parts.
 */
static void add_to_sum(draft *d)
{
    const dunlin_value parts[2] = {conv(d, d->end, 33, 1), conv(d, d->end, 8, 3)};
    dunlin_value other = conv(d, d->end, 41, 1);
    if (d->has_batch_norm) {
        other = dunlin_builder_batch_norm(d->builder, name_of(d, "bn"), other);
    }
    d->end = dunlin_builder_add(d->builder, dunlin_builder_concat(d->builder, parts, 2), other);
    d->channels = 41;
}

static void add_block(draft *d)
{
    switch (between(d->rng, 0, 3)) {
    case 0:
        add_chain(d);
        break;
    case 1:
        add_fire(d);
        break;
    case 2:
        add_mixed(d);
        break;
    default:
        add_to_sum(d);
        break;
    }
}

static dunlin_model *finish(dunlin_builder *builder, dunlin_value end)
{
    dunlin_model *model = NULL;
    dunlin_error error;
    cr_assert_eq(dunlin_builder_finish(builder, end, &model, &error), DUNLIN_OK, "%s", error.text);
    return model;
}

dunlin_model *joining_model(uint64_t *rng, bool has_batch_norm)
{
    draft d = {.rng = rng, .has_batch_norm = has_batch_norm, .channels = 3};
    cr_assert_eq(dunlin_builder_create(NULL, &d.builder), DUNLIN_OK);
    d.size = between(rng, 4, 7);
    const dunlin_shape image = {.n_dims = 3, .dims = {d.channels, d.size, d.size}};
    d.end = dunlin_builder_input(d.builder, "x", &image);
    d.channels = some_width(&d);
    d.end = activated(&d, conv(&d, d.end, d.channels, 3));
    const int32_t n_blocks = between(rng, 1, 3);
    for (int32_t i = 0; i < n_blocks; i++) {
        add_block(&d);
    }
    const dunlin_value rows[2] = {
        dunlin_builder_flatten(d.builder, dunlin_builder_global_average_pool(d.builder, d.end)),
        dunlin_builder_dense(d.builder, name_of(&d, "fc"), dunlin_builder_flatten(d.builder, d.end),
                             33)};
    const dunlin_value row = dunlin_builder_concat(d.builder, rows, 2);
    if (between(rng, 0, 2) > 0) {
        return finish(d.builder, dunlin_builder_dense(d.builder, name_of(&d, "fc"), row, 5));
    }
    const dunlin_value answers[2] = {dunlin_builder_dense(d.builder, name_of(&d, "fc"), row, 2),
                                     dunlin_builder_dense(d.builder, name_of(&d, "fc"), row, 3)};
    return finish(d.builder, dunlin_builder_concat(d.builder, answers, 2));
}

dunlin_model *joining_pair_model(bool is_whole)
{
    dunlin_builder *builder = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    const dunlin_conv_options options = {.struct_size = sizeof(dunlin_conv_options),
                                         .stride = 1,
                                         .padding = 1,
                                         .groups = 1,
                                         .no_bias = true};
    const dunlin_shape image = {.n_dims = 3, .dims = {3, 9, 9}};
    const dunlin_value x = dunlin_builder_input(builder, "x", &image);
    dunlin_value y = x;
    if (is_whole) {
        y = dunlin_builder_conv(builder, "whole", x, 96, 3, &options);
    } else {
        const dunlin_value parts[2] = {dunlin_builder_conv(builder, "left", x, 32, 3, &options),
                                       dunlin_builder_conv(builder, "right", x, 64, 3, &options)};
        y = dunlin_builder_concat(builder, parts, 2);
    }
    y = dunlin_builder_flatten(builder, dunlin_builder_global_average_pool(builder, y));
    return finish(builder, dunlin_builder_dense(builder, "fc", y, 10));
}
