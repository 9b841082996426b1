/*
 * test_builtin_integer.c - the built-in learner in a precision of int8: a base is rounded by draws
 * that follow from its place, what is saved is int8, and neither what a trainer did before nor
 * slices, other trainers and kills change a bit.
 */
#include "builtin/builtin_rounding.h"
#include "builtin_bench.h"

#include <wire/int8.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void begin(builtin_bench *b, int32_t n_trainers)
{
    bench_begin(b, n_trainers);
    b->task.precision = "niti";
    b->task.grad_bits = 4;
    b->task.lr = 0.0F;
    b->task.momentum = 0.0F;
    b->task.round = 3;
}

/* ---- the rounding ---- */

Test(builtin_integer, rounding_is_unbiased_and_follows_from_its_place)
{
    enum { N = 40000 };
    static float values[N];
    static float others[N];
    double sum = 0.0;
    for (int i = 0; i < N; i++) {
        values[i] = 10.3F / 64.0F;
    }
    dunlin__rounding_apply(dunlin__rounding_key(7, 3, 1), 1.0F / 64.0F, 0, N, values);
    for (int i = 0; i < N; i++) {
        const double whole = (double)values[i] * 64.0;
        cr_assert(whole == 10.0 || whole == 11.0, "%g", whole);
        sum += whole;
    }
    /* The deviation of the mean is sqrt(0.3 * 0.7 / N) = 0.0023. */
    cr_expect_float_eq(sum / N, 10.3, 0.012);
    /* In pieces the same; of another seed, round, tensor or place others. */
    for (int first = 0; first < N; first += 1000) {
        for (int i = 0; i < 1000; i++) {
            others[first + i] = 10.3F / 64.0F;
        }
        dunlin__rounding_apply(dunlin__rounding_key(7, 3, 1), 1.0F / 64.0F, first, 1000,
                               others + first);
    }
    cr_expect(bench_same(values, others, N));
    const uint64_t keys[][3] = {{8, 3, 1}, {7, 4, 1}, {7, 3, 2}, {3, 7, 1}};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        int n_same = 0;
        for (int i = 0; i < N; i++) {
            others[i] = 10.3F / 64.0F;
        }
        dunlin__rounding_apply(dunlin__rounding_key(keys[k][0], keys[k][1], keys[k][2]),
                               1.0F / 64.0F, 0, N, others);
        for (int i = 0; i < N; i++) {
            n_same += values[i] == others[i] ? 1 : 0;
        }
        /* Of independent draws 0.3^2 + 0.7^2 = 0.58 agree, give or take 0.0025. */
        cr_expect_float_eq((double)n_same / N, 0.58, 0.013, "key %zu: %d", k, n_same);
    }
}

Test(builtin_integer, whole_numbers_stay_and_the_ends_are_kept)
{
    float values[] = {0.0F, 1.0F, -127.0F, 127.0F, 30000.0F, -128.0F, -0.0F};
    const float wanted[] = {0.0F, 1.0F, -127.0F, 127.0F, 30000.0F, -128.0F, 0.0F};
    dunlin__rounding_apply(1, 1.0F, 0, 7, values);
    for (int i = 0; i < 7; i++) {
        cr_expect(values[i] == wanted[i], "%g, not %g", (double)values[i], (double)wanted[i]);
    }
}

/* ---- the learner ---- */

/* A base is rounded to 16 bits, not to eight: what is not trained is what came, to within a part of
 * 16,000 of the largest of its tensor; half a unit of eight bits at the ends, where both halves of
 * a number are at theirs. */
