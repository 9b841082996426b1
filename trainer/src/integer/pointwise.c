/*
 * pointwise.c - ReLU and ReLU6 where nothing else clips, flatten, dropout in integers: what keeps a
 * tensor's exponent, or moves it by a constant.
 *
 * Invariant: nothing is rounded here, so nothing is counted.
 */
#include "ops/common/support.h"
#include "rows.h"

#include <math.h>

typedef struct pointwise_params {
    dunlin_integer_op op;  /* first */
    int64_t n_elements;    /* per sample */
    float high;            /* clip: INFINITY: none */
    int64_t rows, columns; /* flatten */
    uint64_t node_index;   /* dropout */
} pointwise_params;

/* What a map over one or two tensors of int8 is emitted with. */
static void emit_map(dunlin_integer *integer, const dunlin_step_kernel *kernel, const char *suffix,
                     pointwise_params *params, const uint32_t *read, uint32_t n_read,
                     uint32_t written)
{
    dunlin_integer_draft draft = {.kernel = kernel,
                                  .suffix = suffix,
                                  .params = params,
                                  .params_bytes = sizeof *params,
                                  .flops_per_sample = (double)params->n_elements};
    for (uint32_t i = 0; i < n_read; i++) {
        dunlin__integer_read(&draft, read[i]);
    }
    dunlin__integer_write(&draft, written);
    dunlin__integer_emit(integer, &draft);
}

/* --- ReLU, ReLU6 --- */

int32_t dunlin__integer_bound(const dunlin_integer_site *sites, uint32_t site, float high)
{
    const double bound = ldexp((double)high, -sites[site].exponent);
    if (!(bound < (double)DUNLIN_INT_MOST + 0.5)) {
        return DUNLIN_INT_MOST + 1;
    }
    return bound < 1.0 ? 1 : (int32_t)floor(bound + 0.5);
}

void dunlin__integer_clip_range(const dunlin_site_output *output, float high, int32_t *out_low,
                                int32_t *out_high)
{
    if (high > 0.0F) {
        const int32_t bound = dunlin__integer_bound(output->sites, output->link->site, high);
        *out_low = 0;
        *out_high = bound < DUNLIN_INT_MOST ? bound : DUNLIN_INT_MOST;
    }
}

static int32_t bound_of(const dunlin_kernel_call *call, const pointwise_params *p)
{
    return dunlin__integer_bound(call->operands[p->op.sites_operand], p->op.link.site, p->high);
}

/* Operands: x, y. */
static dunlin_status run_clip(const dunlin_kernel_call *call)
{
    const pointwise_params *p = call->params;
    const int32_t bound = bound_of(call, p);
    call->run->integers->clip(call->n_samples * p->n_elements, call->operands[0], 0,
                              bound > DUNLIN_INT_MOST ? DUNLIN_INT_MOST : bound, call->operands[1],
                              call->run->threads);
    return DUNLIN_OK;
}

/* Operands: dy, y, dx. */
static dunlin_status run_clip_grad(const dunlin_kernel_call *call)
{
    const pointwise_params *p = call->params;
    call->run->integers->clip_grad(call->n_samples * p->n_elements, call->operands[0],
                                   call->operands[1], 0, bound_of(call, p), call->operands[2],
                                   call->run->threads);
    return DUNLIN_OK;
}

static const dunlin_step_kernel clip_kernel = {.name = "int_clip",
                                               .run_fn = run_clip,
                                               .parts = DUNLIN_MEM_MAP,
                                               .may_recompute = true,
                                               .in_place_write = 1,
                                               .in_place_read = 0};
static const dunlin_step_kernel clip_grad_kernel = {.name = "int_clip_grad",
                                                    .run_fn = run_clip_grad,
                                                    .parts = DUNLIN_MEM_MAP,
                                                    .may_recompute = true,
                                                    .in_place_write = 2,
                                                    .in_place_read = 0};

/* The output has the input's site; it is there already if the input was clipped as it was stored.
 */
