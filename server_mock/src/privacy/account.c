/*
 * account.c - what a private run costs, and the noise that a wanted epsilon needs.
 *
 * Invariant: amplification is counted for cohorts that are drawn alone. First come first served and
 * trees are one Gaussian mechanism, since a device's rounds are bounded whatever it chooses.
 */
#include "account.h"

#include "gaussian.h"
#include "pld.h"
#include "rdp.h"
#include "tree.h"

#include <mem/support.h>
#include <wire/secagg_noise.h>

#include <inttypes.h>
#include <math.h>

/* Rounds that a device can be in. */
static uint64_t rounds_of_one(const dunlin__privacy_question *question)
{
    const uint64_t apart = question->separation > 0 ? question->separation : 1;
    const uint64_t fitting = (question->n_rounds - 1) / apart + 1;
    return question->most_rounds > 0 && question->most_rounds < fitting ? question->most_rounds
                                                                        : fitting;
}

/* The sum over the run of the squared sensitivities, in units of clip, where nothing is drawn. */
static double squared_sensitivity(const dunlin__privacy_question *question)
{
    if (question->sampling == DUNLIN_SAMPLING_TREE) {
        const uint64_t apart = question->separation > 0 ? question->separation : 1;
        return (double)dunlin__tree_sensitivity(question->n_rounds, apart, question->most_rounds);
    }
    return (double)rounds_of_one(question);
}

/* What one order costs. */
static double cost_of(const dunlin__privacy_question *question, double noise, double order)
{
    const double n = (double)question->n_rounds;
    switch (question->sampling) {
    case DUNLIN_SAMPLING_POISSON:
        return n * dunlin__rdp_sampled(noise, question->rate, order);
    case DUNLIN_SAMPLING_FIXED:
        return n * dunlin__rdp_fixed(noise, (double)question->cohort / (double)question->population,
                                     order);
    case DUNLIN_SAMPLING_FIRST_COME:
    case DUNLIN_SAMPLING_TREE:
        break;
    }
    return squared_sensitivity(question) * dunlin__rdp_gaussian(noise, order);
}

static double epsilon_by_orders(const dunlin__privacy_question *question, double noise,
                                double *out_order)
{
    double orders[DUNLIN_RDP_ORDERS];
    double costs[DUNLIN_RDP_ORDERS];
    size_t n = 0;
    /* With sampling the moments of whole orders alone are sums of moments without, in which the
     * discrete Gaussian costs at most what the other one does, in any number of coordinates. */
    const bool wants_whole = question->is_discrete && question->sampling == DUNLIN_SAMPLING_POISSON;
    for (size_t i = 0; i < DUNLIN_RDP_ORDERS; i++) {
        const double order = dunlin__rdp_order(i);
        if (!wants_whole || !(order > floor(order))) {
            orders[n] = order;
            costs[n++] = cost_of(question, noise, order);
        }
    }
    return dunlin__rdp_epsilon_of(orders, costs, n, question->delta, out_order);
}

/* By orders as well, with what a sum of draws may differ from one draw; sums of Skellam numbers do
 * not. */
static double epsilon_of_parts(const dunlin__privacy_question *question, double noise)
{
    if (question->is_skellam) {
        const double deviation = (double)question->part_scale * sqrt((double)question->n_parts);
        const dunlin__secagg_skellam sum = {noise, deviation / noise, (double)question->n_values};
        return dunlin__secagg_skellam_epsilon(&sum, rounds_of_one(question), question->delta);
    }
    const double gap = (double)question->n_values *
                       dunlin__secagg_noise_gap((double)question->part_scale, question->n_parts);
    return dunlin__secagg_noise_epsilon(noise, gap, rounds_of_one(question), question->delta);
}

/* By the distribution of the losses, which without sampling is a Gaussian one. Discrete noise takes
 * the place of a little less Gaussian noise, of which the least is not known. */
