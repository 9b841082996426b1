/*
 * bench_products.c - convolution and dense layers whose products are in integers, as the steps of
 * such a precision run them, beside the float kernels: a row of CSV for each layer and pass.
 *
 *   bench_products [--isa NAME] [--network NAME] [--batch N] [--ms N] [--layer TEXT]
 *
 * Columns: network, layer, how often it is there, pass; milliseconds of the floats (Winograd's
 * algorithm included), of the integers' product, and of the rounding of what it reads; how many
 * times faster both together are; bytes kept of the layer's input until its backward pass, and of
 * the workspace. Weights are rounded in the forward pass, errors in the input's gradient; of errors
 * by channel in the weights'. One thread; time is the process's processor time, the least of
 * repetitions that take turns.
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

static const char *const pass_names[N_PASSES] = {"forward", "input_grad", "weight_grad"};

typedef struct bench {
    const dunlin_kernels *floats;
    const dunlin_int_kernels *ints;
    const char *network, *layer;
    int64_t batch;
    double seconds;
} bench;

typedef struct layer_run {
    dunlin_conv_shape shape;
    size_t n_x, n_y, n_w;
    float *x, *y, *w, *dx, *dy, *dw;
    int8_t *qx, *qw, *qdy;
    int32_t *sums;
    float *units;
    dunlin_int_spread *spreads; /* of each output channel */
    void *workspace, *int_workspace;
    uint64_t workspace_bytes[N_PASSES], int_bytes[N_PASSES];
} layer_run;

typedef struct times {
    double floats, round, product;
} times;

