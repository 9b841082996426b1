/*
 * test_builder.c - networks written down as calls: shapes, parameters, and what is refused.
 */
#include "net_support.h"

#include <dunlin/attention.h>

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

static dunlin_builder *begin(const dunlin_alloc *hooks)
{
    dunlin_builder *builder = NULL;
    cr_assert_eq(dunlin_builder_create(hooks, &builder), DUNLIN_OK);
    return builder;
}

static dunlin_value image(dunlin_builder *builder, int64_t channels, int64_t size)
{
    return dunlin_builder_input(builder, "x", &(dunlin_shape){3, {channels, size, size}});
}

/* Ends a network that must be refused with this status and this text. */
static void expect_refused(dunlin_builder *builder, dunlin_value output, dunlin_status status,
                           const char *text)
{
    dunlin_model *model = (dunlin_model *)builder; /* must be overwritten */
    dunlin_error error = {0};
    cr_expect_eq(dunlin_builder_finish(builder, output, &model, &error), status, "%s: %s", text,
                 error.text);
    cr_assert_null(model, "%s", text);
    net_expect_line(&error, status, text);
    cr_expect_not_null(strstr(error.text, text), "'%s' lacks '%s'", error.text, text);
}

static void expect_shape(const dunlin_model *model, const char *value_name, int32_t n_dims,
                         const int64_t *dims)
{
    for (size_t i = 0; i < model->net.n_values; i++) {
        const dunlin_net_value *value = &model->net.values[i];
        if (strcmp(value->name, value_name) == 0) {
            cr_assert_eq(value->shape.n_dims, n_dims, "%s", value_name);
            for (int32_t j = 0; j < n_dims; j++) {
                cr_expect_eq(value->shape.dims[j], dims[j], "%s: %d", value_name, j);
            }
            return;
        }
    }
    cr_assert(false, "no value '%s'", value_name);
}

