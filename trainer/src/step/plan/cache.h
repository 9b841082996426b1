/*
 * cache.h - plans kept in files: found before planning, written after it.
 */
#ifndef DUNLIN_STEP_CACHE_H
#define DUNLIN_STEP_CACHE_H

#include "step/context/context.h"

/* What both plans depend on; nothing of it is what a plan was found with. */
typedef struct dunlin_cache_options {
    dunlin_plan_options train; /* its budget is the trainer's, or a bound of its arena */
    dunlin_plan_options infer;
    uint64_t key;
} dunlin_cache_options;

/* The key of a trainer that is prepared in the form that is made first. */
uint64_t dunlin__cache_key(const dunlin_trainer *trainer, const dunlin_cache_options *options);

/*
 * Both plans of a trainer that is prepared in the form that is made first, its arena_bytes and
 * least_budget_bytes, from `cache_dir`; where they are of the other form, the training graph is
 * built again. OK; MEMORY if the file could not be looked at within the budget; anything else:
 * there is none that can be used. Then a plan may have been taken and must be dropped.
 */
DUNLIN_NODISCARD dunlin_status dunlin__cache_load(dunlin_trainer *trainer,
                                                  const dunlin_cache_options *options);

/* Keeps the plans of a trainer that has been planned, and their form. */
void dunlin__cache_save(const dunlin_trainer *trainer, const dunlin_cache_options *options);

#endif
