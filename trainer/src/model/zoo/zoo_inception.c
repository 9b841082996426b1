/*
 * zoo_inception.c - InceptionV3 (Szegedy, Vanhoucke, Ioffe, Shlens, Wojna, CVPR 2016) as
 * torchvision has it; without the auxiliary head, which training on ImageNet uses, or with it.
 *
 * The last blocks split two branches once more; torchvision joins those parts first and then all,
 * here one concatenation joins them in the same order.
 */
#include "zoo.h"

#include <string.h>

typedef enum place { SAME, VALID } place; /* padding that keeps the size, or none */

typedef struct unit {
    const char *name;
    int32_t channels, kernel_h, kernel_w, stride;
    place place;
} unit;

static dunlin_value add_unit(dunlin_builder *b, const char *block, const unit *spec, dunlin_value x)
{
    char name[DUNLIN_NET_MAX_NAME + 1];
    const int32_t pad_h = spec->place == SAME ? spec->kernel_h / 2 : 0;
    const int32_t pad_w = spec->place == SAME ? spec->kernel_w / 2 : 0;
    return dunlin__zoo_conv_bn_relu(
        b, block != NULL ? dunlin__zoo_name(name, block, spec->name) : spec->name, x,
        &(dunlin_net_conv){spec->channels, spec->kernel_h, spec->kernel_w, spec->stride,
                           spec->stride, pad_h, pad_w, pad_h, pad_w, 1, 1, 1, 0, 0});
}

/* One unit after the other. */
static dunlin_value add_chain(dunlin_builder *b, const char *block, dunlin_value x, int n,
                              const unit *units)
{
    for (int i = 0; i < n; i++) {
        x = add_unit(b, block, &units[i], x);
    }
    return x;
}

static dunlin_value add_pool_branch(dunlin_builder *b, const char *block, dunlin_value x,
                                    int32_t channels)
{
    x = dunlin_builder_average_pool(b, x, 3, 1, 1);
    return add_unit(b, block, &(unit){"branch_pool", channels, 1, 1, 1, SAME}, x);
}

static dunlin_value add_a(dunlin_builder *b, const char *block, dunlin_value x, int32_t pooled)
{
    dunlin_value parts[4];
    parts[0] = add_unit(b, block, &(unit){"branch1x1", 64, 1, 1, 1, SAME}, x);
    parts[1] = add_chain(
        b, block, x, 2,
        (const unit[]){{"branch5x5_1", 48, 1, 1, 1, SAME}, {"branch5x5_2", 64, 5, 5, 1, SAME}});
    parts[2] = add_chain(b, block, x, 3,
                         (const unit[]){{"branch3x3dbl_1", 64, 1, 1, 1, SAME},
                                        {"branch3x3dbl_2", 96, 3, 3, 1, SAME},
                                        {"branch3x3dbl_3", 96, 3, 3, 1, SAME}});
    parts[3] = add_pool_branch(b, block, x, pooled);
    return dunlin_builder_concat(b, parts, 4);
}

/* Halves the image. */
static dunlin_value add_b(dunlin_builder *b, const char *block, dunlin_value x)
{
    dunlin_value parts[3];
    parts[0] = add_unit(b, block, &(unit){"branch3x3", 384, 3, 3, 2, VALID}, x);
    parts[1] = add_chain(b, block, x, 3,
                         (const unit[]){{"branch3x3dbl_1", 64, 1, 1, 1, SAME},
                                        {"branch3x3dbl_2", 96, 3, 3, 1, SAME},
                                        {"branch3x3dbl_3", 96, 3, 3, 2, VALID}});
    parts[2] = dunlin_builder_max_pool(b, x, 3, 2, 0);
    return dunlin_builder_concat(b, parts, 3);
}

static dunlin_value add_c(dunlin_builder *b, const char *block, dunlin_value x, int32_t narrow)
{
    dunlin_value parts[4];
    parts[0] = add_unit(b, block, &(unit){"branch1x1", 192, 1, 1, 1, SAME}, x);
    parts[1] = add_chain(b, block, x, 3,
                         (const unit[]){{"branch7x7_1", narrow, 1, 1, 1, SAME},
                                        {"branch7x7_2", narrow, 1, 7, 1, SAME},
                                        {"branch7x7_3", 192, 7, 1, 1, SAME}});
    parts[2] = add_chain(b, block, x, 5,
                         (const unit[]){{"branch7x7dbl_1", narrow, 1, 1, 1, SAME},
                                        {"branch7x7dbl_2", narrow, 7, 1, 1, SAME},
                                        {"branch7x7dbl_3", narrow, 1, 7, 1, SAME},
                                        {"branch7x7dbl_4", narrow, 7, 1, 1, SAME},
                                        {"branch7x7dbl_5", 192, 1, 7, 1, SAME}});
    parts[3] = add_pool_branch(b, block, x, 192);
    return dunlin_builder_concat(b, parts, 4);
}

