/*
 * linear.c - convolution and dense layers in integers: y = RoundShift(b + sum of x w).
 *
 * A bias is one int8 tensor with an exponent of its own, which each step brings to that of the sums
 * (up by BIAS_MAX_SHIFT at most, or down by RoundShift) and trains like a weight. NITI has none;
 * networks that people have do.
 * Invariant: a sum has at most DUNLIN_INT_MOST_TERMS products, and a bias is below 2^23, so nothing
 * wraps.
 */
#include "ops/common/support.h"
#include "rows.h"

#define BIAS_MAX_SHIFT 16

typedef struct linear_params {
    dunlin_integer_op op; /* first */
    dunlin_conv_shape shape;
    uint32_t bias_site; /* DUNLIN_STEP_NONE: there is no bias */
    int32_t bias_operand;
    int32_t sums_operand; /* weight gradient: -1: not wanted */
    float high;           /* forward: clipped to [0, high]; input gradient: masked by x, which lies
                             in there; 0: neither */
    uint32_t mask_site;   /* input gradient */
    bool has_wide_sums;
    int64_t n_weights;
    const dunlin_int_kernels *integers; /* whose workspace it is */
    int64_t batch;                      /* the most samples of a slice; 0: any number */
} linear_params;

static dunlin_conv_shape shape_of(const dunlin_net *net, const dunlin_net_node *node)
{
    return node->kind == DUNLIN_OP_CONV ? dunlin__op_conv_shape(net, node)
                                        : dunlin__op_dense_shape(net, node);
}

/* Workspace is aligned to 64 bytes, so what follows an aligned size is too. */
static uint64_t aligned(uint64_t bytes)
{
    return (bytes + 63) & ~(uint64_t)63;
}

static uint64_t pass_bytes(const linear_params *params, dunlin_conv_pass pass, size_t n_threads)
{
    return aligned(
        params->integers->conv_workspace_bytes(&params->shape, pass, params->batch, n_threads));
}

static uint64_t forward_bytes(const dunlin_kernels *kernels, const void *params, size_t n_threads,
                              uint64_t *out_sample_bytes)
{
    const linear_params *p = params;
    *out_sample_bytes = 0;
    const uint64_t bias =
        p->bias_site != DUNLIN_STEP_NONE ? (uint64_t)p->shape.out_c * sizeof(int32_t) : 0;
    (void)kernels;
    return bias + pass_bytes(p, DUNLIN_CONV_FORWARD, n_threads);
}

static uint64_t error_bytes(const dunlin_kernels *kernels, const void *params, size_t n_threads,
                            uint64_t *out_sample_bytes)
{
    (void)kernels;
    *out_sample_bytes = 0;
    return pass_bytes(params, DUNLIN_CONV_INPUT_GRAD, n_threads);
}

/* A frozen weight with a trained bias: the sums of products go nowhere. */
static uint64_t gradient_bytes(const dunlin_kernels *kernels, const void *params, size_t n_threads,
                               uint64_t *out_sample_bytes)
{
    const linear_params *p = params;
    *out_sample_bytes = 0;
    const uint64_t nowhere = p->sums_operand < 0 ? (uint64_t)p->n_weights * sizeof(int64_t) : 0;
    (void)kernels;
    return nowhere + pass_bytes(p, DUNLIN_CONV_WEIGHT_GRAD, n_threads);
}

/* A bias as the sums have it. */
static void align_bias(int32_t n, const int8_t *bias, int32_t up, int32_t *out)
{
    const int32_t left = up > BIAS_MAX_SHIFT ? BIAS_MAX_SHIFT : up;
    const int32_t right = -up > DUNLIN_SITE_MAX_SHIFT - 1 ? DUNLIN_SITE_MAX_SHIFT - 1 : -up;
    for (int32_t i = 0; i < n; i++) {
        const int32_t size = bias[i] < 0 ? -bias[i] : bias[i];
        const int32_t moved = up >= 0
                                  ? size * (1 << left)
                                  : (int32_t)(((int64_t)size + (INT64_C(1) << right) / 2) >> right);
        out[i] = bias[i] < 0 ? -moved : moved;
    }
}

