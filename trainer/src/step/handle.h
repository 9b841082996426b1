/*
 * handle.h - a trainer from inside: what the files behind the public calls share.
 */
#ifndef DUNLIN_STEP_HANDLE_H
#define DUNLIN_STEP_HANDLE_H

#include "exec.h"
#include "ladder.h"
#include "schedule.h"
#include "swap.h"

#include <stdatomic.h>

#define DUNLIN_TRAINER_MAX_BATCH ((int64_t)1 << 30)
#define DUNLIN_TRAINER_MAX_PROPERTIES 64
#define DUNLIN_TRAINER_MAX_PROPERTY_NAME 64
#define DUNLIN_TRAINER_MAX_PROPERTY_TEXT 256

/* Name and text, each ended by a zero, in one block of `bytes`. */
typedef struct dunlin_property {
    char *block;
    size_t bytes;
    const char *name;
    const char *text;
} dunlin_property;

/* A list by itself, so that a checkpoint's can be read before it replaces ours. */
typedef struct dunlin_properties {
    dunlin_property *items;
    size_t n, capacity;
} dunlin_properties;

/* The graphs that a training step may have: how the backward pass reads residual sums. */
typedef enum dunlin_step_form {
    DUNLIN_FORM_TERMS = 0, /* through their terms, where those are kept anyway */
    DUNLIN_FORM_SUMS       /* as they were stored */
} dunlin_step_form;

struct dunlin_trainer {
    dunlin_alloc base;            /* the application's hooks, or the C library's */
    dunlin_alloc_counter counter; /* over `base`: this struct and all tables; not the arena */
    dunlin_trainer_options options;
    dunlin_net net; /* a copy */
    const dunlin_kernels *kernels;
    dunlin_threads workers;
    dunlin_threads *threads; /* those; NULL: serial */
    dunlin_program train;
    dunlin_program infer;
    dunlin_step_form form; /* of `train` */
    bool is_form_fixed;    /* no other is looked at */
    uint64_t train_bytes;  /* of `train` without its plan, and of `swap` */
    uint64_t aside_bytes;  /* of a form and its plans that are put aside while another is planned */
    dunlin_swap *swap;     /* NULL: the policy does not swap */
    dunlin_arena arena;
    uint64_t arena_bytes;        /* of the plans at hand */
    dunlin_ladder *ladder;       /* NULL: the budget stays */
    uint64_t least_budget_bytes; /* 0: it was not looked for */
    double plan_ms;
    bool is_plan_kept;  /* it was read from cache_dir */
    uint64_t cache_key; /* what it is kept under; 0: nothing is kept */
    uint64_t seed;
    int64_t step; /* optimiser steps so far */
    bool is_torn; /* a checkpoint broke off while it was taken over, or a step behind its first
                     update: weights are a mixture, though each is finite */
    atomic_bool is_stopping;
    atomic_uintptr_t owner; /* guard.c: whose call is at work; 0: nobody's */
    bool has_warned_of_one; /* of a batch of one example */
    bool is_telling;        /* the owner is in the application's progress_fn */
    dunlin_properties properties;
    const dunlin_step_watch *watch; /* of steps; a benchmark's, NULL otherwise */
    dunlin_error *error; /* = &error_store: also calls on a const trainer tell what failed */
    dunlin_error error_store;
};

