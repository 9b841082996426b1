/*
 * emit_loss.c - the loss over the outputs, and the check that ends a step whose loss is not finite.
 *
 * Invariant: in a training graph the check comes before every op that writes to a parameter, and
 * FIXED ops keep their order, so no weight has been touched when it fails, in whichever way the
 * step is cut into slices.
 */
#include "graph/emit.h"

#include <mem/support.h>

#include <math.h>
#include <string.h>

#define WEIGHT_BLOCK 64

typedef struct loss_params {
    int32_t n_classes;
    int64_t n_rows; /* of a sample */
    bool is_image;  /* rows are pixels: predictions have channels first */
    dunlin_loss loss;
    float smoothing;
    dunlin_end end;
} loss_params;

static void run_rows(const dunlin_step_run *run, dunlin_loss kind, const dunlin_loss_call *call)
{
    switch (kind) {
    case DUNLIN_LOSS_CROSS_ENTROPY:
    case DUNLIN_LOSS_SOFT_CROSS_ENTROPY:
        run->kernels->softmax_loss(call);
        break;
    case DUNLIN_LOSS_MSE:
        run->kernels->squared_loss(call);
        break;
    case DUNLIN_LOSS_BCE:
        run->kernels->logistic_loss(call);
        break;
    }
}

/* The source is asked for weights of samples in blocks; a row's part of the sums does not depend on
 * them. */
static void run_weighted(const dunlin_kernel_call *call, const dunlin_loss_call *whole)
{
    const loss_params *params = call->params;
    dunlin_loss_call block = *whole;
    const dunlin_step_run *run = call->run;
    float weights[WEIGHT_BLOCK];
    block.weights = weights;
    block.rows_per_weight = params->n_rows;
    for (int64_t first = 0; first < call->n_samples; first += WEIGHT_BLOCK) {
        const int64_t left = call->n_samples - first;
        const int64_t n = left < WEIGHT_BLOCK ? left : WEIGHT_BLOCK;
        block.n_rows = n * params->n_rows;
        for (int64_t i = 0; i < n; i++) {
            const int64_t position = call->first_sample + first + i;
            weights[i] =
                run->source->weight_fn(run->source->ctx, dunlin__run_example(run, position));
        }
        run_rows(run, params->loss, &block);
        block.logits += block.n_rows * block.classes;
        if (block.labels != NULL) {
            block.labels += block.n_rows;
        }
        if (block.targets != NULL) {
            block.targets += block.n_rows * block.classes;
        }
        if (block.dlogits != NULL) {
            block.dlogits += block.n_rows * block.classes;
        }
        block.is_reset = false;
    }
}

/* Predictions: what the loss includes is done to the logits, and an image has its channels first.
 */
static void give_logits(const dunlin_kernel_call *call)
{
    const loss_params *params = call->params;
    const dunlin_step_run *run = call->run;
    const int64_t width = params->n_rows * params->n_classes;
    const int64_t n_rows = call->n_samples * params->n_rows;
    float *out = run->logits + call->first_sample * width;
    const float *from = call->operands[0];
    float *rows = params->is_image && params->end != DUNLIN_END_NONE ? call->workspace : out;
    if (!params->is_image || rows != out) {
        memcpy(rows, from, (size_t)(call->n_samples * width) * sizeof(float));
        dunlin__end_apply(params->end, run->kernels, n_rows, params->n_classes, rows, run->threads);
        from = rows;
    }
    if (params->is_image) {
        run->kernels->transpose(call->n_samples, params->n_rows, params->n_classes, from, out,
                                run->threads);
    }
}

static uint64_t loss_workspace(const dunlin_kernels *kernels, const void *params, size_t n_threads,
                               uint64_t *out_sample_bytes)
{
    (void)kernels;
    (void)n_threads;
    const loss_params *p = params;
    const bool is_needed = p->is_image && p->end != DUNLIN_END_NONE;
    *out_sample_bytes =
        is_needed ? (uint64_t)p->n_rows * (uint64_t)p->n_classes * sizeof(float) : 0;
    return 0;
}

/* Counts what was scored highest (the first of equal ones) for each label that counts. */
static void count_confusion(const dunlin_kernel_call *call)
{
    const loss_params *params = call->params;
    const int32_t n_classes = params->n_classes;
    const float *logits = call->operands[0];
    const int32_t *labels = call->operands[1];
    for (int64_t row = 0; row < call->n_samples * params->n_rows; row++) {
        const float *scores = logits + row * n_classes;
        int32_t best = 0;
        for (int32_t c = 1; c < n_classes; c++) {
            best = scores[c] > scores[best] ? c : best;
        }
        if (labels[row] != DUNLIN_NO_LABEL) {
            call->run->confusion[(int64_t)labels[row] * n_classes + best]++;
        }
    }
}

