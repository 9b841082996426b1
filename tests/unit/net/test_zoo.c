/*
 * test_zoo.c - the ready-made networks against torchvision's known figures.
 */
#include "net_support.h"

#include <dunlin/several.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

static dunlin_model *make(const char *name, const dunlin_zoo_options *options)
{
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    dunlin_status status = dunlin_model_from_zoo(name, options, NULL, &model, &error);
    cr_assert_eq(status, DUNLIN_OK, "%s: %s", name, error.text);
    return model;
}

/* The number make_zoo.py puts down for a parameter's name and shape. */
static unsigned check_number(const dunlin_parameter_info *info)
{
    char text[400];
    int length = snprintf(text, sizeof text, "%s", info->name);
    for (int32_t i = 0; i < info->shape.n_dims; i++) {
        length += snprintf(text + length, sizeof text - (size_t)length, " %lld",
                           (long long)info->shape.dims[i]);
    }
    uint64_t value = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < length; i++) {
        value = (value ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    }
    return (unsigned)((value ^ value >> 16 ^ value >> 32 ^ value >> 48) & 0xffff);
}

/* Names, shapes and order of all parameters, by a number each, so that a failure says which one
 * differs. */
Test(zoo, parameters_of_torchvision)
{
    FILE *in = fopen(DUNLIN_ZOO_FILE, "r");
    cr_assert_not_null(in, "%s is missing", DUNLIN_ZOO_FILE);
    char name[32];
    int n_networks = 0;
    int n_parameters = 0;
    long long n_elements = 0;
    for (; fscanf(in, "%31s %d %lld", name, &n_parameters, &n_elements) == 3; n_networks++) {
        dunlin_model *model = make(name, NULL);
        cr_assert_eq(dunlin_model_n_parameters(model), n_parameters, "%s", name);
        cr_expect_eq(dunlin_model_n_trainable_elements(model), n_elements, "%s", name);
        for (int32_t i = 0; i < n_parameters; i++) {
            unsigned wanted = 0;
            dunlin_parameter_info info;
            cr_assert_eq(fscanf(in, "%x", &wanted), 1);
            cr_assert_eq(dunlin_model_parameter(model, i, &info), DUNLIN_OK);
            cr_assert_eq(check_number(&info), wanted, "%s: parameter %d is '%s'", name, (int)i,
                         info.name);
        }
        dunlin_model_destroy(model);
    }
    cr_assert(feof(in) && n_networks == 38, "%d networks", n_networks);
    fclose(in);
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
    expect_heights("mobilenet_v1", (int64_t[]){224, 112, 56, 28, 14, 7, 1}, 7);
    expect_heights("resnet18", (int64_t[]){224, 112, 56, 28, 14, 7, 1}, 7);
    expect_heights("resnet50", (int64_t[]){224, 112, 56, 28, 14, 7, 1}, 7);
    expect_heights("densenet121", (int64_t[]){224, 112, 56, 28, 14, 7, 1}, 7);
    expect_heights("vgg16", (int64_t[]){224, 112, 56, 28, 14, 7}, 6);
    /* The pools round up: (111 - 3) / 2 + 1 = 55, (55 - 3) / 2 + 1 = 27, 13. */
    expect_heights("resnet34", (int64_t[]){224, 112, 56, 28, 14, 7, 1}, 7);
    expect_heights("resnet101", (int64_t[]){224, 112, 56, 28, 14, 7, 1}, 7);
    expect_heights("vgg11", (int64_t[]){224, 112, 56, 28, 14, 7}, 6);
    expect_heights("vgg19_bn", (int64_t[]){224, 112, 56, 28, 14, 7}, 6);
    expect_heights("alexnet", (int64_t[]){224, 55, 27, 13, 6}, 5);
    expect_heights("googlenet", (int64_t[]){224, 112, 56, 28, 14, 7, 1}, 7);
    /* The branches that halve it begin at the whole image. */
    expect_heights("inception_v3", (int64_t[]){299, 149, 147, 73, 71, 35, 17, 35, 17, 8, 17, 8, 1},
                   13);
    expect_heights("shufflenet_v2_x0_5",
                   (int64_t[]){224, 112, 56, 28, 56, 28, 14, 28, 14, 7, 14, 7, 1}, 13);
    expect_heights("ds_cnn", (int64_t[]){49, 25, 1}, 3);
    expect_heights("unet", (int64_t[]){256, 128, 64, 32, 16, 32, 64, 128, 256}, 9);
    expect_heights("unet_small", (int64_t[]){32, 16, 8, 4, 8, 16, 32}, 7);
    expect_heights("vit_tiny", (int64_t[]){224, 14}, 2);
    expect_heights("vit_tiny_patch4", (int64_t[]){32, 8}, 2);
    expect_heights("squeezenet1_1", (int64_t[]){224, 111, 55, 27, 13, 1}, 6);
}

