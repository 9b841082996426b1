/*
 * bench_predict.c - inference alone: what a predictor takes beside its weights and two activations,
 * how long a call of one batch takes, and whether its outputs are the trainer's to the bit.
 *
 * A trainer takes one step first, so that weights and running statistics are no first values; the
 * predictor gets its weights. Two activations: the largest pair of different values that the
 * network's operations hand on as the library runs them, a convolution with its norm and its clip
 * as one. Memory is the predictor's own report, and by how much the process's high-water mark rose
 * from just before the predictor was made.
 */
#include "bench_examples.h"
#include "bench_profile.h"
#include "common/args.h"
#include "common/process.h"
#include "step/lower/lower.h"

#include <dunlin/predictor.h>
#include <mem/support.h>

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CALLS 100000
#define N_COMPARED 4 /* examples whose outputs are compared */
#define MIB 1048576.0
#define SPARE_BYTES (UINT64_C(1) << 20) /* beside the weights and two activations */

static const program_info program = {
    .name = "bench_predict",
    .purpose = "times predictions of a ready-made network on random examples, and counts their "
               "memory",
    .examples = "  bench_predict --model mobilenet_v2 --image 224 --core 1\n",
};

typedef struct flags {
    const char *model, *isa;
    int64_t image, classes, batch, n_threads, core, calls, warmup;
    double max_seconds;
    uint64_t budget_bytes;
    bool is_json, has_core, is_bar;
} flags;

#define AT(member) offsetof(flags, member)
static const arg table[] = {
    {"--model", ARG_TEXT, AT(model), "NAME", "a ready-made network (mobilenet_v2)", 0, 0, 0},
    {"--image", ARG_I64, AT(image), "N", "height and width; the network's own otherwise", 8, 4096,
     0},
    {"--classes", ARG_I64, AT(classes), "N", "width of the output", 2, 1e6, 0},
    {"--batch", ARG_I64, AT(batch), "N", "examples a call (1)", 1, 4096, 0},
    {"--threads", ARG_I64, AT(n_threads), "N", "(1)", 1, 256, 0},
    {"--core", ARG_I64, AT(core), "N", "pin to cores N ... N + threads - 1, modulo all", 0, 1023,
     AT(has_core)},
    {"--calls", ARG_I64, AT(calls), "N", "timed calls (50)", 1, MAX_CALLS, 0},
    {"--max-seconds", ARG_F64, AT(max_seconds), "F", "no further timed call after this (1000)", 0,
     1e6, 0},
    {"--warmup", ARG_I64, AT(warmup), "N", "calls before them (3)", 1, MAX_CALLS, 0},
    {"--budget", ARG_BYTES, AT(budget_bytes), "BYTES", "of the predictor; none otherwise", 0, 0, 0},
    {"--isa", ARG_TEXT, AT(isa), "NAME", "sse2, avx2, avx512, neon, generic; the best otherwise", 0,
     0, 0},
    {"--bar", ARG_FLAG, AT(is_bar), NULL,
     "fail where it takes more than weights, two activations and 1 MiB", 0, 0, 0},
    {"--json", ARG_FLAG, AT(is_json), NULL, "one line of JSON instead of text", 0, 0, 0},
};

typedef struct figures {
    int64_t n_calls;
    double create_ms, first_ms;
    double median_ms, best_ms, cpu_median_ms;
    uint64_t growth_bytes;
    uint64_t two_bytes; /* of the largest two activations, of a whole batch */
    uint64_t over_bytes;
    bool is_same;
    dunlin_predictor_report report;
} figures;

/* All that a run has. */
typedef struct run {
    const flags *given;
    dunlin_model *model;
    bench_examples from;
    dunlin_source source;
    dunlin_trainer *trainer;
    dunlin_predictor *predictor;
    double *ms;
    double *cpu_ms;
    float *outputs; /* of the predictor, at least a batch and N_COMPARED */
    float *expected;
    dunlin_error error;
    progress line;
    figures made;
} run;

