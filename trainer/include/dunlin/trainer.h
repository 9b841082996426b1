/*
 * trainer.h - trains a model on this device within a byte budget.
 *
 * The life of the bytes: estimate (nothing is kept) -> create (bookkeeping and one arena) -> steps
 * (no allocation) -> destroy. `budget_bytes` is a hard line over everything the trainer owns:
 * weights, optimiser state, gradients, activations, workspaces, staged examples, and its own
 * tables. Weights are bit-identical for every budget, slice size and thread count (per instruction
 * set); with ghost statistics for every budget and thread count at one slice size.
 *
 * While a step, an evaluation or a prediction computes, subnormal numbers count as zero on the
 * calling thread (its mode is brought back behind it) and on the trainer's own: a weight whose
 * gradient has gone keeps no momentum that is slow to compute with. What is called from within, a
 * source or a hook, sees that mode.
 *
 * One trainer is used by one thread at a time; dunlin_trainer_stop(), _set_budget(), _pause() and
 * _resume() may be called from any, also from callbacks but trim_fn. Every other call that returns
 * a status answers STATE while one works on the trainer, from another thread and from a source or a
 * hook alike: nothing has happened then, and the detail of the last failure stays. Calls without a
 * status that change something (_set_seed(), _reset_optimizer()) do nothing then. progress_fn
 * stands between two steps, so from there, on its own thread, what reads or sets for the next steps
 * is answered: weights read, parameters, report, changes of the budget and _set_budget_at(), rate,
 * schedule, seed, properties; but no step, evaluation, weight set, file written or read.
 */
#ifndef DUNLIN_TRAINER_H
#define DUNLIN_TRAINER_H

#include <dunlin/alloc.h>
#include <dunlin/baselines.h>
#include <dunlin/budget.h>
#include <dunlin/log.h>
#include <dunlin/metrics.h>
#include <dunlin/model.h>
#include <dunlin/parameters.h>
#include <dunlin/source.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dunlin_trainer dunlin_trainer;
typedef struct dunlin_costs dunlin_costs; /* costs.h */

typedef enum dunlin_policy {
    DUNLIN_POLICY_AUTO = 0,   /* the fastest step that fits the budget */
    DUNLIN_POLICY_NONE,       /* whole batch, no memory shared: a naive executor, for comparison */
    DUNLIN_POLICY_POOL,       /* whole batch, lifetime pool */
    DUNLIN_POLICY_MICROBATCH, /* slices of `micro_batch` samples (0: the most that fit) with exact
                                 accumulation */
    /* Published policies, for comparison; memory/README.md says how each is understood. */
    DUNLIN_POLICY_IDEAL,     /* whole batch, lifetime pool; the budget is not looked at */
    DUNLIN_POLICY_RECOMPUTE, /* evicts on demand, by live bytes */
    DUNLIN_POLICY_SGC,       /* static checkpointing in segments */
    DUNLIN_POLICY_SAGE,      /* slices until throughput falls, then checkpointing on demand */
    DUNLIN_POLICY_MELON,     /* lifetime order, evicts where the pool's top passes the budget */
    DUNLIN_POLICY_SUBLINEAR, /* static checkpointing in as many segments as the root of the ops */
    /* AUTO without slices and regions, to see what these are worth. */
    DUNLIN_POLICY_WHOLE,
    /* These write tensors out to a file (swap_dir) and read them back. */
    DUNLIN_POLICY_VDNN,    /* the inputs of convolutions, from their last use of the forward pass to
                              their first of the backward pass */
    DUNLIN_POLICY_CAPUCHIN /* swaps or makes again, tensor by tensor, by cost, until it fits */
} dunlin_policy;

/** What training makes small. y are the model's outputs, w weights of examples (1 each by default),
 * means weighted by them. */
