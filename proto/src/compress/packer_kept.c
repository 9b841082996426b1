/*
 * packer_kept.c - packs the largest or a random choice of a tensor's elements, in groups.
 */
#include "packer_parts.h"

#include <mem/support.h>

#include <string.h>

/* Elements from the last that was mirrored up to `end`, with the first `n_kept` of the group in
 * their places and 0 elsewhere; into the norm too. */
static dunlin_status mirror_kept(dunlin__tensor_packer *packer, size_t n_kept, uint64_t end,
                                 dunlin_error *error)
{
    const float *values = packer->values.kept.values;
    const uint32_t *elements = packer->values.kept.elements;
    float *window = packer->values.kept.window;
    size_t at = 0;
    while (packer->n_mirrored < end) {
        const uint64_t first = packer->n_mirrored;
        const uint64_t n_left = end - first;
        const size_t n = (n_left < DUNLIN_STAGE_WINDOW) ? (size_t)n_left : DUNLIN_STAGE_WINDOW;
        memset(window, 0, n * sizeof(float));
        for (; at < n_kept && elements[at] < first + n; at++) {
            window[elements[at] - first] = values[at];
        }
        dunlin__norm_add(&packer->norm, window, n);
        packer->n_mirrored += n;
        DUNLIN_TRY(dunlin__tensor_packer_mirror(packer, window, n, error));
    }
    return DUNLIN_OK;
}

/* The head of a group of LARGEST, with its gaps, into packer->out; its bytes come out. */
static size_t write_gaps(dunlin__tensor_packer *packer, size_t n)
{
    const uint32_t *elements = packer->values.kept.elements;
    uint32_t *gaps = packer->values.kept.gaps;
    size_t n_gap_bytes = 0;
    dunlin__put_u16(packer->out, (uint32_t)n);
    if (n == 0) {
        return 2;
    }
    for (size_t i = 0; i < n; i++) {
        gaps[i] = (uint32_t)(elements[i] - packer->n_before_gap);
        packer->n_before_gap = (uint64_t)elements[i] + 1;
    }
    unsigned rice = dunlin__rice_choose(gaps, n, &n_gap_bytes);
    packer->out[2] = (uint8_t)rice;
    dunlin__put_u16(packer->out + 3, (uint32_t)n_gap_bytes);
    dunlin__rice_pack(gaps, n, rice, packer->out + 5);
    return 5 + n_gap_bytes;
}

static dunlin_status flush_group(dunlin__tensor_packer *packer, dunlin_error *error)
{
    _Static_assert(DUNLIN_PACKER_GROUP_BYTES + 6 + 4 * DUNLIN_PACK_KEPT_BLOCK_MAX <=
                       DUNLIN_QUANTISE_BYTES,
                   "a group fits where a block does");
    const size_t n = packer->fill;
    float *const values = packer->values.kept.values;
    const uint32_t *const elements = packer->values.kept.elements;
    const bool is_largest = packer->options.packing.selection == DUNLIN_V1_SELECTION_LARGEST;
    const size_t n_head = is_largest ? write_gaps(packer, n) : 0;
    size_t n_bytes = 0;
    packer->fill = 0;
    if (n > 0) {
        DUNLIN_TRY(dunlin__tensor_packer_quantise(packer, values, n, n_head, elements[0], &n_bytes,
                                                  error));
        size_t bad = dunlin__stage_finish(values, n, packer->gain);
        if (bad < n) {
            return dunlin__stage_not_finite(packer->index, elements[bad], error);
        }
        DUNLIN_TRY(mirror_kept(packer, n, (uint64_t)elements[n - 1] + 1, error));
    }
    return dunlin__tensor_packer_emit(packer, packer->out, n_head + n_bytes, error);
}

/* Whether the next element is one of the largest. */
static bool is_chosen(dunlin__tensor_packer *packer, float value)
{
    const uint32_t magnitude = dunlin__float_bits(value) & 0x7fffffffu;
    const uint32_t key = packer->options.choice.key;
    if (magnitude != key || packer->n_ties == 0) {
        return magnitude > key;
    }
    packer->n_ties--;
    return true;
}

dunlin_status dunlin__tensor_packer_keep(dunlin__tensor_packer *packer, const float *values,
                                         size_t n_values, dunlin_error *error)
{
    const bool is_largest = packer->options.packing.selection == DUNLIN_V1_SELECTION_LARGEST;
    for (size_t i = 0; i < n_values; i++, packer->n_taken++) {
        if (!(is_largest ? is_chosen(packer, values[i]) : dunlin__sampler_next(&packer->sampler))) {
            continue;
        }
        const float value = is_largest ? values[i] : values[i] * packer->factor;
        if (!dunlin__float_is_finite(value)) {
            return dunlin__stage_not_finite(packer->index, packer->n_taken, error);
        }
        packer->values.kept.values[packer->fill] = value;
        packer->values.kept.elements[packer->fill] = (uint32_t)packer->n_taken;
        packer->fill++;
        if (packer->fill == packer->options.packing.block_values) {
            DUNLIN_TRY(flush_group(packer, error));
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__tensor_packer_keep_end(dunlin__tensor_packer *packer, dunlin_error *error)
{
    /* A group that is not full, perhaps of none, ends a tensor of LARGEST. */
    if (packer->options.packing.selection == DUNLIN_V1_SELECTION_LARGEST || packer->fill > 0) {
        DUNLIN_TRY(flush_group(packer, error));
    }
    return mirror_kept(packer, 0, packer->n_elements, error);
}
