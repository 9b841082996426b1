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
