/*
 * few_rows.c - the input gradient of dense layers and pointwise convolutions with few rows: it is
 * computed transposed, dx'[channel][row] = w[channel][:] . dy'[:][row], so that the weights are
 * read once, as they lie, and only the few rows of dy are packed.
 *
 * Every element is the same sum of chains as in conv_forward.c, so which of the two runs changes no
 * bit.
 */
#include "conv_engines.h"

#define FEW_ROWS 48                /* of a panel */
#define FEW_CHANNELS 64            /* of dx, that a task makes */
#define FEW_DEPTH (4 * PART_DEPTH) /* at once */
#define MOST_OF_SAMPLE 16          /* rows; a panel holds whole samples */
#define MOST_IN_ALL 192            /* rows of a call: more are worth packing the weights */
#define LIGHT (64 << 10)           /* weights that stay in the caches whatever the rows */
#define TRANSPOSED_PITCH (FEW_ROWS + 16)

typedef struct skinny_job {
    map_job map;
    int64_t first, n_samples; /* of the panel */
    int64_t n_rows;
    int64_t chunk; /* channels of a task */
    float *b;      /* dy, turned: [part of the depth][FEW_DEPTH][n_rows in panels] */
    float *lines;  /* of each worker: dy's rows as they are packed, then what a task makes */
    int64_t line_floats;
    shares shared;
} skinny_job;

static bool shape_is_few(const dunlin_conv_shape *shape)
{
    conv_view view;
    dunlin__view_forward(shape, &view);
    return shape->groups == 1 && dunlin__view_is_plain(&view) &&
           view_rows(&view) <= MOST_OF_SAMPLE && shape->in_c > 0 && shape->out_c > 0;
}

static bool shape_is_light(const dunlin_conv_shape *shape)
{
    return (int64_t)shape->in_c * shape->out_c <= LIGHT;
}

bool K(skinny_is_for)(const dunlin_conv_shape *shape, int64_t n_samples)
{
    const int64_t rows = n_samples * shape->in_h * shape->in_w;
    return shape_is_few(shape) && (rows <= MOST_IN_ALL || shape_is_light(shape));
}

bool K(skinny_is_all)(const dunlin_conv_shape *shape)
{
    return shape_is_few(shape) && shape_is_light(shape);
}

static int64_t b_floats(const dunlin_conv_shape *shape)
{
    return round_up((int64_t)shape->out_c * FEW_ROWS, 16);
}

/* A worker's memory: rows of dy while packing; then dx turned, dx in rows, and sums. */
static int64_t worker_floats(void)
{
    const int64_t packing = (int64_t)FEW_ROWS * (FEW_DEPTH + 16);
    const int64_t making = (int64_t)FEW_CHANNELS * TRANSPOSED_PITCH +
                           (int64_t)FEW_ROWS * SCRATCH_PITCH + EPILOGUE_MAX_SUMS * FEW_CHANNELS;
    return round_up(max_i64(packing, making), 16);
}

uint64_t K(skinny_bytes)(const dunlin_conv_shape *shape, size_t n_threads)
{
    if (!shape_is_few(shape)) {
        return 0;
    }
    const int64_t threads = n_threads == 0 ? 1 : (int64_t)n_threads;
    return (uint64_t)(b_floats(shape) + threads * worker_floats()) * sizeof(float);
}

static int64_t part_end(const skinny_job *job, int64_t k0)
{
    return min_i64(job->map.view->channels, k0 + FEW_DEPTH);
}

/* One part of the depth of dy's rows into its panel. */
static void pack_part(const skinny_job *job, int64_t k0, float *lines)
{
    const dunlin_grad *dy = job->map.pass->source.grad;
    const int64_t k1 = part_end(job, k0);
    const int64_t pixel = job->first * view_rows(job->map.view);
    const float *from = lines;
    int64_t pitch = FEW_DEPTH + 16;
    if (grad_is_plain(dy)) {
        pitch = dy->pitch;
        from = dy->g + pixel * pitch + k0;
    } else {
        const load_rows rows = {.pixel = pixel,
                                .pixel_step = 1,
                                .n_rows = job->n_rows,
                                .channel = k0,
                                .n_channels = k1 - k0,
                                .out = lines,
                                .out_pitch = pitch};
        K(grad_rows)(dy, &rows);
    }
    K(pack_b_transposed)
    (from, pitch, job->n_rows, k1 - k0, 0, k1 - k0, job->b + k0 * round_up(job->n_rows, VEC));
}

static void pack_slot(void *ctx, size_t slot)
{
    skinny_job *job = ctx;
    float *lines = job->lines + (int64_t)slot * job->line_floats;
    for (;;) {
        const int64_t part = shares_take(&job->shared, (int64_t)slot);
        if (part * FEW_DEPTH >= job->map.view->channels) {
            return;
        }
        pack_part(job, part * FEW_DEPTH, lines);
    }
}