Test(builder, shapes_of_every_layer)
{
    dunlin_builder *b = begin(NULL);
    dunlin_value x = image(b, 3, 31);
    dunlin_value c = dunlin_builder_conv(
        b, "conv", x, 8, 3,
        &(dunlin_conv_options){
            .struct_size = sizeof(dunlin_conv_options), .stride = 2, .padding = 1, .dilation = 2});
    dunlin_value d =
        dunlin_builder_conv(b, "dw", c, 16, 5,
                            &(dunlin_conv_options){.struct_size = sizeof(dunlin_conv_options),
                                                   .padding = 2,
                                                   .groups = 8,
                                                   .no_bias = true});
    dunlin_value n = dunlin_builder_batch_norm(b, "bn", d);
    dunlin_value r = dunlin_builder_relu6(b, n);
    dunlin_value m = dunlin_builder_max_pool(b, r, 3, 2, 1);
    dunlin_value a = dunlin_builder_average_pool(b, m, 2, 0, 0);
    dunlin_value e = dunlin_builder_add(b, a, a);
    dunlin_value k = dunlin_builder_concat(b, (dunlin_value[]){a, e, a}, 3);
    dunlin_value g = dunlin_builder_global_average_pool(b, k);
    dunlin_value f = dunlin_builder_flatten(b, g);
    dunlin_value p = dunlin_builder_dropout(b, f, 0.5f);
    dunlin_value y = dunlin_builder_dense(b, "fc", p, 7);
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_builder_finish(b, y, &model, &error), DUNLIN_OK, "%s", error.text);

    /* (31 + 2 - (2 * 2 + 1)) / 2 + 1 = 15; (15 + 4 - 5) / 1 + 1 = 15; (15 + 2 - 3) / 2 + 1 = 8;
     * (8 - 2) / 2 + 1 = 4. */
    expect_shape(model, "conv/out", 3, (int64_t[]){8, 15, 15});
    expect_shape(model, "dw/out", 3, (int64_t[]){16, 15, 15});
    expect_shape(model, "bn/out", 3, (int64_t[]){16, 15, 15});
    expect_shape(model, "relu6_3/out", 3, (int64_t[]){16, 15, 15});
    expect_shape(model, "max_pool_4/out", 3, (int64_t[]){16, 8, 8});
    expect_shape(model, "average_pool_5/out", 3, (int64_t[]){16, 4, 4});
    expect_shape(model, "add_6/out", 3, (int64_t[]){16, 4, 4});
    expect_shape(model, "concat_7/out", 3, (int64_t[]){48, 4, 4});
    expect_shape(model, "global_average_pool_8/out", 3, (int64_t[]){48, 1, 1});
    expect_shape(model, "flatten_9/out", 1, (int64_t[]){48});
    expect_shape(model, "fc/out", 1, (int64_t[]){7});

    cr_assert_eq(dunlin_model_n_outputs(model), 7);
    dunlin_shape input = dunlin_model_input_shape(model);
    cr_assert(input.n_dims == 3 && input.dims[0] == 3 && input.dims[2] == 31);
    /* conv 8*3*3*3 + 8, dw 16*1*5*5, bn 16 + 16, fc 7*48 + 7; two statistics of 16 besides. */
    cr_assert_eq(dunlin_model_n_trainable_elements(model), 224 + 400 + 32 + 343);
    cr_assert_eq(dunlin_model_n_parameters(model), 9);
    dunlin_parameter_info info;
    cr_assert_eq(dunlin_model_parameter(model, 2, &info), DUNLIN_OK);
    cr_assert_str_eq(info.name, "dw.weight");
    cr_assert(info.shape.n_dims == 4 && info.shape.dims[0] == 16 && info.shape.dims[1] == 1);
    cr_assert_eq(dunlin_model_parameter(model, 5, &info), DUNLIN_OK);
    cr_assert_str_eq(info.name, "bn.running_mean");
    cr_assert_eq(info.role, DUNLIN_PARAMETER_STATISTIC);
    cr_assert_eq(dunlin_model_parameter(model, 9, &info), DUNLIN_ARGUMENT);
    cr_assert_eq(dunlin_model_parameter(model, -1, &info), DUNLIN_ARGUMENT);
    /* The average pool is read by the add (twice) and the concat (twice). */
    for (size_t i = 0; i < model->net.n_values; i++) {
        if (strcmp(model->net.values[i].name, "average_pool_5/out") == 0) {
            cr_assert_eq(model->net.values[i].n_consumers, 4);
        }
    }
    cr_assert_eq(model->net.values[model->net.output].n_consumers, 1);
    dunlin_model_destroy(model);
}

Test(builder, first_values_are_those_of_pytorch)
{
    dunlin_builder *b = begin(NULL);
    dunlin_value x = dunlin_builder_conv(
        b, "conv", image(b, 4, 8), 6, 3,
        &(dunlin_conv_options){.struct_size = sizeof(dunlin_conv_options), .groups = 2});
    x = dunlin_builder_batch_norm(b, "bn", x);
    x = dunlin_builder_dense(b, "fc", dunlin_builder_flatten(b, x), 2);
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_builder_finish(b, x, &model, NULL), DUNLIN_OK);
    const dunlin_net *net = &model->net;
    const dunlin_net_param *weight = &net->params[net_find_param(net, "conv.weight")];
    cr_assert_eq(weight->origin, DUNLIN_PARAM_UNIFORM);
    cr_assert_float_eq(weight->bound, 1.0 / sqrt(2 * 3 * 3), 1e-7); /* 4 channels in 2 groups */
    cr_assert_float_eq(net->params[net_find_param(net, "fc.bias")].bound, 1.0 / sqrt(6 * 6 * 6),
                       1e-7);
    const float starts[4] = {1.0f, 0.0f, 0.0f, 1.0f};
    for (uint32_t i = 0; i < 4; i++) {
        const dunlin_net_param *param = &net->params[net_find_param(net, "bn.weight") + i];
        cr_assert_eq(param->origin, DUNLIN_PARAM_CONSTANT);
        cr_assert_eq(param->bound, starts[i], "%s", param->name);
    }
    dunlin_model_destroy(model);
}

