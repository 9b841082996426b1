/*
 * test_ops.c - each operator, forward and backward, against PyTorch in float64.
 *
 * The operator stands behind an identity layer, which is exact and makes it compute the gradient of
 * its input; the loss's gradient is replaced by the golden one. Errors are measured in units of
 * eps x the sum of |a||b| over the terms of each number, which the files hold.
 */
#include "golden.h"
#include "net_make.h"
#include "plain_run.h"

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_UNITS 4.0 /* of FLT_EPSILON x bound */

static golden file;
static dunlin_net net;

static void open_all(void)
{
    golden_open(&file, "ops.golden");
    dunlin__net_init(&net, NULL);
}

static void close_all(void)
{
    golden_close(&file);
    dunlin__net_free(&net);
}

TestSuite(golden_ops, .init = open_all, .fini = close_all);

/* Where element i of an array (samples, channels, rows, columns) lies channels-last. */
static int64_t inner_element(const dunlin_shape *shape, int64_t i)
{
    if (shape->n_dims != 4) {
        return i;
    }
    int64_t c = shape->dims[1];
    int64_t pixels = shape->dims[2] * shape->dims[3];
    return (i / (c * pixels) * pixels + i % pixels) * c + i / pixels % c;
}

/* `inner`: the numbers are an activation of the library, images channels-last. */
static void compare(const char *name, const char *part, const float *found, bool is_activation,
                    const char *isa)
{
    char bound_part[40];
    snprintf(bound_part, sizeof bound_part, "%s.bound", part);
    const golden_array *wanted = golden_find(&file, name, part);
    cr_assert_not_null(wanted, "no %s/%s", name, part);
    const double *values = golden_doubles(&file, name, part);
    const float *bounds = golden_floats(&file, name, bound_part);
    for (int64_t i = 0; i < wanted->n; i++) {
        double value = (double)found[is_activation ? inner_element(&wanted->shape, i) : i];
        double limit = MAX_UNITS * (double)FLT_EPSILON * (double)bounds[i];
        cr_assert(fabs(value - values[i]) <= limit, "%s: %s/%s[%lld] is %.9g, not %.9g +- %.2g",
                  isa, name, part, (long long)i, value, values[i], limit);
    }
}

/* The input behind a layer that changes nothing; the op's own parameters start at index 1. */
static uint32_t begin(const char *name)
{
    const dunlin_shape *shape = &golden_find(&file, name, "x")->shape;
    if (shape->n_dims == 2) {
        uint32_t x = make_input(&net, shape->dims[1], 0, 0);
        return make_dense(&net, x, shape->dims[1], false);
    }
    uint32_t x = make_input(&net, shape->dims[1], shape->dims[2], shape->dims[3]);
    return make_conv(&net, x, (int32_t)shape->dims[1], &(dunlin_net_conv){0}, false);
}

static void set_params(plain_run *plain, const char *name)
{
    static const char *const parts[] = {NULL, "weight", "bias"};
    for (uint32_t p = 0; p < net.n_params; p++) {
        const dunlin_net_param *param = &net.params[p];
        if (p > 0 && p < 3) {
            plain_run_set_param(plain, p, golden_floats(&file, name, parts[p]));
            continue;
        }
        float *values = calloc((size_t)param->n_elements, sizeof *values);
        for (int64_t i = 0; p == 0 && i < param->n_elements; i += param->shape.dims[1] + 1) {
            values[i] = 1.0F; /* the identity; what is behind the bias are running statistics */
        }
        plain_run_set_param(plain, p, values);
        free(values);
    }
}

typedef struct examples {
    const float *x;
    int64_t width;
} examples;

static dunlin_status read_examples(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    const examples *e = ctx;
    for (int64_t i = 0; i < n; i++) {
        memcpy((float *)out_x + i * e->width, e->x + indices[i] * e->width,
               (size_t)e->width * sizeof(float));
        out_y[i] = 0;
    }
    return DUNLIN_OK;
}

