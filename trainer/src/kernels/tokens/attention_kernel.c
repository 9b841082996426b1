/*
 * attention_kernel.c - softmax(q k^T * scale + masks) v for each head, and its gradient (Vaswani et
 * al. 2017). Probabilities are never kept: the backward pass recomputes them from the rows' largest
 * score and sum (as Dao et al. 2022 do), a block of queries at a time. Where queries look back
 * only, keys are packed in chunks as long as such a block, and chunks ahead of it are never
 * touched.
 *
 * One head of the keys of one sample, with all heads of the queries that share it (Ainslie et al.
 * 2023), is one thread's, so threads change no bit. Nor do chunks: each sum is one chain. Rotary
 * positions (Su et al. 2021) are put into copies of q and k, and taken out of their gradients.
 */
#include "kernels/elementwise/softmax_kernel.h"
#include "kernels/gemm/matmul_kernel.h"
#include "kernels/parallel/ranges.h"

#define QUERY_BLOCK 128
/* Queries of a block, and keys of a chunk, that looks back only: whole panels of the GEMM. */
#define CAUSAL_BLOCK 48
/* Rows of scores lie a little apart from a power of two, so that they do not fight for one set of
 * the cache. */
#define SCORE_GAP 16

typedef struct attention_panels {
    int64_t block; /* queries */
    int64_t chunk; /* keys */
    int64_t n_chunks;
    int64_t score_pitch;
    int64_t scores;     /* floats of a block of queries' scores */
    int64_t transposed; /* of a chunk of k or v, tokens as columns */
    int64_t plain;      /* of a chunk of k or v, tokens as rows */
    int64_t queries;
    int64_t row;                         /* of a sum of two masks */
    int64_t turned_keys, turned_queries; /* by their place; 0: they are not */
    int64_t total;                       /* of one thread */
} attention_panels;

typedef struct attention_job {
    const dunlin_attention_call *call;
    attention_panels panels;
    int64_t n_units;
    shares shared;
} attention_job;

/* One head of the queries of one sample, with its keys and values. */
typedef struct attention_head {
    const dunlin_attention_shape *shape;
    const attention_panels *panels;
    const float *q, *k, *v, *mask, *fixed, *dy;
    const float *cosines, *sines;
    float *turned_keys, *turned_queries;
    float *stats, *out, *dq, *dk, *dv;
    bool is_first; /* of those that share the keys */
    float *workspace;
} attention_head;

/* A block of queries: the chunks before `n_before` are seen whole, the last one in part. */
typedef struct attention_block {
    int64_t query, n;
    int64_t n_chunks;
    int64_t n_before; /* keys before the last chunk */
    int64_t n_keys;   /* with those of the last chunk */
    bool is_first;    /* to touch the last chunk's keys */
} attention_block;

static attention_panels panels_of(const dunlin_attention_shape *s, bool is_backward)
{
    attention_panels p = {.block = min_i64(QUERY_BLOCK, s->n_queries),
                          .chunk = s->n_keys,
                          .score_pitch = round_up(s->n_keys, 16) + SCORE_GAP};
    if (s->is_causal) {
        p.block = min_i64(CAUSAL_BLOCK, s->n_queries);
        p.chunk = p.block;
    }
    p.n_chunks = ceil_div(s->n_keys, p.chunk);
    p.scores = p.block * p.score_pitch;
    p.transposed = matmul_panel_floats(s->width, p.chunk);
    p.plain = matmul_panel_floats(p.chunk, s->width);
    p.queries = matmul_panel_floats(p.block, s->width);
    p.row = s->mask_rows > 0 && s->fixed_rows > 0 ? round_up(s->n_keys, 16) : 0;
    p.turned_keys = s->is_rotary ? round_up((int64_t)s->n_keys * s->width, 16) : 0;
    p.turned_queries = s->is_rotary ? round_up(p.block * s->width, 16) : 0;
    p.total = is_backward
                  ? 2 * p.scores + (2 * p.transposed + p.plain) * p.n_chunks + p.queries + p.row
                  : p.scores + (p.transposed + p.plain) * p.n_chunks + p.row;
    p.total = round_up(p.total + p.turned_keys + p.turned_queries, 16);
    return p;
}

uint64_t K(attention_workspace_bytes)(const dunlin_attention_shape *shape, bool is_backward,
                                      size_t n_threads)
{
    const attention_panels panels = panels_of(shape, is_backward);
    return (uint64_t)panels.total * sizeof(float) * (n_threads == 0 ? 1 : n_threads);
}

