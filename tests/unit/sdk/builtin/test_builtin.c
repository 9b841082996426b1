/*
 * test_builtin.c - our trainer as a learner: weights in and out, what does not match, the pool,
 * slices, FedProx, limits, stop.
 */
#include "builtin/builtin.h"
#include "builtin_bench.h"

#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>
#include <random.h>
#include <string.h>
#include <time.h>

Test(builtin, weights_go_in_and_out_unchanged)
{
    builtin_bench b;
    float found[BENCH_VALUES];
    bench_begin(&b, 1);
    cr_assert_eq(bench_load(&b), DUNLIN_OK);
    bench_save(&b, found);
    cr_expect(bench_same(found, b.values, b.base.n_values));
    cr_expect_eq(bench_load(&b), DUNLIN_STATE);
    b.learner.ops->unload(b.learner.self);
    b.learner.ops->unload(b.learner.self); /* once more does no harm */
    /* In another order than the model's: by name. */
    dunlin_weights_tensor first = b.base.tensors[0];
    b.base.tensors[0] = b.base.tensors[2];
    b.base.tensors[2] = first;
    cr_assert_eq(bench_load(&b), DUNLIN_OK);
    bench_save(&b, found);
    cr_expect(bench_same(found, b.values, b.base.n_values));
    bench_end(&b);
}

Test(builtin, fits)
{
    builtin_bench b;
    float found[BENCH_VALUES];
    bench_begin(&b, 1);
    dunlin_learner_report report = bench_fit_all(&b, 0, found, NULL);
    cr_expect_eq(report.n_examples, BENCH_EXAMPLES);
    cr_expect_eq(report.n_steps, 3 * 7);
    cr_expect(report.loss > 0 && report.loss < 3, "%f", report.loss);
    cr_expect_gt(report.peak_bytes, 0);
    cr_expect_eq(dunlin_trainer_pool_peak_bytes(b.pool), report.peak_bytes);
    const uint64_t moved_bytes = dunlin_trainer_pool_moved_bytes(b.pool);
    cr_expect_gt(moved_bytes, 0);
    cr_expect_eq(dunlin_trainer_pool_moved_bytes(NULL), 0);
    cr_expect_not(bench_same(found, b.values, b.base.n_values));
    (void)bench_fit_all(&b, 1, found, NULL);
    cr_expect_eq(dunlin_trainer_pool_moved_bytes(b.pool), 2 * moved_bytes);
    b.task.max_examples = 20;
    report = bench_fit_all(&b, 0, found, NULL);
    cr_expect_eq(report.n_examples, 20);
    cr_expect_eq(report.n_steps, 3 * 3);
    bench_end(&b);
}

/* A round is the same whatever the trainer did before, and in whatever slices. */
Test(builtin, slices_give_the_same_weights)
{
    builtin_bench b;
    float whole[BENCH_VALUES];
    float sliced[BENCH_VALUES];
    int n_calls = 0;
    bench_begin(&b, 1);
    dunlin_learner_report a = bench_fit_all(&b, 0, whole, &n_calls);
    cr_expect_eq(n_calls, 1);
    bench_pause_ms = 2;
    dunlin_learner_report c = bench_fit_all(&b, 1, sliced, &n_calls);
    cr_expect_geq(n_calls, 10);
    cr_expect(bench_same(whole, sliced, b.base.n_values));
    cr_expect_eq(a.n_steps, c.n_steps);
    cr_expect_eq(a.loss, c.loss);
    cr_expect_eq(a.accuracy, c.accuracy);
    bench_pause_ms = 0;
    b.task.seed = 8;
    (void)bench_fit_all(&b, 0, sliced, NULL);
    cr_expect_not(bench_same(whole, sliced, b.base.n_values), "another seed is another order");
    bench_end(&b);
}

Test(builtin, max_steps_is_a_limit)
{
    builtin_bench b;
    float whole[BENCH_VALUES];
    float sliced[BENCH_VALUES];
    int n_calls = 0;
    bench_begin(&b, 1);
    b.task.max_steps = 10;
    cr_expect_eq(bench_fit_all(&b, 0, whole, NULL).n_steps, 10);
    bench_pause_ms = 2;
    cr_expect_eq(bench_fit_all(&b, 1, sliced, &n_calls).n_steps, 10);
    cr_expect_gt(n_calls, 2);
    cr_expect(bench_same(whole, sliced, b.base.n_values));
    bench_end(&b);
}

