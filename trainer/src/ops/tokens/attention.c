/*
 * attention.c - scaled dot-product attention of several heads as one operator.
 *
 * Neither scores nor probabilities are kept: only each row's largest score and sum, two floats a
 * query and head, from which the backward pass recomputes them.
 */
#include "attention.h"

#include "ops/common/maps.h"
#include "ops/common/support.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_INPUTS (DUNLIN_ATTENTION_MAX_PARTS + 1) /* and the mask */
#define N_PARAMS 3

typedef dunlin_attention_params attention_params;

enum { SAVED_Q = 0, SAVED_K = 1, SAVED_V = 2, SAVED_MASK = 3, SAVED_STATS = 4 };

/* Where q, k, v (or their gradients) are, the first at operand `first`. */
static void place_parts(const dunlin_kernel_call *call, uint32_t first, float *out_parts[3])
{
    const attention_params *p = call->params;
    const int64_t width = (int64_t)p->shape.heads * p->shape.width;
    const int64_t kv_width = (int64_t)p->shape.kv_heads * p->shape.width;
    for (uint32_t i = 0; i < 3; i++) {
        float *base = call->operands[first + (p->is_packed ? 0 : i)];
        out_parts[i] = p->is_packed && i > 0 ? base + width + (int64_t)(i - 1) * kv_width : base;
    }
}

/* Operands: stats, output or its gradient; q, k, v or all in one; the masks; backward: the
 * gradients of those that want one. */
