/* random_model.c - random networks of step_support.h: images, signals or tokens, a draw of the
 * layers that the builder offers. */
#include "random_draft.h"
#include "random_parts.h"
#include "step_support.h"

#include <dunlin/pixels.h>
#include <dunlin/several.h>

#include <criterion/criterion.h>

#include <stdio.h>

const char *random_name(draft *d, const char *kind)
{
    (void)snprintf(d->name, sizeof d->name, "%s%d", kind, d->n_layers++);
    return d->name;
}

/* A smooth function, or one with kinks, of whatever the end is: `width`
 * channels or columns. */
void random_function(draft *d, int32_t width)
{
    static dunlin_value (*const functions[])(dunlin_builder *, dunlin_value) = {
        dunlin_builder_sigmoid,      dunlin_builder_silu,     dunlin_builder_hard_swish,
        dunlin_builder_hard_sigmoid, dunlin_builder_softplus, dunlin_builder_mish,
    };
    const int32_t n = (int32_t)(sizeof functions / sizeof functions[0]);
    const int32_t i = between(d->rng, 0, n + 1);
    if (i < n) {
        d->end = functions[i](d->builder, d->end);
    } else if (i == n) {
        d->end = dunlin_builder_elu(d->builder, d->end, d->channels % 2 == 0 ? 1.0F : -0.5F);
    } else {
        d->end = dunlin_builder_prelu(d->builder, random_name(d, "prelu"), d->end,
                                      between(d->rng, 0, 1) == 0 ? 1 : width);
    }
}

static void add_conv(draft *d, int32_t channels, int32_t stride, int32_t groups)
{
    const int32_t kernel = between(d->rng, 0, 1) == 0 ? 1 : 3;
    const dunlin_conv_options options = {.struct_size = sizeof(dunlin_conv_options),
                                         .stride = stride,
                                         .padding = kernel / 2,
                                         .groups = groups,
                                         .no_bias = between(d->rng, 0, 3) == 0};
    d->end =
        dunlin_builder_conv(d->builder, random_name(d, "conv"), d->end, channels, kernel, &options);
    d->channels = channels;
    d->size = (d->size - 1) / stride + 1;
    const bool is_normalised = d->has_batch_norm && between(d->rng, 0, 2) > 0;
    if (is_normalised) {
        d->end = dunlin_builder_batch_norm(d->builder, random_name(d, "bn"), d->end);
    }
    /* Of one pixel a group may be a single number, whose norm is all rounding. */
    if (!d->has_batch_norm && d->size > 1 && between(d->rng, 0, 5) == 0) {
        d->end = dunlin_builder_group_norm(d->builder, random_name(d, "gn"), d->end,
                                           channels % 2 == 0 ? 2 : 1);
    }
    switch (between(d->rng, 0, 5)) {
    case 0:
        d->end = dunlin_builder_relu(d->builder, d->end);
        break;
    case 1:
        d->end = dunlin_builder_relu6(d->builder, d->end);
        break;
    case 2: /* the gradient is made from the output, or from the input */
        d->end = dunlin_builder_leaky_relu(d->builder, d->end, channels % 2 == 0 ? 0.2F : -0.5F);
        break;
    case 3:
        random_function(d, channels);
        break;
    case 4: /* what the view of a batch norm computes */
        if (is_normalised) {
            d->end = channels % 2 == 0 ? dunlin_builder_silu(d->builder, d->end)
                                       : dunlin_builder_hard_swish(d->builder, d->end);
        }
        break;
    default:
        break;
    }
}

/* Each convolution reads all that came before it side by side, through a batch
 * norm of its own. */
static void add_dense_block(draft *d)
{
    dunlin_value values[4] = {d->end};
    int32_t channels = d->channels;
    const int32_t n = between(d->rng, 2, 4);
    for (int32_t i = 1; i < n; i++) {
        d->end = i == 1 ? values[0] : dunlin_builder_concat(d->builder, values, i);
        if (d->has_batch_norm) {
            d->end = dunlin_builder_batch_norm(d->builder, random_name(d, "bn"), d->end);
            d->end = dunlin_builder_relu(d->builder, d->end);
        }
        add_conv(d, between(d->rng, 1, 3), 1, 1);
        values[i] = d->end;
        channels += d->channels;
    }
    d->end = dunlin_builder_concat(d->builder, values, n);
    d->channels = channels;
}

