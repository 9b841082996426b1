/*
 * learner.h - the interface between a round and the learner that trains in it. builtin.h has ours;
 * an application may provide its own.
 *
 * The client makes these calls one at a time, from the thread that runs the round: load, then fit
 * (or evaluate) until it is done, then save, then unload. unload is called for every load that
 * succeeded, also after a failure or a stop.
 *
 * Example: a learner of the app's own, made of five functions.
 *
 * @code
 * dunlin_status load(void *self, const dunlin_task *task, const dunlin_weights_reader *base);
 * dunlin_status fit(void *self, int64_t max_ms, dunlin_learner_report *out_report);
 * dunlin_status evaluate(void *self, int64_t max_ms, dunlin_learner_report *out_report);
 * dunlin_status save(void *self, dunlin_weights_reader *out);
 * void unload(void *self);
 * void take_part(const dunlin_learner *learner); // with dunlin_client_create()
 *
 * float weights[10];
 * dunlin_learner_ops ops = DUNLIN_LEARNER_OPS_INIT;
 * dunlin_learner learner = {&ops, weights};
 * ops.load = load;
 * ops.fit = fit;
 * ops.evaluate = evaluate;
 * ops.save = save;
 * ops.unload = unload;
 * take_part(&learner);
 * @endcode
 */
#ifndef DUNLIN_LEARNER_H
#define DUNLIN_LEARNER_H

#include <dunlin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What the server aggregates of a tensor. */
typedef enum dunlin_aggregation {
    DUNLIN_AGGREGATE_AVERAGE = 0,   /* weighted mean of the differences */
    DUNLIN_AGGREGATE_STATISTIC = 1, /* the same, kept apart: batch norm's running values */
    DUNLIN_AGGREGATE_LOCAL = 2      /* never leaves the device */
} dunlin_aggregation;

/** One tensor of a set. Frozen: it never gets another member. */
typedef struct dunlin_weights_tensor {
    const char *name;
    dunlin_shape shape;
    int64_t n_elements;
    dunlin_aggregation aggregation;
} dunlin_weights_tensor;

/**
 * A set of float32 tensors read in pieces, so that nobody has to hold a model twice. `read_fn`
 * writes elements [first, first + n) of tensor `index` to `out`. Frozen: it never gets another
 * member.
 */
typedef struct dunlin_weights_reader {
    void *ctx;
    const dunlin_weights_tensor *tensors;
    int32_t n_tensors;
    dunlin_status (*read_fn)(void *ctx, int32_t index, int64_t first, int64_t n, float *out);
} dunlin_weights_reader;

typedef enum dunlin_task_kind { DUNLIN_TASK_TRAIN = 0, DUNLIN_TASK_EVALUATE = 1 } dunlin_task_kind;

/** What the network uses parameters for: bits of dunlin_task_group.roles. */
enum {
    DUNLIN_TASK_ROLE_WEIGHT = 1 << 1,
    DUNLIN_TASK_ROLE_BIAS = 1 << 2,
    DUNLIN_TASK_ROLE_NORM_SCALE = 1 << 3,
    DUNLIN_TASK_ROLE_NORM_SHIFT = 1 << 4,
    DUNLIN_TASK_ROLE_TABLE = 1 << 5,
    DUNLIN_TASK_ROLE_POSITION = 1 << 6,
    DUNLIN_TASK_ROLE_FACTOR = 1 << 7
};

/** Parameters with a rate and a weight decay of their own. Frozen: it never gets another member.
 */
typedef struct dunlin_task_group {
    const char *name;
    const char *patterns; /* of whole names, with * and ?, separated by commas; "": every name */
    uint32_t roles;       /* DUNLIN_TASK_ROLE_...; 0: every role */
    float lr_factor;      /* times the rate of the step; 0: they stay */
    float decay_factor;   /* times weight_decay */
} dunlin_task_group;

typedef enum dunlin_task_trained {
    DUNLIN_TASK_TRAINED_ALL = 0,
    DUNLIN_TASK_TRAINED_HEAD = 1,
    DUNLIN_TASK_TRAINED_BIASES_AND_NORMS = 2
} dunlin_task_trained;

#define DUNLIN_TASK_GROUPS 8

