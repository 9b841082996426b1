/*
 * view.c - the forward side of fused steps: where values lie, how they are read, and the copies for
 * ops that need them materialised.
 *
 * Invariant: a value has at most one copy, made where it is first asked for, so later readers find
 * it made.
 */
#include "emit.h"
#include "fused.h"
#include "gather.h"

#include <math.h>

uint32_t dunlin__emit_part(dunlin_emit *emit, const char *name, const char *suffix, uint32_t parent,
                           int64_t rows, int64_t offset, int64_t width)
{
    if (emit->status != DUNLIN_OK) {
        return DUNLIN_STEP_NONE;
    }
    dunlin_step_tensor part = emit->graph->tensors[parent];
    part.n_elements = rows * width;
    part.is_part = true;
    part.parent = parent;
    part.parent_offset = offset;
    return dunlin__emit_named_tensor(emit, name, suffix, &part);
}

/* --- concatenations --- */

/* The tensor of a concatenation: its own, or the first channels of the one that goes on from it. */
static uint32_t concat_tensor(dunlin_emit *emit, uint32_t node_index)
{
    /* From the widest down, because a part names its parent. */
    uint32_t at = node_index;
    while (emit->chains[at].next != DUNLIN_STEP_NONE) {
        at = emit->chains[at].next;
    }
    const int64_t pitch = emit->chains[at].width;
    uint32_t parent = DUNLIN_STEP_NONE;
    for (; emit->status == DUNLIN_OK; at = emit->chains[at].base) {
        const uint32_t output = emit->net->nodes[at].output;
        dunlin_emit_value *value = &emit->values[output];
        if (value->tensor == DUNLIN_STEP_NONE) {
            value->pitch = pitch;
            value->tensor =
                parent == DUNLIN_STEP_NONE
                    ? dunlin__emit_output(emit, output)
                    : dunlin__emit_part(emit, emit->net->values[output].name, "", parent,
                                        dunlin__emit_rows(emit, output), 0, emit->chains[at].width);
        }
        parent = value->tensor;
        if (at == node_index) {
            return parent;
        }
    }
    return DUNLIN_STEP_NONE;
}

static uint32_t leaf_tensor(dunlin_emit *emit, uint32_t node_index, dunlin_emit_leaf *leaf)
{
    if (leaf->tensor == DUNLIN_STEP_NONE) {
        const uint32_t parent = concat_tensor(emit, node_index);
        leaf->tensor =
            dunlin__emit_part(emit, emit->net->values[leaf->value].name, "", parent,
                              dunlin__emit_rows(emit, leaf->value), leaf->offset, leaf->width);
    }
    return leaf->tensor;
}

/* --- spelling out --- */

typedef struct blend_params {
    int64_t rows_per_sample;
    int32_t channels;
    dunlin_view_ref from;
    int64_t out_pitch;
} blend_params;

/* Operands: out, then those of the view. */
static dunlin_status run_blend(const dunlin_kernel_call *call)
{
    const blend_params *p = call->params;
    call->run->kernels->blend(&(dunlin_blend_call){
        .rows_per_sample = p->rows_per_sample,
        .n_samples = call->n_samples,
        .channels = p->channels,
        .a = dunlin__view_at(call, &p->from),
        .low = -HUGE_VALF,
        .high = HUGE_VALF,
        .out = call->operands[0],
        .out_pitch = p->out_pitch,
        .threads = call->run->threads,
    });
    return DUNLIN_OK;
}

static const dunlin_step_kernel blend_kernel = {
    .name = "view",
    .run_fn = run_blend,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static void copy_to(dunlin_emit *emit, uint32_t value, uint32_t to, int64_t pitch)
{
    dunlin_op_list list = {.n = 0};
    blend_params params = {.rows_per_sample = dunlin__emit_rows(emit, value),
                           .channels = (int32_t)dunlin__emit_channels(emit, value),
                           .out_pitch = pitch};
    (void)dunlin__op_touch(&list, to, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP);
    dunlin__emit_read_view(emit, value, &list, DUNLIN_MEM_MAP, &params.from);
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = &blend_kernel,
                                             .suffix = "/view",
                                             .params = &params,
                                             .params_bytes = sizeof params,
                                             .accesses = list.accesses,
                                             .n_accesses = list.n});
}