static void *memory(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (p == NULL) {
        (void)fprintf(stderr, "bench_products: out of memory for %zu bytes\n", bytes);
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

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static dunlin_conv_shape shape_of(const layer *l, int32_t tokens)
{
    const int32_t out = (l->in + 2 * l->pad - l->kernel) / l->stride + 1;
    return (dunlin_conv_shape){.in_h = tokens > 0 ? tokens : l->in,
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
}

static void layer_open(const bench *b, const dunlin_conv_shape *s, layer_run *run)
{
    *run = (layer_run){.shape = *s};
    run->n_x = (size_t)b->batch * (size_t)s->in_h * (size_t)s->in_w * (size_t)s->in_c;
    run->n_y = (size_t)b->batch * (size_t)s->out_h * (size_t)s->out_w * (size_t)s->out_c;
    run->n_w = (size_t)s->kernel_h * (size_t)s->kernel_w * (size_t)(s->in_c / s->groups) *
               (size_t)s->out_c;
    run->x = floats(run->n_x);
    run->dx = floats(run->n_x);
    run->y = floats(run->n_y);
    run->dy = floats(run->n_y);
    run->w = floats(run->n_w);
    run->dw = floats(run->n_w);
    run->qx = memory(run->n_x);
    run->qdy = memory(run->n_y);
    run->qw = memory(run->n_w);
    run->sums = memory(run->n_w * sizeof(int32_t));
    run->units = memory((size_t)s->out_c * sizeof(float));
    run->spreads = memory((size_t)s->out_c * sizeof *run->spreads);
    uint64_t most = 0;
    uint64_t int_most = 0;
    for (int pass = 0; pass < N_PASSES; pass++) {
        uint64_t sample = 0;
        uint64_t bytes = b->floats->fused_workspace_bytes(s, 1U << pass, 1, &sample);
        run->workspace_bytes[pass] = bytes + sample * (uint64_t)b->batch;
        run->int_bytes[pass] =
            b->ints->conv_workspace_bytes(s, (dunlin_conv_pass)pass, b->batch, 1);
        most = run->workspace_bytes[pass] > most ? run->workspace_bytes[pass] : most;
        int_most = run->int_bytes[pass] > int_most ? run->int_bytes[pass] : int_most;
    }
    for (int32_t c = 0; c < s->out_c; c++) {
        run->units[c] = 1.0F / (float)DUNLIN_INT_MOST;
    }
    run->workspace = memory(most);
    run->int_workspace = memory(int_most);
}

static void layer_close(layer_run *run)
{
    void *all[] = {run->x,     run->y,       run->w,         run->dx,           run->dy,
                   run->dw,    run->qx,      run->qdy,       run->qw,           run->sums,
                   run->units, run->spreads, run->workspace, run->int_workspace};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

static void run_floats(const bench *b, const layer_run *run, int pass)
{
    dunlin_fused_call call = {
        .shape = &run->shape,
        .n_samples = b->batch,
        .x = {.x = run->x, .pitch = run->shape.in_c, .low = -INFINITY, .high = INFINITY},
        .w = run->w,
        .y = run->y,
        .y_pitch = run->shape.out_c,
        .low = -INFINITY,
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

static void round_all(const bench *b, const layer_run *run, const float *x, size_t n, int8_t *out)
{
    b->ints->quantise_real(&(dunlin_int_real_call){.n_rows = 1,
                                                   .channels = (int64_t)n,
                                                   .x = x,
                                                   .units = run->units,
                                                   .finds_largest = out == NULL,
                                                   .out = out,
                                                   .spreads = run->spreads});
}

static void round_operands(const bench *b, const layer_run *run, int pass)
{
    if (pass == FORWARD) {
        round_all(b, run, run->w, run->n_w, NULL); /* their range, then they */
        round_all(b, run, run->w, run->n_w, run->qw);
        round_all(b, run, run->x, run->n_x, run->qx);
    } else if (pass == INPUT_GRAD) {
        round_all(b, run, run->dy, run->n_y, run->qdy);
    } else {
        b->ints->quantise_real(
            &(dunlin_int_real_call){.n_rows = (int64_t)run->n_y / run->shape.out_c,
                                    .channels = run->shape.out_c,
                                    .is_by_channel = true,
                                    .x = run->dy,
                                    .units = run->units,
                                    .limits = run->units,
                                    .out = run->qdy,
                                    .spreads = run->spreads});
    }
}

static void run_product(const bench *b, const layer_run *run, int pass)
{
    const dunlin_int_conv_call call = {.shape = &run->shape,
                                       .n_samples = b->batch,
                                       .x = run->qx,
                                       .w = run->qw,
                                       .dy = run->qdy,
                                       .out_real = pass == FORWARD ? run->y : run->dx,
                                       .unit = 1e-4F,
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

static times time_pass(const bench *b, const layer_run *run, int pass)
{
    times least = {1e30, 1e30, 1e30};
    double total = 0.0;
    for (int i = 0; i < 3 || (total < b->seconds && i < 1000); i++) {
        const double start = now();
        run_floats(b, run, pass);
        const double after_floats = now();
        round_operands(b, run, pass);
        const double after_rounding = now();
        run_product(b, run, pass);
        const double end = now();
        least.floats = fmin(least.floats, after_floats - start);
        least.round = fmin(least.round, after_rounding - after_floats);
        least.product = fmin(least.product, end - after_rounding);
        total += end - start;
    }
    return least;
}

static void print_row(const char *of_network, const char *name, int count, const char *pass,
                      const times *of, const uint64_t bytes[4])
{
    (void)printf("%s,%s,%d,%s,%.4f,%.4f,%.4f,%.3f,%llu,%llu,%llu,%llu\n", of_network, name, count,
                 pass, 1e3 * of->floats, 1e3 * of->product, 1e3 * of->round,
                 of->floats / (of->product + of->round), (unsigned long long)bytes[0],
                 (unsigned long long)bytes[1], (unsigned long long)bytes[2],
                 (unsigned long long)bytes[3]);
}

static void run_network(const bench *b, const network *net)
{
    times all = {0.0, 0.0, 0.0};
    uint64_t all_bytes[4] = {0, 0, 0, 0};
    for (size_t i = 0; i < net->n_layers; i++) {
        const layer *l = &net->layers[i];
        const dunlin_conv_shape shape = shape_of(l, net->tokens);
        layer_run run;
        char name[64];
        (void)snprintf(name, sizeof name, "%dx%d %d->%d k%d s%d%s",
                       net->tokens > 0 ? net->tokens : l->in, l->in, l->in_c, l->out_c, l->kernel,
                       l->stride, l->groups == 0 ? " depthwise" : "");
        if (b->layer != NULL && strstr(name, b->layer) == NULL) {
            continue;
        }
        layer_open(b, &shape, &run);
        all_bytes[0] += (uint64_t)l->count * run.n_x * sizeof(float);
        all_bytes[1] += (uint64_t)l->count * run.n_x;
        for (int pass = 0; pass < N_PASSES; pass++) {
            if (i == 0 && pass == INPUT_GRAD && net->tokens == 0) {
                continue; /* nobody asks for the error of the input */
            }
            const times of = time_pass(b, &run, pass);
            const uint64_t bytes[4] = {run.n_x * sizeof(float), run.n_x, run.workspace_bytes[pass],
                                       run.int_bytes[pass]};
            print_row(net->name, name, l->count, pass_names[pass], &of, bytes);
            all.floats += of.floats * l->count;
            all.round += of.round * l->count;
            all.product += of.product * l->count;
            all_bytes[2] = bytes[2] > all_bytes[2] ? bytes[2] : all_bytes[2];
            all_bytes[3] = bytes[3] > all_bytes[3] ? bytes[3] : all_bytes[3];
        }
        (void)fflush(stdout);
        layer_close(&run);
    }
    print_row(net->name, "all layers", 1, "all", &all, all_bytes);
}

static int usage(const char *what)
{
    (void)fprintf(stderr,
                  "bench_products: %s\nusage: bench_products [--isa NAME] [--network NAME] "
                  "[--batch N] [--ms N] [--layer TEXT]\n",
                  what);
    return 2;
}

int main(int argc, char **argv)
{
    bench b = {.floats = dunlin__kernels_select(NULL),
               .ints = dunlin__int_kernels_select(NULL),
               .batch = 8,
               .seconds = 0.1};
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
    (void)printf(
        "network,layer,count,pass,float_ms,product_ms,round_ms,times_faster,float_kept_bytes,"
        "product_kept_bytes,float_workspace_bytes,product_workspace_bytes\n");
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        if (b.network == NULL || strcmp(b.network, networks[i].name) == 0) {
            run_network(&b, &networks[i]);
        }
    }
    return 0;
}
