/*
 * trainer.h - trains a model on this device within a byte budget.
 *
 * When memory is taken and given back: estimate (nothing is kept) -> create (bookkeeping and one
 * arena) -> steps (no allocation) -> destroy. `budget_bytes` is a hard line over everything the
 * trainer owns: weights, optimiser state, gradients, activations, workspaces, staged examples, and
 * its own tables. Weights are bit-identical for every budget, slice size and thread count (per
 * instruction set); with ghost statistics for every budget and thread count at one slice size.
 *
 * This header is enough to create, fit, evaluate, predict and save. trainer_advanced.h: estimates,
 * reports, the largest batch, schedules, changing budgets; trainer_experimental.h: experiments.
 *
 * Example: two epochs within 64 MiB.
 *
 * @code
 * #include <dunlin/dataset.h>
 *
 * dunlin_error error = {0};
 * dunlin_model *model = NULL;
 * dunlin_dataset *data = NULL;
 * dunlin_trainer *trainer = NULL;
 * dunlin_source source;
 * dunlin_metrics metrics;
 * dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
 * dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
 * options.budget_bytes = 64 << 20;
 * options.batch = 64;
 * fit.epochs = 2;
 * if (dunlin_model_from_zoo("lenet5", NULL, NULL, &model, &error) != DUNLIN_OK ||
 *     dunlin_dataset_open("fashion_mnist", "data", DUNLIN_SPLIT_TRAIN, NULL, NULL, &data,
 *                         &error) != DUNLIN_OK ||
 *     dunlin_trainer_create(model, &options, &trainer, &error) != DUNLIN_OK) {
 *     return 1;
 * }
 * dunlin_dataset_source(data, &source);
 * if (dunlin_trainer_fit(trainer, &source, &fit, NULL, &metrics) == DUNLIN_OK) {
 *     printf("accuracy %.1f %%\n", 100.0 * metrics.accuracy);
 * }
 * dunlin_trainer_destroy(trainer);
 * dunlin_dataset_close(data);
 * dunlin_model_destroy(model);
 * @endcode
 *
 * While a step, an evaluation or a prediction computes, subnormal numbers count as zero on the
 * calling thread (its mode is restored afterwards) and on the trainer's own: a weight whose
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
#include <dunlin/log.h>
#include <dunlin/metrics.h>
#include <dunlin/model.h>
#include <dunlin/parameters.h>
#include <dunlin/policy.h>
#include <dunlin/source.h>
#include <dunlin/storage.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dunlin_trainer dunlin_trainer;
typedef struct dunlin_costs dunlin_costs;       /* costs.h */
typedef struct dunlin_schedule dunlin_schedule; /* trainer_advanced.h */

/** What training makes small. y are the model's outputs, w weights of examples (1 each by default),
 * means weighted by them. */
typedef enum dunlin_loss {
    /* Cross-entropy of softmax(y) with a class per example or pixel, as CrossEntropyLoss: the mean
     * of (1 - s) * -log p[label] + s / classes * sum of -log p; s is label_smoothing. */
    DUNLIN_LOSS_CROSS_ENTROPY = 0,
    /* Mean squared error with float targets t, as MSELoss: the mean of (y - t)^2 over all. */
    DUNLIN_LOSS_MSE = 1,
    /* Binary cross-entropy with float targets t in [0, 1], as BCEWithLogitsLoss: the mean over
     * examples and outputs of -t log s - (1 - t) log(1 - s), s = 1 / (1 + exp(-y)). */
    DUNLIN_LOSS_BCE = 2,
    /* With float targets t in [0, 1], a share for each class: the mean of -sum of ((1 - s) t +
     * s / classes) log p, whatever they add up to. With one 1, or over labels, it is CROSS_ENTROPY
     * to the bit. Right is the class of the largest share, the first of equal ones. */
    DUNLIN_LOSS_SOFT_CROSS_ENTROPY = 3,
    DUNLIN_LOSS_CONTRASTIVE = 4, /* over distances; like the next ones in several.h */
    DUNLIN_LOSS_COSINE = 5,      /* over cosines */
    DUNLIN_LOSS_TRIPLET = 6      /* over differences of distances */
} dunlin_loss;

/** One pass over parameter w with gradient g; PyTorch's formulas. d: weight_decay; t = 1, 2, ... */
typedef enum dunlin_optimizer {
    /* g += d w; m = momentum m + g; w -= lr m (Nesterov: lr (g + momentum m)). */
    DUNLIN_OPTIMIZER_SGD = 0,
    /* Kingma, Ba 2015: g += d w; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
     * w -= lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps). */
    DUNLIN_OPTIMIZER_ADAM = 1,
    /* Loshchilov, Hutter 2019: w -= lr d w, then Adam without decay. */
    DUNLIN_OPTIMIZER_ADAMW = 2
} dunlin_optimizer;

