/*
 * test_source.c - what a source may state about its examples: weights in the loss, whole numbers as
 * inputs.
 */
#include "step/step_support.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_FEATURES 6

/* Six features and a label, made from the index; weights from a table. */
typedef struct weighted {
    float weights[4];
    dunlin_dtype dtype;
} weighted;

static dunlin_status read_weighted(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    const weighted *self = ctx;
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < N_FEATURES; k++) {
            const int32_t value = (int32_t)((indices[i] * 5 + k * 3) % 7) - 3;
            if (self->dtype == DUNLIN_I32) {
                ((int32_t *)out_x)[i * N_FEATURES + k] = value;
            } else {
                ((float *)out_x)[i * N_FEATURES + k] = (float)value;
            }
        }
        out_y[i] = (int32_t)(indices[i] % 3);
    }
    return DUNLIN_OK;
}

static float weight_of(void *ctx, int64_t index)
{
    const weighted *self = ctx;
    return self->weights[index];
}

static dunlin_source make_source(weighted *ctx, bool has_weights)
{
    return (dunlin_source){.struct_size = sizeof(dunlin_source),
                           .ctx = ctx,
                           .read_fn = read_weighted,
                           .n_examples = 4,
                           .dtype = ctx->dtype,
                           .weight_fn = has_weights ? weight_of : NULL};
}

/* Weights after one step on some examples; the loss comes along. */
static float *after_step(weighted *ctx, bool has_weights, const int64_t *indices, int64_t n,
                         int64_t slice, double *out_loss, int64_t *out_n)
{
    dunlin_model *model = test_dense_model(N_FEATURES, 3);
    dunlin_trainer_options options = test_options(8);
    if (slice > 0) {
        options.policy = DUNLIN_POLICY_MICROBATCH;
        options.micro_batch = slice;
    }
    dunlin_trainer *trainer = test_create(model, &options);
    const dunlin_source source = make_source(ctx, has_weights);
    dunlin_metrics metrics;
    cr_assert_eq(dunlin_trainer_step(trainer, &source, indices, n, &metrics), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    *out_loss = metrics.loss;
    float *weights = test_weights(trainer, out_n);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
    return weights;
}

static void expect_close(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        cr_assert_float_eq(a[i], b[i], 1e-6, "weight %d: %.9g and %.9g", (int)i, (double)a[i],
                           (double)b[i]);
    }
}

Test(source, weights_of_one_change_no_bit)
{
    weighted ctx = {.weights = {1.0F, 1.0F, 1.0F, 1.0F}, .dtype = DUNLIN_F32};
    const int64_t indices[] = {0, 1, 2, 3};
    double losses[2];
    int64_t n = 0;
    float *plain = after_step(&ctx, false, indices, 4, 0, &losses[0], &n);
    float *with = after_step(&ctx, true, indices, 4, 0, &losses[1], &n);
    cr_expect(test_same_bits(plain, with, n));
    cr_expect_eq(losses[0], losses[1]);
    free(plain);
    free(with);
}

Test(source, a_weight_of_two_is_the_example_twice)
{
    weighted ctx = {.weights = {2.0F, 1.0F, 0.5F, 1.0F}, .dtype = DUNLIN_F32};
    const int64_t weighted_batch[] = {0, 1};
    const int64_t plain_batch[] = {0, 0, 1};
    double losses[2];
    int64_t n = 0;
    float *with = after_step(&ctx, true, weighted_batch, 2, 0, &losses[0], &n);
    float *plain = after_step(&ctx, false, plain_batch, 3, 0, &losses[1], &n);
    expect_close(with, plain, n);
    cr_expect_float_eq(losses[0], losses[1], 1e-6);
    free(with);
    free(plain);
}

Test(source, a_weight_of_zero_leaves_an_example_out)
{
    weighted ctx = {.weights = {1.0F, 0.0F, 1.0F, 1.0F}, .dtype = DUNLIN_F32};
    const int64_t batch[] = {0, 1, 2};
    const int64_t without[] = {0, 2};
    double losses[2];
    int64_t n = 0;
    float *with = after_step(&ctx, true, batch, 3, 0, &losses[0], &n);
    float *plain = after_step(&ctx, false, without, 2, 0, &losses[1], &n);
    expect_close(with, plain, n);
    cr_expect_float_eq(losses[0], losses[1], 1e-6);
    free(with);
    free(plain);
}

Test(source, weighted_slices_change_no_bit)
{
    weighted ctx = {.weights = {0.25F, 3.0F, 1.5F, 0.0F}, .dtype = DUNLIN_F32};
    const int64_t indices[] = {3, 0, 2, 1, 2};
    double loss = 0.0;
    double sliced_loss = 0.0;
    int64_t n = 0;
    float *whole = after_step(&ctx, true, indices, 5, 0, &loss, &n);
    for (int64_t slice = 1; slice <= 3; slice++) {
        float *sliced = after_step(&ctx, true, indices, 5, slice, &sliced_loss, &n);
        cr_expect(test_same_bits(whole, sliced, n), "slices of %d", (int)slice);
        cr_expect_eq(loss, sliced_loss);
        free(sliced);
    }
    free(whole);
}

Test(source, whole_numbers_train_as_floats_do)
{
    weighted whole = {.dtype = DUNLIN_I32};
    weighted real = {.dtype = DUNLIN_F32};
    const int64_t indices[] = {0, 1, 2, 3};
    double losses[2];
    int64_t n = 0;
    float *a = after_step(&whole, false, indices, 4, 0, &losses[0], &n);
    float *b = after_step(&real, false, indices, 4, 0, &losses[1], &n);
    cr_expect(test_same_bits(a, b, n));
    free(a);
    free(b);
}

/* A step that cannot work: DATA, the weights as they were. */
static void expect_refused(const float weights[4], const char *text)
{
    weighted ctx = {.dtype = DUNLIN_F32};
    memcpy(ctx.weights, weights, sizeof ctx.weights);
    const int64_t indices[] = {0, 1};
    dunlin_model *model = test_dense_model(N_FEATURES, 3);
    const dunlin_trainer_options options = test_options(8);
    dunlin_trainer *trainer = test_create(model, &options);
    int64_t n = 0;
    float *before = test_weights(trainer, &n);
    const dunlin_source source = make_source(&ctx, true);
    dunlin_metrics metrics;
    cr_expect_eq(dunlin_trainer_step(trainer, &source, indices, 2, &metrics), DUNLIN_DATA);
    cr_expect(strstr(dunlin_trainer_last_error(trainer)->text, text) != NULL, "%s",
              dunlin_trainer_last_error(trainer)->text);
    cr_expect_eq(dunlin_trainer_evaluate(trainer, &source, 0, 2, &metrics), DUNLIN_DATA);
    float *after = test_weights(trainer, &n);
    cr_expect(test_same_bits(before, after, n));
    free(before);
    free(after);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(source, wrong_weights_are_refused)
{
    expect_refused((const float[]){1.0F, -1.0F, 1.0F, 1.0F}, "weight -1 of example 1");
    expect_refused((const float[]){NAN, 1.0F, 1.0F, 1.0F}, "of example 0");
    expect_refused((const float[]){1.0F, INFINITY, 1.0F, 1.0F}, "of example 1");
    expect_refused((const float[]){0.0F, 0.0F, 1.0F, 1.0F}, "weights of all 2 examples");
}
