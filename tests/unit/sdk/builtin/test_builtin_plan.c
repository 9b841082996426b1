/*
 * test_builtin_plan.c - the orders of a round's plan give the weights of a trainer that has the
 * same as its own options, bit for bit; what cannot be done is refused by name.
 */
#include "builtin_bench.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <graph/shuffle.h>
#include <random.h>
#include <string.h>

/* A trainer with options of its own that begins with the bench's weights and seed. */
static dunlin_trainer *own_trainer(const builtin_bench *b, dunlin_trainer_options options)
{
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {0};
    options.batch = options.batch > 0 ? options.batch : b->task.batch;
    options.momentum = b->task.momentum;
    options.weight_decay = b->task.weight_decay;
    options.lr = b->task.lr;
    cr_assert_eq(dunlin_trainer_create(b->model, &options, &trainer, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(
        dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, b->base.n_values, b->values),
        DUNLIN_OK);
    dunlin_trainer_set_seed(trainer, b->task.seed);
    return trainer;
}

static dunlin_source bench_source(void)
{
    return (dunlin_source){.struct_size = sizeof(dunlin_source),
                           .read_fn = bench_read,
                           .n_examples = BENCH_EXAMPLES,
                           .dtype = DUNLIN_F32};
}

/* Ends the trainer and expects its weights to be those of the learner's task. */
static void expect_same(builtin_bench *b, dunlin_trainer *trainer, const char *what)
{
    float wanted[BENCH_VALUES];
    float found[BENCH_VALUES];
    cr_assert_eq(
        dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, b->base.n_values, wanted),
        DUNLIN_OK);
    (void)bench_fit_all(b, 0, found, NULL);
    cr_expect(bench_same(wanted, found, b->base.n_values), "%s", what);
    cr_expect_not(bench_same(b->values, found, b->base.n_values), "%s: nothing was trained", what);
    dunlin_trainer_destroy(trainer);
}