/* Operands: x, weight, y, bias if there is one. */
static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    const linear_params *p = call->params;
    unsigned char *workspace = call->workspace;
    int32_t *bias = NULL;
    dunlin_site_output output = dunlin__integer_open(call);
    if (p->bias_site != DUNLIN_STEP_NONE) {
        const uint64_t bytes = (uint64_t)p->shape.out_c * sizeof(int32_t);
        bias = (int32_t *)(void *)(workspace + ((call->workspace_bytes - bytes) & ~(uint64_t)63));
        align_bias(p->shape.out_c, call->operands[p->bias_operand],
                   output.sites[p->bias_site].exponent - output.sum_exponent, bias);
    }
    dunlin_int_stats stats;
    do {
        int32_t low = -DUNLIN_INT_MOST;
        int32_t high = DUNLIN_INT_MOST;
        dunlin__integer_clip_range(&output, p->high, &low, &high);
        call->run->integers->conv_forward(&(dunlin_int_conv_call){
            .shape = &p->shape,
            .n_samples = call->n_samples,
            .x = call->operands[0],
            .w = call->operands[1],
            .bias = bias,
            .out = call->operands[2],
            .rounding = {.shift = output.shift, .stats = &stats, .is_reset = true},
            .low = low,
            .high = high,
            .workspace = workspace,
            .threads = call->run->threads,
        });
    } while (dunlin__site_close(&output, stats.largest, stats.n_clipped));
    return DUNLIN_OK;
}

/* Operands: dy, weight, dx, x if it is a mask. dx may lie on x, so in a calibration the largest is
 * found before anything is stored. */
static dunlin_status run_error(const dunlin_kernel_call *call)
{
    const linear_params *p = call->params;
    dunlin_site_output output = dunlin__integer_open(call);
    dunlin_int_stats stats;
    dunlin_int_conv_call conv = {.shape = &p->shape,
                                 .n_samples = call->n_samples,
                                 .dy = call->operands[0],
                                 .w = call->operands[1],
                                 .rounding = {.stats = &stats, .is_reset = true},
                                 .workspace = call->workspace,
                                 .threads = call->run->threads};
    if (call->run->is_calibrating) {
        call->run->integers->conv_input_grad(&conv);
        (void)dunlin__site_close(&output, stats.largest, 0);
    }
    conv.out = call->operands[2];
    conv.rounding.shift = output.shift;
    if (p->high > 0.0F) {
        conv.mask = call->operands[3];
        conv.mask_high = dunlin__integer_bound(output.sites, p->mask_site, p->high);
    }
    call->run->integers->conv_input_grad(&conv);
    if (!call->run->is_calibrating) {
        (void)dunlin__site_close(&output, stats.largest, stats.n_clipped);
    }
    return DUNLIN_OK;
}

/* Operands: x, dy, then sums of the weight and of the bias as far as they are wanted. */
static dunlin_status run_gradient(const dunlin_kernel_call *call)
{
    const linear_params *p = call->params;
    dunlin_int_conv_call conv = {
        .shape = &p->shape,
        .n_samples = call->n_samples,
        .x = call->operands[0],
        .dy = call->operands[1],
        .out_bias = p->bias_operand >= 0 ? call->operands[p->bias_operand] : NULL,
        .is_reset = call->is_first,
        .workspace = call->workspace,
        .threads = call->run->threads,
    };
    void *sums = NULL;
    if (p->sums_operand >= 0) {
        sums = call->operands[p->sums_operand];
    } else {
        const uint64_t bytes = (uint64_t)p->n_weights * sizeof(int64_t);
        sums = (unsigned char *)call->workspace + ((call->workspace_bytes - bytes) & ~(uint64_t)63);
        conv.is_reset = true;
    }
    *(p->has_wide_sums ? (void **)&conv.wide_sums : (void **)&conv.sums) = sums;
    call->run->integers->conv_weight_grad(&conv);
    return DUNLIN_OK;
}

#define FORWARD_KERNEL(which_parts)                                                                \
    {                                                                                              \
        .name = "int_conv", .run_fn = run_forward, .parts = (which_parts), .may_recompute = true,  \
        .in_place_write = -1, .in_place_read = -1, .workspace_fn = forward_bytes                   \
    }
