/*
 * test_loss.c - losses: against double, at infinities, by slices and on threads.
 */
#include "checks/buffers.h"
#include "random.h"
#include "reference.h"
#include "start_threads.h"

#include <dunlin/trainer.h>

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(loss, .timeout = 900);

#define SOFT DUNLIN_LOSS_SOFT_CROSS_ENTROPY

static void check_values(const dunlin_kernels *kernels, int32_t classes, double spread,
                         uint64_t seed)
{
    enum { ROWS = 13 };
    uint64_t state = seed;
    float *logits = buffer_new(ROWS * classes);
    float *dlogits = buffer_new(ROWS * classes);
    int32_t labels[ROWS];
    test_random_fill(logits, ROWS * classes, -spread, spread, &state);
    for (int i = 0; i < ROWS; i++) {
        labels[i] = (int32_t)test_random_below(&state, (uint64_t)classes);
    }
    double sums[DUNLIN_N_LOSS_SUMS] = {NAN, NAN, NAN};
    dunlin_loss_call call = {.classes = classes,
                             .n_rows = ROWS,
                             .logits = logits,
                             .labels = labels,
                             .scale = 0.25f,
                             .dlogits = dlogits,
                             .sums = sums,
                             .is_reset = true};
    kernels->softmax_loss(&call);
    double *x = buffer_doubles(logits, ROWS * classes);
    double *expected = buffer_doubles(NULL, classes);
    double loss = 0.0;
    double right = 0.0;
    for (int i = 0; i < ROWS; i++) {
        loss += reference_softmax_loss(classes, x + i * classes, labels[i], expected);
        int32_t best = 0;
        for (int32_t c = 0; c < classes; c++) {
            best = x[i * classes + c] > x[i * classes + best] ? c : best;
            cr_assert_float_eq(dlogits[i * classes + c], 0.25 * expected[c], 1e-6, "%s: seed %llu",
                               kernels->isa, (unsigned long long)seed);
        }
        right += best == labels[i] ? 1.0 : 0.0;
    }
    cr_assert_float_eq(sums[0], loss, 1e-5 * (1.0 + loss));
    cr_assert_eq(sums[1], right);
    cr_assert(buffer_is_intact(dlogits));
    free(x);
    free(expected);
    buffer_free(logits);
    buffer_free(dlogits);
}

static void check_all_values(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(31);
    for (int i = 0; i < test_cases(20); i++, seed += 3) {
        check_values(kernels, 10, 3.0, seed);
        check_values(kernels, 2, 200.0, seed + 1);
        check_values(kernels, 1000, 30.0, seed + 2);
    }
    check_values(kernels, 1, 1.0, 1);
}

Test(loss, agrees_with_double)
{
    each_isa(check_all_values);
}

/* The loss of all rows in double: weights of classes with smoothing, or of targets of 1. */
static double weighted_loss(const dunlin_loss_call *call, const double *x)
{
    const int32_t n = call->classes;
    double total = 0.0;
    for (int64_t row = 0; row < call->n_rows; row++) {
        const double *own = x + row * n;
        const double weight =
            call->weights == NULL ? 1.0 : (double)call->weights[row / call->rows_per_weight];
        double sum = 0.0;
        for (int32_t c = 0; c < n; c++) {
            sum += exp(own[c]);
        }
        for (int32_t c = 0; c < n; c++) {
            const double w = (double)call->class_weights[c];
            const double s = (double)call->smoothing;
            const double share = call->labels == NULL     ? 0.0
                                 : c == call->labels[row] ? 1.0 - s + s / n
                                                          : s / n;
            const double t = call->targets == NULL ? 0.0 : (double)call->targets[row * n + c];
            total +=
                call->labels != NULL
                    ? weight * share * w * (log(sum) - own[c])
                    : weight / n * (w * t * log1p(exp(-own[c])) + (1.0 - t) * log1p(exp(own[c])));
        }
    }
    return total;
}

