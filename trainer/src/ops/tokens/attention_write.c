/*
 * attention_write.c - attention in ONNX: there is no such operator below opset 23, so it is written
 * out in its parts, which the reader joins again (convert/rewrite/join_attention.c).
 */
#include "attention.h"
#include "ops/common/support.h"

#include <math.h>
#include <stdio.h>

typedef dunlin_attention_params attention_params;

/* A made-up name of something of q, k or v: "/k_heads". */
typedef struct part_name {
    char text[64];
} part_name;

static part_name named(uint32_t index, const char *what)
{
    part_name name;
    (void)snprintf(name.text, sizeof name.text, "/%c%.40s", "qkv"[index], what);
    return name;
}

static void add_named_ints(dunlin_onnx_writer *writer, uint32_t index, const char *what,
                           const int64_t *values, int32_t n)
{
    dunlin__onnx_add_ints(writer, named(index, what).text, values, n);
}

dunlin_status dunlin__attention_from_onnx(dunlin_onnx_node *onnx, dunlin_net *net,
                                          dunlin_net_node *node)
{
    (void)net;
    (void)node;
    return dunlin__onnx_reject(onnx, "", "is no operator of ONNX");
}

// NOLINTNEXTLINE(readability-function-size): the parts of one node
static void write_reshape(dunlin_onnx_writer *writer, const dunlin_net_node *node, uint32_t index,
                          const char *from, const char *shape_name, const int64_t *shape,
                          int32_t n_dims, const char *to)
{
    dunlin__onnx_begin_node(writer, "Reshape", node);
    dunlin__onnx_add_part(writer, named(index, from).text);
    add_named_ints(writer, index, shape_name, shape, n_dims);
    dunlin__onnx_end_part(writer, named(index, to).text);
}

static void write_transpose(dunlin_onnx_writer *writer, const dunlin_net_node *node,
                            const char *from, const int64_t perm[4], const char *to)
{
    dunlin__onnx_begin_node(writer, "Transpose", node);
    dunlin__onnx_add_part(writer, from);
    dunlin__onnx_attr_ints(writer, "perm", perm, 4);
    dunlin__onnx_end_part(writer, to);
}

/* Heads that several of q read, once for each: (N, kv_heads, keys, width) to (N, heads, ...). */
static void write_copies(dunlin_onnx_writer *writer, const attention_params *p,
                         const dunlin_net_node *node, uint32_t index, const char *from)
{
    const dunlin_attention_shape *s = &p->shape;
    const int64_t n_copies = s->heads / s->kv_heads;
    const int64_t wide[5] = {-1, s->kv_heads, 1, s->n_keys, s->width};
    const int64_t all[5] = {1, s->kv_heads, n_copies, s->n_keys, s->width};
    const int64_t each[4] = {-1, s->heads, s->n_keys, s->width};
    write_reshape(writer, node, index, from, "_wide_shape", wide, 5, "_wide");
    dunlin__onnx_begin_node(writer, "Expand", node);
    dunlin__onnx_add_part(writer, named(index, "_wide").text);
    add_named_ints(writer, index, "_all_shape", all, 5);
    dunlin__onnx_end_part(writer, named(index, "_all").text);
    write_reshape(writer, node, index, "_all", "_each_shape", each, 4, "_each");
}

/* Channels [start, end) of each head of "_turned". */
static void write_half(dunlin_onnx_writer *writer, const dunlin_net_node *node, uint32_t index,
                       int64_t start, int64_t end, const char *what)
{
    const int64_t axis = 3;
    char suffix[3][24];
    static const char *const endings[3] = {"_start", "_end", "_axis"};
    const int64_t *const values[3] = {&start, &end, &axis};
    dunlin__onnx_begin_node(writer, "Slice", node);
    dunlin__onnx_add_part(writer, named(index, "_turned").text);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(suffix[i], sizeof suffix[i], "%s%s", what, endings[i]);
        add_named_ints(writer, index, suffix[i], values[i], 1);
    }
    dunlin__onnx_end_part(writer, named(index, what).text);
}

/* "_placed": "_turned" with rotary positions. */
static void write_places(dunlin_onnx_writer *writer, const attention_params *p,
                         const dunlin_net_node *node, uint32_t index)
{
    const int64_t width = p->shape.width;
    write_half(writer, node, index, width / 2, width, "_second");
    dunlin__onnx_begin_node(writer, "Neg", node);
    dunlin__onnx_add_part(writer, named(index, "_second").text);
    dunlin__onnx_end_part(writer, named(index, "_negative").text);
    write_half(writer, node, index, 0, width / 2, "_first");
    dunlin__onnx_begin_node(writer, "Concat", node);
    dunlin__onnx_add_part(writer, named(index, "_negative").text);
    dunlin__onnx_add_part(writer, named(index, "_first").text);
    dunlin__onnx_attr_int(writer, "axis", 3);
    dunlin__onnx_end_part(writer, named(index, "_exchanged").text);
    dunlin__onnx_begin_node(writer, "Mul", node);
    dunlin__onnx_add_part(writer, named(index, "_turned").text);
    dunlin__onnx_add_param(writer, node->params[1]);
    dunlin__onnx_end_part(writer, named(index, "_cosines").text);
    dunlin__onnx_begin_node(writer, "Mul", node);
    dunlin__onnx_add_part(writer, named(index, "_exchanged").text);
    dunlin__onnx_add_param(writer, node->params[2]);
    dunlin__onnx_end_part(writer, named(index, "_sines").text);
    dunlin__onnx_begin_node(writer, "Add", node);
    dunlin__onnx_add_part(writer, named(index, "_cosines").text);
    dunlin__onnx_add_part(writer, named(index, "_sines").text);
    dunlin__onnx_end_part(writer, named(index, "_placed").text);
}

