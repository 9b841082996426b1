/*
 * tally.c - sums over the examples of a call, output by output, and metrics of them.
 */
#include "tally.h"

#include "step/context/guard.h"

#include <dunlin/several.h>
#include <mem/support.h>

#include <inttypes.h>

#define TOP5_LEAST_CLASSES 6

void dunlin__tally_add(dunlin_tally *total, const dunlin_step_graph *step,
                       const dunlin_step_run *run, const double *sums)
{
    total->n += run->n_batch;
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        const double *own = sums + i * DUNLIN_N_LOSS_SUMS;
        dunlin_output_tally *of = &total->of[i];
        total->n_counted += run->n_counted[i];
        of->n_counted += run->n_counted[i];
        of->weight += run->weight_sums[i];
        of->loss += own[DUNLIN_SUM_LOSS];
        of->right += own[DUNLIN_SUM_RIGHT];
        of->right5 += own[DUNLIN_SUM_RIGHT5];
    }
}

double dunlin__tally_loss(const dunlin_step_graph *step, const dunlin_step_run *run,
                          const double *sums)
{
    double loss = 0.0;
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        const dunlin_step_output *of = &step->outputs[i];
        loss += (double)of->loss.weight *
                (sums[i * DUNLIN_N_LOSS_SUMS + DUNLIN_SUM_LOSS] / dunlin__run_divisor(run, i));
    }
    return loss;
}

static dunlin_metrics metrics_of(const dunlin_step_output *output, const dunlin_output_tally *of,
                                 int64_t n_examples)
{
    const double n = of->n_counted > 0 ? (double)of->n_counted : 1.0;
    const double weight = of->n_counted > 0 ? of->weight : 1.0;
    const dunlin_loss loss = output->loss.loss;
    const bool is_of_each = loss == DUNLIN_LOSS_BCE || loss >= DUNLIN_LOSS_CONTRASTIVE;
    dunlin_metrics metrics = {
        .n_examples = n_examples,
        .loss = of->loss / weight,
        .accuracy = of->right / (is_of_each ? n * output->n_classes : n),
        .n_counted = of->n_counted,
        .weight = of->weight,
    };
    const bool is_of_classes =
        loss == DUNLIN_LOSS_CROSS_ENTROPY || loss == DUNLIN_LOSS_SOFT_CROSS_ENTROPY;
    if (is_of_classes && output->n_classes >= TOP5_LEAST_CLASSES) {
        metrics.top5_accuracy = of->right5 / n;
    }
    return metrics;
}

void dunlin__tally_metrics(dunlin_trainer *trainer, const dunlin_tally *total,
                           dunlin_metrics *out_metrics)
{
    const dunlin_step_graph *step = trainer->train.step;
    double loss = 0.0;
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        const dunlin_step_output *output = &step->outputs[i];
        trainer->output_metrics[i] = metrics_of(output, &total->of[i], total->n);
        loss += (double)output->loss.weight * trainer->output_metrics[i].loss;
    }
    if (out_metrics != NULL) {
        *out_metrics = trainer->output_metrics[0];
        out_metrics->loss = loss;
    }
}

dunlin_status dunlin_trainer_get_output_metrics(const dunlin_trainer *trainer, int32_t index,
                                                dunlin_metrics *out_metrics)
{
    if (trainer == NULL) {
        return DUNLIN_ARGUMENT;
    }
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    const uint32_t n_outputs = trainer->train.step->n_outputs;
    if (out_metrics == NULL || index < 0 || index >= (int32_t)n_outputs) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "there is no output %" PRId32 " among %" PRIu32
                            ", or nowhere to put its metrics",
                            index, n_outputs);
    }
    *out_metrics = trainer->output_metrics[index];
    return DUNLIN_OK;
}
