/*
 * round.h - the driver of a round.
 */
#ifndef DUNLIN_SDK_ROUND_H
#define DUNLIN_SDK_ROUND_H

#include "context/client_context.h"

/* Performs the current action or a bounded part of it. *out_is_ended with the report filled when
 * the round is over. */
dunlin_status dunlin__round_advance(dunlin_client *client, int64_t max_ms, int64_t *out_wait_ms,
                                    bool *out_is_ended, dunlin_round_report *out_report);

/* Ends what a round holds: the learner's load, open files; with `remove_files` the files too. */
void dunlin__round_free(dunlin_client *client, bool remove_files);

#endif
