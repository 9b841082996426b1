/*
 * attention.c - scaled dot-product attention of several heads as one operator.
 *
 * Neither scores nor probabilities are kept: only each row's largest score and sum, two floats a
 * query and head, from which the backward pass recomputes them.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_PARTS 3  /* q, k and v */
#define MAX_INPUTS 4 /* and the mask */

typedef struct attention_params {
    dunlin_attention_shape shape;
    bool is_packed; /* one tensor holds q, k and v side by side */
    bool has_mask;
    bool has_grad[MAX_PARTS]; /* backward: of q, k, v */
} attention_params;

enum { SAVED_Q = 0, SAVED_K = 1, SAVED_V = 2, SAVED_MASK = 3, SAVED_STATS = 4 };

/* Where q, k, v (or their gradients) are, the first at operand `first`. */
static void place_parts(const dunlin_kernel_call *call, uint32_t first, float *out_parts[3])
{
    const attention_params *p = call->params;
    const int64_t width = (int64_t)p->shape.heads * p->shape.width;
    for (uint32_t i = 0; i < 3; i++) {
        float *base = call->operands[first + (p->is_packed ? 0 : i)];
        out_parts[i] = p->is_packed ? base + (int64_t)i * width : base;
    }
}

/* Operands: stats, output or its gradient; q, k, v or all in one; the mask; backward: the gradients
 * of those that want one. */
static dunlin_status run_attention(const dunlin_kernel_call *call, bool is_backward)
{
    const attention_params *p = call->params;
    const uint32_t n_parts = p->is_packed ? 1 : 3;
    float *parts[3];
    place_parts(call, 2, parts);
    dunlin_attention_call run = {
        .shape = &p->shape,
        .n_samples = call->n_samples,
        .q = parts[0],
        .k = parts[1],
        .v = parts[2],
        .mask = p->has_mask ? call->operands[2 + n_parts] : NULL,
        .stats = call->operands[0],
        .workspace = call->workspace,
        .threads = call->run->threads,
    };
    if (!is_backward) {
        run.out = call->operands[1];
        call->run->kernels->attention(&run);
        return DUNLIN_OK;
    }
    run.dy = call->operands[1];
    uint32_t next = 2 + n_parts + (p->has_mask ? 1 : 0);
    float **const grads[3] = {&run.dq, &run.dk, &run.dv};
    if (p->is_packed) {
        place_parts(call, next, parts);
    }
    for (uint32_t i = 0; i < 3; i++) {
        if (p->is_packed) {
            *grads[i] = parts[i];
        } else if (p->has_grad[i]) {
            *grads[i] = call->operands[next++];
        }
    }
    call->run->kernels->attention(&run);
    return DUNLIN_OK;
}

static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    return run_attention(call, false);
}

static dunlin_status run_backward(const dunlin_kernel_call *call)
{
    return run_attention(call, true);
}

static uint64_t forward_workspace(const dunlin_kernels *kernels, const void *params,
                                  size_t n_threads, uint64_t *out_sample_bytes)
{
    const attention_params *p = params;
    *out_sample_bytes = 0;
    return kernels->attention_workspace_bytes(&p->shape, false, n_threads);
}

static uint64_t backward_workspace(const dunlin_kernels *kernels, const void *params,
                                   size_t n_threads, uint64_t *out_sample_bytes)
{
    const attention_params *p = params;
    *out_sample_bytes = 0;
    return kernels->attention_workspace_bytes(&p->shape, true, n_threads);
}

static const dunlin_step_kernel forward_kernel = {
    .name = "attention",
    .run_fn = run_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
    .workspace_fn = forward_workspace,
};

static const dunlin_step_kernel backward_kernel = {
    .name = "attention_grad",
    .run_fn = run_backward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
    .workspace_fn = backward_workspace,
};

/* --- emission --- */

static uint32_t n_parts_of(const dunlin_net_node *node)
{
    const uint32_t n = node->n_inputs - (node->u.attention.has_mask ? 1 : 0);
    return n < MAX_PARTS ? n : MAX_PARTS;
}

