/*
 * lower.c - converts kernels over tensors to bytes, accesses and costs: the one file that knows
 * both the trainer's graph and the planner's.
 *
 * Invariant: tensor i and op i of both graphs are the same. Costs are those of a roofline (time to
 * compute and time to move the bytes) with constants that are fixed for an instruction set, so that
 * the same network gives the same plan on every machine that has it. The two times are added:
 * measured on convolutions of all intensities that fits better than the longer of the two. Source:
 * Williams, Waterman, Patterson, "Roofline" (CACM 2009).
 */
#include "lower.h"

#include "graph/narrow.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <string.h>

#define BYTES_PER_NS 9.0   /* what a kernel moves besides computing */
#define STREAM_PER_NS 20.0 /* what moves in one pass over parameters, without more */
#define WIDEN_PER_NS 7.2   /* floats in workspace of what is bfloat16, to and fro */
#define PLACED_PER_NS 15.7 /* of bfloat16 that a kernel takes where it lies */
#define UNPACK_PER_NS 7.2  /* of what is read of int8 */
#define PACK_PER_NS 2.5    /* and of what is written */
#define JOIN_PER_NS 15.0   /* of floats that are put side by side */
#define OVERHEAD_NS 500.0  /* one op's bookkeeping and cold start, per slice */

#define SWAP_OVERHEAD_NS 100000 /* until the first byte of a tensor is on its way */

/* One core, computing from its caches. The first three were measured, on a server of 2023. */
static double flops_per_ns(const char *isa)
{
    static const struct {
        const char *isa;
        double rate;
    } rates[] = {
        {"sse2", 20.0}, {"avx2", 60.0}, {"avx512", 120.0}, {"neon", 30.0}, {"generic", 20.0}};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        if (strcmp(rates[i].isa, isa) == 0) {
            return rates[i].rate;
        }
    }
    return 20.0;
}

/* Where a part begins within a sample of its parent. */
static uint64_t part_offset(const dunlin_step_tensor *tensor)
{
    return tensor->is_part ? (uint64_t)tensor->parent_offset * dunlin_dtype_bytes(tensor->dtype)
                           : 0;
}

static dunlin_mem_stored stored_in(const dunlin_step_tensor *tensor)
{
    return dunlin__narrow_is_scaled(tensor) ? DUNLIN_MEM_IN_INT8
           : dunlin__narrow_is(tensor)      ? DUNLIN_MEM_IN_BF16
                                            : DUNLIN_MEM_AS_COMPUTED;
}

static dunlin_status lower_tensors(const dunlin_step_graph *step, bool pins_fixed,
                                   dunlin_lowered *lowered, dunlin_error *error)
{
    for (size_t i = 0; i < step->n_tensors; i++) {
        const dunlin_step_tensor *from = &step->tensors[i];
        /* What is gathered is touched by nobody, but a tensor without a byte is none. */
        const uint64_t bytes = from->is_gathered ? 1 : dunlin__step_tensor_bytes(from);
        lowered->tensors[i] =
            (dunlin_mem_tensor){.name = from->name,
                                .sample_bytes = from->is_batched ? bytes : 0,
                                .fixed_bytes = from->is_batched ? 0 : bytes,
                                .mem_class = from->mem_class,
                                .is_persistent = from->is_persistent,
                                .follows_batch = from->follows_batch,
                                .is_per_slice = from->is_per_slice,
                                .is_pinned = pins_fixed && !from->is_batched &&
                                             !from->is_per_slice && !from->is_persistent,
                                .parent = from->is_part ? from->parent : DUNLIN_MEM_NONE,
                                .parent_offset = part_offset(from),
                                .stored = (uint8_t)stored_in(from)};
        uint64_t aligned = 0;
        if (from->is_persistent &&
            (!dunlin__align_u64(bytes, DUNLIN_MEM_ALIGN, &aligned) ||
             !dunlin__add_u64(lowered->persistent_bytes, aligned, &lowered->persistent_bytes))) {
            return dunlin__fail(error, DUNLIN_OVERFLOW, "step", 0,
                                "the parameters up to \"%.80s\" do not fit into 64 bits of bytes",
                                from->name);
        }
    }
    return DUNLIN_OK;
}