Test(builder, refuses_wrong_calls)
{
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, NULL), DUNLIN_ARGUMENT);
    cr_assert_eq(dunlin_builder_finish(NULL, 0, &model, &error), DUNLIN_ARGUMENT);
    net_expect_line(&error, DUNLIN_ARGUMENT, "no builder");
    cr_assert_lt(dunlin_builder_relu(NULL, 0), 0);
    dunlin_builder_destroy(NULL);
    dunlin_model_destroy(NULL);

    dunlin_builder *b = begin(NULL);
    expect_refused(b, -1, DUNLIN_ARGUMENT, "output");
    b = begin(NULL);
    expect_refused(b, image(b, 1, 4), DUNLIN_ARGUMENT, "output");
    b = begin(NULL);
    (void)dunlin_builder_relu(b, image(b, 1, 4));
    expect_refused(b, image(b, 1, 4), DUNLIN_STATE, "inputs come before them");
    b = begin(NULL);
    expect_refused(b, dunlin_builder_input(b, "x", NULL), DUNLIN_ARGUMENT, "(C, H, W)");
    b = begin(NULL);
    expect_refused(b, dunlin_builder_relu(b, 17), DUNLIN_ARGUMENT, "not a value");
    b = begin(NULL);
    expect_refused(b, dunlin_builder_dense(b, NULL, image(b, 1, 4), 3), DUNLIN_ARGUMENT,
                   "needs a name");
    b = begin(NULL);
    dunlin_value x = image(b, 1, 4);
    expect_refused(b, dunlin_builder_concat(b, &x, 0), DUNLIN_ARGUMENT, "0 inputs");
    b = begin(NULL);
    expect_refused(b, dunlin_builder_dropout(b, image(b, 1, 4), 1.0f), DUNLIN_ARGUMENT, "ratio 1");
    b = begin(NULL);
    expect_refused(b, dunlin_builder_dropout(b, image(b, 1, 4), NAN), DUNLIN_ARGUMENT, "ratio");
    b = begin(NULL);
    expect_refused(b, dunlin_builder_stochastic_depth(b, image(b, 1, 4), 1.0f), DUNLIN_ARGUMENT,
                   "stochastic_depth 0: the ratio 1");
    char name[300];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    b = begin(NULL);
    expect_refused(b, dunlin_builder_batch_norm(b, name, image(b, 1, 4)), DUNLIN_LIMIT,
                   "299 characters");
}

static dunlin_value attend(dunlin_builder *b, const char *name,
                           const dunlin_attention_options *options)
{
    const dunlin_shape rows = {2, {4, 12}};
    const dunlin_value x = dunlin_builder_input(b, "x", &rows);
    return dunlin_builder_attention_with(b, name, &x, 1, 2, options);
}

/* Su et al. 2021: pair j of a head of d numbers turns by token * base^(-2 j / d); both halves have
 * the same angles. */
Test(builder, rotary_positions_turn_by_their_angles)
{
    enum { TOKENS = 4, WIDTH = 6, N = TOKENS * WIDTH };
    const dunlin_shape rows = {2, {TOKENS, 3 * WIDTH}};
    dunlin_attention_options options = DUNLIN_ATTENTION_OPTIONS_INIT;
    dunlin_model *model = NULL;
    options.rotary_base = 100.0F;
    dunlin_builder *b = begin(NULL);
    const dunlin_value x = dunlin_builder_input(b, "x", &rows);
    const dunlin_value y = dunlin_builder_attention_with(b, "a", &x, 1, 1, &options);
    cr_assert_eq(dunlin_builder_finish(b, y, &model, NULL), DUNLIN_OK);
    cr_assert_eq(model->net.n_params, 2);
    for (int k = 0; k < 2; k++) {
        const dunlin_net_param *table = &model->net.params[k];
        cr_assert_eq(table->n_elements, N);
        for (int i = 0; i < N; i++) {
            const double angle = i / WIDTH * pow(100.0, -2.0 * (i % (WIDTH / 2)) / WIDTH);
            cr_expect_float_eq((double)table->values[i], k == 0 ? cos(angle) : sin(angle), 1e-6,
                               "%s of number %d of token %d", table->name, i % WIDTH, i / WIDTH);
        }
    }
    dunlin_model_destroy(model);
}

