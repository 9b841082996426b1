/*
 * constant_moves.c - parts of constants, joints, other shapes, and constants that are made of
 * nothing but a shape.
 *
 * Invariant: a number is never changed, only where it lies. What the result has at its coordinates
 * c is what the input has at base + the sum of c[d] * strides[d].
 */
#include "constants.h"

#include <mem/support.h>

#include <math.h>
#include <string.h>

/* --- walks over the input --- */

typedef struct walk {
    dunlin_shape shape; /* of the result */
    int64_t base;
    int64_t strides[DUNLIN_MAX_DIMS];
} walk;

static walk walk_of(const dunlin_shape *shape)
{
    walk w = {.shape = *shape};
    int64_t stride = 1;
    for (int32_t d = shape->n_dims - 1; d >= 0; d--) {
        w.strides[d] = stride;
        stride *= shape->dims[d];
    }
    return w;
}

/* The result of the walk; false after a failure. */
static bool follow(dunlin_onnx_node *node, const dunlin_constant *from, const walk *w,
                   dunlin_constant *out)
{
    if (!dunlin__constant_make(node, from->type, &w->shape, out)) {
        return false;
    }
    out->is_part = from->is_part;
    for (int64_t i = 0; i < out->n; i++) {
        int64_t rest = i;
        int64_t at = w->base;
        for (int32_t d = w->shape.n_dims - 1; d >= 0; d--) {
            at += rest % w->shape.dims[d] * w->strides[d];
            rest /= w->shape.dims[d];
        }
        out->items[i] = from->items[at];
    }
    return true;
}

/* Of what a move makes of a weight only a part is told from it: a whole one is another name. */
typedef bool (*move_fn)(dunlin_onnx_node *node, const dunlin_constant *from, dunlin_constant *out);

/* --- parts --- */

static int64_t clamp(int64_t at, int64_t low, int64_t high)
{
    return at < low ? low : (at > high ? high : at);
}

/* [start, end) of a dimension by steps. */
static void cut(walk *w, int32_t axis, int64_t start, int64_t end, int64_t step)
{
    const int64_t size = w->shape.dims[axis];
    const bool is_back = step < 0;
    start = clamp(start < 0 ? start + size : start, 0, is_back ? size - 1 : size);
    end = clamp(end < 0 ? (end < -size ? -1 : end + size) : end, is_back ? -1 : 0, size);
    const int64_t span = is_back ? start - end : end - start;
    const int64_t by = is_back ? -step : step;
    w->base += start * w->strides[axis];
    w->strides[axis] *= step;
    w->shape.dims[axis] = span <= 0 ? 0 : (span - 1) / by + 1;
}

static bool slice(dunlin_onnx_node *node, const dunlin_constant *from, dunlin_constant *out)
{
    int64_t lists[4][DUNLIN_MAX_DIMS] = {{0}};
    const int32_t n = dunlin__onnx_ints_input(node, 1, lists[0], DUNLIN_MAX_DIMS);
    walk w = walk_of(&from->shape);
    if (n < 1 || n > from->shape.n_dims) {
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        lists[2][i] = i;
        lists[3][i] = 1;
    }
    for (uint32_t k = 1; k < 4; k++) {
        const bool is_needed = k == 1 || dunlin__onnx_has_input(node, k + 1);
        if (is_needed && dunlin__onnx_ints_input(node, k + 1, lists[k], DUNLIN_MAX_DIMS) != n) {
            return false;
        }
    }
    for (int32_t i = 0; i < n; i++) {
        const int64_t rank = from->shape.n_dims;
        const int64_t axis = lists[2][i] < 0 ? lists[2][i] + rank : lists[2][i];
        const int64_t step = lists[3][i];
        if (axis < 0 || axis >= rank || step == 0 || step > INT32_MAX || step < -INT32_MAX) {
            return false;
        }
        cut(&w, (int32_t)axis, lists[0][i], lists[1][i], step);
    }
    return follow(node, from, &w, out);
}