static attention_params node_params(const dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_net_attention *a = &node->u.attention;
    const bool is_packed = n_parts_of(node) == 1;
    const dunlin_shape *q = &net->values[node->inputs[0]].shape;
    const dunlin_shape *k = &net->values[node->inputs[is_packed ? 0 : 1]].shape;
    attention_params params = {.is_packed = is_packed, .has_mask = a->has_mask};
    const int64_t pitch = q->dims[1];
    params.shape = (dunlin_attention_shape){
        .heads = a->heads,
        .width = (int32_t)(pitch / a->heads / (is_packed ? 3 : 1)),
        .n_queries = (int32_t)q->dims[0],
        .n_keys = (int32_t)k->dims[0],
        .scale = a->scale,
        .q_pitch = pitch,
        .k_pitch = pitch,
        .v_pitch = pitch,
    };
    if (a->has_mask) {
        const int64_t n = dunlin__value_elements(&net->values[node->inputs[node->n_inputs - 1]]);
        params.shape.mask_rows = (int32_t)(n / k->dims[0]);
    }
    return params;
}

static double node_flops(const dunlin_attention_shape *s)
{
    return 4.0 * s->heads * s->n_queries * (double)s->n_keys * s->width;
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const attention_params params = node_params(dunlin__emit_net(emit), node);
    const uint32_t stats = dunlin__emit_tensor(
        emit, "/rows", DUNLIN_F32, true, 2 * (int64_t)params.shape.heads * params.shape.n_queries,
        DUNLIN_MEM_SAVED);
    dunlin_mem_access accesses[2 + MAX_INPUTS] = {
        {stats, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
        {DUNLIN_STEP_NONE, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    for (uint32_t i = 0; i < node->n_inputs && i < MAX_INPUTS; i++) {
        const uint32_t tensor = dunlin__emit_value(emit, node->inputs[i]);
        accesses[2 + i] = (dunlin_mem_access){tensor, DUNLIN_MEM_READ, DUNLIN_MEM_MAP};
        const bool is_mask = params.has_mask && i + 1 == node->n_inputs;
        dunlin__emit_save(emit, is_mask ? SAVED_MASK : SAVED_Q + i, tensor);
    }
    accesses[1].tensor = dunlin__emit_output(emit, node->output);
    dunlin__op_emit_map(emit, &forward_kernel, "", &params, sizeof params, accesses,
                        2 + node->n_inputs, node_flops(&params.shape));
    dunlin__emit_save(emit, SAVED_STATS, stats);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    attention_params params = node_params(dunlin__emit_net(emit), node);
    const uint32_t n_parts = n_parts_of(node);
    dunlin_mem_access accesses[9] = {
        {dunlin__emit_saved(emit, SAVED_STATS), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_grad(emit, node->output), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
    };
    uint32_t n = 2;
    for (uint32_t i = 0; i < n_parts; i++) {
        accesses[n++] = (dunlin_mem_access){dunlin__emit_saved(emit, SAVED_Q + i), DUNLIN_MEM_READ,
                                            DUNLIN_MEM_MAP};
    }
    if (params.has_mask) {
        accesses[n++] = (dunlin_mem_access){dunlin__emit_saved(emit, SAVED_MASK), DUNLIN_MEM_READ,
                                            DUNLIN_MEM_MAP};
    }
    const uint32_t n_read = n;
    for (uint32_t i = 0; i < n_parts; i++) {
        params.has_grad[i] = dunlin__emit_needs_grad(emit, node->inputs[i]);
        if (params.has_grad[i]) {
            accesses[n++] = (dunlin_mem_access){dunlin__emit_grad_target(emit, node->inputs[i]),
                                                DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP};
        }
    }
    if (n > n_read) {
        dunlin__op_emit_map(emit, &backward_kernel, "/input_grad", &params, sizeof params, accesses,
                            n, 2.5 * node_flops(&params.shape));
    }
}

/* --- the row --- */

static dunlin_status fail_shape(const dunlin_net *net, const dunlin_net_node *node, uint32_t index,
                                const char *what, dunlin_error *error)
{
    char text[DUNLIN_OP_SHAPE_TEXT_BYTES];
    return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                        "node '%.80s' of %" PRId32 " heads: input %" PRIu32 " is %.60s, %s",
                        node->name, node->u.attention.heads, index,
                        dunlin__op_shape_text(&net->values[node->inputs[index]].shape, text), what);
}

static dunlin_status check_mask(const dunlin_net *net, const dunlin_net_node *node,
                                int64_t n_queries, int64_t n_keys, dunlin_error *error)
{
    const uint32_t index = node->n_inputs - 1;
    DUNLIN_TRY(dunlin__op_want_plain(net, node, index, 1, error));
    const dunlin_net_value *mask = &net->values[node->inputs[index]];
    const int64_t n = dunlin__value_elements(mask);
    const int64_t last = mask->shape.dims[mask->shape.n_dims - 1];
    if (last != n_keys || (n != n_keys && n != n_queries * n_keys)) {
        return fail_shape(net, node, index, "a mask must be (keys) or (queries, keys)", error);
    }
    if (dunlin__op_has_param_before(net, node->inputs[index])) {
        return fail_shape(net, node, index,
                          "and not made of the network's input alone: a mask is not trained",
                          error);
    }
    return DUNLIN_OK;
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    const dunlin_net_attention *a = &node->u.attention;
    const uint32_t n_masks = a->has_mask ? 1 : 0;
    if (node->n_inputs != 1 + n_masks && node->n_inputs != 3 + n_masks) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.120s' has %" PRIu32 " inputs; it needs q, k and v or all in "
                            "one%s",
                            node->name, node->n_inputs, a->has_mask ? ", and a mask" : "");
    }
    const uint32_t n_parts = n_parts_of(node);
    const int32_t per_head = n_parts == 1 ? 3 : 1;
    const dunlin_shape *q = &net->values[node->inputs[0]].shape;
    for (uint32_t i = 0; i < n_parts; i++) {
        DUNLIN_TRY(dunlin__op_want_plain(net, node, i, 2, error));
        const dunlin_shape *part = &net->values[node->inputs[i]].shape;
        const bool is_good = part->n_dims == 2 && part->dims[1] == q->dims[1] && a->heads >= 1 &&
                             part->dims[1] % ((int64_t)a->heads * per_head) == 0;
        if (!is_good) {
            return fail_shape(net, node, i, "not (tokens, a multiple of the heads)", error);
        }
    }
    const int64_t n_keys = net->values[node->inputs[n_parts == 1 ? 0 : 1]].shape.dims[0];
    if (n_parts == 3 && net->values[node->inputs[2]].shape.dims[0] != n_keys) {
        return fail_shape(net, node, 2, "not as many tokens as the keys", error);
    }
    if (!isfinite(a->scale)) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.120s': the scale %g is not finite", node->name,
                            (double)a->scale);
    }
    if (a->has_mask) {
        DUNLIN_TRY(check_mask(net, node, q->dims[0], n_keys, error));
    }
    dunlin__op_keep_shape(net, node);
    net->values[node->output].shape.dims[1] = q->dims[1] / per_head;
    return DUNLIN_OK;
}