typedef enum dunlin_loss {
    /* Cross-entropy of softmax(y) with a class per example, as PyTorch's CrossEntropyLoss: the mean
     * of (1 - s) * -log p[label] + s / classes * sum of -log p; s is label_smoothing. */
    DUNLIN_LOSS_CROSS_ENTROPY = 0,
    /* Mean squared error with float targets t, as MSELoss: the mean over examples and outputs of
     * (y - t)^2. */
    DUNLIN_LOSS_MSE,
    /* Binary cross-entropy with float targets t in [0, 1], as BCEWithLogitsLoss: the mean over
     * examples and outputs of -t log s - (1 - t) log(1 - s), s = 1 / (1 + exp(-y)). */
    DUNLIN_LOSS_BCE
} dunlin_loss;

/** One pass over each parameter w with gradient g, in place; PyTorch's formulas. d is weight_decay,
 * step t = 1, 2, ... */
typedef enum dunlin_optimizer {
    /* g += d w; m = momentum m + g; w -= lr m (Nesterov: lr (g + momentum m)). */
    DUNLIN_OPTIMIZER_SGD = 0,
    /* Kingma, Ba 2015: g += d w; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
     * w -= lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps). */
    DUNLIN_OPTIMIZER_ADAM,
    /* Loshchilov, Hutter 2019: w -= lr d w, then Adam without decay. */
    DUNLIN_OPTIMIZER_ADAMW
} dunlin_optimizer;

/** How the learning rate goes from step to step; u is the number of steps since the warm-up. */
typedef enum dunlin_schedule_kind {
    DUNLIN_SCHEDULE_CONSTANT = 0,
    DUNLIN_SCHEDULE_STEP,        /* lr gamma^floor(u / period_steps) */
    DUNLIN_SCHEDULE_EXPONENTIAL, /* lr gamma^(u / period_steps): by gamma in each period, smoothly
                                  */
    /* min_lr + (lr - min_lr) (1 + cos(pi u / (total_steps - warmup_steps))) / 2, then min_lr */
    DUNLIN_SCHEDULE_COSINE,
    /* min_lr + (lr - min_lr) (1 - u / (total_steps - warmup_steps)), then min_lr */
    DUNLIN_SCHEDULE_LINEAR
} dunlin_schedule_kind;

/**
 * A pure function of the number of steps done before, so a restored trainer goes on with the same
 * rates. The formulas are those of PyTorch's StepLR, ExponentialLR, CosineAnnealingLR (up to T_max)
 * and LinearLR, stepped once a step. Before them the rate rises: step i = 0, 1, ... of the warm-up
 * has lr (i + 1) / (warmup_steps + 1). It is not kept in checkpoints.
 */
typedef struct dunlin_schedule {
    dunlin_schedule_kind kind;
    int64_t warmup_steps;
    int64_t period_steps; /* STEP, EXPONENTIAL; 0: 1 */
    int64_t total_steps;  /* COSINE, LINEAR: of the whole run, warm-up included */
    double gamma;         /* STEP, EXPONENTIAL: in (0, 1] */
    double min_lr;        /* COSINE, LINEAR */
    int64_t first_step;   /* the trainer's step count at which the schedule begins; -n: n of its
                             steps were taken elsewhere before, at most 2^60 */
} dunlin_schedule;

/**
 * Called for each trainable parameter when its gradient is final, before clipping and the update:
 * FedProx, SCAFFOLD, ... `weights`, `gradient` and each of the `slots` hold n elements in the
 * trainer's inner layout (all the same one); change `gradient` in place. Runs on the step's thread.
 * A table of tokens has a gradient of all its rows for it, which takes as much memory as the table.
 * With clip_norm a step may still end with NUMERIC after the hook has seen its gradients.
 */
typedef void (*dunlin_gradient_fn)(void *ctx, int32_t parameter_index, int64_t n,
                                   const float *weights, float *gradient, float *const *slots);

/** Progress, after each step of fit and evaluate; returning false stops at a consistent state
 * (STOPPED). */
