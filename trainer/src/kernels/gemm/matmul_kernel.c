/*
 * matmul_kernel.c - products of many small matrices, either side transposed. Each product is one
 * thread's, so threads change no bit.
 */
#include "matmul_kernel.h"

#include "kernels/parallel/ranges.h"

/* What of B is packed at once; no bit depends on them. */
#define MATMUL_DEPTH (4 * PART_DEPTH)
#define MATMUL_COLUMNS 384

typedef struct matmul_job {
    const dunlin_matmul_call *call;
    int64_t n_products;
    int64_t panel_floats;
    shares shared;
} matmul_job;

static int64_t panel_floats(const dunlin_matmul_shape *shape)
{
    return matmul_panel_floats(min_i64(shape->k, MATMUL_DEPTH), min_i64(shape->n, MATMUL_COLUMNS));
}

uint64_t K(matmul_workspace_bytes)(const dunlin_matmul_shape *shape, size_t n_threads)
{
    return (uint64_t)panel_floats(shape) * sizeof(float) * (n_threads == 0 ? 1 : n_threads);
}

static void run_product(const dunlin_matmul_shape *s, const float *a, const float *b, float *out,
                        float *panel)
{
    const int64_t a_pitch = s->is_a_transposed ? s->m : s->k;
    const int64_t b_pitch = s->is_b_transposed ? s->k : s->n;
    for (int64_t column = 0; column < s->n; column += MATMUL_COLUMNS) {
        const int64_t n = min_i64(MATMUL_COLUMNS, s->n - column);
        for (int64_t first = 0; first < s->k; first += MATMUL_DEPTH) {
            const int64_t k = min_i64(MATMUL_DEPTH, s->k - first);
            if (s->is_b_transposed) {
                K(pack_b_transposed)(b + column * b_pitch + first, b_pitch, n, k, 0, k, panel);
            } else {
                K(pack_b)(b + first * b_pitch + column, b_pitch, k, n, panel);
            }
            const matmul_block block = {
                .a = a + first * (s->is_a_transposed ? a_pitch : 1),
                .a_pitch = a_pitch,
                .is_a_transposed = s->is_a_transposed,
                .b = panel,
                .m = s->m,
                .n = n,
                .k = k,
                .start = first == 0 ? GEMM_ZERO : GEMM_ADD,
                .is_parted = true,
            };
            matmul_rows(&block, out + column, s->n);
        }
    }
}

static void matmul_worker(void *ctx, size_t slot)
{
    matmul_job *job = ctx;
    const dunlin_matmul_shape *s = job->call->shape;
    float *panel = (float *)job->call->workspace + (int64_t)slot * job->panel_floats;
    for (;;) {
        const int64_t i = shares_take(&job->shared, (int64_t)slot);
        if (i >= job->n_products) {
            return;
        }
        run_product(s, job->call->a + i * s->m * s->k, job->call->b + i * s->k * s->n,
                    job->call->out + i * s->m * s->n, panel);
    }
}

void K(matmul)(const dunlin_matmul_call *call)
{
    const dunlin_matmul_shape *s = call->shape;
    matmul_job job = {.call = call,
                      .n_products = call->n_samples * s->n_products,
                      .panel_floats = panel_floats(s)};
    const int64_t threads = (int64_t)task_threads(call->threads);
    shares_open(&job.shared, job.n_products, threads);
    run_tasks(call->threads, matmul_worker, &job, min_i64(threads, job.n_products),
              job.n_products * s->m * s->n * s->k);
}
