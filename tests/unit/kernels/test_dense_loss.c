/*
 * test_dense_loss.c - a dense layer with its cross-entropy: against double, the same bits however
 * rows are cut and on threads, logits as they are asked for.
 */
#include "checks/buffers.h"
#include "random.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(dense_loss, .timeout = 900);

typedef struct dense_case {
    int64_t rows_per_sample, n_samples;
    int32_t width, classes;
    bool has_bias, has_class_weights, has_weights, has_gaps;
    float smoothing;
} dense_case;

/* What goes in, and what comes out. */
typedef struct dense_data {
    dense_case of;
    int64_t n_rows;
    float *x, *w, *bias, *class_weights, *weights;
    int32_t *labels;
    float *dx, *dw, *db;
    double sums[DUNLIN_N_LOSS_SUMS];
} dense_data;

static void open_data(const dense_case *of, uint64_t seed, dense_data *data)
{
    uint64_t state = seed;
    *data = (dense_data){.of = *of, .n_rows = of->rows_per_sample * of->n_samples};
    data->x = buffer_random(data->n_rows * of->width, &state);
    data->w = buffer_random((int64_t)of->classes * of->width, &state);
    data->bias = buffer_random(of->classes, &state);
    data->class_weights = buffer_new(of->classes);
    data->weights = buffer_new(of->n_samples);
    data->labels = malloc((size_t)data->n_rows * sizeof *data->labels);
    cr_assert_not_null(data->labels);
    test_random_fill(data->class_weights, of->classes, 0.0, 2.0, &state);
    test_random_fill(data->weights, of->n_samples, 0.5, 2.0, &state);
    data->weights[0] = 0.0F;
    for (int64_t i = 0; i < data->n_rows; i++) {
        data->labels[i] = (int32_t)test_random_below(&state, (uint64_t)of->classes);
        data->labels[i] = of->has_gaps && i % 3 == 1 ? DUNLIN_NO_LABEL : data->labels[i];
    }
    data->dx = buffer_new(data->n_rows * of->width);
    data->dw = buffer_new((int64_t)of->classes * of->width);
    data->db = buffer_new(of->classes);
}

static void close_data(dense_data *data)
{
    float *const buffers[] = {data->x,       data->w,  data->bias, data->class_weights,
                              data->weights, data->dx, data->dw,   data->db};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        cr_expect(buffer_is_intact(buffers[i]));
        buffer_free(buffers[i]);
    }
    free(data->labels);
}

static dunlin_dense_loss_shape shape_of(const dense_case *of)
{
    return (dunlin_dense_loss_shape){
        .rows_per_sample = of->rows_per_sample, .width = of->width, .classes = of->classes};
}

/* All samples, `step` of them at a time. */
static void run(const dunlin_kernels *kernels, dense_data *data, int64_t step,
                dunlin_threads *threads)
{
    const dense_case *of = &data->of;
    const dunlin_dense_loss_shape shape = shape_of(of);
    const uint64_t bytes = kernels->dense_loss_workspace_bytes(&shape, threads == NULL ? 1 : 3);
    float *workspace = buffer_new((int64_t)(bytes / sizeof(float)));
    for (int64_t first = 0; first < of->n_samples; first += step) {
        const int64_t n = first + step < of->n_samples ? step : of->n_samples - first;
        const int64_t row = first * of->rows_per_sample;
        const dunlin_dense_loss_call call = {
            .shape = &shape,
            .x = data->x + row * of->width,
            .w = data->w,
            .bias = of->has_bias ? data->bias : NULL,
            .loss = {.classes = of->classes,
                     .n_rows = n * of->rows_per_sample,
                     .labels = data->labels + row,
                     .weights = of->has_weights ? data->weights + first : NULL,
                     .rows_per_weight = of->rows_per_sample,
                     .class_weights = of->has_class_weights ? data->class_weights : NULL,
                     .smoothing = of->smoothing,
                     .scale = 0.125F,
                     .sums = data->sums,
                     .is_reset = first == 0,
                     .threads = threads},
            .dx = data->dx + row * of->width,
            .dw = data->dw,
            .db = data->db,
            .workspace = workspace,
        };
        kernels->dense_loss(&call);
    }
    cr_expect(buffer_is_intact(workspace));
    buffer_free(workspace);
}