static attention_block block_at(const attention_head *head, int64_t query)
{
    const dunlin_attention_shape *s = head->shape;
    const attention_panels *p = head->panels;
    attention_block block = {.query = query,
                             .n = min_i64(p->block, s->n_queries - query),
                             .n_chunks = s->is_causal ? query / p->chunk + 1 : p->n_chunks,
                             .is_first = head->is_first && (s->is_causal || query == 0)};
    block.n_before = (block.n_chunks - 1) * p->chunk;
    block.n_keys = min_i64(s->n_keys, block.n_before + p->chunk);
    return block;
}

/* Keys that a query sees. */
static int64_t keys_of(const attention_head *head, int64_t query)
{
    return head->shape->is_causal ? query + 1 : head->shape->n_keys;
}

/* to (queries x keys of the block) from rows of `from` and all chunks of k or v as columns. */
static void to_keys(const attention_head *head, const attention_block *block, const float *from,
                    int64_t from_pitch, const float *transposed, float *to)
{
    const attention_panels *p = head->panels;
    for (int64_t i = 0; i < block->n_chunks; i++) {
        matmul_rows(&(matmul_block){.a = from,
                                    .a_pitch = from_pitch,
                                    .b = transposed + i * p->transposed,
                                    .m = block->n,
                                    .n = min_i64(p->chunk, block->n_keys - i * p->chunk),
                                    .k = head->shape->width},
                    to + i * p->chunk, p->score_pitch);
    }
}

/* to (queries x width) from rows of scores and all chunks of k or v as rows. */
static void from_keys(const attention_head *head, const attention_block *block, const float *scores,
                      const float *plain, float *to, int64_t to_pitch)
{
    const attention_panels *p = head->panels;
    for (int64_t i = 0; i < block->n_chunks; i++) {
        matmul_rows(&(matmul_block){.a = scores + i * p->chunk,
                                    .a_pitch = p->score_pitch,
                                    .b = plain + i * p->plain,
                                    .m = block->n,
                                    .n = head->shape->width,
                                    .k = min_i64(p->chunk, block->n_keys - i * p->chunk),
                                    .start = i == 0 ? GEMM_ZERO : GEMM_CHAIN},
                    to, to_pitch);
    }
}

/* Rows of a head of q or k turned by their place, or (`is_back`) their gradients; `to` may be
 * `from`. Tables need not say the same of both halves. */
// NOLINTNEXTLINE(readability-function-size): from and to with their pitches
static void turn_rows(const attention_head *head, const float *from, int64_t from_pitch,
                      int64_t first, int64_t n, bool is_back, float *to, int64_t to_pitch)
{
    const int64_t width = head->shape->width;
    const int64_t half = width / 2;
    for (int64_t i = 0; i < n; i++) {
        const float *x = from + i * from_pitch;
        const float *cosines = head->cosines + (first + i) * width;
        const float *sines = head->sines + (first + i) * width;
        float *y = to + i * to_pitch;
        for (int64_t c = 0; c < half; c += VEC) {
            const int32_t left = vec_left(half, c);
            const vfloat a = vload_n(x + c, left);
            const vfloat b = vload_n(x + half + c, left);
            const vfloat low = vload_n(sines + c, left);
            const vfloat high = vload_n(sines + half + c, left);
            const vfloat of_b = b * (is_back ? high : vzero() - low);
            const vfloat of_a = a * (is_back ? vzero() - low : high);
            vstore_n(y + c, vfma(a, vload_n(cosines + c, left), of_b), left);
            vstore_n(y + half + c, vfma(b, vload_n(cosines + half + c, left), of_a), left);
        }
    }
}

/* All keys of the head, or a block of its queries, as they are multiplied; with their pitch. */
static const float *keys_as_used(const attention_head *head, int64_t *out_pitch)
{
    const dunlin_attention_shape *s = head->shape;
    *out_pitch = s->is_rotary ? s->width : s->k_pitch;
    if (s->is_rotary) {
        turn_rows(head, head->k, s->k_pitch, 0, s->n_keys, false, head->turned_keys, s->width);
    }
    return s->is_rotary ? head->turned_keys : head->k;
}