/**
 * Called for each trainable parameter when its gradient is final, before clipping and the update:
 * FedProx, SCAFFOLD, ... `weights`, `gradient` and each of the `slots` hold n elements in the
 * trainer's inner layout (all the same one); change `gradient` in place. Runs on the step's thread.
 * A table of tokens has a gradient of all its rows for it, which takes as much memory as the table.
 * With clip_norm a step may still end with NUMERIC after the hook has seen its gradients.
 */
typedef void (*dunlin_gradient_fn)(void *ctx, int32_t parameter_index, int64_t n,
                                   const float *weights, float *gradient, float *const *slots);

/** Where a fit or an evaluation stands. The trainer makes it and sets struct_size. */
typedef struct dunlin_progress {
    size_t struct_size;
    int64_t step;    /* optimiser steps since the trainer was created or restored */
    int64_t epoch;   /* of this fit */
    int64_t n_seen;  /* examples of this call so far */
    int64_t n_total; /* examples this call will see */
    double loss;     /* mean of the last step */
} dunlin_progress;
#define DUNLIN_PROGRESS_INIT DUNLIN_SIZED_INIT(dunlin_progress)

/**
 * After each step of fit and evaluate; `progress` is valid during the call.
 *
 * @return false to stop at a consistent state: the call then ends with STOPPED.
 */
typedef bool (*dunlin_progress_fn)(void *ctx, const dunlin_progress *progress);

/**
 * What a trainer is made for, in groups. A zero means the default of its line. Pointers are
 * borrowed for the call, but for contexts, which must live as long as the trainer. A member that is
 * added later stands at the end, whatever its group.
 */
