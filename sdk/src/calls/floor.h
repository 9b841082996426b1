/*
 * floor.h - the app's floor of privacy, held against what a server says of a run's noise; and what
 * else of a plan an app forbids.
 */
#ifndef DUNLIN_CLIENT_FLOOR_H
#define DUNLIN_CLIENT_FLOOR_H

#include "context/client_context.h"
#include "secagg/secagg_client.h"

/**
 * Whether noise as it is stated reaches the floor: options.max_epsilon and min_cohort.
 *
 * @param privacy NULL: none is stated.
 * @return OK; LIMIT with one line that names the number, its value and the floor.
 */
DUNLIN_NODISCARD dunlin_status dunlin__floor_check(const dunlin_client_options *options,
                                                   const dunlin_v1_privacy_t *privacy,
                                                   dunlin_error *error);

/** What the app insists on in a secure aggregation. */
dunlin__secagg_floor dunlin__floor_secagg(const dunlin_client_options *options);

/**
 * Whether an offer of training reaches the app's floor of secure aggregation.
 *
 * @return OK; LIMIT with one line that names the number, its value and the floor.
 */
DUNLIN_NODISCARD dunlin_status dunlin__floor_check_secagg(const dunlin_client_options *options,
                                                          const dunlin__offer *offer,
                                                          dunlin_error *error);

/**
 * Whether an offer of training stores what a step keeps as the app allows: options.stores_exact.
 *
 * @return OK; LIMIT with one line that names the option.
 */
DUNLIN_NODISCARD dunlin_status dunlin__floor_check_storage(const dunlin_client_options *options,
                                                           const dunlin__offer *offer,
                                                           dunlin_error *error);

/**
 * Holds an assignment against the whole floor, options.max_update_norm too, and notes for the app's
 * report what is stated.
 *
 * @return OK, also for one that only evaluates; LIMIT as above.
 */
DUNLIN_NODISCARD dunlin_status dunlin__floor_take(dunlin_client *client,
                                                  const dunlin__assignment *assignment);

#endif
