/*
 * account.h - what a private run costs, and the noise that a wanted epsilon needs.
 *
 * The unit is a device: all of its examples, in all of its rounds. Each round adds up updates that
 * are clipped to the norm `clip` and noise of the standard deviation noise times clip. Neighbouring
 * runs differ by one device that is there or not (whose updates are then zeros), with a fixed
 * cohort by one device that is another one.
 */
#ifndef DUNLIN_SERVER_PRIVACY_ACCOUNT_H
#define DUNLIN_SERVER_PRIVACY_ACCOUNT_H

#include <dunlin/alloc.h>

#define DUNLIN_NOISE_LEAST 0.05
#define DUNLIN_NOISE_MOST 1e6
#define DUNLIN_PRIVACY_ROUNDS 1000000u

/* How devices come into a round. */
typedef enum dunlin__privacy_sampling {
    DUNLIN_SAMPLING_FIRST_COME = 0, /* no amplification */
    DUNLIN_SAMPLING_POISSON = 1,    /* each by itself, with the chance `rate` */
    DUNLIN_SAMPLING_FIXED = 2,      /* `cohort` of `population`, drawn without replacement */
    DUNLIN_SAMPLING_TREE = 3,       /* any, with noise by tree aggregation */
} dunlin__privacy_sampling;

typedef enum dunlin__accountant {
    DUNLIN_ACCOUNTANT_CHOSEN = 0, /* PLD, or RDP for discrete noise and fixed cohorts */
    DUNLIN_ACCOUNTANT_RDP = 1,
    DUNLIN_ACCOUNTANT_PLD = 2,
} dunlin__accountant;

/* All of it; a 0 is a number not given. */
typedef struct dunlin__privacy_question {
    dunlin__privacy_sampling sampling;
    dunlin__accountant accountant;
    bool is_discrete; /* the noise is the discrete Gaussian, of a parameter of noise times clip */
    double noise;     /* or: */
    double epsilon;   /* wanted */
    double delta;
    double clip;
    double rate;
    uint64_t n_rounds;
    uint64_t cohort;
    uint64_t population;  /* where known: delta has to be below 1 over it */
    uint64_t most_rounds; /* of one device; 0: all that there are */
    uint64_t separation;  /* between two rounds of one device; 0: as 1 */
    /* Distributed noise: each sum has that of at least n_parts devices, a discrete Gaussian of the
     * parameter part_scale in whole numbers each, `noise` times clip together, in n_values
     * elements. Neighbours then differ by one device whose updates are zeros. n_parts 0: one draw.
     */
    uint64_t n_parts;
    uint64_t part_scale;
    uint64_t n_values;
    bool is_skellam; /* the parts are Skellam numbers of the deviation part_scale; is_discrete, too
                      */
} dunlin__privacy_question;

typedef struct dunlin__privacy_answer {
    dunlin__accountant accountant; /* the one that was used */
    double noise;
    double deviation;   /* noise times clip */
    double epsilon;     /* not below the true one */
    double least;       /* not above it; 0 where it is not known */
    double order;       /* RDP: the order that gave epsilon, else 0 */
    double sensitivity; /* of a tree, in units of clip; else 1, with a fixed cohort 2 */
    bool is_amplified;  /* by sampling */
} dunlin__privacy_answer;

/* No numbers yet, and clip 1. */
dunlin__privacy_question dunlin__privacy_ask(void);

/* ARGUMENT names the number and what it may be; UNSUPPORTED what cannot be accounted for. */
DUNLIN_NODISCARD dunlin_status dunlin__privacy_check(const dunlin__privacy_question *question,
                                                     dunlin_error *error);

/**
 * Epsilon for the noise, or, where an epsilon is wanted, the least noise for it (to 1e-5 of
 * itself, on the safe side) and what that gives.
 *
 * @return OK; as check; LIMIT: no noise up to DUNLIN_NOISE_MOST reaches the epsilon; MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__privacy_account(const dunlin__privacy_question *question,
                                                       const dunlin_alloc *alloc,
                                                       dunlin__privacy_answer *out_answer,
                                                       dunlin_error *error);

#endif
