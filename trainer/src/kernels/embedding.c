/*
 * embedding.c - rows of a table picked by number, and the table's gradient.
 *
 * Numbers come as floats that have been checked: whole and within the table. A row's gradient is
 * one chain over the batch's tokens in their order; threads share columns, so they change no bit.
 */
#include "isa.h"
#include "sink.h"

#define IDS_OF_TASK 32
#define COLUMNS_OF_TASK 128

static void pick_task(void *ctx, size_t task)
{
    const dunlin_embedding_call *call = ctx;
    const int64_t first = (int64_t)task * IDS_OF_TASK;
    const int64_t end = min_i64(call->n_ids, first + IDS_OF_TASK);
    for (int64_t i = first; i < end; i++) {
        vcopy(call->out + i * call->width, call->table + (int64_t)call->ids[i] * call->width,
              call->width);
    }
}

void K(embedding)(const dunlin_embedding_call *call)
{
    dunlin_embedding_call copy = *call;
    run_tasks(call->threads, pick_task, &copy, ceil_div(call->n_ids, IDS_OF_TASK),
              call->n_ids * call->width);
}

/* A table that no cache holds goes past them. */
static void clear_task(void *ctx, size_t task)
{
    const dunlin_embedding_call *call = ctx;
    const int64_t n = call->n_rows * call->width;
    const int64_t first = (int64_t)task * TASK_BLOCK;
    const int64_t end = min_i64(n, first + TASK_BLOCK);
    int64_t i = first;
    if (rows_are_streamed(call->out, call->width, call->width, call->n_rows)) {
        for (; i + VEC <= end; i += VEC) {
            vstream(call->out + i, vzero());
        }
        vstream_done();
    }
    memset(call->out + i, 0, (size_t)(end - i) * sizeof(float));
}

static void gather_task(void *ctx, size_t task)
{
    const dunlin_embedding_call *call = ctx;
    const int64_t first = (int64_t)task * COLUMNS_OF_TASK;
    const int64_t n_columns = min_i64(COLUMNS_OF_TASK, call->width - first);
    for (int64_t i = 0; i < call->n_ids; i++) {
        float *to = call->out + (int64_t)call->ids[i] * call->width + first;
        const float *from = call->dy + i * call->width + first;
        for (int64_t c = 0; c < n_columns; c += VEC) {
            const int32_t n = vec_left(n_columns, c);
            vstore_n(to + c, vload_n(to + c, n) + vload_n(from + c, n), n);
        }
    }
}

void K(embedding_grad)(const dunlin_embedding_call *call)
{
    dunlin_embedding_call copy = *call;
    if (call->is_reset) {
        const int64_t n = call->n_rows * call->width;
        run_tasks(call->threads, clear_task, &copy, ceil_div(n, TASK_BLOCK), n);
    }
    run_tasks(call->threads, gather_task, &copy, ceil_div(call->width, COLUMNS_OF_TASK),
              call->n_ids * call->width);
}