/*
 * options.c: the options as this version of the library sees them, zeros replaced by the defaults,
 * all limits checked. ARGUMENT.
 */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_take_options(const dunlin_trainer_options *from,
                                                            dunlin_trainer_options *out,
                                                            dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__trainer_check_lr(float lr, dunlin_error *error);

/* trainer.c: a trainer without graphs, plans and arena. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_make(const dunlin_trainer_options *options,
                                                    dunlin_trainer **out_trainer,
                                                    dunlin_error *error);

/* prepare.c: network copy, both graphs (training in the trainer's form), both lowered; no plans
 * yet. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_prepare(dunlin_trainer *trainer,
                                                       const dunlin_net *net, dunlin_error *error);
/* The training graph alone, anew in the trainer's form, in place of the one at hand and its plan.
 */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_prepare_train(dunlin_trainer *trainer,
                                                             dunlin_error *error);
/* Frees the training graph at hand, its plan and what swaps it. */
void dunlin__trainer_unprepare_train(dunlin_trainer *trainer);
/* Frees what dunlin__trainer_prepare() and dunlin__trainer_plan() made. */
void dunlin__trainer_unprepare(dunlin_trainer *trainer);

/* The planner's options for a training plan within so many bytes of arena (0: no limit). */
dunlin_plan_options dunlin__trainer_plan_options(const dunlin_trainer *trainer, int64_t batch,
                                                 uint64_t arena_bytes);
/* A plan for inference beside a training plan of so many bytes; it may need more. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_plan_infer(dunlin_trainer *trainer, int64_t batch,
                                                          uint64_t train_bytes,
                                                          dunlin_plan **out_plan,
                                                          dunlin_error *error);

/* The slices are part of what is computed (ghost statistics), and options.micro_batch sets them. */
bool dunlin__trainer_has_fixed_slices(const dunlin_trainer *trainer);

/*
 * The least budget with which a step of `batch` samples works in the trainer's form, under the
 * options' policy; no plans are kept. Needs a trainer that is prepared, for this batch if its graph
 * follows the batch.
 */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_least_budget(dunlin_trainer *trainer, int64_t batch,
                                                            uint64_t *out_bytes,
                                                            dunlin_error *error);

/*
 * Prepares and plans within the options' budget: form, graphs, plans, arena_bytes, and
 * least_budget_bytes where planning came by it. Neither the tables nor the scratch that making them
 * takes ever pass the budget when it succeeds.
 */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_plan(dunlin_trainer *trainer, const dunlin_net *net,
                                                    dunlin_error *error);

/* least_budget_bytes of a planned trainer that is not sealed, if planning has not come by it; with
 * tables of its own, beyond the budget. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_find_least(dunlin_trainer *trainer,
                                                          dunlin_error *error);

/* The plans anew, for what the tables now leave of the budget: a faster one if there is room, else
 * the least. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_replan(dunlin_trainer *trainer, dunlin_error *error);

/* weights.c: the first values of all parameters, straight into the arena. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_init_weights(dunlin_trainer *trainer,
                                                            dunlin_error *error);
/* What is known of the rows of tables' optimiser state holds no longer: it comes from elsewhere. */
void dunlin__trainer_forget_rows(const dunlin_trainer *trainer);
/* A persistent tensor's floats in the arena. */
float *dunlin__trainer_floats(const dunlin_trainer *trainer, uint32_t tensor);
/*
 * Elements [first, first + n) in ONNX's order, from and to the inner layout. `floats` is the
 * parameter's tensor or one of the optimiser's tensors that lie like it.
 */
void dunlin__layout_load(const dunlin_net_param *param, const float *floats, int64_t first,
                         int64_t n, float *out);
void dunlin__layout_store(const dunlin_net_param *param, float *floats, int64_t first, int64_t n,
                          const float *values);

/*
 * guard.c. Around a public call that works on the trainer: STATE while another one does, on
 * whatever thread. Nothing of the trainer is looked at behind leave, which frees one that was
 * destroyed meanwhile.
 */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_enter(dunlin_trainer *trainer);
dunlin_status dunlin__trainer_leave(dunlin_trainer *trainer, dunlin_status status);
/* At the beginning of one that reads, or sets what the next step looks at: STATE while another call
 * works, but for the owner's progress_fn, which stands between two steps. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_look(const dunlin_trainer *trainer);
/* trainer.c: frees it whoever is at work. */
void dunlin__trainer_free(dunlin_trainer *trainer);

/*
 * weigh.c: how much the run's examples weigh together, and how many of them count. Reads them for
 * their labels, in the idle pool, if one is ignored. DATA for a weight that is negative or not
 * finite; CALLBACK.
 */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_weigh(dunlin_trainer *trainer, dunlin_step_run *run);
/* DATA if none of `n` examples counts. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_check_counted(const dunlin_trainer *trainer,
                                                             int64_t n, int64_t n_counted);

/* warn.c: a step of one example in a network whose batch norm takes statistics: told once. */
void dunlin__trainer_warn_of_one(dunlin_trainer *trainer, int64_t n_batch);

/* train.c: the public calls of these names, within enter and leave. */
DUNLIN_NODISCARD dunlin_status dunlin__train_step(dunlin_trainer *trainer,
                                                  const dunlin_source *source,
                                                  const int64_t *indices, int64_t n,
                                                  dunlin_metrics *out_metrics);
DUNLIN_NODISCARD dunlin_status dunlin__train_fit(dunlin_trainer *trainer,
                                                 const dunlin_source *source,
                                                 const dunlin_fit_options *options,
                                                 dunlin_fit_cursor *cursor,
                                                 dunlin_metrics *out_metrics);
DUNLIN_NODISCARD dunlin_status dunlin__train_evaluate(dunlin_trainer *trainer,
                                                      const dunlin_source *source, int64_t first,
                                                      int64_t n, dunlin_metrics *out_metrics);
DUNLIN_NODISCARD dunlin_status dunlin__train_predict(dunlin_trainer *trainer,
                                                     const dunlin_source *source, int64_t first,
                                                     int64_t n, float *out_logits);

/* Starts a public call: the last error is forgotten. */
void dunlin__trainer_begin(const dunlin_trainer *trainer);
/* The weights are a mixture from now on, and none of them counts as set anew. */
void dunlin__trainer_tear(dunlin_trainer *trainer);
/* STATE if the weights are a mixture. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_check(const dunlin_trainer *trainer);

/* --- properties.c --- */

/* Sets or replaces one. ARGUMENT (texts too long, no name), LIMIT (too many), MEMORY, BUDGET. */
DUNLIN_NODISCARD dunlin_status dunlin__properties_set(const dunlin_trainer *trainer,
                                                      dunlin_properties *properties,
                                                      const char *name, const char *text);
void dunlin__properties_free(const dunlin_trainer *trainer, dunlin_properties *properties);

/* Milliseconds of the monotonic clock. */
double dunlin__clock_ms(void);

#endif
