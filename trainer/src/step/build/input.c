/*
 * input.c - the first op of every step: asks the source for the slice's examples, a small block at
 * a time, and turns each block into the network's input: floats, normalised, NHWC.
 *
 * Invariant: the raw examples live in a block of the op's workspace only, so a staged batch never
 * exists; and the op reads nothing, so the planner may run it again instead of keeping its output.
 */
#include "graph/emit.h"
#include "kernels/simd/finite.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <assert.h>
#include <math.h>
#include <string.h>

#define MAX_BLOCK_EXAMPLES 64

typedef struct input_params {
    int64_t n_elements; /* of one example */
    int64_t pixels;
    int32_t channels;  /* of the normalisation: 1 if the input is no image */
    int32_t n_classes; /* or targets of a row */
    int64_t n_rows;    /* of the output: labels of an example */
    bool is_image;     /* targets come channels first, and lie as the output does */
    dunlin_loss loss;
    uint64_t norm_bytes;  /* mean and 1 / std at the workspace's start */
    uint64_t block_bytes; /* the raw examples after them, then an example's targets */
} input_params;

static uint64_t input_workspace(const dunlin_kernels *kernels, const void *params, size_t n_threads,
                                uint64_t *out_sample_bytes)
{
    (void)kernels;
    (void)n_threads;
    const input_params *input = params;
    *out_sample_bytes = 0;
    const uint64_t target_bytes =
        (uint64_t)input->n_rows * (uint64_t)input->n_classes * sizeof(float);
    return input->norm_bytes + input->block_bytes + (input->is_image ? target_bytes : 0);
}

static void fill_normalisation(const dunlin_source *source, int32_t channels, float *mean,
                               float *inv_std)
{
    for (int32_t c = 0; c < channels; c++) {
        mean[c] = source->mean != NULL ? source->mean[c] : 0.0F;
        inv_std[c] = source->std != NULL ? 1.0F / source->std[c] : 1.0F;
    }
}

static bool has_weight(const dunlin_step_run *run, int64_t index)
{
    const dunlin_source *source = run->source;
    return source->weight_fn == NULL || source->weight_fn(source->ctx, index) != 0.0F;
}

/* Labels that do not count are taken away. */
static dunlin_status check_labels(const dunlin_step_run *run, const input_params *params,
                                  const int64_t *indices, int64_t n, int32_t *labels)
{
    for (int64_t i = 0; i < n; i++) {
        const bool counts = has_weight(run, indices[i]);
        for (int64_t row = i * params->n_rows; row < (i + 1) * params->n_rows; row++) {
            if (!counts || dunlin__run_is_ignored(run, labels[row])) {
                labels[row] = DUNLIN_NO_LABEL;
                continue;
            }
            DUNLIN_TRY(dunlin__run_check_label(run, labels[row], indices[i], params->n_classes));
        }
    }
    return DUNLIN_OK;
}

static dunlin_status check_targets(const dunlin_step_run *run, const input_params *params,
                                   const int64_t *indices, int64_t n, float *targets)
{
    const int64_t n_targets = params->n_rows * params->n_classes;
    for (int64_t i = 0; i < n; i++) {
        if (!has_weight(run, indices[i])) {
            memset(targets + i * n_targets, 0, (size_t)n_targets * sizeof(float));
        }
    }
    for (int64_t i = 0; i < n * n_targets; i++) {
        const bool is_in_range = params->loss != DUNLIN_LOSS_MSE
                                     ? targets[i] >= 0.0F && targets[i] <= 1.0F
                                     : isfinite(targets[i]);
        if (!is_in_range) {
            return dunlin__fail(run->error, DUNLIN_DATA, "step", 0,
                                "target %lld of example %lld is %g; it must be %s",
                                (long long)(i % n_targets), (long long)indices[i / n_targets],
                                (double)targets[i],
                                params->loss != DUNLIN_LOSS_MSE ? "in [0, 1]" : "finite");
        }
    }
    return DUNLIN_OK;
}