typedef struct dunlin_progress {
    int64_t step;    /* optimiser steps since the trainer was created or restored */
    int64_t epoch;   /* of this fit */
    int64_t n_seen;  /* examples of this call so far */
    int64_t n_total; /* examples this call will see */
    double loss;     /* mean of the last step */
} dunlin_progress;
typedef bool (*dunlin_progress_fn)(void *ctx, const dunlin_progress *progress);

typedef struct dunlin_trainer_options {
    size_t struct_size;
    uint64_t budget_bytes; /* 0: no limit */
    int64_t batch;         /* samples per optimiser step; 0: 32 */
    int64_t micro_batch;   /* MICROBATCH: samples per slice; AUTO: an upper limit, 0 for none (of
                              a network with batch norm, for the slices of each region). With
                              ghost_statistics: exactly so many, under every policy */
    dunlin_policy policy;
    int32_t n_threads; /* 0 or 1: the calling thread alone. Others spin between two operations while
                          nobody else wants their cores, and sleep between two calls */
    float lr;          /* INIT writes 0.01; 0: weights stay */
    float momentum;    /* SGD */
    float weight_decay; /* on all trained parameters, but for groups and no_norm_decay */
    bool is_nesterov;
    bool freeze_batch_norm; /* use running statistics, do not update them */
    bool no_fuse; /* batch norm, activations and concatenations are passes over memory of their own;
                     policy NONE implies it. The weights differ by rounding. */
    uint64_t seed;               /* initial weights, order of examples, dropout */
    const char *frozen_prefixes; /* comma-separated prefixes of parameter names that stay fixed;
                                    NULL: none */
    dunlin_gradient_fn gradient_fn;
    void *gradient_ctx;
    int32_t n_gradient_slots; /* persistent buffers per trainable parameter for gradient_fn, 0 to 4,
                                 zero at first */
    dunlin_progress_fn progress_fn;
    void *progress_ctx;
    dunlin_alloc alloc; /* bookkeeping; and the arena if its functions are set and `slab` is not */
    void
        *slab; /* memory of the caller for the arena, 64-byte aligned; NULL: a mapping of our own */
    uint64_t slab_bytes;
    const char *isa; /* "sse2", "avx2", "avx512", "neon"; NULL: DUNLIN_ISA of the environment, else
                        the best */
    dunlin_log log;
    dunlin_loss loss;
    float label_smoothing; /* CROSS_ENTROPY: in [0, 1) */
    dunlin_optimizer optimizer;
    double beta1, beta2; /* Adam: 0: 0.9 and 0.999 */
    double eps;          /* Adam: 0: 1e-8 */
    dunlin_schedule schedule;
    float clip_value; /* each element of the gradient to [-clip_value, clip_value]; 0: not */
    /*
     * All gradients of a step, after clip_value, are scaled by min(1, clip_norm / (norm + 1e-6)),
     * norm being the 2-norm over all trained parameters (PyTorch's clip_grad_norm_); 0: not. All
     * gradients are then kept until the norm is known, and a norm that is not finite ends the step
     * with NUMERIC before any weight changes, as does a gradient that is not finite, whether
     * clip_value would hide it or not.
     */
    float clip_norm;
    const dunlin_costs *costs; /* measured ones, borrowed for the call; NULL: a roofline. MISMATCH
                                  if they are of another step, instruction set or thread number. */
    /*
     * A folder where plans are kept, borrowed for the call; NULL: they are not. A plan that is
     * found there is verified as a fresh one is; what is damaged or out of date is replaced. Files
     * are never removed. What goes wrong is logged and no failure.
     */
    const char *cache_dir;
    /*
     * Ghost statistics: batch norm in training takes mean and variance, and the sums of its
     * backward, over each slice alone, as gradient accumulation does elsewhere. Then nothing
     * couples the batch, and it runs in slices (MICROBATCH and SAGE need that) in little memory and
     * nearly no more time. The weights are not those of the exact step: they depend on the slice
     * size. So set micro_batch, or the budget decides on them too. For: batches that do not fit
     * even with rematerialisation, and comparison with other trainers.
     * Running statistics move once a step, to the slices' means and unbiased variances averaged by
     * their samples. A slice of a single row a channel has variance 0. With a single slice the step
     * is the exact one, to the bit; without batch norm in training nothing changes at all.
     */
    bool ghost_statistics;
    /*
     * 0: the budget stays as it is. Else dunlin_trainer_set_budget() may lower it to so many bytes,
     * or to the least that can be had, whichever is more; 1 asks for the least. Plans for budgets
     * in between are made in advance (their tables count). So that every step can go on under any
     * of them, gradients of weights keep their places through the step, and no weight changes
     * before its end. A slab or hooks need trim_fn (UNSUPPORTED without), ghost_statistics needs
     * micro_batch (ARGUMENT).
     */
    uint64_t lowest_budget_bytes;
    /*
     * Told of bytes of the slab, or of the hooks' arena, that hold nothing any more: the caller may
     * give their pages back to the system (madvise), but must let them be written again at any
     * time, without a word. Called where the budget changes: on the step's thread, or on the one
     * that asks while no step runs.
     */
    void (*trim_fn)(void *ctx, void *memory, size_t bytes);
    void *trim_ctx;
    /*
     * VDNN and CAPUCHIN: the folder of the file that tensors are written out to, borrowed for the
     * call; NULL: TMPDIR of the environment, else /var/tmp. The file has no name, and is gone with
     * the trainer or the process. Its bytes are reserved at creation: SPACE if there is no room,
     * UNSUPPORTED for a file system in memory. It bypasses the page cache; the buffer that takes is
     * in the budget. A write that fails in a step leaves the weights as they were; a read that
     * fails may come after the first update: the trainer is torn then, see dunlin_trainer_step().
     */
    const char *swap_dir;
    /* What its device takes and gives, in 10^6 bytes/s, for plans and predictions; 0: 250 and 800,
     * a phone's flash. */
    double swap_write_mb_per_s, swap_read_mb_per_s;
    /* dunlin_baselines_published() of <dunlin/baselines.h>: the policies RECOMPUTE to SUBLINEAR,
     * VDNN and CAPUCHIN are UNSUPPORTED without it. */
    const dunlin_baselines *baselines;
    /* dunlin_trainer_max_batch() and its like: how many times the fastest time per example a batch
     * may cost, 1 or more; 0: 1.3; INFINITY: any price. Trainers do not look at it. */
    double max_ratio;
    /*
     * Which parameters are trained, beside frozen_prefixes, and at which rate and decay;
     * parameters.h has the list of what comes of it. Borrowed for the call. Only what is trained
     * has a gradient and a state of the optimiser. ARGUMENT if nothing is trained, if a prefix
     * begins no parameter's name, or if a group has no parameter; UNSUPPORTED if TRAINED_HEAD finds
     * no head.
     */
    dunlin_trained trained;
    const char *trained_prefixes; /* comma-separated prefixes of parameter names: all others are
                                     frozen, running statistics too; NULL: all are trained */
    bool no_norm_decay; /* no weight decay on biases and on scales and shifts of norms, whatever
                           their groups say */
    const dunlin_parameter_group *groups; /* n_groups of one struct_size; at most 64 */
    int32_t n_groups;
    /*
     * CROSS_ENTROPY: examples with this label do not count, as with PyTorch's ignore_index: not in
     * the loss, not in its divisor, not in the shares of right answers. They still pass through the
     * network, so batch norm sees them. The labels of a whole batch are read before its first slice
     * runs, so every example is asked for once more a step.
     */
    bool has_ignore_label;
    int32_t ignore_label;
} dunlin_trainer_options;

