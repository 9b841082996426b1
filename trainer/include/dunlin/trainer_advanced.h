/*
 * trainer_advanced.h - details of a trainer: what a budget would give, what was planned and used,
 * the largest batch, learning rates that change, hooks' buffers, properties of a checkpoint, and
 * (by budget.h) a budget that changes while the trainer exists.
 *
 * Example: the largest batch that 64 MiB afford, and what a step of it takes.
 *
 * @code
 * dunlin_error error = {0};
 * dunlin_model *model = NULL;
 * dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
 * dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
 * bool is_unbounded = false;
 * options.budget_bytes = 64 << 20;
 * if (dunlin_model_from_zoo("mobilenet_v2", NULL, NULL, &model, &error) != DUNLIN_OK ||
 *     dunlin_trainer_max_batch(model, &options, &options.batch, &is_unbounded, &error) !=
 *         DUNLIN_OK ||
 *     dunlin_trainer_estimate(model, &options, &report, &error) != DUNLIN_OK) {
 *     printf("%s\n", error.text);
 *     return 1;
 * }
 * printf("batch %d: %.0f ms a step, %.0f of them recomputed\n", (int)options.batch,
 *        report.predicted_ms, report.recompute_ms);
 * dunlin_model_destroy(model);
 * @endcode
 */
#ifndef DUNLIN_TRAINER_ADVANCED_H
#define DUNLIN_TRAINER_ADVANCED_H

#include <dunlin/budget.h>
#include <dunlin/trainer.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How the learning rate goes from step to step; u is the number of steps since the warm-up. */
typedef enum dunlin_schedule_kind {
    DUNLIN_SCHEDULE_CONSTANT = 0,
    DUNLIN_SCHEDULE_STEP = 1,        /* lr gamma^floor(u / period_steps) */
    DUNLIN_SCHEDULE_EXPONENTIAL = 2, /* lr gamma^(u / period_steps): by gamma in each period,
                                        smoothly */
    /* min_lr + (lr - min_lr) (1 + cos(pi u / (total_steps - warmup_steps))) / 2, then min_lr */
    DUNLIN_SCHEDULE_COSINE = 3,
    /* min_lr + (lr - min_lr) (1 - u / (total_steps - warmup_steps)), then min_lr */
    DUNLIN_SCHEDULE_LINEAR = 4
} dunlin_schedule_kind;

/**
 * A pure function of the number of steps done before, so a restored trainer goes on with the same
 * rates. The formulas are those of PyTorch's StepLR, ExponentialLR, CosineAnnealingLR (up to T_max)
 * and LinearLR, stepped once a step. Before them the rate rises: step i = 0, 1, ... of the warm-up
 * has lr (i + 1) / (warmup_steps + 1). It is not kept in checkpoints.
 */
struct dunlin_schedule {
    size_t struct_size;
    dunlin_schedule_kind kind;
    int64_t warmup_steps;
    int64_t period_steps; /* STEP, EXPONENTIAL; 0: 1 */
    int64_t total_steps;  /* COSINE, LINEAR: of the whole run, warm-up included */
    double gamma;         /* STEP, EXPONENTIAL: in (0, 1] */
    double min_lr;        /* COSINE, LINEAR */
    int64_t first_step;   /* the trainer's step count at which the schedule begins; -n: n of its
                             steps were taken elsewhere before, at most 2^60 */
};
#define DUNLIN_SCHEDULE_INIT DUNLIN_SIZED_INIT(dunlin_schedule)

