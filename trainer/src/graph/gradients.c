/*
 * gradients.c - the backward side of fused steps: what is known of each value's gradient, how
 * contributions are added up where they are written, and when masks and sums of batch norm are
 * applied.
 *
 * Invariant: the last contribution finalises a gradient if it can; else an op of its own does,
 * before any op reads it. A tensor is added to where it lies only if nothing else reads it.
 */
#include "emit.h"
#include "fused.h"
#include "rounded.h"

#include <assert.h>
#include <math.h>

#define BOTH (DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE)

static const dunlin_emit_gradient no_gradient = {.tensor = DUNLIN_STEP_NONE,
                                                 .factor = DUNLIN_STEP_NONE,
                                                 .coef = DUNLIN_STEP_NONE,
                                                 .raw = DUNLIN_STEP_NONE};

static bool has_tensor(const dunlin_emit_gradient *gradient)
{
    return gradient->tensor != DUNLIN_STEP_NONE;
}

bool dunlin__emit_has_grad(const dunlin_emit *emit, uint32_t value)
{
    const dunlin_emit_gradient *gradient = &emit->values[value].gradient;
    return has_tensor(gradient) || gradient->is_delivered;
}

void dunlin__emit_reset_grads(dunlin_emit *emit)
{
    for (size_t v = 0; v < emit->net->n_values; v++) {
        emit->values[v].gradient = no_gradient;
    }
}

/* Its gradient is still to pass back through a clip or a function. */
static bool wants_mask(const dunlin_emit_value *value)
{
    return dunlin__fuse_is_active(value) && !value->is_masked_later && !value->has_signs;
}

/* Batch norms whose sums are taken of this value's gradient; how many. */
static uint32_t list_norms(const dunlin_emit *emit, uint32_t value, dunlin_emit_norm *norms[2])
{
    const dunlin_emit_value *v = &emit->values[value];
    const uint32_t candidates[2] = {v->norm == DUNLIN_STEP_NONE ? v->behind[0] : v->norm,
                                    v->norm == DUNLIN_STEP_NONE ? v->behind[1] : DUNLIN_STEP_NONE};
    uint32_t n = 0;
    for (int i = 0; i < 2; i++) {
        if (candidates[i] != DUNLIN_STEP_NONE && emit->norms[candidates[i]].wants_sums &&
            emit->norms[candidates[i]].sums == DUNLIN_STEP_NONE) {
            norms[n++] = &emit->norms[candidates[i]];
        }
    }
    return n;
}

/* Masking or sums are still to be done. */
static bool needs_close(const dunlin_emit *emit, uint32_t value)
{
    dunlin_emit_norm *norms[2];
    return wants_mask(&emit->values[value]) || list_norms(emit, value, norms) > 0;
}

static uint32_t new_gradient(dunlin_emit *emit, uint32_t value, const char *suffix)
{
    const dunlin_net_value *net_value = &emit->net->values[value];
    return dunlin__emit_named_tensor(
        emit, net_value->name, suffix,
        &(dunlin_step_tensor){.dtype = DUNLIN_F32,
                              .is_batched = true,
                              .n_elements = dunlin__value_elements(net_value),
                              .mem_class = DUNLIN_MEM_GRADIENT});
}

/* --- sinks --- */

static void open_epilogue(const dunlin_emit *emit, uint32_t value, dunlin_epilogue_ref *epilogue)
{
    *epilogue = (dunlin_epilogue_ref){.out = -1,
                                      .addend = -1,
                                      .mask = DUNLIN_NO_VIEW,
                                      .factor = -1,
                                      .channels = (int32_t)dunlin__emit_channels(emit, value)};
}

