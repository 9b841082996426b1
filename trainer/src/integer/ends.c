/*
 * ends.c - where a step in integers meets floats: its input is rounded to int8, and the loss of its
 * outputs is reported in float32, while their error is made of integers alone.
 *
 * Invariant: the error of an example depends on its own logits and label only, so it is a map.
 */
#include "int_emit.h"
#include "kernels/simd/finite.h"

#include <mem/support.h>

#include <assert.h>
#include <math.h>
#include <string.h>

/* --- the input --- */

typedef struct quantise_params {
    dunlin_integer_op op; /* first */
    int64_t n_elements;   /* per sample */
} quantise_params;

static float largest_of(const float *x, int64_t n)
{
    const uint32_t bits = finite_largest(x, n);
    float largest = 0.0F;
    memcpy(&largest, &bits, sizeof largest);
    return largest;
}

/* Operands: x, q. What is not finite has been refused where it was read. */
static dunlin_status run_quantise(const dunlin_kernel_call *call)
{
    const quantise_params *p = call->params;
    const int64_t n = call->n_samples * p->n_elements;
    float largest = call->run->is_calibrating ? largest_of(call->operands[0], n) : 0.0F;
    dunlin_site_output output = dunlin__integer_open(call);
    dunlin_integer_site *site = &output.sites[p->op.link.site];
    if (call->run->is_calibrating && largest > 0.0F) {
        const int32_t needed = dunlin__site_exponent_for(largest);
        const bool is_higher = site->is_known == 0 || needed > site->exponent;
        site->exponent = is_higher ? needed : site->exponent;
        site->is_known = 1;
    }
    dunlin_int_quantise_call quantise = {.n = n,
                                         .x = call->operands[0],
                                         .exponent = site->exponent,
                                         .out = call->operands[1],
                                         .out_largest = &largest,
                                         .threads = call->run->threads};
    int64_t n_clipped = 0;
    quantise.out_clipped = &n_clipped;
    if (!call->run->integers->quantise(&quantise)) {
        return dunlin__fail(call->run->error, DUNLIN_NUMERIC, "step", 0,
                            "an input element of the batch's examples from %lld on is not finite",
                            (long long)call->first_sample);
    }
    const double scaled = ldexp((double)largest, -site->exponent);
    return call->run->is_calibrating ||
                   !dunlin__site_close(&output, scaled < 1e15 ? (int64_t)(scaled + 0.5) : INT64_MAX,
                                       n_clipped)
               ? DUNLIN_OK
               : DUNLIN_INTERNAL;
}

#define QUANTISE_KERNEL(which_parts)                                                               \
    {                                                                                              \
        .name = "quantise", .run_fn = run_quantise, .parts = (which_parts), .may_recompute = true, \
        .in_place_write = -1, .in_place_read = -1                                                  \
    }
static const dunlin_step_kernel quantise_kernel = QUANTISE_KERNEL(DUNLIN_MEM_MAP);
static const dunlin_step_kernel quantise_counting =
    QUANTISE_KERNEL(DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE);

void dunlin__integer_emit_input(dunlin_integer *integer)
{
    dunlin_emit *emit = integer->emit;
    const uint32_t value = emit->net->input;
    const dunlin_net_value *net_value = &emit->net->values[value];
    emit->node_name = "input";
    const dunlin_integer_ref q = {
        .tensor = dunlin__emit_named_tensor(
            emit, net_value->name, "/int8",
            &(dunlin_step_tensor){.dtype = integer->precision->activations,
                                  .is_batched = true,
                                  .n_elements = dunlin__value_elements(net_value),
                                  .mem_class = DUNLIN_MEM_INPUT}),
        .site = dunlin__integer_value_site(emit->net, value)};
    integer->values[value] = q;
    quantise_params params = {.op.link = {.rule = DUNLIN_RULE_QUANTISED, .site = q.site},
                              .n_elements = dunlin__value_elements(net_value)};
    params.op.link.b = DUNLIN_STEP_NONE;
    dunlin_integer_draft draft = {.kernel = &quantise_kernel,
                                  .counting = &quantise_counting,
                                  .suffix = "/int8",
                                  .params = &params,
                                  .params_bytes = sizeof params};
    dunlin__integer_read(&draft, emit->graph->input);
    dunlin__integer_write(&draft, q.tensor);
    dunlin__integer_emit(integer, &draft);
}

/* --- the loss --- */

#define LOSS_BLOCK_FLOATS 4096
#define LOG2_E_15 47274      /* log2(e) * 2^15 */
#define TOP_POWER 10         /* of the largest 2^t of a row */
#define LOSS_BITS 11         /* of a row's shares, which add up to 2^11 */
#define LOSS_SHIFT 4         /* from shares to int8 */
#define LEAST_EXPONENT (-14) /* of logits: below it 2^(1 - 2e) times a share would pass 63 bits */

typedef struct loss_params {
    dunlin_integer_op op; /* first; link.site is that of the logits */
    int32_t n_classes;
    dunlin_end end;
} loss_params;

