/*
 * test_padding.c - a BERT whose attention hides padding: how much of it there is changes nothing,
 * neither in a prediction nor in a step; what is behind it does not matter either.
 */
#include "step/step_support.h"

#include <dunlin/pixels.h>

#include <criterion/criterion.h>

#include <math.h>
#include <net/net.h>
#include <string.h>

TestSuite(padding, .timeout = 600);

#define N 4
#define WORDS 6
#define LONGEST 16
#define VOCABULARY 23
#define CLASSES 3

/* How long an example is. */
typedef struct padded {
    int64_t length;
    bool has_words_behind; /* the last place is no padding */
} padded;

static dunlin_status read_words(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                int32_t *out_y)
{
    const padded *how = ctx;
    int32_t *x = out_x;
    memset(x, 0, (size_t)(n * how->length) * sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t t = 0; t < WORDS; t++) {
            x[i * how->length + t] = (int32_t)(1 + (7 * indices[i] + 5 * t) % (VOCABULARY - 1));
        }
        if (how->has_words_behind) {
            x[(i + 1) * how->length - 1] = 9;
        }
        out_y[i] = (int32_t)(indices[i] % CLASSES);
    }
    return DUNLIN_OK;
}

/* The logits of N examples after a step on them. */
static void train(padded how, double *out_loss, float out[N * CLASSES])
{
    const dunlin_zoo_options sizes = {.struct_size = sizeof(dunlin_zoo_options),
                                      .classes = CLASSES,
                                      .sequence = (int32_t)how.length,
                                      .vocabulary = VOCABULARY};
    dunlin_model *model = NULL;
    dunlin_trainer *trainer = NULL;
    dunlin_metrics metrics = {0};
    dunlin_error error = {0};
    cr_assert_eq(dunlin_model_from_zoo("bert_tiny", &sizes, NULL, &model, &error), DUNLIN_OK, "%s",
                 error.text);
    for (size_t i = 0; i < model->net.n_nodes; i++) { /* its draws depend on the length */
        if (model->net.nodes[i].kind == DUNLIN_OP_DROPOUT) {
            model->net.nodes[i].u.dropout.ratio = 0.0F;
        }
    }
    dunlin_trainer_options options = test_options(N);
    options.lr = 0.05F;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_OK, "%s",
                 error.text);
    dunlin_source source = DUNLIN_SOURCE_INIT;
    source.ctx = &how;
    source.read_fn = read_words;
    source.n_examples = N;
    source.dtype = DUNLIN_I32;
    const int64_t all[N] = {0, 1, 2, 3};
    cr_assert_eq(dunlin_trainer_step(trainer, &source, all, N, &metrics), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_predict(trainer, &source, 0, N, out), DUNLIN_OK);
    *out_loss = metrics.loss;
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

static double most_apart(const float *a, const float *b)
{
    double most = 0.0;
    for (int i = 0; i < N * CLASSES; i++) {
        const double apart = fabs((double)a[i] - (double)b[i]);
        most =
            apart > most ? apart : most; /* fmax() ends GCC 12 for arm64 with an error of its own */
    }
    return most;
}

Test(padding, is_not_looked_at)
{
    float alone[N * CLASSES];
    float padding[N * CLASSES];
    float behind[N * CLASSES];
    double losses[3];
    train((padded){.length = WORDS}, &losses[0], alone);
    train((padded){.length = LONGEST}, &losses[1], padding);
    train((padded){.length = LONGEST, .has_words_behind = true}, &losses[2], behind);
    cr_expect_float_eq(losses[0], losses[1], 1e-5, "%g, %g", losses[0], losses[1]);
    cr_expect_lt(most_apart(alone, padding), 1e-5);
    cr_expect_gt(most_apart(alone, behind), 1e-4, "a word behind padding is not seen");
}
