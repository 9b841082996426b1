/*
 * product_grads.c - the backward pass of products: errors are rounded, sums of whole numbers are
 * taken over the batch and become gradients, and the error of the input is one more product.
 *
 * Invariant: the gradient of the weights comes first: after it the rounded input is dead.
 */
#include "ops/common/support.h"
#include "products.h"

#include <mem/checked.h>

/* A whole number for each element of a gradient, of so many products of the batch. */
static uint32_t emit_sums_tensor(dunlin_emit *emit, const char *suffix, int64_t n, bool is_wide)
{
    const uint32_t tensor = dunlin__emit_tensor(emit, suffix, is_wide ? DUNLIN_I64 : DUNLIN_I32,
                                                false, n, DUNLIN_MEM_ACCUMULATOR);
    if (emit->status == DUNLIN_OK) {
        emit->graph->tensors[tensor].follows_batch = true;
        emit->graph->follows_batch = true;
    }
    return tensor;
}

/* False: too many products for 32 bits. */
static bool fits_narrow(const dunlin_emit *emit, int64_t terms)
{
    const int64_t batch = emit->options->batch > 0 ? emit->options->batch : 1;
    int64_t n = 0;
    return dunlin__mul_i64(terms, batch, &n) && n <= DUNLIN_INT_MOST_TERMS;
}

/* Sums of a gradient, of pairs those of both halves, and the float32 that they become. */
typedef struct gradient_sums {
    uint32_t high, low, gradient;
} gradient_sums;

static void emit_close(dunlin_emit *emit, const dunlin_product_close_params *params,
                       const gradient_sums *weights, const gradient_sums *bias)
{
    dunlin_mem_access accesses[7] = {{emit->graph->sites, DUNLIN_MEM_READ, DUNLIN_MEM_FIXED}};
    const gradient_sums *const both[] = {params->has_weights ? weights : NULL,
                                         params->has_bias ? bias : NULL};
    uint32_t n = 1;
    for (int i = 0; i < 2; i++) {
        if (both[i] == NULL) {
            continue;
        }
        accesses[n++] = (dunlin_mem_access){both[i]->high, DUNLIN_MEM_READ, DUNLIN_MEM_FIXED};
        if (params->may_be_wide) {
            accesses[n++] = (dunlin_mem_access){both[i]->low, DUNLIN_MEM_READ, DUNLIN_MEM_FIXED};
        }
        accesses[n++] = (dunlin_mem_access){both[i]->gradient, DUNLIN_MEM_WRITE, DUNLIN_MEM_FIXED};
    }
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = &dunlin__product_gradient,
                                             .suffix = "/weight_grad",
                                             .params = params,
                                             .params_bytes = sizeof *params,
                                             .accesses = accesses,
                                             .n_accesses = n,
                                             .flops_fixed = 2.0 * (double)params->n_weights});
}

/* An op that sums, under construction. */
typedef struct sums_draft {
    dunlin_product_sums_params params;
    dunlin_mem_access accesses[8];
    uint32_t n;
} sums_draft;

static int32_t touch(sums_draft *draft, uint32_t tensor, dunlin_mem_mode mode)
{
    draft->accesses[draft->n] =
        (dunlin_mem_access){.tensor = tensor, .mode = (uint8_t)mode, .parts = DUNLIN_MEM_REDUCE};
    return (int32_t)draft->n++;
}

static uint32_t touch_sums(dunlin_emit *emit, sums_draft *draft, const char *suffix, int64_t n,
                           bool is_wide, int32_t *out_operand)
{
    const uint32_t tensor = emit_sums_tensor(emit, suffix, n, is_wide);
    *out_operand = touch(draft, tensor, DUNLIN_MEM_ACCUMULATE);
    return tensor;
}

/* One factor of each of a bias's terms is 1. */
static void check_bias(dunlin_emit *emit, int64_t terms)
{
    if (!fits_narrow(emit, (terms + DUNLIN_INT_MOST - 1) / DUNLIN_INT_MOST)) {
        (void)dunlin__emit_fail(emit, DUNLIN_OVERFLOW,
                                "the gradient of the bias is a sum over more than 16909320 pixels "
                                "of the batch");
    }
}