/**
 * Schedule of the following steps; the rules of options.schedule hold. It is copied.
 *
 * @return OK; ARGUMENT without one, or naming the member that is out of its range; VERSION; STATE.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_trainer_set_schedule(dunlin_trainer *trainer, const dunlin_schedule *schedule);

/**
 * The numbers that a network is trained in. options.precision: NULL or "fp32" for float32; "niti":
 * int8 weights, activations and errors with one exponent a tensor (Wang et al., arXiv 2009.13108),
 * a quarter of the bytes, the same bits on all instruction sets. The loss is then cross-entropy
 * with labels, and in place of a rate there are grad_bits: the bits of the largest update, 0 to 7,
 * one number or several with commas, each for grad_bits_steps steps (1 or more) and the last one
 * for all that follow; NULL: 5. What else sets a rate is ARGUMENT: lr other than INIT's, schedule,
 * momentum, decay, clipping, groups, hooks. Weights go in and out as float32, exactly; a model's
 * own are rounded to what fits. "niti16" is niti whose weights gather their updates in 16 bits, of
 * which the upper eight are multiplied. UNSUPPORTED: a precision that this build has not; a network
 * with operators that it has not, with the causes; a source with weights of examples. Texts are
 * borrowed for the call.
 *
 * "adaptive-int8", "adaptive-fixed", "octo", "wageubn", "mls": the products of convolutions and
 * dense layers multiply int8, with ranges that follow the batches before; what is between them,
 * gradients and updates are float32. They have every operator, loss, rate and optimiser that
 * float32 has, and no grad_bits; ghost_statistics and `storage` are refused. Sources and what is
 * open in them: trainer/INTEGERS.md.
 *
 * This call sets both for the steps that follow; stages count from the trainer's first step.
 *
 * @return OK; ARGUMENT in float32, or naming what is out of its range; STATE.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_set_grad_bits(dunlin_trainer *trainer,
                                                                       const char *bits,
                                                                       int64_t n_steps);

#define DUNLIN_WEIGHT_GROWTH_NONE (-1)
/**
 * When the weights of "niti" and "niti16" grow, as options.weight_growth sets it, for the steps
 * that follow. A tensor of which, after an update, more than one weight in `growth` stands at the
 * ends of its range gets a range twice as large: its exponent rises by one, each weight is halved
 * (halves to the even neighbour), and updates keep their size. `growth`: 2 to 65536;
 * DUNLIN_WEIGHT_GROWTH_NONE: weights keep the range that they begin with; 0: the precision's own,
 * 64. dunlin_scale_info.n_raised of a parameter counts it, from the values that were last set as a
 * whole.
 *
 * @return OK; ARGUMENT in a precision with a learning rate, or naming what is out of its range;
 * STATE.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_set_weight_growth(dunlin_trainer *trainer,
                                                                           int32_t growth);

/**
 * Whether a model can be trained in a precision, without making a trainer.
 *
 * @return OK; ARGUMENT without a model; UNSUPPORTED: a precision that this build has not, by name,
 * or operators that the precision has not, with the causes.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_model_check_precision(const dunlin_model *model,
                                                                       const char *precision,
                                                                       dunlin_error *out_error);

/**
 * Whether a model's steps can be stored so, without making a trainer.
 *
 * @return OK; ARGUMENT without a model, or for a number that is no storage; UNSUPPORTED, naming the
 * node or the cause (dunlin/storage.h); MEMORY.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_model_check_storage(const dunlin_model *model,
                                                                     dunlin_storage storage,
                                                                     dunlin_error *out_error);

/** What a scale of a trainer in integers is of. */
typedef enum dunlin_scale_kind {
    DUNLIN_SCALE_PARAMETER = 0,
    DUNLIN_SCALE_VALUE = 1,     /* a layer's output, or the network's input */
    DUNLIN_SCALE_ERROR = 2,     /* the error that one layer hands back to that value */
    DUNLIN_SCALE_ERROR_SUM = 3, /* of several layers' errors, as they add up */
    DUNLIN_SCALE_LOSS = 4       /* always 2^0; is_known: a step has calibrated */
} dunlin_scale_kind;

/** One scale: a tensor's values are whole numbers of [-127, 127] times 2^exponent. */
typedef struct dunlin_scale_info {
    size_t struct_size;
    const char *name; /* the parameter's or the value's; the trainer's own */
    dunlin_scale_kind kind;
    int32_t exponent;
    bool is_known;               /* false: nothing has been written with it so far */
    int64_t n_raised, n_lowered; /* batches that moved it */
    int64_t n_clipped;           /* values that did not fit, over all batches */
} dunlin_scale_info;
#define DUNLIN_SCALE_INFO_INIT DUNLIN_SIZED_INIT(dunlin_scale_info)

