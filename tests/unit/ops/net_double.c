/*
 * net_double.c - see net_double.h. Written to be read, not to be fast.
 */
#include "net_double.h"

#include "net_double_moves.h"
#include "net_double_tokens.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *zeros(int64_t n)
{
    double *memory = calloc((size_t)n + 1, sizeof *memory);
    assert(memory != NULL);
    return memory;
}

void net_double_open(net_double *reference, const dunlin_net *net, int64_t n, const int32_t *labels)
{
    *reference = (net_double){.net = net, .n = n, .labels = labels};
    reference->params = calloc(net->n_params + 1, sizeof *reference->params);
    reference->values = calloc(net->n_values + 1, sizeof *reference->values);
    reference->masks = calloc(net->n_nodes + 1, sizeof *reference->masks);
    assert(reference->params != NULL && reference->values != NULL && reference->masks != NULL);
    for (size_t i = 0; i < net->n_params; i++) {
        reference->params[i] = zeros(net->params[i].n_elements);
    }
    for (size_t i = 0; i < net->n_values; i++) {
        reference->values[i] = zeros(n * dunlin__value_elements(&net->values[i]));
    }
}

void net_double_close(net_double *reference)
{
    net_double_end_slopes(reference);
    for (size_t i = 0; i < reference->net->n_params; i++) {
        free(reference->params[i]);
    }
    for (size_t i = 0; i < reference->net->n_values; i++) {
        free(reference->values[i]);
    }
    for (size_t i = 0; i < reference->net->n_nodes; i++) {
        free(reference->masks[i]);
    }
    free(reference->params);
    free(reference->values);
    free(reference->masks);
}

/* Channels, rows, columns of a value: a row of features has one pixel. */
typedef struct extent {
    int64_t c, h, w;
} extent;

static extent extent_of(const net_double *reference, uint32_t value)
{
    const dunlin_shape *shape = &reference->net->values[value].shape;
    if (reference->net->values[value].layout == DUNLIN_LAYOUT_IMAGE && shape->n_dims == 2) {
        return (extent){shape->dims[0], 1, shape->dims[1]};
    }
    if (shape->n_dims == 3) {
        return (extent){shape->dims[0], shape->dims[1], shape->dims[2]};
    }
    return (extent){dunlin__value_elements(&reference->net->values[value]), 1, 1};
}

static double *at(const net_double *reference, uint32_t value, int64_t s, int64_t c, int64_t h,
                  int64_t w)
{
    extent e = extent_of(reference, value);
    return &reference->values[value][((s * e.c + c) * e.h + h) * e.w + w];
}

/* One output pixel of one channel. */
static double conv_at(const net_double *reference, const dunlin_net_node *node, int64_t s,
                      int64_t o, int64_t y, int64_t x)
{
    const dunlin_net_conv *conv = &node->u.conv;
    extent in = extent_of(reference, node->inputs[0]);
    int64_t per_group = in.c / conv->groups;
    int64_t first = o / (conv->out_channels / conv->groups) * per_group;
    const double *weight = reference->params[node->params[0]];
    double sum = 0.0;
    for (int64_t c = 0; c < per_group; c++) {
        for (int64_t i = 0; i < conv->kernel_h; i++) {
            for (int64_t j = 0; j < conv->kernel_w; j++) {
                int64_t row = y * conv->stride_h - conv->pad_top + i * conv->dilation_h;
                int64_t column = x * conv->stride_w - conv->pad_left + j * conv->dilation_w;
                if (row >= 0 && row < in.h && column >= 0 && column < in.w) {
                    int64_t k = ((o * per_group + c) * conv->kernel_h + i) * conv->kernel_w + j;
                    sum += weight[k] * *at(reference, node->inputs[0], s, first + c, row, column);
                }
            }
        }
    }
    bool has_bias = node->n_params > 1 && node->params[1] != DUNLIN_NET_NONE;
    return has_bias ? sum + reference->params[node->params[1]][o] : sum;
}

