/*
 * test_examples_feed.c - the example store as the built-in learner's source: the same bits as from
 * memory, and what does not fit is named.
 */
#include "examples_bench.h"

#include <dunlin/builtin.h>

#include <criterion/criterion.h>

#include <random.h>
#include <string.h>

#define N_IN 6
#define N_EXAMPLES 30
#define MAX_VALUES 200

static float inputs[N_EXAMPLES][N_IN];

static dunlin_status read_inputs(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_y)
{
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        memcpy((float *)out_x + i * N_IN, inputs[indices[i]], sizeof inputs[0]);
        out_y[i] = (int32_t)(indices[i] % 3);
    }
    return DUNLIN_OK;
}

static dunlin_status read_base(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    uint64_t state = test_seed((uint64_t)index + 5);
    (void)ctx;
    cr_assert_eq(first, 0);
    test_random_fill(out, n, -0.5, 0.5, &state);
    return DUNLIN_OK;
}

/* A learner of a small model, with a base to load. */
typedef struct feed_learner {
    dunlin_model *model;
    dunlin_trainer_pool *pool;
    dunlin_builtin *builtin;
    dunlin_learner plug;
    dunlin_weights_tensor tensors[4];
    dunlin_weights_reader base;
} feed_learner;

static void learner_make(feed_learner *l, const dunlin_source *source)
{
    dunlin_builder *builder = NULL;
    dunlin_shape shape = {.n_dims = 1, .dims = {N_IN}};
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    memset(l, 0, sizeof *l);
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x =
        dunlin_builder_dense(builder, "fc", dunlin_builder_input(builder, "x", &shape), 3);
    cr_assert_eq(dunlin_builder_finish(builder, x, &l->model, NULL), DUNLIN_OK);
    int32_t n_tensors = dunlin_model_n_parameters(l->model);
    for (int32_t i = 0; i < n_tensors; i++) {
        dunlin_parameter_info info;
        cr_assert_eq(dunlin_model_parameter(l->model, i, &info), DUNLIN_OK);
        l->tensors[i] = (dunlin_weights_tensor){
            .name = info.name, .shape = info.shape, .n_elements = info.n_elements};
    }
    l->base = (dunlin_weights_reader){
        .tensors = l->tensors, .n_tensors = n_tensors, .read_fn = read_base};
    cr_assert_eq(dunlin_trainer_pool_create(l->model, &options, 1, &l->pool, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_builtin_create(l->pool, source, NULL, &l->builtin, &l->plug, NULL),
                 DUNLIN_OK);
}

static void learner_remove(feed_learner *l)
{
    dunlin_builtin_destroy(l->builtin);
    dunlin_trainer_pool_destroy(l->pool);
    dunlin_model_destroy(l->model);
}

/* A whole task with a source; its weights. */
static dunlin_status train(const dunlin_source *source, int64_t n_chosen, float *out,
                           dunlin_error *out_error)
{
    feed_learner l;
    dunlin_learner_report report = DUNLIN_LEARNER_REPORT_INIT;
    dunlin_task task = {.struct_size = sizeof task,
                        .epochs = 2,
                        .batch = 8,
                        .lr = 0.1F,
                        .seed = 3,
                        .n_chosen = n_chosen};
    learner_make(&l, source);
    dunlin_status status = l.plug.ops->load(l.plug.self, &task, &l.base);
    if (status == DUNLIN_OK) {
        status = l.plug.ops->fit(l.plug.self, 0, &report);
        if (status == DUNLIN_OK) {
            dunlin_weights_reader fresh = {0};
            cr_expect_eq(report.n_examples, N_EXAMPLES);
            cr_assert_eq(l.plug.ops->save(l.plug.self, &fresh), DUNLIN_OK);
            for (int32_t i = 0; i < fresh.n_tensors; i++) {
                int64_t n = fresh.tensors[i].n_elements;
                cr_assert_eq(fresh.read_fn(fresh.ctx, i, 0, n, out), DUNLIN_OK);
                out += n;
            }
        }
    }
    const char *text = l.plug.ops->error_text(l.plug.self);
    (void)strncpy(out_error->text, text != NULL ? text : "", sizeof out_error->text - 1);
    if (status == DUNLIN_OK || report.n_steps == 0) {
        l.plug.ops->unload(l.plug.self);
    }
    learner_remove(&l);
    return status;
}

Test(examples_feed, the_same_bits_as_from_memory)
{
    static float wanted[MAX_VALUES];
    static float found[MAX_VALUES];
    examples_bench b;
    dunlin_examples_feed *feed = NULL;
    dunlin_source source = {.struct_size = sizeof(dunlin_source),
                            .read_fn = read_inputs,
                            .n_examples = N_EXAMPLES,
                            .dtype = DUNLIN_F32};
    dunlin_error error = {0};
    dunlin__examples_parts n = {0};
    uint64_t state = test_seed(2);
    test_random_fill(&inputs[0][0], (int64_t)N_EXAMPLES * N_IN, -1, 1, &state);
    cr_assert_eq(train(&source, 0, wanted, &error), DUNLIN_OK, "%s", error.text);
    bench_make(&b);
    bench_open(&b);
    for (int64_t i = 0; i < N_EXAMPLES; i++) { /* position 0 is the newest */
        const dunlin_example example = {.data = inputs[i],
                                        .n_bytes = sizeof inputs[0],
                                        .label = (int32_t)(i % 3),
                                        .time_ms = 1000 - i};
        cr_assert_eq(dunlin_examples_add(b.examples, &example, 1, NULL, NULL), DUNLIN_OK);
    }
    cr_assert_eq(dunlin__examples_choose(b.examples, "one", "a", "t", 0, &n, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_examples_feed_create(b.examples, "one", sizeof inputs[0], DUNLIN_F32, &feed,
                                             &source, NULL),
                 DUNLIN_OK);
    cr_assert_eq(train(&source, n.n_chosen, found, &error), DUNLIN_OK, "%s", error.text);
    cr_expect_eq(memcmp(wanted, found, sizeof wanted), 0);
    cr_expect_neq(found[0], 0.0F);
    cr_expect_eq(train(&source, 0, found, &error), DUNLIN_DATA);
    cr_expect_not_null(strstr(error.text, "without a store"), "%s", error.text);
    dunlin_examples_feed_destroy(feed);
    dunlin_examples_feed_destroy(NULL);
    bench_remove(&b);
}

Test(examples_feed, another_size_is_named)
{
    static float found[MAX_VALUES];
    examples_bench b;
    dunlin_examples_feed *feed = NULL;
    dunlin_source source;
    dunlin_error error = {0};
    dunlin__examples_parts n = {0};
    bench_make(&b);
    bench_open(&b);
    (void)bench_add(&b, 1, 7, 0);
    cr_expect_eq(dunlin_examples_feed_create(b.examples, NULL, 0, DUNLIN_F32, &feed, &source, NULL),
                 DUNLIN_ARGUMENT);
    for (size_t n_bytes = 23; n_bytes <= 25; n_bytes += 2) {
        cr_assert_eq(dunlin_examples_clear(b.examples, NULL, NULL), DUNLIN_OK);
        cr_assert_eq(dunlin__examples_release(b.examples, "default", NULL), DUNLIN_OK);
        (void)bench_add(&b, 0, n_bytes, 0);
        cr_assert_eq(dunlin__examples_choose(b.examples, "default", "a", "t", 0, &n, NULL),
                     DUNLIN_OK);
        cr_assert_eq(dunlin_examples_feed_create(b.examples, NULL, sizeof inputs[0], DUNLIN_F32,
                                                 &feed, &source, NULL),
                     DUNLIN_OK);
        cr_expect_eq(train(&source, n.n_chosen, found, &error), DUNLIN_CALLBACK);
        cr_expect_not_null(strstr(error.text, n_bytes == 23 ? "23 bytes" : "25 bytes"), "%s",
                           error.text);
        dunlin_examples_feed_destroy(feed);
    }
    bench_remove(&b);
}

/* A source that notes which positions are asked for. */
typedef struct noting_source {
    dunlin_source inner;
    int32_t n_reads[N_EXAMPLES];
} noting_source;

static dunlin_status read_and_note(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    noting_source *noting = ctx;
    for (int64_t i = 0; i < n; i++) {
        cr_assert(indices[i] >= 0 && indices[i] < N_EXAMPLES);
        noting->n_reads[indices[i]]++;
    }
    return noting->inner.read_fn(noting->inner.ctx, indices, n, out_x, out_y);
}

/* Exactly the positions [first, first + n) were read since the last look, each so often. */
static void expect_reads(noting_source *noting, int64_t first, int64_t n, int32_t times)
{
    for (int64_t i = 0; i < N_EXAMPLES; i++) {
        bool is_within = i >= first && i < first + n;
        cr_expect_eq(noting->n_reads[i], is_within ? times : 0, "position %lld was read %d times",
                     (long long)i, noting->n_reads[i]);
    }
    memset(noting->n_reads, 0, sizeof noting->n_reads);
}

Test(examples_feed, what_is_held_out_is_evaluated_and_never_trained_on)
{
    examples_bench b;
    const dunlin_examples_rule rule = {.struct_size = sizeof rule, .hold_out_percent = 30};
    dunlin_examples_feed *feed = NULL;
    noting_source noting = {0};
    dunlin__examples_parts parts = {0};
    dunlin_learner_report report = DUNLIN_LEARNER_REPORT_INIT;
    feed_learner l;
    bench_make(&b);
    b.options.rules = &rule;
    b.options.n_rules = 1;
    bench_open(&b);
    for (int64_t i = 0; i < N_EXAMPLES; i++) {
        (void)bench_add(&b, 0, sizeof inputs[0], 1000 + i);
    }
    cr_assert_eq(dunlin__examples_choose(b.examples, "one", "a", "t", 0, &parts, NULL), DUNLIN_OK);
    cr_assert_eq(parts.n_chosen + parts.n_held_out, N_EXAMPLES);
    cr_assert_eq(dunlin_examples_feed_create(b.examples, "one", sizeof inputs[0], DUNLIN_F32, &feed,
                                             &noting.inner, NULL),
                 DUNLIN_OK);
    dunlin_source source = noting.inner;
    source.ctx = &noting;
    source.read_fn = read_and_note;
    source.error_fn = NULL;
    learner_make(&l, &source);
    dunlin_task task = {.struct_size = sizeof task,
                        .epochs = 2,
                        .batch = 8,
                        .lr = 0.1F,
                        .n_chosen = parts.n_chosen,
                        .n_held_out = parts.n_held_out};
    cr_assert_eq(l.plug.ops->load(l.plug.self, &task, &l.base), DUNLIN_OK);
    for (int k = 0; k < 2; k++) { /* before and after the training */
        for (report.is_done = false; !report.is_done;) {
            cr_assert_eq(l.plug.ops->evaluate(l.plug.self, 1, &report), DUNLIN_OK);
        }
        cr_expect_eq(report.n_examples, parts.n_held_out);
        expect_reads(&noting, parts.n_chosen, parts.n_held_out, 1);
        if (k == 0) {
            cr_assert_eq(l.plug.ops->fit(l.plug.self, 0, &report), DUNLIN_OK);
            cr_expect_eq(report.n_examples, parts.n_chosen);
            expect_reads(&noting, 0, parts.n_chosen, 2);
        }
    }
    l.plug.ops->unload(l.plug.self);
    learner_remove(&l);
    dunlin_examples_feed_destroy(feed);
    bench_remove(&b);
}
