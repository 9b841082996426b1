/*
 * builtin.c - our trainer as a learner; with builtin_pool.c and _place.c all of the
 * client that knows the trainer.
 *
 * Invariant: a learner holds a trainer of the pool between load and unload and at no other time;
 * weights pass through in blocks, so a model exists once, in the trainer's arena.
 */
#include "builtin.h"

#include "builtin_place.h"
#include "builtin_pool.h"

#include <dunlin/trainer_advanced.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

/* Releases the trainer. */
static void release(dunlin_builtin *builtin)
{
    dunlin_pipeline_destroy(builtin->pipeline);
    builtin->pipeline = NULL;
    dunlin__pool_give(builtin->pool, &builtin->slot);
    dunlin__builtin_free_tensors(builtin);
}

/* What evaluate reads: the app's own data set; what the client holds out of its store; else what is
 * trained on. */
static void choose_evaluated(dunlin_builtin *builtin, const dunlin_task *task)
{
    builtin->evaluated_first = 0;
    if (builtin->own_evaluation.read_fn != NULL) {
        builtin->evaluated = builtin->own_evaluation;
        if (task->kind == DUNLIN_TASK_EVALUATE && task->max_examples > 0 &&
            task->max_examples < builtin->evaluated.n_examples) {
            builtin->evaluated.n_examples = task->max_examples;
        }
        return;
    }
    builtin->evaluated = builtin->source;
    if (builtin->is_chosen && task->n_held_out > 0) {
        builtin->evaluated_first = task->n_chosen;
        builtin->evaluated.n_examples = task->n_chosen + task->n_held_out;
    }
}

/* All, or as many as the task allows; those of a resumed round are the ones it was begun with. */
static dunlin_status choose_examples(dunlin_builtin *builtin, const dunlin_task *task)
{
    if (builtin->is_chosen) {
        builtin->n_available = task->n_chosen;
    }
    if (builtin->n_available < 1) {
        return dunlin__fail(&builtin->error, DUNLIN_DATA, "learner", 0,
                            "the source has DUNLIN_SOURCE_CHOSEN examples, and the client was made "
                            "without a store to choose them from");
    }
    builtin->source.n_examples = builtin->n_available;
    if (task->max_examples > 0 && task->max_examples < builtin->n_available) {
        builtin->source.n_examples = task->max_examples;
    }
    choose_evaluated(builtin, task);
    bool is_of_others = builtin->own_evaluation.read_fn != NULL || builtin->evaluated_first > 0;
    if (task->n_examples == 0 || (task->kind == DUNLIN_TASK_EVALUATE && is_of_others)) {
        return DUNLIN_OK; /* the number begun with is not one of the source's */
    }
    if (task->n_examples > builtin->n_available) {
        return dunlin__fail(&builtin->error, DUNLIN_DATA, "learner", 0,
                            "the round was begun with %lld examples, of which the application has "
                            "%lld left",
                            (long long)task->n_examples, (long long)builtin->n_available);
    }
    builtin->source.n_examples = task->n_examples;
    choose_evaluated(builtin, task);
    return DUNLIN_OK;
}

static dunlin_status begin_task(dunlin_builtin *builtin, const dunlin_task *task,
                                const dunlin_weights_reader *base, const dunlin__pool_slot *wanted)
{
    dunlin_trainer *trainer = NULL;
    DUNLIN_TRY(dunlin__pool_prepare(builtin->pool, builtin->slot, wanted, &builtin->error));
    trainer = builtin->slot->trainer;
    dunlin_trainer_reset_optimizer(trainer);
    dunlin_trainer_set_seed(trainer, task->seed);
    builtin->seed = task->seed;
    builtin->round = task->round;
    DUNLIN_TRY(dunlin__builtin_load_weights(builtin, base));
    if (wanted->recipe.hook == DUNLIN_HOOK_CORRECTION) {
        DUNLIN_TRY(dunlin__builtin_load_correction(builtin, base, task->correction));
    }
    if (wanted->recipe.hook == DUNLIN_HOOK_PROXIMAL) {
        DUNLIN_TRY(dunlin_trainer_copy_weights_to_slot(trainer, 0));
    }
    builtin->cursor = (dunlin_fit_cursor){0};
    builtin->epochs = task->epochs > 0 ? task->epochs : 1;
    builtin->max_steps = task->max_steps;
    builtin->n_counted = 0;
    builtin->weight_sum = 0.0;
    builtin->n_steps = 0;
    builtin->has_failed = false;
    builtin->loss_sum = 0.0;
    builtin->right_sum = 0.0;
    memset(&builtin->evaluation, 0, sizeof builtin->evaluation);
    return dunlin__builtin_begin_plan(builtin, task);
}

