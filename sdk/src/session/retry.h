/*
 * retry.h - how long a client waits after a failure. Waits grow with the number of failures in a
 * row, which the journal holds.
 *
 * Pure functions, as in the session: the time and a random number are arguments. There are two
 * sequences of waits: for failures that may pass by themselves (a server that cannot be reached),
 * and for those that would happen again (a refusal, a training that failed). A wait is drawn at
 * random between 0.5 and 1.5 times its nominal length, so that devices that failed together do not
 * come back together; a wait that the server names is taken as it is.
 */
#ifndef DUNLIN_SDK_RETRY_H
#define DUNLIN_SDK_RETRY_H

#include "journal.h"

/* The sequences of waits; 0: the default below. */
typedef struct dunlin__retry {
    int64_t first_ms;         /* unreachable: 1, 2, 4, 4 ... times this for the first ten minutes */
    int64_t most_ms;          /* then doubled each time, up to this */
    int64_t refused_first_ms; /* refused: doubled each time, from this... */
    int64_t refused_most_ms;  /* ...to this */
} dunlin__retry;

#define DUNLIN_RETRY_FIRST_MS 1000LL
#define DUNLIN_RETRY_MOST_MS (15LL * 60 * 1000)
#define DUNLIN_RETRY_REFUSED_FIRST_MS 10000LL
#define DUNLIN_RETRY_REFUSED_MOST_MS (4LL * 3600 * 1000)
/* Counted from the first failure of a row: so long the waits stay short. */
#define DUNLIN_RETRY_SOON_MS (10LL * 60 * 1000)
/* A wait of the server's that is shorter than this is no wait. */
#define DUNLIN_RETRY_LEAST_MS 250LL

/* A delay times 0.5 to 1.5. */
int64_t dunlin__retry_jitter(int64_t delay_ms, uint64_t random);

/* What the server asks for (-1: nothing) instead of `delay_ms`, whichever is longer. */
int64_t dunlin__retry_asked(int64_t delay_ms, int64_t retry_after_ms);

/* Notes a failure that may pass, and sets the journal's wait from `now` on. */
void dunlin__retry_unreachable(dunlin__journal *journal, const dunlin__retry *retry,
                               const dunlin__moment *now, uint64_t random, int64_t retry_after_ms);

/* Notes a failure that would come again, in `phase`, and sets the journal's wait. */
void dunlin__retry_refused(dunlin__journal *journal, const dunlin__retry *retry, dunlin_phase phase,
                           const dunlin__moment *now, uint64_t random, int64_t retry_after_ms);

/* What a phase had to do is done: failures to reach the server are over, and so are the refusals of
 * this phase and of those before it. */
void dunlin__retry_succeeded(dunlin__journal *journal, dunlin_phase phase);

#endif
