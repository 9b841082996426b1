/*
 * reference.c - the definition of the kernels in double, written for reading: one loop per index,
 * no shortcut shared with what it checks.
 */
#include "reference.h"

#include <math.h>
#include <string.h>

int64_t reference_conv_x_count(const dunlin_conv_shape *shape)
{
    return (int64_t)shape->in_h * shape->in_w * shape->in_c;
}

int64_t reference_conv_y_count(const dunlin_conv_shape *shape)
{
    return (int64_t)shape->out_h * shape->out_w * shape->out_c;
}

int64_t reference_conv_w_count(const dunlin_conv_shape *shape)
{
    return (int64_t)shape->kernel_h * shape->kernel_w * (shape->in_c / shape->groups) *
           shape->out_c;
}

/* One product of a convolution: elements of x, w and y that belong together. */
typedef void (*product_fn)(void *ctx, int64_t x, int64_t w, int64_t y);

typedef struct conv_walk {
    const dunlin_conv_shape *shape;
    product_fn fn;
    void *ctx;
} conv_walk;

static void walk_tap(const conv_walk *walk, int64_t x_pixel, int64_t tap, int64_t y_pixel)
{
    const dunlin_conv_shape *s = walk->shape;
    const int32_t group_in = s->in_c / s->groups;
    const int32_t group_out = s->out_c / s->groups;
    for (int32_t o = 0; o < s->out_c; o++) {
        for (int32_t c = 0; c < group_in; c++) {
            int32_t channel = o / group_out * group_in + c;
            walk->fn(walk->ctx, x_pixel * s->in_c + channel, (tap * group_in + c) * s->out_c + o,
                     y_pixel * s->out_c + o);
        }
    }
}

static void walk_pixel(const conv_walk *walk, int64_t sample, int32_t oy, int32_t ox)
{
    const dunlin_conv_shape *s = walk->shape;
    const int64_t y_pixel = (sample * s->out_h + oy) * s->out_w + ox;
    for (int32_t kh = 0; kh < s->kernel_h; kh++) {
        for (int32_t kw = 0; kw < s->kernel_w; kw++) {
            int32_t iy = oy * s->stride_h - s->pad_top + kh * s->dilation_h;
            int32_t ix = ox * s->stride_w - s->pad_left + kw * s->dilation_w;
            if (iy >= 0 && iy < s->in_h && ix >= 0 && ix < s->in_w) {
                int64_t x_pixel = (sample * s->in_h + iy) * s->in_w + ix;
                walk_tap(walk, x_pixel, (int64_t)kh * s->kernel_w + kw, y_pixel);
            }
        }
    }
}

static void walk_products(const conv_walk *walk, int64_t n)
{
    for (int64_t sample = 0; sample < n; sample++) {
        for (int32_t oy = 0; oy < walk->shape->out_h; oy++) {
            for (int32_t ox = 0; ox < walk->shape->out_w; ox++) {
                walk_pixel(walk, sample, oy, ox);
            }
        }
    }
}

typedef struct conv_sum {
    const double *x;
    const double *w;
    const double *dy;
    double *out;
    double *size;
} conv_sum;

static void add_product(const conv_sum *sum, int64_t out, double product)
{
    sum->out[out] += product;
    if (sum->size != NULL) {
        sum->size[out] += fabs(product);
    }
}

static void add_forward(void *ctx, int64_t x, int64_t w, int64_t y)
{
    const conv_sum *sum = ctx;
    add_product(sum, y, sum->x[x] * sum->w[w]);
}

static void add_input_grad(void *ctx, int64_t x, int64_t w, int64_t y)
{
    const conv_sum *sum = ctx;
    add_product(sum, x, sum->dy[y] * sum->w[w]);
}

static void add_weight_grad(void *ctx, int64_t x, int64_t w, int64_t y)
{
    const conv_sum *sum = ctx;
    add_product(sum, w, sum->dy[y] * sum->x[x]);
}

static void clear(double *a, double *b, int64_t n)
{
    memset(a, 0, (size_t)n * sizeof *a);
    if (b != NULL) {
        memset(b, 0, (size_t)n * sizeof *b);
    }
}

