/*
 * measure.c - what a step takes in each budget of a ladder: processor time of this thread, so a
 * busy machine changes little.
 *
 * Invariant: a plan is measured once; budgets that have the same plan have the same time.
 */
#include "costs.h"

#include <dunlin/trainer_advanced.h>

#include <common/process.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB ((uint64_t)1 << 20)
#define WARM_STEPS 2
#define STEPS 9
#define MOST_TIME_MS 4000.0 /* of one plan, after three steps */

/* In MiB: powers of two and half way between them. */
static const uint64_t LADDER[] = {4,   6,   8,   12,  16,  24,  32,   48,   64,  96,
                                  128, 192, 256, 384, 512, 768, 1024, 1536, 2048};
#define N_LADDER ((int32_t)(sizeof LADDER / sizeof LADDER[0]))

static double thread_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int compare_times(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;
    return (left > right) - (left < right);
}

static int64_t median_us(double *times_ms, int32_t n)
{
    qsort(times_ms, (size_t)n, sizeof times_ms[0], compare_times);
    const double us = times_ms[n / 2] * 1000.0;
    return us < 1.0 ? 1 : (int64_t)(us + 0.5);
}

/* The examples of one step, and what is trained. */
typedef struct subject {
    const fleet_world *world;
    dunlin_source source;
    int64_t *indices; /* world->batch of them */
    dunlin_trainer_options options;
} subject;

/* Median of a few steps, or of as many evaluations of a batch. */
static dunlin_status measure_plan(const subject *of, bool is_training, int64_t *out_us,
                                  dunlin_error *error)
{
    dunlin_trainer *trainer = NULL;
    double times_ms[STEPS];
    int32_t n = 0;
    double spent_ms = 0.0;
    dunlin_status status = dunlin_trainer_create(of->world->model, &of->options, &trainer, error);
    for (int32_t i = 0; status == DUNLIN_OK && i < WARM_STEPS + STEPS; i++) {
        dunlin_metrics metrics = {0};
        const double begun_ms = thread_ms();
        status =
            is_training
                ? dunlin_trainer_step(trainer, &of->source, of->indices, of->world->batch, &metrics)
                : dunlin_trainer_evaluate(trainer, &of->source, 0, of->world->batch, &metrics);
        const double took_ms = thread_ms() - begun_ms;
        if (i >= WARM_STEPS) {
            times_ms[n++] = took_ms;
            spent_ms += took_ms;
        }
        if (n >= 3 && spent_ms > MOST_TIME_MS) {
            break;
        }
    }
    if (status != DUNLIN_OK && error->text[0] == '\0') {
        (void)snprintf(error->text, sizeof error->text, "a step of the costs: %s",
                       dunlin_status_text(status));
    }
    if (status == DUNLIN_OK) {
        *out_us = median_us(times_ms, n);
    }
    dunlin_trainer_destroy(trainer);
    return status;
}

/* One budget: planned for the largest step of any device, timed with a batch. */
static dunlin_status measure_budget(subject *of, uint64_t budget_bytes, sim_costs *costs,
                                    dunlin_error *error)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    of->options.budget_bytes = budget_bytes;
    of->options.batch = of->world->largest_step;
    dunlin_status status = dunlin_trainer_estimate(of->world->model, &of->options, &report, error);
    if (status == DUNLIN_BUDGET) {
        return DUNLIN_OK; /* too little for any plan */
    }
    if (status != DUNLIN_OK) {
        return status;
    }
    sim_cost row = {.budget_bytes = budget_bytes, .planned_bytes = report.planned_bytes};
    const sim_cost *before = costs->n_rows > 0 ? &costs->rows[costs->n_rows - 1] : NULL;
    if (before != NULL && before->planned_bytes == row.planned_bytes) {
        row.step_us = before->step_us;
    } else {
        of->options.batch = of->world->batch;
        status = measure_plan(of, true, &row.step_us, error);
    }
    costs->least_bytes = costs->n_rows == 0 ? report.least_budget_bytes : costs->least_bytes;
    costs->rows[costs->n_rows++] = row;
    return status;
}

