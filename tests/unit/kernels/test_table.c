/*
 * test_table.c - gradients and updates of a table by the rows that a batch names, bit for bit
 * against those of the whole table.
 */
#include "checks/buffers.h"
#include "random.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(table, .timeout = 900);

#define ROWS 300
#define IDS 90
#define PASSES 3

static dunlin_threads *pools[2]; /* none, three threads */

static void each(each_isa_fn fn)
{
    pools[1] = start_threads(3);
    each_isa(fn);
    stop_threads(pools[1]);
}

static const int64_t widths[] = {1, 5, 64, 600};
#define N_WIDTHS (sizeof widths / sizeof widths[0])

static dunlin_row_sums open_sums(int64_t width, float **out_block)
{
    *out_block = buffer_new(dunlin__row_sums_elements(ROWS, width, IDS));
    return dunlin__row_sums_at(*out_block, ROWS);
}

/* Numbers of rows, a few of them many times; none of the last row. */
static void draw_ids(float *ids, uint64_t *rng)
{
    for (int64_t i = 0; i < IDS; i++) {
        ids[i] = (float)test_random_below(rng, i % 3 == 0 ? 5 : ROWS - 1);
    }
}

/* --- the gradient --- */

static void check_gradient_of(const dunlin_kernels *kernels, int64_t width, int64_t slice,
                              dunlin_threads *pool)
{
    uint64_t rng = 11;
    float *block = NULL;
    const dunlin_row_sums sums = open_sums(width, &block);
    float *dense = buffer_new(ROWS * width);
    float *dy = buffer_random(IDS * width, &rng);
    float ids[IDS];
    draw_ids(ids, &rng);
    dunlin_embedding_call call = {
        .n_ids = IDS, .width = width, .n_rows = ROWS, .ids = ids, .dy = dy, .is_reset = true};
    call.out = dense;
    kernels->embedding_grad(&call);
    call.out = NULL;
    call.sums = sums;
    call.threads = pool;
    for (int64_t first = 0; first < IDS; first += slice) {
        call.ids = ids + first;
        call.dy = dy + first * width;
        call.n_ids = IDS - first < slice ? IDS - first : slice;
        call.is_reset = first == 0;
        kernels->embedding_grad(&call);
    }
    int32_t n = 0;
    for (int64_t i = 0; i < IDS; i++) {
        const int32_t slot = sums.slots[(int64_t)ids[i]];
        cr_assert(slot >= 0 && slot <= n, "slots are given in the order of the tokens");
        n += slot == n ? 1 : 0;
    }
    cr_assert_eq(*sums.n, n);
    for (int64_t row = 0; row < ROWS; row++) {
        const float *whole = dense + row * width;
        if (sums.slots[row] >= 0) {
            cr_assert(buffer_same_bits(sums.values + sums.slots[row] * width, whole, width));
        }
        for (int64_t c = 0; c < width && sums.slots[row] < 0; c++) {
            cr_assert(whole[c] == 0.0F);
        }
    }
    cr_assert(buffer_is_intact(block));
    buffer_free(block);
    buffer_free(dense);
    buffer_free(dy);
}

static void check_gradient(const dunlin_kernels *kernels)
{
    for (size_t i = 0; i < N_WIDTHS; i++) {
        check_gradient_of(kernels, widths[i], IDS, pools[0]);
        check_gradient_of(kernels, widths[i], 7, pools[0]);
        check_gradient_of(kernels, widths[i], 40, pools[1]);
    }
}

Test(table, gradient_by_rows)
{
    each(check_gradient);
}

/* --- the update --- */

typedef struct optimizer {
    const char *name;
    bool is_adam, is_decoupled, has_momentum, is_nesterov;
    float decay, limit, factor;
} optimizer;

