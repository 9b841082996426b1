/*
 * round_examples.c - a round and the app's example store: which examples are offered, chosen, still
 * present, released.
 *
 * Invariant: a round of which an example was removed never begins another piece of work; for a
 * client without a store none of this has an effect.
 */
#include "round_examples.h"

#include "client_context.h"
#include "examples/examples.h"

dunlin_v1_decline_reason_t dunlin__round_judge_examples(dunlin_client *client, const char *task,
                                                        uint64_t min_examples)
{
    dunlin_examples *examples = client->options.examples;
    bool is_allowed = true;
    int64_t n = 0;
    if (examples == NULL) {
        return DUNLIN_V1_DECLINE_REASON_NONE;
    }
    dunlin_error error = {0};
    dunlin_status status = dunlin__examples_offer(examples, task, &is_allowed, &n, &error);
    if (status != DUNLIN_OK) {
        dunlin__log(&client->runtime->log, DUNLIN_LOG_WARNING, "client",
                    "the example store cannot be asked: %s; the offer is declined",
                    dunlin_status_text(status));
        return DUNLIN_V1_DECLINE_REASON_DATA;
    }
    if (!is_allowed) {
        return DUNLIN_V1_DECLINE_REASON_APPLICATION;
    }
    return n < 1 || (uint64_t)n < min_examples ? DUNLIN_V1_DECLINE_REASON_DATA
                                               : DUNLIN_V1_DECLINE_REASON_NONE;
}

dunlin_status dunlin__round_choose_examples(dunlin_client *client, dunlin_task *task)
{
    if (client->options.examples == NULL) {
        return DUNLIN_OK;
    }
    dunlin__examples_parts parts = {0};
    DUNLIN_TRY(dunlin__examples_choose(client->options.examples, client->name,
                                       client->round->assignment.assignment_id, task->name,
                                       task->max_examples, &parts, &client->error));
    task->n_chosen = parts.n_chosen;
    task->n_held_out = parts.n_held_out;
    return DUNLIN_OK;
}

dunlin_status dunlin__round_look_at_examples(dunlin_client *client, bool *out_is_withdrawn)
{
    dunlin_examples *examples = client->options.examples;
    dunlin_phase phase = client->session.phase;
    *out_is_withdrawn = false;
    if (examples == NULL || client->round == NULL || phase < DUNLIN_PHASE_LEARN ||
        phase > DUNLIN_PHASE_COMMIT) {
        return DUNLIN_OK;
    }
    client->round->n_changes_seen = atomic_load(&examples->n_changes);
    dunlin__examples_state state = DUNLIN_EXAMPLES_NONE;
    DUNLIN_TRY(dunlin__examples_look(
        examples, client->name, client->round->assignment.assignment_id, &state, &client->error));
    /* Nothing chosen is right until learning has begun; after that the store was replaced. */
    bool is_begun = phase > DUNLIN_PHASE_LEARN || client->journal.n_examples != 0;
    *out_is_withdrawn =
        state == DUNLIN_EXAMPLES_BROKEN || (state == DUNLIN_EXAMPLES_NONE && is_begun);
    return DUNLIN_OK;
}

bool dunlin__round_has_lost_examples(const dunlin_client *client)
{
    dunlin_examples *examples = client->options.examples;
    dunlin__examples_state state = DUNLIN_EXAMPLES_WHOLE;
    if (examples == NULL || client->round == NULL || client->session.phase < DUNLIN_PHASE_LEARN ||
        atomic_load(&examples->n_changes) == client->round->n_changes_seen) {
        return false;
    }
    return dunlin__examples_look(examples, client->name, client->round->assignment.assignment_id,
                                 &state, NULL) == DUNLIN_OK &&
           state == DUNLIN_EXAMPLES_BROKEN;
}

dunlin_status dunlin__round_cause(const dunlin_client *client, dunlin_status status)
{
    if (client->options.examples == NULL || status != DUNLIN_CALLBACK) {
        return status;
    }
    dunlin_status cause = (dunlin_status)atomic_load(&client->options.examples->read_status);
    return cause != DUNLIN_OK ? cause : status;
}

void dunlin__round_release_examples(dunlin_client *client)
{
    dunlin_error error = {0};
    if (client->options.examples == NULL) {
        return;
    }
    dunlin_status status = dunlin__examples_release(client->options.examples, client->name, &error);
    if (status != DUNLIN_OK) {
        dunlin__log(&client->runtime->log, DUNLIN_LOG_WARNING, "client",
                    "what the round held of the example store goes with the next one: %s",
                    dunlin_status_text(status));
    }
}
