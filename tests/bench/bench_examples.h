/*
 * bench_examples.h - what the programs that time a network share: random examples that cost next to
 * nothing to read, a pinned thread, processor time, a progress line.
 */
#ifndef TESTS_BENCH_EXAMPLES_H
#define TESTS_BENCH_EXAMPLES_H

#include "common/progress.h"

#include <dunlin/model.h>
#include <dunlin/source.h>

/* Random examples: example i is a window of one buffer, so that reading is one copy. */
typedef struct bench_examples {
    unsigned char *buffer;
    size_t buffer_bytes;
    int64_t n_elements; /* of one example */
    int32_t n_classes;
    int64_t n_labels; /* of one example */
} bench_examples;

/* How many tokens a ready-made network knows; 0: its input is floats. */
int64_t bench_vocabulary(const char *network);

/*
 * `n` examples for the model: normal floats (four uniform draws make one near enough), or token
 * numbers below `vocabulary` where that is not 0. The source reads from `out`, which must not move.
 * False without memory.
 */
bool bench_make_examples(const dunlin_model *model, int64_t n, int64_t vocabulary,
                         bench_examples *out, dunlin_source *out_source);
void bench_free_examples(bench_examples *from);

/* Pins the process to as many cores as it has threads, from `core` on, modulo all. */
bool bench_pin(int64_t core, int64_t n_threads);

/* Processor time of the process, in milliseconds. */
double bench_cpu_ms(void);

/* `done` of `total` steps or calls in so many milliseconds; they may end sooner, after max_seconds.
 */
void bench_show(progress *line, int64_t done, int64_t total, double ms, double max_seconds);

/* For qsort(): the smallest first. */
int bench_compare_doubles(const void *left, const void *right);

#endif
