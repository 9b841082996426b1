/*
 * task.h - the task file: what is trained, by whom, how often, and how.
 */
#ifndef DUNLIN_SERVER_TASK_H
#define DUNLIN_SERVER_TASK_H

#include "privacy/account.h"
#include "strategy.h"

#include <dunlin/alloc.h>
#include <wire/compress.h>
#include <wire/manifest.h>
#include <wire/messages.h>
#include <wire/secagg_odds.h>

#define DUNLIN_SERVER_CLIENTS (1u << 20) /* the most clients of a population */
#define DUNLIN_SERVER_COHORT 65536u /* the most that a round takes: so many a sum has room for */
#define DUNLIN_SERVER_ROUNDS 100000u
#define DUNLIN_SERVER_DEADLINES 64u /* different ones of a task */

#define DUNLIN_SERVER_PRECISION_BYTES 16u
#define DUNLIN_SERVER_GRAD_BITS 16u /* stages of a run */

/* What a plan orders beside the plain training. */
typedef struct dunlin__server_orders {
    bool has_parameters;
    dunlin_v1_parameter_choice_t parameters;
    bool decays_norms;
    bool has_schedule;
    dunlin_v1_schedule_kind_t schedule; /* over all rounds */
    uint64_t warmup_steps;
    uint64_t period_steps; /* 0: an epoch */
    double gamma;
    double min_lr;
    bool flips; /* of images, as the next two */
    bool crops;
    uint32_t crop_padding;
    uint32_t cutout; /* of examples, as the next three; 0: none */
    uint32_t shift;
    double mixup;
    double noise;
    dunlin_v1_remainder_t remainder; /* UNSPECIFIED: as the model needs it */
    double gradient_clip_norm;       /* 0: none */
    double gradient_clip_value;      /* 0: none */
    bool ignores_label;
    int32_t ignored_label;
    dunlin_v1_optimizer_t optimizer;
    char precision[DUNLIN_SERVER_PRECISION_BYTES]; /* "": float32 */
    dunlin_v1_storage_t storage;
    uint32_t grad_bits[DUNLIN_SERVER_GRAD_BITS]; /* each for its part of the rounds */
    uint32_t n_grad_bits;                        /* 0: the precision's own */
} dunlin__server_orders;

typedef struct dunlin__server_plan {
    uint32_t n_epochs;
    uint32_t batch;
    uint64_t max_steps;
    uint64_t max_examples;
    double lr;
    double momentum;
    double weight_decay;
    double proximal_mu;   /* more than 0: FedProx */
    bool is_scaffold;     /* control variates go both ways */
    double lr_decay;      /* the rate of round r is lr * lr_decay^(r - 1) */
    double clip_norm;     /* 0: none; the first one where it is moved */
    bool clips_layers;    /* each averaged tensor by itself */
    double clip_quantile; /* of the updates that are to be within it; 0: it stays */
    double clip_rate;     /* by which it is moved */
    bool evaluates;       /* before and after the training, on the device's own examples */
    double partial;       /* a training ends when so much of its time is over; 0: at its own end */
    dunlin__server_orders orders;
} dunlin__server_plan;

/* How long rounds last, from one on. */
typedef struct dunlin__server_deadline {
    uint64_t from;
    uint64_t ms;
} dunlin__server_deadline;

/* Rounds with noise (task_dp.c). */
typedef struct dunlin__server_dp {
    bool is_on;
    bool is_distributed;               /* devices add the noise (task_noise.c)... */
    bool is_skellam;                   /* ...of Skellam numbers, not of discrete Gaussians */
    uint32_t noise_cohort;             /* the noise is that of so many; 0: of the cohort */
    double epsilon;                    /* that the noise was found for; 0: the noise was given */
    dunlin__privacy_question question; /* of all rounds; its noise is known */
    dunlin__privacy_answer cost;       /* of all rounds */
} dunlin__server_dp;

/* Rounds that overlap (task_unequal.c). */
typedef struct dunlin__server_buffered {
    bool is_on;
    uint32_t max_staleness; /* an update whose base is older by more rounds does not count */
    double exponent;        /* one that is t rounds older counts (1 + t)^-exponent times */
} dunlin__server_buffered;

#define DUNLIN_SERVER_TIERS 16u /* at most */

typedef enum dunlin__selection_kind {
    DUNLIN_SELECT_BY_RANK = 0, /* of hashes; of unknown clients whoever comes first */
    DUNLIN_SELECT_UTILITY,
    DUNLIN_SELECT_TIERS
} dunlin__selection_kind;

/* Whom a round asks, by what devices reported (task_unequal.c). */
typedef struct dunlin__server_selection {
    dunlin__selection_kind kind;
    double prefer_s; /* UTILITY: a device that takes longer is worth less; 0: half the deadline */
    double penalty;  /* ...(prefer_s / its time)^penalty times */
    double pacer_s;  /* prefer_s grows by so much when rounds bring less; 0: it stays */
    uint32_t pacer_rounds; /* ...which the last so many are held against */
    double explore;        /* the share of devices that have not reported, in the first round... */
    double decay;          /* ...this factor of it from round to round... */
    double least;          /* ...and never less */
    double decline;        /* unknown clients: the share of those with least utility that wait */
    uint32_t n_tiers;      /* TIERS */
    uint32_t interval;     /* rounds between two looks at which are inaccurate; 0: each round */
    bool has_credits;      /* each tier is asked in so many rounds at most, from the fastest on: */
    uint32_t credits[DUNLIN_SERVER_TIERS]; /* of n_tiers */
} dunlin__server_selection;

#define DUNLIN_SERVER_STALENESS 32u /* the most rounds that a base may be older */

