/*
 * end.c - cuts the last Softmax, LogSoftmax or Sigmoid off for the loss that holds it already.
 */
#include "end.h"

static dunlin_end end_of(const dunlin_net_node *node, dunlin_loss loss)
{
    if (node->kind == DUNLIN_OP_SOFTMAX && loss == DUNLIN_LOSS_CROSS_ENTROPY) {
        return node->u.softmax.is_log ? DUNLIN_END_LOG_SOFTMAX : DUNLIN_END_SOFTMAX;
    }
    if (node->kind == DUNLIN_OP_UNARY && node->u.unary.fn == DUNLIN_UNARY_SIGMOID &&
        loss == DUNLIN_LOSS_BCE) {
        return DUNLIN_END_SIGMOID;
    }
    return DUNLIN_END_NONE;
}

dunlin_end dunlin__end_cut(const dunlin_net *net, dunlin_loss loss, dunlin_net *out_cut)
{
    *out_cut = *net;
    const uint32_t last = net->values[net->output].producer;
    /* Nothing comes after it, nothing else reads it, and it reads one row a sample. */
    if (last == DUNLIN_NET_NONE || last + 1 != net->n_nodes ||
        net->values[net->output].n_consumers != 1) {
        return DUNLIN_END_NONE;
    }
    const dunlin_net_node *node = &net->nodes[last];
    const dunlin_net_value *before = &net->values[node->inputs[0]];
    const dunlin_end end = end_of(node, loss);
    if (end == DUNLIN_END_NONE || before->producer == DUNLIN_NET_NONE ||
        before->layout != DUNLIN_LAYOUT_PLAIN || before->shape.n_dims != 1) {
        return DUNLIN_END_NONE;
    }
    out_cut->output = node->inputs[0];
    out_cut->n_nodes--;
    return end;
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
