/*
 * learner_builtin.c - our trainer as a learner; with learner_builtin_pool.c and _place.c all of the
 * client that knows the trainer.
 *
 * Invariant: a learner holds a trainer of the pool between load and unload and at no other time;
 * weights pass through in blocks, so a model exists once, in the trainer's arena.
 */
#include "learner_builtin_place.h"
#include "learner_builtin_pool.h"

#include <mem/support.h>

#include <stdatomic.h>
#include <string.h>

#define BLOCK_FLOATS 4096

struct dunlin_builtin {
    dunlin_alloc alloc;
    dunlin_trainer_pool *pool;
    dunlin_source source;
    dunlin__pool_slot *slot; /* NULL when not loaded */
    dunlin_fit_cursor cursor;
    int32_t epochs;
    int64_t max_steps; /* 0: no limit */
    uint64_t seed;
    int64_t n_seen; /* examples of fit so far, over all epochs */
    double loss_sum;
    double right_sum;
    int64_t n_steps;
    struct {
        int64_t n_seen;
        double loss_sum;
        double right_sum;
    } evaluation; /* the one at hand */
    dunlin_weights_tensor
        *tensors;           /* what save hands out: base's, LOCAL ones too; names are base's */
    int64_t *first_weights; /* where each begins in the trainer's flat order */
    int32_t n_tensors;
    int32_t tensors_capacity;
    int64_t n_available; /* the source's examples; a task may ask for fewer */
    bool is_chosen;      /* the client chooses them anew for each task */
    atomic_bool is_stopped;
    dunlin_error error;
};

static void free_tensors(dunlin_builtin *builtin)
{
    size_t capacity = (size_t)builtin->tensors_capacity;
    dunlin__free_array(&builtin->alloc, builtin->tensors, capacity, sizeof *builtin->tensors);
    dunlin__free_array(&builtin->alloc, builtin->first_weights, capacity,
                       sizeof *builtin->first_weights);
    builtin->tensors = NULL;
    builtin->first_weights = NULL;
    builtin->n_tensors = 0;
    builtin->tensors_capacity = 0;
}

/* The trainer's parameter of a name and where it begins in the flat order; false if there is none.
 */
static bool find_parameter(const dunlin_trainer *trainer, const char *name,
                           dunlin_parameter_info *out_info, int64_t *out_first)
{
    int64_t first = 0;
    int32_t n_parameters = dunlin_trainer_n_parameters(trainer);
    for (int32_t i = 0; i < n_parameters; i++) {
        if (dunlin_trainer_parameter(trainer, i, out_info) != DUNLIN_OK) {
            return false;
        }
        if (strcmp(out_info->name, name) == 0) {
            *out_first = first;
            return true;
        }
        first += out_info->n_elements;
    }
    return false;
}

/* A tensor's values into the trainer, from `place` of its flat order on. */
static dunlin_status copy_tensor(dunlin_builtin *builtin, const dunlin_weights_reader *from,
                                 int32_t index, int64_t place)
{
    const dunlin_weights_tensor *tensor = &from->tensors[index];
    float block[BLOCK_FLOATS];
    for (int64_t done = 0; done < tensor->n_elements;) {
        int64_t left = tensor->n_elements - done;
        int64_t n = left < BLOCK_FLOATS ? left : BLOCK_FLOATS;
        dunlin_status status = from->read_fn(from->ctx, index, done, n, block);
        if (status == DUNLIN_OK) {
            status = dunlin_trainer_set_weights(builtin->slot->trainer, DUNLIN_WEIGHTS_ALL,
                                                place + done, n, block);
        }
        if (status != DUNLIN_OK) {
            return dunlin__fail(&builtin->error, status, "learner", 0,
                                "tensor %.100s could not be loaded: %s", tensor->name,
                                dunlin_status_text(status));
        }
        done += n;
    }
    return DUNLIN_OK;
}

