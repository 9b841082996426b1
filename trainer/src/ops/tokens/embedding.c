/*
 * embedding.c - a row of a table for each token: (T) whole numbers to (T, width).
 *
 * Invariant: a number outside the table is found by the forward pass, which comes before every
 * update, so a step that meets one changes no weight.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>

typedef struct embedding_params {
    int64_t n_ids; /* per sample */
    int64_t width, n_rows;
    int64_t n_slots;    /* of the gradient; 0: it is dense */
    bool is_transposed; /* the table is the weight of a dense layer too and lies as one */
} embedding_params;

static dunlin_status check_ids(const dunlin_kernel_call *call, const float *ids)
{
    const embedding_params *p = call->params;
    for (int64_t i = 0; i < call->n_samples * p->n_ids; i++) {
        const float id = ids[i];
        /* Not-a-number fails the first comparison. */
        if (id >= 0.0F && id < (float)p->n_rows && (float)(int64_t)id == id) {
            continue;
        }
        const int64_t example = dunlin__run_example(call->run, call->first_sample + i / p->n_ids);
        return dunlin__fail(call->run->error, DUNLIN_DATA, "step", 0,
                            "token %" PRId64 " of example %" PRId64
                            " is %g; the table has rows 0 to %" PRId64,
                            i % p->n_ids, example, (double)id, p->n_rows - 1);
    }
    return DUNLIN_OK;
}

/* Operands: ids, table, y. */
static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    const embedding_params *p = call->params;
    DUNLIN_TRY(check_ids(call, call->operands[0]));
    call->run->kernels->embedding(&(dunlin_embedding_call){
        .n_ids = call->n_samples * p->n_ids,
        .width = p->width,
        .n_rows = p->n_rows,
        .is_transposed = p->is_transposed,
        .ids = call->operands[0],
        .table = call->operands[1],
        .out = call->operands[2],
        .threads = call->run->threads,
    });
    return DUNLIN_OK;
}

/* Operands: ids, dy, gradient of the table. */
static dunlin_status run_backward(const dunlin_kernel_call *call)
{
    const embedding_params *p = call->params;
    const bool is_by_rows = p->n_slots > 0;
    call->run->kernels->embedding_grad(&(dunlin_embedding_call){
        .n_ids = call->n_samples * p->n_ids,
        .width = p->width,
        .n_rows = p->n_rows,
        .is_transposed = p->is_transposed,
        .ids = call->operands[0],
        .dy = call->operands[1],
        .out = is_by_rows ? NULL : call->operands[2],
        .sums = is_by_rows ? dunlin__row_sums_at(call->operands[2], p->n_rows)
                           : (dunlin_row_sums){.slots = NULL},
        .is_reset = call->is_first,
        .threads = call->run->threads,
    });
    return DUNLIN_OK;
}

