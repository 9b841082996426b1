/*
 * bench_step.c - how fast a training step is and what memory it takes: forward, cross-entropy,
 * backward, SGD with momentum 0.9, on random examples that cost next to nothing to read.
 *
 * Memory: the trainer's own report, and by how much the process's high-water mark rose from just
 * before the trainer was made. The examples' own buffer (`source_bytes`) lies outside of both.
 */
#include "bench_examples.h"
#include "bench_plain.h"
#include "bench_profile.h"
#include "common/args.h"
#include "common/process.h"

#include <dunlin/costs.h>
#include <dunlin/trainer_advanced.h>

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_STEPS 100000

static const program_info program = {
    .name = "bench_step",
    .purpose = "times training steps of a ready-made network on random examples",
    .examples = "  bench_step --model mobilenet_v2 --image 224 --batch 8 --core 1 --profile\n",
};

typedef struct flags {
    const char *model, *isa, *costs, *precision;
    int64_t image, classes, batch, micro_batch, n_threads, core, steps, warmup, vocabulary, n_worst;
    double max_seconds;
    uint64_t budget_bytes;
    bool is_profile, is_json, has_core, no_fuse, is_ghost, is_bf16, is_int8, is_adamw;
} flags;

#define AT(member) offsetof(flags, member)
static const arg table[] = {
    {"--model", ARG_TEXT, AT(model), "NAME",
     "a ready-made network, or vgg11_cifar, resnet18_plain, mobilenet_v1_plain (mobilenet_v2)", 0,
     0, 0},
    {"--precision", ARG_TEXT, AT(precision), "NAME", "fp32, or niti, without momentum", 0, 0, 0},
    {"--image", ARG_I64, AT(image), "N", "height and width; the network's own otherwise", 8, 4096,
     0},
    {"--classes", ARG_I64, AT(classes), "N", "width of the output", 2, 1e6, 0},
    {"--batch", ARG_I64, AT(batch), "N", "samples per step (8)", 1, 1e6, 0},
    {"--micro-batch", ARG_I64, AT(micro_batch), "N", "at most so many at a time", 1, 1e6, 0},
    {"--ghost", ARG_FLAG, AT(is_ghost), NULL,
     "batch norm over each slice alone, of --micro-batch exactly", 0, 0, 0},
    {"--threads", ARG_I64, AT(n_threads), "N", "(1)", 1, 256, 0},
    {"--core", ARG_I64, AT(core), "N", "pin to cores N ... N + threads - 1, modulo all", 0, 1023,
     AT(has_core)},
    {"--steps", ARG_I64, AT(steps), "N", "timed steps (10)", 1, MAX_STEPS, 0},
    {"--max-seconds", ARG_F64, AT(max_seconds), "F", "no further timed step after this (1000)", 0,
     1e6, 0},
    {"--warmup", ARG_I64, AT(warmup), "N", "steps before them (2)", 1, MAX_STEPS, 0},
    {"--vocabulary", ARG_I64, AT(vocabulary), "N", "the input is tokens below N, not floats", 1,
     1e7, 0},
    {"--budget", ARG_BYTES, AT(budget_bytes), "BYTES", "none otherwise", 0, 0, 0},
    {"--isa", ARG_TEXT, AT(isa), "NAME", "sse2, avx2, avx512, neon, generic; the best otherwise", 0,
     0, 0},
    {"--costs", ARG_TEXT, AT(costs), "FILE", "measured costs; made if it is not there", 0, 0, 0},
    {"--no-fuse", ARG_FLAG, AT(no_fuse), NULL, "normalisation and activation by themselves", 0, 0,
     0},
    {"--bf16", ARG_FLAG, AT(is_bf16), NULL, "storage in bfloat16", 0, 0, 0},
    {"--int8", ARG_FLAG, AT(is_int8), NULL, "storage in int8", 0, 0, 0},
    {"--adamw", ARG_FLAG, AT(is_adamw), NULL, "AdamW in place of SGD with momentum", 0, 0, 0},
    {"--profile", ARG_FLAG, AT(is_profile), NULL, "time per kernel and the worst ops", 0, 0, 0},
    {"--worst", ARG_I64, AT(n_worst), "N", "how many of them (25)", 1, 1e6, 0},
    {"--json", ARG_FLAG, AT(is_json), NULL, "one line of JSON instead of text", 0, 0, 0},
};

