/*
 * exact_nets.c - see exact_nets.h. The blocks are those of ResNet, MobileNetV2, DenseNet,
 * SqueezeNet, VGG and BERT.
 */
#include "exact_nets.h"

#include "random.h"

#include <dunlin/attention.h>

#include <criterion/criterion.h>

#include <stdio.h>

/* The network under construction, with the shape of its end. */
typedef struct draft {
    dunlin_builder *builder;
    uint64_t *rng;
    exact_norm norm;
    int n_layers;
    dunlin_value end;
    int32_t channels, size;
    char name[32];
} draft;

static int32_t between(uint64_t *rng, int32_t low, int32_t high)
{
    return low + (int32_t)test_random_below(rng, (uint64_t)high - (uint64_t)low + 1);
}

static const char *next_name(draft *d, const char *kind)
{
    (void)snprintf(d->name, sizeof d->name, "%s%d", kind, d->n_layers++);
    return d->name;
}

static void normalise(draft *d)
{
    if (d->norm == EXACT_NORM_BATCH) {
        d->end = dunlin_builder_batch_norm(d->builder, next_name(d, "bn"), d->end);
    } else if (d->norm == EXACT_NORM_GROUP && d->size > 1) {
        d->end = dunlin_builder_group_norm(d->builder, next_name(d, "gn"), d->end,
                                           d->channels % 2 == 0 ? 2 : 1);
    }
}

static void activate(draft *d)
{
    d->end = between(d->rng, 0, 2) == 0 ? dunlin_builder_relu6(d->builder, d->end)
                                        : dunlin_builder_relu(d->builder, d->end);
}

static void add_conv(draft *d, int32_t channels, int32_t kernel, int32_t stride, int32_t groups)
{
    const dunlin_conv_options options = {.struct_size = sizeof(dunlin_conv_options),
                                         .stride = stride,
                                         .padding = kernel / 2,
                                         .groups = groups,
                                         .no_bias = d->norm == EXACT_NORM_BATCH};
    d->end =
        dunlin_builder_conv(d->builder, next_name(d, "conv"), d->end, channels, kernel, &options);
    d->channels = channels;
    d->size = (d->size - 1) / stride + 1;
}

static void add_residual(draft *d)
{
    const draft before = *d;
    const int32_t stride = between(d->rng, 1, 2);
    const int32_t channels = between(d->rng, 0, 1) == 0 ? d->channels : between(d->rng, 3, 8);
    add_conv(d, channels, between(d->rng, 0, 1) == 0 ? 1 : 3, 1, 1);
    normalise(d);
    activate(d);
    add_conv(d, channels, 3, stride, 1);
    normalise(d);
    const dunlin_value main = d->end;
    const int32_t size = d->size;
    d->end = before.end;
    if (stride > 1 || channels != before.channels) {
        d->channels = before.channels;
        d->size = before.size;
        add_conv(d, channels, 1, stride, 1);
        normalise(d);
    }
    d->size = size;
    d->end = dunlin_builder_add(d->builder, main, d->end);
    activate(d);
}

static void add_inverted_residual(draft *d)
{
    const draft before = *d;
    const int32_t wide = d->channels * between(d->rng, 1, 3);
    const int32_t stride = between(d->rng, 0, 3) == 0 ? 2 : 1;
    add_conv(d, wide, 1, 1, 1);
    normalise(d);
    activate(d);
    add_conv(d, wide, 3, stride, wide);
    normalise(d);
    activate(d);
    add_conv(d, before.channels, 1, 1, 1);
    normalise(d);
    if (stride == 1) {
        d->end = dunlin_builder_add(d->builder, before.end, d->end);
    }
}

/* Each convolution reads all that came before it side by side. */
static void add_dense_block(draft *d)
{
    dunlin_value values[4] = {d->end};
    int32_t sum = d->channels;
    const int32_t n = between(d->rng, 2, 4);
    for (int32_t i = 1; i < n; i++) {
        d->end = i == 1 ? values[0] : dunlin_builder_concat(d->builder, values, i);
        d->channels = sum;
        normalise(d);
        activate(d);
        add_conv(d, between(d->rng, 1, 3), 3, 1, 1);
        values[i] = d->end;
        sum += d->channels;
    }
    d->end = dunlin_builder_concat(d->builder, values, n);
    d->channels = sum;
    if (between(d->rng, 0, 1) == 0) {
        add_conv(d, between(d->rng, 3, 8), 1, 1, 1);
    }
}

static void add_fire(draft *d)
{
    add_conv(d, between(d->rng, 2, 4), 1, 1, 1);
    normalise(d);
    activate(d);
    const draft narrow = *d;
    const int32_t channels = between(d->rng, 2, 4);
    add_conv(d, channels, 1, 1, 1);
    activate(d);
    dunlin_value values[2] = {d->end};
    d->end = narrow.end;
    d->channels = narrow.channels;
    add_conv(d, channels, 3, 1, 1);
    activate(d);
    values[1] = d->end;
    d->end = dunlin_builder_concat(d->builder, values, 2);
    d->channels = 2 * channels;
}

