/*
 * terms.h - what a private run has promised, as a text that is kept with its state.
 */
#ifndef DUNLIN_SERVER_PRIVACY_TERMS_H
#define DUNLIN_SERVER_PRIVACY_TERMS_H

#include "account.h"

#define DUNLIN_TERMS_BYTES 480u

/**
 * Everything that the cost of a number of rounds follows from, but for that number: what
 * dunlin__privacy_read() reads, with numbers to their last bit.
 */
void dunlin__privacy_terms(const dunlin__privacy_question *question,
                           char out_text[DUNLIN_TERMS_BYTES]);

/**
 * What `n_rounds` rounds of these terms cost.
 *
 * @param question whose noise is known; its number of rounds and wanted epsilon do not matter.
 * @return as dunlin__privacy_account(); no round costs an epsilon of 0.
 */
DUNLIN_NODISCARD dunlin_status dunlin__privacy_spent(const dunlin__privacy_question *question,
                                                     uint64_t n_rounds, const dunlin_alloc *alloc,
                                                     dunlin__privacy_answer *out_answer,
                                                     dunlin_error *error);

/** @return "poisson" ... as dunlin__privacy_read() takes it; never NULL. */
const char *dunlin__sampling_name(dunlin__privacy_sampling sampling);

/** @return "gaussian", "discrete" or "skellam", as dunlin__privacy_read() takes it; never NULL. */
const char *dunlin__privacy_kind(const dunlin__privacy_question *question);

/** @return what the figures rest on, for people. */
const char *dunlin__privacy_assumes(const dunlin__privacy_question *question);

/** @return what the two runs differ by that are held beside each other, for people. */
const char *dunlin__privacy_neighbours(const dunlin__privacy_question *question);

#endif