typedef struct figures {
    int64_t n_steps;
    double create_ms, first_ms;
    double median_ms, best_ms, cpu_median_ms;
    double loss;
    uint64_t growth_bytes;
    size_t source_bytes;
    dunlin_trainer_report report;
} figures;

static dunlin_status one_step(dunlin_trainer *trainer, const dunlin_source *source,
                              const int64_t *indices, double *out_ms, double *out_cpu_ms,
                              double *out_loss)
{
    dunlin_metrics metrics = {0};
    const double start_ms = bench_now_ms();
    const double start_cpu_ms = bench_cpu_ms();
    const dunlin_status status =
        dunlin_trainer_step(trainer, source, indices, source->n_examples, &metrics);
    *out_ms = bench_now_ms() - start_ms;
    *out_cpu_ms = bench_cpu_ms() - start_cpu_ms;
    *out_loss = metrics.loss;
    return status;
}

/* Buffers of the run, made and touched before memory is looked at. */
typedef struct run_buffers {
    int64_t *indices;
    double *ms;
    double *cpu_ms;
} run_buffers;

static bool make_buffers(const flags *given, run_buffers *out)
{
    out->indices = calloc((size_t)given->batch, sizeof *out->indices);
    out->ms = calloc((size_t)given->steps, sizeof *out->ms);
    out->cpu_ms = calloc((size_t)given->steps, sizeof *out->cpu_ms);
    if (out->indices == NULL || out->ms == NULL || out->cpu_ms == NULL) {
        return false;
    }
    for (int64_t i = 0; i < given->batch; i++) {
        out->indices[i] = i;
    }
    for (int64_t i = 0; i < given->steps; i++) {
        out->ms[i] = out->cpu_ms[i] = -1.0;
    }
    return true;
}

static dunlin_status run_steps(const flags *given, dunlin_trainer *trainer,
                               const dunlin_source *source, const run_buffers *buffers,
                               progress *line, figures *out)
{
    double spare_ms = 0.0;
    for (int64_t i = 0; i < given->warmup; i++) {
        const dunlin_status status =
            one_step(trainer, source, buffers->indices, i == 0 ? &out->first_ms : &spare_ms,
                     &buffers->cpu_ms[0], &out->loss);
        if (status != DUNLIN_OK) {
            return status;
        }
    }
    bench_profile *profile = given->is_profile ? bench_profile_new(trainer) : NULL;
    const double start_ms = bench_now_ms();
    dunlin_status status = DUNLIN_OK;
    while (status == DUNLIN_OK && out->n_steps < given->steps &&
           (out->n_steps < 2 || bench_now_ms() - start_ms < given->max_seconds * 1e3)) {
        const int64_t i = out->n_steps;
        status = one_step(trainer, source, buffers->indices, &buffers->ms[i], &buffers->cpu_ms[i],
                          &out->loss);
        out->n_steps++;
        bench_show(line, out->n_steps, given->steps, bench_now_ms() - start_ms, given->max_seconds);
    }
    progress_end(line);
    if (status == DUNLIN_OK && profile != NULL) {
        bench_profile_print(profile, out->n_steps, (int32_t)given->n_worst);
    }
    bench_profile_free(profile);
    return status;
}

