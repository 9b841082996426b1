/*
 * bench_integer.c - convolution and dense layers in integers beside the float kernels as a step
 * runs them (Winograd's algorithm included): milliseconds of each pass and how many times faster
 * the integers are; under a 3 x 3 layer of stride 1 the same beside floats without that algorithm:
 * those of a window whose rows are two apart, which has as many products, and none of it.
 *
 *   bench_integer [--isa NAME] [--network NAME] [--batch N] [--ms N] [--layer TEXT]
 *                 [--times N --side floats|integers --pass forward|input|weights]
 *
 * --isa: a table of integer kernels ("avx512-vnni" is without the dot product) and the float set
 * that it is of. One thread; time is the process's processor time, the least of repetitions that
 * take turns, so that what else the machine does meets both alike.
 */
#define _GNU_SOURCE

#include "bench_layers.h"
#include "kernels/api/integer.h"
#include "kernels/api/kernels.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FORWARD, INPUT_GRAD, WEIGHT_GRAD, N_PASSES };

typedef struct bench {
    const dunlin_kernels *floats;
    const dunlin_int_kernels *ints;
    const char *network;
    const char *layer;
    int64_t batch;
    double seconds;
    long times;       /* nothing is timed: how often `side` does `pass`; -1: all is timed */
    const char *side; /* "floats" or "integers" */
    int pass;         /* -1: none was named */
} bench;

static const char *const PASSES[N_PASSES] = {"forward", "input", "weights"};

typedef struct layer_run {
    dunlin_conv_shape shape;
    dunlin_conv_shape direct; /* as many products, never by Winograd's algorithm */
    bool has_direct;
    size_t n_x, n_y, n_w;
    float *x, *y, *w, *dx, *dy, *dw;
    int8_t *qx, *qy, *qw, *qdx, *qdy;
    int32_t *sums;
    void *workspace, *int_workspace;
} layer_run;