static void clip_forward(dunlin_integer *integer, const dunlin_net_node *node)
{
    const dunlin_integer_ref x = integer->values[node->inputs[0]];
    dunlin_integer_ref *y = &integer->values[node->output];
    if (integer->folds[node->inputs[0]].stored_as != DUNLIN_STEP_NONE) {
        *y = x;
        return;
    }
    *y = dunlin__integer_output(integer, node->output);
    y->site = x.site;
    pointwise_params params = {.op.link.site = x.site,
                               .n_elements = dunlin__op_elements(integer->emit, node->output),
                               .high = node->u.clip.high};
    emit_map(integer, &clip_kernel, "", &params, &x.tensor, 1, y->tensor);
}

void dunlin__integer_emit_mask(dunlin_integer *integer, uint32_t value)
{
    const dunlin_integer_fold *fold = &integer->folds[value];
    if (!(fold->high > 0.0F) || fold->is_masked_later || fold->is_masked) {
        return;
    }
    const dunlin_integer_ref y = integer->values[value];
    dunlin_integer_ref *error = &integer->errors[value];
    pointwise_params params = {.op.link.site = y.site,
                               .n_elements = dunlin__op_elements(integer->emit, value),
                               .high = fold->high};
    const uint32_t read[] = {error->tensor, y.tensor};
    const uint32_t masked = dunlin__integer_error_tensor(integer, value);
    emit_map(integer, &clip_grad_kernel, "/input_grad", &params, read, 2, masked);
    error->tensor = masked;
}

/* The output's error is masked when it comes here, or will be. */
static void clip_backward(dunlin_integer *integer, const dunlin_net_node *node)
{
    if (dunlin__integer_needs_error(integer, node, 0)) {
        dunlin__integer_contribute(integer, 0, integer->errors[node->output]);
    }
}

static const char *clip_refuse(const dunlin_net *net, const dunlin_net_node *node)
{
    (void)net;
    return node->u.clip.low == 0.0F ? NULL : "a clip is a ReLU or a ReLU6: its lower bound is 0";
}

/* --- flatten --- */

/* Operands: x, y. */
static dunlin_status run_turn(const dunlin_kernel_call *call)
{
    const pointwise_params *p = call->params;
    call->run->integers->transpose(call->n_samples, p->rows, p->columns, call->operands[0],
                                   call->operands[1], call->run->threads);
    return DUNLIN_OK;
}

static const dunlin_step_kernel turn_kernel = {.name = "int_transpose",
                                               .run_fn = run_turn,
                                               .parts = DUNLIN_MEM_MAP,
                                               .may_recompute = true,
                                               .in_place_write = -1,
                                               .in_place_read = -1};

/* An image lies channels-last, its flat row channel by channel: false if both are the same. */
static bool turns(const dunlin_integer *integer, const dunlin_net_node *node,
                  pointwise_params *out_params)
{
    const dunlin_net_value *x = &integer->emit->net->values[node->inputs[0]];
    int32_t h = 0;
    int32_t w = 0;
    int32_t c = 0;
    dunlin__value_hwc(x, &h, &w, &c);
    *out_params = (pointwise_params){
        .n_elements = dunlin__value_elements(x), .rows = (int64_t)h * w, .columns = c};
    return x->layout == DUNLIN_LAYOUT_IMAGE && out_params->rows > 1 && out_params->columns > 1;
}

static void flatten_forward(dunlin_integer *integer, const dunlin_net_node *node)
{
    const dunlin_integer_ref x = integer->values[node->inputs[0]];
    pointwise_params params;
    integer->values[node->output] = x;
    if (turns(integer, node, &params)) {
        integer->values[node->output] = dunlin__integer_output(integer, node->output);
        integer->values[node->output].site = x.site;
        emit_map(integer, &turn_kernel, "", &params, &x.tensor, 1,
                 integer->values[node->output].tensor);
    }
}

static void flatten_backward(dunlin_integer *integer, const dunlin_net_node *node)
{
    if (!dunlin__integer_needs_error(integer, node, 0)) {
        return;
    }
    const dunlin_integer_ref dy = integer->errors[node->output];
    dunlin_integer_ref dx = dy;
    pointwise_params params;
    if (turns(integer, node, &params)) {
        const int64_t rows = params.rows;
        params.rows = params.columns;
        params.columns = rows;
        dx = dunlin__integer_error(integer, 0);
        dx.site = dy.site;
        emit_map(integer, &turn_kernel, "/input_grad", &params, &dy.tensor, 1, dx.tensor);
    }
    dunlin__integer_contribute(integer, 0, dx);
}

