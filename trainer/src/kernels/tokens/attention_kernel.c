/*
 * attention_kernel.c - softmax(q k^T * scale + mask) v for each head, and its gradient (Vaswani et
 * al. 2017). Probabilities are never kept: the backward pass recomputes them from the rows' largest
 * score and sum (as Dao et al. 2022 do), a block of queries at a time.
 *
 * One head of one sample is one thread's, so threads change no bit.
 */
#include "kernels/elementwise/softmax_kernel.h"
#include "kernels/gemm/matmul_kernel.h"
#include "kernels/parallel/ranges.h"

#define QUERY_BLOCK 128
/* Rows of scores lie a little apart from a power of two, so that they do not fight for one set of
 * the cache. */
#define SCORE_GAP 16

typedef struct attention_panels {
    int64_t score_pitch;
    int64_t scores;     /* floats of a block of queries' scores */
    int64_t transposed; /* of k or v, tokens as columns */
    int64_t plain;      /* of k or v, tokens as rows */
    int64_t queries;
    int64_t total; /* of one thread */
} attention_panels;

typedef struct attention_job {
    const dunlin_attention_call *call;
    attention_panels panels;
    int64_t n_units;
    shares shared;
} attention_job;

/* One head of one sample. */
typedef struct attention_head {
    const dunlin_attention_shape *shape;
    const attention_panels *panels;
    const float *q, *k, *v, *mask, *dy;
    float *stats, *out, *dq, *dk, *dv;
    float *workspace;
} attention_head;

static attention_panels panels_of(const dunlin_attention_shape *s, bool is_backward)
{
    attention_panels p = {.score_pitch = round_up(s->n_keys, 16) + SCORE_GAP};
    p.scores = min_i64(QUERY_BLOCK, s->n_queries) * p.score_pitch;
    p.transposed = matmul_panel_floats(s->width, s->n_keys);
    p.plain = matmul_panel_floats(s->n_keys, s->width);
    p.queries = matmul_panel_floats(min_i64(QUERY_BLOCK, s->n_queries), s->width);
    p.total = is_backward ? 2 * p.scores + 2 * p.transposed + p.plain + p.queries
                          : p.scores + p.transposed + p.plain;
    p.total = round_up(p.total, 16);
    return p;
}

uint64_t K(attention_workspace_bytes)(const dunlin_attention_shape *shape, bool is_backward,
                                      size_t n_threads)
{
    const attention_panels panels = panels_of(shape, is_backward);
    return (uint64_t)panels.total * sizeof(float) * (n_threads == 0 ? 1 : n_threads);
}

static void score_block(const attention_head *head, int64_t query, int64_t n,
                        const float *k_transposed, float *scores)
{
    const dunlin_attention_shape *s = head->shape;
    matmul_rows(&(matmul_block){.a = head->q + query * s->q_pitch,
                                .a_pitch = s->q_pitch,
                                .b = k_transposed,
                                .m = n,
                                .n = s->n_keys,
                                .k = s->width},
                scores, head->panels->score_pitch);
}

static const float *mask_row(const attention_head *head, int64_t query)
{
    return head->mask == NULL || head->shape->mask_rows == 1
               ? head->mask
               : head->mask + query * head->shape->n_keys;
}

static void forward_head(const attention_head *head)
{
    const dunlin_attention_shape *s = head->shape;
    const int64_t out_pitch = (int64_t)s->heads * s->width;
    float *scores = head->workspace;
    float *k_transposed = scores + head->panels->scores;
    float *v_plain = k_transposed + head->panels->transposed;
    K(pack_b_transposed)(head->k, s->k_pitch, s->n_keys, s->width, 0, s->width, k_transposed);
    K(pack_b)(head->v, s->v_pitch, s->n_keys, s->width, v_plain);
    for (int64_t query = 0; query < s->n_queries; query += QUERY_BLOCK) {
        const int64_t n = min_i64(QUERY_BLOCK, s->n_queries - query);
        score_block(head, query, n, k_transposed, scores);
        float *stats = head->stats + 2 * query;
        for (int64_t i = 0; i < n; i++) {
            float *row = scores + i * head->panels->score_pitch;
            const softmax_row sums =
                softmax_exp(row, s->n_keys, s->scale, mask_row(head, query + i), row);
            stats[2 * i] = sums.largest;
            stats[2 * i + 1] = sums.inv_sum;
        }
        float *out = head->out + query * out_pitch;
        matmul_rows(&(matmul_block){.a = scores,
                                    .a_pitch = head->panels->score_pitch,
                                    .b = v_plain,
                                    .m = n,
                                    .n = s->width,
                                    .k = s->n_keys},
                    out, out_pitch);
        for (int64_t i = 0; i < n; i++) {
            softmax_scale(out + i * out_pitch, s->width, stats[2 * i + 1]);
        }
    }
}

/* A block of scores into probabilities, from what the forward pass kept of each row. */
static void restore_rows(const attention_head *head, int64_t query, int64_t n, float *scores)
{
    const dunlin_attention_shape *s = head->shape;
    for (int64_t i = 0; i < n; i++) {
        float *row = scores + i * head->panels->score_pitch;
        const float *mask = mask_row(head, query + i);
        const float largest = head->stats[2 * (query + i)];
        const float inv_sum = head->stats[2 * (query + i) + 1];
        for (int64_t k = 0; k < s->n_keys; k += VEC) {
            const int32_t left = vec_left(s->n_keys, k);
            const vfloat score = softmax_score(row, mask, k, left, s->scale);
            vstore_n(row + k, vexp(score - largest) * inv_sum, left);
        }
    }
}

