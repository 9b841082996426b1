/*
 * tally.c - contributions of a round: from commits to the figures of the round's row.
 */
#include "tally.h"

#include "task/task.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

/* The metrics there are names for; the message's own rules have judged their values. */
static void take_metrics(const dunlin__commit_request *commit, dunlin__device_metrics *out_metrics)
{
    for (size_t i = 0; i < commit->metrics_count; i++) {
        for (int m = 0; m < DUNLIN_N_METRICS; m++) {
            if (strcmp(commit->metrics[i].name,
                       dunlin__device_metric_name((dunlin__device_metric)m)) == 0) {
                out_metrics->is_there[m] = true;
                out_metrics->values[m] = commit->metrics[i].value;
            }
        }
    }
}

dunlin__contribution_row dunlin__server_tally_contribution(const dunlin__server *server,
                                                           uint64_t round, int64_t client_index,
                                                           const dunlin__commit_request *commit)
{
    const bool is_private = server->task.dp.is_on || server->task.secagg.is_on;
    uint64_t weight = is_private ? 1 : commit->n_examples; /* there a device counts once */
    if (weight > server->task.weight_cap) {
        weight = server->task.weight_cap;
        dunlin__log(&server->log, DUNLIN_LOG_INFO, "rounds",
                    "round %" PRIu64 ": a device has %" PRIu64
                    " examples and counts for weight_cap, %" PRIu64,
                    round, commit->n_examples, weight);
    }
    dunlin__contribution_row row = {.round = round,
                                    .client_index = client_index,
                                    .weight = (double)weight,
                                    .n_steps = is_private ? 0 : commit->n_steps,
                                    .train_ms = is_private ? 0 : commit->train_ms,
                                    .within_clip = server->task.plan.clip_quantile > 0
                                                       ? commit->within_clip
                                                       : DUNLIN_V1_WITHIN_CLIP_UNSPECIFIED};
    if (!is_private) {
        take_metrics(commit, &row.metrics);
    }
    return row;
}

void dunlin__server_tally_add(dunlin__server_tally *tally,
                              const dunlin__contribution_row *contribution)
{
    tally->weight_sum += contribution->weight;
    tally->n_within += contribution->within_clip == DUNLIN_V1_WITHIN_CLIP_YES ? 1 : 0;
    tally->n_beyond += contribution->within_clip == DUNLIN_V1_WITHIN_CLIP_NO ? 1 : 0;
    for (int m = 0; m < DUNLIN_N_METRICS; m++) {
        if (contribution->metrics.is_there[m]) {
            tally->metric_weights[m] += contribution->weight;
            tally->metric_sums[m] += contribution->weight * contribution->metrics.values[m];
        }
    }
}

void dunlin__server_tally_fill(const dunlin__server_tally *tally, dunlin__round_row *row)
{
    const size_t n_told = tally->n_within + tally->n_beyond;
    row->weight_sum = tally->weight_sum;
    row->has_clip_within = n_told > 0;
    row->clip_within = n_told > 0 ? (double)tally->n_within / (double)n_told : 0;
    for (int m = 0; m < DUNLIN_N_METRICS; m++) {
        const double weight = tally->metric_weights[m];
        row->metrics.is_there[m] = weight > 0;
        row->metrics.values[m] = weight > 0 ? tally->metric_sums[m] / weight : 0;
    }
}
