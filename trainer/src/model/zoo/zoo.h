/*
 * zoo.h - the families of ready-made networks.
 */
#ifndef DUNLIN_MODEL_ZOO_H
#define DUNLIN_MODEL_ZOO_H

#include "model/builder/builder.h"

/* Adds all layers after the input; returns the logits, perhaps of each pixel. `classes` is
 * positive. */
typedef dunlin_value (*dunlin_zoo_build_fn)(dunlin_builder *builder, dunlin_value input,
                                            int32_t classes);

/* The same for a network that reads tokens; all of the options are set. */
typedef dunlin_value (*dunlin_zoo_tokens_fn)(dunlin_builder *builder, dunlin_value input,
                                             const dunlin_zoo_options *options);

/* A network with several inputs, which it adds itself. */
typedef dunlin_value (*dunlin_zoo_inputs_fn)(dunlin_builder *builder,
                                             const dunlin_zoo_options *options);

/* A network with several outputs, the main one first: fills in as many as `outputs` of its entry
 * names. */
typedef void (*dunlin_zoo_outputs_fn)(dunlin_builder *builder, dunlin_value input, int32_t classes,
                                      dunlin_value *outputs);

typedef struct dunlin_zoo_entry {
    const char *name;
    int32_t image, channels, classes; /* defaults */
    int32_t width;                    /* of an input that is not square; 0: as `image` */
    dunlin_zoo_build_fn build_fn;
    bool predicts_tokens;         /* its classes are its vocabulary */
    int32_t sequence, vocabulary; /* of networks that read tokens; signals: their length, 0 */
    dunlin_zoo_tokens_fn tokens_fn;
    dunlin_zoo_inputs_fn inputs_fn;
    dunlin_zoo_outputs_fn outputs_fn;
    const char *outputs; /* of one with several: NAME, then NAME=WEIGHT, as dunlin_zoo_outputs() */
} dunlin_zoo_entry;