/* A sum of two normalised branches, the second perhaps of the first's input. */
static void add_two_branches(draft *d)
{
    const dunlin_value before = d->end;
    const int32_t in = d->channels;
    const int32_t size = d->size;
    const int32_t channels = between(d->rng, 1, 5);
    const int32_t stride = between(d->rng, 1, 2);
    add_conv(d, channels, stride, 1);
    add_conv(d, channels, 1, 1);
    const dunlin_value first = d->end;
    d->end = before;
    d->channels = in;
    d->size = size;
    add_conv(d, channels, stride, 1);
    d->end = dunlin_builder_add(d->builder, first, d->end);
    if (between(d->rng, 0, 1) == 0) {
        d->end = dunlin_builder_relu(d->builder, d->end);
    }
}

/* Each channel times a number that is made of all of them. */
static void add_gate(draft *d)
{
    const draft before = *d;
    d->end = dunlin_builder_global_average_pool(d->builder, d->end);
    d->size = 1;
    add_conv(d, d->channels, 1, 1);
    d->end = dunlin_builder_multiply(d->builder, before.end, d->end);
    d->size = before.size;
}

/* Elements in another order, parts of channels, a factor made of a reduction.
 */
static void add_moves(draft *d)
{
    const bool is_deep = d->size % 2 == 0 && between(d->rng, 0, 1) == 0;
    const int32_t n = d->channels * (is_deep ? 4 : 1);
    d->end = is_deep ? dunlin_builder_space_to_depth(d->builder, d->end, 2) : d->end;
    if (n % 2 == 0) {
        const dunlin_value x = dunlin_builder_channel_shuffle(d->builder, d->end, 2);
        const dunlin_value y[2] = {dunlin_builder_slice(d->builder, x, 0, 1, n),
                                   dunlin_builder_slice(d->builder, x, 0, 0, 1)};
        d->end = dunlin_builder_concat(d->builder, y, 2);
    }
    const dunlin_reduction fn = (dunlin_reduction)between(d->rng, 0, 6);
    dunlin_value y = dunlin_builder_reduce(d->builder, d->end, fn, d->n_layers % 3);
    y = dunlin_builder_multiply(d->builder, dunlin_builder_tanh(d->builder, y), d->end);
    d->end = is_deep ? dunlin_builder_depth_to_space(d->builder, y, 2) : y;
}

/* A dimension with more elements at its ends, in one of three ways. */
static void add_padding(draft *d)
{
    const dunlin_padding mode = (dunlin_padding)between(d->rng, 0, 2);
    const int32_t most = mode == DUNLIN_PADDING_REFLECT ? (d->size > 2 ? 2 : d->size - 1) : 2;
    const int32_t before = between(d->rng, 0, most);
    const int32_t after = between(d->rng, 0, most);
    for (int32_t axis = 1; axis < (d->is_signal ? 2 : 3); axis++) {
        d->end = dunlin_builder_pad(d->builder, d->end, axis, before, after, mode, 0.5F);
    }
    d->size += before + after;
}

/* Norms of windows and across channels, the largest of all, the larger of two.
 */
static void add_pools(draft *d)
{
    switch (between(d->rng, 0, 3)) {
    case 0:
        if (d->size >= 3) {
            d->end = dunlin_builder_lp_pool(d->builder, d->end, between(d->rng, 1, 3), 3, 2, 1);
            d->size = (d->size - 1) / 2 + 1;
        }
        break;
    case 1:
        d->end = dunlin_builder_local_response_norm(d->builder, d->end, between(d->rng, 1, 5), 0.5F,
                                                    0.75F, 1.0F);
        break;
    case 2:
        d->end = dunlin_builder_minimum(d->builder, d->end,
                                        dunlin_builder_global_max_pool(d->builder, d->end));
        break;
    default: {
        const dunlin_value before = d->end;
        const int32_t channels = d->channels;
        add_conv(d, channels, 1, 1);
        d->end = dunlin_builder_maximum(d->builder, before, d->end);
        break;
    }
    }
}

