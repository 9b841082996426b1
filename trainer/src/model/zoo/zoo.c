/*
 * zoo.c - ready-made networks by name.
 *
 * Names and shapes of parameters equal those of torchvision's networks of the same names, so that
 * weights go both ways.
 */
#include "zoo.h"

#include <dunlin/several.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <stdio.h>
#include <string.h>

#define IMAGES(name_, image_, channels_, classes_, fn)                                             \
    {                                                                                              \
        .name = (name_), .image = (image_), .channels = (channels_), .classes = (classes_),        \
        .build_fn = (fn)                                                                           \
    }

static const dunlin_zoo_entry zoo[] = {
    IMAGES("lenet5", 28, 1, 10, dunlin__zoo_lenet5),
    IMAGES("mlp", 28, 1, 10, dunlin__zoo_mlp),
    IMAGES("har_mlp", 1, 43, 6, dunlin__zoo_har_mlp),
    IMAGES("cnn_bn", 32, 3, 10, dunlin__zoo_cnn_bn),
    IMAGES("tiny_bn", 12, 3, 4, dunlin__zoo_tiny_bn),
    IMAGES("pfl_cnn", 32, 3, 10, dunlin__zoo_pfl_cnn),
    {.name = "ds_cnn",
     .image = 49,
     .width = 10,
     .channels = 1,
     .classes = 12,
     .build_fn = dunlin__zoo_ds_cnn},
    {.name = "har_fcn",
     .sequence = 128,
     .channels = 6,
     .classes = 6,
     .build_fn = dunlin__zoo_har_fcn},
    IMAGES("mobilenet_v1", 224, 3, 1000, dunlin__zoo_mobilenet_v1),
    IMAGES("mobilenet_v2", 224, 3, 1000, dunlin__zoo_mobilenet_v2),
    IMAGES("mobilenet_v3_small", 224, 3, 1000, dunlin__zoo_mobilenet_v3_small),
    IMAGES("mobilenet_v3_large", 224, 3, 1000, dunlin__zoo_mobilenet_v3_large),
    IMAGES("efficientnet_b0", 224, 3, 1000, dunlin__zoo_efficientnet_b0),
    IMAGES("shufflenet_v2_x0_5", 224, 3, 1000, dunlin__zoo_shufflenet_v2_x0_5),
    IMAGES("shufflenet_v2_x1_0", 224, 3, 1000, dunlin__zoo_shufflenet_v2_x1_0),
    IMAGES("resnet18", 224, 3, 1000, dunlin__zoo_resnet18),
    IMAGES("resnet34", 224, 3, 1000, dunlin__zoo_resnet34),
    IMAGES("resnet50", 224, 3, 1000, dunlin__zoo_resnet50),
    IMAGES("resnet101", 224, 3, 1000, dunlin__zoo_resnet101),
    IMAGES("densenet121", 224, 3, 1000, dunlin__zoo_densenet121),
    IMAGES("alexnet", 224, 3, 1000, dunlin__zoo_alexnet),
    IMAGES("vgg11", 224, 3, 1000, dunlin__zoo_vgg11),
    IMAGES("vgg13", 224, 3, 1000, dunlin__zoo_vgg13),
    IMAGES("vgg16", 224, 3, 1000, dunlin__zoo_vgg16),
    IMAGES("vgg19", 224, 3, 1000, dunlin__zoo_vgg19),
    IMAGES("vgg11_bn", 224, 3, 1000, dunlin__zoo_vgg11_bn),
    IMAGES("vgg13_bn", 224, 3, 1000, dunlin__zoo_vgg13_bn),
    IMAGES("vgg16_bn", 224, 3, 1000, dunlin__zoo_vgg16_bn),
    IMAGES("vgg19_bn", 224, 3, 1000, dunlin__zoo_vgg19_bn),
    IMAGES("vgg11_cifar", 32, 3, 10, dunlin__zoo_vgg11_cifar),
    IMAGES("vgg16_cifar", 32, 3, 10, dunlin__zoo_vgg16_cifar),
    IMAGES("squeezenet1_1", 224, 3, 1000, dunlin__zoo_squeezenet1_1),
    IMAGES("googlenet", 224, 3, 1000, dunlin__zoo_googlenet),
    IMAGES("inception_v3", 299, 3, 1000, dunlin__zoo_inception_v3),
    {.name = "googlenet_aux",
     .image = 224,
     .channels = 3,
     .classes = 1000,
     .outputs_fn = dunlin__zoo_googlenet_aux,
     .outputs = "logits,aux2=0.3,aux1=0.3"},
    {.name = "inception_v3_aux",
     .image = 299,
     .channels = 3,
     .classes = 1000,
     .outputs_fn = dunlin__zoo_inception_v3_aux,
     .outputs = "logits,aux=0.4"},
    IMAGES("unet", 256, 3, 2, dunlin__zoo_unet),
    IMAGES("unet_small", 32, 3, 4, dunlin__zoo_unet_small),
    IMAGES("vit_tiny", 224, 3, 1000, dunlin__zoo_vit_tiny),
    IMAGES("vit_tiny_patch4", 32, 3, 10, dunlin__zoo_vit_tiny_patch4),
    {.name = "siamese", .image = 28, .channels = 1, .classes = 2, .inputs_fn = dunlin__zoo_siamese},
    {.name = "bert_small",
     .classes = 1000,
     .sequence = 128,
     .vocabulary = 30522,
     .tokens_fn = dunlin__zoo_bert_small},
    {.name = "bert_tiny",
     .classes = 2,
     .sequence = 128,
     .vocabulary = 30522,
     .tokens_fn = dunlin__zoo_bert_tiny},
    {.name = "bert_small_masked",
     .classes = 2,
     .sequence = 128,
     .vocabulary = 30522,
     .tokens_fn = dunlin__zoo_bert_small_masked},
    {.name = "gpt_tiny",
     .classes = 65,
     .sequence = 64,
     .vocabulary = 65,
     .predicts_tokens = true,
     .tokens_fn = dunlin__zoo_gpt_tiny},
    {.name = "gpt_small",
     .classes = 30522,
     .sequence = 128,
     .vocabulary = 30522,
     .predicts_tokens = true,
     .tokens_fn = dunlin__zoo_gpt_small},
};
#define N_ZOO (sizeof zoo / sizeof zoo[0])

