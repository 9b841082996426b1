/*
 * memory_base.c - the next base in memory, range by range.
 *
 * Invariant: a range follows from the base, the moments and the sums alone, so it does not matter
 * which thread makes it.
 */
#include "memory_rounds.h"
#include "task/task.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

static dunlin_status read_values(void *ctx, uint64_t first, size_t n, float *out_values,
                                 dunlin_error *error)
{
    (void)error;
    memcpy(out_values, (const float *)ctx + first, n * sizeof *out_values);
    return DUNLIN_OK;
}

dunlin__values dunlin__memory_values(float *values)
{
    return (dunlin__values){.ctx = values, .values_fn = read_values};
}

/* Averaged values before a place of the model. */
static uint64_t count_averaged(const dunlin__layout *layout, uint64_t place)
{
    uint64_t begin = 0;
    uint64_t n_averaged = 0;
    for (uint32_t t = 0; t < layout->n_tensors && begin < place; t++) {
        const uint64_t n = layout->tensors[t].stored_bytes / sizeof(float);
        const uint64_t n_before = place - begin < n ? place - begin : n;
        n_averaged += dunlin__layout_has(layout, t, DUNLIN_LAYOUT_AVERAGED) ? n_before : 0;
        begin += n;
    }
    return n_averaged;
}

static dunlin_status check_finite(const float *values, uint64_t first, size_t n,
                                  dunlin_error *error)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) {
            return dunlin__fail(error, DUNLIN_NUMERIC, "rounds", 0,
                                "value %" PRIu64 " of the global model is not finite", first + i);
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__memory_make_range(dunlin__memory *memory, const dunlin__memory_fold *fold,
                                        dunlin__aggregate_room *room, uint64_t first, uint64_t n,
                                        dunlin_error *error)
{
    dunlin__server *server = &memory->server;
    const uint64_t n_before = count_averaged(&server->layout, first);
    const uint64_t n_moments = count_averaged(&server->layout, first + n) - n_before;
    dunlin__moments_file moments = {
        .strategy = &server->task.strategy, .memory = memory->next_moments, .n_done = n_before};
    if (memory->moments != NULL && n_moments > 0) {
        memcpy(memory->next_moments + n_before, memory->moments + n_before,
               (size_t)n_moments * sizeof *memory->moments);
    }
    dunlin__aggregate aggregate = {.layout = &server->layout,
                                   .part = DUNLIN_LAYOUT_ALL,
                                   .base = dunlin__memory_values(memory->base),
                                   .inputs = fold->inputs,
                                   .n_inputs = fold->n_inputs,
                                   .sums = fold->sums,
                                   .sends_weights = server->task.sends_weights,
                                   .strategy = &server->task.strategy,
                                   .moments = memory->moments != NULL ? &moments : NULL,
                                   .room = room};
    const dunlin__values values = dunlin__aggregate_values(&aggregate);
    for (uint64_t done = 0; done < n; done += DUNLIN_AGGREGATE_VALUES) {
        const uint64_t left = n - done;
        const size_t n_now =
            left < DUNLIN_AGGREGATE_VALUES ? (size_t)left : DUNLIN_AGGREGATE_VALUES;
        float *out = memory->next + first + done;
        DUNLIN_TRY(values.values_fn(values.ctx, first + done, n_now, out, error));
        DUNLIN_TRY(check_finite(out, first + done, n_now, error));
    }
    return DUNLIN_OK;
}
