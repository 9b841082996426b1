/*
 * policy.h - the rule by which a step is planned. An app leaves it at AUTO; the others are there
 * for comparison with AUTO, see trainer_experimental.h.
 *
 * Example: options of a trainer that keeps everything, to compare with.
 *
 * @code
 * #include <dunlin/trainer.h>
 *
 * dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
 * options.policy = DUNLIN_POLICY_NONE;
 * printf("policy %d\n", (int)options.policy);
 * @endcode
 */
#ifndef DUNLIN_POLICY_H
#define DUNLIN_POLICY_H

typedef enum dunlin_policy {
    DUNLIN_POLICY_AUTO = 0, /* the fastest step that fits the budget */
    DUNLIN_POLICY_NONE = 1, /* whole batch, no memory shared: a naive executor, for comparison */
    DUNLIN_POLICY_POOL = 2, /* whole batch, lifetime pool */
    DUNLIN_POLICY_MICROBATCH = 3, /* slices of `micro_batch` samples (0: the most that fit) with
                                     exact accumulation */
    /* Published policies, for comparison; memory/PLANNER.md says how each is understood. */
    DUNLIN_POLICY_IDEAL = 4,     /* whole batch, lifetime pool; the budget is not looked at */
    DUNLIN_POLICY_RECOMPUTE = 5, /* evicts on demand, by live bytes */
    DUNLIN_POLICY_SGC = 6,       /* static checkpointing in segments */
    DUNLIN_POLICY_SAGE = 7,      /* slices until throughput falls, then checkpointing on demand */
    DUNLIN_POLICY_MELON = 8,     /* lifetime order, evicts where the pool's top passes the budget */
    DUNLIN_POLICY_SUBLINEAR = 9, /* static checkpointing in as many segments as the root of the
                                    ops */
    /* AUTO without slices and regions, to see what these are worth. */
    DUNLIN_POLICY_WHOLE = 10,
    /* These write tensors out to a file (swap_dir) and read them back. */
    DUNLIN_POLICY_VDNN = 11,    /* the inputs of convolutions, from their last use of the forward
                                   pass to their first of the backward pass */
    DUNLIN_POLICY_CAPUCHIN = 12 /* swaps or recomputes, tensor by tensor, by cost, until it fits */
} dunlin_policy;

#endif