/* Where the sum of a value's gradient and a new contribution is written. */
static void target(dunlin_emit *emit, uint32_t value, const char *suffix, dunlin_op_list *list,
                   dunlin_epilogue_ref *epilogue)
{
    dunlin_emit_gradient *gradient = &emit->values[value].gradient;
    const dunlin_emit_gradient old = *gradient;
    epilogue->pitch = dunlin__emit_channels(emit, value);
    if (has_tensor(&old) && old.is_owned && old.pitch != epilogue->pitch) {
        epilogue->pitch = old.pitch;
        epilogue->is_same = true;
    } else {
        gradient->tensor = new_gradient(emit, value, suffix);
        gradient->pitch = epilogue->pitch;
        gradient->is_owned = true;
    }
    epilogue->out = dunlin__op_touch(list, gradient->tensor, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP);
    if (has_tensor(&old)) {
        epilogue->addend = dunlin__op_touch(list, old.tensor, DUNLIN_MEM_READ, BOTH);
        epilogue->addend_pitch = old.pitch;
        epilogue->may_lie_on = old.pitch == epilogue->pitch;
    }
}

static void add_mask(dunlin_emit *emit, uint32_t value, dunlin_op_list *list,
                     dunlin_epilogue_ref *epilogue)
{
    const dunlin_emit_value *v = &emit->values[value];
    if (!wants_mask(v)) {
        return;
    }
    const uint32_t before = list->n;
    dunlin__emit_read_view(emit, value, list, BOTH, &epilogue->mask);
    if (emit->status == DUNLIN_OK && v->norm == DUNLIN_STEP_NONE && list->n == before + 1) {
        emit->graph->tensors[list->accesses[before].tensor].n_mask_reads++;
    }
}

static void add_stats(dunlin_emit *emit, uint32_t value, dunlin_op_list *list,
                      dunlin_epilogue_ref *epilogue)
{
    dunlin_emit_norm *norms[2];
    const uint32_t n = list_norms(emit, value, norms);
    for (uint32_t i = 0; i < n; i++) {
        dunlin_emit_norm *norm = norms[i];
        const uint8_t parts = dunlin__emit_sums_parts(norm->is_ghost);
        dunlin_stat_ref *stat = &epilogue->stats[epilogue->n_stats++];
        *stat =
            (dunlin_stat_ref){.raw = dunlin__op_touch(list, norm->raw, DUNLIN_MEM_READ, parts),
                              .about = dunlin__op_touch(list, norm->mean, DUNLIN_MEM_READ, parts),
                              .raw_pitch = norm->raw_pitch};
        norm->sums =
            dunlin__emit_sums(emit, "/grad_sums", epilogue->channels, norm->is_ghost, list, stat);
    }
}

/* A gradient that waits for the sums of batch norm is stored rounded. */
static void round_waiting(dunlin_emit *emit, uint32_t tensor, dunlin_epilogue_ref *epilogue)
{
    if (epilogue->n_stats > 0 && dunlin__emit_is_rounding(emit) && emit->status == DUNLIN_OK) {
        assert(!emit->graph->tensors[tensor].is_part);
        emit->graph->tensors[tensor].dtype = DUNLIN_BF16;
        epilogue->is_rounded = true;
    }
}

/* The name of a closed gradient says whose it is without more: of what the activation reads. */
static void name_closed(const dunlin_emit *emit, uint32_t value, uint32_t *out_value,
                        const char **out_suffix)
{
    *out_value = value;
    *out_suffix = "/grad";
    if (!wants_mask(&emit->values[value])) {
        return;
    }
    const uint32_t producer = emit->net->values[value].producer;
    *out_suffix = "/masked";
    if (producer != DUNLIN_NET_NONE && dunlin__fuse_is_folded(emit, producer)) {
        *out_value = emit->net->nodes[producer].inputs[0];
        *out_suffix = "/grad";
    }
}

/* The tensor of a gradient is all there is to it, but for slopes on the value's own tensor. */
static void make_plain_sum(dunlin_emit *emit, uint32_t value)
{
    const dunlin_emit_gradient *gradient = &emit->values[value].gradient;
    const bool has_foreign =
        gradient->coef != DUNLIN_STEP_NONE && gradient->raw != emit->values[value].tensor;
    if (has_tensor(gradient) && (gradient->factor != DUNLIN_STEP_NONE || has_foreign)) {
        dunlin__emit_materialise_grad(emit, value);
    }
}