typedef struct dunlin_trainer_options {
    size_t struct_size;

    /* --- Memory --- */
    uint64_t budget_bytes; /* 0: no limit */
    /*
     * 0: the budget stays as it is. Else dunlin_trainer_set_budget() may lower it to so many bytes,
     * or to the least that can be had, whichever is more; 1 asks for the least. Plans for budgets
     * in between are made in advance (their tables count). So that every step can go on under any
     * of them, gradients of weights keep their places through the step, and no weight changes
     * before its end. A slab or hooks need trim_fn (UNSUPPORTED without), ghost_statistics needs
     * micro_batch (ARGUMENT).
     */
    uint64_t least_budget_bytes;
    dunlin_alloc alloc; /* bookkeeping; and the arena if its functions are set and `slab` is not */
    void *slab; /* the caller's memory for the arena, 64-byte aligned; NULL: a mapping of our own */
    uint64_t slab_bytes;
    /*
     * Called with bytes of the slab, or of the hooks' arena, that hold nothing any more: the caller
     * may give their pages back to the system (madvise), but must let them be written again at any
     * time, without a word. Called where the budget changes: on the step's thread, or on the one
     * that asks while no step runs.
     */
    void (*trim_fn)(void *ctx, void *memory, size_t bytes);
    void *trim_ctx;

    /* --- What a step is --- */
    int64_t batch; /* samples per optimiser step; 0: 32 */
    dunlin_loss loss;
    float label_smoothing; /* CROSS_ENTROPY, SOFT_CROSS_ENTROPY: in [0, 1) */
    /*
     * CROSS_ENTROPY: examples with this label do not count, as with PyTorch's ignore_index: not in
     * the loss, its divisor and the shares of right answers. They pass through the network, so
     * batch norm sees them. With several outputs so in each; one without any label in a batch adds
     * nothing. All labels of a batch are read before its first slice: one more read a step.
     */
    int32_t ignore_label;
    bool has_ignore_label;
    bool freeze_batch_norm; /* use running statistics, do not update them */
    uint64_t seed; /* initial weights, order of examples, dropout, draws of DUNLIN_STORAGE_INT8 */

    /* --- The optimiser --- */
    dunlin_optimizer optimizer;
    float lr;                        /* INIT writes 0.01; 0: weights stay */
    const dunlin_schedule *schedule; /* copied; NULL: the rate is constant */
    float momentum;                  /* SGD */
    bool is_nesterov;
    double beta1, beta2; /* Adam: 0: 0.9 and 0.999 */
    double eps;          /* Adam: 0: 1e-8 */
    float weight_decay;  /* on all trained parameters, but for groups and no_norm_decay */
    float clip_value;    /* each element of the gradient to [-clip_value, clip_value]; 0: not */
    /*
     * All gradients of a step, after clip_value, are scaled by min(1, clip_norm / (norm + 1e-6)),
     * norm being the 2-norm over all trained parameters (PyTorch's clip_grad_norm_); 0: not. All
     * gradients are then kept until the norm is known, and a norm that is not finite ends the step
     * with NUMERIC before any weight changes, as does a gradient that is not finite, whether
     * clip_value would hide it or not.
     */
    float clip_norm;

    /* --- Which parameters are trained --- */
    /*
     * Which parameters are trained, beside frozen_prefixes, and at which rate and decay;
     * parameters.h lists the result. Borrowed for the call. Only what is trained has a gradient and
     * a state of the optimiser. ARGUMENT if nothing is trained, if a prefix begins no parameter's
     * name, or if a group has no parameter; UNSUPPORTED if TRAINED_HEAD finds no head.
     */
    dunlin_trained trained;
    const char *trained_prefixes; /* comma-separated prefixes of parameter names: all others are
                                     frozen, running statistics too; NULL: all are trained */
    const char *frozen_prefixes;  /* comma-separated prefixes of parameter names that stay fixed;
                                     NULL: none */
    const dunlin_parameter_group *groups; /* n_groups of one struct_size; at most 64 */
    int32_t n_groups;
    bool no_norm_decay; /* no weight decay on biases and on scales and shifts of norms, whatever
                           their groups say */

    /* --- Hooks --- */
    dunlin_progress_fn progress_fn;
    void *progress_ctx;
    dunlin_gradient_fn gradient_fn;
    void *gradient_ctx;
    dunlin_log log;
    int32_t n_gradient_slots; /* persistent buffers per trainable parameter for gradient_fn, 0 to 4,
                                 zero at first */

    /* --- The processor, and how plans are made --- */
    int32_t n_threads; /* 0 or 1: the calling thread alone. Others spin between two operations while
                          nobody else wants their cores, and sleep between two calls */
    const char *isa;   /* "sse2", "avx2", "avx512", "neon", "generic"; NULL: DUNLIN_ISA of the
                          environment, else the best */
    const dunlin_costs *costs; /* measured ones, borrowed for the call; NULL: a roofline. MISMATCH
                                  if they are of another step, instruction set or thread number. */
    /*
     * A folder where plans are kept, borrowed for the call; NULL: they are not. A plan that is
     * found there is verified as a fresh one is; what is damaged or out of date is replaced. Files
     * are never removed. What goes wrong is logged and no failure.
     */
    const char *cache_dir;
    /* dunlin_trainer_max_batch() and its like: how many times the fastest time per example a batch
     * may cost, 1 or more; 0: 1.3; INFINITY: any price. Trainers do not look at it. */
    double max_ratio;

    /* --- For comparison and experiments: trainer_experimental.h --- */
    dunlin_policy policy;
    int64_t micro_batch; /* MICROBATCH: samples per slice; AUTO: an upper limit, 0 for none (of
                            a network with batch norm, for the slices of each region). With
                            ghost_statistics: exactly so many, under every policy */
    bool no_fuse; /* batch norm, activations and concatenations are passes over memory of their own;
                     policy NONE implies it. The weights differ by rounding. */
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
     * VDNN and CAPUCHIN: the folder of the file that tensors are written out to, borrowed for the
     * call; NULL: TMPDIR of the environment, else /var/tmp. The file has no name, and is gone with
     * the trainer or the process. Its bytes are reserved at creation: SPACE if there is no room,
     * UNSUPPORTED for a file system in memory. It bypasses the page cache; the buffer that takes is
     * in the budget. A write that fails in a step leaves the weights as they were; a read that
     * fails may come after the first update: the trainer is torn then, see dunlin_trainer_step().
     */
    const char *swap_dir;
    /* Of its device, in 10^6 bytes/s, for plans and predictions; 0: 250 and 800, a phone's flash */
    double swap_write_mb_per_s, swap_read_mb_per_s;
    /* dunlin_baselines_published(): RECOMPUTE to SUBLINEAR, VDNN, CAPUCHIN: UNSUPPORTED without */
    const dunlin_baselines *baselines;
    /* The numbers to train in: dunlin_trainer_set_grad_bits(). NULL: float32, the usual bits. */
    const char *precision, *grad_bits;
    int64_t grad_bits_steps;
    dunlin_storage storage; /* of what a step keeps */
    /* CROSS_ENTROPY, BCE: the weight of each class, or of each output: pixels.h. NULL: 1 each */
    const float *class_weights;
    int32_t n_class_weights;
    const struct dunlin_output_loss *outputs; /* loss, weight of each: several.h; NULL: `loss`, 1 */
    int32_t n_outputs;
    int32_t weight_growth; /* of integers: dunlin_trainer_set_weight_growth(); 0: its own */
} dunlin_trainer_options;
#define DUNLIN_TRAINER_OPTIONS_INIT DUNLIN_SIZED_INIT_1(dunlin_trainer_options, lr, 0.01F)

