/*
 * train.c - the clients of a round, one after the other on each thread.
 */
#include "engine.h"

#include <dunlin/builtin.h>
#include <dunlin/dataset.h>
#include <mem/support.h>

#include <common/progress.h>
#include <stdlib.h>
#include <string.h>

static float *update_room(engine_thread *thread)
{
    const engine *all = thread->engine;
    if (all->keeps_updates) {
        return malloc((size_t)all->n_update * sizeof(float));
    }
    return thread->values + (size_t)thread->n_group * (size_t)all->n_update;
}

/* What the learner took, and what the stages of the update did. */
static void count_times(engine_thread *thread, double begun_ms, double update_ms)
{
    thread->times.update += update_ms / 1000.0;
    thread->times.training += (clock_ms() - begun_ms - update_ms) / 1000.0;
}

/* The round of one client, as its own process would have it; `update` is filled. */
static dunlin_status run_client(engine_thread *thread, uint32_t client_index, engine_update *update,
                                uint64_t *out_peak, dunlin_error *error)
{
    engine *all = thread->engine;
    dunlin_dataset_view view;
    dunlin_source source = DUNLIN_SOURCE_INIT;
    dunlin_builtin *builtin = NULL;
    dunlin_learner learner = {0};
    dunlin__assignment assignment;
    double update_ms = 0.0;
    int64_t n = 0;
    const double begun_ms = clock_ms();
    const int64_t *indices = dunlin_partition_indices(all->world->partition, client_index, &n);
    dunlin_status status = dunlin_dataset_subset(all->world->dataset, indices, n, &view, &source);
    if (status == DUNLIN_OK) {
        status = dunlin_builtin_create(all->world->pool, &source, NULL, &builtin, &learner, error);
    }
    if (status != DUNLIN_OK) {
        return status;
    }
    dunlin__memory_assign(&all->rounds, client_index, &assignment);
    update->client_index = client_index;
    status = direct_run(thread->client, &assignment, all->rounds.base, &learner, update->values,
                        &update->commit, out_peak, &update_ms, error);
    dunlin_builtin_destroy(builtin);
    count_times(thread, begun_ms, update_ms);
    return status;
}

/* A client whose work came to nothing drops out, as one that aborts its round. */
static void note_dropped(engine *all, uint32_t client_index, dunlin_status status,
                         const dunlin_error *error)
{
    (void)pthread_mutex_lock(&all->lock);
    all->n_dropped++;
    all->totals.n_failed++;
    (void)snprintf(all->totals.last_error, sizeof all->totals.last_error, "device %u: %s: %.400s",
                   (unsigned)client_index, dunlin_status_name(status), error->text);
    (void)pthread_mutex_unlock(&all->lock);
}

static void note_peak(engine *all, uint64_t peak_bytes)
{
    (void)pthread_mutex_lock(&all->lock);
    all->peak_bytes = peak_bytes > all->peak_bytes ? peak_bytes : all->peak_bytes;
    (void)pthread_mutex_unlock(&all->lock);
}

static dunlin_status train_one(engine_thread *thread, uint32_t client_index)
{
    engine *all = thread->engine;
    engine_update *update = &thread->group[thread->n_group];
    uint64_t peak_bytes = 0;
    dunlin_error error = {0};
    update->values = update_room(thread);
    if (update->values == NULL) {
        return dunlin__fail(&thread->error, DUNLIN_MEMORY, "fleet", 0, "no memory for an update");
    }
    const dunlin_status status = run_client(thread, client_index, update, &peak_bytes, &error);
    if (status != DUNLIN_OK) {
        if (all->keeps_updates) {
            free(update->values);
        }
        note_dropped(all, client_index, status, &error);
        return status == DUNLIN_MEMORY
                   ? dunlin__fail(&thread->error, status, "fleet", 0, "%s", error.text)
                   : DUNLIN_OK;
    }
    note_peak(all, peak_bytes);
    thread->n_group++;
    return DUNLIN_OK;
}

void engine_train(engine_thread *thread)
{
    engine *all = thread->engine;
    while (thread->status == DUNLIN_OK && fleet_interrupted() == 0 &&
           !atomic_load(&all->is_stopped)) {
        const int64_t place = ranks_next(all->ranks);
        if (place >= all->n_asked) {
            break;
        }
        thread->status = train_one(thread, all->order[place]);
        if (thread->status == DUNLIN_OK && thread->n_group == ENGINE_GROUP) {
            thread->status = engine_fold_group(thread, &thread->error);
        }
    }
    if (thread->status == DUNLIN_OK) {
        thread->status = engine_fold_group(thread, &thread->error);
    }
    if (thread->status != DUNLIN_OK) {
        atomic_store(&all->is_stopped, true);
    }
}

dunlin_status engine_train_again(engine *all, dunlin_error *error)
{
    engine_thread *thread = &all->threads[0];
    for (size_t i = 0; i < all->n_works && !all->keeps_updates; i++) {
        const dunlin__memory_work *work = &all->works[i];
        engine_update update = {.values = thread->values};
        uint64_t peak_bytes = 0;
        if (!work->is_again || work->rank != ranks_index(all->ranks)) {
            continue;
        }
        dunlin__memory_work before = *work;
        before.scale = 1;
        DUNLIN_TRY(
            run_client(thread, (uint32_t)work->row.client_index, &update, &peak_bytes, error));
        DUNLIN_TRY(engine_fold_one(all, update.values, &before, true, error));
        DUNLIN_TRY(engine_fold_one(all, update.values, work, false, error));
    }
    return DUNLIN_OK;
}
