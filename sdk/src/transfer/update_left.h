/*
 * update_left.h - error feedback: what packing left out of an update, for the next one (Seide et
 * al. 2014; Karimireddy, Rebjock, Stich, Jaggi 2019, "Error Feedback Fixes SignSGD").
 *
 * It is clipped less decoded, and is kept on the device with the update's acceptance (kept.h); it
 * is added to the next update before that is clipped.
 */
#ifndef DUNLIN_SDK_UPDATE_LEFT_H
#define DUNLIN_SDK_UPDATE_LEFT_H

#include "update_pack.h"

/* Reads a packed update back. Zero-initialise; it does not move while it is open. */
typedef struct dunlin__update_left {
    const dunlin__update_pack *pack;
    dunlin__tensor_unpacker *unpacker;
    int fd;
    uint64_t offset;
    int32_t at;        /* the tensor that is being read; -1: none yet */
    const float *rest; /* of the current block */
    size_t n_rest;
} dunlin__update_left;

/* Over the file that the update has been written into. Follow by the close in any case. */
dunlin_status dunlin__update_left_open(dunlin__update_left *left, const dunlin__update_pack *pack,
                                       int fd);
/* Elements [first, first + n) of an averaged tensor of the base; in order, each once. `ctx` is the
 * dunlin__update_left. */
dunlin_status dunlin__update_left_read(void *ctx, int32_t base_index, int64_t first, int64_t n,
                                       float *out);
void dunlin__update_left_close(dunlin__update_left *left);

#endif