/* A task of our own size, with what it points to. */
typedef struct own_task {
    dunlin_task task;
    dunlin_task_parameters parameters;
    dunlin_task_schedule schedule;
} own_task;

/* The calls are public, so what comes may be of an app with another header. */
static dunlin_status take_task(const dunlin_task *given, own_task *out, dunlin_error *error)
{
    memset(out, 0, sizeof *out);
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_task, given, &out->task, error));
    if (out->task.parameters != NULL) {
        DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_task_parameters, out->task.parameters,
                                      &out->parameters, error));
        out->task.parameters = &out->parameters;
    }
    if (out->task.schedule != NULL) {
        DUNLIN_TRY(
            DUNLIN_STRUCT_TAKE(dunlin_task_schedule, out->task.schedule, &out->schedule, error));
        out->task.schedule = &out->schedule;
    }
    return DUNLIN_OK;
}

static dunlin_status builtin_load(void *self, const dunlin_task *given,
                                  const dunlin_weights_reader *base)
{
    dunlin_builtin *builtin = self;
    dunlin__error_clear(&builtin->error);
    if (builtin->slot != NULL) {
        return dunlin__fail(&builtin->error, DUNLIN_STATE, "learner", 0,
                            "load() while another round is loaded; unload() comes first");
    }
    own_task own;
    DUNLIN_TRY(take_task(given, &own, &builtin->error));
    const dunlin_task *task = &own.task;
    dunlin__pool_slot wanted;
    DUNLIN_TRY(choose_examples(builtin, task));
    DUNLIN_TRY(dunlin__builtin_take_plan(builtin, task, &wanted));
    atomic_store(&builtin->is_stopped, false);
    if (!dunlin__pool_take(builtin->pool, &wanted, &builtin->slot)) {
        return dunlin__fail(&builtin->error, DUNLIN_LOCKED, "learner", 0,
                            "all %d trainers of the pool are in use", (int)builtin->pool->n_slots);
    }
    dunlin_status status = begin_task(builtin, task, base, &wanted);
    if (status != DUNLIN_OK) {
        release(builtin);
    }
    return status;
}

static void note_report(dunlin_builtin *builtin, dunlin_learner_report *out_report)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    if (dunlin_trainer_get_report(builtin->slot->trainer, &report) != DUNLIN_OK) {
        return;
    }
    out_report->peak_bytes = report.peak_bytes;
    dunlin__pool_note(builtin->pool, builtin->slot, report.peak_bytes, report.moved_bytes);
}

/*
 * A mean over the examples that counted, to the precision of float: where the calls cut the
 * examples, which depends on how fast the device is, shows in the last bits of a double. Volatile,
 * because GCC 12 leaves a conversion to float and back out where it makes one vector of two means.
 */
static double mean_of(double sum, double weight)
{
    volatile float mean = weight > 0.0 ? (float)(sum / weight) : 0.0F;
    return (double)mean;
}

static bool has_all_steps(const dunlin_builtin *builtin)
{
    return builtin->max_steps > 0 && builtin->n_steps >= builtin->max_steps;
}

