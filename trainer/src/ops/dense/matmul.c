/*
 * matmul.c - products of two values' matrices, the last two dimensions of each; the dimensions
 * before them are the same. Either side may be read transposed.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

/* Operands: left, right, output. */
static dunlin_status run_matmul(const dunlin_kernel_call *call)
{
    call->run->kernels->matmul(&(dunlin_matmul_call){
        .shape = call->params,
        .n_samples = call->n_samples,
        .a = call->operands[0],
        .b = call->operands[1],
        .out = call->operands[2],
        .workspace = call->workspace,
        .threads = call->run->threads,
    });
    return DUNLIN_OK;
}

static uint64_t matmul_workspace(const dunlin_kernels *kernels, const void *params,
                                 size_t n_threads, uint64_t *out_sample_bytes)
{
    *out_sample_bytes = 0;
    return kernels->matmul_workspace_bytes(params, n_threads);
}

static const dunlin_step_kernel matmul_kernel = {
    .name = "matmul",
    .run_fn = run_matmul,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
    .workspace_fn = matmul_workspace,
};

static void emit_product(dunlin_emit *emit, const char *suffix, const dunlin_matmul_shape *shape,
                         uint32_t left, uint32_t right, uint32_t out)
{
    const dunlin_mem_access accesses[] = {
        {left, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {right, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {out, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    dunlin__op_emit_map(emit, &matmul_kernel, suffix, shape, sizeof *shape, accesses, 3,
                        2.0 * (double)shape->n_products * (double)shape->m * (double)shape->n *
                            (double)shape->k);
}

static dunlin_matmul_shape node_shape(const dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_shape *a = &net->values[node->inputs[0]].shape;
    const dunlin_shape *y = &net->values[node->output].shape;
    const int32_t n = y->n_dims;
    dunlin_matmul_shape shape = {
        .n_products = 1,
        .m = y->dims[n - 2],
        .n = y->dims[n - 1],
        .k = a->dims[node->u.matmul.is_left_transposed ? n - 2 : n - 1],
        .is_a_transposed = node->u.matmul.is_left_transposed,
        .is_b_transposed = node->u.matmul.is_right_transposed,
    };
    for (int32_t i = 0; i < n - 2; i++) {
        shape.n_products *= y->dims[i];
    }
    return shape;
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const dunlin_matmul_shape shape = node_shape(dunlin__emit_net(emit), node);
    const uint32_t a = dunlin__emit_value(emit, node->inputs[0]);
    const uint32_t b = dunlin__emit_value(emit, node->inputs[1]);
    emit_product(emit, "", &shape, a, b, dunlin__emit_output(emit, node->output));
    dunlin__emit_save(emit, 0, a);
    dunlin__emit_save(emit, 1, b);
}

/* With Y = A B: dA = dY B^T, dB = A^T dY; a turned operand's gradient is that product turned. */
static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const dunlin_matmul_shape s = node_shape(dunlin__emit_net(emit), node);
    const uint32_t dy = dunlin__emit_grad(emit, node->output);
    if (dunlin__emit_needs_grad(emit, node->inputs[0])) {
        const uint32_t b = dunlin__emit_saved(emit, 1);
        const uint32_t da = dunlin__emit_grad_target(emit, node->inputs[0]);
        dunlin_matmul_shape shape = {.n_products = s.n_products, .k = s.n};
        if (s.is_a_transposed) { /* k x m = B dY^T */
            shape.m = s.k;
            shape.n = s.m;
            shape.is_a_transposed = s.is_b_transposed;
            shape.is_b_transposed = true;
            emit_product(emit, "/left_grad", &shape, b, dy, da);
        } else {
            shape.m = s.m;
            shape.n = s.k;
            shape.is_b_transposed = !s.is_b_transposed;
            emit_product(emit, "/left_grad", &shape, dy, b, da);
        }
    }
    if (dunlin__emit_needs_grad(emit, node->inputs[1])) {
        const uint32_t a = dunlin__emit_saved(emit, 0);
        const uint32_t db = dunlin__emit_grad_target(emit, node->inputs[1]);
        dunlin_matmul_shape shape = {.n_products = s.n_products, .k = s.m};
        if (s.is_b_transposed) { /* n x k = dY^T A */
            shape.m = s.n;
            shape.n = s.k;
            shape.is_a_transposed = true;
            shape.is_b_transposed = s.is_a_transposed;
            emit_product(emit, "/right_grad", &shape, dy, a, db);
        } else {
            shape.m = s.k;
            shape.n = s.n;
            shape.is_a_transposed = !s.is_a_transposed;
            emit_product(emit, "/right_grad", &shape, a, dy, db);
        }
    }
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 2, error));
    DUNLIN_TRY(dunlin__op_want_plain(net, node, 0, 2, error));
    DUNLIN_TRY(dunlin__op_want_plain(net, node, 1, 2, error));
    const dunlin_shape *a = &net->values[node->inputs[0]].shape;
    const dunlin_shape *b = &net->values[node->inputs[1]].shape;
    const int32_t n = a->n_dims;
    bool is_good = b->n_dims == n;
    for (int32_t i = 0; is_good && i < n - 2; i++) {
        is_good = a->dims[i] == b->dims[i];
    }
    const bool is_left_transposed = node->u.matmul.is_left_transposed;
    const bool is_right_transposed = node->u.matmul.is_right_transposed;
    if (!is_good || a->dims[is_left_transposed ? n - 2 : n - 1] !=
                        b->dims[is_right_transposed ? n - 1 : n - 2]) {
        char left[DUNLIN_OP_SHAPE_TEXT_BYTES];
        char right[DUNLIN_OP_SHAPE_TEXT_BYTES];
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.60s' multiplies %.50s%s and %.50s%s: that does not fit",
                            node->name, dunlin__op_shape_text(a, left),
                            is_left_transposed ? " turned" : "", dunlin__op_shape_text(b, right),
                            is_right_transposed ? " turned" : "");
    }
    const int64_t n_columns = b->dims[is_right_transposed ? n - 2 : n - 1];
    const int64_t n_rows = a->dims[is_left_transposed ? n - 1 : n - 2];
    dunlin__op_keep_shape(net, node);
    dunlin_shape *y = &net->values[node->output].shape;
    y->dims[n - 2] = n_rows;
    y->dims[n - 1] = n_columns;
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    (void)net;
    node->kind = DUNLIN_OP_MATMUL;
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    return dunlin__op_take_value(onnx, 1, node);
}