static dunlin_status run_attention(const dunlin_kernel_call *call, bool is_backward)
{
    const attention_params *p = call->params;
    uint32_t next = 2 + (p->is_packed ? 1 : 3);
    float *parts[3];
    place_parts(call, 2, parts);
    dunlin_attention_call run = {
        .shape = &p->shape,
        .n_samples = call->n_samples,
        .q = parts[0],
        .k = parts[1],
        .v = parts[2],
        .stats = call->operands[0],
        .workspace = call->workspace,
        .threads = call->run->threads,
    };
    run.mask = p->has_mask ? call->operands[next++] : NULL;
    run.fixed = p->has_fixed ? call->operands[next++] : NULL;
    run.cosines = p->has_tables ? call->operands[next++] : NULL;
    run.sines = p->has_tables ? call->operands[next++] : NULL;
    if (!is_backward) {
        run.out = call->operands[1];
        call->run->kernels->attention(&run);
        return DUNLIN_OK;
    }
    run.dy = call->operands[1];
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

uint32_t dunlin__attention_n_parts(const dunlin_net_node *node)
{
    const uint32_t n = node->n_inputs - (node->u.attention.has_mask ? 1 : 0);
    return n < DUNLIN_ATTENTION_MAX_PARTS ? n : DUNLIN_ATTENTION_MAX_PARTS;
}

static int32_t kv_heads_of(const dunlin_net_node *node)
{
    return node->u.attention.kv_heads == 0 ? node->u.attention.heads : node->u.attention.kv_heads;
}

/* A mask's rows and, of one that samples share, heads: the dimensions before the keys. */
static int64_t before_keys(const dunlin_shape *shape, int32_t from_end)
{
    return shape->n_dims > from_end ? shape->dims[shape->n_dims - 1 - from_end] : 1;
}

dunlin_attention_params dunlin__attention_params_of(const dunlin_net *net,
                                                    const dunlin_net_node *node)
{
    const dunlin_net_attention *a = &node->u.attention;
    const bool is_packed = dunlin__attention_n_parts(node) == 1;
    const dunlin_shape *q = &net->values[node->inputs[0]].shape;
    const dunlin_shape *k = &net->values[node->inputs[is_packed ? 0 : 1]].shape;
    const dunlin_shape *v = &net->values[node->inputs[is_packed ? 0 : 2]].shape;
    attention_params params = {.is_packed = is_packed,
                               .has_mask = a->has_mask,
                               .has_fixed = dunlin__op_has_param(node, 0),
                               .has_tables = dunlin__op_has_param(node, 1)};
    params.shape = (dunlin_attention_shape){
        .heads = a->heads,
        .kv_heads = kv_heads_of(node),
        .n_queries = (int32_t)q->dims[0],
        .n_keys = (int32_t)k->dims[0],
        .is_causal = a->is_causal,
        .is_rotary = params.has_tables,
        .scale = a->scale,
        .q_pitch = q->dims[1],
        .k_pitch = k->dims[1],
        .v_pitch = v->dims[1],
    };
    params.shape.width =
        (int32_t)(q->dims[1] / (is_packed ? a->heads + 2 * params.shape.kv_heads : a->heads));
    if (a->has_mask) {
        const int64_t n = dunlin__value_elements(&net->values[node->inputs[node->n_inputs - 1]]);
        params.shape.mask_rows = (int32_t)(n / k->dims[0]);
    }
    if (params.has_fixed) {
        const dunlin_shape *fixed = &net->params[node->params[0]].shape;
        params.shape.fixed_rows = (int32_t)before_keys(fixed, 1);
        params.shape.fixed_heads = (int32_t)before_keys(fixed, 2);
    }
    return params;
}

static double node_flops(const dunlin_attention_shape *s)
{
    const double keys = s->is_causal ? 0.5 * (s->n_keys + 1.0) : (double)s->n_keys;
    return 4.0 * s->heads * s->n_queries * keys * s->width;
}

/* The parameters that there are, as operands behind the first n. */
static uint32_t add_params(dunlin_emit *emit, const dunlin_net_node *node,
                           dunlin_mem_access *accesses, uint32_t n)
{
    for (uint32_t slot = 0; slot < N_PARAMS; slot++) {
        if (dunlin__op_has_param(node, slot)) {
            accesses[n++] = (dunlin_mem_access){dunlin__emit_param(emit, node->params[slot]),
                                                DUNLIN_MEM_READ, DUNLIN_MEM_MAP};
        }
    }
    return n;
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const attention_params params = dunlin__attention_params_of(dunlin__emit_net(emit), node);
    const uint32_t stats = dunlin__emit_tensor(
        emit, "/rows", DUNLIN_F32, true, 2 * (int64_t)params.shape.heads * params.shape.n_queries,
        DUNLIN_MEM_SAVED);
    dunlin_mem_access accesses[2 + MAX_INPUTS + N_PARAMS] = {
        {stats, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
        {DUNLIN_STEP_NONE, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    uint32_t n = 2;
    for (uint32_t i = 0; i < node->n_inputs && i < MAX_INPUTS; i++) {
        const uint32_t tensor = dunlin__emit_value(emit, node->inputs[i]);
        accesses[n++] = (dunlin_mem_access){tensor, DUNLIN_MEM_READ, DUNLIN_MEM_MAP};
        const bool is_mask = params.has_mask && i + 1 == node->n_inputs;
        dunlin__emit_save(emit, is_mask ? SAVED_MASK : SAVED_Q + i, tensor);
    }
    n = add_params(emit, node, accesses, n);
    accesses[1].tensor = dunlin__emit_output(emit, node->output);
    dunlin__op_emit_map(emit, &forward_kernel, "", &params, sizeof params, accesses, n,
                        node_flops(&params.shape));
    dunlin__emit_save(emit, SAVED_STATS, stats);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    attention_params params = dunlin__attention_params_of(dunlin__emit_net(emit), node);
    const uint32_t n_parts = dunlin__attention_n_parts(node);
    dunlin_mem_access accesses[2 + MAX_INPUTS + N_PARAMS + DUNLIN_ATTENTION_MAX_PARTS] = {
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
    n = add_params(emit, node, accesses, n);
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

/* The mask that all samples share. */
static dunlin_status check_fixed(dunlin_net *net, const dunlin_net_node *node, int64_t n_queries,
                                 int64_t n_keys, dunlin_error *error)
{
    dunlin_net_param *param = &net->params[node->params[0]];
    const dunlin_shape *shape = &param->shape;
    const bool is_fixed = dunlin__param_is_fixed(net, node->params[0]);
    const int64_t rows = before_keys(shape, 1);
    const int64_t heads = before_keys(shape, 2);
    bool is_good = shape->n_dims > 0 && shape->dims[shape->n_dims - 1] == n_keys &&
                   (rows == 1 || rows == n_queries) &&
                   (heads == 1 || heads == node->u.attention.heads);
    for (int32_t i = 0; i + 3 < shape->n_dims; i++) {
        is_good = is_good && shape->dims[i] == 1;
    }
    if (!is_good || !is_fixed) {
        char text[DUNLIN_OP_SHAPE_TEXT_BYTES];
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.80s': its mask '%.80s' is %.60s%s; it must be (keys), "
                            "(queries, keys) or (heads, queries, keys) and not trained",
                            node->name, param->name, dunlin__op_shape_text(shape, text),
                            is_fixed ? "" : " and trained");
    }
    param->layout = DUNLIN_PARAM_PLAIN;
    return DUNLIN_OK;
}

/* Tables of rotary positions: a row for each token, a column for each channel of a head. */
static dunlin_status check_tables(dunlin_net *net, const dunlin_net_node *node,
                                  const dunlin_attention_shape *s, dunlin_error *error)
{
    for (uint32_t slot = 1; slot < N_PARAMS; slot++) {
        dunlin_net_param *param =
            dunlin__op_has_param(node, slot) ? &net->params[node->params[slot]] : NULL;
        bool is_good = param != NULL && s->n_queries == s->n_keys && s->width % 2 == 0 &&
                       param->shape.n_dims >= 2 && before_keys(&param->shape, 0) == s->width &&
                       before_keys(&param->shape, 1) == s->n_keys &&
                       dunlin__param_is_fixed(net, node->params[slot]);
        for (int32_t i = 0; is_good && i + 2 < param->shape.n_dims; i++) {
            is_good = param->shape.dims[i] == 1;
        }
        if (!is_good) {
            char text[DUNLIN_OP_SHAPE_TEXT_BYTES] = "()";
            return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                                "node '%.80s' of %" PRId32 " tokens, width %" PRId32
                                ": a table of its positions is %.60s; it must be (tokens, width), "
                                "the width even, and not trained",
                                node->name, s->n_keys, s->width,
                                param != NULL ? dunlin__op_shape_text(&param->shape, text) : text);
        }
        param->layout = DUNLIN_PARAM_PLAIN;
    }
    return DUNLIN_OK;
}

/* q, k and v, or all in one, fit each other and the heads. */
static dunlin_status check_parts(const dunlin_net *net, const dunlin_net_node *node,
                                 dunlin_error *error)
{
    const dunlin_net_attention *a = &node->u.attention;
    const uint32_t n_parts = dunlin__attention_n_parts(node);
    const int64_t kv_heads = kv_heads_of(node);
    const int64_t q_heads = n_parts == 1 ? a->heads + 2 * kv_heads : a->heads;
    const dunlin_shape *q = &net->values[node->inputs[0]].shape;
    if (a->heads < 1 || kv_heads < 1 || a->heads % kv_heads != 0) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s': %" PRId64 " heads of keys are none, or do not divide "
                            "%" PRId32 " heads",
                            node->name, kv_heads, a->heads);
    }
    for (uint32_t i = 0; i < n_parts; i++) {
        DUNLIN_TRY(dunlin__op_want_plain(net, node, i, 2, error));
        const dunlin_shape *part = &net->values[node->inputs[i]].shape;
        const int64_t heads = i == 0 ? q_heads : kv_heads;
        if (part->n_dims != 2 || part->dims[1] % heads != 0 ||
            part->dims[1] / heads != q->dims[1] / q_heads) {
            return fail_shape(net, node, i, "not (tokens, a multiple of the heads)", error);
        }
    }
    const int64_t n_keys = net->values[node->inputs[n_parts == 1 ? 0 : 1]].shape.dims[0];
    if (n_parts == 3 && net->values[node->inputs[2]].shape.dims[0] != n_keys) {
        return fail_shape(net, node, 2, "not as many tokens as the keys", error);
    }
    if (a->is_causal && n_keys != q->dims[0]) {
        return fail_shape(net, node, 1, "not as many keys as queries, which look back only", error);
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
    DUNLIN_TRY(check_parts(net, node, error));
    if (!isfinite(a->scale)) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.120s': the scale %g is not finite", node->name,
                            (double)a->scale);
    }
    const dunlin_attention_params params = dunlin__attention_params_of(net, node);
    if (a->has_mask) {
        DUNLIN_TRY(check_mask(net, node, params.shape.n_queries, params.shape.n_keys, error));
    }
    if (params.has_fixed) {
        DUNLIN_TRY(check_fixed(net, node, params.shape.n_queries, params.shape.n_keys, error));
    }
    if (params.has_tables) {
        DUNLIN_TRY(check_tables(net, node, &params.shape, error));
    }
    dunlin__op_keep_shape(net, node);
    net->values[node->output].shape.dims[1] = (int64_t)params.shape.heads * params.shape.width;
    return DUNLIN_OK;
}

static const char *const onnx_names[] = {NULL};

const dunlin_op_row dunlin__op_attention = {
    .kind = DUNLIN_OP_ATTENTION,
    .name = "attention",
    .onnx_names = onnx_names,
    .wish = DUNLIN_WISH_PLAIN,
    .infer_fn = infer,
    .from_onnx_fn = dunlin__attention_from_onnx,
    .to_onnx_fn = dunlin__attention_to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