static void *memory(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (p == NULL) {
        (void)fprintf(stderr, "bench_integer: out of memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

static float *floats(size_t n)
{
    float *p = memory(n * sizeof(float));
    uint64_t state = n;
    test_random_fill(p, (int64_t)n, -1.0, 1.0, &state);
    return p;
}

static int8_t *chars(size_t n)
{
    int8_t *p = memory(n);
    uint64_t state = n;
    for (size_t i = 0; i < n; i++) {
        p[i] = (int8_t)((int)test_random_below(&state, 255) - 127);
    }
    return p;
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void layer_open(const bench *b, const layer *l, int32_t tokens, layer_run *run)
{
    const int32_t out = (l->in + 2 * l->pad - l->kernel) / l->stride + 1;
    run->shape = (dunlin_conv_shape){.in_h = tokens > 0 ? tokens : l->in,
                                     .in_w = l->in,
                                     .in_c = l->in_c,
                                     .out_h = tokens > 0 ? tokens : out,
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
    const dunlin_conv_shape *s = &run->shape;
    run->has_direct = l->kernel == 3 && l->stride == 1 && s->groups == 1;
    run->direct = run->shape;
    if (run->has_direct) { /* one more row of padding on each side: the output's size stays */
        run->direct.dilation_h = 2;
        run->direct.pad_top++;
    }
    run->n_x = (size_t)b->batch * (size_t)s->in_h * (size_t)s->in_w * (size_t)s->in_c;
    run->n_y = (size_t)b->batch * (size_t)s->out_h * (size_t)s->out_w * (size_t)s->out_c;
    run->n_w =
        (size_t)l->kernel * (size_t)l->kernel * (size_t)(s->in_c / s->groups) * (size_t)s->out_c;
    run->x = floats(run->n_x);
    run->dx = floats(run->n_x);
    run->y = floats(run->n_y);
    run->dy = floats(run->n_y);
    run->w = floats(run->n_w);
    run->dw = floats(run->n_w);
    run->qx = chars(run->n_x);
    run->qdx = chars(run->n_x);
    run->qy = chars(run->n_y);
    run->qdy = chars(run->n_y);
    run->qw = chars(run->n_w);
    run->sums = memory(run->n_w * sizeof(int32_t));
    uint64_t most = 0;
    uint64_t int_most = 0;
    for (int pass = 0; pass < N_PASSES; pass++) {
        uint64_t sample = 0;
        uint64_t bytes = b->floats->fused_workspace_bytes(s, 1U << pass, 1, &sample);
        bytes += sample * (uint64_t)b->batch;
        most = bytes > most ? bytes : most;
        bytes = b->floats->fused_workspace_bytes(&run->direct, 1U << pass, 1, &sample);
        bytes += sample * (uint64_t)b->batch;
        most = bytes > most ? bytes : most;
        bytes = b->ints->conv_workspace_bytes(s, (dunlin_conv_pass)pass, 0, 1);
        int_most = bytes > int_most ? bytes : int_most;
    }
    run->workspace = memory(most);
    run->int_workspace = memory(int_most);
}

static void layer_close(layer_run *run)
{
    void *all[] = {run->x,
                   run->y,
                   run->w,
                   run->dx,
                   run->dy,
                   run->dw,
                   run->qx,
                   run->qy,
                   run->qw,
                   run->qdx,
                   run->qdy,
                   run->workspace,
                   run->int_workspace,
                   run->sums};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

static void run_floats(const bench *b, const layer_run *run, const dunlin_conv_shape *shape,
                       int pass)
{
    dunlin_fused_call call = {
        .shape = shape,
        .n_samples = b->batch,
        .x = {.x = run->x, .pitch = run->shape.in_c, .low = -INFINITY, .high = INFINITY},
        .w = run->w,
        .y = run->y,
        .y_pitch = run->shape.out_c,
        .low = 0.0f,
        .high = INFINITY,
        .dy = {.g = run->dy, .pitch = run->shape.out_c},
        .is_reset = true,
        .workspace = run->workspace};
    if (pass == FORWARD) {
        b->floats->fused_forward(&call);
        return;
    }
    call.dw = pass == WEIGHT_GRAD ? run->dw : NULL;
    call.dx.out = pass == INPUT_GRAD ? run->dx : NULL;
    call.dx.pitch = run->shape.in_c;
    b->floats->fused_backward(&call);
}

static void run_ints(const bench *b, const layer_run *run, int pass)
{
    dunlin_int_stats stats;
    const dunlin_int_conv_call call = {.shape = &run->shape,
                                       .n_samples = b->batch,
                                       .x = run->qx,
                                       .w = run->qw,
                                       .dy = run->qdy,
                                       .out = pass == FORWARD ? run->qy : run->qdx,
                                       .rounding = {.shift = 13, .stats = &stats, .is_reset = true},
                                       .low = 0,
                                       .high = DUNLIN_INT_MOST,
                                       .sums = run->sums,
                                       .is_reset = true,
                                       .workspace = run->int_workspace};
    if (pass == FORWARD) {
        b->ints->conv_forward(&call);
    } else if (pass == INPUT_GRAD) {
        b->ints->conv_input_grad(&call);
    } else {
        b->ints->conv_weight_grad(&call);
    }
}

/* The least seconds of a pass. */
typedef struct pass_times {
    double floats, ints, direct;
} pass_times;

static pass_times time_pass(const bench *b, const layer_run *run, int pass)
{
    pass_times least = {1e30, 1e30, 1e30};
    double total = 0.0;
    for (int i = 0; i < 3 || (total < b->seconds && i < 1000); i++) {
        const double start = now();
        run_floats(b, run, &run->shape, pass);
        const double middle = now();
        run_ints(b, run, pass);
        const double end = now();
        least.floats = fmin(least.floats, middle - start);
        least.ints = fmin(least.ints, end - middle);
        total += end - start;
        if (run->has_direct) {
            run_floats(b, run, &run->direct, pass);
            least.direct = fmin(least.direct, now() - end);
        }
    }
    return least;
}

static void layer_name(const network *net, const layer *l, char out[64])
{
    (void)snprintf(out, 64, "%dx%d %d->%d k%d s%d%s", net->tokens > 0 ? net->tokens : l->in, l->in,
                   l->in_c, l->out_c, l->kernel, l->stride, l->groups == 0 ? " depthwise" : "");
}

static void repeat_network(const bench *b, const network *net)
{
    for (size_t i = 0; i < net->n_layers; i++) {
        layer_run run;
        char name[64];
        layer_name(net, &net->layers[i], name);
        if (b->layer != NULL && strcmp(b->layer, name) != 0) {
            continue;
        }
        layer_open(b, &net->layers[i], net->tokens, &run);
        for (long n = 0; n < b->times; n++) {
            if (strcmp(b->side, "floats") == 0) {
                run_floats(b, &run, &run.shape, b->pass);
            } else {
                run_ints(b, &run, b->pass);
            }
        }
        layer_close(&run);
    }
}

static void print_layer(const char *name, int count, const pass_times times[N_PASSES],
                        bool has_direct)
{
    (void)printf("%-28s %5d", name, count);
    for (int pass = 0; pass < N_PASSES; pass++) {
        const pass_times *t = &times[pass];
        if (t->ints > 0.0) {
            (void)printf("  %8.3f %8.3f %6.2f", 1e3 * t->floats, 1e3 * t->ints,
                         t->floats / t->ints);
        } else {
            (void)printf("  %24s", "");
        }
    }
    (void)printf("\n");
    if (has_direct) {
        (void)printf("%-34s", "  floats without Winograd");
        for (int pass = 0; pass < N_PASSES; pass++) {
            const pass_times *t = &times[pass];
            if (t->ints > 0.0) {
                (void)printf("  %8.3f %8s %6.2f", 1e3 * t->direct, "", t->direct / t->ints);
            } else {
                (void)printf("  %24s", "");
            }
        }
        (void)printf("\n");
    }
    (void)fflush(stdout);
}

static void run_network(const bench *b, const network *net)
{
    double all[2][N_PASSES] = {{0.0}};
    (void)printf("\n%s, batch %lld, one thread: floats (%s), integers (%s), ms; times faster\n"
                 "%-28s %5s  %24s  %24s  %24s\n",
                 net->name, (long long)b->batch, b->floats->isa, b->ints->isa, "layer", "count",
                 "forward", "input grad", "weight grad");
    for (size_t i = 0; i < net->n_layers; i++) {
        const layer *l = &net->layers[i];
        layer_run run;
        char name[64];
        layer_name(net, l, name);
        if (b->layer != NULL && strstr(name, b->layer) == NULL) {
            continue;
        }
        pass_times times[N_PASSES] = {{.ints = 0.0}};
        layer_open(b, l, net->tokens, &run);
        for (int pass = 0; pass < N_PASSES; pass++) {
            if (i == 0 && pass == INPUT_GRAD && net->tokens == 0) {
                continue; /* nobody wants it */
            }
            times[pass] = time_pass(b, &run, pass);
            all[0][pass] += times[pass].floats * l->count;
            all[1][pass] += times[pass].ints * l->count;
        }
        print_layer(name, l->count, times, run.has_direct);
        layer_close(&run);
    }
    (void)printf("%-34s", "all layers");
    for (int pass = 0; pass < N_PASSES; pass++) {
        (void)printf("  %8.3f %8.3f %6.2f", 1e3 * all[0][pass], 1e3 * all[1][pass],
                     all[0][pass] / all[1][pass]);
    }
    const double floats_all = all[0][0] + all[0][1] + all[0][2];
    const double ints_all = all[1][0] + all[1][1] + all[1][2];
    (void)printf("\nall passes: %.2f and %.2f ms, %.2f times\n", 1e3 * floats_all, 1e3 * ints_all,
                 floats_all / ints_all);
}

static int usage(const char *what)
{
    (void)fprintf(stderr,
                  "bench_integer: %s\nusage: bench_integer [--isa NAME] [--network NAME] "
                  "[--batch N] [--ms N] [--layer TEXT] [--times N --side floats|integers "
                  "--pass forward|input|weights]\n",
                  what);
    return 2;
}

int main(int argc, char **argv)
{
    bench b = {.floats = dunlin__kernels_select(NULL),
               .ints = dunlin__int_kernels_select(NULL),
               .batch = 8,
               .seconds = 0.1,
               .times = -1,
               .pass = -1};
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 >= argc) {
            return usage("an option without a value");
        }
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--isa") == 0) {
            b.floats = dunlin__kernels_select(value);
            b.ints = dunlin__int_kernels_select(value);
        } else if (strcmp(argv[i], "--network") == 0) {
            b.network = value;
        } else if (strcmp(argv[i], "--batch") == 0) {
            b.batch = strtoll(value, NULL, 10);
        } else if (strcmp(argv[i], "--ms") == 0) {
            b.seconds = 1e-3 * strtod(value, NULL);
        } else if (strcmp(argv[i], "--layer") == 0) {
            b.layer = value;
        } else if (strcmp(argv[i], "--times") == 0) {
            b.times = strtol(value, NULL, 10);
        } else if (strcmp(argv[i], "--side") == 0) {
            b.side = value;
        } else if (strcmp(argv[i], "--pass") == 0) {
            for (int pass = 0; pass < N_PASSES; pass++) {
                b.pass = strcmp(value, PASSES[pass]) == 0 ? pass : b.pass;
            }
        } else {
            return usage("an unknown option");
        }
    }
    if (b.floats == NULL || b.ints == NULL) {
        return usage("this machine has no such instruction set");
    }
    if (b.batch < 1) {
        return usage("the batch must be at least 1");
    }
    const bool is_side =
        b.side != NULL && (strcmp(b.side, "floats") == 0 || strcmp(b.side, "integers") == 0);
    if (b.times < -1 || (b.times != -1 && (!is_side || b.pass < 0))) {
        return usage("--times is 0 or more, with --side and --pass");
    }
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        if (b.network == NULL || strcmp(b.network, networks[i].name) == 0) {
            (b.times >= 0 ? repeat_network : run_network)(&b, &networks[i]);
        }
    }
    return 0;
}