/* dx'[channel ...][rows] of a task. */
static void make_transposed(const skinny_job *job, int64_t channel, int64_t n, float *transposed)
{
    const int64_t pitch = job->map.view->source_pitch;
    const float *a_rows[FEW_CHANNELS];
    float *c_rows[FEW_CHANNELS];
    for (int64_t i = 0; i < n; i++) {
        c_rows[i] = transposed + i * TRANSPOSED_PITCH;
    }
    for (int64_t k0 = 0; k0 < job->map.view->channels; k0 += FEW_DEPTH) {
        const gemm_run run = {.offset = 0, .n = part_end(job, k0) - k0};
        for (int64_t i = 0; i < n; i++) {
            a_rows[i] = job->map.pass->w + (channel + i) * pitch + k0;
        }
        const gemm_block gemm = {.a_rows = a_rows,
                                 .runs = &run,
                                 .n_runs = 1,
                                 .b = job->b + k0 * round_up(job->n_rows, VEC),
                                 .m = n,
                                 .n = job->n_rows,
                                 .k = run.n,
                                 .c_rows = c_rows,
                                 .start = k0 == 0 ? GEMM_ZERO : GEMM_ADD,
                                 .is_parted = true};
        K(gemm)(&gemm);
    }
}

static void finish(const skinny_job *job, int64_t channel, int64_t n, const map_room *room)
{
    const map_job *map = &job->map;
    grid_piece pieces[FEW_ROWS];
    map_block block = {.pieces = pieces, .n_rows = job->n_rows};
    for (int64_t s = 0; s < job->n_samples; s++) {
        pieces[block.n_pieces++] = (grid_piece){
            .sample = job->first + s, .t1 = map->view->h.n_grid, .u1 = map->view->w.n_grid};
        if (map->n_stats > 0) {
            K(map_clear)(map, &pieces[s], channel, n);
        }
    }
    K(map_finish)(map, &block, channel, n, room);
}

static void make_slot(void *ctx, size_t slot)
{
    skinny_job *job = ctx;
    const map_pass *pass = job->map.pass;
    const int64_t channels = job->map.view->outputs;
    float *transposed = job->lines + (int64_t)slot * job->line_floats;
    float *rows = transposed + (int64_t)FEW_CHANNELS * TRANSPOSED_PITCH;
    const map_room room = {.scratch = rows, .sums = rows + (int64_t)FEW_ROWS * SCRATCH_PITCH};
    memset(room.sums, 0, sizeof(float) * EPILOGUE_MAX_SUMS * FEW_CHANNELS);
    for (;;) {
        const int64_t task = shares_take(&job->shared, (int64_t)slot);
        const int64_t channel = task * job->chunk;
        if (channel >= channels) {
            return;
        }
        const int64_t n = min_i64(job->chunk, channels - channel);
        make_transposed(job, channel, n, transposed);
        if (pass->epilogue == NULL) {
            float *out = pass->out + job->first * view_rows(job->map.view) * pass->out_pitch;
            K(transpose_block)
            (transposed, TRANSPOSED_PITCH, n, job->n_rows, out + channel, pass->out_pitch);
        } else {
            K(transpose_block)(transposed, TRANSPOSED_PITCH, n, job->n_rows, rows, SCRATCH_PITCH);
            finish(job, channel, n, &room);
        }
    }
}

void K(skinny_run)(const map_pass *pass)
{
    conv_view view;
    dunlin__view_input_grad(pass->shape, 0, 0, &view);
    skinny_job job = {.map = {.pass = pass, .view = &view}, .b = pass->workspace};
    job.map.tiling = K(row_tiling_make)(&view, map_limits(&view, true));
    job.map.n_stats = pass->epilogue == NULL ? 0 : pass->epilogue->n_stats;
    job.map.stat_channels = view.out_pitch;
    job.lines = job.b + b_floats(pass->shape);
    job.line_floats = worker_floats();
    const int64_t threads = (int64_t)task_threads(pass->threads);
    job.chunk = threads == 1 ? FEW_CHANNELS
                             : min_i64(FEW_CHANNELS,
                                       round_up(ceil_div(view.outputs, 3 * threads), TILE_ROWS));
    const int64_t panel = FEW_ROWS / view_rows(&view);
    for (job.first = 0; job.first < pass->n_samples; job.first += panel) {
        job.n_samples = min_i64(panel, pass->n_samples - job.first);
        job.n_rows = job.n_samples * view_rows(&view);
        const int64_t n_floats = job.n_rows * view.channels;
        const int64_t n_parts = ceil_div(view.channels, FEW_DEPTH);
        const int64_t n_chunks = ceil_div(view.outputs, job.chunk);
        shares_open(&job.shared, n_parts, threads);
        run_tasks(pass->threads, pack_slot, &job, min_i64(threads, n_parts), n_floats);
        shares_open(&job.shared, n_chunks, threads);
        run_tasks(pass->threads, make_slot, &job, min_i64(threads, n_chunks),
                  n_floats * view.outputs);
    }
}
