/*
 * unpacker.c - packed bytes in, float32 out, a block at a time.
 */
#include "bits.h"
#include "rotate.h"
#include "unpacker_parts.h"

#include <mem/support.h>

#include <string.h>

_Static_assert(sizeof(struct dunlin__tensor_unpacker) <= DUNLIN_PACK_MEMORY_BYTES,
               "an unpacker keeps within its memory");

dunlin_status dunlin__tensor_unpacker_open(const dunlin__packing *packing,
                                           const dunlin__unpack_source *source,
                                           const dunlin_alloc *alloc,
                                           dunlin__tensor_unpacker **out_unpacker,
                                           dunlin_error *error)
{
    *out_unpacker = NULL;
    DUNLIN_TRY(dunlin__packing_check(packing, error));
    const dunlin_alloc hooks = dunlin__alloc_or_default(alloc);
    dunlin__tensor_unpacker *unpacker = dunlin__alloc_zeroed(&hooks, 1, sizeof(*unpacker));
    if (unpacker == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "compress", 0,
                            "no memory for an unpacker of %zu bytes", sizeof(*unpacker));
    }
    unpacker->alloc = hooks;
    unpacker->packing = *packing;
    unpacker->source = *source;
    dunlin__stage_keys(packing, &unpacker->rotation, &unpacker->sampler);
    *out_unpacker = unpacker;
    return DUNLIN_OK;
}

void dunlin__tensor_unpacker_close(dunlin__tensor_unpacker *unpacker)
{
    if (unpacker != NULL) {
        const dunlin_alloc hooks = unpacker->alloc;
        dunlin__free_array(&hooks, unpacker, 1, sizeof(*unpacker));
    }
}

double dunlin__tensor_unpacker_square(const dunlin__tensor_unpacker *unpacker)
{
    return unpacker->square;
}

dunlin_status dunlin__tensor_unpacker_read(dunlin__tensor_unpacker *unpacker, uint8_t *bytes,
                                           size_t n_bytes, dunlin_error *error)
{
    if (n_bytes > unpacker->n_bytes_left) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "compress", 0,
                            "tensor %u ends with %llu bytes at element %llu, where %zu are needed",
                            unpacker->index, (unsigned long long)unpacker->n_bytes_left,
                            (unsigned long long)unpacker->n_given, n_bytes);
    }
    unpacker->n_bytes_left -= n_bytes;
    return (n_bytes == 0) ? DUNLIN_OK
                          : unpacker->source.read_fn(unpacker->source.ctx, bytes, n_bytes, error);
}

dunlin_status dunlin__tensor_unpacker_fail(const dunlin__tensor_unpacker *unpacker,
                                           const char *wrong, dunlin_error *error)
{
    return dunlin__fail(error, DUNLIN_PROTOCOL, "compress", 0,
                        "tensor %u: the block at element %llu has %s", unpacker->index,
                        (unsigned long long)unpacker->n_given, wrong);
}

dunlin_status dunlin__tensor_unpacker_numbers(dunlin__tensor_unpacker *unpacker, size_t n,
                                              float *out_values, dunlin_error *error)
{
    uint8_t head[8] = {0};
    dunlin__quantise_scale scale;
    const dunlin__packing *packing = &unpacker->packing;
    DUNLIN_TRY(dunlin__tensor_unpacker_read(unpacker, head, dunlin__quantise_head(packing), error));
    const char *wrong = dunlin__quantise_read_head(packing, head, n, &scale);
    if (wrong != NULL) {
        return dunlin__tensor_unpacker_fail(unpacker, wrong, error);
    }
    DUNLIN_TRY(dunlin__tensor_unpacker_read(unpacker, unpacker->body, scale.n_body, error));
    wrong =
        dunlin__quantise_read(packing, &scale, unpacker->body, n,
                              unpacker->body + DUNLIN_UNPACKER_CODES, unpacker->slots, out_values);
    return (wrong != NULL) ? dunlin__tensor_unpacker_fail(unpacker, wrong, error) : DUNLIN_OK;
}

