/*
 * input.c - the first op of every step: asks the source for the slice's examples, a small block at
 * a time, and turns each block into the network's inputs: floats, normalised, NHWC.
 *
 * Invariant: the raw examples live in a block of the op's workspace only, so a staged batch never
 * exists; and the op reads nothing, so the planner may run it again instead of keeping its output.
 */
#include "answers.h"
#include "graph/emit.h"
#include "net/parts.h"
#include "stage.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <assert.h>
#include <string.h>

#define MAX_BLOCK_EXAMPLES 64

typedef struct input_params {
    dunlin_staging staging;
    uint64_t norm_bytes;   /* mean and 1 / std at the workspace's start */
    uint64_t block_bytes;  /* the raw examples after them, then an example's targets */
    uint64_t target_bytes; /* of those that come channels first, and lie as the output does */
    uint32_t n_answers;
    dunlin_answer answers[DUNLIN_NET_MAX_OUTPUTS]; /* no more than there are are kept */
} input_params;

static uint64_t input_workspace(const dunlin_kernels *kernels, const void *params, size_t n_threads,
                                uint64_t *out_sample_bytes)
{
    (void)kernels;
    (void)n_threads;
    const input_params *input = params;
    *out_sample_bytes = 0;
    return input->norm_bytes + input->block_bytes + input->target_bytes;
}

/* Where the labels or targets of the slice's sample `i` go: both are four bytes wide. */
static void find_answers(const dunlin_kernel_call *call, int64_t i, void **out_answers)
{
    const input_params *params = call->params;
    for (uint32_t k = 0; k < params->n_answers; k++) {
        out_answers[k] = (int32_t *)call->operands[params->staging.n_inputs + k] +
                         i * dunlin__answer_width(&params->answers[k]);
    }
}

/* Those of the first output are those of all. */
static void share_answers(const input_params *params, int64_t n, bool has_targets,
                          void *const *answers)
{
    const dunlin_answer *first = &params->answers[0];
    const int64_t width = first->n_rows * (has_targets ? first->n_classes : 1);
    for (uint32_t k = 1; k < params->n_answers; k++) {
        memcpy(answers[k], answers[0], (size_t)(n * width) * sizeof(int32_t));
    }
}

/* A prediction over targets takes a source of labels too, and looks at neither. */
static dunlin_status ask(const dunlin_step_run *run, const input_params *params,
                         const int64_t *indices, int64_t n, int64_t room, unsigned char *raw,
                         void *const *answers)
{
    const dunlin_source *source = run->source;
    const bool has_targets = params->answers[0].loss != DUNLIN_LOSS_CROSS_ENTROPY &&
                             dunlin__source_has_targets(source, 0);
    dunlin_status status = DUNLIN_OK;
    if (source->read_arrays_fn != NULL) {
        status =
            dunlin__run_read_arrays(run, params->staging.inputs, params->staging.n_inputs, indices,
                                    n, room, raw, run->logits != NULL ? NULL : answers);
    } else {
        status = has_targets ? source->read_targets_fn(source->ctx, indices, n, raw, answers[0])
                             : source->read_fn(source->ctx, indices, n, raw, answers[0]);
    }
    if (status == DUNLIN_OK && run->logits == NULL && source->answers == NULL) {
        share_answers(params, n, has_targets, answers);
    }
    return status;
}

/* Reads examples [first, first + n) of the batch into `raw`, which has room for `room`, and their
 * labels or targets; behind the raw block is room for an example's targets. */
static dunlin_status read_block(const dunlin_step_run *run, const input_params *params,
                                int64_t first, int64_t n, int64_t room, unsigned char *raw,
                                void *const *answers)
{
    int64_t indices[MAX_BLOCK_EXAMPLES];
    for (int64_t i = 0; i < n; i++) {
        indices[i] = dunlin__run_example(run, first + i);
    }
    const dunlin_status status = ask(run, params, indices, n, room, raw, answers);
    if (status != DUNLIN_OK) {
        return dunlin__run_fail_source(run, status, indices[0], n);
    }
    float *scratch = (float *)(void *)(raw + params->block_bytes);
    for (uint32_t k = 0; run->logits == NULL && k < params->n_answers; k++) {
        DUNLIN_TRY(dunlin__answer_take(run, &params->answers[k], indices, n, answers[k], scratch));
    }
    return DUNLIN_OK;
}