uint32_t dunlin__emit_copy(dunlin_emit *emit, uint32_t value)
{
    dunlin_emit_value *v = &emit->values[value];
    if (v->copy == DUNLIN_STEP_NONE && emit->status == DUNLIN_OK) {
        const dunlin_net_value *net_value = &emit->net->values[value];
        v->copy = dunlin__emit_named_tensor(
            emit, net_value->name, v->norm != DUNLIN_STEP_NONE ? "" : "/copy",
            &(dunlin_step_tensor){.dtype = DUNLIN_F32,
                                  .is_batched = true,
                                  .n_elements = dunlin__value_elements(net_value),
                                  .mem_class = DUNLIN_MEM_ACTIVATION});
        copy_to(emit, value, v->copy, dunlin__emit_channels(emit, value));
    }
    return v->copy;
}

uint32_t dunlin__emit_value(dunlin_emit *emit, uint32_t value)
{
    const dunlin_emit_value *v = &emit->values[value];
    const bool is_compact =
        v->norm == DUNLIN_STEP_NONE && v->pitch == dunlin__emit_channels(emit, value);
    return is_compact ? v->tensor : dunlin__emit_copy(emit, value);
}

void dunlin__emit_concat(dunlin_emit *emit, const dunlin_net_node *node)
{
    const uint32_t index = emit->net->values[node->output].producer;
    const dunlin_emit_chain *chain = &emit->chains[index];
    if (chain->is_gathered) {
        dunlin__gather_emit(emit, index);
        return;
    }
    (void)concat_tensor(emit, index);
    for (uint32_t i = 0; i < chain->n_leaves; i++) {
        dunlin_emit_leaf *leaf = &emit->leaves[chain->first_leaf + i];
        const uint32_t tensor = leaf_tensor(emit, index, leaf);
        if (leaf->is_copied && emit->status == DUNLIN_OK) {
            copy_to(emit, leaf->value, tensor, emit->values[node->output].pitch);
        }
    }
}

/* --- reading and storing --- */

/* The tensor that a value is read from, and scales and shifts if it is a view. */
static void touch_term(const dunlin_emit *emit, uint32_t value, dunlin_op_list *list, uint8_t parts,
                       int32_t *out_x, int32_t *out_affine, int64_t *out_pitch)
{
    const dunlin_emit_value *v = &emit->values[value];
    if (v->norm == DUNLIN_STEP_NONE) {
        *out_x = dunlin__op_touch(list, v->tensor, DUNLIN_MEM_READ, parts);
        *out_pitch = v->pitch;
        return;
    }
    const dunlin_emit_norm *norm = &emit->norms[v->norm];
    *out_x = dunlin__op_touch(list, norm->raw, DUNLIN_MEM_READ, parts);
    *out_affine = dunlin__op_touch(list, norm->affine, DUNLIN_MEM_READ, parts);
    *out_pitch = norm->raw_pitch;
}

void dunlin__emit_read_view(dunlin_emit *emit, uint32_t value, dunlin_op_list *list, uint8_t parts,
                            dunlin_view_ref *out_ref)
{
    const dunlin_emit_value *v = &emit->values[value];
    *out_ref = (dunlin_view_ref){.affine = -1,
                                 .plus = -1,
                                 .plus_affine = -1,
                                 .channels = (int32_t)dunlin__emit_channels(emit, value),
                                 .fn = (uint16_t)v->fn,
                                 .low = v->low,
                                 .high = v->high};
    if (emit->is_backward && v->terms[0] != DUNLIN_STEP_NONE) {
        touch_term(emit, v->terms[0], list, parts, &out_ref->x, &out_ref->affine, &out_ref->pitch);
        touch_term(emit, v->terms[1], list, parts, &out_ref->plus, &out_ref->plus_affine,
                   &out_ref->plus_pitch);
        out_ref->is_rounded = dunlin__emit_is_rounding(emit);
        emit->graph->reads_terms = true;
        return;
    }
    touch_term(emit, value, list, parts, &out_ref->x, &out_ref->affine, &out_ref->pitch);
}

