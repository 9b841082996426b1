/*
 * rounded.c - see rounded.h.
 *
 * Invariant: sums are taken after the rounding and before the bytes go into the arena, of the same
 * floats that every later reader gets.
 */
#include "rounded.h"

#include "emit.h"
#include "narrow.h"
#include "net/outputs.h"

#include <assert.h>

const char *dunlin_storage_name(dunlin_storage storage)
{
    switch (storage) {
    case DUNLIN_STORAGE_EXACT:
        return "exact";
    case DUNLIN_STORAGE_BF16:
        return "bf16";
    case DUNLIN_STORAGE_INT8:
        return "int8";
    }
    return "unknown";
}

bool dunlin__emit_is_rounding(const dunlin_emit *emit)
{
    return emit->options->storage != DUNLIN_STORAGE_EXACT;
}

void dunlin__emit_round_store(dunlin_emit *emit, uint32_t value, dunlin_store_ref *ref)
{
    if (!dunlin__emit_is_rounding(emit) || emit->status != DUNLIN_OK) {
        return;
    }
    const uint32_t stored_as = emit->values[value].stored_as;
    const uint32_t stored = stored_as == DUNLIN_STEP_NONE ? value : stored_as;
    if (dunlin__net_is_output(emit->net, stored) || dunlin__net_is_output(emit->net, value)) {
        return;
    }
    dunlin_step_tensor *tensor = &emit->graph->tensors[emit->values[stored].tensor];
    assert(!tensor->is_part);
    ref->is_rounded = true;
    if (emit->options->storage == DUNLIN_STORAGE_BF16) {
        tensor->dtype = DUNLIN_BF16;
        return;
    }
    tensor->dtype = DUNLIN_I8;
    tensor->scaled_channels = (int32_t)dunlin__emit_channels(emit, stored);
    tensor->drawn_as = emit->options->mode == DUNLIN_EMIT_TRAIN ? stored : DUNLIN_STEP_NONE;
}

bool dunlin__emit_is_half(const dunlin_emit *emit, const dunlin_op_list *list, int32_t operand)
{
    return operand >= 0 && emit->status == DUNLIN_OK &&
           emit->graph->tensors[list->accesses[operand].tensor].dtype == DUNLIN_BF16;
}

uint64_t dunlin__late_workspace(const dunlin_kernels *kernels, const dunlin_late_room *room,
                                uint64_t *sample_bytes)
{
    uint64_t late_sample = 0;
    const uint64_t late =
        kernels->close_workspace_bytes(room->channels, room->rows_per_sample, &late_sample);
    *sample_bytes = *sample_bytes > late_sample ? *sample_bytes : late_sample;
    return room->bytes > late ? room->bytes : late;
}

dunlin_late_sums dunlin__epilogue_hold(const dunlin_epilogue_ref *ref, dunlin_epilogue *epilogue)
{
    dunlin_late_sums late = {.n = 0};
    if (ref->is_rounded && !epilogue->is_out_half) {
        late.n = epilogue->n_stats;
        for (uint32_t i = 0; i < late.n; i++) {
            late.stats[i] = epilogue->stats[i];
        }
        epilogue->n_stats = 0;
    }
    return late;
}

/* The floats of an operand in bfloat16, and where they go. In int8 they are rounded and stored
 * here, and nothing is left to be. */
static dunlin_rounding take_rounding(const dunlin_kernel_call *call, int32_t operand)
{
    dunlin_narrow_place *place = call->places[operand];
    if (dunlin__narrow_is_scaled(place->tensor)) {
        dunlin__narrow_store(call, place, true);
        return (dunlin_rounding){.floats = NULL};
    }
    place->is_stored = true;
    return (dunlin_rounding){.floats = place->floats, .halves = (uint16_t *)(void *)place->bytes};
}

void dunlin__epilogue_finish(const dunlin_kernel_call *call, const dunlin_epilogue_ref *ref,
                             const dunlin_late_sums *late, int64_t rows_per_sample)
{
    if (late->n == 0) {
        return;
    }
    dunlin_close_call close = {
        .rows_per_sample = rows_per_sample,
        .n_samples = call->n_samples,
        .channels = ref->channels,
        .to = {.is_direct = true, .n_stats = late->n},
        .rounding = take_rounding(call, ref->out),
        .is_reset = call->is_first,
        .workspace = call->workspace,
        .threads = call->run->threads,
    };
    close.from = (dunlin_grad){.g = call->operands[ref->out], .pitch = ref->pitch};
    for (uint32_t i = 0; i < late->n; i++) {
        close.to.stats[i] = late->stats[i];
    }
    call->run->kernels->close(&close);
}

void dunlin__store_finish(const dunlin_kernel_call *call, const dunlin_store_ref *ref,
                          int64_t rows_per_sample, int32_t channels)
{
    dunlin_sums_call sums = {
        .rows_per_sample = rows_per_sample,
        .n_samples = call->n_samples,
        .channels = channels,
        .stat = dunlin__stat_at(call, &ref->stat),
        .rounding = take_rounding(call, ref->y),
        .is_reset = call->is_first,
        .workspace = call->workspace,
        .threads = call->run->threads,
    };
    sums.stat.raw = call->operands[ref->y];
    sums.stat.raw_pitch = ref->pitch;
    call->run->kernels->sums(&sums);
}