/* A contribution to the value itself; closes it if it is the last. */
static void direct_epilogue(dunlin_emit *emit, uint32_t value, dunlin_op_list *list,
                            dunlin_epilogue_ref *epilogue)
{
    make_plain_sum(emit, value);
    dunlin_emit_value *v = &emit->values[value];
    const bool is_last = v->n_open == 1 && v->gradient.coef == DUNLIN_STEP_NONE;
    uint32_t named = value;
    const char *suffix = "/grad";
    if (is_last) {
        name_closed(emit, value, &named, &suffix);
    }
    open_epilogue(emit, value, epilogue);
    epilogue->is_direct = true;
    dunlin_emit_norm *norms[2];
    if (is_last && dunlin__emit_is_rounding(emit) && list_norms(emit, value, norms) > 0) {
        v->gradient.is_owned = false; /* a part of another one cannot hold fewer bits */
    }
    const dunlin_emit_gradient old = v->gradient;
    if (named != value) {
        /* The same shape under another name. */
        emit->values[named].gradient = old;
        target(emit, named, suffix, list, epilogue);
        v->gradient = emit->values[named].gradient;
        emit->values[named].gradient = no_gradient;
    } else {
        target(emit, value, suffix, list, epilogue);
    }
    if (is_last) {
        add_mask(emit, value, list, epilogue);
        add_stats(emit, value, list, epilogue);
        round_waiting(emit, v->gradient.tensor, epilogue);
        v->gradient.is_closed = true;
    }
}

/* The view's gradient goes straight into that of its raw tensor, which others add to as well. */
static bool passes_through(const dunlin_emit *emit, uint32_t value)
{
    const dunlin_emit_value *v = &emit->values[value];
    if (v->norm == DUNLIN_STEP_NONE || v->n_open != 1 || has_tensor(&v->gradient)) {
        return false;
    }
    const dunlin_emit_norm *norm = &emit->norms[v->norm];
    const dunlin_emit_value *raw = &emit->values[norm->value];
    const uint32_t producer = emit->net->values[norm->value].producer;
    const bool is_concat =
        producer != DUNLIN_NET_NONE && emit->net->nodes[producer].kind == DUNLIN_OP_CONCAT;
    /* An inner value of the unit (batch norm under its clip) has the view's gradient alone. */
    return raw->needs_grad && raw->norm == DUNLIN_STEP_NONE && raw->tensor == norm->raw &&
           (raw->n_edges > 1 || is_concat);
}

void dunlin__emit_epilogue(dunlin_emit *emit, uint32_t value, dunlin_op_list *list,
                           dunlin_epilogue_ref *out_ref)
{
    if (!passes_through(emit, value)) {
        direct_epilogue(emit, value, list, out_ref);
        return;
    }
    dunlin_emit_value *v = &emit->values[value];
    const dunlin_emit_norm *norm = &emit->norms[v->norm];
    make_plain_sum(emit, norm->value);
    open_epilogue(emit, value, out_ref);
    target(emit, norm->value, "/share", list, out_ref);
    add_mask(emit, value, list, out_ref);
    out_ref->factor = dunlin__op_touch(list, norm->affine, DUNLIN_MEM_READ, DUNLIN_MEM_MAP);
    add_stats(emit, value, list, out_ref);
    v->gradient.is_delivered = true;
}

/* --- an op that adds up and closes what lies in memory --- */

typedef struct close_params {
    int64_t rows_per_sample;
    int32_t channels;
    dunlin_grad_ref from;
    dunlin_epilogue_ref to;
} close_params;

static uint64_t close_workspace(const dunlin_kernels *kernels, const void *params, size_t n_threads,
                                uint64_t *out_sample_bytes)
{
    (void)n_threads;
    const close_params *p = params;
    *out_sample_bytes = 0;
    if (p->to.n_stats == 0) {
        return 0;
    }
    return kernels->close_workspace_bytes(p->channels, p->rows_per_sample, out_sample_bytes);
}

