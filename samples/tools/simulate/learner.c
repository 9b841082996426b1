/*
 * learner.c - a device's training in simulated time.
 *
 * Invariant: how long a piece takes follows from the costs, the class and the number of examples
 * alone; the weights follow from the task and the base alone. When they are computed shows nowhere.
 */
#include "simulation.h"

#include <dunlin/trainer_advanced.h>

#include <stdlib.h>
#include <string.h>

/* So often a training device looks at its conditions. */
#define PIECE_US (10 * SIM_US_PER_S)
#define DRAW_FAILS 2

static dunlin_status fail(sim_learner *learner, dunlin_status status, const char *text)
{
    (void)snprintf(learner->text, sizeof learner->text, "%s", text);
    return status;
}

/* ---- the task ---- */

static const char *keep_text(sim_task *into, const char *text)
{
    char *copy = text != NULL ? strdup(text) : NULL;
    if (copy != NULL) {
        into->texts[into->n_texts++] = copy;
    }
    return copy;
}

static void free_task(sim_task *task)
{
    for (int32_t i = 0; i < task->n_texts; i++) {
        free(task->texts[i]);
    }
    memset(task, 0, sizeof *task);
}

/* What the library gives is of our own size: one build has both. */
static void keep_task(sim_task *into, const dunlin_task *task)
{
    memset(into, 0, sizeof *into);
    into->task = *task;
    into->task.population = "";
    into->task.name = "";
    into->task.config = NULL;
    into->task.config_bytes = 0;
    if (task->schedule != NULL) {
        into->schedule = *task->schedule;
        into->task.schedule = &into->schedule;
    }
    if (task->parameters == NULL) {
        return;
    }
    into->parameters = *task->parameters;
    into->parameters.trained_prefixes = keep_text(into, task->parameters->trained_prefixes);
    into->parameters.frozen_prefixes = keep_text(into, task->parameters->frozen_prefixes);
    into->parameters.groups = into->groups;
    for (int32_t i = 0; i < task->parameters->n_groups; i++) {
        into->groups[i] = task->parameters->groups[i];
        into->groups[i].name = keep_text(into, task->parameters->groups[i].name);
        into->groups[i].patterns = keep_text(into, task->parameters->groups[i].patterns);
    }
    into->task.parameters = &into->parameters;
}

/* ---- the values ---- */

static int64_t offset_of(const sim_learner *learner, int32_t index)
{
    int64_t offset = 0;
    for (int32_t i = 0; i < index; i++) {
        offset += learner->tensors[i].n_elements;
    }
    return offset;
}

static dunlin_status read_values(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    const sim_learner *learner = ctx;
    if (index < 0 || index >= learner->n_tensors || first < 0 || n < 0 ||
        first > learner->tensors[index].n_elements - n) {
        return DUNLIN_ARGUMENT;
    }
    memcpy(out, learner->values + offset_of(learner, index) + first, (size_t)n * sizeof *out);
    return DUNLIN_OK;
}

static dunlin_weights_reader reader_of(sim_learner *learner)
{
    return (dunlin_weights_reader){.ctx = learner,
                                   .tensors = learner->tensors,
                                   .n_tensors = learner->n_tensors,
                                   .read_fn = read_values};
}

/* All tensors of a reader, one after the other. */
static dunlin_status copy_values(const dunlin_weights_reader *from, float *out)
{
    dunlin_status status = DUNLIN_OK;
    for (int32_t i = 0; status == DUNLIN_OK && i < from->n_tensors; i++) {
        status = from->read_fn(from->ctx, i, 0, from->tensors[i].n_elements, out);
        out += from->tensors[i].n_elements;
    }
    return status;
}

/* ---- the work itself, on any thread ---- */

static dunlin_status run_inner(sim_learner *learner, const dunlin_learner *inner, bool is_training,
                               dunlin_learner_report *report)
{
    const dunlin_weights_reader base = reader_of(learner);
    dunlin_weights_reader trained;
    dunlin_status status = inner->ops->load(inner->self, &learner->task.task, &base);
    if (status != DUNLIN_OK) {
        return status;
    }
    do {
        *report = (dunlin_learner_report)DUNLIN_LEARNER_REPORT_INIT;
        status = is_training ? inner->ops->fit(inner->self, 0, report)
                             : inner->ops->evaluate(inner->self, 0, report);
    } while (status == DUNLIN_OK && !report->is_done);
    if (status == DUNLIN_OK && is_training) {
        status = inner->ops->save(inner->self, &trained);
        status = status == DUNLIN_OK ? copy_values(&trained, learner->values) : status;
    }
    return status;
}

