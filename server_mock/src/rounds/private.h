/*
 * private.h - rounds with noise: who is drawn, the seeds of a close, what the run has cost.
 *
 * Calls are made under the server's lock, but for those that say otherwise.
 */
#ifndef DUNLIN_SERVER_PRIVATE_H
#define DUNLIN_SERVER_PRIVATE_H

#include "model/aggregate.h"
#include "state/context.h"

/* Where the noise of a run comes from: meta of its folder, for good. */
#define DUNLIN_NOISE_SECRET "secret"
#define DUNLIN_NOISE_REPEATABLE "repeatable" /* --insecure-noise-seed: nothing is private */
#define DUNLIN_NOISE_SIMULATED "simulated"   /* dp.noise_cohort: nothing is private */

/* Whether the run has noise that nobody can repeat, and as much as it says: what it hides stays
 * hidden. */
bool dunlin__private_is_secret(const dunlin__server *server);

/* Whether who takes part is hidden as well: not from a server of a secure aggregation, which knows
 * it, so that what is counted does not rest on it. */
bool dunlin__private_hides_devices(const dunlin__server *server);

/* Why a run with noise is not private, for people; NULL: it is. */
const char *dunlin__private_note(const dunlin__server *server);

/* The deviation of the noise in units of clip: that of the terms, or less of it where a larger
 * cohort is simulated. */
double dunlin__private_multiplier(const dunlin__server_task *task);

/*
 * Holds the task against what the folder has promised, and keeps the promise there when it is the
 * first one. MISMATCH: the folder's rounds were closed on other terms, with or without noise.
 * ARGUMENT: a seed for noise that devices add. IO.
 */
DUNLIN_NODISCARD dunlin_status dunlin__private_agree(dunlin__server *server, dunlin_error *error);

/* Draws the seed of a round's cohort into its row, where cohorts are drawn and it has none. */
DUNLIN_NODISCARD dunlin_status dunlin__private_open(const dunlin__server *server,
                                                    dunlin__round_row *row, dunlin_error *error);

/* Whom the open round asks: sets in_cohort and n_in_cohort, from the round's seed, or the lowest
 * ranks of those who keep separation and most. */
DUNLIN_NODISCARD dunlin_status dunlin__private_choose(dunlin__server *server, dunlin_error *error);

/* The run's noise as devices get it; false: there is none. */
bool dunlin__private_state(const dunlin__server *server, dunlin_v1_privacy_t *out_privacy);

/* True if the device keeps the separation and the most rounds of the terms. */
bool dunlin__private_may_take_part(const dunlin__server *server, const dunlin__device_row *device);

/* Notes that the device has work in the open round, in the caller's transaction. */
DUNLIN_NODISCARD dunlin_status dunlin__private_take_part(dunlin__server *server,
                                                         dunlin__server_device *device,
                                                         dunlin_error *error);

/* Draws the seed of the noise into the row of a round that begins to close, before it is saved; not
 * where devices add the noise. */
DUNLIN_NODISCARD dunlin_status dunlin__private_begin_close(const dunlin__server *server,
                                                           dunlin__round_row *row,
                                                           dunlin_error *error);

/* The noise of a round that closes: its own, and in a tree that which it takes away again. Follow
 * by dunlin__noise_wipe(). */
DUNLIN_NODISCARD dunlin_status dunlin__private_noise(const dunlin__server *server,
                                                     const dunlin__round_row *row,
                                                     dunlin__noise *out_noise, dunlin_error *error);

/* Each update counts once, and none is longer than the bound. Not locked. */
DUNLIN_NODISCARD dunlin_status dunlin__private_bound(const dunlin__server *server,
                                                     dunlin__aggregate_input *inputs, size_t n,
                                                     dunlin_error *error);

/* What the run has cost when this round is closed, into its row. Not locked. */
DUNLIN_NODISCARD dunlin_status dunlin__private_account(const dunlin__server *server,
                                                       dunlin__round_row *row, dunlin_error *error);

/* Drops the seeds that no later close needs, and who contributed: in the caller's transaction, with
 * the row of the round that is closed. */
DUNLIN_NODISCARD dunlin_status dunlin__private_end_close(dunlin__server *server,
                                                         dunlin__round_row *row,
                                                         dunlin_error *error);

/* After that transaction: drops them from memory and from the database's log as well. */
void dunlin__private_forget(dunlin__server *server);

#endif
