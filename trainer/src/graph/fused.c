/*
 * fused.c - see fused.h: references and operands into what kernels take.
 *
 * Invariant: an operand is NULL where the parts that run do not touch it; then what needs it is
 * left out (a recomputed map part takes no sums).
 */
#include "fused.h"

#include "narrow.h"

#include <assert.h>
#include <math.h>
#include <string.h>

int32_t dunlin__op_touch(dunlin_op_list *list, uint32_t tensor, dunlin_mem_mode mode, uint8_t parts)
{
    assert(list->n < DUNLIN_STEP_MAX_ACCESSES);
    list->accesses[list->n] =
        (dunlin_mem_access){.tensor = tensor, .mode = (uint8_t)mode, .parts = parts};
    return (int32_t)list->n++;
}

void dunlin__op_trim(dunlin_op_list *list, uint32_t parts)
{
    for (uint32_t i = 0; i < list->n; i++) {
        list->accesses[i].parts &= (uint8_t)parts;
    }
}

uint32_t dunlin__epilogue_sums_parts(const dunlin_epilogue_ref *epilogue)
{
    uint32_t parts = 0;
    for (uint32_t i = 0; i < epilogue->n_stats; i++) {
        parts |= epilogue->stats[i].n_own > 0 ? DUNLIN_MEM_MAP : DUNLIN_MEM_REDUCE;
    }
    return parts;
}

const dunlin_step_kernel *dunlin__fused_kernel(const dunlin_step_kernel *kernels, uint32_t parts,
                                               const dunlin_epilogue_ref *epilogue)
{
    if (parts == DUNLIN_MEM_REDUCE) {
        return &kernels[DUNLIN_FUSED_REDUCE];
    }
    const int first = parts == DUNLIN_MEM_MAP ? DUNLIN_FUSED_MAP : DUNLIN_FUSED_BOTH;
    if (epilogue != NULL && epilogue->is_same) {
        return &kernels[first + 2];
    }
    return &kernels[first + (epilogue != NULL && epilogue->may_lie_on ? 1 : 0)];
}

static void *operand(const dunlin_kernel_call *call, int32_t index)
{
    return index < 0 ? NULL : call->operands[index];
}

/* An element of a vector among the operands. */
static const float *vector(const dunlin_kernel_call *call, int32_t index, int64_t first)
{
    const float *base = operand(call, index);
    return base == NULL ? NULL : base + first;
}

dunlin_view dunlin__view_at(const dunlin_kernel_call *call, const dunlin_view_ref *ref)
{
    return (dunlin_view){
        .x = operand(call, ref->x),
        .pitch = ref->pitch,
        .scale = vector(call, ref->affine, 0),
        .shift = vector(call, ref->affine, ref->channels),
        .fn = (dunlin_view_fn)ref->fn,
        .low = ref->low,
        .high = ref->high,
        .plus = operand(call, ref->plus),
        .plus_pitch = ref->plus_pitch,
        .plus_scale = vector(call, ref->plus_affine, 0),
        .plus_shift = vector(call, ref->plus_affine, ref->channels),
        .is_rounded = ref->is_rounded,
        .is_half = dunlin__narrow_is_placed(call, ref->x),
        .is_plus_half = dunlin__narrow_is_placed(call, ref->plus),
    };
}

dunlin_stat dunlin__stat_at(const dunlin_kernel_call *call, const dunlin_stat_ref *ref)
{
    double *sums = operand(call, ref->sums);
    if (sums != NULL && ref->n_own > 0) {
        memset(sums, 0, (size_t)ref->n_own * sizeof *sums);
    }
    return (dunlin_stat){
        .raw = operand(call, ref->raw),
        .raw_pitch = ref->raw_pitch,
        .about = vector(call, ref->about, ref->about_offset),
        .sums = sums,
        .is_raw_half = dunlin__narrow_is_placed(call, ref->raw),
    };
}

dunlin_grad dunlin__grad_at(const dunlin_kernel_call *call, const dunlin_grad_ref *ref)
{
    return (dunlin_grad){
        .g = operand(call, ref->g),
        .pitch = ref->pitch,
        .factor = vector(call, ref->factor, 0),
        .raw = operand(call, ref->raw),
        .raw_pitch = ref->raw_pitch,
        .slope = vector(call, ref->coef, ref->coef_offset),
        .offset = vector(call, ref->coef, ref->coef_width + ref->coef_offset),
        .is_half = dunlin__narrow_is_placed(call, ref->g),
        .is_raw_half = dunlin__narrow_is_placed(call, ref->raw),
    };
}

dunlin_epilogue dunlin__epilogue_at(const dunlin_kernel_call *call, const dunlin_epilogue_ref *ref)
{
    const dunlin_view mask = dunlin__view_at(call, &ref->mask);
    dunlin_epilogue epilogue = {
        .out = operand(call, ref->out),
        .pitch = ref->pitch,
        .is_direct = ref->is_direct,
        .addend = operand(call, ref->addend),
        .addend_pitch = ref->addend_pitch,
        .mask = mask.x,
        .mask_pitch = mask.pitch,
        .mask_scale = mask.scale,
        .mask_shift = mask.shift,
        .plus = mask.plus,
        .plus_pitch = mask.plus_pitch,
        .plus_scale = mask.plus_scale,
        .plus_shift = mask.plus_shift,
        .is_plus_rounded = mask.is_rounded,
        .is_addend_half = dunlin__narrow_is_placed(call, ref->addend),
        .is_mask_half = mask.is_half,
        .is_plus_half = mask.is_plus_half,
        .is_out_half = dunlin__narrow_is_placed(call, ref->out),
        .mask_fn = mask.fn,
        .low = mask.low,
        .high = mask.high,
        .factor = vector(call, ref->factor, 0),
    };
    for (uint32_t i = 0; i < ref->n_stats; i++) {
        if (operand(call, ref->stats[i].sums) != NULL) {
            epilogue.stats[epilogue.n_stats++] = dunlin__stat_at(call, &ref->stats[i]);
        }
    }
    return epilogue;
}