/* Part `index` of the packed input, or input `index`, as rows of heads: "_heads". */
static void write_split(dunlin_onnx_writer *writer, const attention_params *p,
                        const dunlin_net_node *node, uint32_t index)
{
    const dunlin_attention_shape *s = &p->shape;
    const int64_t heads = index == 0 ? s->heads : s->kv_heads;
    const int64_t before = index == 0 ? 0 : s->heads + (index == 1 ? 0 : s->kv_heads);
    const int64_t start = before * s->width;
    const int64_t end = start + heads * s->width;
    const int64_t axis = 2;
    const int64_t shape[4] = {-1, index == 0 ? s->n_queries : s->n_keys, heads, s->width};
    if (p->is_packed) {
        dunlin__onnx_begin_node(writer, "Slice", node);
        dunlin__onnx_add_value(writer, node->inputs[0]);
        add_named_ints(writer, index, "_start", &start, 1);
        add_named_ints(writer, index, "_end", &end, 1);
        add_named_ints(writer, index, "_axis", &axis, 1);
        dunlin__onnx_end_part(writer, named(index, "_part").text);
    }
    dunlin__onnx_begin_node(writer, "Reshape", node);
    if (p->is_packed) {
        dunlin__onnx_add_part(writer, named(index, "_part").text);
    } else {
        dunlin__onnx_add_value(writer, node->inputs[index]);
    }
    add_named_ints(writer, index, "_shape", shape, 4);
    dunlin__onnx_end_part(writer, named(index, "_heads").text);
}

/* One of q, k and v as (N, heads, tokens, width); keys as columns (N, heads, width, keys). Returns
 * what its name ends in. */
static const char *write_heads(dunlin_onnx_writer *writer, const attention_params *p,
                               const dunlin_net_node *node, uint32_t index)
{
    static const int64_t to_heads[4] = {0, 2, 1, 3};
    static const int64_t to_columns[4] = {0, 2, 3, 1};
    static const int64_t turn[4] = {0, 1, 3, 2};
    const bool is_shared = index > 0 && p->shape.heads != p->shape.kv_heads;
    const bool is_placed = index < 2 && p->has_tables;
    write_split(writer, p, node, index);
    if (!is_shared && !is_placed) {
        write_transpose(writer, node, named(index, "_heads").text,
                        index == 1 ? to_columns : to_heads, named(index, "").text);
        return "";
    }
    const char *last = "_turned";
    write_transpose(writer, node, named(index, "_heads").text, to_heads, named(index, last).text);
    if (is_placed) {
        write_places(writer, p, node, index);
        last = "_placed";
    }
    if (is_shared) {
        write_copies(writer, p, node, index, last);
        last = "_each";
    }
    if (index == 1) {
        write_transpose(writer, node, named(index, last).text, turn, named(index, "").text);
        return "";
    }
    return last;
}

/* The mask as (N, 1, rows, keys). */
static bool is_mask_spread(const attention_params *p, const dunlin_net_value *mask)
{
    const dunlin_shape *shape = &mask->shape;
    return shape->n_dims == 3 && shape->dims[0] == 1 && shape->dims[1] == p->shape.mask_rows &&
           shape->dims[2] == p->shape.n_keys;
}

/* scores + the input's own mask */
static void write_mask(dunlin_onnx_writer *writer, const attention_params *p, const dunlin_net *net,
                       const dunlin_net_node *node, const char *scores)
{
    const uint32_t mask = node->inputs[node->n_inputs - 1];
    const bool is_spread = is_mask_spread(p, &net->values[mask]);
    if (!is_spread) {
        const int64_t shape[4] = {-1, 1, p->shape.mask_rows, p->shape.n_keys};
        dunlin__onnx_begin_node(writer, "Reshape", node);
        dunlin__onnx_add_value(writer, mask);
        dunlin__onnx_add_ints(writer, "/mask_shape", shape, 4);
        dunlin__onnx_end_part(writer, "/mask");
    }
    dunlin__onnx_begin_node(writer, "Add", node);
    dunlin__onnx_add_part(writer, scores);
    if (is_spread) {
        dunlin__onnx_add_value(writer, mask);
    } else {
        dunlin__onnx_add_part(writer, "/mask");
    }
    dunlin__onnx_end_part(writer, "/masked");
}