/* ONNX has no such operator: files hold its parts, and the reader joins them. */
static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    (void)net;
    (void)node;
    return dunlin__onnx_reject(onnx, "", "is no operator of ONNX");
}

/* Part `index` of the packed input, or input `index`, as (N, heads, ...) under the name `to`. */
static void write_heads(dunlin_onnx_writer *writer, const attention_params *p,
                        const dunlin_net_node *node, uint32_t index, bool is_transposed)
{
    static const char *const cut[3] = {"/q_part", "/k_part", "/v_part"};
    static const char *const split[3] = {"/q_heads", "/k_heads", "/v_heads"};
    static const char *const transposed[3] = {"/q", "/k", "/v"};
    const dunlin_attention_shape *s = &p->shape;
    const int64_t width = (int64_t)s->heads * s->width;
    if (p->is_packed) {
        const int64_t start = index * width;
        const int64_t end = start + width;
        const int64_t axis = 2;
        dunlin__onnx_begin_node(writer, "Slice", node);
        dunlin__onnx_add_value(writer, node->inputs[0]);
        dunlin__onnx_add_ints(writer,
                              index == 0   ? "/q_start"
                              : index == 1 ? "/k_start"
                                           : "/v_start",
                              &start, 1);
        dunlin__onnx_add_ints(writer,
                              index == 0   ? "/q_end"
                              : index == 1 ? "/k_end"
                                           : "/v_end",
                              &end, 1);
        dunlin__onnx_add_ints(writer,
                              index == 0   ? "/q_axis"
                              : index == 1 ? "/k_axis"
                                           : "/v_axis",
                              &axis, 1);
        dunlin__onnx_end_part(writer, cut[index]);
    }
    const int64_t shape[4] = {-1, index == 0 ? s->n_queries : s->n_keys, s->heads, s->width};
    dunlin__onnx_begin_node(writer, "Reshape", node);
    if (p->is_packed) {
        dunlin__onnx_add_part(writer, cut[index]);
    } else {
        dunlin__onnx_add_value(writer, node->inputs[index]);
    }
    dunlin__onnx_add_ints(writer,
                          index == 0   ? "/q_shape"
                          : index == 1 ? "/k_shape"
                                       : "/v_shape",
                          shape, 4);
    dunlin__onnx_end_part(writer, split[index]);
    const int64_t perm[4] = {0, 2, is_transposed ? 3 : 1, is_transposed ? 1 : 3};
    dunlin__onnx_begin_node(writer, "Transpose", node);
    dunlin__onnx_add_part(writer, split[index]);
    dunlin__onnx_attr_ints(writer, "perm", perm, 4);
    dunlin__onnx_end_part(writer, transposed[index]);
}

