/*
 * best.c - the best model so far, and early stopping.
 *
 * Invariant: all of it follows from the rows of the closed rounds, the task and the files that are
 * there, so it is the same after a start.
 */
#include "best.h"

#include "lineage.h"
#include "model/evaluate.h"
#include "state/context.h"
#include "state/db.h"

#include <mem/support.h>

#include <inttypes.h>

bool dunlin__best_is_kept(const dunlin__server *server)
{
    return server->task.keeps_best && (dunlin__evaluator_has_test_set(server->evaluator) ||
                                       dunlin__server_task_is_judged(&server->task));
}

bool dunlin__best_is_awaited(const dunlin__server_task *task)
{
    return task->rollback > 0 || task->target_accuracy > 0 || task->patience > 0;
}

const char *dunlin__stop_name(dunlin__stop_reason reason)
{
    switch (reason) {
    case DUNLIN_STOP_ROUNDS:
        return "rounds";
    case DUNLIN_STOP_TARGET:
        return "target_accuracy";
    case DUNLIN_STOP_PATIENCE:
        return "patience";
    case DUNLIN_STOP_NONE:
    default:
        return NULL;
    }
}

/* What a row says of a model: of its own by the test set, of its base by the devices. */
static bool read_figures(const dunlin__server *server, const dunlin__round_row *row,
                         dunlin__best_model *out_model)
{
    const dunlin__device_metrics *metrics = &row->metrics;
    dunlin__device_metric accuracy =
        row->is_evaluation ? DUNLIN_METRIC_ACCURACY : DUNLIN_METRIC_ACCURACY_BEFORE;
    dunlin__device_metric loss =
        row->is_evaluation ? DUNLIN_METRIC_LOSS : DUNLIN_METRIC_LOSS_BEFORE;
    if (dunlin__evaluator_has_test_set(server->evaluator)) {
        *out_model = (dunlin__best_model){row->round, row->accuracy, row->loss};
        return row->is_evaluated && !row->is_taken_back;
    }
    *out_model = (dunlin__best_model){row->base, metrics->values[accuracy], metrics->values[loss]};
    return row->base > 0 && metrics->is_there[accuracy] && metrics->is_there[loss] &&
           !dunlin__lineage_is_bad(server, row->base);
}

static bool is_better(const dunlin__best_model *model, const dunlin__best_model *best)
{
    if (best->round == 0) {
        return true;
    }
    if (model->accuracy < best->accuracy || model->accuracy > best->accuracy) {
        return model->accuracy > best->accuracy;
    }
    return model->loss < best->loss;
}

dunlin__best_model dunlin__best_find(const dunlin__server *server, bool has_files)
{
    dunlin__best_model best = {0};
    dunlin__best_model model = {0};
    for (size_t i = 0; i < server->n_closed; i++) {
        if (read_figures(server, &server->closed[i], &model) && is_better(&model, &best) &&
            (!has_files || model.round == server->best.round ||
             dunlin__lineage_has_file(server, model.round + 1))) {
            best = model;
        }
    }
    return best;
}

/* ---- early stopping ---- */

/* Rounds since the best model got better by more than min_delta. Those that made no model do not
 * count, nor those of which nothing is known. */
static uint32_t rounds_without_gain(const dunlin__server *server)
{
    bool has_reference = false;
    double reference = 0;
    uint32_t n = 0;
    for (size_t i = 0; i < server->n_closed; i++) {
        const dunlin__round_row *row = &server->closed[i];
        bool made_model = !row->is_evaluation && !row->is_failed;
        if (!made_model || (!row->is_evaluated && !row->is_taken_back)) {
            continue;
        }
        bool is_gain = !row->is_taken_back &&
                       (!has_reference || row->accuracy > reference + server->task.min_delta);
        if (is_gain) {
            reference = row->accuracy;
            has_reference = true;
            n = 0;
        } else {
            n++;
        }
    }
    return n;
}

static dunlin__stop_reason find_stop(const dunlin__server *server, const dunlin__best_model *best)
{
    const dunlin__server_task *task = &server->task;
    if (task->target_accuracy > 0 && best->round > 0 && best->accuracy >= task->target_accuracy) {
        return DUNLIN_STOP_TARGET;
    }
    if (server->round.round > task->rounds) {
        return DUNLIN_STOP_ROUNDS;
    }
    if (task->patience > 0 && rounds_without_gain(server) >= task->patience) {
        return DUNLIN_STOP_PATIENCE;
    }
    return DUNLIN_STOP_NONE;
}

void dunlin__best_settle(dunlin__server *server)
{
    dunlin__best_model best = {0};
    if (dunlin__best_is_awaited(&server->task)) {
        best = dunlin__best_find(server, false);
    }
    dunlin__stop_reason before = server->stop;
    uint64_t last = server->round.round - 1;
    server->stop = find_stop(server, &best);
    server->is_done = server->stop != DUNLIN_STOP_NONE;
    server->is_exported = server->is_exported && server->is_done;
    if (server->stop == before) {
        return;
    }
    if (server->stop == DUNLIN_STOP_TARGET) {
        dunlin__log(&server->log, DUNLIN_LOG_INFO, "rounds",
                    "the run ends after round %" PRIu64 ": accuracy %.4f of round %" PRIu64
                    " has reached target_accuracy %.6g",
                    last, best.accuracy, best.round, server->task.target_accuracy);
    } else if (server->stop == DUNLIN_STOP_PATIENCE) {
        dunlin__log(&server->log, DUNLIN_LOG_INFO, "rounds",
                    "the run ends after round %" PRIu64 ": %" PRIu32
                    " rounds without a model better than the best by more than %.6g, which is "
                    "patience",
                    last, server->task.patience, server->task.min_delta);
    } else if (server->stop == DUNLIN_STOP_ROUNDS) {
        dunlin__log(&server->log, DUNLIN_LOG_INFO, "rounds",
                    "the run ends after round %" PRIu64 ": that is all of rounds %" PRIu64, last,
                    server->task.rounds);
    }
}
