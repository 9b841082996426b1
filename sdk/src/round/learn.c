/*
 * learn.c - a round's work with the learner: load, slices of fit or evaluate, checkpoints, the
 * update, unload.
 *
 * Invariant: what was loaded is unloaded, whatever happens between.
 */
#include "learn.h"

#include "checkpoint.h"
#include "context/app_metrics.h"
#include "context/client_context.h"
#include "context/round_examples.h"
#include "learner_report.h"
#include "partial.h"
#include "session/session.h"
#include "store/store.h"
#include "task_orders.h"
#include "transfer/submit.h"
#include "weights/base_weights.h"
#include "weights/scaffold.h"

#include <inttypes.h>
#include <math.h>

#define FIT_SLICE_MS 500

static int64_t boot_ms(const dunlin_client *client)
{
    return client->runtime->clock.boot_ms_fn(client->runtime->clock.ctx);
}

void dunlin__learner_drop(dunlin_client *client)
{
    if (client->round->is_loaded) {
        client->learner.ops->unload(client->learner.self);
        client->round->is_loaded = false;
    }
}

/* The learner's own line about a failure, under the learner's status. */
static dunlin_status fail_learner(dunlin_client *client, dunlin_status status, const char *what)
{
    const char *text = NULL;
    if (client->learner.ops->error_text != NULL) {
        text = client->learner.ops->error_text(client->learner.self);
    }
    return dunlin__fail(&client->error, status, "learner", 0, "%s: %.200s", what,
                        text != NULL ? text : dunlin_status_text(status));
}

static dunlin_status load_weights(dunlin_client *client)
{
    dunlin__round *round = client->round;
    dunlin_task task;
    dunlin__task_orders orders;
    dunlin__task_take(&round->assignment, &orders, &task);
    round->report.storage = task.storage;
    task.n_examples = client->journal.n_examples;
    task.partial_ms = dunlin__partial_left_ms(client);
    if (dunlin__round_is_scaffold(client)) {
        round->correction = dunlin__scaffold_correction(client);
        task.correction = &round->correction;
    }
    DUNLIN_TRY(dunlin__round_choose_examples(client, &task));
    dunlin_status status = client->learner.ops->load(client->learner.self, &task, &round->base);
    if (status == DUNLIN_LOCKED) {
        return status;
    }
    if (status != DUNLIN_OK) {
        return fail_learner(client, status, "the learner could not load the round's weights");
    }
    round->is_loaded = true;
    round->is_fitted = false;
    round->done_share = 0.0;
    return DUNLIN_OK;
}

/* The weights of the round, or of its last checkpoint. */
static dunlin_status load_learner(dunlin_client *client)
{
    dunlin__round *round = client->round;
    uint64_t n_bytes = 0;
    DUNLIN_TRY(dunlin__base_open(client));
    DUNLIN_TRY(load_weights(client));
    if (!dunlin__checkpoint_restore(client)) {
        dunlin__learner_drop(client);
        DUNLIN_TRY(load_weights(client));
    }
    for (int32_t i = 0; i < round->n_tensors; i++) {
        n_bytes += (uint64_t)round->tensors[i].n_elements * sizeof(float);
    }
    dunlin__checkpoint_begin(client, n_bytes);
    return DUNLIN_OK;
}

/* By the app's counter; not a number: it does not tell. */
static double energy_now(const dunlin_client *client)
{
    const dunlin_client_options *options = &client->options;
    return options->energy_fn != NULL ? options->energy_fn(options->energy_ctx) : (double)NAN;
}

/* A round of which any piece is not counted has no energy. */
static void count_energy(dunlin_client *client, double begun_j)
{
    dunlin__round *round = client->round;
    const double took_j = energy_now(client) - begun_j;
    if (isfinite(took_j) && took_j >= 0.0) {
        round->has_energy = true;
        round->energy_j += took_j;
    } else {
        round->has_lost_energy = true;
    }
}

