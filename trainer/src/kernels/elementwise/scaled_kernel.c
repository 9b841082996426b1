/*
 * scaled_kernel.c - floats to int8 with scales, and back: scaled.h.
 *
 * Invariant: what becomes of an element depends on its block, the key, its sample and its place
 * within the sample alone, so neither pieces nor threads change a bit; and nothing rounds but plain
 * operators on one element, so neither does the instruction set.
 */
#include "kernels/api/integer.h"
#include "kernels/api/scaled.h"
#include "kernels/gemm/gemm.h"
#include "kernels/simd/bf16.h"
#include "kernels/simd/vecmath.h"

#include <float.h>

#define BLOCK DUNLIN_SCALED_BLOCK
#define LEAST_SCALE 0x0D800000U /* bits of 2^-100: of its inverse 2^23 are finite */
#define NO_SCALE 0x7FC00000U    /* bits of a scale that is no number */
#define MOST 127.0F
#define TO_WHOLE 12582912.0F /* 1.5 * 2^23: added and taken away, what is left is whole */
#define DRAW_BITS 23         /* below the point; 128 of these are no more than an int32 */

typedef int8_t vsigned __attribute__((vector_size(VEC)));

/* Where the draws of a sample begin. */
typedef struct draw_key {
    uint32_t first, second;
} draw_key;

/* One block: n channels from the sample's element `element` on. */
typedef struct scaled_block {
    float *floats;
    uint8_t *scale, *numbers;
    uint32_t element;
    draw_key key;
} scaled_block;

static float float_of(uint32_t bits)
{
    float x = 0.0F;
    memcpy(&x, &bits, sizeof x);
    return x;
}

ALWAYS_INLINE vint larger(vint a, vint b)
{
    const vint is_a = a > b;
    return (a & is_a) | (b & ~is_a);
}

ALWAYS_INLINE vquad_int larger_of_quads(vquad_int a, vquad_int b)
{
    const vquad_int is_a = a > b;
    return (a & is_a) | (b & ~is_a);
}

/* The bits of the largest float by size; those of a number that is none are larger than all. */
ALWAYS_INLINE uint32_t largest_of(const float *x, int32_t n)
{
    vint largest = {0};
    for (int32_t i = 0; i < n; i += VEC) {
        largest = larger(largest, (vint)vload_n(x + i, vec_left(n, i)) & 0x7FFFFFFF);
    }
    vquad_int part[VEC / 4];
    memcpy(part, &largest, sizeof part);
    UNROLL
    for (int i = 1; i < VEC / 4; i++) {
        part[0] = larger_of_quads(part[0], part[i]);
    }
    part[0] = larger_of_quads(part[0], __builtin_shufflevector(part[0], part[0], 2, 3, 0, 1));
    part[0] = larger_of_quads(part[0], __builtin_shufflevector(part[0], part[0], 1, 0, 3, 2));
    return (uint32_t)part[0][0];
}

/* The bits of a block's scale. */
static inline uint32_t scale_bits(uint32_t largest)
{
    const float part = float_of(largest) * DUNLIN_SCALED_PART;
    uint32_t bits = 0;
    memcpy(&bits, &part, sizeof bits);
    bits = (bits + 0xFFFFU) & 0xFFFF0000U; /* up, if there is a fraction */
    bits = bits < LEAST_SCALE ? LEAST_SCALE : bits;
    return largest < 0x7F800000U && float_of(bits) * MOST <= FLT_MAX ? bits : NO_SCALE;
}

/* DRAW_BITS for each element: the finaliser of MurmurHash3 (Appleby 2011), keyed before it and in
 * its middle, without its last shift, which leaves the upper bits as they are. */
ALWAYS_INLINE vint draws(uint32_t element, draw_key key)
{
    static const uint32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    vwords z;
    memcpy(&z, lanes, sizeof z);
    z = (z + element) ^ key.first;
    z = (z ^ (z >> 16)) * 0x85EBCA6BU;
    z ^= key.second;
    z = (z ^ (z >> 13)) * 0xC2B2AE35U;
    return (vint)(z >> (32 - DRAW_BITS));
}

ALWAYS_INLINE void store_block(const scaled_block *block, int32_t n, bool is_drawn)
{
    const uint32_t bits = scale_bits(largest_of(block->floats, n));
    const uint16_t half = (uint16_t)(bits >> 16);
    memcpy(block->scale, &half, sizeof half);
    if (bits == NO_SCALE) {
        memset(block->numbers, 0, (size_t)n);
        return;
    }
    const float unit = is_drawn ? (float)(1 << DRAW_BITS) : 1.0F;
    const vfloat inverse = vset1(1.0F / float_of(bits) * unit);
    for (int32_t i = 0; i < n; i += VEC) {
        const int32_t left = vec_left(n, i);
        const vfloat v = vload_n(block->floats + i, left) * inverse;
        vint q;
        if (is_drawn) { /* a sum that carries into the whole number, or not */
            q = __builtin_convertvector(v, vint);
            q = (q + draws(block->element + (uint32_t)i, block->key)) >> DRAW_BITS;
        } else {
            q = __builtin_convertvector((v + TO_WHOLE) - TO_WHOLE, vint);
        }
        vbytes_store(block->numbers + i, (vbytes) __builtin_convertvector(q, vsigned), left);
    }
}

