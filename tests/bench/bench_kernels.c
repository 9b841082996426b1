/*
 * bench_kernels.c - convolution layers of LeNet-5, MobileNetV2 and ResNet-50, the three passes of
 * each, in GFLOP/s beside the machine's own peak.
 *
 *   bench_kernels [--isa NAME] [--network NAME] [--batch N] [--threads N] [--core N] [--ms N]
 *
 * Time is the process's processor time on one thread (what other programs do matters less), and the
 * clock's on several. The best of a few repetitions counts.
 */
#define _GNU_SOURCE

#include "kernels/kernels.h"
#include "random.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef struct layer {
    int32_t in, in_c, out_c, kernel, stride, pad;
    int32_t groups; /* 0: depthwise */
    int32_t count;  /* how often the network has it */
} layer;

typedef struct network {
    const char *name;
    const layer *layers;
    size_t n_layers;
} network;

static const layer lenet5[] = {
    {28, 1, 6, 5, 1, 2, 1, 1},   {14, 6, 16, 5, 1, 0, 1, 1}, {1, 400, 120, 1, 1, 0, 1, 1},
    {1, 120, 84, 1, 1, 0, 1, 1}, {1, 84, 10, 1, 1, 0, 1, 1},
};

static const layer mobilenet_v2[] = {
    {224, 3, 32, 3, 2, 1, 1, 1},    {112, 32, 32, 3, 1, 1, 0, 1},  {112, 32, 16, 1, 1, 0, 1, 1},
    {112, 16, 96, 1, 1, 0, 1, 1},   {112, 96, 96, 3, 2, 1, 0, 1},  {56, 96, 24, 1, 1, 0, 1, 1},
    {56, 24, 144, 1, 1, 0, 1, 2},   {56, 144, 144, 3, 1, 1, 0, 1}, {56, 144, 24, 1, 1, 0, 1, 1},
    {56, 144, 144, 3, 2, 1, 0, 1},  {28, 144, 32, 1, 1, 0, 1, 1},  {28, 32, 192, 1, 1, 0, 1, 3},
    {28, 192, 192, 3, 1, 1, 0, 2},  {28, 192, 32, 1, 1, 0, 1, 2},  {28, 192, 192, 3, 2, 1, 0, 1},
    {14, 192, 64, 1, 1, 0, 1, 1},   {14, 64, 384, 1, 1, 0, 1, 4},  {14, 384, 384, 3, 1, 1, 0, 4},
    {14, 384, 64, 1, 1, 0, 1, 3},   {14, 384, 96, 1, 1, 0, 1, 1},  {14, 96, 576, 1, 1, 0, 1, 3},
    {14, 576, 576, 3, 1, 1, 0, 2},  {14, 576, 96, 1, 1, 0, 1, 2},  {14, 576, 576, 3, 2, 1, 0, 1},
    {7, 576, 160, 1, 1, 0, 1, 1},   {7, 160, 960, 1, 1, 0, 1, 3},  {7, 960, 960, 3, 1, 1, 0, 3},
    {7, 960, 160, 1, 1, 0, 1, 2},   {7, 960, 320, 1, 1, 0, 1, 1},  {7, 320, 1280, 1, 1, 0, 1, 1},
    {1, 1280, 1000, 1, 1, 0, 1, 1},
};

static const layer resnet50[] = {
    {224, 3, 64, 7, 2, 3, 1, 1},    {56, 64, 64, 1, 1, 0, 1, 1},    {56, 64, 64, 3, 1, 1, 1, 3},
    {56, 64, 256, 1, 1, 0, 1, 4},   {56, 256, 64, 1, 1, 0, 1, 2},   {56, 256, 128, 1, 1, 0, 1, 1},
    {56, 128, 128, 3, 2, 1, 1, 1},  {28, 128, 512, 1, 1, 0, 1, 4},  {56, 256, 512, 1, 2, 0, 1, 1},
    {28, 512, 128, 1, 1, 0, 1, 3},  {28, 128, 128, 3, 1, 1, 1, 3},  {28, 512, 256, 1, 1, 0, 1, 1},
    {28, 256, 256, 3, 2, 1, 1, 1},  {14, 256, 1024, 1, 1, 0, 1, 6}, {28, 512, 1024, 1, 2, 0, 1, 1},
    {14, 1024, 256, 1, 1, 0, 1, 5}, {14, 256, 256, 3, 1, 1, 1, 5},  {14, 1024, 512, 1, 1, 0, 1, 1},
    {14, 512, 512, 3, 2, 1, 1, 1},  {7, 512, 2048, 1, 1, 0, 1, 3},  {14, 1024, 2048, 1, 2, 0, 1, 1},
    {7, 2048, 512, 1, 1, 0, 1, 2},  {7, 512, 512, 3, 1, 1, 1, 2},   {1, 2048, 1000, 1, 1, 0, 1, 1},
};

static const network networks[] = {
    {"lenet5", lenet5, sizeof lenet5 / sizeof lenet5[0]},
    {"mobilenet_v2", mobilenet_v2, sizeof mobilenet_v2 / sizeof mobilenet_v2[0]},
    {"resnet50", resnet50, sizeof resnet50 / sizeof resnet50[0]},
};

typedef struct bench {
    const dunlin_kernels *kernels;
    const char *network;
    int64_t batch;
    size_t n_threads;
    int core;       /* -1: any */
    double seconds; /* of a measurement */
    pthreadpool_t threads;
} bench;

