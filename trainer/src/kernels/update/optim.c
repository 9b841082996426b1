/*
 * optim.c - one pass over a parameter: the gradient taken in (clipped, scaled), the optimiser's
 * state and the weights updated in place. Stochastic gradient descent with momentum (Sutskever et
 * al. 2013, in the form without the learning rate in the momentum), Adam (Kingma, Ba 2015), AdamW
 * (Loshchilov, Hutter 2019).
 *
 * Invariant: an element's new value depends on that element's old ones alone; a parameter is
 * written whole or not at all, and never a value that is not finite.
 */
#include "update.h"

#include <math.h>

ALWAYS_INLINE float take_in(float g, float limit, float factor)
{
    /* Not-a-number passes. */
    g = g < -limit ? -limit : g;
    g = g > limit ? limit : g;
    return g * factor;
}

/*
 * Each span computes the new values of its elements, and with `writes` stores them. Returns whether
 * gradient and new values are all finite.
 */
ALWAYS_INLINE bool plain_body(const dunlin_sgd_call *call, int64_t first, int64_t n,
                              const float *gradient, bool writes)
{
    float *restrict w = call->weights + first;
    const float *restrict g = gradient;
    const float limit = call->gradient.limit;
    const float factor = call->gradient.factor;
    const float lr = call->lr;
    const float decay = call->weight_decay;
    uint32_t seen = 0;
    for (int64_t i = 0; i < n; i++) {
        float next = w[i] - lr * (take_in(g[i], limit, factor) + decay * w[i]);
        if (writes) {
            w[i] = next;
        } else {
            seen = finite_gather(finite_gather(seen, g[i]), next);
        }
    }
    return finite_is_all(seen);
}

static bool plain_span(const void *call, int64_t first, int64_t n, const float *gradient,
                       bool writes)
{
    return writes ? plain_body(call, first, n, gradient, true)
                  : plain_body(call, first, n, gradient, false);
}

ALWAYS_INLINE bool momentum_body(const dunlin_sgd_call *call, int64_t first, int64_t n,
                                 const float *gradient, bool writes)
{
    float *restrict w = call->weights + first;
    float *restrict m = call->momentum + first;
    const float *restrict g = gradient;
    const float limit = call->gradient.limit;
    const float factor = call->gradient.factor;
    const float lr = call->lr;
    const float decay = call->weight_decay;
    const float keep = call->momentum_factor;
    /* Nesterov looks one step ahead along the momentum. */
    const float prefetch = call->is_nesterov ? keep : 1.0F;
    const float now = call->is_nesterov ? 1.0F : 0.0F;
    uint32_t seen = 0;
    for (int64_t i = 0; i < n; i++) {
        float step = take_in(g[i], limit, factor) + decay * w[i];
        float v = keep * m[i] + step;
        float next = w[i] - lr * (now * step + prefetch * v);
        if (writes) {
            m[i] = v;
            w[i] = next;
        } else {
            seen = finite_gather(finite_gather(finite_gather(seen, g[i]), v), next);
        }
    }
    return finite_is_all(seen);
}

static bool momentum_span(const void *call, int64_t first, int64_t n, const float *gradient,
                          bool writes)
{
    return writes ? momentum_body(call, first, n, gradient, true)
                  : momentum_body(call, first, n, gradient, false);
}

ALWAYS_INLINE bool adam_body(const dunlin_adam_call *call, int64_t first, int64_t n,
                             const float *gradient, bool writes)
{
    float *restrict w = call->weights + first;
    float *restrict m = call->mean + first;
    float *restrict v = call->square + first;
    const float *restrict g = gradient;
    const float limit = call->gradient.limit;
    const float factor = call->gradient.factor;
    /* Factors are rounded once, from double. */
    const float decay = call->is_decoupled ? 0.0F : (float)call->weight_decay;
    const float shrink = call->is_decoupled ? (float)(1.0 - call->lr * call->weight_decay) : 1.0F;
    const float keep1 = (float)call->beta1;
    const float add1 = (float)(1.0 - call->beta1);
    const float keep2 = (float)call->beta2;
    const float add2 = (float)(1.0 - call->beta2);
    const float size = (float)(call->lr / call->correction1);
    const float root = (float)(1.0 / sqrt(call->correction2));
    const float eps = (float)call->eps;
    uint32_t seen = 0;
    for (int64_t i = 0; i < n; i++) {
        float step = take_in(g[i], limit, factor) + decay * w[i];
        float mean = keep1 * m[i] + add1 * step;
        float square = keep2 * v[i] + add2 * (step * step);
        float next = shrink * w[i] - size * mean / (sqrtf(square) * root + eps);
        if (writes) {
            m[i] = mean;
            v[i] = square;
            w[i] = next;
        } else {
            seen = finite_gather(finite_gather(seen, g[i]), mean);
            seen = finite_gather(finite_gather(seen, square), next);
        }
    }
    return finite_is_all(seen);
}

