/*
 * join_functions.c - functions of one element that a file writes out node by node: GELU, SiLU,
 * Mish, the hard sigmoid and the hard swish; bounds within bounds.
 *
 * Invariant: what a pattern computes on its way is read by nothing else.
 */
#include "join.h"

/* f(0.7071 x) with f = erf, or f(0.7979 x + 0.0357 x^3) with f = tanh: GELU's inside. */
static bool is_gelu_inside(const dunlin_joiner *j, uint32_t value, uint32_t x,
                           dunlin_unary_fn *out_fn)
{
    const dunlin_net_node *erf_node = join_unary(j, value, DUNLIN_UNARY_ERF);
    const dunlin_net_node *tanh_node = join_unary(j, value, DUNLIN_UNARY_TANH);
    const double root = 0.7978845608028654;
    if (erf_node != NULL) {
        const dunlin_net_node *scaled = join_sole(j, erf_node->inputs[0], DUNLIN_OP_UNARY);
        *out_fn = DUNLIN_UNARY_GELU;
        return scaled != NULL && join_is_affine(scaled, 0.7071067811865476, 0.0) &&
               scaled->inputs[0] == x;
    }
    const dunlin_net_node *product =
        tanh_node != NULL ? join_binary(j, tanh_node->inputs[0], DUNLIN_BINARY_MUL, 2) : NULL;
    const dunlin_net_node *factor = product != NULL && product->inputs[0] == x
                                        ? join_sole(j, product->inputs[1], DUNLIN_OP_UNARY)
                                        : NULL;
    const dunlin_net_node *square = factor != NULL && join_is_affine(factor, 0.044715 * root, root)
                                        ? join_unary(j, factor->inputs[0], DUNLIN_UNARY_POWER)
                                        : NULL;
    *out_fn = DUNLIN_UNARY_GELU_TANH;
    return square != NULL && square->u.unary.a == 2.0f && square->inputs[0] == x;
}

/* x * (f + 1) * half, the half before or after the product. */
static bool join_gelu(const dunlin_joiner *j, dunlin_net_node *node)
{
    double half = 0.5;
    const dunlin_net_node *product = node;
    if (join_is_affine(node, 0.5, 0.0)) {
        half = 1.0;
        product = join_binary(j, node->inputs[0], DUNLIN_BINARY_MUL, 2);
    }
    if (product == NULL || product->kind != DUNLIN_OP_BINARY || product->n_inputs != 2 ||
        product->u.binary.fn != DUNLIN_BINARY_MUL) {
        return false;
    }
    for (int side = 0; side < 2; side++) {
        const uint32_t x = product->inputs[side];
        const dunlin_net_node *sum = join_sole(j, product->inputs[1 - side], DUNLIN_OP_UNARY);
        dunlin_unary_fn fn = DUNLIN_UNARY_GELU;
        if (sum != NULL && join_is_affine(sum, half, half) &&
            is_gelu_inside(j, sum->inputs[0], x, &fn)) {
            dunlin_net_node made = {.kind = DUNLIN_OP_UNARY, .inputs = {x}, .n_inputs = 1};
            made.u.unary.fn = fn;
            dunlin__join_replace(j, node, &made);
            return true;
        }
    }
    return false;
}

/* Is `gate`, which nothing else reads, f(x) with x * f(x) a function of ours? */
static bool is_gate(const dunlin_joiner *j, const dunlin_net_node *gate, uint32_t x,
                    dunlin_unary_fn *out_fn)
{
    const dunlin_net_node *inside = gate;
    switch ((int)gate->u.unary.fn) {
    case DUNLIN_UNARY_SIGMOID:
        *out_fn = DUNLIN_UNARY_SILU;
        break;
    case DUNLIN_UNARY_HARD_SIGMOID:
        *out_fn = DUNLIN_UNARY_HARD_SWISH;
        if (gate->u.unary.a != (float)(1.0 / 6.0) || gate->u.unary.b != 0.5F) {
            return false;
        }
        break;
    case DUNLIN_UNARY_TANH:
        *out_fn = DUNLIN_UNARY_MISH;
        inside = join_unary(j, gate->inputs[0], DUNLIN_UNARY_SOFTPLUS);
        break;
    default:
        return false;
    }
    return inside != NULL && inside->inputs[0] == x;
}