static dunlin_status fit_some(dunlin_builtin *builtin, int64_t max_ms)
{
    dunlin_fit_options options = DUNLIN_FIT_OPTIONS_INIT;
    options.epochs = builtin->epochs;
    options.max_ms = max_ms;
    options.max_steps = builtin->max_steps > 0 ? builtin->max_steps - builtin->n_steps : 0;
    options.batch = builtin->slot->recipe.batch;
    options.remainder = builtin->remainder;
    dunlin_metrics metrics = {0};
    const dunlin_status status = dunlin__builtin_pass_error(
        builtin, dunlin_trainer_fit(builtin->slot->trainer, &builtin->trained, &options,
                                    &builtin->cursor, &metrics));
    if (status != DUNLIN_OK && status != DUNLIN_STOPPED) {
        builtin->has_failed = true;
        return status;
    }
    builtin->n_counted += metrics.n_counted;
    builtin->weight_sum += metrics.weight;
    builtin->loss_sum += metrics.loss * metrics.weight;
    builtin->right_sum += metrics.accuracy * (double)metrics.n_counted;
    /* It was 0 at load, and a checkpoint brings those before it back. */
    builtin->n_steps = dunlin_trainer_n_steps(builtin->slot->trainer);
    return status;
}

static dunlin_status fit(dunlin_builtin *builtin, int64_t max_ms, dunlin_learner_report *out_report)
{
    if (builtin->slot == NULL) {
        return DUNLIN_STATE;
    }
    bool is_over = builtin->cursor.epoch >= builtin->epochs || has_all_steps(builtin);
    dunlin_status status = DUNLIN_OK;
    if (atomic_load(&builtin->is_stopped)) {
        status = dunlin__fail(&builtin->error, DUNLIN_STOPPED, "learner", 0,
                              "stopped on request after %" PRId64 " steps", builtin->n_steps);
    } else if (!is_over) {
        status = fit_some(builtin, max_ms);
    }
    if (status != DUNLIN_OK && status != DUNLIN_STOPPED) {
        return status;
    }
    out_report->is_done = is_over || builtin->cursor.is_done || has_all_steps(builtin);
    out_report->n_examples = builtin->source.n_examples;
    out_report->n_steps = builtin->n_steps;
    const double share = (double)builtin->n_steps / (double)dunlin__builtin_round_steps(builtin);
    out_report->done_share = out_report->is_done || share > 1.0 ? 1.0 : share;
    out_report->loss = mean_of(builtin->loss_sum, builtin->weight_sum);
    out_report->accuracy = mean_of(builtin->right_sum, (double)builtin->n_counted);
    note_report(builtin, out_report);
    return status;
}

/* Evaluation goes in blocks, so that a call ends soon after max_ms and goes on where it stopped. */
static dunlin_status evaluate(dunlin_builtin *builtin, int64_t max_ms,
                              dunlin_learner_report *out_report)
{
    if (builtin->slot == NULL) {
        return DUNLIN_STATE;
    }
    int64_t n_seen = builtin->evaluation.n_seen;
    int64_t first = builtin->evaluated_first + n_seen;
    int64_t left = builtin->evaluated.n_examples - first;
    int64_t n_block = max_ms > 0 ? 4 * builtin->slot->recipe.batch : left;
    int64_t n = left < n_block ? left : n_block;
    if (atomic_load(&builtin->is_stopped)) {
        return dunlin__fail(&builtin->error, DUNLIN_STOPPED, "learner", 0,
                            "stopped on request after %" PRId64 " examples, %" PRId64
                            " are left to evaluate",
                            n_seen, left);
    }
    dunlin_metrics metrics = {0};
    DUNLIN_TRY(dunlin__builtin_pass_error(
        builtin,
        dunlin_trainer_evaluate(builtin->slot->trainer, &builtin->evaluated, first, n, &metrics)));
    n_seen += n;
    builtin->evaluation.n_seen = n_seen;
    builtin->evaluation.n_counted += metrics.n_counted;
    builtin->evaluation.weight_sum += metrics.weight;
    builtin->evaluation.loss_sum += metrics.loss * metrics.weight;
    builtin->evaluation.right_sum += metrics.accuracy * (double)metrics.n_counted;
    out_report->is_done = n >= left;
    out_report->n_examples = builtin->evaluated.n_examples - builtin->evaluated_first;
    out_report->loss = mean_of(builtin->evaluation.loss_sum, builtin->evaluation.weight_sum);
    out_report->accuracy =
        mean_of(builtin->evaluation.right_sum, (double)builtin->evaluation.n_counted);
    note_report(builtin, out_report);
    if (out_report->is_done) {
        memset(&builtin->evaluation, 0, sizeof builtin->evaluation);
    }
    return DUNLIN_OK;
}

