/*
 * residuals.c - where gradients are passed on without an op: batch norms that are views, sums, and
 * concatenations in place.
 *
 * Invariant: a gradient that is passed on is finalised; slopes and offsets of several batch norms
 * on one tensor add up, each over the channels that it reads.
 */
#include "emit.h"
#include "fused.h"
#include "narrow.h"

#include <math.h>

/* --- batch norm --- */

static dunlin_emit_norm *norm_of(const dunlin_emit *emit, const dunlin_net_node *node)
{
    return &emit->norms[emit->net->values[node->output].producer];
}

void dunlin__emit_norm(dunlin_emit *emit, const dunlin_net_node *node, uint32_t affine,
                       uint32_t mean, bool wants_sums)
{
    const uint32_t input = node->inputs[0];
    const bool is_view = emit->values[input].norm != DUNLIN_STEP_NONE;
    *norm_of(emit, node) = (dunlin_emit_norm){
        .value = input,
        .raw = is_view ? dunlin__emit_value(emit, input) : emit->values[input].tensor,
        .raw_pitch = is_view ? dunlin__emit_channels(emit, input) : emit->values[input].pitch,
        .affine = affine,
        .mean = mean,
        .sums = DUNLIN_STEP_NONE,
        .wants_sums = wants_sums,
        .is_ghost = dunlin__emit_is_norm_ghost(emit),
    };
}

void dunlin__emit_norm_grad(dunlin_emit *emit, const dunlin_net_node *node,
                            dunlin_norm_grad *out_grad)
{
    const uint32_t output = node->output;
    const dunlin_emit_norm *norm = norm_of(emit, node);
    const dunlin_emit_gradient *gradient = &emit->values[output].gradient;
    *out_grad = (dunlin_norm_grad){.affine = norm->affine,
                                   .mean = norm->mean,
                                   .old_coef = DUNLIN_STEP_NONE,
                                   .has_input = emit->values[norm->value].needs_grad};
    if (gradient->is_delivered) {
        const dunlin_emit_gradient *sum = &emit->values[norm->value].gradient;
        out_grad->old_coef = sum->coef;
        out_grad->old_offset = sum->coef_offset;
        out_grad->old_width = sum->coef_width;
    } else {
        dunlin__emit_close_grad(emit, output);
        if (gradient->coef != DUNLIN_STEP_NONE || gradient->factor != DUNLIN_STEP_NONE) {
            dunlin__emit_materialise_grad(emit, output);
        }
    }
    out_grad->sums = norm->sums;
}

void dunlin__emit_norm_done(dunlin_emit *emit, const dunlin_net_node *node, uint32_t coef)
{
    const dunlin_emit_norm *norm = norm_of(emit, node);
    if (!emit->values[norm->value].needs_grad) {
        return;
    }
    const int64_t width = dunlin__emit_channels(emit, node->output);
    const dunlin_emit_gradient *own = &emit->values[node->output].gradient;
    if (own->is_delivered) {
        dunlin_emit_gradient *sum = &emit->values[norm->value].gradient;
        if (coef != DUNLIN_STEP_NONE) {
            sum->coef = coef;
            sum->coef_offset = 0;
            sum->coef_width = width;
            sum->raw = norm->raw;
            sum->raw_pitch = norm->raw_pitch;
        }
        return;
    }
    const dunlin_emit_gradient scaled = {.tensor = own->tensor,
                                         .pitch = own->pitch,
                                         .factor = norm->affine,
                                         .coef = coef,
                                         .coef_width = width,
                                         .raw = norm->raw,
                                         .raw_pitch = norm->raw_pitch};
    dunlin__emit_contribute(emit, norm->value, &scaled);
}

/* --- sums --- */

/* The raw tensor of a view is kept for its batch norm's gradient. */
static bool is_kept_view(const dunlin_emit *emit, const dunlin_emit_value *value)
{
    return value->norm != DUNLIN_STEP_NONE && !dunlin__fuse_is_active(value) &&
           emit->norms[value->norm].wants_sums;
}

static bool is_kept_tensor(const dunlin_emit_value *value)
{
    return value->norm == DUNLIN_STEP_NONE && value->is_kept && value->terms[0] == DUNLIN_STEP_NONE;
}

/*
 * A sum whose terms are both kept for other reasons need not be kept: backward whoever reads it
 * reads them. Of a chain of residual sums that is every second one, beginning with the first. In
 * int8 a sum is rounded by the block, which kernels that read its terms do not do.
 */
