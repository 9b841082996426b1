/*
 * zoo.h - the families of ready-made networks.
 */
#ifndef DUNLIN_MODEL_ZOO_H
#define DUNLIN_MODEL_ZOO_H

#include "model/builder/builder.h"

/* Adds all layers after the input; returns the logits. `classes` is positive. */
typedef dunlin_value (*dunlin_zoo_build_fn)(dunlin_builder *builder, dunlin_value input,
                                            int32_t classes);

/* The same for a network that reads tokens; all of the options are set. */
typedef dunlin_value (*dunlin_zoo_tokens_fn)(dunlin_builder *builder, dunlin_value input,
                                             const dunlin_zoo_options *options);

typedef struct dunlin_zoo_entry {
    const char *name;
    int32_t image, channels, classes; /* defaults */
    dunlin_zoo_build_fn build_fn;
    int32_t sequence, vocabulary; /* of networks that read tokens */
    dunlin_zoo_tokens_fn tokens_fn;
} dunlin_zoo_entry;

dunlin_value dunlin__zoo_lenet5(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_mlp(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_har_mlp(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_cnn_bn(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_tiny_bn(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_mobilenet_v1(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_mobilenet_v2(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_resnet18(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_resnet50(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_densenet121(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_vgg16(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_squeezenet1_1(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_bert_small(dunlin_builder *builder, dunlin_value x,
                                    const dunlin_zoo_options *options);

/* Name "PREFIX.SUFFIX" put together in `out` (DUNLIN_NET_MAX_NAME + 1 bytes). */
const char *dunlin__zoo_name(char *out, const char *prefix, const char *suffix);

/* He's initial distributions (2015) for all convolutions; biases zero. */
typedef enum dunlin_zoo_he {
    DUNLIN_ZOO_HE_NORMAL_OUT, /* variance 2 / fan-out: ResNet, MobileNetV2, VGG */
    DUNLIN_ZOO_HE_NORMAL_IN,  /* variance 2 / fan-in: DenseNet */
    DUNLIN_ZOO_HE_UNIFORM_IN  /* the same, uniform: SqueezeNet */
} dunlin_zoo_he;
void dunlin__zoo_init_he(dunlin_builder *builder, dunlin_zoo_he kind);
/* All dense layers: biases zero; weights normal with a deviation, or as they are when it is 0. */
void dunlin__zoo_init_dense(dunlin_builder *builder, float deviation);
/* Normal with a deviation for the weight of the last node that has one; its bias zero. */
void dunlin__zoo_init_head(dunlin_builder *builder, float deviation);

#endif
