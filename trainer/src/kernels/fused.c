/*
 * fused.c - fused convolution calls: the engines' passes and workspaces, and the plain calls by way
 * of them.
 */
#include "fused.h"

#include <math.h>

typedef struct fused_sizes {
    int64_t x, y; /* floats of a sample */
    int64_t in_rows, out_rows;
} fused_sizes;

static fused_sizes sizes_of(const dunlin_conv_shape *shape)
{
    fused_sizes s = {.in_rows = (int64_t)shape->in_h * shape->in_w,
                     .out_rows = (int64_t)shape->out_h * shape->out_w};
    s.x = round_up(s.in_rows * shape->in_c, 16);
    s.y = round_up(s.out_rows * shape->out_c, 16);
    return s;
}

static size_t panel_bytes(const dunlin_conv_shape *shape, size_t n_threads)
{
    size_t most = 0;
    for (int pass = 0; pass < 3; pass++) {
        size_t bytes = K(conv_workspace_bytes)(shape, (dunlin_conv_pass)pass, n_threads);
        most = bytes > most ? bytes : most;
    }
    return (most + 63) & ~(size_t)63;
}

static size_t plain_bytes(const dunlin_conv_shape *shape, size_t n_threads,
                          size_t *out_sample_bytes)
{
    const fused_sizes s = sizes_of(shape);
    *out_sample_bytes = (size_t)(s.x + s.y) * sizeof(float);
    return panel_bytes(shape, n_threads);
}

