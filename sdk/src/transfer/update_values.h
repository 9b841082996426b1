/*
 * update_values.h - the values of an update: what the learner saved, held against the base, in
 * blocks.
 */
#ifndef DUNLIN_SDK_UPDATE_VALUES_H
#define DUNLIN_SDK_UPDATE_VALUES_H

#include "context/client_context.h"

/* The learner's weights beside the base. `fresh` is what save() gave; the arrays have an entry for
 * each tensor of the base. */
typedef struct dunlin__update_values {
    dunlin_client *client;
    dunlin_weights_reader fresh;
    int32_t *fresh_index; /* of a base tensor: its place in `fresh`; -1: the learner keeps it */
} dunlin__update_values;

/* Takes the learner's weights and pairs them with the base's tensors, in order; LOCAL ones may be
 * left out, all or none. MISMATCH names what is not there, CALLBACK: save() gave nothing usable.
 * Follow by dunlin__update_values_close(), also after a failure. */
dunlin_status dunlin__update_values_open(dunlin_client *client, dunlin__update_values *out);
void dunlin__update_values_close(dunlin__update_values *values);

/* Elements [first, first + n) of base tensor `index`: as they were trained, and as the base has
 * them. Each is a buffer of n. */
dunlin_status dunlin__update_values_read(const dunlin__update_values *values, int32_t index,
                                         int64_t first, int64_t n, float *out_fresh,
                                         float *out_base);

/* True for a tensor that goes up: averaged ones, and statistics if they are asked for. */
bool dunlin__update_has(const dunlin__round *round, int32_t index, bool with_statistics);

/* Their places in the base, in order; the number of them, and the bytes they have as float32. */
int32_t dunlin__update_choose(const dunlin__round *round, bool with_averages, bool with_statistics,
                              int32_t *out_index, uint64_t *total_bytes);

#endif