/* Values, and gradients by differences. Two rows have one weight. */
static void check_class_weights(const dunlin_kernels *kernels)
{
    enum { ROWS = 8, CLASSES = 5 };
    static const float class_weights[CLASSES] = {0.5F, 2.0F, 0.0F, 1.0F, 3.0F};
    static const float weights[ROWS / 2] = {1.0F, 0.25F, 2.0F, 0.5F};
    for (int kind = 0; kind < 4; kind++) {
        uint64_t state = test_seed(61) + (uint64_t)kind;
        float logits[ROWS * CLASSES];
        float targets[ROWS * CLASSES];
        float dlogits[ROWS * CLASSES];
        double x[ROWS * CLASSES];
        double sums[DUNLIN_N_LOSS_SUMS];
        int32_t labels[ROWS];
        test_random_fill(logits, ROWS * CLASSES, -3.0, 3.0, &state);
        test_random_fill(targets, ROWS * CLASSES, 0.0, 1.0, &state);
        for (int i = 0; i < ROWS; i++) {
            labels[i] = (int32_t)test_random_below(&state, CLASSES);
        }
        for (int i = 0; i < ROWS * CLASSES; i++) {
            x[i] = (double)logits[i];
        }
        const dunlin_loss_call call = {.classes = CLASSES,
                                       .n_rows = ROWS,
                                       .logits = logits,
                                       .labels = kind < 2 ? labels : NULL,
                                       .targets = kind < 2 ? NULL : targets,
                                       .weights = kind == 3 ? NULL : weights,
                                       .rows_per_weight = 2,
                                       .class_weights = class_weights,
                                       .smoothing = kind == 1 ? 0.25F : 0.0F,
                                       .scale = 0.5F,
                                       .dlogits = dlogits,
                                       .sums = sums,
                                       .is_reset = true};
        (kind < 2 ? kernels->softmax_loss : kernels->logistic_loss)(&call);
        const double loss = weighted_loss(&call, x);
        cr_assert_float_eq(sums[0], loss, 2e-6 * loss, "%s, kind %d: %g, not %g", kernels->isa,
                           kind, sums[0], loss);
        for (int i = 0; i < ROWS * CLASSES; i++) {
            const double before = x[i];
            x[i] = before + 1e-5;
            const double above = weighted_loss(&call, x);
            x[i] = before - 1e-5;
            const double wanted = 0.5 * (above - weighted_loss(&call, x)) / 2e-5;
            x[i] = before;
            cr_assert_float_eq((double)dlogits[i], wanted, 2e-6, "%s, kind %d: %g, not %g",
                               kernels->isa, kind, (double)dlogits[i], wanted);
        }
    }
}

Test(loss, weights_of_classes)
{
    each_isa(check_class_weights);
}

static void check_extremes(const dunlin_kernels *kernels)
{
    float logits[4][3] = {
        {-INFINITY, 0.0f, 0.0f}, {FLT_MAX, -FLT_MAX, 0.0f}, {NAN, 0.0f, 0.0f}, {1.0f, 2.0f, 3.0f}};
    int32_t labels[4] = {1, 0, 0, 7};
    float dlogits[3];
    double sums[DUNLIN_N_LOSS_SUMS];
    dunlin_loss_call call = {.classes = 3,
                             .n_rows = 1,
                             .scale = 1.0f,
                             .dlogits = dlogits,
                             .sums = sums,
                             .is_reset = true};
    for (int i = 0; i < 4; i++) {
        call.logits = logits[i];
        call.labels = &labels[i];
        kernels->softmax_loss(&call);
        switch (i) {
        case 0:
            cr_assert_float_eq(sums[0], log(2.0), 1e-7);
            cr_assert(dlogits[0] == 0.0f && dlogits[1] == -0.5f && dlogits[2] == 0.5f);
            break;
        case 1:
            cr_assert_eq(sums[0], 0.0);
            cr_assert(dlogits[0] == 0.0f && dlogits[1] == 0.0f && sums[1] == 1.0);
            break;
        default: /* bad scores and labels are seen in the loss */
            cr_assert(isnan(sums[0]));
        }
    }
}