/* A name that is none is answered by those that begin like it, and by how many more there are. */
static void expect_names_like(int32_t n_networks)
{
    static const char *const like[] = {"resnet18", "resnet34", "resnet50", "resnet101"};
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    char more[32];
    int n_named = 0;
    cr_assert_eq(dunlin_model_from_zoo("resnet19", NULL, NULL, &model, &error), DUNLIN_UNSUPPORTED);
    net_expect_line(&error, DUNLIN_UNSUPPORTED, "resnet19");
    for (int i = 0; i < 4; i++) {
        cr_expect_not_null(strstr(error.text, like[i]), "%s is not in '%s'", like[i], error.text);
    }
    for (const char *at = strchr(error.text, ','); at != NULL; at = strchr(at + 1, ',')) {
        n_named++;
    }
    (void)snprintf(more, sizeof more, "and %d more", (int)n_networks - n_named);
    cr_expect_not_null(strstr(error.text, more), "%s: '%s'", more, error.text);
    cr_expect_not_null(strstr(error.text, "dunlin_zoo_name() lists"), "'%s'", error.text);
}

Test(zoo, options_and_names)
{
    int32_t n = 0;
    for (; dunlin_zoo_name(n) != NULL; n++) {
        const int32_t image = net_zoo_image(dunlin_zoo_name(n));
        dunlin_zoo_options options = {
            .struct_size = sizeof(dunlin_zoo_options), .image = image, .channels = 2, .classes = 5};
        dunlin_model *model = make(dunlin_zoo_name(n), &options);
        dunlin_shape shape = dunlin_model_input_shape(model);
        if (dunlin_model_vocabulary(model) == 0 && shape.n_dims == 3) {
            cr_expect(shape.dims[0] == 2 && shape.dims[1] == image && shape.dims[2] == image);
        }
        cr_expect_eq(dunlin_model_n_outputs(model), 5, "%s", dunlin_zoo_name(n));
        dunlin_model_destroy(model);
    }
    cr_assert_geq(n, 5);
    cr_assert_null(dunlin_zoo_name(-1));

    dunlin_model *model = make("har_mlp", NULL);
    cr_expect_eq(dunlin_model_n_trainable_elements(model),
                 43 * 64 + 64 + 64 * 32 + 32 + 32 * 6 + 6);
    dunlin_model_destroy(model);
    dunlin_error error = {0};
    expect_names_like(n);
    dunlin_zoo_options options = {.struct_size = sizeof(dunlin_zoo_options), .classes = -1};
    cr_assert_eq(dunlin_model_from_zoo("mlp", &options, NULL, &model, &error), DUNLIN_ARGUMENT);
    options = (dunlin_zoo_options){.struct_size = sizeof(dunlin_zoo_options), .image = 3};
    cr_assert_eq(dunlin_model_from_zoo("lenet5", &options, NULL, &model, &error), DUNLIN_MODEL);
    net_expect_line(&error, DUNLIN_MODEL, "an image too small");
    options = (dunlin_zoo_options){
        .struct_size = sizeof(dunlin_zoo_options), .sequence = 7, .vocabulary = 11};
    cr_assert_eq(dunlin_model_from_zoo("bert_small", &options, NULL, &model, &error), DUNLIN_OK);
    cr_expect_eq(dunlin_model_input_shape(model).dims[0], 7);
    cr_expect_eq(dunlin_model_vocabulary(model), 11);
    dunlin_model_destroy(model);
    options = (dunlin_zoo_options){
        .struct_size = sizeof(dunlin_zoo_options), .image = 5, .channels = 3, .sequence = 40};
    model = make("har_fcn", &options);
    const dunlin_shape signal = dunlin_model_input_shape(model);
    cr_expect(signal.n_dims == 2 && signal.dims[0] == 3 && signal.dims[1] == 40);
    dunlin_model_destroy(model);
    options = (dunlin_zoo_options){.struct_size = sizeof(dunlin_zoo_options), .sequence = -1};
    cr_assert_eq(dunlin_model_from_zoo("har_fcn", &options, NULL, &model, &error), DUNLIN_ARGUMENT);
    net_expect_line(&error, DUNLIN_ARGUMENT, "har_fcn: sequence, channels");
    cr_assert_eq(dunlin_model_from_zoo("bert_small", &options, NULL, &model, &error),
                 DUNLIN_ARGUMENT);
    options = (dunlin_zoo_options){.struct_size = sizeof(dunlin_zoo_options), .image = 64};
    cr_assert_eq(dunlin_model_from_zoo("vgg16", &options, NULL, &model, &error),
                 DUNLIN_UNSUPPORTED);
    net_expect_line(&error, DUNLIN_UNSUPPORTED, "32 to 63");
    options.image = 100;
    cr_assert_eq(dunlin_model_from_zoo("alexnet", &options, NULL, &model, &error),
                 DUNLIN_UNSUPPORTED);
    net_expect_line(&error, DUNLIN_UNSUPPORTED, "223 to 254");
    cr_assert_eq(dunlin_model_from_zoo(NULL, NULL, NULL, &model, NULL), DUNLIN_ARGUMENT);
}