/* The value in whose place this one is stored, with its tensor made. */
static uint32_t make_store(dunlin_emit *emit, uint32_t value)
{
    dunlin_emit_value *own = &emit->values[value];
    const uint32_t stored = own->stored_as == DUNLIN_STEP_NONE ? value : own->stored_as;
    dunlin_emit_value *v = &emit->values[stored];
    if (v->part_of == DUNLIN_STEP_NONE) {
        (void)dunlin__emit_output(emit, stored);
    } else {
        const uint32_t concat = v->part_of;
        const dunlin_emit_chain *chain = &emit->chains[concat];
        for (uint32_t i = 0; i < chain->n_leaves; i++) {
            dunlin_emit_leaf *leaf = &emit->leaves[chain->first_leaf + i];
            if (leaf->value == stored && !leaf->is_copied) {
                v->tensor = leaf_tensor(emit, concat, leaf);
                v->pitch = emit->values[emit->net->nodes[concat].output].pitch;
            }
        }
    }
    own->tensor = v->tensor;
    own->pitch = v->pitch;
    return stored;
}

void dunlin__emit_store(dunlin_emit *emit, uint32_t value, bool can_stat, dunlin_op_list *list,
                        dunlin_store_ref *out_ref)
{
    const uint32_t stored = make_store(emit, value);
    dunlin_emit_value *v = &emit->values[stored];
    *out_ref = (dunlin_store_ref){
        .pitch = v->pitch,
        .low = v->low,
        .high = v->high,
        .stat = {.raw = -1, .about = -1, .sums = -1, .about_offset = v->stat.about_offset},
    };
    out_ref->y = dunlin__op_touch(list, v->tensor, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP);
    const bool is_clipped = v->low > -HUGE_VALF || v->high < HUGE_VALF;
    if (!can_stat || is_clipped || v->stat.about == DUNLIN_STEP_NONE) {
        return;
    }
    const bool is_ghost = emit->options->is_ghost;
    out_ref->stat.about =
        dunlin__op_touch(list, v->stat.about, DUNLIN_MEM_READ, dunlin__emit_sums_parts(is_ghost));
    v->stat.sums = dunlin__emit_sums(emit, "/sums", dunlin__emit_channels(emit, stored), is_ghost,
                                     list, &out_ref->stat);
}

/* --- sums --- */

uint8_t dunlin__emit_sums_parts(bool is_ghost)
{
    return is_ghost ? DUNLIN_MEM_MAP : DUNLIN_MEM_REDUCE;
}

uint32_t dunlin__emit_sums(dunlin_emit *emit, const char *suffix, int64_t channels, bool is_ghost,
                           dunlin_op_list *list, dunlin_stat_ref *stat)
{
    const uint32_t sums = dunlin__emit_statistic(emit, suffix, DUNLIN_F64, is_ghost, 2 * channels,
                                                 DUNLIN_MEM_ACCUMULATOR);
    stat->n_own = is_ghost ? 2 * channels : 0;
    stat->sums = dunlin__op_touch(list, sums, is_ghost ? DUNLIN_MEM_WRITE : DUNLIN_MEM_ACCUMULATE,
                                  dunlin__emit_sums_parts(is_ghost));
    return sums;
}

/* --- sums that no op took while it wrote --- */

typedef struct sums_params {
    int64_t rows_per_sample;
    int32_t channels;
    dunlin_stat_ref stat;
} sums_params;

static uint64_t sums_workspace(const dunlin_kernels *kernels, const void *params, size_t n_threads,
                               uint64_t *out_sample_bytes)
{
    (void)n_threads;
    const sums_params *p = params;
    return kernels->close_workspace_bytes(p->channels, p->rows_per_sample, out_sample_bytes);
}

static dunlin_status run_sums(const dunlin_kernel_call *call)
{
    const sums_params *p = call->params;
    call->run->kernels->sums(&(dunlin_sums_call){
        .rows_per_sample = p->rows_per_sample,
        .n_samples = call->n_samples,
        .channels = p->channels,
        .stat = dunlin__stat_at(call, &p->stat),
        .is_reset = call->is_first,
        .workspace = call->workspace,
        .threads = call->run->threads,
    });
    return DUNLIN_OK;
}