/* One call of the learner's, its time and energy counted. */
static dunlin_status call_learner(dunlin_client *client, bool is_fit, int64_t max_ms,
                                  dunlin_learner_report *out_report)
{
    const dunlin_learner_ops *ops = client->learner.ops;
    int64_t begun_ms = boot_ms(client);
    const double begun_j = energy_now(client);
    int64_t slice_ms = max_ms > 0 && max_ms < FIT_SLICE_MS ? max_ms : FIT_SLICE_MS;
    const int64_t partial_ms = is_fit ? dunlin__partial_left_ms(client) : 0;
    slice_ms = partial_ms > 0 && partial_ms < slice_ms ? partial_ms : slice_ms;
    dunlin_status status = is_fit ? ops->fit(client->learner.self, slice_ms, out_report)
                                  : ops->evaluate(client->learner.self, slice_ms, out_report);
    count_energy(client, begun_j);
    int64_t took_ms = dunlin__ms_passed(begun_ms, boot_ms(client));
    client->journal.learn_ms += took_ms < INT64_MAX - client->journal.learn_ms ? took_ms : 0;
    client->round->pace.learnt_ms += is_fit ? took_ms : 0;
    /* A fit that was stopped may report too: see fit_slice(). */
    if (status == DUNLIN_OK || (status == DUNLIN_STOPPED && is_fit)) {
        DUNLIN_TRY(dunlin__learner_report_check(out_report, &client->error));
    }
    if (status != DUNLIN_OK) {
        status = dunlin__round_cause(client, status);
        return fail_learner(client, status, is_fit ? "learning failed" : "evaluating failed");
    }
    if (!dunlin__client_tell(client, DUNLIN_PHASE_LEARN, out_report->n_steps, 0,
                             out_report->loss)) {
        return dunlin__fail(&client->error, DUNLIN_STOPPED, "client", 0,
                            "stopped on request after %" PRId64 " steps of training",
                            out_report->n_steps);
    }
    return DUNLIN_OK;
}

/* What goes into the commit and the report: of fit, or of a round that only evaluates. */
static void take_work(dunlin_client *client, const dunlin_learner_report *report)
{
    dunlin__journal *journal = &client->journal;
    journal->n_examples = report->n_examples;
    journal->n_steps = report->n_steps;
    journal->loss = report->loss;
    journal->accuracy = report->accuracy;
    journal->peak_bytes = report->peak_bytes;
}

/* A round that only evaluates. */
static dunlin_status evaluate_slice(dunlin_client *client, int64_t max_ms, bool *out_is_done)
{
    dunlin_learner_report report = DUNLIN_LEARNER_REPORT_INIT;
    DUNLIN_TRY(call_learner(client, false, max_ms, &report));
    *out_is_done = report.is_done;
    take_work(client, &report);
    return report.is_done ? dunlin__metrics_of_learner(client, &report) : DUNLIN_OK;
}

/* One of the evaluations around the training. */
static dunlin_status compare_slice(dunlin_client *client, dunlin__evaluated which, int64_t max_ms)
{
    dunlin__journal *journal = &client->journal;
    dunlin_learner_report report = DUNLIN_LEARNER_REPORT_INIT;
    DUNLIN_TRY(call_learner(client, false, max_ms, &report));
    if (!report.is_done) {
        return DUNLIN_OK;
    }
    journal->evaluated |= (int32_t)which;
    if (which == DUNLIN_EVALUATED_AFTER) {
        journal->loss_after = report.loss;
        journal->accuracy_after = report.accuracy;
        return DUNLIN_OK; /* journalled with the end of learning */
    }
    journal->loss_before = report.loss;
    journal->accuracy_before = report.accuracy;
    return dunlin__store_save(client->runtime->store, client->name, journal, &client->error);
}