/* Rows along an axis, by number. */
static bool gather(dunlin_onnx_node *node, const dunlin_constant *from, dunlin_constant *out)
{
    dunlin_constant ids;
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 1);
    const int64_t rank = from->shape.n_dims;
    int64_t axis = dunlin__onnx_int(node, "axis", 0);
    axis = axis < 0 ? axis + rank : axis;
    /* A list of one may be a scalar: the result's rank would not be known. */
    if (axis < 0 || axis >= rank || input == NULL || input->meaning == DUNLIN_ONNX_VECTOR ||
        !dunlin__constant_read(node, 1, &ids)) {
        return false;
    }
    dunlin_shape shape = {.n_dims = from->shape.n_dims - 1 + ids.shape.n_dims};
    int64_t n_inner = 1;
    bool is_good = shape.n_dims <= DUNLIN_MAX_DIMS;
    for (int32_t d = 0, to = 0; is_good && d < rank; d++) {
        n_inner *= d > axis ? from->shape.dims[d] : 1;
        for (int32_t k = 0; d == axis && k < ids.shape.n_dims; k++) {
            shape.dims[to++] = ids.shape.dims[k];
        }
        if (d != axis) {
            shape.dims[to++] = from->shape.dims[d];
        }
    }
    is_good = is_good && dunlin__constant_make(node, from->type, &shape, out);
    const int64_t size = from->shape.dims[axis];
    for (int64_t i = 0; is_good && i < out->n; i++) {
        double id = ids.items[i / n_inner % ids.n];
        id = id < 0.0 ? id + (double)size : id;
        is_good = id >= 0.0 && id < (double)size;
        if (is_good) {
            const int64_t outer = i / n_inner / ids.n;
            out->items[i] = from->items[(outer * size + (int64_t)id) * n_inner + i % n_inner];
        }
    }
    dunlin__constant_free(node, &ids);
    out->is_part = from->is_part;
    return is_good || node->import->is_rejected;
}

/* What lies above or below a diagonal stays, the rest is 0. */
static bool triangle(dunlin_onnx_node *node, const dunlin_constant *from, dunlin_constant *out)
{
    const bool is_upper = dunlin__onnx_int(node, "upper", 1) != 0;
    const walk w = walk_of(&from->shape);
    int64_t k = 0;
    if (from->shape.n_dims < 2 ||
        (dunlin__onnx_has_input(node, 1) && dunlin__onnx_ints_input(node, 1, &k, 1) != 1) ||
        k > INT32_MAX || k < -INT32_MAX || !follow(node, from, &w, out)) {
        return node->import->is_rejected;
    }
    const int64_t n_columns = from->shape.dims[from->shape.n_dims - 1];
    const int64_t n_rows = from->shape.dims[from->shape.n_dims - 2];
    for (int64_t i = 0; i < out->n; i++) {
        const int64_t ahead = i % n_columns - i / n_columns % n_rows;
        out->items[i] = (is_upper ? ahead >= k : ahead <= k) ? out->items[i] : 0.0;
    }
    return true;
}

/* --- other shapes --- */

static bool expand(dunlin_onnx_node *node, const dunlin_constant *from, dunlin_constant *out)
{
    dunlin_shape wanted = {0};
    dunlin_shape shape;
    wanted.n_dims = dunlin__onnx_ints_input(node, 1, wanted.dims, DUNLIN_MAX_DIMS);
    return wanted.n_dims >= 0 && wanted.n_dims <= DUNLIN_MAX_DIMS &&
           dunlin__constant_join(&from->shape, &wanted, &shape) &&
           (dunlin__constant_spread(node, from, &shape, out) || node->import->is_rejected);
}

static bool tile(dunlin_onnx_node *node, const dunlin_constant *from, dunlin_constant *out)
{
    int64_t times[DUNLIN_MAX_DIMS];
    const int32_t rank = from->shape.n_dims;
    dunlin_shape shape = from->shape;
    if (dunlin__onnx_ints_input(node, 1, times, DUNLIN_MAX_DIMS) != rank) {
        return false;
    }
    for (int32_t d = 0; d < rank; d++) {
        if (times[d] < 1 || __builtin_mul_overflow(shape.dims[d], times[d], &shape.dims[d])) {
            return false;
        }
    }
    if (!dunlin__constant_make(node, from->type, &shape, out)) {
        return node->import->is_rejected;
    }
    for (int64_t i = 0; i < out->n; i++) {
        int64_t rest = i;
        int64_t at = 0;
        int64_t stride = 1;
        for (int32_t d = rank - 1; d >= 0; d--) {
            at += rest % shape.dims[d] % from->shape.dims[d] * stride;
            rest /= shape.dims[d];
            stride *= from->shape.dims[d];
        }
        out->items[i] = from->items[at];
    }
    out->is_part = from->is_part;
    return true;
}

static bool transpose(dunlin_onnx_node *node, const dunlin_constant *from, dunlin_constant *out)
{
    int64_t perm[DUNLIN_MAX_DIMS];
    const int32_t rank = from->shape.n_dims;
    const walk straight = walk_of(&from->shape);
    walk w = straight;
    uint32_t seen = 0;
    const int32_t n = dunlin__onnx_ints(node, "perm", perm, DUNLIN_MAX_DIMS);
    for (int32_t d = 0; d < rank; d++) {
        const int64_t axis = n == 0 ? rank - 1 - d : perm[d];
        if ((n != 0 && n != rank) || axis < 0 || axis >= rank) {
            return false;
        }
        seen |= 1U << axis;
        w.shape.dims[d] = from->shape.dims[axis];
        w.strides[d] = straight.strides[axis];
    }
    return seen == (1U << rank) - 1U && (follow(node, from, &w, out) || node->import->is_rejected);
}

