/*
 * checkpoint.h - when a checkpoint is written within a round, and what learn.c and the tests see of
 * it.
 */
#ifndef DUNLIN_SDK_CHECKPOINT_H
#define DUNLIN_SDK_CHECKPOINT_H

#include "context/client_context.h"

/* The weights have just been loaded: what the first checkpoint will cost is guessed, and where the
 * guess would put it off, measured with a piece of 2 MiB that is written, synced and removed. */
void dunlin__checkpoint_begin(dunlin_client *client, uint64_t weight_bytes);

/* What the first one may take, in ms; probe_ms: of that piece, or -1 if it could not be written. */
int64_t dunlin__checkpoint_guess(uint64_t weight_bytes, int64_t probe_ms);

/* fixed_ms: as options.checkpoint_ms. 0: at least ten seconds of training apart, and with this one
 * at most a fiftieth of the time trained so far, or a tenth where nearly a minute would be lost. */
bool dunlin__checkpoint_is_due(const dunlin__checkpoint_pace *pace, int64_t fixed_ms);

/* One was made, or failed, and took cost_ms. */
void dunlin__checkpoint_count(dunlin__checkpoint_pace *pace, int64_t cost_ms);

/* Makes one if it is time. Failures are logged and cost nothing but their time. */
void dunlin__checkpoint_tick(dunlin_client *client);

/* Takes up what the journal names, right after load. False: the learner is in an unknown state and
 * must be loaded again; the journal then names nothing. */
bool dunlin__checkpoint_restore(dunlin_client *client);

/* Writes a checkpoint of the current round's training, if the learner can; failures are logged. */
void dunlin__checkpoint_save(dunlin_client *client);
/* Once the update is written and journalled, checkpoints are of no use. */
void dunlin__checkpoint_remove(dunlin_client *client);

/* Keeps what was learned since the last checkpoint, if the round can go on with it. */
void dunlin__round_keep_training(dunlin_client *client);
/* The same, if it is a pause that ended a call of the learner's. */
void dunlin__round_keep_paused(dunlin_client *client);

#endif
