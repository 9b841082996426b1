/*
 * engine.c - a run in memory, round by round.
 *
 * Invariant: all ranks have the same rows and the same base after each close, for all of them close
 * the round with the same contributions and the same sums.
 */
#include "engine.h"

#include <mem/support.h>

#include <common/progress.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SERVER_THREADS 64 /* the most that a server takes */

static int fail(const dunlin_error *error)
{
    return program_fail(&fleet_program, "%s",
                        error->text[0] != '\0' ? error->text : dunlin_status_text(error->status));
}

static int fail_memory(void)
{
    return program_fail(&fleet_program, "no memory for a run in memory");
}

/* ---- threads ---- */

typedef struct phase_start {
    engine_thread *thread;
    void (*phase_fn)(engine_thread *thread);
} phase_start;

static void *run_phase(void *ctx)
{
    const phase_start *start = ctx;
    start->phase_fn(start->thread);
    return NULL;
}

/* The first thread is the caller's own. */
dunlin_status engine_phase(engine *all, void (*phase_fn)(engine_thread *thread),
                           dunlin_error *out_error)
{
    pthread_t ids[SERVER_THREADS * 4];
    phase_start starts[SERVER_THREADS * 4];
    int32_t n_started = 1;
    for (int32_t i = 0; i < all->n_threads; i++) {
        all->threads[i].status = DUNLIN_OK;
        dunlin__error_clear(&all->threads[i].error);
    }
    for (; n_started < all->n_threads; n_started++) {
        starts[n_started] = (phase_start){&all->threads[n_started], phase_fn};
        if (pthread_create(&ids[n_started], NULL, run_phase, &starts[n_started]) != 0) {
            break; /* those that run do the work of all */
        }
    }
    phase_fn(&all->threads[0]);
    for (int32_t i = 1; i < n_started; i++) {
        (void)pthread_join(ids[i], NULL);
    }
    for (int32_t i = 0; i < all->n_threads; i++) {
        if (all->threads[i].status != DUNLIN_OK) {
            *out_error = all->threads[i].error;
            return all->threads[i].status;
        }
    }
    return DUNLIN_OK;
}

/* ---- opening ---- */

static dunlin_status open_rounds(engine *all, const char *task_file, dunlin_error *error)
{
    const fleet_flags *flags = all->flags;
    char validation[FLEET_VALIDATION_BYTES] = "";
    const dunlin_log silent = {0};
    dunlin_server_options options = DUNLIN_SERVER_OPTIONS_INIT;
    options.task_file = task_file;
    options.test_set = flags->choice.name;
    options.data_folder = flags->choice.folder;
    options.has_seed = true;
    options.seed = flags->seed;
    options.n_threads =
        (int32_t)(flags->n_threads < SERVER_THREADS ? flags->n_threads : SERVER_THREADS);
    if (flags->is_judged_by_held_out) {
        fleet_validation_text(flags, validation);
        options.validation = validation;
    }
    const dunlin_status status = dunlin__memory_open(&all->rounds, &options, &silent, error);
    all->rounds.server.options.validation = NULL;
    return status;
}

static bool open_thread(engine *all, int32_t index)
{
    engine_thread *thread = &all->threads[index];
    thread->engine = all;
    thread->index = index;
    thread->client = direct_make(&all->table);
    thread->values =
        all->keeps_updates ? NULL : malloc(ENGINE_GROUP * (size_t)all->n_update * sizeof(float));
    return thread->client != NULL && (all->keeps_updates || thread->values != NULL);
}

/* What rounds need beside the rounds themselves. */
static int open_rest(engine *all)
{
    const dunlin__server *server = &all->rounds.server;
    const dunlin__strategy *strategy = &server->task.strategy;
    const size_t n_cohort = dunlin__server_task_n_select(&server->task);
    dunlin_error error = {0};
    all->n_update = server->layout.n_shared_values;
    all->keeps_updates = dunlin__strategy_is_robust(strategy);
    all->threads = calloc((size_t)all->n_threads, sizeof *all->threads);
    all->works = calloc(n_cohort, sizeof *all->works);
    all->order = calloc(n_cohort, sizeof *all->order);
    all->inputs = calloc(n_cohort, sizeof *all->inputs);
    all->kept = calloc(server->task.n_clients, sizeof *all->kept);
    all->peaks = calloc((size_t)all->flags->n_rounds + 1, sizeof *all->peaks);
    if (all->threads == NULL || all->works == NULL || all->order == NULL || all->inputs == NULL ||
        all->kept == NULL || all->peaks == NULL ||
        direct_table_make(&all->table, server->layout.tensors, server->layout.n_tensors) !=
            DUNLIN_OK) {
        return fail_memory();
    }
    for (int32_t i = 0; i < all->n_threads; i++) {
        if (!open_thread(all, i)) {
            return fail_memory();
        }
        if (dunlin__aggregate_room_make(&all->threads[i].room, strategy,
                                        all->keeps_updates ? n_cohort : 0, &server->alloc,
                                        &error) != DUNLIN_OK) {
            return fail(&error);
        }
    }
    const size_t n_sums = all->keeps_updates ? 0 : (size_t)all->n_update;
    return dunlin__sums_make(&all->sums, n_sums, &server->alloc, &error) == DUNLIN_OK
               ? EXIT_OK
               : fail(&error);
}

