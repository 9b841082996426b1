/*
 * packer_parts.h - a packer from inside, for the two files that pack: all elements, or some.
 */
#ifndef DUNLIN_PROTO_PACKER_PARTS_H
#define DUNLIN_PROTO_PACKER_PARTS_H

#include "bits.h"
#include "quantise.h"
#include "stages.h"

/* Before the numbers of a group of LARGEST: how many, the gaps' parameter, bytes and gaps. */
#define DUNLIN_PACKER_GROUP_BYTES (5u + DUNLIN_RICE_BYTES(DUNLIN_PACK_KEPT_BLOCK_MAX))

struct dunlin__tensor_packer {
    dunlin_alloc alloc;
    dunlin__pack_options options;
    dunlin__draws rotation;
    dunlin__draws rounding;
    dunlin__sampler sampler;
    double square;              /* of the tensors that have ended */
    uint64_t n_bytes;           /* likewise */
    uint64_t n_stream_elements; /* of all that have begun */
    uint64_t n_ties;            /* still to be sent of the magnitudes equal to the key */
    bool has_failed;
    bool has_tensor;
    /* Of the current tensor. */
    uint32_t index;
    dunlin_v1_rule_t rule;
    uint64_t n_elements;
    uint64_t n_taken;
    uint64_t n_tensor_bytes;
    uint64_t n_mirrored;   /* elements that the norm and the mirror have seen, of a selection */
    uint64_t n_before_gap; /* elements up to the last that was sent, itself included */
    float gain;
    float factor;
    uint32_t block;
    size_t fill;
    dunlin__norm norm;
    dunlin__stage_values values;
    uint8_t out[DUNLIN_QUANTISE_BYTES]; /* a block's bytes; at its end the codes of one */
};

/* Where a block's codes lie until they are packed: those that have any take at most a byte each, so
 * their bytes end before. */
#define DUNLIN_PACKER_CODES (DUNLIN_QUANTISE_BYTES - DUNLIN_PACK_BLOCK_MAX)
_Static_assert(6u + DUNLIN_PACK_BLOCK_MAX <= DUNLIN_PACKER_CODES &&
                   DUNLIN_PACKER_GROUP_BYTES + 6u + DUNLIN_PACK_KEPT_BLOCK_MAX <=
                       DUNLIN_PACKER_CODES,
               "a block of codes and its bytes do not overlap");

/* Bytes of the tensor, to the sink; values, to the mirror: if there are any. */
dunlin_status dunlin__tensor_packer_emit(dunlin__tensor_packer *packer, const uint8_t *bytes,
                                         size_t n_bytes, dunlin_error *error);
dunlin_status dunlin__tensor_packer_mirror(dunlin__tensor_packer *packer, const float *values,
                                           size_t n_values, dunlin_error *error);

/* Rounds the next block of `n` values in place and puts its bytes into packer->out from `n_head`
 * on. `first` is an element for errors. */
dunlin_status dunlin__tensor_packer_quantise(dunlin__tensor_packer *packer, float *values, size_t n,
                                             size_t n_head, uint64_t first, size_t *out_n_bytes,
                                             dunlin_error *error);

/* packer_kept.c: values of a tensor of which a selection is sent, and its end. */
dunlin_status dunlin__tensor_packer_keep(dunlin__tensor_packer *packer, const float *values,
                                         size_t n_values, dunlin_error *error);
dunlin_status dunlin__tensor_packer_keep_end(dunlin__tensor_packer *packer, dunlin_error *error);

#endif
