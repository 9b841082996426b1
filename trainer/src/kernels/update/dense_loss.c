/*
 * dense_loss.c - a dense layer over a vocabulary and its cross-entropy, some rows at a time: their
 * logits are made, become losses and gradients where they lie, and go into dw and dx before the
 * next rows' take their place (the idea of Wijmans et al. 2024, "Cut Your Losses in
 * Large-Vocabulary Language Models", and of Hsu et al. 2024, "Liger Kernel"; kept
 * exact, and without a second product).
 *
 * Logits are stored class by class, so that weights and their gradient are read as they lie and
 * rows are lanes. Invariant: which rows are taken together changes no bit (loss_calls.h).
 */
#include "dense_loss.h"

#define CLASSES_OF_TASK 48
#define DEPTH (16 * PART_DEPTH)      /* of x at once, packed */
#define WEIGHT_ROWS (2 * PART_DEPTH) /* classes at once, packed for dx */

typedef struct dense_loss_room {
    int64_t rows, pitch;
    int64_t logits, rows_floats, panel, weights; /* floats; of a thread: weights */
    int64_t n_cuts, cut;                         /* of dx's columns */
} dense_loss_room;

typedef struct dense_loss_job {
    class_block block;
    dense_loss_room room;
    int64_t k0, k; /* part of the depth */
    float *panel;
    float *weights;
    gemm_start start; /* of dw and db */
} dense_loss_job;

static dense_loss_room room_of(const dunlin_dense_loss_shape *shape, int64_t threads)
{
    const int64_t panel = (int64_t)TILE_VECTORS * VEC;
    dense_loss_room room = {.rows = dunlin__dense_loss_rows(shape->classes)};
    room.pitch = room.rows + 16; /* not a power of two, so that rows do not fight for one set */
    room.logits = room.pitch * shape->classes;
    room.rows_floats = round_up(room.rows * (int64_t)(sizeof(class_row) / sizeof(float)), 16);
    room.panel = round_up(room.rows, VEC) * round_up(shape->width, VEC);
    room.panel = round_up(max_i64(room.panel, room.rows * round_up(shape->width, VEC)), 16);
    room.cut = round_up(ceil_div(shape->width, threads), panel);
    room.n_cuts = ceil_div(shape->width, room.cut);
    room.weights = round_up(WEIGHT_ROWS * round_up(min_i64(room.cut, shape->width), VEC), 16);
    return room;
}

uint64_t K(dense_loss_workspace_bytes)(const dunlin_dense_loss_shape *shape, size_t n_threads)
{
    const int64_t threads = n_threads == 0 ? 1 : (int64_t)n_threads;
    const dense_loss_room room = room_of(shape, threads);
    return (uint64_t)(room.logits + room.rows_floats + room.panel + room.n_cuts * room.weights) *
           sizeof(float);
}

/* --- logits --- */

/* Some classes of all rows of the block, a part of the depth. */
static void logits_task(void *ctx, size_t task)
{
    const dense_loss_job *job = ctx;
    const class_block *block = &job->block;
    const dunlin_dense_loss_call *call = block->call;
    const int64_t width = call->shape->width;
    const int64_t first = (int64_t)task * CLASSES_OF_TASK;
    const int64_t n = min_i64(CLASSES_OF_TASK, call->shape->classes - first);
    const float *a_rows[CLASSES_OF_TASK];
    float *c_rows[CLASSES_OF_TASK];
    const bool begins = job->k0 == 0;
    for (int64_t i = 0; i < n; i++) {
        a_rows[i] = call->w + (first + i) * width + job->k0;
        c_rows[i] = block->logits + (first + i) * block->pitch;
        for (int64_t r = 0; begins && call->bias != NULL && r < block->n_rows; r++) {
            c_rows[i][r] = call->bias[first + i];
        }
    }
    const gemm_run run = {.n = job->k};
    prefetch_list prefetch = {.part = 0};
    const int64_t next = min_i64(CLASSES_OF_TASK, call->shape->classes - first - n);
    if (job->k == width && next > 0) {
        prefetch_rows(&prefetch, call->w, width, width, first + n, next);
        prefetch_pace(&prefetch, gemm_steps(n, block->n_rows, job->k, TILE_ROWS));
    }
    K(gemm)
    (&(gemm_block){.a_rows = a_rows,
                   .runs = &run,
                   .n_runs = 1,
                   .b = job->panel,
                   .m = n,
                   .n = block->n_rows,
                   .k = job->k,
                   .c_rows = c_rows,
                   .start = !begins              ? GEMM_ADD
                            : call->bias == NULL ? GEMM_ZERO
                                                 : GEMM_CHAIN,
                   .is_parted = true,
                   .prefetch = &prefetch,
                   .is_far = true});
}

