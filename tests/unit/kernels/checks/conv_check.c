/*
 * conv_check.c - convolutions at random and how they are run and compared.
 */
#include "conv_check.h"

#include "random.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int32_t pick(uint64_t *state, const int32_t *from, uint64_t n)
{
    return from[test_random_below(state, n)];
}

static int32_t below(uint64_t *state, int32_t n)
{
    return (int32_t)test_random_below(state, (uint64_t)n);
}

conv_recipe conv_recipe_random(uint64_t *state)
{
    static const int32_t channels[] = {1, 2, 3, 5, 8, 16, 17, 24, 33, 50};
    static const int32_t kernels[] = {1, 1, 2, 3, 3, 5, 7};
    static const int32_t strides[] = {1, 1, 2, 3};
    conv_recipe r = {.in_c = pick(state, channels, 10),
                     .out_c = pick(state, channels, 10),
                     .kernel_h = pick(state, kernels, 7),
                     .kernel_w = pick(state, kernels, 7),
                     .stride_h = pick(state, strides, 4),
                     .stride_w = pick(state, strides, 4),
                     .dilation_h = 1 + below(state, 2),
                     .dilation_w = 1 + below(state, 2),
                     .groups = 1,
                     .n = 1 + below(state, 5)};
    const int32_t reach_h = (r.kernel_h - 1) * r.dilation_h + 1;
    const int32_t reach_w = (r.kernel_w - 1) * r.dilation_w + 1;
    r.pad_top = below(state, reach_h);
    r.pad_left = below(state, reach_w);
    r.pad_bottom = below(state, reach_h);
    r.pad_right = below(state, reach_w);
    const int32_t most = below(state, 4) == 0 ? 28 : 9;
    r.in_h = 1 + below(state, most);
    r.in_w = 1 + below(state, most);
    r.in_h = r.in_h + r.pad_top + r.pad_bottom < reach_h ? reach_h : r.in_h;
    r.in_w = r.in_w + r.pad_left + r.pad_right < reach_w ? reach_w : r.in_w;
    switch (below(state, 5)) {
    case 0: /* depthwise */
        r.groups = r.in_c;
        r.out_c = r.in_c;
        break;
    case 1: /* depthwise with a multiplier */
        r.groups = r.in_c;
        r.out_c = 2 * r.in_c;
        break;
    case 2: /* grouped */
        r.groups = 2;
        r.in_c *= 2;
        r.out_c *= 2;
        break;
    default:
        break;
    }
    return r;
}

const char *conv_recipe_text(const conv_recipe *r, char *text, size_t size)
{
    (void)snprintf(text, size,
                   "n %d in %dx%dx%d out_c %d kernel %dx%d stride %dx%d pad %d,%d,%d,%d dilation "
                   "%dx%d groups %d",
                   (int)r->n, r->in_h, r->in_w, r->in_c, r->out_c, r->kernel_h, r->kernel_w,
                   r->stride_h, r->stride_w, r->pad_top, r->pad_left, r->pad_bottom, r->pad_right,
                   r->dilation_h, r->dilation_w, r->groups);
    return text;
}

static int32_t out_size(int32_t in, int32_t pads, int32_t kernel, int32_t dilation, int32_t stride)
{
    return (in + pads - (kernel - 1) * dilation - 1) / stride + 1;
}

void conv_data_open(conv_data *data, const conv_recipe *r, uint64_t *state)
{
    data->shape = (dunlin_conv_shape){
        .in_h = r->in_h,
        .in_w = r->in_w,
        .in_c = r->in_c,
        .out_h =
            out_size(r->in_h, r->pad_top + r->pad_bottom, r->kernel_h, r->dilation_h, r->stride_h),
        .out_w =
            out_size(r->in_w, r->pad_left + r->pad_right, r->kernel_w, r->dilation_w, r->stride_w),
        .out_c = r->out_c,
        .kernel_h = r->kernel_h,
        .kernel_w = r->kernel_w,
        .stride_h = r->stride_h,
        .stride_w = r->stride_w,
        .pad_top = r->pad_top,
        .pad_left = r->pad_left,
        .dilation_h = r->dilation_h,
        .dilation_w = r->dilation_w,
        .groups = r->groups,
    };
    data->n = r->n;
    data->n_x = reference_conv_x_count(&data->shape);
    data->n_y = reference_conv_y_count(&data->shape);
    data->n_w = reference_conv_w_count(&data->shape);
    data->x = buffer_random(r->n * data->n_x, state);
    data->w = buffer_random(data->n_w, state);
    data->bias = buffer_random(r->out_c, state);
    data->dy = buffer_random(r->n * data->n_y, state);
}

void conv_data_close(conv_data *data)
{
    buffer_free(data->x);
    buffer_free(data->w);
    buffer_free(data->bias);
    buffer_free(data->dy);
}

static float *workspace_for(const dunlin_kernels *kernels, const conv_data *data,
                            dunlin_conv_pass pass, dunlin_threads *threads)
{
    size_t n_threads = dunlin__threads_count(threads);
    size_t bytes = kernels->conv_workspace_bytes(&data->shape, pass, n_threads);
    return buffer_new((int64_t)((bytes + 3) / 4));
}

