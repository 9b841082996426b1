/*
 * clip.h - the bound that the updates of a round are clipped to.
 *
 * It is the task's, or moved from round to round so that a quantile of the updates is within it
 * before they are clipped: each device says one bit, and C becomes C exp(-rate (mean bit -
 * quantile)) (Andrew, Thakkar, McMahan, Ramaswamy 2021, "Differentially Private Learning with
 * Adaptive Clipping", without the noise on the bits).
 */
#ifndef DUNLIN_SERVER_CLIP_H
#define DUNLIN_SERVER_CLIP_H

#include "state/context.h"

/* What the bound stays within. */
#define DUNLIN_CLIP_LEAST 1e-9
#define DUNLIN_CLIP_MOST 1e6

/* The bound of the open round, a float's value as devices get it; 0: none. It follows from the
 * closed rounds and the task, so a restart finds the same. Locked. */
double dunlin__clip_norm(const dunlin__server *server);

/* True if the plan needs more of a device than the feature CLIPPING promises. */
bool dunlin__clip_has_orders(const dunlin__server_task *task);

#endif