static dunlin_status run_close(const dunlin_kernel_call *call)
{
    const close_params *p = call->params;
    dunlin_close_call close = {
        .rows_per_sample = p->rows_per_sample,
        .n_samples = call->n_samples,
        .channels = p->channels,
        .from = dunlin__grad_at(call, &p->from),
        .to = dunlin__epilogue_at(call, &p->to),
        .is_reset = call->is_first,
        .workspace = call->workspace,
        .threads = call->run->threads,
    };
    const dunlin_late_sums late = dunlin__epilogue_hold(&p->to, &close.to);
    call->run->kernels->close(&close);
    dunlin__epilogue_finish(call, &p->to, &late, p->rows_per_sample);
    return DUNLIN_OK;
}

static const dunlin_step_kernel close_kernels[] =
    DUNLIN_FUSED_KERNELS("close", run_close, close_workspace);

static void read_gradient(const dunlin_emit_gradient *gradient, dunlin_op_list *list, uint8_t parts,
                          dunlin_grad_ref *out_ref)
{
    *out_ref = (dunlin_grad_ref){.factor = -1,
                                 .raw = -1,
                                 .coef = -1,
                                 .pitch = gradient->pitch,
                                 .raw_pitch = gradient->raw_pitch,
                                 .coef_offset = gradient->coef_offset,
                                 .coef_width = gradient->coef_width};
    out_ref->g = dunlin__op_touch(list, gradient->tensor, DUNLIN_MEM_READ, parts);
    if (gradient->factor != DUNLIN_STEP_NONE) {
        out_ref->factor = dunlin__op_touch(list, gradient->factor, DUNLIN_MEM_READ, parts);
    }
    if (gradient->coef != DUNLIN_STEP_NONE) {
        out_ref->raw = dunlin__op_touch(list, gradient->raw, DUNLIN_MEM_READ, parts);
        out_ref->coef = dunlin__op_touch(list, gradient->coef, DUNLIN_MEM_READ, parts);
    }
}

/* `params->to` is set, and its accesses are in the list. */
static void emit_close(dunlin_emit *emit, uint32_t value, const dunlin_emit_gradient *from,
                       dunlin_op_list *list, close_params *params, const char *suffix)
{
    if (emit->status != DUNLIN_OK) {
        return;
    }
    const dunlin_epilogue_ref *to = &params->to;
    const uint32_t parts =
        (to->out >= 0 ? (uint32_t)DUNLIN_MEM_MAP : 0U) | dunlin__epilogue_sums_parts(to);
    params->rows_per_sample = dunlin__emit_rows(emit, value);
    params->channels = to->channels;
    read_gradient(from, list, (uint8_t)parts, &params->from);
    /* Reads that no part of this op makes are none of its parts'. */
    dunlin__op_trim(list, parts);
    dunlin__emit_run(emit,
                     &(dunlin_emit_op){.kernel = dunlin__fused_kernel(close_kernels, parts, to),
                                       .suffix = suffix,
                                       .params = params,
                                       .params_bytes = sizeof *params,
                                       .accesses = list->accesses,
                                       .n_accesses = list->n});
}

void dunlin__emit_materialise_grad(dunlin_emit *emit, uint32_t value)
{
    dunlin_emit_gradient *gradient = &emit->values[value].gradient;
    const dunlin_emit_gradient from = *gradient;
    dunlin_op_list list = {.n = 0};
    close_params params;
    *gradient = no_gradient;
    open_epilogue(emit, value, &params.to);
    params.to.is_direct = true;
    target(emit, value, "/grad", &list, &params.to);
    gradient->is_closed = from.is_closed;
    emit_close(emit, value, &from, &list, &params, "/spell");
}