/* What files have and the builder has not. */
static void add_file_parts(draft *d)
{
    const dunlin_value before = d->end;
    const int32_t channels = d->channels;
    dunlin_shape shape = {.n_dims = d->is_signal ? 2 : 3, .dims = {channels, d->size, d->size}};
    switch (between(d->rng, 0, 3)) {
    case 0:
        if (d->size > 2) {
            d->end = random_dilated_max_pool(d->builder, d->end, d->is_signal);
            d->size -= 2;
        }
        break;
    case 1:
        d->end = random_sign(d->builder, d->end);
        break;
    case 2:
        add_conv(d, channels, 1, 1);
        d->end = random_where(d->builder, random_name(d, "where"), before, d->end, d->size);
        break;
    default:
        if (d->size > 1) {
            d->end = random_every_second(d->builder, d->end, &shape);
            shape = (dunlin_shape){3, {channels, d->size, d->size / 2}};
            d->end = d->is_signal ? d->end : random_every_second(d->builder, d->end, &shape);
            d->size /= 2;
        }
        break;
    }
}

/* Larger by a transposed convolution, or resized in one of three ways; what was there before is
 * resized too and stands beside it, as in a U-Net. */
static void add_larger(draft *d)
{
    const dunlin_value before = d->end;
    const int32_t channels = d->channels;
    dunlin_conv_transposed_options options = DUNLIN_CONV_TRANSPOSED_OPTIONS_INIT;
    options.stride = between(d->rng, 1, 2);
    options.padding = between(d->rng, 0, 1);
    options.output_padding = between(d->rng, 0, options.stride - 1);
    const int32_t kernel = between(d->rng, 2, 3);
    const int32_t size =
        (d->size - 1) * options.stride + kernel + options.output_padding - 2 * options.padding;
    if (size < 1 || size > 24) {
        return;
    }
    d->channels = between(d->rng, 1, 4);
    d->size = size;
    d->end = dunlin_builder_conv_transposed(d->builder, random_name(d, "up"), before, d->channels,
                                            kernel, &options);
    if (d->has_batch_norm && between(d->rng, 0, 1) == 0) {
        d->end = dunlin_builder_batch_norm(d->builder, random_name(d, "bn"), d->end);
    }
    const dunlin_value values[2] = {
        d->end, dunlin_builder_resize(d->builder, before, size, size,
                                      (dunlin_interpolation)between(d->rng, 0, 2))};
    d->end = dunlin_builder_concat(d->builder, values, 2);
    d->channels += channels;
}

static void add_layer(draft *d)
{
    const dunlin_value before = d->end;
    const int32_t channels = d->channels;
    switch (between(d->rng, 0, 15)) {
    case 0: /* residual, fan-out */
        add_conv(d, channels, 1, 1);
        d->end = dunlin_builder_add(d->builder, before, d->end);
        break;
    case 1: { /* two branches side by side */
        add_conv(d, between(d->rng, 1, 4), 1, 1);
        const dunlin_value values[2] = {before, d->end};
        d->end = dunlin_builder_concat(d->builder, values, 2);
        d->channels += channels;
        break;
    }
    case 2:
        add_conv(d, channels, between(d->rng, 1, 2), channels);
        break;
    case 3:
        if (d->size >= 3 && channels % 2 == 1) { /* windows that overlap */
            d->end = dunlin_builder_max_pool(d->builder, d->end, 3, 2, 1);
            d->size = (d->size - 1) / 2 + 1;
        } else if (d->size >= 2) {
            d->end = dunlin_builder_max_pool(d->builder, d->end, 2, 2, 0);
            d->size /= 2;
        }
        break;
    case 4:
        if (d->size >= 3) {
            d->end = dunlin_builder_average_pool(d->builder, d->end, 3, 2, 1);
            d->size = (d->size - 1) / 2 + 1;
        }
        break;
    case 5:
        d->end = dunlin_builder_dropout(d->builder, d->end, 0.25F);
        break;
    case 6:
        add_dense_block(d);
        break;
    case 7:
        add_two_branches(d);
        break;
    case 8:
        add_gate(d);
        break;
    case 9: /* of images alone */
        d->is_signal ? add_gate(d) : add_moves(d);
        break;
    case 10:
        add_padding(d);
        break;
    case 11:
        add_pools(d);
        break;
    case 12:
        add_file_parts(d);
        break;
    case 13:
        add_larger(d);
        break;
    default:
        add_conv(d, between(d->rng, 1, 6), between(d->rng, 1, 2), 1);
        break;
    }
}