static void print_figures(const flags *given, const figures *made)
{
    const double batch = (double)given->batch;
    const dunlin_trainer_report *report = &made->report;
    const dunlin_class_bytes *by_class = &report->by_class;
    if (given->is_json) {
        (void)printf("{\"peer\": \"dunlin\", \"model\": \"%s\", \"image\": %" PRId64
                     ", \"batch\": %" PRId64 ", \"threads\": %" PRId64 ", \"isa\": \"%s\", ",
                     given->model, given->image, given->batch, given->n_threads, report->isa);
        (void)printf("\"steps\": %" PRId64 ", \"sps\": %.4f, \"best_sps\": %.4f, \"cpu_sps\": "
                     "%.4f, \"first_step_ms\": %.3f, \"create_ms\": %.3f, \"loss\": %.4f, ",
                     made->n_steps, batch / made->median_ms * 1e3, batch / made->best_ms * 1e3,
                     batch / made->cpu_median_ms * 1e3, made->first_ms, made->create_ms,
                     made->loss);
        (void)printf("\"peak_bytes\": %" PRIu64 ", \"planned_bytes\": %" PRIu64
                     ", \"growth_bytes\": %" PRIu64 ", \"source_bytes\": %zu, "
                     "\"micro_batch\": %" PRId64 ", \"ghost\": %s, \"least_budget_bytes\": %" PRIu64
                     ", \"working_bytes\": %" PRIu64 ", \"accumulator_bytes\": %" PRIu64
                     ", \"n_recomputed\": %" PRId32
                     ", \"ms\": %.4f, \"cpu_ms\": %.4f, \"predicted_ms\": %.4f}\n",
                     report->peak_bytes, report->planned_bytes, made->growth_bytes,
                     made->source_bytes, report->micro_batch, report->is_ghost ? "true" : "false",
                     report->least_budget_bytes,
                     by_class->activations + by_class->gradients + by_class->workspace,
                     by_class->accumulators, report->n_recomputed, made->median_ms,
                     made->cpu_median_ms, report->predicted_ms);
        return;
    }
    (void)printf("%s, batch %" PRId64 ", %" PRId64 " thread(s), %s: %.2f samples/s (best %.2f, by "
                 "processor time %.2f) over %" PRId64 " steps\n",
                 given->model, given->batch, given->n_threads, report->isa,
                 batch / made->median_ms * 1e3, batch / made->best_ms * 1e3,
                 batch / made->cpu_median_ms * 1e3, made->n_steps);
    (void)printf("step %.3f ms (best %.3f, of processor time %.3f, predicted %.3f), the first %.3f "
                 "ms, creating the trainer %.1f ms; loss %.4f\n",
                 made->median_ms, made->best_ms, made->cpu_median_ms, report->predicted_ms,
                 made->first_ms, made->create_ms, made->loss);
    const double mib = 1024.0 * 1024.0;
    (void)printf("peak %.2f MiB, planned %.2f; the process grew by %.2f (hidden: %+.2f); slices of "
                 "%" PRId64 "%s\n",
                 (double)report->peak_bytes / mib, (double)report->planned_bytes / mib,
                 (double)made->growth_bytes / mib,
                 ((double)made->growth_bytes - (double)report->peak_bytes) / mib,
                 report->micro_batch, report->is_ghost ? ", with statistics of their own" : "");
}

static dunlin_trainer_options make_options(const flags *given)
{
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.budget_bytes = given->budget_bytes;
    options.batch = given->batch;
    options.n_threads = (int32_t)given->n_threads;
    options.precision = given->precision;
    if (given->precision == NULL || strcmp(given->precision, "fp32") == 0) {
        options.lr = 1e-3F;
        options.momentum = 0.9F;
    }
    if (given->is_adamw) {
        options.optimizer = DUNLIN_OPTIMIZER_ADAMW;
        options.momentum = 0.0F;
        options.lr = 1e-4F;
    }
    options.isa = given->isa;
    options.no_fuse = given->no_fuse;
    options.storage = given->is_int8   ? DUNLIN_STORAGE_INT8
                      : given->is_bf16 ? DUNLIN_STORAGE_BF16
                                       : DUNLIN_STORAGE_EXACT;
    options.micro_batch = given->micro_batch;
    options.ghost_statistics = given->is_ghost;
    return options;
}

/* The file of --costs; measured and written without a budget if it is not there. */
static int open_costs(const flags *given, const dunlin_model *model, dunlin_costs **out_costs)
{
    dunlin_error error = {0};
    dunlin_trainer_options options = make_options(given);
    options.budget_bytes = 0;
    *out_costs = NULL;
    if (given->costs == NULL) {
        return EXIT_OK;
    }
    dunlin_status status = DUNLIN_OK;
    if (access(given->costs, F_OK) == 0) {
        status = dunlin_costs_load(given->costs, NULL, out_costs, &error);
    } else {
        status = dunlin_costs_measure(model, &options, out_costs, &error);
        if (status == DUNLIN_OK) {
            status = dunlin_costs_save(*out_costs, given->costs, &error);
        }
    }
    return status == DUNLIN_OK ? EXIT_OK : program_fail(&program, "%s", error.text);
}

