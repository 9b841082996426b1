/*
 * many_rows.c - dense layers over many rows that lie as they are (tokens): forward and input
 * gradient, as products whose weights are packed a part at a time, so that a part stays in the
 * second-level cache while all rows use it.
 *
 * Parts of the depth are whole chains of an output element's, so neither they nor threads change a
 * bit.
 */
#include "conv_engines.h"

#define DENSE_ROWS 64             /* of a sample, at least */
#define DENSE_WEIGHTS (128 << 10) /* at least */
#define BLOCK 24                  /* rows at once: whole tiles */
/*
 * The depth and packed weights at once. Rows that are taken whole lie together, so that they can be
 * asked for; where the second cache is large enough they are, and not as many pass it.
 */
#if defined(__AVX512F__)
#define DENSE_DEPTH 2048
#define DENSE_FLOATS (208 << 10)
#else
#define DENSE_DEPTH 512
#define DENSE_FLOATS (104 << 10)
#endif

typedef struct dense_job {
    const map_pass *pass;
    int64_t rows, depth, columns;
    const float *a;
    int64_t a_pitch;
    int64_t part; /* of the depth */
    int64_t width, n_cuts;
    int64_t room_floats;
    shares shared;
} dense_job;

/* A part of the weights: depth [k0, k0 + k), columns [column, column + n). */
typedef struct dense_part {
    int64_t k0, k;
    int64_t column, n;
} dense_part;

static bool is_for(const dunlin_conv_shape *shape)
{
    conv_view view;
    dunlin__view_forward(shape, &view);
    return view.groups == 1 && dunlin__view_is_plain(&view) && view_rows(&view) >= DENSE_ROWS &&
           (int64_t)shape->in_c * shape->out_c >= DENSE_WEIGHTS;
}

/*
 * A gradient that is added to what is there, and nothing else: the chain goes on from that. Where
 * the joint pass may be asked for both gradients, it adds the whole chain instead.
 */
static bool is_sum(const dunlin_conv_shape *shape, const dunlin_epilogue *epilogue)
{
    conv_view view;
    dunlin__view_forward(shape, &view);
    return !fused_grads_may_be_for(&view) && epilogue->addend != NULL &&
           !epilogue->is_addend_half && !epilogue->is_out_half && epilogue->mask == NULL &&
           epilogue->factor == NULL && epilogue->n_stats == 0;
}

static void plan(dense_job *job, int64_t depth, int64_t columns, int64_t a_pitch, int64_t threads)
{
    job->depth = depth;
    job->columns = columns;
    job->a_pitch = a_pitch;
    job->part = round_up(ceil_div(depth, ceil_div(depth, DENSE_DEPTH)), PART_DEPTH);
    job->part = min_i64(depth, job->part);
    const int64_t fit = DENSE_FLOATS / job->part;
    const int64_t panel = (int64_t)TILE_VECTORS * VEC;
    /* as many cuts for each thread; of whole panels, so that only the last one has narrow tiles */
    const int64_t most = max_i64(panel, fit / panel * panel);
    const int64_t n_cuts = round_up(ceil_div(columns, columns <= fit ? fit : most), threads);
    job->width = round_up(ceil_div(columns, n_cuts), n_cuts > 1 ? panel : VEC);
    job->n_cuts = ceil_div(columns, job->width);
    job->room_floats = round_up(job->part * round_up(job->width, VEC), 16);
}

uint64_t K(dense_bytes)(const dunlin_conv_shape *shape, bool is_input_grad, size_t n_threads)
{
    if (!is_for(shape)) {
        return 0;
    }
    const int64_t threads = n_threads == 0 ? 1 : (int64_t)n_threads;
    const int64_t depth = is_input_grad ? shape->out_c : shape->in_c;
    const int64_t columns = is_input_grad ? shape->in_c : shape->out_c;
    dense_job job;
    plan(&job, depth, columns, depth, threads);
    return (uint64_t)(threads * job.room_floats) * sizeof(float);
}

static void pack(const dense_job *job, const dense_part *part, float *b)
{
    const map_pass *pass = job->pass;
    if (pass->is_transposed) {
        K(pack_b_transposed)
        (pass->w + part->column * job->depth + part->k0, job->depth, part->n, part->k, 0, part->k,
         b);
    } else {
        K(pack_b)
        (pass->w + part->k0 * job->columns + part->column, job->columns, part->k, part->n, b);
    }
}