#define ERROR_KERNEL(which_parts, written, read)                                                   \
    {                                                                                              \
        .name = "int_conv_input_grad", .run_fn = run_error, .parts = (which_parts),                \
        .may_recompute = true, .in_place_write = (written), .in_place_read = (read),               \
        .workspace_fn = error_bytes                                                                \
    }

static const dunlin_step_kernel forward_kernel = FORWARD_KERNEL(DUNLIN_MEM_MAP);
static const dunlin_step_kernel forward_counting =
    FORWARD_KERNEL(DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE);
static const dunlin_step_kernel error_kernel = ERROR_KERNEL(DUNLIN_MEM_MAP, -1, -1);
static const dunlin_step_kernel error_counting =
    ERROR_KERNEL(DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE, -1, -1);
/* A mask is read where it is written over. */
static const dunlin_step_kernel masked_kernel = ERROR_KERNEL(DUNLIN_MEM_MAP, 2, 3);
static const dunlin_step_kernel masked_counting =
    ERROR_KERNEL(DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE, 2, 3);
static const dunlin_step_kernel gradient_kernel = {.name = "int_conv_weight_grad",
                                                   .run_fn = run_gradient,
                                                   .parts = DUNLIN_MEM_REDUCE,
                                                   .in_place_write = -1,
                                                   .in_place_read = -1,
                                                   .workspace_fn = gradient_bytes};

static double shape_flops(const dunlin_conv_shape *s)
{
    return 2.0 * s->out_h * s->out_w * s->out_c * ((double)s->in_c / s->groups) * s->kernel_h *
           s->kernel_w;
}

/* Params of one of the node's ops. */
static linear_params begin_params(const dunlin_integer *integer, const dunlin_conv_shape *shape)
{
    const dunlin_emit *emit = integer->emit;
    const bool is_training = dunlin__emit_mode(emit) == DUNLIN_EMIT_TRAIN;
    return (linear_params){.shape = *shape,
                           .bias_site = DUNLIN_STEP_NONE,
                           .bias_operand = -1,
                           .sums_operand = -1,
                           .integers = emit->options->integers,
                           .batch = is_training ? emit->options->batch : 0};
}

/* A network is refused whose parameters several nodes read, so a parameter's site is its index. */
static void forward(dunlin_integer *integer, const dunlin_net_node *node)
{
    const dunlin_emit *emit = integer->emit;
    const dunlin_integer_ref x = integer->values[node->inputs[0]];
    const dunlin_integer_ref y = dunlin__integer_clipped_output(integer, node->output);
    const bool has_bias = dunlin__op_has_param(node, 1);
    const dunlin_conv_shape shape = shape_of(emit->net, node);
    linear_params params = begin_params(integer, &shape);
    params.op.link = (dunlin_integer_link){
        .rule = DUNLIN_RULE_PRODUCT, .site = y.site, .a = x.site, .b = node->params[0]};
    params.high = dunlin__integer_clips_to(integer, node->output);
    if (has_bias) {
        params.bias_site = node->params[1];
        params.bias_operand = 3;
    }
    dunlin_integer_draft draft = {.kernel = &forward_kernel,
                                  .counting = &forward_counting,
                                  .suffix = "",
                                  .params = &params,
                                  .params_bytes = sizeof params,
                                  .flops_per_sample = shape_flops(&params.shape)};
    dunlin__integer_read(&draft, x.tensor);
    dunlin__integer_read(&draft, emit->graph->params[node->params[0]].tensor);
    dunlin__integer_write(&draft, y.tensor);
    if (has_bias) {
        dunlin__integer_read(&draft, emit->graph->params[node->params[1]].tensor);
    }
    dunlin__integer_emit(integer, &draft);
}

