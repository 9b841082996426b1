/*
 * hash.h - a number that identifies a graph: the key of what is stored about it.
 *
 * It is the same on every machine. It is not a protection: what is found under a key is checked.
 */
#ifndef DUNLIN_MEM_HASH_H
#define DUNLIN_MEM_HASH_H

#include <mem/graph.h>

/* Takes one more number into a hash; begin with any constant. */
uint64_t dunlin__hash_add(uint64_t hash, uint64_t number);

/*
 * Over all sizes, classes, accesses and rights of a graph, the names of its variants, and its costs
 * if asked for. Names of tensors and ops do not count; without costs, neither do sizes that follow
 * the batch. Same graphs, same hash.
 */
uint64_t dunlin__graph_hash(const dunlin_mem_graph *graph, bool with_costs);

#endif