/* torchvision's Inception networks have an eps of their own. */
Test(zoo, batch_norms_of_torchvision)
{
    const struct {
        const char *network;
        float eps, momentum;
    } known[] = {{"googlenet", 0.001f, 0.1f},
                 {"inception_v3", 0.001f, 0.1f},
                 {"mobilenet_v3_small", 0.001f, 0.01f},
                 {"efficientnet_b0", 1e-5f, 0.1f},
                 {"vgg11_bn", 1e-5f, 0.1f}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        dunlin_model *model = make(known[i].network, NULL);
        int n_norms = 0;
        for (size_t k = 0; k < model->net.n_nodes; k++) {
            if (model->net.nodes[k].kind == DUNLIN_OP_BATCH_NORM) {
                const dunlin_net_batch_norm *norm = &model->net.nodes[k].u.batch_norm;
                cr_expect(norm->eps == known[i].eps && norm->momentum == known[i].momentum, "%s",
                          known[i].network);
                n_norms++;
            }
        }
        cr_expect_geq(n_norms, 8, "%s", known[i].network);
        dunlin_model_destroy(model);
    }
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

    const struct {
        const char *network, *parameter;
        dunlin_param_origin origin;
        double bound;
    } known[] = {
        {"mobilenet_v1", "features.1.0.0.weight", DUNLIN_PARAM_UNIFORM, 0.3333333},
        {"resnet50", "layer1.0.conv3.weight", DUNLIN_PARAM_NORMAL, 0.0883883},
        {"resnet50", "fc.weight", DUNLIN_PARAM_UNIFORM, 0.0220971},
        {"densenet121", "features.conv0.weight", DUNLIN_PARAM_NORMAL, 0.1166424},
        {"densenet121", "classifier.weight", DUNLIN_PARAM_UNIFORM, 0.03125},
        {"densenet121", "classifier.bias", DUNLIN_PARAM_CONSTANT, 0.0},
        {"vgg16", "features.2.weight", DUNLIN_PARAM_NORMAL, 0.0589256},
        {"vgg16", "features.2.bias", DUNLIN_PARAM_CONSTANT, 0.0},
        {"vgg16", "classifier.0.weight", DUNLIN_PARAM_NORMAL, 0.01},
        {"vgg11_bn", "features.4.weight", DUNLIN_PARAM_NORMAL, 0.0416667},
        {"mobilenet_v3_large", "features.5.block.2.fc1.weight", DUNLIN_PARAM_NORMAL, 0.25},
        {"mobilenet_v3_small", "classifier.0.weight", DUNLIN_PARAM_NORMAL, 0.01},
        {"efficientnet_b0", "classifier.1.weight", DUNLIN_PARAM_UNIFORM, 0.0316228},
        {"efficientnet_b0", "classifier.1.bias", DUNLIN_PARAM_CONSTANT, 0.0},
        {"shufflenet_v2_x1_0", "stage3.2.branch2.3.weight", DUNLIN_PARAM_UNIFORM, 0.3333333},
        {"shufflenet_v2_x1_0", "fc.bias", DUNLIN_PARAM_UNIFORM, 0.03125},
        {"har_fcn", "blocks.1.0.bias", DUNLIN_PARAM_UNIFORM, 0.0395285}, /* 1 / sqrt(128 * 5) */
        {"alexnet", "features.0.weight", DUNLIN_PARAM_UNIFORM, 0.0524864},
        {"alexnet", "classifier.6.bias", DUNLIN_PARAM_UNIFORM, 0.015625},
        {"googlenet", "inception3a.branch1.conv.weight", DUNLIN_PARAM_NORMAL, 0.01},
        {"googlenet", "fc.bias", DUNLIN_PARAM_UNIFORM, 0.03125},
        {"vit_tiny", "blocks.3.attn.qkv.weight", DUNLIN_PARAM_NORMAL, 0.02},
        {"vit_tiny", "blocks.3.attn.qkv.bias", DUNLIN_PARAM_CONSTANT, 0.0},
        {"vit_tiny", "pos_embed", DUNLIN_PARAM_NORMAL, 0.02},
        {"vit_tiny", "cls_token", DUNLIN_PARAM_NORMAL, 1e-6},
        {"vit_tiny", "patch_embed.proj.weight", DUNLIN_PARAM_UNIFORM,
         0.0360844}, /* 1 / sqrt(768) */
        {"bert_tiny", "bert.embeddings.token_type_embeddings.weight", DUNLIN_PARAM_NORMAL, 0.02},
        {"bert_tiny", "bert.encoder.layer.1.output.dense.weight", DUNLIN_PARAM_NORMAL, 0.02},
        {"bert_tiny", "bert.embeddings.LayerNorm.weight", DUNLIN_PARAM_CONSTANT, 1.0},
        {"inception_v3", "Mixed_6b.branch7x7_2.conv.weight", DUNLIN_PARAM_NORMAL, 0.1},
        {"inception_v3", "fc.weight", DUNLIN_PARAM_NORMAL, 0.1},
        {"inception_v3_aux", "AuxLogits.conv1.conv.weight", DUNLIN_PARAM_NORMAL, 0.1},
        {"inception_v3_aux", "AuxLogits.fc.weight", DUNLIN_PARAM_NORMAL, 0.001},
        {"inception_v3_aux", "fc.weight", DUNLIN_PARAM_NORMAL, 0.1},
        {"googlenet_aux", "aux1.fc1.weight", DUNLIN_PARAM_NORMAL, 0.01},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        model = make(known[i].network, NULL);
        const dunlin_net_param *param =
            &model->net.params[net_find_param(&model->net, known[i].parameter)];
        cr_expect_eq(param->origin, known[i].origin, "%s", known[i].parameter);
        cr_expect_float_eq(param->bound, known[i].bound, 1e-6, "%s", known[i].parameter);
        dunlin_model_destroy(model);
    }
}

