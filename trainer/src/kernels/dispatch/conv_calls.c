/*
 * conv_calls.c - fused convolution calls: the engines' passes and workspaces, and the plain calls
 * by way of them.
 */
#include "kernels/conv/few_channels.h"
#include "kernels/winograd/winograd.h"

#include <math.h>

static bool epilogue_is_closed(const dunlin_epilogue *epilogue)
{
    return epilogue->addend == NULL && epilogue->mask == NULL && epilogue->factor == NULL &&
           epilogue->n_stats == 0 && !epilogue->is_out_half;
}

/* --- dw of taps that meet nothing --- */

typedef struct clear_job {
    float *to;
    int64_t n, block;
} clear_job;

static void clear_task(void *ctx, size_t task)
{
    const clear_job *job = ctx;
    const int64_t first = (int64_t)task * job->block;
    vclear(job->to + first, min_i64(job->block, job->n - first));
}

static void clear_floats(float *to, int64_t n, dunlin_threads *threads)
{
    clear_job job = {.to = to, .n = n, .block = task_block(threads, n)};
    run_tasks(threads, clear_task, &job, ceil_div(n, job.block), n);
}

static uint64_t align_64(uint64_t bytes)
{
    return (bytes + 63) & ~(uint64_t)63;
}

/* The engine of a map. */
static uint64_t map_bytes(const dunlin_conv_shape *shape, bool is_input_grad, uint32_t uses,
                          size_t n_threads)
{
    if (K(few_channel_map_is_for)(shape, is_input_grad)) {
        return K(few_channel_map_bytes)(shape, is_input_grad, n_threads);
    }
    if (K(winograd_is_for)(shape, is_input_grad)) {
        return K(winograd_bytes)(shape, is_input_grad, n_threads);
    }
    const uint64_t bytes = K(map_bytes)(shape, is_input_grad, uses, n_threads);
    const uint64_t dense = K(dense_bytes)(shape, is_input_grad, n_threads);
    return dense > bytes ? dense : bytes;
}

static int64_t map_units(const dunlin_conv_shape *shape, bool is_input_grad)
{
    if (K(few_channel_map_is_for)(shape, is_input_grad)) {
        return K(few_channel_map_units)(shape, is_input_grad);
    }
    return K(winograd_is_for)(shape, is_input_grad) ? K(winograd_units)(shape, is_input_grad)
                                                    : K(map_units)(shape, is_input_grad);
}

static void map_run(const map_pass *pass, bool is_input_grad)
{
    if (K(few_channel_map_is_for)(pass->shape, is_input_grad)) {
        K(few_channel_map_run)(pass, is_input_grad);
    } else if (K(winograd_is_for)(pass->shape, is_input_grad)) {
        K(winograd_run)(pass, is_input_grad);
    } else if (!K(dense_run)(pass)) {
        K(map_run)(pass, is_input_grad);
    }
}

/* The engine of the weights' gradient. */
static uint64_t reduce_bytes(const dunlin_conv_shape *shape, size_t n_threads)
{
    if (K(few_channel_reduce_is_for)(shape)) {
        return K(few_channel_reduce_bytes)(shape, n_threads);
    }
    return K(winograd_reduce_is_for)(shape) ? K(winograd_reduce_bytes)(shape, n_threads)
                                            : K(reduce_bytes)(shape, n_threads);
}

static void reduce_run(const dunlin_fused_call *call)
{
    if (K(few_channel_reduce_is_for)(call->shape)) {
        K(few_channel_reduce_run)(call, call->workspace);
    } else if (K(winograd_reduce_is_for)(call->shape)) {
        K(winograd_reduce_run)(call, call->workspace);
    } else {
        K(reduce_run)(call, call->workspace);
    }
}

/* Both passes of a backward call use the same panels, one after the other. */
static uint64_t panels_bytes(const dunlin_conv_shape *shape, uint32_t uses, size_t n_threads)
{
    uint64_t most = 0;
    if ((uses & DUNLIN_FUSED_FORWARD) != 0) {
        most = map_bytes(shape, false, uses, n_threads);
    }
    if ((uses & DUNLIN_FUSED_INPUT_GRAD) != 0) {
        uint64_t bytes = K(skinny_bytes)(shape, n_threads);
        most = bytes > most ? bytes : most;
        bytes = K(skinny_is_all)(shape) && !K(winograd_is_for)(shape, true)
                    ? 0
                    : map_bytes(shape, true, uses, n_threads);
        most = bytes > most ? bytes : most;
    }
    if ((uses & DUNLIN_FUSED_WEIGHT_GRAD) != 0) {
        const uint64_t bytes = reduce_bytes(shape, n_threads);
        most = bytes > most ? bytes : most;
    }
    const uint32_t both = DUNLIN_FUSED_INPUT_GRAD | DUNLIN_FUSED_WEIGHT_GRAD;
    if ((uses & both) == both && K(fused_grads_is_for)(shape, n_threads)) {
        const uint64_t bytes = K(fused_grads_bytes)(shape, n_threads);
        most = bytes > most ? bytes : most;
    }
    return align_64(most);
}

