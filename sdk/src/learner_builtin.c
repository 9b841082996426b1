/*
 * learner_builtin.c - our trainer as a learner: the one file of the client that knows the trainer.
 *
 * Invariant: a learner holds a trainer of the pool between load and unload and at no other time;
 * weights pass through in blocks, so a model exists once, in the trainer's arena.
 */
#include <dunlin/builtin.h>
#include <mem/support.h>

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define BLOCK_FLOATS 4096
#define N_SLOTS_MAX 256

typedef struct pool_slot {
    dunlin_trainer *trainer;
    int64_t batch; /* the trainer was made with these */
    float momentum;
    float weight_decay;
    bool has_proximal;
    bool is_taken;
    float proximal_mu; /* of the round at hand; read by the gradient hook */
} pool_slot;

struct dunlin_trainer_pool {
    dunlin_alloc alloc;
    const dunlin_model *model;
    dunlin_trainer_options options;
    pthread_mutex_t lock;
    int32_t n_slots;
    uint64_t peak_bytes;
    pool_slot *slots;
};

struct dunlin_builtin {
    dunlin_alloc alloc;
    dunlin_trainer_pool *pool;
    dunlin_source source;
    pool_slot *slot; /* NULL when not loaded */
    dunlin_fit_cursor cursor;
    int32_t epochs;
    int64_t n_seen; /* examples of fit so far, over all epochs */
    double loss_sum;
    double right_sum;
    int64_t n_steps;
    dunlin_weights_tensor
        *tensors;           /* what save hands out: base's that are not LOCAL; names are base's */
    int64_t *first_weights; /* where each begins in the trainer's flat order */
    int32_t n_tensors;
    int32_t tensors_capacity;
    int64_t n_available; /* the source's examples; a task may ask for fewer */
    atomic_bool is_stopped;
    dunlin_error error;
};

dunlin_status dunlin_trainer_pool_create(const dunlin_model *model,
                                         const dunlin_trainer_options *options, int32_t n_trainers,
                                         dunlin_trainer_pool **out_pool, dunlin_error *out_error)
{
    *out_pool = NULL;
    dunlin__error_clear(out_error);
    if (model == NULL || options == NULL || n_trainers < 1 || n_trainers > N_SLOTS_MAX) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "learner", 0,
                            "a pool needs a model, options, and 1 to %d trainers", N_SLOTS_MAX);
    }
    if (options->gradient_fn != NULL || options->n_gradient_slots != 0) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "learner", 0,
                            "a pool's gradient hook is its own (FedProx); leave gradient_fn empty");
    }
    dunlin_alloc alloc = dunlin__alloc_or_default(&options->alloc);
    dunlin_trainer_pool *pool = dunlin__alloc_zeroed(&alloc, 1, sizeof *pool);
    pool_slot *slots = dunlin__alloc_zeroed(&alloc, (size_t)n_trainers, sizeof *slots);
    if (pool == NULL || slots == NULL) {
        dunlin__free_array(&alloc, pool, 1, sizeof *pool);
        dunlin__free_array(&alloc, slots, (size_t)n_trainers, sizeof *slots);
        return dunlin__fail(out_error, DUNLIN_MEMORY, "learner", 0, "no memory for a trainer pool");
    }
    pool->alloc = alloc;
    pool->model = model;
    pool->options = *options;
    pool->n_slots = n_trainers;
    pool->slots = slots;
    (void)pthread_mutex_init(&pool->lock, NULL);
    *out_pool = pool;
    return DUNLIN_OK;
}

void dunlin_trainer_pool_destroy(dunlin_trainer_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    for (int32_t i = 0; i < pool->n_slots; i++) {
        dunlin_trainer_destroy(pool->slots[i].trainer);
    }
    (void)pthread_mutex_destroy(&pool->lock);
    dunlin_alloc alloc = pool->alloc;
    dunlin__free_array(&alloc, pool->slots, (size_t)pool->n_slots, sizeof *pool->slots);
    dunlin__free_array(&alloc, pool, 1, sizeof *pool);
}

uint64_t dunlin_trainer_pool_peak_bytes(dunlin_trainer_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    uint64_t peak_bytes = pool->peak_bytes;
    (void)pthread_mutex_unlock(&pool->lock);
    return peak_bytes;
}

/* FedProx (Li et al. 2020): the gradient of mu / 2 * |w - base|^2 is added; slot 0 holds the base.
 */