/* The two largest values that operations hand on in a forward pass: of a sample, 64-byte units. */
static dunlin_status add_largest(run *at, uint64_t *out_bytes)
{
    const dunlin_step_build_options build = {.mode = DUNLIN_EMIT_INFER, .is_fused = true};
    const dunlin_alloc hooks = dunlin__alloc_or_default(NULL);
    dunlin_step_graph *step = NULL;
    dunlin_lowered lowered = {.tensors = NULL};
    dunlin_status status = dunlin__step_build(&at->model->net, &build, &hooks, &step, &at->error);
    if (status == DUNLIN_OK) {
        status = dunlin__lower(step, dunlin__kernels_select(at->given->isa), 1, false, &hooks,
                               &lowered, &at->error);
    }
    uint64_t largest = 0;
    uint64_t second = 0;
    for (uint32_t i = 0; status == DUNLIN_OK && i < lowered.graph.n_tensors; i++) {
        const dunlin_mem_tensor *tensor = &lowered.graph.tensors[i];
        if (tensor->parent != DUNLIN_MEM_NONE || tensor->is_persistent ||
            (tensor->mem_class != DUNLIN_MEM_ACTIVATION && tensor->mem_class != DUNLIN_MEM_INPUT)) {
            continue;
        }
        if (tensor->sample_bytes > largest) {
            second = largest;
            largest = tensor->sample_bytes;
        } else if (tensor->sample_bytes > second) {
            second = tensor->sample_bytes;
        }
    }
    *out_bytes = (largest + second) * (uint64_t)at->given->batch;
    dunlin__lowered_free(&lowered);
    dunlin__step_graph_destroy(step);
    return status;
}

static bool make_buffers(run *at)
{
    const flags *given = at->given;
    const size_t n_rows = (size_t)(given->batch > N_COMPARED ? given->batch : N_COMPARED);
    const size_t n_outputs = (size_t)dunlin_model_n_outputs(at->model);
    at->ms = calloc((size_t)given->calls, sizeof *at->ms);
    at->cpu_ms = calloc((size_t)given->calls, sizeof *at->cpu_ms);
    at->outputs = calloc(n_rows * n_outputs, sizeof *at->outputs);
    at->expected = calloc(N_COMPARED * n_outputs, sizeof *at->expected);
    return at->ms != NULL && at->cpu_ms != NULL && at->outputs != NULL && at->expected != NULL &&
           bench_make_examples(at->model, (int64_t)n_rows, bench_vocabulary(given->model),
                               &at->from, &at->source);
}

/* A trainer after one step, and its outputs. */
static dunlin_status train(run *at)
{
    static const int64_t INDICES[N_COMPARED] = {0, 1, 2, 3};
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = N_COMPARED;
    options.n_threads = (int32_t)at->given->n_threads;
    options.lr = 1e-3F;
    options.isa = at->given->isa;
    dunlin_status status = dunlin_trainer_create(at->model, &options, &at->trainer, &at->error);
    if (status == DUNLIN_OK) {
        status = dunlin_trainer_step(at->trainer, &at->source, INDICES, N_COMPARED, NULL);
        if (status == DUNLIN_OK) {
            status = dunlin_trainer_predict(at->trainer, &at->source, 0, N_COMPARED, at->expected);
        }
        if (status != DUNLIN_OK) {
            at->error = *dunlin_trainer_last_error(at->trainer);
        }
    }
    return status;
}

/* The trainer's weights, in pieces. */
static dunlin_status take_weights(run *at)
{
    static float piece[16384];
    const int64_t n = dunlin_predictor_n_weights(at->predictor, DUNLIN_WEIGHTS_ALL);
    const int64_t n_piece = (int64_t)(sizeof piece / sizeof piece[0]);
    dunlin_status status = DUNLIN_OK;
    for (int64_t i = 0; status == DUNLIN_OK && i < n; i += n_piece) {
        const int64_t n_now = n - i < n_piece ? n - i : n_piece;
        status = dunlin_trainer_get_weights(at->trainer, DUNLIN_WEIGHTS_ALL, i, n_now, piece);
        if (status == DUNLIN_OK) {
            status = dunlin_predictor_set_weights(at->predictor, DUNLIN_WEIGHTS_ALL, i, n_now,
                                                  piece, &at->error);
        }
    }
    return status;
}

