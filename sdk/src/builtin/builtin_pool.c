/*
 * builtin_pool.c - trainers that many learners share.
 *
 * Invariant: a slot that is taken belongs to one learner; its trainer is made, used and replaced by
 * that one alone, and the lock guards who has which.
 */
#include "builtin_pool.h"

#include <dunlin/trainer_advanced.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <assert.h>
#include <string.h>

#define N_SLOTS_MAX 256

dunlin_status dunlin_trainer_pool_create(const dunlin_model *model,
                                         const dunlin_trainer_options *options, int32_t n_trainers,
                                         dunlin_trainer_pool **out_pool, dunlin_error *out_error)
{
    dunlin_trainer_options copy = DUNLIN_TRAINER_OPTIONS_INIT;
    *out_pool = NULL;
    dunlin__error_clear(out_error);
    if (model == NULL || options == NULL || n_trainers < 1 || n_trainers > N_SLOTS_MAX) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "learner", 0,
                            "a pool needs a model, options, and 1 to %d trainers", N_SLOTS_MAX);
    }
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_trainer_options, options, &copy, out_error));
    if (copy.gradient_fn != NULL || copy.n_gradient_slots != 0) {
        return dunlin__fail(
            out_error, DUNLIN_ARGUMENT, "learner", 0,
            "a pool's gradient hook is its own (FedProx, SCAFFOLD); leave gradient_fn empty");
    }
    if (copy.precision != NULL || copy.grad_bits != NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "learner", 0,
                            "a pool trains in the precision of each round's plan; leave precision "
                            "and grad_bits empty");
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
    pool->budget_bytes = UINT64_MAX;
    (void)pthread_mutex_init(&pool->lock, NULL);
    *out_pool = pool;
    return DUNLIN_OK;
}

static void destroy_now(dunlin_trainer_pool *pool)
{
    for (int32_t i = 0; i < pool->n_slots; i++) {
        dunlin_trainer_destroy(pool->slots[i].trainer);
    }
    (void)pthread_mutex_destroy(&pool->lock);
    dunlin_alloc alloc = pool->alloc;
    dunlin__free_array(&alloc, pool->slots, (size_t)pool->n_slots, sizeof *pool->slots);
    dunlin__free_array(&alloc, pool, 1, sizeof *pool);
}

void dunlin_trainer_pool_destroy(dunlin_trainer_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&pool->lock);
    bool is_used = pool->n_learners > 0;
    pool->is_leaving = true;
    (void)pthread_mutex_unlock(&pool->lock);
    if (!is_used) {
        destroy_now(pool);
    }
}

void dunlin__pool_hold(dunlin_trainer_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    pool->n_learners++;
    (void)pthread_mutex_unlock(&pool->lock);
}

void dunlin__pool_let_go(dunlin_trainer_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    pool->n_learners--;
    bool is_last = pool->is_leaving && pool->n_learners == 0;
    (void)pthread_mutex_unlock(&pool->lock);
    if (is_last) {
        destroy_now(pool);
    }
}

