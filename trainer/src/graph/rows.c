/*
 * rows.c - tables whose gradient is kept by rows: those that tokens pick rows of, in one place.
 *
 * Which tables these are does not depend on the batch, and so the step's ops do not; how many rows
 * there is room for does.
 * Invariant: a batch never names more rows than there is room for.
 */
#include "emit.h"
#include "net/uses.h"

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

/* Rows that a batch can name. */
static int64_t most_named(int64_t n_rows, int64_t n_ids, int64_t batch)
{
    return batch <= n_rows / n_ids ? batch * n_ids : n_rows;
}

/* Room for every row that the batch can name, if that takes less than all rows of the table. */
static int64_t slots_for(const dunlin_net_param *table, int64_t n_ids, int64_t batch)
{
    const int64_t n_rows = table->shape.dims[0];
    const int64_t width = table->shape.dims[1];
    const int64_t n_slots = most_named(n_rows, n_ids, batch);
    return dunlin__row_sums_elements(n_rows, width, n_slots) < table->n_elements ? n_slots : 0;
}

/* The network's last layer over a vocabulary reads the table too. */
static bool is_of_head(const dunlin_net *net, uint32_t param)
{
    const uint32_t layer = dunlin__net_class_layer(net, net->output);
    return layer != DUNLIN_NET_NONE && net->nodes[layer].params[0] == param;
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
        const bool is_large = table->shape.dims[0] > n_ids;
        const size_t n_readers = count_readers(net, param);
        emit->params[param].is_by_rows = is_large && n_readers == 1;
        emit->params[param].is_part_by_rows = is_large && n_readers == 2 && is_of_head(net, param);
        if (emit->params[param].is_part_by_rows) {
            emit->params[param].n_part_slots = most_named(table->shape.dims[0], n_ids, batch);
        }
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

/* --- the part of the tokens, of a table that is a head's weight too --- */

int64_t dunlin__emit_part_slots(const dunlin_emit *emit, uint32_t param)
{
    return emit->params[param].n_part_slots;
}

uint32_t dunlin__emit_row_part(dunlin_emit *emit, uint32_t param)
{
    const dunlin_shape *table = &emit->net->params[param].shape;
    emit->graph->follows_batch = true;
    return dunlin__emit_named_tensor(
        emit, emit->net->params[param].name, "/grad_rows",
        &(dunlin_step_tensor){.dtype = DUNLIN_F32,
                              .n_elements = dunlin__row_sums_elements(
                                  table->dims[0], table->dims[1], emit->params[param].n_part_slots),
                              .mem_class = DUNLIN_MEM_ACCUMULATOR,
                              .follows_batch = true});
}

typedef struct join_params {
    int64_t n_rows, width;
} join_params;

/* Operands: the head's gradient, the rows, their sum. */
static dunlin_status run_join(const dunlin_kernel_call *call)
{
    const join_params *params = call->params;
    const dunlin_row_sums sums = dunlin__row_sums_at(call->operands[1], params->n_rows);
    call->run->kernels->add_row_sums(params->n_rows, params->width, call->operands[0], &sums,
                                     call->operands[2], call->run->threads);
    return DUNLIN_OK;
}

static const dunlin_step_kernel join_kernel = {.name = "row_sum",
                                               .run_fn = run_join,
                                               .parts = DUNLIN_MEM_FIXED,
                                               .in_place_write = 2,
                                               .in_place_read = 0};

void dunlin__emit_join_part(dunlin_emit *emit, uint32_t param, uint32_t part)
{
    const dunlin_net_param *table = &emit->net->params[param];
    const uint32_t out =
        dunlin__emit_named_tensor(emit, table->name, "/grad+",
                                  &(dunlin_step_tensor){.dtype = DUNLIN_F32,
                                                        .n_elements = table->n_elements,
                                                        .mem_class = DUNLIN_MEM_ACCUMULATOR});
    const dunlin_mem_access accesses[] = {
        {emit->params[param].gradient, DUNLIN_MEM_READ, DUNLIN_MEM_FIXED},
        {part, DUNLIN_MEM_READ, DUNLIN_MEM_FIXED},
        {out, DUNLIN_MEM_WRITE, DUNLIN_MEM_FIXED},
    };
    const join_params params = {.n_rows = table->shape.dims[0], .width = table->shape.dims[1]};
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = &join_kernel,
                                             .suffix = "/sum",
                                             .params = &params,
                                             .params_bytes = sizeof params,
                                             .accesses = accesses,
                                             .n_accesses = 3});
    emit->params[param].gradient = out;
}
