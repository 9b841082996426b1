/*
 * broadcast.c - elementwise arithmetic over operands with strides: broadcasting, its gradient (sums
 * over what was repeated), permutations, means.
 *
 * A walk goes through one sample's elements row by row. Where several of its elements meet in one
 * of the output, they are added in the order of the walk, and samples in their order, so neither
 * slices nor threads change a bit.
 */
#include "kernels/gemm/gemm.h"
#include "kernels/simd/vecmath.h"

typedef struct walk_row {
    const dunlin_walk_call *call;
    const float *in[3];
    float *out;
    int64_t n;
    int64_t steps[3]; /* of the innermost dimension */
    int64_t out_step;
} walk_row;

ALWAYS_INLINE vfloat load_step(const float *p, int64_t step, int64_t i, int32_t n)
{
    if (step == 1) {
        return vload_n(p + i, n);
    }
    if (step == 0) {
        return vset1(*p);
    }
    float values[VEC] = {0};
    for (int32_t k = 0; k < n; k++) {
        values[k] = p[(i + k) * step];
    }
    return vload(values);
}

ALWAYS_INLINE vfloat value_at(dunlin_walk_fn fn, const walk_row *row, int64_t i, int32_t n)
{
    const vfloat a = load_step(row->in[0], row->steps[0], i, n);
    if (fn == DUNLIN_WALK_COPY) {
        return a;
    }
    const vfloat b = load_step(row->in[1], row->steps[1], i, n);
    switch (fn) {
    case DUNLIN_WALK_ADD:
        return a + b;
    case DUNLIN_WALK_SUB:
        return a - b;
    case DUNLIN_WALK_MUL:
        return a * b;
    case DUNLIN_WALK_DIV:
        return a / b;
    case DUNLIN_WALK_DIV_GRAD:
        return -a * b /
               (load_step(row->in[2], row->steps[2], i, n) *
                load_step(row->in[2], row->steps[2], i, n));
    case DUNLIN_WALK_COPY:
        break;
    }
    return a;
}

/* One row, every element with a place of its own. */
ALWAYS_INLINE void write_row(dunlin_walk_fn fn, const walk_row *row)
{
    const float factor = row->call->walk->factor;
    for (int64_t i = 0; i < row->n; i += VEC) {
        const int32_t n = vec_left(row->n, i);
        const vfloat v = factor * value_at(fn, row, i, n);
        if (row->out_step == 1) {
            vstore_n(row->out + i, v, n);
            continue;
        }
        for (int32_t k = 0; k < n; k++) {
            row->out[(i + k) * row->out_step] = v[k];
        }
    }
}

/* One row added to what its elements share. */
ALWAYS_INLINE void add_row(dunlin_walk_fn fn, const walk_row *row)
{
    const float factor = row->call->walk->factor;
    vfloat sum = vzero();
    float tail = 0.0F;
    for (int64_t i = 0; i < row->n; i += VEC) {
        const int32_t n = vec_left(row->n, i);
        const vfloat v = factor * value_at(fn, row, i, n);
        if (row->out_step == 1) {
            vstore_n(row->out + i, vload_n(row->out + i, n) + v, n);
        } else if (row->out_step != 0) {
            for (int32_t k = 0; k < n; k++) {
                row->out[(i + k) * row->out_step] += v[k];
            }
        } else if (n == VEC) {
            sum += v;
        } else {
            for (int32_t k = 0; k < n; k++) {
                tail += v[k];
            }
        }
    }
    if (row->out_step == 0) {
        *row->out += vsum(sum) + tail;
    }
}

#define ROW_FNS(name, fn)                                                                          \
    static void write_##name(const walk_row *row)                                                  \
    {                                                                                              \
        write_row(fn, row);                                                                        \
    }                                                                                              \
    static void add_##name(const walk_row *row)                                                    \
    {                                                                                              \
        add_row(fn, row);                                                                          \
    }

ROW_FNS(copy, DUNLIN_WALK_COPY)
ROW_FNS(add, DUNLIN_WALK_ADD)
ROW_FNS(sub, DUNLIN_WALK_SUB)
ROW_FNS(mul, DUNLIN_WALK_MUL)
ROW_FNS(div, DUNLIN_WALK_DIV)
ROW_FNS(div_grad, DUNLIN_WALK_DIV_GRAD)

typedef void (*row_fn)(const walk_row *row);

static const row_fn row_fns[][2] = {
    [DUNLIN_WALK_COPY] = {write_copy, add_copy},
    [DUNLIN_WALK_ADD] = {write_add, add_add},
    [DUNLIN_WALK_SUB] = {write_sub, add_sub},
    [DUNLIN_WALK_MUL] = {write_mul, add_mul},
    [DUNLIN_WALK_DIV] = {write_div, add_div},
    [DUNLIN_WALK_DIV_GRAD] = {write_div_grad, add_div_grad},
};

/* The rows of one sample, the outer dimensions counted up like the digits of a number. */
static void walk_sample(const dunlin_walk_call *call, int64_t sample)
{
    const dunlin_walk *walk = call->walk;
    const int32_t inner = walk->n_dims - 1;
    walk_row row = {.call = call, .n = walk->dims[inner], .out_step = walk->out.strides[inner]};
    int64_t at[3] = {0};
    int64_t out_at = sample * walk->out.sample_stride;
    for (int k = 0; k < 3; k++) {
        row.steps[k] = walk->in[k].strides[inner];
        at[k] = sample * walk->in[k].sample_stride;
    }
    const row_fn run = row_fns[walk->fn][walk->is_sum ? 1 : 0];
    int64_t digits[DUNLIN_WALK_MAX_DIMS] = {0};
    for (;;) {
        for (int k = 0; k < 3; k++) {
            row.in[k] = call->in[k] == NULL ? NULL : call->in[k] + at[k];
        }
        row.out = call->out + out_at;
        run(&row);
        int32_t d = inner - 1;
        for (; d >= 0; d--) {
            const bool is_carried = ++digits[d] == walk->dims[d];
            const int64_t steps = is_carried ? 1 - walk->dims[d] : 1;
            for (int k = 0; k < 3; k++) {
                at[k] += steps * walk->in[k].strides[d];
            }
            out_at += steps * walk->out.strides[d];
            if (!is_carried) {
                break;
            }
            digits[d] = 0;
        }
        if (d < 0) {
            return;
        }
    }
}

static void walk_task(void *ctx, size_t task)
{
    const dunlin_walk_call *call = ctx;
    const dunlin_walk *walk = call->walk;
    if (walk->is_sum && walk->out.sample_stride != 0) {
        vclear(call->out + (int64_t)task * walk->out.sample_stride, walk->n_out);
    }
    walk_sample(call, (int64_t)task);
}

void K(walk)(const dunlin_walk_call *call)
{
    const dunlin_walk *walk = call->walk;
    dunlin_walk_call copy = *call;
    int64_t n_floats = call->n_samples;
    for (int32_t d = 0; d < walk->n_dims; d++) {
        n_floats *= walk->dims[d];
    }
    if (walk->out.sample_stride != 0) {
        run_tasks(call->threads, walk_task, &copy, call->n_samples, n_floats);
        return;
    }
    if (call->is_reset) {
        vclear(call->out, walk->n_out);
    }
    for (int64_t s = 0; s < call->n_samples; s++) {
        walk_sample(call, s);
    }
}