static const dunlin_step_kernel sums_kernels[] =
    DUNLIN_FUSED_KERNELS("sums", run_sums, sums_workspace);

/* Takes the sums of a tensor of `channels`, unless they have been. */
static void want_sums(dunlin_emit *emit, dunlin_emit_stat *stat, uint32_t tensor, int64_t pitch,
                      int64_t rows, int64_t channels)
{
    if (stat->sums != DUNLIN_STEP_NONE || emit->status != DUNLIN_OK) {
        return;
    }
    const bool is_ghost = emit->options->is_ghost;
    const uint8_t parts = dunlin__emit_sums_parts(is_ghost);
    dunlin_op_list list = {.n = 0};
    sums_params params = {
        .rows_per_sample = rows,
        .channels = (int32_t)channels,
        .stat = {.raw = dunlin__op_touch(&list, tensor, DUNLIN_MEM_READ, parts),
                 .about = dunlin__op_touch(&list, stat->about, DUNLIN_MEM_READ, parts),
                 .raw_pitch = pitch,
                 .about_offset = stat->about_offset}};
    stat->sums = dunlin__emit_sums(emit, "/sums", channels, is_ghost, &list, &params.stat);
    dunlin__emit_run(emit,
                     &(dunlin_emit_op){.kernel = dunlin__fused_kernel(sums_kernels, parts, NULL),
                                       .suffix = "/sums",
                                       .params = &params,
                                       .params_bytes = sizeof params,
                                       .accesses = list.accesses,
                                       .n_accesses = list.n,
                                       .flops_per_sample = 4.0 * (double)(rows * channels)});
}

static void collect(dunlin_emit *emit, uint32_t value, int64_t offset, dunlin_stat_part *parts,
                    uint32_t *n)
{
    dunlin_emit_value *v = &emit->values[value];
    const uint32_t tensor = v->norm == DUNLIN_STEP_NONE ? v->tensor : v->copy;
    const int64_t pitch =
        v->norm == DUNLIN_STEP_NONE ? v->pitch : dunlin__emit_channels(emit, value);
    want_sums(emit, &v->stat, tensor, pitch, dunlin__emit_rows(emit, value),
              dunlin__emit_channels(emit, value));
    parts[(*n)++] = (dunlin_stat_part){.sums = v->stat.sums,
                                       .about = v->stat.about,
                                       .about_offset = v->stat.about_offset,
                                       .offset = offset,
                                       .width = dunlin__emit_channels(emit, value)};
}

uint32_t dunlin__emit_stats(dunlin_emit *emit, uint32_t value,
                            dunlin_stat_part parts[DUNLIN_NET_MAX_INPUTS])
{
    uint32_t n = 0;
    uint32_t at = emit->net->values[value].producer;
    /* A view is materialised: its sums are those of the copy. */
    if (emit->values[value].norm != DUNLIN_STEP_NONE) {
        (void)dunlin__emit_value(emit, value);
    }
    if (at == DUNLIN_NET_NONE || emit->net->nodes[at].kind != DUNLIN_OP_CONCAT) {
        collect(emit, value, 0, parts, &n);
        return n;
    }
    const int64_t pitch = emit->values[value].pitch;
    for (; at != DUNLIN_STEP_NONE; at = emit->chains[at].base) {
        const dunlin_emit_chain *chain = &emit->chains[at];
        for (uint32_t i = 0; i < chain->n_leaves; i++) {
            dunlin_emit_leaf *leaf = &emit->leaves[chain->first_leaf + i];
            if (!leaf->is_copied) {
                collect(emit, leaf->value, leaf->offset, parts, &n);
                continue;
            }
            want_sums(emit, &leaf->stat, leaf->tensor, pitch, dunlin__emit_rows(emit, value),
                      leaf->width);
            parts[n++] = (dunlin_stat_part){.sums = leaf->stat.sums,
                                            .about = leaf->stat.about,
                                            .about_offset = leaf->stat.about_offset,
                                            .offset = leaf->offset,
                                            .width = leaf->width};
        }
    }
    return n;
}