#define DUNLIN_TRAINER_OPTIONS_INIT                                                                \
    {                                                                                              \
        .struct_size = sizeof(dunlin_trainer_options), .lr = 0.01F                                 \
    }

/** Bytes of everything at the plan's peak, by what they are for. Their sum is `planned_bytes`. */
typedef struct dunlin_class_bytes {
    uint64_t weights;
    uint64_t statistics;
    uint64_t optimizer;
    uint64_t input;
    uint64_t activations;
    uint64_t saved;
    uint64_t gradients;
    uint64_t accumulators;
    uint64_t workspace;
    uint64_t padding;
    uint64_t tables; /* the plan and the trainer's own bookkeeping */
} dunlin_class_bytes;

/** What was planned and what was used. */
typedef struct dunlin_trainer_report {
    size_t struct_size;
    uint64_t budget_bytes;
    uint64_t planned_bytes; /* arena + tables */
    uint64_t peak_bytes;    /* the highest actually touched, arena + tables; after a step equal to
                               planned_bytes */
    uint64_t lower_bound_bytes; /* no packing of this schedule can be lower: persistent + live +
                                   tables */
    uint64_t pool_bytes;        /* the packed part of the arena */
    uint64_t pool_lower_bound_bytes;
    /* From this budget on this batch is sure to work; 0: it was not looked for, as creating a
     * trainer that fits does not. dunlin_trainer_estimate() always does, and never gives more than
     * the budget that it has found a plan for. */
    uint64_t least_budget_bytes;
    dunlin_class_bytes by_class;
    int64_t batch;
    int64_t micro_batch; /* samples per slice where they are most; = batch if not sliced */
    int32_t n_ops;
    int32_t n_recomputed;
    int32_t n_loops;
    double plan_ms;
    dunlin_policy policy;
    int32_t n_threads;
    const char *isa;
    const char *packing;
    double predicted_ms; /* of a step of `batch` examples, by the costs that were planned with */
    bool is_plan_kept;   /* it was found in cache_dir */
    double ideal_ms;     /* the same with nothing made again and no limit */
    double redo_ms;      /* the part of predicted_ms that goes into making tensors again */
    /* No plan of this batch is lower: all that is persistent, and the most that one operation
     * touches, of a single sample where the slices are free. */
    uint64_t floor_bytes;
    uint64_t kept_bytes;   /* activations and the like, alive where the backward pass begins */
    uint64_t remade_bytes; /* of all instances that are made again in a slice */
    int32_t n_kept;        /* tensors */
    int32_t n_remade;
    int64_t n_slices;      /* 1: not sliced */
    int32_t n_ghost_norms; /* batch norms under ghost_statistics; 0: it is off or changes nothing */
    bool is_ghost; /* so the weights are not those of the exact step: n_ghost_norms take statistics
                      of n_slices slices of micro_batch samples */
    int32_t n_regions; /* parts of the step between batch norms that run slice by slice, each over
                          the whole batch before the next; 1: the step is not cut */
    int64_t
        least_micro_batch; /* samples per slice where they are fewest; = micro_batch if not cut */
    int32_t n_swapped;     /* tensors that a step writes out and reads back */
    uint64_t swap_out_bytes, swap_in_bytes; /* of a step of `batch` examples */
    double swap_ms;                         /* the part of predicted_ms that takes */
    const char *swap_way; /* "direct": the page cache is bypassed; "flushed": written through it,
                             flushed and dropped; "": nothing is swapped */
    uint64_t swapped_out_bytes, swapped_in_bytes; /* since creation, */
    double swapped_out_ms, swapped_in_ms;         /* and the time that took, measured */
} dunlin_trainer_report;