static dunlin_status fit_slice(dunlin_client *client, int64_t max_ms)
{
    dunlin__journal *journal = &client->journal;
    dunlin_learner_report report = DUNLIN_LEARNER_REPORT_INIT;
    const dunlin_status status = call_learner(client, true, max_ms, &report);
    if (status == DUNLIN_STOPPED && report.n_examples > 0 && !report.is_done) {
        /* A pause comes between two steps: what was trained by then is kept for the next time. */
        take_work(client, &report);
        dunlin__round_keep_paused(client);
    }
    DUNLIN_TRY(status);
    bool is_begun = journal->n_examples != 0;
    take_work(client, &report);
    client->round->done_share = report.done_share;
    client->round->is_fitted = report.is_done || dunlin__partial_is_over(client, &report);
    if (report.is_done) {
        return dunlin__metrics_of_learner(client, &report);
    }
    if (client->round->is_fitted) {
        return DUNLIN_OK;
    }
    if (!is_begun && journal->n_examples != 0) {
        /* With which examples the round was begun: it goes on with the same after a kill. */
        DUNLIN_TRY(
            dunlin__store_save(client->runtime->store, client->name, journal, &client->error));
    }
    dunlin__checkpoint_tick(client);
    return DUNLIN_OK;
}

/* One slice of the round's work. *out_is_done when the update (if any) is written. */
static dunlin_status learn_slice(dunlin_client *client, int64_t max_ms, bool *out_is_done)
{
    dunlin__round *round = client->round;
    const dunlin__journal *journal = &client->journal;
    bool evaluates = round->assignment.plan.evaluates;
    if (client->session.is_evaluation) {
        return evaluate_slice(client, max_ms, out_is_done);
    }
    /* Resumed training cannot be evaluated as it was before. */
    if (evaluates && (journal->evaluated & DUNLIN_EVALUATED_BEFORE) == 0 &&
        journal->n_examples == 0) {
        return compare_slice(client, DUNLIN_EVALUATED_BEFORE, max_ms);
    }
    if (!round->is_fitted) {
        DUNLIN_TRY(fit_slice(client, max_ms));
    } else if (evaluates && (journal->evaluated & DUNLIN_EVALUATED_AFTER) == 0) {
        DUNLIN_TRY(compare_slice(client, DUNLIN_EVALUATED_AFTER, max_ms));
    }
    *out_is_done =
        round->is_fitted && (!evaluates || (journal->evaluated & DUNLIN_EVALUATED_AFTER) != 0);
    if (!*out_is_done) {
        return DUNLIN_OK;
    }
    dunlin__partial_weigh(client);
    return dunlin__update_write(client);
}

dunlin_status dunlin__learner_work(dunlin_client *client, int64_t max_ms, dunlin__event *out_event,
                                   bool *out_has_event, dunlin__fault *out_fault)
{
    bool is_done = false;
    dunlin_status status = DUNLIN_OK;
    if (!client->round->is_loaded) {
        status = load_learner(client);
        if (status == DUNLIN_LOCKED) {
            out_event->kind = DUNLIN_EVENT_BUSY;
            *out_has_event = true;
            return DUNLIN_OK;
        }
    }
    if (status == DUNLIN_OK) {
        status = learn_slice(client, max_ms, &is_done);
    }
    if (status == DUNLIN_OK && is_done) {
        status = dunlin__metrics_keep(client);
    }
    if (status == DUNLIN_STOPPED && !dunlin__client_should_stop(client)) {
        /* Else it would be loaded and asked again at once, and so on. */
        status = dunlin__fail(&client->error, DUNLIN_CALLBACK, "learner", 0,
                              "the learner returned DUNLIN_STOPPED, and nobody asked it to stop");
    }
    status = dunlin__learner_status_check(status, &client->error);
    if (status != DUNLIN_OK) {
        *out_fault = dunlin__fault_of(status);
        dunlin__learner_drop(client);
        dunlin__base_close(client);
        return status;
    }
    if (is_done) {
        dunlin__learner_drop(client);
        dunlin__base_close(client);
        out_event->kind = DUNLIN_EVENT_LEARNED;
        *out_has_event = true;
    }
    return DUNLIN_OK;
}
