/*
 * pools.c - pooling that one row does not do as the file says it: the largest of many pixels, zeros
 * before an average that rounds up, averages over three axes.
 *
 * Invariant: every result is that of PyTorch, whose exports these are. It drops a last window that
 * would begin in the padding, so padding that a file writes out is given to the pooling, which
 * knows it as such.
 */
#include "fold.h"
#include "ops/conv/pool_shapes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static dunlin_net_node of_value(dunlin_op_kind kind, uint32_t value)
{
    return (dunlin_net_node){.kind = kind, .inputs = {value}, .n_inputs = 1};
}

/* --- the largest --- */

static bool fold_max(dunlin_onnx_node *node)
{
    const dunlin_net_value *input = dunlin__onnx_known_value(node, 0);
    const bool is_global = strcmp(dunlin__onnx_op_type(node), "GlobalMaxPool") == 0;
    dunlin_net_node made = {.kind = DUNLIN_OP_MAX_POOL};
    dunlin_net_pool parts[DUNLIN_MAX_POOL_PARTS];
    if (input == NULL || input->shape.n_dims < 2 || input->shape.n_dims > 3) {
        return false;
    }
    const dunlin_shape shape = input->shape;
    if ((is_global ? dunlin__op_read_global_pool(node, node->import->net, &made)
                   : dunlin__op_read_pool(node, node->import->net, &made)) != DUNLIN_OK) {
        return true;
    }
    const dunlin_net_pool whole = made.u.pool;
    const int n = dunlin__op_pool_parts(&whole, &shape, parts);
    if (n == 1 || (!is_global && dunlin__onnx_int(node, "storage_order", 0) != 0)) {
        return false; /* the row's own, or refused by it */
    }
    if (n == 0) {
        (void)dunlin__onnx_reject(node, is_global ? "" : "kernel_shape",
                                  "a window of %" PRId32 "x%" PRId32
                                  " is longer than %d and does not cover the whole image",
                                  whole.kernel_h, whole.kernel_w, DUNLIN_MAX_POOL_AREA);
        return true;
    }
    for (int i = 0; i + 1 < n; i++) {
        char suffix[24];
        (void)snprintf(suffix, sizeof suffix, "/part%d", i + 1);
        made.u.pool = parts[i];
        const uint32_t value = dunlin__onnx_make(node, &made, suffix);
        if (value == DUNLIN_NET_NONE) {
            return true;
        }
        made.inputs[0] = value;
    }
    made.u.pool = parts[n - 1];
    dunlin__onnx_finish(node, &made);
    return true;
}

/* --- averages --- */

/* Zeros around the pixels of the value: what they are put around; they are added to the pool's. */
static uint32_t before_zeros(const dunlin_net *net, uint32_t value, dunlin_net_pool *pool)
{
    while (net->values[value].producer != DUNLIN_NET_NONE) {
        const dunlin_net_node *pad = &net->nodes[net->values[value].producer];
        const bool is_zero = pad->kind == DUNLIN_OP_PAD && pad->u.pad.mode == DUNLIN_PAD_CONSTANT &&
                             pad->u.pad.axis > 0 && !(pad->u.pad.value < 0.0F) &&
                             !(pad->u.pad.value > 0.0F);
        if (!is_zero) {
            break;
        }
        const bool is_width = pad->u.pad.axis == net->values[value].shape.n_dims - 1;
        const int64_t most = is_width ? pool->kernel_w - 1 : pool->kernel_h - 1;
        int32_t *first = is_width ? &pool->pad_left : &pool->pad_top;
        int32_t *last = is_width ? &pool->pad_right : &pool->pad_bottom;
        if (*first + pad->u.pad.before > most || *last + pad->u.pad.after > most) {
            break;
        }
        *first += (int32_t)pad->u.pad.before;
        *last += (int32_t)pad->u.pad.after;
        value = pad->inputs[0];
    }
    return value;
}

/* An average that rounds up, of what zeros were put around: only as padding they are not begun in.
 */
static bool fold_rounded_up(dunlin_onnx_node *node)
{
    dunlin_net_node made = {.kind = DUNLIN_OP_AVERAGE_POOL};
    if (dunlin__op_read_pool(node, node->import->net, &made) != DUNLIN_OK) {
        return true;
    }
    dunlin_net_pool *p = &made.u.pool;
    const bool is_padded = (p->pad_top | p->pad_left | p->pad_bottom | p->pad_right) != 0;
    const uint32_t x = before_zeros(node->import->net, made.inputs[0], p);
    if (!p->is_ceil || (is_padded && !p->counts_padding) || x == made.inputs[0] ||
        p->dilation_h > 1 || p->dilation_w > 1) {
        return false;
    }
    p->counts_padding = true;
    made.inputs[0] = x;
    dunlin__onnx_finish(node, &made);
    return true;
}

/* What a window over three axes is, if along some of them it is a single element. */
typedef struct window3 {
    int64_t kernel[3], strides[3], pads[6];
} window3;

static bool is_single(const window3 *w, int axis)
{
    return w->kernel[axis] == 1 && w->strides[axis] == 1 && w->pads[axis] == 0 &&
           w->pads[axis + 3] == 0;
}

