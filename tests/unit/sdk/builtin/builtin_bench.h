/*
 * builtin_bench.h - a small network, its trainers and a learner over them, driven by hand.
 */
#ifndef DUNLIN_TESTS_BUILTIN_BENCH_H
#define DUNLIN_TESTS_BUILTIN_BENCH_H

#include "held_weights.h"

#include <dunlin/builtin.h>

#define BENCH_INPUTS 8
#define BENCH_EXAMPLES 50
#define BENCH_VALUES 400 /* at least what the network has */

typedef struct builtin_bench {
    dunlin_model *model;
    dunlin_trainer_pool *pool;
    dunlin_builtin *builtin;
    dunlin_learner learner;
    held_weights base; /* as a server would send it, over `values` */
    float values[BENCH_VALUES];
    dunlin_weights_reader reader;
    dunlin_task task;
} builtin_bench;

/* How long each reading of examples takes; 0 at each begin. */
extern int64_t bench_pause_ms;

/* The bench's examples: a dunlin_source's read_fn, without a context. */
dunlin_status bench_read(void *ctx, const int64_t *indices, int64_t n, void *out_x, int32_t *out_y);

void bench_begin(builtin_bench *b, int32_t n_trainers);
void bench_end(builtin_bench *b);
dunlin_status bench_load(builtin_bench *b);
void bench_save(builtin_bench *b, float *out);
/* A whole task: load, fit in slices of max_ms, save, unload. */
dunlin_learner_report bench_fit_all(builtin_bench *b, int64_t max_ms, float *out, int *out_calls);
bool bench_same(const float *a, const float *b, int64_t n);

#endif
