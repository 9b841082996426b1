/*
 * net_random.h - small random networks of all operators: odd sizes, fan-out, branches that lead
 * nowhere.
 */
#ifndef DUNLIN_TESTS_NET_RANDOM_H
#define DUNLIN_TESTS_NET_RANDOM_H

#include "net/net.h"

/* The same seed gives the same network; `net` is freshly initialised. */
void make_random(dunlin_net *net, uint64_t seed);

/* A batch norm couples the samples of a batch: it cannot be cut into slices. */
bool has_batch_norm(const dunlin_net *net);

#endif
