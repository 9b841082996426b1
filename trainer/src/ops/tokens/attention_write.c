/*
 * attention_write.c - attention in ONNX: there is no such operator below opset 23, so it is written
 * out in its parts, which the reader joins again (convert/rewrite/join_attention.c).
 */
#include "attention.h"
#include "ops/common/support.h"

#include <math.h>

typedef dunlin_attention_params attention_params;

/* Made-up names of one of q, k and v. */
typedef struct part_names {
    const char *cut, *start, *end, *axis; /* of the packed input */
    const char *shape, *split;            /* into heads */
    const char *turned;
    const char *wide_shape, *wide;   /* shared heads: a dimension for the copies */
    const char *all_sizes, *all;     /* repeated */
    const char *heads_shape, *heads; /* as heads again */
    const char *columns;             /* keys, tokens as columns */
} part_names;

#define PART_NAMES(x)                                                                              \
    {                                                                                              \
        "/" x "_part", "/" x "_start", "/" x "_end", "/" x "_axis", "/" x "_shape",                \
            "/" x "_heads", "/" x "_turned", "/" x "_wide_shape", "/" x "_wide",                   \
            "/" x "_all_shape", "/" x "_all", "/" x "_each_shape", "/" x "_each", "/" x            \
    }

static const part_names names_of[DUNLIN_ATTENTION_MAX_PARTS] = {PART_NAMES("q"), PART_NAMES("k"),
                                                                PART_NAMES("v")};

dunlin_status dunlin__attention_from_onnx(dunlin_onnx_node *onnx, dunlin_net *net,
                                          dunlin_net_node *node)
{
    (void)net;
    (void)node;
    return dunlin__onnx_reject(onnx, "", "is no operator of ONNX");
}

static void write_reshape(dunlin_onnx_writer *writer, const dunlin_net_node *node, const char *from,
                          const char *shape_name, const int64_t *shape, int32_t n_dims,
                          const char *to)
{
    dunlin__onnx_begin_node(writer, "Reshape", node);
    dunlin__onnx_add_part(writer, from);
    dunlin__onnx_add_ints(writer, shape_name, shape, n_dims);
    dunlin__onnx_end_part(writer, to);
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
                         const dunlin_net_node *node, const part_names *names)
{
    const dunlin_attention_shape *s = &p->shape;
    const int64_t n_copies = s->heads / s->kv_heads;
    const int64_t wide[5] = {-1, s->kv_heads, 1, s->n_keys, s->width};
    const int64_t all[5] = {1, s->kv_heads, n_copies, s->n_keys, s->width};
    const int64_t each[4] = {-1, s->heads, s->n_keys, s->width};
    write_reshape(writer, node, names->turned, names->wide_shape, wide, 5, names->wide);
    dunlin__onnx_begin_node(writer, "Expand", node);
    dunlin__onnx_add_part(writer, names->wide);
    dunlin__onnx_add_ints(writer, names->all_sizes, all, 5);
    dunlin__onnx_end_part(writer, names->all);
    write_reshape(writer, node, names->all, names->heads_shape, each, 4, names->heads);
}

/* Part `index` of the packed input, or input `index`, as (N, heads, tokens, width); keys as columns
 * (N, heads, width, keys). */
static void write_heads(dunlin_onnx_writer *writer, const attention_params *p,
                        const dunlin_net_node *node, uint32_t index)
{
    static const int64_t to_heads[4] = {0, 2, 1, 3};
    static const int64_t to_columns[4] = {0, 2, 3, 1};
    static const int64_t turn[4] = {0, 1, 3, 2};
    const part_names *names = &names_of[index];
    const dunlin_attention_shape *s = &p->shape;
    const int64_t heads = index == 0 ? s->heads : s->kv_heads;
    const int64_t before = index == 0 ? 0 : s->heads + (index == 1 ? 0 : s->kv_heads);
    if (p->is_packed) {
        const int64_t start = before * s->width;
        const int64_t end = start + heads * s->width;
        const int64_t axis = 2;
        dunlin__onnx_begin_node(writer, "Slice", node);
        dunlin__onnx_add_value(writer, node->inputs[0]);
        dunlin__onnx_add_ints(writer, names->start, &start, 1);
        dunlin__onnx_add_ints(writer, names->end, &end, 1);
        dunlin__onnx_add_ints(writer, names->axis, &axis, 1);
        dunlin__onnx_end_part(writer, names->cut);
    }
    const int64_t shape[4] = {-1, index == 0 ? s->n_queries : s->n_keys, heads, s->width};
    dunlin__onnx_begin_node(writer, "Reshape", node);
    if (p->is_packed) {
        dunlin__onnx_add_part(writer, names->cut);
    } else {
        dunlin__onnx_add_value(writer, node->inputs[index]);
    }
    dunlin__onnx_add_ints(writer, names->shape, shape, 4);
    dunlin__onnx_end_part(writer, names->split);
    if (index == 0 || s->heads == s->kv_heads) {
        write_transpose(writer, node, names->split, index == 1 ? to_columns : to_heads,
                        names->columns);
        return;
    }
    write_transpose(writer, node, names->split, to_heads, names->turned);
    write_copies(writer, p, node, names);
    if (index == 1) {
        write_transpose(writer, node, names->heads, turn, names->columns);
    }
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

/* scores + minus infinity for keys ahead, as a triangle that the file makes itself */
static void write_causal(dunlin_onnx_writer *writer, const attention_params *p,
                         const dunlin_net_node *node, const char *scores)
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
    dunlin__onnx_begin_node(writer, "Add", node);
    dunlin__onnx_add_part(writer, scores);
    dunlin__onnx_add_part(writer, "/ahead");
    dunlin__onnx_end_part(writer, "/back");
}

/* The name of what the softmax reads. */
static const char *write_scores(dunlin_onnx_writer *writer, const attention_params *p,
                                const dunlin_net *net, const dunlin_net_node *node)
{
    const char *scores = "/scores";
    dunlin__onnx_begin_node(writer, "MatMul", node);
    dunlin__onnx_add_part(writer, "/q");
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
        write_causal(writer, p, node, scores);
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
    for (uint32_t i = 0; i < DUNLIN_ATTENTION_MAX_PARTS; i++) {
        write_heads(writer, &p, node, i);
    }
    const char *scores = write_scores(writer, &p, net, node);
    dunlin__onnx_begin_node(writer, "Softmax", node);
    dunlin__onnx_add_part(writer, scores);
    dunlin__onnx_attr_int(writer, "axis", -1);
    dunlin__onnx_end_part(writer, "/softmax");
    dunlin__onnx_begin_node(writer, "MatMul", node);
    dunlin__onnx_add_part(writer, "/softmax");
    dunlin__onnx_add_part(writer, p.shape.heads == p.shape.kv_heads ? "/v" : names_of[2].heads);
    dunlin__onnx_end_part(writer, "/heads");
    static const int64_t perm[4] = {0, 2, 1, 3};
    write_transpose(writer, node, "/heads", perm, "/tokens");
    const int64_t shape[3] = {-1, p.shape.n_queries, (int64_t)p.shape.heads * p.shape.width};
    dunlin__onnx_begin_node(writer, "Reshape", node);
    dunlin__onnx_add_part(writer, "/tokens");
    dunlin__onnx_add_ints(writer, "/shape", shape, 3);
    dunlin__onnx_end_node(writer);
}
