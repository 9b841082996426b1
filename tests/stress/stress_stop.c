/*
 * stress_stop.c - a fit is stopped from another thread, again and again: it ends with STOPPED, and
 * the trainer goes on.
 */
#include <dunlin/trainer.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define N_STOPS 10
#define N_EXAMPLES 256
#define N_INPUTS 784

static dunlin_status read_examples(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    (void)ctx;
    uint8_t *x = out_x;
    for (int64_t i = 0; i < n; i++) {
        memset(x + i * N_INPUTS, (int)(indices[i] % 251), N_INPUTS);
        out_y[i] = (int32_t)(indices[i] % 10);
    }
    return DUNLIN_OK;
}

typedef struct stopper {
    dunlin_trainer *trainer;
    atomic_bool is_over;
} stopper;

static void *run(void *ctx)
{
    stopper *self = ctx;
    struct timespec pause = {.tv_nsec = 15000000L};
    while (!atomic_load(&self->is_over)) {
        (void)nanosleep(&pause, NULL);
        dunlin_trainer_stop(self->trainer);
    }
    return NULL;
}

int main(void)
{
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    stopper stop = {.trainer = NULL};
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 16;
    if (dunlin_model_from_zoo("lenet5", NULL, NULL, &model, &error) != DUNLIN_OK ||
        dunlin_trainer_create(model, &options, &stop.trainer, &error) != DUNLIN_OK) {
        (void)fprintf(stderr, "stress_stop: %s\n", error.text);
        return 1;
    }
    dunlin_source source = {.struct_size = sizeof(dunlin_source),
                            .read_fn = read_examples,
                            .n_examples = N_EXAMPLES,
                            .dtype = DUNLIN_U8,
                            .scale = 1.0F / 255.0F};
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = 1000000;
    int n_wrong = 0;
    for (int i = 0; i < N_STOPS; i++) {
        pthread_t thread;
        atomic_store(&stop.is_over, false);
        if (pthread_create(&thread, NULL, run, &stop) != 0) {
            return 1;
        }
        dunlin_metrics metrics = {0};
        dunlin_status status = dunlin_trainer_fit(stop.trainer, &source, &fit, NULL, &metrics);
        atomic_store(&stop.is_over, true);
        (void)pthread_join(thread, NULL);
        n_wrong += status == DUNLIN_STOPPED ? 0 : 1;
    }
    dunlin_trainer_destroy(stop.trainer);
    dunlin_model_destroy(model);
    (void)printf("stress_stop: %d stops, %d wrong\n", N_STOPS, n_wrong);
    return n_wrong == 0 ? 0 : 1;
}