static uint64_t roofline_ns(double compute_ns, double move_ns, double overhead_ns)
{
    const double ns = compute_ns + move_ns + overhead_ns;
    return ns < 1e15 ? (uint64_t)ns : UINT64_C(1000000000000000);
}

/* The kernel's workspace for a piece, and the piece's floats behind it. */
static uint64_t room_of_pieces(const dunlin_narrow *narrow, uint64_t fixed, uint64_t sample)
{
    const uint64_t own = fixed + (uint64_t)narrow->n_samples * sample;
    return (own + DUNLIN_MEM_ALIGN - 1) / DUNLIN_MEM_ALIGN * DUNLIN_MEM_ALIGN +
           dunlin__narrow_bytes(narrow);
}

/* To pack and unpack what is stored in fewer bits, a sample. */
static double narrow_ns(const dunlin_narrow *narrow)
{
    const double bytes = sizeof(float);
    return (double)narrow->sample_halves * bytes / WIDEN_PER_NS +
           (double)narrow->sample_placed * bytes / PLACED_PER_NS +
           (double)narrow->sample_loads * bytes / UNPACK_PER_NS +
           (double)narrow->sample_stores * bytes / PACK_PER_NS +
           (double)narrow->sample_copied * bytes / JOIN_PER_NS;
}

static void lower_op(const dunlin_step_graph *step, const dunlin_step_op *from,
                     const dunlin_kernels *kernels, size_t n_threads, dunlin_mem_variant *variant)
{
    double sample_bytes = 0.0;
    double fixed_bytes = 0.0;
    const dunlin_mem_access *own = dunlin__step_own(from);
    const uint32_t n_touched = from->n_accesses - (from->has_guard ? 1U : 0U);
    for (uint32_t i = 0; i < n_touched; i++) {
        if (i < from->n_own && step->tensors[own[i].tensor].is_gathered) {
            continue; /* its members come after */
        }
        const dunlin_step_tensor *tensor = &step->tensors[from->accesses[i].tensor];
        const double passes = from->accesses[i].mode == DUNLIN_MEM_ACCUMULATE ||
                                      from->accesses[i].mode == DUNLIN_MEM_UPDATE
                                  ? 2.0
                                  : 1.0;
        const double bytes = passes * (double)dunlin__step_tensor_bytes(tensor);
        *(tensor->is_batched ? &sample_bytes : &fixed_bytes) += bytes;
    }
    uint64_t workspace_sample = 0;
    uint64_t workspace_fixed = 0;
    if (from->kernel->workspace_fn != NULL) {
        workspace_fixed =
            from->kernel->workspace_fn(kernels, from->params, n_threads, &workspace_sample);
    }
    const dunlin_narrow narrow = dunlin__narrow_of(step, from);
    if (narrow.sample_floats > 0) {
        workspace_fixed = room_of_pieces(&narrow, workspace_fixed, workspace_sample);
        workspace_sample = 0;
    }
    const double packing_ns = narrow_ns(&narrow);
    const double rate = flops_per_ns(kernels->isa);
    const double sample_ns =
        from->flops_per_sample / rate + sample_bytes / BYTES_PER_NS + packing_ns;
    const double reduce_ns = from->reduce_flops_per_sample / rate;
    const double fixed_rate =
        from->kernel->parts == DUNLIN_MEM_FIXED ? STREAM_PER_NS : BYTES_PER_NS;
    const int8_t read = from->kernel->in_place_read;
    const bool is_in_place = read >= 0 && !step->tensors[own[read].tensor].is_gathered;
    *variant = (dunlin_mem_variant){
        .name = from->kernel->name,
        .accesses = from->accesses,
        .n_accesses = from->n_accesses,
        .workspace_fixed_bytes = workspace_fixed,
        .workspace_sample_bytes = workspace_sample,
        .cost_fixed_ns =
            roofline_ns(from->flops_fixed / rate, fixed_bytes / fixed_rate, OVERHEAD_NS),
        .cost_sample_ns =
            roofline_ns(from->flops_per_sample / rate, sample_bytes / BYTES_PER_NS, packing_ns),
        .reduce_permille = reduce_ns > 0.0 ? (uint16_t)(1000.0 * reduce_ns / sample_ns) : 0,
        .in_place_write = is_in_place ? from->kernel->in_place_write : -1,
        .in_place_read = is_in_place ? read : -1,
    };
}

