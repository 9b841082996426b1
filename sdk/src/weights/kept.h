/*
 * kept.h - what a device keeps of a task from round to round and never sends: its personal (LOCAL)
 * tensors, and SCAFFOLD's control variate of its own.
 *
 * Two files alternate, as those of checkpoints do: a round writes the one that the journal does not
 * name, and the transaction that records that the update was accepted names it. So a round that
 * fails leaves everything as it was.
 */
#ifndef DUNLIN_SDK_LOCAL_H
#define DUNLIN_SDK_LOCAL_H

#include "context/client_context.h"

#define DUNLIN_STREAM_LOCAL "local"
#define DUNLIN_STREAM_RESIDUAL "residual" /* what packing left out of the update */

/* What a round leaves for the next update: read_fn gives elements [first, first + n) of an averaged
 * tensor of the base, in order. */
typedef struct dunlin__kept_residual {
    void *ctx;
    dunlin_status (*read_fn)(void *ctx, int32_t base_index, int64_t first, int64_t n, float *out);
} dunlin__kept_residual;

/* Where the two parts of a file lie. Any thread. */
dunlin_status dunlin__local_paths(const dunlin_client *client, int32_t slot,
                                  char out_manifest[DUNLIN_FILE_PATH_BYTES],
                                  char out_values[DUNLIN_FILE_PATH_BYTES], dunlin_error *error);

/* Finds the kept values for the tensors of the open base. What cannot be read is logged and counts
 * as nothing kept; LOCKED, IO and MEMORY are passed on: later. */
dunlin_status dunlin__local_open(dunlin_client *client);
void dunlin__local_close(dunlin_client *client);

/*
 * Writes what the round leaves, if anything: LOCAL tensors as `fresh` has them (fresh_index: a base
 * tensor's place in it, -1: none), for SCAFFOLD the device's variate, and the residual if that is
 * not NULL. Sets the journal's
 * kept_pending, which the caller brings to the storage.
 */
dunlin_status dunlin__local_write(dunlin_client *client, const dunlin_weights_reader *fresh,
                                  const int32_t *fresh_index,
                                  const dunlin__kept_residual *residual);

/* Elements [first, first + n) of an averaged tensor's residual, of what is kept: zeros where there
 * is none, or it is older than the plan wants. `ctx` is the client. */
dunlin_status dunlin__kept_residual_read(void *ctx, int32_t base_index, int64_t first, int64_t n,
                                         float *out);

/* Removes the file that the journal does not name. Best effort, between rounds. */
void dunlin__local_settle(dunlin_client *client);
/* Removes all. */
void dunlin__local_wipe(dunlin_client *client);

#endif
