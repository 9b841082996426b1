/*
 * bench_kernels.c - the convolution and dense layers of the networks in bench_layers.h: forward,
 * both gradients apart and in one call, in GFLOP/s beside the machine's own peak. Forward and both
 * summed over a network are the limit of its step.
 *
 *   bench_kernels [--isa NAME] [--network NAME] [--batch N] [--threads N] [--core N] [--ms N]
 *                 [--fused 0|1] [--layer TEXT] [--pass N]
 *
 * --layer: those whose name has the text in it; --pass: 0 forward, 1 input gradient, 2 weight
 * gradient, 3 both gradients in one call.
 *
 * --fused 1: as a step runs them before and after batch norm and an activation: an input prologue,
 * sums of the output, a gradient through batch norm, a masked and summed epilogue.
 *
 * Time is the process's processor time on one thread (what other programs do matters less), and the
 * clock's on several. The best of a few repetitions counts.
 */
#define _GNU_SOURCE

#include "bench_layers.h"
#include "kernels/api/kernels.h"
#include "random.h"
#include "start_threads.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define LARGE_PAGE ((size_t)2 << 20)

typedef struct bench {
    const dunlin_kernels *kernels;
    const char *network;
    int64_t batch;
    size_t n_threads;
    int core;       /* -1: any */
    double seconds; /* of a measurement */
    bool is_fused;
    const char *layer; /* NULL: all */
    int pass;          /* -1: all */
    dunlin_threads *threads;
} bench;

