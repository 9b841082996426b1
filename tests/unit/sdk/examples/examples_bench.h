/*
 * examples_bench.h - an example store in a fresh folder with a clock of the test's own.
 */
#ifndef DUNLIN_TESTS_EXAMPLES_BENCH_H
#define DUNLIN_TESTS_EXAMPLES_BENCH_H

#include "client/fake_server.h"
#include "examples/examples.h"

#define BENCH_NOW_MS 1000000000000LL

typedef struct examples_bench {
    char folder[64];
    int64_t now_ms;
    dunlin_examples_options options;
    dunlin_examples *examples;
} examples_bench;

/* A store that allows every task everything; limits are to be set before opening. */
void bench_make(examples_bench *bench);
void bench_open(examples_bench *bench);
void bench_reopen(examples_bench *bench);
void bench_remove(examples_bench *bench);

/* Adds one example of n_bytes bytes, each `value`, labelled with it too; its id. */
int64_t bench_add(examples_bench *bench, uint8_t value, size_t n_bytes, int64_t time_ms);
dunlin_status bench_try(examples_bench *bench, const char *collection, uint8_t value,
                        size_t n_bytes, int64_t time_ms, int64_t *out_id);

/* Chooses for a task and writes the labels in order into `out_labels`, "7,6,5". */
void bench_labels(examples_bench *bench, const char *client, const char *task, int64_t max_examples,
                  char out_labels[256]);

dunlin_examples_stats bench_stats(examples_bench *bench);
/* Closes the store; opening it again is refused with this status. */
void bench_expect_not_opened(examples_bench *bench, dunlin_status wanted);
/* Fixes what a client's assignment "a" trains on; the status is also the error's. */
dunlin_status bench_choose(examples_bench *bench, const char *client, const char *task);

#endif
