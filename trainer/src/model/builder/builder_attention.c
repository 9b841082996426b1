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
    dunlin_net_param *param = dunlin__builder_param(builder, 0, name, "mask", &o->fixed_mask_shape);
    if (param == NULL) {
        return;
    }
    dunlin_net *net = dunlin__builder_net(builder);
    param->n_elements = n;
    param->is_fixed_by_file = true;
    if (!dunlin__net_set_values(net, (uint32_t)(param - net->params), o->fixed_mask)) {
        (void)dunlin__builder_refuse(builder, "no memory for a constant mask");
    }
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
    dunlin_net_node *node = dunlin__builder_begin(builder, DUNLIN_OP_ATTENTION,
                                                  o.fixed_mask != NULL && name == NULL ? "" : name,
                                                  "attention", inputs, o.has_mask ? n + 1 : n);
    if (node == NULL) {
        return -1;
    }
    node->u.attention = (dunlin_net_attention){.heads = heads,
                                               .kv_heads = o.kv_heads == heads ? 0 : o.kv_heads,
                                               .scale = o.scale,
                                               .has_mask = o.has_mask,
                                               .is_causal = o.is_causal};
    if (o.scale == 0.0F) {
        const double width = head_width(dunlin__builder_net(builder), node, n == 1);
        node->u.attention.scale = (float)(1.0 / sqrt(width));
    }
    if (o.fixed_mask != NULL) {
        add_fixed_mask(builder, name, &o);
    }
    return dunlin__builder_end(builder);
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
