/*
 * optim.c - stochastic gradient descent with momentum, Nesterov's if wanted, and weight decay
 * (Sutskever et al. 2013, in the form without the learning rate in the momentum).
 */
#include "isa.h"

static void plain_block(const dunlin_sgd_call *call, int64_t first, int64_t end)
{
    float *w = call->weights;
    const float *g = call->gradient;
    const float lr = call->lr;
    const float decay = call->weight_decay;
    for (int64_t i = first; i < end; i++) {
        w[i] -= lr * (g[i] + decay * w[i]);
    }
}

static void momentum_block(const dunlin_sgd_call *call, int64_t first, int64_t end)
{
    float *w = call->weights;
    float *m = call->momentum;
    const float *g = call->gradient;
    const float lr = call->lr;
    const float decay = call->weight_decay;
    const float factor = call->momentum_factor;
    /* Nesterov looks one step ahead along the momentum. */
    const float ahead = call->is_nesterov ? factor : 1.0f;
    const float now = call->is_nesterov ? 1.0f : 0.0f;
    for (int64_t i = first; i < end; i++) {
        float step = g[i] + decay * w[i];
        float v = factor * m[i] + step;
        m[i] = v;
        w[i] -= lr * (now * step + ahead * v);
    }
}

static void sgd_task(void *ctx, size_t task)
{
    const dunlin_sgd_call *call = ctx;
    const int64_t first = (int64_t)task * TASK_BLOCK;
    const int64_t end = min_i64(call->n, first + TASK_BLOCK);
    if (call->momentum == NULL) {
        plain_block(call, first, end);
    } else {
        momentum_block(call, first, end);
    }
}

void K(sgd)(const dunlin_sgd_call *call)
{
    dunlin_sgd_call copy = *call;
    run_tasks(call->threads, sgd_task, &copy, ceil_div(call->n, TASK_BLOCK), call->n);
}