/* The same numbers, row by row. */
static bool rename_shape(dunlin_onnx_node *node, const dunlin_constant *from,
                         const dunlin_shape *shape, dunlin_constant *out)
{
    int64_t n = 0;
    if (dunlin_shape_count(shape, &n) != DUNLIN_OK || n != from->n) {
        return false;
    }
    const walk w = walk_of(&from->shape);
    if (!follow(node, from, &w, out)) {
        return node->import->is_rejected;
    }
    out->shape = *shape;
    return true;
}

static bool reshape(dunlin_onnx_node *node, const dunlin_constant *from, dunlin_constant *out)
{
    dunlin_shape shape = {0};
    const bool copies_zero = dunlin__onnx_int(node, "allowzero", 0) == 0;
    int64_t known = 1;
    int32_t open = -1;
    shape.n_dims = dunlin__onnx_ints_input(node, 1, shape.dims, DUNLIN_MAX_DIMS);
    for (int32_t d = 0; d < shape.n_dims; d++) {
        if (shape.dims[d] == 0 && copies_zero && d < from->shape.n_dims) {
            shape.dims[d] = from->shape.dims[d];
        }
        if (shape.n_dims > DUNLIN_MAX_DIMS || shape.dims[d] < -1 ||
            (shape.dims[d] == -1 && open >= 0)) {
            return false;
        }
        open = shape.dims[d] == -1 ? d : open;
        if (shape.dims[d] >= 0 && __builtin_mul_overflow(known, shape.dims[d], &known)) {
            return false;
        }
    }
    if (open >= 0) {
        shape.dims[open] = known > 0 ? from->n / known : 0;
    }
    return shape.n_dims >= 0 && rename_shape(node, from, &shape, out);
}

/* Dimensions of 1 put in or taken out. */
static bool change_dims(dunlin_onnx_node *node, const dunlin_constant *from, dunlin_constant *out)
{
    const bool is_more = strcmp(dunlin__onnx_op_type(node), "Unsqueeze") == 0;
    int64_t axes[DUNLIN_MAX_DIMS];
    const int32_t n = dunlin__onnx_ints_input(node, 1, axes, DUNLIN_MAX_DIMS);
    const int32_t n_old = from->shape.n_dims;
    const int32_t rank = is_more ? n_old + n : n_old;
    uint32_t marked = 0;
    if (n < 1 || n > DUNLIN_MAX_DIMS || rank > DUNLIN_MAX_DIMS) {
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (axis < 0 || axis >= rank || (marked >> axis & 1) != 0) {
            return false;
        }
        marked |= 1U << axis;
    }
    dunlin_shape shape = {0};
    for (int32_t d = 0, at = 0; d < rank; d++) {
        const bool is_marked = (marked >> d & 1) != 0;
        if (is_more) {
            shape.dims[shape.n_dims++] = is_marked ? 1 : from->shape.dims[at++];
        } else if (!is_marked) {
            shape.dims[shape.n_dims++] = from->shape.dims[d];
        } else if (from->shape.dims[d] != 1) {
            return false;
        }
    }
    return rename_shape(node, from, &shape, out);
}

/* --- joints --- */

static bool concat(dunlin_onnx_node *node, dunlin_constant *out)
{
    const uint32_t n = dunlin__onnx_n_inputs(node);
    dunlin_constant parts[DUNLIN_NET_MAX_INPUTS] = {{0}};
    dunlin_shape shape = {0};
    int64_t axis = 0;
    bool is_good = n >= 1 && n <= DUNLIN_NET_MAX_INPUTS;
    for (uint32_t i = 0; is_good && i < n; i++) {
        is_good = dunlin__constant_read(node, i, &parts[i]) && !parts[i].is_part &&
                  parts[i].shape.n_dims == parts[0].shape.n_dims;
        if (is_good && i == 0) {
            shape = parts[0].shape;
            axis = dunlin__onnx_int(node, "axis", 0);
            axis = axis < 0 ? axis + shape.n_dims : axis;
            is_good = axis >= 0 && axis < shape.n_dims;
        }
        for (int32_t d = 0; is_good && d < shape.n_dims; d++) {
            is_good = d == axis || parts[i].shape.dims[d] == shape.dims[d];
        }
        if (is_good && i > 0) {
            shape.dims[axis] += parts[i].shape.dims[axis];
        }
    }
    int64_t n_inner = 1;
    for (int32_t d = (int32_t)axis + 1; is_good && d < shape.n_dims; d++) {
        n_inner *= shape.dims[d];
    }
    is_good = is_good && dunlin__constant_make(node, parts[0].type, &shape, out);
    int64_t first = 0;
    for (uint32_t i = 0; is_good && i < n; i++) {
        const int64_t run = parts[i].shape.dims[axis] * n_inner;
        for (int64_t k = 0; k < parts[i].n; k++) {
            out->items[k / run * shape.dims[axis] * n_inner + first + k % run] = parts[i].items[k];
        }
        first += run;
    }
    for (uint32_t i = 0; i < n && i < DUNLIN_NET_MAX_INPUTS; i++) {
        dunlin__constant_free(node, &parts[i]);
    }
    return is_good || node->import->is_rejected;
}

