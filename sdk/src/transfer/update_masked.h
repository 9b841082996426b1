/*
 * update_masked.h - the update of a round with secure aggregation: whole numbers first, in a file
 * of the round, then masked in blocks on their way into the file that goes up.
 *
 * Between the two devices agree on keys, which may take long; the learner is not kept for it. Only
 * a block of the vector is in memory at a time.
 */
#ifndef DUNLIN_SDK_UPDATE_MASKED_H
#define DUNLIN_SDK_UPDATE_MASKED_H

#include "secagg/secagg_client.h"
#include "update_clip.h"

typedef struct dunlin__update_whole {
    const dunlin__update_values *values;
    const dunlin__clip *clip; /* settled */
    int32_t *base_index;      /* room for one of each tensor of the base */
} dunlin__update_whole;

/* Writes the update as whole numbers, with this device's noise where the terms have it, the weight
 * behind them. The noise is drawn once for the file, which is what is masked, however often that is
 * sent; its seed is kept nowhere. MISMATCH: another number of values
 * than the plan has; UNSUPPORTED names a running statistic; NUMERIC: a value that is not finite;
 * LIMIT: more bytes than the client sends a round; IO, SPACE, MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__update_whole_write(const dunlin__update_whole *whole);

/* Whether the masked update is written, with its manifest. */
bool dunlin__update_is_masked(dunlin_client *client);

/* Masks the whole numbers and writes what goes up, with its manifest; tells the session its name,
 * and removes the whole numbers. DATA: they are not there; what the session returns. */
DUNLIN_NODISCARD dunlin_status dunlin__update_mask(dunlin_client *client,
                                                   dunlin__secagg_client *session);

#endif