static void make_logits(dense_loss_job *job)
{
    const class_block *block = &job->block;
    const dunlin_dense_loss_call *call = block->call;
    const int64_t width = call->shape->width;
    for (job->k0 = 0; job->k0 < width; job->k0 += DEPTH) {
        job->k = min_i64(DEPTH, width - job->k0);
        K(pack_b_transposed)
        (call->x + block->first * width + job->k0, width, block->n_rows, job->k, 0, job->k,
         job->panel);
        run_tasks(call->loss.threads, logits_task, job,
                  ceil_div(call->shape->classes, CLASSES_OF_TASK),
                  block->n_rows * job->k * call->shape->classes);
    }
}

/* --- gradients --- */

static void bias_grads(const dense_loss_job *job, int64_t first, int64_t n)
{
    const class_block *block = &job->block;
    for (int64_t c = first; c < first + n; c++) {
        const float *row = block->logits + c * block->pitch;
        float *db = &block->call->db[c];
        float sum = job->start == GEMM_CHAIN ? *db : 0.0F;
        for (int64_t r = 0; r < block->n_rows; r++) {
            sum += row[r];
        }
        *db = job->start == GEMM_ADD ? *db + sum : sum;
    }
}

/* Rows of dw and elements of db. */
static void weight_grads_task(void *ctx, size_t task)
{
    const dense_loss_job *job = ctx;
    const class_block *block = &job->block;
    const dunlin_dense_loss_call *call = block->call;
    const int64_t width = call->shape->width;
    const int64_t first = (int64_t)task * CLASSES_OF_TASK;
    const int64_t n = min_i64(CLASSES_OF_TASK, call->shape->classes - first);
    if (call->db != NULL) {
        bias_grads(job, first, n);
    }
    if (call->dw == NULL) {
        return;
    }
    const float *a_rows[CLASSES_OF_TASK];
    float *c_rows[CLASSES_OF_TASK];
    for (int64_t i = 0; i < n; i++) {
        a_rows[i] = block->logits + (first + i) * block->pitch;
        c_rows[i] = call->dw + (first + i) * width;
    }
    const gemm_run run = {.n = block->n_rows};
    prefetch_list prefetch = {.part = 0};
    const int64_t next = min_i64(CLASSES_OF_TASK, call->shape->classes - first - n);
    if (next > 0) {
        prefetch_rows(&prefetch, block->logits, block->pitch, block->n_rows, first + n, next);
        prefetch_pace(&prefetch, gemm_steps(n, width, block->n_rows, TILE_ROWS));
    }
    K(gemm)
    (&(gemm_block){.a_rows = a_rows,
                   .runs = &run,
                   .n_runs = 1,
                   .b = job->panel,
                   .m = n,
                   .n = width,
                   .k = block->n_rows,
                   .c_rows = c_rows,
                   .start = job->start,
                   .prefetch = &prefetch,
                   .is_far = true});
}

/* A cut of dx's columns, all classes. */
static void input_grads_task(void *ctx, size_t task)
{
    const dense_loss_job *job = ctx;
    const class_block *block = &job->block;
    const dunlin_dense_loss_call *call = block->call;
    const int64_t width = call->shape->width;
    const int64_t column = (int64_t)task * job->room.cut;
    const int64_t n = min_i64(job->room.cut, width - column);
    float *room = job->weights + (int64_t)task * job->room.weights;
    float *c_rows[LANES * 32];
    const int64_t most = LANES * 32;
    for (int64_t c = 0; c < call->shape->classes; c += WEIGHT_ROWS) {
        const int64_t k = min_i64(WEIGHT_ROWS, call->shape->classes - c);
        const gemm_run run = {.n = k};
        K(pack_b)(call->w + c * width + column, width, k, n, room);
        for (int64_t r = 0; r < block->n_rows; r += most) {
            const int64_t m = min_i64(most, block->n_rows - r);
            for (int64_t i = 0; i < m; i++) {
                c_rows[i] = call->dx + (block->first + r + i) * width + column;
            }
            K(gemm)
            (&(gemm_block){.a = block->logits + c * block->pitch + r,
                           .a_pitch = block->pitch,
                           .lane_pitch = LANES,
                           .runs = &run,
                           .n_runs = 1,
                           .b = room,
                           .m = m,
                           .n = n,
                           .k = k,
                           .c_rows = c_rows,
                           .start = c == 0 ? GEMM_ZERO : GEMM_ADD,
                           .is_parted = true,
                           .is_far = true});
        }
    }
}