/** Which parameters are trained, and how: as dunlin/trainer.h has it for a training of one's own.
 * A parameter belongs to the first group that has it. The library sets struct_size. */
typedef struct dunlin_task_parameters {
    size_t struct_size;
    dunlin_task_trained trained;
    const char *trained_prefixes; /* separated by commas; "": all */
    const char *frozen_prefixes;  /* "": none */
    bool no_norm_decay;           /* no weight decay on biases and norms */
    const dunlin_task_group *groups;
    int32_t n_groups; /* at most DUNLIN_TASK_GROUPS */
} dunlin_task_parameters;
#define DUNLIN_TASK_PARAMETERS_INIT DUNLIN_SIZED_INIT(dunlin_task_parameters)

typedef enum dunlin_task_schedule_kind {
    DUNLIN_TASK_SCHEDULE_CONSTANT = 0,
    DUNLIN_TASK_SCHEDULE_STEP = 1,
    DUNLIN_TASK_SCHEDULE_EXPONENTIAL = 2,
    DUNLIN_TASK_SCHEDULE_COSINE = 3,
    DUNLIN_TASK_SCHEDULE_LINEAR = 4
} dunlin_task_schedule_kind;

/**
 * The rate from step to step over the n_rounds of a run: with S steps of this device in this round,
 * round r (from 1) begins at step (r - 1) S of n_rounds S. dunlin/trainer.h has the formulas. The
 * library sets struct_size.
 */
typedef struct dunlin_task_schedule {
    size_t struct_size;
    dunlin_task_schedule_kind kind;
    int64_t warmup_steps;
    int64_t period_steps; /* 0: an epoch */
    double gamma;
    double min_lr;
    int64_t n_rounds;
} dunlin_task_schedule;
#define DUNLIN_TASK_SCHEDULE_INIT DUNLIN_SIZED_INIT(dunlin_task_schedule)

/** dunlin/trainer.h has the formulas; Adam's betas are 0.9 and 0.999, its eps 1e-8. */
typedef enum dunlin_task_optimizer {
    DUNLIN_TASK_OPTIMIZER_SGD = 0,
    DUNLIN_TASK_OPTIMIZER_ADAM = 1,
    DUNLIN_TASK_OPTIMIZER_ADAMW = 2
} dunlin_task_optimizer;

/** How a step stores what it keeps; dunlin/storage.h says what is rounded. */
typedef enum dunlin_task_storage {
    DUNLIN_TASK_STORAGE_EXACT = 0,
    DUNLIN_TASK_STORAGE_BF16 = 1,
    DUNLIN_TASK_STORAGE_INT8 = 2
} dunlin_task_storage;

/** What is done with the examples that an epoch's whole batches leave over. A device with fewer
 * than one batch trains one batch of all it has. */
typedef enum dunlin_task_remainder {
    DUNLIN_TASK_REMAINDER_KEEP = 0, /* a smaller batch */
    DUNLIN_TASK_REMAINDER_DROP = 1, /* left out */
    DUNLIN_TASK_REMAINDER_JOIN = 2  /* fewer than half a batch join the batch before them */
} dunlin_task_remainder;

/** What the server asks for in this round. Texts, config and what `parameters` and `schedule` point
 * to are valid during load. A learner says UNSUPPORTED from load to what it cannot do. The library
 * sets struct_size; a learner reads the members that it knows, and keeps those that it needs. */
