/*
 * test_loss.c - softmax cross-entropy: against double, at infinities, by slices.
 */
#include "buffers.h"
#include "random.h"
#include "reference.h"

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>

TestSuite(loss, .timeout = 300);

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

static void check_slices(const dunlin_kernels *kernels)
{
    enum { ROWS = 12, CLASSES = 10 };
    uint64_t state = 5;
    float *logits = buffer_random(ROWS * CLASSES, &state);
    int32_t labels[ROWS];
    for (int i = 0; i < ROWS; i++) {
        labels[i] = i % CLASSES;
    }
    double whole[DUNLIN_N_LOSS_SUMS];
    double parts[DUNLIN_N_LOSS_SUMS] = {NAN, NAN, NAN};
    dunlin_loss_call call = {.classes = CLASSES,
                             .n_rows = ROWS,
                             .logits = logits,
                             .labels = labels,
                             .sums = whole,
                             .is_reset = true};
    kernels->softmax_loss(&call);
    for (int slice = 1; slice < ROWS; slice++) {
        for (int first = 0; first < ROWS; first += slice) {
            call.n_rows = ROWS - first < slice ? ROWS - first : slice;
            call.logits = logits + first * CLASSES;
            call.labels = labels + first;
            call.sums = parts;
            call.is_reset = first == 0;
            kernels->softmax_loss(&call);
        }
        cr_assert(parts[0] == whole[0] && parts[1] == whole[1], "%s: slices of %d", kernels->isa,
                  slice);
    }
    buffer_free(logits);
}

Test(loss, slices_change_no_bit)
{
    each_isa(check_slices);
}