Test(loss, infinities_and_bad_values)
{
    each_isa(check_extremes);
}

/* -sum of ((1 - s) t + s / classes) log p in double, and its gradient. */
static double reference_soft_loss(int32_t classes, const double *x, const double *t, double s,
                                  double *out_gradient)
{
    double largest = x[0];
    double sum = 0.0;
    double total = 0.0;
    double loss = 0.0;
    for (int32_t c = 1; c < classes; c++) {
        largest = x[c] > largest ? x[c] : largest;
    }
    for (int32_t c = 0; c < classes; c++) {
        sum += exp(x[c] - largest);
        total += (1.0 - s) * t[c] + s / classes;
    }
    for (int32_t c = 0; c < classes; c++) {
        const double share = (1.0 - s) * t[c] + s / classes;
        loss -= share * (x[c] - largest - log(sum));
        out_gradient[c] = total * exp(x[c] - largest) / sum - share;
    }
    return loss;
}

static void check_soft_values(const dunlin_kernels *kernels, int32_t classes, double smoothing,
                              uint64_t seed)
{
    enum { ROWS = 11 };
    uint64_t state = seed;
    const int64_t n = (int64_t)ROWS * classes;
    float *logits = buffer_new(n);
    float *targets = buffer_new(n);
    float *dlogits = buffer_new(n);
    test_random_fill(logits, n, -20.0, 20.0, &state);
    test_random_fill(targets, n, 0.0, 1.0, &state);
    for (int32_t c = 0; c < classes; c++) {
        targets[c] = 0.0f; /* a row without any share: no loss but by smoothing */
    }
    double sums[DUNLIN_N_LOSS_SUMS] = {NAN, NAN, NAN};
    kernels->softmax_loss(&(dunlin_loss_call){.classes = classes,
                                              .n_rows = ROWS,
                                              .logits = logits,
                                              .targets = targets,
                                              .smoothing = (float)smoothing,
                                              .scale = 0.25f,
                                              .dlogits = dlogits,
                                              .sums = sums,
                                              .is_reset = true});
    double *x = buffer_doubles(logits, n);
    double *t = buffer_doubles(targets, n);
    double *expected = buffer_doubles(NULL, classes);
    double loss = 0.0;
    double right = 0.0;
    for (int64_t i = 0; i < ROWS; i++) {
        loss += reference_soft_loss(classes, x + i * classes, t + i * classes, smoothing, expected);
        int32_t best = 0;
        int32_t likely = 0;
        for (int32_t c = 0; c < classes; c++) {
            best = x[i * classes + c] > x[i * classes + best] ? c : best;
            likely = t[i * classes + c] > t[i * classes + likely] ? c : likely;
            cr_assert_float_eq(dlogits[i * classes + c], 0.25 * expected[c], 2e-6 * classes,
                               "%s: seed %llu", kernels->isa, (unsigned long long)seed);
        }
        right += best == likely ? 1.0 : 0.0;
    }
    cr_assert_float_eq(sums[DUNLIN_SUM_LOSS], loss, 1e-5 * (1.0 + loss));
    cr_assert_eq(sums[DUNLIN_SUM_RIGHT], right);
    cr_assert(buffer_is_intact(dlogits));
    free(x);
    free(t);
    free(expected);
    buffer_free(logits);
    buffer_free(targets);
    buffer_free(dlogits);
}