/* One block of queries' share in a gradient of the keys or the values. */
typedef struct key_share {
    const float *scores; /* n x keys */
    const float *from;   /* n x width */
    int64_t from_pitch;
    int64_t n;
    gemm_start start;
    float *panel;
    float *to; /* keys x width */
    int64_t to_pitch;
} key_share;

/* to from scores^T and rows of `from`. */
static void add_keys(const attention_head *head, const key_share *share)
{
    const dunlin_attention_shape *s = head->shape;
    K(pack_b)(share->from, share->from_pitch, share->n, s->width, share->panel);
    matmul_rows(&(matmul_block){.a = share->scores,
                                .a_pitch = head->panels->score_pitch,
                                .is_a_transposed = true,
                                .b = share->panel,
                                .m = s->n_keys,
                                .n = s->width,
                                .k = share->n,
                                .start = share->start},
                share->to, share->to_pitch);
}

static void backward_head(const attention_head *head)
{
    const dunlin_attention_shape *s = head->shape;
    const attention_panels *p = head->panels;
    const int64_t dy_pitch = (int64_t)s->heads * s->width;
    float *scores = head->workspace;
    float *grads = scores + p->scores;
    float *k_transposed = grads + p->scores;
    float *v_transposed = k_transposed + p->transposed;
    float *k_plain = v_transposed + p->transposed;
    float *queries = k_plain + p->plain;
    K(pack_b_transposed)(head->k, s->k_pitch, s->n_keys, s->width, 0, s->width, k_transposed);
    K(pack_b_transposed)(head->v, s->v_pitch, s->n_keys, s->width, 0, s->width, v_transposed);
    K(pack_b)(head->k, s->k_pitch, s->n_keys, s->width, k_plain);
    for (int64_t query = 0; query < s->n_queries; query += QUERY_BLOCK) {
        const int64_t n = min_i64(QUERY_BLOCK, s->n_queries - query);
        const gemm_start start = query == 0 ? GEMM_ZERO : GEMM_CHAIN;
        const float *dy = head->dy + query * dy_pitch;
        score_block(head, query, n, k_transposed, scores);
        restore_rows(head, query, n, scores);
        if (head->dv != NULL) {
            add_keys(head, &(key_share){.scores = scores,
                                        .from = dy,
                                        .from_pitch = dy_pitch,
                                        .n = n,
                                        .start = start,
                                        .panel = queries,
                                        .to = head->dv,
                                        .to_pitch = s->v_pitch});
        }
        if (head->dq == NULL && head->dk == NULL) {
            continue;
        }
        matmul_block block = {
            .a = dy, .a_pitch = dy_pitch, .b = v_transposed, .m = n, .n = s->n_keys, .k = s->width};
        matmul_rows(&block, grads, p->score_pitch);
        for (int64_t i = 0; i < n; i++) {
            float *row = grads + i * p->score_pitch;
            softmax_row_grad(scores + i * p->score_pitch, row, s->n_keys, s->scale, row);
        }
        if (head->dq != NULL) {
            block = (matmul_block){.a = grads,
                                   .a_pitch = p->score_pitch,
                                   .b = k_plain,
                                   .m = n,
                                   .n = s->width,
                                   .k = s->n_keys};
            matmul_rows(&block, head->dq + query * s->q_pitch, s->q_pitch);
        }
        if (head->dk != NULL) {
            add_keys(head, &(key_share){.scores = grads,
                                        .from = head->q + query * s->q_pitch,
                                        .from_pitch = s->q_pitch,
                                        .n = n,
                                        .start = start,
                                        .panel = queries,
                                        .to = head->dk,
                                        .to_pitch = s->k_pitch});
        }
    }
}

static void attention_worker(void *ctx, size_t slot)
{
    attention_job *job = ctx;
    const dunlin_attention_call *call = job->call;
    const dunlin_attention_shape *s = call->shape;
    const int64_t out_pitch = (int64_t)s->heads * s->width;
    for (;;) {
        const int64_t unit = shares_take(&job->shared, (int64_t)slot);
        if (unit >= job->n_units) {
            return;
        }
        const int64_t sample = unit / s->heads;
        const int64_t channel = unit % s->heads * s->width;
        const int64_t q_at = sample * s->n_queries * s->q_pitch + channel;
        const int64_t k_at = sample * s->n_keys * s->k_pitch + channel;
        const int64_t v_at = sample * s->n_keys * s->v_pitch + channel;
        const int64_t out_at = sample * s->n_queries * out_pitch + channel;
        attention_head head = {
            .shape = s,
            .panels = &job->panels,
            .q = call->q + q_at,
            .k = call->k + k_at,
            .v = call->v + v_at,
            .mask = call->mask == NULL ? NULL : call->mask + sample * s->mask_rows * s->n_keys,
            .stats = call->stats + unit * 2 * s->n_queries,
            .dq = call->dq == NULL ? NULL : call->dq + q_at,
            .dk = call->dk == NULL ? NULL : call->dk + k_at,
            .dv = call->dv == NULL ? NULL : call->dv + v_at,
            .workspace = (float *)call->workspace + (int64_t)slot * job->panels.total,
        };
        if (call->dy == NULL) {
            head.out = call->out + out_at;
            forward_head(&head);
        } else {
            head.dy = call->dy + out_at;
            backward_head(&head);
        }
    }
}

void K(attention)(const dunlin_attention_call *call)
{
    const dunlin_attention_shape *s = call->shape;
    attention_job job = {.call = call,
                         .panels = panels_of(s, call->dy != NULL),
                         .n_units = call->n_samples * s->heads};
    const int64_t threads = (int64_t)task_threads(call->threads);
    shares_open(&job.shared, job.n_units, threads);
    run_tasks(call->threads, attention_worker, &job, min_i64(threads, job.n_units),
              job.n_units * s->n_queries * s->n_keys * s->width);
}
