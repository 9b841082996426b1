/*
 * product_sums.c - gradients of products: sums of whole numbers over the batch, the float32 that
 * they become, and the ranges of the next batch.
 *
 * Invariant: a gradient is the exact sum over the whole batch, rounded once.
 */
#include "product_kernels.h"

#include <string.h>

#define CONSTANT_PARTS 128 /* of the power of two nearest to the largest */

static const float whole_unit = 1.0F; /* for what is only counted */

static uint64_t product_sums_bytes(const dunlin_kernels *kernels, const void *params,
                                   size_t n_threads, uint64_t *out_sample_bytes)
{
    const dunlin_product_params *p = params;
    (void)kernels;
    *out_sample_bytes = 0;
    return p->integers->conv_workspace_bytes(&p->shape, DUNLIN_CONV_WEIGHT_GRAD, p->batch,
                                             n_threads);
}

static void add_errors(const dunlin_kernel_call *call, const int8_t *errors, int32_t *sums)
{
    const dunlin_product_params *p = call->params;
    const int64_t channels = p->shape.out_c;
    const int64_t n_rows = call->n_samples * p->shape.out_h * p->shape.out_w;
    if (call->is_first) {
        memset(sums, 0, (size_t)channels * sizeof *sums);
    }
    for (int64_t i = 0; i < n_rows; i++) {
        for (int64_t c = 0; c < channels; c++) {
            sums[c] += errors[i * channels + c];
        }
    }
}

/* Errors, or a half of them, and where their sums go: operands, -1: nowhere. */
static void add_sums(const dunlin_kernel_call *call, const int8_t *errors, int32_t sums_operand,
                     int32_t bias_operand)
{
    const dunlin_product_sums_params *p = call->params;
    if (sums_operand < 0) {
        add_errors(call, errors, call->operands[bias_operand]);
        return;
    }
    dunlin_int_conv_call conv = {
        .shape = &p->product.shape,
        .n_samples = call->n_samples,
        .x = call->operands[0],
        .dy = errors,
        .out_bias = bias_operand >= 0 ? call->operands[bias_operand] : NULL,
        .is_reset = call->is_first,
        .workspace = call->workspace,
        .threads = call->run->threads,
    };
    if (p->has_wide_sums) {
        conv.wide_sums = call->operands[sums_operand];
    } else {
        conv.sums = call->operands[sums_operand];
    }
    call->run->integers->conv_weight_grad(&conv);
}

/* A calibration has no sums: its examples have units of their own. */
static dunlin_status run_sums(const dunlin_kernel_call *call)
{
    const dunlin_product_sums_params *p = call->params;
    if (call->run->is_calibrating) {
        return DUNLIN_OK;
    }
    add_sums(call, call->operands[1], p->sums_operand, p->bias_operand);
    if (p->low_operand >= 0) {
        const dunlin_range *ranges = call->operands[p->low_operand + 1];
        if (ranges[p->product.range].bits == DUNLIN_RANGE_WIDE) {
            add_sums(call, call->operands[p->low_operand], p->low_sums_operand,
                     p->low_bias_operand);
        }
    }
    return DUNLIN_OK;
}

const dunlin_step_kernel dunlin__product_sums = {.name = "product_sums",
                                                 .run_fn = run_sums,
                                                 .parts = DUNLIN_MEM_REDUCE,
                                                 .in_place_write = -1,
                                                 .in_place_read = -1,
                                                 .workspace_fn = product_sums_bytes};

/* Units of the errors of each channel, times that of what they were multiplied by. */
static void fill_factors(const dunlin_product_close_params *p, const dunlin_range *ranges,
                         double factor, double *factors)
{
    for (int64_t c = 0; c < p->channels; c++) {
        factors[c] =
            factor * (double)dunlin__range_unit_of(
                         p->errors, &ranges[p->errors_range + (p->errors->is_by_channel ? c : 0)]);
    }
}

/* The innermost dimension of a weight is its output channels. `low` NULL: no pairs. */
static void scale(const dunlin_kernel_call *call, int64_t n, bool is_wide, const void *sums,
                  const void *low, float *out)
{
    const dunlin_product_close_params *p = call->params;
    dunlin_int_scale_call of = {.n_rows = n / p->channels,
                                .channels = p->channels,
                                .factors = call->workspace,
                                .out = out,
                                .threads = call->run->threads};
    if (is_wide) {
        of.wide_sums = sums;
        of.wide_low_sums = low;
    } else {
        of.sums = sums;
        of.low_sums = low;
    }
    call->run->integers->scale_sums(&of);
}