/* zoo_small.c */
dunlin_value dunlin__zoo_lenet5(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_mlp(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_har_mlp(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_cnn_bn(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_tiny_bn(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_pfl_cnn(dunlin_builder *builder, dunlin_value x, int32_t classes);
/* zoo_sensors.c */
dunlin_value dunlin__zoo_ds_cnn(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_har_fcn(dunlin_builder *builder, dunlin_value x, int32_t classes);
/* zoo_mobilenet.c */
dunlin_value dunlin__zoo_mobilenet_v1(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_mobilenet_v2(dunlin_builder *builder, dunlin_value x, int32_t classes);
/* zoo_squeezed.c */
dunlin_value dunlin__zoo_mobilenet_v3_small(dunlin_builder *builder, dunlin_value x,
                                            int32_t classes);
dunlin_value dunlin__zoo_mobilenet_v3_large(dunlin_builder *builder, dunlin_value x,
                                            int32_t classes);
dunlin_value dunlin__zoo_efficientnet_b0(dunlin_builder *builder, dunlin_value x, int32_t classes);
/* zoo_resnet.c */
dunlin_value dunlin__zoo_resnet18(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_resnet34(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_resnet50(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_resnet101(dunlin_builder *builder, dunlin_value x, int32_t classes);
/* zoo_shufflenet.c */
dunlin_value dunlin__zoo_shufflenet_v2_x0_5(dunlin_builder *builder, dunlin_value x,
                                            int32_t classes);
dunlin_value dunlin__zoo_shufflenet_v2_x1_0(dunlin_builder *builder, dunlin_value x,
                                            int32_t classes);
/* zoo_densenet.c, zoo_squeezenet.c, zoo_alexnet.c */
dunlin_value dunlin__zoo_densenet121(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_squeezenet1_1(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_alexnet(dunlin_builder *builder, dunlin_value x, int32_t classes);
/* zoo_vgg.c */
dunlin_value dunlin__zoo_vgg11(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_vgg13(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_vgg16(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_vgg19(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_vgg11_bn(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_vgg13_bn(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_vgg16_bn(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_vgg19_bn(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_vgg11_cifar(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_vgg16_cifar(dunlin_builder *builder, dunlin_value x, int32_t classes);
/* zoo_googlenet.c, zoo_inception.c */
dunlin_value dunlin__zoo_googlenet(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_inception_v3(dunlin_builder *builder, dunlin_value x, int32_t classes);
void dunlin__zoo_googlenet_aux(dunlin_builder *builder, dunlin_value x, int32_t classes,
                               dunlin_value *outputs);
void dunlin__zoo_inception_v3_aux(dunlin_builder *builder, dunlin_value x, int32_t classes,
                                  dunlin_value *outputs);
/* zoo_unet.c */
dunlin_value dunlin__zoo_unet(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_unet_small(dunlin_builder *builder, dunlin_value x, int32_t classes);
/* zoo_vit.c */
dunlin_value dunlin__zoo_vit_tiny(dunlin_builder *builder, dunlin_value x, int32_t classes);
dunlin_value dunlin__zoo_vit_tiny_patch4(dunlin_builder *builder, dunlin_value x, int32_t classes);
/* zoo_siamese.c */
dunlin_value dunlin__zoo_siamese(dunlin_builder *builder, const dunlin_zoo_options *options);
/* zoo_bert.c */
dunlin_value dunlin__zoo_bert_small(dunlin_builder *builder, dunlin_value x,
                                    const dunlin_zoo_options *options);
/* zoo_uncased.c */
dunlin_value dunlin__zoo_bert_tiny(dunlin_builder *builder, dunlin_value x,
                                   const dunlin_zoo_options *options);
dunlin_value dunlin__zoo_bert_small_masked(dunlin_builder *builder, dunlin_value x,
                                           const dunlin_zoo_options *options);
/* zoo_gpt.c; their classes are their vocabulary */
dunlin_value dunlin__zoo_gpt_tiny(dunlin_builder *builder, dunlin_value x,
                                  const dunlin_zoo_options *options);
dunlin_value dunlin__zoo_gpt_small(dunlin_builder *builder, dunlin_value x,
                                   const dunlin_zoo_options *options);

/* --- zoo_common.c --- */

/* Name "PREFIX.SUFFIX" put together in `out` (DUNLIN_NET_MAX_NAME + 1 bytes). */
const char *dunlin__zoo_name(char *out, const char *prefix, const char *suffix);

/* torchvision's adaptive average pooling to `pooled` x `pooled`, by windows of one size. It fails
 * where the image does not divide so, and has more than one pixel: `sizes` says which images the
 * network takes. Windows over a single pixel hang over its borders. */
dunlin_value dunlin__zoo_adaptive_pool(dunlin_builder *builder, dunlin_value x, int32_t pooled,
                                       const char *network, const char *sizes);

/* A convolution without bias, batch norm and ReLU, named PREFIX.conv and PREFIX.bn. */
dunlin_value dunlin__zoo_conv_bn_relu(dunlin_builder *builder, const char *prefix, dunlin_value x,
                                      const dunlin_net_conv *conv);

/* All batch norms: eps and momentum (PyTorch's sense). */
void dunlin__zoo_set_norms(dunlin_builder *builder, float eps, float momentum);

/* The eps of all layer norms. */
void dunlin__zoo_set_layer_norms(dunlin_builder *builder, float eps);

/* Exchanges two parameters of the network, and what refers to them. */
void dunlin__zoo_swap_params(dunlin_net *net, uint32_t a, uint32_t b);
/* The parameter of that name before all others, whose order stays. */
void dunlin__zoo_put_first(dunlin_builder *builder, const char *name);

/* Weights of all convolutions and dense layers normal with a deviation; biases stay. */
void dunlin__zoo_init_normal(dunlin_builder *builder, float deviation);

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
