/*
 * resizes.c - Resize, and Upsample of older files: an image or a signal of another size.
 *
 * Invariant: the network's size is the one that the file says, and so is where each element comes
 * from; what is not the same in all of this (cubes, cut out regions, means while shrinking) is
 * refused.
 */
#include "constants.h"
#include "fold.h"
#include "ops/common/support.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MAX_RANK = DUNLIN_MAX_DIMS + 1 };

/* What a file says of the output, by dimension, the batch first. */
typedef struct resize_sizes {
    int32_t rank;
    int64_t in[MAX_RANK], out[MAX_RANK];
    float factors[MAX_RANK]; /* 0: sizes were given */
} resize_sizes;

static bool refuse(dunlin_onnx_node *node, const char *attribute, const char *text)
{
    (void)dunlin__onnx_reject(node, attribute, "%s", text);
    return false;
}

/* The dimensions that the factors or sizes are of; false after a rejection. */
static bool read_axes(dunlin_onnx_node *node, int32_t rank, int32_t axes[MAX_RANK], int32_t *out_n)
{
    int64_t given[MAX_RANK];
    const int32_t n = dunlin__onnx_ints(node, "axes", given, MAX_RANK);
    *out_n = n == 0 ? rank : n;
    for (int32_t i = 0; i < *out_n; i++) {
        const int64_t axis = n == 0 || i >= MAX_RANK ? i : given[i];
        axes[i] = (int32_t)(axis < 0 ? axis + rank : axis);
        if (n > rank || axes[i] < 0 || axes[i] >= rank) {
            return refuse(node, "axes", "names a dimension that is not there");
        }
    }
    return true;
}

/* The output's sizes, of which the batch's is any. */
static bool read_sizes(dunlin_onnx_node *node, uint32_t input, resize_sizes *sizes)
{
    int32_t axes[MAX_RANK];
    int32_t n = 0;
    dunlin_onnx_vector given;
    if (!read_axes(node, sizes->rank, axes, &n)) {
        return false;
    }
    if (!dunlin__onnx_vector_input(node, input, &given) || given.n != n) {
        return refuse(node, "sizes", "must be known, one for each dimension");
    }
    for (int32_t i = 0; i < n; i++) {
        const int64_t size = given.items[i];
        if (axes[i] == 0) {
            if (!given.is_batch[i] && size != node->import->fixed_batch) {
                return refuse(node, "sizes", "change the batch");
            }
            continue;
        }
        if (given.is_batch[i] || size < 1 || size > INT32_MAX) {
            return refuse(node, "sizes", "must be known, 1 or more");
        }
        sizes->out[axes[i]] = size;
    }
    return true;
}

static bool read_factors(dunlin_onnx_node *node, uint32_t input, resize_sizes *sizes)
{
    int32_t axes[MAX_RANK];
    int32_t n = 0;
    dunlin_constant given = {0};
    if (!read_axes(node, sizes->rank, axes, &n)) {
        return false;
    }
    if (!dunlin__constant_is(node, input) || !dunlin__constant_read(node, input, &given)) {
        return refuse(node, "scales", "must be constants, one for each dimension");
    }
    bool is_good = given.n == n;
    for (int32_t i = 0; is_good && i < n; i++) {
        const float factor = (float)given.items[i];
        const float out = (float)sizes->in[axes[i]] * factor;
        const bool is_batch = axes[i] == 0;
        is_good =
            is_batch ? factor == 1.0F : factor > 0.0F && out >= 1.0F && out < (float)INT32_MAX;
        sizes->factors[axes[i]] = factor;
        sizes->out[axes[i]] = is_good && !is_batch ? (int64_t)out : 0;
    }
    dunlin__constant_free(node, &given);
    return is_good || refuse(node, "scales",
                             "must be above 0, one for each dimension, 1 for the batch, and leave "
                             "an element");
}

/* Where elements come from, as opset 11 and later say it. */
static bool read_coordinates(dunlin_onnx_node *node, dunlin_net_resize *made)
{
    const char *name = dunlin__onnx_text(node, "coordinate_transformation_mode", "half_pixel");
    const char *rounding = dunlin__onnx_text(node, "nearest_mode", "round_prefer_floor");
    const int32_t at = dunlin__op_resize_name(dunlin__op_resize_coordinates, name);
    const int32_t round = dunlin__op_resize_name(dunlin__op_resize_roundings, rounding);
    /* A half more, which another rounding takes off again. */
    const bool is_tf = strcmp(name, "tf_half_pixel_for_nn") == 0 && !made->is_linear &&
                       (round == DUNLIN_RESIZE_FLOOR || round == DUNLIN_RESIZE_ROUND_PREFER_FLOOR);
    const bool is_symmetric = strcmp(name, "half_pixel_symmetric") == 0;
    if (round < 0) {
        (void)dunlin__onnx_reject(node, "nearest_mode", "is %.40s", rounding);
        return false;
    }
    if (at < 0 && !is_tf && !is_symmetric) {
        (void)dunlin__onnx_reject(node, "coordinate_transformation_mode", "is %.40s", name);
        return false;
    }
    made->rounding = (dunlin_resize_rounding)round;
    made->coordinates = at >= 0 ? (dunlin_resize_coordinates)at : DUNLIN_RESIZE_HALF_PIXEL;
    if (is_tf) {
        made->rounding =
            round == DUNLIN_RESIZE_FLOOR ? DUNLIN_RESIZE_ROUND_PREFER_CEIL : DUNLIN_RESIZE_CEIL;
    }
    return true;
}

