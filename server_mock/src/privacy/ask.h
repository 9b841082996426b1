/*
 * ask.h - a question of privacy as a text, and its answer as JSON.
 */
#ifndef DUNLIN_SERVER_PRIVACY_ASK_H
#define DUNLIN_SERVER_PRIVACY_ASK_H

#include "account.h"

/**
 * Reads "sampling=poisson:0.01,noise=1.1,rounds=1000,delta=1e-5"; PRIVACY.md has the keys.
 *
 * @return OK; ARGUMENT names the part that cannot be read. Whether the numbers go together is
 * dunlin__privacy_check()'s.
 */
DUNLIN_NODISCARD dunlin_status dunlin__privacy_read(const char *text,
                                                    dunlin__privacy_question *out_question,
                                                    dunlin_error *error);

/** @return the answer as JSON, to be given to free(); NULL: no memory. */
char *dunlin__privacy_tell(const dunlin__privacy_question *question,
                           const dunlin__privacy_answer *answer);

#endif