/* What a gradient is added to stands where its chain begins. */
static void copy_addend(const dunlin_epilogue *epilogue, const dense_part *part, int64_t first,
                        int64_t n)
{
    for (int64_t i = first; epilogue->addend != epilogue->out && i < first + n; i++) {
        vcopy(epilogue->out + i * epilogue->pitch + part->column,
              epilogue->addend + i * epilogue->addend_pitch + part->column, part->n);
    }
}

/* The rows from `first` on that the next block reads, where they lie together. */
static void look_prefetch(const dense_job *job, const dense_part *part, int64_t first,
                          prefetch_list *prefetch)
{
    const int64_t n = min_i64(BLOCK, job->rows - first);
    *prefetch = (prefetch_list){.part = 0};
    if (job->a_pitch == part->k && n > 0) {
        prefetch_rows(prefetch, job->a, job->a_pitch, part->k, first, n);
        prefetch_pace(prefetch, gemm_steps(n, part->n, part->k, TILE_ROWS));
    }
}

/* All rows times a part of the weights. */
static void run_part(const dense_job *job, const dense_part *part, float *room)
{
    const map_pass *pass = job->pass;
    const float *a_rows[BLOCK];
    float *c_rows[BLOCK];
    const gemm_run run = {.n = part->k};
    const bool is_last = part->k0 + part->k == job->depth;
    gemm_block gemm = {.a_rows = a_rows,
                       .runs = &run,
                       .n_runs = 1,
                       .b = room,
                       .n = part->n,
                       .k = part->k,
                       .c_rows = c_rows,
                       .bias = pass->bias == NULL ? NULL : pass->bias + part->column,
                       .is_clipped = pass->is_clipped && is_last,
                       .low = pass->low,
                       .high = pass->high,
                       .is_parted = true,
                       .is_far = true};
    gemm.start = part->k0 > 0             ? GEMM_ADD
                 : pass->epilogue != NULL ? GEMM_CHAIN
                 : pass->bias != NULL     ? GEMM_BIAS
                                          : GEMM_ZERO;
    pack(job, part, room);
    for (int64_t first = 0; first < job->rows; first += BLOCK) {
        gemm.m = min_i64(BLOCK, job->rows - first);
        for (int64_t i = 0; i < gemm.m; i++) {
            a_rows[i] = job->a + (first + i) * job->a_pitch + part->k0;
            c_rows[i] = pass->out + (first + i) * pass->out_pitch + part->column;
        }
        if (part->k0 == 0 && pass->epilogue != NULL) {
            copy_addend(pass->epilogue, part, first, gemm.m);
        }
        prefetch_list prefetch;
        look_prefetch(job, part, first + gemm.m, &prefetch);
        gemm.prefetch = &prefetch;
        K(gemm)(&gemm);
    }
}

static void dense_worker(void *ctx, size_t slot)
{
    dense_job *job = ctx;
    float *room = job->pass->workspace + (int64_t)slot * job->room_floats;
    for (;;) {
        const int64_t cut = shares_take(&job->shared, (int64_t)slot);
        if (cut >= job->n_cuts) {
            return;
        }
        dense_part part = {.column = cut * job->width};
        part.n = min_i64(job->width, job->columns - part.column);
        for (part.k0 = 0; part.k0 < job->depth; part.k0 += job->part) {
            part.k = min_i64(job->part, job->depth - part.k0);
            run_part(job, &part, room);
        }
    }
}

bool K(dense_run)(const map_pass *pass)
{
    const dunlin_conv_shape *shape = pass->shape;
    const strip_source from = pass->source;
    const bool is_plain =
        from.view != NULL ? view_is_as_it_lies(from.view) : grad_is_plain(from.grad);
    if (!is_plain || pass->stat != NULL || !is_for(shape) ||
        (pass->epilogue != NULL && !is_sum(shape, pass->epilogue))) {
        return false;
    }
    const int64_t threads = (int64_t)task_threads(pass->threads);
    const int64_t depth = pass->is_transposed ? shape->out_c : shape->in_c;
    const int64_t columns = pass->is_transposed ? shape->in_c : shape->out_c;
    dense_job job = {.pass = pass};
    plan(&job, depth, columns, depth, threads);
    job.rows = (int64_t)shape->out_h * shape->out_w * pass->n_samples;
    job.a = from.view != NULL ? from.view->x : from.grad->g;
    job.a_pitch = from.view != NULL ? from.view->pitch : from.grad->pitch;
    shares_open(&job.shared, job.n_cuts, threads);
    run_tasks(pass->threads, dense_worker, &job, min_i64(threads, job.n_cuts),
              job.rows * depth * columns);
    return true;
}