static void add_proximal(void *ctx, int32_t parameter_index, int64_t n, const float *weights,
                         float *gradient, float *const *slots)
{
    (void)parameter_index;
    const pool_slot *slot = ctx;
    const float *base = slots[0];
    for (int64_t i = 0; i < n; i++) {
        gradient[i] += slot->proximal_mu * (weights[i] - base[i]);
    }
}

static bool slot_fits(const pool_slot *slot, const pool_slot *wanted)
{
    return slot->trainer != NULL && slot->batch == wanted->batch &&
           memcmp(&slot->momentum, &wanted->momentum, sizeof(float)) == 0 &&
           memcmp(&slot->weight_decay, &wanted->weight_decay, sizeof(float)) == 0 &&
           slot->has_proximal == wanted->has_proximal;
}

/* Takes a free slot, one whose trainer fits if there is one; false when all are taken. */
static bool take_slot(dunlin_builtin *builtin, const pool_slot *wanted)
{
    dunlin_trainer_pool *pool = builtin->pool;
    pool_slot *found = NULL;
    (void)pthread_mutex_lock(&pool->lock);
    for (int32_t i = 0; i < pool->n_slots; i++) {
        pool_slot *slot = &pool->slots[i];
        if (slot->is_taken) {
            continue;
        }
        if (slot_fits(slot, wanted)) {
            found = slot;
            break;
        }
        found = found == NULL ? slot : found;
    }
    if (found != NULL) {
        found->is_taken = true;
        builtin->slot = found;
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return found != NULL;
}

/* Makes the slot's trainer what the task wants. The slot is taken, so it is ours alone. */
static dunlin_status prepare_slot(dunlin_trainer_pool *pool, pool_slot *slot,
                                  const pool_slot *wanted, dunlin_error *error)
{
    slot->proximal_mu = wanted->proximal_mu;
    if (slot_fits(slot, wanted)) {
        return DUNLIN_OK;
    }
    dunlin_trainer_destroy(slot->trainer);
    slot->trainer = NULL;
    dunlin_trainer_options options = pool->options;
    options.batch = wanted->batch;
    options.momentum = wanted->momentum;
    options.weight_decay = wanted->weight_decay;
    if (wanted->has_proximal) {
        options.gradient_fn = add_proximal;
        options.gradient_ctx = slot;
        options.n_gradient_slots = 1;
    }
    DUNLIN_TRY(dunlin_trainer_create(pool->model, &options, &slot->trainer, error));
    slot->batch = wanted->batch;
    slot->momentum = wanted->momentum;
    slot->weight_decay = wanted->weight_decay;
    slot->has_proximal = wanted->has_proximal;
    return DUNLIN_OK;
}

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
    builtin->tensors[builtin->n_tensors] = *tensor;
    builtin->first_weights[builtin->n_tensors++] = first;
    float block[BLOCK_FLOATS];
    for (int64_t done = 0; done < tensor->n_elements;) {
        int64_t left = tensor->n_elements - done;
        int64_t n = left < BLOCK_FLOATS ? left : BLOCK_FLOATS;
        dunlin_status status = base->read_fn(base->ctx, index, done, n, block);
        if (status == DUNLIN_OK) {
            status =
                dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_ALL, first + done, n, block);
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

/* Every shared tensor of base into the trainer; every parameter of the model must be in base, LOCAL
 * or not. */
static dunlin_status load_weights(dunlin_builtin *builtin, const dunlin_weights_reader *base)
{
    int32_t n_shared = 0;
    for (int32_t i = 0; i < base->n_tensors; i++) {
        n_shared += base->tensors[i].aggregation != DUNLIN_AGGREGATE_LOCAL ? 1 : 0;
    }
    int32_t n_parameters = dunlin_trainer_n_parameters(builtin->slot->trainer);
    if (n_shared == 0 || base->n_tensors != n_parameters) {
        return dunlin__fail(
            &builtin->error, DUNLIN_MISMATCH, "learner", 0,
            "the server's model has %d tensors, %d of them shared; this device's has %d",
            (int)base->n_tensors, (int)n_shared, (int)n_parameters);
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
        if (base->tensors[i].aggregation != DUNLIN_AGGREGATE_LOCAL) {
            DUNLIN_TRY(load_tensor(builtin, base, i));
        }
    }
    return DUNLIN_OK;
}

/* Lets go of the trainer. Under the lock, since stop may look at the slot from another thread. */
static void release(dunlin_builtin *builtin)
{
    (void)pthread_mutex_lock(&builtin->pool->lock);
    builtin->slot->is_taken = false;
    builtin->slot = NULL;
    (void)pthread_mutex_unlock(&builtin->pool->lock);
    free_tensors(builtin);
}

static dunlin_status begin_task(dunlin_builtin *builtin, const dunlin_task *task,
                                const dunlin_weights_reader *base, const pool_slot *wanted)
{
    dunlin_trainer *trainer = NULL;
    DUNLIN_TRY(prepare_slot(builtin->pool, builtin->slot, wanted, &builtin->error));
    trainer = builtin->slot->trainer;
    dunlin_trainer_reset_optimizer(trainer);
    dunlin_trainer_set_seed(trainer, task->seed);
    DUNLIN_TRY(load_weights(builtin, base));
    if (task->lr > 0.0F) {
        DUNLIN_TRY(dunlin_trainer_set_lr(trainer, task->lr));
    }
    if (wanted->has_proximal) {
        DUNLIN_TRY(dunlin_trainer_copy_weights_to_slot(trainer, 0));
    }
    builtin->cursor = (dunlin_fit_cursor){0};
    builtin->epochs = task->epochs > 0 ? task->epochs : 1;
    builtin->n_seen = 0;
    builtin->n_steps = 0;
    builtin->loss_sum = 0.0;
    builtin->right_sum = 0.0;
    builtin->source.n_examples = builtin->n_available;
    if (task->max_examples > 0 && task->max_examples < builtin->n_available) {
        builtin->source.n_examples = task->max_examples;
    }
    return DUNLIN_OK;
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
    pool_slot wanted = {.batch = batch,
                        .momentum = task->momentum,
                        .weight_decay = task->weight_decay,
                        .proximal_mu = task->proximal_mu,
                        .has_proximal = task->proximal_mu > 0.0F};
    atomic_store(&builtin->is_stopped, false);
    if (!take_slot(builtin, &wanted)) {
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
    (void)pthread_mutex_lock(&builtin->pool->lock);
    if (report.peak_bytes > builtin->pool->peak_bytes) {
        builtin->pool->peak_bytes = report.peak_bytes;
    }
    (void)pthread_mutex_unlock(&builtin->pool->lock);
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
    dunlin_fit_options options = DUNLIN_FIT_OPTIONS_INIT;
    options.epochs = builtin->epochs;
    options.max_ms = max_ms;
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
    out_report->is_done = builtin->cursor.is_done;
    out_report->n_examples = builtin->source.n_examples;
    out_report->n_steps = builtin->n_steps;
    out_report->loss = builtin->n_seen > 0 ? builtin->loss_sum / (double)builtin->n_seen : 0.0;
    out_report->accuracy = builtin->n_seen > 0 ? builtin->right_sum / (double)builtin->n_seen : 0.0;
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
    int64_t n_block = max_ms > 0 ? 4 * builtin->slot->batch : builtin->source.n_examples;
    int64_t left = builtin->source.n_examples - builtin->n_seen;
    int64_t n = left < n_block ? left : n_block;
    if (atomic_load(&builtin->is_stopped)) {
        return dunlin__fail(&builtin->error, DUNLIN_STOPPED, "learner", 0, "stopped on request");
    }
    if (n > 0) {
        dunlin_metrics metrics = {0};
        DUNLIN_TRY(
            pass_error(builtin, dunlin_trainer_evaluate(builtin->slot->trainer, &builtin->source,
                                                        builtin->n_seen, n, &metrics)));
        builtin->n_seen += n;
        builtin->loss_sum += metrics.loss * (double)n;
        builtin->right_sum += metrics.accuracy * (double)n;
    }
    out_report->is_done = builtin->n_seen >= builtin->source.n_examples;
    out_report->n_examples = builtin->source.n_examples;
    out_report->loss = builtin->n_seen > 0 ? builtin->loss_sum / (double)builtin->n_seen : 0.0;
    out_report->accuracy = builtin->n_seen > 0 ? builtin->right_sum / (double)builtin->n_seen : 0.0;
    note_peak(builtin, out_report);
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
    (void)pthread_mutex_lock(&builtin->pool->lock);
    if (builtin->slot != NULL && builtin->slot->trainer != NULL) {
        dunlin_trainer_stop(builtin->slot->trainer);
    }
    (void)pthread_mutex_unlock(&builtin->pool->lock);
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
                                               .error_text = builtin_error_text};

dunlin_status dunlin_builtin_create(dunlin_trainer_pool *pool, const dunlin_source *source,
                                    const dunlin_alloc *hooks, dunlin_builtin **out_builtin,
                                    dunlin_learner *out_learner, dunlin_error *out_error)
{
    *out_builtin = NULL;
    dunlin__error_clear(out_error);
    if (pool == NULL || source == NULL || source->read_fn == NULL || source->n_examples < 1) {
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
