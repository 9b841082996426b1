/*
 * zoo_bert.c - a small BERT for classification (Devlin et al. 2018, in the size of Turc et al.
 * 2019): 4 layers of 512 features and 8 heads, normalised after each half, no dropout.
 *
 * Parameters are named, shaped and ordered as in the PyTorch module of the benchmarks: q, k and v
 * from one dense layer, learned positions.
 */
#include "zoo.h"

#include <stdio.h>
#include <string.h>

#define WIDTH 512
#define HEADS 8
#define N_LAYERS 4

/* "features.I.part" */
static const char *name_of(char *out, int layer, const char *part)
{
    (void)snprintf(out, DUNLIN_NET_MAX_NAME + 1, "features.%d.%s", layer, part);
    return out;
}

static dunlin_value add_block(dunlin_builder *b, dunlin_value x, int layer)
{
    char name[DUNLIN_NET_MAX_NAME + 1];
    dunlin_value y = dunlin_builder_dense(b, name_of(name, layer, "qkv"), x, 3 * WIDTH);
    y = dunlin_builder_attention(b, &y, 1, HEADS, -1);
    y = dunlin_builder_dense(b, name_of(name, layer, "o"), y, WIDTH);
    x = dunlin_builder_layer_norm(b, name_of(name, layer, "n1"), dunlin_builder_add(b, x, y));
    y = dunlin_builder_dense(b, name_of(name, layer, "f1"), x, 4 * WIDTH);
    y = dunlin_builder_gelu(b, y);
    y = dunlin_builder_dense(b, name_of(name, layer, "f2"), y, WIDTH);
    return dunlin_builder_layer_norm(b, name_of(name, layer, "n2"), dunlin_builder_add(b, x, y));
}

/* The place of a parameter in PyTorch's order: `pos` first, then by module as they were declared.
 */
static int rank_of(const char *name)
{
    static const char *const heads[] = {"pos", "tok.", "n.", "features.", "pool.", "classifier."};
    static const char *const parts[] = {"qkv.", "o.", "f1.", "f2.", "n1.", "n2."};
    for (int i = 0; i < 6; i++) {
        if (strncmp(name, heads[i], strlen(heads[i])) != 0) {
            continue;
        }
        int rank = 100 * i;
        if (i == 3) {
            const char *part = name + strlen("features.0.");
            for (int k = 0; k < 6; k++) {
                rank += strncmp(part, parts[k], strlen(parts[k])) == 0 ? 2 * k : 0;
            }
            rank += 12 * (name[strlen("features.")] - '0');
        }
        return 2 * rank + (strstr(name, "bias") != NULL ? 1 : 0);
    }
    return 0;
}

static void sort_params(dunlin_net *net)
{
    for (uint32_t i = 1; net != NULL && i < net->n_params; i++) {
        for (uint32_t k = i;
             k > 0 && rank_of(net->params[k].name) < rank_of(net->params[k - 1].name); k--) {
            dunlin__zoo_swap_params(net, k, k - 1);
        }
    }
}

dunlin_value dunlin__zoo_bert_small(dunlin_builder *b, dunlin_value x,
                                    const dunlin_zoo_options *options)
{
    const dunlin_shape positions = {2, {options->sequence, WIDTH}};
    const dunlin_shape row = {1, {WIDTH}};
    x = dunlin_builder_embedding(b, "tok", x, options->vocabulary, WIDTH);
    x = dunlin_builder_add_parameter(b, "pos", x, &positions);
    x = dunlin_builder_layer_norm(b, "n", x);
    for (int layer = 0; layer < N_LAYERS; layer++) {
        x = add_block(b, x, layer);
    }
    /* The first token stands for the whole. */
    x = dunlin_builder_reshape(b, dunlin_builder_slice(b, x, 0, 0, 1), &row);
    x = dunlin_builder_tanh(b, dunlin_builder_dense(b, "pool", x, WIDTH));
    x = dunlin_builder_dense(b, "classifier", x, options->classes);
    sort_params(dunlin__builder_net(b));
    return x;
}
