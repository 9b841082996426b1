/*
 * broadcast.c - elementwise arithmetic over operands with strides: broadcasting, its gradient (sums
 * over what was repeated), permutations, means.
 *
 * A walk goes through one sample's elements block by block: rows of the last dimension, one after
 * the other along the one before. Where several of its elements meet in one of the output, they are
 * added in the order of the walk, and samples in their order. Threads share out elements of the
 * output only, so neither slices nor threads change a bit.
 */
#include "kernels/gemm/gemm.h"
#include "kernels/simd/vecmath.h"

#include <math.h>

#define BESIDE 4 /* vectors of sums in registers */

typedef struct walk_block {
    const float *in[3];
    float *out;
    int64_t n, n_rows;
    int64_t steps[3], row_steps[3];
    int64_t out_step, out_row_step;
    float factor;
} walk_block;

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

/* Operand k of row r, from element i on. */
ALWAYS_INLINE vfloat operand_at(const walk_block *b, int k, int64_t r, int64_t i, int32_t n)
{
    return load_step(b->in[k] + r * b->row_steps[k], b->steps[k], i, n);
}

/* v where the mask is set, else +0. */
ALWAYS_INLINE vfloat where(vint mask, vfloat v)
{
    return (vfloat)((vint)v & mask);
}

/* The larger one (is_largest) or the smaller one; not-a-number wins and stays. */
ALWAYS_INLINE vfloat extreme(bool is_largest, vfloat best, vfloat v)
{
    // NOLINTNEXTLINE(misc-redundant-expression): v == v tells what is no number
    const vint wins = (vint)(is_largest ? v > best : v < best) | ~(vint)(v == v);
    return (vfloat)((wins & (vint)v) | (~wins & (vint)best));
}

/* Of few numbers: one for each that a reduction leaves. */
ALWAYS_INLINE vfloat vroot(vfloat v)
{
    for (int k = 0; k < VEC; k++) {
        v[k] = sqrtf(v[k]);
    }
    return v;
}

ALWAYS_INLINE vfloat vlogs(vfloat v)
{
    for (int k = 0; k < VEC; k++) {
        v[k] = logf(v[k]);
    }
    return v;
}

ALWAYS_INLINE vfloat value_at(dunlin_walk_fn fn, const walk_block *block, int64_t r, int64_t i,
                              int32_t n)
{
    const vfloat a = operand_at(block, 0, r, i, n);
    if (fn == DUNLIN_WALK_COPY) {
        return block->factor * a;
    }
    if (fn == DUNLIN_WALK_ABS) {
        return block->factor * vabs(a);
    }
    if (fn == DUNLIN_WALK_ROOT) {
        return block->factor * vroot(a);
    }
    const vfloat b = operand_at(block, 1, r, i, n);
    switch (fn) {
    case DUNLIN_WALK_ADD:
        return block->factor * (a + b);
    case DUNLIN_WALK_SUB:
        return block->factor * (a - b);
    case DUNLIN_WALK_MUL:
        return block->factor * (a * b);
    case DUNLIN_WALK_DIV:
        return block->factor * (a / b);
    case DUNLIN_WALK_DIV_GRAD: {
        const vfloat c = operand_at(block, 2, r, i, n);
        return block->factor * (-a * b / (c * c));
    }
    case DUNLIN_WALK_SIGN:
        return block->factor * where(b != vzero(), a * vcopysign(vset1(1.0F), b));
    case DUNLIN_WALK_UNIT: {
        const vfloat c = operand_at(block, 2, r, i, n);
        return block->factor * where(c != vzero(), a * b / c);
    }
    case DUNLIN_WALK_EXP_SUB:
        return block->factor * vexp(a - b);
    case DUNLIN_WALK_LOG_ADD:
        return block->factor * (a + vlogs(b));
    case DUNLIN_WALK_EXP_GRAD:
        return block->factor * (a * vexp(b - operand_at(block, 2, r, i, n)));
    case DUNLIN_WALK_EQUAL:
        return block->factor * where(a == b, vset1(1.0F));
    case DUNLIN_WALK_PICK:
        return block->factor * where(b == operand_at(block, 2, r, i, n), a);
    case DUNLIN_WALK_MAX:
        return block->factor * extreme(true, a, b);
    case DUNLIN_WALK_MIN:
        return block->factor * extreme(false, a, b);
    case DUNLIN_WALK_MAX_GRAD: {
        const vfloat c = operand_at(block, 2, r, i, n);
        return block->factor * (where(b > c, a) + where(b == c, 0.5F * a));
    }
    case DUNLIN_WALK_COPY:
    case DUNLIN_WALK_ABS:
    case DUNLIN_WALK_ROOT:
        break;
    }
    return a;
}

