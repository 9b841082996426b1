/*
 * weigh.c - the total weight of a batch's examples in the loss, found before its first slice runs:
 * the divisor of the mean, which no cut into slices may change.
 */
#include "weigh.h"

#include "step/context/context.h"

#include <mem/support.h>

#include <math.h>
#include <string.h>

#define MAX_BLOCK_EXAMPLES 64

/* Memory that no step is using, room for an example of n_elements at least. */
typedef struct scratch_memory {
    void *memory;
    uint64_t bytes;
    int64_t n_elements;
} scratch_memory;

static dunlin_status take_weight(const dunlin_step_run *run, int64_t index, float *out_weight)
{
    const dunlin_source *source = run->source;
    *out_weight = source->weight_fn != NULL ? source->weight_fn(source->ctx, index) : 1.0F;
    if (!isfinite(*out_weight) || *out_weight < 0.0F) {
        return dunlin__fail(run->error, DUNLIN_DATA, "step", 0,
                            "the weight %g of example %lld is not finite or negative",
                            (double)*out_weight, (long long)index);
    }
    return DUNLIN_OK;
}

static dunlin_status add_example(dunlin_step_run *run, int64_t index, const dunlin_step_graph *step)
{
    float weight = 0.0F;
    DUNLIN_TRY(take_weight(run, index, &weight));
    for (uint32_t k = 0; k < step->n_outputs && weight > 0.0F; k++) {
        run->weight_sums[k] += (double)weight * (double)step->outputs[k].n_rows;
        run->n_counted[k] += step->outputs[k].n_rows;
    }
    return DUNLIN_OK;
}

/* Of one output's labels of an example: some may be ignored, some weigh more. */
static dunlin_status add_labels(dunlin_step_run *run, int64_t index, const int32_t *labels,
                                const dunlin_step_graph *step, uint32_t output, float weight)
{
    const dunlin_step_output *of = &step->outputs[output];
    const float *class_weights = output == 0 ? run->class_weights : NULL;
    double sum = 0.0;
    for (int64_t row = 0; row < of->n_rows; row++) {
        if (dunlin__run_is_ignored(run, labels[row])) {
            continue;
        }
        float own = 1.0F;
        if (class_weights != NULL) {
            DUNLIN_TRY(dunlin__run_check_label(run, labels[row], index, of->n_classes));
            own = class_weights[labels[row]];
        }
        sum += (double)own;
        run->n_counted[output] += own > 0.0F ? 1 : 0;
    }
    run->weight_sums[output] += (double)weight * sum;
    return DUNLIN_OK;
}

/* The same of all outputs; of those that take targets, and no labels, every row counts. `at` is
 * the example's place in the block. */
static dunlin_status add_answers(dunlin_step_run *run, int64_t index, void *const *answers,
                                 int64_t at, const dunlin_step_graph *step)
{
    float weight = 0.0F;
    DUNLIN_TRY(take_weight(run, index, &weight));
    for (uint32_t k = 0; k < step->n_outputs && weight > 0.0F; k++) {
        const dunlin_step_output *of = &step->outputs[k];
        if (of->loss.loss != DUNLIN_LOSS_CROSS_ENTROPY) {
            run->weight_sums[k] += (double)weight * (double)of->n_rows;
            run->n_counted[k] += of->n_rows;
            continue;
        }
        /* One answer does for all outputs, or each has its own. */
        const int32_t *labels = answers[run->source->answers == NULL ? 0 : k];
        DUNLIN_TRY(add_labels(run, index, labels + at * of->n_rows, step, k, weight));
    }
    return DUNLIN_OK;
}

/* Labels or targets of an example, of all outputs. */
static uint64_t answer_bytes(const dunlin_step_graph *step)
{
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < step->n_outputs; k++) {
        bytes += dunlin__step_tensor_bytes(&step->tensors[step->outputs[k].labels]);
    }
    return bytes;
}

/* Those of the first output come first, then those of the others, each of `n` examples. */
static void place_answers(const dunlin_step_graph *step, int64_t n, int32_t *room, void **answers)
{
    for (uint32_t k = 0; k < step->n_outputs; k++) {
        answers[k] = room;
        room += n * step->tensors[step->outputs[k].labels].n_elements;
    }
}