static void emit_gradients(dunlin_emit *emit, const dunlin_net_node *node,
                           const dunlin_conv_shape *shape, const dunlin_product_rounded *errors,
                           dunlin_product_close_params *close)
{
    const int64_t terms = (int64_t)shape->out_h * shape->out_w;
    const bool is_wide = !fits_narrow(emit, terms);
    gradient_sums weights = {DUNLIN_STEP_NONE, DUNLIN_STEP_NONE, DUNLIN_STEP_NONE};
    gradient_sums bias = weights;
    sums_draft draft = {.params = {.product = dunlin__product_begin(emit, shape),
                                   .sums_operand = -1,
                                   .bias_operand = -1,
                                   .low_operand = -1,
                                   .low_sums_operand = -1,
                                   .low_bias_operand = -1,
                                   .has_wide_sums = is_wide}};
    dunlin_product_sums_params *params = &draft.params;
    params->product.range = close->errors_range;
    close->has_wide_sums = is_wide;
    close->may_be_wide = errors->low != DUNLIN_STEP_NONE;
    (void)touch(&draft, dunlin__product_of(emit)->values, DUNLIN_MEM_READ);
    (void)touch(&draft, errors->tensor, DUNLIN_MEM_READ);
    if (close->has_weights) {
        weights.high = touch_sums(emit, &draft, "/weight_sums", close->n_weights, is_wide,
                                  &params->sums_operand);
    }
    if (close->has_bias) {
        check_bias(emit, terms);
        bias.high =
            touch_sums(emit, &draft, "/bias_sums", close->channels, false, &params->bias_operand);
    }
    if (close->may_be_wide) {
        params->low_operand = touch(&draft, errors->low, DUNLIN_MEM_READ);
        (void)touch(&draft, emit->graph->sites, DUNLIN_MEM_READ);
        if (close->has_weights) {
            weights.low = touch_sums(emit, &draft, "/low_weight_sums", close->n_weights, is_wide,
                                     &params->low_sums_operand);
        }
        if (close->has_bias) {
            bias.low = touch_sums(emit, &draft, "/low_bias_sums", close->channels, false,
                                  &params->low_bias_operand);
        }
    }
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = &dunlin__product_sums,
                                             .suffix = "/weight_sums",
                                             .params = params,
                                             .params_bytes = sizeof *params,
                                             .accesses = draft.accesses,
                                             .n_accesses = draft.n,
                                             .flops_per_sample = dunlin__product_flops(shape)});
    if (close->has_weights) {
        weights.gradient = dunlin__emit_param_grad(emit, node->params[0]);
    }
    if (close->has_bias) {
        bias.gradient = dunlin__emit_param_grad(emit, node->params[1]);
    }
    emit_close(emit, close, &weights, &bias);
}

static void emit_input_error(dunlin_emit *emit, const dunlin_net_node *node,
                             const dunlin_conv_shape *shape, const dunlin_product_rounded *errors)
{
    const dunlin_product *product = dunlin__product_of(emit);
    dunlin_product_params params = dunlin__product_begin(emit, shape);
    params.range = product->first_range + DUNLIN_PRODUCT_ERRORS;
    params.may_be_wide = errors->low != DUNLIN_STEP_NONE;
    const dunlin_mem_access accesses[] = {
        {errors->tensor, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {errors->units, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {product->weights, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {product->weights_unit, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_grad_target(emit, node->inputs[0]), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
        {errors->low, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {emit->graph->sites, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
    };
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = &dunlin__product_error,
                                             .suffix = "/input_grad",
                                             .params = &params,
                                             .params_bytes = sizeof params,
                                             .accesses = accesses,
                                             .n_accesses = params.may_be_wide ? 7 : 5,
                                             .flops_per_sample = dunlin__product_flops(shape)});
}

void dunlin__products_backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const dunlin_operands *operands = emit->products->precision->products;
    const bool is_by_channel = operands->weight_errors.is_by_channel;
    const dunlin_conv_shape shape = dunlin__product_shape(emit->net, node);
    const uint32_t first = dunlin__product_of(emit)->first_range;
    const uint32_t errors_range = first + DUNLIN_PRODUCT_ERRORS;
    dunlin_product_close_params close = {
        .values = &operands->values,
        .errors = is_by_channel ? &operands->weight_errors : &operands->errors,
        .values_range = first + DUNLIN_PRODUCT_VALUES,
        .errors_range = is_by_channel ? first + DUNLIN_PRODUCT_CHANNELS : errors_range,
        .n_weights = emit->net->params[node->params[0]].n_elements,
        .channels = shape.out_c,
        .has_constant_gradients = operands->has_constant_gradients,
        .param = node->params[0],
        .has_weights = dunlin__emit_is_trained(emit, node->params[0]),
        .has_bias =
            dunlin__op_has_param(node, 1) && dunlin__emit_is_trained(emit, node->params[1])};
    const bool has_gradient = close.has_weights || close.has_bias;
    const bool has_error = dunlin__emit_needs_grad(emit, node->inputs[0]);
    dunlin_product_rounding whole = {.operand = &operands->errors,
                                     .first_range = errors_range,
                                     .from = dunlin__emit_grad(emit, node->output),
                                     .rows_per_sample = (int64_t)shape.out_h * shape.out_w,
                                     .channels = shape.out_c,
                                     .suffix = "/errors",
                                     .mem_class = DUNLIN_MEM_GRADIENT};
    dunlin_product_rounded errors = {DUNLIN_STEP_NONE, DUNLIN_STEP_NONE, DUNLIN_STEP_NONE};
    if (has_gradient && is_by_channel) {
        dunlin_product_rounding channels = whole;
        channels.operand = close.errors;
        channels.first_range = close.errors_range;
        channels.suffix = "/channel_errors";
        errors = dunlin__product_emit_rounding(emit, &channels);
        emit_gradients(emit, node, &shape, &errors, &close);
    }
    if (has_error || (has_gradient && !is_by_channel)) {
        errors = dunlin__product_emit_rounding(emit, &whole);
    }
    if (has_gradient && !is_by_channel) {
        emit_gradients(emit, node, &shape, &errors, &close);
    }
    if (has_error) {
        emit_input_error(emit, node, &shape, &errors);
    }
}