/**
 * Makes a trainer with the model's weights, else fresh ones by the seed. The model may go then.
 *
 * @return OK; ARGUMENT and VERSION for options, which the text names; BUDGET with the least bytes
 * in out_error->needed_bytes; MEMORY, MODEL, UNSUPPORTED, NUMERIC (a weight is not finite).
 * *out_trainer is NULL then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_trainer_create(const dunlin_model *model, const dunlin_trainer_options *options,
                      dunlin_trainer **out_trainer, dunlin_error *out_error);
/** While a call works on the trainer (in a callback of it, or on another thread) that call is
 * stopped and the trainer goes when it returns; what the call was given must stay until then. NULL
 * is fine. */
DUNLIN_API void dunlin_trainer_destroy(dunlin_trainer *trainer);

/**
 * The detail of the trainer's last failure.
 *
 * @return never NULL; valid until the trainer's next call.
 */
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
 *
 * @return OK; ARGUMENT (n, an index); DATA (a label, a weight); CALLBACK (the source failed:
 * weights are as they were); NUMERIC and STATE as above; STOPPED; IO (swap_dir).
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_step(dunlin_trainer *trainer,
                                                              const dunlin_source *source,
                                                              const int64_t *indices, int64_t n,
                                                              dunlin_metrics *out_metrics);

