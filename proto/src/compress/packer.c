/*
 * packer.c - float32 in, packed bytes out, a block at a time.
 *
 * A block goes: rotate, round, and the way back as the decoder goes it, so that what is measured is
 * what the other side will find.
 */
#include "bits.h"
#include "packer_parts.h"
#include "rotate.h"

#include <mem/support.h>

#include <string.h>

_Static_assert(sizeof(struct dunlin__tensor_packer) <= DUNLIN_PACK_MEMORY_BYTES,
               "a packer keeps within its memory");

dunlin_status dunlin__tensor_packer_open(const dunlin__pack_options *options,
                                         const dunlin_alloc *alloc,
                                         dunlin__tensor_packer **out_packer, dunlin_error *error)
{
    *out_packer = NULL;
    DUNLIN_TRY(dunlin__packing_check(&options->packing, error));
    const dunlin_alloc hooks = dunlin__alloc_or_default(alloc);
    dunlin__tensor_packer *packer = dunlin__alloc_zeroed(&hooks, 1, sizeof(*packer));
    if (packer == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "compress", 0,
                            "no memory for a packer of %zu bytes", sizeof(*packer));
    }
    packer->alloc = hooks;
    packer->options = *options;
    packer->n_ties = options->choice.n_ties;
    dunlin__stage_keys(&options->packing, &packer->rotation, &packer->sampler);
    dunlin__draws_key(&packer->rounding, options->draws, DUNLIN_DRAW_ROUNDING,
                      options->packing.round);
    *out_packer = packer;
    return DUNLIN_OK;
}

void dunlin__tensor_packer_close(dunlin__tensor_packer *packer)
{
    if (packer != NULL) {
        const dunlin_alloc hooks = packer->alloc;
        dunlin__free_array(&hooks, packer, 1, sizeof(*packer));
    }
}

double dunlin__tensor_packer_square(const dunlin__tensor_packer *packer)
{
    return packer->square;
}

uint64_t dunlin__tensor_packer_bytes(const dunlin__tensor_packer *packer)
{
    return packer->n_bytes;
}

dunlin_status dunlin__tensor_packer_emit(dunlin__tensor_packer *packer, const uint8_t *bytes,
                                         size_t n_bytes, dunlin_error *error)
{
    packer->n_tensor_bytes += n_bytes;
    if (packer->options.sink.write_fn == NULL || n_bytes == 0) {
        return DUNLIN_OK;
    }
    return packer->options.sink.write_fn(packer->options.sink.ctx, bytes, n_bytes, error);
}

dunlin_status dunlin__tensor_packer_mirror(dunlin__tensor_packer *packer, const float *values,
                                           size_t n_values, dunlin_error *error)
{
    if (packer->options.mirror.values_fn == NULL || n_values == 0) {
        return DUNLIN_OK;
    }
    return packer->options.mirror.values_fn(packer->options.mirror.ctx, values, n_values, error);
}

dunlin_status dunlin__tensor_packer_quantise(dunlin__tensor_packer *packer, float *values, size_t n,
                                             size_t n_head, uint64_t first, size_t *out_n_bytes,
                                             dunlin_error *error)
{
    size_t bad = 0;
    packer->rounding.tensor = packer->index;
    packer->rounding.block = packer->block++;
    *out_n_bytes = dunlin__quantise(&packer->options.packing, &packer->rounding, values, n,
                                    packer->out + DUNLIN_PACKER_CODES, packer->out + n_head, &bad);
    if (*out_n_bytes == 0) {
        return dunlin__fail(error, DUNLIN_NUMERIC, "compress", 0,
                            "tensor %u: the number %g in the block of element %llu is too large "
                            "for its packing",
                            packer->index, (double)values[bad], (unsigned long long)first);
    }
    return DUNLIN_OK;
}