/* Every element has a place of its own. */
ALWAYS_INLINE void write_block(dunlin_walk_fn fn, const walk_block *block)
{
    for (int64_t r = 0; r < block->n_rows; r++) {
        float *out = block->out + r * block->out_row_step;
        for (int64_t i = 0; i < block->n; i += VEC) {
            const int32_t n = vec_left(block->n, i);
            const vfloat v = value_at(fn, block, r, i, n);
            if (block->out_step == 1) {
                vstore_n(out + i, v, n);
                continue;
            }
            for (int32_t k = 0; k < n; k++) {
                out[(i + k) * block->out_step] = v[k];
            }
        }
    }
}

/* One row added to what its elements share. */
ALWAYS_INLINE void add_row(dunlin_walk_fn fn, const walk_block *block, int64_t r)
{
    float *out = block->out + r * block->out_row_step;
    vfloat sum = vzero();
    float tail = 0.0F;
    for (int64_t i = 0; i < block->n; i += VEC) {
        const int32_t n = vec_left(block->n, i);
        const vfloat v = value_at(fn, block, r, i, n);
        if (block->out_step == 1) {
            vstore_n(out + i, vload_n(out + i, n) + v, n);
        } else if (block->out_step != 0) {
            for (int32_t k = 0; k < n; k++) {
                out[(i + k) * block->out_step] += v[k];
            }
        } else if (n == VEC) {
            sum += v;
        } else {
            for (int32_t k = 0; k < n; k++) {
                tail += v[k];
            }
        }
    }
    if (block->out_step == 0) {
        *out += vsum(sum) + tail;
    }
}

/* Rows that are added to one row: its sums stay in registers. */
ALWAYS_INLINE void add_block(dunlin_walk_fn fn, const walk_block *block)
{
    if (block->out_step != 1 || block->out_row_step != 0) {
        for (int64_t r = 0; r < block->n_rows; r++) {
            add_row(fn, block, r);
        }
        return;
    }
    int64_t i = 0;
    for (; i + BESIDE * VEC <= block->n; i += BESIDE * VEC) {
        vfloat sums[BESIDE];
        for (int k = 0; k < BESIDE; k++) {
            sums[k] = vload(block->out + i + k * VEC);
        }
        for (int64_t r = 0; r < block->n_rows; r++) {
            for (int k = 0; k < BESIDE; k++) {
                sums[k] += value_at(fn, block, r, i + k * VEC, VEC);
            }
        }
        for (int k = 0; k < BESIDE; k++) {
            vstore(block->out + i + k * VEC, sums[k]);
        }
    }
    for (; i < block->n; i += VEC) {
        const int32_t n = vec_left(block->n, i);
        vfloat sum = vload_n(block->out + i, n);
        for (int64_t r = 0; r < block->n_rows; r++) {
            sum += value_at(fn, block, r, i, n);
        }
        vstore_n(block->out + i, sum, n);
    }
}

#define BLOCK_FNS(name, fn)                                                                        \
    static void write_##name(const walk_block *block)                                              \
    {                                                                                              \
        write_block(fn, block);                                                                    \
    }                                                                                              \
    static void add_##name(const walk_block *block)                                                \
    {                                                                                              \
        add_block(fn, block);                                                                      \
    }