const char *dunlin_zoo_name(int32_t index)
{
    return index >= 0 && (size_t)index < N_ZOO ? zoo[index].name : NULL;
}

static size_t common_prefix(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] != '\0' && a[n] == b[n]) {
        n++;
    }
    return n;
}

/* Names those that begin most like it, as many as the text of an error has room for. */
static dunlin_status fail_unknown(const char *name, dunlin_error *error)
{
    char known[DUNLIN_ERROR_TEXT_BYTES / 2] = "";
    size_t used = 0;
    size_t n_named = 0;
    for (size_t wanted = strlen(name) + 1; wanted-- > 0;) {
        for (size_t i = 0; i < N_ZOO; i++) {
            const size_t length = strlen(zoo[i].name) + 2;
            if (common_prefix(name, zoo[i].name) == wanted && used + length < sizeof known) {
                (void)snprintf(known + used, sizeof known - used, "%s, ", zoo[i].name);
                used += length;
                n_named++;
            }
        }
    }
    return dunlin__fail(error, DUNLIN_UNSUPPORTED, "net", 0,
                        "there is no ready-made network '%.40s'; known: %sand %zu more that "
                        "dunlin_zoo_name() lists",
                        name, known, N_ZOO - n_named);
}

static const dunlin_zoo_entry *find(const char *name)
{
    for (size_t i = 0; i < N_ZOO; i++) {
        if (strcmp(name, zoo[i].name) == 0) {
            return &zoo[i];
        }
    }
    return NULL;
}

const char *dunlin_zoo_outputs(const char *name)
{
    const dunlin_zoo_entry *entry = name == NULL ? NULL : find(name);
    return entry == NULL ? NULL : entry->outputs;
}