/* With a trainer of the pool of the device's memory. */
static dunlin_status run_builtin(sim_learner *learner, bool is_training,
                                 dunlin_learner_report *report)
{
    dunlin_builtin *builtin = NULL;
    dunlin_learner inner;
    dunlin_error error = {0};
    dunlin_trainer_pool *pool = learner->sim->pools[learner->row];
    dunlin_status status =
        dunlin_builtin_create(pool, &learner->source, NULL, &builtin, &inner, &error);
    if (status != DUNLIN_OK) {
        return fail(learner, status, error.text);
    }
    status = run_inner(learner, &inner, is_training, report);
    if (status != DUNLIN_OK) {
        const char *text = inner.ops->error_text(inner.self);
        (void)fail(learner, status, text != NULL ? text : dunlin_status_text(status));
    }
    inner.ops->unload(inner.self);
    dunlin_builtin_destroy(builtin);
    return status;
}

static void run_job(sim_job *job)
{
    sim_learner *learner = (sim_learner *)(void *)job;
    learner->status = run_builtin(learner, true, &learner->result);
}

/* ---- the calls of the client ---- */

static double time_factor(const sim_learner *learner)
{
    return learner->sim->devices.classes[learner->device->class_index].time_factor;
}

static int64_t n_examples(const sim_learner *learner)
{
    const int64_t most = learner->task.task.max_examples;
    return most > 0 && most < learner->source.n_examples ? most : learner->source.n_examples;
}

/* Examples that pass through in all epochs, or in the steps that are allowed. */
static int64_t n_trained(const sim_learner *learner)
{
    const dunlin_task *task = &learner->task.task;
    const int64_t n = n_examples(learner) * (task->epochs > 0 ? task->epochs : 1);
    const int64_t batch = learner->sim->costs.batch;
    return task->max_steps > 0 && task->max_steps < n / batch ? task->max_steps * batch : n;
}

/* Steps of all epochs on this device, as its trainer counts them. */
static int64_t n_ordered_steps(const sim_learner *learner)
{
    static const dunlin_remainder remainder_of[] = {
        [DUNLIN_TASK_REMAINDER_KEEP] = DUNLIN_REMAINDER_KEEP,
        [DUNLIN_TASK_REMAINDER_DROP] = DUNLIN_REMAINDER_DROP,
        [DUNLIN_TASK_REMAINDER_JOIN] = DUNLIN_REMAINDER_JOIN};
    const dunlin_task *task = &learner->task.task;
    const int64_t batch = learner->sim->costs.batch;
    const int64_t n = n_examples(learner);
    const dunlin_remainder remainder =
        n < batch ? DUNLIN_REMAINDER_KEEP : remainder_of[task->remainder];
    const int64_t n_steps =
        (task->epochs > 0 ? task->epochs : 1) * dunlin_epoch_steps(n, batch, remainder);
    return task->max_steps > 0 && task->max_steps < n_steps ? task->max_steps : n_steps;
}

/* A device that is too slow for the plan's share of the deadline does the steps that fit, at least
 * one, and says which part of its work they are. */
static void cut_training(sim_learner *learner)
{
    const simulation *sim = learner->sim;
    dunlin_task *task = &learner->task.task;
    const int64_t left_us = task->partial_ms * 1000 - (sim->now_us - learner->loaded_us);
    learner->done_share = 1.0;
    if (task->partial_ms == 0 || learner->total_us <= left_us) {
        return;
    }
    const int64_t n_ordered = n_ordered_steps(learner);
    const int64_t step_us = (learner->total_us + n_ordered - 1) / n_ordered;
    const int64_t n_fit = left_us / step_us;
    task->max_steps = n_fit > 1 ? n_fit : 1;
    if (task->max_steps < n_ordered) {
        learner->done_share = (double)task->max_steps / (double)n_ordered;
        learner->total_us = task->max_steps * step_us;
    }
}

