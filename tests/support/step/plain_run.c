/*
 * plain_run.c - see plain_run.h. Layouts of parameters are written out here once more, so that a
 * mistake in the library's own conversion does not cancel.
 */
#include "plain_run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void *allocate(size_t bytes)
{
    void *memory = NULL;
    int failed = posix_memalign(&memory, 64, bytes == 0 ? 1 : bytes);
    assert(failed == 0);
    (void)failed;
    return memory;
}

static size_t tensor_bytes(const plain_run *plain, size_t tensor)
{
    const dunlin_step_tensor *t = &plain->graph->tensors[tensor];
    return (size_t)dunlin__step_tensor_bytes(t) * (t->is_batched ? (size_t)plain->max_batch : 1);
}

/* The tensor that has memory of its own. */
static size_t root_of(const plain_run *plain, size_t tensor)
{
    while (plain->graph->tensors[tensor].is_part) {
        tensor = plain->graph->tensors[tensor].parent;
    }
    return tensor;
}

/* Parts point into their parents, which may come later in the list. */
static void place_parts(const plain_run *plain)
{
    for (size_t i = 0; i < plain->graph->n_tensors; i++) {
        int64_t offset = 0;
        size_t at = i;
        for (; plain->graph->tensors[at].is_part; at = plain->graph->tensors[at].parent) {
            offset += plain->graph->tensors[at].parent_offset;
        }
        if (at != i) {
            plain->tensors[i] = (float *)plain->tensors[at] + offset;
        }
    }
}

dunlin_status plain_run_open(plain_run *plain, const dunlin_net *net,
                             const dunlin_step_build_options *options, int64_t max_batch,
                             dunlin_error *error)
{
    *plain = (plain_run){.net = net, .max_batch = max_batch, .n_threads = 1};
    dunlin_status status = dunlin__step_build(net, options, NULL, &plain->graph, error);
    if (status != DUNLIN_OK) {
        return status;
    }
    plain->tensors = calloc(plain->graph->n_tensors + 1, sizeof *plain->tensors);
    plain->gradients = calloc(net->n_params + 1, sizeof *plain->gradients);
    assert(plain->tensors != NULL && plain->gradients != NULL);
    for (size_t i = 0; i < plain->graph->n_tensors; i++) {
        if (!plain->graph->tensors[i].is_part) {
            plain->tensors[i] = allocate(tensor_bytes(plain, i));
            memset(plain->tensors[i], 0, tensor_bytes(plain, i));
        }
    }
    place_parts(plain);
    return DUNLIN_OK;
}

void plain_run_close(plain_run *plain)
{
    if (plain->graph == NULL) {
        return;
    }
    for (size_t i = 0; i < plain->graph->n_tensors; i++) {
        if (!plain->graph->tensors[i].is_part) {
            free(plain->tensors[i]);
        }
    }
    for (size_t i = 0; i < plain->net->n_params; i++) {
        free(plain->gradients[i]);
    }
    free(plain->gradients);
    free(plain->tensors);
    dunlin__step_graph_destroy(plain->graph);
    *plain = (plain_run){0};
}

/* Where element i of a parameter, in ONNX's order, lies inside. */
static int64_t inner_index(const dunlin_net_param *param, int64_t i)
{
    const int64_t *dims = param->shape.dims;
    if (param->layout == DUNLIN_PARAM_DENSE) {
        return i % dims[1] * dims[0] + i / dims[1];
    }
    if (param->layout == DUNLIN_PARAM_CONV) {
        const int64_t taps = param->shape.n_dims > 3 ? dims[2] * dims[3] : dims[2];
        int64_t tap = i % taps;
        int64_t ci = i / taps % dims[1];
        int64_t co = i / (taps * dims[1]);
        return (tap * dims[1] + ci) * dims[0] + co;
    }
    return i;
}

void plain_run_set_param(plain_run *plain, uint32_t param, const float *values)
{
    const dunlin_net_param *p = &plain->net->params[param];
    float *inner = plain->tensors[plain->graph->params[param].tensor];
    for (int64_t i = 0; i < p->n_elements; i++) {
        inner[inner_index(p, i)] = values[i];
    }
}

static void to_onnx_order(const dunlin_net_param *param, const float *inner, float *out)
{
    for (int64_t i = 0; i < param->n_elements; i++) {
        out[i] = inner[inner_index(param, i)];
    }
}

void plain_run_get_param(const plain_run *plain, uint32_t param, float *out_values)
{
    to_onnx_order(&plain->net->params[param], plain->tensors[plain->graph->params[param].tensor],
                  out_values);
}