typedef struct dunlin_task {
    size_t struct_size;
    dunlin_task_kind kind;
    const char *population;
    const char *name;
    uint64_t run_epoch;
    uint64_t round;
    int32_t epochs;
    int32_t batch; /* 0: the learner's own choice */
    float lr;
    float momentum;
    float weight_decay;
    float proximal_mu;    /* FedProx; 0: none */
    uint64_t seed;        /* of this device's work in this round: order of examples, dropout */
    int64_t max_examples; /* 0: no limit */
    int64_t max_steps;    /* 0: no limit */
    const void *config;   /* bytes for an app's own learner, as the server's operator gave them */
    size_t config_bytes;
    /* A round resumed after a kill: the n_examples that fit first reported, to be gone on with
     * whatever the application has added since. 0: the round begins. */
    int64_t n_examples;
    /* Of a client with an example store: how many were chosen for this round, to be read with
     * dunlin_examples_read(); max_examples is kept already. 0: the client has no store. */
    int64_t n_chosen;
    /* SCAFFOLD: what is to be added to the gradient of each tensor in each step, server's variate
     * less the device's own: tensors as in base, zeros for those that are not averaged; readable
     * until unload. Steps are of plain SGD at rate `lr`, and n_steps of the report counts them.
     * NULL: none. A learner that cannot do it says UNSUPPORTED. */
    const struct dunlin_weights_reader *correction;
    /* Of a client with an example store whose rule holds a share out: so many follow the chosen
     * ones, at positions n_chosen to n_chosen + n_held_out - 1, to be evaluated on and never
     * trained on. 0: none are held out. */
    int64_t n_held_out;
    const dunlin_task_parameters *parameters; /* NULL: all are trained, with one rate */
    const dunlin_task_schedule *schedule;     /* NULL: `lr` in each step */
    dunlin_task_remainder remainder;
    float gradient_clip_norm;  /* L2 bound of all gradients of a step; 0: none */
    float gradient_clip_value; /* of each element of a gradient; 0: none */
    bool flips; /* training: half of the images mirrored; the draws follow from `seed` */
    bool crops; /* training: a window of the image's size in it, with crop_padding zeros around */
    int32_t crop_padding;
    bool has_ignored_label; /* examples with ignored_label do not count, in evaluations neither */
    int32_t ignored_label;
    dunlin_task_optimizer optimizer; /* begins anew in each round */
    /* Training; as in dunlin_pipeline_options. With any of these all that is drawn, windows and
     * flips too, follows from `seed`, epoch and example. 0: none. */
    int32_t cutout;
    int32_t shift;
    float mixup;
    float noise;
    /* Training: the numbers to train in, as options.precision of a trainer; NULL: float32. With one
     * `lr` is 0: the rate are grad_bits, the bits of a step's largest update (1 to 7; 0: the
     * precision's own), of this round. Where whole weights go up in int8, all tensors that save()
     * gives have to be whole numbers of [-127, 127] times one power of two each. A learner that has
     * no such precision says UNSUPPORTED, and names it. Readable until load() returns. */
    const char *precision;
    int32_t grad_bits;
    /* Training: the server takes part of the work rather than none: so many ms after load (waits
     * counted) the client ends a fit that tells its done_share, between two steps, and saves what
     * there is. Others train to their end. 0: all of the work is wanted. */
    int64_t partial_ms;
    /* Training: as dunlin_trainer_options.storage; EXACT: the learner's own choice. A learner that
     * cannot do it says UNSUPPORTED. */
    dunlin_task_storage storage;
} dunlin_task;
#define DUNLIN_TASK_INIT DUNLIN_SIZED_INIT(dunlin_task)

/** A number of the app's own, with a name of 1 to 64 letters, digits, _ . - and /, finite and
 * within DUNLIN_LEARNER_LOSS_MOST of 0. Frozen: it never gets another member. */
typedef struct dunlin_learner_metric {
    const char *name;
    double value;
} dunlin_learner_metric;

/** Most of them that go up with a contribution. */
#define DUNLIN_LEARNER_METRICS_MOST 64

/** Bounds of a report. */
#define DUNLIN_LEARNER_COUNT_MOST (INT64_C(1) << 40)
#define DUNLIN_LEARNER_LOSS_MOST 1e30

/**
 * The results of fit or evaluate so far. Each report is checked when it comes: a loss or an
 * accuracy that is not finite ends the round with NUMERIC, what is out of its range with DATA; the
 * text names the number and its limit, the server gets an abort, and the next round waits as after
 * a refusal.
 *
 * The library sets struct_size and zeros; a learner sets what it knows, member by member. One that
 * writes over struct_size ends the round with CALLBACK: in an app with a newer header it would
 * write past the end of the struct, too.
 */
