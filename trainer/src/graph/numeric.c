/*
 * numeric.c - the error of a step whose value is not finite, and the record of what the step has
 * written.
 */
#include "kernels/simd/finite.h"
#include "narrow.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

dunlin_status dunlin__run_not_finite(const dunlin_step_run *run, const char *what, const char *name)
{
    const dunlin_step_trace *trace = run->trace;
    if (trace == NULL || trace->largest_example < 0) {
        return dunlin__fail(run->error, DUNLIN_NUMERIC, "step", 0,
                            "step %" PRId64 ": %s '%.100s' is not finite", run->step, what, name);
    }
    float largest = 0.0F;
    memcpy(&largest, &trace->largest_bits, sizeof largest);
    return dunlin__fail(run->error, DUNLIN_NUMERIC, "step", 0,
                        "step %" PRId64 ": %s '%.100s' is not finite; the largest input of the "
                        "batch, %g, is example %" PRId64 "'s",
                        run->step, what, name, (double)largest, trace->largest_example);
}

dunlin_status dunlin__run_ends_forward(const dunlin_step_run *run, const char *what,
                                       const char *name)
{
    if (run->trace != NULL) {
        run->trace->ended_forward = true;
    }
    return dunlin__run_not_finite(run, what, name);
}

/* All of so many samples as they are stored; true of what is neither floats nor scales. */
static bool is_finite(const dunlin_step_tensor *tensor, const void *bytes, int64_t n_samples)
{
    const int64_t n = n_samples * tensor->n_elements;
    if (!dunlin__narrow_is_scaled(tensor)) {
        return tensor->dtype == DUNLIN_F32    ? finite_count(bytes, n) == n
               : tensor->dtype == DUNLIN_BF16 ? finite_is_all_bf16(bytes, n)
                                              : true;
    }
    const int64_t rows = tensor->n_elements / tensor->scaled_channels;
    const unsigned char *sample = bytes;
    for (int64_t i = 0; i < n_samples; i++) {
        if (!dunlin__scaled_is_finite(sample, rows, tensor->scaled_channels)) {
            return false;
        }
        sample += dunlin__scaled_bytes(rows, tensor->scaled_channels);
    }
    return true;
}

dunlin_status dunlin__run_look(const dunlin_step_run *run, const dunlin_step_tensor *tensors,
                               const dunlin_step_op *op, void *const *operands, int64_t n_samples)
{
    if (op->is_backward) {
        return DUNLIN_NUMERIC;
    }
    for (uint32_t i = 0; i < op->n_accesses; i++) {
        const dunlin_step_tensor *tensor = &tensors[op->accesses[i].tensor];
        if (op->accesses[i].mode == DUNLIN_MEM_READ || operands[i] == NULL || tensor->is_part ||
            !tensor->is_batched) {
            continue;
        }
        if (!is_finite(tensor, operands[i], n_samples)) {
            return dunlin__run_not_finite(run, "the output of", op->name);
        }
    }
    return DUNLIN_OK;
}

void dunlin__run_note_change(const dunlin_step_run *run)
{
    if (run->trace != NULL) {
        run->trace->has_changed = true;
    }
}