/* --- dropout --- */

/* Operands: x, y; backward the same on the errors. An element stays by the lowest bit of a draw of
 * (seed, step, node, its place in the batch), and doubles: its exponent is one higher. */
static dunlin_status run_dropout(const dunlin_kernel_call *call)
{
    const pointwise_params *p = call->params;
    const dunlin_step_run *run = call->run;
    const uint64_t key = dunlin__int_key(run->seed, (uint64_t)run->step, p->node_index);
    const int8_t *x = call->operands[0];
    int8_t *y = call->operands[1];
    const uint64_t first = (uint64_t)call->first_sample * (uint64_t)p->n_elements;
    dunlin__site_follow(call, call->operands[p->op.sites_operand], &p->op.link);
    for (int64_t i = 0; i < call->n_samples * p->n_elements; i++) {
        const int stays = (int)(dunlin__int_draw(key, first + (uint64_t)i) & 1);
        y[i] = (int8_t)(x[i] & -stays); /* no branch on a draw */
    }
    return DUNLIN_OK;
}

static const dunlin_step_kernel dropout_kernel = {.name = "int_dropout",
                                                  .run_fn = run_dropout,
                                                  .parts = DUNLIN_MEM_MAP,
                                                  .may_recompute = true,
                                                  .in_place_write = 1,
                                                  .in_place_read = 0};

static bool drops(const dunlin_integer *integer, const dunlin_net_node *node)
{
    return dunlin__emit_mode(integer->emit) == DUNLIN_EMIT_TRAIN && node->u.dropout.ratio > 0.0F;
}

static void emit_dropout(dunlin_integer *integer, const dunlin_net_node *node, const char *suffix,
                         dunlin_integer_ref from, dunlin_integer_ref to)
{
    pointwise_params params = {.op.link = {.rule = DUNLIN_RULE_WIDEST,
                                           .site = to.site,
                                           .a = from.site,
                                           .b = DUNLIN_STEP_NONE,
                                           .offset = 1},
                               .n_elements = dunlin__op_elements(integer->emit, node->output),
                               .node_index = integer->emit->node_index};
    emit_map(integer, &dropout_kernel, suffix, &params, &from.tensor, 1, to.tensor);
    dunlin__integer_add_link(integer, &params.op.link);
}

static void dropout_forward(dunlin_integer *integer, const dunlin_net_node *node)
{
    const dunlin_integer_ref x = integer->values[node->inputs[0]];
    integer->values[node->output] = x;
    if (drops(integer, node)) {
        const dunlin_integer_ref y = dunlin__integer_output(integer, node->output);
        emit_dropout(integer, node, "", x, y);
    }
}

static void dropout_backward(dunlin_integer *integer, const dunlin_net_node *node)
{
    if (!dunlin__integer_needs_error(integer, node, 0)) {
        return;
    }
    const dunlin_integer_ref dy = integer->errors[node->output];
    dunlin_integer_ref dx = dy;
    if (drops(integer, node)) {
        dx = dunlin__integer_error(integer, 0);
        emit_dropout(integer, node, "/input_grad", dy, dx);
    }
    dunlin__integer_contribute(integer, 0, dx);
}

static const char *dropout_refuse(const dunlin_net *net, const dunlin_net_node *node)
{
    (void)net;
    const bool is_half = node->u.dropout.ratio == 0.5F || node->u.dropout.ratio == 0.0F;
    return is_half && !node->u.dropout.is_whole
               ? NULL
               : "dropout is of single elements with ratio 0.5, so that what stays doubles";
}

const dunlin_integer_row dunlin__integer_clip = {clip_refuse, clip_forward, clip_backward};
const dunlin_integer_row dunlin__integer_flatten = {NULL, flatten_forward, flatten_backward};
const dunlin_integer_row dunlin__integer_dropout = {dropout_refuse, dropout_forward,
                                                    dropout_backward};
