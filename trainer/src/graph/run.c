/*
 * run.c - what an op asks of the run that it is part of: the example at a position, whether its
 * label counts, why the source failed.
 */
#include "step.h"

#include <mem/support.h>

int64_t dunlin__run_example(const dunlin_step_run *run, int64_t position)
{
    if (run->indices != NULL) {
        return run->indices[position];
    }
    const int64_t index = run->first_index + position;
    return run->shuffle != NULL ? dunlin__shuffle_at(run->shuffle, index) : index;
}

dunlin_status dunlin__run_fail_source(const dunlin_step_run *run, dunlin_status status,
                                      int64_t index, int64_t n)
{
    const dunlin_source *source = run->source;
    const char *text = source->error_fn == NULL ? "" : source->error_fn(source->ctx);
    return dunlin__fail(run->error, DUNLIN_CALLBACK, "step", (int)status,
                        "the source failed with %s at %lld examples from index %lld%s%s",
                        dunlin_status_name(status), (long long)n, (long long)index,
                        text[0] == '\0' ? "" : ": ", text);
}

// NOLINTNEXTLINE(readability-function-size): what a source's read_arrays_fn takes
dunlin_status dunlin__run_read_arrays(const dunlin_step_run *run, const dunlin_step_input *inputs,
                                      uint32_t n_inputs, const int64_t *indices, int64_t n,
                                      int64_t room, unsigned char *raw, void *const *answers)
{
    const dunlin_source *source = run->source;
    void *arrays[DUNLIN_STEP_MAX_INPUTS];
    for (uint32_t i = 0; i < n_inputs; i++) {
        arrays[i] = raw + (size_t)(room * inputs[i].first) * sizeof(float);
    }
    return source->read_arrays_fn(source->ctx, indices, n, arrays, answers);
}

bool dunlin__source_has_targets(const dunlin_source *source, uint32_t output)
{
    if (source->read_arrays_fn == NULL) {
        return source->read_targets_fn != NULL;
    }
    const dunlin_source_answer *answers = source->answers;
    return answers != NULL ? answers[output].n_targets > 0 : source->n_targets > 0;
}

double dunlin__run_divisor(const dunlin_step_run *run, uint32_t output)
{
    return run->weight_sums[output] > 0.0 ? run->weight_sums[output] : 1.0;
}

void dunlin__run_count_rank(const dunlin_step_run *run, const float *scores, int32_t n_classes,
                            int32_t label)
{
    int32_t rank = 0;
    if (run->ranks == NULL || label < 0) {
        return;
    }
    for (int32_t c = 0; c < n_classes; c++) {
        rank += scores[c] > scores[label] || (scores[c] == scores[label] && c < label) ? 1 : 0;
    }
    if (rank < run->n_ranks) {
        run->ranks[rank]++;
    }
}

bool dunlin__run_is_ignored(const dunlin_step_run *run, int32_t label)
{
    return run->has_ignore_label && label == run->ignore_label;
}

dunlin_status dunlin__run_check_label(const dunlin_step_run *run, int32_t label, int64_t example,
                                      int32_t n_classes)
{
    if (label >= 0 && label < n_classes) {
        return DUNLIN_OK;
    }
    return dunlin__fail(run->error, DUNLIN_DATA, "step", 0,
                        "label %d of example %lld is not one of the model's %d classes", (int)label,
                        (long long)example, (int)n_classes);
}