/* One 1 among zeros is the loss over the label, bit for bit, smoothed or not. */
static void check_soft_labels(const dunlin_kernels *kernels, float smoothing)
{
    enum { ROWS = 9, CLASSES = 37 };
    uint64_t state = 8;
    float logits[ROWS * CLASSES];
    float targets[ROWS * CLASSES] = {0.0f};
    float gradients[2][ROWS * CLASSES];
    double sums[2][DUNLIN_N_LOSS_SUMS];
    int32_t labels[ROWS];
    test_random_fill(logits, ROWS * CLASSES, -9.0, 9.0, &state);
    logits[5] = -INFINITY; /* of no chance, and of no share */
    for (int32_t i = 0; i < ROWS; i++) {
        labels[i] = (i * 11 + 1) % CLASSES;
        targets[i * CLASSES + labels[i]] = 1.0f;
    }
    for (int32_t k = 0; k < 2; k++) {
        kernels->softmax_loss(&(dunlin_loss_call){.classes = CLASSES,
                                                  .n_rows = ROWS,
                                                  .logits = logits,
                                                  .labels = k == 0 ? labels : NULL,
                                                  .targets = k == 0 ? NULL : targets,
                                                  .smoothing = smoothing,
                                                  .scale = 0.125f,
                                                  .dlogits = gradients[k],
                                                  .sums = sums[k],
                                                  .is_reset = true});
    }
    cr_assert(memcmp(sums[0], sums[1], sizeof sums[0]) == 0, "%s", kernels->isa);
    cr_assert(buffer_same_bits(gradients[0], gradients[1], (int64_t)ROWS * CLASSES), "%s",
              kernels->isa);
}

static void check_all_soft(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(37);
    for (int i = 0; i < test_cases(20); i++, seed += 3) {
        check_soft_values(kernels, 10, 0.0, seed);
        check_soft_values(kernels, 3, 0.25, seed + 1);
        check_soft_values(kernels, 130, 0.1, seed + 2);
    }
    check_soft_values(kernels, 1, 0.0, 1);
    check_soft_labels(kernels, 0.0f);
    check_soft_labels(kernels, 0.1f);
}

Test(loss, shares_of_classes)
{
    each_isa(check_all_soft);
}

/* One of the losses, as the trainer calls it. */
typedef struct loss_data {
    int32_t classes;
    int64_t n_rows;
    float *logits, *targets, *weights;
    int32_t *labels;
} loss_data;

static void open_data(loss_data *data, int32_t classes, int64_t n_rows)
{
    uint64_t state = 5;
    *data = (loss_data){.classes = classes,
                        .n_rows = n_rows,
                        .logits = buffer_random(n_rows * classes, &state),
                        .targets = buffer_random(n_rows * classes, &state),
                        .weights = buffer_random(n_rows, &state),
                        .labels = calloc((size_t)n_rows, sizeof(int32_t))};
    for (int64_t i = 0; i < n_rows; i++) {
        data->labels[i] = (int32_t)(i % classes);
        data->weights[i] = fabsf(data->weights[i]);
    }
    for (int64_t i = 0; i < n_rows * classes; i++) {
        data->targets[i] = fabsf(data->targets[i]);
    }
}

static void close_data(const loss_data *data)
{
    buffer_free(data->logits);
    buffer_free(data->targets);
    buffer_free(data->weights);
    free(data->labels);
}

/* Rows [first, first + n) of the data. */
static void run_rows(const dunlin_kernels *kernels, int kind, const loss_data *data, int64_t first,
                     int64_t n, float *dlogits, double *sums, dunlin_threads *threads)
{
    const dunlin_loss_call call = {.classes = data->classes,
                                   .n_rows = n,
                                   .logits = data->logits + first * data->classes,
                                   .labels = kind == SOFT ? NULL : data->labels + first,
                                   .targets = data->targets + first * data->classes,
                                   .weights = data->weights + first,
                                   .smoothing = 0.1f,
                                   .scale = 0.01f,
                                   .dlogits = dlogits + first * data->classes,
                                   .sums = sums,
                                   .is_reset = first == 0,
                                   .threads = threads};
    void (*const fns[])(const dunlin_loss_call *) = {kernels->softmax_loss, kernels->squared_loss,
                                                     kernels->logistic_loss, kernels->softmax_loss};
    fns[kind](&call);
}

