/*
 * check.c - which questions of privacy have an answer.
 *
 * Invariant: what passes is a question that account.c answers without another look.
 */
#include "account.h"

#include <mem/support.h>
#include <wire/secagg_noise.h>

#include <inttypes.h>
#include <math.h>

#define LEAST_DELTA 1e-30

dunlin__privacy_question dunlin__privacy_ask(void)
{
    return (dunlin__privacy_question){.clip = 1};
}

static dunlin_status check_delta(const dunlin__privacy_question *question, dunlin_error *error)
{
    const double delta = question->delta;
    if (!(delta >= LEAST_DELTA && delta < 1)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "privacy", 0,
                            "delta is %g, where it has to be from %g on and below 1", delta,
                            LEAST_DELTA);
    }
    if (question->population > 0 && !(delta * (double)question->population < 1)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "privacy", 0,
                            "delta is %g, where it has to be below 1/%" PRIu64
                            ", the share of one device",
                            delta, question->population);
    }
    return DUNLIN_OK;
}

static dunlin_status check_noise(const dunlin__privacy_question *question, dunlin_error *error)
{
    if (!(question->clip > 0 && isfinite(question->clip))) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "privacy", 0,
                            "clip is %g, where it has to be above 0 and finite", question->clip);
    }
    const bool wants_noise = question->epsilon > 0 || question->epsilon < 0;
    if (wants_noise && (question->noise > 0 || question->noise < 0)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "privacy", 0,
                            "noise %g and epsilon %g are given, where one follows from the other",
                            question->noise, question->epsilon);
    }
    if (wants_noise || isnan(question->epsilon)) {
        if (!(question->epsilon > 0 && isfinite(question->epsilon))) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "privacy", 0,
                                "epsilon is %g, where it has to be above 0 and finite",
                                question->epsilon);
        }
        return DUNLIN_OK;
    }
    if (!(question->noise >= DUNLIN_NOISE_LEAST && question->noise <= DUNLIN_NOISE_MOST)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "privacy", 0,
                            "noise is %g, where it has to be from %g to %g times the clipping norm",
                            question->noise, DUNLIN_NOISE_LEAST, DUNLIN_NOISE_MOST);
    }
    return DUNLIN_OK;
}

static dunlin_status check_rounds(const dunlin__privacy_question *question, dunlin_error *error)
{
    if (question->n_rounds == 0 || question->n_rounds > DUNLIN_PRIVACY_ROUNDS) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "privacy", 0,
                            "rounds are %" PRIu64 ", where there have to be 1 to %u",
                            question->n_rounds, DUNLIN_PRIVACY_ROUNDS);
    }
    if (question->sampling == DUNLIN_SAMPLING_POISSON &&
        !(question->rate > 0 && question->rate <= 1)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "privacy", 0,
                            "the chance of a device to be in a round is %g, where it has to be "
                            "above 0 and at most 1",
                            question->rate);
    }
    if (question->sampling == DUNLIN_SAMPLING_FIXED &&
        (question->cohort == 0 || question->cohort > question->population)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "privacy", 0,
                            "a fixed cohort of %" PRIu64 " of %" PRIu64
                            " devices cannot be drawn without replacement",
                            question->cohort, question->population);
    }
    return DUNLIN_OK;
}

/* Of distributed noise all three numbers, or none. */
static dunlin_status check_parts(const dunlin__privacy_question *question, dunlin_error *error)
{
    const uint32_t most = dunlin__secagg_scale_most(
        question->is_skellam ? DUNLIN_V1_SECAGG_NOISE_SKELLAM : DUNLIN_V1_SECAGG_NOISE_GAUSSIAN);
    const bool has_all = question->n_parts >= 1 && question->n_parts <= DUNLIN_WIRE_SECAGG_COHORT &&
                         question->part_scale >= DUNLIN_SECAGG_SCALE_LEAST &&
                         question->part_scale <= most && question->n_values >= 1 &&
                         question->n_values <= DUNLIN_WIRE_SECAGG_VALUES;
    const bool has_none =
        question->n_parts == 0 && question->part_scale == 0 && question->n_values == 0;
    return has_all || has_none
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_ARGUMENT, "privacy", 0,
                              "parts %" PRIu64 ", part_scale %" PRIu64 " and values %" PRIu64
                              " go together, from 1, %u and 1 up to %u, %" PRIu32 " and 2^36",
                              question->n_parts, question->part_scale, question->n_values,
                              DUNLIN_SECAGG_SCALE_LEAST, DUNLIN_WIRE_SECAGG_COHORT, most);
}

/* What would need a proof that there is none of here. */
static dunlin_status check_known(const dunlin__privacy_question *question, dunlin_error *error)
{
    if (question->accountant == DUNLIN_ACCOUNTANT_PLD && question->n_parts > 0) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "privacy", 0,
                            "accountant 'pld' has no bound for noise of 'parts': use 'rdp'");
    }
    if (question->accountant == DUNLIN_ACCOUNTANT_PLD &&
        question->sampling == DUNLIN_SAMPLING_FIXED) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "privacy", 0,
                            "accountant 'pld' has no bound for sampling 'fixed': use 'rdp'");
    }
    if (question->is_skellam && question->n_parts == 0) {
        return dunlin__fail(
            error, DUNLIN_UNSUPPORTED, "privacy", 0,
            "kind 'skellam' goes with 'parts', 'part_scale' and 'values': its bound "
            "is of whole numbers");
    }
    if (question->n_parts > 0 &&
        (!question->is_discrete || question->sampling != DUNLIN_SAMPLING_FIRST_COME)) {
        return dunlin__fail(
            error, DUNLIN_UNSUPPORTED, "privacy", 0,
            "noise of 'parts' goes with kind 'discrete' or 'skellam' and sampling "
            "'first_come' alone: whom a round asks is known to the server that it hides from");
    }
    const bool has_limits = question->sampling == DUNLIN_SAMPLING_FIRST_COME ||
                            question->sampling == DUNLIN_SAMPLING_TREE;
    if (!has_limits && (question->most_rounds > 0 || question->separation > 0)) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "privacy", 0,
                            "'most' and 'separation' count with sampling 'first_come' and 'tree' "
                            "alone: devices that are drawn are in any round");
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__privacy_check(const dunlin__privacy_question *question, dunlin_error *error)
{
    DUNLIN_TRY(check_noise(question, error));
    DUNLIN_TRY(check_delta(question, error));
    DUNLIN_TRY(check_rounds(question, error));
    DUNLIN_TRY(check_parts(question, error));
    return check_known(question, error);
}
