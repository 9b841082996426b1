/*
 * join_pools.c - norms of windows and local response normalisation, as PyTorch's exporter writes
 * them out.
 *
 * Invariant: what a pattern computes on its way is read by nothing else.
 */
#include "join.h"
#include "kernels/api/kernels.h"

/* --- the p-norm of each window --- */

/* sign(v) * relu(|v|), which is v: its v; NONE if it is not that. */
static uint32_t signed_size(const dunlin_joiner *j, uint32_t value)
{
    const dunlin_net_node *product = join_binary(j, value, DUNLIN_BINARY_MUL, 2);
    for (int side = 0; product != NULL && side < 2; side++) {
        const dunlin_net_node *sign = join_unary(j, product->inputs[side], DUNLIN_UNARY_SIGN);
        const dunlin_net_node *clip = join_sole(j, product->inputs[1 - side], DUNLIN_OP_CLIP);
        const dunlin_net_node *size = clip != NULL && !(clip->u.clip.low < 0.0F) &&
                                              !(clip->u.clip.low > 0.0F) && isinf(clip->u.clip.high)
                                          ? join_unary(j, clip->inputs[0], DUNLIN_UNARY_ABS)
                                          : NULL;
        if (sign != NULL && size != NULL && sign->inputs[0] == size->inputs[0]) {
            return sign->inputs[0];
        }
    }
    return DUNLIN_NET_NONE;
}

/* (n mean(x^p))^(1/p) with p even, the mean over a window of n without padding. */
static bool join_lp_pool(const dunlin_joiner *j, dunlin_net_node *node)
{
    if (node->kind != DUNLIN_OP_UNARY ||
        (node->u.unary.fn != DUNLIN_UNARY_POWER && node->u.unary.fn != DUNLIN_UNARY_SQRT)) {
        return false;
    }
    const dunlin_net_node *scaled = join_unary(j, node->inputs[0], DUNLIN_UNARY_AFFINE);
    const uint32_t mean = scaled != NULL ? signed_size(j, scaled->inputs[0]) : DUNLIN_NET_NONE;
    if (mean == DUNLIN_NET_NONE || j->net->values[mean].n_consumers != 2) {
        return false;
    }
    const dunlin_net_node *pool = join_producer(j, mean);
    if (pool == NULL || pool->kind != DUNLIN_OP_AVERAGE_POOL) {
        return false;
    }
    const dunlin_net_pool *p = &pool->u.pool;
    const dunlin_net_node *power = join_unary(j, pool->inputs[0], DUNLIN_UNARY_POWER);
    const double root = node->u.unary.fn == DUNLIN_UNARY_SQRT ? 0.5 : (double)node->u.unary.a;
    const double norm = power != NULL ? (double)power->u.unary.a : 0.0;
    const bool is_even = norm >= 2.0 && norm <= 64.0 && fmod(norm, 2.0) == 0.0;
    if (!is_even || fabs(root * norm - 1.0) > 1e-6 || p->is_ceil ||
        (p->pad_top | p->pad_left | p->pad_bottom | p->pad_right) != 0 ||
        !join_is_affine(scaled, (double)p->kernel_h * p->kernel_w, 0.0)) {
        return false;
    }
    dunlin_net_node made = {.kind = DUNLIN_OP_LP_POOL, .inputs = {power->inputs[0]}, .n_inputs = 1};
    made.u.pool = *p;
    made.u.pool.counts_padding = false;
    made.u.pool.p = (int32_t)norm;
    dunlin__join_replace(j, node, &made);
    return true;
}

/* --- local response normalisation --- */

/* A move that leaves a sample's elements in their order. */
static bool is_order_kept(const dunlin_net_node *node)
{
    if (node->kind == DUNLIN_OP_RESHAPE || node->kind == DUNLIN_OP_FLATTEN) {
        return true;
    }
    bool is_kept = node->kind == DUNLIN_OP_REARRANGE;
    for (int32_t i = 0; is_kept && i < node->u.rearrange.to.split.n_dims; i++) {
        is_kept = node->u.rearrange.to.perm[i] == i;
    }
    return is_kept;
}

