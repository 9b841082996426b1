/*
 * builder_attention.c - layers of decoders: attention with its options, RMSNorm.
 *
 * Invariant: as in builder.c, nothing happens after the first error.
 */
#include "builder.h"

#include <dunlin/attention.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <math.h>
#include <string.h>

/* A parameter of the node that is never trained, with its values. */
static void add_values(dunlin_builder *builder, uint32_t index, const char *name,
                       const char *suffix, const dunlin_shape *shape, const float *values)
{
    int64_t n = 0;
    dunlin_net_param *param = dunlin__builder_param(builder, index, name, suffix, shape);
    if (param == NULL) {
        return;
    }
    dunlin_net *net = dunlin__builder_net(builder);
    param->is_fixed_by_file = true;
    param->n_elements = dunlin_shape_count(shape, &n) == DUNLIN_OK ? n : 0;
    if (!dunlin__net_set_values(net, (uint32_t)(param - net->params), values)) {
        (void)dunlin__builder_refuse(builder, "no memory for constants");
    }
}

/* The mask that all examples share becomes the node's parameter, which is never trained. */
static void add_fixed_mask(dunlin_builder *builder, const char *name,
                           const dunlin_attention_options *o)
{
    int64_t n = 0;
    if (dunlin_shape_count(&o->fixed_mask_shape, &n) != DUNLIN_OK || n < 1) {
        (void)dunlin__builder_refuse(builder,
                                     "the shape of a constant mask has no elements, or too "
                                     "many");
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(o->fixed_mask[i])) {
            (void)dunlin__builder_refuse(builder, "a number of a constant mask is not finite");
            return;
        }
    }
    add_values(builder, 0, name, "mask", &o->fixed_mask_shape, o->fixed_mask);
}

/* Tables of rotary positions: both halves of a head have the same angles. */
static void add_tables(dunlin_builder *builder, const char *name, float base, int64_t tokens,
                       int64_t width)
{
    const dunlin_shape shape = {2, {tokens, width}};
    int64_t n = 0;
    if (!(base > 0.0F) || !isfinite(base) || width % 2 != 0 ||
        dunlin_shape_count(&shape, &n) != DUNLIN_OK || n < 1) {
        (void)dunlin__builder_refuse(builder,
                                     "rotary positions need a base above 0 and heads of an "
                                     "even width");
        return;
    }
    const dunlin_alloc alloc = dunlin__builder_net(builder)->alloc;
    float *values = dunlin__alloc_array(&alloc, (size_t)n, sizeof *values);
    if (values == NULL) {
        (void)dunlin__builder_refuse(builder, "no memory for rotary positions");
        return;
    }
    const int64_t half = width / 2;
    for (uint32_t slot = 1; slot <= 2; slot++) {
        for (int64_t i = 0; i < n; i++) {
            const int64_t token = i / width;
            const double pair = (double)(i % width % half);
            const double angle = (double)token * pow((double)base, -2.0 * pair / (double)width);
            values[i] = (float)(slot == 1 ? cos(angle) : sin(angle));
        }
        add_values(builder, slot, name, slot == 1 ? "cos" : "sin", &shape, values);
    }
    dunlin__free_array(&alloc, values, (size_t)n, sizeof *values);
}

/* The width of a head of q; 1 where the sizes make none, which the node's inference refuses. */
static double head_width(const dunlin_net *net, const dunlin_net_node *node, bool is_packed)
{
    const dunlin_net_attention *a = &node->u.attention;
    const dunlin_shape *q = &net->values[node->inputs[0]].shape;
    const int64_t kv_heads = a->kv_heads == 0 ? a->heads : a->kv_heads;
    const int64_t heads = is_packed ? a->heads + 2 * kv_heads : a->heads;
    const int64_t width = q->n_dims > 0 && heads > 0 ? q->dims[q->n_dims - 1] / heads : 0;
    return width > 0 ? (double)width : 1.0;
}

