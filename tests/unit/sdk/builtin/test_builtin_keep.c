/*
 * test_builtin_keep.c - the built-in learner's training across kills: after any slice a learner of
 * another process resumes and gives the same bits, with momentum, FedProx, batch norm's running
 * values and dropout; damaged checkpoints and other data are refused.
 */
#include "client/fake_server.h"
#include "held_weights.h"

#include <dunlin/builtin.h>

#include <criterion/criterion.h>

#include <random.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SIDE 6
#define N_PIXELS (SIDE * SIDE)
#define N_EXAMPLES 45
#define MAX_VALUES 4000

static float pixels[N_EXAMPLES][N_PIXELS];
static float base_values[MAX_VALUES];

/* A model, a pool, a learner: what one process has. */
typedef struct process {
    dunlin_model *model;
    dunlin_trainer_pool *pool;
    dunlin_builtin *builtin;
    dunlin_learner learner;
    held_weights weights;
    dunlin_weights_reader base;
} process;

/* The learner is told to stop while its examples are read for the n-th time. */
static const dunlin_learner *stopped;
static int reads_until_stop;

static dunlin_status read_examples(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    if (stopped != NULL && --reads_until_stop == 0) {
        stopped->ops->stop(stopped->self);
    }
    (void)ctx;
    float *x = out_x;
    for (int64_t i = 0; i < n; i++) {
        memcpy(x + i * N_PIXELS, pixels[indices[i]], sizeof pixels[0]);
        out_y[i] = (int32_t)(indices[i] % 3);
    }
    return DUNLIN_OK;
}

static dunlin_model *make_model(void)
{
    dunlin_builder *builder = NULL;
    dunlin_model *model = NULL;
    dunlin_shape shape = {.n_dims = 3, .dims = {1, SIDE, SIDE}};
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "x", &shape);
    x = dunlin_builder_conv(builder, "c1", x, 4, 3, NULL);
    x = dunlin_builder_relu(builder, dunlin_builder_batch_norm(builder, "bn1", x));
    x = dunlin_builder_dropout(builder, dunlin_builder_flatten(builder, x), 0.25F);
    x = dunlin_builder_dense(builder, "fc", x, 3);
    cr_assert_eq(dunlin_builder_finish(builder, x, &model, NULL), DUNLIN_OK);
    return model;
}

static void open_process(process *p, int64_t n_examples, uint64_t budget_bytes)
{
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_error error = {0};
    memset(p, 0, sizeof *p);
    p->model = make_model();
    held_weights_make(&p->weights, p->model, base_values, MAX_VALUES);
    p->base = held_weights_reader(&p->weights);
    options.budget_bytes = budget_bytes;
    cr_assert_eq(dunlin_trainer_pool_create(p->model, &options, 1, &p->pool, &error), DUNLIN_OK,
                 "%s", error.text);
    dunlin_source source = {.struct_size = sizeof(dunlin_source),
                            .read_fn = read_examples,
                            .n_examples = n_examples,
                            .dtype = DUNLIN_F32};
    cr_assert_eq(dunlin_builtin_create(p->pool, &source, NULL, &p->builtin, &p->learner, &error),
                 DUNLIN_OK, "%s", error.text);
}

static void close_process(process *p)
{
    dunlin_builtin_destroy(p->builtin);
    dunlin_trainer_pool_destroy(p->pool);
    dunlin_model_destroy(p->model);
}

static void make_data(void)
{
    uint64_t state = test_seed(21);
    test_random_fill(&pixels[0][0], (int64_t)N_EXAMPLES * N_PIXELS, -1, 1, &state);
    test_random_fill(base_values, MAX_VALUES, 0.05, 0.5, &state); /* variances too: positive */
}

static void expect_ok(const process *p, dunlin_status status)
{
    cr_assert_eq(status, DUNLIN_OK, "%s", p->learner.ops->error_text(p->learner.self));
}

static void load(process *p, const dunlin_task *task)
{
    expect_ok(p, p->learner.ops->load(p->learner.self, task, &p->base));
}

static void save(process *p, float *out)
{
    dunlin_weights_reader fresh = {0};
    int64_t n = 0;
    expect_ok(p, p->learner.ops->save(p->learner.self, &fresh));
    for (int32_t i = 0; i < fresh.n_tensors; i++) {
        expect_ok(p, fresh.read_fn(fresh.ctx, i, 0, fresh.tensors[i].n_elements, out + n));
        n += fresh.tensors[i].n_elements;
    }
}

static dunlin_learner_report fit_to_end(process *p)
{
    dunlin_learner_report report = DUNLIN_LEARNER_REPORT_INIT;
    while (!report.is_done) {
        expect_ok(p, p->learner.ops->fit(p->learner.self, 0, &report));
    }
    return report;
}

