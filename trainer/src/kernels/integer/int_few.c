/*
 * int_few.c - see int_few.h. Each weight is read once, a few rows of the matrix at a time, so that
 * neither pages nor lines are left and come back to; four rows of RUN_CHANNELS columns are laid
 * side by side in registers, as depthwise convolutions do it, and the sums wait in a room of the
 * workspace.
 *
 * x86's dot product and arm64 have it. Where DOT_OFFSET is not 0 a row of ones gives the columns'
 * sums, DOT_OFFSET times which is taken off.
 */
#include "int_few.h"

#include "int_depthwise.h"

#if RUN_VECTORS > 1

#if USES_ARM /* packing takes six instructions a weight, and products of packed weights fewer */
#define FEW_MOST 8
#define FEW_LEAST_BYTES 256
#else
#define FEW_MOST 32                        /* rows; more are worth packing weights */
#define FEW_LEAST_BYTES (INT64_C(1) << 20) /* of weights; fewer fit in a cache packed */
#endif
#define FEW_ONES (DOT_OFFSET != 0 ? 1 : 0) /* rows of ones */
#define FEW_DEPTH 64                       /* rows of the weights at once */
#define FEW_COLUMNS 256                    /* of a unit */
/* Rows of sums that registers hold. */
#define FEW_REGISTERS (VEC == 16 ? 6 : USES_ARM ? 4 : 2)
#define FEW_HEIGHT 6 /* the most of these */

typedef struct few_job {
    const int_few *few;
    const dot_a *a; /* n_rows rows, then FEW_ONES of ones */
    int64_t depth;
    shares shared;
} few_job;

/* Rows [k, end) of the weights by rows of A from `row` on, for a run of columns of which n are
 * left. */
typedef struct few_part {
    int64_t k, end;
    int64_t row;
    int64_t column, n;
} few_part;

/* A group of a row of A, the same for all columns. */
#if USES_ARM
ALWAYS_INLINE run_group few_spread(const dot_a *p)
{
    return (run_group){{(vwide){0} + p[0], (vwide){0} + p[1]}};
}
#else
ALWAYS_INLINE run_group few_spread(const dot_a *p)
{
    const vint x = (vint)vdot_spread(p);
    return (run_group){{x, x, x, x}};
}
#endif

ALWAYS_INLINE void few_tile(const few_job *job, const few_part *part, int height, int_run *sums)
{
    const int64_t end = part->end;
    const int64_t column = part->column;
    const int64_t n = part->n;
    const int64_t pitch = job->few->pitch;
    const int64_t width = job->few->call->shape->out_c;
    const dot_a *a = job->a + part->row * pitch;
    int_run of[FEW_HEIGHT];
    UNROLL
    for (int i = 0; i < height; i++) {
        of[i] = sums[i];
    }
    for (int64_t k = part->k; k < end; k += RUN_GROUP) {
        const int8_t *rows[RUN_GROUP];
        for (int64_t g = 0; g < RUN_GROUP; g++) { /* those past the last meet zeros */
            rows[g] = job->few->call->w + min_i64(k + g, job->depth - 1) * width;
        }
        const run_group w = run_rows(rows, column, n, 0);
        UNROLL
        for (int i = 0; i < height; i++) {
            const run_group x = few_spread(a + i * pitch + k);
            of[i] = run_dot(of[i], &x, &w);
        }
    }
    UNROLL
    for (int i = 0; i < height; i++) {
        sums[i] = of[i];
    }
}

typedef void (*few_fn)(const few_job *job, const few_part *part, int_run *sums);

#define FEW(height)                                                                                \
    static void few_##height(const few_job *job, const few_part *part, int_run *sums)              \
    {                                                                                              \
        few_tile(job, part, height, sums);                                                         \
    }

FEW(1)
FEW(2)
FEW(3)
FEW(4)
FEW(5)
FEW(6)

static const few_fn few_fns[FEW_HEIGHT] = {few_1, few_2, few_3, few_4, few_5, few_6};

/* All rows of a run of columns: [row] of sums. */
static void few_run(const few_job *job, int64_t k, int64_t column, int64_t n, int_run *sums)
{
    const int64_t n_rows = job->few->n_rows + FEW_ONES;
    const int64_t n_passes = ceil_div(n_rows, FEW_REGISTERS);
    const int64_t end = min_i64(k + FEW_DEPTH, job->depth);
    for (int64_t pass = 0; pass < n_passes; pass++) {
        const int64_t row = n_rows * pass / n_passes;
        const int64_t height = n_rows * (pass + 1) / n_passes - row;
        const few_part part = {.k = k, .end = end, .row = row, .column = column, .n = n};
        few_fns[height - 1](job, &part, sums + row);
    }
}