Test(builder, refuses_wrong_attention)
{
    const float mask[6] = {0.0F, 1.0F, NAN, 0.0F, 0.0F, 0.0F};
    dunlin_attention_options options = DUNLIN_ATTENTION_OPTIONS_INIT;
    options.kv_heads = -1;
    dunlin_builder *b = begin(NULL);
    expect_refused(b, attend(b, NULL, &options), DUNLIN_MODEL, "-1 heads of keys");
    options.kv_heads = 0;
    options.has_mask = true;
    options.mask = 17;
    b = begin(NULL);
    expect_refused(b, attend(b, NULL, &options), DUNLIN_ARGUMENT, "not a value");
    options.has_mask = false;
    options.fixed_mask = mask;
    options.fixed_mask_shape = (dunlin_shape){1, {4}};
    b = begin(NULL);
    expect_refused(b, attend(b, "a", &options), DUNLIN_ARGUMENT, "not finite");
    options.fixed_mask_shape = (dunlin_shape){1, {2}};
    b = begin(NULL);
    expect_refused(b, attend(b, NULL, &options), DUNLIN_ARGUMENT, "needs a name");
    b = begin(NULL);
    expect_refused(b, attend(b, "a", &options), DUNLIN_MODEL, "(2)");
    options.fixed_mask_shape = (dunlin_shape){1, {0}};
    b = begin(NULL);
    expect_refused(b, attend(b, "a", &options), DUNLIN_ARGUMENT, "no elements");
    options.fixed_mask = NULL;
    options.rotary_base = -2.0F;
    b = begin(NULL);
    expect_refused(b, attend(b, "a", &options), DUNLIN_ARGUMENT, "base above 0");
    options.rotary_base = 100.0F;
    b = begin(NULL);
    expect_refused(b, attend(b, NULL, &options), DUNLIN_ARGUMENT, "needs a name");
    options.struct_size = 3;
    b = begin(NULL);
    expect_refused(b, attend(b, NULL, &options), DUNLIN_ARGUMENT, "3");
}

Test(builder, refuses_wrong_shapes)
{
    dunlin_builder *b = begin(NULL);
    expect_refused(b, dunlin_builder_conv(b, "big", image(b, 1, 4), 2, 5, NULL), DUNLIN_MODEL,
                   "big");
    b = begin(NULL);
    expect_refused(
        b,
        dunlin_builder_conv(
            b, "c", image(b, 3, 4), 4, 1,
            &(dunlin_conv_options){.struct_size = sizeof(dunlin_conv_options), .groups = 2}),
        DUNLIN_MODEL, "2 groups");
    b = begin(NULL);
    expect_refused(b, dunlin_builder_conv(b, "c", image(b, 3, 4), 0, 1, NULL), DUNLIN_MODEL, "c");
    b = begin(NULL);
    expect_refused(
        b,
        dunlin_builder_conv(
            b, "c", image(b, 3, 4), 2, 1,
            &(dunlin_conv_options){.struct_size = sizeof(dunlin_conv_options), .stride = -1}),
        DUNLIN_MODEL, "stride");
    b = begin(NULL);
    expect_refused(b, dunlin_builder_conv(b, "c", image(b, 3, 4), 2, 100000, NULL), DUNLIN_MODEL,
                   "kernel");
    b = begin(NULL);
    expect_refused(b, dunlin_builder_dense(b, "fc", image(b, 3, 4), 2), DUNLIN_MODEL, "fc");
    b = begin(NULL);
    expect_refused(b, image(b, 0, 4) < 0 ? -1 : dunlin_builder_relu(b, 0), DUNLIN_MODEL, "1 to");
    b = begin(NULL);
    expect_refused(b, dunlin_builder_flatten(b, image(b, 1 << 20, 1 << 20)), DUNLIN_MODEL,
                   "2147483647");
    b = begin(NULL);
    dunlin_value x = image(b, 3, 8);
    expect_refused(b, dunlin_builder_add(b, x, dunlin_builder_max_pool(b, x, 2, 2, 0)),
                   DUNLIN_MODEL, "same");
}