/* Targets as the model has its output become targets as it lies: channels of a pixel together. */
static void turn_targets(const dunlin_step_run *run, const input_params *params, int64_t n,
                         float *targets, float *scratch)
{
    const int64_t n_targets = params->n_rows * params->n_classes;
    for (int64_t i = 0; i < n; i++) {
        float *own = targets + i * n_targets;
        run->kernels->transpose(1, params->n_classes, params->n_rows, own, scratch, run->threads);
        memcpy(own, scratch, (size_t)n_targets * sizeof *own);
    }
}

/* Whole numbers as they were read, in place, into floats. */
static void widen_integers(unsigned char *raw, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t whole = 0;
        memcpy(&whole, raw + i * (int64_t)sizeof whole, sizeof whole);
        const float value = (float)whole;
        memcpy(raw + i * (int64_t)sizeof value, &value, sizeof value);
    }
}

/* Where the labels or targets of the slice's sample `i` go: both are four bytes wide. */
static void *answers_at(const input_params *params, void *answers, int64_t i)
{
    const int64_t width = params->loss == DUNLIN_LOSS_CROSS_ENTROPY ? 1 : params->n_classes;
    return (int32_t *)answers + i * params->n_rows * width;
}

/* Labels, where shares of classes are asked for: 1 for the class. They were read where the shares
 * will lie, and are spread from the last to the first. */
static dunlin_status spread_labels(const dunlin_step_run *run, const input_params *params,
                                   const int64_t *indices, int64_t n, float *answers)
{
    const int64_t width = params->n_classes;
    DUNLIN_TRY(check_labels(run, params, indices, n, (int32_t *)(void *)answers));
    for (int64_t i = n * params->n_rows - 1; i >= 0; i--) {
        int32_t label = 0;
        memcpy(&label, answers + i, sizeof label);
        memset(answers + i * width, 0, (size_t)width * sizeof *answers);
        if (label != DUNLIN_NO_LABEL) {
            answers[i * width + label] = 1.0F;
        }
    }
    return DUNLIN_OK;
}

/* Reads examples [first, first + n) of the batch into `raw`, and their labels or targets; behind
 * the raw block is room for an example's targets. */
static dunlin_status read_block(const dunlin_step_run *run, const input_params *params,
                                int64_t first, int64_t n, void *raw, void *answers)
{
    const dunlin_source *source = run->source;
    const bool has_targets =
        params->loss != DUNLIN_LOSS_CROSS_ENTROPY && source->read_targets_fn != NULL;
    int64_t indices[MAX_BLOCK_EXAMPLES];
    for (int64_t i = 0; i < n; i++) {
        indices[i] = dunlin__run_example(run, first + i);
    }
    /* A prediction over targets takes a source of labels too, and looks at neither. */
    const dunlin_status status =
        has_targets ? source->read_targets_fn(source->ctx, indices, n, raw, answers)
                    : source->read_fn(source->ctx, indices, n, raw, answers);
    if (status != DUNLIN_OK) {
        return dunlin__run_fail_source(run, status, indices[0], n);
    }
    if (run->logits != NULL) {
        return DUNLIN_OK;
    }
    if (!has_targets && params->loss == DUNLIN_LOSS_SOFT_CROSS_ENTROPY) {
        return spread_labels(run, params, indices, n, answers);
    }
    if (!has_targets) {
        return check_labels(run, params, indices, n, answers);
    }
    DUNLIN_TRY(check_targets(run, params, indices, n, answers));
    if (params->is_image) {
        turn_targets(run, params, n, answers,
                     (float *)(void *)((unsigned char *)raw + params->block_bytes));
    }
    return DUNLIN_OK;
}

/* Examples [first, first + n) of the batch as the source gave them, if it gave floats. */
static dunlin_status check_raw(const dunlin_step_run *run, const input_params *params,
                               int64_t first, int64_t n, const float *raw)
{
    const int64_t at = finite_count(raw, n * params->n_elements);
    if (at == n * params->n_elements) {
        return DUNLIN_OK;
    }
    const int64_t example = dunlin__run_example(run, first + at / params->n_elements);
    return dunlin__fail(run->error, DUNLIN_NUMERIC, "step", 0,
                        "input element %lld of example %lld is not finite (%g)",
                        (long long)(at % params->n_elements), (long long)example, (double)raw[at]);
}