static void check_cuts(const dunlin_kernels *kernels, int kind, const loss_data *data,
                       const int64_t *slices, int n_slices)
{
    dunlin_threads *pool = start_threads(3);
    const int64_t n = data->n_rows * data->classes;
    float *whole = buffer_new(n);
    float *parts = buffer_new(n);
    double sums[DUNLIN_N_LOSS_SUMS];
    double part_sums[DUNLIN_N_LOSS_SUMS];
    run_rows(kernels, kind, data, 0, data->n_rows, whole, sums, NULL);
    for (int i = 0; i < n_slices; i++) {
        for (int64_t first = 0; first < data->n_rows; first += slices[i]) {
            const int64_t left = data->n_rows - first;
            run_rows(kernels, kind, data, first, left < slices[i] ? left : slices[i], parts,
                     part_sums, i % 2 == 0 ? pool : NULL);
        }
        cr_assert(memcmp(sums, part_sums, sizeof sums) == 0, "%s: loss %d, slices of %d",
                  kernels->isa, kind, (int)slices[i]);
        cr_assert(buffer_same_bits(whole, parts, n), "%s: loss %d, slices of %d", kernels->isa,
                  kind, (int)slices[i]);
    }
    cr_assert(buffer_is_intact(whole) && buffer_is_intact(parts));
    buffer_free(whole);
    buffer_free(parts);
    stop_threads(pool);
}

static void check_all_cuts(const dunlin_kernels *kernels)
{
    static const int64_t few[] = {12, 1, 2, 3, 5, 7, 11};
    static const int64_t many[] = {150, 64, 149, 65};
    loss_data data;
    for (int kind = 0; kind <= SOFT; kind++) {
        open_data(&data, 10, 12);
        check_cuts(kernels, kind, &data, few, 7);
        close_data(&data);
        open_data(&data, 300, 150);
        check_cuts(kernels, kind, &data, many, 4);
        close_data(&data);
    }
}

Test(loss, slices_and_threads_change_no_bit)
{
    each_isa(check_all_cuts);
}

/* Large outputs saturate: no overflow, no loss of the small side. */
static void check_logistic_extremes(const dunlin_kernels *kernels)
{
    const float logits[6] = {200.0f, -200.0f, 0.0f, 200.0f, -20.0f, 20.0f};
    const float targets[6] = {1.0f, 0.0f, 0.5f, 0.0f, 0.0f, 0.25f};
    const double rows[6] = {0.0, 0.0, log(2.0), 200.0, log1p(exp(-20.0)), 15.0 + log1p(exp(-20.0))};
    const double gradient[6] = {0.0, 0.0, 0.0, 1.0, exp(-20.0) / (1.0 + exp(-20.0)), 0.75};
    for (int i = 0; i < 6; i++) {
        float dlogit = NAN;
        double sums[DUNLIN_N_LOSS_SUMS];
        kernels->logistic_loss(&(dunlin_loss_call){.classes = 1,
                                                   .n_rows = 1,
                                                   .logits = &logits[i],
                                                   .targets = &targets[i],
                                                   .scale = 1.0f,
                                                   .dlogits = &dlogit,
                                                   .sums = sums,
                                                   .is_reset = true});
        cr_assert_float_eq(sums[DUNLIN_SUM_LOSS], rows[i], 1e-6 * (rows[i] + 1e-8), "%s, %d: %g",
                           kernels->isa, i, sums[DUNLIN_SUM_LOSS]);
        cr_assert_float_eq(dlogit, gradient[i], 1e-6 * gradient[i] + 1e-8, "%s, %d: %g",
                           kernels->isa, i, (double)dlogit);
    }
}

Test(loss, logistic_at_large_outputs)
{
    each_isa(check_logistic_extremes);
}
