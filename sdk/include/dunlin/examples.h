/*
 * examples.h - a store for the examples that an app gathers to learn from, with labels and times,
 * in a private SQLite database, with limits. The user can have each of them removed.
 *
 * What a round trains on is chosen once, when its learning begins, by the server's task within what
 * the app's rules allow, and stays the same until the round ends, across kills. Removing an example
 * before the commit ends its round: a client made with `options.examples` gives such a round up
 * with outcome WITHDRAWN, and nothing learnt from the example counts. (A commit that is on its way
 * already may count.)
 *
 * All calls may come from any thread, also while rounds read. Several handles, also of several
 * processes, may have one store open; then a removal by another handle is seen before the next
 * piece of a round's work. Statuses as the journal's: SPACE, LOCKED (later), IO, DATA (damaged),
 * VERSION (a newer schema); nothing is reset or half-written.
 *
 * Example: a store that lets the task "digits" train on the newest thousand drawings.
 *
 * @code
 * static const unsigned char drawing[784] = {0};
 * dunlin_examples_rule rule = DUNLIN_EXAMPLES_RULE_INIT;
 * dunlin_examples_options options = DUNLIN_EXAMPLES_OPTIONS_INIT;
 * dunlin_examples_stats stats = DUNLIN_EXAMPLES_STATS_INIT;
 * dunlin_example example = {.data = drawing, .n_bytes = sizeof drawing, .label = 7};
 * dunlin_examples *examples = NULL;
 * dunlin_error error;
 * rule.task = "digits";
 * rule.max_examples = 1000;
 * options.folder = "federation";
 * options.rules = &rule;
 * options.n_rules = 1;
 * if (dunlin_examples_open(&options, &examples, &error) != DUNLIN_OK ||
 *     dunlin_examples_add(examples, &example, 1, NULL, &error) != DUNLIN_OK ||
 *     dunlin_examples_get_stats(examples, &stats, &error) != DUNLIN_OK) {
 *     printf("%s\n", error.text);
 * }
 * printf("%lld examples\n", (long long)stats.n_examples);
 * dunlin_examples_close(examples);
 * @endcode
 */
#ifndef DUNLIN_EXAMPLES_H
#define DUNLIN_EXAMPLES_H

#include <dunlin/alloc.h>
#include <dunlin/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The most bytes of one example, and characters of a collection's or a task's name. */
#define DUNLIN_EXAMPLE_MAX_BYTES (16 << 20)
#define DUNLIN_EXAMPLE_NAME_CHARS 128

typedef struct dunlin_examples dunlin_examples;

/** An example as it is added. Frozen: it never gets another member. */
typedef struct dunlin_example {
    const char *collection; /* a name of the app's own choice for what belongs together; NULL: "" */
    const void *data;       /* as the learner takes it; 1 byte or more */
    size_t n_bytes;
    int32_t label;
    int64_t time_ms; /* when it was made, wall clock, ms since 1970; 0, or in the future: now */
} dunlin_example;

/** What the app lets a task of the server train on: of one collection, so many, not older. */
typedef struct dunlin_examples_rule {
    size_t struct_size;
    const char *task;       /* the task's name; NULL: every task that no other rule names */
    const char *collection; /* NULL: all */
    int64_t max_examples;   /* the newest; 0: no limit beside the task's own */
    int64_t max_age_ms;     /* when they are chosen; 0: any */
    /* Percent of the examples, 0 to 50, that are only evaluated on: before and after a training,
     * and in rounds that evaluate. Which ones follows from their ids alone, so an example is on the
     * same side in every round. A round needs one at least on each side, else it is declined. */
    int32_t hold_out_percent;
} dunlin_examples_rule;
#define DUNLIN_EXAMPLES_RULE_INIT DUNLIN_SIZED_INIT(dunlin_examples_rule)

typedef struct dunlin_examples_options {
    size_t struct_size;
    const char *folder;   /* of examples.db; made if missing, 0700; may be the runtime's */
    int64_t max_examples; /* 0: 100,000 */
    uint64_t max_bytes;   /* of data; 0: 256 MiB */
    int64_t max_age_ms;   /* 0: no limit */
    /* Copied; all of one struct_size. A task that no rule names is declined; without rules every
     * task is. */
    const dunlin_examples_rule *rules;
    int32_t n_rules;
    dunlin_alloc alloc; /* zeroed: the C library's; called from every thread that uses the store */
    int64_t (*wall_ms_fn)(void *ctx); /* NULL: the system's clock */
    void *wall_ctx;
} dunlin_examples_options;
#define DUNLIN_EXAMPLES_OPTIONS_INIT DUNLIN_SIZED_INIT(dunlin_examples_options)