/* The mask as (N, 1, rows, keys). */
static bool is_mask_spread(const attention_params *p, const dunlin_net_value *mask)
{
    const dunlin_shape *shape = &mask->shape;
    return shape->n_dims == 3 && shape->dims[0] == 1 && shape->dims[1] == p->shape.mask_rows &&
           shape->dims[2] == p->shape.n_keys;
}

static void write_scores(dunlin_onnx_writer *writer, const attention_params *p,
                         const dunlin_net *net, const dunlin_net_node *node)
{
    dunlin__onnx_begin_node(writer, "MatMul", node);
    dunlin__onnx_add_part(writer, "/q");
    dunlin__onnx_add_part(writer, "/k");
    dunlin__onnx_end_part(writer, "/products");
    dunlin__onnx_begin_node(writer, "Mul", node);
    dunlin__onnx_add_part(writer, "/products");
    dunlin__onnx_add_scalar(writer, "/scale", p->shape.scale);
    dunlin__onnx_end_part(writer, "/scores");
    if (!p->has_mask) {
        return;
    }
    const uint32_t mask = node->inputs[node->n_inputs - 1];
    const bool is_spread = is_mask_spread(p, &net->values[mask]);
    if (!is_spread) {
        const int64_t shape[4] = {-1, 1, p->shape.mask_rows, p->shape.n_keys};
        dunlin__onnx_begin_node(writer, "Reshape", node);
        dunlin__onnx_add_value(writer, mask);
        dunlin__onnx_add_ints(writer, "/mask_shape", shape, 4);
        dunlin__onnx_end_part(writer, "/mask");
    }
    dunlin__onnx_begin_node(writer, "Add", node);
    dunlin__onnx_add_part(writer, "/scores");
    if (is_spread) {
        dunlin__onnx_add_value(writer, mask);
    } else {
        dunlin__onnx_add_part(writer, "/mask");
    }
    dunlin__onnx_end_part(writer, "/masked");
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    const attention_params p = node_params(net, node);
    for (uint32_t i = 0; i < 3; i++) {
        write_heads(writer, &p, node, i, i == 1);
    }
    write_scores(writer, &p, net, node);
    dunlin__onnx_begin_node(writer, "Softmax", node);
    dunlin__onnx_add_part(writer, p.has_mask ? "/masked" : "/scores");
    dunlin__onnx_attr_int(writer, "axis", -1);
    dunlin__onnx_end_part(writer, "/softmax");
    dunlin__onnx_begin_node(writer, "MatMul", node);
    dunlin__onnx_add_part(writer, "/softmax");
    dunlin__onnx_add_part(writer, "/v");
    dunlin__onnx_end_part(writer, "/heads");
    const int64_t perm[4] = {0, 2, 1, 3};
    dunlin__onnx_begin_node(writer, "Transpose", node);
    dunlin__onnx_add_part(writer, "/heads");
    dunlin__onnx_attr_ints(writer, "perm", perm, 4);
    dunlin__onnx_end_part(writer, "/tokens");
    const int64_t shape[3] = {-1, p.shape.n_queries, (int64_t)p.shape.heads * p.shape.width};
    dunlin__onnx_begin_node(writer, "Reshape", node);
    dunlin__onnx_add_part(writer, "/tokens");
    dunlin__onnx_add_ints(writer, "/shape", shape, 3);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {NULL};

const dunlin_op_row dunlin__op_attention = {
    .kind = DUNLIN_OP_ATTENTION,
    .name = "attention",
    .onnx_names = onnx_names,
    .wish = DUNLIN_WISH_PLAIN,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