/** @return how many scales a trainer has; 0 in float32. */
DUNLIN_API int32_t dunlin_trainer_n_scales(const dunlin_trainer *trainer);

/**
 * One of them, parameters first. The values of layers that keep their input's scale (ReLU, maximum
 * pooling, flatten) have none of their own: is_known is false.
 *
 * @return OK; ARGUMENT for an index that there is not; VERSION; STATE while a step runs.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_scale(const dunlin_trainer *trainer,
                                                               int32_t index,
                                                               dunlin_scale_info *out_info);

/**
 * Begins the values of a parameter anew in a trainer of integers: it gets the scale that magnitudes
 * of up to `largest` need, as if all were set at once, and zeros; they follow piece by piece with
 * dunlin_trainer_set_weights(). `index`: as in dunlin_trainer_parameter(). `out_unit`: the scale,
 * 2^exponent; in float32 it is 0, and nothing changes.
 *
 * @return OK; ARGUMENT for an index that there is not; NUMERIC: `largest` is below 0 or not finite;
 * STATE.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_begin_parameter(dunlin_trainer *trainer,
                                                                         int32_t index,
                                                                         float largest,
                                                                         float *out_unit);

/**
 * Writes the network of a trainer in integers as a QDQ model: an ONNX file (opset 17) with int8
 * parameters and a QuantizeLinear and a DequantizeLinear wherever the trainer rounds a value, with
 * its scales, all of them powers of two. dunlin_trainer_export_onnx() writes the same weights as
 * float32. ONNX rounds halves to even and goes down to -128, where the trainer rounds them away
 * from zero and ends at -127: so of the same input a layer's output may be one unit away. Of
 * weights of 16 bits the model has the upper eight, which the trainer multiplies. Models like this
 * are not read back: their nodes are refused by name.
 *
 * @return OK; UNSUPPORTED in float32, and where a name of the network ends as those that the file
 * makes up (NAME/scale, /int8, /sum, /rounded, /dequantized); STATE: a value has no scale yet,
 * since no step and no evaluation has run; whatever dunlin_trainer_export_onnx() returns.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_export_qdq(dunlin_trainer *trainer,
                                                                    const char *path);

/** Bytes of everything at the plan's peak, by what they are for. Their sum is `planned_bytes`. This
 * struct is frozen: a class that is added later is a member of the report. */
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
    double ideal_ms;     /* the same with nothing recomputed and no limit */
    double recompute_ms; /* the part of predicted_ms that goes into recomputing tensors */
    /* No plan of this batch is lower: all that is persistent, and the most that one operation
     * touches, of a single sample where the slices are free. */
    uint64_t floor_bytes;
    uint64_t kept_bytes;   /* activations and the like, alive where the backward pass begins */
    uint64_t remade_bytes; /* of all instances that are recomputed in a slice */
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
    dunlin_storage storage;
    bool is_exact;         /* the step of the whole batch in float32, nothing of it rounded */
    int32_t n_narrow;      /* tensors of a step that are stored in fewer bits */
    uint64_t narrow_bytes; /* of a sample, as they are stored */
    const char *precision; /* "fp32", or that of the options */
    int64_t n_clipped;     /* in integers: values that did not fit their scale, over all batches */
    int32_t n_int8;        /* of n_narrow, those in int8; the others are in bfloat16 */
    uint64_t int8_bytes;   /* of narrow_bytes, theirs, with their scales */
    uint64_t moved_bytes;  /* since creation: what dunlin_trainer_operand_bytes() counts, of every
                              step that was done, by the plan that it ended with */
} dunlin_trainer_report;
#define DUNLIN_TRAINER_REPORT_INIT DUNLIN_SIZED_INIT(dunlin_trainer_report)