dunlin_status dunlin__lower(const dunlin_step_graph *step, const dunlin_kernels *kernels,
                            size_t n_threads, bool pins_fixed, const dunlin_alloc *alloc,
                            dunlin_lowered *out_lowered, dunlin_error *error)
{
    *out_lowered = (dunlin_lowered){.alloc = *alloc};
    dunlin_lowered *lowered = out_lowered;
    lowered->tensors = dunlin__alloc_array(alloc, step->n_tensors, sizeof *lowered->tensors);
    const size_t n_all = step->n_ops + 2 * step->n_swaps;
    lowered->ops = dunlin__alloc_array(alloc, n_all, sizeof *lowered->ops);
    lowered->variants = dunlin__alloc_array(alloc, n_all, sizeof *lowered->variants);
    lowered->graph = (dunlin_mem_graph){.tensors = lowered->tensors,
                                        .n_tensors = (uint32_t)step->n_tensors,
                                        .ops = lowered->ops,
                                        .n_ops = (uint32_t)step->n_ops,
                                        .n_swaps = (uint32_t)step->n_swaps};
    if (lowered->tensors == NULL || lowered->ops == NULL || lowered->variants == NULL) {
        dunlin__lowered_free(lowered);
        return dunlin__fail(error, DUNLIN_MEMORY, "step", 0,
                            "no memory for the planner's view of %zu ops", step->n_ops);
    }
    const dunlin_status status = lower_tensors(step, pins_fixed, lowered, error);
    if (status != DUNLIN_OK) {
        dunlin__lowered_free(lowered);
        return status;
    }
    for (size_t i = 0; i < n_all; i++) {
        const dunlin_step_op *from = &step->ops[i];
        lower_op(step, from, kernels, n_threads, &lowered->variants[i]);
        lowered->ops[i] = (dunlin_mem_op){.name = from->name,
                                          .parts = from->kernel->parts,
                                          .may_recompute = from->kernel->may_recompute,
                                          .is_backward = from->is_backward,
                                          .variants = &lowered->variants[i],
                                          .n_variants = 1};
    }
    return DUNLIN_OK;
}

void dunlin__lower_swaps(const dunlin_step_graph *step, const dunlin_swap_speed *speed,
                         dunlin_lowered *lowered)
{
    for (size_t i = step->n_ops; i < step->n_ops + 2 * step->n_swaps; i++) {
        const uint32_t tensor = step->ops[i].accesses[0].tensor;
        const bool is_out = (i - step->n_ops) % 2 == 0;
        const double bytes = (double)dunlin__step_tensor_bytes(&step->tensors[tensor]);
        lowered->variants[i].cost_fixed_ns = SWAP_OVERHEAD_NS;
        lowered->variants[i].cost_sample_ns =
            roofline_ns(0.0, bytes / (is_out ? speed->out_per_ns : speed->in_per_ns), 0.0);
    }
}

void dunlin__lowered_free(dunlin_lowered *lowered)
{
    const uint32_t n_tensors = lowered->graph.n_tensors;
    const uint32_t n_ops = dunlin__mem_n_all_ops(&lowered->graph);
    dunlin__free_array(&lowered->alloc, lowered->tensors, n_tensors, sizeof *lowered->tensors);
    dunlin__free_array(&lowered->alloc, lowered->ops, n_ops, sizeof *lowered->ops);
    dunlin__free_array(&lowered->alloc, lowered->variants, n_ops, sizeof *lowered->variants);
    *lowered = (dunlin_lowered){.alloc = lowered->alloc};
}