static const optimizer optimizers[] = {
    {"plain", .limit = INFINITY, .factor = 1.0F},
    {"plain, decay", .decay = 0.01F, .limit = INFINITY, .factor = 1.0F},
    {"momentum", .has_momentum = true, .limit = INFINITY, .factor = 1.0F},
    {"momentum, clipped", .has_momentum = true, .limit = 0.25F, .factor = 0.5F},
    {"momentum, decay", .has_momentum = true, .decay = 0.01F, .limit = INFINITY, .factor = 1.0F},
    {"nesterov", .has_momentum = true, .is_nesterov = true, .limit = 0.25F, .factor = 1.0F},
    {"adam", .is_adam = true, .limit = INFINITY, .factor = 1.0F},
    {"adam, decay", .is_adam = true, .decay = 0.01F, .limit = INFINITY, .factor = 1.0F},
    {"adamw", .is_adam = true, .is_decoupled = true, .limit = 0.25F, .factor = 0.5F},
    {"adamw, decay", .is_adam = true, .is_decoupled = true, .decay = 0.01F, .limit = INFINITY,
     .factor = 1.0F},
};

typedef struct table {
    int64_t width;
    float *w, *m, *v;
} table;

static bool keeps_state(const optimizer *how)
{
    return how->is_adam || how->has_momentum;
}

static void update(const dunlin_kernels *kernels, const optimizer *how, const table *t,
                   const float *gradient, const dunlin_update_rows *rows, dunlin_threads *pool)
{
    const dunlin_update_gradient taken = {gradient, how->limit, how->factor};
    if (how->is_adam) {
        kernels->adam(&(dunlin_adam_call){.n = ROWS * t->width,
                                          .weights = t->w,
                                          .mean = t->m,
                                          .square = t->v,
                                          .gradient = taken,
                                          .rows = rows,
                                          .lr = 0.01,
                                          .beta1 = 0.9,
                                          .beta2 = 0.999,
                                          .eps = 1e-8,
                                          .weight_decay = (double)how->decay,
                                          .correction1 = 0.1,
                                          .correction2 = 0.001,
                                          .is_decoupled = how->is_decoupled,
                                          .threads = pool});
        return;
    }
    kernels->sgd(&(dunlin_sgd_call){.n = ROWS * t->width,
                                    .weights = t->w,
                                    .momentum = how->has_momentum ? t->m : NULL,
                                    .gradient = taken,
                                    .rows = rows,
                                    .lr = 0.1F,
                                    .momentum_factor = 0.9F,
                                    .weight_decay = how->decay,
                                    .is_nesterov = how->is_nesterov,
                                    .threads = pool});
}

/* Every third row has state from before, row 4 a zero below zero. */
static table open_table(int64_t width)
{
    uint64_t rng = 23;
    table t = {.width = width};
    t.w = buffer_random(ROWS * width, &rng);
    t.m = buffer_random(ROWS * width, &rng);
    t.v = buffer_random(ROWS * width, &rng);
    for (int64_t i = 0; i < ROWS * width; i++) {
        const bool has_state = i / width % 3 == 0;
        t.m[i] = has_state ? t.m[i] : 0.0F;
        t.v[i] = has_state ? t.v[i] * t.v[i] : 0.0F;
    }
    t.m[5 * width - 1] = -0.0F;
    return t;
}

static void close_table(const table *t)
{
    cr_assert(buffer_is_intact(t->w) && buffer_is_intact(t->m) && buffer_is_intact(t->v));
    buffer_free(t->w);
    buffer_free(t->m);
    buffer_free(t->v);
}

static void expect_same(const table *a, const table *b, const char *name, int pass)
{
    const int64_t n = ROWS * a->width;
    cr_assert(buffer_same_bits(a->w, b->w, n), "%s, width %d, pass %d: weights", name,
              (int)a->width, pass);
    cr_assert(buffer_same_bits(a->m, b->m, n), "%s, width %d, pass %d: state", name, (int)a->width,
              pass);
    cr_assert(buffer_same_bits(a->v, b->v, n), "%s, width %d, pass %d: state", name, (int)a->width,
              pass);
}

