/*
 * memory_rounds.h - the rounds of a task in memory: for simulators that hold server and clients in
 * one process.
 *
 * Who is asked, what each is to do, what the updates become, who judges the model and when the run
 * ends is decided by the code of the server that listens. What that does for a network and for
 * kills is left out: objects and their hashes, signatures, the files of updates on their way, the
 * database.
 *
 * A round: begin, then for each client that is asked an assignment and, when its work is done, a
 * contribution; settle, when all of them are there; close. But for dunlin__memory_assign(),
 * dunlin__memory_measure() and dunlin__memory_make_range(), which any number of threads may call
 * between begin and close, calls come one at a time.
 */
#ifndef DUNLIN_SERVER_MEMORY_ROUNDS_H
#define DUNLIN_SERVER_MEMORY_ROUNDS_H

#include "model/aggregate.h"
#include "rounds/guard.h"
#include "state/context.h"

/* What is kept from a round for the next ones. Zero-initialise. */
typedef struct dunlin__memory {
    dunlin__server server;    /* without a folder, a database, a lock, devices */
    float *base;              /* of the open round: layout.n_values */
    float *next;              /* as many */
    dunlin__moments *moments; /* of a strategy: layout.n_averaged_values; NULL: it has none */
    dunlin__moments *next_moments;
    uint32_t *asked; /* the clients of the open round, ascending */
    uint32_t n_asked;
    dunlin__norms recent[DUNLIN_GUARD_ROUNDS]; /* of the last rounds whose models stayed */
    size_t n_recent;                           /* rounds that were put there in all */
    dunlin__norms history;                     /* all of them, ascending */
    bool is_guarded;                           /* the open round's updates have a bound... */
    double bound;                              /* ...this one; 0: not known yet, or none */
} dunlin__memory;

/* The work of one client, for the round's row and for its sums. */
typedef struct dunlin__memory_work {
    dunlin__contribution_row row; /* its norm: negative if none was taken */
    double scale;                 /* of its update: 1, or what brings it to the bound */
    bool is_again; /* its update was summed up unscaled, before the bound was known */
    int32_t rank;  /* of the process that did it; for its program */
} dunlin__memory_work;

/* Where the sums of a round's updates are, or the updates themselves. */
typedef struct dunlin__memory_fold {
    const dunlin__sums *sums; /* of all updates as they are sent, whole; NULL: `inputs` has them */
    const dunlin__aggregate_input *inputs; /* by client index */
    size_t n_inputs;
} dunlin__memory_fold;

/*
 * Opens the task of options->task_file: options->test_set, data_folder, validation, seed and
 * n_threads count, nothing else. UNSUPPORTED names what of the task memory does not have, see
 * dunlin__memory_refusal(). Follow by dunlin__memory_free(), also after a failure.
 */
DUNLIN_NODISCARD dunlin_status dunlin__memory_open(dunlin__memory *memory,
                                                   const dunlin_server_options *options,
                                                   const dunlin_log *log, dunlin_error *error);
void dunlin__memory_free(dunlin__memory *memory);

/* What of a task does not work in memory, and why; NULL: all of it does. */
const char *dunlin__memory_refusal(const dunlin__server_task *task);

/* Whom the open round asks, and by which bound it goes. MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__memory_begin(dunlin__memory *memory, dunlin_error *error);

/* The work of a client in the open round, without what is for the network. */
void dunlin__memory_assign(const dunlin__memory *memory, uint32_t client_index,
                           dunlin__assignment *out_assignment);

/* Whether norms are to be taken in this round, and those of n updates. */
bool dunlin__memory_wants_norms(const dunlin__memory *memory);
void dunlin__memory_measure(const dunlin__memory *memory, const float *const *updates, size_t n,
                            double *out_norms);

/* A contribution of the open round; with the scale, as far as the bound is known. A norm below 0:
 * none was taken. */
dunlin__memory_work dunlin__memory_take(const dunlin__memory *memory, uint32_t client_index,
                                        const dunlin__commit_request *commit, double norm);

/*
 * All contributions are there: puts them in the order of client indices and, where the bound
 * follows from them alone, sets scales. Those that were summed up before with another scale are
 * marked is_again: their updates are taken out of the sums and added anew by the caller. MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__memory_settle(dunlin__memory *memory,
                                                     dunlin__memory_work *works, size_t n,
                                                     dunlin_error *error);

/* Values [first, first + n) of the next base, from the open round's and its updates, with a room of
 * the caller's. Ranges begin at multiples of DUNLIN_AGGREGATE_VALUES. NUMERIC: a value that is not
 * finite; OVERFLOW. */
DUNLIN_NODISCARD dunlin_status dunlin__memory_make_range(dunlin__memory *memory,
                                                         const dunlin__memory_fold *fold,
                                                         dunlin__aggregate_room *room,
                                                         uint64_t first, uint64_t n,
                                                         dunlin_error *error);

/* Whether enough came for the sums to become the next base; else the base stays. */
bool dunlin__memory_is_aggregated(const dunlin__memory *memory, size_t n_works);

/* How the making of the next base ended. */
typedef struct dunlin__memory_end {
    dunlin_status
        status;         /* of dunlin__memory_make_range(), of all ranges; OK where none was made */
    dunlin_error error; /* of that */
    uint64_t n_dropped; /* clients that were asked and have no contribution */
    bool has_figures;   /* the next base was evaluated, or that failed... */
    double accuracy;
    double loss;
    dunlin_error failure; /* ...so; OK: it was */
} dunlin__memory_end;

/* Whether the next base is to be held against the test set before the close, and that, piece by
 * piece: any process may do any of them, and the figures of all of them are put together. A failure
 * goes into `failure` of the end. */
bool dunlin__memory_judges(const dunlin__memory *memory);
DUNLIN_NODISCARD dunlin_status dunlin__memory_judge_begin(dunlin__memory *memory,
                                                          bool is_aggregated, size_t *out_n_pieces,
                                                          dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__memory_judge(dunlin__memory *memory, size_t piece,
                                                    dunlin__figures *out_figures,
                                                    dunlin_error *error);
void dunlin__memory_judge_end(const dunlin__figures *pieces, size_t n, dunlin__memory_end *out_end);

/* Closes the round with its settled contributions and opens the next one. MEMORY; DATA: the updates
 * cannot be summed and nothing follows. */
DUNLIN_NODISCARD dunlin_status dunlin__memory_close(dunlin__memory *memory,
                                                    const dunlin__memory_work *works, size_t n,
                                                    const dunlin__memory_end *end,
                                                    dunlin_error *error);

/* Values of a model in memory, as evaluations and files take them. */
dunlin__values dunlin__memory_values(float *values);

/* The state of a run after its last closed round in one file, whole or as it was; and back. A file
 * of another task, model or build is refused: MISMATCH names what differs. `is_there` says whether
 * there was one. IO, SPACE, MEMORY, DATA (damaged). `build` names the program. */
DUNLIN_NODISCARD dunlin_status dunlin__memory_save(const dunlin__memory *memory, const char *path,
                                                   const char *build, dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__memory_load(dunlin__memory *memory, const char *path,
                                                   const char *build, bool *out_is_there,
                                                   dunlin_error *error);

#endif