static int bench_with(const flags *given, const dunlin_model *model, const dunlin_costs *costs,
                      const bench_examples *from, const dunlin_source *source,
                      const run_buffers *buffers)
{
    dunlin_trainer_options options = make_options(given);
    options.costs = costs;
    figures made = {.report = DUNLIN_TRAINER_REPORT_INIT, .source_bytes = from->buffer_bytes};
    dunlin_error error = {0};
    dunlin_trainer *trainer = NULL;
    progress line;
    progress_begin(&line, "training", "steps");
    (void)process_reset_peak();
    const uint64_t before_bytes = process_peak_bytes();
    const double start_ms = bench_now_ms();
    if (dunlin_trainer_create(model, &options, &trainer, &error) != DUNLIN_OK) {
        progress_end(&line);
        return program_fail(&program, "%s", error.text);
    }
    made.create_ms = bench_now_ms() - start_ms;
    dunlin_status status = run_steps(given, trainer, source, buffers, &line, &made);
    progress_end(&line); /* of steps that failed */
    if (status == DUNLIN_OK) {
        status = dunlin_trainer_get_report(trainer, &made.report);
    }
    const uint64_t after_bytes = process_peak_bytes();
    made.growth_bytes = after_bytes > before_bytes ? after_bytes - before_bytes : 0;
    dunlin_trainer_report asked = DUNLIN_TRAINER_REPORT_INIT;
    if (given->is_json && status == DUNLIN_OK &&
        dunlin_trainer_estimate(model, &options, &asked, &error) == DUNLIN_OK) {
        made.report.least_budget_bytes = asked.least_budget_bytes;
    }
    int exit_status = EXIT_OK;
    if (status != DUNLIN_OK) {
        exit_status = program_fail(&program, "%s", dunlin_trainer_last_error(trainer)->text);
    } else {
        const size_t n = (size_t)made.n_steps;
        qsort(buffers->ms, n, sizeof buffers->ms[0], bench_compare_doubles);
        qsort(buffers->cpu_ms, n, sizeof buffers->cpu_ms[0], bench_compare_doubles);
        made.median_ms = buffers->ms[n / 2];
        made.best_ms = buffers->ms[0];
        made.cpu_median_ms = buffers->cpu_ms[n / 2];
        print_figures(given, &made);
    }
    dunlin_trainer_destroy(trainer);
    return exit_status;
}

static int bench(const flags *given, const dunlin_model *model)
{
    bench_examples from = {0};
    dunlin_source source;
    run_buffers buffers = {.indices = NULL};
    dunlin_costs *costs = NULL;
    int exit_status = open_costs(given, model, &costs);
    if (exit_status == EXIT_OK &&
        bench_make_examples(model, given->batch, given->vocabulary, &from, &source) &&
        make_buffers(given, &buffers)) {
        exit_status = bench_with(given, model, costs, &from, &source, &buffers);
    } else if (exit_status == EXIT_OK) {
        exit_status = program_fail(&program, "no memory for the examples");
    }
    dunlin_costs_free(costs);
    bench_free_examples(&from);
    free(buffers.indices);
    free(buffers.ms);
    free(buffers.cpu_ms);
    return exit_status;
}

int main(int argc, char **argv)
{
    flags given = {.model = "mobilenet_v2",
                   .batch = 8,
                   .n_threads = 1,
                   .steps = 10,
                   .warmup = 2,
                   .n_worst = 25,
                   .max_seconds = 1000.0};
    const args_result parsed = args_parse(&program, table, sizeof table / sizeof table[0], argc,
                                          (const char *const *)argv, &given);
    if (parsed.is_done) {
        return parsed.exit_status;
    }
    if (given.vocabulary == 0) {
        given.vocabulary = bench_vocabulary(given.model);
    }
    if (given.has_core && !bench_pin(given.core, given.n_threads)) {
        return program_fail(&program, "core %" PRId64 " cannot be used", given.core);
    }
    const dunlin_zoo_options options = {.struct_size = sizeof(dunlin_zoo_options),
                                        .image = (int32_t)given.image,
                                        .classes = (int32_t)given.classes};
    dunlin_error error = {0};
    dunlin_model *model =
        bench_plain_model(given.model, (int32_t)given.image, (int32_t)given.classes);
    if (model == NULL &&
        dunlin_model_from_zoo(given.model, &options, NULL, &model, &error) != DUNLIN_OK) {
        return program_fail(&program, "%s", error.text);
    }
    const dunlin_shape shape = dunlin_model_input_shape(model);
    given.image = shape.n_dims == 3 ? shape.dims[1] : 0;
    const int exit_status = bench(&given, model);
    dunlin_model_destroy(model);
    return exit_status;
}