/* Halves the image. */
static dunlin_value add_d(dunlin_builder *b, const char *block, dunlin_value x)
{
    dunlin_value parts[3];
    parts[0] = add_chain(
        b, block, x, 2,
        (const unit[]){{"branch3x3_1", 192, 1, 1, 1, SAME}, {"branch3x3_2", 320, 3, 3, 2, VALID}});
    parts[1] = add_chain(b, block, x, 4,
                         (const unit[]){{"branch7x7x3_1", 192, 1, 1, 1, SAME},
                                        {"branch7x7x3_2", 192, 1, 7, 1, SAME},
                                        {"branch7x7x3_3", 192, 7, 1, 1, SAME},
                                        {"branch7x7x3_4", 192, 3, 3, 2, VALID}});
    parts[2] = dunlin_builder_max_pool(b, x, 3, 2, 0);
    return dunlin_builder_concat(b, parts, 3);
}

static dunlin_value add_e(dunlin_builder *b, const char *block, dunlin_value x)
{
    dunlin_value parts[6];
    parts[0] = add_unit(b, block, &(unit){"branch1x1", 320, 1, 1, 1, SAME}, x);
    dunlin_value y = add_unit(b, block, &(unit){"branch3x3_1", 384, 1, 1, 1, SAME}, x);
    parts[1] = add_unit(b, block, &(unit){"branch3x3_2a", 384, 1, 3, 1, SAME}, y);
    parts[2] = add_unit(b, block, &(unit){"branch3x3_2b", 384, 3, 1, 1, SAME}, y);
    y = add_chain(b, block, x, 2,
                  (const unit[]){{"branch3x3dbl_1", 448, 1, 1, 1, SAME},
                                 {"branch3x3dbl_2", 384, 3, 3, 1, SAME}});
    parts[3] = add_unit(b, block, &(unit){"branch3x3dbl_3a", 384, 1, 3, 1, SAME}, y);
    parts[4] = add_unit(b, block, &(unit){"branch3x3dbl_3b", 384, 3, 1, 1, SAME}, y);
    parts[5] = add_pool_branch(b, block, x, 192);
    return dunlin_builder_concat(b, parts, 6);
}

/* As far as the auxiliary head. */
static dunlin_value add_stem(dunlin_builder *b, dunlin_value x)
{
    x = add_chain(b, NULL, x, 3,
                  (const unit[]){{"Conv2d_1a_3x3", 32, 3, 3, 2, VALID},
                                 {"Conv2d_2a_3x3", 32, 3, 3, 1, VALID},
                                 {"Conv2d_2b_3x3", 64, 3, 3, 1, SAME}});
    x = dunlin_builder_max_pool(b, x, 3, 2, 0);
    x = add_chain(b, NULL, x, 2,
                  (const unit[]){{"Conv2d_3b_1x1", 80, 1, 1, 1, VALID},
                                 {"Conv2d_4a_3x3", 192, 3, 3, 1, VALID}});
    x = dunlin_builder_max_pool(b, x, 3, 2, 0);
    x = add_a(b, "Mixed_5b", x, 32);
    x = add_a(b, "Mixed_5c", x, 64);
    x = add_a(b, "Mixed_5d", x, 64);
    x = add_b(b, "Mixed_6a", x);
    x = add_c(b, "Mixed_6b", x, 128);
    x = add_c(b, "Mixed_6c", x, 160);
    x = add_c(b, "Mixed_6d", x, 160);
    x = add_c(b, "Mixed_6e", x, 192);
    return x;
}

static dunlin_value add_rest(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    x = add_d(b, "Mixed_7a", x);
    x = add_e(b, "Mixed_7b", x);
    x = add_e(b, "Mixed_7c", x);
    x = dunlin_builder_dropout(b, dunlin_builder_global_average_pool(b, x), 0.5f);
    x = dunlin_builder_dense(b, "fc", dunlin_builder_flatten(b, x), classes);
    dunlin__zoo_set_norms(b, 0.001f, 0.1f);
    dunlin__zoo_init_normal(b, 0.1f);
    return x;
}

dunlin_value dunlin__zoo_inception_v3(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_rest(b, add_stem(b, x), classes);
}

#define AUX_DEVIATION 0.001F /* of its last layer, as torchvision has it */

void dunlin__zoo_inception_v3_aux(dunlin_builder *b, dunlin_value x, int32_t classes,
                                  dunlin_value *outputs)
{
    x = add_stem(b, x);
    dunlin_value side = dunlin_builder_average_pool(b, x, 5, 3, 0);
    side = add_unit(b, "AuxLogits", &(unit){"conv0", 128, 1, 1, 1, VALID}, side);
    side = add_unit(b, "AuxLogits", &(unit){"conv1", 768, 5, 5, 1, VALID}, side);
    side = dunlin_builder_flatten(b, dunlin_builder_global_average_pool(b, side));
    outputs[1] = dunlin_builder_dense(b, "AuxLogits.fc", side, classes);
    outputs[0] = add_rest(b, x, classes);
    dunlin_net *net = dunlin__builder_net(b);
    for (uint32_t i = 0; net != NULL && i < net->n_params; i++) {
        if (strcmp(net->params[i].name, "AuxLogits.fc.weight") == 0) {
            net->params[i].bound = AUX_DEVIATION;
        }
    }
}
