/*
 * stress_pipeline.c - a trainer reads through a pipeline that reads ahead on its threads: several
 * sizes of the ring and numbers of threads, stops in the middle of an epoch, evaluations between,
 * failures of the source.
 */
#include <dunlin/pipeline.h>
#include <dunlin/trainer.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define N_EXAMPLES 64
#define SIDE 26
#define N_ROUNDS 6

typedef struct failing {
    _Atomic int64_t n_reads;
    int64_t fail_each; /* 0: never */
} failing;

static dunlin_status read_examples(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    failing *self = ctx;
    uint8_t *x = out_x;
    int64_t n_reads = 0;
    for (int64_t i = 0; i < n; i++) {
        memset(x + i * SIDE * SIDE, (int)(indices[i] % 251), SIDE * SIDE);
        out_y[i] = (int32_t)(indices[i] % 10);
        n_reads = atomic_fetch_add(&self->n_reads, 1) + 1;
    }
    return self->fail_each != 0 && n_reads % self->fail_each == 0 ? DUNLIN_IO : DUNLIN_OK;
}

static int run_round(dunlin_trainer *trainer, uint64_t prefetch_bytes, int32_t n_threads,
                     int64_t fail_each)
{
    failing below = {.fail_each = fail_each};
    const dunlin_shape shape = {.n_dims = 3, .dims = {1, SIDE, SIDE}};
    const dunlin_source source = {.struct_size = sizeof(dunlin_source),
                                  .ctx = &below,
                                  .read_fn = read_examples,
                                  .n_examples = N_EXAMPLES,
                                  .dtype = DUNLIN_U8,
                                  .scale = 1.0F / 255.0F};
    dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
    options.resize_height = 32;
    options.crop_height = 28;
    options.is_random_crop = true;
    options.is_flip = true;
    options.prefetch_bytes = prefetch_bytes;
    options.prefetch_threads = n_threads;
    dunlin_pipeline *pipeline = NULL;
    dunlin_error error = {0};
    if (dunlin_pipeline_create(&source, &shape, &options, NULL, &pipeline, &error) != DUNLIN_OK) {
        (void)fprintf(stderr, "stress_pipeline: %s\n", error.text);
        return 1;
    }
    dunlin_source drawn;
    dunlin_pipeline_source(pipeline, &drawn);
    int n_wrong = 0;
    dunlin_fit_cursor cursor = {0};
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = 2;
    fit.max_steps = 3;
    for (int i = 0; i < 6 && !cursor.is_done; i++) {
        dunlin_metrics metrics = {0};
        const dunlin_status status = dunlin_trainer_fit(trainer, &drawn, &fit, &cursor, &metrics);
        n_wrong += status == DUNLIN_OK || (fail_each != 0 && status == DUNLIN_CALLBACK) ? 0 : 1;
        if (fail_each == 0) {
            n_wrong += dunlin_trainer_evaluate(trainer, &drawn, 0, 20, &metrics) != DUNLIN_OK;
        }
    }
    dunlin_pipeline_destroy(pipeline);
    return n_wrong;
}

int main(void)
{
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    dunlin_trainer *trainer = NULL;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 12;
    if (dunlin_model_from_zoo("lenet5", NULL, NULL, &model, &error) != DUNLIN_OK ||
        dunlin_trainer_create(model, &options, &trainer, &error) != DUNLIN_OK) {
        (void)fprintf(stderr, "stress_pipeline: %s\n", error.text);
        return 1;
    }
    static const uint64_t sizes[N_ROUNDS] = {0, 2000, 8000, 40000, 100000, 100000};
    static const int32_t numbers[N_ROUNDS] = {0, 0, 1, 3, 2, 5};
    int n_wrong = 0;
    for (int i = 0; i < N_ROUNDS; i++) {
        n_wrong += run_round(trainer, sizes[i], numbers[i], 0);
        n_wrong += run_round(trainer, sizes[i], numbers[i], 17);
    }
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
    (void)printf("stress_pipeline: %d rounds, %d wrong\n", N_ROUNDS, n_wrong);
    return n_wrong == 0 ? 0 : 1;
}
