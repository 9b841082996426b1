/*
 * net_double_tokens.c - see net_double_tokens.h. Written to be read: every element by its place
 * (sample and indices), no strides.
 */
#include "net_double_tokens.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const dunlin_shape *shape_of(const net_double *reference, uint32_t value)
{
    return &reference->net->values[value].shape;
}

static int64_t size_of(const dunlin_shape *shape)
{
    int64_t n = 1;
    for (int32_t i = 0; i < shape->n_dims; i++) {
        n *= shape->dims[i];
    }
    return n;
}

static int64_t last_of(const dunlin_shape *shape)
{
    return shape->dims[shape->n_dims - 1];
}

/* Indices of element i of a shape, and back; a dimension of 1 takes index 0, dimensions the other
 * has in front are left out. */
static void indices_of(const dunlin_shape *shape, int64_t i, int64_t *out)
{
    for (int32_t d = shape->n_dims - 1; d >= 0; d--) {
        out[d] = i % shape->dims[d];
        i /= shape->dims[d];
    }
}

static int64_t element_of(const dunlin_shape *shape, const int64_t *indices)
{
    int64_t i = 0;
    for (int32_t d = 0; d < shape->n_dims; d++) {
        i = i * shape->dims[d] + (shape->dims[d] == 1 ? 0 : indices[d]);
    }
    return i;
}

/* Right-aligned: indices of a shape of n_dims dimensions seen from `shape`. */
static int64_t aligned(const dunlin_shape *shape, const int64_t *indices, int32_t n_dims)
{
    int64_t own[DUNLIN_MAX_DIMS] = {0};
    for (int32_t d = 0; d < shape->n_dims; d++) {
        int32_t from = d + n_dims - shape->n_dims;
        own[d] = from >= 0 ? indices[from] : 0;
    }
    return element_of(shape, own);
}

static double unary(const dunlin_net_node *node, double x)
{
    const double a = (double)node->u.unary.a;
    const double b = (double)node->u.unary.b;
    switch (node->u.unary.fn) {
    case DUNLIN_UNARY_AFFINE:
        return a * x + b;
    case DUNLIN_UNARY_TANH:
        return tanh(x);
    case DUNLIN_UNARY_ERF:
        return erf(x);
    case DUNLIN_UNARY_SQRT:
        return sqrt(x);
    case DUNLIN_UNARY_POWER:
        return pow(x, a);
    case DUNLIN_UNARY_GELU:
        return 0.5 * x * erfc(-x / sqrt(2.0));
    case DUNLIN_UNARY_SIGMOID:
        return 1.0 / (1.0 + exp(-x));
    case DUNLIN_UNARY_LEAKY_RELU:
        return x > 0.0 ? x : a * x;
    case DUNLIN_UNARY_SILU:
        return x / (1.0 + exp(-x));
    case DUNLIN_UNARY_HARD_SIGMOID:
        return fmin(fmax(a * x + b, 0.0), 1.0);
    case DUNLIN_UNARY_HARD_SWISH:
        return x * fmin(fmax(x + 3.0, 0.0), 6.0) / 6.0;
    case DUNLIN_UNARY_ELU:
        return x > 0.0 ? x : a * expm1(x);
    case DUNLIN_UNARY_SELU:
        return b * (x > 0.0 ? x : a * expm1(x));
    case DUNLIN_UNARY_CELU:
        return x > 0.0 ? x : a * expm1(x / a);
    case DUNLIN_UNARY_SOFTPLUS:
        return log1p(exp(x));
    case DUNLIN_UNARY_SOFTSIGN:
        return x / (1.0 + fabs(x));
    case DUNLIN_UNARY_MISH:
        return x * tanh(log1p(exp(x)));
    case DUNLIN_UNARY_ABS:
        return fabs(x);
    case DUNLIN_UNARY_EXP:
        return exp(x);
    case DUNLIN_UNARY_LOG:
        return log(x);
    case DUNLIN_UNARY_SIN:
        return sin(x);
    case DUNLIN_UNARY_COS:
        return cos(x);
    case DUNLIN_UNARY_THRESHOLD:
        return x > a ? x : 0.0;
    case DUNLIN_UNARY_SIGN:
        return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : 0.0;
    case DUNLIN_UNARY_ABS_POWER:
        return pow(fabs(x), a);
    case DUNLIN_UNARY_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    }
    return NAN;
}