static dunlin_status load_tensor(dunlin_builtin *builtin, const dunlin_weights_reader *base,
                                 int32_t index)
{
    const dunlin_weights_tensor *tensor = &base->tensors[index];
    dunlin_trainer *trainer = builtin->slot->trainer;
    dunlin_parameter_info info = {0};
    int64_t first = 0;
    if (!find_parameter(trainer, tensor->name, &info, &first)) {
        return dunlin__fail(&builtin->error, DUNLIN_MISMATCH, "learner", 0,
                            "the server's tensor %.100s is not in the model of this device",
                            tensor->name);
    }
    if (info.n_elements != tensor->n_elements || info.shape.n_dims != tensor->shape.n_dims ||
        memcmp(info.shape.dims, tensor->shape.dims, sizeof(int64_t) * (size_t)info.shape.n_dims) !=
            0) {
        return dunlin__fail(
            &builtin->error, DUNLIN_MISMATCH, "learner", 0,
            "tensor %.100s has %lld elements at the server, %lld in the model of this device, "
            "or another shape",
            tensor->name, (long long)tensor->n_elements, (long long)info.n_elements);
    }
    for (int32_t i = 0; i < builtin->n_tensors; i++) {
        if (builtin->first_weights[i] == first) {
            return dunlin__fail(&builtin->error, DUNLIN_MISMATCH, "learner", 0,
                                "the server's model has tensor %.100s twice", tensor->name);
        }
    }
    builtin->tensors[builtin->n_tensors] = *tensor;
    builtin->first_weights[builtin->n_tensors++] = first;
    return copy_tensor(builtin, base, index, first);
}

/* Every tensor of base into the trainer; every parameter of the model must be in base, once. */
static dunlin_status load_weights(dunlin_builtin *builtin, const dunlin_weights_reader *base)
{
    int32_t n_shared = base->n_tensors;
    int32_t n_parameters = dunlin_trainer_n_parameters(builtin->slot->trainer);
    if (n_shared == 0 || base->n_tensors != n_parameters) {
        return dunlin__fail(&builtin->error, DUNLIN_MISMATCH, "learner", 0,
                            "the server's model has %d tensors, this device's has %d",
                            (int)base->n_tensors, (int)n_parameters);
    }
    builtin->tensors_capacity = n_shared;
    builtin->tensors =
        dunlin__alloc_zeroed(&builtin->alloc, (size_t)n_shared, sizeof *builtin->tensors);
    builtin->first_weights =
        dunlin__alloc_zeroed(&builtin->alloc, (size_t)n_shared, sizeof *builtin->first_weights);
    if (builtin->tensors == NULL || builtin->first_weights == NULL) {
        return dunlin__fail(&builtin->error, DUNLIN_MEMORY, "learner", 0,
                            "no memory for %d tensors", (int)n_shared);
    }
    for (int32_t i = 0; i < base->n_tensors; i++) {
        DUNLIN_TRY(load_tensor(builtin, base, i));
    }
    return DUNLIN_OK;
}

/* The correction gets into the hook's buffer by way of the weights, in the trainer's own layout. */
static dunlin_status load_correction(dunlin_builtin *builtin, const dunlin_weights_reader *base,
                                     const dunlin_weights_reader *correction)
{
    for (int32_t i = 0; i < builtin->n_tensors; i++) {
        DUNLIN_TRY(copy_tensor(builtin, correction, i, builtin->first_weights[i]));
    }
    DUNLIN_TRY(dunlin_trainer_copy_weights_to_slot(builtin->slot->trainer, 0));
    for (int32_t i = 0; i < builtin->n_tensors; i++) {
        DUNLIN_TRY(copy_tensor(builtin, base, i, builtin->first_weights[i]));
    }
    return DUNLIN_OK;
}

/* Lets go of the trainer. */
static void release(dunlin_builtin *builtin)
{
    dunlin__pool_give(builtin->pool, &builtin->slot);
    free_tensors(builtin);
}

/* All, or as many as the task allows; those of a round taken up again are the ones it was begun
 * with. */