/* One output pixel of one channel: what the windows of all input pixels add to it. */
static double conv_transposed_at(const net_double *reference, const dunlin_net_node *node,
                                 int64_t s, int64_t o, int64_t y, int64_t x)
{
    const dunlin_net_conv *conv = &node->u.conv;
    const extent in = extent_of(reference, node->inputs[0]);
    const int64_t per_group = in.c / conv->groups;
    const int64_t out_per_group = conv->out_channels / conv->groups;
    const int64_t first = o / out_per_group * per_group;
    const double *weight = reference->params[node->params[0]];
    double sum = 0.0;
    for (int64_t c = first; c < first + per_group; c++) {
        for (int64_t h = 0; h < in.h; h++) {
            for (int64_t w = 0; w < in.w; w++) {
                const int64_t down = y + conv->pad_top - h * conv->stride_h;
                const int64_t right = x + conv->pad_left - w * conv->stride_w;
                const int64_t i = down / conv->dilation_h;
                const int64_t j = right / conv->dilation_w;
                if (down >= 0 && right >= 0 && i < conv->kernel_h && j < conv->kernel_w &&
                    i * conv->dilation_h == down && j * conv->dilation_w == right) {
                    const int64_t k =
                        ((c * out_per_group + o % out_per_group) * conv->kernel_h + i) *
                            conv->kernel_w +
                        j;
                    sum += weight[k] * *at(reference, node->inputs[0], s, c, h, w);
                }
            }
        }
    }
    const bool has_bias = node->n_params > 1 && node->params[1] != DUNLIN_NET_NONE;
    return has_bias ? sum + reference->params[node->params[1]][o] : sum;
}

/* Where element `i` of n lies among those of the input, and the share of each of these. */
static double resize_place(const dunlin_net_resize *how, int64_t i, int64_t in, int64_t out,
                           float factor)
{
    const double scale = factor > 0.0F ? (double)factor : (double)out / (double)in;
    switch (how->coordinates) {
    case DUNLIN_RESIZE_ASYMMETRIC:
        return (double)i / scale;
    case DUNLIN_RESIZE_ALIGN_CORNERS:
        return out == 1 ? 0.0 : (double)i * ((double)in - 1.0) / ((double)out - 1.0);
    case DUNLIN_RESIZE_PYTORCH_HALF_PIXEL:
        if (out == 1) {
            return 0.0;
        }
        break;
    case DUNLIN_RESIZE_HALF_PIXEL:
        break;
    }
    return ((double)i + 0.5) / scale - 0.5;
}

static double resize_share(const dunlin_net_resize *how, int64_t i, int64_t from, int64_t in,
                           int64_t out, float factor)
{
    const double place = resize_place(how, i, in, out, factor);
    const double whole = how->rounding == DUNLIN_RESIZE_FLOOR               ? floor(place + 1e-9)
                         : how->rounding == DUNLIN_RESIZE_CEIL              ? ceil(place - 1e-9)
                         : how->rounding == DUNLIN_RESIZE_ROUND_PREFER_CEIL ? floor(place + 0.5)
                                                                            : ceil(place - 0.5);
    const double inside = fmin(fmax(how->is_linear ? place : whole, 0.0), (double)in - 1.0);
    return fmax(0.0, 1.0 - fabs(inside - (double)from));
}

static double resized_at(const net_double *reference, const dunlin_net_node *node, int64_t s,
                         int64_t c, int64_t y, int64_t x)
{
    const dunlin_net_resize *how = &node->u.resize;
    const extent in = extent_of(reference, node->inputs[0]);
    const extent out = extent_of(reference, node->output);
    double sum = 0.0;
    for (int64_t h = 0; h < in.h; h++) {
        const double high = resize_share(how, y, h, in.h, out.h, how->factor_h);
        for (int64_t w = 0; w < in.w && high > 0.0; w++) {
            sum += high * resize_share(how, x, w, in.w, out.w, how->factor_w) *
                   *at(reference, node->inputs[0], s, c, h, w);
        }
    }
    return sum;
}

static double pool_at(const net_double *reference, const dunlin_net_node *node, int64_t s,
                      int64_t c, int64_t y, int64_t x)
{
    extent in = extent_of(reference, node->inputs[0]);
    const dunlin_net_pool whole = {.kernel_h = (int32_t)in.h, .kernel_w = (int32_t)in.w};
    const dunlin_net_pool *pool =
        node->kind == DUNLIN_OP_GLOBAL_AVERAGE_POOL ? &whole : &node->u.pool;
    const int64_t step_h = pool->dilation_h > 1 ? pool->dilation_h : 1;
    const int64_t step_w = pool->dilation_w > 1 ? pool->dilation_w : 1;
    const double p = (double)pool->p;
    double sum = 0.0;
    double powers = 0.0;
    double highest = -HUGE_VAL;
    int64_t n_inside = 0;
    int64_t n_padded = 0;
    for (int64_t i = 0; i < pool->kernel_h; i++) {
        for (int64_t j = 0; j < pool->kernel_w; j++) {
            int64_t row = y * pool->stride_h - pool->pad_top + i * step_h;
            int64_t column = x * pool->stride_w - pool->pad_left + j * step_w;
            n_padded += row < in.h + pool->pad_bottom && column < in.w + pool->pad_right;
            if (row >= 0 && row < in.h && column >= 0 && column < in.w) {
                double value = *at(reference, node->inputs[0], s, c, row, column);
                sum += value;
                powers += pow(fabs(value), p);
                highest = value > highest ? value : highest;
                n_inside++;
            }
        }
    }
    if (node->kind == DUNLIN_OP_MAX_POOL) {
        return highest;
    }
    if (node->kind == DUNLIN_OP_LP_POOL) {
        return pow(powers, 1.0 / p);
    }
    return sum / (double)(pool->counts_padding ? n_padded : n_inside);
}