/* What a step takes without a planner, and an evaluation. */
static dunlin_status measure_rest(subject *of, sim_costs *costs, dunlin_error *error)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    of->options.budget_bytes = 0;
    of->options.batch = of->world->largest_step;
    of->options.policy = DUNLIN_POLICY_NONE;
    dunlin_status status = dunlin_trainer_estimate(of->world->model, &of->options, &report, error);
    of->options.policy = DUNLIN_POLICY_AUTO;
    of->options.batch = of->world->batch;
    costs->none_bytes = report.planned_bytes;
    return status == DUNLIN_OK ? measure_plan(of, false, &costs->evaluate_us, error) : status;
}

static json_t *to_json(const sim_costs *costs)
{
    json_t *rows = json_array();
    for (int32_t i = 0; i < costs->n_rows; i++) {
        const sim_cost *row = &costs->rows[i];
        (void)json_array_append_new(rows, json_pack("{s:I, s:I, s:I}", "budget_bytes",
                                                    (json_int_t)row->budget_bytes, "planned_bytes",
                                                    (json_int_t)row->planned_bytes, "step_us",
                                                    (json_int_t)row->step_us));
    }
    return json_pack("{s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:o}", "dunlin_costs", 1, "model",
                     costs->model, "params", (json_int_t)costs->n_params, "batch",
                     (json_int_t)costs->batch, "least_bytes", (json_int_t)costs->least_bytes,
                     "none_bytes", (json_int_t)costs->none_bytes, "evaluate_us",
                     (json_int_t)costs->evaluate_us, "rows", rows);
}

static dunlin_status measure_all(const fleet_flags *flags, subject *of, sim_costs *costs,
                                 dunlin_error *error)
{
    dunlin_status status = DUNLIN_OK;
    progress line = {0};
    progress_begin(&line, "measuring", "budgets");
    for (int32_t i = 0; status == DUNLIN_OK && i < N_LADDER; i++) {
        status = measure_budget(of, LADDER[i] * MIB, costs, error);
        progress_update(&line, i + 1, N_LADDER, NULL);
    }
    if (status == DUNLIN_OK) {
        status = measure_rest(of, costs, error);
    }
    progress_end(&line);
    if (status == DUNLIN_OK && costs->n_rows == 0) {
        (void)snprintf(error->text, sizeof error->text,
                       "%.60s with batch %" PRId64 " does not fit into 2 GiB", flags->model,
                       of->world->batch);
        return DUNLIN_BUDGET;
    }
    return status;
}

int sim_costs_measure(const fleet_flags *flags, const fleet_world *world, const char *path)
{
    sim_costs costs = {.n_params = world->n_params, .batch = world->batch};
    subject of = {.world = world, .options = DUNLIN_TRAINER_OPTIONS_INIT};
    dunlin_error error = {0};
    char text[OUTPUT_ERROR_BYTES];
    of.options.momentum = (float)flags->momentum;
    dunlin_dataset_source(world->dataset, &of.source);
    (void)snprintf(costs.model, sizeof costs.model, "%s", flags->model);
    of.indices = calloc((size_t)world->batch, sizeof *of.indices);
    if (of.indices == NULL || of.source.n_examples < world->batch) {
        free(of.indices);
        return program_fail(&fleet_program,
                            "--measure-costs: the data have fewer examples than "
                            "--batch %" PRId64,
                            world->batch);
    }
    for (int64_t i = 0; i < world->batch; i++) {
        of.indices[i] = i;
    }
    const dunlin_status status = measure_all(flags, &of, &costs, &error);
    free(of.indices);
    if (status != DUNLIN_OK) {
        return program_fail(&fleet_program, "--measure-costs: %s", error.text);
    }
    json_t *object = to_json(&costs);
    const bool is_ok = object != NULL && output_json(path, object, text);
    json_decref(object);
    if (!is_ok) {
        return program_fail(&fleet_program, "--measure-costs: %s", text);
    }
    (void)printf("%s: %d budgets from %" PRIu64 " bytes on, %" PRId64 " us a step of %" PRId64
                 " in the largest\n",
                 path, (int)costs.n_rows, costs.least_bytes, costs.rows[costs.n_rows - 1].step_us,
                 world->batch);
    return EXIT_OK;
}