static const dunlin_task TASK = {.struct_size = sizeof(dunlin_task),
                                 .epochs = 3,
                                 .batch = 8,
                                 .lr = 0.05F,
                                 .momentum = 0.9F,
                                 .seed = 77,
                                 .proximal_mu = 0.1F};

/* Learns all of the task, undisturbed. The process stays open, with nothing loaded. */
static dunlin_learner_report learn_whole(process *p, float *out_values)
{
    open_process(p, N_EXAMPLES, 0);
    load(p, &TASK);
    const dunlin_learner_report report = fit_to_end(p);
    save(p, out_values);
    p->learner.ops->unload(p->learner.self);
    return report;
}

/* Learns `n_steps` steps of the task, keeps them at `path`, and is gone. */
static void learn_and_keep(const dunlin_task *task, int64_t n_steps, const char *path)
{
    process p;
    dunlin_task part = *task;
    open_process(&p, N_EXAMPLES, 0);
    part.max_steps = n_steps;
    load(&p, &part);
    cr_assert_eq(fit_to_end(&p).n_steps, n_steps);
    expect_ok(&p, p.learner.ops->checkpoint(p.learner.self, path));
    p.learner.ops->unload(p.learner.self);
    close_process(&p);
}

Test(builtin_keep, a_kill_after_any_step_changes_no_bit)
{
    static float whole[MAX_VALUES];
    static float resumed[MAX_VALUES];
    char folder[64];
    char path[128];
    process p;
    make_data();
    fake_folder_make(folder);
    (void)snprintf(path, sizeof path, "%s/learner.checkpoint.1", folder);
    const dunlin_learner_report wanted = learn_whole(&p, whole);
    cr_assert_eq(wanted.n_steps, 18);
    for (int64_t n = 1; n < wanted.n_steps; n++) {
        process q;
        learn_and_keep(&TASK, n, path);
        open_process(&q, N_EXAMPLES, 0);
        load(&q, &TASK);
        expect_ok(&q, q.learner.ops->restore(q.learner.self, path));
        dunlin_learner_report found = fit_to_end(&q);
        save(&q, resumed);
        cr_assert_eq(memcmp(whole, resumed, (size_t)p.weights.n_values * sizeof(float)), 0,
                     "kept after step %lld", (long long)n);
        cr_expect_eq(found.n_steps, wanted.n_steps);
        cr_expect_eq(found.n_examples, wanted.n_examples);
        cr_expect_float_eq(found.loss, wanted.loss, 1e-6);
        q.learner.ops->unload(q.learner.self);
        close_process(&q);
    }
    close_process(&p);
    fake_folder_remove(folder);
}

/* Of a task that ends after 7 steps: those before the kill count, also where they were all. */
Test(builtin_keep, a_limit_of_steps_counts_those_before_a_kill)
{
    static float whole[MAX_VALUES];
    static float resumed[MAX_VALUES];
    dunlin_task task = TASK;
    char folder[64];
    char path[128];
    process p;
    make_data();
    fake_folder_make(folder);
    (void)snprintf(path, sizeof path, "%s/c", folder);
    task.max_steps = 7;
    open_process(&p, N_EXAMPLES, 0);
    load(&p, &task);
    cr_assert_eq(fit_to_end(&p).n_steps, task.max_steps);
    save(&p, whole);
    for (int64_t n = 1; n <= task.max_steps; n += 3) {
        process q;
        learn_and_keep(&TASK, n, path);
        open_process(&q, N_EXAMPLES, 0);
        load(&q, &task);
        expect_ok(&q, q.learner.ops->restore(q.learner.self, path));
        cr_expect_eq(fit_to_end(&q).n_steps, task.max_steps, "kept after %lld", (long long)n);
        save(&q, resumed);
        cr_expect_eq(memcmp(whole, resumed, (size_t)p.weights.n_values * sizeof(float)), 0,
                     "kept after step %lld", (long long)n);
        close_process(&q);
    }
    close_process(&p);
    fake_folder_remove(folder);
}

Test(builtin_keep, what_stop_leaves_can_be_kept)
{
    static float whole[MAX_VALUES];
    static float resumed[MAX_VALUES];
    char folder[64];
    char path[128];
    process p;
    make_data();
    fake_folder_make(folder);
    (void)snprintf(path, sizeof path, "%s/c", folder);
    const dunlin_learner_report wanted = learn_whole(&p, whole);
    for (int n = 1; n < 12; n++) {
        process q;
        dunlin_learner_report report = DUNLIN_LEARNER_REPORT_INIT;
        open_process(&q, N_EXAMPLES, 0);
        load(&q, &TASK);
        reads_until_stop = n;
        stopped = &q.learner;
        cr_assert_eq(q.learner.ops->fit(q.learner.self, 0, &report), DUNLIN_STOPPED);
        stopped = NULL;
        cr_assert(report.n_steps > 0 && report.n_steps < wanted.n_steps && !report.is_done);
        expect_ok(&q, q.learner.ops->checkpoint(q.learner.self, path));
        close_process(&q);
        open_process(&q, N_EXAMPLES, 0);
        load(&q, &TASK);
        expect_ok(&q, q.learner.ops->restore(q.learner.self, path));
        dunlin_learner_report found = fit_to_end(&q);
        save(&q, resumed);
        cr_expect_eq(memcmp(whole, resumed, (size_t)p.weights.n_values * sizeof(float)), 0,
                     "stopped at read %d", n);
        cr_expect_eq(found.n_steps, wanted.n_steps);
        cr_expect_float_eq(found.loss, wanted.loss, 1e-6);
        close_process(&q);
    }
    close_process(&p);
    fake_folder_remove(folder);
}