/* timm's and transformers' layer norms have an eps of their own. */
Test(zoo, layer_norms)
{
    const struct {
        const char *network;
        float eps;
        int n_norms;
    } known[] = {{"vit_tiny_patch4", 1e-6F, 25}, {"bert_tiny", 1e-12F, 5}, {"gpt_tiny", 1e-5F, 9}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        dunlin_model *model = make(known[i].network, NULL);
        int n_norms = 0;
        for (size_t k = 0; k < model->net.n_nodes; k++) {
            if (model->net.nodes[k].kind == DUNLIN_OP_LAYER_NORM) {
                cr_expect_eq(model->net.nodes[k].u.layer_norm.eps, known[i].eps, "%s",
                             known[i].network);
                n_norms++;
            }
        }
        cr_expect_eq(n_norms, known[i].n_norms, "%s", known[i].network);
        dunlin_model_destroy(model);
    }
}

/* Every attention of it hides padding; its tokens are those of the words, not of the two segments.
 */
Test(zoo, masks_of_bert)
{
    dunlin_model *model = make("bert_small_masked", NULL);
    int n_attentions = 0;
    for (size_t k = 0; k < model->net.n_nodes; k++) {
        const dunlin_net_node *node = &model->net.nodes[k];
        n_attentions += node->kind == DUNLIN_OP_ATTENTION && node->u.attention.has_mask &&
                                node->u.attention.heads == 8
                            ? 1
                            : 0;
    }
    cr_expect_eq(n_attentions, 4);
    cr_expect_eq(dunlin_model_vocabulary(model), 30522);
    cr_expect_eq(dunlin_model_n_outputs(model), 2);
    dunlin_model_destroy(model);
}

