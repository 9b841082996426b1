/*
 * update_int8.h - the new weights of a training in int8, as they are: a byte a value, and a scale
 * for each tensor (wire/int8.h).
 *
 * The first pass finds each tensor's scale, the second writes; both read the learner anew, so
 * beside it only a block of the model is in memory.
 */
#ifndef DUNLIN_SDK_UPDATE_INT8_H
#define DUNLIN_SDK_UPDATE_INT8_H

#include "update_clip.h"
#include "weights/stream_file.h"

typedef struct dunlin__update_int8 {
    const dunlin__update_values *values;
    const dunlin__clip *clip;  /* settled: whole weights, without a bound */
    const int32_t *base_index; /* of the stream's tensors */
    int32_t n_tensors;
} dunlin__update_int8;

/* Writes the stream "update" into the file. NUMERIC names a tensor that is no int8 with one
 * exponent, LIMIT: more bytes than the client sends a round, CALLBACK: a learner that gives other
 * weights the second time. */
DUNLIN_NODISCARD dunlin_status dunlin__update_int8_write(const dunlin__update_int8 *update,
                                                         dunlin__stream_file *file);

#endif