void reference_conv_forward(const dunlin_conv_shape *shape, int64_t n, const double *x,
                            const double *w, const double *bias, double *y, double *size)
{
    conv_sum sum = {.x = x, .w = w, .out = y, .size = size};
    conv_walk walk = {.shape = shape, .fn = add_forward, .ctx = &sum};
    const int64_t count = n * reference_conv_y_count(shape);
    clear(y, size, count);
    for (int64_t i = 0; bias != NULL && i < count; i++) {
        add_product(&sum, i, bias[i % shape->out_c]);
    }
    walk_products(&walk, n);
}

void reference_conv_input_grad(const dunlin_conv_shape *shape, int64_t n, const double *w,
                               const double *dy, double *dx, double *size)
{
    conv_sum sum = {.w = w, .dy = dy, .out = dx, .size = size};
    conv_walk walk = {.shape = shape, .fn = add_input_grad, .ctx = &sum};
    clear(dx, size, n * reference_conv_x_count(shape));
    walk_products(&walk, n);
}

void reference_conv_weight_grad(const dunlin_conv_shape *shape, int64_t n, const double *x,
                                const double *dy, double *dw, double *size)
{
    conv_sum sum = {.x = x, .dy = dy, .out = dw, .size = size};
    conv_walk walk = {.shape = shape, .fn = add_weight_grad, .ctx = &sum};
    clear(dw, size, reference_conv_w_count(shape));
    walk_products(&walk, n);
}

void reference_bias_grad(const dunlin_conv_shape *shape, int64_t n, const double *dy, double *db,
                         double *size)
{
    conv_sum sum = {.out = db, .size = size};
    clear(db, size, shape->out_c);
    for (int64_t i = 0; i < n * reference_conv_y_count(shape); i++) {
        add_product(&sum, i % shape->out_c, dy[i]);
    }
}

/* Pixels from one tap of a window to the next. */
static int64_t dilation(int32_t given)
{
    return given > 1 ? given : 1;
}

/* The image element under tap (kh, kw) of a window, or -1. */
static int64_t pool_x(const dunlin_pool_shape *s, int64_t y, int32_t kh, int32_t kw)
{
    int64_t channel = y % s->channels;
    int64_t ox = y / s->channels % s->out_w;
    int64_t oy = y / s->channels / s->out_w % s->out_h;
    int64_t sample = y / s->channels / s->out_w / s->out_h;
    int64_t iy = oy * s->stride_h - s->pad_top + kh * dilation(s->dilation_h);
    int64_t ix = ox * s->stride_w - s->pad_left + kw * dilation(s->dilation_w);
    if (iy < 0 || iy >= s->in_h || ix < 0 || ix >= s->in_w) {
        return -1;
    }
    return ((sample * s->in_h + iy) * s->in_w + ix) * s->channels + channel;
}

void reference_max_pool(const dunlin_pool_shape *shape, int64_t n, const double *x, double *y,
                        uint8_t *index)
{
    const int64_t count = n * shape->out_h * shape->out_w * shape->channels;
    for (int64_t i = 0; i < count; i++) {
        int32_t winner = 255;
        y[i] = 0.0;
        for (int32_t k = 0; k < shape->kernel_h * shape->kernel_w; k++) {
            int64_t at = pool_x(shape, i, k / shape->kernel_w, k % shape->kernel_w);
            if (at >= 0 && (winner == 255 || x[at] > y[i])) {
                winner = k;
                y[i] = x[at];
            }
        }
        if (index != NULL) {
            index[i] = (uint8_t)winner;
        }
    }
}

void reference_max_pool_grad(const dunlin_pool_shape *shape, int64_t n, const double *dy,
                             const uint8_t *index, double *dx)
{
    clear(dx, NULL, n * shape->in_h * shape->in_w * shape->channels);
    const int64_t count = n * shape->out_h * shape->out_w * shape->channels;
    for (int64_t i = 0; i < count; i++) {
        if (index[i] != 255) {
            int32_t k = index[i];
            dx[pool_x(shape, i, k / shape->kernel_w, k % shape->kernel_w)] += dy[i];
        }
    }
}