static void fit_own(const builtin_bench *b, dunlin_trainer *trainer, const dunlin_source *source)
{
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = b->task.epochs;
    cr_assert_eq(dunlin_trainer_fit(trainer, source, &fit, NULL, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
}

/* ---- the remainder ---- */

/* The batches of an epoch of 50 examples, by hand. */
typedef struct batch_list {
    dunlin_task_remainder remainder;
    int32_t batch;
    int64_t sizes[8];
    int64_t n;
} batch_list;

static const batch_list lists[] = {
    {DUNLIN_TASK_REMAINDER_KEEP, 8, {8, 8, 8, 8, 8, 8, 2}, 7},
    {DUNLIN_TASK_REMAINDER_DROP, 8, {8, 8, 8, 8, 8, 8}, 6},
    {DUNLIN_TASK_REMAINDER_JOIN, 8, {8, 8, 8, 8, 8, 10}, 6},
    {DUNLIN_TASK_REMAINDER_JOIN, 40, {50}, 1},
    {DUNLIN_TASK_REMAINDER_JOIN, 28, {28, 22}, 2},
    {DUNLIN_TASK_REMAINDER_JOIN, 10, {10, 10, 10, 10, 10}, 5},
    /* Fewer examples than a batch: one batch of all there are. */
    {DUNLIN_TASK_REMAINDER_JOIN, 64, {50}, 1},
    {DUNLIN_TASK_REMAINDER_DROP, 64, {50}, 1},
    {DUNLIN_TASK_REMAINDER_KEEP, 64, {50}, 1},
};

static dunlin_trainer *step_through(const builtin_bench *b, const batch_list *list)
{
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    const dunlin_source source = bench_source();
    options.batch = BENCH_EXAMPLES;
    dunlin_trainer *trainer = own_trainer(b, options);
    for (int64_t epoch = 0; epoch < b->task.epochs; epoch++) {
        dunlin_shuffle shuffle;
        int64_t at = 0;
        dunlin__shuffle_init(&shuffle, BENCH_EXAMPLES, b->task.seed, epoch);
        for (int64_t s = 0; s < list->n; s++) {
            int64_t indices[BENCH_EXAMPLES];
            for (int64_t i = 0; i < list->sizes[s]; i++) {
                indices[i] = dunlin__shuffle_at(&shuffle, at + i);
            }
            dunlin_metrics metrics;
            cr_assert_eq(dunlin_trainer_step(trainer, &source, indices, list->sizes[s], &metrics),
                         DUNLIN_OK);
            at += list->sizes[s];
        }
    }
    return trainer;
}

Test(builtin_plan, remainders_give_the_weights_of_batches_written_down)
{
    builtin_bench b;
    bench_begin(&b, 1);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        float ignored[BENCH_VALUES];
        b.task.batch = lists[i].batch;
        b.task.remainder = lists[i].remainder;
        const dunlin_learner_report report = bench_fit_all(&b, 0, ignored, NULL);
        cr_expect_eq(report.n_steps, b.task.epochs * lists[i].n, "list %zu: %lld steps", i,
                     (long long)report.n_steps);
        cr_expect_eq(report.n_examples, BENCH_EXAMPLES);
        expect_same(&b, step_through(&b, &lists[i]), "a list of batches");
    }
    bench_end(&b);
}

/* Calls that are cut by the clock end in the same weights and count the same steps. */
Test(builtin_plan, a_joined_remainder_in_slices_is_the_same)
{
    builtin_bench b;
    float whole[BENCH_VALUES];
    float sliced[BENCH_VALUES];
    int n_calls = 0;
    bench_begin(&b, 1);
    b.task.remainder = DUNLIN_TASK_REMAINDER_JOIN;
    const dunlin_learner_report one = bench_fit_all(&b, 0, whole, NULL);
    bench_pause_ms = 1;
    const dunlin_learner_report other = bench_fit_all(&b, 1, sliced, &n_calls);
    cr_expect_gt(n_calls, 3);
    cr_expect_eq(one.n_steps, other.n_steps);
    cr_expect_eq(one.loss, other.loss);
    cr_expect(bench_same(whole, sliced, b.base.n_values));
    bench_end(&b);
}

/* ---- parameters, clipping, an ignored label ---- */

Test(builtin_plan, groups_are_those_of_a_trainer_of_ones_own)
{
    builtin_bench b;
    const dunlin_source source = bench_source();
    bench_begin(&b, 1);
    b.task.weight_decay = 0.01F;
    const dunlin_task_group groups[2] = {
        {.name = "top", .patterns = "fc2.*", .lr_factor = 0.5F, .decay_factor = 3.0F},
        {.name = "", .patterns = "", .roles = DUNLIN_TASK_ROLE_BIAS, .lr_factor = 2.0F}};
    const dunlin_task_parameters parameters = {.struct_size = sizeof(dunlin_task_parameters),
                                               .trained_prefixes = "",
                                               .frozen_prefixes = "",
                                               .no_norm_decay = true,
                                               .groups = groups,
                                               .n_groups = 2};
    b.task.parameters = &parameters;
    dunlin_parameter_group own[2] = {DUNLIN_PARAMETER_GROUP_INIT, DUNLIN_PARAMETER_GROUP_INIT};
    own[0].patterns = "fc2.*";
    own[0].lr_factor = 0.5F;
    own[0].decay_factor = 3.0F;
    own[1].uses = DUNLIN_USE_BIT(DUNLIN_USE_BIAS);
    own[1].lr_factor = 2.0F;
    own[1].decay_factor = 0.0F;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.groups = own;
    options.n_groups = 2;
    options.no_norm_decay = true;
    dunlin_trainer *trainer = own_trainer(&b, options);
    fit_own(&b, trainer, &source);
    expect_same(&b, trainer, "groups");
    bench_end(&b);
}

/* Elements of fc1 (144) and of fc2 (68) that a task changed. */
static void count_changed(builtin_bench *b, int *out_first, int *out_second)
{
    float found[BENCH_VALUES];
    (void)bench_fit_all(b, 0, found, NULL);
    *out_first = 0;
    *out_second = 0;
    for (int64_t i = 0; i < b->base.n_values; i++) {
        *(i < 144 ? out_first : out_second) += found[i] != b->values[i] ? 1 : 0;
    }
}

Test(builtin_plan, only_what_the_plan_trains_changes)
{
    builtin_bench b;
    int n_first = 0;
    int n_second = 0;
    bench_begin(&b, 1);
    cr_assert_eq(b.base.n_values, 144 + 68);
    dunlin_task_parameters parameters = {.struct_size = sizeof(dunlin_task_parameters),
                                         .frozen_prefixes = "fc1"};
    b.task.parameters = &parameters;
    count_changed(&b, &n_first, &n_second);
    cr_expect(n_first == 0 && n_second > 60, "frozen: %d and %d", n_first, n_second);
    parameters = (dunlin_task_parameters){.struct_size = sizeof(dunlin_task_parameters),
                                          .trained_prefixes = "fc1."};
    count_changed(&b, &n_first, &n_second);
    cr_expect(n_first > 100 && n_second == 0, "prefixes: %d and %d", n_first, n_second);
    parameters = (dunlin_task_parameters){.struct_size = sizeof(dunlin_task_parameters),
                                          .trained = DUNLIN_TASK_TRAINED_HEAD};
    count_changed(&b, &n_first, &n_second);
    cr_expect(n_first == 0 && n_second > 60, "head: %d and %d", n_first, n_second);
    parameters = (dunlin_task_parameters){.struct_size = sizeof(dunlin_task_parameters),
                                          .trained = DUNLIN_TASK_TRAINED_BIASES_AND_NORMS};
    count_changed(&b, &n_first, &n_second);
    cr_expect(n_first > 8 && n_first <= 16 && n_second == 4, "biases: %d and %d", n_first,
              n_second);
    b.task.parameters = NULL; /* the next round's trainer is another one */
    count_changed(&b, &n_first, &n_second);
    cr_expect(n_first > 100 && n_second > 60, "all: %d and %d", n_first, n_second);
    bench_end(&b);
}

Test(builtin_plan, gradients_are_clipped)
{
    builtin_bench b;
    const dunlin_source source = bench_source();
    bench_begin(&b, 1);
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.clip_norm = 0.05F;
    dunlin_trainer *trainer = own_trainer(&b, options);
    fit_own(&b, trainer, &source);
    b.task.gradient_clip_norm = 0.05F;
    expect_same(&b, trainer, "the norm of the gradients");
    options.clip_norm = 0.0F;
    options.clip_value = 0.01F;
    trainer = own_trainer(&b, options);
    fit_own(&b, trainer, &source);
    b.task.gradient_clip_norm = 0.0F;
    b.task.gradient_clip_value = 0.01F;
    expect_same(&b, trainer, "each element of the gradients");
    bench_end(&b);
}

Test(builtin_plan, adam_is_that_of_a_trainer_of_ones_own)
{
    static const dunlin_optimizer own[] = {DUNLIN_OPTIMIZER_ADAM, DUNLIN_OPTIMIZER_ADAMW};
    builtin_bench b;
    const dunlin_source source = bench_source();
    bench_begin(&b, 1);
    b.task.momentum = 0.0F;
    b.task.weight_decay = 0.1F;
    b.task.lr = 0.01F;
    for (int i = 0; i < 2; i++) {
        dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
        options.optimizer = own[i];
        dunlin_trainer *trainer = own_trainer(&b, options);
        fit_own(&b, trainer, &source);
        b.task.optimizer = (dunlin_task_optimizer)(i + 1);
        expect_same(&b, trainer, "an optimizer");
    }
    b.task.optimizer = DUNLIN_TASK_OPTIMIZER_ADAM;
    b.task.correction = &b.reader;
    cr_expect_eq(bench_load(&b), DUNLIN_UNSUPPORTED);
    bench_end(&b);
}

Test(builtin_plan, storage_is_that_of_a_trainer_of_ones_own)
{
    static const dunlin_storage own[] = {DUNLIN_STORAGE_EXACT, DUNLIN_STORAGE_BF16,
                                         DUNLIN_STORAGE_INT8};
    builtin_bench b;
    float exact[BENCH_VALUES];
    float found[BENCH_VALUES];
    const dunlin_source source = bench_source();
    bench_begin(&b, 1);
    (void)bench_fit_all(&b, 0, exact, NULL);
    for (int i = 2; i >= 0; i--) {
        dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
        options.storage = own[i];
        dunlin_trainer *trainer = own_trainer(&b, options);
        fit_own(&b, trainer, &source);
        b.task.storage = (dunlin_task_storage)i;
        expect_same(&b, trainer, dunlin_storage_name(own[i]));
        (void)bench_fit_all(&b, 0, found, NULL);
        cr_expect_eq(bench_same(exact, found, b.base.n_values), i == 0);
    }
    bench_end(&b);
}

/* A round that only evaluates has none; and the app's own choice is its own. */
Test(builtin_plan, storage_that_cannot_be_is_refused_by_name)
{
    builtin_bench b;
    bench_begin(&b, 1);
    b.task.storage = (dunlin_task_storage)7;
    cr_expect_eq(bench_load(&b), DUNLIN_UNSUPPORTED);
    cr_expect_not_null(strstr(b.learner.ops->error_text(b.learner.self), "storage 7"));
    b.task.kind = DUNLIN_TASK_EVALUATE;
    cr_expect_eq(bench_load(&b), DUNLIN_OK);
    b.learner.ops->unload(b.learner.self);
    b.task.kind = DUNLIN_TASK_TRAIN;
    dunlin_builtin_destroy(b.builtin);
    dunlin_trainer_pool_destroy(b.pool);
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_source source = bench_source();
    options.storage = DUNLIN_STORAGE_BF16;
    cr_assert_eq(dunlin_trainer_pool_create(b.model, &options, 1, &b.pool, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_builtin_create(b.pool, &source, NULL, &b.builtin, &b.learner, NULL),
                 DUNLIN_OK);
    b.task.storage = DUNLIN_TASK_STORAGE_INT8;
    cr_expect_eq(bench_load(&b), DUNLIN_UNSUPPORTED);
    cr_expect_not_null(strstr(b.learner.ops->error_text(b.learner.self),
                              "storage int8, and the pool's options have bf16"));
    b.task.storage = DUNLIN_TASK_STORAGE_EXACT;
    dunlin_trainer *trainer = own_trainer(&b, options);
    fit_own(&b, trainer, &source);
    expect_same(&b, trainer, "the pool's own");
    bench_end(&b);
}

Test(builtin_plan, an_ignored_label_does_not_count)
{
    builtin_bench b;
    const dunlin_source source = bench_source();
    bench_begin(&b, 1);
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.has_ignore_label = true;
    options.ignore_label = 3;
    b.task.batch = 10; /* of the last two of 50 none might count */
    dunlin_trainer *trainer = own_trainer(&b, options);
    fit_own(&b, trainer, &source);
    b.task.has_ignored_label = true;
    b.task.ignored_label = 3;
    expect_same(&b, trainer, "an ignored label");
    /* In evaluations neither. */
    dunlin_metrics wanted;
    dunlin_learner_report found = DUNLIN_LEARNER_REPORT_INIT;
    trainer = own_trainer(&b, options);
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &source, 0, BENCH_EXAMPLES, &wanted), DUNLIN_OK);
    b.task.kind = DUNLIN_TASK_EVALUATE;
    cr_assert_eq(bench_load(&b), DUNLIN_OK);
    cr_assert_eq(b.learner.ops->evaluate(b.learner.self, 0, &found), DUNLIN_OK);
    b.learner.ops->unload(b.learner.self);
    cr_expect_float_eq(found.loss, wanted.loss, 1e-6);
    cr_expect_float_eq(found.accuracy, wanted.accuracy, 1e-6);
    /* Floats both, wherever the calls cut the examples. */
    const volatile float loss = (float)found.loss;
    const volatile float accuracy = (float)found.accuracy;
    cr_expect(found.loss == (double)loss && found.accuracy == (double)accuracy);
    dunlin_trainer_destroy(trainer);
    bench_end(&b);
}

