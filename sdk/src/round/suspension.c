/*
 * suspension.c - a round that waits while the conditions of its device do not hold.
 *
 * Invariant: it ends a round only when they have not held for the grace period.
 */
#include "suspension.h"

#include "checkpoint.h"
#include "context/client_context.h"
#include "context/conditions.h"
#include "session/session.h"

#include <assert.h>

#define GRACE_MS 30000

static int64_t grace_ms(const dunlin_client *client)
{
    const int64_t given = client->options.conditions_grace_ms;
    return given == 0 ? GRACE_MS : given < 0 ? 0 : given;
}

int64_t dunlin__round_suspended_ms(const dunlin_client *client, int64_t now_ms)
{
    const dunlin__round *round = client->round;
    assert(round->suspended_ms >= 0);
    return round->suspended_ms +
           (round->is_suspended ? dunlin__ms_passed(round->suspended_at_ms, now_ms) : 0);
}

bool dunlin__round_is_suspended(dunlin_client *client, int64_t now_ms, dunlin__event *out_event)
{
    dunlin__round *round = client->round;
    const dunlin_phase phase = client->session.phase;
    const dunlin_conditions conditions = dunlin__client_conditions(client);
    if (phase < DUNLIN_PHASE_FETCH || phase > DUNLIN_PHASE_UPLOAD ||
        dunlin__client_is_eligible(client, &conditions)) {
        const int64_t passed_ms =
            round->is_suspended ? dunlin__ms_passed(round->suspended_at_ms, now_ms) : 0;
        round->suspended_ms += passed_ms;
        round->phase_began_ms += passed_ms; /* a phase's own limit is of time to work */
        round->is_suspended = false;
        return false;
    }
    if (!round->is_suspended) {
        round->is_suspended = true;
        round->suspended_at_ms = now_ms;
        dunlin__round_keep_training(client);
    }
    const int64_t left_ms = grace_ms(client) - dunlin__ms_passed(round->suspended_at_ms, now_ms);
    out_event->kind = left_ms > 0 ? DUNLIN_EVENT_UNFIT : DUNLIN_EVENT_INELIGIBLE;
    out_event->retry_after_ms = left_ms;
    return true;
}