/* Zeros before and after all the channels. */
static bool is_channel_pad(const dunlin_joiner *j, const dunlin_net_node *node, int64_t channels)
{
    const dunlin_shape *x = &j->net->values[node->inputs[0]].shape;
    int64_t before = 1;
    for (int32_t i = 0; i < node->u.pad.axis; i++) {
        before *= x->dims[i];
    }
    return node->kind == DUNLIN_OP_PAD && node->u.pad.mode == DUNLIN_PAD_CONSTANT &&
           !(node->u.pad.value < 0.0F) && !(node->u.pad.value > 0.0F) && before == 1 &&
           x->dims[node->u.pad.axis] == channels;
}

/* The node behind moves (and, with `pads`, zeros around the channels, which are added to those),
 * each read by one alone. */
static const dunlin_net_node *behind_moves(const dunlin_joiner *j, uint32_t value, int64_t channels,
                                           int64_t pads[2])
{
    for (;;) {
        const dunlin_net_node *node = join_producer(j, value);
        if (node == NULL || j->net->values[value].n_consumers != 1) {
            return NULL;
        }
        if (pads != NULL && node->kind == DUNLIN_OP_PAD && is_channel_pad(j, node, channels)) {
            pads[0] += node->u.pad.before;
            pads[1] += node->u.pad.after;
        } else if (!is_order_kept(node)) {
            return node;
        }
        value = node->inputs[0];
    }
}

static bool is_square_of(const dunlin_net_node *node, uint32_t x)
{
    const bool is_product = node->kind == DUNLIN_OP_BINARY && node->n_inputs == 2 &&
                            node->u.binary.fn == DUNLIN_BINARY_MUL && node->inputs[0] == x &&
                            node->inputs[1] == x;
    const bool is_power = node->kind == DUNLIN_OP_UNARY && node->u.unary.fn == DUNLIN_UNARY_POWER &&
                          node->u.unary.a == 2.0F && node->inputs[0] == x;
    return is_product || is_power;
}

/* x / (bias + alpha * mean over a window of channels of x^2)^beta; of odd windows, where PyTorch
 * and ONNX mean the same one. */
static bool join_response_norm(const dunlin_joiner *j, dunlin_net_node *node)
{
    if (node->kind != DUNLIN_OP_BINARY || node->u.binary.fn != DUNLIN_BINARY_DIV ||
        node->n_inputs != 2) {
        return false;
    }
    const uint32_t x = node->inputs[0];
    const dunlin_net_value *value = &j->net->values[x];
    const int64_t channels = value->shape.dims[0];
    const dunlin_net_node *power = behind_moves(j, node->inputs[1], channels, NULL);
    const bool is_power =
        power != NULL && power->kind == DUNLIN_OP_UNARY && power->u.unary.fn == DUNLIN_UNARY_POWER;
    const dunlin_net_node *scaled =
        is_power ? join_unary(j, power->inputs[0], DUNLIN_UNARY_AFFINE) : NULL;
    if (scaled == NULL || value->layout != DUNLIN_LAYOUT_IMAGE) {
        return false;
    }
    const dunlin_net_node *pool = behind_moves(j, scaled->inputs[0], channels, NULL);
    if (pool == NULL || pool->kind != DUNLIN_OP_AVERAGE_POOL) {
        return false;
    }
    const dunlin_net_pool *p = &pool->u.pool;
    const bool is_padded = (p->pad_top | p->pad_bottom) != 0;
    int64_t pads[2] = {p->pad_top, p->pad_bottom};
    const dunlin_net_node *square = behind_moves(j, pool->inputs[0], channels, pads);
    if (square == NULL || !is_square_of(square, x) || p->kernel_w != 1 || p->stride_w != 1 ||
        p->stride_h != 1 || (p->pad_left | p->pad_right) != 0 ||
        (is_padded && !p->counts_padding) || pads[0] != pads[1] ||
        pads[0] + pads[1] != p->kernel_h - 1 || p->kernel_h > DUNLIN_RESPONSE_NORM_MAX_SIZE ||
        j->net->values[pool->inputs[0]].shape.dims[0] != 1) {
        return false;
    }
    dunlin_net_node made = {.kind = DUNLIN_OP_RESPONSE_NORM, .inputs = {x}, .n_inputs = 1};
    made.u.response_norm.size = p->kernel_h;
    made.u.response_norm.alpha = scaled->u.unary.a;
    made.u.response_norm.bias = scaled->u.unary.b;
    made.u.response_norm.beta = power->u.unary.a;
    dunlin__join_replace(j, node, &made);
    return true;
}

bool dunlin__join_pools(const dunlin_joiner *j, dunlin_net_node *node)
{
    return join_lp_pool(j, node) || join_response_norm(j, node);
}