/* A training that overflowed hands nothing out, and leaves nothing in the pool's trainer. */
Test(builtin, a_training_that_overflows_has_no_update)
{
    builtin_bench b;
    float alone[BENCH_VALUES];
    float after[BENCH_VALUES];
    dunlin_learner_report report = DUNLIN_LEARNER_REPORT_INIT;
    dunlin_weights_reader reader = {0};
    bench_begin(&b, 1);
    (void)bench_fit_all(&b, 0, alone, NULL);
    const float lr = b.task.lr;
    const float rates[] = {1e20F, 3e38F};
    for (int i = 0; i < 2; i++) {
        b.task.lr = rates[i];
        cr_assert_eq(bench_load(&b), DUNLIN_OK);
        cr_expect_eq(b.learner.ops->fit(b.learner.self, 0, &report), DUNLIN_NUMERIC);
        cr_expect_not(report.is_done);
        cr_expect_eq(b.learner.ops->save(b.learner.self, &reader), DUNLIN_STATE);
        b.learner.ops->unload(b.learner.self);
        b.task.lr = lr;
        (void)bench_fit_all(&b, 0, after, NULL);
        cr_expect(bench_same(alone, after, b.base.n_values), "rate %g", (double)rates[i]);
    }
    bench_end(&b);
}

static double distance(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    }
    return sqrt(sum);
}

Test(builtin, fedprox_holds_to_the_base)
{
    builtin_bench b;
    float none[BENCH_VALUES];
    float zero[BENCH_VALUES];
    float strong[BENCH_VALUES];
    bench_begin(&b, 2);
    b.task.momentum = 0.0F;
    (void)bench_fit_all(&b, 0, none, NULL);
    b.task.proximal_mu = 1e-30F; /* the hook is there and adds nothing that counts */
    (void)bench_fit_all(&b, 0, zero, NULL);
    cr_expect(bench_same(none, zero, b.base.n_values));
    b.task.proximal_mu = 5.0F;
    (void)bench_fit_all(&b, 0, strong, NULL);
    cr_expect_lt(distance(strong, b.values, b.base.n_values),
                 0.5 * distance(none, b.values, b.base.n_values));
    b.task.proximal_mu = 0.0F;
    (void)bench_fit_all(&b, 0, zero, NULL);
    cr_expect(bench_same(none, zero, b.base.n_values), "nothing of the round before stays");
    bench_end(&b);
}

/* One step from the base has no proximal part; the second has mu * (w1 - base), by hand. */
Test(builtin, fedprox_is_its_formula)
{
    builtin_bench b;
    float one[BENCH_VALUES];
    float plain[BENCH_VALUES];
    float prox[BENCH_VALUES];
    bench_begin(&b, 2);
    b.task.momentum = 0.0F;
    b.task.batch = BENCH_EXAMPLES;
    b.task.epochs = 1;
    (void)bench_fit_all(&b, 0, one, NULL);
    b.task.epochs = 2;
    (void)bench_fit_all(&b, 0, plain, NULL);
    b.task.proximal_mu = 0.7F;
    (void)bench_fit_all(&b, 0, prox, NULL);
    for (int64_t i = 0; i < b.base.n_values; i++) {
        double wanted = (double)plain[i] - 0.1 * 0.7 * ((double)one[i] - (double)b.values[i]);
        cr_assert_float_eq((double)prox[i], wanted, 1e-6, "value %lld", (long long)i);
    }
    bench_end(&b);
}

/* One step over all examples: the gradient, and the rate times the correction more, by hand. Then
 * a round without one, in the same trainers: nothing of it stays. */
Test(builtin, scaffolds_correction_is_its_formula)
{
    builtin_bench b;
    held_weights change;
    float values[BENCH_VALUES];
    float plain[BENCH_VALUES];
    float found[BENCH_VALUES];
    uint64_t state = test_seed(11);
    bench_begin(&b, 1);
    held_weights_make(&change, b.model, values, BENCH_VALUES);
    test_random_fill(values, change.n_values, -0.5, 0.5, &state);
    const dunlin_weights_reader correction = held_weights_reader(&change);
    b.task.momentum = 0.0F;
    b.task.batch = BENCH_EXAMPLES;
    b.task.epochs = 1;
    (void)bench_fit_all(&b, 0, plain, NULL);
    b.task.correction = &correction;
    (void)bench_fit_all(&b, 0, found, NULL);
    for (int64_t i = 0; i < b.base.n_values; i++) {
        double wanted = (double)plain[i] - 0.1 * (double)values[i];
        cr_assert_float_eq((double)found[i], wanted, 1e-7, "value %lld", (long long)i);
    }
    b.task.correction = NULL;
    (void)bench_fit_all(&b, 0, found, NULL);
    cr_expect(bench_same(found, plain, b.base.n_values));
    bench_end(&b);
}

