/*
 * prelu.c - PReLU (He et al. 2015): x above 0 as it is, else times a slope that is trained, one for
 * all elements or one for each index of a dimension, such as an image's channels.
 *
 * Backward is one op: the input's gradient a map, the slopes' a reducer.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>

typedef struct prelu_params {
    int64_t n_rows; /* per sample */
    int64_t n_slopes, inner;
    bool has_dx, has_dslopes;
} prelu_params;

static dunlin_prelu_call prelu_call(const dunlin_kernel_call *call)
{
    const prelu_params *p = call->params;
    return (dunlin_prelu_call){
        .n_rows = p->n_rows,
        .n_slopes = p->n_slopes,
        .inner = p->inner,
        .n_samples = call->n_samples,
        .x = call->operands[0],
        .slopes = call->operands[1],
        .is_reset = call->is_first,
        .workspace = call->workspace,
        .threads = call->run->threads,
    };
}

/* Operands: x, slopes, y. */
static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    dunlin_prelu_call prelu = prelu_call(call);
    prelu.y = call->operands[2];
    call->run->kernels->prelu(&prelu);
    return DUNLIN_OK;
}

/* Operands: x, slopes, dy; then dx and the slopes' gradient, as far as they are wanted. What the
 * current parts do not touch is NULL. */
static dunlin_status run_backward(const dunlin_kernel_call *call)
{
    const prelu_params *p = call->params;
    dunlin_prelu_call prelu = prelu_call(call);
    uint32_t next = 3;
    prelu.dy = call->operands[2];
    if (p->has_dx) {
        prelu.dx = call->operands[next++];
    }
    if (p->has_dslopes) {
        prelu.dslopes = call->operands[next];
    }
    call->run->kernels->prelu(&prelu);
    return DUNLIN_OK;
}

static uint64_t workspace(const dunlin_kernels *kernels, const void *params, size_t n_threads,
                          uint64_t *out_sample_bytes)
{
    (void)n_threads;
    const prelu_params *p = params;
    const uint64_t bytes = kernels->prelu_workspace_bytes(p->n_slopes, p->inner, out_sample_bytes);
    *out_sample_bytes = p->has_dslopes ? *out_sample_bytes : 0;
    return bytes;
}

#define PRELU_KERNEL(name_of, run_of, parts_of, recomputes, write, read)                           \
    {                                                                                              \
        .name = (name_of), .run_fn = (run_of), .parts = (parts_of), .may_recompute = (recomputes), \
        .in_place_write = (write), .in_place_read = (read), .workspace_fn = workspace              \
    }

static const dunlin_step_kernel forward_kernel =
    PRELU_KERNEL("prelu", run_forward, DUNLIN_MEM_MAP, true, 2, 0);
static const dunlin_step_kernel backward_map =
    PRELU_KERNEL("prelu_grad", run_backward, DUNLIN_MEM_MAP, true, 3, 2);
static const dunlin_step_kernel backward_reduce =
    PRELU_KERNEL("prelu_grad", run_backward, DUNLIN_MEM_REDUCE, false, -1, -1);
static const dunlin_step_kernel backward_both =
    PRELU_KERNEL("prelu_grad", run_backward, DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE, true, 3, 2);

