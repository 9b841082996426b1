/*
 * strategy.h - what a round's updates become: their average, a step of the server's own optimiser
 * along it, or a robust middle of them.
 */
#ifndef DUNLIN_SERVER_STRATEGY_H
#define DUNLIN_SERVER_STRATEGY_H

#include <stdbool.h>

typedef enum dunlin__strategy_kind {
    DUNLIN_STRATEGY_AVERAGE = 0, /* McMahan et al. 2017 */
    DUNLIN_STRATEGY_FEDAVGM,     /* Hsu, Qi, Brown 2019: momentum at the server */
    DUNLIN_STRATEGY_FEDADAGRAD,  /* Reddi et al. 2021, algorithm 2, as the next two */
    DUNLIN_STRATEGY_FEDADAM,
    DUNLIN_STRATEGY_FEDYOGI,
    DUNLIN_STRATEGY_MEDIAN,       /* Yin et al. 2018, of each coordinate, as the next */
    DUNLIN_STRATEGY_TRIMMED_MEAN, /* of what is left when the ends are cut off */
    DUNLIN_N_STRATEGIES
} dunlin__strategy_kind;

typedef struct dunlin__strategy {
    dunlin__strategy_kind kind;
    double lr; /* at the server, as all of these */
    double momentum;
    double beta1;
    double beta2;
    double tau;  /* added to the root of v, which begins at its square */
    double trim; /* the share of updates that is cut off at each end, below 0.5 */
} dunlin__strategy;

/* As the task file says it. */
const char *dunlin__strategy_name(dunlin__strategy_kind kind);

/* True for those that keep two numbers for each averaged value from round to round. */
static inline bool dunlin__strategy_has_moments(const dunlin__strategy *strategy)
{
    return strategy->kind >= DUNLIN_STRATEGY_FEDAVGM && strategy->kind <= DUNLIN_STRATEGY_FEDYOGI;
}

/* True for those that look at all updates of a value at once, each as much as any other. */
static inline bool dunlin__strategy_is_robust(const dunlin__strategy *strategy)
{
    return strategy->kind == DUNLIN_STRATEGY_MEDIAN ||
           strategy->kind == DUNLIN_STRATEGY_TRIMMED_MEAN;
}

#endif
