/*
 * examples.h - the internal parts of the example store, and what a client's round asks of it.
 *
 * Invariant, kept by the database's own triggers: the totals are those of the examples that are not
 * held, and a choice whose example was deleted is broken, both from the transaction that did it.
 */
#ifndef DUNLIN_SDK_EXAMPLES_H
#define DUNLIN_SDK_EXAMPLES_H

#include "store/database.h"

#include <dunlin/examples.h>
#include <mem/support.h>

#include <pthread.h>
#include <stdatomic.h>

/* The statements, in the order of their texts in examples.c. */
typedef enum dunlin__examples_sql {
    DUNLIN_EXAMPLES_ADD,
    DUNLIN_EXAMPLES_TO_PRESENT,
    DUNLIN_EXAMPLES_EXPIRE,
    DUNLIN_EXAMPLES_TOTALS,
    DUNLIN_EXAMPLES_OLDEST,
    DUNLIN_EXAMPLES_HOLD,
    DUNLIN_EXAMPLES_DELETE,
    DUNLIN_EXAMPLES_CLEAR,
    DUNLIN_EXAMPLES_IS_THERE,
    DUNLIN_EXAMPLES_CANDIDATES,
    DUNLIN_EXAMPLES_COUNT,
    DUNLIN_EXAMPLES_ADD_CHOSEN,
    DUNLIN_EXAMPLES_ADD_CHOICE,
    DUNLIN_EXAMPLES_CHOICE,
    DUNLIN_EXAMPLES_DROP_CHOSEN,
    DUNLIN_EXAMPLES_DROP_CHOICE,
    DUNLIN_EXAMPLES_DROP_HELD,
    DUNLIN_EXAMPLES_READ,
    DUNLIN_EXAMPLES_STATS,
    DUNLIN_EXAMPLES_N_SQL
} dunlin__examples_sql;

/* A rule of the app's, with texts of our own. */
typedef struct dunlin__examples_rule {
    char *task;
    char *collection;
    int64_t max_examples;
    int64_t max_age_ms;
    int32_t hold_out_percent;
} dunlin__examples_rule;

struct dunlin_examples {
    dunlin_alloc alloc;
    pthread_mutex_t lock;
    dunlin__database database;
    sqlite3_stmt *statements[DUNLIN_EXAMPLES_N_SQL];
    int64_t max_examples;
    int64_t max_bytes;
    int64_t max_age_ms; /* 0: none */
    dunlin__examples_rule *rules;
    int32_t n_rules;
    int64_t (*wall_ms_fn)(void *ctx);
    void *wall_ctx;
    atomic_uint n_changes;  /* deletions by this handle: a round looks again when it has grown */
    atomic_int read_status; /* of the last read that failed, since the last choice */
    int32_t n_users;        /* clients and feeds; under the lock, like the next */
    bool is_leaving;        /* closed by the app; goes with the last of them */
};

/* --- examples.c; the lock must be held --- */

/* A step of a statement whose values are bound; with *out_has_row it must be reset by
 * dunlin__examples_leave(), which also frees the values. */
DUNLIN_NODISCARD dunlin_status dunlin__examples_step(dunlin_examples *examples,
                                                     dunlin__examples_sql which, bool *out_has_row,
                                                     dunlin_error *error);
void dunlin__examples_leave(dunlin_examples *examples, dunlin__examples_sql which);
/* A statement that gives no row, from its bound values to its reset. */
DUNLIN_NODISCARD dunlin_status dunlin__examples_do(dunlin_examples *examples,
                                                   dunlin__examples_sql which, dunlin_error *error);
sqlite3_stmt *dunlin__examples_bind(dunlin_examples *examples, dunlin__examples_sql which,
                                    const char *text, int64_t number);

/* Takes the lock and begins a transaction that writes; not taken if it fails. */
DUNLIN_NODISCARD dunlin_status dunlin__examples_begin(dunlin_examples *examples,
                                                      dunlin_error *error);
/* Commits, or takes all back if `status` is a failure, and releases the lock. */
dunlin_status dunlin__examples_end(dunlin_examples *examples, dunlin_status status,
                                   dunlin_error *error);

/* Within a transaction: what is too old goes. */
DUNLIN_NODISCARD dunlin_status dunlin__examples_expire(dunlin_examples *examples,
                                                       dunlin_error *error);

/* A client or a feed begins to use the store, and ends: one that the app has closed goes with the
 * last of them. */
void dunlin__examples_hold(dunlin_examples *examples);
void dunlin__examples_let_go(dunlin_examples *examples);

/* --- examples_round.c: for the client --- */

/* What a round has: examples to train on, followed by those held out to evaluate on. */
typedef struct dunlin__examples_parts {
    int64_t n_chosen;
    int64_t n_held_out;
} dunlin__examples_parts;

/* May the task be given anything, and how many would there be now to train on? */
DUNLIN_NODISCARD dunlin_status dunlin__examples_offer(dunlin_examples *examples, const char *task,
                                                      bool *out_is_allowed, int64_t *out_n,
                                                      dunlin_error *error);

/* Chooses for the client's assignment, unless that was done already; max_examples, of both parts
 * together, 0: no limit. DATA if there is none or one has gone since; REJECTED if no rule allows
 * the task. */
DUNLIN_NODISCARD dunlin_status dunlin__examples_choose(dunlin_examples *examples,
                                                       const char *client, const char *assignment,
                                                       const char *task, int64_t max_examples,
                                                       dunlin__examples_parts *out_parts,
                                                       dunlin_error *error);

typedef enum dunlin__examples_state {
    DUNLIN_EXAMPLES_NONE = 0, /* nothing was chosen for the assignment, or the store was replaced */
    DUNLIN_EXAMPLES_WHOLE,
    DUNLIN_EXAMPLES_BROKEN /* one was removed */
} dunlin__examples_state;
DUNLIN_NODISCARD dunlin_status dunlin__examples_look(dunlin_examples *examples, const char *client,
                                                     const char *assignment,
                                                     dunlin__examples_state *out_state,
                                                     dunlin_error *error);

/* The client's round is over: what was held for it goes. */
DUNLIN_NODISCARD dunlin_status dunlin__examples_release(dunlin_examples *examples,
                                                        const char *client, dunlin_error *error);

#endif