static double response_norm_at(const net_double *reference, const dunlin_net_node *node, int64_t s,
                               int64_t c, int64_t y, int64_t x)
{
    const int64_t before = (node->u.response_norm.size - 1) / 2;
    const int64_t after = node->u.response_norm.size - 1 - before;
    const int64_t channels = extent_of(reference, node->output).c;
    double squares = 0.0;
    for (int64_t i = c - before; i <= c + after; i++) {
        const double v = i >= 0 && i < channels ? *at(reference, node->inputs[0], s, i, y, x) : 0.0;
        squares += v * v;
    }
    const double alpha = (double)node->u.response_norm.alpha / node->u.response_norm.size;
    return *at(reference, node->inputs[0], s, c, y, x) /
           pow((double)node->u.response_norm.bias + alpha * squares,
               (double)node->u.response_norm.beta);
}

/* Mean and biased variance of one channel over the batch. */
static void channel_statistics(const net_double *reference, uint32_t value, int64_t c,
                               double *out_mean, double *out_variance)
{
    extent e = extent_of(reference, value);
    double n = (double)(reference->n * e.h * e.w);
    double mean = 0.0;
    double variance = 0.0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t s = 0; s < reference->n; s++) {
            for (int64_t i = 0; i < e.h * e.w; i++) {
                double x = *at(reference, value, s, c, i / e.w, i % e.w);
                if (pass == 0) {
                    mean += x / n;
                } else {
                    variance += (x - mean) * (x - mean) / n;
                }
            }
        }
    }
    *out_mean = mean;
    *out_variance = variance;
}

static void run_batch_norm(const net_double *reference, const dunlin_net_node *node)
{
    extent e = extent_of(reference, node->output);
    for (int64_t c = 0; c < e.c; c++) {
        double mean = reference->params[node->params[2]][c];
        double variance = reference->params[node->params[3]][c];
        if (!reference->has_running_norm) {
            channel_statistics(reference, node->inputs[0], c, &mean, &variance);
        }
        double scale =
            reference->params[node->params[0]][c] / sqrt(variance + (double)node->u.batch_norm.eps);
        double shift = reference->params[node->params[1]][c];
        for (int64_t s = 0; s < reference->n; s++) {
            for (int64_t i = 0; i < e.h * e.w; i++) {
                double x = *at(reference, node->inputs[0], s, c, i / e.w, i % e.w);
                *at(reference, node->output, s, c, i / e.w, i % e.w) = (x - mean) * scale + shift;
            }
        }
    }
}