/* The loss of a row, and (in `logits`) its gradient, in double. */
static double row_in_double(const dense_data *data, int64_t row, double *logits, double *out_right)
{
    const dense_case *of = &data->of;
    const int32_t label = data->labels[row];
    const double weight = of->has_weights ? (double)data->weights[row / of->rows_per_sample] : 1.0;
    double sum = 0.0;
    double loss = 0.0;
    double total = 0.0;
    int32_t best = 0;
    for (int32_t c = 0; c < of->classes; c++) {
        logits[c] = of->has_bias ? (double)data->bias[c] : 0.0;
        for (int32_t i = 0; i < of->width; i++) {
            logits[c] +=
                (double)data->x[row * of->width + i] * (double)data->w[(int64_t)c * of->width + i];
        }
        sum += exp(logits[c]);
        best = logits[c] > logits[best] ? c : best;
    }
    const bool counts = label != DUNLIN_NO_LABEL && weight > 0.0;
    for (int32_t c = 0; c < of->classes && counts; c++) {
        const double s = (double)of->smoothing;
        const double w = of->has_class_weights ? (double)data->class_weights[c] : 1.0;
        const double share = w * ((c == label ? 1.0 - s : 0.0) + s / of->classes);
        loss += share * (log(sum) - logits[c]);
        total += share;
    }
    *out_right = counts && best == label ? 1.0 : 0.0;
    for (int32_t c = 0; c < of->classes; c++) {
        const double s = (double)of->smoothing;
        const double w = of->has_class_weights ? (double)data->class_weights[c] : 1.0;
        const double share = w * ((c == label ? 1.0 - s : 0.0) + s / of->classes);
        const double gradient = 0.125 * weight * (total * exp(logits[c]) / sum - share);
        logits[c] = counts ? gradient : 0.0;
    }
    return loss * weight;
}

static void check_double(const dunlin_kernels *kernels, const dense_data *data)
{
    const dense_case *of = &data->of;
    const int64_t n_w = (int64_t)of->classes * of->width;
    double *logits = buffer_doubles(NULL, of->classes);
    double *dw = buffer_doubles(NULL, n_w);
    double *db = buffer_doubles(NULL, of->classes);
    double loss = 0.0;
    double right = 0.0;
    for (int64_t row = 0; row < data->n_rows; row++) {
        double is_right = 0.0;
        loss += row_in_double(data, row, logits, &is_right);
        right += is_right;
        for (int32_t i = 0; i < of->width; i++) {
            double dx = 0.0;
            for (int32_t c = 0; c < of->classes; c++) {
                dx += logits[c] * (double)data->w[(int64_t)c * of->width + i];
                dw[(int64_t)c * of->width + i] += logits[c] * (double)data->x[row * of->width + i];
            }
            cr_assert_float_eq((double)data->dx[row * of->width + i], dx, 2e-6, "%s: dx of row %d",
                               kernels->isa, (int)row);
        }
        for (int32_t c = 0; c < of->classes; c++) {
            db[c] += logits[c];
        }
    }
    for (int64_t i = 0; i < n_w; i++) {
        cr_assert_float_eq((double)data->dw[i], dw[i], 2e-6, "%s: dw %d", kernels->isa, (int)i);
    }
    for (int32_t c = 0; c < of->classes; c++) {
        cr_assert_float_eq((double)data->db[c], db[c], 2e-6, "%s: db %d", kernels->isa, (int)c);
    }
    cr_assert_float_eq(data->sums[DUNLIN_SUM_LOSS], loss, 1e-5 * (1.0 + loss), "%s", kernels->isa);
    cr_assert_float_eq(data->sums[DUNLIN_SUM_RIGHT], right, 1e-9, "%s", kernels->isa);
    free(logits);
    free(dw);
    free(db);
}

static const dense_case cases[] = {
    {.rows_per_sample = 7, .n_samples = 3, .width = 5, .classes = 11},
    {.rows_per_sample = 40, .n_samples = 8, .width = 33, .classes = 130, .has_gaps = true},
    {.rows_per_sample = 5, .n_samples = 4, .width = 70, .classes = 61, .has_bias = true},
    {.rows_per_sample = 9, .n_samples = 4, .width = 20, .classes = 50, .smoothing = 0.25F},
    {.rows_per_sample = 9,
     .n_samples = 5,
     .width = 20,
     .classes = 50,
     .has_bias = true,
     .has_class_weights = true,
     .has_weights = true,
     .has_gaps = true,
     .smoothing = 0.25F},
    {.rows_per_sample = 6,
     .n_samples = 5,
     .width = 3,
     .classes = 200,
     .has_class_weights = true,
     .has_weights = true},
    {.rows_per_sample = 515, .n_samples = 2, .width = 8, .classes = 20, .has_bias = true},
};
#define N_CASES (sizeof cases / sizeof cases[0])

