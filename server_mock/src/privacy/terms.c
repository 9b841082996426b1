/*
 * terms.c - what a private run has promised, as a text that is kept with its state.
 *
 * Invariant: the text of a question, read again, is the same question but for the rounds.
 */
#include "terms.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const sampling_names[] = {"first_come", "poisson", "fixed", "tree"};

const char *dunlin__sampling_name(dunlin__privacy_sampling sampling)
{
    return sampling_names[sampling];
}

const char *dunlin__privacy_kind(const dunlin__privacy_question *question)
{
    return question->is_skellam ? "skellam" : question->is_discrete ? "discrete" : "gaussian";
}

const char *dunlin__privacy_neighbours(const dunlin__privacy_question *question)
{
    if (question->n_parts > 0) {
        return "one device sends its updates or zeros";
    }
    return question->sampling == DUNLIN_SAMPLING_FIXED ? "one device is another one"
                                                       : "one device is there or not";
}

const char *dunlin__privacy_assumes(const dunlin__privacy_question *question)
{
    if (question->n_parts > 0) {
        return "the server follows the protocol, and of each sum's devices as many as are counted "
               "on are honest and add their noise; a device keeps the separation and the most "
               "rounds; who takes part is known";
    }
    switch (question->sampling) {
    case DUNLIN_SAMPLING_POISSON:
        return "each device is drawn by itself with this chance, by a secret seed, and nobody "
               "outside learns who was drawn; rounds with nobody give noise too";
    case DUNLIN_SAMPLING_FIXED:
        return "each cohort is drawn afresh without replacement, and nobody outside learns who was "
               "drawn";
    case DUNLIN_SAMPLING_TREE:
        return "each node of the tree has noise of its own; a device keeps the separation and the "
               "most rounds";
    case DUNLIN_SAMPLING_FIRST_COME:
        break;
    }
    return "a device keeps the separation and the most rounds; who takes part may be known";
}

void dunlin__privacy_terms(const dunlin__privacy_question *question,
                           char out_text[DUNLIN_TERMS_BYTES])
{
    char sampling[96];
    char limits[96] = "";
    char population[40] = "";
    char parts[96] = "";
    /* Said where it is not the usual one: folders from before it could be chosen have none. */
    const char *accountant = question->accountant == DUNLIN_ACCOUNTANT_PLD ? ",accountant=pld" : "";
    if (question->sampling == DUNLIN_SAMPLING_POISSON) {
        (void)snprintf(sampling, sizeof sampling, "poisson:%.17g", question->rate);
    } else if (question->sampling == DUNLIN_SAMPLING_FIXED) {
        (void)snprintf(sampling, sizeof sampling, "fixed:%" PRIu64 "/%" PRIu64, question->cohort,
                       question->population);
    } else {
        (void)snprintf(sampling, sizeof sampling, "%s", dunlin__sampling_name(question->sampling));
        (void)snprintf(limits, sizeof limits, ",most=%" PRIu64 ",separation=%" PRIu64,
                       question->most_rounds, question->separation);
    }
    if (question->population > 0 && question->sampling != DUNLIN_SAMPLING_FIXED) {
        (void)snprintf(population, sizeof population, ",population=%" PRIu64, question->population);
    }
    if (question->n_parts > 0) {
        (void)snprintf(parts, sizeof parts,
                       ",parts=%" PRIu64 ",part_scale=%" PRIu64 ",values=%" PRIu64,
                       question->n_parts, question->part_scale, question->n_values);
    }
    (void)snprintf(out_text, DUNLIN_TERMS_BYTES,
                   "sampling=%s,noise=%.17g,delta=%.17g,clip=%.17g%s%s,kind=%s%s%s", sampling,
                   question->noise, question->delta, question->clip, limits, population,
                   dunlin__privacy_kind(question), parts, accountant);
}

dunlin_status dunlin__privacy_spent(const dunlin__privacy_question *question, uint64_t n_rounds,
                                    const dunlin_alloc *alloc, dunlin__privacy_answer *out_answer,
                                    dunlin_error *error)
{
    dunlin__privacy_question asked = *question;
    asked.n_rounds = n_rounds;
    asked.epsilon = 0;
    if (n_rounds == 0) {
        memset(out_answer, 0, sizeof *out_answer);
        out_answer->noise = question->noise;
        out_answer->deviation = question->noise * question->clip;
        return DUNLIN_OK;
    }
    return dunlin__privacy_account(&asked, alloc, out_answer, error);
}
