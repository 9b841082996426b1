/*
 * int_map.c - element by element over int8: sums, rows of a concat, clip and its gradient,
 * transposition.
 */
#include "int_entries.h"
#include "rounding.h"

/* A pass over elements or rows, in pieces. */
typedef struct int_map_job {
    const dunlin_int_add_call *add;
    const dunlin_int_rows_call *rows;
    int64_t n, block;
    const int8_t *x, *by;
    int32_t low, high;
    int8_t *out;
    int64_t n_rows, n_columns;
    int_tally tally;
} int_map_job;

ALWAYS_INLINE int32_t align(int32_t v, int32_t shift, int32_t half)
{
    const int32_t size = ((v < 0 ? -v : v) + half) >> shift;
    return v < 0 ? -size : size;
}

/* int8 has no more than 8 bits to lose: half of 2^9 is above every magnitude. */
static int32_t small_shift(int32_t shift)
{
    return shift <= 0 ? 0 : shift > 9 ? 9 : shift;
}

static void add_part(const dunlin_int_add_call *call, int64_t first, int64_t end, int_count *count)
{
    const int32_t a_shift = small_shift(call->a_shift);
    const int32_t b_shift = small_shift(call->b_shift);
    const int32_t shift = small_shift(call->rounding.shift);
    const int32_t a_half = (int32_t)int_half(a_shift);
    const int32_t b_half = (int32_t)int_half(b_shift);
    const int32_t half = (int32_t)int_half(shift);
    const int8_t *a = call->a;
    const int8_t *b = call->b;
    int8_t *out = call->out;
    int32_t largest = 0;
    int32_t n_clipped = 0;
    for (int64_t i = first; i < end; i++) {
        int32_t sum = align(a[i], a_shift, a_half);
        sum += b == NULL ? 0 : align(b[i], b_shift, b_half);
        const int32_t size = sum < 0 ? -sum : sum;
        const int32_t q = align(sum, shift, half);
        largest = size > largest ? size : largest;
        n_clipped += q > DUNLIN_INT_MOST || q < -DUNLIN_INT_MOST ? 1 : 0;
        out[i] = (int8_t)int_within(int_within(q, -DUNLIN_INT_MOST, DUNLIN_INT_MOST), call->low,
                                    call->high);
    }
    count->largest = max_i64(count->largest, largest);
    count->n_clipped += n_clipped;
}

static void add_task(void *ctx, size_t task)
{
    int_map_job *job = (int_map_job *)ctx;
    const int64_t first = (int64_t)task * job->block;
    int_count count = {0, 0};
    add_part(job->add, first, min_i64(job->add->n, first + job->block), &count);
    int_tally_take(&job->tally, &count);
}

void K(int_add)(const dunlin_int_add_call *call)
{
    int_map_job job = {.add = call, .block = task_block(call->threads, call->n)};
    int_tally_open(&job.tally);
    run_tasks(call->threads, add_task, &job, ceil_div(call->n, job.block), call->n);
    int_tally_close(&job.tally, &call->rounding);
}

/* RoundShift of one row whose statistics nobody wants: 16 bits hold all of it. */
static void shift_row(const int8_t *restrict from, int64_t n, int32_t shift, int8_t *restrict to)
{
    const uint16_t half = (uint16_t)int_half(shift);
    for (int64_t i = 0; i < n; i++) {
        const int16_t v = (int16_t)from[i];
        const uint16_t size = (uint16_t)(v < 0 ? -v : v);
        const int16_t q = (int16_t)((uint16_t)(size + half) >> shift);
        to[i] = (int8_t)(v < 0 ? -q : q);
    }
}

static void rows_task(void *ctx, size_t task)
{
    int_map_job *job = (int_map_job *)ctx;
    const dunlin_int_rows_call *call = job->rows;
    const int64_t end = min_i64(call->n_rows, ((int64_t)task + 1) * job->block);
    const int32_t shift = small_shift(call->rounding.shift);
    int_count count = {0, 0};
    for (int64_t i = (int64_t)task * job->block; call->rounding.stats == NULL && i < end; i++) {
        const int8_t *from = call->from + i * call->from_pitch;
        int8_t *to = call->to + i * call->to_pitch;
        if (shift == 0) {
            memcpy(to, from, (size_t)call->width);
        } else {
            shift_row(from, call->width, shift, to);
        }
    }
    if (call->rounding.stats == NULL) {
        return;
    }
    for (int64_t i = (int64_t)task * job->block; i < end; i++) {
        const dunlin_int_add_call row = {.a = call->from + i * call->from_pitch,
                                         .low = -DUNLIN_INT_MOST,
                                         .high = DUNLIN_INT_MOST,
                                         .out = call->to + i * call->to_pitch,
                                         .rounding = call->rounding};
        add_part(&row, 0, call->width, &count);
    }
    int_tally_take(&job->tally, &count);
}