dunlin_value dunlin_builder_attention_with(dunlin_builder *builder, const char *name,
                                           const dunlin_value *qkv, int32_t n_qkv, int32_t heads,
                                           const dunlin_attention_options *options)
{
    dunlin_attention_options o = DUNLIN_ATTENTION_OPTIONS_INIT;
    dunlin_error error = {0};
    dunlin_value inputs[4] = {-1, -1, -1, -1};
    const int32_t n = n_qkv == 1 ? 1 : 3;
    if (options != NULL &&
        DUNLIN_STRUCT_TAKE(dunlin_attention_options, options, &o, &error) != DUNLIN_OK) {
        return dunlin__builder_refuse(builder, error.text);
    }
    if (n_qkv != n || qkv == NULL) {
        return dunlin__builder_refuse(builder, "attention takes q, k and v, or all in one value");
    }
    memcpy(inputs, qkv, (size_t)n * sizeof inputs[0]);
    inputs[n] = o.has_mask ? o.mask : -1;
    const bool has_name = o.fixed_mask != NULL || o.rotary_base != 0.0F;
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_ATTENTION, has_name && name == NULL ? "" : name,
                              "attention", inputs, o.has_mask ? n + 1 : n);
    if (node == NULL) {
        return -1;
    }
    node->u.attention = (dunlin_net_attention){.heads = heads,
                                               .kv_heads = o.kv_heads == heads ? 0 : o.kv_heads,
                                               .scale = o.scale,
                                               .has_mask = o.has_mask,
                                               .is_causal = o.is_causal};
    const dunlin_net *net = dunlin__builder_net(builder);
    const double width = head_width(net, node, n == 1);
    const dunlin_shape *q = &net->values[node->inputs[0]].shape;
    const int64_t tokens = q->n_dims > 0 ? q->dims[0] : 0;
    if (o.scale == 0.0F) {
        node->u.attention.scale = (float)(1.0 / sqrt(width));
    }
    node->params[0] = DUNLIN_NET_NONE;
    if (o.rotary_base != 0.0F) {
        add_tables(builder, name, o.rotary_base, tokens, (int64_t)width);
    }
    if (o.fixed_mask != NULL) {
        add_fixed_mask(builder, name, &o);
    }
    return dunlin__builder_end(builder);
}

static dunlin_value add_function(dunlin_builder *builder, const char *kind_name, dunlin_value input,
                                 dunlin_unary_fn fn, float a, float b)
{
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_UNARY, NULL, kind_name, &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.unary.fn = fn;
    node->u.unary.a = a;
    node->u.unary.b = b;
    return dunlin__builder_end(builder);
}

/* (min(|token - padding|, 1) - 1) * 1e9: of whole numbers the distance is 0, or 1 and more. */
dunlin_value dunlin_builder_padding_mask(dunlin_builder *builder, dunlin_value tokens,
                                         int32_t padding)
{
    const float hidden = 1e9F;
    dunlin_value x = tokens;
    if (padding != 0) {
        x = add_function(builder, "distance", x, DUNLIN_UNARY_AFFINE, 1.0F, -(float)padding);
    }
    x = add_function(builder, "length", x, DUNLIN_UNARY_ABS, 0.0F, 0.0F);
    dunlin_net_node *node = dunlin__builder_begin(builder, DUNLIN_OP_CLIP, NULL, "seen", &x, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.clip.low = 0.0F;
    node->u.clip.high = 1.0F;
    x = dunlin__builder_end(builder);
    return add_function(builder, "padding", x, DUNLIN_UNARY_AFFINE, hidden, -hidden);
}

dunlin_value dunlin_builder_rms_norm(dunlin_builder *builder, const char *name, dunlin_value input,
                                     float eps)
{
    dunlin_net_node *node = dunlin__builder_begin(builder, DUNLIN_OP_LAYER_NORM,
                                                  name == NULL ? "" : name, "", &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.layer_norm.eps = eps == 0.0F ? 1e-5F : eps;
    node->u.layer_norm.is_about_zero = true;
    const dunlin_shape *x = &dunlin__builder_net(builder)->values[input].shape;
    const dunlin_shape shape = {1, {x->n_dims > 0 ? x->dims[x->n_dims - 1] : 1}};
    dunlin_net_param *scale = dunlin__builder_param(builder, 0, name, "weight", &shape);
    if (scale != NULL) {
        scale->origin = DUNLIN_PARAM_CONSTANT;
        scale->bound = 1.0F;
    }
    return dunlin__builder_end(builder);
}