/* Rounds of which the server sees a sum alone (task_secagg.c). */
typedef struct dunlin__server_secagg {
    bool is_on;
    uint32_t n_neighbours;
    uint32_t threshold;
    uint32_t ring_bits; /* 16, 24 or 32: whole bytes on the wire */
    double clip;        /* the greatest magnitude of a value */
    uint32_t value_limit;
    uint32_t weight_limit;
    uint32_t least_devices;
    bool check_consistency;
    double step_s;         /* of each step after advertise, at most */
    uint32_t noise_scale;  /* distributed noise: of one device, in whole numbers; 0: none */
    uint32_t least_honest; /* ...and of so many at least */
    uint32_t n_cohort;     /* the most that may advertise: all that are asked */
    dunlin__secagg_wish wish;
} dunlin__server_secagg;

typedef struct dunlin__server_task {
    char population[DUNLIN_WIRE_ID_BYTES];
    char name[DUNLIN_WIRE_ID_BYTES];
    char model[1024];   /* a name of the zoo or a path ending in .onnx; "" with a tensor table */
    char initial[1024]; /* with a tensor table: a file of float32, or "" for zeros */
    char local[1024];   /* with a named model: prefixes of tensors that stay on the device */
    uint32_t classes;
    uint32_t image;
    uint32_t channels;
    uint32_t sequence, vocabulary; /* of a network that reads tokens; 0: its own */
    uint64_t rounds;
    uint64_t evaluate_every; /* every N-th round devices evaluate instead of training; 0: none */
    uint32_t cohort;
    double over_select; /* 1 and more: so many times the cohort is asked */
    uint32_t n_clients; /* 0: not known, first come first served */
    uint32_t min_clients_for_start;
    uint32_t min_reports; /* fewer at the deadline: the round fails, the model stays */
    dunlin__server_deadline deadlines[DUNLIN_SERVER_DEADLINES];
    uint32_t n_deadlines;
    uint64_t judge_every;   /* the test set judges the models of every N-th round, and the last's */
    uint32_t keep_every;    /* the models of every N-th round stay; 0: none of them */
    bool keeps_best;        /* the best model stays, if there is something to judge by */
    bool wants_best;        /* the task file says so */
    double target_accuracy; /* reached: no other round; 0: none */
    uint32_t patience;      /* so many rounds without a better model: no other; 0: none */
    double min_delta;       /* better by more than this counts for patience */
    bool metrics_per_device; /* the app's own: a file of them a round */
    uint64_t weight_cap;
    double rollback; /* more accuracy than this below the best: the model is taken back; 0: off */
    uint32_t chunk_bytes;
    uint64_t seed;
    bool sends_weights;       /* whole weights go up, not differences */
    bool is_packed;           /* updates go up packed, as... */
    dunlin__packing up;       /* ...this says, but for seed and round */
    bool is_down;             /* models go down packed, as... */
    dunlin__packing down;     /* ...this says, but for the seed */
    uint32_t feedback_rounds; /* what it leaves out is added to the next update; 0: it is lost */
    dunlin__server_plan plan;
    dunlin__strategy strategy;
    dunlin__server_dp dp;
    dunlin__server_buffered buffered;
    dunlin__server_selection selection;
    dunlin__server_secagg secagg;
    dunlin__policy policy;
    uint64_t test_examples; /* of the test set; 0: all */
    /* An application's own model: its tensors, all F32. NULL with a named model. */
    dunlin__tensor_entry *tensors;
    uint32_t n_tensors;
} dunlin__server_task;

/* Reads and checks the file; one line naming the file, the key and its limit. Unknown keys are
 * refused. Follow by dunlin__server_task_free(). */
DUNLIN_NODISCARD dunlin_status dunlin__server_task_read(const char *path, const dunlin_alloc *alloc,
                                                        dunlin__server_task *out_task,
                                                        dunlin_error *error);
void dunlin__server_task_free(dunlin__server_task *task, const dunlin_alloc *alloc);

/* True for a round in which devices only evaluate; the model stays. */
bool dunlin__server_task_is_evaluation(const dunlin__server_task *task, uint64_t round);

/* True if devices say how a base does on their own examples. */
bool dunlin__server_task_is_judged(const dunlin__server_task *task);

/* True if the model of a round is held against the test set. */
bool dunlin__server_task_judges(const dunlin__server_task *task, uint64_t round);

/* From the opening of a round, or its first assignment, to its end. */
uint64_t dunlin__server_task_deadline_ms(const dunlin__server_task *task, uint64_t round);

/* True if all of a training is in integers: it has bits of an update, and no learning rate. */
bool dunlin__server_orders_are_whole(const dunlin__server_orders *orders);
/* True if what comes up is int8: whole weights that were trained in a precision. */
bool dunlin__server_task_is_int8(const dunlin__server_task *task);

/* What the streams of an update are written in, by a device that packs or by one that does not. */
dunlin_v1_encoding_t dunlin__server_task_encoding(const dunlin__server_task *task, bool packs);

/* Bits of a step's largest update in a round: the stages of the task share its rounds evenly, the
 * first ones taking what is over. 0: the precision's own. */
uint32_t dunlin__server_task_grad_bits(const dunlin__server_task *task, uint64_t round);

#define DUNLIN_SERVER_SECAGG_SESSION_BYTES 32u

/* The terms of the task's secure aggregation; session (its length is set) and peer_index are to be
 * filled in. */
dunlin__secagg_plan dunlin__server_task_secagg(const dunlin__server_task *task, uint64_t n_values);

/* The distribution that devices draw from, if they draw. */
dunlin_v1_secagg_noise_t dunlin__task_noise_kind(const dunlin__server_task *task);

/* Devices that are asked in a round: cohort * over_select, rounded up, at most the clients. */
uint32_t dunlin__server_task_n_select(const dunlin__server_task *task);

#endif
