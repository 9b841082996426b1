/*
 * learn.c - a round's work with the learner: load, slices of fit or evaluate, checkpoints, the
 * update, unload.
 *
 * Invariant: what was loaded is unloaded, whatever happens between.
 */
#include "checkpoint.h"

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
    const dunlin__training_plan *plan = &round->assignment.plan;
    dunlin_task task = {
        .kind = client->session.is_evaluation ? DUNLIN_TASK_EVALUATE : DUNLIN_TASK_TRAIN,
        .population = client->population,
        .name = round->assignment.task,
        .run_epoch = round->assignment.run_epoch,
        .round = round->assignment.round,
        .epochs = (int32_t)plan->n_epochs,
        .batch = (int32_t)plan->batch_size,
        .lr = plan->learning_rate,
        .momentum = plan->momentum,
        .weight_decay = plan->weight_decay,
        .proximal_mu = plan->algorithm == DUNLIN_V1_ALGORITHM_FEDPROX ? plan->prox_mu : 0.0F,
        .seed = plan->seed,
        .max_examples = plan->max_examples > INT64_MAX ? 0 : (int64_t)plan->max_examples,
        .max_steps = plan->max_steps > INT64_MAX ? 0 : (int64_t)plan->max_steps,
        .config = plan->learner_config.size > 0 ? plan->learner_config.bytes : NULL,
        .config_bytes = plan->learner_config.size,
        .n_examples = client->journal.n_examples};
    DUNLIN_TRY(dunlin__round_choose_examples(client, &task));
    dunlin_status status = client->learner.ops->load(client->learner.self, &task, &round->base);
    if (status == DUNLIN_LOCKED) {
        return status;
    }
    if (status != DUNLIN_OK) {
        return fail_learner(client, status, "the learner could not load the round's weights");
    }
    round->is_loaded = true;
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
    round->pace = dunlin__checkpoint_begin(n_bytes);
    return DUNLIN_OK;
}

/* One slice of learning. *out_is_done when the update (if any) is written. */
static dunlin_status learn_slice(dunlin_client *client, int64_t max_ms, bool *out_is_done)
{
    dunlin__journal *journal = &client->journal;
    const dunlin_learner_ops *ops = client->learner.ops;
    dunlin_learner_report report = {0};
    int64_t begun_ms = boot_ms(client);
    int64_t slice_ms = max_ms > 0 && max_ms < FIT_SLICE_MS ? max_ms : FIT_SLICE_MS;
    dunlin_status status = client->session.is_evaluation
                               ? ops->evaluate(client->learner.self, slice_ms, &report)
                               : ops->fit(client->learner.self, slice_ms, &report);
    int64_t took_ms = boot_ms(client) - begun_ms;
    journal->learn_ms += took_ms;
    client->round->pace.learnt_ms += took_ms;
    if (status != DUNLIN_OK) {
        status = dunlin__round_cause(client, status);
        return fail_learner(client, status, "learning failed");
    }
    bool is_begun = journal->n_examples != 0;
    journal->n_examples = report.n_examples;
    journal->n_steps = report.n_steps;
    journal->loss = report.loss;
    journal->accuracy = report.accuracy;
    journal->peak_bytes = report.peak_bytes;
    if (!dunlin__client_tell(client, DUNLIN_PHASE_LEARN, report.n_steps, 0, report.loss)) {
        return dunlin__fail(&client->error, DUNLIN_STOPPED, "client", 0, "stopped on request");
    }
    *out_is_done = report.is_done;
    if (report.is_done && report.n_examples < 1) {
        return dunlin__fail(&client->error, DUNLIN_DATA, "learner", 0,
                            "the learner reports %lld examples; an update weighs at least one",
                            (long long)report.n_examples);
    }
    if (report.is_done) {
        return client->session.is_evaluation ? DUNLIN_OK : dunlin__update_write(client);
    }
    if (!is_begun && journal->n_examples != 0) {
        /* With which examples the round was begun: it goes on with the same after a kill. */
        DUNLIN_TRY(
            dunlin__store_save(client->runtime->store, client->name, journal, &client->error));
    }
    dunlin__checkpoint_tick(client);
    return DUNLIN_OK;
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
