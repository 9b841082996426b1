/*
 * partial.h - part of a round's training: when it is to end, and what it counts for.
 *
 * A device that is too slow for its deadline does what it can (FedProx: Li et al., "Federated
 * optimization in heterogeneous networks", MLSys 2020), if the server's plan asks for that.
 */
#ifndef DUNLIN_SDK_PARTIAL_H
#define DUNLIN_SDK_PARTIAL_H

#include "context/client_context.h"

/* Milliseconds until the plan's share of the deadline is over, at least 1; 0: all of the work is
 * wanted. */
int64_t dunlin__partial_left_ms(const dunlin_client *client);

/* Whether a training that has reported this ends here. Only of a learner that tells its share. */
bool dunlin__partial_is_over(const dunlin_client *client, const dunlin_learner_report *report);

/* The weight of the update, from the examples of the whole training. Once, at its end. */
void dunlin__partial_weigh(dunlin_client *client);

#endif