static double now(const bench *b)
{
    struct timespec t;
    (void)clock_gettime(b->n_threads > 1 ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#if defined(__x86_64__)
#define PEAK_STEPS 4000000 /* a millisecond or less */

/* Twelve chains: more than latency times throughput needs. */
#define PEAK(name, isa, vector, fma, set)                                                          \
    __attribute__((target(isa))) static float name(float seed)                                     \
    {                                                                                              \
        vector sum[12];                                                                            \
        for (int i = 0; i < 12; i++) {                                                             \
            sum[i] = set(seed + (float)i);                                                         \
        }                                                                                          \
        vector a = set(seed);                                                                      \
        vector b = set(1.0f - seed);                                                               \
        for (int step = 0; step < PEAK_STEPS / 12; step++) {                                       \
            for (int i = 0; i < 12; i++) {                                                         \
                sum[i] = fma(sum[i], a, b);                                                        \
            }                                                                                      \
        }                                                                                          \
        float out = 0.0f;                                                                          \
        for (int i = 0; i < 12; i++) {                                                             \
            out += sum[i][0];                                                                      \
        }                                                                                          \
        return out;                                                                                \
    }

PEAK(peak_avx512, "avx512f", __m512, _mm512_fmadd_ps, _mm512_set1_ps)
PEAK(peak_avx2, "avx2,fma", __m256, _mm256_fmadd_ps, _mm256_set1_ps)

/* Of a core that does nothing else, as warm as it is now. */
static double peak_gflops(const bench *b)
{
    const char *isa = b->kernels->isa;
    const int width = strcmp(isa, "avx512") == 0 ? 16 : strcmp(isa, "avx2") == 0 ? 8 : 0;
    if (width == 0) {
        return 0.0;
    }
    double best = 0.0;
    volatile float epilogue = 0.0f;
    for (int i = 0; i < 5; i++) {
        double start = now(b);
        epilogue += width == 16 ? peak_avx512(0.5f) : peak_avx2(0.5f);
        double rate = 2e-9 * width * PEAK_STEPS / (now(b) - start);
        best = rate > best ? rate : best;
    }
    (void)epilogue;
    return best;
}
#else
static double peak_gflops(const bench *b)
{
    (void)b;
    return 0.0;
}
#endif

enum { FORWARD, INPUT_GRAD, WEIGHT_GRAD, BOTH_GRADS, N_PASSES };

typedef struct layer_run {
    dunlin_conv_shape shape;
    float *x, *w, *y, *dy, *dx, *dw, *of_in, *of_out, *workspace;
    double *sums;
    double flops;
} layer_run;

/* In large pages, as a trainer's arena. */
static float *floats(size_t n)
{
    const size_t align = n * sizeof(float) < LARGE_PAGE ? 64 : LARGE_PAGE;
    const size_t bytes = (n * sizeof(float) + 64 + align - 1) / align * align;
    float *p = aligned_alloc(align, bytes);
    if (p == NULL) {
        (void)fprintf(stderr, "bench_kernels: out of memory for %zu floats\n", n);
        exit(1);
    }
    if (align == LARGE_PAGE) {
        (void)madvise(p, bytes, MADV_HUGEPAGE);
    }
    uint64_t state = n;
    test_random_fill(p, (int64_t)n, -1.0, 1.0, &state);
    return p;
}

static size_t workspace_bytes(const bench *b, const dunlin_conv_shape *shape)
{
    const uint32_t passes[] = {DUNLIN_FUSED_FORWARD, DUNLIN_FUSED_INPUT_GRAD,
                               DUNLIN_FUSED_WEIGHT_GRAD,
                               DUNLIN_FUSED_INPUT_GRAD | DUNLIN_FUSED_WEIGHT_GRAD};
    const uint32_t fusing = DUNLIN_FUSED_VIEW | DUNLIN_FUSED_GRAD | DUNLIN_FUSED_STATS;
    uint64_t most = 0;
    for (int pass = 0; pass < N_PASSES; pass++) {
        uint64_t sample = 0;
        uint64_t bytes = b->kernels->fused_workspace_bytes(
            shape, passes[pass] | (b->is_fused ? fusing : 0), b->n_threads, &sample);
        bytes += sample * (uint64_t)b->batch;
        most = bytes > most ? bytes : most;
    }
    return (size_t)most;
}

static void layer_open(const bench *b, const layer *l, int32_t tokens, layer_run *run)
{
    const int32_t out = (l->in + 2 * l->pad - l->kernel) / l->stride + 1;
    run->shape = (dunlin_conv_shape){.in_h = l->in,
                                     .in_w = l->in,
                                     .in_c = l->in_c,
                                     .out_h = out,
                                     .out_w = out,
                                     .out_c = l->out_c,
                                     .kernel_h = l->kernel,
                                     .kernel_w = l->kernel,
                                     .stride_h = l->stride,
                                     .stride_w = l->stride,
                                     .pad_top = l->pad,
                                     .pad_left = l->pad,
                                     .dilation_h = 1,
                                     .dilation_w = 1,
                                     .groups = l->groups == 0 ? l->in_c : l->groups};
    if (tokens > 0) {
        run->shape.in_h = tokens;
        run->shape.out_h = tokens;
    }
    const size_t n = (size_t)b->batch * (tokens > 0 ? (size_t)tokens : 1);
    const size_t n_x = n * (size_t)l->in * (size_t)l->in * (size_t)l->in_c;
    const size_t n_y = n * (size_t)out * (size_t)out * (size_t)l->out_c;
    const size_t n_w = (size_t)l->kernel * (size_t)l->kernel *
                       (size_t)(l->in_c / run->shape.groups) * (size_t)l->out_c;
    run->x = floats(n_x);
    run->dx = floats(n_x);
    run->y = floats(n_y);
    run->dy = floats(n_y);
    run->w = floats(n_w);
    run->dw = floats(n_w);
    run->of_in = floats((size_t)l->in_c);
    run->of_out = floats((size_t)l->out_c);
    run->sums = (double *)(void *)floats(4 * (size_t)(l->in_c + l->out_c));
    run->workspace = floats(workspace_bytes(b, &run->shape) / sizeof(float) + 1);
    run->flops = 2.0 * (double)n * out * out * (double)n_w;
}

static void layer_close(layer_run *run)
{
    float *all[] = {run->x,  run->dx,    run->y,      run->dy,        run->w,
                    run->dw, run->of_in, run->of_out, run->workspace, (float *)(void *)run->sums};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

static void set_fused(const layer_run *run, int pass, dunlin_fused_call *call)
{
    /* a shortcut's: from what is stored, and the first that a gradient is made of */
    const bool is_shortcut = run->shape.kernel_h == 1 && run->shape.stride_h > 1;
    call->x.scale = is_shortcut ? NULL : run->of_in;
    call->x.shift = run->of_in;
    call->x.low = 0.0f;
    call->x.high = 6.0f;
    call->dy.factor = run->of_out;
    call->dy.raw = run->y;
    call->dy.raw_pitch = run->shape.out_c;
    call->dy.slope = run->of_out;
    call->dy.offset = run->of_out;
    if (pass == FORWARD) {
        call->stat = (dunlin_stat){.about = run->of_out, .sums = run->sums};
        return;
    }
    if (is_shortcut) {
        return;
    }
    call->dx.mask = run->x;
    call->dx.mask_pitch = run->shape.in_c;
    call->dx.mask_scale = run->of_in;
    call->dx.mask_shift = run->of_in;
    call->dx.low = 0.0f;
    call->dx.high = 6.0f;
    call->dx.n_stats = 1;
    call->dx.stats[0] = (dunlin_stat){
        .raw = run->x, .raw_pitch = run->shape.in_c, .about = run->of_in, .sums = run->sums};
}

static void run_pass(const bench *b, const layer_run *run, int pass)
{
    const int32_t in_c = run->shape.in_c;
    const int32_t out_c = run->shape.out_c;
    dunlin_fused_call call = {.shape = &run->shape,
                              .n_samples = b->batch,
                              .x = {.x = run->x, .pitch = in_c, .high = INFINITY},
                              .w = run->w,
                              .y = run->y,
                              .y_pitch = out_c,
                              .low = -INFINITY,
                              .high = INFINITY,
                              .dy = {.g = run->dy, .pitch = out_c},
                              .is_reset = true,
                              .workspace = run->workspace,
                              .threads = b->threads};
    call.x.low = -INFINITY;
    if (b->is_fused) {
        set_fused(run, pass, &call);
    }
    if (pass == FORWARD) {
        b->kernels->fused_forward(&call);
        return;
    }
    call.dw = pass == INPUT_GRAD ? NULL : run->dw;
    if (pass == WEIGHT_GRAD) {
        call.dx = (dunlin_epilogue){.out = NULL};
    } else {
        call.dx.out = run->dx;
        call.dx.pitch = in_c;
    }
    b->kernels->fused_backward(&call);
}

static double time_pass(const bench *b, const layer_run *run, int pass)
{
    double best = 1e30;
    double total = 0.0;
    for (int i = 0; i < 2 || (total < b->seconds && i < 1000); i++) {
        double start = now(b);
        run_pass(b, run, pass);
        double seconds = now(b) - start;
        best = seconds < best ? seconds : best;
        total += seconds;
    }
    return best;
}

static void run_network(const bench *b, const network *net)
{
    (void)printf(
        "\n%s, batch %lld, %s, %zu thread(s)%s; GFLOP/s and %% of one core's peak just after\n"
        "%-28s %5s  %14s %14s %14s %14s\n",
        net->name, (long long)b->batch, b->kernels->isa, b->n_threads, b->is_fused ? ", fused" : "",
        "layer", "count", "forward", "input grad", "weight grad", "both grads");
    double least_peak = 1e30;
    double most_peak = 0.0;
    double total[N_PASSES] = {0.0};
    double flops = 0.0;
    for (size_t i = 0; i < net->n_layers; i++) {
        const layer *l = &net->layers[i];
        layer_run run;
        char name[64];
        (void)snprintf(name, sizeof name, "%dx%d %d->%d k%d s%d%s",
                       net->tokens > 0 ? net->tokens : l->in, l->in, l->in_c, l->out_c, l->kernel,
                       l->stride, l->groups == 0 ? " depthwise" : "");
        if (b->layer != NULL && strstr(name, b->layer) == NULL) {
            continue;
        }
        layer_open(b, l, net->tokens, &run);
        (void)printf("%-28s %5d", name, l->count);
        for (int pass = 0; pass < N_PASSES; pass++) {
            if (b->pass >= 0 && b->pass != pass) {
                continue;
            }
            /* The first layer's input has no gradient: its weights alone are what a step does. */
            const bool is_first = i == 0 && net->tokens == 0;
            const double parts = pass == BOTH_GRADS && !is_first ? 2.0 : 1.0;
            const double seconds =
                time_pass(b, &run, is_first && pass == BOTH_GRADS ? WEIGHT_GRAD : pass);
            const double rate = 1e-9 * parts * run.flops / seconds;
            const double peak = peak_gflops(b);
            least_peak = peak < least_peak ? peak : least_peak;
            most_peak = peak > most_peak ? peak : most_peak;
            total[pass] += seconds * l->count;
            (void)printf("  %7.1f %4.0f%%", rate, peak > 0.0 ? 100.0 * rate / peak : 0.0);
        }
        flops += run.flops * l->count;
        (void)printf("\n");
        (void)fflush(stdout);
        layer_close(&run);
    }
    const double all = total[FORWARD] + total[BOTH_GRADS];
    (void)printf(
        "%-34s %9.1f ms  %9.1f ms  %9.1f ms  %9.1f ms\n"
        "limit of a step (forward, both grads): %.1f ms, %.1f GFLOP/s; peaks %.1f to %.1f\n",
        "all layers", 1e3 * total[FORWARD], 1e3 * total[INPUT_GRAD], 1e3 * total[WEIGHT_GRAD],
        1e3 * total[BOTH_GRADS], 1e3 * all, 3e-9 * flops / all, least_peak, most_peak);
}

static int usage(const char *what)
{
    (void)fprintf(stderr,
                  "bench_kernels: %s\nusage: bench_kernels [--isa NAME] [--network NAME] "
                  "[--batch N] [--threads N] [--core N] [--ms N] [--fused 0|1] [--layer TEXT] "
                  "[--pass N]\n",
                  what);
    return 2;
}

static int parse(bench *b, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 >= argc) {
            return usage("an option without a value");
        }
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--isa") == 0) {
            b->kernels = dunlin__kernels_select(value);
        } else if (strcmp(argv[i], "--network") == 0) {
            b->network = value;
        } else if (strcmp(argv[i], "--batch") == 0) {
            b->batch = strtoll(value, NULL, 10);
        } else if (strcmp(argv[i], "--threads") == 0) {
            b->n_threads = (size_t)strtoull(value, NULL, 10);
        } else if (strcmp(argv[i], "--core") == 0) {
            b->core = (int)strtol(value, NULL, 10);
        } else if (strcmp(argv[i], "--ms") == 0) {
            b->seconds = 1e-3 * strtod(value, NULL);
        } else if (strcmp(argv[i], "--fused") == 0) {
            b->is_fused = strtol(value, NULL, 10) != 0;
        } else if (strcmp(argv[i], "--layer") == 0) {
            b->layer = value;
        } else if (strcmp(argv[i], "--pass") == 0) {
            b->pass = (int)strtol(value, NULL, 10);
        } else {
            return usage("an unknown option");
        }
    }
    if (b->kernels == NULL) {
        return usage("this machine has no such instruction set");
    }
    return b->batch > 0 && b->n_threads > 0 ? 0 : usage("batch and threads must be at least 1");
}

static bool pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}

int main(int argc, char **argv)
{
    bench b = {.kernels = dunlin__kernels_select(NULL),
               .batch = 8,
               .n_threads = 1,
               .core = -1,
               .seconds = 0.1,
               .pass = -1};
    int failed = parse(&b, argc, argv);
    if (failed != 0) {
        return failed;
    }
    if (b.core >= 0 && !pin(b.core)) {
        return usage("the core is not available");
    }
    b.threads = b.n_threads > 1 ? start_threads(b.n_threads) : NULL;
    (void)printf("peak of one core that rested, multiply-adds in registers: %.1f GFLOP/s (%s)\n",
                 peak_gflops(&b), b.kernels->isa);
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        if (b.network == NULL || strcmp(b.network, networks[i].name) == 0) {
            run_network(&b, &networks[i]);
        }
    }
    if (b.threads != NULL) {
        stop_threads(b.threads);
    }
    return 0;
}