void K(int_copy_rows)(const dunlin_int_rows_call *call)
{
    const int64_t block =
        max_i64(1, task_block(call->threads, call->n_rows * call->width) / max_i64(1, call->width));
    int_map_job job = {.rows = call, .block = block};
    int_tally_open(&job.tally);
    run_tasks(call->threads, rows_task, &job, ceil_div(call->n_rows, block),
              call->n_rows * call->width);
    int_tally_close(&job.tally, &call->rounding);
}

static void clip_task(void *ctx, size_t task)
{
    const int_map_job *job = (const int_map_job *)ctx;
    const int64_t end = min_i64(job->n, ((int64_t)task + 1) * job->block);
    const int8_t *x = job->x;
    int8_t *out = job->out;
    const int32_t low = job->low;
    const int32_t high = job->high;
    for (int64_t i = (int64_t)task * job->block; i < end; i++) {
        out[i] = (int8_t)int_within(x[i], low, high);
    }
}

void K(int_clip)(int64_t n, const int8_t *x, int32_t low, int32_t high, int8_t *y,
                 dunlin_threads *threads)
{
    int_map_job job = {.n = n, .block = task_block(threads, n), .x = x, .out = y};
    job.low = low;
    job.high = high;
    run_tasks(threads, clip_task, &job, ceil_div(n, job.block), n);
}

static void clip_grad_task(void *ctx, size_t task)
{
    const int_map_job *job = (const int_map_job *)ctx;
    const int64_t end = min_i64(job->n, ((int64_t)task + 1) * job->block);
    const int8_t *x = job->x;
    const int8_t *by = job->by;
    int8_t *out = job->out;
    const int32_t low = job->low;
    const int32_t high = job->high;
    for (int64_t i = (int64_t)task * job->block; i < end; i++) {
        out[i] = (int8_t)(by[i] > low && by[i] < high ? x[i] : 0);
    }
}

// NOLINTNEXTLINE(readability-function-size): the table's signature
void K(int_clip_grad)(int64_t n, const int8_t *dy, const int8_t *y, int32_t low, int32_t high,
                      int8_t *dx, dunlin_threads *threads)
{
    int_map_job job = {.n = n, .block = task_block(threads, n), .x = dy, .by = y, .out = dx};
    job.low = low;
    job.high = high;
    run_tasks(threads, clip_grad_task, &job, ceil_div(n, job.block), n);
}

#define TURN_BLOCK 32 /* rows at once: what is read and what is written stay in the first cache */

static void transpose_task(void *ctx, size_t task)
{
    const int_map_job *job = (const int_map_job *)ctx;
    const int64_t blocks = ceil_div(job->n_rows, TURN_BLOCK);
    const int64_t sample = (int64_t)task / blocks;
    const int64_t first = (int64_t)task % blocks * TURN_BLOCK;
    const int64_t end = min_i64(job->n_rows, first + TURN_BLOCK);
    const int8_t *x = job->x + sample * job->n_rows * job->n_columns;
    int8_t *y = job->out + sample * job->n_rows * job->n_columns;
    for (int64_t j = 0; j < job->n_columns; j++) {
        for (int64_t i = first; i < end; i++) {
            y[j * job->n_rows + i] = x[i * job->n_columns + j];
        }
    }
}

void K(int_transpose)(int64_t n, int64_t rows, int64_t columns, const int8_t *x, int8_t *y,
                      dunlin_threads *threads)
{
    int_map_job job = {.n_rows = rows, .n_columns = columns, .x = x, .out = y};
    run_tasks(threads, transpose_task, &job, n * ceil_div(rows, TURN_BLOCK), n * rows * columns);
}