/* One sample's group of channels from `first` on. */
static void run_group(const net_double *reference, const dunlin_net_node *node, int64_t s,
                      int64_t first)
{
    extent e = extent_of(reference, node->output);
    int64_t width = e.c / node->u.group_norm.groups;
    int64_t n = width * e.h * e.w;
    /* The channels of a group lie side by side. */
    const double *x = at(reference, node->inputs[0], s, first, 0, 0);
    double *y = at(reference, node->output, s, first, 0, 0);
    double mean = 0.0;
    double variance = 0.0;
    for (int64_t i = 0; i < n; i++) {
        mean += x[i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        variance += (x[i] - mean) * (x[i] - mean) / (double)n;
    }
    double inv_std = 1.0 / sqrt(variance + (double)node->u.group_norm.eps);
    for (int64_t i = 0; i < n; i++) {
        int64_t c = first + i / (e.h * e.w);
        y[i] = (x[i] - mean) * inv_std * reference->params[node->params[0]][c] +
               reference->params[node->params[1]][c];
    }
}

static void run_group_norm(const net_double *reference, const dunlin_net_node *node)
{
    int64_t channels = extent_of(reference, node->output).c;
    for (int64_t s = 0; s < reference->n; s++) {
        for (int64_t c = 0; c < channels; c += channels / node->u.group_norm.groups) {
            run_group(reference, node, s, c);
        }
    }
}

static double clip(const dunlin_net_node *node, double x)
{
    double low = (double)node->u.clip.low;
    double high = (double)node->u.clip.high;
    return x < low ? low : x > high ? high : x;
}

/* An output element that depends on few inputs; batch norm and group norm are not. */
static double element_at(const net_double *reference, uint32_t node_index, int64_t s, int64_t c,
                         int64_t h, int64_t w)
{
    const dunlin_net_node *node = &reference->net->nodes[node_index];
    extent e = extent_of(reference, node->output);
    int64_t flat = ((s * e.c + c) * e.h + h) * e.w + w;
    const double *x = reference->values[node->inputs[0]];
    const double *mask = reference->masks[node_index];
    switch (node->kind) {
    case DUNLIN_OP_CONV:
        return conv_at(reference, node, s, c, h, w);
    case DUNLIN_OP_CONV_TRANSPOSED:
        return conv_transposed_at(reference, node, s, c, h, w);
    case DUNLIN_OP_RESIZE:
        return resized_at(reference, node, s, c, h, w);
    case DUNLIN_OP_CLIP:
        return clip(node, x[flat]);
    case DUNLIN_OP_MAX_POOL:
    case DUNLIN_OP_AVERAGE_POOL:
    case DUNLIN_OP_GLOBAL_AVERAGE_POOL:
    case DUNLIN_OP_LP_POOL:
        return pool_at(reference, node, s, c, h, w);
    case DUNLIN_OP_RESPONSE_NORM:
        return response_norm_at(reference, node, s, c, h, w);
    case DUNLIN_OP_ADD:
        return x[flat] + reference->values[node->inputs[1]][flat];
    case DUNLIN_OP_FLATTEN:
        return x[flat];
    case DUNLIN_OP_DROPOUT:
        return mask != NULL ? x[flat] * mask[flat] : x[flat];
    case DUNLIN_OP_BATCH_NORM:
    case DUNLIN_OP_DENSE:
    case DUNLIN_OP_LAYER_NORM:
    case DUNLIN_OP_EMBEDDING:
    case DUNLIN_OP_MATMUL:
    case DUNLIN_OP_SOFTMAX:
    case DUNLIN_OP_ATTENTION:
    case DUNLIN_OP_TRANSPOSE:
    case DUNLIN_OP_RESHAPE:
    case DUNLIN_OP_SLICE:
    case DUNLIN_OP_MEAN:
    case DUNLIN_OP_UNARY:
    case DUNLIN_OP_RAMP:
    case DUNLIN_OP_BINARY:
    case DUNLIN_OP_GROUP_NORM:
    case DUNLIN_OP_DENSE_TRANSPOSED:
    case DUNLIN_OP_CONCAT:
    case DUNLIN_OP_PAD:
    case DUNLIN_OP_STACK:
    case DUNLIN_OP_REARRANGE:
    case DUNLIN_OP_PRELU:
    case DUNLIN_OP_REDUCE:
    case DUNLIN_OP_EXPAND:
    case DUNLIN_OP_N_KINDS:
        break;
    }
    assert(!"no such operator");
    return 0.0;
}

void net_double_run_node(net_double *reference, uint32_t node_index)
{
    const dunlin_net_node *node = &reference->net->nodes[node_index];
    if (node->kind == DUNLIN_OP_BATCH_NORM) {
        run_batch_norm(reference, node);
        return;
    }
    if (node->kind == DUNLIN_OP_GROUP_NORM) {
        run_group_norm(reference, node);
        return;
    }
    if (net_double_run_tokens(reference, node) || net_double_run_moves(reference, node)) {
        return;
    }
    extent e = extent_of(reference, node->output);
    for (int64_t i = 0; i < reference->n * e.c * e.h * e.w; i++) {
        reference->values[node->output][i] =
            element_at(reference, node_index, i / (e.c * e.h * e.w), i / (e.h * e.w) % e.c,
                       i / e.w % e.h, i % e.w);
    }
}

/* Of an image a row of numbers for each pixel, else for each index of all dimensions but the last.
 */
double net_double_mean_loss(const net_double *reference)
{
    const dunlin_net_value *output = &reference->net->values[reference->net->output];
    const dunlin_shape *shape = &output->shape;
    const bool is_image = output->layout == DUNLIN_LAYOUT_IMAGE;
    const int64_t n = dunlin__value_elements(output);
    const int64_t classes =
        is_image || shape->n_dims == 1 ? shape->dims[0] : shape->dims[shape->n_dims - 1];
    const int64_t n_rows = n / classes;
    const int64_t step = is_image ? n_rows : 1; /* from one class to the next */
    double total = 0.0;
    for (int64_t i = 0; i < reference->n * n_rows; i++) {
        const double *row = reference->values[reference->net->output] + i / n_rows * n +
                            i % n_rows * (is_image ? 1 : classes);
        double sum = 0.0;
        for (int64_t c = 0; c < classes; c++) {
            sum += exp(row[c * step] - row[reference->labels[i] * step]);
        }
        total += log(sum);
    }
    return total / (double)(reference->n * n_rows);
}

double net_double_loss(net_double *reference)
{
    for (uint32_t i = 0; i < reference->net->n_nodes; i++) {
        net_double_run_node(reference, i);
    }
    return net_double_mean_loss(reference);
}