/* Reads the batch, a block at a time, for its labels alone: they lie before the examples. */
static dunlin_status weigh_labels(dunlin_step_run *run, const scratch_memory *scratch,
                                  const dunlin_step_graph *step)
{
    const dunlin_source *source = run->source;
    const uint64_t label_bytes = answer_bytes(step);
    const bool has_arrays = source->read_arrays_fn != NULL;
    const size_t width = has_arrays ? sizeof(float) : dunlin_dtype_bytes(source->dtype);
    const uint64_t example_bytes = (uint64_t)scratch->n_elements * width + label_bytes;
    const uint64_t n_fit = scratch->bytes / example_bytes;
    const int64_t block = n_fit < MAX_BLOCK_EXAMPLES ? (int64_t)n_fit : MAX_BLOCK_EXAMPLES;
    if (block < 1) {
        return dunlin__fail(run->error, DUNLIN_INTERNAL, "step", 0,
                            "an example of %lld bytes does not fit where no step is running",
                            (long long)example_bytes);
    }
    int32_t *labels = scratch->memory;
    void *answers[DUNLIN_NET_MAX_OUTPUTS];
    place_answers(step, block, labels, answers);
    void *raw = (unsigned char *)scratch->memory + (uint64_t)block * label_bytes;
    for (int64_t first = 0; first < run->n_batch; first += block) {
        const int64_t left = run->n_batch - first;
        const int64_t n = left < block ? left : block;
        int64_t indices[MAX_BLOCK_EXAMPLES];
        for (int64_t i = 0; i < n; i++) {
            indices[i] = dunlin__run_example(run, first + i);
        }
        const dunlin_status status =
            has_arrays ? dunlin__run_read_arrays(run, step->inputs, step->n_inputs, indices, n,
                                                 block, raw, answers)
                       : source->read_fn(source->ctx, indices, n, raw, labels);
        if (status != DUNLIN_OK) {
            return dunlin__run_fail_source(run, status, indices[0], n);
        }
        for (int64_t i = 0; i < n; i++) {
            DUNLIN_TRY(add_answers(run, indices[i], answers, i, step));
        }
    }
    return DUNLIN_OK;
}

/* The pool is idle: between two steps nothing is alive there. */
static dunlin_status weigh_in_pool(dunlin_trainer *trainer, dunlin_step_run *run)
{
    const uint64_t first = trainer->train.lowered.persistent_bytes;
    const dunlin_step_graph *step = trainer->train.step;
    scratch_memory scratch = {.bytes = trainer->arena.committed_bytes - first,
                              .n_elements = step->n_elements};
    if (scratch.bytes > 0) {
        dunlin__arena_unpoison(&trainer->arena, first, scratch.bytes);
        scratch.memory = dunlin__arena_at(&trainer->arena, first, scratch.bytes);
    }
    const dunlin_status status = weigh_labels(run, &scratch, step);
    dunlin__exec_poison_pool(&trainer->train, &trainer->arena);
    return status;
}

dunlin_status dunlin__trainer_weigh(dunlin_trainer *trainer, dunlin_step_run *run)
{
    const bool reads_labels =
        run->has_ignore_label ||
        (run->class_weights != NULL && trainer->options.loss == DUNLIN_LOSS_CROSS_ENTROPY);
    if (!reads_labels && run->source->weight_fn == NULL) {
        return DUNLIN_OK; /* each row counts as one, as the run begins */
    }
    memset(run->weight_sums, 0, sizeof run->weight_sums);
    memset(run->n_counted, 0, sizeof run->n_counted);
    if (reads_labels) {
        return weigh_in_pool(trainer, run);
    }
    for (int64_t i = 0; i < run->n_batch; i++) {
        DUNLIN_TRY(add_example(run, dunlin__run_example(run, i), trainer->train.step));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__trainer_check_counted(const dunlin_trainer *trainer, int64_t n,
                                            int64_t n_counted)
{
    if (n_counted > 0) {
        return DUNLIN_OK;
    }
    return dunlin__fail(trainer->error, DUNLIN_DATA, "step", 0,
                        "none counts: the weights of all %lld examples are 0%s", (long long)n,
                        trainer->options.has_ignore_label || trainer->options.class_weights != NULL
                            ? " or their labels are ignored"
                            : "");
}