/* Personal tensors are learnt and handed out like the others; the client keeps them. */
Test(builtin, local_tensors_are_handed_out)
{
    builtin_bench b;
    float plain[BENCH_VALUES];
    float found[BENCH_VALUES];
    bench_begin(&b, 1);
    (void)bench_fit_all(&b, 0, plain, NULL);
    b.base.tensors[2].aggregation = DUNLIN_AGGREGATE_LOCAL;
    (void)bench_fit_all(&b, 0, found, NULL);
    cr_expect(bench_same(found, plain, b.base.n_values));
    bench_end(&b);
}

Test(builtin, evaluates_in_slices_and_changes_nothing)
{
    builtin_bench b;
    float found[BENCH_VALUES];
    dunlin_learner_report whole = DUNLIN_LEARNER_REPORT_INIT;
    dunlin_learner_report sliced = DUNLIN_LEARNER_REPORT_INIT;
    int n_calls = 0;
    bench_begin(&b, 1);
    cr_assert_eq(bench_load(&b), DUNLIN_OK);
    cr_assert_eq(b.learner.ops->evaluate(b.learner.self, 0, &whole), DUNLIN_OK);
    cr_expect(whole.is_done);
    bench_save(&b, found);
    cr_expect(bench_same(found, b.values, b.base.n_values));
    b.learner.ops->unload(b.learner.self);
    cr_assert_eq(bench_load(&b), DUNLIN_OK);
    while (!sliced.is_done && n_calls++ < 100) {
        cr_assert_eq(b.learner.ops->evaluate(b.learner.self, 1, &sliced), DUNLIN_OK);
    }
    cr_expect_gt(n_calls, 1);
    /* Means of calls are added up: as many calls, as many roundings. */
    cr_expect_float_eq(whole.loss, sliced.loss, 1e-12 * whole.loss);
    cr_expect_float_eq(whole.accuracy, sliced.accuracy, 1e-12);
    cr_expect_eq(sliced.n_examples, BENCH_EXAMPLES);
    bench_end(&b);
}

/* Examples of a data set of its own: the first N_OTHERS of them, with the labels moved by one. */
#define N_OTHERS 20

static dunlin_status read_others(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_y)
{
    int64_t *highest = ctx;
    dunlin_status status = bench_read(NULL, indices, n, out_x, out_y);
    for (int64_t i = 0; i < n; i++) {
        out_y[i] = (out_y[i] + 1) % 4;
        *highest = indices[i] > *highest ? indices[i] : *highest;
    }
    return status;
}

Test(builtin, evaluates_on_a_data_set_of_its_own)
{
    builtin_bench b;
    int64_t highest = -1;
    dunlin_learner_report on_trained = DUNLIN_LEARNER_REPORT_INIT;
    dunlin_learner_report on_others = DUNLIN_LEARNER_REPORT_INIT;
    dunlin_learner_report again = DUNLIN_LEARNER_REPORT_INIT;
    const dunlin_source others = {.struct_size = sizeof(dunlin_source),
                                  .ctx = &highest,
                                  .read_fn = read_others,
                                  .n_examples = N_OTHERS,
                                  .dtype = DUNLIN_F32};
    bench_begin(&b, 1);
    cr_assert_eq(bench_load(&b), DUNLIN_OK);
    cr_assert_eq(b.learner.ops->evaluate(b.learner.self, 0, &on_trained), DUNLIN_OK);
    cr_expect_eq(dunlin_builtin_set_evaluation(b.builtin, &others, NULL), DUNLIN_STATE);
    b.learner.ops->unload(b.learner.self);
    cr_assert_eq(dunlin_builtin_set_evaluation(b.builtin, &others, NULL), DUNLIN_OK);
    cr_assert_eq(bench_load(&b), DUNLIN_OK);
    cr_assert_eq(b.learner.ops->evaluate(b.learner.self, 0, &on_others), DUNLIN_OK);
    cr_expect(on_others.is_done && on_others.n_examples == N_OTHERS && highest == N_OTHERS - 1);
    cr_expect_float_neq(on_others.loss, on_trained.loss, 1e-4);
    for (again.is_done = false; !again.is_done;) {
        cr_assert_eq(b.learner.ops->evaluate(b.learner.self, 1, &again), DUNLIN_OK);
    }
    cr_expect_float_eq(again.loss, on_others.loss, 1e-12 * on_others.loss);
    cr_assert_eq(b.learner.ops->fit(b.learner.self, 0, &again), DUNLIN_OK);
    cr_expect_eq(again.n_examples, BENCH_EXAMPLES); /* trained on its own examples, as ever */
    b.learner.ops->unload(b.learner.self);
    /* A round that evaluates: within the task's limit, and resumed with a number that is not one of
     * the training's examples. */
    b.task.kind = DUNLIN_TASK_EVALUATE;
    b.task.max_examples = 7;
    b.task.n_examples = BENCH_EXAMPLES + 1;
    cr_assert_eq(bench_load(&b), DUNLIN_OK);
    cr_assert_eq(b.learner.ops->evaluate(b.learner.self, 0, &again), DUNLIN_OK);
    cr_expect_eq(again.n_examples, 7);
    b.learner.ops->unload(b.learner.self);
    cr_assert_eq(dunlin_builtin_set_evaluation(b.builtin, NULL, NULL), DUNLIN_OK);
    cr_expect_eq(bench_load(&b), DUNLIN_DATA); /* on its own examples the number counts */
    bench_end(&b);
}