/* Ends a network with several outputs under the names of its entry. */
static dunlin_status finish_outputs(dunlin_builder *builder, const dunlin_zoo_entry *entry,
                                    dunlin_value input, int32_t classes, dunlin_model **out_model,
                                    dunlin_error *out_error)
{
    char names[DUNLIN_MODEL_MAX_OUTPUTS][32];
    const char *pointers[DUNLIN_MODEL_MAX_OUTPUTS];
    dunlin_value outputs[DUNLIN_MODEL_MAX_OUTPUTS];
    int32_t n = 0;
    for (const char *at = entry->outputs; *at != '\0' && n < DUNLIN_MODEL_MAX_OUTPUTS; n++) {
        (void)snprintf(names[n], sizeof names[n], "%.*s", (int)strcspn(at, "=,"), at);
        pointers[n] = names[n];
        at += strcspn(at, ",");
        at += *at == ',' ? 1 : 0;
    }
    entry->outputs_fn(builder, input, classes, outputs);
    return dunlin_builder_finish_outputs(builder, outputs, pointers, n, out_model, out_error);
}

dunlin_status dunlin_model_from_zoo(const char *name, const dunlin_zoo_options *options,
                                    const dunlin_alloc *hooks, dunlin_model **out_model,
                                    dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (name == NULL || out_model == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "net", 0, "%s is NULL",
                            name == NULL ? "name" : "out_model");
    }
    *out_model = NULL;
    const dunlin_zoo_entry *entry = find(name);
    if (entry == NULL) {
        return fail_unknown(name, out_error);
    }
    dunlin_zoo_options o = DUNLIN_ZOO_OPTIONS_INIT;
    if (options != NULL) {
        DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_zoo_options, options, &o, out_error));
    }
    const int32_t width = o.image != 0 || entry->width == 0 ? 0 : entry->width;
    o.vocabulary = o.vocabulary == 0 && entry->predicts_tokens ? o.classes : o.vocabulary;
    o.image = o.image == 0 ? entry->image : o.image;
    o.channels = o.channels == 0 ? entry->channels : o.channels;
    o.classes = o.classes == 0 ? entry->classes : o.classes;
    o.sequence = o.sequence == 0 ? entry->sequence : o.sequence;
    o.vocabulary = o.vocabulary == 0 ? entry->vocabulary : o.vocabulary;
    const bool reads_tokens = entry->tokens_fn != NULL;
    const bool reads_signals = !reads_tokens && entry->sequence > 0;
    const bool is_positive = reads_tokens    ? o.sequence > 0 && o.vocabulary > 0
                             : reads_signals ? o.sequence > 0 && o.channels > 0
                                             : o.image > 0 && o.channels > 0;
    if (!is_positive || o.classes < 1) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "net", 0,
                            "%s: %s and classes must be positive", name,
                            reads_tokens    ? "sequence, vocabulary"
                            : reads_signals ? "sequence, channels"
                                            : "image, channels");
    }
    dunlin_builder *builder = NULL;
    if (dunlin_builder_create(hooks, &builder) != DUNLIN_OK) {
        return dunlin__fail(out_error, DUNLIN_MEMORY, "net", 0, "no memory for a network");
    }
    const dunlin_shape image = {3, {o.channels, o.image, width > 0 ? width : o.image}};
    const dunlin_shape tokens = {1, {o.sequence}};
    if (entry->inputs_fn != NULL) {
        return dunlin_builder_finish(builder, entry->inputs_fn(builder, &o), out_model, out_error);
    }
    dunlin_value input =
        reads_signals ? dunlin_builder_input_signal(builder, "input", o.channels, o.sequence)
                      : dunlin_builder_input(builder, "input", reads_tokens ? &tokens : &image);
    if (entry->outputs_fn != NULL) {
        return finish_outputs(builder, entry, input, o.classes, out_model, out_error);
    }
    dunlin_value output = reads_tokens ? entry->tokens_fn(builder, input, &o)
                                       : entry->build_fn(builder, input, o.classes);
    return dunlin_builder_finish(builder, output, out_model, out_error);
}
