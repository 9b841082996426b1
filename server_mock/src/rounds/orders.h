/*
 * orders.h - what a plan orders beside the plain training: which parameters are trained and how, a
 * schedule, augmentation, the remainder, clipping of gradients, an ignored label.
 */
#ifndef DUNLIN_SERVER_ORDERS_H
#define DUNLIN_SERVER_ORDERS_H

#include "model/models.h"
#include "task/task.h"

#define DUNLIN_SERVER_FEATURES 16u /* as many as an offer may name */

/* The features that a device needs for the task's plan; `packs`: its update comes packed, if the
 * task wants that. One that cannot pack sends float32. */
size_t dunlin__server_features(const dunlin__server_task *task, bool packs,
                               uint32_t out_features[DUNLIN_SERVER_FEATURES]);

/* Where the task file says nothing of the remainder: join for a named model with batch statistics,
 * keep for others. */
void dunlin__orders_settle(dunlin__server_task *task, const dunlin__layout *layout);

/* The orders of a round into its plan. */
void dunlin__orders_fill(const dunlin__server_task *task, uint64_t round,
                         dunlin__training_plan *plan);

#endif
