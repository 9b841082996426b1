/*
 * guard.c - limits the norm of an update: the bound of a round, and the norms that give it.
 *
 * Invariant: the bound follows from what is stored and from the round's own updates in the order of
 * client indices, so a close that is repeated scales by the same numbers.
 */
#include "guard.h"

#include "base/files.h"
#include "model/models.h"
#include "state/context.h"
#include "state/db.h"
#include "task/task.h"
#include "task/together.h"

#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCK_VALUES (DUNLIN_WIRE_BLOCK_BYTES / sizeof(float))

bool dunlin__guard_is_on(const dunlin__server_task *task)
{
    return dunlin__together_is_on(dunlin__together_traits(task), DUNLIN_TRAIT_NORM_BOUND);
}

/* ---- the history ---- */

typedef struct collector {
    dunlin__norms *norms;
    const dunlin_alloc *alloc;
    dunlin_error *error;
} collector;

static dunlin_status take_norm(void *ctx, double norm)
{
    collector *to = ctx;
    void *values = to->norms->values;
    bool has_room = dunlin__grow_array(to->alloc, &values, &to->norms->capacity, to->norms->n + 1,
                                       sizeof *to->norms->values);
    to->norms->values = values;
    if (!has_room) {
        return dunlin__fail(to->error, DUNLIN_MEMORY, "rounds", 0, "norm %zu", to->norms->n + 1);
    }
    to->norms->values[to->norms->n] = norm;
    to->norms->n++;
    return DUNLIN_OK;
}

dunlin_status dunlin__guard_history(dunlin__server *server, dunlin__norms *out_norms,
                                    dunlin_error *error)
{
    collector to = {out_norms, &server->alloc, error};
    return dunlin__server_db_each_norm(server->db, DUNLIN_GUARD_ROUNDS, take_norm, &to, error);
}

void dunlin__norms_free(dunlin__norms *norms, const dunlin_alloc *alloc)
{
    dunlin__free_array(alloc, norms->values, norms->capacity, sizeof *norms->values);
    *norms = (dunlin__norms){0};
}

/* ---- one update ---- */

typedef struct measure {
    int update;
    int base; /* -1: the update is a difference as it is */
    const char *update_path;
    const char *base_path;
    float *values;
    float *base_values;
    double sum_squares;
    dunlin_error *error;
} measure;

static int open_file(const char *path, dunlin_error *error, dunlin_status *status)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        *status = dunlin__file_fail(error, "opening", path, errno);
    }
    return fd;
}

/* Adds a tensor's values: `place` is where it begins in the update, `begin` in the base. */
static dunlin_status add_tensor(measure *work, uint64_t place, uint64_t begin, uint64_t n_values)
{
    for (uint64_t first = 0; first < n_values; first += BLOCK_VALUES) {
        uint64_t left = n_values - first;
        size_t n = left < BLOCK_VALUES ? (size_t)left : BLOCK_VALUES;
        DUNLIN_TRY(dunlin__server_read_at(work->update, work->update_path,
                                          (place + first) * sizeof(float), work->values,
                                          n * sizeof(float), work->error));
        if (work->base >= 0) {
            DUNLIN_TRY(dunlin__server_read_at(work->base, work->base_path,
                                              (begin + first) * sizeof(float), work->base_values,
                                              n * sizeof(float), work->error));
        }
        for (size_t i = 0; i < n; i++) {
            double from = work->base >= 0 ? (double)work->base_values[i] : 0;
            double value = (double)work->values[i] - from;
            work->sum_squares += value * value;
        }
    }
    return DUNLIN_OK;
}

static dunlin_status add_all(measure *work, const dunlin__layout *layout)
{
    uint64_t place = 0;
    uint64_t begin = 0;
    for (uint32_t t = 0; t < layout->n_tensors; t++) {
        uint64_t n_values = layout->tensors[t].stored_bytes / sizeof(float);
        if (dunlin__layout_has(layout, t, DUNLIN_LAYOUT_SHARED)) {
            DUNLIN_TRY(add_tensor(work, place, begin, n_values));
            place += n_values;
        }
        begin += n_values;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__guard_norm(const dunlin__layout *layout, const char *update_path,
                                 const char *base_path, const dunlin_alloc *alloc, double *out_norm,
                                 dunlin_error *error)
{
    dunlin_status status = DUNLIN_OK;
    measure work = {.update = -1,
                    .base = -1,
                    .update_path = update_path,
                    .base_path = base_path,
                    .error = error};
    work.values = dunlin__alloc_array(alloc, BLOCK_VALUES, sizeof(float));
    work.base_values = dunlin__alloc_array(alloc, BLOCK_VALUES, sizeof(float));
    if (work.values == NULL || work.base_values == NULL) {
        status =
            dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0, "no memory for the blocks of a norm");
    }
    if (status == DUNLIN_OK) {
        work.update = open_file(update_path, error, &status);
    }
    if (status == DUNLIN_OK && base_path != NULL) {
        work.base = open_file(base_path, error, &status);
    }
    if (status == DUNLIN_OK) {
        status = add_all(&work, layout);
    }
    if (work.update >= 0) {
        (void)close(work.update);
    }
    if (work.base >= 0) {
        (void)close(work.base);
    }
    dunlin__free_array(alloc, work.values, BLOCK_VALUES, sizeof(float));
    dunlin__free_array(alloc, work.base_values, BLOCK_VALUES, sizeof(float));
    *out_norm = sqrt(work.sum_squares);
    return status;
}

/* ---- the bound ---- */

static int compare_norms(const void *left, const void *right)
{
    const double *a = left;
    const double *b = right;
    return (*a > *b) - (*a < *b);
}

double dunlin__guard_bound(const dunlin__norms *history, dunlin__norms *own)
{
    const dunlin__norms *norms = history;
    if (history->n < DUNLIN_GUARD_UPDATES) {
        if (own->n > 1) {
            qsort(own->values, own->n, sizeof *own->values, compare_norms);
        }
        norms = own;
    }
    if (norms->n < DUNLIN_GUARD_UPDATES) {
        return 0;
    }
    return DUNLIN_GUARD_TIMES * norms->values[(norms->n - 1) / 2];
}