static dunlin_status time_calls(run *at)
{
    const flags *given = at->given;
    figures *made = &at->made;
    dunlin_status status = DUNLIN_OK;
    double start_ms = 0.0;
    for (int64_t i = -given->warmup; status == DUNLIN_OK && i < given->calls; i++) {
        const double begin_ms = bench_now_ms();
        const double begin_cpu_ms = bench_cpu_ms();
        if (i == 0) {
            start_ms = begin_ms;
        }
        if (i >= 2 && begin_ms - start_ms > given->max_seconds * 1e3) {
            break;
        }
        status = dunlin_predictor_predict(at->predictor, &at->source, 0, given->batch, at->outputs,
                                          &at->error);
        const double took_ms = bench_now_ms() - begin_ms;
        if (i == -given->warmup) {
            made->first_ms = took_ms;
        }
        bench_show(&at->line, i + 1, given->calls, bench_now_ms() - start_ms, given->max_seconds);
        if (i >= 0) {
            at->ms[i] = took_ms;
            at->cpu_ms[i] = bench_cpu_ms() - begin_cpu_ms;
            made->n_calls = i + 1;
        }
    }
    const size_t n = (size_t)made->n_calls;
    qsort(at->ms, n, sizeof at->ms[0], bench_compare_doubles);
    qsort(at->cpu_ms, n, sizeof at->cpu_ms[0], bench_compare_doubles);
    made->median_ms = at->ms[n / 2];
    made->best_ms = at->ms[0];
    made->cpu_median_ms = at->cpu_ms[n / 2];
    return status;
}

