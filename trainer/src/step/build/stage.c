/*
 * stage.c - from examples as a source gave them to the network's inputs: floats, normalised, NHWC.
 */
#include "stage.h"

#include "kernels/simd/finite.h"

#include <mem/support.h>

#include <string.h>

/* Whole numbers as they were read, in place, into floats. */
static void widen_integers(unsigned char *raw, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t whole = 0;
        memcpy(&whole, raw + i * (int64_t)sizeof whole, sizeof whole);
        const float value = (float)whole;
        memcpy(raw + i * (int64_t)sizeof value, &value, sizeof value);
    }
}

/* n examples of one input, or of all, as the source gave them. */
typedef struct raw_block {
    unsigned char *bytes;
    dunlin_dtype dtype;
    int64_t first; /* of the batch */
    int64_t n;
    int64_t n_elements; /* of each */
} raw_block;

/* Floats are finite; whole numbers become floats. */
static dunlin_status check_raw(const dunlin_step_run *run, const raw_block *block)
{
    const int64_t n_all = block->n * block->n_elements;
    if (block->dtype == DUNLIN_I32) {
        widen_integers(block->bytes, n_all);
    }
    if (block->dtype != DUNLIN_F32) {
        return DUNLIN_OK;
    }
    const float *raw = (const float *)(const void *)block->bytes;
    const int64_t at = finite_count(raw, n_all);
    if (at == n_all) {
        return DUNLIN_OK;
    }
    const int64_t example = dunlin__run_example(run, block->first + at / block->n_elements);
    return dunlin__fail(run->error, DUNLIN_NUMERIC, "step", 0,
                        "input element %lld of example %lld is not finite (%g)",
                        (long long)(at % block->n_elements), (long long)example, (double)raw[at]);
}

/* The same as staged; notes which of the batch's examples has the largest. */
static dunlin_status check_staged(const dunlin_step_run *run, const dunlin_step_input *input,
                                  int64_t first, int64_t n, const float *x)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t largest = finite_largest(x + i * input->n_elements, input->n_elements);
        if (!finite_is_size(largest)) {
            return dunlin__fail(run->error, DUNLIN_NUMERIC, "step", 0,
                                "an input element of example %lld is not finite once scale, mean "
                                "and std of the source are applied",
                                (long long)dunlin__run_example(run, first + i));
        }
        dunlin_step_trace *trace = run->trace;
        if (trace != NULL && (trace->largest_example < 0 || largest > trace->largest_bits)) {
            trace->largest_bits = largest;
            trace->largest_example = dunlin__run_example(run, first + i);
        }
    }
    return DUNLIN_OK;
}

/* How an input is normalised. */
typedef struct normalisation {
    float scale;
    float *mean, *inv_std; /* of each channel */
} normalisation;

/* `is_one`: there is one mean and one deviation, whatever the channels. */
static void fill_normalisation(const dunlin_source_input *how, int32_t channels, bool is_one,
                               normalisation *to)
{
    to->scale = how->scale == 0.0F ? 1.0F : how->scale;
    for (int32_t c = 0; c < channels; c++) {
        const int32_t from = is_one ? 0 : c;
        to->mean[c] = how->mean != NULL ? how->mean[from] : 0.0F;
        to->inv_std[c] = how->std != NULL ? 1.0F / how->std[from] : 1.0F;
    }
}

/* The block's elements from `from` on are examples of an input. */
static void stage(const dunlin_step_run *run, const dunlin_step_input *input,
                  const raw_block *block, int64_t from, const normalisation *how, float *out)
{
    /* An input of several in one array is as long as all of them from one example to the next. */
    const bool is_alone = block->n_elements == input->n_elements;
    const int64_t n = is_alone ? block->n : 1;
    const size_t width = dunlin_dtype_bytes(block->dtype);
    for (int64_t i = 0; i < (is_alone ? 1 : block->n); i++) {
        const unsigned char *raw = block->bytes + (size_t)(i * block->n_elements + from) * width;
        float *to = out + i * input->n_elements;
        if (block->dtype == DUNLIN_U8) {
            run->kernels->stage_u8(n, input->pixels, input->channels, raw, how->scale, how->mean,
                                   how->inv_std, to, run->threads);
        } else {
            run->kernels->stage_f32(n, input->pixels, input->channels,
                                    (const float *)(const void *)raw, how->scale, how->mean,
                                    how->inv_std, to, run->threads);
        }
    }
}

/* As the source gives it: planes of an image become its rows. */
static dunlin_step_input given_as(const dunlin_step_input *input, const dunlin_source *source)
{
    dunlin_step_input given = *input;
    if ((source->flags & DUNLIN_SOURCE_PLANES) != 0 && input->planes > 0) {
        given.channels = input->planes;
        given.pixels = input->n_elements / input->planes;
    }
    return given;
}

dunlin_status dunlin__stage_examples(const dunlin_kernel_call *call, const dunlin_staging *params,
                                     int64_t first, int64_t n, int64_t room, unsigned char *raw)
{
    const dunlin_step_run *run = call->run;
    const dunlin_source *source = run->source;
    const bool has_arrays = source->read_arrays_fn != NULL;
    const dunlin_source_input one = {
        .dtype = source->dtype, .scale = source->scale, .mean = source->mean, .std = source->std};
    float *mean = (float *)call->workspace;
    normalisation norm = {.mean = mean, .inv_std = mean + params->channels};
    raw_block block = {.bytes = raw,
                       .dtype = source->dtype,
                       .first = call->first_sample + first,
                       .n = n,
                       .n_elements = params->n_elements};
    if (!has_arrays) {
        DUNLIN_TRY(check_raw(run, &block));
    }
    for (uint32_t k = 0; k < params->n_inputs; k++) {
        const dunlin_step_input given = given_as(&params->inputs[k], source);
        const dunlin_step_input *input = &given;
        const dunlin_source_input *how = has_arrays ? &source->inputs[k] : &one;
        if (has_arrays) {
            block.bytes = raw + (size_t)(room * input->first) * sizeof(float);
            block.dtype = how->dtype;
            block.n_elements = input->n_elements;
            DUNLIN_TRY(check_raw(run, &block));
        }
        fill_normalisation(how, input->channels, !has_arrays && params->n_inputs > 1, &norm);
        float *out = (float *)call->operands[k] + first * input->n_elements;
        stage(run, input, &block, has_arrays ? 0 : input->first, &norm, out);
        DUNLIN_TRY(check_staged(run, input, call->first_sample + first, n, out));
    }
    return DUNLIN_OK;
}