Test(builder, refuses_wrong_wholes)
{
    dunlin_builder *b = begin(NULL);
    dunlin_value x = dunlin_builder_flatten(b, image(b, 1, 4));
    x = dunlin_builder_dense(b, "fc", x, 16);
    expect_refused(b, dunlin_builder_dense(b, "fc", x, 3), DUNLIN_MODEL, "used twice");
    b = begin(NULL);
    x = dunlin_builder_flatten(b, image(b, 1, 4));
    (void)dunlin_builder_dense(b, "lost", x, 16);
    expect_refused(b, dunlin_builder_dense(b, "fc", x, 3), DUNLIN_MODEL, "leads to nothing");
}

static dunlin_value small_net(dunlin_builder *b)
{
    dunlin_value x = dunlin_builder_conv(b, "conv", image(b, 1, 6), 2, 3, NULL);
    x = dunlin_builder_batch_norm(b, "bn", x);
    x = dunlin_builder_relu(b, x);
    return dunlin_builder_dense(b, "fc", dunlin_builder_flatten(b, x), 3);
}

Test(builder, survives_every_failed_allocation)
{
    for (int64_t n = 1; n < 1000; n++) {
        net_failing failing;
        net_failing_init(&failing, n);
        dunlin_builder *b = NULL;
        dunlin_model *model = NULL;
        dunlin_model *copy = NULL;
        dunlin_error error = {0};
        dunlin_status status = dunlin_builder_create(&failing.hooks, &b);
        if (status == DUNLIN_OK) {
            dunlin_value y = small_net(b);
            status = dunlin_builder_finish(b, y, &model, &error);
        }
        if (status == DUNLIN_OK) {
            status = dunlin_model_replace_head(model, 9, &failing.hooks, &copy, &error);
        }
        dunlin_model_destroy(model);
        dunlin_model_destroy(copy);
        cr_assert_eq(failing.n_live, 0, "allocation %lld leaks", (long long)n);
        if (status == DUNLIN_OK) {
            cr_assert_gt(n, 20);
            return;
        }
        cr_assert_eq(status, DUNLIN_MEMORY, "allocation %lld", (long long)n);
    }
    cr_assert(false, "it never succeeded");
}

Test(model, a_new_head)
{
    const char *names[] = {"lenet5", "squeezenet1_1", "mobilenet_v2"};
    const char *heads[] = {"classifier.5.weight", "classifier.1.weight", "classifier.1.weight"};
    const int64_t inputs[] = {84, 512, 1280};
    for (int i = 0; i < 3; i++) {
        dunlin_model *model = NULL;
        dunlin_model *copy = NULL;
        dunlin_error error = {0};
        cr_assert_eq(dunlin_model_from_zoo(names[i], NULL, NULL, &model, NULL), DUNLIN_OK);
        int64_t classes = dunlin_model_n_outputs(model);
        cr_assert_eq(dunlin_model_replace_head(model, 3, NULL, &copy, &error), DUNLIN_OK, "%s",
                     error.text);
        cr_assert_eq(dunlin_model_n_outputs(copy), 3);
        cr_assert_eq(dunlin_model_n_outputs(model), classes);
        cr_assert_eq(dunlin_model_n_trainable_elements(model) -
                         dunlin_model_n_trainable_elements(copy),
                     (classes - 3) * (inputs[i] + 1));
        const dunlin_net_param *head = &copy->net.params[net_find_param(&copy->net, heads[i])];
        cr_assert_eq(head->shape.dims[0], 3);
        cr_assert_eq(head->origin, DUNLIN_PARAM_UNIFORM);
        cr_assert_float_eq(head->bound, 1.0 / sqrt((double)inputs[i]), 1e-7);
        dunlin_model_destroy(model);
        cr_assert_str_eq(copy->net.params[0].name,
                         names[i][0] == 'm' ? "features.0.0.weight" : "features.0.weight");
        dunlin_model_destroy(copy);
    }
}