Test(builtin_plan, what_cannot_be_done_is_refused_by_name)
{
    builtin_bench b;
    char long_text[600];
    bench_begin(&b, 1);
    memset(long_text, 'a', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    const dunlin_task_group none = {.name = "none", .patterns = "conv*", .lr_factor = 1.0F};
    const dunlin_task_group brief = {.name = "q", .patterns = "conv*", .lr_factor = 1.0F};
    const dunlin_task_group nameless = {.name = "", .patterns = "conv*", .lr_factor = 1.0F};
    const dunlin_task_schedule schedule = {.struct_size = sizeof schedule, .n_rounds = 1};
    const struct {
        dunlin_task_parameters parameters;
        dunlin_status status;
        const char *text;
    } cases[] = {
        {{.struct_size = sizeof(dunlin_task_parameters), .frozen_prefixes = "fc"},
         DUNLIN_ARGUMENT,
         "train"},
        {{.struct_size = sizeof(dunlin_task_parameters), .trained_prefixes = "conv"},
         DUNLIN_ARGUMENT,
         "conv"},
        {{.struct_size = sizeof(dunlin_task_parameters), .groups = &none, .n_groups = 1},
         DUNLIN_ARGUMENT,
         "none"},
        {{.struct_size = sizeof(dunlin_task_parameters), .groups = &brief, .n_groups = 1},
         DUNLIN_ARGUMENT,
         "\"q\""},
        {{.struct_size = sizeof(dunlin_task_parameters), .groups = &nameless, .n_groups = 1},
         DUNLIN_ARGUMENT,
         "\"group 1\""},
        {{.struct_size = sizeof(dunlin_task_parameters), .groups = &none, .n_groups = 9},
         DUNLIN_LIMIT,
         "9 groups"},
        {{.struct_size = sizeof(dunlin_task_parameters), .trained_prefixes = long_text},
         DUNLIN_LIMIT,
         "599 characters"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        b.task.parameters = &cases[i].parameters;
        cr_expect_eq(bench_load(&b), cases[i].status, "case %zu", i);
        const char *text = b.learner.ops->error_text(b.learner.self);
        cr_expect_not_null(strstr(text, cases[i].text), "case %zu: %s", i, text);
    }
    b.task.parameters = NULL;
    b.task.correction = &b.reader;
    b.task.schedule = &schedule;
    cr_expect_eq(bench_load(&b), DUNLIN_UNSUPPORTED);
    b.task.schedule = NULL;
    b.task.gradient_clip_norm = 1.0F;
    cr_expect_eq(bench_load(&b), DUNLIN_UNSUPPORTED);
    b.task.gradient_clip_norm = 0.0F;
    b.task.correction = NULL;
    b.task.flips = true; /* of rows of numbers */
    cr_expect_eq(bench_load(&b), DUNLIN_UNSUPPORTED);
    cr_expect_not_null(strstr(b.learner.ops->error_text(b.learner.self), "images"));
    bench_end(&b);
}

/* ---- the schedule ---- */

/* Two rounds are the two halves of one training: without momentum nothing else passes over. */
Test(builtin_plan, a_schedule_goes_over_the_rounds_of_a_run)
{
    builtin_bench b;
    float after[BENCH_VALUES];
    float wanted[BENCH_VALUES];
    const dunlin_source source = bench_source();
    const dunlin_task_schedule schedule = {.struct_size = sizeof schedule,
                                           .kind = DUNLIN_TASK_SCHEDULE_COSINE,
                                           .warmup_steps = 3,
                                           .min_lr = 0.001,
                                           .n_rounds = 2};
    bench_begin(&b, 1);
    b.task.momentum = 0.0F;
    b.task.schedule = &schedule;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    const dunlin_schedule whole = {.struct_size = sizeof whole,
                                   .kind = DUNLIN_SCHEDULE_COSINE,
                                   .warmup_steps = 3,
                                   .min_lr = 0.001,
                                   .total_steps = 2LL * 3 * 7};
    options.schedule = &whole;
    dunlin_trainer *trainer = own_trainer(&b, options);
    fit_own(&b, trainer, &source);
    fit_own(&b, trainer, &source);
    cr_assert_eq(
        dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, b.base.n_values, wanted),
        DUNLIN_OK);
    b.task.round = 1;
    (void)bench_fit_all(&b, 0, after, NULL);
    memcpy(b.values, after, sizeof(float) * (size_t)b.base.n_values);
    b.task.round = 2;
    (void)bench_fit_all(&b, 0, after, NULL);
    cr_expect(bench_same(wanted, after, b.base.n_values));
    /* A warm-up longer than the run: the rate rises to its end. */
    const dunlin_task_schedule longer = {.struct_size = sizeof longer,
                                         .kind = DUNLIN_TASK_SCHEDULE_LINEAR,
                                         .warmup_steps = 1000,
                                         .n_rounds = 2};
    b.task.schedule = &longer;
    (void)bench_fit_all(&b, 0, after, NULL);
    b.task.schedule = NULL; /* and the next task has none of it */
    b.task.momentum = 0.9F;
    dunlin_trainer_options plain = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_trainer_destroy(trainer);
    trainer = own_trainer(&b, plain);
    fit_own(&b, trainer, &source);
    expect_same(&b, trainer, "no schedule after one");
    bench_end(&b);
}