/* x * f(x), in either order. */
static bool join_gated(const dunlin_joiner *j, dunlin_net_node *node)
{
    if (node->kind != DUNLIN_OP_BINARY || node->u.binary.fn != DUNLIN_BINARY_MUL ||
        node->n_inputs != 2) {
        return false;
    }
    for (int side = 0; side < 2; side++) {
        const uint32_t x = node->inputs[side];
        const dunlin_net_node *gate = join_sole(j, node->inputs[1 - side], DUNLIN_OP_UNARY);
        dunlin_net_node made = {.kind = DUNLIN_OP_UNARY, .inputs = {x}, .n_inputs = 1};
        if (gate != NULL && is_gate(j, gate, x, &made.u.unary.fn)) {
            dunlin__join_replace(j, node, &made);
            return true;
        }
    }
    return false;
}

/* Bounds of what is bounded already, as ReLU6 is written by some exporters: those that both leave.
 */
static bool join_clips(const dunlin_joiner *j, dunlin_net_node *node)
{
    const dunlin_net_node *before =
        node->kind == DUNLIN_OP_CLIP ? join_sole(j, node->inputs[0], DUNLIN_OP_CLIP) : NULL;
    if (before == NULL) {
        return false;
    }
    dunlin_net_node made = *node;
    made.inputs[0] = before->inputs[0];
    made.u.clip.low = fmaxf(node->u.clip.low, before->u.clip.low);
    made.u.clip.high = fminf(node->u.clip.high, before->u.clip.high);
    if (!(made.u.clip.low < made.u.clip.high)) {
        return false;
    }
    dunlin__join_replace(j, node, &made);
    return true;
}

/* The part of x that is within [0, 6] above -3: its x; NONE if it is not that. */
static uint32_t hard_inside(const dunlin_joiner *j, uint32_t value)
{
    const dunlin_net_node *clip = join_sole(j, value, DUNLIN_OP_CLIP);
    const dunlin_net_node *sum =
        clip != NULL ? join_unary(j, clip->inputs[0], DUNLIN_UNARY_AFFINE) : NULL;
    const bool is_hard = sum != NULL && clip->u.clip.low == 0.0F && clip->u.clip.high == 6.0F &&
                         sum->u.unary.a == 1.0F && sum->u.unary.b == 3.0F;
    return is_hard ? sum->inputs[0] : DUNLIN_NET_NONE;
}

/* clip(x + 3) / 6, or x * clip(x + 3) / 6 in this order: as exporters write them for old opsets. */
static bool join_hard(const dunlin_joiner *j, dunlin_net_node *node)
{
    if (node->kind != DUNLIN_OP_UNARY || node->u.unary.fn != DUNLIN_UNARY_AFFINE ||
        node->u.unary.a != (float)(1.0 / 6.0) || node->u.unary.b != 0.0F) {
        return false;
    }
    dunlin_net_node made = {.kind = DUNLIN_OP_UNARY, .n_inputs = 1};
    made.inputs[0] = hard_inside(j, node->inputs[0]);
    made.u.unary.fn = DUNLIN_UNARY_HARD_SIGMOID;
    made.u.unary.a = (float)(1.0 / 6.0);
    made.u.unary.b = 0.5F;
    const dunlin_net_node *product = join_binary(j, node->inputs[0], DUNLIN_BINARY_MUL, 2);
    for (int side = 0; product != NULL && side < 2; side++) {
        if (hard_inside(j, product->inputs[1 - side]) == product->inputs[side]) {
            made.inputs[0] = product->inputs[side];
            made.u.unary.fn = DUNLIN_UNARY_HARD_SWISH;
            made.u.unary.a = 0.0F;
            made.u.unary.b = 0.0F;
            break;
        }
    }
    if (made.inputs[0] == DUNLIN_NET_NONE) {
        return false;
    }
    dunlin__join_replace(j, node, &made);
    return true;
}

/* |x|^a, whose slope at 0 would be no number if the two were taken one after the other. */
static bool join_power_of_size(const dunlin_joiner *j, dunlin_net_node *node)
{
    if (node->kind != DUNLIN_OP_UNARY || node->u.unary.fn != DUNLIN_UNARY_POWER) {
        return false;
    }
    const dunlin_net_node *size = join_unary(j, node->inputs[0], DUNLIN_UNARY_ABS);
    if (size == NULL) {
        return false;
    }
    dunlin_net_node made = *node;
    made.u.unary.fn = DUNLIN_UNARY_ABS_POWER;
    made.inputs[0] = size->inputs[0];
    dunlin__join_replace(j, node, &made);
    return true;
}

bool dunlin__join_function(const dunlin_joiner *j, dunlin_net_node *node)
{
    return join_power_of_size(j, node) || join_clips(j, node) || join_gelu(j, node) ||
           join_hard(j, node) || join_gated(j, node);
}