static uint64_t gradient_units_bytes(const dunlin_kernels *kernels, const void *params,
                                     size_t n_threads, uint64_t *out_sample_bytes)
{
    const dunlin_product_close_params *p = params;
    (void)kernels;
    (void)n_threads;
    *out_sample_bytes = 0;
    return (uint64_t)p->channels * sizeof(double);
}

/* Constant quantisation: of g / 2^round(log2(largest)) 7 bits are kept, up at random, and the unit
 * is 2^-14. Source: Yang et al., WAGEUBN, with its gradients of 15 bits and a range of 128. */
static void keep_proportions(const dunlin_kernel_call *call, int64_t n, float *g)
{
    const dunlin_product_close_params *p = call->params;
    const dunlin_step_run *run = call->run;
    const uint64_t key = dunlin__int_key(run->seed, (uint64_t)run->step, p->param);
    dunlin_int_spread spread = {.n = 0};
    run->integers->quantise_real(&(dunlin_int_real_call){.n_rows = 1,
                                                         .channels = n,
                                                         .x = g,
                                                         .units = &whole_unit,
                                                         .finds_largest = true,
                                                         .spreads = &spread,
                                                         .threads = run->threads});
    const float largest = dunlin__range_largest(&spread);
    if (!(largest > 0.0F) || spread.largest >= 0x7F800000) {
        return; /* what is not finite the update tells */
    }
    const double scale_up = CONSTANT_PARTS / (double)dunlin__range_nearest_power(largest);
    run->integers->keep_proportions(n, g, scale_up, key, run->threads);
}

static dunlin_status run_gradient(const dunlin_kernel_call *call)
{
    const dunlin_product_close_params *p = call->params;
    const dunlin_range *ranges = call->operands[0];
    const bool is_wide = ranges[p->errors_range].bits == DUNLIN_RANGE_WIDE;
    const double values_unit = (double)dunlin__range_unit(p->values, ranges[p->values_range].range);
    size_t next = 1;
    for (int i = 0; i < 2; i++) {
        const bool is_bias = i == 1;
        const int64_t n = is_bias ? p->channels : p->n_weights;
        if (is_bias ? !p->has_bias : !p->has_weights) {
            continue;
        }
        float *out = call->operands[next + (p->may_be_wide ? 2 : 1)];
        if (call->run->is_calibrating) {
            memset(out, 0, (size_t)n * sizeof *out);
        } else {
            fill_factors(p, ranges, is_bias ? 1.0 : values_unit, call->workspace);
            scale(call, n, p->has_wide_sums && !is_bias, call->operands[next],
                  is_wide ? call->operands[next + 1] : NULL, out);
            if (!is_bias && p->has_constant_gradients) {
                keep_proportions(call, n, out);
            }
        }
        next += p->may_be_wide ? 3 : 2;
    }
    return DUNLIN_OK;
}

const dunlin_step_kernel dunlin__product_gradient = {.name = "product_gradient",
                                                     .run_fn = run_gradient,
                                                     .parts = DUNLIN_MEM_FIXED,
                                                     .in_place_write = -1,
                                                     .in_place_read = -1,
                                                     .workspace_fn = gradient_units_bytes};

/* --- ranges --- */

static dunlin_status run_adapt_ranges(const dunlin_kernel_call *call)
{
    const dunlin_product_adapt_params *p = call->params;
    dunlin_range *ranges = call->operands[0];
    const dunlin_int_spread *counts = call->operands[1];
    for (size_t i = 0; i < p->n_links; i++) {
        const dunlin_product_link *link = &p->links[i];
        for (uint32_t k = link->first; k < link->first + link->n; k++) {
            dunlin__range_adapt(link->operand, &counts[k], call->run->is_calibrating, &ranges[k]);
        }
    }
    return DUNLIN_OK;
}

const dunlin_step_kernel dunlin__product_adapt = {.name = "adapt_ranges",
                                                  .run_fn = run_adapt_ranges,
                                                  .parts = DUNLIN_MEM_FIXED,
                                                  .in_place_write = -1,
                                                  .in_place_read = -1};