static void emit_error(dunlin_integer *integer, const dunlin_net_node *node,
                       const dunlin_conv_shape *shape)
{
    const dunlin_integer_ref dy = integer->errors[node->output];
    const dunlin_integer_ref x = integer->values[node->inputs[0]];
    const dunlin_integer_ref dx = dunlin__integer_error(integer, 0);
    const bool is_masked = dunlin__integer_masks_error(integer, node->inputs[0]);
    linear_params params = begin_params(integer, shape);
    params.op.link = (dunlin_integer_link){
        .rule = DUNLIN_RULE_PRODUCT, .site = dx.site, .a = dy.site, .b = node->params[0]};
    params.high = is_masked ? integer->folds[node->inputs[0]].high : 0.0F;
    params.mask_site = x.site;
    dunlin_integer_draft draft = {.kernel = is_masked ? &masked_kernel : &error_kernel,
                                  .counting = is_masked ? &masked_counting : &error_counting,
                                  .suffix = "/input_grad",
                                  .params = &params,
                                  .params_bytes = sizeof params,
                                  .flops_per_sample = shape_flops(shape)};
    dunlin__integer_read(&draft, dy.tensor);
    dunlin__integer_read(&draft, integer->emit->graph->params[node->params[0]].tensor);
    dunlin__integer_write(&draft, dx.tensor);
    if (is_masked) {
        dunlin__integer_read(&draft, x.tensor);
    }
    dunlin__integer_emit(integer, &draft);
    dunlin__integer_contribute(integer, 0, dx);
}

/* The weight gradient comes first: after it x is dead when dx is made. */
static void emit_gradient(dunlin_integer *integer, const dunlin_net_node *node,
                          const dunlin_conv_shape *shape)
{
    dunlin_emit *emit = integer->emit;
    const int64_t terms = (int64_t)shape->out_h * shape->out_w;
    linear_params params = begin_params(integer, shape);
    params.n_weights = emit->net->params[node->params[0]].n_elements;
    dunlin_mem_access accesses[4] = {
        {integer->values[node->inputs[0]].tensor, DUNLIN_MEM_READ, DUNLIN_MEM_REDUCE},
        {integer->errors[node->output].tensor, DUNLIN_MEM_READ, DUNLIN_MEM_REDUCE},
    };
    uint32_t n = 2;
    if (dunlin__emit_is_trained(emit, node->params[0])) {
        const uint32_t sums = dunlin__integer_gradient(integer, node->params[0], terms, false);
        params.sums_operand = (int32_t)n;
        params.has_wide_sums = emit->status == DUNLIN_OK &&
                               emit->graph->tensors[sums].dtype == integer->precision->wide_sums;
        accesses[n++] = (dunlin_mem_access){sums, DUNLIN_MEM_ACCUMULATE, DUNLIN_MEM_REDUCE};
    } else {
        params.has_wide_sums = true;
    }
    if (dunlin__op_has_param(node, 1) && dunlin__emit_is_trained(emit, node->params[1])) {
        params.bias_operand = (int32_t)n;
        /* One factor of each of its terms is 1. */
        accesses[n++] =
            (dunlin_mem_access){dunlin__integer_gradient(integer, node->params[1],
                                                         (terms + 126) / DUNLIN_INT_MOST, true),
                                DUNLIN_MEM_ACCUMULATE, DUNLIN_MEM_REDUCE};
    }
    if (n > 2) {
        dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = &gradient_kernel,
                                                 .suffix = "/weight_grad",
                                                 .params = &params,
                                                 .params_bytes = sizeof params,
                                                 .accesses = accesses,
                                                 .n_accesses = n,
                                                 .flops_per_sample = shape_flops(shape)});
    }
}

static void backward(dunlin_integer *integer, const dunlin_net_node *node)
{
    const dunlin_conv_shape shape = shape_of(integer->emit->net, node);
    emit_gradient(integer, node, &shape);
    if (dunlin__integer_needs_error(integer, node, 0)) {
        emit_error(integer, node, &shape);
    }
}

static const char *refuse(const dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_conv_shape shape = shape_of(net, node);
    const bool is_short =
        dunlin__int_conv_terms(&shape, DUNLIN_CONV_FORWARD, 1) < DUNLIN_INT_MOST_TERMS / 2 &&
        dunlin__int_conv_terms(&shape, DUNLIN_CONV_INPUT_GRAD, 1) < DUNLIN_INT_MOST_TERMS / 2;
    return is_short ? NULL : "an output is a sum of more than 66572 products";
}

const dunlin_integer_row dunlin__integer_conv = {refuse, forward, backward};
const dunlin_integer_row dunlin__integer_dense = {refuse, forward, backward};
