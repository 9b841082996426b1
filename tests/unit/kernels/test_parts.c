/*
 * test_parts.c - sums of products whose chain ends every 64 steps of depth: each engine's elements
 * beside a plain loop, to the bit, so that engines agree and no chain is longer.
 */
#include "checks/conv_check.h"
#include "random.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

TestSuite(parts, .timeout = 900);

#define CHAIN 64
#define ELEMENTS 1500 /* of a result that are looked at, about */

/* A sum of products in the order of the depth. */
typedef struct parts_sum {
    bool is_fused;
    int64_t n; /* products of the chain that has not ended */
    float chain, total;
    bool has_total;
} parts_sum;

static parts_sum sum_from(const dunlin_kernels *kernels, float first)
{
    const bool is_fused = strcmp(kernels->isa, "sse2") != 0 && strcmp(kernels->isa, "generic") != 0;
    return (parts_sum){.is_fused = is_fused, .chain = first};
}

static void end_chain(parts_sum *s)
{
    s->total = s->has_total ? s->total + s->chain : s->chain;
    s->has_total = true;
    s->chain = 0.0F;
    s->n = 0;
}

static void add(parts_sum *s, float a, float b)
{
    if (s->n == CHAIN) {
        end_chain(s);
    }
    if (s->is_fused) {
        s->chain = fmaf(a, b, s->chain);
    } else {
        const volatile float product = a * b;
        const volatile float sum = s->chain + product;
        s->chain = sum;
    }
    s->n++;
}

static float value_of(const parts_sum *s)
{
    return s->has_total ? s->total + s->chain : s->chain;
}

static int64_t step_of(int64_t n)
{
    return 1 + n / ELEMENTS;
}

/* --- convolutions --- */

typedef struct parts_case {
    conv_recipe recipe;
    int64_t block; /* of the depth that is taken at once, where that is less than all of it: chains
                      begin anew with it */
} parts_case;

/* Output i of the batch. */
static float output_of(const dunlin_kernels *kernels, const parts_case *of, const conv_data *data,
                       int64_t i)
{
    const dunlin_conv_shape *s = &data->shape;
    const int64_t channels = s->in_c / s->groups;
    const int64_t out = i % s->out_c;
    const int64_t pixel = i / s->out_c;
    const int64_t sample = pixel / s->out_w / s->out_h;
    const int64_t group = out / (s->out_c / s->groups);
    parts_sum sum = sum_from(kernels, data->bias[out]);
    for (int64_t k = 0; k < channels * s->kernel_h * s->kernel_w; k++) {
        const int64_t tap = k / channels;
        const int64_t y = pixel / s->out_w % s->out_h * s->stride_h - s->pad_top +
                          tap / s->kernel_w * s->dilation_h;
        const int64_t x =
            pixel % s->out_w * s->stride_w - s->pad_left + tap % s->kernel_w * s->dilation_w;
        const bool is_inside = y >= 0 && y < s->in_h && x >= 0 && x < s->in_w;
        const int64_t at =
            ((sample * s->in_h + y) * s->in_w + x) * s->in_c + group * channels + k % channels;
        if (of->block > 0 && k > 0 && k % of->block == 0) {
            end_chain(&sum);
        }
        add(&sum, is_inside ? data->x[at] : 0.0F, data->w[k * s->out_c + out]);
    }
    return value_of(&sum);
}

/* Forward: few rows, whose weights are read as they lie, and more of them; many; windows, in one
 * block of the depth and in two; along one axis; groups. */
static const parts_case forward[] = {
    {{1, 1, 640, 40, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 5}, 0},
    {{1, 1, 1000, 40, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 50}, 0},
    {{8, 8, 1100, 130, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 2}, 0},
    {{9, 9, 100, 24, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 3}, 0},
    {{5, 5, 100, 24, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 2}, 0},
    {{9, 9, 250, 20, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 3}, 1500},
    {{5, 5, 250, 20, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 2}, 1500},
    {{1, 64, 128, 50, 1, 5, 1, 1, 0, 2, 0, 2, 1, 1, 1, 2}, 0},
    {{6, 6, 400, 60, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 2, 2}, 0},
};

static void check_outputs(const dunlin_kernels *kernels)
{
    char text[200];
    for (size_t c = 0; c < sizeof forward / sizeof forward[0]; c++) {
        uint64_t state = c + 1;
        conv_data data;
        conv_results results;
        conv_data_open(&data, &forward[c].recipe, &state);
        conv_run(kernels, &data, data.n, NULL, &results);
        const int64_t n = data.n * data.n_y;
        for (int64_t i = 0; i < n; i += step_of(n)) {
            const float expected = output_of(kernels, &forward[c], &data, i);
            cr_assert(buffer_same_bits(&results.y[i], &expected, 1),
                      "%s: %s: output %lld: %a, not %a", kernels->isa,
                      conv_recipe_text(&forward[c].recipe, text, sizeof text), (long long)i,
                      (double)results.y[i], (double)expected);
        }
        conv_results_free(&results);
        conv_data_close(&data);
    }
}

