/*
 * stages.h - what packer and unpacker share: the places of what is drawn, and the last step.
 */
#ifndef DUNLIN_PROTO_STAGES_H
#define DUNLIN_PROTO_STAGES_H

#include "draws.h"
#include "sample.h"

#include <wire/compress.h>

/* Of a window of elements of which few were sent. */
#define DUNLIN_STAGE_WINDOW 4096u

/* The numbers of one block, or of one group of those that are sent. */
typedef union dunlin__stage_values {
    float block[DUNLIN_PACK_BLOCK_MAX];
    struct {
        float window[DUNLIN_STAGE_WINDOW];
        float values[DUNLIN_PACK_KEPT_BLOCK_MAX];
        uint32_t elements[DUNLIN_PACK_KEPT_BLOCK_MAX]; /* where they belong in the tensor */
        uint32_t gaps[DUNLIN_PACK_KEPT_BLOCK_MAX];     /* of LARGEST, between those places */
    } kept;
} dunlin__stage_values;

/* The keys of rotation and selection, from the packing's seed and round. */
void dunlin__stage_keys(const dunlin__packing *packing, dunlin__draws *out_rotation,
                        dunlin__sampler *out_sampler);

/* A tensor that may come next in a stream with `n_before` elements; PROTOCOL for a rule that is
 * neither AVERAGE nor STATISTIC, LIMIT for more elements than a stream can have. */
dunlin_status dunlin__stage_check_tensor(uint32_t index, dunlin_v1_rule_t rule, uint64_t n_elements,
                                         uint64_t n_before, dunlin_error *error);

/* The last step of decoding: multiplies; returns the index of a product that is not finite, or
 * `n`. A gain of 1 changes no bit. */
size_t dunlin__stage_finish(float *values, size_t n, float gain);

/* By how much a sent number of a RANDOM selection is enlarged for the mean to be right. */
float dunlin__stage_factor(uint64_t n_elements, uint64_t n_kept);

/* NUMERIC with the place. */
dunlin_status dunlin__stage_not_finite(uint32_t tensor, uint64_t element, dunlin_error *error);

#endif