static dunlin_status predict(run *at)
{
    dunlin_predictor_options options = DUNLIN_PREDICTOR_OPTIONS_INIT;
    options.budget_bytes = at->given->budget_bytes;
    options.batch = at->given->batch;
    options.n_threads = (int32_t)at->given->n_threads;
    options.isa = at->given->isa;
    (void)process_reset_peak();
    const uint64_t before_bytes = process_peak_bytes();
    const double start_ms = bench_now_ms();
    dunlin_status status = dunlin_predictor_create(at->model, &options, &at->predictor, &at->error);
    at->made.create_ms = bench_now_ms() - start_ms;
    if (status == DUNLIN_OK) {
        status = take_weights(at);
    }
    if (status == DUNLIN_OK) {
        status = time_calls(at);
    }
    const uint64_t after_bytes = process_peak_bytes();
    at->made.growth_bytes = after_bytes > before_bytes ? after_bytes - before_bytes : 0;
    if (status == DUNLIN_OK) {
        status = dunlin_predictor_predict(at->predictor, &at->source, 0, N_COMPARED, at->outputs,
                                          &at->error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin_predictor_get_report(at->predictor, &at->made.report);
    }
    return status;
}

static void print_figures(const flags *given, const figures *made)
{
    const dunlin_predictor_report *report = &made->report;
    if (given->is_json) {
        (void)printf("{\"peer\": \"dunlin\", \"model\": \"%s\", \"image\": %" PRId64
                     ", \"batch\": %" PRId64 ", \"threads\": %" PRId64 ", \"isa\": \"%s\", ",
                     given->model, given->image, given->batch, given->n_threads, report->isa);
        (void)printf("\"calls\": %" PRId64 ", \"ms\": %.4f, \"best_ms\": %.4f, \"cpu_ms\": %.4f, "
                     "\"first_ms\": %.3f, \"create_ms\": %.3f, \"predicted_ms\": %.4f, ",
                     made->n_calls, made->median_ms, made->best_ms, made->cpu_median_ms,
                     made->first_ms, made->create_ms, report->predicted_ms);
        (void)printf("\"planned_bytes\": %" PRIu64 ", \"weights_bytes\": %" PRIu64
                     ", \"activations_bytes\": %" PRIu64 ", \"tables_bytes\": %" PRIu64
                     ", \"two_activations_bytes\": %" PRIu64 ", \"over_bytes\": %" PRIu64
                     ", \"is_within\": %s, \"growth_bytes\": %" PRIu64 ", \"same_bits\": %s}\n",
                     report->planned_bytes, report->weights_bytes, report->activations_bytes,
                     report->tables_bytes, made->two_bytes, made->over_bytes,
                     made->over_bytes <= SPARE_BYTES ? "true" : "false", made->growth_bytes,
                     made->is_same ? "true" : "false");
        return;
    }
    (void)printf("%s, batch %" PRId64 ", %" PRId64 " thread(s), %s: %.3f ms a call (best %.3f, of "
                 "processor time %.3f, predicted %.3f) over %" PRId64 "; the first %.3f ms, "
                 "creating the predictor %.1f ms\n",
                 given->model, given->batch, given->n_threads, report->isa, made->median_ms,
                 made->best_ms, made->cpu_median_ms, report->predicted_ms, made->n_calls,
                 made->first_ms, made->create_ms);
    (void)printf("  weights                %10.3f MiB\n  two largest activations %9.3f\n"
                 "  pool of the activations %9.3f\n  tables                 %10.3f\n",
                 (double)report->weights_bytes / MIB, (double)made->two_bytes / MIB,
                 (double)report->activations_bytes / MIB, (double)report->tables_bytes / MIB);
    (void)printf(
        "  in all                 %10.3f, %.3f beyond weights and two activations (at most "
        "1: %s); the process grew by %.3f\n",
        (double)report->planned_bytes / MIB, (double)made->over_bytes / MIB,
        made->over_bytes <= SPARE_BYTES ? "yes" : "NO", (double)made->growth_bytes / MIB);
    (void)printf("  outputs of %d examples are the trainer's to the bit: %s\n", N_COMPARED,
                 made->is_same ? "yes" : "NO");
}

static int bench(run *at)
{
    dunlin_status status = make_buffers(at)
                               ? DUNLIN_OK
                               : dunlin__fail(&at->error, DUNLIN_MEMORY, "bench", 0,
                                              "no memory for the examples and outputs");
    if (status == DUNLIN_OK) {
        status = add_largest(at, &at->made.two_bytes);
    }
    if (status == DUNLIN_OK) {
        progress_begin(&at->line, "a step of a trainer", NULL);
        status = train(at);
        progress_end(&at->line);
    }
    if (status == DUNLIN_OK) {
        progress_begin(&at->line, "predicting", "calls");
        status = predict(at);
        progress_end(&at->line);
    }
    if (status != DUNLIN_OK) {
        return program_fail(&program, "%s", at->error.text);
    }
    const uint64_t allowed = at->made.report.weights_bytes + at->made.two_bytes;
    const uint64_t planned = at->made.report.planned_bytes;
    at->made.over_bytes = planned > allowed ? planned - allowed : 0;
    at->made.is_same =
        memcmp(at->outputs, at->expected,
               N_COMPARED * (size_t)dunlin_model_n_outputs(at->model) * sizeof(float)) == 0;
    print_figures(at->given, &at->made);
    return at->made.is_same ? EXIT_OK : program_fail(&program, "the outputs are not the trainer's");
}

int main(int argc, char **argv)
{
    flags given = {.model = "mobilenet_v2",
                   .batch = 1,
                   .n_threads = 1,
                   .calls = 50,
                   .warmup = 3,
                   .max_seconds = 1000.0};
    const args_result parsed = args_parse(&program, table, sizeof table / sizeof table[0], argc,
                                          (const char *const *)argv, &given);
    if (parsed.is_done) {
        return parsed.exit_status;
    }
    if (given.has_core && !bench_pin(given.core, given.n_threads)) {
        return program_fail(&program, "core %" PRId64 " cannot be used", given.core);
    }
    const dunlin_zoo_options options = {.struct_size = sizeof(dunlin_zoo_options),
                                        .image = (int32_t)given.image,
                                        .classes = (int32_t)given.classes};
    run at = {.given = &given, .made = {.report = DUNLIN_PREDICTOR_REPORT_INIT}};
    int exit_status = EXIT_FAILED;
    if (dunlin_model_from_zoo(given.model, &options, NULL, &at.model, &at.error) != DUNLIN_OK) {
        exit_status = program_fail(&program, "%s", at.error.text);
    } else {
        exit_status = bench(&at);
    }
    dunlin_predictor_destroy(at.predictor);
    dunlin_trainer_destroy(at.trainer);
    bench_free_examples(&at.from);
    free(at.ms);
    free(at.cpu_ms);
    free(at.outputs);
    free(at.expected);
    dunlin_model_destroy(at.model);
    return exit_status;
}
