/*
 * engine.h - a run in memory: what its parts share.
 *
 * Each round has three phases, on the engine's threads: clients are trained and their updates
 * summed up as they come; the next base is made range by range; the test set judges it. What each
 * phase computes does not depend on which thread, or which rank, does what.
 */
#ifndef SAMPLES_MEMORY_ENGINE_H
#define SAMPLES_MEMORY_ENGINE_H

#include "direct.h"
#include "memory.h"
#include "ranks.h"

#include <memory/memory_rounds.h>
#include <pthread.h>
#include <stdatomic.h>

#define ENGINE_GROUP 8    /* updates of a thread that are summed up together */
#define ENGINE_STRIPES 64 /* parts of the sums with a lock each */

/* Seconds of all threads of a rank together. */
typedef struct engine_times {
    double training;   /* the learner: load, fit, evaluate */
    double update;     /* the stages of updates */
    double fold;       /* norms, sums, the next base */
    double evaluation; /* by the test set */
    double wall;       /* of the whole run, times threads */
} engine_times;

struct engine;

/* An update that waits to be summed up. */
typedef struct engine_update {
    uint32_t client_index;
    dunlin__commit_request commit;
    float *values; /* one of the thread's; of robust strategies its own */
} engine_update;

typedef struct engine_thread {
    struct engine *engine;
    int32_t index;
    direct *client;
    float *values; /* ENGINE_GROUP updates */
    engine_update group[ENGINE_GROUP];
    int32_t n_group;
    dunlin__aggregate_room room;
    engine_times times;
    dunlin_status status; /* of a phase */
    dunlin_error error;
} engine_thread;

typedef struct engine {
    const fleet_flags *flags;
    const fleet_world *world;
    ranks *ranks;
    dunlin__memory rounds;
    direct_table table;
    uint64_t n_update; /* values of an update */
    int64_t n_asked;   /* clients of the open round, dearest first in `order` */
    uint32_t *order;
    engine_thread *threads;
    int32_t n_threads;

    dunlin__sums sums;
    bool keeps_updates; /* a robust strategy looks at all of them at once */
    pthread_mutex_t stripes[ENGINE_STRIPES];
    pthread_mutex_t lock; /* over the next ones */
    dunlin__memory_work *works;
    float **kept; /* of each work: its update, where they are kept */
    size_t n_works;
    int64_t n_dropped;
    dunlin_status fold_status; /* what the updates of the round cannot be summed for... */
    dunlin_error fold_error;   /* ...as it was told */
    uint64_t peak_bytes;
    fleet_totals totals;
    atomic_bool is_stopped; /* by a signal, or a failure */

    atomic_llong next_range;
    dunlin__memory_fold fold;
    dunlin__aggregate_input *inputs;
    uint64_t *peaks; /* by round */
    engine_times times;
} engine;

/* ---- engine.c ---- */

/* Opens the task in `task_file` and makes all that rounds need. EXIT_OK, or the line has been
 * printed; close either way. */
int engine_open(engine *all, const fleet_flags *flags, const fleet_world *world, ranks *processes,
                const char *task_file);
void engine_close(engine *all);

/* One round, from its cohort to its close; EXIT_OK, or the line has been printed. One that a signal
 * ends is not closed. */
int engine_round(engine *all);

/* Runs a phase on all threads; the first failure of any. */
dunlin_status engine_phase(engine *all, void (*phase_fn)(engine_thread *thread),
                           dunlin_error *out_error);

/* ---- train.c: a phase ---- */

/* Trains clients of the round's queue, and sums up their updates. */
void engine_train(engine_thread *thread);
/* Takes out of the sums what was summed up with another scale, and adds it anew. */
dunlin_status engine_train_again(engine *all, dunlin_error *error);

/* ---- fold.c ---- */

/* Sums up a thread's group, and empties it. */
dunlin_status engine_fold_group(engine_thread *thread, dunlin_error *error);
/* One update more in the sums, or (`is_taken_away`) less, of a weight and a scale. */
dunlin_status engine_fold_one(engine *all, const float *values, const dunlin__memory_work *work,
                              bool is_taken_away, dunlin_error *error);
/* A phase: ranges of the next base. */
void engine_make_base(engine_thread *thread);

/* ---- judge.c ---- */

/* The next base, or the one that stays, on the test set, if the round is judged: a part on each
 * rank, the same figures on all of them. */
void engine_judge(engine *all, bool is_aggregated, dunlin__memory_end *end);

/* ---- report.c ---- */

void engine_print_round(const engine *all);
/* All ranks' times and failures, on all of them; what the whole run took. */
void engine_sum_times(engine *all, double wall_s);
json_t *engine_result(engine *all, bool is_interrupted);

#endif