static bool adam_span(const void *call, int64_t first, int64_t n, const float *gradient,
                      bool writes)
{
    return writes ? adam_body(call, first, n, gradient, true)
                  : adam_body(call, first, n, gradient, false);
}

static void span_task(void *ctx, size_t task)
{
    update_walk *walk = ctx;
    const update_pass *pass = walk->pass;
    const int64_t block = task_block(pass->threads, pass->n);
    const int64_t first = (int64_t)task * block;
    if (!pass->fn(pass->call, first, min_i64(block, pass->n - first), pass->gradient + first,
                  walk->writes)) {
        atomic_store_explicit(&walk->has_failed, true, memory_order_relaxed);
    }
}

/* Over all that the pass is about; false if something is not finite. */
static bool run_walk(const update_pass *pass, bool writes)
{
    update_walk walk = {.pass = pass, .writes = writes};
    atomic_init(&walk.has_failed, false);
    if (pass->rows != NULL) {
        K(update_rows)(&walk);
    } else {
        run_tasks(pass->threads, span_task, &walk,
                  ceil_div(pass->n, task_block(pass->threads, pass->n)), pass->n);
    }
    return !atomic_load_explicit(&walk.has_failed, memory_order_relaxed);
}

/* Everything is computed before the first element is written, and then once more. */
static bool run_pass(const update_pass *pass)
{
    return run_walk(pass, false) && run_walk(pass, true);
}

bool K(sgd)(const dunlin_sgd_call *call)
{
    return run_pass(&(update_pass){.fn = call->momentum == NULL ? plain_span : momentum_span,
                                   .call = call,
                                   .n = call->n,
                                   .gradient = call->gradient.values,
                                   .rows = call->rows,
                                   .state = {call->momentum, NULL},
                                   .threads = call->threads});
}

bool K(adam)(const dunlin_adam_call *call)
{
    return run_pass(&(update_pass){.fn = adam_span,
                                   .call = call,
                                   .n = call->n,
                                   .gradient = call->gradient.values,
                                   .rows = call->rows,
                                   .state = {call->mean, call->square},
                                   .threads = call->threads});
}

typedef struct square_job {
    int64_t n;
    const float *x;
    float limit;
    double *sums;
} square_job;

/* The value that is squared: no number where the gradient is not finite, clipped or not. */
ALWAYS_INLINE double value_of(float x, float limit)
{
    return (double)(take_in(x, limit, 1.0F) + (x - x));
}

/* Chains side by side, as many as the widest set has lanes: the same sum on all. */
#define SQUARE_CHAINS 16

static void square_task(void *ctx, size_t task)
{
    const square_job *job = ctx;
    const int64_t first = (int64_t)task * DUNLIN_SQUARE_BLOCK;
    const int64_t n = min_i64(DUNLIN_SQUARE_BLOCK, job->n - first);
    const float *x = job->x + first;
    double chains[SQUARE_CHAINS] = {0.0};
    int64_t i = 0;
    for (; i + SQUARE_CHAINS <= n; i += SQUARE_CHAINS) {
        for (int k = 0; k < SQUARE_CHAINS; k++) {
            const double v = value_of(x[i + k], job->limit);
            chains[k] += v * v;
        }
    }
    for (int k = 0; i < n; i++, k++) {
        const double v = value_of(x[i], job->limit);
        chains[k] += v * v;
    }
    double sum = 0.0;
    for (int k = 0; k < SQUARE_CHAINS; k++) {
        sum += chains[k];
    }
    job->sums[task] = sum;
}

void K(square_sums)(int64_t n, const float *x, float limit, double *out_sums,
                    dunlin_threads *threads)
{
    square_job job = {.n = n, .x = x, .limit = limit};
    job.sums = out_sums;
    run_tasks(threads, square_task, &job, ceil_div(n, DUNLIN_SQUARE_BLOCK), n);
}