/* Not-a-number passes. */
static float clip(float x, float low, float high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

/* --- writing views and gradients out --- */

typedef struct write_job {
    const dunlin_view *view; /* or */
    const dunlin_grad *grad;
    int64_t channels;
    float *out;
} write_job;

static void write_view_row(void *ctx, size_t row)
{
    const write_job *job = ctx;
    const dunlin_view *v = job->view;
    const float *x = v->x + (int64_t)row * v->pitch;
    float *out = job->out + (int64_t)row * job->channels;
    for (int64_t c = 0; c < job->channels; c += VEC) {
        int32_t n = vec_left(job->channels, c);
        vfloat value = vload_n(x + c, n);
        if (v->scale != NULL) {
            value = vfma(value, vload_n(v->scale + c, n), vload_n(v->shift + c, n));
        }
        vstore_n(out + c, value, n);
        for (int32_t i = 0; v->scale != NULL && i < n; i++) {
            out[c + i] = clip(out[c + i], v->low, v->high);
        }
    }
}

static void write_grad_row(void *ctx, size_t row)
{
    const write_job *job = ctx;
    const dunlin_grad *g = job->grad;
    const float *from = g->g + (int64_t)row * g->pitch;
    const float *raw = g->raw == NULL ? NULL : g->raw + (int64_t)row * g->raw_pitch;
    float *out = job->out + (int64_t)row * job->channels;
    for (int64_t c = 0; c < job->channels; c += VEC) {
        int32_t n = vec_left(job->channels, c);
        vfloat value = vload_n(from + c, n);
        vfloat rest = vzero();
        if (raw != NULL) {
            rest = vfma(vload_n(raw + c, n), vload_n(g->slope + c, n), vload_n(g->offset + c, n));
        }
        value = g->factor == NULL ? value + rest : vfma(value, vload_n(g->factor + c, n), rest);
        vstore_n(out + c, value, n);
    }
}

/* The view as a compact image: itself if it is one. */
static const float *plain_view(const dunlin_view *view, int64_t rows, int64_t channels,
                               pthreadpool_t threads, float *room)
{
    if (view->scale == NULL && view->pitch == channels) {
        return view->x;
    }
    write_job job = {.view = view, .channels = channels, .out = room};
    run_tasks(threads, write_view_row, &job, rows, rows * channels);
    return room;
}

static const float *plain_grad(const dunlin_grad *grad, int64_t rows, int64_t channels,
                               pthreadpool_t threads, float *room)
{
    if (grad->factor == NULL && grad->raw == NULL && grad->pitch == channels) {
        return grad->g;
    }
    write_job job = {.grad = grad, .channels = channels, .out = room};
    run_tasks(threads, write_grad_row, &job, rows, rows * channels);
    return room;
}

/* --- forward --- */

static void clear_sums(double *sums, int64_t channels)
{
    for (int64_t i = 0; i < 2 * channels; i++) {
        sums[i] = 0.0;
    }
}

static void finish_forward(const dunlin_fused_call *call, const float *from, int64_t rows)
{
    const int64_t channels = call->shape->out_c;
    double *sums = call->stat.sums;
    if (sums != NULL && call->is_reset) {
        clear_sums(sums, channels);
    }
    const bool is_moved = from != call->y;
    const bool is_clipped = call->low > -INFINITY || call->high < INFINITY;
    if (!is_moved && !is_clipped && sums == NULL) {
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *row = from + r * channels;
        float *y = call->y + r * call->y_pitch;
        for (int64_t c = 0; c < channels; c++) {
            const float value = clip(row[c], call->low, call->high);
            y[c] = value;
            if (sums != NULL) {
                float d = value - call->stat.about[c];
                sums[c] += (double)d;
                sums[channels + c] += (double)(d * d);
            }
        }
    }
}

static void plain_forward(const dunlin_fused_call *call)
{
    const dunlin_conv_shape *shape = call->shape;
    const fused_sizes s = sizes_of(shape);
    const int64_t n = call->n_samples;
    float *x_room = call->workspace;
    float *y_room = x_room + n * s.x;
    float *panels = y_room + n * s.y;
    float *out = call->y_pitch == shape->out_c ? call->y : y_room;
    dunlin_conv_call conv = {
        .shape = shape,
        .n_samples = n,
        .x = plain_view(&call->x, n * s.in_rows, shape->in_c, call->threads, x_room),
        .w = call->w,
        .bias = call->bias,
        .out = out,
        .workspace = panels,
        .threads = call->threads};
    K(conv_forward)(&conv);
    finish_forward(call, out, n * s.out_rows);
}

/* --- backward --- */

typedef struct sink_row {
    const dunlin_sink *sink;
    int64_t row;
    int64_t channels;
} sink_row;

static bool is_kept(const dunlin_sink *sink, int64_t row, int64_t c)
{
    if (sink->mask == NULL) {
        return true;
    }
    float m = sink->mask[row * sink->mask_pitch + c];
    if (sink->mask_scale != NULL) {
        m = vfma(vset1(m), vset1(sink->mask_scale[c]), vset1(sink->mask_shift[c]))[0];
    }
    return sink->low < m && m < sink->high;
}

static void sink_element(const sink_row *r, int64_t c, float dx)
{
    const dunlin_sink *sink = r->sink;
    const float addend =
        sink->addend == NULL ? 0.0f : sink->addend[r->row * sink->addend_pitch + c];
    float t = sink->is_direct ? dx + addend : dx;
    t = is_kept(sink, r->row, c) ? t : 0.0f;
    float out = t;
    if (!sink->is_direct) {
        out = sink->factor == NULL ? t + addend
                                   : vfma(vset1(t), vset1(sink->factor[c]), vset1(addend))[0];
    }
    sink->out[r->row * sink->pitch + c] = out;
    for (uint32_t i = 0; i < sink->n_stats; i++) {
        const dunlin_stat *stat = &sink->stats[i];
        float d = stat->raw[r->row * stat->raw_pitch + c] - stat->about[c];
        stat->sums[c] += (double)t;
        stat->sums[r->channels + c] += (double)(t * d);
    }
}

static void finish_input_grad(const dunlin_fused_call *call, const float *dx, int64_t rows)
{
    sink_row r = {.sink = &call->dx, .channels = call->shape->in_c};
    for (uint32_t i = 0; call->is_reset && i < call->dx.n_stats; i++) {
        clear_sums(call->dx.stats[i].sums, r.channels);
    }
    for (; r.row < rows; r.row++) {
        for (int64_t c = 0; c < r.channels; c++) {
            sink_element(&r, c, dx[r.row * r.channels + c]);
        }
    }
}

static bool sink_is_plain(const dunlin_sink *sink, int64_t channels)
{
    return sink->pitch == channels && sink->addend == NULL && sink->mask == NULL &&
           sink->factor == NULL && sink->n_stats == 0;
}

static void plain_backward(const dunlin_fused_call *call)
{
    const dunlin_conv_shape *shape = call->shape;
    const fused_sizes s = sizes_of(shape);
    const int64_t n = call->n_samples;
    float *x_room = call->workspace;
    float *y_room = x_room + n * s.x;
    dunlin_conv_call conv = {
        .shape = shape,
        .n_samples = n,
        .w = call->w,
        .dy = plain_grad(&call->dy, n * s.out_rows, shape->out_c, call->threads, y_room),
        .is_reset = call->is_reset,
        .workspace = y_room + n * s.y,
        .threads = call->threads};
    if (call->dw != NULL) {
        conv.x = plain_view(&call->x, n * s.in_rows, shape->in_c, call->threads, x_room);
        conv.out = call->dw;
        conv.out_bias = call->db;
        K(conv_weight_grad)(&conv);
    } else if (call->db != NULL) {
        conv.out_bias = call->db;
        K(bias_grad)(&conv);
    }
    if (call->dx.out == NULL) {
        return;
    }
    const bool is_plain = sink_is_plain(&call->dx, shape->in_c);
    conv.out = is_plain ? call->dx.out : x_room;
    K(conv_input_grad)(&conv);
    if (!is_plain) {
        finish_input_grad(call, conv.out, n * s.in_rows);
    }
}

/* --- the engines --- */

static bool sink_is_closed(const dunlin_sink *sink)
{
    return sink->addend == NULL && sink->mask == NULL && sink->factor == NULL && sink->n_stats == 0;
}

static size_t align_64(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* Both passes of a backward call use the same panels, one after the other. */
static size_t panels_bytes(const dunlin_conv_shape *shape, uint32_t uses, size_t n_threads)
{
    size_t most = 0;
    if ((uses & DUNLIN_FUSED_FORWARD) != 0) {
        most = K(map_bytes)(shape, false, uses, n_threads);
    }
    if ((uses & DUNLIN_FUSED_INPUT_GRAD) != 0) {
        const size_t bytes = K(map_bytes)(shape, true, uses, n_threads);
        most = bytes > most ? bytes : most;
    }
    if ((uses & DUNLIN_FUSED_WEIGHT_GRAD) != 0) {
        const size_t bytes = K(reduce_bytes)(shape, n_threads);
        most = bytes > most ? bytes : most;
    }
    return align_64(most);
}

size_t K(fused_workspace_bytes)(const dunlin_conv_shape *shape, uint32_t uses, size_t n_threads,
                                size_t *out_sample_bytes)
{
    if (dunlin__shape_is_depthwise(shape)) {
        return plain_bytes(shape, n_threads, out_sample_bytes);
    }
    int64_t doubles = 0;
    if ((uses & DUNLIN_FUSED_STATS) != 0) {
        if ((uses & DUNLIN_FUSED_FORWARD) != 0) {
            doubles = 2 * K(map_units)(shape, false) * shape->out_c;
        }
        if ((uses & DUNLIN_FUSED_INPUT_GRAD) != 0) {
            doubles = max_i64(doubles, SINK_MAX_SUMS * K(map_units)(shape, true) * shape->in_c);
        }
    }
    *out_sample_bytes = align_64((size_t)doubles * sizeof(double));
    return panels_bytes(shape, uses, n_threads);
}

void K(fused_forward)(const dunlin_fused_call *call)
{
    const dunlin_conv_shape *shape = call->shape;
    if (dunlin__shape_is_depthwise(shape)) {
        plain_forward(call);
        return;
    }
    const bool has_stat = call->stat.sums != NULL;
    const uint32_t uses = DUNLIN_FUSED_FORWARD | (call->x.scale == NULL ? 0 : DUNLIN_FUSED_VIEW);
    const size_t panels = panels_bytes(shape, uses, task_threads(call->threads));
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
                           .units = K(map_units)(shape, false),
                           .workspace = call->workspace,
                           .threads = call->threads};
    if (has_stat && call->is_reset) {
        memset(call->stat.sums, 0, 2 * (size_t)shape->out_c * sizeof(double));
    }
    K(map_run)(&pass, false);
    if (has_stat) {
        const int64_t n = 2 * (int64_t)shape->out_c;
        stat_merge(pass.partials, call->n_samples * pass.units, n, n, call->stat.sums);
    }
}

static void run_input_grad(const dunlin_fused_call *call)
{
    const dunlin_conv_shape *shape = call->shape;
    const bool is_closed = sink_is_closed(&call->dx);
    const uint32_t uses =
        DUNLIN_FUSED_INPUT_GRAD | (grad_is_plain(&call->dy) ? 0 : DUNLIN_FUSED_GRAD);
    const size_t panels = panels_bytes(shape, uses, task_threads(call->threads));
    const map_pass pass = {.shape = shape,
                           .n_samples = call->n_samples,
                           .source = {.grad = &call->dy},
                           .w = call->w,
                           .is_turned = true,
                           .out = call->dx.out,
                           .out_pitch = call->dx.pitch,
                           .sink = is_closed ? NULL : &call->dx,
                           .partials = (double *)(void *)((char *)call->workspace + panels),
                           .units = K(map_units)(shape, true),
                           .workspace = call->workspace,
                           .threads = call->threads};
    if (call->is_reset) {
        sink_reset(&call->dx, shape->in_c);
    }
    K(map_run)(&pass, true);
    sink_merge(&call->dx, pass.partials, call->n_samples * pass.units, shape->in_c);
}

void K(fused_backward)(const dunlin_fused_call *call)
{
    if (dunlin__shape_is_depthwise(call->shape)) {
        plain_backward(call);
        return;
    }
    if (call->dw != NULL || call->db != NULL) {
        K(reduce_run)(call, call->workspace);
    }
    if (call->dx.out != NULL) {
        run_input_grad(call);
    }
}

/* --- plain calls --- */

size_t K(conv_workspace_bytes)(const dunlin_conv_shape *shape, dunlin_conv_pass pass,
                               size_t n_threads)
{
    static const uint32_t uses[] = {DUNLIN_FUSED_FORWARD, DUNLIN_FUSED_INPUT_GRAD,
                                    DUNLIN_FUSED_WEIGHT_GRAD};
    if (dunlin__shape_is_depthwise(shape)) {
        return pass == DUNLIN_CONV_WEIGHT_GRAD ? K(depthwise_workspace_bytes)(shape) : 0;
    }
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
    fused.dx = (dunlin_sink){.out = call->out, .pitch = shape->in_c};
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
