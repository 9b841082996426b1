/*
 * pack_model.h - a few tensors through a packer and an unpacker, in memory, for the tests of packed
 * streams.
 */
#ifndef DUNLIN_TESTS_PACK_MODEL_H
#define DUNLIN_TESTS_PACK_MODEL_H

#include "pack_cases.h"

#define PACK_MAX_TENSORS 6

typedef struct pack_model {
    size_t n_tensors;
    dunlin_v1_rule_t rules[PACK_MAX_TENSORS];
    size_t n_values[PACK_MAX_TENSORS];
    size_t n_all;  /* of all tensors */
    float *values; /* one tensor after another */
} pack_model;

/* What came of packing. */
typedef struct pack_result {
    uint8_t *bytes;
    size_t n_bytes;
    size_t capacity;
    uint64_t stored[PACK_MAX_TENSORS];
    double squares[PACK_MAX_TENSORS];
    double square;
    float *mirrored; /* of the AVERAGE tensors */
    size_t n_mirrored;
} pack_result;

/* Tensors of random sizes, statistics and empty ones among them; values of random scales. */
pack_model pack_model_random(uint64_t *state);
/* One AVERAGE tensor of `n` normal values. */
pack_model pack_model_normal(size_t n, uint64_t *state);
void pack_model_free(pack_model *model);

dunlin__pack_options pack_options(const dunlin__packing *packing, const pack_model *model,
                                  uint64_t draws);

/* Packs all of it, in pieces of at most `piece` values (0: random sizes), with `gain`. With
 * `is_measured` there is no sink. Asserts that all goes well. */
pack_result pack_all_of(const dunlin__pack_options *options, const pack_model *model, float gain,
                        size_t piece, bool is_measured);
void pack_result_free(pack_result *result);

/* Unpacks into `out_values` (all tensors'); its status. `out_square` may be NULL. */
dunlin_status pack_read(const dunlin__packing *packing, const pack_model *model,
                        const pack_result *packed, float *out_values, double *out_square,
                        dunlin_error *error);

#endif
