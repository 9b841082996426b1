/*
 * join_nodes.c - operators that a file writes out node by node become one again: affine maps in a
 * row, a dense layer and its bias, layer norm, functions (join_functions.c), attention.
 *
 * Invariant: the last node of a pattern is replaced and keeps its name and its value; what only the
 * pattern read is taken out; everything else stays as it was.
 */
#include "fold.h"
#include "join.h"
#include "net/outputs.h"
#include "ops/common/maps.h"
#include "ops/common/support.h"

#include <mem/support.h>

#include <math.h>
#include <string.h>

typedef dunlin_joiner joiner;

static bool join_affine(const joiner *j, dunlin_net_node *node)
{
    const dunlin_net_node *before = join_producer(j, node->inputs[0]);
    if (node->kind != DUNLIN_OP_UNARY || node->u.unary.fn != DUNLIN_UNARY_AFFINE ||
        before == NULL || before->kind != DUNLIN_OP_UNARY ||
        before->u.unary.fn != DUNLIN_UNARY_AFFINE) {
        return false;
    }
    dunlin_net_node made = *node;
    made.u.unary.a = node->u.unary.a * before->u.unary.a;
    made.u.unary.b = node->u.unary.a * before->u.unary.b + node->u.unary.b;
    made.inputs[0] = before->inputs[0];
    if (!isfinite(made.u.unary.a) || !isfinite(made.u.unary.b)) {
        return false;
    }
    dunlin__join_replace(j, node, &made);
    return true;
}

static bool is_row_of(const joiner *j, uint32_t param, uint32_t value)
{
    const dunlin_shape *shape = &j->net->params[param].shape;
    const dunlin_shape *x = &j->net->values[value].shape;
    return shape->n_dims == 1 && x->n_dims > 0 && shape->dims[0] == x->dims[x->n_dims - 1];
}

static bool join_bias(const joiner *j, dunlin_net_node *node)
{
    if (node->kind != DUNLIN_OP_BINARY || node->u.binary.fn != DUNLIN_BINARY_ADD ||
        node->n_inputs != 1) {
        return false;
    }
    const dunlin_net_node *dense = join_sole(j, node->inputs[0], DUNLIN_OP_DENSE);
    dense = dense == NULL ? join_sole(j, node->inputs[0], DUNLIN_OP_DENSE_TRANSPOSED) : dense;
    if (dense == NULL || (dense->n_params > 1 && dense->params[1] != DUNLIN_NET_NONE) ||
        !is_row_of(j, node->params[0], node->inputs[0])) {
        return false;
    }
    dunlin_net_node made = *dense;
    made.params[1] = node->params[0];
    made.n_params = 2;
    dunlin__join_replace(j, node, &made);
    return true;
}

static bool is_mean_of_last(const joiner *j, const dunlin_net_node *node)
{
    const int32_t n = j->net->values[node->inputs[0]].shape.n_dims;
    return node->u.mean.keeps_dims && node->u.mean.axes == 1U << (n - 1);
}

/* (x - mean) / sqrt(mean of its square + eps): its x and eps; NONE if it is not that. */
static uint32_t normalised(const joiner *j, const dunlin_net_node *quotient, float *out_eps)
{
    const dunlin_net_node *centred = join_producer(j, quotient->inputs[0]);
    const dunlin_net_node *root = join_unary(j, quotient->inputs[1], DUNLIN_UNARY_SQRT);
    const dunlin_net_node *sum =
        root != NULL ? join_unary(j, root->inputs[0], DUNLIN_UNARY_AFFINE) : NULL;
    const dunlin_net_node *variance =
        sum != NULL && sum->u.unary.a == 1.0f ? join_sole(j, sum->inputs[0], DUNLIN_OP_MEAN) : NULL;
    const dunlin_net_node *square = variance != NULL && is_mean_of_last(j, variance)
                                        ? join_unary(j, variance->inputs[0], DUNLIN_UNARY_POWER)
                                        : NULL;
    if (square == NULL || square->u.unary.a != 2.0f || centred == NULL ||
        square->inputs[0] != quotient->inputs[0] || centred->kind != DUNLIN_OP_BINARY ||
        centred->u.binary.fn != DUNLIN_BINARY_SUB || centred->n_inputs != 2 ||
        j->net->values[quotient->inputs[0]].n_consumers != 2) {
        return DUNLIN_NET_NONE;
    }
    const dunlin_net_node *mean = join_sole(j, centred->inputs[1], DUNLIN_OP_MEAN);
    if (mean == NULL || !is_mean_of_last(j, mean) || mean->inputs[0] != centred->inputs[0]) {
        return DUNLIN_NET_NONE;
    }
    *out_eps = sum->u.unary.b;
    return centred->inputs[0];
}

