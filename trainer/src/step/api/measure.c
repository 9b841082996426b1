/*
 * measure.c - measures what each operation of a training step costs on this device.
 *
 * A trainer is made for it, of the same network and options but over random examples and with a
 * rate that leaves the weights where they are; its steps at two batches are watched, and a line
 * through the two medians of an operation gives what it takes per slice and per sample.
 *
 * Invariant: the graph that is measured is the one that the caller's options make, and both batches
 * run as one slice, without recomputation (except for a budget that allows a single sample at
 * most).
 */
#include "integer/precision.h"
#include "step/context/context.h"
#include "step/context/options.h"
#include "step/lower/costs.h"
#include "step/run/clock.h"

#include <mem/hash.h>
#include <mem/support.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FIRST_BATCH 8
#define MOST_BATCH 32
#define BATCH_RATIO 4 /* of the two that are measured */
#define WIDE_NS 2e8   /* a step of MOST_BATCH must not take longer, by the roofline */
#define MIN_RUNS 3
#define MAX_RUNS 25
#define ENOUGH_MS 500.0 /* of runs at one batch */
#define RATE 1e-12F     /* too small to change a weight, too large for denormal products */
#define N_FLOATS 4096

typedef struct probe {
    dunlin_alloc alloc;
    dunlin_trainer *trainer;
    dunlin_step_watch watch;
    size_t n_ops;
    double *step_ns;    /* of the current step: each op's calls added up */
    uint32_t *n_calls;  /* of the current step */
    float *runs;        /* n_ops x MAX_RUNS: nanoseconds of a call */
    double *medians[2]; /* by batch and op */
    double start_ns;    /* of the current call */
    double clock_ns;    /* what looking at the clock adds to a call */
    int64_t n_elements; /* of an example */
    int64_t n_outputs;  /* of the model: labels by classes */
    int64_t n_labels, n_classes;
    bool is_whole; /* the model reads numbers below `vocabulary` */
    int64_t vocabulary;
    float floats[N_FLOATS];
} probe;

/* --- random examples --- */

static uint32_t next_random(uint64_t *state)
{
    *state = dunlin__hash_add(*state, 1);
    return (uint32_t)(*state >> 32);
}

/* Near enough to normal: of mean 0 and deviation 1. Or whole numbers. */
static void draw_values(probe *to)
{
    uint64_t state = 1;
    for (size_t i = 0; i < N_FLOATS; i++) {
        if (to->is_whole) {
            to->floats[i] = (float)(next_random(&state) % (uint64_t)to->vocabulary);
            continue;
        }
        double sum = -2.0;
        for (int k = 0; k < 4; k++) {
            sum += (double)next_random(&state) * 0x1p-32;
        }
        to->floats[i] = (float)(sum * sqrt(3.0));
    }
}

/* An example is the values again and again, from a place of its own on. */
static void fill_inputs(const probe *from, const int64_t *indices, int64_t n, float *out_x)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t at = (indices[i] * 977 + 1) % N_FLOATS;
        for (int64_t left = from->n_elements; left > 0;) {
            const int64_t room = N_FLOATS - at;
            const int64_t part = left < room ? left : room;
            memcpy(out_x, from->floats + at, (size_t)part * sizeof *out_x);
            out_x += part;
            left -= part;
            at = 0;
        }
    }
}

static dunlin_status read_labels(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_y)
{
    const probe *from = ctx;
    fill_inputs(from, indices, n, out_x);
    for (int64_t i = 0; i < n * from->n_labels; i++) {
        out_y[i] = (int32_t)((indices[i / from->n_labels] + i) * 31 % from->n_classes);
    }
    return DUNLIN_OK;
}

static dunlin_status read_targets(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                  float *out_targets)
{
    const probe *from = ctx;
    fill_inputs(from, indices, n, out_x);
    for (int64_t i = 0; i < n * from->n_outputs; i++) {
        out_targets[i] = (float)(i & 1);
    }
    return DUNLIN_OK;
}

static dunlin_source random_source(probe *from, dunlin_loss loss)
{
    const bool has_targets = loss != DUNLIN_LOSS_CROSS_ENTROPY;
    return (dunlin_source){
        .struct_size = sizeof(dunlin_source),
        .ctx = from,
        .read_fn = has_targets ? NULL : read_labels,
        .read_targets_fn = has_targets ? read_targets : NULL,
        .n_targets = from->n_outputs,
        .n_labels = from->n_labels,
        .n_examples = MOST_BATCH,
        .dtype = DUNLIN_F32,
    };
}

/* --- watching --- */