/* --- made of a shape, or of borders --- */

static bool constant_of_shape(dunlin_onnx_node *node, dunlin_constant *out)
{
    dunlin_onnx_file *file = node->import->file;
    const dunlin_onnx_attribute *value = dunlin__onnx_attribute(node, "value");
    dunlin_shape shape = {0};
    int32_t type = DUNLIN_ONNX_FLOAT;
    double number = 0.0;
    shape.n_dims = dunlin__onnx_ints_input(node, 0, shape.dims, DUNLIN_MAX_DIMS);
    if (value != NULL && value->has_tensor) {
        const dunlin_onnx_tensor *tensor = &file->tensors[value->tensor];
        type = tensor->type == DUNLIN_ONNX_INT32 ? DUNLIN_ONNX_INT64 : tensor->type;
        if (!dunlin__onnx_tensor_number(file, tensor, 0, &number)) {
            return false;
        }
    }
    const bool is_read =
        type == DUNLIN_ONNX_FLOAT || type == DUNLIN_ONNX_INT64 || type == DUNLIN_ONNX_BOOL;
    if (!is_read || shape.n_dims < 0 || shape.n_dims > DUNLIN_MAX_DIMS ||
        !dunlin__constant_make(node, type, &shape, out)) {
        return node->import->is_rejected;
    }
    for (int64_t i = 0; i < out->n; i++) {
        out->items[i] = number;
    }
    return true;
}

static bool range(dunlin_onnx_node *node, dunlin_constant *out)
{
    dunlin_constant borders[3] = {{0}};
    bool is_good = dunlin__onnx_n_inputs(node) == 3;
    for (uint32_t i = 0; i < 3 && is_good; i++) {
        is_good =
            dunlin__constant_read(node, i, &borders[i]) && borders[i].n == 1 && !borders[i].is_part;
    }
    if (is_good && borders[2].items[0] != 0.0) {
        const double start = borders[0].items[0];
        const double step = borders[2].items[0];
        const double n = ceil((borders[1].items[0] - start) / step);
        const dunlin_shape shape = {1, {n > 0.0 ? (n < 9e15 ? (int64_t)n : INT64_MAX) : 0}};
        is_good = dunlin__constant_make(node, borders[0].type, &shape, out);
        for (int64_t i = 0; is_good && i < out->n; i++) {
            out->items[i] = start + (double)i * step;
        }
    }
    for (int i = 0; i < 3; i++) {
        dunlin__constant_free(node, &borders[i]);
    }
    return (is_good && out->items != NULL) || node->import->is_rejected;
}

bool dunlin__constant_moves(dunlin_onnx_node *node, dunlin_constant *out)
{
    static const struct {
        const char *op_type;
        move_fn move;
        bool is_of_parts; /* of an initialiser that may be a weight too */
    } moves[] = {
        {"Slice", slice, true},          {"Gather", gather, false},
        {"Trilu", triangle, false},      {"Expand", expand, false},
        {"Tile", tile, false},           {"Transpose", transpose, false},
        {"Reshape", reshape, false},     {"Unsqueeze", change_dims, false},
        {"Squeeze", change_dims, false},
    };
    const char *op = dunlin__onnx_op_type(node);
    if (strcmp(op, "Concat") == 0) {
        return concat(node, out);
    }
    if (strcmp(op, "ConstantOfShape") == 0) {
        return constant_of_shape(node, out);
    }
    if (strcmp(op, "Range") == 0) {
        return range(node, out);
    }
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++) {
        dunlin_constant from = {0};
        if (strcmp(op, moves[i].op_type) != 0 || !dunlin__constant_read(node, 0, &from)) {
            continue;
        }
        bool is_done = false;
        if (!from.is_part || moves[i].is_of_parts) {
            is_done = moves[i].move(node, &from, out);
        }
        dunlin__constant_free(node, &from);
        return is_done;
    }
    return false;
}