/* What an average divides by; a sum: 1. */
static double pool_divisor(const dunlin_pool_shape *s, int64_t y)
{
    int64_t ox = y / s->channels % s->out_w;
    int64_t oy = y / s->channels / s->out_w % s->out_h;
    double divisor = 0.0;
    for (int32_t k = 0; k < s->kernel_h * s->kernel_w && !s->is_sum; k++) {
        /* of the padded image */
        int64_t iy = oy * s->stride_h + k / s->kernel_w * dilation(s->dilation_h);
        int64_t ix = ox * s->stride_w + k % s->kernel_w * dilation(s->dilation_w);
        bool is_padded =
            iy < s->pad_top + s->in_h + s->pad_bottom && ix < s->pad_left + s->in_w + s->pad_right;
        bool is_inside = pool_x(s, y, k / s->kernel_w, k % s->kernel_w) >= 0;
        divisor += (s->counts_padding ? is_padded : is_inside) ? 1.0 : 0.0;
    }
    return s->is_sum ? 1.0 : divisor;
}

void reference_average_pool(const dunlin_pool_shape *shape, int64_t n, const double *x, double *y)
{
    const int64_t count = n * shape->out_h * shape->out_w * shape->channels;
    for (int64_t i = 0; i < count; i++) {
        double sum = 0.0;
        for (int32_t k = 0; k < shape->kernel_h * shape->kernel_w; k++) {
            int64_t at = pool_x(shape, i, k / shape->kernel_w, k % shape->kernel_w);
            sum += at >= 0 ? x[at] : 0.0;
        }
        double divisor = pool_divisor(shape, i);
        y[i] = divisor == 0.0 ? 0.0 : sum / divisor;
    }
}

void reference_average_pool_grad(const dunlin_pool_shape *shape, int64_t n, const double *dy,
                                 double *dx)
{
    clear(dx, NULL, n * shape->in_h * shape->in_w * shape->channels);
    const int64_t count = n * shape->out_h * shape->out_w * shape->channels;
    for (int64_t i = 0; i < count; i++) {
        for (int32_t k = 0; k < shape->kernel_h * shape->kernel_w; k++) {
            int64_t at = pool_x(shape, i, k / shape->kernel_w, k % shape->kernel_w);
            if (at >= 0) {
                dx[at] += dy[i] / pool_divisor(shape, i);
            }
        }
    }
}

void reference_norm_statistics(int64_t n_rows, int32_t channels, const double *x, double epsilon,
                               double *mean, double *inv_std)
{
    for (int32_t c = 0; c < channels; c++) {
        double sum = 0.0;
        double squares = 0.0;
        for (int64_t i = 0; i < n_rows; i++) {
            sum += x[i * channels + c];
        }
        mean[c] = sum / (double)n_rows;
        for (int64_t i = 0; i < n_rows; i++) {
            double d = x[i * channels + c] - mean[c];
            squares += d * d;
        }
        inv_std[c] = 1.0 / sqrt(squares / (double)n_rows + epsilon);
    }
}

void reference_norm(int64_t n_rows, int32_t channels, const double *x, const double *gamma,
                    const double *beta, double epsilon, double *y)
{
    for (int32_t c = 0; c < channels; c++) {
        double sum = 0.0;
        double squares = 0.0;
        for (int64_t i = 0; i < n_rows; i++) {
            sum += x[i * channels + c];
        }
        for (int64_t i = 0; i < n_rows; i++) {
            double d = x[i * channels + c] - sum / (double)n_rows;
            squares += d * d;
        }
        double inv_std = 1.0 / sqrt(squares / (double)n_rows + epsilon);
        for (int64_t i = 0; i < n_rows; i++) {
            double d = x[i * channels + c] - sum / (double)n_rows;
            y[i * channels + c] = d * inv_std * gamma[c] + beta[c];
        }
    }
}

double reference_softmax_loss(int32_t classes, const double *logits, int32_t label, double *dlogits)
{
    double largest = logits[0];
    for (int32_t c = 1; c < classes; c++) {
        largest = fmax(largest, logits[c]);
    }
    double sum = 0.0;
    for (int32_t c = 0; c < classes; c++) {
        sum += exp(logits[c] - largest);
    }
    for (int32_t c = 0; dlogits != NULL && c < classes; c++) {
        dlogits[c] = exp(logits[c] - largest) / sum - (c == label ? 1.0 : 0.0);
    }
    return log(sum) - (logits[label] - largest);
}
