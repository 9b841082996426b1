/*
 * slices.c - Slice along several dimensions, and with steps.
 *
 * A step of n takes the first of every n elements: the dimension is cut into rows of n, of which
 * the first column stays. Where the last row is not whole, zeros are put behind it first.
 */
#include "places.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Of one dimension, the batch not counted. */
typedef struct cut {
    int32_t axis;
    int64_t start, end, step;
} cut;

/* Bounds from the end if negative, and never outside. */
static int64_t within(int64_t at, int64_t size)
{
    at = at < 0 ? (at < -size ? 0 : at + size) : at;
    return at > size ? size : at;
}

/* The cuts that take something away; their number, -1 if they cannot be known or are refused. */
static int32_t read_cuts(dunlin_onnx_node *node, const dunlin_shape *x, cut out[DUNLIN_MAX_DIMS])
{
    int64_t lists[4][DUNLIN_MAX_DIMS] = {{0}};
    const int32_t n = dunlin__onnx_ints_input(node, 1, lists[0], DUNLIN_MAX_DIMS);
    int32_t n_cuts = 0;
    for (uint32_t k = 1; k < 4; k++) {
        for (int32_t i = 0; i < DUNLIN_MAX_DIMS; i++) {
            lists[k][i] = k == 2 ? i : 1;
        }
        const bool is_there = k == 1 || dunlin__onnx_has_input(node, k + 1);
        if (is_there && dunlin__onnx_ints_input(node, k + 1, lists[k], DUNLIN_MAX_DIMS) != n) {
            return -1;
        }
    }
    for (int32_t i = 0; n <= DUNLIN_MAX_DIMS && i < n; i++) {
        const int64_t axis = lists[2][i] < 0 ? lists[2][i] + x->n_dims + 1 : lists[2][i];
        const int64_t step = lists[3][i];
        const bool is_all = lists[0][i] == 0 && lists[1][i] >= INT32_MAX && step == 1;
        if (axis == 0 && is_all) {
            continue; /* of the batch */
        }
        if (axis < 1 || axis > x->n_dims || step < 1) {
            return -1;
        }
        const int64_t size = x->dims[axis - 1];
        const cut one = {(int32_t)axis - 1, within(lists[0][i], size), within(lists[1][i], size),
                         step > size ? size : step};
        if (one.start != 0 || one.end != size || one.step != 1) {
            out[n_cuts++] = one;
        }
    }
    return n > DUNLIN_MAX_DIMS ? -1 : n_cuts;
}

/* A node whose input is `*value`, which becomes its output; false after a rejection. `is_last`: it
 * makes the ONNX node's own. */
static bool add_step(dunlin_onnx_node *node, dunlin_net_node *made, const cut *of, const char *what,
                     bool is_last, uint32_t *value)
{
    char suffix[32];
    (void)snprintf(suffix, sizeof suffix, "/%s%" PRId32, what, of->axis + 1);
    made->inputs[0] = *value;
    made->n_inputs = 1;
    if (is_last) {
        dunlin__onnx_finish(node, made);
        return true;
    }
    *value = dunlin__onnx_make(node, made, suffix);
    return *value != DUNLIN_NET_NONE;
}

/* `is_image`: what came of one will be read as one again. */
static bool reshape(dunlin_onnx_node *node, const cut *of, const dunlin_shape *shape,
                    const char *what, bool is_image, bool is_last, uint32_t *value)
{
    dunlin_net_node made = {.kind = DUNLIN_OP_RESHAPE};
    made.u.reshape.shape = *shape;
    if (is_image) {
        made = (dunlin_net_node){.kind = DUNLIN_OP_REARRANGE};
        made.u.rearrange.to =
            (dunlin_rearrangement){.split = node->import->net->values[*value].shape,
                                   .perm = {0, 1, 2, 3, 4, 5, 6, 7},
                                   .shape = *shape};
        made.u.rearrange.is_image = true;
    }
    return add_step(node, &made, of, what, is_last, value);
}

static bool slice(dunlin_onnx_node *node, const cut *of, const cut *part, const char *what,
                  bool is_last, uint32_t *value)
{
    dunlin_net_node made = {.kind = DUNLIN_OP_SLICE};
    made.u.slice.axis = part->axis;
    made.u.slice.start = part->start;
    made.u.slice.end = part->end;
    return add_step(node, &made, of, what, is_last, value);
}