uint64_t K(fused_workspace_bytes)(const dunlin_conv_shape *full, uint32_t uses, size_t n_threads,
                                  uint64_t *out_sample_bytes)
{
    dunlin_conv_shape trimmed;
    int64_t first = 0;
    const dunlin_conv_shape *shape = dunlin__shape_trim(full, &trimmed, &first) ? &trimmed : full;
    if (dunlin__shape_is_depthwise(shape)) {
        return K(depthwise_fused_workspace)(shape, uses, n_threads, out_sample_bytes);
    }
    int64_t doubles = 0;
    if ((uses & DUNLIN_FUSED_STATS) != 0) {
        if ((uses & DUNLIN_FUSED_FORWARD) != 0) {
            doubles = 2 * map_units(shape, false) * shape->out_c;
        }
        if ((uses & DUNLIN_FUSED_INPUT_GRAD) != 0) {
            doubles = max_i64(doubles, EPILOGUE_MAX_SUMS * map_units(shape, true) * shape->in_c);
        }
    }
    *out_sample_bytes = align_64((uint64_t)doubles * sizeof(double));
    return panels_bytes(shape, uses, n_threads);
}

static int64_t tap_floats(const dunlin_conv_shape *shape)
{
    return (int64_t)shape->in_c / shape->groups * shape->out_c;
}

static int64_t weight_floats(const dunlin_conv_shape *shape)
{
    return tap_floats(shape) * shape->kernel_h * shape->kernel_w;
}

static void forward(const dunlin_fused_call *call)
{
    const dunlin_conv_shape *shape = call->shape;
    if (dunlin__shape_is_depthwise(shape)) {
        K(depthwise_fused_forward)(call);
        return;
    }
    const bool has_stat = call->stat.sums != NULL;
    const uint32_t uses =
        DUNLIN_FUSED_FORWARD | (view_is_as_it_lies(&call->x) ? 0 : DUNLIN_FUSED_VIEW);
    const uint64_t panels = panels_bytes(shape, uses, task_threads(call->threads));
    const map_pass pass = {.shape = shape,
                           .n_samples = call->n_samples,
                           .source = {.view = &call->x},
                           .w = call->w,
                           .bias = call->bias,
                           .out = call->y,
                           .out_pitch = call->y_pitch,
                           .is_clipped = call->low > -INFINITY || call->high < INFINITY,
                           .low = call->low,
                           .high = call->high,
                           .stat = has_stat ? &call->stat : NULL,
                           .partials = (double *)(void *)((char *)call->workspace + panels),
                           .units = map_units(shape, false),
                           .workspace = call->workspace,
                           .threads = call->threads};
    if (has_stat && call->is_reset) {
        memset(call->stat.sums, 0, 2 * (size_t)shape->out_c * sizeof(double));
    }
    map_run(&pass, false);
    if (has_stat) {
        const stat_merge merge = {.partials = pass.partials,
                                  .n_units = call->n_samples * pass.units,
                                  .n_stats = 1,
                                  .n = 2 * (int64_t)shape->out_c,
                                  .sums = {call->stat.sums}};
        K(stat_merge)(&merge, call->threads);
    }
}

/* With `is_fused_grads` the weights' gradient too. */
static void run_input_grad(const dunlin_fused_call *call, bool is_fused_grads)
{
    const dunlin_conv_shape *shape = call->shape;
    const bool is_closed = epilogue_is_closed(&call->dx);
    const uint32_t uses = DUNLIN_FUSED_INPUT_GRAD |
                          (grad_is_plain(&call->dy) ? 0 : DUNLIN_FUSED_GRAD) |
                          (is_fused_grads ? DUNLIN_FUSED_WEIGHT_GRAD : 0);
    const uint64_t panels = panels_bytes(shape, uses, task_threads(call->threads));
    const map_pass pass = {.shape = shape,
                           .n_samples = call->n_samples,
                           .source = {.grad = &call->dy},
                           .w = call->w,
                           .is_transposed = true,
                           .out = call->dx.out,
                           .out_pitch = call->dx.pitch,
                           .epilogue = is_closed ? NULL : &call->dx,
                           .partials = (double *)(void *)((char *)call->workspace + panels),
                           .units = map_units(shape, true),
                           .workspace = call->workspace,
                           .threads = call->threads};
    if (call->is_reset) {
        epilogue_reset(&call->dx, shape->in_c);
    }
    if (is_fused_grads) {
        K(fused_grads_run)(&pass, call);
    } else if (K(skinny_is_for)(shape, call->n_samples) && !K(winograd_is_for)(shape, true)) {
        K(skinny_run)(&pass);
    } else {
        map_run(&pass, true);
    }
    epilogue_merge(&call->dx, pass.partials, call->n_samples * pass.units, shape->in_c,
                   call->threads);
}

