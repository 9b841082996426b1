/*
 * softmax.c - softmax of rows, and its gradient. Each row by itself, in one order; the output may
 * be the input's memory.
 */
#include "softmax.h"

#include "isa.h"

static int64_t rows_of_task(const dunlin_softmax_call *call)
{
    return max_i64(1, TASK_BLOCK / call->width);
}

static void softmax_task(void *ctx, size_t task)
{
    const dunlin_softmax_call *call = ctx;
    const int64_t first = (int64_t)task * rows_of_task(call);
    const int64_t end = min_i64(call->n_rows, first + rows_of_task(call));
    for (int64_t i = first; i < end; i++) {
        const int64_t at = i * call->width;
        if (call->dy == NULL) {
            const softmax_row row =
                softmax_exp(call->x + at, call->width, 1.0F, NULL, call->out + at);
            softmax_scale(call->out + at, call->width, row.inv_sum);
        } else {
            softmax_row_grad(call->x + at, call->dy + at, call->width, 1.0F, call->out + at);
        }
    }
}

void K(softmax)(const dunlin_softmax_call *call)
{
    dunlin_softmax_call copy = *call;
    run_tasks(call->threads, softmax_task, &copy, ceil_div(call->n_rows, rows_of_task(call)),
              call->n_rows * call->width);
}
