/*
 * join_rotary.c - rotary positions (Su et al. 2021) as they are written out: x times a table of
 * cosines, and the halves of x exchanged, the second with its sign changed, times one of sines.
 */
#include "join_views.h"

/* What the node multiplies by a constant table; NONE: it does not. */
static uint32_t table_of(const dunlin_joiner *j, uint32_t value, uint32_t *out_factor)
{
    const dunlin_net_node *node = join_binary(j, value, DUNLIN_BINARY_MUL, 1);
    if (node == NULL || node->u.binary.n_ones != 0 ||
        !dunlin__param_is_fixed(j->net, node->params[0])) {
        return DUNLIN_NET_NONE;
    }
    *out_factor = node->inputs[0];
    return node->params[0];
}

/* The value is one half of x, in its last dimension. */
static bool is_half(const dunlin_joiner *j, uint32_t value, uint32_t x, bool is_second)
{
    const dunlin_shape *shape = &j->net->values[x].shape;
    const dunlin_net_node *node = join_sole(j, value, DUNLIN_OP_SLICE);
    const int32_t last = shape->n_dims - 1;
    const int64_t half = shape->dims[last] / 2;
    return node != NULL && node->inputs[0] == x && node->u.slice.axis == last &&
           node->u.slice.start == (is_second ? half : 0) &&
           node->u.slice.end == (is_second ? 2 * half : half) && shape->dims[last] == 2 * half;
}

/* (-second half, first half) of x. */
static bool is_exchanged(const dunlin_joiner *j, uint32_t value, uint32_t x)
{
    const dunlin_net_node *node = join_sole(j, value, DUNLIN_OP_CONCAT);
    const dunlin_net_node *negative = node != NULL && node->n_inputs == 2
                                          ? join_unary(j, node->inputs[0], DUNLIN_UNARY_AFFINE)
                                          : NULL;
    return negative != NULL && negative->u.unary.a == -1.0F && negative->u.unary.b == 0.0F &&
           is_half(j, negative->inputs[0], x, true) && is_half(j, node->inputs[1], x, false);
}

/* Rows of the table are x's last two dimensions. */
static bool is_of_rows(const dunlin_joiner *j, uint32_t param, uint32_t x)
{
    const dunlin_shape *table = &j->net->params[param].shape;
    const dunlin_shape *shape = &j->net->values[x].shape;
    bool fits = shape->n_dims >= 2 && table->n_dims >= 2;
    for (int32_t i = 1; fits && i <= table->n_dims; i++) {
        const int64_t size = table->dims[table->n_dims - i];
        fits = i <= 2 ? size == shape->dims[shape->n_dims - i] : size == 1;
    }
    return fits;
}

bool dunlin__join_rotary(const dunlin_joiner *j, const dunlin_net_node *node,
                         dunlin_join_rotation *out)
{
    const bool is_sum = node->kind == DUNLIN_OP_ADD ||
                        (node->kind == DUNLIN_OP_BINARY && node->u.binary.fn == DUNLIN_BINARY_ADD);
    for (uint32_t side = 0; is_sum && node->n_inputs == 2 && side < 2; side++) {
        uint32_t exchanged = DUNLIN_NET_NONE;
        out->cosines = table_of(j, node->inputs[side], &out->x);
        out->sines = table_of(j, node->inputs[1 - side], &exchanged);
        if (out->cosines != DUNLIN_NET_NONE && out->sines != DUNLIN_NET_NONE &&
            j->net->values[out->x].layout == DUNLIN_LAYOUT_PLAIN &&
            is_exchanged(j, exchanged, out->x) && is_of_rows(j, out->cosines, out->x) &&
            is_of_rows(j, out->sines, out->x)) {
            return true;
        }
    }
    return false;
}