#define DUNLIN_TRAINER_REPORT_INIT                                                                 \
    {                                                                                              \
        .struct_size = sizeof(dunlin_trainer_report)                                               \
    }

/**
 * Plans without keeping anything: the report that dunlin_trainer_create() with the same options
 * would give (peak 0), and the least budget, which takes as long again, or longer. BUDGET with the
 * least bytes in out_error->needed_bytes.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_trainer_estimate(const dunlin_model *model, const dunlin_trainer_options *options,
                        dunlin_trainer_report *out_report, dunlin_error *out_error);

/**
 * Measures what a swap file in a folder (NULL: as options.swap_dir) takes and gives, in 10^6
 * bytes/s: 32 MiB, as a step would write and read them. As creation with swap_dir.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_swap_measure(const char *folder,
                                                              double *out_write_mb_per_s,
                                                              double *out_read_mb_per_s,
                                                              dunlin_error *out_error);

/**
 * The largest batch within options->budget_bytes whose predicted time per example is at most
 * max_ratio (0: 1.3) times the fastest; with INFINITY the largest that fits. dunlin/batch.h has
 * both with their prices, and says how they are found. *out_is_unbounded when slices make any batch
 * do. BUDGET if not even one example fits.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_trainer_max_batch(const dunlin_model *model, const dunlin_trainer_options *options,
                         int64_t *out_batch, bool *out_is_unbounded, dunlin_error *out_error);

/**
 * The same for `n` budgets, faster than one by one; options->budget_bytes is not looked at.
 * out_batches[i]: 0 where not even one example fits, INT64_MAX where any batch does.
 * *out_least_bytes (may be NULL): the least budget, that of one example. As
 * dunlin_trainer_create(), without BUDGET.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_max_batches(
    const dunlin_model *model, const dunlin_trainer_options *options, const uint64_t *budgets,
    int32_t n, int64_t *out_batches, uint64_t *out_least_bytes, dunlin_error *out_error);

/**
 * Makes a trainer with the model's weights (fresh ones from the seed where the model has none). The
 * model may be destroyed afterwards. BUDGET, MEMORY, MODEL, UNSUPPORTED, NUMERIC (a weight is not
 * finite).
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_trainer_create(const dunlin_model *model, const dunlin_trainer_options *options,
                      dunlin_trainer **out_trainer, dunlin_error *out_error);
/** While a call works on the trainer (in a callback of it, or on another thread) that call is
 * stopped and the trainer goes when it returns; what the call was given must stay until then. NULL
 * is fine.
 */