ALWAYS_INLINE void extreme_block(bool is_largest, const walk_block *block)
{
    const float worst = is_largest ? -HUGE_VALF : HUGE_VALF;
    for (int64_t r = 0; r < block->n_rows; r++) {
        float *out = block->out + r * block->out_row_step;
        vfloat best = vset1(worst);
        for (int64_t i = 0; i < block->n; i += VEC) {
            const int32_t n = vec_left(block->n, i);
            vfloat v = value_at(DUNLIN_WALK_COPY, block, r, i, n);
            for (int32_t k = n; k < VEC; k++) {
                v[k] = worst;
            }
            if (block->out_step == 1) {
                vstore_n(out + i, extreme(is_largest, vload_n(out + i, n), v), n);
            } else if (block->out_step == 0) {
                best = extreme(is_largest, best, v);
            }
            for (int32_t k = 0; block->out_step > 1 && k < n; k++) {
                float *to = &out[(i + k) * block->out_step];
                *to = extreme(is_largest, vset1(*to), vset1(v[k]))[0];
            }
        }
        for (int32_t k = 0; block->out_step == 0 && k < VEC; k++) {
            *out = extreme(is_largest, vset1(*out), vset1(best[k]))[0];
        }
    }
}

static void largest_block(const walk_block *block)
{
    extreme_block(true, block);
}

static void smallest_block(const walk_block *block)
{
    extreme_block(false, block);
}

BLOCK_FNS(copy, DUNLIN_WALK_COPY)
BLOCK_FNS(add, DUNLIN_WALK_ADD)
BLOCK_FNS(sub, DUNLIN_WALK_SUB)
BLOCK_FNS(mul, DUNLIN_WALK_MUL)
BLOCK_FNS(div, DUNLIN_WALK_DIV)
BLOCK_FNS(div_grad, DUNLIN_WALK_DIV_GRAD)
BLOCK_FNS(abs, DUNLIN_WALK_ABS)
BLOCK_FNS(sign, DUNLIN_WALK_SIGN)
BLOCK_FNS(root, DUNLIN_WALK_ROOT)
BLOCK_FNS(unit, DUNLIN_WALK_UNIT)
BLOCK_FNS(exp_sub, DUNLIN_WALK_EXP_SUB)
BLOCK_FNS(log_add, DUNLIN_WALK_LOG_ADD)
BLOCK_FNS(exp_grad, DUNLIN_WALK_EXP_GRAD)
BLOCK_FNS(equal, DUNLIN_WALK_EQUAL)
BLOCK_FNS(pick, DUNLIN_WALK_PICK)
BLOCK_FNS(max, DUNLIN_WALK_MAX)
BLOCK_FNS(min, DUNLIN_WALK_MIN)
BLOCK_FNS(max_grad, DUNLIN_WALK_MAX_GRAD)

#define TURN_BLOCK 64 /* both sides of a block fit in the first cache */

/* A matrix with rows and columns exchanged: what lies together here lies apart there. */
static void transpose_block(const walk_block *block)
{
    const bool is_row = block->steps[0] == 1; /* rows of the walk lie together in the input */
    const int64_t n_rows = is_row ? block->n_rows : block->n;
    const int64_t n_columns = is_row ? block->n : block->n_rows;
    const int64_t pitch = is_row ? block->row_steps[0] : block->steps[0];
    const int64_t out_pitch = is_row ? block->out_step : block->out_row_step;
    for (int64_t r = 0; r < n_rows; r += TURN_BLOCK) {
        for (int64_t c = 0; c < n_columns; c += TURN_BLOCK) {
            K(transpose_block)
            (block->in[0] + r * pitch + c, pitch, min_i64(TURN_BLOCK, n_rows - r),
             min_i64(TURN_BLOCK, n_columns - c), block->out + c * out_pitch + r, out_pitch);
        }
    }
}