static dunlin_status builtin_fit(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    dunlin_builtin *builtin = self;
    dunlin_learner_report report = DUNLIN_LEARNER_REPORT_INIT;
    DUNLIN_TRY(dunlin__struct_check(out_report, "dunlin_learner_report", &builtin->error));
    const dunlin_status status = fit(builtin, max_ms, &report);
    dunlin__struct_give(&report, sizeof report, out_report);
    return status;
}

static dunlin_status builtin_evaluate(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    dunlin_builtin *builtin = self;
    dunlin_learner_report report = DUNLIN_LEARNER_REPORT_INIT;
    DUNLIN_TRY(dunlin__struct_check(out_report, "dunlin_learner_report", &builtin->error));
    const dunlin_status status = evaluate(builtin, max_ms, &report);
    dunlin__struct_give(&report, sizeof report, out_report);
    return status;
}

static dunlin_status builtin_checkpoint(void *self, const char *path)
{
    dunlin_builtin *builtin = self;
    if (builtin->slot == NULL) {
        return DUNLIN_STATE;
    }
    const dunlin__builtin_place place = {.epoch = builtin->cursor.epoch,
                                         .position = builtin->cursor.position,
                                         .n_examples = builtin->source.n_examples,
                                         .n_counted = builtin->n_counted,
                                         .n_steps = builtin->n_steps,
                                         .loss_sum = builtin->loss_sum,
                                         .right_sum = builtin->right_sum,
                                         .weight_sum = builtin->weight_sum,
                                         .seed = builtin->seed};
    return dunlin__builtin_pass_error(builtin,
                                      dunlin__place_save(builtin->slot->trainer, path, &place));
}

static dunlin_status take_place(dunlin_builtin *builtin, const dunlin__builtin_place *place)
{
    int64_t n_examples = builtin->source.n_examples;
    if (place->epoch > builtin->epochs || place->position > n_examples ||
        place->n_examples != n_examples || place->seed != builtin->seed) {
        return dunlin__fail(&builtin->error, DUNLIN_MISMATCH, "learner", 0,
                            "the checkpoint is of %" PRId64 " examples with seed %" PRIu64
                            "; this work has %" PRId64 " with seed %" PRIu64,
                            place->n_examples, place->seed, n_examples, builtin->seed);
    }
    builtin->cursor = (dunlin_fit_cursor){.epoch = place->epoch, .position = place->position};
    builtin->n_counted = place->n_counted;
    builtin->weight_sum = place->weight_sum;
    builtin->n_steps = place->n_steps;
    builtin->loss_sum = place->loss_sum;
    builtin->right_sum = place->right_sum;
    builtin->has_failed = false;
    return DUNLIN_OK;
}

static dunlin_status builtin_restore(void *self, const char *path)
{
    dunlin_builtin *builtin = self;
    dunlin__builtin_place place;
    bool has_place = false;
    if (builtin->slot == NULL) {
        return DUNLIN_STATE;
    }
    dunlin_status status = dunlin__builtin_pass_error(
        builtin, dunlin__place_restore(builtin->slot->trainer, path, &place, &has_place));
    if (status == DUNLIN_OK && !has_place) {
        status = dunlin__fail(&builtin->error, DUNLIN_MISMATCH, "learner", 0,
                              "%.120s does not say where the training stood", path);
    }
    if (status == DUNLIN_OK) {
        status = take_place(builtin, &place);
    }
    if (status != DUNLIN_OK) {
        builtin->slot->recipe.batch =
            0; /* its trainer may hold a mixture: the next load makes another */
    }
    return status;
}