dunlin_status dunlin__tensor_unpacker_finish(dunlin__tensor_unpacker *unpacker, float *values,
                                             size_t n, dunlin_error *error)
{
    size_t bad = dunlin__stage_finish(values, n, unpacker->gain);
    if (bad < n) {
        return dunlin__stage_not_finite(unpacker->index, unpacker->n_given + bad, error);
    }
    return DUNLIN_OK;
}

/* The next block of a tensor of which all is sent. */
static dunlin_status unpack_all(dunlin__tensor_unpacker *unpacker, size_t *out_n,
                                dunlin_error *error)
{
    const uint64_t n_left = unpacker->n_elements - unpacker->n_given;
    const size_t block = unpacker->packing.block_values;
    const size_t n = (n_left < block) ? (size_t)n_left : block;
    const size_t n_padded = unpacker->packing.is_rotated ? dunlin__rotate_size(n) : n;
    float *values = unpacker->values.block;
    unpacker->rotation.tensor = unpacker->index;
    unpacker->rotation.block = unpacker->block++;
    DUNLIN_TRY(dunlin__tensor_unpacker_numbers(unpacker, n_padded, values, error));
    if (unpacker->packing.is_rotated) {
        dunlin__rotate_back(values, n_padded, &unpacker->rotation);
    }
    DUNLIN_TRY(dunlin__tensor_unpacker_finish(unpacker, values, n, error));
    dunlin__norm_add(&unpacker->norm, values, n);
    *out_n = n;
    return DUNLIN_OK;
}

static dunlin_status unpack_statistic(dunlin__tensor_unpacker *unpacker, size_t *out_n,
                                      dunlin_error *error)
{
    const uint64_t n_left = unpacker->n_elements - unpacker->n_given;
    const size_t room = DUNLIN_UNPACKER_BODY_BYTES / sizeof(float);
    const size_t n = (n_left < room) ? (size_t)n_left : room;
    float *values = unpacker->values.block;
    DUNLIN_TRY(dunlin__tensor_unpacker_read(unpacker, unpacker->body, 4 * n, error));
    for (size_t i = 0; i < n; i++) {
        values[i] = dunlin__float_of(dunlin__take_u32(unpacker->body + 4 * i));
    }
    size_t bad = dunlin__bits_not_finite(values, n);
    if (bad < n) {
        return dunlin__stage_not_finite(unpacker->index, unpacker->n_given + bad, error);
    }
    *out_n = n;
    return DUNLIN_OK;
}

/* ---- the calls ---- */

static dunlin_status check_unpacker(const dunlin__tensor_unpacker *unpacker, bool wants_tensor,
                                    dunlin_error *error)
{
    if (unpacker->has_failed || unpacker->has_tensor != wants_tensor) {
        return dunlin__fail(error, DUNLIN_STATE, "compress", 0,
                            "the unpacker %s at tensor %u, %llu of %llu elements",
                            unpacker->has_failed ? "has failed" : "is", unpacker->index,
                            (unsigned long long)unpacker->n_given,
                            (unsigned long long)unpacker->n_elements);
    }
    return DUNLIN_OK;
}

static dunlin_status read_gain(dunlin__tensor_unpacker *unpacker, dunlin_error *error)
{
    uint8_t head[4] = {0};
    DUNLIN_TRY(dunlin__tensor_unpacker_read(unpacker, head, sizeof(head), error));
    unpacker->gain = dunlin__float_of(dunlin__take_u32(head));
    if (!(unpacker->gain > 0.0f && unpacker->gain <= 1.0f)) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "compress", 0,
                            "tensor %u: a gain of %g, above 0 and at most 1 is allowed",
                            unpacker->index, (double)unpacker->gain);
    }
    return DUNLIN_OK;
}