static double binary(dunlin_binary_fn fn, double a, double b)
{
    switch (fn) {
    case DUNLIN_BINARY_ADD:
        return a + b;
    case DUNLIN_BINARY_SUB:
        return a - b;
    case DUNLIN_BINARY_MUL:
        return a * b;
    case DUNLIN_BINARY_DIV:
        return a / b;
    case DUNLIN_BINARY_MAX:
        return fmax(a, b);
    case DUNLIN_BINARY_MIN:
        return fmin(a, b);
    }
    return NAN;
}

static double binary_at(const net_double *reference, const dunlin_net_node *node, int64_t s,
                        const int64_t *indices)
{
    const int32_t n_dims = shape_of(reference, node->output)->n_dims;
    double sides[2];
    for (int side = 0; side < 2; side++) {
        const bool is_param = node->n_inputs == 1 && (side == 0) == node->u.binary.is_param_left;
        if (is_param) {
            const dunlin_shape *shape = &reference->net->params[node->params[0]].shape;
            sides[side] = reference->params[node->params[0]][aligned(shape, indices, n_dims)];
            continue;
        }
        const uint32_t value = node->inputs[node->n_inputs == 1 ? 0 : side];
        const dunlin_shape *shape = shape_of(reference, value);
        sides[side] =
            reference->values[value][s * size_of(shape) + aligned(shape, indices, n_dims)];
    }
    return binary(node->u.binary.fn, sides[0], sides[1]);
}

static double layer_norm_at(const net_double *reference, const dunlin_net_node *node, int64_t s,
                            int64_t i)
{
    const dunlin_shape *shape = shape_of(reference, node->inputs[0]);
    const int64_t width = reference->net->params[node->params[0]].n_elements;
    const double *row = reference->values[node->inputs[0]] + s * size_of(shape) + i / width * width;
    double mean = 0.0;
    double variance = 0.0;
    const bool is_about_zero = node->u.layer_norm.is_about_zero;
    for (int64_t k = 0; k < width && !is_about_zero; k++) {
        mean += row[k] / (double)width;
    }
    for (int64_t k = 0; k < width; k++) {
        variance += (row[k] - mean) * (row[k] - mean) / (double)width;
    }
    const double hat = (row[i % width] - mean) / sqrt(variance + (double)node->u.layer_norm.eps);
    return hat * reference->params[node->params[0]][i % width] +
           (is_about_zero ? 0.0 : reference->params[node->params[1]][i % width]);
}

static double softmax_at(const double *row, int64_t n, int64_t i)
{
    double sum = 0.0;
    for (int64_t k = 0; k < n; k++) {
        sum += exp(row[k] - row[i]);
    }
    return 1.0 / sum;
}

static double matmul_at(const net_double *reference, const dunlin_net_node *node, int64_t s,
                        const int64_t *indices)
{
    const dunlin_shape *a = shape_of(reference, node->inputs[0]);
    const dunlin_shape *b = shape_of(reference, node->inputs[1]);
    const int32_t n = a->n_dims;
    const bool is_a_transposed = node->u.matmul.is_left_transposed;
    const bool is_b_transposed = node->u.matmul.is_right_transposed;
    const int64_t depth = a->dims[is_a_transposed ? n - 2 : n - 1];
    double sum = 0.0;
    for (int64_t k = 0; k < depth; k++) {
        int64_t left[DUNLIN_MAX_DIMS];
        int64_t right[DUNLIN_MAX_DIMS];
        memcpy(left, indices, sizeof left);
        memcpy(right, indices, sizeof right);
        left[n - 2] = is_a_transposed ? k : indices[n - 2];
        left[n - 1] = is_a_transposed ? indices[n - 2] : k;
        right[n - 2] = is_b_transposed ? indices[n - 1] : k;
        right[n - 1] = is_b_transposed ? k : indices[n - 1];
        sum += reference->values[node->inputs[0]][s * size_of(a) + element_of(a, left)] *
               reference->values[node->inputs[1]][s * size_of(b) + element_of(b, right)];
    }
    return sum;
}

static int64_t kv_heads_of(const dunlin_net_node *node)
{
    return node->u.attention.kv_heads == 0 ? node->u.attention.heads : node->u.attention.kv_heads;
}

static bool is_packed_attention(const dunlin_net_node *node)
{
    return node->n_inputs - (node->u.attention.has_mask ? 1 : 0) == 1;
}

/* Element (token, channel of the head) of q (0), k (1) or v (2). */
static double part_at(const net_double *reference, const dunlin_net_node *node, int part, int64_t s,
                      int64_t token, int64_t head, int64_t channel)
{
    const bool is_packed = is_packed_attention(node);
    const int64_t heads = node->u.attention.heads;
    const int64_t kv_heads = kv_heads_of(node);
    const uint32_t value = node->inputs[is_packed ? 0 : part];
    const dunlin_shape *shape = shape_of(reference, value);
    const int64_t width = last_of(shape_of(reference, node->output)) / heads;
    const int64_t own_head = part == 0 ? head : head / (heads / kv_heads);
    const int64_t heads_before = part == 0 ? 0 : part == 1 ? heads : heads + kv_heads;
    const int64_t at = ((is_packed ? heads_before : 0) + own_head) * width + channel;
    return reference->values[value][(s * shape->dims[0] + token) * shape->dims[1] + at];
}