static void check_on(const char *name, uint32_t x, uint32_t y, const dunlin_kernels *kernels)
{
    const golden_array *input = golden_find(&file, name, "x");
    int64_t n = input->shape.dims[0];
    examples data = {input->data, input->n / n};
    dunlin_source source = {
        .ctx = &data, .read_fn = read_examples, .n_examples = n, .dtype = DUNLIN_F32};
    dunlin_error error = {0};
    plain_run plain;
    dunlin_step_build_options options = {.mode = DUNLIN_EMIT_TRAIN, .has_gradient_hook = true};
    dunlin_status status = plain_run_open(&plain, &net, &options, n, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    set_params(&plain, name);
    plain.logits_gradient = golden_floats(&file, name, "dy");
    dunlin_step_run run = {.kernels = kernels,
                           .source = &source,
                           .n_batch = n,
                           .weight_sum = (double)n,
                           .error = &error};
    status = plain_run_step(&plain, &run);
    cr_assert(status == DUNLIN_OK, "%s", error.text);

    char gradient[64];
    snprintf(gradient, sizeof gradient, "%s/grad", net.values[x].name);
    uint32_t out = plain_run_find(&plain, net.values[y].name);
    uint32_t dx = plain_run_find(&plain, gradient);
    cr_assert(out != DUNLIN_STEP_NONE && dx != DUNLIN_STEP_NONE);
    compare(name, "y", plain.tensors[out], true, kernels->isa);
    compare(name, "dx", plain.tensors[dx], true, kernels->isa);
    if (net.n_params > 1) {
        compare(name, "dweight", plain.gradients[1], false, kernels->isa);
    }
    if (golden_find(&file, name, "bias") != NULL) {
        compare(name, "dbias", plain.gradients[2], false, kernels->isa);
    }
    plain_run_close(&plain);
}

static void check(const char *name, uint32_t x, uint32_t y)
{
    bool is_row = net.values[y].layout == DUNLIN_LAYOUT_PLAIN;
    make_end(&net, is_row ? y : make_flatten(&net, y));
    for (int i = 0; dunlin__kernels_isa(i) != NULL; i++) {
        check_on(name, x, y, dunlin__kernels_select(dunlin__kernels_isa(i)));
    }
}

static void check_conv(const char *name, const dunlin_net_conv *conv)
{
    uint32_t x = begin(name);
    const golden_array *weight = golden_find(&file, name, "weight");
    dunlin_net_conv full = *conv;
    full.kernel_h = (int32_t)weight->shape.dims[2];
    full.kernel_w = (int32_t)weight->shape.dims[3];
    check(name, x,
          make_conv(&net, x, (int32_t)weight->shape.dims[0], &full,
                    golden_find(&file, name, "bias") != NULL));
}

Test(golden_ops, conv)
{
    check_conv("conv",
               &(dunlin_net_conv){.stride_h = 2, .pad_top = 1, .pad_left = 1, .pad_right = 1});
}

Test(golden_ops, conv_dilated)
{
    check_conv(
        "conv_dilated",
        &(dunlin_net_conv){
            .dilation_h = 2, .dilation_w = 3, .pad_top = 2, .pad_bottom = 1, .pad_right = 1});
}

static const dunlin_net_conv padded = {
    .pad_top = 1, .pad_left = 1, .pad_bottom = 1, .pad_right = 1};

Test(golden_ops, conv_grouped)
{
    dunlin_net_conv conv = padded;
    conv.groups = 2;
    check_conv("conv_grouped", &conv);
}

Test(golden_ops, conv_depthwise)
{
    dunlin_net_conv conv = padded;
    conv.groups = 5;
    conv.stride_h = 2;
    conv.stride_w = 2;
    check_conv("conv_depthwise", &conv);
}

Test(golden_ops, dense)
{
    uint32_t x = begin("dense");
    check("dense", x, make_dense(&net, x, 7, true));
}

Test(golden_ops, batch_norm)
{
    uint32_t x = begin("batch_norm");
    check("batch_norm", x, make_batch_norm(&net, x));
}

Test(golden_ops, batch_norm_rows)
{
    uint32_t x = begin("batch_norm_rows");
    check("batch_norm_rows", x, make_batch_norm(&net, x));
}

Test(golden_ops, relu)
{
    uint32_t x = begin("relu");
    check("relu", x, make_clip(&net, x, 0.0F, HUGE_VALF));
}

Test(golden_ops, relu6)
{
    uint32_t x = begin("relu6");
    check("relu6", x, make_clip(&net, x, 0.0F, 6.0F));
}

static void check_pool(const char *name, dunlin_op_kind kind, const dunlin_net_pool *pool)
{
    uint32_t x = begin(name);
    check(name, x, make_pool(&net, x, kind, pool));
}

Test(golden_ops, max_pool)
{
    check_pool("max_pool", DUNLIN_OP_MAX_POOL,
               &(dunlin_net_pool){3, 3, 2, 2, 1, 1, 1, 1, false, false});
}

Test(golden_ops, max_pool_ceil)
{
    check_pool("max_pool_ceil", DUNLIN_OP_MAX_POOL,
               &(dunlin_net_pool){2, 3, 2, 2, 0, 0, 0, 0, true, false});
}

Test(golden_ops, average_pool)
{
    check_pool("average_pool", DUNLIN_OP_AVERAGE_POOL,
               &(dunlin_net_pool){3, 3, 2, 2, 1, 1, 1, 1, false, false});
}

Test(golden_ops, average_pool_padded)
{
    check_pool("average_pool_padded", DUNLIN_OP_AVERAGE_POOL,
               &(dunlin_net_pool){3, 3, 2, 2, 1, 1, 1, 1, true, true});
}

Test(golden_ops, global_average_pool)
{
    uint32_t x = begin("global_average_pool");
    check("global_average_pool", x, make_global_pool(&net, x));
}
