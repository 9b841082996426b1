/*
 * round_examples.h - a round and the app's example store; for a client without a store these
 * functions do nothing.
 */
#ifndef DUNLIN_SDK_ROUND_EXAMPLES_H
#define DUNLIN_SDK_ROUND_EXAMPLES_H

#include "client_context.h"

/* Does the store have for the task what an offer asks for? */
dunlin_v1_decline_reason_t dunlin__round_judge_examples(dunlin_client *client, const char *task,
                                                        uint64_t min_examples);
/* Fixes what the round trains on, or finds it again; fills its n_chosen and n_held_out. */
dunlin_status dunlin__round_choose_examples(dunlin_client *client, dunlin_task *task);
/* Between two pieces of work: has an example of the round been removed? */
dunlin_status dunlin__round_look_at_examples(dunlin_client *client, bool *out_is_withdrawn);
/* The same within a transfer, called often: only removals since the last look. Any thread. */
bool dunlin__round_has_lost_examples(const dunlin_client *client);
/* The learner's CALLBACK, or what the store said when it was read for the learner. */
dunlin_status dunlin__round_cause(const dunlin_client *client, dunlin_status status);
/* The round is over. A failure is logged; the next round does it then. */
void dunlin__round_release_examples(dunlin_client *client);

#endif