/**
 * Plans without keeping anything: the report that dunlin_trainer_create() with the same options
 * would give (peak 0), and the least budget, which takes as long again, or longer.
 *
 * @return OK; BUDGET with the least bytes in out_error->needed_bytes; else as
 * dunlin_trainer_create(). *out_report is not changed then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_trainer_estimate(const dunlin_model *model, const dunlin_trainer_options *options,
                        dunlin_trainer_report *out_report, dunlin_error *out_error);

/** @return OK with what was planned and what was used so far; ARGUMENT without a report that begins
 * with its struct_size; STATE. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_trainer_get_report(const dunlin_trainer *trainer, dunlin_trainer_report *out_report);

/**
 * Bytes that a step over n examples moves through memory, by the plan that is in use: of each
 * operation, whenever it runs (slices, recomputed tensors), the tensors that it reads and those
 * that it writes, whole, those that it adds to or changes in place twice. Exact as that count;
 * workspace of operations is not in it, nor what a file takes, and of what it counts a cache spares
 * the memory a part. For the cost of a step where nothing tells its energy.
 *
 * @return OK; ARGUMENT unless n is from 1 to the batch, or out_bytes is NULL; STATE.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_trainer_operand_bytes(const dunlin_trainer *trainer, int64_t n, uint64_t *out_bytes);

/**
 * The largest batch within options->budget_bytes whose predicted time per example is at most
 * max_ratio (0: 1.3) times the fastest; with INFINITY the largest that fits. dunlin/batch.h has
 * both with their prices, and says how they are found. *out_is_unbounded when slices make any batch
 * do.
 *
 * @return OK; BUDGET if not even one example fits; else as dunlin_trainer_create().
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_trainer_max_batch(const dunlin_model *model, const dunlin_trainer_options *options,
                         int64_t *out_batch, bool *out_is_unbounded, dunlin_error *out_error);

/**
 * The same for `n` budgets, faster than one by one; options->budget_bytes is not looked at.
 * out_batches[i]: 0 where not even one example fits, INT64_MAX where any batch does.
 * *out_least_bytes (may be NULL): the least budget, that of one example.
 *
 * @return OK; as dunlin_trainer_create(), without BUDGET.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_max_batches(
    const dunlin_model *model, const dunlin_trainer_options *options, const uint64_t *budgets,
    int32_t n, int64_t *out_batches, uint64_t *out_least_bytes, dunlin_error *out_error);

/** @return the largest step of a fit over n_examples in steps of `batch` with
 * DUNLIN_REMAINDER_JOIN: what options.batch of its trainer must be at least (ARGUMENT from the fit
 * else). `batch`, or up to half as much again. */
DUNLIN_API int64_t dunlin_joined_batch(int64_t n_examples, int64_t batch);
/** @return steps of an epoch over n_examples in steps of `batch`, both 1 or more. */
DUNLIN_API int64_t dunlin_epoch_steps(int64_t n_examples, int64_t batch,
                                      dunlin_remainder remainder);

/**
 * Copies the weights into slot `slot` of the gradient hook (FedProx's base).
 *
 * @return OK; ARGUMENT for a slot that options.n_gradient_slots does not give; STATE.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_trainer_copy_weights_to_slot(dunlin_trainer *trainer, int32_t slot);

/** Momentum and other optimiser state back to zero, step count to 0, a stop that no call has obeyed
 * forgotten: the start of a federated round. Of a torn trainer only the last happens;
 * dunlin_trainer_last_error() says STATE. */
DUNLIN_API void dunlin_trainer_reset_optimizer(dunlin_trainer *trainer);

/**
 * Properties of the application kept in checkpoints: text by name.
 *
 * @return OK; ARGUMENT for a name that has not 1 to 64 bytes or a text above 256; LIMIT for one
 * more than 64 of them; BUDGET, MEMORY, STATE. What was there stays then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_set_property(dunlin_trainer *trainer,
                                                                      const char *name,
                                                                      const char *text);
/** @return the text, valid until it is set again; NULL if there is none. */
DUNLIN_API const char *dunlin_trainer_property(const dunlin_trainer *trainer, const char *name);

#ifdef __cplusplus
}
#endif

#endif
