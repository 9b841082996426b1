/*
 * stages.c - what packer and unpacker share.
 */
#include "stages.h"

#include "bits.h"

#include <mem/support.h>

#include <string.h>

void dunlin__stage_keys(const dunlin__packing *packing, dunlin__draws *out_rotation,
                        dunlin__sampler *out_sampler)
{
    static const uint8_t tag[DUNLIN_PACK_SEED_BYTES] = {'d', 'u', 'n', 'l', 'i', 'n', '.', 'v',
                                                        '1', '.', 'p', 'a', 'c', 'k', 'e', 'd'};
    uint8_t seed[2 * DUNLIN_PACK_SEED_BYTES] = {0};
    memcpy(seed, packing->seed.bytes, DUNLIN_PACK_SEED_BYTES);
    memcpy(seed + DUNLIN_PACK_SEED_BYTES, tag, DUNLIN_PACK_SEED_BYTES);
    memset(out_sampler, 0, sizeof(*out_sampler));
    dunlin__draws_key(out_rotation, seed, DUNLIN_DRAW_ROTATION, packing->round);
    dunlin__draws_key(&out_sampler->draws, seed, DUNLIN_DRAW_SELECTION, packing->round);
}

dunlin_status dunlin__stage_check_tensor(uint32_t index, dunlin_v1_rule_t rule, uint64_t n_elements,
                                         uint64_t n_before, dunlin_error *error)
{
    if (rule != DUNLIN_V1_RULE_AVERAGE && rule != DUNLIN_V1_RULE_STATISTIC) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "compress", 0,
                            "tensor %u has rule %u; a packed stream has AVERAGE and STATISTIC "
                            "ones alone",
                            index, (unsigned)rule);
    }
    if (n_elements > DUNLIN_PACK_ELEMENTS_MAX || n_before > DUNLIN_PACK_ELEMENTS_MAX - n_elements) {
        return dunlin__fail(error, DUNLIN_LIMIT, "compress", 0,
                            "tensor %u: %llu elements after %llu, at most %u are allowed in a "
                            "packed stream",
                            index, (unsigned long long)n_elements, (unsigned long long)n_before,
                            DUNLIN_PACK_ELEMENTS_MAX);
    }
    return DUNLIN_OK;
}

size_t dunlin__stage_finish(float *values, size_t n, float gain)
{
    for (size_t i = 0; i < n; i++) {
        values[i] *= gain;
    }
    return dunlin__bits_not_finite(values, n);
}

float dunlin__stage_factor(uint64_t n_elements, uint64_t n_kept)
{
    return (n_kept > 0) ? (float)((double)n_elements / (double)n_kept) : 1.0f;
}

dunlin_status dunlin__stage_not_finite(uint32_t tensor, uint64_t element, dunlin_error *error)
{
    return dunlin__fail(error, DUNLIN_NUMERIC, "compress", 0,
                        "tensor %u: element %llu is not a finite number", tensor,
                        (unsigned long long)element);
}