int engine_open(engine *all, const fleet_flags *flags, const fleet_world *world, ranks *processes,
                const char *task_file)
{
    dunlin_error error = {0};
    memset(all, 0, sizeof *all);
    all->flags = flags;
    all->world = world;
    all->ranks = processes;
    all->n_threads = (int32_t)flags->n_threads;
    all->totals.transport = (dunlin_runtime_stats)DUNLIN_RUNTIME_STATS_INIT;
    (void)pthread_mutex_init(&all->lock, NULL);
    for (int i = 0; i < ENGINE_STRIPES; i++) {
        (void)pthread_mutex_init(&all->stripes[i], NULL);
    }
    return open_rounds(all, task_file, &error) == DUNLIN_OK ? open_rest(all) : fail(&error);
}

void engine_close(engine *all)
{
    const dunlin_alloc alloc = all->rounds.server.alloc;
    for (int32_t i = 0; all->threads != NULL && i < all->n_threads; i++) {
        direct_free(all->threads[i].client);
        free(all->threads[i].values);
        dunlin__aggregate_room_free(&all->threads[i].room, &alloc);
    }
    free(all->threads);
    free(all->works);
    free(all->order);
    free(all->inputs);
    free(all->kept);
    free(all->peaks);
    direct_table_free(&all->table);
    if (alloc.alloc_fn != NULL) {
        dunlin__sums_free(&all->sums, &alloc);
    }
    dunlin__memory_free(&all->rounds);
    (void)pthread_mutex_destroy(&all->lock);
    for (int i = 0; i < ENGINE_STRIPES; i++) {
        (void)pthread_mutex_destroy(&all->stripes[i]);
    }
}

/* ---- a round ---- */

/* A place in the queue: the dearest clients first, so that no thread begins one of them last. */
typedef struct place {
    int64_t n_examples;
    uint32_t client_index;
} place;

static int compare_places(const void *left, const void *right)
{
    const place *a = left;
    const place *b = right;
    if (a->n_examples != b->n_examples) {
        return a->n_examples > b->n_examples ? -1 : 1;
    }
    return (a->client_index > b->client_index) - (a->client_index < b->client_index);
}

static int begin_round(engine *all)
{
    dunlin_error error = {0};
    dunlin__memory *rounds = &all->rounds;
    if (dunlin__memory_begin(rounds, &error) != DUNLIN_OK) {
        return fail(&error);
    }
    place *places = calloc(rounds->n_asked, sizeof *places);
    if (places == NULL) {
        return fail_memory();
    }
    all->n_asked = rounds->n_asked;
    for (uint32_t i = 0; i < rounds->n_asked; i++) {
        places[i].client_index = rounds->asked[i];
        (void)dunlin_partition_indices(all->world->partition, rounds->asked[i],
                                       &places[i].n_examples);
    }
    qsort(places, rounds->n_asked, sizeof *places, compare_places);
    for (uint32_t i = 0; i < rounds->n_asked; i++) {
        all->order[i] = places[i].client_index;
    }
    free(places);
    dunlin__sums_reset(&all->sums, all->sums.capacity);
    all->n_works = 0;
    all->n_dropped = 0;
    all->peak_bytes = 0;
    all->fold_status = DUNLIN_OK;
    atomic_store(&all->is_stopped, false);
    ranks_queue(all->ranks, all->n_asked);
    return EXIT_OK;
}

/* The contributions of all ranks on each of them, and what drops out. */
static void exchange_works(engine *all)
{
    if (ranks_count(all->ranks) > 1) {
        const size_t room = (size_t)all->n_asked * sizeof *all->works;
        dunlin__memory_work *own = malloc(room);
        const size_t n_own = all->n_works * sizeof *own;
        if (own == NULL) {
            (void)fail_memory();
            ranks_abort(all->ranks, EXIT_FAILED);
            return;
        }
        memcpy(own, all->works, n_own);
        all->n_works = ranks_gather(all->ranks, own, n_own, all->works, room) / sizeof *own;
        free(own);
    }
    ranks_sum(all->ranks, &all->n_dropped, 1);
    all->peak_bytes = (uint64_t)ranks_highest(all->ranks, (int64_t)all->peak_bytes);
}

