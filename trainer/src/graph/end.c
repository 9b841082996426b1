/*
 * end.c - removes the last Softmax, LogSoftmax or Sigmoid for a loss that already includes it.
 */
#include "end.h"

#include "net/outputs.h"

static dunlin_end end_of(const dunlin_net_node *node, dunlin_loss loss)
{
    const bool is_of_softmax =
        loss == DUNLIN_LOSS_CROSS_ENTROPY || loss == DUNLIN_LOSS_SOFT_CROSS_ENTROPY;
    if (node->kind == DUNLIN_OP_SOFTMAX && is_of_softmax) {
        return node->u.softmax.is_log ? DUNLIN_END_LOG_SOFTMAX : DUNLIN_END_SOFTMAX;
    }
    if (node->kind == DUNLIN_OP_UNARY && node->u.unary.fn == DUNLIN_UNARY_SIGMOID &&
        loss == DUNLIN_LOSS_BCE) {
        return DUNLIN_END_SIGMOID;
    }
    return DUNLIN_END_NONE;
}

/* One row a sample; the channels of one pixel are one, too. */
static bool is_row(const dunlin_net_value *value)
{
    const dunlin_shape *shape = &value->shape;
    return value->layout == DUNLIN_LAYOUT_PLAIN
               ? shape->n_dims <= 1
               : shape->dims[1] == 1 && shape->dims[shape->n_dims - 1] == 1;
}

/* Only a name for a row: a shape that is the one before. */
static bool is_same_row(const dunlin_net *net, const dunlin_net_node *node)
{
    return (node->kind == DUNLIN_OP_RESHAPE || node->kind == DUNLIN_OP_FLATTEN) &&
           is_row(&net->values[node->inputs[0]]) && is_row(&net->values[node->output]);
}

dunlin_end dunlin__end_cut(const dunlin_net *net, dunlin_loss loss, dunlin_net *out_cut)
{
    *out_cut = *net;
    uint32_t value = net->output;
    for (size_t n_left = net->n_nodes; n_left > 0; n_left--) {
        const uint32_t last = net->values[value].producer;
        /* Nothing but what was looked at comes after it, and nothing else reads it. */
        if (last == DUNLIN_NET_NONE || last + 1 != n_left || net->values[value].n_consumers != 1) {
            break;
        }
        const dunlin_net_node *node = &net->nodes[last];
        const dunlin_end end = end_of(node, loss);
        value = node->inputs[0];
        if (end == DUNLIN_END_NONE && is_same_row(net, node)) {
            continue;
        }
        if (end == DUNLIN_END_NONE || net->values[value].producer == DUNLIN_NET_NONE) {
            break;
        }
        out_cut->output = value;
        out_cut->n_nodes = n_left - 1;
        return end;
    }
    return DUNLIN_END_NONE;
}

dunlin_end dunlin__end_find(const dunlin_net *net, uint32_t value, dunlin_loss loss,
                            uint32_t *out_value, uint32_t *out_n_nodes)
{
    uint32_t at = value;
    *out_value = value;
    *out_n_nodes = 0;
    for (uint32_t n = 1; n <= net->n_nodes; n++) {
        const uint32_t last = net->values[at].producer;
        if (last == DUNLIN_NET_NONE || net->values[at].n_consumers != 1) {
            break;
        }
        const dunlin_net_node *node = &net->nodes[last];
        const dunlin_end end = end_of(node, loss);
        at = node->inputs[0];
        if (end == DUNLIN_END_NONE && is_same_row(net, node)) {
            continue;
        }
        if (end == DUNLIN_END_NONE || net->values[at].producer == DUNLIN_NET_NONE ||
            dunlin__net_is_output(net, at)) {
            break;
        }
        *out_value = at;
        *out_n_nodes = n;
        return end;
    }
    return DUNLIN_END_NONE;
}

void dunlin__end_apply(dunlin_end end, const dunlin_kernels *kernels, int64_t n_rows, int64_t width,
                       float *rows, dunlin_threads *threads)
{
    switch (end) {
    case DUNLIN_END_NONE:
        break;
    case DUNLIN_END_SOFTMAX:
    case DUNLIN_END_LOG_SOFTMAX:
        kernels->softmax(&(dunlin_softmax_call){.n_rows = n_rows,
                                                .width = width,
                                                .is_log = end == DUNLIN_END_LOG_SOFTMAX,
                                                .x = rows,
                                                .out = rows,
                                                .threads = threads});
        break;
    case DUNLIN_END_SIGMOID:
        kernels->unary(&(dunlin_unary_call){.fn = DUNLIN_UNARY_SIGMOID,
                                            .n = n_rows * width,
                                            .x = rows,
                                            .out = rows,
                                            .threads = threads});
        break;
    }
}