static void run_pass(const dunlin_kernels *kernels, const conv_data *data, dunlin_conv_pass pass,
                     dunlin_conv_call *call)
{
    float *workspace = workspace_for(kernels, data, pass, call->threads);
    call->workspace = workspace;
    switch (pass) {
    case DUNLIN_CONV_FORWARD:
        kernels->conv_forward(call);
        break;
    case DUNLIN_CONV_INPUT_GRAD:
        kernels->conv_input_grad(call);
        break;
    case DUNLIN_CONV_WEIGHT_GRAD:
        kernels->conv_weight_grad(call);
        break;
    }
    cr_assert(buffer_is_intact(workspace), "%s: pass %d wrote outside its workspace", kernels->isa,
              (int)pass);
    buffer_free(workspace);
}

void conv_run(const dunlin_kernels *kernels, const conv_data *data, int64_t slice,
              dunlin_threads *threads, conv_results *r)
{
    r->y = buffer_new(data->n * data->n_y);
    r->dx = buffer_new(data->n * data->n_x);
    r->dw = buffer_new(data->n_w);
    r->db = buffer_new(data->shape.out_c);
    for (int64_t first = 0; first < data->n; first += slice) {
        const int64_t n = data->n - first < slice ? data->n - first : slice;
        const float *x = data->x + first * data->n_x;
        const float *dy = data->dy + first * data->n_y;
        dunlin_conv_call forward = {.shape = &data->shape,
                                    .n_samples = n,
                                    .x = x,
                                    .w = data->w,
                                    .bias = data->bias,
                                    .out = r->y + first * data->n_y,
                                    .threads = threads};
        run_pass(kernels, data, DUNLIN_CONV_FORWARD, &forward);
        dunlin_conv_call input = {.shape = &data->shape,
                                  .n_samples = n,
                                  .w = data->w,
                                  .dy = dy,
                                  .out = r->dx + first * data->n_x,
                                  .threads = threads};
        run_pass(kernels, data, DUNLIN_CONV_INPUT_GRAD, &input);
        dunlin_conv_call weight = {.shape = &data->shape,
                                   .n_samples = n,
                                   .x = x,
                                   .dy = dy,
                                   .out = r->dw,
                                   .out_bias = r->db,
                                   .is_reset = first == 0,
                                   .threads = threads};
        run_pass(kernels, data, DUNLIN_CONV_WEIGHT_GRAD, &weight);
    }
    cr_assert(buffer_is_intact(r->y) && buffer_is_intact(r->dx) && buffer_is_intact(r->dw) &&
                  buffer_is_intact(r->db),
              "%s: wrote outside an output", kernels->isa);
}

void conv_results_free(conv_results *results)
{
    buffer_free(results->y);
    buffer_free(results->dx);
    buffer_free(results->dw);
    buffer_free(results->db);
}

/* Of a chain of so many products; its error grows as a random walk, with room to spare. */
static double factor_of(double products)
{
    return 4.0 + 2.0 * sqrt(products);
}

const char *conv_compare(const conv_data *data, const conv_results *results)
{
    const dunlin_conv_shape *shape = &data->shape;
    const int64_t n = data->n;
    double *x = buffer_doubles(data->x, n * data->n_x);
    double *w = buffer_doubles(data->w, data->n_w);
    double *bias = buffer_doubles(data->bias, shape->out_c);
    double *dy = buffer_doubles(data->dy, n * data->n_y);
    int64_t most = n * (data->n_x + data->n_y) + data->n_w + shape->out_c;
    double *out = buffer_doubles(NULL, most);
    double *size = buffer_doubles(NULL, most);
    const double taps = (double)shape->kernel_h * shape->kernel_w;
    const double depth = taps * shape->in_c / shape->groups;
    const double back = taps * shape->out_c / shape->groups;
    const double pixels = (double)n * shape->out_h * shape->out_w;
    const char *wrong = NULL;
    reference_conv_forward(shape, n, x, w, bias, out, size);
    if (buffer_first_wrong(results->y, out, size, factor_of(depth), n * data->n_y) >= 0) {
        wrong = "forward";
    }
    reference_conv_input_grad(shape, n, w, dy, out, size);
    if (buffer_first_wrong(results->dx, out, size, factor_of(back), n * data->n_x) >= 0) {
        wrong = "input gradient";
    }
    reference_conv_weight_grad(shape, n, x, dy, out, size);
    if (buffer_first_wrong(results->dw, out, size, factor_of(pixels), data->n_w) >= 0) {
        wrong = "weight gradient";
    }
    reference_bias_grad(shape, n, dy, out, size);
    if (buffer_first_wrong(results->db, out, size, factor_of(pixels), shape->out_c) >= 0) {
        wrong = "bias gradient";
    }
    double *all[] = {x, w, bias, dy, out, size};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
    return wrong;
}

const char *conv_bits_differ(const conv_data *data, const conv_results *a, const conv_results *b)
{
    if (!buffer_same_bits(a->y, b->y, data->n * data->n_y)) {
        return "forward";
    }
    if (!buffer_same_bits(a->dx, b->dx, data->n * data->n_x)) {
        return "input gradient";
    }
    if (!buffer_same_bits(a->dw, b->dw, data->n_w)) {
        return "weight gradient";
    }
    return buffer_same_bits(a->db, b->db, data->shape.out_c) ? NULL : "bias gradient";
}
