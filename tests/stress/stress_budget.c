/*
 * stress_budget.c - while one thread trains and evaluates, another changes the budget and pauses
 * and resumes, at random: the weights end as those of a training that nobody disturbs.
 */
#include <dunlin/trainer_advanced.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_EXAMPLES 160
#define N_EPOCHS 3
#define MAX_CHANGES 150
#define N_INPUTS 784
#define TOP_BYTES ((uint64_t)4 << 20)

static dunlin_status read_examples(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    (void)ctx;
    uint8_t *x = out_x;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < N_INPUTS; k++) {
            x[i * N_INPUTS + k] = (uint8_t)((indices[i] * 31 + k * 7) % 251);
        }
        out_y[i] = (int32_t)(indices[i] % 10);
    }
    return DUNLIN_OK;
}

static const dunlin_source source = {.struct_size = sizeof(dunlin_source),
                                     .read_fn = read_examples,
                                     .n_examples = N_EXAMPLES,
                                     .dtype = DUNLIN_U8,
                                     .scale = 1.0F / 255.0F};

typedef struct changer {
    dunlin_trainer *trainer;
    uint64_t least_bytes;
    atomic_bool is_over;
    int n_changes;
} changer;

static void *change(void *ctx)
{
    changer *self = ctx;
    uint64_t state = 7;
    while (!atomic_load(&self->is_over) && self->n_changes < MAX_CHANGES) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        const uint64_t share = (state >> 33) % 100;
        struct timespec pause = {.tv_nsec = (long)(share * 200000)};
        (void)nanosleep(&pause, NULL);
        if (share % 10 == 0 && dunlin_trainer_pause(self->trainer, share % 20 == 0) == DUNLIN_OK) {
            (void)nanosleep(&pause, NULL);
            dunlin_trainer_resume(self->trainer);
        }
        const uint64_t bytes =
            self->least_bytes + (TOP_BYTES - self->least_bytes) / 100 * share / 8;
        self->n_changes +=
            dunlin_trainer_set_budget(self->trainer, bytes, NULL) == DUNLIN_OK ? 1 : 0;
    }
    dunlin_trainer_resume(self->trainer);
    return NULL;
}

/* The weights' hash after some epochs; 0 if something failed. */
static uint64_t train(const dunlin_model *model, bool is_disturbed)
{
    dunlin_error error = {0};
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 16;
    options.budget_bytes = TOP_BYTES;
    options.least_budget_bytes = 1;
    changer other = {.least_bytes = 0};
    if (dunlin_trainer_create(model, &options, &other.trainer, &error) != DUNLIN_OK) {
        (void)fprintf(stderr, "stress_budget: %s\n", error.text);
        return 0;
    }
    pthread_t thread;
    const bool is_refused = dunlin_trainer_set_budget(other.trainer, 1, &error) == DUNLIN_BUDGET;
    other.least_bytes = error.needed_bytes;
    atomic_init(&other.is_over, false);
    const bool has_thread = is_disturbed && pthread_create(&thread, NULL, change, &other) == 0;
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = N_EPOCHS;
    dunlin_status status = dunlin_trainer_fit(other.trainer, &source, &fit, NULL, NULL);
    if (status == DUNLIN_OK) {
        status = dunlin_trainer_evaluate(other.trainer, &source, 0, N_EXAMPLES, NULL);
    }
    atomic_store(&other.is_over, true);
    if (has_thread) {
        (void)pthread_join(thread, NULL);
        (void)printf("%d changes were accepted, %lld happened\n", other.n_changes,
                     (long long)dunlin_trainer_n_budget_changes(other.trainer));
    }
    uint64_t hash = 1469598103934665603ULL;
    const int64_t n = dunlin_trainer_n_weights(other.trainer, DUNLIN_WEIGHTS_ALL);
    float *weights = malloc((size_t)n * sizeof *weights);
    if (status == DUNLIN_OK && weights != NULL && is_refused) {
        status = dunlin_trainer_get_weights(other.trainer, DUNLIN_WEIGHTS_ALL, 0, n, weights);
    }
    for (size_t i = 0; weights != NULL && i < (size_t)n * sizeof *weights; i++) {
        hash = (hash ^ ((const unsigned char *)weights)[i]) * 1099511628211ULL;
    }
    const bool is_right = status == DUNLIN_OK && weights != NULL && is_refused;
    free(weights);
    dunlin_trainer_destroy(other.trainer);
    return is_right ? hash : 0;
}

int main(void)
{
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    if (dunlin_model_from_zoo("lenet5", NULL, NULL, &model, &error) != DUNLIN_OK) {
        (void)fprintf(stderr, "stress_budget: %s\n", error.text);
        return 1;
    }
    const uint64_t plain = train(model, false);
    const uint64_t disturbed = train(model, true);
    dunlin_model_destroy(model);
    if (plain == 0 || plain != disturbed) {
        (void)fprintf(stderr, "stress_budget: the weights differ\n");
        return 1;
    }
    return 0;
}