/* Rows named so far move, and those that had state; of the others it is known that they do not. */
static void expect_states(const uint8_t *states, const bool *was_named, bool may_skip)
{
    for (int64_t row = 0; row < ROWS; row++) {
        const bool moves = !may_skip || was_named[row] || row % 3 == 0 || row == 4;
        cr_assert_eq(states[row], moves ? DUNLIN_ROW_MOVES : DUNLIN_ROW_SKIPPABLE, "row %d",
                     (int)row);
    }
}

static void check_update_of(const dunlin_kernels *kernels, const optimizer *how, int64_t width,
                            dunlin_threads *pool)
{
    uint64_t rng = 31;
    const table by_rows = open_table(width);
    const table whole = open_table(width);
    float *block = NULL;
    const dunlin_row_sums sums = open_sums(width, &block);
    float *dense = buffer_new(ROWS * width);
    uint8_t states[ROWS] = {DUNLIN_ROW_UNKNOWN};
    bool was_named[ROWS] = {false};
    const dunlin_update_rows rows = {.width = width,
                                     .slots = sums.slots,
                                     .states = keeps_state(how) ? states : NULL,
                                     .may_skip = how->decay == 0.0F};
    for (int pass = 0; pass < PASSES; pass++) {
        float ids[IDS];
        draw_ids(ids, &rng);
        float *dy = buffer_random(IDS * width, &rng);
        dunlin_embedding_call call = {
            .n_ids = IDS, .width = width, .n_rows = ROWS, .ids = ids, .dy = dy, .is_reset = true};
        call.out = dense;
        kernels->embedding_grad(&call);
        call.sums = sums;
        kernels->embedding_grad(&call);
        update(kernels, how, &whole, dense, NULL, pools[0]);
        update(kernels, how, &by_rows, sums.values, &rows, pool);
        expect_same(&by_rows, &whole, how->name, pass);
        for (int64_t i = 0; i < IDS; i++) {
            was_named[(int64_t)ids[i]] = true;
        }
        if (rows.states != NULL) {
            expect_states(states, was_named, rows.may_skip);
        }
        buffer_free(dy);
    }
    close_table(&by_rows);
    close_table(&whole);
    cr_assert(buffer_is_intact(block));
    buffer_free(block);
    buffer_free(dense);
}

static void check_update(const dunlin_kernels *kernels)
{
    for (size_t i = 0; i < sizeof optimizers / sizeof optimizers[0]; i++) {
        for (size_t k = 0; k < N_WIDTHS; k++) {
            /* Adam's -0.0 belongs to a mean; plain SGD keeps nothing. */
            check_update_of(kernels, &optimizers[i], widths[k], pools[0]);
            check_update_of(kernels, &optimizers[i], widths[k], pools[1]);
        }
    }
}

Test(table, update_by_rows)
{
    each(check_update);
}

/* What is marked skippable is not even read. */
static void check_rest(const dunlin_kernels *kernels)
{
    const table t = open_table(64);
    float *block = NULL;
    const dunlin_row_sums sums = open_sums(64, &block);
    uint8_t states[ROWS];
    memset(states, DUNLIN_ROW_SKIPPABLE, sizeof states);
    memset(sums.slots, 0xFF, ROWS * sizeof *sums.slots);
    for (int64_t i = 0; i < ROWS * 64; i++) {
        t.m[i] = NAN;
    }
    const table before = open_table(64);
    const dunlin_update_rows rows = {
        .width = 64, .slots = sums.slots, .states = states, .may_skip = true};
    const optimizer how = {
        .name = "momentum", .has_momentum = true, .limit = INFINITY, .factor = 1.0F};
    update(kernels, &how, &t, sums.values, &rows, pools[1]);
    cr_assert(buffer_same_bits(t.w, before.w, ROWS * 64));
    close_table(&t);
    close_table(&before);
    buffer_free(block);
}

Test(table, rows_at_rest_are_left_alone)
{
    each(check_rest);
}
