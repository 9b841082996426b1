/*
 * aggregate.h - from the updates of a round to the next model.
 *
 * Streaming: it reads a block of each update, one after another, from a file or out of memory, and
 * holds the blocks of the sums, whatever the sizes of model and cohort. Updates that were summed up
 * as they came are read as their sums.
 */
#ifndef DUNLIN_SERVER_AGGREGATE_H
#define DUNLIN_SERVER_AGGREGATE_H

#include "models.h"
#include "moments_file.h"
#include "noise.h"
#include "sums.h"
#include "task/strategy.h"

typedef struct dunlin__aggregate_input {
    dunlin__server_path path;
    const float *values; /* all of them; NULL: they are in the file */
    double weight;
    double scale;         /* of the update, before it is weighed; 1: as it is */
    int64_t client_index; /* whose it is */
    double norm;          /* negative: not taken */
} dunlin__aggregate_input;

/* What it works on: one of them serves all streams. Zero-initialise. */
typedef struct dunlin__aggregate_room {
    dunlin__sums sums;
    double *means;    /* DUNLIN_AGGREGATE_VALUES */
    float *block;     /* as many */
    double *samples;  /* of robust strategies: all updates of some values, value by value */
    size_t n_samples; /* 0: none */
} dunlin__aggregate_room;
#define DUNLIN_AGGREGATE_VALUES (DUNLIN_WIRE_BLOCK_BYTES / sizeof(float))
#define DUNLIN_AGGREGATE_SAMPLES                                                                   \
    (2u * 1024 * 1024) /* 16 MiB, or one value of each update if more */

/* Room for a strategy and so many inputs. MEMORY. Follow by dunlin__aggregate_room_free(), also
 * after a failure. */
DUNLIN_NODISCARD dunlin_status dunlin__aggregate_room_make(dunlin__aggregate_room *out_room,
                                                           const dunlin__strategy *strategy,
                                                           size_t n_inputs,
                                                           const dunlin_alloc *alloc,
                                                           dunlin_error *error);
void dunlin__aggregate_room_free(dunlin__aggregate_room *room, const dunlin_alloc *alloc);

/*
 * The next model as values: base + sum(w_i * u_i) / sum(w_i), or that quotient alone when whole
 * weights were sent; u_i is scaled first where its `scale` is below 1, whole weights by their
 * difference from the base. Both sums are those of sums.h, so neither blocks, nor arrival, nor the
 * order of `inputs` change a bit. Without inputs it is the base; LOCAL tensors always stay. The
 * next control variate is made likewise, from where the updates have its changes, over all devices
 * there are. Variances stay at 0 or above.
 *
 * With another strategy the quotient's place is taken by the median or the trimmed mean of the
 * u_i, each counting alike, or (of averaged tensors alone) the model goes a step of the server's
 * optimiser along it; the values must then be asked for in order, once. OVERFLOW names a value that
 * no sum takes.
 *
 * With noise each update is rounded to its grid first, and the sums get noise before they are
 * divided, also without inputs; then `weight` is 1 and there is a divisor. Plain data: fill in,
 * use.
 */
typedef struct dunlin__aggregate {
    const dunlin__layout *layout;
    dunlin__layout_part part; /* the stream's tensors: ALL, or AVERAGED */
    uint64_t first_in_inputs; /* where the stream begins in an input's file, in values */
    double divisor;           /* 0: the sum of the weights */
    dunlin__values base;
    const dunlin__aggregate_input *inputs;
    size_t n_inputs;
    const dunlin__sums *sums; /* of all inputs, as they lie in a file; NULL: `inputs` has them */
    bool sends_weights;
    const dunlin__strategy *strategy;
    dunlin__moments_file *moments; /* NULL: the strategy has none, or nothing is aggregated */
    const dunlin__noise *noise;    /* NULL: none */
    dunlin__aggregate_room *room;
} dunlin__aggregate;

dunlin__values dunlin__aggregate_values(dunlin__aggregate *aggregate);

#endif
