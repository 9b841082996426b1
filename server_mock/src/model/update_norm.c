/*
 * update_norm.c - the norms of an update that lies in one file, or of some that are in memory.
 *
 * Invariant: the squares of a tensor are summed up one after the other, and then the tensors, so
 * the bits are the same wherever the values come from.
 */
#include "update_norm.h"

#include "base/files.h"

#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
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

/* A tensor that has been summed up. */
static void end_tensor(dunlin__update_norms *out, uint32_t tensor, double tensor_squares,
                       double *sum_squares)
{
    const double norm = sqrt(tensor_squares);
    *sum_squares += tensor_squares;
    out->layer = norm > out->layer_norm ? tensor : out->layer;
    out->layer_norm = norm > out->layer_norm ? norm : out->layer_norm;
    out->n_layers++;
}

static dunlin_status add_all(measure *work, const dunlin__layout *layout, dunlin__layout_part part,
                             dunlin__update_norms *out)
{
    uint64_t place = 0;
    uint64_t begin = 0;
    double sum_squares = 0;
    for (uint32_t t = 0; t < layout->n_tensors; t++) {
        uint64_t n_values = layout->tensors[t].stored_bytes / sizeof(float);
        work->sum_squares = 0;
        if (dunlin__layout_has(layout, t, part)) {
            DUNLIN_TRY(add_tensor(work, place, begin, n_values));
            end_tensor(out, t, work->sum_squares, &sum_squares);
        }
        place += dunlin__layout_has(layout, t, DUNLIN_LAYOUT_SHARED) ? n_values : 0;
        begin += n_values;
    }
    out->norm = sqrt(sum_squares);
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

#define TOGETHER 4u /* updates whose sums do not wait for each other */

static void add_four(const float *const values[TOGETHER], const float *base, size_t n,
                     double out_sums[TOGETHER])
{
    double a = 0;
    double b = 0;
    double c = 0;
    double d = 0;
    for (size_t i = 0; i < n; i++) {
        const double from = base != NULL ? (double)base[i] : 0;
        const double first = (double)values[0][i] - from;
        const double second = (double)values[1][i] - from;
        const double third = (double)values[2][i] - from;
        const double fourth = (double)values[3][i] - from;
        a += first * first;
        b += second * second;
        c += third * third;
        d += fourth * fourth;
    }
    out_sums[0] = a;
    out_sums[1] = b;
    out_sums[2] = c;
    out_sums[3] = d;
}

static void measure_four(const dunlin__layout *layout, dunlin__layout_part part,
                         const float *const updates[TOGETHER], const float *base,
                         dunlin__update_norms out[TOGETHER])
{
    double sums[TOGETHER] = {0};
    uint64_t place = 0;
    uint64_t begin = 0;
    memset(out, 0, TOGETHER * sizeof out[0]);
    for (uint32_t t = 0; t < layout->n_tensors; t++) {
        const uint64_t n_values = layout->tensors[t].stored_bytes / sizeof(float);
        if (dunlin__layout_has(layout, t, part)) {
            const float *const values[TOGETHER] = {updates[0] + place, updates[1] + place,
                                                   updates[2] + place, updates[3] + place};
            double tensor[TOGETHER];
            add_four(values, base != NULL ? base + begin : NULL, (size_t)n_values, tensor);
            for (size_t i = 0; i < TOGETHER; i++) {
                end_tensor(&out[i], t, tensor[i], &sums[i]);
            }
        }
        place += dunlin__layout_has(layout, t, DUNLIN_LAYOUT_SHARED) ? n_values : 0;
        begin += n_values;
    }
    for (size_t i = 0; i < TOGETHER; i++) {
        out[i].norm = sqrt(sums[i]);
    }
}

void dunlin__update_measure_values(const dunlin__layout *layout, dunlin__layout_part part,
                                   const float *const *updates, size_t n, const float *base,
                                   dunlin__update_norms *out)
{
    for (size_t done = 0; done < n; done += TOGETHER) {
        const size_t n_now = n - done < TOGETHER ? n - done : TOGETHER;
        const float *four[TOGETHER];
        dunlin__update_norms norms[TOGETHER];
        for (size_t i = 0; i < TOGETHER; i++) {
            four[i] = updates[done + (i < n_now ? i : 0)];
        }
        measure_four(layout, part, four, base, norms);
        memcpy(out + done, norms, n_now * sizeof norms[0]);
    }
}
