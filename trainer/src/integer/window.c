/*
 * window.c - maximum, average and global average pooling in integers.
 *
 * A maximum keeps its input's exponent, and so does its gradient but for windows that overlap:
 * their errors add up, and are rounded to a site of their own. An average is one exact fraction,
 * rounded once to a site of its own.
 */
#include "ops/conv/pool_shapes.h"
#include "rows.h"

typedef struct window_params {
    dunlin_integer_op op; /* first */
    dunlin_pool_shape shape;
    bool has_index;
    bool is_moved; /* max, backward: windows do not overlap, so errors are moved, and not added */
} window_params;

static void run_forward(const dunlin_kernel_call *call, bool is_max,
                        const dunlin_int_rounding *rounding)
{
    const window_params *p = call->params;
    call->run->integers->pool_forward(
        &(dunlin_int_pool_call){.shape = &p->shape,
                                .is_max = is_max,
                                .n_samples = call->n_samples,
                                .x = call->operands[0],
                                .y = call->operands[1],
                                .index = p->has_index ? call->operands[2] : NULL,
                                .rounding = *rounding,
                                .threads = call->run->threads});
}

/* Operands: x, y, index if it is kept. */
static dunlin_status run_max(const dunlin_kernel_call *call)
{
    run_forward(call, true, &(dunlin_int_rounding){.shift = 0});
    return DUNLIN_OK;
}

/* Operands: x, y. */
static dunlin_status run_average(const dunlin_kernel_call *call)
{
    dunlin_site_output output = dunlin__integer_open(call);
    dunlin_int_stats stats;
    do {
        run_forward(call, false,
                    &(dunlin_int_rounding){.shift = dunlin__integer_average_shift(output.shift),
                                           .stats = &stats,
                                           .is_reset = true});
    } while (dunlin__site_close(&output, stats.largest, stats.n_clipped));
    return DUNLIN_OK;
}

int32_t dunlin__integer_average_shift(int32_t shift)
{
    const int32_t moved = shift - DUNLIN_INT_AVERAGE_BITS;
    return moved < DUNLIN_INT_MOST_AVERAGE_SHIFT ? moved : DUNLIN_INT_MOST_AVERAGE_SHIFT;
}

static dunlin_status run_backward(const dunlin_kernel_call *call, bool is_max)
{
    const window_params *p = call->params;
    dunlin_site_output output = dunlin__integer_open(call);
    dunlin_int_stats stats;
    do {
        const int32_t shift = is_max ? output.shift : dunlin__integer_average_shift(output.shift);
        call->run->integers->pool_backward(
            &(dunlin_int_pool_call){.shape = &p->shape,
                                    .is_max = is_max,
                                    .n_samples = call->n_samples,
                                    .dy = call->operands[0],
                                    .dx = call->operands[1],
                                    .index = is_max ? call->operands[2] : NULL,
                                    .rounding = {.shift = shift, .stats = &stats, .is_reset = true},
                                    .threads = call->run->threads});
    } while (dunlin__site_close(&output, stats.largest, stats.n_clipped));
    return DUNLIN_OK;
}

/* Operands: dy, dx, index. */
static dunlin_status run_max_grad(const dunlin_kernel_call *call)
{
    const window_params *p = call->params;
    if (p->is_moved) {
        call->run->integers->pool_backward(&(dunlin_int_pool_call){.shape = &p->shape,
                                                                   .is_max = true,
                                                                   .n_samples = call->n_samples,
                                                                   .dy = call->operands[0],
                                                                   .dx = call->operands[1],
                                                                   .index = call->operands[2],
                                                                   .threads = call->run->threads});
        return DUNLIN_OK;
    }
    return run_backward(call, true);
}

/* Operands: dy, dx. */
static dunlin_status run_average_grad(const dunlin_kernel_call *call)
{
    return run_backward(call, false);
}

#define POOL_KERNEL(which_name, which_fn, which_parts)                                             \
    {                                                                                              \
        .name = (which_name), .run_fn = (which_fn), .parts = (which_parts), .may_recompute = true, \
        .in_place_write = -1, .in_place_read = -1                                                  \
    }
#define COUNTING (DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE)

static const dunlin_step_kernel max_kernel = POOL_KERNEL("int_max_pool", run_max, DUNLIN_MEM_MAP);
static const dunlin_step_kernel max_grad_kernel =
    POOL_KERNEL("int_max_pool_grad", run_max_grad, DUNLIN_MEM_MAP);
static const dunlin_step_kernel max_grad_counting =
    POOL_KERNEL("int_max_pool_grad", run_max_grad, COUNTING);
static const dunlin_step_kernel average_kernel =
    POOL_KERNEL("int_average_pool", run_average, DUNLIN_MEM_MAP);
static const dunlin_step_kernel average_counting =
    POOL_KERNEL("int_average_pool", run_average, COUNTING);
static const dunlin_step_kernel average_grad_kernel =
    POOL_KERNEL("int_average_pool_grad", run_average_grad, DUNLIN_MEM_MAP);