/* A training that is evaluated before, between its calls and after gives the same bits; a fit after
 * the last one changes nothing, with epochs or steps as the limit. */
Test(builtin, evaluations_around_a_training_do_not_touch_it)
{
    for (int64_t max_steps = 0; max_steps <= 5; max_steps += 5) {
        builtin_bench b;
        float plain[BENCH_VALUES];
        float found[BENCH_VALUES];
        dunlin_learner_report before = DUNLIN_LEARNER_REPORT_INIT;
        dunlin_learner_report after = DUNLIN_LEARNER_REPORT_INIT;
        dunlin_learner_report fitted = DUNLIN_LEARNER_REPORT_INIT;
        bench_begin(&b, 1);
        b.task.max_steps = max_steps;
        (void)bench_fit_all(&b, 0, plain, NULL);
        cr_assert_eq(bench_load(&b), DUNLIN_OK);
        cr_assert_eq(b.learner.ops->evaluate(b.learner.self, 0, &before), DUNLIN_OK);
        while (!fitted.is_done) {
            cr_assert_eq(b.learner.ops->fit(b.learner.self, 1, &fitted), DUNLIN_OK);
            cr_assert_eq(b.learner.ops->evaluate(b.learner.self, 1, &after), DUNLIN_OK);
        }
        double loss = fitted.loss;
        cr_assert_eq(b.learner.ops->fit(b.learner.self, 0, &fitted), DUNLIN_OK);
        cr_expect(fitted.is_done);
        cr_expect_float_eq(fitted.loss, loss, 0);
        while (!after.is_done) {
            cr_assert_eq(b.learner.ops->evaluate(b.learner.self, 1, &after), DUNLIN_OK);
        }
        cr_assert_eq(b.learner.ops->evaluate(b.learner.self, 0, &after), DUNLIN_OK);
        cr_expect(before.is_done && after.is_done);
        cr_expect_lt(after.loss, before.loss);
        bench_save(&b, found);
        cr_expect(bench_same(found, plain, b.base.n_values), "%lld steps", (long long)max_steps);
        bench_end(&b);
    }
}

Test(builtin, what_does_not_match_is_named)
{
    builtin_bench b;
    bench_begin(&b, 1);
    const held_weights right = b.base;
    b.base.tensors[1].name = "fc9.bias";
    cr_expect_eq(bench_load(&b), DUNLIN_MISMATCH);
    cr_expect_not_null(strstr(b.learner.ops->error_text(b.learner.self), "fc9.bias"));
    b.base = right;
    b.base.tensors[0].shape.dims[0]++;
    cr_expect_eq(bench_load(&b), DUNLIN_MISMATCH);
    cr_expect_not_null(strstr(b.learner.ops->error_text(b.learner.self), right.tensors[0].name));
    b.base = right;
    b.base.tensors[0].shape = (dunlin_shape){.n_dims = 2, .dims = {BENCH_INPUTS, 16}}; /* turned */
    cr_expect_eq(bench_load(&b), DUNLIN_MISMATCH);
    b.base = right;
    b.base.tensors[3] = b.base.tensors[1];
    cr_expect_eq(bench_load(&b), DUNLIN_MISMATCH);
    b.base = right;
    b.reader.n_tensors--;
    cr_expect_eq(bench_load(&b), DUNLIN_MISMATCH);
    b.reader.n_tensors++;
    float sound = b.values[3];
    b.values[3] = NAN;
    cr_expect_eq(bench_load(&b), DUNLIN_NUMERIC);
    b.values[3] = sound;
    cr_expect_eq(bench_load(&b), DUNLIN_OK, "the trainer was given back each time");
    bench_end(&b);
}