static void make_grads(dense_loss_job *job)
{
    const class_block *block = &job->block;
    const dunlin_dense_loss_call *call = block->call;
    const int64_t width = call->shape->width;
    const int64_t work = block->n_rows * width * call->shape->classes;
    if (call->dw != NULL || call->db != NULL) {
        K(pack_b)(call->x + block->first * width, width, block->n_rows, width, job->panel);
        run_tasks(call->loss.threads, weight_grads_task, job,
                  ceil_div(call->shape->classes, CLASSES_OF_TASK), work);
    }
    if (call->dx != NULL) {
        run_tasks(call->loss.threads, input_grads_task, job, job->room.n_cuts, work);
    }
}

/* --- blocks of rows --- */

static void sum_block(const class_block *block, double sums[DUNLIN_N_LOSS_SUMS])
{
    const dunlin_loss_call *loss = &block->call->loss;
    const int64_t per_weight = loss->rows_per_weight > 1 ? loss->rows_per_weight : 1;
    for (int64_t i = 0; i < block->n_rows; i++) {
        const class_row *row = &block->rows[i];
        const float weight =
            loss->weights != NULL ? loss->weights[(block->first + i) / per_weight] : 1.0F;
        sums[DUNLIN_SUM_LOSS] += row->loss * (double)weight;
        sums[DUNLIN_SUM_RIGHT] += row->right;
        sums[DUNLIN_SUM_RIGHT5] += row->right5;
    }
}

static void run_block(dense_loss_job *job, double sums[DUNLIN_N_LOSS_SUMS])
{
    class_block *block = &job->block;
    const dunlin_dense_loss_call *call = block->call;
    make_logits(job);
    if (call->logits != NULL) {
        K(transpose_block)
        (block->logits, block->pitch, call->shape->classes, block->n_rows,
         call->logits + block->first * call->shape->classes, call->shape->classes);
        return;
    }
    run_tasks(call->loss.threads, K(class_rows), block, ceil_div(block->n_rows, CLASS_COLUMNS),
              block->n_rows * call->shape->classes * 8);
    sum_block(block, sums);
    if (block->has_grad) {
        make_grads(job);
    }
}

void K(dense_loss)(const dunlin_dense_loss_call *call)
{
    const dunlin_dense_loss_shape *shape = call->shape;
    const dunlin_loss_call *loss = &call->loss;
    double sums[DUNLIN_N_LOSS_SUMS] = {0.0, 0.0, 0.0};
    if (!loss->is_reset && loss->sums != NULL) {
        memcpy(sums, loss->sums, sizeof sums);
    }
    dense_loss_job job = {.room = room_of(shape, (int64_t)task_threads(loss->threads))};
    const dense_loss_room *room = &job.room;
    float *floats = call->workspace;
    job.block = (class_block){.call = call,
                              .logits = floats,
                              .pitch = room->pitch,
                              .rows = (class_row *)(void *)(floats + room->logits),
                              .has_grad = call->dx != NULL || call->dw != NULL || call->db != NULL};
    job.panel = floats + room->logits + room->rows_floats;
    job.weights = job.panel + room->panel;
    const bool is_parts = shape->rows_per_sample >= DUNLIN_DENSE_LOSS_PARTS;
    const int64_t per_sample = is_parts ? shape->rows_per_sample : loss->n_rows;
    for (int64_t first = 0; first < loss->n_rows; first += per_sample) {
        for (int64_t row = 0; row < per_sample; row += room->rows) {
            job.block.first = first + row;
            job.block.n_rows = min_i64(room->rows, per_sample - row);
            job.start = loss->is_reset && first + row == 0 ? GEMM_ZERO
                        : is_parts                         ? GEMM_ADD
                                                           : GEMM_CHAIN;
            run_block(&job, sums);
        }
    }
    if (loss->sums != NULL) {
        memcpy(loss->sums, sums, sizeof sums);
    }
}
