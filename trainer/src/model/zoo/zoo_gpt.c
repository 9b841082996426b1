/*
 * zoo_gpt.c - GPTs that predict the next token (Radford et al. 2019, "Language Models are
 * Unsupervised Multitask Learners"): learned positions, normalised before each half, GELU, and a
 * head that is the table of the tokens (Press and Wolf 2017).
 *
 * Parameters are named as in GPT-2; weights are (out, in), as PyTorch's Linear has them. First
 * values are GPT-2's: deviation 0.02, of what is added to the residual sum less.
 */
#include "zoo.h"

#include <dunlin/attention.h>
#include <dunlin/pixels.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define N_LAYERS 4
#define DEVIATION 0.02

static const char *name_of(char *out, int layer, const char *part)
{
    (void)snprintf(out, DUNLIN_NET_MAX_NAME + 1, "h.%d.%s", layer, part);
    return out;
}

static dunlin_value add_block(dunlin_builder *b, dunlin_value x, int layer, int32_t width,
                              int32_t heads)
{
    char name[DUNLIN_NET_MAX_NAME + 1];
    dunlin_attention_options causal = DUNLIN_ATTENTION_OPTIONS_INIT;
    causal.is_causal = true;
    dunlin_value y = dunlin_builder_layer_norm(b, name_of(name, layer, "ln_1"), x);
    y = dunlin_builder_dense(b, name_of(name, layer, "attn.c_attn"), y, 3 * width);
    y = dunlin_builder_attention_with(b, NULL, &y, 1, heads, &causal);
    y = dunlin_builder_dense(b, name_of(name, layer, "attn.c_proj"), y, width);
    x = dunlin_builder_add(b, x, y);
    y = dunlin_builder_layer_norm(b, name_of(name, layer, "ln_2"), x);
    y = dunlin_builder_dense(b, name_of(name, layer, "mlp.c_fc"), y, 4 * width);
    y = dunlin_builder_gelu(b, y);
    y = dunlin_builder_dense(b, name_of(name, layer, "mlp.c_proj"), y, width);
    return dunlin_builder_add(b, x, y);
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name);
    const size_t n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

static void set_first_values(dunlin_net *net)
{
    for (uint32_t i = 0; net != NULL && i < net->n_params; i++) {
        dunlin_net_param *param = &net->params[i];
        if (param->origin == DUNLIN_PARAM_CONSTANT && param->shape.n_dims == 1) {
            continue; /* layer norms */
        }
        const bool is_residual = ends_with(param->name, "c_proj.weight");
        param->origin = param->shape.n_dims > 1 ? DUNLIN_PARAM_NORMAL : DUNLIN_PARAM_CONSTANT;
        param->bound = param->shape.n_dims < 2 ? 0.0F
                       : is_residual           ? (float)(DEVIATION / sqrt(2.0 * N_LAYERS))
                                               : (float)DEVIATION;
    }
}

static dunlin_value add_gpt(dunlin_builder *b, dunlin_value x, const dunlin_zoo_options *options,
                            int32_t width, int32_t heads)
{
    const dunlin_shape positions = {2, {options->sequence, width}};
    x = dunlin_builder_embedding(b, "wte", x, options->vocabulary, width);
    x = dunlin_builder_add_parameter(b, "wpe.weight", x, &positions);
    for (int layer = 0; layer < N_LAYERS; layer++) {
        x = add_block(b, x, layer, width, heads);
    }
    x = dunlin_builder_layer_norm(b, "ln_f", x);
    x = dunlin_builder_dense_tied(b, "lm_head", x, "wte.weight");
    set_first_values(dunlin__builder_net(b));
    return x;
}

dunlin_value dunlin__zoo_gpt_tiny(dunlin_builder *b, dunlin_value x,
                                  const dunlin_zoo_options *options)
{
    return add_gpt(b, x, options, 128, 4);
}

dunlin_value dunlin__zoo_gpt_small(dunlin_builder *b, dunlin_value x,
                                   const dunlin_zoo_options *options)
{
    return add_gpt(b, x, options, 512, 8);
}