/* operands: the inputs, then the labels or targets */
static dunlin_status run_input(const dunlin_kernel_call *call)
{
    const input_params *params = call->params;
    const dunlin_source *source = call->run->source;
    unsigned char *raw = (unsigned char *)call->workspace + params->norm_bytes;
    /* Of several arrays each has room for four bytes an element. */
    const size_t width =
        source->read_arrays_fn != NULL ? sizeof(float) : dunlin_dtype_bytes(source->dtype);
    const size_t example_bytes = (size_t)params->staging.n_elements * width;
    int64_t block = (int64_t)(params->block_bytes / example_bytes);
    block = block > MAX_BLOCK_EXAMPLES ? MAX_BLOCK_EXAMPLES : block;
    assert(block >= 1);
    for (int64_t first = 0; first < call->n_samples; first += block) {
        const int64_t left = call->n_samples - first;
        const int64_t n = left < block ? left : block;
        void *answers[DUNLIN_NET_MAX_OUTPUTS] = {NULL};
        find_answers(call, first, answers);
        DUNLIN_TRY(
            read_block(call->run, params, call->first_sample + first, n, block, raw, answers));
        DUNLIN_TRY(dunlin__stage_examples(call, &params->staging, first, n, block, raw));
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

static bool size_input(int64_t n_elements, int32_t channels, input_params *out_params)
{
    uint64_t norm_bytes = 0;
    uint64_t example_bytes = 0;
    out_params->staging.n_elements = n_elements;
    out_params->staging.channels = channels;
    if (!dunlin__align_u64((uint64_t)channels * 2 * sizeof(float), DUNLIN_MEM_ALIGN, &norm_bytes) ||
        !dunlin__mul_u64((uint64_t)n_elements, sizeof(float), &example_bytes) ||
        example_bytes == 0 || example_bytes > SIZE_MAX / 2) {
        return false;
    }
    const uint64_t n_block = DUNLIN_INPUT_BLOCK_BYTES / example_bytes;
    out_params->norm_bytes = norm_bytes;
    out_params->block_bytes = example_bytes * (n_block == 0 ? 1 : n_block);
    return true;
}

static void describe_input(const dunlin_net *net, const dunlin_net_part *part,
                           dunlin_step_input *out)
{
    const dunlin_net_value *value = &net->values[part->value];
    int32_t height = 0;
    int32_t width = 0;
    *out = (dunlin_step_input){.name = part->name,
                               .first = part->first,
                               .n_elements = part->n,
                               .pixels = part->n,
                               .channels = 1};
    if (value->layout == DUNLIN_LAYOUT_IMAGE) {
        dunlin__value_hwc(value, &height, &width, &out->channels);
        out->pixels = (int64_t)height * width;
    } else if (value->shape.n_dims == 3) {
        out->planes = (int32_t)value->shape.dims[2];
    }
}

bool dunlin__emit_stages_parts(const dunlin_emit *emit)
{
    return emit->options->precision == NULL &&
           dunlin__net_n_parts(emit->net) <= DUNLIN_STEP_MAX_INPUTS;
}

/* The inputs that are staged, into the graph; the values' names are in the pool already. */
static dunlin_net_part part_of(const dunlin_emit *emit, uint32_t index)
{
    const dunlin_net_value *whole = &emit->net->values[emit->net->input];
    return dunlin__emit_stages_parts(emit) ? dunlin__net_part_at(emit->net, index)
                                           : (dunlin_net_part){.value = emit->net->input,
                                                               .name = whole->name,
                                                               .n = dunlin__value_elements(whole)};
}

static const dunlin_step_input *describe_inputs(dunlin_emit *emit, int32_t *out_channels)
{
    dunlin_step_graph *graph = emit->graph;
    graph->n_inputs = dunlin__emit_stages_parts(emit) ? dunlin__net_n_parts(emit->net) : 1;
    graph->n_elements = dunlin__value_elements(&emit->net->values[emit->net->input]);
    dunlin_step_input *inputs =
        dunlin__step_pool_take(&graph->pool, graph->n_inputs * sizeof *inputs);
    for (uint32_t k = 0; inputs != NULL && k < graph->n_inputs; k++) {
        const dunlin_net_part part = part_of(emit, k);
        describe_input(emit->net, &part, &inputs[k]);
        inputs[k].name = dunlin__step_pool_text(&graph->pool, part.name, "");
        const int32_t most =
            inputs[k].planes > inputs[k].channels ? inputs[k].planes : inputs[k].channels;
        *out_channels = most > *out_channels ? most : *out_channels;
        if (inputs[k].name == NULL) {
            inputs = NULL;
        }
    }
    if (inputs == NULL) {
        (void)dunlin__emit_fail(emit, DUNLIN_MEMORY, "no memory for the graph of a step");
    }
    graph->inputs = inputs;
    return inputs;
}

/* The tensor of an output's labels or targets, and what is to be done to them. */
static void emit_answer(dunlin_emit *emit, uint32_t index, input_params *params)
{
    dunlin_step_output *of = &emit->graph->outputs[index];
    const bool has_labels = of->loss.loss == DUNLIN_LOSS_CROSS_ENTROPY;
    dunlin_answer *answer = &params->answers[index];
    *answer = (dunlin_answer){.index = index,
                              .n_classes = of->n_classes,
                              .n_rows = of->n_rows,
                              .is_image = of->is_image && !has_labels,
                              .loss = of->loss.loss};
    const uint64_t target_bytes = (uint64_t)of->n_rows * (uint64_t)of->n_classes * sizeof(float);
    if (answer->is_image && target_bytes > params->target_bytes) {
        params->target_bytes = target_bytes;
    }
    const char *first = has_labels ? "labels" : "targets";
    of->labels = dunlin__emit_named_tensor(
        emit, index == 0 ? first : of->name,
        index == 0   ? ""
        : has_labels ? "/labels"
                     : "/targets",
        &(dunlin_step_tensor){.dtype = has_labels ? DUNLIN_I32 : DUNLIN_F32,
                              .is_batched = true,
                              .n_elements = dunlin__answer_width(answer),
                              .mem_class = DUNLIN_MEM_INPUT});
}

void dunlin__emit_input(dunlin_emit *emit)
{
    dunlin_step_graph *graph = emit->graph;
    input_params params = {.n_answers = graph->n_outputs};
    int32_t channels = 1;
    emit->node_name = "input";
    params.staging.inputs = describe_inputs(emit, &channels);
    params.staging.n_inputs = graph->n_inputs;
    if (params.staging.inputs == NULL) {
        return;
    }
    if (!size_input(graph->n_elements, channels, &params)) {
        (void)dunlin__emit_fail(emit, DUNLIN_OVERFLOW, "an example is empty or too large");
        return;
    }
    dunlin_mem_access accesses[DUNLIN_STEP_MAX_INPUTS + DUNLIN_NET_MAX_OUTPUTS];
    uint32_t n_accesses = 0;
    for (uint32_t k = 0; k < graph->n_inputs; k++) {
        const uint32_t value = part_of(emit, k).value;
        const uint32_t x = dunlin__emit_named_tensor(
            emit, emit->net->values[value].name, "",
            &(dunlin_step_tensor){.dtype = DUNLIN_F32,
                                  .is_batched = true,
                                  .n_elements = graph->inputs[k].n_elements,
                                  .mem_class = DUNLIN_MEM_INPUT});
        emit->values[value].tensor = x;
        graph->input = k == 0 ? x : graph->input;
        accesses[n_accesses++] =
            (dunlin_mem_access){.tensor = x, .mode = DUNLIN_MEM_WRITE, .parts = DUNLIN_MEM_MAP};
    }
    for (uint32_t k = 0; k < graph->n_outputs; k++) {
        emit_answer(emit, k, &params);
        accesses[n_accesses++] = (dunlin_mem_access){
            .tensor = graph->outputs[k].labels, .mode = DUNLIN_MEM_WRITE, .parts = DUNLIN_MEM_MAP};
    }
    /* Of an example of several inputs only its samples are counted: any of them will do. */
    emit->values[emit->net->input].tensor = graph->input;
    graph->labels = graph->outputs[0].labels;
    const size_t n_left_out = DUNLIN_NET_MAX_OUTPUTS - graph->n_outputs;
    dunlin__emit_run(
        emit, &(dunlin_emit_op){.kernel = &input_kernel,
                                .suffix = "",
                                .params = &params,
                                .params_bytes = sizeof params - n_left_out * sizeof(dunlin_answer),
                                .accesses = accesses,
                                .n_accesses = n_accesses});
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
        op->n_accesses = (uint16_t)(n + 1);
        op->has_guard = true;
    }
}