/* The thread's own time where it is alone: what else runs on the machine matters less. */
static double now_ns(const probe *at)
{
    struct timespec now = {0, 0};
    (void)clock_gettime(at->trainer->threads == NULL ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC,
                        &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void note_op(void *ctx, const dunlin_step_op *op, int64_t first, int64_t n_samples,
                    bool is_done)
{
    probe *to = ctx;
    (void)first;
    (void)n_samples;
    if (!is_done) {
        to->start_ns = now_ns(to);
        return;
    }
    const double ns = now_ns(to) - to->start_ns - to->clock_ns;
    const size_t i = (size_t)(op - to->trainer->train.step->ops);
    to->step_ns[i] += ns > 0.0 ? ns : 0.0;
    to->n_calls[i]++;
}

static void find_clock_ns(probe *to)
{
    double least = 1e9;
    for (int i = 0; i < 100; i++) {
        const double start = now_ns(to);
        const double ns = now_ns(to) - start;
        least = ns < least ? ns : least;
    }
    to->clock_ns = least;
}

static int compare_floats(const void *left, const void *right)
{
    const float a = *(const float *)left;
    const float b = *(const float *)right;
    return (a > b) - (a < b);
}

static dunlin_status run_once(probe *to, const dunlin_source *source, int64_t n, int run)
{
    int64_t indices[MOST_BATCH];
    for (int64_t i = 0; i < n; i++) {
        indices[i] = i;
    }
    memset(to->step_ns, 0, to->n_ops * sizeof *to->step_ns);
    memset(to->n_calls, 0, to->n_ops * sizeof *to->n_calls);
    DUNLIN_TRY(dunlin_trainer_step(to->trainer, source, indices, n, NULL));
    for (size_t i = 0; i < to->n_ops; i++) {
        to->runs[i * MAX_RUNS + (size_t)run] =
            to->n_calls[i] == 0 ? 0.0F : (float)(to->step_ns[i] / (double)to->n_calls[i]);
    }
    return DUNLIN_OK;
}

/* Medians of each op at a batch of n. The first run is not counted: memory and caches are cold. */
static dunlin_status measure_batch(probe *to, const dunlin_source *source, int64_t n,
                                   double *out_medians)
{
    int n_runs = 0;
    DUNLIN_TRY(run_once(to, source, n, 0));
    const double start_ms = dunlin__clock_ms();
    while (n_runs < MIN_RUNS || (n_runs < MAX_RUNS && dunlin__clock_ms() - start_ms < ENOUGH_MS)) {
        DUNLIN_TRY(run_once(to, source, n, n_runs));
        n_runs++;
    }
    for (size_t i = 0; i < to->n_ops; i++) {
        float *runs = to->runs + i * MAX_RUNS;
        qsort(runs, (size_t)n_runs, sizeof *runs, compare_floats);
        out_medians[i] = (double)runs[n_runs / 2];
    }
    return DUNLIN_OK;
}

/* --- the trainer that is watched --- */

static void leave_gradient(void *ctx, int32_t parameter_index, int64_t n, const float *weights,
                           float *gradient, float *const *slots)
{
    (void)ctx;
    (void)parameter_index;
    (void)n;
    (void)weights;
    (void)gradient;
    (void)slots;
}

/* It has a rate. */
static bool is_float(const dunlin_trainer_options *options)
{
    const dunlin_precision *precision = NULL;
    return dunlin__precision_find(options->precision, &precision, NULL) == DUNLIN_OK &&
           !dunlin__precision_is_whole(precision);
}

/* The options as far as they change the step, with nothing of the caller's that would be called. */
static dunlin_trainer_options probe_options(const dunlin_trainer_options *from)
{
    dunlin_trainer_options options = *from;
    options.no_fuse = from->no_fuse || from->policy == DUNLIN_POLICY_NONE;
    options.micro_batch = 0;
    options.lr = is_float(from) ? RATE : from->lr;
    options.schedule = NULL;
    options.gradient_fn = from->gradient_fn != NULL ? leave_gradient : NULL;
    options.gradient_ctx = NULL;
    options.progress_fn = NULL;
    options.slab = NULL;
    options.slab_bytes = 0;
    options.log = (dunlin_log){.write_fn = NULL};
    options.costs = NULL;
    options.cache_dir = NULL;
    return options;
}

static dunlin_status create_for(const dunlin_model *model, const dunlin_trainer_options *from,
                                int64_t batch, dunlin_trainer **out_trainer, dunlin_error *error)
{
    dunlin_trainer_options options = *from;
    options.batch = batch;
    options.policy = batch > 1 ? DUNLIN_POLICY_POOL : DUNLIN_POLICY_AUTO;
    return dunlin_trainer_create(model, &options, out_trainer, error);
}

/* By the roofline, all ops once. */
static double predicted_ns(const dunlin_mem_graph *graph, int64_t batch)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const dunlin_mem_variant *variant = &graph->ops[i].variants[0];
        sum += (double)variant->cost_fixed_ns + (double)batch * (double)variant->cost_sample_ns;
    }
    return sum;
}

