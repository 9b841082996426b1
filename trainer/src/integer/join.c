/*
 * join.c - sums of two tensors, of values and of errors, and concatenation in integers.
 *
 * Exponents are aligned: of a sum the operand with the lower one is shifted down by RoundShift to
 * the higher, and the sum is rounded to its own site; a concatenation has the highest of its
 * inputs.
 */
#include "ops/common/support.h"
#include "rows.h"

typedef struct add_params {
    dunlin_integer_op op; /* first */
    int64_t n_elements;   /* per sample */
    float high;           /* clipped to [0, high]; 0: it is not */
} add_params;

typedef struct concat_params {
    dunlin_integer_op op; /* first */
    int64_t rows_per_sample;
    int64_t pitch;
    int64_t offset; /* backward: the first column of the one input */
    uint32_t n_inputs;
    int32_t widths[DUNLIN_NET_MAX_INPUTS];
    uint32_t sites[DUNLIN_NET_MAX_INPUTS];
} concat_params;

/* --- sums --- */

static int32_t shift_down(int32_t from, int32_t to)
{
    const int32_t shift = to - from;
    return shift < 0 ? 0 : shift < DUNLIN_SITE_MAX_SHIFT ? shift : DUNLIN_SITE_MAX_SHIFT;
}

/* RoundShift, as the kernels have it. */
static int32_t shifted(int32_t q, int32_t shift)
{
    const int64_t size = q < 0 ? -(int64_t)q : q;
    const int32_t down =
        (int32_t)(shift > 0 ? (size + (INT64_C(1) << (shift - 1))) >> shift : size);
    return q < 0 ? -down : down;
}

/* In a calibration the sum may lie on one of its operands: its largest is found before. */
static int64_t largest_sum(const dunlin_int_add_call *add)
{
    int32_t largest = 0;
    for (int64_t i = 0; i < add->n; i++) {
        const int32_t sum = shifted(add->a[i], add->a_shift) + shifted(add->b[i], add->b_shift);
        largest = sum > largest ? sum : -sum > largest ? -sum : largest;
    }
    return largest;
}

/* Operands: a, b, out. */
static dunlin_status run_add(const dunlin_kernel_call *call)
{
    const add_params *p = call->params;
    dunlin_site_output output = dunlin__integer_open(call);
    const dunlin_integer_link *link = &p->op.link;
    dunlin_int_stats stats;
    dunlin_int_add_call add = {
        .n = call->n_samples * p->n_elements,
        .a = call->operands[0],
        .b = call->operands[1],
        .a_shift = shift_down(output.sites[link->a].exponent, output.sum_exponent),
        .b_shift = shift_down(output.sites[link->b].exponent, output.sum_exponent),
        .low = -DUNLIN_INT_MOST,
        .high = DUNLIN_INT_MOST,
        .out = call->operands[2],
        .threads = call->run->threads};
    if (call->run->is_calibrating) {
        (void)dunlin__site_close(&output, largest_sum(&add), 0);
    }
    dunlin__integer_clip_range(&output, p->high, &add.low, &add.high);
    add.rounding = (dunlin_int_rounding){.shift = output.shift, .stats = &stats, .is_reset = true};
    call->run->integers->add(&add);
    if (!call->run->is_calibrating) {
        (void)dunlin__site_close(&output, stats.largest, stats.n_clipped);
    }
    return DUNLIN_OK;
}

static const dunlin_step_kernel add_kernel = {.name = "int_add",
                                              .run_fn = run_add,
                                              .parts = DUNLIN_MEM_MAP,
                                              .may_recompute = true,
                                              .in_place_write = 2,
                                              .in_place_read = 0};
static const dunlin_step_kernel add_counting = {.name = "int_add",
                                                .run_fn = run_add,
                                                .parts = DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE,
                                                .may_recompute = true,
                                                .in_place_write = 2,
                                                .in_place_read = 0};

static void emit_add(dunlin_integer *integer, const char *suffix, add_params params,
                     dunlin_integer_ref a, dunlin_integer_ref b, dunlin_integer_ref out)
{
    params.op.link = (dunlin_integer_link){
        .rule = DUNLIN_RULE_ALIGNED, .site = out.site, .a = a.site, .b = b.site};
    dunlin_integer_draft draft = {.kernel = &add_kernel,
                                  .counting = &add_counting,
                                  .suffix = suffix,
                                  .params = &params,
                                  .params_bytes = sizeof params,
                                  .flops_per_sample = (double)params.n_elements};
    dunlin__integer_read(&draft, a.tensor);
    dunlin__integer_read(&draft, b.tensor);
    dunlin__integer_write(&draft, out.tensor);
    dunlin__integer_emit(integer, &draft);
}

void dunlin__integer_contribute(dunlin_integer *integer, uint32_t index, dunlin_integer_ref error)
{
    const dunlin_emit *emit = integer->emit;
    const uint32_t value = emit->net->nodes[emit->node_index].inputs[index];
    dunlin_integer_ref *so_far = &integer->errors[value];
    if (so_far->tensor == DUNLIN_STEP_NONE) {
        *so_far = error;
        return;
    }
    dunlin_integer_ref sum = dunlin__integer_error(integer, index);
    sum.site++; /* beside that of the input's own error */
    emit_add(integer, "/sum", (add_params){.n_elements = dunlin__op_elements(emit, value)}, *so_far,
             error, sum);
    *so_far = sum;
}

static void add_forward(dunlin_integer *integer, const dunlin_net_node *node)
{
    const dunlin_integer_ref a = integer->values[node->inputs[0]];
    const dunlin_integer_ref b = integer->values[node->inputs[1]];
    const dunlin_integer_ref y = dunlin__integer_clipped_output(integer, node->output);
    emit_add(integer, "",
             (add_params){.n_elements = dunlin__op_elements(integer->emit, node->output),
                          .high = dunlin__integer_clips_to(integer, node->output)},
             a, b, y);
}

