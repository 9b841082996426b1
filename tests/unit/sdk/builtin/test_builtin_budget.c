/*
 * test_builtin_budget.c - the budget of a pool's trainers changed by the app, before, within and
 * between rounds: the same bits, obeyed, all or none.
 */
#include "builtin/builtin_pool.h"
#include "held_weights.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <pthread.h>
#include <random.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define N_IN 256
#define N_EXAMPLES 64
#define N_WEIGHTS 200000

static float inputs[N_EXAMPLES][N_IN];
static float values[N_WEIGHTS];

typedef struct budget_bench {
    dunlin_model *model;
    dunlin_trainer_pool *pool;
    dunlin_builtin *builtins[2];
    dunlin_learner learners[2];
    held_weights weights;
    dunlin_weights_reader base;
    dunlin_task task;
} budget_bench;

static dunlin_status read_examples(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        memcpy((float *)out_x + i * N_IN, inputs[indices[i]], sizeof inputs[0]);
        out_y[i] = (int32_t)(indices[i] % 4);
    }
    return DUNLIN_OK;
}

static void make(budget_bench *b, uint64_t lowest_bytes)
{
    dunlin_builder *builder = NULL;
    dunlin_shape shape = {.n_dims = 1, .dims = {N_IN}};
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    uint64_t state = test_seed(3);
    memset(b, 0, sizeof *b);
    test_random_fill(&inputs[0][0], (int64_t)N_EXAMPLES * N_IN, -1, 1, &state);
    test_random_fill(values, N_WEIGHTS, -0.1, 0.1, &state);
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "x", &shape);
    x = dunlin_builder_relu(builder, dunlin_builder_dense(builder, "fc1", x, 256));
    x = dunlin_builder_relu(builder, dunlin_builder_dense(builder, "fc2", x, 256));
    x = dunlin_builder_dense(builder, "fc3", x, 4);
    cr_assert_eq(dunlin_builder_finish(builder, x, &b->model, NULL), DUNLIN_OK);
    held_weights_make(&b->weights, b->model, values, N_WEIGHTS);
    b->base = held_weights_reader(&b->weights);
    b->task = (dunlin_task){.struct_size = sizeof(dunlin_task),
                            .epochs = 4,
                            .batch = 64,
                            .lr = 0.1F,
                            .momentum = 0.9F,
                            .seed = 7};
    options.least_budget_bytes = lowest_bytes;
    cr_assert_eq(dunlin_trainer_pool_create(b->model, &options, 2, &b->pool, NULL), DUNLIN_OK);
    dunlin_source source = {.struct_size = sizeof(dunlin_source),
                            .read_fn = read_examples,
                            .n_examples = N_EXAMPLES,
                            .dtype = DUNLIN_F32};
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(
            dunlin_builtin_create(b->pool, &source, NULL, &b->builtins[i], &b->learners[i], NULL),
            DUNLIN_OK);
    }
}

static void finish(budget_bench *b)
{
    for (int i = 0; i < 2; i++) {
        dunlin_builtin_destroy(b->builtins[i]);
    }
    dunlin_trainer_pool_destroy(b->pool);
    dunlin_model_destroy(b->model);
}

static dunlin_status load(budget_bench *b, int i)
{
    return b->learners[i].ops->load(b->learners[i].self, &b->task, &b->base);
}

static void unload(budget_bench *b, int i)
{
    b->learners[i].ops->unload(b->learners[i].self);
}

/* A whole task; the weights of its first tensor. */
static void train(budget_bench *b, int i, float *out)
{
    dunlin_learner_report report = DUNLIN_LEARNER_REPORT_INIT;
    dunlin_weights_reader fresh = {0};
    const dunlin_learner *l = &b->learners[i];
    cr_assert_eq(load(b, i), DUNLIN_OK, "%s", l->ops->error_text(l->self));
    while (!report.is_done) {
        cr_assert_eq(l->ops->fit(l->self, 1, &report), DUNLIN_OK);
    }
    cr_assert_eq(l->ops->save(l->self, &fresh), DUNLIN_OK);
    cr_assert_eq(fresh.read_fn(fresh.ctx, 0, 0, (int64_t)N_IN * 256, out), DUNLIN_OK);
    unload(b, i);
}

/* The least that the pool's trainers can work in. */
static uint64_t least_bytes(budget_bench *b)
{
    dunlin_error error = {0};
    cr_assert_eq(dunlin_trainer_pool_set_budget(b->pool, 1, &error), DUNLIN_BUDGET);
    cr_assert_gt(error.needed_bytes, 1);
    return error.needed_bytes;
}

typedef struct phone {
    budget_bench *bench;
    uint64_t least_bytes;
    atomic_bool is_over;
} phone;

/* The system's memory pressure rises and falls repeatedly. */
static void *press(void *ctx)
{
    phone *of = ctx;
    struct timespec pause = {.tv_nsec = 500000L};
    for (int i = 0; !atomic_load(&of->is_over); i++) {
        cr_expect_eq(
            dunlin_trainer_pool_set_budget(of->bench->pool, i % 2 == 0 ? of->least_bytes : 0, NULL),
            DUNLIN_OK);
        (void)nanosleep(&pause, NULL);
    }
    return NULL;
}