static bool join_layer_norm(const joiner *j, dunlin_net_node *node)
{
    if (node->kind != DUNLIN_OP_BINARY || node->u.binary.fn != DUNLIN_BINARY_ADD ||
        node->n_inputs != 1) {
        return false;
    }
    const dunlin_net_node *scaled = join_binary(j, node->inputs[0], DUNLIN_BINARY_MUL, 1);
    const dunlin_net_node *quotient =
        scaled != NULL ? join_binary(j, scaled->inputs[0], DUNLIN_BINARY_DIV, 2) : NULL;
    float eps = 0.0f;
    const uint32_t x = quotient != NULL ? normalised(j, quotient, &eps) : DUNLIN_NET_NONE;
    if (x == DUNLIN_NET_NONE || !(eps > 0.0f) || !is_row_of(j, scaled->params[0], x) ||
        !is_row_of(j, node->params[0], x)) {
        return false;
    }
    dunlin_net_node made = {.kind = DUNLIN_OP_LAYER_NORM,
                            .inputs = {x},
                            .n_inputs = 1,
                            .params = {scaled->params[0], node->params[0]},
                            .n_params = 2};
    made.u.layer_norm.eps = eps;
    dunlin__join_replace(j, node, &made);
    return true;
}

/* --- attention --- */

static bool is_perm(const dunlin_net_node *node, int32_t a, int32_t b, int32_t c)
{
    const int32_t *perm = node->u.transpose.perm;
    return perm[0] == a && perm[1] == b && perm[2] == c;
}

/* (tokens, heads * width) that was split into heads and turned; NONE if it is not that. */
static uint32_t split_heads(const joiner *j, uint32_t value, bool is_key, dunlin_shape *out_split)
{
    const dunlin_net_node *transposed = join_sole(j, value, DUNLIN_OP_TRANSPOSE);
    const dunlin_net_node *split =
        transposed != NULL ? join_sole(j, transposed->inputs[0], DUNLIN_OP_RESHAPE) : NULL;
    if (split == NULL || split->u.reshape.shape.n_dims != 3 ||
        !(is_key ? is_perm(transposed, 1, 2, 0) : is_perm(transposed, 1, 0, 2))) {
        return DUNLIN_NET_NONE;
    }
    const uint32_t from = split->inputs[0];
    const dunlin_shape *shape = &j->net->values[from].shape;
    *out_split = split->u.reshape.shape;
    const bool is_good = shape->n_dims == 2 && shape->dims[0] == out_split->dims[0] &&
                         shape->dims[1] == out_split->dims[1] * out_split->dims[2];
    return is_good ? from : DUNLIN_NET_NONE;
}

/* The scores that the softmax reads: q, k, their scale and a mask. */
static bool take_scores(const joiner *j, uint32_t value, dunlin_net_node *made, uint32_t *out_mask)
{
    const dunlin_net_node *sum = join_binary(j, value, DUNLIN_BINARY_ADD, 2);
    *out_mask = DUNLIN_NET_NONE;
    for (uint32_t side = 0; sum != NULL && side < 2; side++) {
        const dunlin_net_node *node = join_producer(j, sum->inputs[side]);
        const bool is_scaled = node != NULL && node->kind == DUNLIN_OP_UNARY;
        const dunlin_net_node *product = is_scaled ? join_producer(j, node->inputs[0]) : node;
        if (product != NULL && product->kind == DUNLIN_OP_MATMUL) {
            value = sum->inputs[side];
            *out_mask = sum->inputs[1 - side];
            break;
        }
    }
    const dunlin_net_node *scaled = join_unary(j, value, DUNLIN_UNARY_AFFINE);
    made->u.attention.scale = 1.0f;
    if (scaled != NULL && scaled->u.unary.b == 0.0f) {
        made->u.attention.scale = scaled->u.unary.a;
        value = scaled->inputs[0];
    }
    const dunlin_net_node *product = join_sole(j, value, DUNLIN_OP_MATMUL);
    dunlin_shape q;
    dunlin_shape k;
    if (product == NULL || product->u.matmul.is_left_transposed ||
        product->u.matmul.is_right_transposed) {
        return false;
    }
    made->inputs[0] = split_heads(j, product->inputs[0], false, &q);
    made->inputs[1] = split_heads(j, product->inputs[1], true, &k);
    if (made->inputs[0] == DUNLIN_NET_NONE || made->inputs[1] == DUNLIN_NET_NONE ||
        q.dims[1] != k.dims[1] || q.dims[2] != k.dims[2]) {
        return false;
    }
    made->u.attention.heads = (int32_t)q.dims[1];
    if (*out_mask == DUNLIN_NET_NONE) {
        return true;
    }
    const dunlin_net_value *mask = &j->net->values[*out_mask];
    const int64_t n = dunlin__value_elements(mask);
    return mask->layout == DUNLIN_LAYOUT_PLAIN && mask->shape.n_dims > 0 &&
           mask->shape.dims[mask->shape.n_dims - 1] == k.dims[0] &&
           (n == k.dims[0] || n == q.dims[0] * k.dims[0]) &&
           !dunlin__op_has_param_before(j->net, *out_mask);
}