/* Whether the app is ended in this training, and when. */
static int64_t draw_failure(const sim_learner *learner)
{
    sim_draw draw = sim_draw_begin(learner->sim->flags->seed, (uint64_t)learner->index,
                                   (learner->task.task.round << 8) + DRAW_FAILS);
    const bool fails = sim_draw_unit(&draw) < learner->device->failures;
    return fails ? (int64_t)(sim_draw_unit(&draw) * (double)learner->total_us) : -1;
}

static void drop(sim_learner *learner)
{
    if (learner->is_queued) {
        sim_jobs_take_back(learner->sim->jobs, &learner->job);
    }
    free(learner->values);
    free(learner->tensors);
    free(learner->names);
    free_task(&learner->task);
    learner->values = NULL;
    learner->tensors = NULL;
    learner->names = NULL;
    learner->n_tensors = 0;
    learner->is_queued = false;
    learner->has_result = false;
    learner->is_loaded = false;
}

/* A table of our own: a training goes on while its client is taken up again. */
static bool copy_table(sim_learner *learner, const dunlin_weights_reader *base)
{
    size_t n_bytes = 1;
    for (int32_t i = 0; i < base->n_tensors; i++) {
        n_bytes += strlen(base->tensors[i].name) + 1;
    }
    learner->tensors = calloc((size_t)base->n_tensors + 1, sizeof *learner->tensors);
    learner->names = malloc(n_bytes);
    if (learner->tensors == NULL || learner->names == NULL) {
        return false;
    }
    char *name = learner->names;
    for (int32_t i = 0; i < base->n_tensors; i++) {
        const size_t n = strlen(base->tensors[i].name) + 1;
        learner->tensors[i] = base->tensors[i];
        memcpy(name, base->tensors[i].name, n);
        learner->tensors[i].name = name;
        name += n;
    }
    learner->n_tensors = base->n_tensors;
    return true;
}

static dunlin_status take_base(sim_learner *learner, const dunlin_weights_reader *base)
{
    if (!copy_table(learner, base)) {
        return fail(learner, DUNLIN_MEMORY, "no memory for the weights");
    }
    learner->n_values = offset_of(learner, base->n_tensors);
    learner->values = calloc((size_t)learner->n_values + 1, sizeof *learner->values);
    return learner->values != NULL ? copy_values(base, learner->values)
                                   : fail(learner, DUNLIN_MEMORY, "no memory for the weights");
}

static dunlin_status load(void *self, const dunlin_task *task, const dunlin_weights_reader *base)
{
    sim_learner *learner = self;
    simulation *sim = learner->sim;
    const sim_moment *moment = sim_moment_at(&sim->devices, learner->device, sim->now_us);
    const bool is_begun = learner->before.is_loaded && learner->before.round == task->round;
    learner->text[0] = '\0';
    if (learner->is_loaded && learner->task.task.round == task->round) {
        return DUNLIN_OK; /* its client was taken up again meanwhile */
    }
    drop(learner);
    learner->row =
        is_begun ? learner->before.row : sim_costs_find(&sim->costs, moment->memory_bytes);
    if (learner->row < 0) {
        (void)snprintf(learner->text, sizeof learner->text,
                       "the device gives %llu bytes to training, which needs %llu",
                       (unsigned long long)moment->memory_bytes,
                       (unsigned long long)sim->costs.least_bytes);
        return DUNLIN_BUDGET;
    }
    const dunlin_status status = take_base(learner, base);
    if (status != DUNLIN_OK) {
        drop(learner);
        return status;
    }
    keep_task(&learner->task, task);
    learner->loaded_us = is_begun ? learner->before.loaded_us : sim->now_us;
    learner->done_share = 1.0;
    learner->is_loaded = true;
    learner->before.is_loaded = is_begun;
    sim->of_row[learner->row] += task->kind == DUNLIN_TASK_TRAIN && !is_begun ? 1 : 0;
    return DUNLIN_OK;
}

/* A training that another process had begun. */
static void take_progress(sim_learner *learner)
{
    const sim_progress *before = &learner->before;
    learner->done_us = before->done_us;
    learner->total_us = before->total_us;
    learner->fails_us = before->fails_us;
    learner->done_share = before->done_share;
    learner->task.task.max_steps = before->max_steps;
}

