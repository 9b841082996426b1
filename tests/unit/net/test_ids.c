/*
 * test_ids.c - inputs of one number a sample and scores of one number a sample: matrix
 * factorisation from a file, against its gradients in double.
 */
#include "net_support.h"

#include <dunlin/trainer.h>

#include <criterion/criterion.h>

enum { N = 5, WIDTH = 2, N_USERS = 3, N_ITEMS = 4, N_STEPS = 3 };

static const int users_of[N] = {0, 2, 2, 1, 0};
static const int items_of[N] = {3, 0, 3, 1, 3};

static double target_of(int64_t i)
{
    return 0.25 * (double)i - 0.5;
}

static dunlin_status read_pairs(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                float *out_targets)
{
    (void)ctx;
    float *x = out_x;
    for (int64_t i = 0; i < n; i++) {
        x[2 * i] = (float)users_of[indices[i]];
        x[2 * i + 1] = (float)items_of[indices[i]];
        out_targets[i] = (float)target_of(indices[i]);
    }
    return DUNLIN_OK;
}

typedef struct tables {
    double users[N_USERS][WIDTH], items[N_ITEMS][WIDTH];
} tables;

static double score_of(const tables *t, int i)
{
    double sum = 0.0;
    for (int k = 0; k < WIDTH; k++) {
        sum += t->users[users_of[i]][k] * t->items[items_of[i]][k] / WIDTH;
    }
    return sum;
}

/* A step of mean squared error at the rate; the loss before it. */
static double step(tables *t, double rate)
{
    tables next = *t;
    double loss = 0.0;
    for (int i = 0; i < N; i++) {
        const double off = score_of(t, i) - target_of(i);
        loss += off * off / N;
        for (int k = 0; k < WIDTH; k++) {
            const double slope = rate * 2.0 * off / N / WIDTH;
            next.users[users_of[i]][k] -= slope * t->items[items_of[i]][k];
            next.items[items_of[i]][k] -= slope * t->users[users_of[i]][k];
        }
    }
    *t = next;
    return loss;
}

static void first_values(tables *t)
{
    for (int i = 0; i < N_USERS * WIDTH; i++) {
        t->users[i / WIDTH][i % WIDTH] = (double)net_formula("users", i);
    }
    for (int i = 0; i < N_ITEMS * WIDTH; i++) {
        t->items[i / WIDTH][i % WIDTH] = (double)net_formula("items", i);
    }
}

Test(ids, matrix_factorisation)
{
    const dunlin_source source = {.struct_size = sizeof(dunlin_source),
                                  .read_targets_fn = read_pairs,
                                  .n_targets = 1,
                                  .n_examples = N,
                                  .dtype = DUNLIN_F32};
    const int64_t indices[N] = {0, 1, 2, 3, 4};
    char path[512];
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    dunlin_trainer *trainer = NULL;
    tables t;
    first_values(&t);
    cr_assert_eq(dunlin_model_open(net_onnx_path("factors.onnx", path), NULL, &model, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect_eq(dunlin_model_n_outputs(model), 1);
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = N;
    options.lr = 0.5F;
    options.loss = DUNLIN_LOSS_MSE;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_OK, "%s",
                 error.text);
    for (int i = 0; i < N_STEPS; i++) {
        dunlin_metrics metrics = {0};
        const double wanted = step(&t, 0.5);
        cr_assert_eq(dunlin_trainer_step(trainer, &source, indices, N, &metrics), DUNLIN_OK, "%s",
                     dunlin_trainer_last_error(trainer)->text);
        cr_expect_float_eq(metrics.loss, wanted, 1e-6, "%d: %g, not %g", i, metrics.loss, wanted);
    }
    float scores[N];
    cr_assert_eq(dunlin_trainer_predict(trainer, &source, 0, N, scores), DUNLIN_OK);
    for (int i = 0; i < N; i++) {
        cr_expect_float_eq((double)scores[i], score_of(&t, i), 1e-6);
    }
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}