typedef struct dunlin_learner_report {
    size_t struct_size;
    bool is_done;       /* false: call again; a fit after that changes nothing and says the same */
    int64_t n_examples; /* the device's examples, the weight of its update: at most COUNT_MOST; 0 as
                           long as they are not known, at least 1 when done */
    int64_t n_steps;    /* 0 to COUNT_MOST */
    double loss;        /* -LOSS_MOST to LOSS_MOST; 0 if there is none yet */
    double accuracy;    /* 0 to 1; 0 if there is none */
    uint64_t peak_bytes; /* of the learner's memory; 0 if unknown */
    /* Numbers of the app's own that go up with the contribution: those of the report of fit (in a
     * round of kind EVALUATE: of evaluate) that is_done, readable until the learner's next call.
     * The server averages them by n_examples. One that breaks a rule, comes twice or is above
     * METRICS_MOST is left out, which one line of the log says; the round goes on. NULL: none. */
    const dunlin_learner_metric *metrics;
    int32_t n_metrics;
    /* Of fit: which part of the ordered work is done, above 0 to 1. A learner that tells it stands
     * between two steps when fit returns, and takes save() then, also before it is_done: see
     * partial_ms. The update of a training that ends with less than 1 counts for that part of
     * n_examples, at least for one. 0: not known; when done, all of it. */
    double done_share;
} dunlin_learner_report;
#define DUNLIN_LEARNER_REPORT_INIT DUNLIN_SIZED_INIT(dunlin_learner_report)

/**
 * The calls. All statuses other than OK end the round, except LOCKED from load: "not now", the
 * client asks again. A number that is no status, and a STOPPED that nobody asked for, end it with
 * CALLBACK.
 *
 * `load` reads the weights it needs from `base`, whose names and shapes it checks (MISMATCH);
 * `base` stays readable until unload. `fit` and `evaluate` work for about max_ms (0: to the end)
 * and report. A task to TRAIN may be evaluated before the first fit and after the last one, if the
 * server's plan asks for it: that changes nothing of the training. An evaluate after one that was
 * done begins anew. `save` fills `out`; its tensors must be those of `base`, in
 * the same order, and stay readable until unload. Those that are LOCAL never leave the device: the
 * client keeps them and gives them in the next round's `base`, once the round's update is accepted.
 * A learner that keeps them itself leaves all of them out. `stop` may come from any thread; fit and
 * evaluate then return STOPPED soon. It may be NULL. A fit that fills its report when it returns
 * STOPPED says that it stands between two steps, where `checkpoint` may keep it for a pause.
 *
 * `checkpoint` and `restore`, both or neither: for learners whose training is worth keeping across
 * a kill. `checkpoint` comes between two calls of fit, or after one that a pause ended, and writes
 * all that fit needs to resume (with the same bits) into a file at `path`, in a private folder of
 * the client; `<path>.part` may be used on the way. `restore` comes right after load with a path
 * that checkpoint filled, maybe in another process. What fails there is logged and does not end the
 * round: after a restore that fails the client unloads and loads again. Without them training
 * begins anew from the base.
 *
 * struct_size says which calls the app knows: the first seven at least.
 */
typedef struct dunlin_learner_ops {
    size_t struct_size;
    dunlin_status (*load)(void *self, const dunlin_task *task, const dunlin_weights_reader *base);
    dunlin_status (*fit)(void *self, int64_t max_ms, dunlin_learner_report *out_report);
    dunlin_status (*evaluate)(void *self, int64_t max_ms, dunlin_learner_report *out_report);
    dunlin_status (*save)(void *self, dunlin_weights_reader *out);
    void (*unload)(void *self);
    void (*stop)(void *self);
    /* One line about the last failure, or NULL; may be NULL itself. */
    const char *(*error_text)(void *self);
    dunlin_status (*checkpoint)(void *self, const char *path);
    dunlin_status (*restore)(void *self, const char *path);
    /* The client keeps the newest federated model for the app, where its options do not say
       otherwise (dunlin_client_options.model_keeping). */
    bool keeps_model;
} dunlin_learner_ops;
#define DUNLIN_LEARNER_OPS_INIT DUNLIN_SIZED_INIT(dunlin_learner_ops)

/** Whose calls, and for whom. Frozen: it never gets another member. */
typedef struct dunlin_learner {
    const dunlin_learner_ops *ops;
    void *self;
} dunlin_learner;

#ifdef __cplusplus
}
#endif

#endif
