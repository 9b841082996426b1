/*
 * builtin_bench.c - a small network, its trainers and a learner over them, driven by hand.
 */
#include "builtin_bench.h"

#include <criterion/criterion.h>

#include <random.h>
#include <string.h>
#include <time.h>

static float inputs[BENCH_EXAMPLES][BENCH_INPUTS];
int64_t bench_pause_ms;

dunlin_status bench_read(void *ctx, const int64_t *indices, int64_t n, void *out_x, int32_t *out_y)
{
    (void)ctx;
    float *x = out_x;
    for (int64_t i = 0; i < n; i++) {
        memcpy(x + i * BENCH_INPUTS, inputs[indices[i]], sizeof inputs[0]);
        out_y[i] = (int32_t)(indices[i] % 4);
    }
    if (bench_pause_ms > 0) {
        struct timespec pause = {.tv_nsec = bench_pause_ms * 1000000L};
        (void)nanosleep(&pause, NULL);
    }
    return DUNLIN_OK;
}

static dunlin_model *make_model(void)
{
    dunlin_builder *builder = NULL;
    dunlin_model *model = NULL;
    dunlin_shape shape = {.n_dims = 1, .dims = {BENCH_INPUTS}};
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "x", &shape);
    x = dunlin_builder_relu(builder, dunlin_builder_dense(builder, "fc1", x, 16));
    x = dunlin_builder_dense(builder, "fc2", x, 4);
    cr_assert_eq(dunlin_builder_finish(builder, x, &model, NULL), DUNLIN_OK);
    return model;
}

void bench_begin(builtin_bench *b, int32_t n_trainers)
{
    dunlin_error error = {0};
    uint64_t state = test_seed(9);
    uint64_t weights_state = test_seed(5);
    memset(b, 0, sizeof *b);
    bench_pause_ms = 0;
    test_random_fill(&inputs[0][0], (int64_t)BENCH_EXAMPLES * BENCH_INPUTS, -1, 1, &state);
    b->model = make_model();
    held_weights_make(&b->base, b->model, b->values, BENCH_VALUES);
    b->reader = held_weights_reader(&b->base);
    test_random_fill(b->values, b->base.n_values, -0.5, 0.5, &weights_state);
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_source source = {.struct_size = sizeof(dunlin_source),
                            .read_fn = bench_read,
                            .n_examples = BENCH_EXAMPLES,
                            .dtype = DUNLIN_F32};
    cr_assert_eq(dunlin_trainer_pool_create(b->model, &options, n_trainers, &b->pool, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_assert_eq(dunlin_builtin_create(b->pool, &source, NULL, &b->builtin, &b->learner, &error),
                 DUNLIN_OK, "%s", error.text);
    b->task = (dunlin_task){.struct_size = sizeof(dunlin_task),
                            .epochs = 3,
                            .batch = 8,
                            .lr = 0.1F,
                            .momentum = 0.9F,
                            .seed = 7};
}

void bench_end(builtin_bench *b)
{
    dunlin_builtin_destroy(b->builtin);
    dunlin_trainer_pool_destroy(b->pool);
    dunlin_model_destroy(b->model);
}

dunlin_status bench_load(builtin_bench *b)
{
    dunlin_status status = b->learner.ops->load(b->learner.self, &b->task, &b->reader);
    if (status != DUNLIN_OK) {
        cr_expect_not_null(b->learner.ops->error_text(b->learner.self));
    }
    return status;
}

void bench_save(builtin_bench *b, float *out)
{
    dunlin_weights_reader fresh = {0};
    int64_t n = 0;
    cr_assert_eq(b->learner.ops->save(b->learner.self, &fresh), DUNLIN_OK);
    cr_assert_eq(fresh.n_tensors, b->base.n_tensors);
    for (int32_t i = 0; i < fresh.n_tensors; i++) {
        cr_assert_str_eq(fresh.tensors[i].name, b->base.tensors[i].name);
        cr_assert_eq(fresh.read_fn(fresh.ctx, i, 0, fresh.tensors[i].n_elements, out + n),
                     DUNLIN_OK);
        n += fresh.tensors[i].n_elements;
    }
}

dunlin_learner_report bench_fit_all(builtin_bench *b, int64_t max_ms, float *out, int *out_calls)
{
    dunlin_learner_report report = DUNLIN_LEARNER_REPORT_INIT;
    int n_calls = 0;
    cr_assert_eq(bench_load(b), DUNLIN_OK, "%s", b->learner.ops->error_text(b->learner.self));
    while (!report.is_done) {
        cr_assert_eq(b->learner.ops->fit(b->learner.self, max_ms, &report), DUNLIN_OK, "%s",
                     b->learner.ops->error_text(b->learner.self));
        cr_assert_lt(n_calls++, 1000);
    }
    bench_save(b, out);
    b->learner.ops->unload(b->learner.self);
    if (out_calls != NULL) {
        *out_calls = n_calls;
    }
    return report;
}

bool bench_same(const float *a, const float *b, int64_t n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}