uint32_t plain_run_find(const plain_run *plain, const char *name)
{
    for (size_t i = 0; i < plain->graph->n_tensors; i++) {
        if (strcmp(plain->graph->tensors[i].name, name) == 0) {
            return (uint32_t)i;
        }
    }
    return DUNLIN_STEP_NONE;
}

const dunlin_step_op *plain_run_find_op(const plain_run *plain, const char *name)
{
    for (size_t i = 0; i < plain->graph->n_ops; i++) {
        if (strcmp(plain->graph->ops[i].name, name) == 0) {
            return &plain->graph->ops[i];
        }
    }
    return NULL;
}

static void note_gradient(void *ctx, int32_t parameter_index, int64_t n, const float *weights,
                          float *gradient, float *const *slots)
{
    (void)weights;
    (void)slots;
    plain_run *plain = ctx;
    const dunlin_net_param *param = &plain->net->params[parameter_index];
    assert(n == param->n_elements);
    assert(plain->gradients[parameter_index] == NULL);
    plain->gradients[parameter_index] = allocate((size_t)n * sizeof(float));
    to_onnx_order(param, gradient, plain->gradients[parameter_index]);
}

/* Fills what this part of an op writes with NaN again. */
static void poison_written(const plain_run *plain, const dunlin_step_op *op, uint32_t parts,
                           void *const *operands, int64_t n_samples)
{
    for (uint32_t i = 0; i < op->n_accesses; i++) {
        const dunlin_mem_access *access = &op->accesses[i];
        const dunlin_step_tensor *tensor = &plain->graph->tensors[access->tensor];
        /* A part's rows lie apart, and it may be added to where it lies. */
        if (access->mode == DUNLIN_MEM_WRITE && (access->parts & parts) != 0 && !tensor->is_part) {
            size_t n = tensor->is_batched ? (size_t)n_samples : 1;
            memset(operands[i], 0xFF, (size_t)dunlin__step_tensor_bytes(tensor) * n);
        }
    }
}

static void find_operands(const plain_run *plain, const dunlin_step_op *op, uint32_t parts,
                          int64_t first, void **out_operands)
{
    for (uint32_t i = 0; i < op->n_accesses; i++) {
        uint32_t index = op->accesses[i].tensor;
        const dunlin_step_tensor *tensor = &plain->graph->tensors[root_of(plain, index)];
        size_t offset =
            tensor->is_batched ? (size_t)first * (size_t)dunlin__step_tensor_bytes(tensor) : 0;
        out_operands[i] = (op->accesses[i].parts & parts) != 0
                              ? (unsigned char *)plain->tensors[index] + offset
                              : NULL;
    }
}

/* `call` with everything set but the workspace. */
static dunlin_status run_kernel(const plain_run *plain, const dunlin_step_op *op,
                                dunlin_kernel_call *call)
{
    uint64_t sample_bytes = 0;
    uint64_t needed = 0;
    if (op->kernel->workspace_fn != NULL) {
        needed = op->kernel->workspace_fn(call->run->kernels, op->params, plain->n_threads,
                                          &sample_bytes);
        needed += sample_bytes * (uint64_t)call->n_samples;
    }
    const size_t bytes = (size_t)needed;
    void *workspace = allocate(bytes);
    memset(workspace, 0xFF, bytes == 0 ? 1 : bytes);
    call->workspace = bytes == 0 ? NULL : workspace;
    call->workspace_bytes = bytes;
    dunlin_status status = op->kernel->run_fn(call);
    free(workspace);
    return status;
}

/* Runs the op once more with its output on a copy of the input that it may lie on. */
static dunlin_status check_in_place(const plain_run *plain, const dunlin_step_op *op,
                                    const dunlin_kernel_call *done)
{
    void *operands[DUNLIN_STEP_MAX_ACCESSES];
    const int8_t read = op->kernel->in_place_read;
    const int8_t write = op->kernel->in_place_write;
    uint32_t tensor = op->accesses[write].tensor;
    if (plain->graph->tensors[tensor].is_part ||
        plain->graph->tensors[op->accesses[read].tensor].is_part) {
        return DUNLIN_OK; /* no plan does that */
    }
    size_t bytes =
        (size_t)dunlin__step_tensor_bytes(&plain->graph->tensors[tensor]) * (size_t)done->n_samples;
    void *scratch = allocate(bytes);
    memcpy(scratch, done->operands[read], bytes);
    memcpy(operands, done->operands, op->n_accesses * sizeof operands[0]);
    operands[read] = scratch;
    operands[write] = scratch;
    dunlin_kernel_call call = *done;
    call.operands = operands;
    dunlin_status status = run_kernel(plain, op, &call);
    if (status == DUNLIN_OK && memcmp(scratch, done->operands[write], bytes) != 0) {
        status = DUNLIN_INTERNAL;
    }
    free(scratch);
    return status;
}