/** What is done with the examples that an epoch's whole batches leave over. */
typedef enum dunlin_remainder {
    DUNLIN_REMAINDER_KEEP = 0, /* a smaller batch of their own, as PyTorch's loaders do */
    DUNLIN_REMAINDER_DROP = 1, /* left out, others in each epoch; ARGUMENT if nothing else is left
                                */
    /* Fewer than half a batch join the batch before them; more, and those of a source with fewer
     * than one batch, are a batch of their own. For batch norm in training, whose statistics of a
     * few examples throw a network off its way. */
    DUNLIN_REMAINDER_JOIN = 2
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
#define DUNLIN_FIT_OPTIONS_INIT DUNLIN_SIZED_INIT(dunlin_fit_options)

/** Where a fit stands; zero at first. Give it back to go on where max_ms or max_steps ended the
 * call. This struct is frozen. */
typedef struct dunlin_fit_cursor {
    int64_t epoch;
    int64_t position; /* next example within the epoch's order */
    bool is_done;
} dunlin_fit_cursor;

/**
 * Trains over the source. The order of an epoch is a permutation computed from (seed, epoch), index
 * by index, so it costs no memory and a cursor can resume it. `options` may be NULL: one epoch.
 * `cursor` may be NULL for a whole fit. `out_metrics` (may be NULL): means over the examples seen
 * in this call.
 *
 * @return OK; STOPPED by dunlin_trainer_stop() or progress_fn, with a cursor that goes on; else as
 * dunlin_trainer_step(), and the cursor stands before the step that failed.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_fit(dunlin_trainer *trainer,
                                                             const dunlin_source *source,
                                                             const dunlin_fit_options *options,
                                                             dunlin_fit_cursor *cursor,
                                                             dunlin_metrics *out_metrics);

/**
 * Loss and accuracy over examples [first, first + n) of the source, inside the same budget; weights
 * stay.
 *
 * @return OK; ARGUMENT, CALLBACK, DATA, NUMERIC, STATE, STOPPED; *out_metrics is then not to be
 * used.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_evaluate(dunlin_trainer *trainer,
                                                                  const dunlin_source *source,
                                                                  int64_t first, int64_t n,
                                                                  dunlin_metrics *out_metrics);

/**
 * Logits of examples [first, first + n): n x outputs floats into `out_logits`.
 *
 * @return OK; NUMERIC for an input that is not finite; ARGUMENT, CALLBACK, STATE, STOPPED.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_predict(dunlin_trainer *trainer,
                                                                 const dunlin_source *source,
                                                                 int64_t first, int64_t n,
                                                                 float *out_logits);

/**
 * Base learning rate of the following steps.
 *
 * @return OK; ARGUMENT if it is not finite or negative; STATE.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_set_lr(dunlin_trainer *trainer, float lr);

/** @return the learning rate of the next step, by base rate and schedule. */
DUNLIN_API float dunlin_trainer_lr(const dunlin_trainer *trainer);

/** @return optimiser steps since the trainer was created, restored (then those before count too),
 * or its optimiser reset. */
DUNLIN_API int64_t dunlin_trainer_n_steps(const dunlin_trainer *trainer);

/** Seed of the order of examples and of dropout from the next step on. */
DUNLIN_API void dunlin_trainer_set_seed(dunlin_trainer *trainer, uint64_t seed);

/** Makes a running fit, evaluate or predict end with STOPPED after the current step. If none runs
 * it is kept for the next one, which then ends before its first step, or until
 * dunlin_trainer_reset_optimizer(). It counts once. Any thread. */
DUNLIN_API void dunlin_trainer_stop(dunlin_trainer *trainer);

/**
 * Weights. Parameters stand in the model's order, in ONNX's shapes and layouts, float32. Flat calls
 * move [first, first + n) of the concatenation of all parameters of the kinds asked for, so a
 * caller can stream through a small buffer. On a torn trainer: see dunlin_trainer_step().
 */
typedef enum dunlin_weights_kind {
    DUNLIN_WEIGHTS_TRAINABLE = 1, /* all that are not statistics, frozen ones included */
    DUNLIN_WEIGHTS_STATISTIC = 2,
    DUNLIN_WEIGHTS_ALL = 3
} dunlin_weights_kind;

/** @return elements of all parameters of a kind; 0 for a kind that is none. */
DUNLIN_API int64_t dunlin_trainer_n_weights(const dunlin_trainer *trainer,
                                            dunlin_weights_kind kind);
/** @return OK; ARGUMENT (kind), MISMATCH (first and n are not within the weights), STATE. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_get_weights(const dunlin_trainer *trainer,
                                                                     dunlin_weights_kind kind,
                                                                     int64_t first, int64_t n,
                                                                     float *out_values);
/** @return OK; as above, and NUMERIC for a value that is not finite: nothing is changed then. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_set_weights(dunlin_trainer *trainer,
                                                                     dunlin_weights_kind kind,
                                                                     int64_t first, int64_t n,
                                                                     const float *values);
/** @return the number of parameters, those of running statistics included. */
DUNLIN_API int32_t dunlin_trainer_n_parameters(const dunlin_trainer *trainer);
/** @return OK with the parameter's name, shape and role; ARGUMENT for an index that is none. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_parameter(const dunlin_trainer *trainer,
                                                                   int32_t index,
                                                                   dunlin_parameter_info *out_info);
/** @return OK; ARGUMENT for a name that is none, MISMATCH if it has not n elements, STATE. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_get_parameter(
    const dunlin_trainer *trainer, const char *name, float *out_values, int64_t n);
/** @return OK; as above, and NUMERIC for a value that is not finite: nothing is changed then. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_set_parameter(dunlin_trainer *trainer,
                                                                       const char *name,
                                                                       const float *values,
                                                                       int64_t n);

/**
 * A checkpoint: weights, statistics, optimiser state, step, seed, properties, with a checksum.
 * Rate, decay, schedule and groups are the trainer's, not the checkpoint's: one may go on with
 * others. Written beside `path` and renamed, so a reader sees the old or the new one. Saving never
 * replaces a file by one that could not be loaded.
 *
 * @return OK; IO, SPACE; STATE if the trainer is torn; NUMERIC if a slot that the gradient hook
 * wrote is not finite. A file that was there stays as it was then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_save_checkpoint(dunlin_trainer *trainer,
                                                                         const char *path);
/**
 * Everything is checked before anything changes.
 *
 * @return OK; IO, DATA, VERSION, DIGEST, LIMIT; NUMERIC; MISMATCH if it is of another model, or if
 * other parameters have a state of the optimiser, as where others are trained; STATE.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_load_checkpoint(dunlin_trainer *trainer,
                                                                         const char *path);

/**
 * Writes a plain inference ONNX file (opset 17) with the weights as they are now; atomically. Its
 * inputs and output are those of the ONNX file that the model was read from: names, element types,
 * shapes, order; else one float32 (N, ...) each.
 *
 * @return OK; with the same refusals as dunlin_trainer_save_checkpoint().
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_export_onnx(dunlin_trainer *trainer,
                                                                     const char *path);

#ifdef __cplusplus
}
#endif

#endif