Test(model, no_head_to_replace)
{
    dunlin_builder *b = begin(NULL);
    dunlin_value x = dunlin_builder_conv(b, "conv", image(b, 1, 4), 3, 3, NULL);
    x = dunlin_builder_flatten(b, dunlin_builder_global_average_pool(b, x));
    dunlin_model *model = NULL;
    dunlin_model *copy = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_builder_finish(b, x, &model, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_model_replace_head(model, 3, NULL, &copy, &error), DUNLIN_UNSUPPORTED);
    net_expect_line(&error, DUNLIN_UNSUPPORTED, "no head");
    cr_assert_eq(dunlin_model_replace_head(model, 0, NULL, &copy, &error), DUNLIN_ARGUMENT);
    cr_assert_eq(dunlin_model_replace_head(NULL, 3, NULL, &copy, &error), DUNLIN_ARGUMENT);
    dunlin_model_destroy(model);

    /* A 1x1 convolution whose pixels are all outputs is no head: flattened, 4 pixels give 4 x 3. */
    b = begin(NULL);
    x = dunlin_builder_conv(b, "conv", image(b, 2, 2), 5, 1, NULL);
    cr_assert_eq(dunlin_builder_finish(b, dunlin_builder_flatten(b, x), &model, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_model_replace_head(model, 3, NULL, &copy, &error), DUNLIN_UNSUPPORTED);
    cr_assert_null(copy);
    cr_assert_not_null(strstr(error.text, "12"));
    dunlin_model_destroy(model);
}

/* Windows of many pixels are several layers; a signal's windows go along its length. */
Test(builder, pools_and_norms)
{
    dunlin_builder *b = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    const dunlin_value x = dunlin_builder_input_signal(b, "x", 3, 400);
    dunlin_value y = dunlin_builder_lp_pool(b, x, 2, 5, 2, 1);
    y = dunlin_builder_local_response_norm(b, y, 3, 1e-4F, 0.75F, 2.0F);
    y = dunlin_builder_pad(b, y, 1, 2, 1, DUNLIN_PADDING_EDGE, 0.0F);
    y = dunlin_builder_maximum(b, y, dunlin_builder_global_max_pool(b, x));
    y = dunlin_builder_minimum(b, y, dunlin_builder_max_pool(b, y, 3, 1, 1));
    y = dunlin_builder_dense(b, "fc", dunlin_builder_flatten(b, y), 4);
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_builder_finish(b, y, &model, &error), DUNLIN_OK, "%s", error.text);
    /* (400 + 2 - 5) / 2 + 1 = 199; 199 + 3 = 202. */
    expect_shape(model, "lp_pool_0/out", 2, (int64_t[]){3, 199});
    expect_shape(model, "response_norm_1/out", 2, (int64_t[]){3, 199});
    expect_shape(model, "pad_2/out", 2, (int64_t[]){3, 202});
    expect_shape(model, "max_pool_3/out", 2, (int64_t[]){3, 2});
    expect_shape(model, "max_pool_4/out", 2, (int64_t[]){3, 1});
    expect_shape(model, "maximum_5/out", 2, (int64_t[]){3, 202});
    dunlin_model_destroy(model);
}