static int64_t block_rows(const loss_params *p)
{
    return p->n_classes < LOSS_BLOCK_FLOATS ? LOSS_BLOCK_FLOATS / p->n_classes : 1;
}

static uint64_t loss_bytes(const dunlin_kernels *kernels, const void *params, size_t n_threads,
                           uint64_t *out_sample_bytes)
{
    const loss_params *p = params;
    (void)kernels;
    (void)n_threads;
    *out_sample_bytes = 0;
    return (uint64_t)block_rows(p) * (uint64_t)p->n_classes * sizeof(float);
}

/* Base-2 logarithm of a logit's power, in whole numbers; division truncates. */
static int64_t power_of(int8_t q, int32_t exponent)
{
    if (exponent <= -DUNLIN_SITE_BITS) {
        return 0; /* it would not be looked at */
    }
    const int64_t t = (int64_t)q * LOG2_E_15 / (INT64_C(1) << 15);
    if (exponent >= 0) {
        return t * (INT64_C(1) << (exponent < 24 ? exponent : 24));
    }
    return t / (INT64_C(1) << -exponent);
}

/* What a logit weighs in its row, 0 or more: 2^t - 1 with the largest t moved to 10; of logits
 * below 1, twice 2^(-2e) times 1 + x + x^2 / 2. */
static int64_t weight_of(int8_t q, int32_t exponent, int64_t top)
{
    if (exponent > -DUNLIN_SITE_BITS) {
        const int64_t t = power_of(q, exponent) - (top - TOP_POWER);
        return t > 0 ? (INT64_C(1) << t) - 1 : 0;
    }
    const int32_t e = exponent < LEAST_EXPONENT ? LEAST_EXPONENT : exponent;
    return (INT64_C(1) << (1 - 2 * e)) + q * (INT64_C(1) << (1 - e)) + (int64_t)q * q;
}

/* PstoShift by LOSS_SHIFT, within +-127. */
static int8_t error_of(int64_t gradient)
{
    const int64_t size = gradient < 0 ? -gradient : gradient;
    const int64_t rest = size & ((1 << LOSS_SHIFT) - 1);
    const int64_t half = rest & ((1 << (LOSS_SHIFT / 2)) - 1);
    int64_t q = (size >> LOSS_SHIFT) + ((rest >> (LOSS_SHIFT / 2)) > half ? 1 : 0);
    q = q < DUNLIN_INT_MOST ? q : DUNLIN_INT_MOST;
    return (int8_t)(gradient < 0 ? -q : q);
}

/* The error of one row of logits. Source: NITI, ti_loss.py, with integer division throughout. */
static void fill_errors(const int8_t *logits, int32_t n_classes, int32_t exponent, int32_t label,
                        int8_t *errors)
{
    int64_t top = INT64_MIN;
    int64_t sum = 0;
    int64_t given = 0;
    if (label < 0) {
        memset(errors, 0, (size_t)n_classes);
        return;
    }
    for (int32_t c = 0; c < n_classes; c++) {
        const int64_t t = power_of(logits[c], exponent);
        top = t > top ? t : top;
    }
    for (int32_t c = 0; c < n_classes; c++) {
        sum += weight_of(logits[c], exponent, top);
    }
    assert(sum > 0); /* the largest logit's is */
    for (int32_t c = 0; c < n_classes; c++) {
        const int64_t share = weight_of(logits[c], exponent, top) * (INT64_C(1) << LOSS_BITS) / sum;
        given += share;
        errors[c] = c != label ? error_of(share) : 0;
    }
    const int64_t own = weight_of(logits[label], exponent, top) * (INT64_C(1) << LOSS_BITS) / sum;
    errors[label] = error_of(own - given);
}

static void report_rows(const dunlin_kernel_call *call, const loss_params *p, int32_t exponent)
{
    const dunlin_step_run *run = call->run;
    float *rows = call->workspace;
    const int8_t *logits = call->operands[0];
    const int32_t *labels = call->operands[1];
    for (int64_t first = 0; first < call->n_samples; first += block_rows(p)) {
        const int64_t left = call->n_samples - first;
        const int64_t n = left < block_rows(p) ? left : block_rows(p);
        run->integers->dequantise(n * p->n_classes, logits + first * p->n_classes, exponent, rows,
                                  run->threads);
        run->kernels->softmax_loss(&(dunlin_loss_call){.classes = p->n_classes,
                                                       .n_rows = n,
                                                       .logits = rows,
                                                       .labels = labels + first,
                                                       .scale = 1.0F,
                                                       .sums = call->operands[2],
                                                       .is_reset = call->is_first && first == 0,
                                                       .threads = run->threads});
    }
}

