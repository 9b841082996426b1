/*
 * zoo_vit.c - ViT-Ti (Dosovitskiy et al. 2021; its smallest form is that of Touvron et al. 2021,
 * DeiT-Ti): 12 layers of 192 features and 3 heads over patches of 16 x 16 pixels, or of 4 x 4 for
 * small images.
 *
 * Parameters are named, shaped and ordered as in timm's vit_tiny_patch16_224, layer norms have its
 * eps, and first values are its: deviation 0.02, of the patches PyTorch's own. No dropout, as timm.
 */
#include "zoo.h"

#include <dunlin/attention.h>

#include <stdio.h>
#include <string.h>

#define WIDTH 192
#define HEADS 3
#define N_LAYERS 12
#define EPS 1e-6F
#define DEVIATION 0.02F

static const char *name_of(char *out, int layer, const char *part)
{
    (void)snprintf(out, DUNLIN_NET_MAX_NAME + 1, "blocks.%d.%s", layer, part);
    return out;
}

static dunlin_value add_block(dunlin_builder *b, dunlin_value x, int layer)
{
    char name[DUNLIN_NET_MAX_NAME + 1];
    dunlin_value y = dunlin_builder_layer_norm(b, name_of(name, layer, "norm1"), x);
    y = dunlin_builder_dense(b, name_of(name, layer, "attn.qkv"), y, 3 * WIDTH);
    y = dunlin_builder_attention(b, &y, 1, HEADS, -1);
    y = dunlin_builder_dense(b, name_of(name, layer, "attn.proj"), y, WIDTH);
    x = dunlin_builder_add(b, x, y);
    y = dunlin_builder_layer_norm(b, name_of(name, layer, "norm2"), x);
    y = dunlin_builder_dense(b, name_of(name, layer, "mlp.fc1"), y, 4 * WIDTH);
    y = dunlin_builder_gelu(b, y);
    y = dunlin_builder_dense(b, name_of(name, layer, "mlp.fc2"), y, WIDTH);
    return dunlin_builder_add(b, x, y);
}

static void set_first_values(dunlin_net *net)
{
    for (uint32_t i = 0; net != NULL && i < net->n_params; i++) {
        if (strcmp(net->params[i].name, "pos_embed") == 0) {
            net->params[i].origin = DUNLIN_PARAM_NORMAL;
            net->params[i].bound = DEVIATION;
        }
    }
}

static dunlin_value add_vit(dunlin_builder *b, dunlin_value x, int32_t classes, int32_t patch,
                            const char *network)
{
    const dunlin_conv_options cut = {.struct_size = sizeof cut, .stride = patch};
    const dunlin_net *net = dunlin__builder_net(b);
    const int64_t image = net != NULL && x >= 0 ? net->values[x].shape.dims[1] : 0;
    if (image % patch != 0) {
        return dunlin__builder_fail(b,
                                    "%s: an image of %lld pixels a side is not made of patches "
                                    "of %d",
                                    network, (long long)image, (int)patch);
    }
    x = dunlin_builder_conv(b, "patch_embed.proj", x, WIDTH, patch, &cut);
    x = dunlin_builder_class_token(b, "cls_token", dunlin_builder_image_tokens(b, x));
    const int64_t side = image / patch;
    const dunlin_shape positions = {3, {1, side * side + 1, WIDTH}};
    x = dunlin_builder_add_parameter(b, "pos_embed", x, &positions);
    for (int layer = 0; layer < N_LAYERS; layer++) {
        x = add_block(b, x, layer);
    }
    /* Only the class token is read, so it alone is normalised. */
    x = dunlin_builder_flatten(b, dunlin_builder_slice(b, x, 0, 0, 1));
    x = dunlin_builder_layer_norm(b, "norm", x);
    x = dunlin_builder_dense(b, "head", x, classes);
    dunlin__zoo_init_dense(b, DEVIATION);
    dunlin__zoo_set_layer_norms(b, EPS);
    set_first_values(dunlin__builder_net(b));
    dunlin__zoo_put_first(b, "pos_embed");
    dunlin__zoo_put_first(b, "cls_token");
    return x;
}

dunlin_value dunlin__zoo_vit_tiny(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_vit(b, x, classes, 16, "vit_tiny");
}

dunlin_value dunlin__zoo_vit_tiny_patch4(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_vit(b, x, classes, 4, "vit_tiny_patch4");
}
