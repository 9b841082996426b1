/*
 * unpacker_kept.c - puts the numbers of a selection back into their places, window by window.
 */
#include "unpacker_parts.h"

#include <mem/support.h>

#include <string.h>

/* Which elements the next group of LARGEST is of, from its gaps. */
static dunlin_status read_gaps(dunlin__tensor_unpacker *unpacker, dunlin_error *error)
{
    uint8_t head[3];
    uint32_t *gaps = unpacker->values.kept.gaps;
    DUNLIN_TRY(dunlin__tensor_unpacker_read(unpacker, head, 2, error));
    const size_t n = dunlin__take_u16(head);
    const uint64_t room = unpacker->n_elements - unpacker->n_before_gap;
    if (n > unpacker->packing.block_values || n > room) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "compress", 0,
                            "tensor %u: a group of %zu numbers, %u at most and %llu elements are "
                            "left",
                            unpacker->index, n, unpacker->packing.block_values,
                            (unsigned long long)room);
    }
    unpacker->n_group = n;
    unpacker->is_last_group = n < unpacker->packing.block_values;
    if (n == 0) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__tensor_unpacker_read(unpacker, head, 3, error));
    const unsigned rice = head[0];
    const size_t n_bytes = dunlin__take_u16(head + 1);
    if (rice > DUNLIN_RICE_MAX || n_bytes > DUNLIN_RICE_BYTES(n)) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "compress", 0,
                            "tensor %u: gaps with parameter %u in %zu bytes, at most %u and %u are "
                            "allowed",
                            unpacker->index, rice, n_bytes, DUNLIN_RICE_MAX,
                            (unsigned)DUNLIN_RICE_BYTES(n));
    }
    DUNLIN_TRY(dunlin__tensor_unpacker_read(unpacker, unpacker->body, n_bytes, error));
    size_t n_read = dunlin__rice_unpack(unpacker->body, n_bytes, n, rice, room, gaps);
    if (n_read != n) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "compress", 0,
                            "tensor %u: index %zu of a group after element %llu is beyond its "
                            "%llu elements, or its bytes are not just those of %zu gaps",
                            unpacker->index, (n_read < n) ? n_read : n,
                            (unsigned long long)unpacker->n_before_gap,
                            (unsigned long long)unpacker->n_elements, n);
    }
    for (size_t i = 0; i < n; i++) {
        unpacker->values.kept.elements[i] = (uint32_t)(unpacker->n_before_gap + gaps[i]);
        unpacker->n_before_gap += (uint64_t)gaps[i] + 1;
    }
    return DUNLIN_OK;
}

/* The same of RANDOM, from the seed. */
static void draw_group(dunlin__tensor_unpacker *unpacker)
{
    size_t n = 0;
    while (n < unpacker->packing.block_values && unpacker->sampler.n_kept > 0) {
        const uint32_t element = unpacker->sampler.n_looked;
        if (dunlin__sampler_next(&unpacker->sampler)) {
            unpacker->values.kept.elements[n++] = element;
        }
    }
    unpacker->n_group = n;
    unpacker->is_last_group = unpacker->sampler.n_kept == 0;
}

static dunlin_status read_group(dunlin__tensor_unpacker *unpacker, dunlin_error *error)
{
    unpacker->at_group = 0;
    if (unpacker->packing.selection == DUNLIN_V1_SELECTION_LARGEST) {
        DUNLIN_TRY(read_gaps(unpacker, error));
    } else {
        draw_group(unpacker);
    }
    const size_t n = unpacker->n_group;
    if (n == 0) {
        return DUNLIN_OK;
    }
    float *values = unpacker->values.kept.values;
    DUNLIN_TRY(dunlin__tensor_unpacker_numbers(unpacker, n, values, error));
    return dunlin__tensor_unpacker_finish(unpacker, values, n, error);
}

dunlin_status dunlin__tensor_unpacker_kept(dunlin__tensor_unpacker *unpacker, size_t *out_n,
                                           dunlin_error *error)
{
    const uint64_t first = unpacker->n_given;
    const uint64_t n_left = unpacker->n_elements - first;
    const size_t n = (n_left < DUNLIN_STAGE_WINDOW) ? (size_t)n_left : DUNLIN_STAGE_WINDOW;
    float *window = unpacker->values.kept.window;
    memset(window, 0, n * sizeof(float));
    for (;;) {
        if (unpacker->at_group == unpacker->n_group) {
            if (unpacker->is_last_group) {
                break;
            }
            DUNLIN_TRY(read_group(unpacker, error));
            continue;
        }
        const uint32_t element = unpacker->values.kept.elements[unpacker->at_group];
        if (element >= first + n) {
            break;
        }
        window[element - first] = unpacker->values.kept.values[unpacker->at_group++];
    }
    dunlin__norm_add(&unpacker->norm, window, n);
    *out_n = n;
    return DUNLIN_OK;
}