/* The application has more examples than the round was begun with: it goes on with those. */
Test(builtin_keep, the_examples_are_those_it_was_begun_with)
{
    static float whole[MAX_VALUES];
    static float resumed[MAX_VALUES];
    char folder[64];
    char path[128];
    process p;
    dunlin_task task = TASK;
    make_data();
    fake_folder_make(folder);
    (void)snprintf(path, sizeof path, "%s/c", folder);
    open_process(&p, 30, 0);
    load(&p, &task);
    int64_t n_examples = fit_to_end(&p).n_examples;
    cr_assert_eq(n_examples, 30);
    save(&p, whole);
    close_process(&p);
    open_process(&p, 30, 0);
    task.max_steps = 5;
    load(&p, &task);
    (void)fit_to_end(&p);
    expect_ok(&p, p.learner.ops->checkpoint(p.learner.self, path));
    close_process(&p);
    task.max_steps = 0;
    for (int k = 0; k < 3; k++) { /* from the checkpoint, from the base, and with too few */
        open_process(&p, k < 2 ? N_EXAMPLES : 29, 0);
        task.n_examples = 30;
        if (k == 2) {
            cr_expect_eq(p.learner.ops->load(p.learner.self, &task, &p.base), DUNLIN_DATA);
            cr_expect_not_null(strstr(p.learner.ops->error_text(p.learner.self), "29"));
            close_process(&p);
            break;
        }
        load(&p, &task);
        if (k == 0) {
            expect_ok(&p, p.learner.ops->restore(p.learner.self, path));
        }
        (void)fit_to_end(&p);
        save(&p, resumed);
        cr_expect_eq(memcmp(whole, resumed, (size_t)p.weights.n_values * sizeof(float)), 0, "%d",
                     k);
        close_process(&p);
    }
    fake_folder_remove(folder);
}

static void damage(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");
    cr_assert_not_null(file);
    (void)fseek(file, at, SEEK_SET);
    int byte = fgetc(file);
    (void)fseek(file, at, SEEK_SET);
    (void)fputc(byte ^ 0x11, file);
    (void)fclose(file);
}

/* What is refused leaves a learner that loads again and gives the same result as before. */
Test(builtin_keep, damaged_and_foreign_ones_are_refused)
{
    static float whole[MAX_VALUES];
    static float after[MAX_VALUES];
    char folder[64];
    char path[128];
    process p;
    make_data();
    fake_folder_make(folder);
    (void)snprintf(path, sizeof path, "%s/c", folder);
    (void)learn_whole(&p, whole);
    for (int k = 0; k < 5; k++) {
        static const dunlin_status WANTED[] = {DUNLIN_DIGEST, DUNLIN_DIGEST, DUNLIN_IO,
                                               DUNLIN_MISMATCH, DUNLIN_MISMATCH};
        dunlin_task other = TASK;
        other.seed = k == 3 ? 78 : TASK.seed;
        other.max_examples = k == 4 ? 40 : 0;
        learn_and_keep(&other, 4, path);
        if (k == 0) {
            damage(path, 300);
        } else if (k == 1) {
            cr_assert_eq(truncate(path, 500), 0);
        } else if (k == 2) {
            cr_assert_eq(unlink(path), 0);
        }
        load(&p, &TASK);
        cr_expect_eq(p.learner.ops->restore(p.learner.self, path), WANTED[k], "%d: %s", k,
                     p.learner.ops->error_text(p.learner.self));
        p.learner.ops->unload(p.learner.self);
        load(&p, &TASK);
        (void)fit_to_end(&p);
        save(&p, after);
        cr_expect_eq(memcmp(whole, after, (size_t)p.weights.n_values * sizeof(float)), 0, "%d", k);
        p.learner.ops->unload(p.learner.self);
    }
    cr_expect_eq(p.learner.ops->checkpoint(p.learner.self, path), DUNLIN_STATE);
    cr_expect_eq(p.learner.ops->restore(p.learner.self, path), DUNLIN_STATE);
    close_process(&p);
    fake_folder_remove(folder);
}