/* operands: logits, labels or targets, sums, gradient of the logits (training) */
static dunlin_status run_loss(const dunlin_kernel_call *call)
{
    const loss_params *params = call->params;
    const dunlin_step_run *run = call->run;
    const bool is_reducing = (call->parts & DUNLIN_MEM_REDUCE) != 0;
    const bool is_mapping = (call->parts & DUNLIN_MEM_MAP) != 0;
    if (run->logits != NULL) {
        give_logits(call);
        return DUNLIN_OK;
    }
    dunlin_loss_call loss = {
        .classes = params->n_classes,
        .n_rows = call->n_samples * params->n_rows,
        .logits = call->operands[0],
        .labels = params->loss == DUNLIN_LOSS_CROSS_ENTROPY ? call->operands[1] : NULL,
        .targets = params->loss != DUNLIN_LOSS_CROSS_ENTROPY ? call->operands[1] : NULL,
        .class_weights = run->class_weights,
        .smoothing = params->smoothing,
        .scale = 1.0F / (float)run->weight_sum,
        .dlogits = is_mapping ? call->operands[3] : NULL,
        .sums = is_reducing ? call->operands[2] : NULL,
        .is_reset = call->is_first,
        .threads = run->threads,
    };
    if (run->source->weight_fn == NULL) {
        run_rows(run, params->loss, &loss);
    } else {
        run_weighted(call, &loss);
    }
    if (is_reducing && run->confusion != NULL && params->loss == DUNLIN_LOSS_CROSS_ENTROPY) {
        count_confusion(call);
    }
    return DUNLIN_OK;
}

static const dunlin_step_kernel loss_kernel = {.name = "loss",
                                               .run_fn = run_loss,
                                               .parts = DUNLIN_MEM_REDUCE,
                                               .in_place_write = -1,
                                               .in_place_read = -1,
                                               .workspace_fn = loss_workspace};
static const dunlin_step_kernel loss_grad_kernel = {.name = "loss_grad",
                                                    .run_fn = run_loss,
                                                    .parts = DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE,
                                                    .may_recompute = true,
                                                    .in_place_write = -1,
                                                    .in_place_read = -1};

static dunlin_status run_check(const dunlin_kernel_call *call)
{
    const double *sums = call->operands[0];
    const dunlin_step_run *run = call->run;
    if (run->logits != NULL) {
        return DUNLIN_OK;
    }
    if (!isfinite(sums[0])) {
        return dunlin__run_ends_forward(run, "the loss over", "outputs");
    }
    if (run->out_sums != NULL) {
        memcpy(run->out_sums, sums, DUNLIN_N_LOSS_SUMS * sizeof *sums);
    }
    return DUNLIN_OK;
}

static const dunlin_step_kernel check_kernel = {.name = "check",
                                                .run_fn = run_check,
                                                .parts = DUNLIN_MEM_FIXED,
                                                .in_place_write = -1,
                                                .in_place_read = -1};

static uint32_t emit_loss_op(dunlin_emit *emit, uint32_t sums)
{
    dunlin_step_graph *graph = emit->graph;
    const uint32_t output = emit->net->output;
    const bool has_grad =
        emit->options->mode == DUNLIN_EMIT_TRAIN && emit->values[output].needs_grad;
    const uint8_t both = has_grad ? DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE : DUNLIN_MEM_REDUCE;
    uint32_t gradient = DUNLIN_STEP_NONE;
    if (has_grad) {
        gradient = dunlin__emit_named_tensor(
            emit, emit->net->values[output].name, "/grad",
            &(dunlin_step_tensor){.dtype = DUNLIN_F32,
                                  .is_batched = true,
                                  .n_elements = graph->n_rows * graph->n_classes,
                                  .mem_class = DUNLIN_MEM_GRADIENT});
    }
    const dunlin_mem_access accesses[] = {
        {.tensor = graph->logits, .mode = DUNLIN_MEM_READ, .parts = both},
        {.tensor = graph->labels, .mode = DUNLIN_MEM_READ, .parts = both},
        {.tensor = sums, .mode = DUNLIN_MEM_ACCUMULATE, .parts = DUNLIN_MEM_REDUCE},
        {.tensor = gradient, .mode = DUNLIN_MEM_WRITE, .parts = DUNLIN_MEM_MAP},
    };
    const loss_params params = {.n_classes = graph->n_classes,
                                .n_rows = graph->n_rows,
                                .is_image = graph->is_image,
                                .loss = emit->options->loss,
                                .smoothing = emit->options->label_smoothing,
                                .end = emit->end};
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = has_grad ? &loss_grad_kernel : &loss_kernel,
                                             .suffix = "",
                                             .params = &params,
                                             .params_bytes = sizeof params,
                                             .accesses = accesses,
                                             .n_accesses = has_grad ? 4 : 3,
                                             .flops_per_sample =
                                                 40.0 * (double)graph->n_rows * graph->n_classes});
    return gradient;
}

uint32_t dunlin__emit_loss(dunlin_emit *emit)
{
    const uint32_t sums =
        dunlin__emit_named_tensor(emit, "loss", "/sums",
                                  &(dunlin_step_tensor){.dtype = DUNLIN_F64,
                                                        .n_elements = DUNLIN_N_LOSS_SUMS,
                                                        .mem_class = DUNLIN_MEM_ACCUMULATOR});
    emit->graph->loss = sums;
    const uint32_t gradient = emit_loss_op(emit, sums);
    const dunlin_mem_access access = {
        .tensor = sums, .mode = DUNLIN_MEM_READ, .parts = DUNLIN_MEM_FIXED};
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = &check_kernel,
                                             .suffix = "/check",
                                             .accesses = &access,
                                             .n_accesses = 1});
    return gradient;
}