Test(zoo, sizes_that_do_not_fit)
{
    const struct {
        const char *network;
        int32_t image, sequence;
        const char *says;
    } known[] = {{"vit_tiny", 40, 0, "40 pixels a side is not made of patches of 16"},
                 {"vit_tiny_patch4", 30, 0, "30 pixels a side is not made of patches of 4"},
                 {"bert_tiny", 0, 513, "513 tokens; its table of positions has 512"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const dunlin_zoo_options options = {.struct_size = sizeof(dunlin_zoo_options),
                                            .image = known[i].image,
                                            .sequence = known[i].sequence};
        dunlin_model *model = NULL;
        dunlin_error error = {0};
        cr_assert_eq(dunlin_model_from_zoo(known[i].network, &options, NULL, &model, &error),
                     DUNLIN_UNSUPPORTED);
        cr_expect_null(model);
        net_expect_line(&error, DUNLIN_UNSUPPORTED, known[i].says);
        cr_expect_not_null(strstr(error.text, known[i].says), "'%s'", error.text);
    }
}

Test(zoo, auxiliary_heads)
{
    const struct {
        const char *network, *outputs;
        int32_t n;
        const char *names[3];
    } known[] = {{"googlenet_aux", "logits,aux2=0.3,aux1=0.3", 3, {"logits", "aux2", "aux1"}},
                 {"inception_v3_aux", "logits,aux=0.4", 2, {"logits", "aux"}}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        dunlin_model *model = make(known[i].network, NULL);
        cr_expect_str_eq(dunlin_zoo_outputs(known[i].network), known[i].outputs);
        cr_assert_eq(dunlin_model_count_outputs(model), known[i].n);
        for (int32_t k = 0; k < known[i].n; k++) {
            dunlin_model_output output = DUNLIN_MODEL_OUTPUT_INIT;
            cr_assert_eq(dunlin_model_get_output(model, k, &output), DUNLIN_OK);
            cr_expect_str_eq(output.name, known[i].names[k]);
            cr_expect(output.n_labels == 1 && output.n_numbers == 1000);
        }
        dunlin_model_destroy(model);
    }
    cr_expect_null(dunlin_zoo_outputs("googlenet"));
    cr_expect_null(dunlin_zoo_outputs("none"));
    cr_expect_null(dunlin_zoo_outputs(NULL));
    /* 3 pixels a side do not become 4. */
    const dunlin_zoo_options options = {.struct_size = sizeof(dunlin_zoo_options), .image = 48};
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_model_from_zoo("googlenet_aux", &options, NULL, &model, &error),
                 DUNLIN_UNSUPPORTED);
    net_expect_line(&error, DUNLIN_UNSUPPORTED, "a multiple of 32");
}