static double now(const bench *b)
{
    struct timespec t;
    (void)clock_gettime(b->n_threads > 1 ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#if defined(__x86_64__)
#define PEAK_STEPS 20000000

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

static double peak_gflops(const bench *b)
{
    const char *isa = b->kernels->isa;
    const int width = strcmp(isa, "avx512") == 0 ? 16 : strcmp(isa, "avx2") == 0 ? 8 : 0;
    if (width == 0) {
        return 0.0;
    }
    double best = 0.0;
    volatile float sink = 0.0f;
    for (int i = 0; i < 5; i++) {
        double start = now(b);
        sink += width == 16 ? peak_avx512(0.5f) : peak_avx2(0.5f);
        double rate = 2e-9 * width * PEAK_STEPS / (now(b) - start);
        best = rate > best ? rate : best;
    }
    (void)sink;
    return best;
}
#else
static double peak_gflops(const bench *b)
{
    (void)b;
    return 0.0;
}
#endif

typedef struct layer_run {
    dunlin_conv_shape shape;
    float *x, *w, *y, *dy, *dx, *dw, *bias, *workspace;
    double flops;
    double seconds[3];
} layer_run;

static float *floats(size_t n)
{
    float *p = aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64 + 64);
    if (p == NULL) {
        (void)fprintf(stderr, "bench_kernels: out of memory for %zu floats\n", n);
        exit(1);
    }
    uint64_t state = n;
    test_random_fill(p, (int64_t)n, -1.0, 1.0, &state);
    return p;
}

static size_t workspace_bytes(const bench *b, const dunlin_conv_shape *shape)
{
    size_t most = 0;
    for (int pass = 0; pass < 3; pass++) {
        size_t bytes =
            b->kernels->conv_workspace_bytes(shape, (dunlin_conv_pass)pass, b->n_threads);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void layer_open(const bench *b, const layer *l, layer_run *run)
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
    const size_t n = (size_t)b->batch;
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
    run->bias = floats((size_t)l->out_c);
    run->workspace = floats(workspace_bytes(b, &run->shape) / sizeof(float) + 1);
    run->flops = 2.0 * (double)n * out * out * (double)n_w;
}

static void layer_close(layer_run *run)
{
    float *all[] = {run->x, run->dx, run->y, run->dy, run->w, run->dw, run->bias, run->workspace};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

static void run_pass(const bench *b, const layer_run *run, dunlin_conv_pass pass)
{
    dunlin_conv_call call = {.shape = &run->shape,
                             .n_samples = b->batch,
                             .x = run->x,
                             .w = run->w,
                             .bias = run->bias,
                             .dy = run->dy,
                             .is_reset = true,
                             .workspace = run->workspace,
                             .threads = b->threads};
    switch (pass) {
    case DUNLIN_CONV_FORWARD:
        call.out = run->y;
        b->kernels->conv_forward(&call);
        break;
    case DUNLIN_CONV_INPUT_GRAD:
        call.out = run->dx;
        b->kernels->conv_input_grad(&call);
        break;
    case DUNLIN_CONV_WEIGHT_GRAD:
        call.out = run->dw;
        b->kernels->conv_weight_grad(&call);
        break;
    }
}

static double time_pass(const bench *b, const layer_run *run, dunlin_conv_pass pass)
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

static void run_network(const bench *b, const network *net, double peak)
{
    (void)printf("\n%s, batch %lld, %s, %zu thread(s); GFLOP/s and %% of the peak of one core\n"
                 "%-28s %5s  %15s %15s %15s\n",
                 net->name, (long long)b->batch, b->kernels->isa, b->n_threads, "layer", "count",
                 "forward", "input grad", "weight grad");
    double total[3] = {0.0};
    double flops = 0.0;
    for (size_t i = 0; i < net->n_layers; i++) {
        const layer *l = &net->layers[i];
        layer_run run;
        layer_open(b, l, &run);
        char name[64];
        (void)snprintf(name, sizeof name, "%dx%d %d->%d k%d s%d%s", l->in, l->in, l->in_c, l->out_c,
                       l->kernel, l->stride, l->groups == 0 ? " depthwise" : "");
        (void)printf("%-28s %5d", name, l->count);
        for (int pass = 0; pass < 3; pass++) {
            double seconds = time_pass(b, &run, (dunlin_conv_pass)pass);
            double rate = 1e-9 * run.flops / seconds;
            total[pass] += seconds * l->count;
            (void)printf("  %8.1f %4.0f%%", rate, peak > 0.0 ? 100.0 * rate / peak : 0.0);
        }
        flops += run.flops * l->count;
        (void)printf("\n");
        (void)fflush(stdout);
        layer_close(&run);
    }
    double all = total[0] + total[1] + total[2];
    (void)printf("%-34s  %8.1f ms     %8.1f ms     %8.1f ms   = %.1f ms, %.1f GFLOP/s\n",
                 "all layers", 1e3 * total[0], 1e3 * total[1], 1e3 * total[2], 1e3 * all,
                 3e-9 * flops / all);
}

static int usage(const char *what)
{
    (void)fprintf(stderr,
                  "bench_kernels: %s\nusage: bench_kernels [--isa NAME] [--network NAME] "
                  "[--batch N] [--threads N] [--core N] [--ms N]\n",
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
               .seconds = 0.1};
    int failed = parse(&b, argc, argv);
    if (failed != 0) {
        return failed;
    }
    if (b.core >= 0 && !pin(b.core)) {
        return usage("the core cannot be had");
    }
    b.threads = b.n_threads > 1 ? pthreadpool_create(b.n_threads) : NULL;
    const double peak = peak_gflops(&b);
    (void)printf("peak of one core, multiply-adds in registers: %.1f GFLOP/s (%s)\n", peak,
                 b.kernels->isa);
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        if (b.network == NULL || strcmp(b.network, networks[i].name) == 0) {
            run_network(&b, &networks[i], peak);
        }
    }
    if (b.threads != NULL) {
        pthreadpool_destroy(b.threads);
    }
    return 0;
}