/* The same as staged; notes which of the batch's examples has the largest. */
static dunlin_status check_staged(const dunlin_step_run *run, const input_params *params,
                                  int64_t first, int64_t n, const float *x)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t largest = finite_largest(x + i * params->n_elements, params->n_elements);
        if (!finite_is_size(largest)) {
            return dunlin__fail(run->error, DUNLIN_NUMERIC, "step", 0,
                                "an input element of example %lld is not finite once scale, mean "
                                "and std of the source are applied",
                                (long long)dunlin__run_example(run, first + i));
        }
        dunlin_step_trace *trace = run->trace;
        if (trace != NULL && (trace->largest_example < 0 || largest > trace->largest_bits)) {
            trace->largest_bits = largest;
            trace->largest_example = dunlin__run_example(run, first + i);
        }
    }
    return DUNLIN_OK;
}

static dunlin_status run_input(const dunlin_kernel_call *call)
{
    const input_params *params = call->params;
    const dunlin_step_run *run = call->run;
    const dunlin_source *source = run->source;
    unsigned char *workspace = call->workspace;
    float *mean = (float *)(void *)workspace;
    float *inv_std = mean + params->channels;
    unsigned char *raw = workspace + params->norm_bytes;
    float *x = call->operands[0];
    const float scale = source->scale == 0.0F ? 1.0F : source->scale;
    fill_normalisation(source, params->channels, mean, inv_std);
    const size_t example_bytes = (size_t)params->n_elements * dunlin_dtype_bytes(source->dtype);
    int64_t block = (int64_t)(params->block_bytes / example_bytes);
    block = block > MAX_BLOCK_EXAMPLES ? MAX_BLOCK_EXAMPLES : block;
    assert(block >= 1);
    for (int64_t first = 0; first < call->n_samples; first += block) {
        const int64_t left = call->n_samples - first;
        const int64_t n = left < block ? left : block;
        DUNLIN_TRY(read_block(run, params, call->first_sample + first, n, raw,
                              answers_at(params, call->operands[1], first)));
        float *out = x + first * params->n_elements;
        if (source->dtype == DUNLIN_U8) {
            run->kernels->stage_u8(n, params->pixels, params->channels, raw, scale, mean, inv_std,
                                   out, run->threads);
        } else {
            if (source->dtype == DUNLIN_I32) {
                widen_integers(raw, n * params->n_elements);
            }
            if (source->dtype == DUNLIN_F32) {
                DUNLIN_TRY(check_raw(run, params, call->first_sample + first, n,
                                     (const float *)(const void *)raw));
            }
            run->kernels->stage_f32(n, params->pixels, params->channels,
                                    (const float *)(const void *)raw, scale, mean, inv_std, out,
                                    run->threads);
        }
        DUNLIN_TRY(check_staged(run, params, call->first_sample + first, n, out));
    }
    return DUNLIN_OK;
}

static const dunlin_step_kernel input_kernel = {.name = "input",
                                                .run_fn = run_input,
                                                .parts = DUNLIN_MEM_MAP,
                                                .may_recompute = true,
                                                .in_place_write = -1,
                                                .in_place_read = -1,
                                                .workspace_fn = input_workspace};

static bool size_input(const dunlin_net_value *value, input_params *out_params)
{
    int32_t height = 0;
    int32_t width = 0;
    const bool is_image = value->layout == DUNLIN_LAYOUT_IMAGE;
    out_params->n_elements = dunlin__value_elements(value);
    if (is_image) {
        dunlin__value_hwc(value, &height, &width, &out_params->channels);
        out_params->pixels = (int64_t)height * width;
    } else {
        out_params->channels = 1;
        out_params->pixels = out_params->n_elements;
    }
    uint64_t norm_bytes = 0;
    uint64_t example_bytes = 0;
    if (!dunlin__align_u64((uint64_t)out_params->channels * 2 * sizeof(float), DUNLIN_MEM_ALIGN,
                           &norm_bytes) ||
        !dunlin__mul_u64((uint64_t)out_params->n_elements, sizeof(float), &example_bytes) ||
        example_bytes == 0 || example_bytes > SIZE_MAX / 2) {
        return false;
    }
    const uint64_t n_block = DUNLIN_INPUT_BLOCK_BYTES / example_bytes;
    out_params->norm_bytes = norm_bytes;
    out_params->block_bytes = example_bytes * (n_block == 0 ? 1 : n_block);
    return true;
}