static const dunlin_step_kernel average_grad_counting =
    POOL_KERNEL("int_average_pool_grad", run_average_grad, COUNTING);

static dunlin_integer_draft begin_draft(window_params *params, const char *suffix)
{
    const dunlin_pool_shape *s = &params->shape;
    return (dunlin_integer_draft){.suffix = suffix,
                                  .params = params,
                                  .params_bytes = sizeof *params,
                                  .flops_per_sample = (double)s->out_h * s->out_w * s->channels *
                                                      s->kernel_h * s->kernel_w};
}

/* The place of each maximum is kept by a few bits, in the node's slot 0. */
static void max_forward(dunlin_integer *integer, const dunlin_net_node *node)
{
    dunlin_emit *emit = integer->emit;
    const dunlin_integer_ref x = integer->values[node->inputs[0]];
    dunlin_integer_ref *y = &integer->values[node->output];
    *y = dunlin__integer_output(integer, node->output);
    y->site = x.site;
    window_params params = {.op.link.site = x.site,
                            .shape = dunlin__op_pool_shape(emit->net, node),
                            .has_index = dunlin__emit_mode(emit) == DUNLIN_EMIT_TRAIN &&
                                         dunlin__integer_needs_error(integer, node, 0)};
    dunlin_integer_draft draft = begin_draft(&params, "");
    draft.kernel = &max_kernel;
    dunlin__integer_read(&draft, x.tensor);
    dunlin__integer_write(&draft, y->tensor);
    if (params.has_index) {
        const uint32_t index =
            dunlin__emit_tensor(emit, "/index", DUNLIN_U8, true,
                                (int64_t)params.shape.out_h * params.shape.out_w *
                                    dunlin__int_place_bytes(&params.shape, params.shape.channels),
                                DUNLIN_MEM_SAVED);
        dunlin__integer_write(&draft, index);
        dunlin__emit_save(emit, 0, index);
    }
    dunlin__integer_emit(integer, &draft);
}

static void average_forward(dunlin_integer *integer, const dunlin_net_node *node)
{
    const dunlin_integer_ref x = integer->values[node->inputs[0]];
    const dunlin_integer_ref y = dunlin__integer_output(integer, node->output);
    window_params params = {.op.link = {.rule = DUNLIN_RULE_PRODUCT,
                                        .site = y.site,
                                        .a = x.site,
                                        .b = DUNLIN_STEP_NONE,
                                        .offset = -DUNLIN_INT_AVERAGE_BITS},
                            .shape = dunlin__op_pool_shape(integer->emit->net, node)};
    dunlin_integer_draft draft = begin_draft(&params, "");
    draft.kernel = &average_kernel;
    draft.counting = &average_counting;
    dunlin__integer_read(&draft, x.tensor);
    dunlin__integer_write(&draft, y.tensor);
    dunlin__integer_emit(integer, &draft);
}

static void emit_backward(dunlin_integer *integer, const dunlin_net_node *node, bool is_max)
{
    if (!dunlin__integer_needs_error(integer, node, 0)) {
        return;
    }
    const dunlin_integer_ref dy = integer->errors[node->output];
    dunlin_integer_ref dx = dunlin__integer_error(integer, 0);
    window_params params = {.op.link = {.rule = DUNLIN_RULE_PRODUCT,
                                        .site = dx.site,
                                        .a = dy.site,
                                        .b = DUNLIN_STEP_NONE,
                                        .offset = is_max ? 0 : -DUNLIN_INT_AVERAGE_BITS},
                            .shape = dunlin__op_pool_shape(integer->emit->net, node)};
    dunlin_integer_draft draft = begin_draft(&params, "/input_grad");
    params.is_moved = is_max && !dunlin__int_windows_overlap(&params.shape);
    dx.site = params.is_moved ? dy.site : dx.site;
    draft.kernel = is_max ? &max_grad_kernel : &average_grad_kernel;
    draft.counting = params.is_moved ? NULL : is_max ? &max_grad_counting : &average_grad_counting;
    dunlin__integer_read(&draft, dy.tensor);
    dunlin__integer_write(&draft, dx.tensor);
    if (is_max) {
        dunlin__integer_read(&draft, dunlin__emit_saved(integer->emit, 0));
    }
    dunlin__integer_emit(integer, &draft);
    dunlin__integer_contribute(integer, 0, dx);
}

static void max_backward(dunlin_integer *integer, const dunlin_net_node *node)
{
    emit_backward(integer, node, true);
}

static void average_backward(dunlin_integer *integer, const dunlin_net_node *node)
{
    emit_backward(integer, node, false);
}

/* A place is a byte at most. */
static const char *max_refuse(const dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_pool_shape shape = dunlin__op_pool_shape(net, node);
    return (int64_t)shape.kernel_h * shape.kernel_w <= 255
               ? NULL
               : "a window of a maximum has more than 255 elements";
}

const dunlin_integer_row dunlin__integer_max_pool = {max_refuse, max_forward, max_backward};
const dunlin_integer_row dunlin__integer_average_pool = {NULL, average_forward, average_backward};