DUNLIN_API void dunlin_trainer_destroy(dunlin_trainer *trainer);

/** The detail of the trainer's last failure; valid until its next call. */
DUNLIN_API const dunlin_error *dunlin_trainer_last_error(const dunlin_trainer *trainer);

/**
 * One optimiser step on the examples with the given indices, 1 <= n <= batch.
 *
 * NUMERIC, naming what it is, if a value is not finite: an input (example and element), a statistic
 * of batch norm, the loss, a gradient, or a weight or a state of the optimiser as the step would
 * leave it. Such a parameter is left as it was, state included. Where the forward pass overflows,
 * the first layer whose output is not finite is named; to find it the pass is run once more, for
 * which the source is asked for the batch again. Up to the loss nothing has changed then, nor with
 * options.clip_norm up to the last gradient: the next step may come, with a lower rate say. Where a
 * parameter had been updated before, the trainer is torn, as it also is after another failure that
 * late (swap_dir) and after a checkpoint that broke off while it was taken over. All its values are
 * finite, but they are a mixture: they can be read, the trainer can be destroyed, a checkpoint
 * loaded, or every weight set (in any order and any pieces that begin at each parameter's first
 * element; the last one resets the optimiser). Other calls give STATE, but for the seed and those
 * of dunlin/budget.h: the system may want memory back at any time.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_step(dunlin_trainer *trainer,
                                                              const dunlin_source *source,
                                                              const int64_t *indices, int64_t n,
                                                              dunlin_metrics *out_metrics);

/** What becomes of the examples that an epoch's whole batches leave over. */
typedef enum dunlin_remainder {
    DUNLIN_REMAINDER_KEEP = 0, /* a smaller batch of their own, as PyTorch's loaders do */
    DUNLIN_REMAINDER_DROP,     /* left out, others in each epoch; ARGUMENT if nothing else is left
                                */
    /* Fewer than half a batch join the batch before them; more, and those of a source with fewer
     * than one batch, are a batch of their own. For batch norm in training, whose statistics of a
     * few examples throw a network off its way. */
    DUNLIN_REMAINDER_JOIN
} dunlin_remainder;

