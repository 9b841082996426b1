/*
 * fold.c - the sums of a round's updates, and the next base.
 *
 * Invariant: sums of integers have no order, so neither threads nor groups show in a bit.
 */
#include "engine.h"

#include <mem/support.h>

#include <common/progress.h>

#define BLOCK_VALUES ((size_t)4 * DUNLIN_SUMS_CHUNK) /* of all updates of a group, in the cache */
#define RANGE_VALUES ((uint64_t)DUNLIN_AGGREGATE_VALUES)

/* Values of a stripe: whole chunks. */
static size_t stripe_values(const engine *all)
{
    const size_t each = ((size_t)all->n_update + ENGINE_STRIPES - 1) / ENGINE_STRIPES;
    return (each + DUNLIN_SUMS_CHUNK - 1) / DUNLIN_SUMS_CHUNK * DUNLIN_SUMS_CHUNK;
}

/* One block of an update. */
static dunlin_status fold_block(engine *all, const float *values, const dunlin__memory_work *work,
                                size_t first, size_t n, bool is_taken_away, dunlin_error *error)
{
    const dunlin__server *server = &all->rounds.server;
    const dunlin__sums_term term = {.values = values + first,
                                    .origin = server->task.sends_weights ? all->rounds.base + first
                                                                         : NULL,
                                    .weight = work->row.weight,
                                    .scale = work->scale,
                                    .first_value = first,
                                    .client_index = work->row.client_index};
    return is_taken_away ? dunlin__sums_take_away(&all->sums, first, n, &term, error)
                         : dunlin__sums_add(&all->sums, first, n, &term, error);
}

/* A group's part of a stripe. */
static dunlin_status fold_stripe(engine_thread *thread, const dunlin__memory_work *works,
                                 size_t begin, size_t end, dunlin_error *error)
{
    for (size_t first = begin; first < end; first += BLOCK_VALUES) {
        const size_t n = end - first < BLOCK_VALUES ? end - first : BLOCK_VALUES;
        for (int32_t k = 0; k < thread->n_group; k++) {
            DUNLIN_TRY(fold_block(thread->engine, thread->group[k].values, &works[k], first, n,
                                  false, error));
        }
    }
    return DUNLIN_OK;
}

/* Threads begin at stripes of their own, so they seldom wait for each other. */
static dunlin_status fold_values(engine_thread *thread, const dunlin__memory_work *works,
                                 dunlin_error *error)
{
    engine *all = thread->engine;
    const size_t each = stripe_values(all);
    const size_t n_values = (size_t)all->n_update;
    const int32_t first = thread->index * ENGINE_STRIPES / all->n_threads;
    dunlin_status status = DUNLIN_OK;
    for (int32_t i = 0; status == DUNLIN_OK && i < ENGINE_STRIPES; i++) {
        const int32_t stripe = (first + i) % ENGINE_STRIPES;
        const size_t begin = (size_t)stripe * each;
        const size_t end = begin + each < n_values ? begin + each : n_values;
        if (begin < end) {
            (void)pthread_mutex_lock(&all->stripes[stripe]);
            status = fold_stripe(thread, works, begin, end, error);
            (void)pthread_mutex_unlock(&all->stripes[stripe]);
        }
    }
    return status;
}

/* The works of a group join those of the round; updates that are kept go along. */
static dunlin_status join_works(engine_thread *thread, const dunlin__memory_work *works,
                                dunlin_error *error)
{
    engine *all = thread->engine;
    const bool is_summed = !all->keeps_updates && !all->rounds.server.round.is_evaluation;
    dunlin_status status = DUNLIN_OK;
    (void)pthread_mutex_lock(&all->lock);
    for (int32_t k = 0; k < thread->n_group; k++) {
        if (is_summed && status == DUNLIN_OK) {
            status = dunlin__sums_count(&all->sums, works[k].row.weight, error);
        }
        if (all->keeps_updates) {
            all->kept[works[k].row.client_index] = thread->group[k].values;
        }
        all->works[all->n_works++] = works[k];
    }
    (void)pthread_mutex_unlock(&all->lock);
    return status;
}

static void measure_group(const engine_thread *thread, double out_norms[ENGINE_GROUP])
{
    const dunlin__memory *rounds = &thread->engine->rounds;
    const float *updates[ENGINE_GROUP];
    for (int32_t k = 0; k < thread->n_group; k++) {
        updates[k] = thread->group[k].values;
        out_norms[k] = -1;
    }
    if (dunlin__memory_wants_norms(rounds) && thread->n_group > 0) {
        dunlin__memory_measure(rounds, updates, (size_t)thread->n_group, out_norms);
    }
}

/* The round will have no model, but its clients are still counted. */
static void note_failure(engine *all, dunlin_status status, const dunlin_error *error)
{
    (void)pthread_mutex_lock(&all->lock);
    if (all->fold_status == DUNLIN_OK) {
        all->fold_status = status;
        all->fold_error = *error;
    }
    (void)pthread_mutex_unlock(&all->lock);
}

dunlin_status engine_fold_group(engine_thread *thread, dunlin_error *error)
{
    engine *all = thread->engine;
    dunlin__memory_work works[ENGINE_GROUP];
    double norms[ENGINE_GROUP];
    const double begun_ms = clock_ms();
    measure_group(thread, norms);
    for (int32_t k = 0; k < thread->n_group; k++) {
        const engine_update *update = &thread->group[k];
        works[k] =
            dunlin__memory_take(&all->rounds, update->client_index, &update->commit, norms[k]);
        works[k].rank = ranks_index(all->ranks);
    }
    dunlin_status status = join_works(thread, works, error);
    if (status == DUNLIN_OK && !all->keeps_updates && !all->rounds.server.round.is_evaluation) {
        status = fold_values(thread, works, error);
    }
    if (status == DUNLIN_OVERFLOW || status == DUNLIN_NUMERIC) {
        note_failure(all, status, error);
        status = DUNLIN_OK;
    }
    thread->n_group = 0;
    thread->times.fold += (clock_ms() - begun_ms) / 1000.0;
    return status;
}

dunlin_status engine_fold_one(engine *all, const float *values, const dunlin__memory_work *work,
                              bool is_taken_away, dunlin_error *error)
{
    return fold_block(all, values, work, 0, (size_t)all->n_update, is_taken_away, error);
}

void engine_make_base(engine_thread *thread)
{
    engine *all = thread->engine;
    const uint64_t n_values = all->rounds.server.layout.n_values;
    const double begun_ms = clock_ms();
    while (thread->status == DUNLIN_OK) {
        const uint64_t first =
            (uint64_t)atomic_fetch_add(&all->next_range, (long long)RANGE_VALUES);
        if (first >= n_values) {
            break;
        }
        const uint64_t n = n_values - first < RANGE_VALUES ? n_values - first : RANGE_VALUES;
        thread->status = dunlin__memory_make_range(&all->rounds, &all->fold, &thread->room, first,
                                                   n, &thread->error);
    }
    thread->times.fold += (clock_ms() - begun_ms) / 1000.0;
}