static dunlin_status choose_examples(dunlin_builtin *builtin, const dunlin_task *task)
{
    if (builtin->is_chosen) {
        builtin->n_available = task->n_chosen;
    }
    if (builtin->n_available < 1) {
        return dunlin__fail(&builtin->error, DUNLIN_DATA, "learner", 0,
                            "the client has chosen no examples: it was made without a store");
    }
    builtin->source.n_examples = builtin->n_available;
    if (task->max_examples > 0 && task->max_examples < builtin->n_available) {
        builtin->source.n_examples = task->max_examples;
    }
    if (task->n_examples > builtin->n_available) {
        return dunlin__fail(&builtin->error, DUNLIN_DATA, "learner", 0,
                            "the round was begun with %lld examples, of which the application has "
                            "%lld left",
                            (long long)task->n_examples, (long long)builtin->n_available);
    }
    if (task->n_examples > 0) {
        builtin->source.n_examples = task->n_examples;
    }
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
    DUNLIN_TRY(load_weights(builtin, base));
    if (wanted->hook == DUNLIN_HOOK_CORRECTION) {
        DUNLIN_TRY(load_correction(builtin, base, task->correction));
    }
    if (task->lr > 0.0F) {
        DUNLIN_TRY(dunlin_trainer_set_lr(trainer, task->lr));
    }
    if (wanted->hook == DUNLIN_HOOK_PROXIMAL) {
        DUNLIN_TRY(dunlin_trainer_copy_weights_to_slot(trainer, 0));
    }
    builtin->cursor = (dunlin_fit_cursor){0};
    builtin->epochs = task->epochs > 0 ? task->epochs : 1;
    builtin->max_steps = task->max_steps;
    builtin->seed = task->seed;
    builtin->n_seen = 0;
    builtin->n_steps = 0;
    builtin->loss_sum = 0.0;
    builtin->right_sum = 0.0;
    memset(&builtin->evaluation, 0, sizeof builtin->evaluation);
    return choose_examples(builtin, task);
}

static dunlin__hook hook_of(const dunlin_task *task)
{
    if (task->kind == DUNLIN_TASK_TRAIN && task->correction != NULL) {
        return DUNLIN_HOOK_CORRECTION;
    }
    return task->proximal_mu > 0.0F ? DUNLIN_HOOK_PROXIMAL : DUNLIN_HOOK_NONE;
}

static dunlin_status builtin_load(void *self, const dunlin_task *task,
                                  const dunlin_weights_reader *base)
{
    dunlin_builtin *builtin = self;
    dunlin__error_clear(&builtin->error);
    if (builtin->slot != NULL) {
        return dunlin__fail(&builtin->error, DUNLIN_STATE, "learner", 0,
                            "load without an unload before");
    }
    int64_t batch = builtin->pool->options.batch;
    if (batch == 0) {
        batch = task->batch > 0 ? task->batch : 32;
    }
    dunlin__pool_slot wanted = {.batch = batch,
                                .momentum = task->momentum,
                                .weight_decay = task->weight_decay,
                                .proximal_mu = task->proximal_mu,
                                .hook = hook_of(task)};
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

static void note_peak(dunlin_builtin *builtin, dunlin_learner_report *out_report)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    if (dunlin_trainer_get_report(builtin->slot->trainer, &report) != DUNLIN_OK) {
        return;
    }
    out_report->peak_bytes = report.peak_bytes;
    dunlin__pool_note_peak(builtin->pool, report.peak_bytes);
}

/* The trainer's own detail, since its text names the thing. */
static dunlin_status pass_error(dunlin_builtin *builtin, dunlin_status status)
{
    const dunlin_error *error = dunlin_trainer_last_error(builtin->slot->trainer);
    if (status != DUNLIN_OK && error != NULL) {
        builtin->error = *error;
    }
    return status;
}

/*
 * A mean over the examples seen, to the precision of float: where the calls cut the examples, which
 * depends on how fast the device is, shows in the last bits of a double.
 */