typedef struct dunlin_fit_options {
    size_t struct_size;
    int64_t epochs;    /* 0: 1 */
    int64_t max_steps; /* stop after so many steps; 0: no limit */
    int64_t max_ms;    /* stop at the first step that ends later than this; 0: no limit */
    bool keep_order;   /* do not shuffle */
    bool drop_last;    /* as remainder DROP */
    int64_t batch;     /* examples of a step, at most options.batch of the trainer; 0: that */
    dunlin_remainder remainder;
} dunlin_fit_options;
#define DUNLIN_FIT_OPTIONS_INIT                                                                    \
    {                                                                                              \
        .struct_size = sizeof(dunlin_fit_options)                                                  \
    }

/** The largest step of a fit over n_examples in steps of `batch` with DUNLIN_REMAINDER_JOIN: what
 * options.batch of its trainer must be at least (ARGUMENT from the fit else). `batch`, or up to
 * half as much again. */
DUNLIN_API int64_t dunlin_joined_batch(int64_t n_examples, int64_t batch);
/** Steps of an epoch over n_examples in steps of `batch`, both 1 or more. */
DUNLIN_API int64_t dunlin_epoch_steps(int64_t n_examples, int64_t batch,
                                      dunlin_remainder remainder);

/** Where a fit stands; zero at first. Give it back to go on where max_ms or max_steps ended the
 * call. */
typedef struct dunlin_fit_cursor {
    int64_t epoch;
    int64_t position; /* next example within the epoch's order */
    bool is_done;
} dunlin_fit_cursor;

/**
 * Trains over the source. The order of an epoch is a permutation computed from (seed, epoch), index
 * by index, so it costs no memory and a cursor can resume it. `cursor` may be NULL for a whole fit.
 * `out_metrics` (may be NULL): means over the examples seen in this call.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_fit(dunlin_trainer *trainer,
                                                             const dunlin_source *source,
                                                             const dunlin_fit_options *options,
                                                             dunlin_fit_cursor *cursor,
                                                             dunlin_metrics *out_metrics);

/** Loss and accuracy over examples [first, first + n) of the source, inside the same budget;
 * weights stay. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_evaluate(dunlin_trainer *trainer,
                                                                  const dunlin_source *source,
                                                                  int64_t first, int64_t n,
                                                                  dunlin_metrics *out_metrics);

/** Logits of examples [first, first + n): n x outputs floats into `out_logits`. NUMERIC for an
 * input that is not finite. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_predict(dunlin_trainer *trainer,
                                                                 const dunlin_source *source,
                                                                 int64_t first, int64_t n,
                                                                 float *out_logits);

/** Base learning rate of the following steps; ARGUMENT if it is not finite or negative. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_set_lr(dunlin_trainer *trainer, float lr);
/** Schedule of the following steps; the rules of options.schedule hold. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_trainer_set_schedule(dunlin_trainer *trainer, const dunlin_schedule *schedule);
/** Learning rate of the next step, by base rate and schedule. */
DUNLIN_API float dunlin_trainer_lr(const dunlin_trainer *trainer);
/** Optimiser steps since the trainer was created, restored (then those before count too), or its
 * optimiser reset. */
DUNLIN_API int64_t dunlin_trainer_n_steps(const dunlin_trainer *trainer);

/** Seed of the order of examples and of dropout from the next step on. */
DUNLIN_API void dunlin_trainer_set_seed(dunlin_trainer *trainer, uint64_t seed);

/** Makes a running fit, evaluate or predict end with STOPPED after the step at hand. If none runs
 * it is kept for the next one, which then ends before its first step, or until
 * dunlin_trainer_reset_optimizer(). It counts once. Any thread. */
DUNLIN_API void dunlin_trainer_stop(dunlin_trainer *trainer);

DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_trainer_get_report(const dunlin_trainer *trainer, dunlin_trainer_report *out_report);

