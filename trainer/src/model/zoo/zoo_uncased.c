/*
 * zoo_uncased.c - BERTs for classification with a mask of padding (Devlin et al. 2018, in two of
 * the sizes of Turc et al. 2019, "Well-Read Students Learn Better"): those of the published
 * checkpoints google/bert_uncased_L-2_H-128_A-2 and L-4_H-512_A-8 with a classifier on the pooled
 * first token.
 *
 * Parameters are named, shaped and ordered as in transformers' BertForSequenceClassification. Token
 * 0 is padding, which no token looks at. All tokens are of the first segment. Dropout is as there,
 * but for that of attention's probabilities, which is left out.
 */
#include "zoo.h"

#include <dunlin/attention.h>

#include <stdio.h>
#include <string.h>

#define N_POSITIONS 512
#define N_SEGMENTS 2
#define PADDING 0
#define EPS 1e-12F
#define DROPPED 0.1F
#define DEVIATION 0.02F

typedef struct bert_size {
    const char *name;
    int n_layers;
    int32_t width, heads;
} bert_size;

static const char *name_of(char *out, int layer, const char *part)
{
    (void)snprintf(out, DUNLIN_NET_MAX_NAME + 1, "bert.encoder.layer.%d.%s", layer, part);
    return out;
}

/* The rows of a table for 0, step, 2 step, ...: for each token one. */
static dunlin_value add_table(dunlin_builder *b, const char *name, float step, int64_t rows,
                              const dunlin_zoo_options *options, int32_t width)
{
    const dunlin_net *net = dunlin__builder_net(b);
    const dunlin_value input = net == NULL ? -1 : (dunlin_value)net->input;
    char rows_name[DUNLIN_NET_MAX_NAME + 1];
    (void)snprintf(rows_name, sizeof rows_name, "%s/rows", name);
    dunlin_net_node *node = dunlin__builder_begin(b, DUNLIN_OP_RAMP, rows_name, "", &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.ramp.n = options->sequence;
    node->u.ramp.step = step;
    const dunlin_value value = dunlin__builder_end(b);
    dunlin_net *own = dunlin__builder_net(b);
    if (own != NULL && value >= 0) { /* as the reader of files calls it */
        (void)snprintf(rows_name, sizeof rows_name, "%s/out/rows", name);
        const char *text = dunlin__net_string(own, rows_name);
        own->values[value].name = text != NULL ? text : own->values[value].name;
    }
    return dunlin_builder_embedding(b, name, value, rows, width);
}

static dunlin_value add_embeddings(dunlin_builder *b, dunlin_value tokens,
                                   const dunlin_zoo_options *options, int32_t width)
{
    dunlin_value x = dunlin_builder_embedding(b, "bert.embeddings.word_embeddings", tokens,
                                              options->vocabulary, width);
    const dunlin_value places =
        add_table(b, "bert.embeddings.position_embeddings", 1.0F, N_POSITIONS, options, width);
    const dunlin_value segments =
        add_table(b, "bert.embeddings.token_type_embeddings", 0.0F, N_SEGMENTS, options, width);
    x = dunlin_builder_add(b, dunlin_builder_add(b, x, segments), places);
    x = dunlin_builder_layer_norm(b, "bert.embeddings.LayerNorm", x);
    return dunlin_builder_dropout(b, x, DROPPED);
}

/* One half of a layer: what it makes of x is added to x, and normalised. */
static dunlin_value add_rest(dunlin_builder *b, dunlin_value x, dunlin_value y, int layer,
                             const char *part, int32_t width)
{
    char name[DUNLIN_NET_MAX_NAME + 1];
    char whole[DUNLIN_NET_MAX_NAME + 1];
    y = dunlin_builder_dense(b, name_of(name, layer, dunlin__zoo_name(whole, part, "dense")), y,
                             width);
    y = dunlin_builder_add(b, dunlin_builder_dropout(b, y, DROPPED), x);
    return dunlin_builder_layer_norm(
        b, name_of(name, layer, dunlin__zoo_name(whole, part, "LayerNorm")), y);
}

static dunlin_value add_layer(dunlin_builder *b, dunlin_value x, int layer, const bert_size *size,
                              const dunlin_attention_options *masked)
{
    static const char *const parts[3] = {"attention.self.query", "attention.self.key",
                                         "attention.self.value"};
    char name[DUNLIN_NET_MAX_NAME + 1];
    dunlin_value qkv[3];
    for (int i = 0; i < 3; i++) {
        qkv[i] = dunlin_builder_dense(b, name_of(name, layer, parts[i]), x, size->width);
    }
    dunlin_value y = dunlin_builder_attention_with(b, NULL, qkv, 3, size->heads, masked);
    x = add_rest(b, x, y, layer, "attention.output", size->width);
    y = dunlin_builder_dense(b, name_of(name, layer, "intermediate.dense"), x, 4 * size->width);
    return add_rest(b, x, dunlin_builder_gelu(b, y), layer, "output", size->width);
}

/* Of matrices normal, of biases zero; those of layer norms stay. */
static void set_first_values(dunlin_builder *b)
{
    dunlin_net *net = dunlin__builder_net(b);
    dunlin__zoo_init_dense(b, DEVIATION);
    for (uint32_t i = 0; net != NULL && i < net->n_params; i++) {
        if (strstr(net->params[i].name, "_embeddings.weight") != NULL) {
            net->params[i].bound = DEVIATION;
        }
    }
}

static dunlin_value add_bert(dunlin_builder *b, dunlin_value tokens,
                             const dunlin_zoo_options *options, const bert_size *size)
{
    const dunlin_shape keys = {3, {1, 1, options->sequence}};
    dunlin_attention_options masked = DUNLIN_ATTENTION_OPTIONS_INIT;
    if (options->sequence > N_POSITIONS) {
        return dunlin__builder_fail(b, "%s: examples of %d tokens; its table of positions has %d",
                                    size->name, (int)options->sequence, N_POSITIONS);
    }
    dunlin_value x = add_embeddings(b, tokens, options, size->width);
    masked.has_mask = true;
    masked.mask = dunlin_builder_padding_mask(b, tokens, PADDING);
    masked.mask = dunlin_builder_reshape(b, masked.mask, &keys);
    for (int layer = 0; layer < size->n_layers; layer++) {
        x = add_layer(b, x, layer, size, &masked);
    }
    x = dunlin_builder_flatten(b, dunlin_builder_slice(b, x, 0, 0, 1));
    x = dunlin_builder_tanh(b, dunlin_builder_dense(b, "bert.pooler.dense", x, size->width));
    x = dunlin_builder_dropout(b, x, DROPPED);
    x = dunlin_builder_dense(b, "classifier", x, options->classes);
    set_first_values(b);
    dunlin__zoo_set_layer_norms(b, EPS);
    return x;
}

dunlin_value dunlin__zoo_bert_tiny(dunlin_builder *b, dunlin_value x,
                                   const dunlin_zoo_options *options)
{
    return add_bert(b, x, options, &(bert_size){"bert_tiny", 2, 128, 2});
}

dunlin_value dunlin__zoo_bert_small_masked(dunlin_builder *b, dunlin_value x,
                                           const dunlin_zoo_options *options)
{
    return add_bert(b, x, options, &(bert_size){"bert_small_masked", 4, 512, 8});
}