/* The scores of a number of classes: of all pixels, or of their mean. */
static dunlin_value add_head(draft *d, int32_t n_classes)
{
    if (between(d->rng, 0, 1) == 0) {
        d->end = dunlin_builder_global_average_pool(d->builder, d->end);
    }
    d->end = dunlin_builder_flatten(d->builder, d->end);
    if (between(d->rng, 0, 1) == 0) {
        d->end = dunlin_builder_dense(d->builder, random_name(d, "fc"), d->end, 7);
        d->end = between(d->rng, 0, 1) == 0 ? dunlin_builder_relu(d->builder, d->end)
                                            : dunlin_builder_leaky_relu(d->builder, d->end, 0.1F);
    }
    return dunlin_builder_dense(d->builder, random_name(d, "fc"), d->end, n_classes);
}

static dunlin_value draw_input(draft *d, const char *name, const dunlin_shape *shape)
{
    return d->is_signal ? dunlin_builder_input_signal(d->builder, name, d->channels, d->size)
                        : dunlin_builder_input(d->builder, name, shape);
}

/* Two inputs of one shape through one layer; what comes out is compared, or stands side by side. */
static void add_second(draft *d, dunlin_value second)
{
    const int32_t channels = between(d->rng, 1, 4);
    const dunlin_conv_options padded = {.struct_size = sizeof padded, .padding = 1};
    const dunlin_value x =
        dunlin_builder_conv(d->builder, random_name(d, "both"), d->end, channels, 3, &padded);
    const dunlin_value values[2] = {x, dunlin_builder_share(d->builder, x, second)};
    const bool is_compared = between(d->rng, 0, 1) == 0;
    d->end = is_compared ? dunlin_builder_abs_difference(d->builder, values[0], values[1])
                         : dunlin_builder_concat(d->builder, values, 2);
    d->channels = is_compared ? channels : 2 * channels;
}

/* With a second output: of what a layer in the middle makes, as auxiliary heads are. */
static dunlin_model *random_image_model(uint64_t *rng, bool has_batch_norm, bool has_second)
{
    draft d = {.rng = rng, .has_batch_norm = has_batch_norm};
    cr_assert_eq(dunlin_builder_create(NULL, &d.builder), DUNLIN_OK);
    d.channels = between(rng, 1, 3);
    d.size = between(rng, 4, 10);
    const dunlin_shape shape = {.n_dims = 3, .dims = {d.channels, d.size, d.size}};
    d.is_signal = between(rng, 0, 3) == 0;
    const dunlin_value second = between(rng, 0, 3) == 0 ? draw_input(&d, "y", &shape) : -1;
    d.end = draw_input(&d, "x", &shape);
    if (second >= 0) {
        add_second(&d, second);
    }
    add_conv(&d, between(rng, 2, 5), 1, 1);
    const int32_t n_layers = between(rng, 0, 4);
    const int32_t n_before = has_second ? between(rng, 0, n_layers) : n_layers;
    draft middle = d;
    for (int32_t i = 0; i < n_layers; i++) {
        middle = i == n_before ? d : middle;
        add_layer(&d);
    }
    const int32_t n_classes = between(rng, 2, 5);
    dunlin_value ends[2] = {add_head(&d, n_classes)};
    if (has_second) {
        middle.n_layers = d.n_layers;
        ends[1] = add_head(&middle, n_classes);
    }
    return random_finish(d.builder, ends, has_second ? 2 : 1);
}

dunlin_model *test_random_model(uint64_t *rng, bool has_batch_norm)
{
    return !has_batch_norm && between(rng, 0, 3) == 0
               ? random_token_model(rng, false)
               : random_image_model(rng, has_batch_norm, false);
}

dunlin_model *test_random_pair_model(uint64_t *rng, bool has_batch_norm)
{
    return !has_batch_norm && between(rng, 0, 2) == 0
               ? random_token_model(rng, true)
               : random_image_model(rng, has_batch_norm, true);
}