/* The first node that needs a triangle of this size: it writes it for all. */
static const dunlin_net_node *owner_of_triangle(const dunlin_net *net, const attention_params *p,
                                                const dunlin_net_node *node)
{
    for (size_t i = 0; i < net->n_nodes && &net->nodes[i] != node; i++) {
        const dunlin_net_node *other = &net->nodes[i];
        if (other->kind == DUNLIN_OP_ATTENTION && other->u.attention.is_causal &&
            dunlin__attention_params_of(net, other).shape.n_keys == p->shape.n_keys) {
            return other;
        }
    }
    return node;
}

/* Minus infinity for keys ahead, zero elsewhere: made by the file itself. */
static void write_triangle(dunlin_onnx_writer *writer, const attention_params *p,
                           const dunlin_net_node *node)
{
    const int64_t shape[2] = {p->shape.n_queries, p->shape.n_keys};
    dunlin__onnx_begin_node(writer, "Expand", node);
    dunlin__onnx_add_scalar(writer, "/lowest", -HUGE_VALF);
    dunlin__onnx_add_ints(writer, "/ahead_shape", shape, 2);
    dunlin__onnx_end_part(writer, "/never");
    dunlin__onnx_begin_node(writer, "Trilu", node);
    dunlin__onnx_add_part(writer, "/never");
    dunlin__onnx_add_whole(writer, "/first_ahead", 1);
    dunlin__onnx_attr_int(writer, "upper", 1);
    dunlin__onnx_end_part(writer, "/ahead");
}

/* scores + the triangle */
static void write_causal(dunlin_onnx_writer *writer, const attention_params *p,
                         const dunlin_net *net, const dunlin_net_node *node, const char *scores)
{
    const dunlin_net_node *owner = owner_of_triangle(net, p, node);
    if (owner == node) {
        write_triangle(writer, p, node);
    }
    dunlin__onnx_begin_node(writer, "Add", node);
    dunlin__onnx_add_part(writer, scores);
    dunlin__onnx_add_part_of(writer, owner, "/ahead");
    dunlin__onnx_end_part(writer, "/back");
}

/* The name of what the softmax reads. */
static const char *write_scores(dunlin_onnx_writer *writer, const attention_params *p,
                                const dunlin_net *net, const dunlin_net_node *node, const char *q)
{
    const char *scores = "/scores";
    dunlin__onnx_begin_node(writer, "MatMul", node);
    dunlin__onnx_add_part(writer, named(0, q).text);
    dunlin__onnx_add_part(writer, "/k");
    dunlin__onnx_end_part(writer, "/products");
    dunlin__onnx_begin_node(writer, "Mul", node);
    dunlin__onnx_add_part(writer, "/products");
    dunlin__onnx_add_scalar(writer, "/scale", p->shape.scale);
    dunlin__onnx_end_part(writer, scores);
    if (p->has_fixed) {
        dunlin__onnx_begin_node(writer, "Add", node);
        dunlin__onnx_add_part(writer, scores);
        dunlin__onnx_add_param(writer, node->params[0]);
        scores = "/fixed";
        dunlin__onnx_end_part(writer, scores);
    }
    if (p->shape.is_causal) {
        write_causal(writer, p, net, node, scores);
        scores = "/back";
    }
    if (p->has_mask) {
        write_mask(writer, p, net, node, scores);
        scores = "/masked";
    }
    return scores;
}

void dunlin__attention_to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net,
                               const dunlin_net_node *node)
{
    const attention_params p = dunlin__attention_params_of(net, node);
    const char *ends[DUNLIN_ATTENTION_MAX_PARTS];
    for (uint32_t i = 0; i < DUNLIN_ATTENTION_MAX_PARTS; i++) {
        ends[i] = write_heads(writer, &p, node, i);
    }
    const char *scores = write_scores(writer, &p, net, node, ends[0]);
    dunlin__onnx_begin_node(writer, "Softmax", node);
    dunlin__onnx_add_part(writer, scores);
    dunlin__onnx_attr_int(writer, "axis", -1);
    dunlin__onnx_end_part(writer, "/softmax");
    dunlin__onnx_begin_node(writer, "MatMul", node);
    dunlin__onnx_add_part(writer, "/softmax");
    dunlin__onnx_add_part(writer, named(2, ends[2]).text);
    dunlin__onnx_end_part(writer, "/heads");
    static const int64_t perm[4] = {0, 2, 1, 3};
    write_transpose(writer, node, "/heads", perm, "/tokens");
    const int64_t shape[3] = {-1, p.shape.n_queries, (int64_t)p.shape.heads * p.shape.width};
    dunlin__onnx_begin_node(writer, "Reshape", node);
    dunlin__onnx_add_part(writer, "/tokens");
    dunlin__onnx_add_ints(writer, "/shape", shape, 3);
    dunlin__onnx_end_node(writer);
}