Test(parts, outputs_end_their_chains)
{
    each_isa(check_outputs);
}

/* Input gradients of pointwise ones: of few rows, of more, of many; and with the weights' in one
 * pass, whose depth lies in panels: of full width and a narrower one, and in very many. */
static const conv_recipe backward[] = {
    {1, 1, 50, 700, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},
    {1, 1, 100, 700, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 200},
    {8, 8, 130, 1100, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 2},
    {7, 7, 40, 700, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},
    {7, 7, 40, 256, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},
    {8, 8, 40, 5000, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1},
};

/* With both gradients asked for at once. */
static float *run_both(const dunlin_kernels *kernels, const conv_data *data)
{
    const uint32_t uses = DUNLIN_FUSED_INPUT_GRAD | DUNLIN_FUSED_WEIGHT_GRAD;
    uint64_t sample_bytes = 0;
    const uint64_t bytes = kernels->fused_workspace_bytes(&data->shape, uses, 1, &sample_bytes);
    float *workspace = buffer_new((int64_t)((bytes + (uint64_t)data->n * sample_bytes + 3) / 4));
    float *dx = buffer_new(data->n * data->n_x);
    float *dw = buffer_new(data->n_w);
    const dunlin_fused_call call = {.shape = &data->shape,
                                    .n_samples = data->n,
                                    .x = {.x = data->x, .pitch = data->shape.in_c},
                                    .w = data->w,
                                    .low = -INFINITY,
                                    .high = INFINITY,
                                    .dy = {.g = data->dy, .pitch = data->shape.out_c},
                                    .dw = dw,
                                    .dx = {.out = dx, .pitch = data->shape.in_c},
                                    .is_reset = true,
                                    .workspace = workspace};
    kernels->fused_backward(&call);
    cr_assert(buffer_is_intact(workspace) && buffer_is_intact(dx) && buffer_is_intact(dw),
              "%s: wrote outside", kernels->isa);
    buffer_free(workspace);
    buffer_free(dw);
    return dx;
}

static float gradient_of(const dunlin_kernels *kernels, const conv_data *data, int64_t i)
{
    const int64_t depth = data->shape.out_c;
    const float *dy = data->dy + i / data->shape.in_c * depth;
    const float *w = data->w + i % data->shape.in_c * depth;
    parts_sum sum = sum_from(kernels, 0.0F);
    for (int64_t k = 0; k < depth; k++) {
        add(&sum, dy[k], w[k]);
    }
    return value_of(&sum);
}

static void check_gradients(const dunlin_kernels *kernels)
{
    char text[200];
    for (size_t c = 0; c < sizeof backward / sizeof backward[0]; c++) {
        uint64_t state = c + 1;
        conv_data data;
        conv_results results;
        conv_data_open(&data, &backward[c], &state);
        conv_run(kernels, &data, data.n, NULL, &results);
        float *both = run_both(kernels, &data);
        const int64_t n = data.n * data.n_x;
        (void)conv_recipe_text(&backward[c], text, sizeof text);
        for (int64_t i = 0; i < n; i += step_of(n)) {
            const float expected = gradient_of(kernels, &data, i);
            cr_assert(buffer_same_bits(&results.dx[i], &expected, 1), "%s: %s: dx %lld: %a, not %a",
                      kernels->isa, text, (long long)i, (double)results.dx[i], (double)expected);
        }
        cr_assert(buffer_same_bits(both, results.dx, n), "%s: %s: both gradients at once",
                  kernels->isa, text);
        buffer_free(both);
        conv_results_free(&results);
        conv_data_close(&data);
    }
}

Test(parts, input_gradients_end_their_chains)
{
    each_isa(check_gradients);
}

/* --- products of matrices --- */

