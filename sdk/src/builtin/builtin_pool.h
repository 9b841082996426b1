/*
 * builtin_pool.h - the slots of a pool of trainers, as the built-in learner takes and returns them.
 */
#ifndef DUNLIN_SDK_BUILTIN_POOL_H
#define DUNLIN_SDK_BUILTIN_POOL_H

#include <dunlin/builtin.h>

#include <pthread.h>

/* What a trainer adds to its gradients; its one buffer for it holds the base, or the correction. */
typedef enum dunlin__hook {
    DUNLIN_HOOK_NONE = 0,
    DUNLIN_HOOK_PROXIMAL,
    DUNLIN_HOOK_CORRECTION
} dunlin__hook;

#define DUNLIN_RECIPE_NAME_BYTES 64
#define DUNLIN_RECIPE_PATTERN_BYTES 256
#define DUNLIN_RECIPE_PREFIX_BYTES 512
#define DUNLIN_RECIPE_PRECISION_BYTES 16

typedef struct dunlin__recipe_group {
    char name[DUNLIN_RECIPE_NAME_BYTES];
    char patterns[DUNLIN_RECIPE_PATTERN_BYTES];
    uint32_t roles;
    float lr_factor;
    float decay_factor;
} dunlin__recipe_group;

/* What a round's trainer is made from, beside the pool's options: copies, so that it can be held
 * against the next round's. Zero where nothing is set. */
typedef struct dunlin__recipe {
    int64_t batch; /* of a step */
    float momentum;
    float weight_decay;
    dunlin__hook hook;
    dunlin_task_optimizer optimizer; /* SGD: the pool's */
    float clip_norm;                 /* 0: the pool's */
    float clip_value;
    bool has_ignored_label; /* else the pool's */
    int32_t ignored_label;
    char precision[DUNLIN_RECIPE_PRECISION_BYTES]; /* "": float32 */
    dunlin_storage storage;                        /* EXACT: the pool's */
    bool is_mixed;       /* two examples into one: the loss is over shares of classes */
    bool has_parameters; /* what follows; else the pool's */
    bool no_norm_decay;
    dunlin_trained trained;
    char trained_prefixes[DUNLIN_RECIPE_PREFIX_BYTES];
    char frozen_prefixes[DUNLIN_RECIPE_PREFIX_BYTES];
    dunlin__recipe_group groups[DUNLIN_TASK_GROUPS];
    int32_t n_groups;
} dunlin__recipe;

typedef struct dunlin__pool_slot {
    dunlin_trainer *trainer;
    dunlin__recipe recipe;
    int64_t most; /* the largest step that its trainer takes: recipe.batch or more */
    bool is_taken;
    uint64_t moved_bytes; /* of its trainer, as counted in the pool's */
    float proximal_mu;    /* of the current round; read by the gradient hook */
} dunlin__pool_slot;

struct dunlin_trainer_pool {
    dunlin_alloc alloc;
    const dunlin_model *model;
    dunlin_trainer_options options;
    pthread_mutex_t lock;
    int32_t n_slots;
    uint64_t peak_bytes;
    uint64_t moved_bytes;  /* of all trainers so far */
    uint64_t budget_bytes; /* as last changed; UINT64_MAX: as at creation */
    dunlin__pool_slot *slots;
    int32_t n_learners; /* over it; under the lock, like the next */
    bool is_leaving;    /* destroyed by the app; goes with the last of them */
};

/* Takes a free slot, one whose trainer fits if there is one, and notes it in *out_slot under the
 * pool's lock; false when all are taken. */
bool dunlin__pool_take(dunlin_trainer_pool *pool, const dunlin__pool_slot *wanted,
                       dunlin__pool_slot **out_slot);

/* Makes the slot's trainer what the task wants. The slot is taken, so it is the caller's alone. */
dunlin_status dunlin__pool_prepare(dunlin_trainer_pool *pool, dunlin__pool_slot *slot,
                                   const dunlin__pool_slot *wanted, dunlin_error *error);

/* Gives *slot back and sets it to NULL, under the lock: stop may look at it from another thread. */
void dunlin__pool_give(dunlin_trainer_pool *pool, dunlin__pool_slot **slot);

/* Stops the trainer of *slot, if there is one. Any thread. */
void dunlin__pool_stop(dunlin_trainer_pool *pool, dunlin__pool_slot *const *slot);

/* A learner begins to use the pool, and ends: one that the app has destroyed goes with the last. */
void dunlin__pool_hold(dunlin_trainer_pool *pool);
void dunlin__pool_let_go(dunlin_trainer_pool *pool);

/* What the trainer of a taken slot tells of itself: its highest peak, and what it has moved. */
void dunlin__pool_note(dunlin_trainer_pool *pool, dunlin__pool_slot *slot, uint64_t peak_bytes,
                       uint64_t moved_bytes);

#endif