static bool is_transposed(const walk_block *block)
{
    const bool is_row = block->steps[0] == 1 && block->out_row_step == 1 && block->out_step > 1;
    const bool is_column = block->row_steps[0] == 1 && block->out_step == 1 && block->steps[0] > 1;
    return (is_row || is_column) && block->n > 1 && block->n_rows > 1 && block->factor == 1.0F;
}

typedef void (*block_fn)(const walk_block *block);

static const block_fn block_fns[][2] = {
    [DUNLIN_WALK_COPY] = {write_copy, add_copy},
    [DUNLIN_WALK_ADD] = {write_add, add_add},
    [DUNLIN_WALK_SUB] = {write_sub, add_sub},
    [DUNLIN_WALK_MUL] = {write_mul, add_mul},
    [DUNLIN_WALK_DIV] = {write_div, add_div},
    [DUNLIN_WALK_DIV_GRAD] = {write_div_grad, add_div_grad},
    [DUNLIN_WALK_ABS] = {write_abs, add_abs},
    [DUNLIN_WALK_SIGN] = {write_sign, add_sign},
    [DUNLIN_WALK_ROOT] = {write_root, add_root},
    [DUNLIN_WALK_UNIT] = {write_unit, add_unit},
    [DUNLIN_WALK_EXP_SUB] = {write_exp_sub, add_exp_sub},
    [DUNLIN_WALK_LOG_ADD] = {write_log_add, add_log_add},
    [DUNLIN_WALK_EXP_GRAD] = {write_exp_grad, add_exp_grad},
    [DUNLIN_WALK_EQUAL] = {write_equal, add_equal},
    [DUNLIN_WALK_PICK] = {write_pick, add_pick},
    [DUNLIN_WALK_MAX] = {write_max, add_max},
    [DUNLIN_WALK_MIN] = {write_min, add_min},
    [DUNLIN_WALK_MAX_GRAD] = {write_max_grad, add_max_grad},
};

static block_fn block_fn_of(const dunlin_walk *walk, const walk_block *block)
{
    /* Where no two elements meet, nothing was put into the output first. */
    if (walk->is_sum && walk->meeting != DUNLIN_WALK_TOTAL) {
        return walk->meeting == DUNLIN_WALK_LARGEST ? largest_block : smallest_block;
    }
    const bool turns = walk->fn == DUNLIN_WALK_COPY && !walk->is_sum && is_transposed(block);
    return turns ? transpose_block : block_fns[walk->fn][walk->is_sum ? 1 : 0];
}

/* A walk, or a stretch of one of its dimensions. */
typedef struct walk_part {
    const dunlin_walk_call *call;
    int64_t dims[DUNLIN_WALK_MAX_DIMS];
    int64_t offsets[3], out_offset; /* of its first element */
} walk_part;