void dunlin__emit_input(dunlin_emit *emit)
{
    const uint32_t value = emit->net->input;
    const dunlin_net_value *net_value = &emit->net->values[value];
    const bool has_labels = emit->options->loss == DUNLIN_LOSS_CROSS_ENTROPY;
    const int64_t n_rows = emit->graph->n_rows;
    input_params params = {.n_classes = emit->graph->n_classes,
                           .n_rows = n_rows,
                           .is_image = emit->graph->is_image && !has_labels,
                           .loss = emit->options->loss};
    emit->node_name = "input";
    if (!size_input(net_value, &params)) {
        (void)dunlin__emit_fail(emit, DUNLIN_OVERFLOW, "an example is empty or too large");
        return;
    }
    const uint32_t x =
        dunlin__emit_named_tensor(emit, net_value->name, "",
                                  &(dunlin_step_tensor){.dtype = DUNLIN_F32,
                                                        .is_batched = true,
                                                        .n_elements = params.n_elements,
                                                        .mem_class = DUNLIN_MEM_INPUT});
    const uint32_t labels = dunlin__emit_named_tensor(
        emit, has_labels ? "labels" : "targets", "",
        &(dunlin_step_tensor){.dtype = has_labels ? DUNLIN_I32 : DUNLIN_F32,
                              .is_batched = true,
                              .n_elements = has_labels ? n_rows : n_rows * params.n_classes,
                              .mem_class = DUNLIN_MEM_INPUT});
    const dunlin_mem_access accesses[] = {
        {.tensor = x, .mode = DUNLIN_MEM_WRITE, .parts = DUNLIN_MEM_MAP},
        {.tensor = labels, .mode = DUNLIN_MEM_WRITE, .parts = DUNLIN_MEM_MAP},
    };
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = &input_kernel,
                                             .suffix = "",
                                             .params = &params,
                                             .params_bytes = sizeof params,
                                             .accesses = accesses,
                                             .n_accesses = 2});
    emit->values[value].tensor = x;
    emit->graph->input = x;
    emit->graph->labels = labels;
}

/* The persistent tensor that the graph changes first, or NONE. */
static uint32_t first_changed(const dunlin_step_graph *graph)
{
    for (size_t i = 0; i < graph->n_ops; i++) {
        for (uint32_t a = 0; a < graph->ops[i].n_accesses; a++) {
            const dunlin_mem_access *access = &graph->ops[i].accesses[a];
            if (access->mode != DUNLIN_MEM_READ && graph->tensors[access->tensor].is_persistent) {
                return access->tensor;
            }
        }
    }
    return DUNLIN_STEP_NONE;
}

/*
 * A source may fail whenever it is asked, and a failed step changes no persistent tensor. So the op
 * is said to read what the step changes first: neither planner nor verifier will have it run again
 * after that.
 */
void dunlin__emit_guard_input(dunlin_emit *emit)
{
    dunlin_step_graph *graph = emit->graph;
    const uint32_t changed = first_changed(graph);
    if (emit->status != DUNLIN_OK || changed == DUNLIN_STEP_NONE) {
        return;
    }
    for (size_t i = 0; i < graph->n_ops; i++) {
        dunlin_step_op *op = &graph->ops[i];
        if (op->kernel != &input_kernel) {
            continue;
        }
        const uint32_t n = op->n_accesses;
        dunlin_mem_access *accesses =
            dunlin__step_pool_take(&graph->pool, (n + 1) * sizeof *accesses);
        if (accesses == NULL) {
            (void)dunlin__emit_fail(emit, DUNLIN_MEMORY, "no memory for the graph of a step");
            return;
        }
        memcpy(accesses, op->accesses, n * sizeof *accesses);
        accesses[n] = (dunlin_mem_access){
            .tensor = changed, .mode = DUNLIN_MEM_READ, .parts = DUNLIN_MEM_MAP};
        op->accesses = accesses;
        op->n_accesses = n + 1;
        op->has_guard = true;
    }
}