/* A batch whose step takes long enough to be seen, and not long; as large as the budget allows. */
static dunlin_status create_probed(const dunlin_model *model, const dunlin_trainer_options *options,
                                   dunlin_trainer **out_trainer, dunlin_error *error)
{
    int64_t batch = FIRST_BATCH;
    dunlin_status status = create_for(model, options, batch, out_trainer, error);
    while (status == DUNLIN_BUDGET && batch > 1) {
        batch /= 2;
        status = create_for(model, options, batch, out_trainer, error);
    }
    DUNLIN_TRY(status);
    dunlin__error_clear(error);
    if (batch < FIRST_BATCH ||
        predicted_ns(&(*out_trainer)->train.lowered.graph, MOST_BATCH) > WIDE_NS) {
        return DUNLIN_OK;
    }
    dunlin_error local = {.status = DUNLIN_OK};
    dunlin_trainer *wide = NULL;
    status = create_for(model, options, MOST_BATCH, &wide, &local);
    if (status == DUNLIN_OK) {
        dunlin_trainer_destroy(*out_trainer);
        *out_trainer = wide;
    }
    return DUNLIN_OK;
}

/* --- from times to costs --- */

static uint64_t whole_ns(double ns, double least)
{
    const double most = (double)DUNLIN_COSTS_MAX_NS;
    return (uint64_t)((ns < least ? least : ns > most ? most : ns) + 0.5);
}

/* The line through both times; where noise bends it below zero, the larger batch counts. */
static void fit_line(const probe *from, size_t op, const int64_t batches[2], dunlin_cost_row *row)
{
    const double small_ns = from->medians[0][op];
    const double large_ns = from->medians[1][op];
    const double n = (double)batches[1];
    if (from->trainer->train.step->ops[op].kernel->parts == DUNLIN_MEM_FIXED) {
        row->fixed_ns = whole_ns(0.5 * (small_ns + large_ns), 1.0);
        row->sample_ns = 0;
        return;
    }
    double sample_ns = large_ns / n;
    if (batches[1] > batches[0]) {
        sample_ns = (large_ns - small_ns) / (double)(batches[1] - batches[0]);
        sample_ns = sample_ns < 0.0 ? 0.0 : sample_ns;
        sample_ns = sample_ns * n > large_ns ? large_ns / n : sample_ns;
    }
    row->sample_ns = whole_ns(sample_ns, 0.0);
    row->fixed_ns = whole_ns(large_ns - sample_ns * n, 1.0);
}

static size_t put_text(dunlin_costs *costs, size_t *at, const char *text)
{
    const size_t begin = *at;
    const size_t n = strlen(text) + 1;
    memcpy(costs->texts + begin, text, n);
    *at += n;
    return begin;
}

/* Median over the ops of measured time by the roofline's, at the larger batch. */
static double find_scale(probe *from, int64_t batch)
{
    const dunlin_lowered *lowered = &from->trainer->train.lowered;
    for (size_t i = 0; i < from->n_ops; i++) {
        const double roofline_ns = (double)lowered->variants[i].cost_fixed_ns +
                                   (double)batch * (double)lowered->variants[i].cost_sample_ns;
        from->runs[i] = (float)(from->medians[1][i] / roofline_ns);
    }
    qsort(from->runs, from->n_ops, sizeof *from->runs, compare_floats);
    const double median = (double)from->runs[from->n_ops / 2];
    return median > 1e-3 && median < 1e3 ? median : 1.0;
}

static dunlin_status make_table(probe *from, const int64_t batches[2], dunlin_costs **out_costs,
                                dunlin_error *error)
{
    const dunlin_trainer *trainer = from->trainer;
    const dunlin_step_graph *step = trainer->train.step;
    size_t texts_bytes = 0;
    for (size_t i = 0; i < step->n_ops; i++) {
        texts_bytes += strlen(step->ops[i].name) + strlen(step->ops[i].kernel->name) + 2;
    }
    dunlin_costs *costs = dunlin__costs_new(&from->alloc, step->n_ops, texts_bytes);
    if (costs == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "costs", 0, "no memory for costs of %zu ops",
                            step->n_ops);
    }
    costs->graph = dunlin__graph_hash(&trainer->train.lowered.graph, false);
    (void)strncpy(costs->isa, trainer->kernels->isa, sizeof costs->isa - 1);
    costs->n_threads = trainer->options.n_threads;
    memcpy(costs->batches, batches, sizeof costs->batches);
    costs->scale = find_scale(from, batches[1]);
    size_t at = 0;
    for (size_t i = 0; i < step->n_ops; i++) {
        costs->rows[i].kernel = put_text(costs, &at, step->ops[i].kernel->name);
        costs->rows[i].name = put_text(costs, &at, step->ops[i].name);
        fit_line(from, i, batches, &costs->rows[i]);
    }
    *out_costs = costs;
    return DUNLIN_OK;
}