static dunlin_status epsilon_by_losses(const dunlin__privacy_question *question, double noise,
                                       bool wants_least, const dunlin_alloc *alloc,
                                       dunlin__privacy_answer *answer, dunlin_error *error)
{
    const bool is_discrete = question->is_discrete;
    const double worth =
        is_discrete ? dunlin__gaussian_of_discrete(noise, DUNLIN_DISCRETE_STEPS) : noise;
    dunlin__pld_bracket bracket = {0};
    if (question->sampling != DUNLIN_SAMPLING_POISSON || question->rate >= 1) {
        const double squared = question->sampling == DUNLIN_SAMPLING_POISSON
                                   ? (double)question->n_rounds
                                   : squared_sensitivity(question);
        bracket.upper = dunlin__gaussian_epsilon(sqrt(squared) / worth, question->delta);
        bracket.lower = bracket.upper * (1 - 1e-8);
    } else {
        const dunlin__pld_rounds rounds = {
            .noise = worth, .rate = question->rate, .n_rounds = question->n_rounds};
        DUNLIN_TRY(dunlin__pld_epsilon(&rounds, 1, question->delta, wants_least && !is_discrete,
                                       alloc, &bracket, error));
    }
    answer->epsilon = bracket.upper + (is_discrete ? DUNLIN_DISCRETE_GAP : 0);
    answer->least = is_discrete ? 0 : bracket.lower;
    return DUNLIN_OK;
}

static dunlin_status epsilon_at(const dunlin__privacy_question *question, double noise,
                                bool wants_least, const dunlin_alloc *alloc,
                                dunlin__privacy_answer *answer, dunlin_error *error)
{
    answer->noise = noise;
    answer->deviation = noise * question->clip;
    answer->order = 0;
    answer->least = 0;
    if (question->n_parts > 0) {
        answer->epsilon = epsilon_of_parts(question, noise);
        return DUNLIN_OK;
    }
    if (answer->accountant == DUNLIN_ACCOUNTANT_RDP) {
        answer->epsilon = epsilon_by_orders(question, noise, &answer->order);
        return DUNLIN_OK;
    }
    return epsilon_by_losses(question, noise, wants_least, alloc, answer, error);
}

/* Noise that is too little, and noise that is enough, with their epsilons. */
typedef struct noise_range {
    double low; /* 0: the least noise is enough */
    double high;
    double at_low;
    double at_high;
} noise_range;

/* Where a search begins, and in what steps. */
typedef struct noise_search {
    double start, factor;
} noise_search;

/* From `start` in steps of a factor. LIMIT: the most noise is not enough. */
static dunlin_status find_range(const dunlin__privacy_question *question,
                                const noise_search *search, const dunlin_alloc *alloc,
                                dunlin__privacy_answer *answer, noise_range *out_range,
                                dunlin_error *error)
{
    *out_range = (noise_range){0};
    DUNLIN_TRY(epsilon_at(question, search->start, false, alloc, answer, error));
    double noise = search->start;
    while (answer->epsilon > question->epsilon) {
        if (noise >= DUNLIN_NOISE_MOST) {
            return dunlin__fail(error, DUNLIN_LIMIT, "privacy", 0,
                                "epsilon %g is not reached at delta %g: noise %g still gives %g",
                                question->epsilon, question->delta, noise, answer->epsilon);
        }
        out_range->low = noise;
        out_range->at_low = answer->epsilon;
        noise = fmin(noise * search->factor, DUNLIN_NOISE_MOST);
        DUNLIN_TRY(epsilon_at(question, noise, false, alloc, answer, error));
    }
    out_range->high = noise;
    out_range->at_high = answer->epsilon;
    while (!(out_range->low > 0) && out_range->high > DUNLIN_NOISE_LEAST) {
        noise = fmax(out_range->high / search->factor, DUNLIN_NOISE_LEAST);
        DUNLIN_TRY(epsilon_at(question, noise, false, alloc, answer, error));
        const bool is_enough = answer->epsilon <= question->epsilon;
        *(is_enough ? &out_range->high : &out_range->low) = noise;
        *(is_enough ? &out_range->at_high : &out_range->at_low) = answer->epsilon;
    }
    return DUNLIN_OK;
}

/* Between noise that is too little and noise that is enough, in turns where a power of the noise
 * through both would give the epsilon, and in the middle. */
