/*
 * ladder_cache.h - fallback plans kept in a file of options.cache_dir.
 */
#ifndef DUNLIN_STEP_LADDER_CACHE_H
#define DUNLIN_STEP_LADDER_CACHE_H

#include "step/context/context.h"

/* What the fallback plans of a planned trainer depend on; it has the first plan alone. */
uint64_t dunlin__ladder_cache_key(const dunlin_trainer *trainer);

/* Takes all fallback plans from the folder instead of the current ones. False: there are none that
 * can be used, and nothing has changed. */
bool dunlin__ladder_cache_load(dunlin_trainer *trainer, uint64_t key);

/* Keeps them. What goes wrong is logged. */
void dunlin__ladder_cache_save(const dunlin_trainer *trainer, uint64_t key);

#endif