static void free_probe(probe *from)
{
    const dunlin_alloc alloc = from->alloc;
    for (int i = 0; i < 2; i++) {
        dunlin__free_array(&alloc, from->medians[i], from->n_ops, sizeof *from->medians[i]);
    }
    dunlin__free_array(&alloc, from->runs, from->n_ops * MAX_RUNS, sizeof *from->runs);
    dunlin__free_array(&alloc, from->n_calls, from->n_ops, sizeof *from->n_calls);
    dunlin__free_array(&alloc, from->step_ns, from->n_ops, sizeof *from->step_ns);
    dunlin__free_array(&alloc, from, 1, sizeof *from);
}

static probe *make_probe(const dunlin_model *model, const dunlin_alloc *alloc,
                         dunlin_trainer *trainer)
{
    probe *made = dunlin__alloc_zeroed(alloc, 1, sizeof *made);
    if (made == NULL) {
        return NULL;
    }
    made->alloc = *alloc;
    made->trainer = trainer;
    made->n_ops = trainer->train.step->n_ops;
    made->n_elements = trainer->train.step->n_elements;
    made->n_classes = trainer->train.step->n_classes;
    made->n_labels = trainer->train.step->n_rows;
    made->n_outputs = made->n_labels * made->n_classes;
    made->vocabulary = dunlin_model_vocabulary(model);
    made->is_whole = made->vocabulary > 0;
    made->step_ns = dunlin__alloc_zeroed(alloc, made->n_ops, sizeof *made->step_ns);
    made->n_calls = dunlin__alloc_zeroed(alloc, made->n_ops, sizeof *made->n_calls);
    made->runs = dunlin__alloc_zeroed(alloc, made->n_ops * MAX_RUNS, sizeof *made->runs);
    made->medians[0] = dunlin__alloc_zeroed(alloc, made->n_ops, sizeof *made->medians[0]);
    made->medians[1] = dunlin__alloc_zeroed(alloc, made->n_ops, sizeof *made->medians[1]);
    if (made->step_ns == NULL || made->n_calls == NULL || made->runs == NULL ||
        made->medians[0] == NULL || made->medians[1] == NULL) {
        free_probe(made);
        return NULL;
    }
    draw_values(made);
    return made;
}

/* Both batches, and the table. The trainer's own detail becomes the caller's. */
static dunlin_status measure_with(probe *from, dunlin_costs **out_costs, dunlin_error *error)
{
    dunlin_trainer *trainer = from->trainer;
    const int64_t large = trainer->options.batch;
    const int64_t batches[2] = {large > BATCH_RATIO ? large / BATCH_RATIO : 1, large};
    const dunlin_source source = random_source(from, trainer->options.loss);
    from->watch = (dunlin_step_watch){.op_fn = note_op, .ctx = from};
    trainer->watch = &from->watch;
    find_clock_ns(from);
    dunlin_status status = measure_batch(from, &source, batches[1], from->medians[1]);
    if (status == DUNLIN_OK) {
        status = measure_batch(from, &source, batches[0], from->medians[0]);
    }
    trainer->watch = NULL;
    if (status != DUNLIN_OK) {
        *error = *dunlin_trainer_last_error(trainer);
        return status;
    }
    return make_table(from, batches, out_costs, error);
}

dunlin_status dunlin_costs_measure(const dunlin_model *model, const dunlin_trainer_options *options,
                                   dunlin_costs **out_costs, dunlin_error *out_error)
{
    dunlin_error local = {.status = DUNLIN_OK};
    dunlin_error *error = out_error != NULL ? out_error : &local;
    dunlin__error_clear(error);
    if (out_costs == NULL || model == NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "costs", 0, "%s is NULL",
                            model == NULL ? "model" : "out_costs");
    }
    *out_costs = NULL;
    dunlin_trainer_options taken;
    dunlin_trainer *trainer = NULL;
    DUNLIN_TRY(dunlin__trainer_take_options(options, &taken, error));
    taken = probe_options(&taken);
    DUNLIN_TRY(create_probed(model, &taken, &trainer, error));
    const dunlin_alloc alloc = dunlin__alloc_or_default(&taken.alloc);
    probe *with = make_probe(model, &alloc, trainer);
    dunlin_status status = DUNLIN_OK;
    if (with == NULL) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "costs", 0, "no memory to measure %zu ops",
                              trainer->train.step->n_ops);
    } else {
        status = measure_with(with, out_costs, error);
        free_probe(with);
    }
    dunlin_trainer_destroy(trainer);
    return status;
}