/* A run's sums to the output. */
static void few_store(const few_job *job, const int_run *sums, int64_t column, int64_t n,
                      int_target *target)
{
    const dunlin_int_conv_call *call = job->few->call;
    const int64_t n_rows = job->few->n_rows;
    int64_t at = 0;
    target->at = &at;
    for (int64_t row = 0; row < n_rows; row++) {
        int32_t ints[RUN_CHANNELS];
        int_run run = sums[row];
        for (int j = 0; FEW_ONES != 0 && j < RUN_VECTORS; j++) {
            run.of[j] -= sums[n_rows].of[j] * DOT_OFFSET;
        }
        run_ints(&run, ints);
        for (int64_t i = 0; call->bias != NULL && i < n; i++) {
            ints[i] += call->bias[column + i];
        }
        for (int64_t i = n; i < RUN_CHANNELS; i++) {
            ints[i] = 0;
        }
        at = row * job->few->view->out_pitch + column;
        const int_block block = {.target = target};
        for (int64_t i = 0; i < n; i += INT_WIDTH) {
            K(int_store)(&block, 0, 1, i, min_i64(INT_WIDTH, n - i), ints + i);
        }
    }
    target->at = NULL;
}

static void few_task(void *ctx, size_t slot)
{
    few_job *job = (few_job *)ctx;
    const int_few *few = job->few;
    const dunlin_int_conv_call *call = few->call;
    const int64_t width = call->shape->out_c;
    int_run *sums = (int_run *)(void *)((char *)few->rooms + (int64_t)slot * few->room_bytes);
    int_target target = int_target_of(call, false);
    for (int64_t unit = shares_take(&job->shared, (int64_t)slot); unit < job->shared.n_units;
         unit = shares_take(&job->shared, (int64_t)slot)) {
        const int64_t first = unit * FEW_COLUMNS;
        const int64_t end = min_i64(width, first + FEW_COLUMNS);
        memset(sums, 0,
               (size_t)(ceil_div(end - first, RUN_CHANNELS) * (few->n_rows + FEW_ONES)) *
                   sizeof *sums);
        for (int64_t k = 0; k < job->depth; k += FEW_DEPTH) {
            int_run *of = sums;
            for (int64_t c = first; c < end; c += RUN_CHANNELS, of += few->n_rows + FEW_ONES) {
                few_run(job, k, c, min_i64(RUN_CHANNELS, end - c), of);
            }
        }
        const int_run *of = sums;
        for (int64_t c = first; c < end; c += RUN_CHANNELS, of += few->n_rows + FEW_ONES) {
            few_store(job, of, c, min_i64(RUN_CHANNELS, end - c), &target);
        }
    }
    int_target_take(&target, few->tally);
}

/* A: the rows, past their depth zero, and FEW_ONES of ones. */
static void few_pack(const int_few *few, int64_t depth)
{
    dot_a *a = (dot_a *)few->rows_room;
    for (int64_t i = 0; i < few->n_rows; i++) {
        K(int_pack_row)(few->call->x + i * few->view->source_pitch, depth, a + i * few->pitch);
        memset(a + i * few->pitch + depth, 0, (size_t)(few->pitch - depth));
    }
    for (int i = 0; i < FEW_ONES; i++) {
        memset(a + few->n_rows * few->pitch, 1, (size_t)depth);
        memset(a + few->n_rows * few->pitch + depth, 0, (size_t)(few->pitch - depth));
    }
}

bool K(int_few_forward)(const int_few *few)
{
    const int64_t depth = view_depth(few->view);
    const int64_t width = few->call->shape->out_c;
    const int64_t n_runs = ceil_div(FEW_COLUMNS, RUN_CHANNELS);
    if (few->n_rows > FEW_MOST || few->view->groups != 1 || !dunlin__view_is_plain(few->view) ||
        depth * width < FEW_LEAST_BYTES ||
        (few->n_rows + FEW_ONES) * few->pitch > few->rows_bytes ||
        n_runs * (few->n_rows + FEW_ONES) * (int64_t)sizeof(int_run) > few->room_bytes) {
        return false;
    }
    few_job job = {.few = few, .a = (const dot_a *)few->rows_room, .depth = depth};
    dunlin_threads *threads = few->call->threads;
    const int64_t n_workers = (int64_t)task_threads(threads);
    few_pack(few, depth);
    shares_open(&job.shared, ceil_div(width, FEW_COLUMNS), n_workers);
    run_tasks(threads, few_task, &job, n_workers, few->n_rows * depth * width / DOT_GROUP);
    return true;
}

#else

bool K(int_few_forward)(const int_few *few)
{
    (void)few;
    return false;
}

#endif
