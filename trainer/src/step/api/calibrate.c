/*
 * calibrate.c - the calibration: examples of the first batch pass through the whole step, one at a
 * time, and each operator raises the exponent of what it writes to what that example needs, before
 * it writes. So exponents are found in order, layer by layer, forward and backward, each from
 * inputs that have theirs; and since an example alone is a slice of every plan, they depend on
 * neither budget nor slices. No weight changes.
 *
 * Invariant: a calibration that fails leaves the trainer as one that had none.
 */
#include "calibrate.h"

#include "integer/precision.h"
#include "step/run/values.h"

#include <mem/support.h>

static dunlin_integer_site *sites_of(const dunlin_trainer *trainer)
{
    return dunlin__values_sites(&trainer->train, &trainer->arena);
}

/* The last site is the loss's, whose exponent is 0: what it tells is that a step has calibrated. */
static int32_t *mark_of(const dunlin_trainer *trainer)
{
    return &sites_of(trainer)[trainer->train.step->n_sites - 1].is_known;
}

/* Ranges: the same of all the examples at once, each rounded by itself, for batch norm wants them
 * together. An evaluation rounds so without ranges, and finds none. */
static dunlin_status calibrate_ranges(dunlin_trainer *trainer, const dunlin_step_run *run)
{
    const int64_t most = trainer->precision->n_calibrated;
    dunlin_range *ranges = dunlin__values_ranges(&trainer->train, &trainer->arena);
    const size_t last = trainer->train.step->n_sites - 1;
    if (ranges[last].range > 0.0F) {
        return DUNLIN_OK;
    }
    for (size_t i = 0; i < last; i++) {
        ranges[i].range = 0.0F;
        ranges[i].spread = 0.0F;
        ranges[i].bits = 0;
    }
    dunlin_step_trace trace = {.largest_example = -1};
    dunlin_step_run all = *run;
    all.is_calibrating = true;
    all.n_batch = run->n_batch < most ? run->n_batch : most;
    all.out_sums = NULL;
    all.watch = NULL;
    all.trace = &trace;
    DUNLIN_TRY(dunlin__exec(&trainer->train, &trainer->arena, NULL, &all));
    ranges[last].range = 1.0F;
    return DUNLIN_OK;
}

static dunlin_status calibrate(dunlin_trainer *trainer, const dunlin_program *program,
                               const dunlin_step_run *run)
{
    const int64_t most = trainer->precision->n_calibrated;
    const int64_t n = run->n_batch < most ? run->n_batch : most;
    dunlin__sites_forget(sites_of(trainer), (uint32_t)trainer->net.n_params,
                         program->step->n_sites);
    for (int64_t i = 0; i < n; i++) {
        dunlin_step_trace trace = {.largest_example = -1};
        dunlin_step_run one = *run;
        one.is_calibrating = true;
        one.n_batch = 1;
        one.indices = run->indices != NULL ? run->indices + i : NULL;
        one.first_index = run->first_index + i;
        one.out_sums = NULL;
        one.watch = NULL;
        one.trace = &trace;
        DUNLIN_TRY(dunlin__exec(program, &trainer->arena, NULL, &one));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__calibrate_step(dunlin_trainer *trainer, const dunlin_step_run *run)
{
    if (trainer->precision != NULL && !dunlin__precision_is_whole(trainer->precision)) {
        return calibrate_ranges(trainer, run);
    }
    if (trainer->precision == NULL || *mark_of(trainer) != 0) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(calibrate(trainer, &trainer->train, run));
    *mark_of(trainer) = 1;
    return DUNLIN_OK;
}

dunlin_status dunlin__calibrate_infer(dunlin_trainer *trainer, const dunlin_step_run *run)
{
    if (!dunlin__precision_is_whole(trainer->precision) || *mark_of(trainer) != 0) {
        return DUNLIN_OK;
    }
    return calibrate(trainer, &trainer->infer, run);
}

void dunlin__calibrate_again(dunlin_trainer *trainer)
{
    dunlin_range *ranges = dunlin__values_ranges(&trainer->train, &trainer->arena);
    if (ranges != NULL) {
        ranges[trainer->train.step->n_sites - 1].range = 0.0F;
    } else if (trainer->precision != NULL) {
        *mark_of(trainer) = 0;
    }
}