/* The same of q and k as they are multiplied: with rotary positions. */
static double turned_at(const net_double *reference, const dunlin_net_node *node, int part,
                        int64_t s, int64_t token, int64_t head, int64_t channel)
{
    const double x = part_at(reference, node, part, s, token, head, channel);
    if (node->n_params < 3) {
        return x;
    }
    const int64_t width = last_of(shape_of(reference, node->output)) / node->u.attention.heads;
    const bool is_first = channel < width / 2;
    const double other = part_at(reference, node, part, s, token, head,
                                 is_first ? channel + width / 2 : channel - width / 2);
    const int64_t at = token * width + channel;
    return x * reference->params[node->params[1]][at] +
           (is_first ? -other : other) * reference->params[node->params[2]][at];
}

/* What the masks add to a score; minus infinity: not seen. */
static double mask_at(const net_double *reference, const dunlin_net_node *node, int64_t s,
                      int64_t query, int64_t head, int64_t key, int64_t n_keys)
{
    const dunlin_net_attention *a = &node->u.attention;
    double sum = a->is_causal && key > query ? -INFINITY : 0.0;
    if (a->has_mask) {
        const uint32_t mask = node->inputs[node->n_inputs - 1];
        const int64_t n = size_of(shape_of(reference, mask));
        sum += reference->values[mask][s * n + (n == n_keys ? key : query * n_keys + key)];
    }
    if (node->n_params > 0 && node->params[0] != DUNLIN_NET_NONE) {
        const dunlin_shape *shape = &reference->net->params[node->params[0]].shape;
        const int64_t indices[3] = {head, query, key};
        sum += reference->params[node->params[0]][aligned(shape, indices, 3)];
    }
    return sum;
}

/* One query of one head, all of its channels. */
static void attend(net_double *reference, const dunlin_net_node *node, int64_t s, int64_t query,
                   int64_t head)
{
    const dunlin_net_attention *a = &node->u.attention;
    const dunlin_shape *y = shape_of(reference, node->output);
    const int64_t n_keys =
        shape_of(reference, node->inputs[is_packed_attention(node) ? 0 : 1])->dims[0];
    const int64_t width = y->dims[1] / a->heads;
    double *scores = calloc((size_t)n_keys, sizeof *scores);
    double largest = -INFINITY;
    for (int64_t k = 0; k < n_keys; k++) {
        for (int64_t c = 0; c < width; c++) {
            scores[k] += (double)a->scale * turned_at(reference, node, 0, s, query, head, c) *
                         turned_at(reference, node, 1, s, k, head, c);
        }
        scores[k] += mask_at(reference, node, s, query, head, k, n_keys);
        largest = fmax(largest, scores[k]);
    }
    double sum = 0.0;
    for (int64_t k = 0; k < n_keys; k++) {
        scores[k] = exp(scores[k] - largest);
        sum += scores[k];
    }
    double *out = reference->values[node->output] + (s * y->dims[0] + query) * y->dims[1];
    memset(out + head * width, 0, (size_t)width * sizeof *out);
    for (int64_t k = 0; k < n_keys; k++) {
        const double p = scores[k] / sum;
        for (int64_t c = 0; c < width; c++) {
            out[head * width + c] += p * part_at(reference, node, 2, s, k, head, c);
        }
    }
    free(scores);
}

static void run_attention(net_double *reference, const dunlin_net_node *node)
{
    const int64_t n_queries = shape_of(reference, node->output)->dims[0];
    const int64_t n_heads = node->u.attention.heads;
    for (int64_t i = 0; i < reference->n * n_queries * n_heads; i++) {
        attend(reference, node, i / n_heads / n_queries, i / n_heads % n_queries, i % n_heads);
    }
}

static double mean_at(const net_double *reference, const dunlin_net_node *node, int64_t s,
                      int64_t element)
{
    const dunlin_shape *x = shape_of(reference, node->inputs[0]);
    dunlin_shape kept = *x;
    for (int32_t d = 0; d < x->n_dims; d++) {
        kept.dims[d] = (node->u.mean.axes >> d & 1) != 0 ? 1 : x->dims[d];
    }
    double sum = 0.0;
    for (int64_t i = 0; i < size_of(x); i++) {
        int64_t indices[DUNLIN_MAX_DIMS];
        indices_of(x, i, indices);
        if (element_of(&kept, indices) == element) {
            sum += reference->values[node->inputs[0]][s * size_of(x) + i];
        }
    }
    return sum * (double)size_of(&kept) / (double)size_of(x);
}

