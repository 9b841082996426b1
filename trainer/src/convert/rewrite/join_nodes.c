/*
 * join_nodes.c - operators that a file writes out node by node become one again: affine maps in a
 * row, a dense layer and its bias, layer norm and RMSNorm, functions (join_functions.c), attention
 * (join_attention.c).
 *
 * Invariant: the last node of a pattern is replaced and keeps its name and its value; what only the
 * pattern read is taken out; everything else stays as it was.
 */
#include "fold.h"
#include "join.h"
#include "net/outputs.h"

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

/* --- RMSNorm --- */

/* The mean of the squares of x over its last dimension, and a positive number: that number, else 0.
 */
static float square_mean_of(const joiner *j, uint32_t value, uint32_t x)
{
    const dunlin_net_node *sum = join_unary(j, value, DUNLIN_UNARY_AFFINE);
    const dunlin_net_node *mean =
        sum != NULL && sum->u.unary.a == 1.0F ? join_sole(j, sum->inputs[0], DUNLIN_OP_MEAN) : NULL;
    if (mean == NULL || !is_mean_of_last(j, mean)) {
        return 0.0F;
    }
    const dunlin_net_node *power = join_unary(j, mean->inputs[0], DUNLIN_UNARY_POWER);
    const dunlin_net_node *product = join_binary(j, mean->inputs[0], DUNLIN_BINARY_MUL, 2);
    const bool is_square = (power != NULL && power->u.unary.a == 2.0F && power->inputs[0] == x) ||
                           (product != NULL && product->inputs[0] == x && product->inputs[1] == x);
    return is_square ? sum->u.unary.b : 0.0F;
}

/* The root of that, or (`is_inverse`) one by it: its number. */
static float root_of(const joiner *j, uint32_t value, uint32_t x, bool is_inverse)
{
    const dunlin_net_node *once = join_unary(j, value, DUNLIN_UNARY_AFFINE);
    if (is_inverse && once != NULL && once->u.unary.a == 1.0F && once->u.unary.b == 0.0F) {
        value = once->inputs[0];
    }
    const dunlin_net_node *power = join_unary(j, value, DUNLIN_UNARY_POWER);
    if (is_inverse && power != NULL && power->u.unary.a == -0.5F) {
        return square_mean_of(j, power->inputs[0], x);
    }
    if (is_inverse && (power == NULL || power->u.unary.a != -1.0F)) {
        return 0.0F;
    }
    const dunlin_net_node *root =
        join_unary(j, is_inverse ? power->inputs[0] : value, DUNLIN_UNARY_SQRT);
    return root != NULL ? square_mean_of(j, root->inputs[0], x) : 0.0F;
}

static bool join_rms_norm(const joiner *j, dunlin_net_node *node)
{
    if (node->kind != DUNLIN_OP_BINARY || node->u.binary.fn != DUNLIN_BINARY_MUL ||
        node->n_inputs != 1 || !is_row_of(j, node->params[0], node->inputs[0])) {
        return false;
    }
    const dunlin_net_node *quotient = join_binary(j, node->inputs[0], DUNLIN_BINARY_DIV, 2);
    const dunlin_net_node *product = join_binary(j, node->inputs[0], DUNLIN_BINARY_MUL, 2);
    uint32_t x = DUNLIN_NET_NONE;
    float eps = 0.0F;
    if (quotient != NULL) {
        x = quotient->inputs[0];
        eps = root_of(j, quotient->inputs[1], x, false);
    }
    for (uint32_t side = 0; product != NULL && side < 2 && !(eps > 0.0F); side++) {
        x = product->inputs[side];
        eps = root_of(j, product->inputs[1 - side], x, true);
    }
    if (!(eps > 0.0F) || !(eps <= 1.0F) || j->net->values[x].layout != DUNLIN_LAYOUT_PLAIN) {
        return false;
    }
    dunlin_net_node made = {.kind = DUNLIN_OP_LAYER_NORM,
                            .inputs = {x},
                            .n_inputs = 1,
                            .params = {node->params[0]},
                            .n_params = 1};
    made.u.layer_norm.eps = eps;
    made.u.layer_norm.is_about_zero = true;
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

static bool is_port(const dunlin_net *net, uint32_t value)
{
    bool is_one = dunlin__net_is_output(net, value);
    for (size_t i = 0; i < net->n_ports; i++) {
        is_one = is_one || net->ports[i].value == value;
    }
    return is_one;
}

/* Moves and functions of which the file used the shape alone; from the last one on, so that what
 * leads to them alone goes too. */
static void drop_unread(const joiner *j)
{
    dunlin_net *net = j->net;
    for (size_t i = net->n_nodes; i > 0; i--) {
        const dunlin_net_node *node = &net->nodes[i - 1];
        if (net->values[node->output].n_consumers > 0 || node->n_params > 0 ||
            is_port(net, node->output)) {
            continue;
        }
        j->is_dead[i - 1] = true;
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            net->values[node->inputs[k]].n_consumers--;
        }
    }
}

dunlin_status dunlin__onnx_join(dunlin_net *net, dunlin_error *error)
{
    static bool (*const joins[])(const joiner *, dunlin_net_node *) = {
        join_unread,       dunlin__join_pads,      join_affine,
        join_bias,         dunlin__join_conv_bias, join_layer_norm,
        join_rms_norm,     dunlin__join_function,  dunlin__join_attention,
        dunlin__join_pools};
    const size_t n_values = net->n_values;
    const size_t n_nodes = net->n_nodes;
    joiner j = {.net = net, .is_dead = dunlin__alloc_zeroed(&net->alloc, n_nodes, sizeof(bool))};
    uint32_t *map = dunlin__alloc_array(&net->alloc, n_values, sizeof *map);
    dunlin_status status = DUNLIN_OK;
    if (j.is_dead == NULL || map == NULL) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "onnx", 0, "no memory for %zu nodes", n_nodes);
    } else {
        drop_unread(&j);
        for (size_t i = 0; i < n_nodes; i++) {
            for (size_t k = 0; !j.is_dead[i] && k < sizeof joins / sizeof joins[0]; k++) {
                (void)joins[k](&j, &net->nodes[i]);
            }
        }
        for (size_t i = 0; i < n_nodes; i++) {
            if (!j.is_dead[i]) {
                dunlin__join_moves(&j, &net->nodes[i]);
            }
        }
        dunlin__net_compact(net, j.is_dead, map);
        if (!dunlin__net_drop_unread(net)) {
            status = dunlin__fail(error, DUNLIN_MEMORY, "onnx", 0, "no memory for %zu parameters",
                                  net->n_params);
        }
    }
    dunlin__free_array(&net->alloc, map, n_values, sizeof *map);
    dunlin__free_array(&net->alloc, j.is_dead, n_nodes, sizeof(bool));
    return status;
}