/* Operands: logits, labels, sums, error of the logits (training), sites. */
static dunlin_status run_loss(const dunlin_kernel_call *call)
{
    const loss_params *p = call->params;
    const dunlin_step_run *run = call->run;
    const dunlin_integer_site *sites = call->operands[p->op.sites_operand];
    const int32_t exponent = sites[p->op.link.site].exponent;
    const int8_t *logits = call->operands[0];
    const int32_t *labels = call->operands[1];
    if (run->logits != NULL) {
        float *rows = run->logits + call->first_sample * p->n_classes;
        run->integers->dequantise(call->n_samples * p->n_classes, logits, exponent, rows,
                                  run->threads);
        dunlin__end_apply(p->end, run->kernels, call->n_samples, p->n_classes, rows, run->threads);
        return DUNLIN_OK;
    }
    if ((call->parts & DUNLIN_MEM_REDUCE) != 0) {
        report_rows(call, p, exponent);
    }
    if ((call->parts & DUNLIN_MEM_MAP) != 0) {
        int8_t *errors = call->operands[3];
        for (int64_t i = 0; i < call->n_samples; i++) {
            fill_errors(logits + i * p->n_classes, p->n_classes, exponent, labels[i],
                        errors + i * p->n_classes);
        }
    }
    return DUNLIN_OK;
}

static const dunlin_step_kernel loss_kernel = {.name = "int_loss",
                                               .run_fn = run_loss,
                                               .parts = DUNLIN_MEM_REDUCE,
                                               .in_place_write = -1,
                                               .in_place_read = -1,
                                               .workspace_fn = loss_bytes};
static const dunlin_step_kernel loss_grad_kernel = {.name = "int_loss_grad",
                                                    .run_fn = run_loss,
                                                    .parts = DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE,
                                                    .may_recompute = true,
                                                    .in_place_write = -1,
                                                    .in_place_read = -1,
                                                    .workspace_fn = loss_bytes};

/* Operands: sums. */
static dunlin_status run_report(const dunlin_kernel_call *call)
{
    const dunlin_step_run *run = call->run;
    if (run->logits == NULL && run->out_sums != NULL) {
        memcpy(run->out_sums, call->operands[0], DUNLIN_N_LOSS_SUMS * sizeof *run->out_sums);
    }
    return DUNLIN_OK;
}

static const dunlin_step_kernel report_kernel = {.name = "report",
                                                 .run_fn = run_report,
                                                 .parts = DUNLIN_MEM_FIXED,
                                                 .in_place_write = -1,
                                                 .in_place_read = -1};

/* The error of the logits, whose exponent is 0 by definition; none if nothing is trained. */
static uint32_t make_logits_error(dunlin_integer *integer)
{
    dunlin_emit *emit = integer->emit;
    const uint32_t output = emit->net->output;
    if (emit->options->mode != DUNLIN_EMIT_TRAIN || !emit->values[output].needs_grad) {
        return DUNLIN_STEP_NONE;
    }
    const uint32_t error =
        dunlin__emit_named_tensor(emit, emit->net->values[output].name, "/grad",
                                  &(dunlin_step_tensor){.dtype = integer->precision->errors,
                                                        .is_batched = true,
                                                        .n_elements = emit->graph->n_classes,
                                                        .mem_class = DUNLIN_MEM_GRADIENT});
    integer->errors[output] =
        (dunlin_integer_ref){.tensor = error, .site = dunlin__integer_loss_site(emit->net)};
    return error;
}

void dunlin__integer_emit_loss(dunlin_integer *integer)
{
    dunlin_emit *emit = integer->emit;
    dunlin_step_graph *graph = emit->graph;
    const dunlin_integer_ref logits = integer->values[emit->net->output];
    const uint32_t sums =
        dunlin__emit_named_tensor(emit, "loss", "/sums",
                                  &(dunlin_step_tensor){.dtype = DUNLIN_F64,
                                                        .n_elements = DUNLIN_N_LOSS_SUMS,
                                                        .mem_class = DUNLIN_MEM_ACCUMULATOR});
    const uint32_t error = make_logits_error(integer);
    const bool has_error = error != DUNLIN_STEP_NONE;
    const uint8_t both = has_error ? DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE : DUNLIN_MEM_REDUCE;
    const uint32_t n = has_error ? 5 : 4;
    dunlin_mem_access accesses[5] = {
        {logits.tensor, DUNLIN_MEM_READ, both},
        {graph->labels, DUNLIN_MEM_READ, both},
        {sums, DUNLIN_MEM_ACCUMULATE, DUNLIN_MEM_REDUCE},
        {error, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    accesses[n - 1] = (dunlin_mem_access){graph->sites, DUNLIN_MEM_READ, both};
    const loss_params params = {.op = {.link.site = logits.site, .sites_operand = (int32_t)n - 1},
                                .n_classes = graph->n_classes,
                                .end = emit->end};
    graph->loss = sums;
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = has_error ? &loss_grad_kernel : &loss_kernel,
                                             .suffix = "",
                                             .params = &params,
                                             .params_bytes = sizeof params,
                                             .accesses = accesses,
                                             .n_accesses = n,
                                             .flops_per_sample = 60.0 * graph->n_classes});
    const dunlin_mem_access access = {sums, DUNLIN_MEM_READ, DUNLIN_MEM_FIXED};
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = &report_kernel,
                                             .suffix = "/report",
                                             .accesses = &access,
                                             .n_accesses = 1});
}
