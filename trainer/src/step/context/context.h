/*
 * context.h - the internal parts of a trainer, which the files of the public calls share.
 */
#ifndef DUNLIN_STEP_CONTEXT_H
#define DUNLIN_STEP_CONTEXT_H

#include "numbers.h"
#include "schedule.h"
#include "step/run/exec.h"
#include "step/swap/swap.h"

#include <dunlin/trainer_advanced.h>

#include <stdatomic.h>

typedef struct dunlin_ladder dunlin_ladder;

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
    dunlin_alloc base;              /* the application's hooks, or the C library's */
    dunlin_alloc_counter counter;   /* over `base`: this struct and all tables; not the arena */
    dunlin_trainer_options options; /* its schedule is the next member */
    dunlin_schedule schedule;
    float *class_weights;           /* a copy; NULL: 1 each */
    dunlin_step_loss *losses;       /* of each output, from the options */
    dunlin_metrics *output_metrics; /* of each; of the last call that had some */
    dunlin_net net;                 /* a copy */
    const dunlin_kernels *kernels;
    const dunlin_int_kernels *integers; /* of the same set */
    const dunlin_precision *precision;  /* NULL: float32 */
    dunlin_grad_bits grad_bits;
    int32_t weight_growth; /* 0: none */
    dunlin_threads workers;
    dunlin_threads *threads; /* those; NULL: serial */
    dunlin_program train;
    dunlin_program infer;
    dunlin_step_form form; /* of `train` */
    bool is_form_fixed;    /* no other is looked at */
    bool is_trial;         /* whether there is a plan is asked, not how much would do */
    uint64_t train_bytes;  /* of `train` without its plan, and of `swap` */
    uint64_t aside_bytes;  /* of a form and its plans that are put aside while another is planned */
    dunlin_swap *swap;     /* NULL: the policy does not swap */
    dunlin_arena arena;
    uint64_t arena_bytes;        /* of the current plans */
    dunlin_ladder *ladder;       /* NULL: the budget stays */
    uint64_t least_budget_bytes; /* 0: it was not looked for */
    double plan_ms;
    bool is_plan_kept;  /* it was read from cache_dir */
    uint64_t cache_key; /* what it is kept under; 0: nothing is kept */
    uint64_t seed;
    int64_t step;         /* optimiser steps so far */
    uint64_t moved_bytes; /* by the operations of the steps since creation */
    bool is_torn; /* a checkpoint broke off while it was taken over, or a step after its first
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

/* The kernels of an instruction set by name; NULL: of DUNLIN_ISA, or the machine's best.
 * UNSUPPORTED. */
DUNLIN_NODISCARD dunlin_status dunlin__select_kernels(const char *asked,
                                                      const dunlin_kernels **out_kernels,
                                                      dunlin_error *error);
/* Those of integers, of the same name. */
const dunlin_int_kernels *dunlin__select_integers(const char *asked);

/* A trainer without graphs, plans and arena. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_make(const dunlin_trainer_options *options,
                                                    dunlin_trainer **out_trainer,
                                                    dunlin_error *error);
/* Frees it whoever is at work. */
void dunlin__trainer_free(dunlin_trainer *trainer);

/* Frees the current training graph, its plan and its swap file. */
void dunlin__trainer_unprepare_train(dunlin_trainer *trainer);
/* Frees what dunlin__trainer_prepare() and dunlin__trainer_plan() made. */
void dunlin__trainer_unprepare(dunlin_trainer *trainer);
void dunlin__property_free(const dunlin_alloc *alloc, dunlin_property *property);
void dunlin__properties_free(const dunlin_trainer *trainer, dunlin_properties *properties);

/* Starts a public call: the last error is forgotten. */
void dunlin__trainer_begin(const dunlin_trainer *trainer);
/* The weights are a mixture from now on, and none of them counts as set anew. */
void dunlin__trainer_tear(dunlin_trainer *trainer);
/* STATE if the weights are a mixture. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_check(const dunlin_trainer *trainer);

#endif