/* How long the training takes, and whether the app is ended in it. */
static void begin_training(sim_learner *learner)
{
    learner->done_us = 0;
    if (learner->before.is_loaded && learner->before.is_queued) {
        take_progress(learner);
    } else {
        learner->total_us = sim_train_us(&learner->sim->costs, learner->row, time_factor(learner),
                                         n_trained(learner));
        cut_training(learner);
        learner->fails_us = draw_failure(learner);
    }
    learner->before.is_loaded = false;
    learner->job.run_fn = run_job;
    learner->is_queued = true;
    sim_jobs_add(learner->sim->jobs, &learner->job);
}

/* The next piece of simulated time: to the end, or to what happens before that. */
static int64_t next_piece_us(sim_learner *learner)
{
    const simulation *sim = learner->sim;
    int64_t piece_us = learner->total_us - learner->done_us;
    const int64_t change_us =
        sim_next_change_us(&sim->devices, learner->device, sim->now_us) - sim->now_us;
    piece_us = piece_us < PIECE_US ? piece_us : PIECE_US;
    piece_us = piece_us < change_us ? piece_us : change_us;
    if (learner->fails_us >= 0 && learner->done_us + piece_us >= learner->fails_us) {
        piece_us = learner->fails_us - learner->done_us;
        learner->fails_us = -1;
        learner->is_interrupted = true;
    }
    return piece_us;
}

static dunlin_status fit(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    sim_learner *learner = self;
    (void)max_ms;
    if (!learner->is_queued) {
        begin_training(learner);
    }
    const int64_t piece_us = next_piece_us(learner);
    learner->done_us += piece_us;
    learner->sim->now_us += piece_us;
    sim_energy_compute(learner->client, piece_us);
    out_report->n_examples = n_examples(learner);
    if (learner->done_us < learner->total_us || learner->is_interrupted) {
        return DUNLIN_OK;
    }
    sim_jobs_wait(learner->sim->jobs, &learner->job);
    learner->has_result = learner->status == DUNLIN_OK;
    *out_report = learner->result;
    out_report->done_share = learner->done_share;
    return learner->status;
}

/* All at once: it is short beside the training. */
static dunlin_status evaluate(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    sim_learner *learner = self;
    (void)max_ms;
    const int64_t took_us =
        sim_evaluate_us(&learner->sim->costs, time_factor(learner), n_examples(learner));
    learner->sim->now_us += took_us;
    sim_energy_compute(learner->client, took_us);
    return run_builtin(learner, false, out_report);
}

static dunlin_status save(void *self, dunlin_weights_reader *out)
{
    *out = reader_of(self);
    return DUNLIN_OK;
}

static void unload(void *self)
{
    sim_learner *learner = self;
    if (!learner->is_paused) {
        drop(learner);
    }
}

static const char *error_text(void *self)
{
    const sim_learner *learner = self;
    return learner->text[0] != '\0' ? learner->text : NULL;
}

static const dunlin_learner_ops OPS = {.struct_size = sizeof(dunlin_learner_ops),
                                       .load = load,
                                       .fit = fit,
                                       .evaluate = evaluate,
                                       .save = save,
                                       .unload = unload,
                                       .error_text = error_text};

void sim_learner_end(sim_learner *learner)
{
    drop(learner);
}

bool sim_learner_is_at_work(const sim_learner *learner)
{
    return learner->is_loaded || learner->before.is_loaded;
}

void sim_learner_progress(const sim_learner *learner, sim_progress *out_progress)
{
    if (!learner->is_loaded) {
        *out_progress = learner->before; /* of a client that has not come so far again */
        return;
    }
    memset(out_progress, 0, sizeof *out_progress);
    out_progress->is_loaded = true;
    out_progress->is_queued = learner->is_queued;
    out_progress->round = learner->task.task.round;
    out_progress->row = learner->row;
    out_progress->loaded_us = learner->loaded_us;
    out_progress->total_us = learner->total_us;
    out_progress->done_us = learner->done_us;
    out_progress->fails_us = learner->fails_us;
    out_progress->max_steps = learner->task.task.max_steps;
    out_progress->done_share = learner->done_share;
}

void sim_learner_begin(sim_learner *learner, dunlin_learner *out_learner)
{
    *out_learner = (dunlin_learner){.ops = &OPS, .self = learner};
}
