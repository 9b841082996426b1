/*
 * update_norm.c - the norms of an update that lies in one file.
 */
#include "update_norm.h"

#include "base/files.h"

#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#define BLOCK_VALUES (DUNLIN_WIRE_BLOCK_BYTES / sizeof(float))

typedef struct measure {
    int update;
    int base; /* -1: the update is a difference as it is */
    const char *update_path;
    const char *base_path;
    float *values;
    float *base_values;
    double sum_squares; /* of the current tensor */
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

static dunlin_status add_all(measure *work, const dunlin__layout *layout, dunlin__layout_part part,
                             dunlin__update_norms *out)
{
    uint64_t place = 0;
    uint64_t begin = 0;
    double sum_squares = 0;
    uint32_t n_layers = 0;
    for (uint32_t t = 0; t < layout->n_tensors; t++) {
        uint64_t n_values = layout->tensors[t].stored_bytes / sizeof(float);
        work->sum_squares = 0;
        if (dunlin__layout_has(layout, t, part)) {
            DUNLIN_TRY(add_tensor(work, place, begin, n_values));
            const double norm = sqrt(work->sum_squares);
            sum_squares += work->sum_squares;
            out->layer = norm > out->layer_norm ? t : out->layer;
            out->layer_norm = norm > out->layer_norm ? norm : out->layer_norm;
            n_layers++;
        }
        place += dunlin__layout_has(layout, t, DUNLIN_LAYOUT_SHARED) ? n_values : 0;
        begin += n_values;
    }
    out->norm = sqrt(sum_squares);
    out->n_layers = n_layers;
    return DUNLIN_OK;
}

dunlin_status dunlin__update_measure(const dunlin__layout *layout, dunlin__layout_part part,
                                     const char *update_path, const char *base_path,
                                     const dunlin_alloc *alloc, dunlin__update_norms *out,
                                     dunlin_error *error)
{
    dunlin_status status = DUNLIN_OK;
    *out = (dunlin__update_norms){0};
    measure work = {.update = -1,
                    .base = -1,
                    .update_path = update_path,
                    .base_path = base_path,
                    .error = error};
    work.values = dunlin__alloc_array(alloc, BLOCK_VALUES, sizeof(float));
    work.base_values = dunlin__alloc_array(alloc, BLOCK_VALUES, sizeof(float));
    if (work.values == NULL || work.base_values == NULL) {
        status =
            dunlin__fail(error, DUNLIN_MEMORY, "update", 0, "no memory for the blocks of a norm");
    }
    if (status == DUNLIN_OK) {
        work.update = open_file(update_path, error, &status);
    }
    if (status == DUNLIN_OK && base_path != NULL) {
        work.base = open_file(base_path, error, &status);
    }
    if (status == DUNLIN_OK) {
        status = add_all(&work, layout, part, out);
    }
    if (work.update >= 0) {
        (void)close(work.update);
    }
    if (work.base >= 0) {
        (void)close(work.base);
    }
    dunlin__free_array(alloc, work.values, BLOCK_VALUES, sizeof(float));
    dunlin__free_array(alloc, work.base_values, BLOCK_VALUES, sizeof(float));
    return status;
}