/* The error of both inputs is the output's. */
static void add_backward(dunlin_integer *integer, const dunlin_net_node *node)
{
    for (uint32_t i = 0; i < 2; i++) {
        if (dunlin__integer_needs_error(integer, node, i)) {
            dunlin__integer_contribute(integer, i, integer->errors[node->output]);
        }
    }
}

/* --- concatenation --- */

/* Operands: the inputs, y. */
static dunlin_status run_concat(const dunlin_kernel_call *call)
{
    const concat_params *p = call->params;
    dunlin_integer_site *sites = call->operands[p->op.sites_operand];
    int8_t *y = call->operands[p->n_inputs];
    if (call->run->is_calibrating) {
        dunlin_integer_link link = {.rule = DUNLIN_RULE_WIDEST, .site = p->op.link.site};
        for (uint32_t i = 0; i < p->n_inputs; i++) {
            link.a = p->sites[i];
            link.b = i == 0 ? DUNLIN_STEP_NONE : link.site;
            dunlin__site_follow(call, sites, &link);
        }
    }
    for (uint32_t i = 0; i < p->n_inputs; i++) {
        call->run->integers->copy_rows(
            &(dunlin_int_rows_call){.n_rows = call->n_samples * p->rows_per_sample,
                                    .width = p->widths[i],
                                    .from = call->operands[i],
                                    .from_pitch = p->widths[i],
                                    .to = y,
                                    .to_pitch = p->pitch,
                                    .rounding.shift = shift_down(sites[p->sites[i]].exponent,
                                                                 sites[p->op.link.site].exponent),
                                    .threads = call->run->threads});
        y += p->widths[i];
    }
    return DUNLIN_OK;
}

/* Operands: dy, dx of one input. */
static dunlin_status run_cut(const dunlin_kernel_call *call)
{
    const concat_params *p = call->params;
    call->run->integers->copy_rows(
        &(dunlin_int_rows_call){.n_rows = call->n_samples * p->rows_per_sample,
                                .width = p->widths[0],
                                .from = (const int8_t *)call->operands[0] + p->offset,
                                .from_pitch = p->pitch,
                                .to = call->operands[1],
                                .to_pitch = p->widths[0],
                                .threads = call->run->threads});
    return DUNLIN_OK;
}

static const dunlin_step_kernel concat_kernel = {.name = "int_concat",
                                                 .run_fn = run_concat,
                                                 .parts = DUNLIN_MEM_MAP,
                                                 .may_recompute = true,
                                                 .in_place_write = -1,
                                                 .in_place_read = -1};
static const dunlin_step_kernel cut_kernel = {.name = "int_concat_grad",
                                              .run_fn = run_cut,
                                              .parts = DUNLIN_MEM_MAP,
                                              .may_recompute = true,
                                              .in_place_write = -1,
                                              .in_place_read = -1};

/* Inputs side by side in the innermost dimension of memory. */
static concat_params shape_concat(const dunlin_net *net, const dunlin_net_node *node)
{
    concat_params params = {.n_inputs = node->n_inputs};
    int32_t h = 0;
    int32_t w = 0;
    int32_t c = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        dunlin__value_hwc(&net->values[node->inputs[i]], &h, &w, &c);
        params.widths[i] = c;
        params.pitch += c;
    }
    params.rows_per_sample = (int64_t)h * w;
    return params;
}

static void concat_forward(dunlin_integer *integer, const dunlin_net_node *node)
{
    concat_params params = shape_concat(integer->emit->net, node);
    const dunlin_integer_ref y = dunlin__integer_output(integer, node->output);
    dunlin_integer_draft draft = {
        .kernel = &concat_kernel, .suffix = "", .params = &params, .params_bytes = sizeof params};
    params.op.link.site = y.site;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const dunlin_integer_ref x = integer->values[node->inputs[i]];
        params.sites[i] = x.site;
        dunlin__integer_read(&draft, x.tensor);
        dunlin__integer_add_link(integer,
                                 &(dunlin_integer_link){.rule = DUNLIN_RULE_WIDEST,
                                                        .site = y.site,
                                                        .a = x.site,
                                                        .b = i == 0 ? DUNLIN_STEP_NONE : y.site});
    }
    dunlin__integer_write(&draft, y.tensor);
    dunlin__integer_emit(integer, &draft);
}

static void concat_backward(dunlin_integer *integer, const dunlin_net_node *node)
{
    const dunlin_integer_ref dy = integer->errors[node->output];
    const concat_params whole = shape_concat(integer->emit->net, node);
    int64_t offset = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        concat_params params = whole;
        params.widths[0] = whole.widths[i];
        params.offset = offset;
        offset += whole.widths[i];
        if (!dunlin__integer_needs_error(integer, node, i)) {
            continue;
        }
        dunlin_integer_ref dx = dunlin__integer_error(integer, i);
        dx.site = dy.site;
        dunlin_integer_draft draft = {.kernel = &cut_kernel,
                                      .suffix = "/input_grad",
                                      .params = &params,
                                      .params_bytes = sizeof params};
        dunlin__integer_read(&draft, dy.tensor);
        dunlin__integer_write(&draft, dx.tensor);
        dunlin__integer_emit(integer, &draft);
        dunlin__integer_contribute(integer, i, dx);
    }
}

const dunlin_integer_row dunlin__integer_add = {NULL, add_forward, add_backward};
const dunlin_integer_row dunlin__integer_concat = {NULL, concat_forward, concat_backward};