Test(builtin_budget, changes_in_mid_round_change_no_bit)
{
    static float wanted[N_IN * 256];
    static float found[N_IN * 256];
    static budget_bench b;
    pthread_t thread;
    make(&b, 0);
    train(&b, 0, wanted);
    cr_expect_eq(dunlin_trainer_pool_set_budget(b.pool, 1 << 20, NULL), DUNLIN_UNSUPPORTED);
    finish(&b);
    make(&b, 1);
    train(&b, 0, found);
    cr_expect_eq(memcmp(wanted, found, sizeof wanted), 0);
    phone presses = {.bench = &b, .least_bytes = least_bytes(&b)};
    cr_assert_eq(pthread_create(&thread, NULL, press, &presses), 0);
    for (int i = 0; i < 3; i++) {
        train(&b, 0, found);
        cr_expect_eq(memcmp(wanted, found, sizeof wanted), 0, "round %d", i);
    }
    atomic_store(&presses.is_over, true);
    (void)pthread_join(thread, NULL);
    finish(&b);
}

static dunlin_trainer_report report_of(const budget_bench *b, int slot)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_not_null(b->pool->slots[slot].trainer);
    cr_assert_eq(dunlin_trainer_get_report(b->pool->slots[slot].trainer, &report), DUNLIN_OK);
    return report;
}

Test(builtin_budget, holds_for_all_and_for_those_made_later)
{
    static float found[N_IN * 256];
    static budget_bench b;
    make(&b, 1);
    train(&b, 0, found);
    uint64_t full = report_of(&b, 0).planned_bytes;
    uint64_t least = least_bytes(&b);
    cr_assert_lt(least, full);
    cr_expect_eq(report_of(&b, 0).planned_bytes, full); /* refused: as before */
    cr_assert_eq(dunlin_trainer_pool_set_budget(b.pool, least, NULL), DUNLIN_OK);
    cr_expect_leq(report_of(&b, 0).planned_bytes, least);
    cr_assert_eq(load(&b, 0), DUNLIN_OK);
    cr_assert_eq(load(&b, 1), DUNLIN_OK); /* makes the other one */
    cr_expect_leq(report_of(&b, 1).planned_bytes, least);
    unload(&b, 0);
    unload(&b, 1);
    cr_assert_eq(dunlin_trainer_pool_set_budget(b.pool, 0, NULL), DUNLIN_OK);
    train(&b, 0, found);
    cr_expect_eq(report_of(&b, 0).planned_bytes, full);
    /* FedProx keeps the base as well: what is enough for one is not for the other, so both keep
     * what they had. */
    cr_assert_eq(load(&b, 0), DUNLIN_OK);
    b.task.proximal_mu = 0.1F;
    cr_assert_eq(load(&b, 1), DUNLIN_OK);
    cr_expect_eq(dunlin_trainer_pool_set_budget(b.pool, least, NULL), DUNLIN_BUDGET);
    cr_expect_eq(report_of(&b, 0).planned_bytes, full);
    unload(&b, 0);
    unload(&b, 1);
    finish(&b);
}

/* Pressure while a round evaluates, then training: the same bits. */
Test(builtin_budget, changes_while_evaluating_change_no_bit)
{
    static float wanted[N_IN * 256];
    static float found[N_IN * 256];
    static budget_bench b;
    dunlin_learner_report report = DUNLIN_LEARNER_REPORT_INIT;
    dunlin_weights_reader fresh = {0};
    make(&b, 1);
    train(&b, 0, wanted);
    uint64_t least = least_bytes(&b);
    const dunlin_learner *l = &b.learners[0];
    for (int k = 0; k < 4; k++) { /* before the evaluation or after it, down or down and up */
        cr_assert_eq(load(&b, 0), DUNLIN_OK);
        for (int i = 0; i < 2; i++) {
            if (i == k % 2) {
                cr_assert_eq(dunlin_trainer_pool_set_budget(b.pool, least, NULL), DUNLIN_OK);
            }
            if (i == 0) {
                cr_assert_eq(l->ops->evaluate(l->self, 0, &report), DUNLIN_OK);
            }
        }
        if (k >= 2) {
            cr_assert_eq(dunlin_trainer_pool_set_budget(b.pool, 0, NULL), DUNLIN_OK);
        }
        report.is_done = false;
        while (!report.is_done) {
            cr_assert_eq(l->ops->fit(l->self, 1, &report), DUNLIN_OK);
        }
        cr_assert_eq(l->ops->save(l->self, &fresh), DUNLIN_OK);
        cr_assert_eq(fresh.read_fn(fresh.ctx, 0, 0, (int64_t)N_IN * 256, found), DUNLIN_OK);
        cr_expect_eq(memcmp(wanted, found, sizeof wanted), 0, "case %d", k);
        unload(&b, 0);
        cr_assert_eq(dunlin_trainer_pool_set_budget(b.pool, 0, NULL), DUNLIN_OK);
    }
    finish(&b);
}
