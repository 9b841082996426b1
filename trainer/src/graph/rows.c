/*
 * rows.c - tables whose gradient is kept by rows: those that tokens pick rows of, in one place.
 *
 * Which tables these are does not depend on the batch, and so the step's ops do not; how many rows
 * there is room for does.
 * Invariant: a batch never names more rows than there is room for.
 */
#include "emit.h"

static size_t count_readers(const dunlin_net *net, uint32_t param)
{
    size_t n = 0;
    for (size_t i = 0; i < net->n_nodes; i++) {
        for (uint32_t k = 0; k < net->nodes[i].n_params; k++) {
            n += net->nodes[i].params[k] == param ? 1 : 0;
        }
    }
    return n;
}

/* Room for every row that the batch can name, if that takes less than all rows of the table. */
static int64_t slots_for(const dunlin_net_param *table, int64_t n_ids, int64_t batch)
{
    const int64_t n_rows = table->shape.dims[0];
    const int64_t width = table->shape.dims[1];
    const int64_t n_slots = batch <= n_rows / n_ids ? batch * n_ids : n_rows;
    return dunlin__row_sums_elements(n_rows, width, n_slots) < table->n_elements ? n_slots : 0;
}

void dunlin__rows_plan(dunlin_emit *emit)
{
    const dunlin_net *net = emit->net;
    const int64_t batch = emit->options->batch;
    for (size_t i = 0; i < net->n_nodes; i++) {
        const dunlin_net_node *node = &net->nodes[i];
        if (node->kind != DUNLIN_OP_EMBEDDING || batch == 0 || emit->options->has_gradient_hook) {
            continue;
        }
        const uint32_t param = node->params[0];
        const dunlin_net_param *table = &net->params[param];
        const int64_t n_ids = dunlin__value_elements(&net->values[node->inputs[0]]);
        emit->params[param].is_by_rows =
            table->shape.dims[0] > n_ids && count_readers(net, param) == 1;
        if (emit->params[param].is_by_rows) {
            emit->params[param].n_slots = slots_for(table, n_ids, batch);
        }
    }
}

int64_t dunlin__emit_row_slots(const dunlin_emit *emit, uint32_t param)
{
    return emit->params[param].n_slots;
}

int64_t dunlin__rows_elements(const dunlin_emit *emit, uint32_t param)
{
    const dunlin_net_param *net_param = &emit->net->params[param];
    const int64_t n_slots = emit->params[param].n_slots;
    return n_slots > 0 ? dunlin__row_sums_elements(net_param->shape.dims[0],
                                                   net_param->shape.dims[1], n_slots)
                       : net_param->n_elements;
}