/* Every step-th element. */
static bool stride(dunlin_onnx_node *node, const cut *of, bool is_last, uint32_t *value)
{
    const dunlin_net_value *input = &node->import->net->values[*value];
    const dunlin_shape x = input->shape;
    const bool is_image = input->layout == DUNLIN_LAYOUT_IMAGE && x.n_dims == 3;
    const int64_t n = (of->end - of->start - 1) / of->step + 1;
    const int64_t over = of->start + n * of->step - x.dims[of->axis];
    const cut whole = {of->axis, of->start, of->start + n * of->step, 1};
    const cut first = {of->axis + 1, 0, 1, 1};
    dunlin_shape rows = {.n_dims = x.n_dims + 1};
    dunlin_shape result = x;
    result.dims[of->axis] = n;
    for (int32_t i = 0; i < rows.n_dims; i++) {
        rows.dims[i] = i <= of->axis ? result.dims[i] : x.dims[i - 1];
    }
    rows.dims[of->axis + 1] = of->step;
    if (rows.n_dims >= DUNLIN_MAX_DIMS) {
        (void)dunlin__onnx_reject(node, "", "it has too many dimensions for a step");
        return false;
    }
    if (over > 0) {
        dunlin_net_node pad = {.kind = DUNLIN_OP_PAD};
        pad.u.pad.axis = of->axis;
        pad.u.pad.after = over;
        if (!add_step(node, &pad, of, "more", false, value)) {
            return false;
        }
    }
    const bool is_part = whole.start > 0 || whole.end < x.dims[of->axis] + (over > 0 ? over : 0);
    return (!is_part || slice(node, of, &whole, "part", false, value)) &&
           reshape(node, of, &rows, "rows", false, false, value) &&
           slice(node, of, &first, "first", false, value) &&
           reshape(node, of, &result, "steps", is_image, is_last, value);
}

/* One dimension from its end to its beginning, as PyTorch's flip writes it. */
static bool turn(dunlin_onnx_node *node, const dunlin_shape *x)
{
    int64_t one[4] = {0, 0, 0, 1}; /* start, end, axis, step */
    for (uint32_t k = 0; k < 4; k++) {
        if (!dunlin__onnx_has_input(node, k + 1) ||
            dunlin__onnx_ints_input(node, k + 1, &one[k], 1) != 1) {
            return false;
        }
    }
    const int64_t axis = one[2] < 0 ? one[2] + x->n_dims + 1 : one[2];
    if (one[3] >= 0 || one[3] < -INT32_MAX || axis < 1 || axis > x->n_dims) {
        return false;
    }
    const int64_t size = x->dims[axis - 1];
    int64_t start = one[0] < 0 ? one[0] + size : one[0];
    int64_t end = one[1] < -size ? -1 : (one[1] < 0 ? one[1] + size : one[1]);
    start = start > size - 1 ? size - 1 : start;
    end = end > size ? size : end;
    const int64_t n = start > end ? (start - end - 1) / -one[3] + 1 : 0;
    return start >= 0 && dunlin__onnx_pick_backwards(node, (int32_t)axis - 1, start, n, one[3]);
}

bool dunlin__onnx_fold_slice(dunlin_onnx_node *node)
{
    const dunlin_net_value *input = dunlin__onnx_known_value(node, 0);
    cut cuts[DUNLIN_MAX_DIMS];
    if (input == NULL || strcmp(dunlin__onnx_op_type(node), "Slice") != 0) {
        return false;
    }
    const dunlin_shape x = input->shape;
    if (turn(node, &x)) {
        return true;
    }
    const int32_t n = read_cuts(node, &x, cuts);
    if (n < 0 || (n == 1 && cuts[0].step == 1)) {
        return false; /* the row's own, or refused by it */
    }
    uint32_t value = dunlin__onnx_value_input(node, 0);
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < i; k++) {
            if (cuts[k].axis == cuts[i].axis) {
                return false;
            }
        }
        if (cuts[i].end <= cuts[i].start) {
            return false;
        }
    }
    if (n == 0) {
        dunlin__onnx_alias(node, dunlin__onnx_input(node, 0));
    }
    for (int32_t i = 0; i < n; i++) {
        const bool is_last = i + 1 == n;
        if (!(cuts[i].step > 1 ? stride(node, &cuts[i], is_last, &value)
                               : slice(node, &cuts[i], &cuts[i], "part", is_last, &value))) {
            return true;
        }
    }
    return true;
}