/* The block of all elements that is full, or the tensor's last. */
static dunlin_status flush_block(dunlin__tensor_packer *packer, dunlin_error *error)
{
    const bool is_rotated = packer->options.packing.is_rotated;
    float *const values = packer->values.block;
    const size_t n = packer->fill;
    const size_t n_padded = is_rotated ? dunlin__rotate_size(n) : n;
    const uint64_t first = packer->n_taken - n;
    size_t n_bytes = 0;
    if (n == 0) {
        return DUNLIN_OK;
    }
    packer->fill = 0;
    packer->rotation.tensor = packer->index;
    packer->rotation.block = packer->block;
    if (is_rotated) {
        memset(values + n, 0, (n_padded - n) * sizeof(float));
        dunlin__rotate(values, n_padded, &packer->rotation);
        if (dunlin__bits_not_finite(values, n_padded) < n_padded) {
            return dunlin__stage_not_finite(packer->index, first, error);
        }
    }
    DUNLIN_TRY(dunlin__tensor_packer_quantise(packer, values, n_padded, 0, first, &n_bytes, error));
    if (is_rotated) {
        dunlin__rotate_back(values, n_padded, &packer->rotation);
    }
    size_t bad = dunlin__stage_finish(values, n, packer->gain);
    if (bad < n) {
        return dunlin__stage_not_finite(packer->index, first + bad, error);
    }
    dunlin__norm_add(&packer->norm, values, n);
    DUNLIN_TRY(dunlin__tensor_packer_emit(packer, packer->out, n_bytes, error));
    return dunlin__tensor_packer_mirror(packer, values, n, error);
}

static dunlin_status pack_all(dunlin__tensor_packer *packer, const float *values, size_t n_values,
                              dunlin_error *error)
{
    const size_t block = packer->options.packing.block_values;
    while (n_values > 0) {
        size_t room = block - packer->fill;
        size_t part = (n_values < room) ? n_values : room;
        memcpy(packer->values.block + packer->fill, values, part * sizeof(float));
        packer->fill += part;
        packer->n_taken += part;
        values += part;
        n_values -= part;
        if (packer->fill == block) {
            DUNLIN_TRY(flush_block(packer, error));
        }
    }
    return DUNLIN_OK;
}

/* A statistic, as it is. */
static dunlin_status pack_statistic(dunlin__tensor_packer *packer, const float *values,
                                    size_t n_values, dunlin_error *error)
{
    const size_t room = DUNLIN_QUANTISE_BYTES / sizeof(float);
    packer->n_taken += n_values;
    while (n_values > 0) {
        size_t part = (n_values < room) ? n_values : room;
        for (size_t i = 0; i < part; i++) {
            dunlin__put_u32(packer->out + 4 * i, dunlin__float_bits(values[i]));
        }
        DUNLIN_TRY(dunlin__tensor_packer_emit(packer, packer->out, 4 * part, error));
        values += part;
        n_values -= part;
    }
    return DUNLIN_OK;
}

/* ---- the calls ---- */

static dunlin_status check_packer(const dunlin__tensor_packer *packer, bool wants_tensor,
                                  dunlin_error *error)
{
    if (packer->has_failed || packer->has_tensor != wants_tensor) {
        return dunlin__fail(
            error, DUNLIN_STATE, "compress", 0, "the packer %s at tensor %u, %llu of %llu elements",
            packer->has_failed ? "has failed" : "is", packer->index,
            (unsigned long long)packer->n_taken, (unsigned long long)packer->n_elements);
    }
    return DUNLIN_OK;
}

static dunlin_status keep_status(dunlin__tensor_packer *packer, dunlin_status status)
{
    packer->has_failed = packer->has_failed || status != DUNLIN_OK;
    return status;
}

static dunlin_status begin_tensor(dunlin__tensor_packer *packer, float gain, dunlin_error *error)
{
    uint8_t head[4];
    const bool is_average = packer->rule == DUNLIN_V1_RULE_AVERAGE;
    if (!(gain > 0.0f && gain <= 1.0f)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "compress", 0,
                            "tensor %u: a gain of %g, above 0 and at most 1 is needed",
                            packer->index, (double)gain);
    }
    if (packer->options.packing.selection == DUNLIN_V1_SELECTION_RANDOM && is_average) {
        uint64_t n_kept = dunlin__packing_kept(&packer->options.packing, packer->n_elements);
        packer->factor = dunlin__stage_factor(packer->n_elements, n_kept);
        dunlin__sampler_begin(&packer->sampler, packer->index, (uint32_t)packer->n_elements,
                              (uint32_t)n_kept);
    }
    if (!is_average || packer->n_elements == 0) {
        return DUNLIN_OK;
    }
    dunlin__put_u32(head, dunlin__float_bits(gain));
    return dunlin__tensor_packer_emit(packer, head, sizeof(head), error);
}