static double dense_at(const net_double *reference, const dunlin_net_node *node, int64_t s,
                       int64_t i)
{
    const dunlin_shape *x = shape_of(reference, node->inputs[0]);
    const int64_t n_in = last_of(x);
    const int64_t n_out = last_of(shape_of(reference, node->output));
    const double *row = reference->values[node->inputs[0]] + s * size_of(x) + i / n_out * n_in;
    const double *weight = reference->params[node->params[0]] + i % n_out * n_in;
    double sum =
        node->params[1] == DUNLIN_NET_NONE ? 0.0 : reference->params[node->params[1]][i % n_out];
    for (int64_t k = 0; k < n_in; k++) {
        sum += row[k] * weight[k];
    }
    return sum;
}

static double moved_at(const net_double *reference, const dunlin_net_node *node, int64_t s,
                       const int64_t *indices)
{
    const dunlin_shape *x = shape_of(reference, node->inputs[0]);
    int64_t from[DUNLIN_MAX_DIMS];
    for (int32_t d = 0; d < x->n_dims; d++) {
        if (node->kind == DUNLIN_OP_TRANSPOSE) {
            from[node->u.transpose.perm[d]] = indices[d];
        } else {
            from[d] = indices[d] + (d == node->u.slice.axis ? node->u.slice.start : 0);
        }
    }
    return reference->values[node->inputs[0]][s * size_of(x) + element_of(x, from)];
}

/* Element i of sample s. */
static double token_at(const net_double *reference, const dunlin_net_node *node, int64_t s,
                       int64_t i)
{
    const dunlin_shape *y = shape_of(reference, node->output);
    const dunlin_shape *x = shape_of(reference, node->inputs[0]);
    const double *values = reference->values[node->inputs[0]] + s * size_of(x);
    const int64_t width = last_of(y);
    int64_t indices[DUNLIN_MAX_DIMS];
    indices_of(y, i, indices);
    switch ((int)node->kind) {
    case DUNLIN_OP_LAYER_NORM:
        return layer_norm_at(reference, node, s, i);
    case DUNLIN_OP_EMBEDDING:
        return reference->params[node->params[0]][(int64_t)values[i / width] * width + i % width];
    case DUNLIN_OP_MATMUL:
        return matmul_at(reference, node, s, indices);
    case DUNLIN_OP_SOFTMAX:
        if (node->u.softmax.is_log) {
            return log(softmax_at(values + i / width * width, width, i % width));
        }
        return softmax_at(values + i / width * width, width, i % width);
    case DUNLIN_OP_TRANSPOSE:
    case DUNLIN_OP_SLICE:
        return moved_at(reference, node, s, indices);
    case DUNLIN_OP_RESHAPE:
        return values[i];
    case DUNLIN_OP_MEAN:
        return mean_at(reference, node, s, i);
    case DUNLIN_OP_UNARY:
        return unary(node, values[i]);
    case DUNLIN_OP_BINARY:
        return binary_at(reference, node, s, indices);
    case DUNLIN_OP_PRELU: {
        const bool is_one = reference->net->params[node->params[0]].n_elements == 1;
        const double slope =
            reference->params[node->params[0]][is_one ? 0 : indices[node->u.prelu.axis]];
        return values[i] > 0.0 ? values[i] : slope * values[i];
    }
    case DUNLIN_OP_RAMP:
        return (double)node->u.ramp.first + (double)i * (double)node->u.ramp.step;
    case DUNLIN_OP_DENSE:
        return dense_at(reference, node, s, i);
    default:
        break;
    }
    return NAN;
}

bool net_double_run_tokens(net_double *reference, const dunlin_net_node *node)
{
    const bool is_one = node->kind == DUNLIN_OP_DENSE || node->kind == DUNLIN_OP_PRELU ||
                        (node->kind >= DUNLIN_OP_LAYER_NORM && node->kind <= DUNLIN_OP_BINARY);
    if (!is_one) {
        return false;
    }
    if (node->kind == DUNLIN_OP_ATTENTION) {
        run_attention(reference, node);
        return true;
    }
    const int64_t n = size_of(shape_of(reference, node->output));
    for (int64_t i = 0; i < reference->n * n; i++) {
        reference->values[node->output][i] = token_at(reference, node, i / n, i % n);
    }
    return true;
}
