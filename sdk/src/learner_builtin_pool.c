/*
 * learner_builtin_pool.c - trainers that many learners share.
 *
 * Invariant: a slot that is taken belongs to one learner; its trainer is made, used and replaced by
 * that one alone, and the lock guards who has which.
 */
#include "learner_builtin_pool.h"

#include <mem/support.h>

#include <string.h>

#define N_SLOTS_MAX 256

dunlin_status dunlin_trainer_pool_create(const dunlin_model *model,
                                         const dunlin_trainer_options *options, int32_t n_trainers,
                                         dunlin_trainer_pool **out_pool, dunlin_error *out_error)
{
    dunlin_trainer_options copy = DUNLIN_TRAINER_OPTIONS_INIT;
    *out_pool = NULL;
    dunlin__error_clear(out_error);
    if (model == NULL || options == NULL || options->struct_size == 0 || n_trainers < 1 ||
        n_trainers > N_SLOTS_MAX) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "learner", 0,
                            "a pool needs a model, options, and 1 to %d trainers", N_SLOTS_MAX);
    }
    memcpy(&copy, options, options->struct_size < sizeof copy ? options->struct_size : sizeof copy);
    copy.struct_size = sizeof copy;
    if (copy.gradient_fn != NULL || copy.n_gradient_slots != 0) {
        return dunlin__fail(
            out_error, DUNLIN_ARGUMENT, "learner", 0,
            "a pool's gradient hook is its own (FedProx, SCAFFOLD); leave gradient_fn empty");
    }
    dunlin_alloc alloc = dunlin__alloc_or_default(&copy.alloc);
    dunlin_trainer_pool *pool = dunlin__alloc_zeroed(&alloc, 1, sizeof *pool);
    dunlin__pool_slot *slots = dunlin__alloc_zeroed(&alloc, (size_t)n_trainers, sizeof *slots);
    if (pool == NULL || slots == NULL) {
        dunlin__free_array(&alloc, pool, 1, sizeof *pool);
        dunlin__free_array(&alloc, slots, (size_t)n_trainers, sizeof *slots);
        return dunlin__fail(out_error, DUNLIN_MEMORY, "learner", 0, "no memory for a trainer pool");
    }
    pool->alloc = alloc;
    pool->model = model;
    pool->options = copy;
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
    const dunlin__pool_slot *slot = ctx;
    const float *base = slots[0];
    for (int64_t i = 0; i < n; i++) {
        gradient[i] += slot->proximal_mu * (weights[i] - base[i]);
    }
}

/* SCAFFOLD: slot 0 holds the server's control variate less the device's own. */
static void add_correction(void *ctx, int32_t parameter_index, int64_t n, const float *weights,
                           float *gradient, float *const *slots)
{
    (void)ctx;
    (void)parameter_index;
    (void)weights;
    const float *correction = slots[0];
    for (int64_t i = 0; i < n; i++) {
        gradient[i] += correction[i];
    }
}

static bool slot_fits(const dunlin__pool_slot *slot, const dunlin__pool_slot *wanted)
{
    return slot->trainer != NULL && slot->batch == wanted->batch &&
           slot->momentum == wanted->momentum && slot->weight_decay == wanted->weight_decay &&
           slot->hook == wanted->hook;
}

bool dunlin__pool_take(dunlin_trainer_pool *pool, const dunlin__pool_slot *wanted,
                       dunlin__pool_slot **out_slot)
{
    dunlin__pool_slot *found = NULL;
    (void)pthread_mutex_lock(&pool->lock);
    for (int32_t i = 0; i < pool->n_slots; i++) {
        dunlin__pool_slot *slot = &pool->slots[i];
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
        *out_slot = found;
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return found != NULL;
}

/* stop() reads slot->trainer from other threads, so it changes under the lock. */
static dunlin_trainer *swap_trainer(dunlin_trainer_pool *pool, dunlin__pool_slot *slot,
                                    dunlin_trainer *trainer)
{
    (void)pthread_mutex_lock(&pool->lock);
    dunlin_trainer *old = slot->trainer;
    slot->trainer = trainer;
    (void)pthread_mutex_unlock(&pool->lock);
    return old;
}

dunlin_status dunlin__pool_prepare(dunlin_trainer_pool *pool, dunlin__pool_slot *slot,
                                   const dunlin__pool_slot *wanted, dunlin_error *error)
{
    slot->proximal_mu = wanted->proximal_mu;
    if (slot_fits(slot, wanted)) {
        return DUNLIN_OK;
    }
    dunlin_trainer_destroy(swap_trainer(pool, slot, NULL));
    dunlin_trainer_options options = pool->options;
    options.batch = wanted->batch;
    options.momentum = wanted->momentum;
    options.weight_decay = wanted->weight_decay;
    if (wanted->hook != DUNLIN_HOOK_NONE) {
        options.gradient_fn = wanted->hook == DUNLIN_HOOK_PROXIMAL ? add_proximal : add_correction;
        options.gradient_ctx = slot;
        options.n_gradient_slots = 1;
    }
    dunlin_trainer *trainer = NULL;
    DUNLIN_TRY(dunlin_trainer_create(pool->model, &options, &trainer, error));
    (void)swap_trainer(pool, slot, trainer);
    slot->batch = wanted->batch;
    slot->momentum = wanted->momentum;
    slot->weight_decay = wanted->weight_decay;
    slot->hook = wanted->hook;
    return DUNLIN_OK;
}

void dunlin__pool_give(dunlin_trainer_pool *pool, dunlin__pool_slot **slot)
{
    (void)pthread_mutex_lock(&pool->lock);
    (*slot)->is_taken = false;
    *slot = NULL;
    (void)pthread_mutex_unlock(&pool->lock);
}

void dunlin__pool_stop(dunlin_trainer_pool *pool, dunlin__pool_slot *const *slot)
{
    (void)pthread_mutex_lock(&pool->lock);
    if (*slot != NULL && (*slot)->trainer != NULL) {
        dunlin_trainer_stop((*slot)->trainer);
    }
    (void)pthread_mutex_unlock(&pool->lock);
}

void dunlin__pool_note_peak(dunlin_trainer_pool *pool, uint64_t peak_bytes)
{
    (void)pthread_mutex_lock(&pool->lock);
    if (peak_bytes > pool->peak_bytes) {
        pool->peak_bytes = peak_bytes;
    }
    (void)pthread_mutex_unlock(&pool->lock);
}