static void builtin_unload(void *self)
{
    dunlin_builtin *builtin = self;
    if (builtin->slot != NULL) {
        release(builtin);
    }
}

static void builtin_stop(void *self)
{
    dunlin_builtin *builtin = self;
    atomic_store(&builtin->is_stopped, true);
    dunlin__pool_stop(builtin->pool, &builtin->slot);
}

static const char *builtin_error_text(void *self)
{
    const dunlin_builtin *builtin = self;
    return builtin->error.text[0] != '\0' ? builtin->error.text : NULL;
}

static const dunlin_learner_ops BUILTIN_OPS = {.struct_size = sizeof(dunlin_learner_ops),
                                               .load = builtin_load,
                                               .fit = builtin_fit,
                                               .evaluate = builtin_evaluate,
                                               .save = dunlin__builtin_save,
                                               .unload = builtin_unload,
                                               .stop = builtin_stop,
                                               .error_text = builtin_error_text,
                                               .checkpoint = builtin_checkpoint,
                                               .restore = builtin_restore,
                                               .keeps_model = true};

dunlin_status dunlin_builtin_create(dunlin_trainer_pool *pool, const dunlin_source *source,
                                    const dunlin_alloc *hooks, dunlin_builtin **out_builtin,
                                    dunlin_learner *out_learner, dunlin_error *out_error)
{
    *out_builtin = NULL;
    dunlin__error_clear(out_error);
    dunlin_source taken = DUNLIN_SOURCE_INIT;
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_source, source, &taken, out_error));
    const bool is_chosen = taken.n_examples == DUNLIN_SOURCE_CHOSEN;
    if (pool == NULL || taken.read_fn == NULL || (taken.n_examples < 1 && !is_chosen)) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "learner", 0,
                            "pool is %s, read_fn of the source is %s, and it has %" PRId64
                            " examples; none may be NULL or 0",
                            pool == NULL ? "NULL" : "given",
                            taken.read_fn == NULL ? "NULL" : "given", taken.n_examples);
    }
    dunlin_alloc alloc = dunlin__alloc_or_default(hooks);
    dunlin_builtin *builtin = dunlin__alloc_zeroed(&alloc, 1, sizeof *builtin);
    if (builtin == NULL) {
        return dunlin__fail(out_error, DUNLIN_MEMORY, "learner", 0, "no memory for a learner");
    }
    builtin->alloc = alloc;
    builtin->pool = pool;
    dunlin__pool_hold(pool);
    builtin->source = taken;
    builtin->n_available = taken.n_examples;
    builtin->is_chosen = is_chosen;
    out_learner->ops = &BUILTIN_OPS;
    out_learner->self = builtin;
    *out_builtin = builtin;
    return DUNLIN_OK;
}

dunlin_status dunlin_builtin_set_evaluation(dunlin_builtin *builtin,
                                            const dunlin_source *evaluation,
                                            dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    dunlin_source taken = DUNLIN_SOURCE_INIT;
    if (evaluation != NULL) {
        DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_source, evaluation, &taken, out_error));
    }
    if (builtin == NULL ||
        (evaluation != NULL && (taken.read_fn == NULL || taken.n_examples < 1))) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "learner", 0,
                            "%s is NULL, or the source has %" PRId64 " examples",
                            builtin == NULL ? "builtin" : "read_fn", taken.n_examples);
    }
    if (builtin->slot != NULL) {
        return dunlin__fail(
            out_error, DUNLIN_STATE, "learner", 0,
            "dunlin_builtin_set_evaluation() in the middle of a round; it is taken between rounds");
    }
    builtin->own_evaluation = taken;
    return DUNLIN_OK;
}

void dunlin_builtin_destroy(dunlin_builtin *builtin)
{
    if (builtin == NULL) {
        return;
    }
    builtin_unload(builtin);
    dunlin__pool_let_go(builtin->pool);
    dunlin_alloc alloc = builtin->alloc;
    dunlin__free_array(&alloc, builtin, 1, sizeof *builtin);
}