static const dunlin_step_kernel forward_kernel = {
    .name = "embedding",
    .run_fn = run_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static const dunlin_step_kernel backward_kernel = {
    .name = "embedding_grad",
    .run_fn = run_backward,
    .parts = DUNLIN_MEM_REDUCE,
    .may_recompute = false,
    .in_place_write = -1,
    .in_place_read = -1,
};

static embedding_params node_params(const dunlin_emit *emit, const dunlin_net_node *node)
{
    const dunlin_net_param *table = &dunlin__emit_net(emit)->params[node->params[0]];
    const int64_t n_part_slots = dunlin__emit_part_slots(emit, node->params[0]);
    return (embedding_params){
        .n_ids = dunlin__op_elements(emit, node->inputs[0]),
        .width = table->shape.dims[1],
        .n_rows = table->shape.dims[0],
        .n_slots = n_part_slots > 0 ? n_part_slots : dunlin__emit_row_slots(emit, node->params[0]),
        .is_transposed = table->layout == DUNLIN_PARAM_DENSE};
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const embedding_params params = node_params(emit, node);
    const uint32_t ids = dunlin__emit_value(emit, node->inputs[0]);
    const dunlin_mem_access accesses[] = {
        {ids, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_param(emit, node->params[0]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_output(emit, node->output), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    dunlin__op_emit_map(emit, &forward_kernel, "", &params, sizeof params, accesses, 3, 0.0);
    dunlin__emit_save(emit, 0, ids);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (!dunlin__emit_is_trained(emit, node->params[0])) {
        return;
    }
    const embedding_params params = node_params(emit, node);
    const bool is_part = dunlin__emit_part_slots(emit, node->params[0]) > 0;
    const uint32_t gradient = is_part ? dunlin__emit_row_part(emit, node->params[0])
                                      : dunlin__emit_param_grad(emit, node->params[0]);
    const dunlin_mem_access accesses[] = {
        {dunlin__emit_saved(emit, 0), DUNLIN_MEM_READ, DUNLIN_MEM_REDUCE},
        {dunlin__emit_grad(emit, node->output), DUNLIN_MEM_READ, DUNLIN_MEM_REDUCE},
        {gradient, DUNLIN_MEM_ACCUMULATE, DUNLIN_MEM_REDUCE},
    };
    dunlin__op_emit_map(emit, &backward_kernel, "/table_grad", &params, sizeof params, accesses, 3,
                        (double)(params.n_ids * params.width));
    if (is_part) {
        dunlin__emit_join_part(emit, node->params[0], gradient);
    }
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    DUNLIN_TRY(dunlin__op_want_plain(net, node, 0, 0, error));
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    if (dunlin__op_has_param_before(net, node->inputs[0])) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s' looks up what is computed: only tokens of the network's "
                            "input are looked up",
                            node->name);
    }
    if (!dunlin__op_has_param(node, 0) || net->params[node->params[0]].shape.n_dims != 2 ||
        x->shape.n_dims >= DUNLIN_MAX_DIMS) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.120s' needs a table of two dimensions and tokens of at most "
                            "%d",
                            node->name, DUNLIN_MAX_DIMS - 1);
    }
    const dunlin_shape table = net->params[node->params[0]].shape;
    if (table.dims[0] > 1 << 24) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.120s' has a table of %" PRId64
                            " rows; tokens are exact up to %d",
                            node->name, table.dims[0], 1 << 24);
    }
    /* A dense layer that shares the table says how it lies. */
    const bool is_transposed = net->params[node->params[0]].layout == DUNLIN_PARAM_DENSE;
    DUNLIN_TRY(dunlin__op_want_param(
        net, node, 0, &table, is_transposed ? DUNLIN_PARAM_DENSE : DUNLIN_PARAM_PLAIN, error));
    dunlin__op_keep_shape(net, node);
    dunlin_shape *shape = &net->values[node->output].shape;
    shape->dims[shape->n_dims++] = table.dims[1];
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    (void)net;
    node->kind = DUNLIN_OP_EMBEDDING;
    if (dunlin__onnx_int(onnx, "axis", 0) != 0) {
        return dunlin__onnx_reject(onnx, "axis", "is not 0");
    }
    DUNLIN_TRY(dunlin__op_take_value(onnx, 1, node));
    DUNLIN_TRY(dunlin__op_take_param(onnx, 0, "the table", node));
    return dunlin__onnx_transpose_weight(onnx, 0, false);
}

/* Gather wants whole numbers: the file's own input, or what was computed made whole again. */
static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    (void)net;
    enum { ELEMENT_INT64 = 7 };
    dunlin__onnx_begin_node(writer, "Gather", node);
    dunlin__onnx_add_param(writer, node->params[0]);
    if (!dunlin__onnx_add_ids(writer, node->inputs[0])) {
        dunlin__onnx_begin_node(writer, "Cast", node);
        dunlin__onnx_add_value(writer, node->inputs[0]);
        dunlin__onnx_attr_int(writer, "to", ELEMENT_INT64);
        dunlin__onnx_end_part(writer, "/ids");
        dunlin__onnx_begin_node(writer, "Gather", node);
        dunlin__onnx_add_param(writer, node->params[0]);
        dunlin__onnx_add_part(writer, "/ids");
    }
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"Gather", NULL};

const dunlin_op_row dunlin__op_embedding = {
    .kind = DUNLIN_OP_EMBEDDING,
    .name = "embedding",
    .onnx_names = onnx_names,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
