/*
 * steps.c - a few steps under a plan: what they take, and whether there is a plan at all.
 */
#include "study.h"

#include <dunlin/trainer_advanced.h>

#include <common/energy.h>
#include <common/weights.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* One step on the examples that are next, from the start again at the end. */
static dunlin_status take_step(dunlin_trainer *trainer, const dunlin_source *source, int64_t batch,
                               int64_t step, int64_t *indices, double *out_loss)
{
    dunlin_metrics metrics = {0};
    for (int64_t i = 0; i < batch; i++) {
        indices[i] = (step * batch + i) % source->n_examples;
    }
    const dunlin_status status = dunlin_trainer_step(trainer, source, indices, batch, &metrics);
    *out_loss = metrics.loss;
    return status;
}

/* Processor time of all threads, finer than getrusage() has it. */
static double processor_now_ms(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static double median_of(double *values, int64_t n)
{
    qsort(values, (size_t)n, sizeof values[0], compare);
    return (values[(n - 1) / 2] + values[n / 2]) / 2.0;
}

/* A loss that grows beyond all bounds changes no time. `folder` has the counters of energy. */
static dunlin_status take_all(dunlin_trainer *trainer, const dunlin_source *source, int64_t batch,
                              int64_t n_steps, const char *folder, study_steps *out_steps)
{
    int64_t *indices = calloc((size_t)batch, sizeof *indices);
    double *times = calloc((size_t)n_steps, 2 * sizeof *times);
    double *busy = times == NULL ? NULL : times + n_steps;
    energy_mark before = {.battery_j = -1.0};
    dunlin_status status = indices != NULL && times != NULL ? DUNLIN_OK : DUNLIN_MEMORY;
    for (int64_t i = 0; i <= n_steps && status == DUNLIN_OK; i++) {
        before = i == 1 ? energy_read(folder) : before; /* of the steps that are timed */
        const double begin_ms = clock_ms();
        const double busy_ms = processor_now_ms();
        status = take_step(trainer, source, batch, i, indices, &out_steps->loss);
        status = status == DUNLIN_NUMERIC ? DUNLIN_OK : status;
        if (i > 0) {
            busy[i - 1] = processor_now_ms() - busy_ms;
            times[i - 1] = clock_ms() - begin_ms;
        }
    }
    const energy_mark after = energy_read(folder);
    if (status == DUNLIN_OK) {
        out_steps->step_ms = median_of(times, n_steps);
        out_steps->processor_ms = median_of(busy, n_steps);
        out_steps->processor_low_ms = busy[0];
        out_steps->processor_high_ms = busy[n_steps - 1];
        out_steps->n_timed = n_steps;
        out_steps->energy_j = energy_between(&before, &after) / (double)n_steps;
        status = dunlin_trainer_operand_bytes(trainer, batch, &out_steps->operand_bytes);
    }
    if (status == DUNLIN_OK) {
        status = weights_hash(trainer, &out_steps->hash);
    }
    free(times);
    free(indices);
    return status;
}

void study_set_times(json_t *row, const study_steps *steps)
{
    row_set_real(row, "time_step_ms", steps->step_ms);
    if (steps->n_timed > 0) {
        row_set_real(row, "time_cpu_ms", steps->processor_ms);
        row_set_real(row, "time_cpu_low_ms", steps->processor_low_ms);
        row_set_real(row, "time_cpu_high_ms", steps->processor_high_ms);
        row_set_int(row, "time_steps", steps->n_timed);
    }
}

bool study_take_steps(study *at, const study_subject *subject,
                      const dunlin_trainer_options *options, const dunlin_dataset *data,
                      int64_t n_steps, study_steps *out_steps)
{
    dunlin_error error = {0};
    dunlin_trainer *trainer = NULL;
    *out_steps = (study_steps){
        .report = DUNLIN_TRAINER_REPORT_INIT, .step_ms = (double)NAN, .energy_j = (double)NAN};
    dunlin_status status =
        dunlin_trainer_estimate(subject->model, options, &out_steps->report, &error);
    const uint64_t least_bytes = out_steps->report.least_budget_bytes;
    if (status == DUNLIN_OK && n_steps > 0) {
        status = dunlin_trainer_create(subject->model, options, &trainer, &error);
    }
    if (status == DUNLIN_BUDGET) {
        out_steps->needed_bytes = error.needed_bytes;
        return true;
    }
    out_steps->is_fitting = status == DUNLIN_OK;
    if (status == DUNLIN_OK && n_steps > 0) {
        dunlin_source source;
        dunlin_dataset_source(data, &source);
        status = take_all(trainer, &source, options->batch, n_steps, study_flags_of(at)->energy,
                          out_steps);
        if (status != DUNLIN_OK) {
            error = *dunlin_trainer_last_error(trainer);
        } else {
            status = dunlin_trainer_get_report(trainer, &out_steps->report);
            out_steps->report.least_budget_bytes = least_bytes;
        }
    }
    dunlin_trainer_destroy(trainer);
    if (status != DUNLIN_OK) {
        study_fail_with(at, subject->name, &error);
        return false;
    }
    return true;
}