/* One reduction: the sums of all ranks on each of them. */
static void reduce_sums(engine *all)
{
    dunlin__sums *sums = &all->sums;
    if (ranks_count(all->ranks) == 1 || all->keeps_updates) {
        return;
    }
    const uint8_t level = (uint8_t)ranks_highest(all->ranks, dunlin__sums_level(sums));
    const size_t first = level == DUNLIN_SUMS_HIGH ? 0 : 2 * sums->stride;
    int64_t n_terms = sums->n_terms;
    dunlin__sums_raise(sums, level);
    ranks_sum(all->ranks, &n_terms, 1);
    ranks_sum(all->ranks, sums->weight, DUNLIN_SUMS_LIMBS);
    if (level != DUNLIN_SUMS_EMPTY) {
        ranks_sum(all->ranks, sums->limbs + first, DUNLIN_SUMS_LIMBS * sums->stride - first);
    }
    sums->n_terms = (uint32_t)n_terms;
}

/* What cannot be summed fails the round on all ranks. */
static void agree_on_fold(engine *all, dunlin__memory_end *end)
{
    if (ranks_highest(all->ranks, all->fold_status != DUNLIN_OK ? 1 : 0) == 0) {
        return;
    }
    end->status = all->fold_status != DUNLIN_OK ? all->fold_status : DUNLIN_OVERFLOW;
    end->error = all->fold_error;
    ranks_share(all->ranks, &end->status, sizeof end->status);
    ranks_share(all->ranks, &end->error, sizeof end->error);
}

/* Where the sums are; where updates are kept, those by client index. */
static void prepare_fold(engine *all)
{
    all->fold = (dunlin__memory_fold){.sums = all->keeps_updates ? NULL : &all->sums,
                                      .inputs = all->inputs};
    for (size_t i = 0; i < all->n_works && all->keeps_updates; i++) {
        const dunlin__memory_work *work = &all->works[i];
        all->inputs[i] = (dunlin__aggregate_input){.values = all->kept[work->row.client_index],
                                                   .weight = work->row.weight,
                                                   .scale = work->scale,
                                                   .client_index = work->row.client_index,
                                                   .norm = work->row.norm};
        all->fold.n_inputs++;
    }
    atomic_store(&all->next_range, 0);
}

static void drop_kept(engine *all)
{
    for (size_t i = 0; i < all->n_works && all->keeps_updates; i++) {
        float **kept = &all->kept[all->works[i].row.client_index];
        free(*kept);
        *kept = NULL;
    }
}

/* Makes the next base and closes the round: the contributions are there. */
static int end_round(engine *all)
{
    dunlin_error error = {0};
    dunlin__memory_end end = {.n_dropped = (uint64_t)all->n_dropped};
    dunlin_status status = dunlin__memory_settle(&all->rounds, all->works, all->n_works, &error);
    if (status == DUNLIN_OK) {
        status = engine_train_again(all, &error);
    }
    if (status != DUNLIN_OK) {
        return fail(&error);
    }
    const bool is_aggregated = dunlin__memory_is_aggregated(&all->rounds, all->n_works);
    agree_on_fold(all, &end);
    if (is_aggregated && end.status == DUNLIN_OK) {
        reduce_sums(all);
        prepare_fold(all);
        end.status = engine_phase(all, engine_make_base, &end.error);
    }
    if (end.status != DUNLIN_OK && end.status != DUNLIN_OVERFLOW && end.status != DUNLIN_NUMERIC) {
        return fail(&end.error);
    }
    engine_judge(all, is_aggregated && end.status == DUNLIN_OK, &end);
    all->peaks[all->rounds.server.round.round] = all->peak_bytes;
    all->totals.n_accepted += all->n_works;
    all->totals.n_rounds_run += all->n_works + end.n_dropped;
    status = dunlin__memory_close(&all->rounds, all->works, all->n_works, &end, &error);
    return status == DUNLIN_OK ? EXIT_OK : fail(&error);
}

int engine_round(engine *all)
{
    dunlin_error error = {0};
    int exit_status = begin_round(all);
    if (exit_status != EXIT_OK) {
        return exit_status;
    }
    if (engine_phase(all, engine_train, &error) != DUNLIN_OK) {
        return fail(&error);
    }
    if (ranks_highest(all->ranks, fleet_interrupted()) != 0) {
        drop_kept(all);
        return EXIT_OK;
    }
    exchange_works(all);
    exit_status = end_round(all);
    drop_kept(all);
    return exit_status;
}
