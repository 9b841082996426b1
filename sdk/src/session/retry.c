/*
 * retry.c - how long a client waits after failures, which grows with each failure in a row.
 */
#include "retry.h"

#include "session.h"

#define SOON_DOUBLINGS 2 /* 1, 2, 4, 4 ... while the row of failures is young */
#define DOUBLINGS_MOST 40

/* `first` doubled so many times, at most `most`. */
static int64_t rung(int64_t first_ms, int64_t most_ms, int32_t n_doublings)
{
    int64_t delay_ms = first_ms;
    for (int32_t i = 0; i < n_doublings && delay_ms < most_ms; i++) {
        delay_ms *= 2;
    }
    return delay_ms < most_ms ? delay_ms : most_ms;
}

/* The first and the last wait, with a default for what is 0; the last is not below the first. */
static void ends(int64_t first_ms, int64_t most_ms, int64_t default_first_ms,
                 int64_t default_most_ms, int64_t *out_first_ms, int64_t *out_most_ms)
{
    *out_first_ms = first_ms > 0 ? first_ms : default_first_ms;
    *out_most_ms = most_ms > 0 ? most_ms : default_most_ms;
    if (first_ms > 0 && most_ms <= 0 && *out_most_ms < *out_first_ms) {
        *out_most_ms = *out_first_ms;
    }
}

static void wait_for(dunlin__journal *journal, const dunlin__moment *now, int64_t delay_ms,
                     uint64_t random, int64_t retry_after_ms)
{
    journal->wait_from = *now;
    journal->wait_ms = dunlin__retry_asked(dunlin__retry_jitter(delay_ms, random), retry_after_ms);
}

int64_t dunlin__retry_jitter(int64_t delay_ms, uint64_t random)
{
    if (delay_ms < 1) {
        return 0;
    }
    return delay_ms - delay_ms / 2 + (int64_t)(random % (uint64_t)(delay_ms + 1));
}

int64_t dunlin__retry_asked(int64_t delay_ms, int64_t retry_after_ms)
{
    if (retry_after_ms < 1) {
        return delay_ms;
    }
    return retry_after_ms > DUNLIN_RETRY_LEAST_MS ? retry_after_ms : DUNLIN_RETRY_LEAST_MS;
}

void dunlin__retry_unreachable(dunlin__journal *journal, const dunlin__retry *retry,
                               const dunlin__moment *now, uint64_t random, int64_t retry_after_ms)
{
    int64_t first_ms = 0;
    int64_t most_ms = 0;
    ends(retry->first_ms, retry->most_ms, DUNLIN_RETRY_FIRST_MS, DUNLIN_RETRY_MOST_MS, &first_ms,
         &most_ms);
    if (journal->n_failures == 0) {
        journal->failing_since = *now;
    }
    bool is_young = dunlin__wait_left_ms(&journal->failing_since, DUNLIN_RETRY_SOON_MS, now) > 0;
    int32_t most_doublings = is_young ? SOON_DOUBLINGS : DOUBLINGS_MOST;
    int32_t n_doublings =
        journal->n_failures < most_doublings ? journal->n_failures : most_doublings;
    journal->n_failures = n_doublings + 1;
    wait_for(journal, now, rung(first_ms, most_ms, n_doublings), random, retry_after_ms);
}

void dunlin__retry_refused(dunlin__journal *journal, const dunlin__retry *retry, dunlin_phase phase,
                           const dunlin__moment *now, uint64_t random, int64_t retry_after_ms)
{
    int64_t first_ms = 0;
    int64_t most_ms = 0;
    ends(retry->refused_first_ms, retry->refused_most_ms, DUNLIN_RETRY_REFUSED_FIRST_MS,
         DUNLIN_RETRY_REFUSED_MOST_MS, &first_ms, &most_ms);
    wait_for(journal, now, rung(first_ms, most_ms, journal->n_refusals), random, retry_after_ms);
    journal->n_refusals += journal->n_refusals < DOUBLINGS_MOST ? 1 : 0;
    if (phase > journal->refused_phase) {
        journal->refused_phase = phase;
    }
}

void dunlin__retry_succeeded(dunlin__journal *journal, dunlin_phase phase)
{
    journal->n_failures = 0;
    if (phase >= journal->refused_phase) {
        journal->n_refusals = 0;
        journal->refused_phase = DUNLIN_PHASE_IDLE;
    }
}
