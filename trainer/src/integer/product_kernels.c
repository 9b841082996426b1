/*
 * product_kernels.c - see product_kernels.h.
 *
 * Invariant: outside of a calibration, where each example has its own, all examples of a batch are
 * rounded with one unit (one a channel), so that sums over examples are sums of whole numbers.
 */
#include "product_kernels.h"

#include <mem/support.h>

#include <string.h>

/* Of a range that is not known, for which a value is only counted. */
static const float one = 1.0F;

/* --- operands --- */

static dunlin_status run_round_weights(const dunlin_kernel_call *call)
{
    const dunlin_round_weights_params *p = call->params;
    dunlin_int_spread spread = {.n = 0};
    float *unit = call->operands[2];
    dunlin_int_real_call round = {.n_rows = 1,
                                  .channels = p->n_elements,
                                  .x = call->operands[0],
                                  .units = &one,
                                  .finds_largest = true,
                                  .spreads = &spread,
                                  .threads = call->run->threads};
    if (p->operand->unit != DUNLIN_UNIT_FIXED) {
        call->run->integers->quantise_real(&round);
    }
    *unit = dunlin__range_unit(p->operand, dunlin__range_largest(&spread));
    round.units = unit;
    round.finds_largest = false;
    round.spreads = NULL;
    round.out = call->operands[1];
    call->run->integers->quantise_real(&round);
    return DUNLIN_OK;
}

const dunlin_step_kernel dunlin__product_round_weights = {.name = "round_weights",
                                                          .run_fn = run_round_weights,
                                                          .parts = DUNLIN_MEM_FIXED,
                                                          .in_place_write = -1,
                                                          .in_place_read = -1};

/* Units and limits of the channels. */
static uint64_t round_bytes(const dunlin_kernels *kernels, const void *params, size_t n_threads,
                            uint64_t *out_sample_bytes)
{
    const dunlin_round_params *p = params;
    (void)kernels;
    (void)n_threads;
    *out_sample_bytes = 0;
    return p->units_operand < 0 ? 2 * (uint64_t)p->channels * sizeof(float) : 0;
}

static void round_channels(const dunlin_kernel_call *call, dunlin_int_spread *spreads)
{
    const dunlin_round_params *p = call->params;
    const dunlin_range *ranges = (const dunlin_range *)call->operands[2] + p->link.first;
    float *units = call->workspace;
    float *limits = units + p->channels;
    const bool has_limits = p->link.operand->rule == DUNLIN_RANGE_DISTRIBUTION && spreads != NULL;
    for (int64_t c = 0; c < p->channels; c++) {
        units[c] = dunlin__range_unit(p->link.operand, ranges[c].range);
        limits[c] = ranges[c].spread;
    }
    call->run->integers->quantise_real(
        &(dunlin_int_real_call){.n_rows = call->n_samples * p->rows_per_sample,
                                .channels = p->channels,
                                .is_by_channel = true,
                                .x = call->operands[0],
                                .units = units,
                                .limits = has_limits ? limits : NULL,
                                .out = call->operands[1],
                                .spreads = spreads,
                                .threads = call->run->threads});
}

/* Each example by its own largest value: a calibration, or a prediction before any. */
static void round_alone(const dunlin_kernel_call *call, dunlin_int_spread *spread)
{
    const dunlin_round_params *p = call->params;
    const int64_t n = p->rows_per_sample * p->channels;
    float *units = call->operands[p->units_operand];
    int8_t *out = call->operands[1];
    for (int64_t i = 0; i < call->n_samples; i++) {
        dunlin_int_spread own = {.n = 0};
        dunlin_int_real_call round = {.n_rows = 1,
                                      .channels = n,
                                      .x = (const float *)call->operands[0] + i * n,
                                      .units = &one,
                                      .finds_largest = true,
                                      .spreads = &own,
                                      .threads = call->run->threads};
        call->run->integers->quantise_real(&round);
        spread->n += own.n;
        spread->largest = own.largest > spread->largest ? own.largest : spread->largest;
        const float unit = dunlin__range_unit(p->link.operand, dunlin__range_largest(&own));
        if (out != NULL) {
            units[i] = unit;
            round.units = &unit;
            round.finds_largest = false;
            round.spreads = NULL;
            round.out = out + i * n;
            call->run->integers->quantise_real(&round);
        }
    }
}