static double mean_seen(double sum, int64_t n_seen)
{
    return n_seen > 0 ? (double)(float)(sum / (double)n_seen) : 0.0;
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
    dunlin_metrics metrics = {0};
    DUNLIN_TRY(pass_error(builtin, dunlin_trainer_fit(builtin->slot->trainer, &builtin->source,
                                                      &options, &builtin->cursor, &metrics)));
    builtin->n_seen += metrics.n_examples;
    builtin->loss_sum += metrics.loss * (double)metrics.n_examples;
    builtin->right_sum += metrics.accuracy * (double)metrics.n_examples;
    int64_t batch = builtin->slot->batch;
    int64_t steps_per_epoch = (builtin->source.n_examples + batch - 1) / batch;
    builtin->n_steps = builtin->cursor.is_done ? builtin->epochs * steps_per_epoch
                                               : builtin->cursor.epoch * steps_per_epoch +
                                                     (builtin->cursor.position + batch - 1) / batch;
    return DUNLIN_OK;
}

static dunlin_status builtin_fit(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    dunlin_builtin *builtin = self;
    memset(out_report, 0, sizeof *out_report);
    if (builtin->slot == NULL) {
        return DUNLIN_STATE;
    }
    if (atomic_load(&builtin->is_stopped)) {
        return dunlin__fail(&builtin->error, DUNLIN_STOPPED, "learner", 0, "stopped on request");
    }
    bool is_over = builtin->cursor.epoch >= builtin->epochs || has_all_steps(builtin);
    if (!is_over) {
        DUNLIN_TRY(fit_some(builtin, max_ms));
    }
    out_report->is_done = is_over || builtin->cursor.is_done || has_all_steps(builtin);
    out_report->n_examples = builtin->source.n_examples;
    out_report->n_steps = builtin->n_steps;
    out_report->loss = mean_seen(builtin->loss_sum, builtin->n_seen);
    out_report->accuracy = mean_seen(builtin->right_sum, builtin->n_seen);
    note_peak(builtin, out_report);
    return DUNLIN_OK;
}

/* Evaluation goes in blocks, so that a call ends soon after max_ms and goes on where it stopped. */
static dunlin_status builtin_evaluate(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    dunlin_builtin *builtin = self;
    memset(out_report, 0, sizeof *out_report);
    if (builtin->slot == NULL) {
        return DUNLIN_STATE;
    }
    int64_t n_seen = builtin->evaluation.n_seen;
    int64_t n_block = max_ms > 0 ? 4 * builtin->slot->batch : builtin->source.n_examples;
    int64_t left = builtin->source.n_examples - n_seen;
    int64_t n = left < n_block ? left : n_block;
    if (atomic_load(&builtin->is_stopped)) {
        return dunlin__fail(&builtin->error, DUNLIN_STOPPED, "learner", 0, "stopped on request");
    }
    dunlin_metrics metrics = {0};
    DUNLIN_TRY(pass_error(builtin, dunlin_trainer_evaluate(builtin->slot->trainer, &builtin->source,
                                                           n_seen, n, &metrics)));
    n_seen += n;
    builtin->evaluation.n_seen = n_seen;
    builtin->evaluation.loss_sum += metrics.loss * (double)n;
    builtin->evaluation.right_sum += metrics.accuracy * (double)n;
    out_report->is_done = n_seen >= builtin->source.n_examples;
    out_report->n_examples = builtin->source.n_examples;
    out_report->loss = mean_seen(builtin->evaluation.loss_sum, n_seen);
    out_report->accuracy = mean_seen(builtin->evaluation.right_sum, n_seen);
    note_peak(builtin, out_report);
    if (out_report->is_done) {
        memset(&builtin->evaluation, 0, sizeof builtin->evaluation);
    }
    return DUNLIN_OK;
}

static dunlin_status read_weights(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    dunlin_builtin *builtin = ctx;
    return pass_error(builtin,
                      dunlin_trainer_get_weights(builtin->slot->trainer, DUNLIN_WEIGHTS_ALL,
                                                 builtin->first_weights[index] + first, n, out));
}

