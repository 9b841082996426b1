/*
 * bench_profile.c - adds up the time of each op over the steps it watches.
 *
 * Time is the calling thread's processor time while the trainer has no other thread (what else runs
 * on the machine matters less), and the clock's otherwise.
 *
 * Invariant: rates count what the op declares: its multiply-adds, and its operands moved once
 * (twice where they are read and written). Packing and re-reading by a kernel count as time only.
 */
#include "bench_profile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct op_time {
    const dunlin_step_op *op; /* NULL in rows that add up several */
    const char *kernel;
    double ms, flops, bytes;
    int64_t n_calls;
} op_time;

struct bench_profile {
    dunlin_trainer *trainer;
    dunlin_step_watch watch;
    op_time *ops; /* by index of the step's op */
    size_t n_ops;
    double start_ms;
};

double bench_now_ms(void)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec * 1e-6;
}

static double profile_now_ms(const bench_profile *profile)
{
    if (profile->trainer->threads != NULL) {
        return bench_now_ms();
    }
    struct timespec at;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec * 1e-6;
}

static double op_bytes(const dunlin_step_graph *graph, const dunlin_step_op *op, int64_t n)
{
    double bytes = 0.0;
    for (uint32_t i = 0; i < op->n_accesses; i++) {
        const dunlin_step_tensor *tensor = &graph->tensors[op->accesses[i].tensor];
        const bool is_twice = op->accesses[i].mode == DUNLIN_MEM_ACCUMULATE ||
                              op->accesses[i].mode == DUNLIN_MEM_UPDATE;
        const double n_times = (is_twice ? 2.0 : 1.0) * (tensor->is_batched ? (double)n : 1.0);
        bytes += n_times * (double)dunlin__step_tensor_bytes(tensor);
    }
    return bytes;
}

static void note_op(void *ctx, const dunlin_step_op *op, int64_t first, int64_t n_samples,
                    bool is_done)
{
    bench_profile *profile = ctx;
    (void)first;
    if (!is_done) {
        profile->start_ms = profile_now_ms(profile);
        return;
    }
    const double ms = profile_now_ms(profile) - profile->start_ms;
    const dunlin_step_graph *graph = profile->trainer->train.step;
    op_time *time = &profile->ops[op - graph->ops];
    time->op = op;
    time->kernel = op->kernel->name;
    time->ms += ms;
    time->flops += op->flops_fixed + op->flops_per_sample * (double)n_samples;
    time->bytes += op_bytes(graph, op, n_samples);
    time->n_calls++;
}

bench_profile *bench_profile_new(dunlin_trainer *trainer)
{
    bench_profile *profile = calloc(1, sizeof *profile);
    if (profile == NULL) {
        return NULL;
    }
    profile->trainer = trainer;
    profile->n_ops = trainer->train.step->n_ops;
    profile->ops = calloc(profile->n_ops, sizeof *profile->ops);
    if (profile->ops == NULL) {
        free(profile);
        return NULL;
    }
    profile->watch = (dunlin_step_watch){.op_fn = note_op, .ctx = profile};
    trainer->watch = &profile->watch;
    return profile;
}

void bench_profile_free(bench_profile *profile)
{
    if (profile != NULL) {
        profile->trainer->watch = NULL;
        free(profile->ops);
        free(profile);
    }
}

static int compare_ms(const void *left, const void *right)
{
    const double a = ((const op_time *)left)->ms;
    const double b = ((const op_time *)right)->ms;
    return (a < b) - (a > b);
}

static void print_row(const op_time *row, double total_ms, int64_t n_steps, const char *name)
{
    const double seconds = row->ms > 0.0 ? row->ms * 1e-3 : 1e-9;
    (void)printf("%9.3f %5.1f %6.0f %8.1f %7.2f  %-22s %s\n", row->ms / (double)n_steps,
                 100.0 * row->ms / total_ms, (double)row->n_calls / (double)n_steps,
                 row->flops / seconds * 1e-9, row->bytes / seconds * 1e-9, row->kernel, name);
}

void bench_profile_print(const bench_profile *profile, int64_t n_steps, int32_t n_worst)
{
    op_time *kinds = calloc(profile->n_ops, sizeof *kinds);
    if (kinds == NULL || n_steps < 1) {
        free(kinds);
        return;
    }
    size_t n_kinds = 0;
    double total_ms = 0.0;
    for (size_t i = 0; i < profile->n_ops; i++) {
        const op_time *time = &profile->ops[i];
        size_t k = 0;
        if (time->op == NULL) {
            continue;
        }
        while (k < n_kinds && strcmp(kinds[k].kernel, time->kernel) != 0) {
            k++;
        }
        n_kinds += k == n_kinds ? 1 : 0;
        kinds[k].kernel = time->kernel;
        kinds[k].ms += time->ms;
        kinds[k].flops += time->flops;
        kinds[k].bytes += time->bytes;
        kinds[k].n_calls += time->n_calls;
        total_ms += time->ms;
    }
    qsort(kinds, n_kinds, sizeof *kinds, compare_ms);
    (void)printf("\n  ms/step     %%  calls  GFLOP/s    GB/s  kernel\n");
    for (size_t k = 0; k < n_kinds; k++) {
        print_row(&kinds[k], total_ms, n_steps, "");
    }
    (void)printf("%9.3f        in all ops\n\n", total_ms / (double)n_steps);
    free(kinds);

    op_time *sorted = calloc(profile->n_ops, sizeof *sorted);
    if (sorted == NULL) {
        return;
    }
    memcpy(sorted, profile->ops, profile->n_ops * sizeof *sorted);
    qsort(sorted, profile->n_ops, sizeof *sorted, compare_ms);
    (void)printf("  ms/step     %%  calls  GFLOP/s    GB/s  kernel                 op\n");
    for (size_t i = 0; i < profile->n_ops && i < (size_t)n_worst && sorted[i].op != NULL; i++) {
        print_row(&sorted[i], total_ms, n_steps, sorted[i].op->name);
    }
    free(sorted);
}