/* The blocks of one sample, the outer dimensions counted up like the digits of a number. */
static void walk_sample(const walk_part *part, int64_t sample)
{
    const dunlin_walk_call *call = part->call;
    const dunlin_walk *walk = call->walk;
    const int32_t inner = walk->n_dims - 1;
    const int32_t rows = inner > 0 ? inner - 1 : 0;
    walk_block block = {.n = part->dims[inner],
                        .n_rows = inner > 0 ? part->dims[rows] : 1,
                        .out_step = walk->out.strides[inner],
                        .out_row_step = walk->out.strides[rows],
                        .factor = walk->factor};
    int64_t at[3] = {0};
    int64_t out_at = part->out_offset + sample * walk->out.sample_stride;
    for (int k = 0; k < 3; k++) {
        block.steps[k] = walk->in[k].strides[inner];
        block.row_steps[k] = walk->in[k].strides[rows];
        at[k] = part->offsets[k] + sample * walk->in[k].sample_stride;
    }
    const block_fn run = block_fn_of(walk, &block);
    int64_t digits[DUNLIN_WALK_MAX_DIMS] = {0};
    for (;;) {
        for (int k = 0; k < 3; k++) {
            block.in[k] = call->in[k] == NULL ? NULL : call->in[k] + at[k];
        }
        block.out = call->out + out_at;
        run(&block);
        int32_t d = rows - 1;
        for (; d >= 0; d--) {
            const bool is_carried = ++digits[d] == part->dims[d];
            const int64_t steps = is_carried ? 1 - part->dims[d] : 1;
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

typedef struct walk_job {
    const dunlin_walk_call *call;
    int32_t dim;     /* that is cut */
    int64_t n_parts; /* of it */
} walk_job;

/* The dimension that can be cut: no two of its parts have an element of the output in common. */
static int32_t widest_dim(const dunlin_walk *walk)
{
    int32_t widest = -1;
    for (int32_t d = 0; d < walk->n_dims; d++) {
        const bool is_apart = walk->out.strides[d] != 0;
        if (is_apart && (widest < 0 || walk->dims[d] > walk->dims[widest])) {
            widest = d;
        }
    }
    return widest;
}

/* Parts of the last dimension are whole cache lines. */
static int64_t unit_of(const dunlin_walk *walk, int32_t dim)
{
    return dim + 1 == walk->n_dims ? 16 : 1;
}

static walk_part part_of(const walk_job *job, int64_t index)
{
    const dunlin_walk *walk = job->call->walk;
    walk_part part = {.call = job->call};
    for (int32_t d = 0; d < walk->n_dims; d++) {
        part.dims[d] = walk->dims[d];
    }
    if (job->n_parts == 1) {
        return part;
    }
    const int64_t unit = unit_of(walk, job->dim);
    const int64_t n_units = ceil_div(walk->dims[job->dim], unit);
    const int64_t first = index * n_units / job->n_parts * unit;
    const int64_t end = min_i64((index + 1) * n_units / job->n_parts * unit, walk->dims[job->dim]);
    part.dims[job->dim] = end - first;
    for (int k = 0; k < 3; k++) {
        part.offsets[k] = first * walk->in[k].strides[job->dim];
    }
    part.out_offset = first * walk->out.strides[job->dim];
    return part;
}

static void walk_task(void *ctx, size_t task)
{
    const walk_job *job = ctx;
    const int64_t n_parts = job->n_parts;
    const walk_part part = part_of(job, (int64_t)task % n_parts);
    if (job->call->walk->out.sample_stride != 0) {
        walk_sample(&part, (int64_t)task / n_parts);
        return;
    }
    for (int64_t s = 0; s < job->call->n_samples; s++) {
        walk_sample(&part, s);
    }
}

/* What the first element meets. */
static void begin_output(const dunlin_walk_call *call, int64_t n)
{
    if (call->walk->meeting == DUNLIN_WALK_TOTAL) {
        vclear(call->out, n);
        return;
    }
    const float worst = call->walk->meeting == DUNLIN_WALK_LARGEST ? -HUGE_VALF : HUGE_VALF;
    for (int64_t i = 0; i < n; i++) {
        call->out[i] = worst;
    }
}

void K(walk)(const dunlin_walk_call *call)
{
    const dunlin_walk *walk = call->walk;
    const bool is_fixed = walk->out.sample_stride == 0;
    const int64_t n_whole = is_fixed ? 1 : call->n_samples;
    const int64_t n_threads = (int64_t)task_threads(call->threads);
    walk_job job = {.call = call, .dim = widest_dim(walk), .n_parts = 1};
    int64_t n_floats = call->n_samples;
    for (int32_t d = 0; d < walk->n_dims; d++) {
        n_floats *= walk->dims[d];
    }
    if (n_whole < n_threads && job.dim >= 0) {
        job.n_parts = min_i64(ceil_div(n_threads, n_whole),
                              ceil_div(walk->dims[job.dim], unit_of(walk, job.dim)));
    }
    if (walk->is_sum && (!is_fixed || call->is_reset)) {
        begin_output(call, n_whole * walk->n_out);
    }
    run_tasks(call->threads, walk_task, &job, n_whole * job.n_parts, n_floats);
}