static void backward(const dunlin_fused_call *call)
{
    if (dunlin__shape_is_depthwise(call->shape)) {
        K(depthwise_fused_backward)(call);
        return;
    }
    const bool is_fused_grads = call->dw != NULL && call->dx.out != NULL && call->n_samples > 0 &&
                                K(fused_grads_is_for)(call->shape, task_threads(call->threads));
    if (!is_fused_grads && (call->dw != NULL || call->db != NULL)) {
        reduce_run(call);
    }
    if (call->dx.out != NULL) {
        run_input_grad(call, is_fused_grads);
    }
}

void K(fused_forward)(const dunlin_fused_call *call)
{
    dunlin_conv_shape trimmed;
    dunlin_fused_call inner = *call;
    int64_t first = 0;
    if (dunlin__shape_trim(call->shape, &trimmed, &first)) {
        inner.shape = &trimmed;
        inner.w += first * tap_floats(&trimmed);
    }
    forward(&inner);
}

void K(fused_backward)(const dunlin_fused_call *call)
{
    dunlin_conv_shape trimmed;
    dunlin_fused_call inner = *call;
    int64_t first = 0;
    if (dunlin__shape_trim(call->shape, &trimmed, &first)) {
        first *= tap_floats(&trimmed);
        inner.shape = &trimmed;
        inner.w = call->w == NULL ? NULL : call->w + first;
        if (call->dw != NULL) {
            const int64_t n = weight_floats(&trimmed);
            inner.dw = call->dw + first;
            if (call->is_reset) {
                const int64_t behind = weight_floats(call->shape) - first - n;
                clear_floats(call->dw, first, call->threads);
                clear_floats(inner.dw + n, behind, call->threads);
            }
        }
    }
    backward(&inner);
}

/* --- plain calls --- */

uint64_t K(conv_workspace_bytes)(const dunlin_conv_shape *full, dunlin_conv_pass pass,
                                 size_t n_threads)
{
    dunlin_conv_shape trimmed;
    int64_t first = 0;
    static const uint32_t uses[] = {DUNLIN_FUSED_FORWARD, DUNLIN_FUSED_INPUT_GRAD,
                                    DUNLIN_FUSED_WEIGHT_GRAD};
    if (dunlin__shape_is_depthwise(full)) {
        return pass == DUNLIN_CONV_WEIGHT_GRAD ? K(depthwise_workspace_bytes)(full) : 0;
    }
    const dunlin_conv_shape *shape = dunlin__shape_trim(full, &trimmed, &first) ? &trimmed : full;
    return panels_bytes(shape, uses[pass], n_threads);
}

static dunlin_fused_call fused_of(const dunlin_conv_call *call)
{
    const dunlin_conv_shape *shape = call->shape;
    return (dunlin_fused_call){.shape = shape,
                               .n_samples = call->n_samples,
                               .x = {.x = call->x, .pitch = shape->in_c},
                               .w = call->w,
                               .low = -INFINITY,
                               .high = INFINITY,
                               .dy = {.g = call->dy, .pitch = shape->out_c},
                               .is_reset = call->is_reset,
                               .workspace = call->workspace,
                               .threads = call->threads};
}

void K(conv_forward)(const dunlin_conv_call *call)
{
    if (dunlin__shape_is_depthwise(call->shape)) {
        conv_view view;
        dunlin__view_forward(call->shape, &view);
        K(depthwise)(&view, call, call->x, call->bias);
        return;
    }
    dunlin_fused_call fused = fused_of(call);
    fused.bias = call->bias;
    fused.y = call->out;
    fused.y_pitch = call->shape->out_c;
    K(fused_forward)(&fused);
}

void K(conv_input_grad)(const dunlin_conv_call *call)
{
    const dunlin_conv_shape *shape = call->shape;
    if (dunlin__shape_is_depthwise(shape)) {
        for (int32_t i = 0; i < shape->stride_h * shape->stride_w; i++) {
            conv_view view;
            dunlin__view_input_grad(shape, i / shape->stride_w, i % shape->stride_w, &view);
            K(depthwise)(&view, call, call->dy, NULL);
        }
        return;
    }
    dunlin_fused_call fused = fused_of(call);
    fused.dx = (dunlin_epilogue){.out = call->out, .pitch = shape->in_c};
    K(fused_backward)(&fused);
}

void K(conv_weight_grad)(const dunlin_conv_call *call)
{
    if (dunlin__shape_is_depthwise(call->shape)) {
        K(depthwise_weight_grad)(call);
        K(bias_grad)(call);
        return;
    }
    dunlin_fused_call fused = fused_of(call);
    fused.dw = call->out;
    fused.db = call->out_bias;
    K(fused_backward)(&fused);
}