dunlin_status dunlin__tensor_packer_tensor(dunlin__tensor_packer *packer, uint32_t index,
                                           dunlin_v1_rule_t rule, uint64_t n_elements, float gain,
                                           dunlin_error *error)
{
    DUNLIN_TRY(check_packer(packer, false, error));
    DUNLIN_TRY(keep_status(packer, dunlin__stage_check_tensor(index, rule, n_elements,
                                                              packer->n_stream_elements, error)));
    packer->has_tensor = true;
    packer->index = index;
    packer->rule = rule;
    packer->n_elements = n_elements;
    packer->n_stream_elements += n_elements;
    packer->n_taken = 0;
    packer->n_tensor_bytes = 0;
    packer->n_mirrored = 0;
    packer->n_before_gap = 0;
    packer->gain = gain;
    packer->block = 0;
    packer->fill = 0;
    packer->norm = (dunlin__norm){.n_values = 0};
    return keep_status(packer, begin_tensor(packer, gain, error));
}

static dunlin_status take_values(dunlin__tensor_packer *packer, const float *values,
                                 size_t n_values, dunlin_error *error)
{
    if (n_values > packer->n_elements - packer->n_taken) {
        return dunlin__fail(error, DUNLIN_LIMIT, "compress", 0,
                            "tensor %u: %zu values after %llu, but it has %llu elements",
                            packer->index, n_values, (unsigned long long)packer->n_taken,
                            (unsigned long long)packer->n_elements);
    }
    size_t bad = dunlin__bits_not_finite(values, n_values);
    if (bad < n_values) {
        return dunlin__stage_not_finite(packer->index, packer->n_taken + bad, error);
    }
    if (packer->rule != DUNLIN_V1_RULE_AVERAGE) {
        return pack_statistic(packer, values, n_values, error);
    }
    if (packer->options.packing.selection == DUNLIN_V1_SELECTION_ALL) {
        return pack_all(packer, values, n_values, error);
    }
    return dunlin__tensor_packer_keep(packer, values, n_values, error);
}

dunlin_status dunlin__tensor_packer_values(dunlin__tensor_packer *packer, const float *values,
                                           size_t n_values, dunlin_error *error)
{
    DUNLIN_TRY(check_packer(packer, true, error));
    return keep_status(packer, take_values(packer, values, n_values, error));
}

static dunlin_status finish_tensor(dunlin__tensor_packer *packer, dunlin_error *error)
{
    if (packer->n_taken < packer->n_elements) {
        return dunlin__fail(error, DUNLIN_STATE, "compress", 0,
                            "tensor %u ends after %llu of its %llu elements", packer->index,
                            (unsigned long long)packer->n_taken,
                            (unsigned long long)packer->n_elements);
    }
    if (packer->rule != DUNLIN_V1_RULE_AVERAGE || packer->n_elements == 0) {
        return DUNLIN_OK;
    }
    if (packer->options.packing.selection == DUNLIN_V1_SELECTION_ALL) {
        return flush_block(packer, error);
    }
    return dunlin__tensor_packer_keep_end(packer, error);
}

dunlin_status dunlin__tensor_packer_tensor_end(dunlin__tensor_packer *packer,
                                               uint64_t *out_stored_bytes, double *out_square,
                                               dunlin_error *error)
{
    DUNLIN_TRY(check_packer(packer, true, error));
    DUNLIN_TRY(keep_status(packer, finish_tensor(packer, error)));
    const double square = dunlin__norm_square(&packer->norm);
    packer->has_tensor = false;
    packer->square += square;
    packer->n_bytes += packer->n_tensor_bytes;
    if (out_stored_bytes != NULL) {
        *out_stored_bytes = packer->n_tensor_bytes;
    }
    if (out_square != NULL) {
        *out_square = square;
    }
    return DUNLIN_OK;
}