static const float *queries_as_used(const attention_head *head, const attention_block *block,
                                    int64_t *out_pitch)
{
    const dunlin_attention_shape *s = head->shape;
    const float *q = head->q + block->query * s->q_pitch;
    *out_pitch = s->is_rotary ? s->width : s->q_pitch;
    if (s->is_rotary) {
        turn_rows(head, q, s->q_pitch, block->query, block->n, false, head->turned_queries,
                  s->width);
    }
    return s->is_rotary ? head->turned_queries : q;
}

static void pack_transposed(const attention_head *head, const float *from, int64_t pitch, float *to)
{
    const dunlin_attention_shape *s = head->shape;
    const attention_panels *p = head->panels;
    for (int64_t i = 0; i < p->n_chunks; i++) {
        const int64_t first = i * p->chunk;
        K(pack_b_transposed)
        (from + first * pitch, pitch, min_i64(p->chunk, s->n_keys - first), s->width, 0, s->width,
         to + i * p->transposed);
    }
}

static void pack_plain(const attention_head *head, const float *from, int64_t pitch, float *to)
{
    const attention_panels *p = head->panels;
    for (int64_t i = 0; i < p->n_chunks; i++) {
        const int64_t first = i * p->chunk;
        K(pack_b)
        (from + first * pitch, pitch, min_i64(p->chunk, head->shape->n_keys - first),
         head->shape->width, to + i * p->plain);
    }
}

/* What is added to a query's scores, or NULL; `room` is for the sum of both masks. */
static const float *mask_row(const attention_head *head, int64_t query, float *room)
{
    const dunlin_attention_shape *s = head->shape;
    const float *mask = head->mask;
    const float *fixed = head->fixed;
    if (mask != NULL && s->mask_rows > 1) {
        mask += query * s->n_keys;
    }
    if (fixed != NULL && s->fixed_rows > 1) {
        fixed += query * s->n_keys;
    }
    if (mask == NULL || fixed == NULL) {
        return mask == NULL ? fixed : mask;
    }
    for (int64_t i = 0; i < s->n_keys; i += VEC) {
        const int32_t n = vec_left(s->n_keys, i);
        vstore_n(room + i, vload_n(mask + i, n) + vload_n(fixed + i, n), n);
    }
    return room;
}

static void forward_head(const attention_head *head, const float *k_transposed,
                         const float *v_plain, float *scores, float *room)
{
    const dunlin_attention_shape *s = head->shape;
    const int64_t pitch = head->panels->score_pitch;
    const int64_t out_pitch = (int64_t)s->heads * s->width;
    for (int64_t query = 0; query < s->n_queries; query += head->panels->block) {
        const attention_block block = block_at(head, query);
        int64_t q_pitch = 0;
        const float *q = queries_as_used(head, &block, &q_pitch);
        to_keys(head, &block, q, q_pitch, k_transposed, scores);
        float *stats = head->stats + 2 * query;
        for (int64_t i = 0; i < block.n; i++) {
            float *row = scores + i * pitch;
            const int64_t n_keys = keys_of(head, query + i);
            const softmax_row sums =
                softmax_exp(row, n_keys, s->scale, mask_row(head, query + i, room), row);
            vclear(row + n_keys, block.n_keys - n_keys);
            stats[2 * i] = sums.largest;
            stats[2 * i + 1] = sums.inv_sum;
        }
        float *out = head->out + query * out_pitch;
        from_keys(head, &block, scores, v_plain, out, out_pitch);
        for (int64_t i = 0; i < block.n; i++) {
            softmax_scale(out + i * out_pitch, s->width, stats[2 * i + 1]);
        }
    }
}

/* A block of scores into probabilities, from what the forward pass kept of each row. */
static void restore_rows(const attention_head *head, const attention_block *block, float *scores,
                         float *room)
{
    const dunlin_attention_shape *s = head->shape;
    for (int64_t i = 0; i < block->n; i++) {
        const int64_t query = block->query + i;
        const int64_t n_keys = keys_of(head, query);
        float *row = scores + i * head->panels->score_pitch;
        const float *mask = mask_row(head, query, room);
        const float largest = head->stats[2 * query];
        const float inv_sum = head->stats[2 * query + 1];
        for (int64_t k = 0; k < n_keys; k += VEC) {
            const int32_t left = vec_left(n_keys, k);
            const vfloat score = softmax_score(row, mask, k, left, s->scale);
            vstore_n(row + k, vexp(score - largest) * inv_sum, left);
        }
        vclear(row + n_keys, block->n_keys - n_keys);
    }
}