static void choose_terms(const dunlin_emit *emit, const dunlin_net_node *node,
                         dunlin_emit_value *sum)
{
    if (emit->options->mode != DUNLIN_EMIT_TRAIN || emit->options->reads_sums ||
        emit->options->storage == DUNLIN_STORAGE_INT8 || sum->is_materialised || !sum->needs_grad ||
        sum->part_of != DUNLIN_STEP_NONE) {
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        const dunlin_emit_value *first = &emit->values[node->inputs[i]];
        const dunlin_emit_value *second = &emit->values[node->inputs[1 - i]];
        if (is_kept_view(emit, first) && (is_kept_view(emit, second) || is_kept_tensor(second))) {
            sum->terms[0] = node->inputs[i];
            sum->terms[1] = node->inputs[1 - i];
            return;
        }
    }
}

void dunlin__emit_add(dunlin_emit *emit, const dunlin_net_node *node)
{
    const uint32_t stored_as = emit->values[node->output].stored_as;
    dunlin_emit_value *sum =
        &emit->values[stored_as == DUNLIN_STEP_NONE ? node->output : stored_as];
    uint32_t n = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const dunlin_emit_value *input = &emit->values[node->inputs[i]];
        if (input->norm != DUNLIN_STEP_NONE && !dunlin__fuse_is_active(input) &&
            input->n_edges == 1 && input->needs_grad) {
            sum->behind[n++] = input->norm;
        }
    }
    choose_terms(emit, node, sum);
}

void dunlin__emit_add_grad(dunlin_emit *emit, const dunlin_net_node *node)
{
    dunlin__emit_close_grad(emit, node->output);
    dunlin_emit_gradient gradient = emit->values[node->output].gradient;
    gradient.is_owned = false;
    gradient.is_closed = false;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        if (emit->values[node->inputs[i]].needs_grad) {
            dunlin__emit_contribute(emit, node->inputs[i], &gradient);
        }
    }
}

/* --- concatenations --- */

/* The gradient of some channels, as that of a value whose tensor is `raw`. */
static void hand_on(dunlin_emit *emit, const dunlin_emit_gradient *whole, int64_t offset,
                    uint32_t value, uint32_t raw, bool is_gathered)
{
    if (!emit->values[value].needs_grad || emit->status != DUNLIN_OK) {
        return;
    }
    dunlin_emit_gradient part = *whole;
    part.tensor = dunlin__emit_part(emit, emit->net->values[value].name, "/share", whole->tensor,
                                    dunlin__emit_rows(emit, value), offset,
                                    dunlin__emit_channels(emit, value));
    part.coef_offset += offset;
    part.raw = raw;
    if (raw != DUNLIN_STEP_NONE && is_gathered) {
        part.raw_pitch = dunlin__emit_channels(emit, value);
    }
    /* A clip that all parts share has been undone for all at once. */
    part.is_closed = whole->is_closed && emit->values[value].n_open == 1 &&
                     emit->values[value].norm == DUNLIN_STEP_NONE &&
                     emit->values[value].behind[0] == DUNLIN_STEP_NONE;
    dunlin__emit_contribute(emit, value, &part);
}

void dunlin__emit_concat_grad(dunlin_emit *emit, const dunlin_net_node *node)
{
    const uint32_t index = emit->net->values[node->output].producer;
    const dunlin_emit_chain *chain = &emit->chains[index];
    const dunlin_emit_value *output = &emit->values[node->output];
    dunlin__emit_close_grad(emit, node->output);
    const uint32_t tensor = output->gradient.tensor;
    const bool is_rounded = emit->status == DUNLIN_OK && tensor != DUNLIN_STEP_NONE &&
                            dunlin__narrow_is(&emit->graph->tensors[tensor]);
    /* What is stored in fewer bits has no parts. */
    if (is_rounded || output->gradient.factor != DUNLIN_STEP_NONE ||
        (output->gradient.coef != DUNLIN_STEP_NONE && output->gradient.raw != output->tensor)) {
        dunlin__emit_materialise_grad(emit, node->output);
    }
    dunlin_emit_gradient whole = output->gradient;
    const bool is_clipped = output->low > -HUGE_VALF || output->high < HUGE_VALF;
    whole.is_closed = is_clipped;
    for (uint32_t i = 0; i < chain->n_leaves; i++) {
        const dunlin_emit_leaf *leaf = &emit->leaves[chain->first_leaf + i];
        hand_on(emit, &whole, leaf->offset, leaf->value, leaf->tensor, chain->is_gathered);
    }
    if (chain->base != DUNLIN_STEP_NONE) {
        const uint32_t base = emit->net->nodes[chain->base].output;
        hand_on(emit, &whole, 0, base, emit->values[base].tensor, chain->is_gathered);
    }
}