/* Gives every trainer the budget; called with the lock held. *out_n: how many have it. */
static dunlin_status give_budget(dunlin_trainer_pool *pool, uint64_t budget_bytes, int32_t n_slots,
                                 int32_t *out_n, dunlin_error *error)
{
    for (*out_n = 0; *out_n < n_slots; (*out_n)++) {
        dunlin_trainer *trainer = pool->slots[*out_n].trainer;
        if (trainer != NULL) {
            DUNLIN_TRY(dunlin_trainer_set_budget(trainer, budget_bytes, error));
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin_trainer_pool_set_budget(dunlin_trainer_pool *pool, uint64_t budget_bytes,
                                             dunlin_error *out_error)
{
    int32_t n_given = 0;
    dunlin__error_clear(out_error);
    if (pool == NULL || pool->options.least_budget_bytes == 0) {
        return dunlin__fail(out_error, pool == NULL ? DUNLIN_ARGUMENT : DUNLIN_UNSUPPORTED,
                            "learner", 0,
                            "changing a budget needs a pool whose options have a "
                            "least_budget_bytes");
    }
    uint64_t wanted_bytes = budget_bytes > 0 ? budget_bytes : UINT64_MAX;
    (void)pthread_mutex_lock(&pool->lock);
    dunlin_status status = give_budget(pool, wanted_bytes, pool->n_slots, &n_given, out_error);
    if (status == DUNLIN_OK) {
        pool->budget_bytes = wanted_bytes;
    } else {
        /* They had it before, so they can have it again. */
        (void)give_budget(pool, pool->budget_bytes, n_given, &n_given, NULL);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return status;
}

uint64_t dunlin_trainer_pool_peak_bytes(dunlin_trainer_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    uint64_t peak_bytes = pool->peak_bytes;
    (void)pthread_mutex_unlock(&pool->lock);
    return peak_bytes;
}

uint64_t dunlin_trainer_pool_moved_bytes(dunlin_trainer_pool *pool)
{
    if (pool == NULL) {
        return 0;
    }
    (void)pthread_mutex_lock(&pool->lock);
    const uint64_t moved_bytes = pool->moved_bytes;
    (void)pthread_mutex_unlock(&pool->lock);
    return moved_bytes;
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

static bool same_choice(const dunlin__recipe *a, const dunlin__recipe *b)
{
    if (a->has_parameters != b->has_parameters || a->no_norm_decay != b->no_norm_decay ||
        a->trained != b->trained || strcmp(a->trained_prefixes, b->trained_prefixes) != 0 ||
        strcmp(a->frozen_prefixes, b->frozen_prefixes) != 0 || a->n_groups != b->n_groups) {
        return false;
    }
    for (int32_t i = 0; i < a->n_groups; i++) {
        const dunlin__recipe_group *one = &a->groups[i];
        const dunlin__recipe_group *other = &b->groups[i];
        if (strcmp(one->name, other->name) != 0 || strcmp(one->patterns, other->patterns) != 0 ||
            one->roles != other->roles || one->lr_factor != other->lr_factor ||
            one->decay_factor != other->decay_factor) {
            return false;
        }
    }
    return true;
}

static bool same_recipe(const dunlin__recipe *a, const dunlin__recipe *b)
{
    return a->batch == b->batch && a->momentum == b->momentum &&
           a->weight_decay == b->weight_decay && a->hook == b->hook &&
           a->optimizer == b->optimizer && a->clip_norm == b->clip_norm &&
           a->clip_value == b->clip_value && a->has_ignored_label == b->has_ignored_label &&
           a->ignored_label == b->ignored_label && a->is_mixed == b->is_mixed &&
           strcmp(a->precision, b->precision) == 0 && a->storage == b->storage && same_choice(a, b);
}

/* A trainer of larger steps than are wanted does as well: devices whose remainders differ share
 * it. */
static bool slot_fits(const dunlin__pool_slot *slot, const dunlin__pool_slot *wanted)
{
    return slot->trainer != NULL && slot->most >= wanted->most &&
           same_recipe(&slot->recipe, &wanted->recipe);
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
        assert(!found->is_taken);
        found->is_taken = true;
        *out_slot = found;
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return found != NULL;
}

/* stop() reads slot->trainer from other threads, so it changes under the lock. */
static dunlin_trainer *take_trainer(dunlin_trainer_pool *pool, dunlin__pool_slot *slot)
{
    (void)pthread_mutex_lock(&pool->lock);
    assert(slot->is_taken);
    dunlin_trainer *old = slot->trainer;
    slot->trainer = NULL;
    (void)pthread_mutex_unlock(&pool->lock);
    return old;
}

/* A new trainer into a slot that has none, under the budget of now. */
static dunlin_status put_trainer(dunlin_trainer_pool *pool, dunlin__pool_slot *slot,
                                 const dunlin_trainer_options *options, dunlin_error *error)
{
    dunlin_trainer *trainer = NULL;
    dunlin_status status = DUNLIN_OK;
    DUNLIN_TRY(dunlin_trainer_create(pool->model, options, &trainer, error));
    /* Under the lock: a change of the budget finds it in its slot, or here before it is. */
    (void)pthread_mutex_lock(&pool->lock);
    if (pool->budget_bytes != UINT64_MAX) {
        status = dunlin_trainer_set_budget(trainer, pool->budget_bytes, error);
    }
    slot->trainer = status == DUNLIN_OK ? trainer : NULL;
    slot->moved_bytes = 0;
    (void)pthread_mutex_unlock(&pool->lock);
    if (status != DUNLIN_OK) {
        dunlin_trainer_destroy(trainer);
    }
    return status;
}

/* The recipe's choice of parameters into the options; groups: room for them. */
static void choose_parameters(const dunlin__recipe *recipe, dunlin_parameter_group *groups,
                              dunlin_trainer_options *options)
{
    for (int32_t i = 0; i < recipe->n_groups; i++) {
        const dunlin__recipe_group *from = &recipe->groups[i];
        groups[i] = (dunlin_parameter_group)DUNLIN_PARAMETER_GROUP_INIT;
        groups[i].name = from->name[0] != '\0' ? from->name : NULL;
        groups[i].patterns = from->patterns[0] != '\0' ? from->patterns : NULL;
        groups[i].uses = from->roles;
        groups[i].lr_factor = from->lr_factor;
        groups[i].decay_factor = from->decay_factor;
    }
    options->trained = recipe->trained;
    options->trained_prefixes =
        recipe->trained_prefixes[0] != '\0' ? recipe->trained_prefixes : NULL;
    options->frozen_prefixes = recipe->frozen_prefixes[0] != '\0' ? recipe->frozen_prefixes : NULL;
    options->no_norm_decay = recipe->no_norm_decay;
    options->groups = recipe->n_groups > 0 ? groups : NULL;
    options->n_groups = recipe->n_groups;
}

dunlin_status dunlin__pool_prepare(dunlin_trainer_pool *pool, dunlin__pool_slot *slot,
                                   const dunlin__pool_slot *wanted, dunlin_error *error)
{
    const dunlin__recipe *recipe = &wanted->recipe;
    dunlin_parameter_group groups[DUNLIN_TASK_GROUPS];
    slot->proximal_mu = wanted->proximal_mu;
    if (slot_fits(slot, wanted)) {
        return DUNLIN_OK;
    }
    dunlin_trainer_destroy(take_trainer(pool, slot));
    dunlin_trainer_options options = pool->options;
    options.batch = wanted->most;
    options.momentum = recipe->momentum;
    options.weight_decay = recipe->weight_decay;
    options.clip_norm = recipe->clip_norm > 0.0F ? recipe->clip_norm : options.clip_norm;
    options.clip_value = recipe->clip_value > 0.0F ? recipe->clip_value : options.clip_value;
    if (recipe->optimizer != DUNLIN_TASK_OPTIMIZER_SGD) {
        options.optimizer = recipe->optimizer == DUNLIN_TASK_OPTIMIZER_ADAM
                                ? DUNLIN_OPTIMIZER_ADAM
                                : DUNLIN_OPTIMIZER_ADAMW;
    }
    if (recipe->has_ignored_label) {
        options.has_ignore_label = true;
        options.ignore_label = recipe->ignored_label;
    }
    if (recipe->is_mixed && options.loss == DUNLIN_LOSS_CROSS_ENTROPY) {
        options.loss = DUNLIN_LOSS_SOFT_CROSS_ENTROPY;
    }
    if (recipe->precision[0] != '\0') {
        const dunlin_trainer_options unset = DUNLIN_TRAINER_OPTIONS_INIT;
        options.precision = recipe->precision;
        options.lr =
            unset.lr; /* a rate of the app's own is never used: the plan has one, or bits */
    }
    if (recipe->storage != DUNLIN_STORAGE_EXACT) {
        options.storage = recipe->storage;
    }
    if (recipe->has_parameters) {
        choose_parameters(recipe, groups, &options);
    }
    if (recipe->hook != DUNLIN_HOOK_NONE) {
        options.gradient_fn = recipe->hook == DUNLIN_HOOK_PROXIMAL ? add_proximal : add_correction;
        options.gradient_ctx = slot;
        options.n_gradient_slots = 1;
    }
    DUNLIN_TRY(put_trainer(pool, slot, &options, error));
    slot->most = wanted->most;
    slot->recipe = *recipe;
    return DUNLIN_OK;
}

void dunlin__pool_give(dunlin_trainer_pool *pool, dunlin__pool_slot **slot)
{
    (void)pthread_mutex_lock(&pool->lock);
    assert((*slot)->is_taken);
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

void dunlin__pool_note(dunlin_trainer_pool *pool, dunlin__pool_slot *slot, uint64_t peak_bytes,
                       uint64_t moved_bytes)
{
    (void)pthread_mutex_lock(&pool->lock);
    if (peak_bytes > pool->peak_bytes) {
        pool->peak_bytes = peak_bytes;
    }
    pool->moved_bytes += moved_bytes - slot->moved_bytes;
    slot->moved_bytes = moved_bytes;
    (void)pthread_mutex_unlock(&pool->lock);
}