void dunlin__emit_close_grad(dunlin_emit *emit, uint32_t value)
{
    dunlin_emit_gradient *gradient = &emit->values[value].gradient;
    if (!has_tensor(gradient) || gradient->is_closed || !needs_close(emit, value)) {
        return;
    }
    const dunlin_emit_gradient from = *gradient;
    dunlin_op_list list = {.n = 0};
    close_params params;
    open_epilogue(emit, value, &params.to);
    params.to.is_direct = true;
    dunlin_emit_norm *norms[2];
    const bool is_rounded = dunlin__emit_is_rounding(emit) && list_norms(emit, value, norms) > 0;
    if (wants_mask(&emit->values[value]) || is_rounded) {
        uint32_t named = value;
        const char *suffix = NULL;
        name_closed(emit, value, &named, &suffix);
        const uint32_t tensor = new_gradient(emit, named, suffix);
        *gradient = no_gradient;
        gradient->tensor = tensor;
        gradient->pitch = dunlin__emit_channels(emit, value);
        gradient->is_owned = true;
        params.to.pitch = gradient->pitch;
        params.to.out = dunlin__op_touch(&list, tensor, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP);
        add_mask(emit, value, &list, &params.to);
    }
    add_stats(emit, value, &list, &params.to);
    round_waiting(emit, gradient->tensor, &params.to);
    gradient->is_closed = true;
    emit_close(emit, value, &from, &list, &params, "/close");
}

/* --- contributions --- */

static bool is_materialised(const dunlin_emit *emit, uint32_t value,
                            const dunlin_emit_gradient *gradient)
{
    return gradient->factor == DUNLIN_STEP_NONE && gradient->coef == DUNLIN_STEP_NONE &&
           gradient->pitch == dunlin__emit_channels(emit, value);
}

void dunlin__emit_contribute(dunlin_emit *emit, uint32_t value,
                             const dunlin_emit_gradient *gradient)
{
    dunlin_emit_value *v = &emit->values[value];
    if (!has_tensor(gradient) || emit->status != DUNLIN_OK) {
        return;
    }
    if (!has_tensor(&v->gradient)) {
        v->gradient = *gradient;
        v->gradient.is_closed = gradient->is_closed || !needs_close(emit, value);
        return;
    }
    if (is_materialised(emit, value, &v->gradient) && is_materialised(emit, value, gradient) &&
        !needs_close(emit, value)) {
        v->gradient.tensor = dunlin__emit_sum(emit, v->gradient.tensor, gradient->tensor);
        v->gradient.is_owned = true;
        return;
    }
    dunlin_op_list list = {.n = 0};
    close_params params;
    direct_epilogue(emit, value, &list, &params.to);
    emit_close(emit, value, gradient, &list, &params, "/sum");
}

void dunlin__emit_pass_grad(dunlin_emit *emit, uint32_t from, uint32_t to)
{
    dunlin__emit_close_grad(emit, from);
    emit->values[to].gradient = emit->values[from].gradient;
    emit->values[to].gradient.is_closed = true;
}

uint32_t dunlin__emit_grad(dunlin_emit *emit, uint32_t value)
{
    dunlin__emit_close_grad(emit, value);
    const dunlin_emit_gradient *gradient = &emit->values[value].gradient;
    if (has_tensor(gradient) && !is_materialised(emit, value, gradient)) {
        dunlin__emit_materialise_grad(emit, value);
    }
    return gradient->tensor;
}

void dunlin__emit_finish_grad(dunlin_emit *emit, uint32_t value)
{
    dunlin__emit_close_grad(emit, value);
}

void dunlin__emit_read_grad(dunlin_emit *emit, uint32_t value, dunlin_op_list *list, uint8_t parts,
                            dunlin_grad_ref *out_ref)
{
    read_gradient(&emit->values[value].gradient, list, parts, out_ref);
}

void dunlin__emit_settle(dunlin_emit *emit)
{
    const size_t n = emit->n_pending;
    emit->n_pending = 0;
    for (size_t i = 0; i < n && emit->status == DUNLIN_OK; i++) {
        const dunlin_emit_contribution *pending = &emit->pending[i];
        if (pending->is_param) {
            uint32_t *gradient = &emit->params[pending->target].gradient;
            *gradient = *gradient == DUNLIN_STEP_NONE
                            ? pending->tensor
                            : dunlin__emit_sum(emit, *gradient, pending->tensor);
            continue;
        }
        const dunlin_emit_gradient gradient = {
            .tensor = pending->tensor,
            .pitch = dunlin__emit_channels(emit, pending->target),
            .factor = DUNLIN_STEP_NONE,
            .coef = DUNLIN_STEP_NONE,
            .raw = DUNLIN_STEP_NONE,
        };
        dunlin__emit_contribute(emit, pending->target, &gradient);
    }
}
