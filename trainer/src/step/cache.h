/*
 * cache.h - plans kept in files: found before planning, written after it.
 */
#ifndef DUNLIN_STEP_CACHE_H
#define DUNLIN_STEP_CACHE_H

#include "handle.h"

/* What both plans depend on, as keys; nothing of it is what a plan was found with. */
typedef struct dunlin_cache_options {
    dunlin_plan_options train; /* its budget is the trainer's, or a bound of its arena */
    dunlin_plan_options infer;
    uint64_t table_bytes; /* of a prepared trainer */
} dunlin_cache_options;

/*
 * Both plans of a prepared trainer, its arena_bytes and least_budget_bytes, from `cache_dir`. OK;
 * MEMORY if the file could not be looked at within the budget; anything else: there is none that
 * can be used. Then a plan may have been taken and must be dropped.
 */
DUNLIN_NODISCARD dunlin_status dunlin__cache_load(dunlin_trainer *trainer,
                                                  const dunlin_cache_options *options);

/* Keeps the plans of a trainer that has been planned. */
void dunlin__cache_save(const dunlin_trainer *trainer, const dunlin_cache_options *options);

#endif
