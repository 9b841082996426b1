/*
 * emit_loss.c - the loss over the outputs, and the check that ends a step whose loss is not finite.
 *
 * Invariant: in a training graph the check comes before every op that writes to a parameter, and
 * FIXED ops keep their order, so no weight has been touched when it fails, in whichever way the
 * step is cut into slices.
 */
#include "graph/emit.h"
#include "margin.h"
#include "net/outputs.h"

#include <mem/support.h>

#include <math.h>
#include <string.h>

#define WEIGHT_BLOCK 64

typedef struct loss_params {
    uint32_t index; /* of the output */
    int32_t n_classes;
    int64_t n_rows; /* of a sample */
    bool is_image;  /* rows are pixels: predictions have channels first */
    dunlin_loss loss;
    float weight, smoothing, margin;
    dunlin_end end;
} loss_params;

static void run_rows(const dunlin_step_run *run, const loss_params *params,
                     const dunlin_loss_call *call)
{
    switch (params->loss) {
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
    case DUNLIN_LOSS_CONTRASTIVE:
    case DUNLIN_LOSS_COSINE:
    case DUNLIN_LOSS_TRIPLET:
        dunlin__margin_loss(params->loss, params->margin, call);
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
        run_rows(run, params, &block);
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

static void count_confusion(const dunlin_step_run *run, const float *scores, int32_t n_classes,
                            int32_t label)
{
    int32_t best = 0; /* the first of equal ones */
    for (int32_t c = 1; c < n_classes; c++) {
        best = scores[c] > scores[best] ? c : best;
    }
    run->confusion[(int64_t)label * n_classes + best]++;
}

/* Of each label that counts. */
static void count_answers(const dunlin_kernel_call *call)
{
    const loss_params *params = call->params;
    const float *logits = call->operands[0];
    const int32_t *labels = call->operands[1];
    for (int64_t row = 0; row < call->n_samples * params->n_rows; row++) {
        const float *scores = logits + row * params->n_classes;
        if (labels[row] != DUNLIN_NO_LABEL && call->run->confusion != NULL) {
            count_confusion(call->run, scores, params->n_classes, labels[row]);
        }
        dunlin__run_count_rank(call->run, scores, params->n_classes, labels[row]);
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
        if (params->index == run->logits_of) {
            give_logits(call);
        }
        return DUNLIN_OK;
    }
    const double divisor = dunlin__run_divisor(run, params->index);
    dunlin_loss_call loss = {
        .classes = params->n_classes,
        .n_rows = call->n_samples * params->n_rows,
        .logits = call->operands[0],
        .labels = params->loss == DUNLIN_LOSS_CROSS_ENTROPY ? call->operands[1] : NULL,
        .targets = params->loss != DUNLIN_LOSS_CROSS_ENTROPY ? call->operands[1] : NULL,
        .class_weights = params->index == 0 ? run->class_weights : NULL,
        .smoothing = params->smoothing,
        .scale = params->weight / (float)divisor,
        .dlogits = is_mapping ? call->operands[3] : NULL,
        .sums = is_reducing ? call->operands[2] : NULL,
        .is_reset = call->is_first,
        .threads = run->threads,
    };
    if (run->source->weight_fn == NULL) {
        run_rows(run, params, &loss);
    } else {
        run_weighted(call, &loss);
    }
    if (is_reducing && (run->confusion != NULL || run->ranks != NULL) && params->index == 0 &&
        params->loss == DUNLIN_LOSS_CROSS_ENTROPY) {
        count_answers(call);
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

/* Which output it is of. */
typedef struct check_params {
    uint32_t index;
} check_params;

static dunlin_status run_check(const dunlin_kernel_call *call)
{
    const check_params *params = call->params;
    const double *sums = call->operands[0];
    const dunlin_step_run *run = call->run;
    if (run->logits != NULL) {
        return DUNLIN_OK;
    }
    if (!isfinite(sums[0])) {
        return dunlin__run_ends_forward(run, "the loss over", "outputs");
    }
    if (run->out_sums != NULL) {
        memcpy(run->out_sums + params->index * DUNLIN_N_LOSS_SUMS, sums,
               DUNLIN_N_LOSS_SUMS * sizeof *sums);
    }
    return DUNLIN_OK;
}

static const dunlin_step_kernel check_kernel = {.name = "check",
                                                .run_fn = run_check,
                                                .parts = DUNLIN_MEM_FIXED,
                                                .in_place_write = -1,
                                                .in_place_read = -1};

static uint32_t emit_loss_op(dunlin_emit *emit, uint32_t index)
{
    const dunlin_step_output *of = &emit->graph->outputs[index];
    const uint32_t output = dunlin__net_output_at(emit->net, index);
    const bool has_grad = emit->options->mode == DUNLIN_EMIT_TRAIN &&
                          emit->values[output].needs_grad && of->loss.weight != 0.0F;
    const uint8_t both = has_grad ? DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE : DUNLIN_MEM_REDUCE;
    uint32_t gradient = DUNLIN_STEP_NONE;
    if (has_grad) {
        gradient = dunlin__emit_named_tensor(
            emit, emit->net->values[output].name, "/grad",
            &(dunlin_step_tensor){.dtype = DUNLIN_F32,
                                  .is_batched = true,
                                  .n_elements = of->n_rows * of->n_classes,
                                  .mem_class = DUNLIN_MEM_GRADIENT});
    }
    const dunlin_mem_access accesses[] = {
        {.tensor = of->logits, .mode = DUNLIN_MEM_READ, .parts = both},
        {.tensor = of->labels, .mode = DUNLIN_MEM_READ, .parts = both},
        {.tensor = of->sums, .mode = DUNLIN_MEM_ACCUMULATE, .parts = DUNLIN_MEM_REDUCE},
        {.tensor = gradient, .mode = DUNLIN_MEM_WRITE, .parts = DUNLIN_MEM_MAP},
    };
    const loss_params params = {.index = index,
                                .n_classes = of->n_classes,
                                .n_rows = of->n_rows,
                                .is_image = of->is_image,
                                .loss = of->loss.loss,
                                .weight = of->loss.weight,
                                .smoothing = of->loss.smoothing,
                                .margin = of->loss.margin,
                                .end = of->end};
    dunlin__emit_run(
        emit, &(dunlin_emit_op){.kernel = has_grad ? &loss_grad_kernel : &loss_kernel,
                                .suffix = "",
                                .params = &params,
                                .params_bytes = sizeof params,
                                .accesses = accesses,
                                .n_accesses = has_grad ? 4 : 3,
                                .flops_per_sample = 40.0 * (double)of->n_rows * of->n_classes});
    return gradient;
}

/* "loss", of other outputs than the first with the output's name. */
static const char *name_of(dunlin_emit *emit, uint32_t index)
{
    const char *name = index == 0 ? "loss"
                                  : dunlin__step_pool_text(&emit->graph->pool, "loss/",
                                                           emit->graph->outputs[index].name);
    if (name == NULL) {
        (void)dunlin__emit_fail(emit, DUNLIN_MEMORY, "no memory for the graph of a step");
    }
    return name != NULL ? name : "";
}

void dunlin__emit_loss(dunlin_emit *emit, uint32_t *out_gradients)
{
    dunlin_step_graph *graph = emit->graph;
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        emit->node_name = name_of(emit, i);
        const uint32_t sums =
            dunlin__emit_named_tensor(emit, emit->node_name, "/sums",
                                      &(dunlin_step_tensor){.dtype = DUNLIN_F64,
                                                            .n_elements = DUNLIN_N_LOSS_SUMS,
                                                            .mem_class = DUNLIN_MEM_ACCUMULATOR});
        graph->outputs[i].sums = sums;
        if (emit->class_layer == DUNLIN_STEP_NONE) {
            out_gradients[i] = emit_loss_op(emit, i);
        } else { /* of the only output */
            out_gradients[i] = DUNLIN_STEP_NONE;
            dunlin__emit_dense_loss(emit, sums);
        }
    }
    graph->loss = graph->outputs[0].sums;
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        const dunlin_mem_access access = {
            .tensor = graph->outputs[i].sums, .mode = DUNLIN_MEM_READ, .parts = DUNLIN_MEM_FIXED};
        const check_params params = {.index = i};
        emit->node_name = name_of(emit, i);
        dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = &check_kernel,
                                                 .suffix = "/check",
                                                 .params = &params,
                                                 .params_bytes = sizeof params,
                                                 .accesses = &access,
                                                 .n_accesses = 1});
    }
}