static void round_together(const dunlin_kernel_call *call, const dunlin_range *range,
                           dunlin_int_spread *spread)
{
    const dunlin_round_params *p = call->params;
    const bool is_wide = range->bits == DUNLIN_RANGE_WIDE;
    const float unit = dunlin__range_unit_of(p->link.operand, range);
    float *units = call->operands[p->units_operand];
    for (int64_t i = 0; units != NULL && i < call->n_samples; i++) {
        units[i] = unit;
    }
    call->run->integers->quantise_real(
        &(dunlin_int_real_call){.n_rows = call->n_samples,
                                .channels = p->rows_per_sample * p->channels,
                                .x = call->operands[0],
                                .units = &unit,
                                .out = call->operands[1],
                                .out_low = is_wide ? call->operands[p->low_operand] : NULL,
                                .has_sums = p->link.operand->may_widen,
                                .spreads = spread,
                                .threads = call->run->threads});
}

static bool is_finite(const dunlin_int_spread *spreads, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (spreads[i].largest >= 0x7F800000) {
            return false;
        }
    }
    return true;
}

static dunlin_status run_round(const dunlin_kernel_call *call)
{
    const dunlin_round_params *p = call->params;
    const dunlin_range *ranges = (const dunlin_range *)call->operands[2] + p->link.first;
    dunlin_int_spread own = {.n = 0};
    dunlin_int_spread *spreads = NULL;
    if (p->counts_operand >= 0 && (call->parts & DUNLIN_MEM_REDUCE) != 0) {
        spreads = (dunlin_int_spread *)call->operands[p->counts_operand] + p->link.first;
        if (call->is_first) {
            memset(spreads, 0, p->link.n * sizeof *spreads);
        }
    }
    if (p->units_operand < 0) {
        round_channels(call, spreads);
    } else if (call->run->is_calibrating || (!p->is_training && !(ranges->range > 0.0F))) {
        spreads = spreads != NULL ? spreads : &own;
        round_alone(call, spreads);
    } else {
        spreads = spreads != NULL ? spreads : &own;
        round_together(call, ranges, spreads);
    }
    const uint32_t n_spreads = spreads == &own ? 1 : (uint32_t)p->link.n;
    if (spreads == NULL || is_finite(spreads, n_spreads)) {
        return DUNLIN_OK;
    }
    return p->is_backward ? dunlin__run_not_finite(call->run, "the error of", p->name)
                          : dunlin__run_ends_forward(call->run, "the input of", p->name);
}

#define ROUND_KERNEL(which_parts)                                                                  \
    {                                                                                              \
        .name = "round", .run_fn = run_round, .parts = (which_parts), .may_recompute = true,       \
        .in_place_write = -1, .in_place_read = -1, .workspace_fn = round_bytes                     \
    }

const dunlin_step_kernel dunlin__product_round = ROUND_KERNEL(DUNLIN_MEM_MAP);
const dunlin_step_kernel dunlin__product_round_counting =
    ROUND_KERNEL(DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE);

/* --- products --- */

static uint64_t pass_bytes_of(const void *params, dunlin_conv_pass pass, size_t n_threads)
{
    const dunlin_product_params *p = params;
    return p->integers->conv_workspace_bytes(&p->shape, pass, p->batch, n_threads);
}

static uint64_t product_bytes(const dunlin_kernels *kernels, const void *params, size_t n_threads,
                              uint64_t *out_sample_bytes)
{
    (void)kernels;
    *out_sample_bytes = 0;
    return pass_bytes_of(params, DUNLIN_CONV_FORWARD, n_threads);
}