/* An image's channels lie innermost. */
static prelu_params node_params(const dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    prelu_params params = {.n_slopes = net->params[node->params[0]].n_elements, .inner = 1};
    const bool is_inner = x->layout == DUNLIN_LAYOUT_IMAGE || params.n_slopes == 1;
    for (int32_t i = node->u.prelu.axis + 1; !is_inner && i < x->shape.n_dims; i++) {
        params.inner *= x->shape.dims[i];
    }
    params.n_rows = dunlin__value_elements(x) / (params.n_slopes * params.inner);
    return params;
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const prelu_params params = node_params(dunlin__emit_net(emit), node);
    const uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    const dunlin_mem_access accesses[] = {
        {x, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_param(emit, node->params[0]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_output(emit, node->output), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    dunlin__op_emit_map(emit, &forward_kernel, "", &params, sizeof params, accesses, 3,
                        2.0 * (double)dunlin__op_elements(emit, node->output));
    dunlin__emit_save(emit, 0, x);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    prelu_params params = node_params(dunlin__emit_net(emit), node);
    params.has_dx = dunlin__emit_needs_grad(emit, node->inputs[0]);
    params.has_dslopes = dunlin__emit_is_trained(emit, node->params[0]);
    const uint8_t parts = (uint8_t)((params.has_dx ? DUNLIN_MEM_MAP : 0) |
                                    (params.has_dslopes ? DUNLIN_MEM_REDUCE : 0));
    if (parts == 0) {
        return;
    }
    dunlin_mem_access accesses[5] = {
        {dunlin__emit_saved(emit, 0), DUNLIN_MEM_READ, parts},
        {dunlin__emit_param(emit, node->params[0]), DUNLIN_MEM_READ, parts},
        {dunlin__emit_grad(emit, node->output), DUNLIN_MEM_READ, parts},
    };
    uint32_t n = 3;
    if (params.has_dx) {
        accesses[n++] = (dunlin_mem_access){dunlin__emit_grad_target(emit, node->inputs[0]),
                                            DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP};
    }
    if (params.has_dslopes) {
        accesses[n++] = (dunlin_mem_access){dunlin__emit_param_grad(emit, node->params[0]),
                                            DUNLIN_MEM_ACCUMULATE, DUNLIN_MEM_REDUCE};
    }
    const dunlin_step_kernel *kernel = !params.has_dslopes ? &backward_map
                                       : params.has_dx     ? &backward_both
                                                           : &backward_reduce;
    dunlin__op_emit_map(emit, kernel, "/grad", &params, sizeof params, accesses, n,
                        4.0 * (double)dunlin__op_elements(emit, node->output));
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    if (!dunlin__op_has_param(node, 0)) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0, "node '%.120s' lacks its slopes",
                            node->name);
    }
    dunlin_net_param *slopes = &net->params[node->params[0]];
    const int32_t axis = node->u.prelu.axis;
    const int64_t n = axis >= 0 && axis < x->shape.n_dims ? x->shape.dims[axis] : 0;
    if (slopes->n_elements != 1 && slopes->n_elements != n) {
        char text[DUNLIN_OP_SHAPE_TEXT_BYTES];
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.80s' has %" PRId64 " slopes; 1 or %" PRId64
                            " fit dimension %" PRId32 " of %.60s",
                            node->name, slopes->n_elements, n, axis,
                            dunlin__op_shape_text(&x->shape, text));
    }
    slopes->layout = DUNLIN_PARAM_PLAIN;
    dunlin__op_keep_shape(net, node);
    return DUNLIN_OK;
}

/* Dimensions of 1 after the one that has all elements. */
static int32_t trailing_ones(const dunlin_shape *shape)
{
    int32_t n = 0;
    while (n < shape->n_dims && shape->dims[shape->n_dims - 1 - n] == 1) {
        n++;
    }
    return n;
}

/* Slopes in the input's rank, or the output of an Unsqueeze, which norms.c reads. */
static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_PRELU;
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    DUNLIN_TRY(dunlin__op_take_param(onnx, 1, "the slope", node));
    const dunlin_shape *x = &net->values[node->inputs[0]].shape;
    const dunlin_net_param *slopes = &net->params[node->params[0]];
    if (slopes->n_elements == 1) {
        return DUNLIN_OK;
    }
    const int32_t axis = x->n_dims - 1 - trailing_ones(&slopes->shape);
    const int32_t at = slopes->shape.n_dims - 1 - trailing_ones(&slopes->shape);
    if (axis < 0 || slopes->n_elements != slopes->shape.dims[at]) {
        return dunlin__onnx_reject(onnx, "",
                                   "its slopes are not for one dimension, such as the channels");
    }
    node->u.prelu.axis = axis;
    return DUNLIN_OK;
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    static const int64_t axes[DUNLIN_MAX_DIMS] = {1, 2, 3, 4, 5, 6, 7, 8};
    const dunlin_net_param *slopes = &net->params[node->params[0]];
    const int32_t behind = net->values[node->inputs[0]].shape.n_dims - 1 - node->u.prelu.axis;
    const bool is_bare = slopes->n_elements > 1 && slopes->shape.n_dims == 1 && behind > 0;
    if (is_bare) {
        dunlin__onnx_begin_node(writer, "Unsqueeze", node);
        dunlin__onnx_add_param(writer, node->params[0]);
        dunlin__onnx_add_ints(writer, "/axes", axes, behind);
        dunlin__onnx_end_part(writer, "/slopes");
    }
    dunlin__onnx_begin_node(writer, "PRelu", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    if (is_bare) {
        dunlin__onnx_add_part(writer, "/slopes");
    } else {
        dunlin__onnx_add_param(writer, node->params[0]);
    }
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"PRelu", NULL};

const dunlin_op_row dunlin__op_prelu = {
    .kind = DUNLIN_OP_PRELU,
    .name = "prelu",
    .onnx_names = onnx_names,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
