/*
 * embedding_kernel.c - picks rows of a table by number, and computes the table's gradient.
 *
 * Numbers come as floats that have been checked: whole and within the table. A row's gradient is
 * one chain over the batch's tokens in their order; threads share columns, so they change no bit.
 * Of a large table only the sums of the rows that the batch names are kept.
 */
#include "kernels/epilogue/sink.h"
#include "kernels/gemm/gemm.h"

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

static void pick_transposed_task(void *ctx, size_t task)
{
    const dunlin_embedding_call *call = ctx;
    const int64_t first = (int64_t)task * IDS_OF_TASK;
    const int64_t end = min_i64(call->n_ids, first + IDS_OF_TASK);
    for (int64_t i = first; i < end; i++) {
        const float *from = call->table + (int64_t)call->ids[i];
        float *to = call->out + i * call->width;
        for (int64_t c = 0; c < call->width; c++) {
            to[c] = from[c * call->n_rows];
        }
    }
}

void K(embedding)(const dunlin_embedding_call *call)
{
    dunlin_embedding_call copy = *call;
    run_tasks(call->threads, call->is_transposed ? pick_transposed_task : pick_task, &copy,
              ceil_div(call->n_ids, IDS_OF_TASK), call->n_ids * call->width);
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

/* The sum that a token adds to. */
static float *sum_of(const dunlin_embedding_call *call, int64_t token)
{
    const int64_t row = (int64_t)call->ids[token];
    return call->sums.slots != NULL ? call->sums.values + call->sums.slots[row] * call->width
                                    : call->out + row * call->width;
}

static void gather_task(void *ctx, size_t task)
{
    const dunlin_embedding_call *call = ctx;
    const int64_t first = (int64_t)task * COLUMNS_OF_TASK;
    const int64_t n_columns = min_i64(COLUMNS_OF_TASK, call->width - first);
    for (int64_t i = 0; i < call->n_ids; i++) {
        float *to = sum_of(call, i) + first;
        const float *from = call->dy + i * call->width + first;
        for (int64_t c = 0; c < n_columns; c += VEC) {
            const int32_t n = vec_left(n_columns, c);
            vstore_n(to + c, vload_n(to + c, n) + vload_n(from + c, n), n);
        }
    }
}

static void gather_transposed_task(void *ctx, size_t task)
{
    const dunlin_embedding_call *call = ctx;
    const int64_t first = (int64_t)task * COLUMNS_OF_TASK;
    const int64_t end = min_i64(call->width, first + COLUMNS_OF_TASK);
    for (int64_t i = 0; i < call->n_ids; i++) {
        float *to = call->out + (int64_t)call->ids[i];
        const float *from = call->dy + i * call->width;
        for (int64_t c = first; c < end; c++) {
            to[c * call->n_rows] += from[c];
        }
    }
}

/* Slots for the rows that are named for the first time; their sums begin at zero. */
static void give_slots(const dunlin_embedding_call *call)
{
    const dunlin_row_sums *sums = &call->sums;
    if (call->is_reset) {
        *sums->n = 0;
        memset(sums->slots, 0xFF, (size_t)call->n_rows * sizeof *sums->slots);
    }
    const int32_t n_before = *sums->n;
    int32_t n = n_before;
    for (int64_t i = 0; i < call->n_ids; i++) {
        int32_t *slot = &sums->slots[(int64_t)call->ids[i]];
        *slot = *slot < 0 ? n++ : *slot;
    }
    memset(sums->values + n_before * call->width, 0,
           (size_t)(n - n_before) * (size_t)call->width * sizeof *sums->values);
    *sums->n = n;
}

void K(embedding_grad)(const dunlin_embedding_call *call)
{
    dunlin_embedding_call copy = *call;
    if (call->sums.slots != NULL) {
        give_slots(call);
    } else if (call->is_reset) {
        const int64_t n = call->n_rows * call->width;
        run_tasks(call->threads, clear_task, &copy, ceil_div(n, TASK_BLOCK), n);
    }
    run_tasks(call->threads, call->is_transposed ? gather_transposed_task : gather_task, &copy,
              ceil_div(call->width, COLUMNS_OF_TASK), call->n_ids * call->width);
}

typedef struct join_job {
    int64_t n_rows, width;
    const float *a;
    const dunlin_row_sums *sums;
    float *out;
} join_job;

#define JOIN_ROWS 64

/* A row without a sum gets zero, as from a gradient that has all rows. */
static void join_task(void *ctx, size_t task)
{
    const join_job *job = ctx;
    const int64_t first = (int64_t)task * JOIN_ROWS;
    const int64_t end = min_i64(job->n_rows, first + JOIN_ROWS);
    for (int64_t row = first; row < end; row++) {
        const int32_t slot = job->sums->slots[row];
        const float *from = job->a + row * job->width;
        const float *sum = slot < 0 ? NULL : job->sums->values + slot * job->width;
        float *to = job->out + row * job->width;
        for (int64_t c = 0; c < job->width; c += VEC) {
            const int32_t n = vec_left(job->width, c);
            const vfloat part = sum == NULL ? vzero() : vload_n(sum + c, n);
            vstore_n(to + c, vload_n(from + c, n) + part, n);
        }
    }
}

void K(add_row_sums)(int64_t n_rows, int64_t width, const float *a, const dunlin_row_sums *sums,
                     float *out, dunlin_threads *threads)
{
    join_job job = {.n_rows = n_rows, .width = width, .a = a, .sums = sums, .out = out};
    run_tasks(threads, join_task, &job, ceil_div(n_rows, JOIN_ROWS), n_rows * width);
}