Test(builtin_integer, a_base_in_16_bits_is_that_of_the_server)
{
    float got[BENCH_VALUES];
    int64_t at = 0;
    builtin_bench b;
    begin(&b, 1);
    b.task.precision = "niti16";
    cr_assert_eq(bench_load(&b), DUNLIN_OK);
    bench_save(&b, got);
    b.learner.ops->unload(b.learner.self);
    for (int32_t i = 0; i < b.base.n_tensors; i++) {
        const int64_t n = b.base.tensors[i].n_elements;
        float largest = 0.0F;
        for (int64_t k = at; k < at + n; k++) {
            largest = fmaxf(largest, fabsf(b.values[k]));
        }
        for (int64_t k = at; k < at + n; k++) {
            const float size = fabsf(b.values[k]);
            const float room = largest / (size > 0.99F * largest ? 250.0F : 16000.0F);
            cr_expect_leq(fabsf(got[k] - b.values[k]), room, "value %d of %s: %g", (int)(k - at),
                          b.base.tensors[i].name, (double)b.values[k]);
        }
        at += n;
    }
    bench_end(&b);
}

static void expect_int8(const builtin_bench *b, const float *values)
{
    int64_t at = 0;
    for (int32_t i = 0; i < b->base.n_tensors; i++) {
        const dunlin_weights_tensor *tensor = &b->base.tensors[i];
        dunlin__int8_range range = {.has_values = false};
        dunlin_error error = {0};
        float scale = 0.0F;
        cr_assert_eq(dunlin__int8_range_add(&range, tensor->name, values + at,
                                            (size_t)tensor->n_elements, &error),
                     DUNLIN_OK);
        cr_expect_eq(dunlin__int8_scale_of(&range, tensor->name, &scale, &error), DUNLIN_OK, "%s",
                     error.text);
        at += tensor->n_elements;
    }
}

Test(builtin_integer, what_is_saved_is_int8_and_trained)
{
    float got[BENCH_VALUES];
    float untrained[BENCH_VALUES];
    builtin_bench b;
    begin(&b, 1);
    cr_assert_eq(bench_load(&b), DUNLIN_OK, "%s", b.learner.ops->error_text(b.learner.self));
    bench_save(&b, untrained);
    b.learner.ops->unload(b.learner.self);
    const dunlin_learner_report report = bench_fit_all(&b, 0, got, NULL);
    expect_int8(&b, untrained);
    expect_int8(&b, got);
    cr_expect_not(bench_same(untrained, got, b.base.n_values));
    cr_expect_eq(report.n_steps, 3 * 7); /* 50 examples in batches of 8 */
    cr_expect_gt(report.loss, 0.0);
    /* The base within one unit of its exponent: 2^-7 of magnitudes below a half. */
    for (int64_t i = 0; i < b.base.n_values; i++) {
        cr_assert_lt(fabs((double)untrained[i] - (double)b.values[i]), 0x1p-7, "value %d", (int)i);
    }
    bench_end(&b);
}

/* What would grow in a trainer of an app's own: so large are updates of seven bits. */
Test(builtin_integer, weights_keep_the_range_of_their_round)
{
    float got[BENCH_VALUES];
    int64_t at = 0;
    int n_ends = 0;
    builtin_bench b;
    begin(&b, 1);
    b.task.grad_bits = 7;
    (void)bench_fit_all(&b, 0, got, NULL);
    for (int32_t i = 0; i < b.base.n_tensors; i++) {
        const int64_t n = b.base.tensors[i].n_elements;
        float largest = 0.0F;
        for (int64_t k = at; k < at + n; k++) {
            largest = fmaxf(largest, fabsf(b.values[k]));
        }
        const float unit = exp2f(ceilf(log2f(largest)) - 7.0F);
        for (int64_t k = at; k < at + n; k++) {
            cr_expect_leq(fabsf(got[k]), 127.0F * unit, "value %d of %s: %g", (int)(k - at),
                          b.base.tensors[i].name, (double)got[k]);
            n_ends += fabsf(got[k]) >= 127.0F * unit ? 1 : 0;
        }
        at += n;
    }
    cr_expect_gt(n_ends, (int)(b.base.n_values / 64), "too few are at the ends to tell");
    bench_end(&b);
}