/**
 * Weights. Parameters stand in the model's order, in ONNX's shapes and layouts, float32. Flat calls
 * move [first, first + n) of the concatenation of all parameters of the kinds asked for, so a
 * caller can stream through a small buffer. set: MISMATCH on a wrong length, NUMERIC on a value
 * that is not finite (nothing is changed then). On a torn trainer: see dunlin_trainer_step().
 */
typedef enum dunlin_weights_kind {
    DUNLIN_WEIGHTS_TRAINABLE = 1, /* all that are not statistics, frozen ones included */
    DUNLIN_WEIGHTS_STATISTIC = 2,
    DUNLIN_WEIGHTS_ALL = 3
} dunlin_weights_kind;
DUNLIN_API int64_t dunlin_trainer_n_weights(const dunlin_trainer *trainer,
                                            dunlin_weights_kind kind);
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_get_weights(const dunlin_trainer *trainer,
                                                                     dunlin_weights_kind kind,
                                                                     int64_t first, int64_t n,
                                                                     float *out_values);
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_set_weights(dunlin_trainer *trainer,
                                                                     dunlin_weights_kind kind,
                                                                     int64_t first, int64_t n,
                                                                     const float *values);
DUNLIN_API int32_t dunlin_trainer_n_parameters(const dunlin_trainer *trainer);
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_parameter(const dunlin_trainer *trainer,
                                                                   int32_t index,
                                                                   dunlin_parameter_info *out_info);
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_get_parameter(
    const dunlin_trainer *trainer, const char *name, float *out_values, int64_t n);
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_set_parameter(dunlin_trainer *trainer,
                                                                       const char *name,
                                                                       const float *values,
                                                                       int64_t n);

/** Copies the weights into slot `slot` of the gradient hook (FedProx's base). */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_trainer_copy_weights_to_slot(dunlin_trainer *trainer, int32_t slot);

/** Momentum and other optimiser state back to zero, step count to 0, a stop that no call has obeyed
 * forgotten: the start of a federated round. Of a torn trainer only the last happens;
 * dunlin_trainer_last_error() says STATE. */
DUNLIN_API void dunlin_trainer_reset_optimizer(dunlin_trainer *trainer);

/** Properties of the application kept in checkpoints: text by name, at most 64 of 64 + 256 bytes.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_set_property(dunlin_trainer *trainer,
                                                                      const char *name,
                                                                      const char *text);
/** NULL if there is none. */
DUNLIN_API const char *dunlin_trainer_property(const dunlin_trainer *trainer, const char *name);

/**
 * A checkpoint: weights, statistics, optimiser state, step, seed, properties, with a checksum.
 * Rate, decay, schedule and groups are the trainer's, not the checkpoint's: one may go on with
 * others. MISMATCH if other parameters have a state of the optimiser, as where others are trained.
 * Written beside `path` and renamed, so a reader sees the old or the new one. Saving never replaces
 * a file by one that could not be loaded: STATE if the trainer is torn, NUMERIC if a slot that the
 * gradient hook wrote is not finite. Restoring checks everything before it changes anything.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_save_checkpoint(dunlin_trainer *trainer,
                                                                         const char *path);
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_load_checkpoint(dunlin_trainer *trainer,
                                                                         const char *path);

/** Writes a plain inference ONNX file (opset 17) with the weights as they are now; atomically and
 * with the same refusals as above. Its inputs and output are those of the ONNX file that the model
 * was read from: names, element types, shapes, order; else one float32 (N, ...) each. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_export_onnx(dunlin_trainer *trainer,
                                                                     const char *path);

/** The plan as text lines, and as an SVG drawing (pieces of text) under a title of the caller's. */
typedef void (*dunlin_text_fn)(void *ctx, const char *text);
DUNLIN_API void dunlin_trainer_dump_plan(const dunlin_trainer *trainer, dunlin_text_fn text_fn,
                                         void *ctx);
DUNLIN_API void dunlin_trainer_draw_plan(const dunlin_trainer *trainer, const char *title,
                                         dunlin_text_fn text_fn, void *ctx);

#ifdef __cplusplus
}
#endif

#endif