/* A plain loop: compilers make one instruction of what widens int8, but not of the same between
 * their own vectors. */
ALWAYS_INLINE void load_block(const scaled_block *block, int32_t n)
{
    const int8_t *restrict numbers = (const int8_t *)block->numbers;
    float *restrict floats = block->floats;
    uint16_t half = 0;
    memcpy(&half, block->scale, sizeof half);
    const float scale = float_of((uint32_t)half << 16);
    for (int32_t i = 0; i < n; i++) {
        floats[i] = (float)numbers[i] * scale;
    }
}

typedef struct scaled_job {
    const dunlin_scaled_call *call;
    int64_t rows_of_task;
} scaled_job;

typedef enum scaled_way { SCALED_LOAD = 0, SCALED_NEAREST, SCALED_DRAWN } scaled_way;

ALWAYS_INLINE void run_block(const scaled_block *block, int32_t n, scaled_way way)
{
    if (way == SCALED_LOAD) {
        load_block(block, n);
    } else {
        store_block(block, n, way == SCALED_DRAWN);
    }
}

/* Rows of one sample, from `row` on. */
ALWAYS_INLINE void run_rows(const dunlin_scaled_call *call, int64_t sample, int64_t row, int64_t n,
                            scaled_way way)
{
    const int64_t channels = call->channels;
    const int64_t n_blocks = dunlin__scaled_blocks(call->channels);
    const int64_t rows = call->rows_per_sample;
    const uint64_t bits = dunlin__int_draw(call->key, (uint64_t)(call->first_sample + sample));
    uint8_t *bytes = call->bytes + sample * dunlin__scaled_bytes(rows, call->channels);
    scaled_block block = {.floats = call->floats + (sample * rows + row) * channels,
                          .scale = bytes + row * n_blocks * (int64_t)sizeof(uint16_t),
                          .numbers =
                              bytes + rows * n_blocks * (int64_t)sizeof(uint16_t) + row * channels,
                          .element = (uint32_t)(row * channels),
                          .key = {(uint32_t)bits, (uint32_t)(bits >> 32)}};
    for (int64_t i = 0; i < n; i++) {
        for (int64_t left = channels; left > 0; left -= BLOCK) {
            const int32_t width = left < BLOCK ? (int32_t)left : BLOCK;
            if (width == BLOCK) {
                run_block(&block, BLOCK, way);
            } else {
                run_block(&block, width, way);
            }
            block.floats += width;
            block.numbers += width;
            block.scale += sizeof(uint16_t);
            block.element += (uint32_t)width;
        }
    }
}

ALWAYS_INLINE void run_task(const scaled_job *job, size_t task, scaled_way way)
{
    const dunlin_scaled_call *call = job->call;
    const int64_t end =
        min_i64(call->rows_per_sample * call->n_samples, ((int64_t)task + 1) * job->rows_of_task);
    int64_t at = (int64_t)task * job->rows_of_task;
    while (at < end) {
        const int64_t sample = at / call->rows_per_sample;
        const int64_t row = at % call->rows_per_sample;
        const int64_t n = min_i64(end - at, call->rows_per_sample - row);
        run_rows(call, sample, row, n, way);
        at += n;
    }
}

static void load_task(void *ctx, size_t task)
{
    run_task(ctx, task, SCALED_LOAD);
}

/* What is read comes back over the floats only when all of the task are stored: a vector that was
 * just written in part would be waited for. */
static void store_task(void *ctx, size_t task)
{
    const scaled_job *job = ctx;
    if (job->call->is_drawn) {
        run_task(job, task, SCALED_DRAWN);
    } else {
        run_task(job, task, SCALED_NEAREST);
    }
    if (job->call->writes_back) {
        run_task(job, task, SCALED_LOAD);
    }
}

static void run_job(const dunlin_scaled_call *call, pthreadpool_task_1d_t fn)
{
    const int64_t n_rows = call->rows_per_sample * call->n_samples;
    const int64_t n = n_rows * call->channels;
    scaled_job job = {.call = call,
                      .rows_of_task = ceil_div(task_block(call->threads, n), call->channels)};
    run_tasks(call->threads, fn, &job, ceil_div(n_rows, job.rows_of_task), n);
}

void K(scaled_store)(const dunlin_scaled_call *call)
{
    run_job(call, store_task);
}

void K(scaled_load)(const dunlin_scaled_call *call)
{
    run_job(call, load_task);
}