Test(builder, pools_that_are_refused)
{
    for (int i = 0; i < 4; i++) {
        static const char *const texts[] = {"p = 65, not 1 to 64", "over 0 channels, not 1 to 255",
                                            "no such padding", "must be finite"};
        dunlin_builder *b = NULL;
        dunlin_model *model = NULL;
        dunlin_error error = {0};
        cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
        const dunlin_value x = dunlin_builder_input_signal(b, "x", 3, 9);
        const dunlin_value y =
            i == 0   ? dunlin_builder_lp_pool(b, x, 65, 2, 2, 0)
            : i == 1 ? dunlin_builder_local_response_norm(b, x, 0, 1.0F, 1.0F, 1.0F)
            : i == 2 ? dunlin_builder_pad(b, x, 1, 1, 1, (dunlin_padding)3, 0.0F)
                     : dunlin_builder_pad(b, x, 1, 1, 1, DUNLIN_PADDING_CONSTANT, INFINITY);
        cr_assert_lt(y, 0);
        cr_assert_neq(dunlin_builder_finish(b, y, &model, &error), DUNLIN_OK);
        cr_assert_not_null(strstr(error.text, texts[i]), "%s", error.text);
    }
}

Test(builder, images_as_tokens)
{
    dunlin_builder *b = begin(NULL);
    dunlin_model *model = NULL;
    const dunlin_conv_options cut = {.struct_size = sizeof cut, .stride = 4};
    dunlin_value x = dunlin_builder_conv(b, "patch", image(b, 3, 12), 6, 4, &cut);
    x = dunlin_builder_class_token(b, "class", dunlin_builder_image_tokens(b, x));
    x = dunlin_builder_dense(b, "head", dunlin_builder_mean(b, x, 0), 5);
    cr_assert_eq(dunlin_builder_finish(b, x, &model, NULL), DUNLIN_OK);
    const dunlin_net_param *token = &model->net.params[net_find_param(&model->net, "class")];
    cr_expect(token->shape.n_dims == 3 && token->n_elements == 6);
    cr_expect(token->role == DUNLIN_PARAMETER_TRAINABLE);
    expect_shape(model, "class/out", 2, (int64_t[]){1, 6});
    for (size_t i = 0; i < model->net.n_nodes; i++) {
        const dunlin_net_node *node = &model->net.nodes[i];
        const dunlin_shape *shape = &model->net.values[node->output].shape;
        cr_expect(node->kind != DUNLIN_OP_REARRANGE ||
                  (shape->dims[0] == 9 && shape->dims[1] == 6));
        cr_expect(node->kind != DUNLIN_OP_STACK || (shape->dims[0] == 10 && shape->dims[1] == 6));
    }
    dunlin_model_destroy(model);

    b = begin(NULL);
    x = dunlin_builder_input_signal(b, "x", 4, 9);
    x = dunlin_builder_image_tokens(b, x);
    x = dunlin_builder_dense(b, "head", dunlin_builder_mean(b, x, 0), 5);
    cr_assert_eq(dunlin_builder_finish(b, x, &model, NULL), DUNLIN_OK);
    cr_expect_eq(model->net.params[net_find_param(&model->net, "head.weight")].shape.dims[1], 4);
    dunlin_model_destroy(model);
}

Test(builder, what_cannot_be_tokens)
{
    dunlin_builder *b = begin(NULL);
    dunlin_value x = dunlin_builder_input(b, "x", &(dunlin_shape){2, {5, 4}});
    expect_refused(b, dunlin_builder_image_tokens(b, x), DUNLIN_ARGUMENT,
                   "only images and signals become tokens");
    b = begin(NULL);
    x = image(b, 3, 8);
    expect_refused(b, dunlin_builder_class_token(b, "class", x), DUNLIN_ARGUMENT,
                   "goes before rows of tokens");
    b = begin(NULL);
    x = dunlin_builder_image_tokens(b, image(b, 3, 8));
    expect_refused(b, dunlin_builder_class_token(b, NULL, x), DUNLIN_ARGUMENT, "needs a name");
    b = begin(NULL);
    x = image(b, 3, 8);
    expect_refused(b, dunlin_builder_class_token(b, "class", x + 7), DUNLIN_ARGUMENT,
                   "goes before rows of tokens");
}