static dunlin_status run_parts(const plain_run *plain, const dunlin_step_op *op, uint32_t parts,
                               int64_t first, int64_t n, const dunlin_step_run *run)
{
    void *operands[DUNLIN_STEP_MAX_ACCESSES];
    find_operands(plain, op, parts, first, operands);
    poison_written(plain, op, parts, operands, n);
    dunlin_kernel_call call = {
        .operands = operands,
        .parts = parts,
        .first_sample = first,
        .n_samples = n,
        .is_first = first == 0,
        .params = op->params,
        .run = run,
    };
    dunlin_status status = run_kernel(plain, op, &call);
    if (status == DUNLIN_OK && plain->checks_in_place && op->kernel->in_place_write >= 0) {
        status = check_in_place(plain, op, &call);
    }
    return status;
}

/* The gradient is what the loss writes, beside the sums that it accumulates. */
static void replace_gradient(const plain_run *plain, const dunlin_step_op *op, int64_t first,
                             int64_t n)
{
    for (uint32_t i = 0; i < op->n_accesses; i++) {
        if (op->accesses[i].mode == DUNLIN_MEM_WRITE) {
            float *gradient = plain->tensors[op->accesses[i].tensor];
            size_t width = (size_t)plain->graph->n_classes;
            memcpy(gradient + (size_t)first * width, plain->logits_gradient + (size_t)first * width,
                   (size_t)n * width * sizeof(float));
        }
    }
}

static dunlin_status run_op(const plain_run *plain, const dunlin_step_op *op, int64_t first,
                            int64_t n, const dunlin_step_run *run)
{
    dunlin_status status = run_parts(plain, op, op->kernel->parts, first, n, run);
    if (status == DUNLIN_OK && plain->recomputes && op->kernel->may_recompute) {
        status = run_parts(plain, op, DUNLIN_MEM_MAP, first, n, run);
    }
    if (plain->logits_gradient != NULL && strcmp(op->name, "loss") == 0) {
        replace_gradient(plain, op, first, n);
    }
    return status;
}

/* All ops that are fixed, or all that are not. */
static dunlin_status run_kind(const plain_run *plain, bool is_fixed, int64_t first, int64_t n,
                              const dunlin_step_run *run)
{
    for (size_t i = 0; i < plain->graph->n_ops; i++) {
        const dunlin_step_op *op = &plain->graph->ops[i];
        if ((op->kernel->parts == DUNLIN_MEM_FIXED) == is_fixed) {
            dunlin_status status = run_op(plain, op, first, n, run);
            if (status != DUNLIN_OK) {
                return status;
            }
        }
    }
    return DUNLIN_OK;
}

static dunlin_status run_slices(const plain_run *plain, const dunlin_step_run *run)
{
    for (int64_t first = 0; first < run->n_batch; first += plain->slice_samples) {
        int64_t left = run->n_batch - first;
        int64_t n = left < plain->slice_samples ? left : plain->slice_samples;
        dunlin_status status = run_kind(plain, false, first, n, run);
        if (status != DUNLIN_OK) {
            return status;
        }
    }
    return run_kind(plain, true, 0, run->n_batch, run);
}

dunlin_status plain_run_step(plain_run *plain, const dunlin_step_run *run)
{
    assert(run->n_batch >= 1 && run->n_batch <= plain->max_batch);
    dunlin_step_run hooked = *run;
    hooked.gradient_fn = note_gradient;
    hooked.gradient_ctx = plain;
    for (size_t i = 0; i < plain->net->n_params; i++) {
        free(plain->gradients[i]);
        plain->gradients[i] = NULL;
    }
    for (size_t i = 0; i < plain->graph->n_tensors; i++) {
        if (!plain->graph->tensors[i].is_persistent && !plain->graph->tensors[i].is_part) {
            memset(plain->tensors[i], 0xFF, tensor_bytes(plain, i));
        }
    }
    if (plain->slice_samples > 0) {
        return run_slices(plain, &hooked);
    }
    for (size_t i = 0; i < plain->graph->n_ops; i++) {
        dunlin_status status = run_op(plain, &plain->graph->ops[i], 0, run->n_batch, &hooked);
        if (status != DUNLIN_OK) {
            return status;
        }
    }
    return DUNLIN_OK;
}