/**
 * Opens or makes the store, and removes what has become too old.
 *
 * @return OK; ARGUMENT names the option or the rule; VERSION if one sets what the library does not
 * know, or the store has a newer schema, which is left as it is; IO, SPACE, LOCKED, DATA (damaged);
 * MEMORY. After a failure *out_examples is NULL.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_examples_open(const dunlin_examples_options *options, dunlin_examples **out_examples,
                     dunlin_error *out_error);
/** While clients and feeds are made with it, it stays open for them and goes with the last; calls
 * of the app end here. NULL is fine. */
DUNLIN_API void dunlin_examples_close(dunlin_examples *examples);

/**
 * Adds n examples, all or none; they are on the storage when the call returns. `out_ids` (n, may be
 * NULL) are never given again. Where a limit is passed, the oldest go; those that a round trains on
 * are out of reach of the app and of later rounds at once, but are held until that round ends.
 * LIMIT if an example is too large, or older than what the limits leave.
 *
 * @return OK; LIMIT as above; ARGUMENT if an example has no data, a time below 0 or a collection
 * with too long a name; IO, SPACE, LOCKED, DATA. After a failure none is added and out_ids is as it
 * was.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_examples_add(dunlin_examples *examples,
                                                              const dunlin_example *list, int64_t n,
                                                              int64_t *out_ids,
                                                              dunlin_error *out_error);

/**
 * Removes examples, all or none, their bytes overwritten; rounds that train on one are given up.
 * An id that is not there (any more) is no failure.
 *
 * @return OK; ARGUMENT without a store or ids; IO, SPACE, LOCKED, DATA. After a failure none is
 * removed.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_examples_remove(dunlin_examples *examples,
                                                                 const int64_t *ids, int64_t n,
                                                                 dunlin_error *out_error);

/**
 * The same for a whole collection; NULL: for everything, and the file shrinks.
 * dunlin_client_forget() does the latter with the client's store.
 *
 * @return as dunlin_examples_remove().
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_examples_clear(dunlin_examples *examples,
                                                                const char *collection,
                                                                dunlin_error *out_error);

/**
 * Removes what has become too old, also from rounds (which are then given up). Opening, adding and
 * choosing do so too; for apps that rarely do.
 *
 * @return as dunlin_examples_remove().
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_examples_trim(dunlin_examples *examples,
                                                               dunlin_error *out_error);

typedef struct dunlin_examples_stats {
    size_t struct_size;
    int64_t n_examples;
    uint64_t data_bytes; /* of them */
    int64_t n_held;      /* gone, but for a round that trains on them */
    uint64_t file_bytes; /* of the database, its log left out */
} dunlin_examples_stats;
#define DUNLIN_EXAMPLES_STATS_INIT DUNLIN_SIZED_INIT(dunlin_examples_stats)

/**
 * Counts what there is now.
 *
 * @return OK; ARGUMENT without a store, or with stats that were not started from their INIT; IO,
 * LOCKED, DATA: then the figures are zero.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_examples_get_stats(
    dunlin_examples *examples, dunlin_examples_stats *out_stats, dunlin_error *out_error);

/** Where an example is read to. Frozen: it never gets another member. */
typedef struct dunlin_example_buffer {
    void *data;
    size_t capacity;
    size_t n_bytes; /* filled: what the example has */
    int32_t label;  /* filled */
} dunlin_example_buffer;

/**
 * For learners of an app's own: example `position`, 0 to task.n_chosen - 1 (0 is the newest), of
 * what the round of the client named `client` (NULL: "default") trains on; after them the
 * task.n_held_out that it evaluates on. LIMIT, with the buffer
 * full, if it has more bytes than there is room for. DATA if there is no such example, or no
 * longer.
 *
 * @return OK; LIMIT, DATA as above; ARGUMENT without a store or a place for the data; IO, LOCKED,
 * MEMORY. After a failure other than LIMIT, n_bytes and label of the buffer are 0.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_examples_read(dunlin_examples *examples,
                                                               const char *client, int64_t position,
                                                               dunlin_example_buffer *buffer,
                                                               dunlin_error *out_error);

#ifdef __cplusplus
}
#endif

#endif