static void check_values(const dunlin_kernels *kernels)
{
    for (size_t i = 0; i < N_CASES; i++) {
        dense_data data;
        open_data(&cases[i], test_seed(77) + i, &data);
        run(kernels, &data, data.of.n_samples, NULL);
        check_double(kernels, &data);
        close_data(&data);
    }
}

Test(dense_loss, agrees_with_double)
{
    each_isa(check_values);
}

static void expect_same(const dunlin_kernels *kernels, const dense_data *a, const dense_data *b,
                        size_t i)
{
    const dense_case *of = &a->of;
    cr_expect(buffer_same_bits(a->dx, b->dx, a->n_rows * of->width), "%s: dx of case %zu",
              kernels->isa, i);
    cr_expect(buffer_same_bits(a->dw, b->dw, (int64_t)of->classes * of->width),
              "%s: dw of case %zu", kernels->isa, i);
    cr_expect(buffer_same_bits(a->db, b->db, of->classes), "%s: db of case %zu", kernels->isa, i);
    cr_expect_eq(memcmp(a->sums, b->sums, sizeof a->sums), 0, "%s: sums of case %zu", kernels->isa,
                 i);
}

static void check_cuts(const dunlin_kernels *kernels)
{
    dunlin_threads *threads = start_threads(3);
    for (size_t i = 0; i < N_CASES; i++) {
        dense_data whole;
        dense_data cut;
        open_data(&cases[i], test_seed(78) + i, &whole);
        open_data(&cases[i], test_seed(78) + i, &cut);
        run(kernels, &whole, whole.of.n_samples, NULL);
        run(kernels, &cut, 1, NULL);
        expect_same(kernels, &whole, &cut, i);
        run(kernels, &cut, 2, threads);
        expect_same(kernels, &whole, &cut, i);
        close_data(&whole);
        close_data(&cut);
    }
    stop_threads(threads);
}

Test(dense_loss, same_bits_however_it_is_cut)
{
    each_isa(check_cuts);
}

/* What the layer and the loss make apart. */
typedef struct apart_data {
    float *w; /* [in][out], as layers have it */
    float *logits, *dlogits, *dx, *dw, *turned, *workspace;
    double sums[DUNLIN_N_LOSS_SUMS];
} apart_data;

static dunlin_conv_shape layer_of(const dense_case *of)
{
    const int32_t rows = (int32_t)of->rows_per_sample;
    return (dunlin_conv_shape){.in_h = rows,
                               .in_w = 1,
                               .in_c = of->width,
                               .out_h = rows,
                               .out_w = 1,
                               .out_c = of->classes,
                               .kernel_h = 1,
                               .kernel_w = 1,
                               .stride_h = 1,
                               .stride_w = 1,
                               .dilation_h = 1,
                               .dilation_w = 1,
                               .groups = 1};
}

static void open_apart(const dunlin_kernels *kernels, const dense_data *data, apart_data *apart)
{
    const dense_case *of = &data->of;
    const dunlin_conv_shape shape = layer_of(of);
    const int64_t n_w = (int64_t)of->classes * of->width;
    uint64_t most = 0;
    for (int pass = 0; pass < 3; pass++) {
        const uint64_t bytes = kernels->conv_workspace_bytes(&shape, (dunlin_conv_pass)pass, 1);
        most = bytes > most ? bytes : most;
    }
    apart->w = buffer_new(n_w);
    apart->dw = buffer_new(n_w);
    apart->turned = buffer_new(n_w);
    apart->logits = buffer_new(data->n_rows * of->classes);
    apart->dlogits = buffer_new(data->n_rows * of->classes);
    apart->dx = buffer_new(data->n_rows * of->width);
    apart->workspace = buffer_new((int64_t)(most / sizeof(float)) + 16);
}

static void close_apart(apart_data *apart)
{
    float *const buffers[] = {apart->w,  apart->dw,      apart->turned,   apart->logits,
                              apart->dx, apart->dlogits, apart->workspace};
    for (size_t k = 0; k < sizeof buffers / sizeof buffers[0]; k++) {
        buffer_free(buffers[k]);
    }
}

