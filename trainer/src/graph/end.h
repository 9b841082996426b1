/*
 * end.h - the function at the end of a network that the loss includes.
 *
 * Cross-entropy is over logits, and so is binary cross-entropy: a last Softmax, LogSoftmax or
 * Sigmoid would be applied twice. So the step is built of the network before it; predictions go
 * through it, and the network as such, what is exported, keeps it.
 */
#ifndef DUNLIN_GRAPH_END_H
#define DUNLIN_GRAPH_END_H

#include "kernels/api/kernels.h"
#include "net/net.h"

#include <dunlin/trainer.h>

typedef enum dunlin_end {
    DUNLIN_END_NONE = 0,
    DUNLIN_END_SOFTMAX,
    DUNLIN_END_LOG_SOFTMAX,
    DUNLIN_END_SIGMOID
} dunlin_end;

/*
 * What this loss takes from the end of the network. `*out_cut` is the network without it, or as it
 * is; it shares all arrays with `net`.
 */
dunlin_end dunlin__end_cut(const dunlin_net *net, dunlin_loss loss, dunlin_net *out_cut);

/*
 * What this loss takes from the end of one of several outputs: *out_value is what the loss is over,
 * and the last *out_n_nodes nodes before `value` are taken off. Nothing (NONE, 0) where the value
 * before them is an output too.
 */
dunlin_end dunlin__end_find(const dunlin_net *net, uint32_t value, dunlin_loss loss,
                            uint32_t *out_value, uint32_t *out_n_nodes);

/* Applies it to rows of logits, in place. */
void dunlin__end_apply(dunlin_end end, const dunlin_kernels *kernels, int64_t n_rows, int64_t width,
                       float *rows, dunlin_threads *threads);

#endif
