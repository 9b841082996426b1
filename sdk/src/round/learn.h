/*
 * learn.h - a round's work with the learner.
 */
#ifndef DUNLIN_SDK_LEARN_H
#define DUNLIN_SDK_LEARN_H

#include "context/client_context.h"

/* One slice of the learner's work. *out_event is filled when there is one: BUSY, or LEARNED once
 * the update is written. */
dunlin_status dunlin__learner_work(dunlin_client *client, int64_t max_ms, dunlin__event *out_event,
                                   bool *out_has_event, dunlin__fault *out_fault);
/* Unloads what is loaded. */
void dunlin__learner_drop(dunlin_client *client);

#endif