static uint64_t product_error_bytes(const dunlin_kernels *kernels, const void *params,
                                    size_t n_threads, uint64_t *out_sample_bytes)
{
    (void)kernels;
    *out_sample_bytes = 0;
    return pass_bytes_of(params, DUNLIN_CONV_INPUT_GRAD, n_threads);
}

/* Examples from `first` on that have the same unit. */
static int64_t n_alike(const float *units, int64_t first, int64_t n)
{
    int64_t end = first + 1;
    while (end < n && units[end] == units[first]) {
        end++;
    }
    return end - first;
}

/* One pass over a slice, examples of one unit at a time; of what is written, or added. */
static void run_pass(const dunlin_kernel_call *call, const int8_t *from, float parts, bool is_error,
                     bool is_added)
{
    const dunlin_product_params *p = call->params;
    const dunlin_conv_shape *s = &p->shape;
    const int64_t n_in = (int64_t)s->in_h * s->in_w * s->in_c;
    const int64_t n_out = (int64_t)s->out_h * s->out_w * s->out_c;
    const float *units = call->operands[1];
    const float *weights_unit = call->operands[3];
    float *to = call->operands[4];
    for (int64_t first = 0; first < call->n_samples;) {
        const int64_t n = n_alike(units, first, call->n_samples);
        dunlin_int_conv_call conv = {.shape = s,
                                     .n_samples = n,
                                     .w = call->operands[2],
                                     .unit = units[first] * *weights_unit * parts,
                                     .is_added = is_added,
                                     .workspace = call->workspace,
                                     .threads = call->run->threads};
        if (is_error) {
            conv.dy = from + first * n_out;
            conv.out_real = to + first * n_in;
            call->run->integers->conv_input_grad(&conv);
        } else {
            conv.x = from + first * n_in;
            conv.out_real = to + first * n_out;
            call->run->integers->conv_forward(&conv);
        }
        first += n;
    }
}

static dunlin_status run_product(const dunlin_kernel_call *call)
{
    const dunlin_product_params *p = call->params;
    const int64_t channels = p->shape.out_c;
    const int64_t n_rows = call->n_samples * p->shape.out_h * p->shape.out_w;
    run_pass(call, call->operands[0], 1.0F, false, false);
    if (p->has_bias) {
        const float *bias = call->operands[5];
        float *y = call->operands[4];
        for (int64_t i = 0; i < n_rows; i++) {
            for (int64_t c = 0; c < channels; c++) {
                y[i * channels + c] += bias[c];
            }
        }
    }
    return DUNLIN_OK;
}

static dunlin_status run_product_error(const dunlin_kernel_call *call)
{
    const dunlin_product_params *p = call->params;
    const dunlin_range *ranges = p->may_be_wide ? call->operands[6] : NULL;
    const bool is_wide =
        !call->run->is_calibrating && ranges != NULL && ranges[p->range].bits == DUNLIN_RANGE_WIDE;
    run_pass(call, call->operands[0], is_wide ? (float)DUNLIN_RANGE_PAIR_PARTS : 1.0F, true, false);
    if (is_wide) {
        run_pass(call, call->operands[5], 1.0F, true, true);
    }
    return DUNLIN_OK;
}

const dunlin_step_kernel dunlin__product_forward = {.name = "product",
                                                    .run_fn = run_product,
                                                    .parts = DUNLIN_MEM_MAP,
                                                    .may_recompute = true,
                                                    .in_place_write = -1,
                                                    .in_place_read = -1,
                                                    .workspace_fn = product_bytes};
const dunlin_step_kernel dunlin__product_error = {.name = "product_input_grad",
                                                  .run_fn = run_product_error,
                                                  .parts = DUNLIN_MEM_MAP,
                                                  .may_recompute = true,
                                                  .in_place_write = -1,
                                                  .in_place_read = -1,
                                                  .workspace_fn = product_error_bytes};
