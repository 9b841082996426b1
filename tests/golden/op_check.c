/*
 * op_check.c - see op_check.h.
 *
 * The operator follows an identity layer, which is exact and makes it compute the gradient of its
 * input; the loss's gradient is replaced by the golden one.
 */
#include "op_check.h"

#include "step/net_make.h"
#include "step/plain_run.h"

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_UNITS 4.0 /* of FLT_EPSILON x bound */

static golden file;
static dunlin_net net;
static dunlin_step_build_options options;
static uint32_t first; /* the operator's own parameter: after that of the identity */

dunlin_net *op_check_open(const char *file_name)
{
    golden_open(&file, file_name);
    dunlin__net_init(&net, NULL);
    first = 1;
    options = (dunlin_step_build_options){.mode = DUNLIN_EMIT_TRAIN, .has_gradient_hook = true};
    return &net;
}

void op_check_close(void)
{
    golden_close(&file);
    dunlin__net_free(&net);
}

dunlin_step_build_options *op_check_options(void)
{
    return &options;
}

const golden_array *op_check_find(const char *case_name, const char *part)
{
    return golden_find(&file, case_name, part);
}

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

uint32_t op_check_begin(const char *name)
{
    const dunlin_shape *shape = &golden_find(&file, name, "x")->shape;
    if (shape->n_dims == 2) {
        uint32_t x = make_input(&net, shape->dims[1], 0, 0);
        return make_dense(&net, x, shape->dims[1], false);
    }
    uint32_t x = make_input(&net, shape->dims[1], shape->dims[2], shape->dims[3]);
    return make_conv(&net, x, (int32_t)shape->dims[1], &(dunlin_net_conv){0}, false);
}

uint32_t op_check_begin_bare(const char *name)
{
    const dunlin_shape *shape = &golden_find(&file, name, "x")->shape;
    first = 0;
    return make_input(&net, shape->dims[1], 0, 0);
}

static void set_params(plain_run *plain, const char *name)
{
    static const char *const parts[] = {"weight", "bias", "mean", "variance"};
    for (uint32_t p = 0; p < net.n_params; p++) {
        const dunlin_net_param *param = &net.params[p];
        if (p >= first && p < first + 4 && golden_find(&file, name, parts[p - first]) != NULL) {
            plain_run_set_param(plain, p, golden_floats(&file, name, parts[p - first]));
            continue;
        }
        if (p >= first && dunlin__param_is_fixed(&net, p)) {
            static const char *const fixed[] = {"fixed", "cos", "sin"};
            const bool has_one = golden_find(&file, name, fixed[0]) != NULL;
            plain_run_set_param(plain, p,
                                golden_floats(&file, name, fixed[p - first + (has_one ? 0 : 1)]));
            continue;
        }
        float *values = calloc((size_t)param->n_elements, sizeof *values);
        for (int64_t i = 0; p < first && i < param->n_elements; i += param->shape.dims[1] + 1) {
            values[i] = 1.0F; /* the identity */
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

/* In a fused step what is only a view, or a part of another tensor, is seen in what follows it. */
static void compare_tensor(const plain_run *plain, const char *name, const char *part,
                           const char *tensor_name, const char *isa)
{
    const uint32_t tensor = plain_run_find(plain, tensor_name);
    cr_assert(tensor != DUNLIN_STEP_NONE || options.is_fused);
    if (tensor != DUNLIN_STEP_NONE && !plain->graph->tensors[tensor].is_part) {
        compare(name, part, plain->tensors[tensor], true, isa);
    }
}

static void check_on(const char *name, uint32_t x, uint32_t y, const dunlin_kernels *kernels)
{
    const golden_array *input = golden_find(&file, name, "x");
    int64_t n = input->shape.dims[0];
    examples data = {input->data, input->n / n};
    dunlin_source source = {.struct_size = sizeof(dunlin_source),
                            .ctx = &data,
                            .read_fn = read_examples,
                            .n_examples = n,
                            .dtype = DUNLIN_F32};
    dunlin_error error = {0};
    plain_run plain;
    dunlin_status status = plain_run_open(&plain, &net, &options, n, &error);
    cr_assert(status == DUNLIN_OK, "%s", error.text);
    set_params(&plain, name);
    plain.logits_gradient = golden_floats(&file, name, "dy");
    dunlin_step_run run = {.kernels = kernels,
                           .source = &source,
                           .n_batch = n,
                           .weight_sums = {(double)n},
                           .error = &error};
    status = plain_run_step(&plain, &run);
    cr_assert(status == DUNLIN_OK, "%s", error.text);

    char gradient[64];
    snprintf(gradient, sizeof gradient, "%s/grad", net.values[x].name);
    compare_tensor(&plain, name, "y", net.values[y].name, kernels->isa);
    if (golden_find(&file, name, "dx") != NULL) {
        compare_tensor(&plain, name, "dx", gradient, kernels->isa);
    }
    if (golden_find(&file, name, "weight") != NULL) {
        compare(name, "dweight", plain.gradients[first], false, kernels->isa);
    }
    if (golden_find(&file, name, "bias") != NULL) {
        compare(name, "dbias", plain.gradients[first + 1], false, kernels->isa);
    }
    plain_run_close(&plain);
}

void op_check(const char *name, uint32_t x, uint32_t y)
{
    const dunlin_net_value *value = &net.values[y];
    bool is_row = value->layout == DUNLIN_LAYOUT_PLAIN && value->shape.n_dims == 1;
    make_end(&net, is_row ? y : make_flatten(&net, y));
    for (int i = 0; dunlin__kernels_isa(i) != NULL; i++) {
        for (int is_fused = 0; is_fused < 2; is_fused++) {
            options.is_fused = is_fused != 0;
            check_on(name, x, y, dunlin__kernels_select(dunlin__kernels_isa(i)));
        }
    }
}
