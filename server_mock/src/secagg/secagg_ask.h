/*
 * secagg_ask.h - which neighbours and threshold a secure aggregation needs: a question as a text,
 * the answer as JSON.
 */
#ifndef DUNLIN_SERVER_SECAGG_ASK_H
#define DUNLIN_SERVER_SECAGG_ASK_H

#include <dunlin/base.h>

/**
 * Answers "devices=100:1000,corrupt=0.05,dropout=0.3": a row for each number of devices; with
 * neighbours=K,threshold=T what that set-up holds. sdk/SECAGG.md has the keys.
 *
 * @return OK: *out_text is to be given to free(); ARGUMENT names the part that cannot be read, or
 * the number and what it may be; MEMORY. On failure *out_text is NULL.
 */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_answer(const char *question, char **out_text,
                                                     dunlin_error *error);

#endif
