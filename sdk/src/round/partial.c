/*
 * partial.c - part of a round's training: when it is to end, and what it counts for.
 *
 * Invariant: the journal has the examples of the whole training until its end, since a round that
 * is resumed goes on with them.
 */
#include "partial.h"

#include "context/runtime.h"
#include "session/session.h"

/* Of the deadline, from the receipt of the assignment on. */
static int64_t share_ms(const dunlin_client *client)
{
    const dunlin__round *round = client->round;
    const double share = (double)round->assignment.plan.partial_share;
    if (!(share > 0.0) || client->session.is_evaluation) {
        return 0;
    }
    const double ms = share * (double)dunlin__round_deadline_ms(client);
    return ms > 1.0 ? (int64_t)ms : 1;
}

/* What is left of it, at least 0. */
static int64_t left_ms(const dunlin_client *client, int64_t of_ms)
{
    const dunlin__moment now = dunlin__runtime_now(client->runtime);
    return dunlin__wait_left_ms(&client->journal.begun, of_ms, &now);
}

int64_t dunlin__partial_left_ms(const dunlin_client *client)
{
    const int64_t of_ms = share_ms(client);
    if (of_ms == 0) {
        return 0;
    }
    const int64_t ms = left_ms(client, of_ms);
    return ms > 1 ? ms : 1;
}

bool dunlin__partial_is_over(const dunlin_client *client, const dunlin_learner_report *report)
{
    const int64_t of_ms = share_ms(client);
    return of_ms > 0 && report->done_share > 0.0 && report->n_examples > 0 &&
           left_ms(client, of_ms) == 0;
}

void dunlin__partial_weigh(dunlin_client *client)
{
    const double share = client->round->done_share;
    if (!(share > 0.0 && share < 1.0)) {
        return;
    }
    const double n = share * (double)client->journal.n_examples;
    client->journal.n_examples = n > 1.0 ? (int64_t)n : 1;
}