Test(builtin_integer, slices_and_other_trainers_give_the_same_bits)
{
    float once[BENCH_VALUES];
    float got[BENCH_VALUES];
    int n_calls = 0;
    builtin_bench b;
    begin(&b, 1);
    (void)bench_fit_all(&b, 0, once, NULL);
    (void)bench_fit_all(&b, 1, got, &n_calls);
    cr_expect(bench_same(once, got, b.base.n_values), "in %d calls", n_calls);
    /* A trainer that has had a round of larger weights begins as a fresh one does. */
    float kept[BENCH_VALUES];
    memcpy(kept, b.values, sizeof kept);
    for (int64_t i = 0; i < b.base.n_values; i++) {
        b.values[i] *= 37.0F;
    }
    b.task.round = 9;
    (void)bench_fit_all(&b, 0, got, NULL);
    memcpy(b.values, kept, sizeof kept);
    b.task.round = 3;
    (void)bench_fit_all(&b, 0, got, NULL);
    cr_expect(bench_same(once, got, b.base.n_values), "after another round");
    /* Neither does a round in float32 between. */
    b.task.precision = NULL;
    b.task.grad_bits = 0;
    b.task.lr = 0.1F;
    (void)bench_fit_all(&b, 0, got, NULL);
    cr_expect_not(bench_same(once, got, b.base.n_values));
    b.task.precision = "niti";
    b.task.grad_bits = 4;
    b.task.lr = 0.0F;
    (void)bench_fit_all(&b, 0, got, NULL);
    cr_expect(bench_same(once, got, b.base.n_values), "after a round in float32");
    /* Other bits, another round. */
    b.task.grad_bits = 2;
    (void)bench_fit_all(&b, 0, got, NULL);
    cr_expect_not(bench_same(once, got, b.base.n_values), "grad_bits change nothing");
    b.task.grad_bits = 4;
    b.task.round = 4;
    (void)bench_fit_all(&b, 0, got, NULL);
    cr_expect_not(bench_same(once, got, b.base.n_values), "the round changes no draw");
    bench_end(&b);
}

/* At every step a learner of another pool resumes and gives the same bits. */
Test(builtin_integer, a_round_that_is_resumed_has_the_same_bits)
{
    float once[BENCH_VALUES];
    float got[BENCH_VALUES];
    char path[] = "/tmp/dunlin-integer-XXXXXX";
    const int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    (void)close(fd);
    builtin_bench b;
    begin(&b, 1);
    (void)bench_fit_all(&b, 0, once, NULL);
    for (int64_t n = 1; n < 21; n += 3) {
        dunlin_learner_report report = DUNLIN_LEARNER_REPORT_INIT;
        b.task.max_steps = n;
        cr_assert_eq(bench_load(&b), DUNLIN_OK);
        cr_assert_eq(b.learner.ops->fit(b.learner.self, 0, &report), DUNLIN_OK);
        cr_assert_eq(report.n_steps, n);
        cr_assert_eq(b.learner.ops->checkpoint(b.learner.self, path), DUNLIN_OK);
        b.learner.ops->unload(b.learner.self);
        builtin_bench other;
        begin(&other, 1);
        cr_assert_eq(bench_load(&other), DUNLIN_OK);
        cr_assert_eq(other.learner.ops->restore(other.learner.self, path), DUNLIN_OK, "%s",
                     other.learner.ops->error_text(other.learner.self));
        report = (dunlin_learner_report)DUNLIN_LEARNER_REPORT_INIT;
        while (!report.is_done) {
            cr_assert_eq(other.learner.ops->fit(other.learner.self, 0, &report), DUNLIN_OK);
        }
        bench_save(&other, got);
        other.learner.ops->unload(other.learner.self);
        cr_expect(bench_same(once, got, b.base.n_values), "resumed after %d steps", (int)n);
        bench_end(&other);
    }
    (void)unlink(path);
    bench_end(&b);
}