/* q, k and v as three parts of one value, side by side, are that value. */
static void pack(const joiner *j, dunlin_net_node *made)
{
    const dunlin_net_node *parts[3];
    for (int i = 0; i < 3; i++) {
        parts[i] = join_sole(j, made->inputs[i], DUNLIN_OP_SLICE);
        const int64_t width = j->net->values[made->inputs[0]].shape.dims[1];
        if (parts[i] == NULL || parts[i]->u.slice.axis != 1 ||
            parts[i]->u.slice.start != i * width || parts[i]->u.slice.end != (i + 1) * width ||
            parts[i]->inputs[0] != parts[0]->inputs[0] ||
            j->net->values[parts[0]->inputs[0]].shape.dims[1] != 3 * width) {
            return;
        }
    }
    made->inputs[0] = parts[0]->inputs[0];
    made->n_inputs = 1;
}

static bool join_attention(const joiner *j, dunlin_net_node *node)
{
    if (node->kind != DUNLIN_OP_RESHAPE || node->u.reshape.shape.n_dims != 2) {
        return false;
    }
    const dunlin_net_node *transposed = join_sole(j, node->inputs[0], DUNLIN_OP_TRANSPOSE);
    const dunlin_net_node *product = transposed != NULL && is_perm(transposed, 1, 0, 2)
                                         ? join_sole(j, transposed->inputs[0], DUNLIN_OP_MATMUL)
                                         : NULL;
    const dunlin_net_node *softmax = product != NULL && !product->u.matmul.is_left_transposed &&
                                             !product->u.matmul.is_right_transposed
                                         ? join_sole(j, product->inputs[0], DUNLIN_OP_SOFTMAX)
                                         : NULL;
    dunlin_net_node made = {.kind = DUNLIN_OP_ATTENTION, .n_inputs = 3};
    uint32_t mask = DUNLIN_NET_NONE;
    dunlin_shape v;
    if (softmax == NULL || softmax->u.softmax.is_log ||
        !take_scores(j, softmax->inputs[0], &made, &mask)) {
        return false;
    }
    made.inputs[2] = split_heads(j, product->inputs[1], false, &v);
    const dunlin_shape *out = &node->u.reshape.shape;
    if (made.inputs[2] == DUNLIN_NET_NONE || v.dims[1] != made.u.attention.heads ||
        out->dims[0] != j->net->values[made.inputs[0]].shape.dims[0] ||
        out->dims[1] != v.dims[1] * v.dims[2] ||
        j->net->values[made.inputs[0]].shape.dims[1] != out->dims[1]) {
        return false;
    }
    pack(j, &made);
    if (mask != DUNLIN_NET_NONE) {
        made.u.attention.has_mask = true;
        made.inputs[made.n_inputs++] = mask;
    }
    dunlin__join_replace(j, node, &made);
    return true;
}

/* --- taking out --- */

/* A quotient whose reader took what it divides (chances.c). */
static bool join_unread(const joiner *j, dunlin_net_node *node)
{
    dunlin_net *net = j->net;
    if (node->kind != DUNLIN_OP_UNARY || net->values[node->output].n_consumers > 0 ||
        dunlin__net_is_output(net, node->output)) {
        return false;
    }
    net->values[node->inputs[0]].n_consumers--;
    j->is_dead[node - net->nodes] = true;
    return true;
}

dunlin_status dunlin__onnx_join(dunlin_net *net, dunlin_error *error)
{
    static bool (*const joins[])(const joiner *, dunlin_net_node *) = {join_unread,
                                                                       dunlin__join_pads,
                                                                       join_affine,
                                                                       join_bias,
                                                                       dunlin__join_conv_bias,
                                                                       join_layer_norm,
                                                                       dunlin__join_function,
                                                                       join_attention,
                                                                       dunlin__join_pools};
    const size_t n_values = net->n_values;
    const size_t n_nodes = net->n_nodes;
    joiner j = {.net = net, .is_dead = dunlin__alloc_zeroed(&net->alloc, n_nodes, sizeof(bool))};
    uint32_t *map = dunlin__alloc_array(&net->alloc, n_values, sizeof *map);
    dunlin_status status = DUNLIN_OK;
    if (j.is_dead == NULL || map == NULL) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "onnx", 0, "no memory for %zu nodes", n_nodes);
    } else {
        for (size_t i = 0; i < n_nodes; i++) {
            for (size_t k = 0; k < sizeof joins / sizeof joins[0]; k++) {
                (void)joins[k](&j, &net->nodes[i]);
            }
        }
        for (size_t i = 0; i < n_nodes; i++) {
            if (!j.is_dead[i]) {
                dunlin__join_moves(&j, &net->nodes[i]);
            }
        }
        dunlin__net_compact(net, j.is_dead, map);
    }
    dunlin__free_array(&net->alloc, map, n_values, sizeof *map);
    dunlin__free_array(&net->alloc, j.is_dead, n_nodes, sizeof(bool));
    return status;
}