static dunlin_status builtin_save(void *self, dunlin_weights_reader *out)
{
    dunlin_builtin *builtin = self;
    if (builtin->slot == NULL) {
        return DUNLIN_STATE;
    }
    out->ctx = builtin;
    out->tensors = builtin->tensors;
    out->n_tensors = builtin->n_tensors;
    out->read_fn = read_weights;
    return DUNLIN_OK;
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
                                         .n_seen = builtin->n_seen,
                                         .n_steps = builtin->n_steps,
                                         .loss_sum = builtin->loss_sum,
                                         .right_sum = builtin->right_sum,
                                         .seed = builtin->seed};
    return pass_error(builtin, dunlin__place_save(builtin->slot->trainer, path, &place));
}

static dunlin_status take_place(dunlin_builtin *builtin, const dunlin__builtin_place *place)
{
    int64_t n_examples = builtin->source.n_examples;
    if (place->epoch > builtin->epochs || place->position > n_examples ||
        place->n_examples != n_examples || place->seed != builtin->seed) {
        return dunlin__fail(&builtin->error, DUNLIN_MISMATCH, "learner", 0,
                            "the checkpoint is of other work: not these examples or this seed");
    }
    builtin->cursor = (dunlin_fit_cursor){.epoch = place->epoch, .position = place->position};
    builtin->n_seen = place->n_seen;
    builtin->n_steps = place->n_steps;
    builtin->loss_sum = place->loss_sum;
    builtin->right_sum = place->right_sum;
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
    dunlin_status status = pass_error(
        builtin, dunlin__place_restore(builtin->slot->trainer, path, &place, &has_place));
    if (status == DUNLIN_OK && !has_place) {
        status = dunlin__fail(&builtin->error, DUNLIN_MISMATCH, "learner", 0,
                              "the checkpoint does not say where the training stood");
    }
    if (status == DUNLIN_OK) {
        status = take_place(builtin, &place);
    }
    if (status != DUNLIN_OK) {
        builtin->slot->batch = 0; /* its trainer may hold a mixture: the next load makes another */
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
                                               .save = builtin_save,
                                               .unload = builtin_unload,
                                               .stop = builtin_stop,
                                               .error_text = builtin_error_text,
                                               .checkpoint = builtin_checkpoint,
                                               .restore = builtin_restore};

dunlin_status dunlin_builtin_create(dunlin_trainer_pool *pool, const dunlin_source *source,
                                    const dunlin_alloc *hooks, dunlin_builtin **out_builtin,
                                    dunlin_learner *out_learner, dunlin_error *out_error)
{
    *out_builtin = NULL;
    dunlin__error_clear(out_error);
    bool is_chosen = source != NULL && source->n_examples == DUNLIN_SOURCE_CHOSEN;
    if (pool == NULL || source == NULL || source->read_fn == NULL ||
        (source->n_examples < 1 && !is_chosen)) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "learner", 0,
                            "a learner needs a pool and a source with at least one example");
    }
    dunlin_alloc alloc = dunlin__alloc_or_default(hooks);
    dunlin_builtin *builtin = dunlin__alloc_zeroed(&alloc, 1, sizeof *builtin);
    if (builtin == NULL) {
        return dunlin__fail(out_error, DUNLIN_MEMORY, "learner", 0, "no memory for a learner");
    }
    builtin->alloc = alloc;
    builtin->pool = pool;
    builtin->source = *source;
    builtin->n_available = source->n_examples;
    builtin->is_chosen = is_chosen;
    out_learner->ops = &BUILTIN_OPS;
    out_learner->self = builtin;
    *out_builtin = builtin;
    return DUNLIN_OK;
}

void dunlin_builtin_destroy(dunlin_builtin *builtin)
{
    if (builtin == NULL) {
        return;
    }
    builtin_unload(builtin);
    dunlin_alloc alloc = builtin->alloc;
    dunlin__free_array(&alloc, builtin, 1, sizeof *builtin);
}