/* A round that only evaluates looks at the server's model, which is float32. */
Test(builtin_integer, an_evaluation_is_of_the_float_model)
{
    dunlin_learner_report in_float = DUNLIN_LEARNER_REPORT_INIT;
    dunlin_learner_report ordered = DUNLIN_LEARNER_REPORT_INIT;
    builtin_bench b;
    begin(&b, 1);
    b.task.kind = DUNLIN_TASK_EVALUATE;
    cr_assert_eq(bench_load(&b), DUNLIN_OK);
    cr_assert_eq(b.learner.ops->evaluate(b.learner.self, 0, &ordered), DUNLIN_OK);
    b.learner.ops->unload(b.learner.self);
    b.task.precision = NULL;
    cr_assert_eq(bench_load(&b), DUNLIN_OK);
    cr_assert_eq(b.learner.ops->evaluate(b.learner.self, 0, &in_float), DUNLIN_OK);
    b.learner.ops->unload(b.learner.self);
    cr_expect_eq(ordered.loss, in_float.loss);
    bench_end(&b);
}

static void expect_refused(builtin_bench *b, dunlin_status status, const char *text)
{
    cr_expect_eq(bench_load(b), status, "%s", text);
    cr_expect_not_null(strstr(b->learner.ops->error_text(b->learner.self), text), "%s",
                       b->learner.ops->error_text(b->learner.self));
}

Test(builtin_integer, what_integers_have_not_is_refused_by_name)
{
    const dunlin_task_schedule schedule = {.struct_size = sizeof schedule, .n_rounds = 2};
    builtin_bench b;
    begin(&b, 1);
    b.task.precision = "int4";
    expect_refused(&b, DUNLIN_UNSUPPORTED, "precision \"int4\" is not in this build");
    b.task.precision = "a-name-of-more-than-15-characters";
    expect_refused(&b, DUNLIN_LIMIT, "a precision's name of 33 characters");
    b.task.precision = "niti";
    b.task.lr = 0.1F;
    expect_refused(&b, DUNLIN_UNSUPPORTED, "precision niti has no learning rate");
    b.task.lr = 0.0F;
    b.task.proximal_mu = 0.1F;
    expect_refused(&b, DUNLIN_UNSUPPORTED, "precision niti and FedProx");
    b.task.proximal_mu = 0.0F;
    b.task.correction = &b.reader;
    expect_refused(&b, DUNLIN_UNSUPPORTED, "precision niti and SCAFFOLD");
    b.task.correction = NULL;
    b.task.schedule = &schedule;
    expect_refused(&b, DUNLIN_UNSUPPORTED, "precision niti and a schedule");
    b.task.schedule = NULL;
    b.task.mixup = 0.5F;
    expect_refused(&b, DUNLIN_UNSUPPORTED, "precision niti and mixed examples");
    b.task.mixup = 0.0F;
    b.task.momentum = 0.9F;
    expect_refused(&b, DUNLIN_ARGUMENT, "option momentum is set");
    b.task.momentum = 0.0F;
    b.task.grad_bits = 9;
    expect_refused(&b, DUNLIN_ARGUMENT, "option grad_bits is \"9\"");
    b.task.grad_bits = 0; /* the precision's own */
    cr_expect_eq(bench_load(&b), DUNLIN_OK);
    b.learner.ops->unload(b.learner.self);
    bench_end(&b);
}

/* A base with a value that is not finite changes nothing. */
Test(builtin_integer, a_base_that_is_not_finite_is_refused)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    builtin_bench b;
    begin(&b, 1);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const float kept = b.values[5];
        b.values[5] = bad[i];
        expect_refused(&b, DUNLIN_NUMERIC, "could not be loaded");
        b.values[5] = kept;
    }
    cr_expect_eq(bench_load(&b), DUNLIN_OK);
    b.learner.ops->unload(b.learner.self);
    bench_end(&b);
}

Test(builtin_integer, a_pool_has_no_precision_of_its_own)
{
    builtin_bench b;
    begin(&b, 1);
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_trainer_pool *pool = NULL;
    dunlin_error error = {0};
    options.precision = "niti";
    cr_expect_eq(dunlin_trainer_pool_create(b.model, &options, 1, &pool, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "precision of each round's plan"), "%s", error.text);
    cr_expect_null(pool);
    bench_end(&b);
}