static bool read_mode(dunlin_onnx_node *node, bool is_old, dunlin_net_resize *made)
{
    const char *mode = dunlin__onnx_text(node, "mode", "nearest");
    made->is_linear = strcmp(mode, "linear") == 0;
    if (!made->is_linear && strcmp(mode, "nearest") != 0) {
        (void)dunlin__onnx_reject(node, "mode", "is %.40s, not nearest or linear", mode);
        return false;
    }
    if (is_old) {
        made->coordinates = DUNLIN_RESIZE_ASYMMETRIC;
        made->rounding = DUNLIN_RESIZE_FLOOR;
        return true;
    }
    /* These change nothing of what is read here. */
    (void)dunlin__onnx_float(node, "cubic_coeff_a", 0.0F);
    (void)dunlin__onnx_float(node, "extrapolation_value", 0.0F);
    (void)dunlin__onnx_int(node, "exclude_outside", 0);
    const char *policy = dunlin__onnx_text(node, "keep_aspect_ratio_policy", "stretch");
    if (strcmp(policy, "stretch") != 0) {
        (void)dunlin__onnx_reject(node, "keep_aspect_ratio_policy", "is %.40s, not stretch",
                                  policy);
        return false;
    }
    return read_coordinates(node, made);
}

/* Only what lies behind the channels changes, and nothing is averaged. */
static bool check_sizes(dunlin_onnx_node *node, const resize_sizes *sizes)
{
    const bool is_smoothed = dunlin__onnx_int(node, "antialias", 0) != 0;
    const char *name = dunlin__onnx_text(node, "coordinate_transformation_mode", "half_pixel");
    for (int32_t i = 1; i < sizes->rank; i++) {
        if (i == 1 && sizes->out[i] != sizes->in[i]) {
            return refuse(node, "", "it changes the number of channels");
        }
        if (is_smoothed && sizes->out[i] < sizes->in[i]) {
            return refuse(node, "antialias", "is 1 where an image becomes smaller");
        }
        const float whole = (float)sizes->in[i] * sizes->factors[i];
        const bool has_rest = sizes->factors[i] > 0.0F && whole > (float)sizes->out[i];
        if (has_rest && strcmp(name, "half_pixel_symmetric") == 0) {
            return refuse(node, "coordinate_transformation_mode",
                          "is half_pixel_symmetric, and its scales leave a part of an element");
        }
    }
    return true;
}

static bool read_resize(dunlin_onnx_node *node, bool is_old, const dunlin_shape *shape,
                        dunlin_net_resize *made)
{
    resize_sizes sizes = {.rank = shape->n_dims + 1};
    for (int32_t i = 1; i < sizes.rank; i++) {
        sizes.in[i] = sizes.out[i] = shape->dims[i - 1];
    }
    const bool has_sizes = !is_old && dunlin__onnx_has_input(node, 3);
    if (sizes.rank != 3 && sizes.rank != 4) {
        return refuse(node, "", "only images and signals are resized");
    }
    if (!read_mode(node, is_old, made) ||
        !(has_sizes ? read_sizes(node, 3, &sizes) : read_factors(node, is_old ? 1 : 2, &sizes)) ||
        !check_sizes(node, &sizes)) {
        return false;
    }
    const bool is_signal = sizes.rank == 3;
    made->out_h = is_signal ? 1 : (int32_t)sizes.out[2];
    made->factor_h = is_signal ? 0.0F : sizes.factors[2];
    made->out_w = (int32_t)sizes.out[sizes.rank - 1];
    made->factor_w = sizes.factors[sizes.rank - 1];
    return true;
}

bool dunlin__onnx_fold_resize(dunlin_onnx_node *node)
{
    const char *op = dunlin__onnx_op_type(node);
    const bool is_upsample = strcmp(op, "Upsample") == 0;
    const dunlin_net_value *input = dunlin__onnx_known_value(node, 0);
    if ((!is_upsample && strcmp(op, "Resize") != 0) || input == NULL) {
        return false;
    }
    const dunlin_shape shape = input->shape;
    dunlin_net_node made = {
        .kind = DUNLIN_OP_RESIZE, .inputs = {dunlin__onnx_value_input(node, 0)}, .n_inputs = 1};
    dunlin_net_resize *resize = &made.u.resize;
    if (!read_resize(node, is_upsample || node->import->file->opset < 11, &shape, resize)) {
        return true;
    }
    const bool is_same = resize->out_w == shape.dims[shape.n_dims - 1] &&
                         (shape.n_dims == 2 || resize->out_h == shape.dims[1]) &&
                         (resize->factor_w == 0.0F || resize->factor_w == 1.0F) &&
                         (resize->factor_h == 0.0F || resize->factor_h == 1.0F);
    if (is_same) {
        dunlin__onnx_check_attributes(node);
        dunlin__onnx_alias(node, dunlin__onnx_input(node, 0));
        return true;
    }
    dunlin__onnx_finish(node, &made);
    return true;
}