static dunlin_status calibrate(const dunlin__privacy_question *question, const noise_search *search,
                               const dunlin_alloc *alloc, dunlin__privacy_answer *answer,
                               double *out_noise, double *out_epsilon, dunlin_error *error)
{
    noise_range range;
    DUNLIN_TRY(find_range(question, search, alloc, answer, &range, error));
    for (int i = 0; range.low > 0 && range.high - range.low > 1e-5 * range.high; i++) {
        if (range.at_high > question->epsilon * (1 - 1e-6)) {
            break;
        }
        const double width = log(range.high / range.low);
        double share = log(range.at_low / (question->epsilon * (1 - 5e-7))) /
                       log(range.at_low / range.at_high);
        if (i % 2 == 1 || !(share > 0.001 && share < 0.999)) {
            share = 0.5;
        }
        const double noise = range.low * exp(width * share);
        DUNLIN_TRY(epsilon_at(question, noise, false, alloc, answer, error));
        const bool is_enough = answer->epsilon <= question->epsilon;
        *(is_enough ? &range.high : &range.low) = noise;
        *(is_enough ? &range.at_high : &range.at_low) = answer->epsilon;
    }
    *out_noise = range.high;
    *out_epsilon = range.at_high;
    return DUNLIN_OK;
}

/* The least noise for the wanted epsilon, by way of the orders' where they are the quicker ones. */
static dunlin_status least_noise(const dunlin__privacy_question *question,
                                 const dunlin_alloc *alloc, dunlin__privacy_answer *answer,
                                 double *out_noise, double *out_epsilon, dunlin_error *error)
{
    const dunlin__accountant accountant = answer->accountant;
    noise_search search = {.start = 1, .factor = 4};
    if (accountant == DUNLIN_ACCOUNTANT_PLD && question->sampling == DUNLIN_SAMPLING_POISSON) {
        dunlin_error out_of_reach = {0};
        answer->accountant = DUNLIN_ACCOUNTANT_RDP;
        if (calibrate(question, &search, alloc, answer, out_noise, out_epsilon, &out_of_reach) ==
            DUNLIN_OK) {
            search = (noise_search){.start = *out_noise, .factor = 1.2};
        }
        answer->accountant = accountant;
    }
    return calibrate(question, &search, alloc, answer, out_noise, out_epsilon, error);
}

dunlin_status dunlin__privacy_account(const dunlin__privacy_question *question,
                                      const dunlin_alloc *alloc, dunlin__privacy_answer *out_answer,
                                      dunlin_error *error)
{
    *out_answer = (dunlin__privacy_answer){0};
    DUNLIN_TRY(dunlin__privacy_check(question, error));
    const bool has_pld = !question->is_discrete && question->sampling != DUNLIN_SAMPLING_FIXED;
    out_answer->accountant = question->accountant;
    if (question->accountant == DUNLIN_ACCOUNTANT_CHOSEN) {
        out_answer->accountant = has_pld ? DUNLIN_ACCOUNTANT_PLD : DUNLIN_ACCOUNTANT_RDP;
    }
    out_answer->is_amplified =
        (question->sampling == DUNLIN_SAMPLING_POISSON && question->rate < 1) ||
        (question->sampling == DUNLIN_SAMPLING_FIXED && question->cohort < question->population);
    out_answer->sensitivity = 1;
    if (question->sampling == DUNLIN_SAMPLING_TREE) {
        out_answer->sensitivity = sqrt(squared_sensitivity(question));
    } else if (question->sampling == DUNLIN_SAMPLING_FIXED) {
        out_answer->sensitivity = 2;
    }
    if (question->noise > 0) {
        return epsilon_at(question, question->noise, true, alloc, out_answer, error);
    }
    double noise = 0;
    double epsilon = 0;
    DUNLIN_TRY(least_noise(question, alloc, out_answer, &noise, &epsilon, error));
    DUNLIN_TRY(epsilon_at(question, noise, true, alloc, out_answer, error));
    /* Both are true, and another grid may have given the smaller one. */
    out_answer->epsilon = fmin(out_answer->epsilon, epsilon);
    return DUNLIN_OK;
}