static dunlin_status open_tensor(dunlin__tensor_unpacker *unpacker, uint64_t n_before,
                                 dunlin_error *error)
{
    uint64_t least = 0;
    uint64_t most = 0;
    const uint64_t n_elements = unpacker->n_elements;
    DUNLIN_TRY(
        dunlin__stage_check_tensor(unpacker->index, unpacker->rule, n_elements, n_before, error));
    DUNLIN_TRY(dunlin__packing_bytes(&unpacker->packing, unpacker->rule, n_elements, &least, &most,
                                     error));
    if (unpacker->n_bytes_left < least || unpacker->n_bytes_left > most) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "compress", 0,
                            "tensor %u: %llu packed bytes of %llu elements, %llu to %llu are "
                            "possible",
                            unpacker->index, (unsigned long long)unpacker->n_bytes_left,
                            (unsigned long long)n_elements, (unsigned long long)least,
                            (unsigned long long)most);
    }
    if (unpacker->rule != DUNLIN_V1_RULE_AVERAGE || n_elements == 0) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(read_gain(unpacker, error));
    if (unpacker->packing.selection == DUNLIN_V1_SELECTION_RANDOM) {
        dunlin__sampler_begin(&unpacker->sampler, unpacker->index, (uint32_t)n_elements,
                              (uint32_t)dunlin__packing_kept(&unpacker->packing, n_elements));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__tensor_unpacker_tensor(dunlin__tensor_unpacker *unpacker, uint32_t index,
                                             dunlin_v1_rule_t rule, uint64_t n_elements,
                                             uint64_t stored_bytes, dunlin_error *error)
{
    DUNLIN_TRY(check_unpacker(unpacker, false, error));
    const uint64_t n_before = unpacker->n_stream_elements;
    unpacker->has_tensor = true;
    unpacker->index = index;
    unpacker->rule = rule;
    unpacker->n_elements = n_elements;
    unpacker->n_bytes_left = stored_bytes;
    unpacker->n_given = 0;
    unpacker->n_before_gap = 0;
    unpacker->block = 0;
    unpacker->n_group = 0;
    unpacker->at_group = 0;
    unpacker->is_last_group = false;
    unpacker->norm = (dunlin__norm){.n_values = 0};
    dunlin_status status = open_tensor(unpacker, n_before, error);
    unpacker->has_failed = status != DUNLIN_OK;
    unpacker->n_stream_elements += (status == DUNLIN_OK) ? n_elements : 0;
    return status;
}

static dunlin_status next_values(dunlin__tensor_unpacker *unpacker, size_t *out_n,
                                 dunlin_error *error)
{
    if (unpacker->n_given == unpacker->n_elements) {
        if (unpacker->n_bytes_left > 0) {
            return dunlin__fail(error, DUNLIN_MISMATCH, "compress", 0,
                                "tensor %u: %llu bytes after the last of its %llu elements",
                                unpacker->index, (unsigned long long)unpacker->n_bytes_left,
                                (unsigned long long)unpacker->n_elements);
        }
        unpacker->square += dunlin__norm_square(&unpacker->norm);
        unpacker->has_tensor = false;
        return DUNLIN_OK;
    }
    if (unpacker->rule != DUNLIN_V1_RULE_AVERAGE) {
        return unpack_statistic(unpacker, out_n, error);
    }
    if (unpacker->packing.selection == DUNLIN_V1_SELECTION_ALL) {
        return unpack_all(unpacker, out_n, error);
    }
    return dunlin__tensor_unpacker_kept(unpacker, out_n, error);
}

dunlin_status dunlin__tensor_unpacker_next(dunlin__tensor_unpacker *unpacker,
                                           const float **out_values, size_t *out_n_values,
                                           dunlin_error *error)
{
    size_t n = 0;
    *out_values = NULL;
    *out_n_values = 0;
    DUNLIN_TRY(check_unpacker(unpacker, true, error));
    dunlin_status status = next_values(unpacker, &n, error);
    if (status != DUNLIN_OK) {
        unpacker->has_failed = true;
        return status;
    }
    unpacker->n_given += n;
    *out_values = unpacker->values.block; /* a window begins where a block does */
    *out_n_values = n;
    return DUNLIN_OK;
}
