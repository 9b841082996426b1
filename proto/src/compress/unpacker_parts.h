/*
 * unpacker_parts.h - an unpacker from inside, for the two files that unpack.
 */
#ifndef DUNLIN_PROTO_UNPACKER_PARTS_H
#define DUNLIN_PROTO_UNPACKER_PARTS_H

#include "bits.h"
#include "entropy.h"
#include "quantise.h"
#include "stages.h"

/* The numbers of one block: at most 8,192 of 2 bytes, or of 1 byte and after them the codes
 * that they are of. */
#define DUNLIN_UNPACKER_BODY_BYTES (2u * DUNLIN_PACK_BLOCK_MAX)
#define DUNLIN_UNPACKER_CODES DUNLIN_PACK_BLOCK_MAX

struct dunlin__tensor_unpacker {
    dunlin_alloc alloc;
    dunlin__packing packing;
    dunlin__unpack_source source;
    dunlin__draws rotation;
    dunlin__sampler sampler;
    double square; /* of the tensors that have ended */
    uint64_t n_stream_elements;
    bool has_failed;
    bool has_tensor;
    /* Of the current tensor. */
    uint32_t index;
    dunlin_v1_rule_t rule;
    uint64_t n_elements;
    uint64_t n_given;
    uint64_t n_bytes_left;
    uint64_t n_before_gap; /* elements up to the last of the groups so far, itself included */
    float gain;
    uint32_t block;
    size_t n_group; /* numbers of the group in memory, and how many of them were given */
    size_t at_group;
    bool is_last_group;
    dunlin__norm norm;
    dunlin__stage_values values;
    uint8_t slots[DUNLIN_ENTROPY_SLOTS];
    uint8_t body[DUNLIN_UNPACKER_BODY_BYTES];
};

/* The tensor's next bytes; MISMATCH where it has no more. */
dunlin_status dunlin__tensor_unpacker_read(dunlin__tensor_unpacker *unpacker, uint8_t *bytes,
                                           size_t n_bytes, dunlin_error *error);
/* PROTOCOL: "tensor 3: the block at element 17 has" what is wrong. */
dunlin_status dunlin__tensor_unpacker_fail(const dunlin__tensor_unpacker *unpacker,
                                           const char *wrong, dunlin_error *error);
/* A head and `n` numbers. */
dunlin_status dunlin__tensor_unpacker_numbers(dunlin__tensor_unpacker *unpacker, size_t n,
                                              float *out_values, dunlin_error *error);
/* The gain; NUMERIC for a product that is not finite. */
dunlin_status dunlin__tensor_unpacker_finish(dunlin__tensor_unpacker *unpacker, float *values,
                                             size_t n, dunlin_error *error);

/* unpacker_kept.c: the next window of a tensor of which a selection was sent. */
dunlin_status dunlin__tensor_unpacker_kept(dunlin__tensor_unpacker *unpacker, size_t *out_n,
                                           dunlin_error *error);

#endif