/* One block of queries' share in a gradient of the keys or the values. */
typedef struct key_share {
    const float *scores; /* n x keys */
    const float *from;   /* n x width */
    int64_t from_pitch;
    float *panel;
    float *to; /* keys x width */
    int64_t to_pitch;
} key_share;

/* to from scores^T and rows of `from`. */
static void add_keys(const attention_head *head, const attention_block *block,
                     const key_share *share)
{
    const dunlin_attention_shape *s = head->shape;
    K(pack_b)(share->from, share->from_pitch, block->n, s->width, share->panel);
    matmul_block product = {.a = share->scores,
                            .a_pitch = head->panels->score_pitch,
                            .is_a_transposed = true,
                            .b = share->panel,
                            .m = block->n_before,
                            .n = s->width,
                            .k = block->n,
                            .start = GEMM_CHAIN};
    if (block->n_before > 0) {
        matmul_rows(&product, share->to, share->to_pitch);
    }
    product.a += block->n_before;
    product.m = block->n_keys - block->n_before;
    product.start = block->is_first ? GEMM_ZERO : GEMM_CHAIN;
    matmul_rows(&product, share->to + block->n_before * share->to_pitch, share->to_pitch);
}

/* What is packed of a head's keys and values, and room, for the backward pass. */
typedef struct backward_room {
    float *scores, *grads;
    float *k_transposed, *v_transposed, *k_plain;
    float *queries;
    float *row;
} backward_room;

static void backward_block(const attention_head *head, const attention_block *block,
                           const backward_room *at)
{
    const dunlin_attention_shape *s = head->shape;
    const int64_t score_pitch = head->panels->score_pitch;
    const int64_t dy_pitch = (int64_t)s->heads * s->width;
    const float *dy = head->dy + block->query * dy_pitch;
    int64_t q_pitch = 0;
    const float *q = queries_as_used(head, block, &q_pitch);
    to_keys(head, block, q, q_pitch, at->k_transposed, at->scores);
    restore_rows(head, block, at->scores, at->row);
    if (head->dv != NULL) {
        add_keys(head, block,
                 &(key_share){at->scores, dy, dy_pitch, at->queries, head->dv, s->v_pitch});
    }
    if (head->dq == NULL && head->dk == NULL) {
        return;
    }
    to_keys(head, block, dy, dy_pitch, at->v_transposed, at->grads);
    for (int64_t i = 0; i < block->n; i++) {
        float *row = at->grads + i * score_pitch;
        const int64_t n_keys = keys_of(head, block->query + i);
        softmax_row_grad(at->scores + i * score_pitch, row, n_keys, s->scale, row);
        vclear(row + n_keys, block->n_keys - n_keys);
    }
    if (head->dq != NULL) {
        float *dq = head->dq + block->query * s->q_pitch;
        from_keys(head, block, at->grads, at->k_plain, dq, s->q_pitch);
        if (s->is_rotary) {
            turn_rows(head, dq, s->q_pitch, block->query, block->n, true, dq, s->q_pitch);
        }
    }
    if (head->dk != NULL) {
        add_keys(head, block,
                 &(key_share){at->grads, q, q_pitch, at->queries, head->dk, s->k_pitch});
    }
}

/* The next of the heads that share keys and values. */
static void next_head(attention_head *head)
{
    const dunlin_attention_shape *s = head->shape;
    head->is_first = false;
    head->q += s->width;
    head->stats += 2 * s->n_queries;
    head->out += head->out != NULL ? s->width : 0;
    head->dy += head->dy != NULL ? s->width : 0;
    head->dq += head->dq != NULL ? s->width : 0;
    if (head->fixed != NULL && s->fixed_heads > 1) {
        head->fixed += (int64_t)s->fixed_rows * s->n_keys;
    }
}

static void forward_unit(attention_head *head)
{
    const dunlin_attention_shape *s = head->shape;
    const attention_panels *p = head->panels;
    float *scores = head->workspace;
    float *k_transposed = scores + p->scores;
    float *v_plain = k_transposed + p->transposed * p->n_chunks;
    int64_t k_pitch = 0;
    const float *k = keys_as_used(head, &k_pitch);
    pack_transposed(head, k, k_pitch, k_transposed);
    pack_plain(head, head->v, s->v_pitch, v_plain);
    for (int32_t i = 0; i < s->heads / s->kv_heads; i++) {
        forward_head(head, k_transposed, v_plain, scores, v_plain + p->plain * p->n_chunks);
        next_head(head);
    }
}