/* A turned operand through a Transpose of its own. */
static void write_transposed(dunlin_onnx_writer *writer, const dunlin_net *net,
                             const dunlin_net_node *node, int side)
{
    const int32_t n = net->values[node->output].shape.n_dims + 1;
    int64_t perm[DUNLIN_MAX_DIMS + 1];
    for (int32_t i = 0; i < n; i++) {
        perm[i] = i;
    }
    perm[n - 2] = n - 1;
    perm[n - 1] = n - 2;
    dunlin__onnx_begin_node(writer, "Transpose", node);
    dunlin__onnx_add_value(writer, node->inputs[side]);
    dunlin__onnx_attr_ints(writer, "perm", perm, n);
    dunlin__onnx_end_part(writer, side == 0 ? "/left" : "/right");
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    const bool is_transposed[2] = {node->u.matmul.is_left_transposed,
                                   node->u.matmul.is_right_transposed};
    for (int side = 0; side < 2; side++) {
        if (is_transposed[side]) {
            write_transposed(writer, net, node, side);
        }
    }
    dunlin__onnx_begin_node(writer, "MatMul", node);
    for (int side = 0; side < 2; side++) {
        if (is_transposed[side]) {
            dunlin__onnx_add_part(writer, side == 0 ? "/left" : "/right");
        } else {
            dunlin__onnx_add_value(writer, node->inputs[side]);
        }
    }
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"MatMul", NULL};

const dunlin_op_row dunlin__op_matmul = {
    .kind = DUNLIN_OP_MATMUL,
    .name = "matmul",
    .onnx_names = onnx_names,
    .wish = DUNLIN_WISH_PLAIN,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