static bool read_window3(dunlin_onnx_node *node, window3 *w)
{
    int64_t dilations[3] = {1, 1, 1};
    *w = (window3){.strides = {1, 1, 1}};
    bool is_good = dunlin__onnx_ints(node, "kernel_shape", w->kernel, 3) == 3;
    const int32_t n_strides = dunlin__onnx_ints(node, "strides", w->strides, 3);
    const int32_t n_pads = dunlin__onnx_ints(node, "pads", w->pads, 6);
    const int32_t n_dilations = dunlin__onnx_ints(node, "dilations", dilations, 3);
    is_good = is_good && (n_strides == 0 || n_strides == 3) && (n_pads == 0 || n_pads == 6) &&
              (n_dilations == 0 || n_dilations == 3) && dilations[0] == 1 && dilations[1] == 1 &&
              dilations[2] == 1 &&
              strcmp(dunlin__onnx_text(node, "auto_pad", "NOTSET"), "NOTSET") == 0;
    for (int i = 0; is_good && i < 6; i++) {
        is_good = w->pads[i] >= 0 && w->pads[i] <= UINT16_MAX &&
                  (i >= 3 || (w->kernel[i] >= 1 && w->kernel[i] <= UINT16_MAX &&
                              w->strides[i] >= 1 && w->strides[i] <= UINT16_MAX));
    }
    return is_good;
}

/* The value under another shape; NONE after a rejection. */
static uint32_t reshape(dunlin_onnx_node *node, uint32_t value, const dunlin_shape *shape,
                        const char *suffix)
{
    dunlin_net_node made = of_value(DUNLIN_OP_RESHAPE, value);
    made.u.reshape.shape = *shape;
    return dunlin__onnx_make(node, &made, suffix);
}

/* Of (C, D, H, W): over D alone it is that of an image (C, D, HW), over H and W of (CD, H, W). */
static bool fold_three_axes(dunlin_onnx_node *node, const dunlin_net_value *input)
{
    const dunlin_shape x = input->shape;
    window3 w;
    const bool is_read = read_window3(node, &w);
    const bool is_deep = is_read && is_single(&w, 1) && is_single(&w, 2);
    if (!is_deep && !(is_read && is_single(&w, 0))) {
        return false; /* refused by the row */
    }
    const int at = is_deep ? 0 : 1;
    const int next = is_deep ? 1 : 2;
    dunlin_net_node made = {.kind = DUNLIN_OP_AVERAGE_POOL, .n_inputs = 1};
    made.u.pool = (dunlin_net_pool){
        .kernel_h = (int32_t)w.kernel[at],
        .kernel_w = (int32_t)w.kernel[next],
        .stride_h = (int32_t)w.strides[at],
        .stride_w = (int32_t)w.strides[next],
        .pad_top = (int32_t)w.pads[at],
        .pad_left = (int32_t)w.pads[next],
        .pad_bottom = (int32_t)w.pads[at + 3],
        .pad_right = (int32_t)w.pads[next + 3],
        .is_ceil = dunlin__onnx_int(node, "ceil_mode", 0) != 0,
        .counts_padding = dunlin__onnx_int(node, "count_include_pad", 0) != 0,
    };
    const dunlin_shape flat =
        is_deep ? (dunlin_shape){3, {x.dims[0], x.dims[1], x.dims[2] * x.dims[3]}}
                : (dunlin_shape){3, {x.dims[0] * x.dims[1], x.dims[2], x.dims[3]}};
    made.inputs[0] = reshape(node, dunlin__onnx_value_input(node, 0), &flat, "/flat");
    const uint32_t pooled = made.inputs[0] != DUNLIN_NET_NONE
                                ? dunlin__onnx_make(node, &made, "/pooled")
                                : DUNLIN_NET_NONE;
    if (pooled == DUNLIN_NET_NONE) {
        return true;
    }
    const dunlin_shape *y = &node->import->net->values[pooled].shape;
    dunlin_net_node back = of_value(DUNLIN_OP_RESHAPE, pooled);
    back.u.reshape.shape = is_deep
                               ? (dunlin_shape){4, {x.dims[0], y->dims[1], x.dims[2], x.dims[3]}}
                               : (dunlin_shape){4, {x.dims[0], x.dims[1], y->dims[1], y->dims[2]}};
    dunlin__onnx_finish(node, &back);
    return true;
}

static bool fold_average(dunlin_onnx_node *node)
{
    const dunlin_net_value *input = dunlin__onnx_known_value(node, 0);
    if (input != NULL && input->shape.n_dims == 4) {
        return fold_three_axes(node, input);
    }
    const bool may_be = input != NULL && (input->shape.n_dims == 2 || input->shape.n_dims == 3) &&
                        dunlin__onnx_int(node, "ceil_mode", 0) != 0;
    return may_be && fold_rounded_up(node);
}

bool dunlin__onnx_fold_pools(dunlin_onnx_node *node)
{
    static const dunlin_onnx_fold entries[] = {
        {"MaxPool", fold_max}, {"GlobalMaxPool", fold_max}, {"AveragePool", fold_average}};
    return dunlin__onnx_fold_by(node, entries, sizeof entries / sizeof entries[0]);
}