static void check_product(const dunlin_kernels *kernels, const dunlin_matmul_shape *s)
{
    uint64_t state = (uint64_t)s->k;
    float *a = buffer_random(s->m * s->k, &state);
    float *b = buffer_random(s->k * s->n, &state);
    float *out = buffer_new(s->m * s->n);
    float *workspace = buffer_new((int64_t)(kernels->matmul_workspace_bytes(s, 1) / 4));
    const dunlin_matmul_call call = {
        .shape = s, .n_samples = 1, .a = a, .b = b, .out = out, .workspace = workspace};
    kernels->matmul(&call);
    cr_assert(buffer_is_intact(workspace) && buffer_is_intact(out));
    for (int64_t i = 0; i < s->m * s->n; i += step_of(s->m * s->n)) {
        const int64_t row = i / s->n;
        const int64_t column = i % s->n;
        parts_sum sum = sum_from(kernels, 0.0F);
        for (int64_t k = 0; k < s->k; k++) {
            add(&sum, s->is_a_transposed ? a[k * s->m + row] : a[row * s->k + k],
                s->is_b_transposed ? b[column * s->k + k] : b[k * s->n + column]);
        }
        const float expected = value_of(&sum);
        cr_assert(buffer_same_bits(&out[i], &expected, 1),
                  "%s: depth %lld, element %lld: %a, not %a", kernels->isa, (long long)s->k,
                  (long long)i, (double)out[i], (double)expected);
    }
    buffer_free(a);
    buffer_free(b);
    buffer_free(out);
    buffer_free(workspace);
}

static void check_products(const dunlin_kernels *kernels)
{
    static const dunlin_matmul_shape shapes[] = {{1, 20, 30, 600, false, false},
                                                 {1, 20, 30, 385, true, false},
                                                 {1, 7, 50, 256, false, true},
                                                 {1, 33, 5, 129, true, true}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        check_product(kernels, &shapes[i]);
    }
}

Test(parts, products_of_matrices_end_their_chains)
{
    each_isa(check_products);
}

/* --- a layer with its loss --- */

enum { ROWS = 40, WIDTH = 1200, CLASSES = 300 };

/* Of all rows by all classes: what softmax_loss() makes of the logits. */
static void loss_gradients(const dunlin_kernels *kernels, const dunlin_loss_call *loss,
                           const float *logits, float *dlogits)
{
    dunlin_loss_call call = *loss;
    call.logits = logits;
    call.dlogits = dlogits;
    kernels->softmax_loss(&call);
}

static void check_layer_loss(const dunlin_kernels *kernels)
{
    uint64_t state = 3;
    int32_t labels[ROWS];
    for (int32_t i = 0; i < ROWS; i++) {
        labels[i] = i * 7;
    }
    const dunlin_dense_loss_shape shape = {1, WIDTH, CLASSES};
    float *x = buffer_random((int64_t)ROWS * WIDTH, &state);
    float *w = buffer_random((int64_t)CLASSES * WIDTH, &state);
    float *bias = buffer_random(CLASSES, &state);
    float *logits = buffer_new((int64_t)ROWS * CLASSES);
    float *dlogits = buffer_new((int64_t)ROWS * CLASSES);
    float *dx = buffer_new((int64_t)ROWS * WIDTH);
    float *workspace = buffer_new((int64_t)(kernels->dense_loss_workspace_bytes(&shape, 1) / 4));
    dunlin_dense_loss_call call = {
        .shape = &shape,
        .x = x,
        .w = w,
        .bias = bias,
        .loss = {.classes = CLASSES, .n_rows = ROWS, .labels = labels, .scale = 1.0F / ROWS},
        .logits = logits,
        .workspace = workspace};
    kernels->dense_loss(&call);
    loss_gradients(kernels, &call.loss, logits, dlogits);
    call.logits = NULL;
    call.dx = dx;
    kernels->dense_loss(&call);
    for (int64_t i = 0; i < ROWS * CLASSES; i += step_of((int64_t)ROWS * CLASSES)) {
        parts_sum sum = sum_from(kernels, bias[i % CLASSES]);
        for (int64_t k = 0; k < WIDTH; k++) {
            add(&sum, w[i % CLASSES * WIDTH + k], x[i / CLASSES * WIDTH + k]);
        }
        const float expected = value_of(&sum);
        cr_assert(buffer_same_bits(&logits[i], &expected, 1), "%s: logit %lld", kernels->isa,
                  (long long)i);
    }
    for (int64_t i = 0; i < ROWS * WIDTH; i += step_of((int64_t)ROWS * WIDTH)) {
        parts_sum sum = sum_from(kernels, 0.0F);
        for (int64_t c = 0; c < CLASSES; c++) {
            add(&sum, dlogits[i / WIDTH * CLASSES + c], w[c * WIDTH + i % WIDTH]);
        }
        const float expected = value_of(&sum);
        cr_assert(buffer_same_bits(&dx[i], &expected, 1), "%s: dx %lld", kernels->isa,
                  (long long)i);
    }
    float *all[] = {x, w, bias, logits, dlogits, dx, workspace};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        cr_expect(buffer_is_intact(all[i]));
        buffer_free(all[i]);
    }
}

Test(parts, a_layer_with_its_loss_ends_its_chains)
{
    each_isa(check_layer_loss);
}