static void add_pool(draft *d)
{
    if (d->size < 4) {
        return;
    }
    const int32_t kernel = between(d->rng, 2, 3);
    if (between(d->rng, 0, 3) > 0) {
        d->end = dunlin_builder_max_pool(d->builder, d->end, kernel, 2, kernel / 2);
    } else {
        d->end = dunlin_builder_average_pool(d->builder, d->end, kernel, 2, kernel / 2);
    }
    d->size = (d->size + 2 * (kernel / 2) - kernel) / 2 + 1;
}

static void add_block(draft *d)
{
    switch (between(d->rng, 0, 7)) {
    case 0:
    case 1:
        add_residual(d);
        break;
    case 2:
    case 3:
        add_inverted_residual(d);
        break;
    case 4:
        add_dense_block(d);
        break;
    case 5:
        add_fire(d);
        break;
    case 6:
        d->end = dunlin_builder_dropout(d->builder, d->end, 0.25F);
        break;
    default:
        add_conv(d, between(d->rng, 3, 8), 3, 1, 1);
        normalise(d);
        activate(d);
        add_pool(d);
        break;
    }
}

static dunlin_model *finish(draft *d)
{
    d->end = dunlin_builder_dense(d->builder, next_name(d, "fc"), d->end, between(d->rng, 2, 5));
    dunlin_model *model = NULL;
    dunlin_error error;
    cr_assert_eq(dunlin_builder_finish(d->builder, d->end, &model, &error), DUNLIN_OK, "%s",
                 error.text);
    return model;
}

dunlin_model *exact_image_model(uint64_t *rng, exact_norm norm)
{
    draft d = {.rng = rng, .norm = norm};
    cr_assert_eq(dunlin_builder_create(NULL, &d.builder), DUNLIN_OK);
    d.channels = between(rng, 1, 3);
    d.size = between(rng, 6, 14);
    const dunlin_shape shape = {.n_dims = 3, .dims = {d.channels, d.size, d.size}};
    d.end = dunlin_builder_input(d.builder, "x", &shape);
    add_conv(&d, between(rng, 3, 8), 3, between(rng, 0, 3) == 0 ? 2 : 1, 1);
    normalise(&d);
    activate(&d);
    const int32_t n_blocks = between(rng, 1, 5);
    for (int32_t i = 0; i < n_blocks; i++) {
        add_block(&d);
    }
    if (between(rng, 0, 3) > 0) {
        d.end = dunlin_builder_global_average_pool(d.builder, d.end);
    }
    d.end = dunlin_builder_flatten(d.builder, d.end);
    if (between(rng, 0, 2) == 0) {
        d.end = dunlin_builder_dense(d.builder, next_name(&d, "fc"), d.end, 9);
        d.end = dunlin_builder_relu(d.builder, d.end);
        d.end = dunlin_builder_dropout(d.builder, d.end, 0.5F);
    }
    return finish(&d);
}

static void end_half(draft *d, dunlin_value before, int32_t width)
{
    d->end = dunlin_builder_dense(d->builder, next_name(d, "fc"), d->end, width);
    if (between(d->rng, 0, 1) == 0) {
        d->end = dunlin_builder_stochastic_depth(d->builder, d->end, 0.1F);
    }
    d->end = dunlin_builder_add(d->builder, before, d->end);
    d->end = between(d->rng, 0, 2) == 0
                 ? dunlin_builder_rms_norm(d->builder, next_name(d, "norm"), d->end, 0.0F)
                 : dunlin_builder_layer_norm(d->builder, next_name(d, "norm"), d->end);
}

dunlin_model *exact_token_model(uint64_t *rng)
{
    draft d = {.rng = rng};
    cr_assert_eq(dunlin_builder_create(NULL, &d.builder), DUNLIN_OK);
    const int32_t n_tokens = between(rng, 2, 9);
    const int32_t heads = between(rng, 1, 3);
    const int32_t width = heads * between(rng, 2, 5);
    const dunlin_shape input = {1, {n_tokens}};
    const dunlin_shape tokens = {2, {n_tokens, width}};
    d.end = dunlin_builder_input(d.builder, "x", &input);
    d.end = dunlin_builder_embedding(d.builder, "table", d.end, INT64_C(1) << between(rng, 1, 7),
                                     width);
    d.end = dunlin_builder_add_parameter(d.builder, "positions", d.end, &tokens);
    const int32_t n_layers = between(rng, 1, 4);
    for (int32_t i = 0; i < n_layers; i++) {
        const dunlin_value before = d.end;
        dunlin_attention_options options = DUNLIN_ATTENTION_OPTIONS_INIT;
        options.is_causal = between(rng, 0, 1) == 0;
        options.kv_heads = between(rng, 0, 1);
        const int32_t kv_heads = options.kv_heads == 0 ? heads : options.kv_heads;
        d.end = dunlin_builder_dense(d.builder, next_name(&d, "qkv"), d.end,
                                     width + 2 * kv_heads * (width / heads));
        d.end = dunlin_builder_attention_with(d.builder, NULL, &d.end, 1, heads, &options);
        end_half(&d, before, width);
        const dunlin_value middle = d.end;
        d.end = dunlin_builder_dense(d.builder, next_name(&d, "fc"), d.end, 3 * width);
        d.end = dunlin_builder_gelu(d.builder, d.end);
        end_half(&d, middle, width);
    }
    d.end = dunlin_builder_mean(d.builder, d.end, 0);
    return finish(&d);
}