static void run_apart(const dunlin_kernels *kernels, const dense_data *data, apart_data *apart)
{
    const dense_case *of = &data->of;
    const dunlin_conv_shape shape = layer_of(of);
    kernels->transpose(1, of->classes, of->width, data->w, apart->w, NULL);
    dunlin_conv_call conv = {.shape = &shape,
                             .n_samples = of->n_samples,
                             .x = data->x,
                             .w = apart->w,
                             .bias = of->has_bias ? data->bias : NULL,
                             .out = apart->logits,
                             .workspace = apart->workspace};
    kernels->conv_forward(&conv);
    kernels->softmax_loss(
        &(dunlin_loss_call){.classes = of->classes,
                            .n_rows = data->n_rows,
                            .logits = apart->logits,
                            .labels = data->labels,
                            .weights = of->has_weights ? data->weights : NULL,
                            .rows_per_weight = of->rows_per_sample,
                            .class_weights = of->has_class_weights ? data->class_weights : NULL,
                            .smoothing = of->smoothing,
                            .scale = 0.125F,
                            .dlogits = apart->dlogits,
                            .sums = apart->sums,
                            .is_reset = true});
    conv.dy = apart->dlogits;
    conv.out = apart->dx;
    kernels->conv_input_grad(&conv);
    conv.out = apart->dw;
    conv.is_reset = true;
    kernels->conv_weight_grad(&conv);
    kernels->transpose(1, of->width, of->classes, apart->dw, apart->turned, NULL);
}

/* The layer by itself, whose weight lies [in][out], and the loss by itself: no bit differs. */
static void check_apart(const dunlin_kernels *kernels)
{
    for (size_t i = 0; i + 1 < N_CASES; i++) { /* the last one has partials of its own */
        dense_data data;
        apart_data apart;
        open_data(&cases[i], test_seed(79) + i, &data);
        open_apart(kernels, &data, &apart);
        run_apart(kernels, &data, &apart);
        run(kernels, &data, data.of.n_samples, NULL);
        const int64_t n_w = (int64_t)data.of.classes * data.of.width;
        cr_expect(buffer_same_bits(data.dx, apart.dx, data.n_rows * data.of.width),
                  "%s: dx of case %zu", kernels->isa, i);
        cr_expect(buffer_same_bits(data.dw, apart.turned, n_w), "%s: dw of case %zu", kernels->isa,
                  i);
        cr_expect_eq(memcmp(data.sums, apart.sums, sizeof apart.sums), 0, "%s: sums of case %zu",
                     kernels->isa, i);
        close_apart(&apart);
        close_data(&data);
    }
}

Test(dense_loss, same_bits_as_layer_and_loss_apart)
{
    each_isa(check_apart);
}

/* Logits alone, and counts of what was scored highest. */
static void check_logits(const dunlin_kernels *kernels)
{
    dense_data data;
    open_data(&cases[4], test_seed(80), &data);
    const dense_case *of = &data.of;
    const dunlin_dense_loss_shape shape = shape_of(of);
    const uint64_t bytes = kernels->dense_loss_workspace_bytes(&shape, 1);
    float *workspace = buffer_new((int64_t)(bytes / sizeof(float)));
    float *logits = buffer_new(data.n_rows * of->classes);
    int64_t counts[50 * 50] = {0};
    int64_t wanted[50 * 50] = {0};
    double sums[DUNLIN_N_LOSS_SUMS];
    dunlin_dense_loss_call call = {.shape = &shape,
                                   .x = data.x,
                                   .w = data.w,
                                   .bias = data.bias,
                                   .loss = {.classes = of->classes,
                                            .n_rows = data.n_rows,
                                            .labels = data.labels,
                                            .sums = sums,
                                            .is_reset = true},
                                   .logits = logits,
                                   .workspace = workspace};
    kernels->dense_loss(&call);
    for (int64_t row = 0; row < data.n_rows; row++) {
        const float *own = logits + row * of->classes;
        int32_t best = 0;
        for (int32_t c = 0; c < of->classes; c++) {
            double wanted_logit = (double)data.bias[c];
            for (int32_t i = 0; i < of->width; i++) {
                wanted_logit += (double)data.x[row * of->width + i] *
                                (double)data.w[(int64_t)c * of->width + i];
            }
            cr_assert_float_eq((double)own[c], wanted_logit, 1e-5, "%s", kernels->isa);
            best = own[c] > own[best] ? c : best;
        }
        if (data.labels[row] != DUNLIN_NO_LABEL) {
            wanted[data.labels[row] * of->classes + best]++;
        }
    }
    call.logits = NULL;
    call.confusion = counts;
    kernels->dense_loss(&call);
    cr_expect_eq(memcmp(counts, wanted, sizeof counts), 0, "%s", kernels->isa);
    cr_expect(buffer_is_intact(logits));
    buffer_free(logits);
    buffer_free(workspace);
    close_data(&data);
}

Test(dense_loss, logits_and_counts)
{
    each_isa(check_logits);
}