static void backward_unit(attention_head *head)
{
    const dunlin_attention_shape *s = head->shape;
    const attention_panels *p = head->panels;
    backward_room at = {.scores = head->workspace};
    at.grads = at.scores + p->scores;
    at.k_transposed = at.grads + p->scores;
    at.v_transposed = at.k_transposed + p->transposed * p->n_chunks;
    at.k_plain = at.v_transposed + p->transposed * p->n_chunks;
    at.queries = at.k_plain + p->plain * p->n_chunks;
    at.row = at.queries + p->queries;
    int64_t k_pitch = 0;
    const float *k = keys_as_used(head, &k_pitch);
    float *dk = head->dk;
    pack_transposed(head, k, k_pitch, at.k_transposed);
    pack_transposed(head, head->v, s->v_pitch, at.v_transposed);
    pack_plain(head, k, k_pitch, at.k_plain);
    for (int32_t i = 0; i < s->heads / s->kv_heads; i++) {
        for (int64_t query = 0; query < s->n_queries; query += p->block) {
            const attention_block block = block_at(head, query);
            backward_block(head, &block, &at);
        }
        next_head(head);
    }
    if (s->is_rotary && dk != NULL) {
        turn_rows(head, dk, s->k_pitch, 0, s->n_keys, true, dk, s->k_pitch);
    }
}

/* The first head of the queries of a unit: a sample's head of keys. */
static attention_head head_of(const attention_job *job, int64_t unit)
{
    const dunlin_attention_call *call = job->call;
    const dunlin_attention_shape *s = call->shape;
    const int64_t sample = unit / s->kv_heads;
    const int64_t first = unit % s->kv_heads * (s->heads / s->kv_heads);
    const int64_t key_channel = unit % s->kv_heads * s->width;
    const int64_t q_at = sample * s->n_queries * s->q_pitch + first * s->width;
    const int64_t k_at = sample * s->n_keys * s->k_pitch + key_channel;
    const int64_t v_at = sample * s->n_keys * s->v_pitch + key_channel;
    const int64_t out_at = (sample * s->n_queries * s->heads + first) * s->width;
    const int64_t fixed_at = s->fixed_heads > 1 ? first * s->fixed_rows * s->n_keys : 0;
    return (attention_head){
        .shape = s,
        .panels = &job->panels,
        .is_first = true,
        .q = call->q + q_at,
        .k = call->k + k_at,
        .v = call->v + v_at,
        .mask = call->mask == NULL ? NULL : call->mask + sample * s->mask_rows * s->n_keys,
        .fixed = call->fixed == NULL ? NULL : call->fixed + fixed_at,
        .cosines = call->cosines,
        .sines = call->sines,
        .stats = call->stats + (sample * s->heads + first) * 2 * s->n_queries,
        .out = call->out == NULL ? NULL : call->out + out_at,
        .dy = call->dy == NULL ? NULL : call->dy + out_at,
        .dq = call->dq == NULL ? NULL : call->dq + q_at,
        .dk = call->dk == NULL ? NULL : call->dk + k_at,
        .dv = call->dv == NULL ? NULL : call->dv + v_at,
    };
}

static void attention_worker(void *ctx, size_t slot)
{
    attention_job *job = ctx;
    for (;;) {
        const int64_t unit = shares_take(&job->shared, (int64_t)slot);
        if (unit >= job->n_units) {
            return;
        }
        attention_head head = head_of(job, unit);
        head.workspace = (float *)job->call->workspace + (int64_t)slot * job->panels.total;
        /* behind all panels of either pass */
        head.turned_queries = head.workspace + job->panels.total - job->panels.turned_queries;
        head.turned_keys = head.turned_queries - job->panels.turned_keys;
        if (job->call->dy == NULL) {
            forward_unit(&head);
        } else {
            backward_unit(&head);
        }
    }
}

void K(attention)(const dunlin_attention_call *call)
{
    const dunlin_attention_shape *s = call->shape;
    attention_job job = {.call = call,
                         .panels = panels_of(s, call->dy != NULL),
                         .n_units = call->n_samples * s->kv_heads};
    const int64_t threads = (int64_t)task_threads(call->threads);
    shares_open(&job.shared, job.n_units, threads);
    run_tasks(call->threads, attention_worker, &job, min_i64(threads, job.n_units),
              call->n_samples * s->heads * s->n_queries * s->n_keys * s->width);
}