Test(builtin, a_pool_that_is_empty_says_later)
{
    builtin_bench b;
    dunlin_builtin *others[2];
    dunlin_learner learners[2];
    bench_begin(&b, 2);
    dunlin_source source = {.struct_size = sizeof(dunlin_source),
                            .read_fn = bench_read,
                            .n_examples = BENCH_EXAMPLES,
                            .dtype = DUNLIN_F32};
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(dunlin_builtin_create(b.pool, &source, NULL, &others[i], &learners[i], NULL),
                     DUNLIN_OK);
        cr_assert_eq(learners[i].ops->load(learners[i].self, &b.task, &b.reader), DUNLIN_OK);
    }
    cr_expect_eq(bench_load(&b), DUNLIN_LOCKED);
    learners[0].ops->unload(learners[0].self);
    cr_expect_eq(bench_load(&b), DUNLIN_OK);
    dunlin_builtin_destroy(others[0]);
    dunlin_builtin_destroy(others[1]);
    bench_end(&b);
}

Test(builtin, a_budget_that_cannot_work_names_the_least)
{
    builtin_bench b;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_trainer_pool *pool = NULL;
    dunlin_builtin *builtin = NULL;
    dunlin_learner learner;
    bench_begin(&b, 1);
    dunlin_source source = {.struct_size = sizeof(dunlin_source),
                            .read_fn = bench_read,
                            .n_examples = BENCH_EXAMPLES,
                            .dtype = DUNLIN_F32};
    options.budget_bytes = 1000;
    cr_assert_eq(dunlin_trainer_pool_create(b.model, &options, 1, &pool, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_builtin_create(pool, &source, NULL, &builtin, &learner, NULL), DUNLIN_OK);
    cr_expect_eq(learner.ops->load(learner.self, &b.task, &b.reader), DUNLIN_BUDGET);
    cr_expect_not_null(strstr(learner.ops->error_text(learner.self), "1000"));
    dunlin_builtin_destroy(builtin);
    dunlin_trainer_pool_destroy(pool);
    bench_end(&b);
}

static void *stop_soon(void *ctx)
{
    const dunlin_learner *learner = ctx;
    struct timespec pause = {.tv_nsec = 50000000L};
    (void)nanosleep(&pause, NULL);
    learner->ops->stop(learner->self);
    return NULL;
}

Test(builtin, stop_from_another_thread)
{
    builtin_bench b;
    pthread_t thread;
    dunlin_learner_report report = DUNLIN_LEARNER_REPORT_INIT;
    float found[BENCH_VALUES];
    bench_begin(&b, 1);
    b.task.epochs = 100000;
    cr_assert_eq(bench_load(&b), DUNLIN_OK);
    cr_assert_eq(pthread_create(&thread, NULL, stop_soon, &b.learner), 0);
    cr_expect_eq(b.learner.ops->fit(b.learner.self, 0, &report), DUNLIN_STOPPED);
    (void)pthread_join(thread, NULL);
    cr_expect_eq(b.learner.ops->fit(b.learner.self, 0, &report), DUNLIN_STOPPED);
    b.learner.ops->unload(b.learner.self);
    b.learner.ops->stop(b.learner.self); /* without a load: nothing to stop */
    b.task.epochs = 1;
    (void)bench_fit_all(&b, 0, found, NULL); /* the next round is not touched by it */
    bench_end(&b);
}

Test(builtin, arguments)
{
    builtin_bench b;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_trainer_pool *pool = NULL;
    dunlin_builtin *builtin = NULL;
    dunlin_learner learner;
    dunlin_error error = {0};
    bench_begin(&b, 1);
    cr_expect_eq(dunlin_trainer_pool_create(NULL, &options, 1, &pool, &error), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_pool_create(b.model, NULL, 1, &pool, &error), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_pool_create(b.model, &options, 0, &pool, &error), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_pool_create(b.model, &options, 257, &pool, &error),
                 DUNLIN_ARGUMENT);
    options.n_gradient_slots = 1;
    cr_expect_eq(dunlin_trainer_pool_create(b.model, &options, 1, &pool, &error), DUNLIN_ARGUMENT);
    dunlin_source empty = {.struct_size = sizeof(dunlin_source), .read_fn = bench_read};
    cr_expect_eq(dunlin_builtin_create(b.pool, &empty, NULL, &builtin, &learner, &error),
                 DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_builtin_create(NULL, &empty, NULL, &builtin, &learner, &error),
                 DUNLIN_ARGUMENT);
    dunlin_builtin_destroy(NULL);
    dunlin_trainer_pool_destroy(NULL);
    bench_end(&b);
}
