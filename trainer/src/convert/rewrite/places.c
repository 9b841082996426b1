/*
 * places.c - values whose batch is not the first dimension in the file, as of networks that put the
 * tokens first: moves of the batch are a note on the binding, and cancel; what is stored has its
 * batch first.
 *
 * Invariant: in the file a value's elements go through the dimensions of a sample in the order of
 * the network's value, with the batch at one place between them, alone or joined to a neighbour: N
 * samples of k heads are N * k rows. What an operator does to the dimensions of a sample is thus
 * the same; only the numbers of axes differ.
 */
#include "places.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef dunlin_onnx_batch place;

typedef dunlin_file_dim file_dim;

static bool is_first(const place *at)
{
    return at->n_before == 0 && at->mix == DUNLIN_ONNX_MIX_NONE;
}

static void set_place(dunlin_onnx_node *node, const place *at)
{
    for (uint32_t i = 0; i < node->op->outputs.n; i++) {
        dunlin_onnx_binding *output = dunlin__onnx_output(node, i);
        if (output != NULL && output->meaning == DUNLIN_ONNX_VALUE) {
            output->place = *at;
        }
    }
}

static dunlin_net_node of_input(const dunlin_onnx_node *node, dunlin_op_kind kind)
{
    return (dunlin_net_node){
        .kind = kind, .inputs = {dunlin__onnx_value_input(node, 0)}, .n_inputs = 1};
}

/* The output is a value that lies as `shape` says, with its batch at that place. */
static void finish_shape(dunlin_onnx_node *node, const dunlin_shape *shape, const place *at)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    const bool is_same =
        x->shape.n_dims == shape->n_dims &&
        memcmp(x->shape.dims, shape->dims, (size_t)shape->n_dims * sizeof shape->dims[0]) == 0;
    if (is_same && x->layout == DUNLIN_LAYOUT_IMAGE) {
        dunlin_net_node made = of_input(node, DUNLIN_OP_REARRANGE);
        made.u.rearrange.to = (dunlin_rearrangement){*shape, {0, 1, 2, 3, 4, 5, 6, 7}, *shape};
        dunlin__onnx_finish(node, &made);
    } else if (is_same) {
        dunlin__onnx_check_attributes(node);
        dunlin__onnx_alias(node, dunlin__onnx_input(node, 0));
    } else {
        dunlin_net_node made =
            of_input(node, shape->n_dims == 1 ? DUNLIN_OP_FLATTEN : DUNLIN_OP_RESHAPE);
        made.u.reshape.shape = *shape;
        dunlin__onnx_finish(node, &made);
    }
    set_place(node, at);
}

/* --- Shape --- */

static bool shape(dunlin_onnx_node *node)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    const place at = dunlin__onnx_place_of(node, 0);
    file_dim dims[DUNLIN_MAX_DIMS + 1];
    const int32_t n = dunlin__onnx_file_dims(&at, x->shape.n_dims, dims);
    int64_t start = dunlin__onnx_int(node, "start", 0);
    int64_t end = dunlin__onnx_int(node, "end", n);
    dunlin_onnx_vector vector = {0};
    start = start < 0 ? start + n : start;
    end = end < 0 ? end + n : end;
    for (int64_t i = start < 0 ? 0 : start; i < end && i < n && i < DUNLIN_MAX_DIMS; i++) {
        vector.is_batch[vector.n] = dims[i].has_batch;
        vector.items[vector.n++] = dims[i].dim < 0 ? 0 : x->shape.dims[dims[i].dim];
    }
    dunlin__onnx_bind_vector(node, &vector);
    return true;
}

/* --- Transpose --- */

static bool transpose(dunlin_onnx_node *node)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    place at = dunlin__onnx_place_of(node, 0);
    file_dim dims[DUNLIN_MAX_DIMS + 1];
    const int32_t n = dunlin__onnx_file_dims(&at, x->shape.n_dims, dims);
    int64_t perm[DUNLIN_MAX_DIMS + 1];
    const int32_t n_perm = dunlin__onnx_ints(node, "perm", perm, n);
    uint32_t seen = 0;
    int32_t order[DUNLIN_MAX_DIMS];
    int32_t n_order = 0;
    bool is_in_order = true;
    for (int32_t i = 0; i < n && n_perm == 0; i++) {
        perm[i] = n - 1 - i;
    }
    if (n_perm != 0 && n_perm != n) {
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        if (perm[i] < 0 || perm[i] >= n || (seen >> perm[i] & 1) != 0) {
            return false;
        }
        seen |= 1U << perm[i];
        const file_dim *dim = &dims[perm[i]];
        if (dim->has_batch) {
            at.n_before = n_order + (at.mix == DUNLIN_ONNX_MIX_INNER ? 1 : 0);
        }
        if (dim->dim >= 0) {
            is_in_order = is_in_order && dim->dim == n_order;
            order[n_order++] = dim->dim;
        }
    }
    if (is_in_order) {
        const dunlin_shape same = x->shape;
        finish_shape(node, &same, &at);
        return true;
    }
    dunlin_net_node made = of_input(node, DUNLIN_OP_TRANSPOSE);
    memcpy(made.u.transpose.perm, order, (size_t)n_order * sizeof order[0]);
    dunlin__onnx_finish(node, &made);
    set_place(node, &at);
    return true;
}

/* --- Reshape --- */

/* What is asked for, with the numbers that stand for others put in: -1, and 0 for the same as
 * before. `out_batch`: where the batch is, with `wanted->items` its number of rows a sample. */
static bool resolve(const dunlin_onnx_node *node, dunlin_onnx_vector *wanted, int32_t *out_batch)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    const place at = dunlin__onnx_place_of(node, 0);
    file_dim dims[DUNLIN_MAX_DIMS + 1];
    const int32_t n = dunlin__onnx_file_dims(&at, x->shape.n_dims, dims);
    int64_t known = 1;
    int32_t open = -1;
    *out_batch = -1;
    for (int32_t i = 0; i < wanted->n; i++) {
        if (!wanted->is_batch[i] && wanted->items[i] == 0) {
            if (i >= n || dunlin__onnx_int(node, "allowzero", 0) != 0) {
                return false;
            }
            wanted->is_batch[i] = dims[i].has_batch;
            wanted->items[i] = dims[i].dim < 0 ? 1 : x->shape.dims[dims[i].dim];
        }
        if (wanted->is_batch[i]) {
            if (*out_batch >= 0) {
                return false;
            }
            *out_batch = i;
            wanted->items[i] = wanted->items[i] == 0 ? 1 : wanted->items[i];
        } else if (wanted->items[i] == -1) {
            if (open >= 0) {
                return false;
            }
            open = i;
            continue;
        }
        if (wanted->items[i] < 1 || __builtin_mul_overflow(known, wanted->items[i], &known)) {
            return false;
        }
    }
    const int64_t total = dunlin__value_elements(x);
    if (open >= 0) {
        wanted->items[open] = total / known;
        if (*out_batch < 0 && node->import->fixed_batch > 0) {
            return false; /* the number of samples may be hidden in the others */
        }
        *out_batch = *out_batch < 0 ? open : *out_batch;
        known *= wanted->items[open];
    }
    return *out_batch >= 0 && known == total;
}

static bool reshape_to(dunlin_onnx_node *node, dunlin_onnx_vector wanted)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    place at = dunlin__onnx_place_of(node, 0);
    int32_t batch = -1;
    if (!resolve(node, &wanted, &batch)) {
        return false;
    }
    int64_t before = 1; /* elements of a sample before the batch, in the file */
    for (int32_t d = 0; d < at.n_before; d++) {
        before *= x->shape.dims[d];
    }
    before *= at.n_run > 0 ? x->shape.dims[at.n_before] / at.n_run : 1;
    dunlin_shape made = {0};
    int64_t left = 1;
    for (int32_t i = 0; i < batch; i++) {
        left *= wanted.items[i];
    }
    const int64_t outer = before / left; /* of the dimension that has the batch */
    const int64_t rows = wanted.items[batch];
    if (outer < 1 || before % left != 0 || rows % outer != 0 || rows / outer > INT32_MAX) {
        return false;
    }
    const bool is_inner = outer > 1 && rows == outer;
    at = (place){.n_run = outer > 1 && !is_inner ? (int32_t)(rows / outer) : 0};
    for (int32_t i = 0; i < wanted.n; i++) {
        if (i == batch) {
            at.mix = rows == 1  ? DUNLIN_ONNX_MIX_NONE
                     : is_inner ? DUNLIN_ONNX_MIX_INNER
                                : DUNLIN_ONNX_MIX_OUTER;
            at.n_before = made.n_dims + (is_inner ? 1 : 0);
        }
        if (i != batch || rows > 1) {
            made.dims[made.n_dims++] = wanted.items[i];
        }
    }
    finish_shape(node, &made, &at);
    return true;
}

static bool reshape(dunlin_onnx_node *node)
{
    dunlin_onnx_vector wanted;
    if (dunlin__onnx_place_of(node, 0).mix == DUNLIN_ONNX_MIX_SHARED) {
        return dunlin__onnx_reshape_shared(node);
    }
    (void)dunlin__onnx_int(node, "allowzero", 0);
    return dunlin__onnx_vector_input(node, 1, &wanted) && reshape_to(node, wanted);
}

/* Two dimensions: those before the axis, and the others. */
static bool flatten(dunlin_onnx_node *node)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    const place at = dunlin__onnx_place_of(node, 0);
    file_dim dims[DUNLIN_MAX_DIMS + 1];
    const int32_t n = dunlin__onnx_file_dims(&at, x->shape.n_dims, dims);
    int64_t axis = dunlin__onnx_int(node, "axis", 1);
    dunlin_onnx_vector wanted = {.n = 2, .items = {1, 1}};
    axis = axis < 0 ? axis + n : axis;
    for (int32_t i = 0; i < n; i++) {
        const int32_t side = i < axis ? 0 : 1;
        wanted.is_batch[side] = wanted.is_batch[side] || dims[i].has_batch;
        wanted.items[side] *= dims[i].dim < 0 ? 1 : x->shape.dims[dims[i].dim];
    }
    return at.mix != DUNLIN_ONNX_MIX_SHARED && axis >= 0 && reshape_to(node, wanted);
}

/* --- dimensions of one, parts --- */

static bool change_dims(dunlin_onnx_node *node)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    place at = dunlin__onnx_place_of(node, 0);
    file_dim dims[DUNLIN_MAX_DIMS + 1];
    const int32_t n = dunlin__onnx_file_dims(&at, x->shape.n_dims, dims);
    const bool is_more = strcmp(dunlin__onnx_op_type(node), "Unsqueeze") == 0;
    dunlin_onnx_vector axes;
    if (!dunlin__onnx_vector_input(node, 1, &axes)) {
        return false;
    }
    const int32_t n_new = is_more ? n + axes.n : n;
    uint32_t marked = 0;
    for (int32_t i = 0; i < axes.n; i++) {
        const int64_t axis = axes.items[i] < 0 ? axes.items[i] + n_new : axes.items[i];
        if (axis < 0 || axis >= n_new || n_new > DUNLIN_MAX_DIMS || axes.is_batch[i]) {
            return false;
        }
        marked |= 1U << axis;
    }
    dunlin_shape made = {0};
    int32_t from = 0;
    for (int32_t i = 0; i < n_new; i++) {
        const bool is_marked = (marked >> i & 1) != 0;
        if (is_more && is_marked) {
            made.dims[made.n_dims++] = 1;
            continue;
        }
        const file_dim *dim = &dims[from++];
        if (is_marked && (dim->has_batch || x->shape.dims[dim->dim] != 1)) {
            return false;
        }
        if (dim->has_batch) {
            at.n_before = made.n_dims + (at.mix == DUNLIN_ONNX_MIX_INNER ? 1 : 0);
        }
        if (dim->dim >= 0 && !is_marked) {
            made.dims[made.n_dims++] = x->shape.dims[dim->dim];
        }
    }
    finish_shape(node, &made, &at);
    return true;
}

/* The dimension is gone. */
static void take_out(place *at, int32_t dim)
{
    at->n_before -= dim < at->n_before ? 1 : 0;
}

/* The indices are a stored list, which stays a dimension. */
static bool has_rows(const dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *ids = dunlin__onnx_input(node, 1);
    return ids != NULL && ids->meaning == DUNLIN_ONNX_TENSOR && !ids->is_flat &&
           node->import->file->tensors[ids->index].shape.n_dims > 0;
}

/* One element of a dimension, or rows of a table by a value's numbers. */
static bool gather(dunlin_onnx_node *node)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    int64_t index = 0;
    if (x == NULL) {
        return false;
    }
    place at = dunlin__onnx_place_of(node, 0);
    const int32_t dim =
        dunlin__onnx_sample_axis(&at, x->shape.n_dims, dunlin__onnx_int(node, "axis", 0));
    if (dim < 0) {
        return false;
    }
    if (dunlin__onnx_ints_input(node, 1, &index, 1) != 1 || has_rows(node)) {
        int32_t rank = 0;
        dunlin__onnx_pick_many(node, dim, &rank);
        at.n_before += dim < at.n_before ? rank - 1 : 0;
        set_place(node, &at);
        return true;
    }
    dunlin_shape made = {0};
    for (int32_t d = 0; d < x->shape.n_dims; d++) {
        if (d != dim) {
            made.dims[made.n_dims++] = x->shape.dims[d];
        }
    }
    dunlin_net_node part = of_input(node, DUNLIN_OP_SLICE);
    part.u.slice.axis = dim;
    part.u.slice.start = index < 0 ? index + x->shape.dims[dim] : index;
    part.u.slice.end = part.u.slice.start + 1;
    const uint32_t value = dunlin__onnx_make(node, &part, "/part");
    if (value != DUNLIN_NET_NONE) {
        dunlin_net_node row = {.kind = made.n_dims == 1 ? DUNLIN_OP_FLATTEN : DUNLIN_OP_RESHAPE,
                               .inputs = {value},
                               .n_inputs = 1};
        row.u.reshape.shape = made;
        dunlin__onnx_finish(node, &row);
    }
    take_out(&at, dim);
    set_place(node, &at);
    return true;
}

/* A border from the end if negative, and never outside. */
static int64_t within(int64_t at, int64_t size)
{
    at = at < 0 ? (at < -size ? 0 : at + size) : at;
    return at > size ? size : at;
}

/* Parts of dimensions of a sample. */
static bool slice(dunlin_onnx_node *node)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    const place at = dunlin__onnx_place_of(node, 0);
    int64_t lists[4][DUNLIN_MAX_DIMS] = {{0}};
    const int32_t n = dunlin__onnx_ints_input(node, 1, lists[0], DUNLIN_MAX_DIMS);
    dunlin_net_node made[DUNLIN_MAX_DIMS];
    for (uint32_t k = 1; k < 4; k++) {
        const bool is_there = k < 3 || dunlin__onnx_has_input(node, k + 1);
        for (int32_t i = 0; i < DUNLIN_MAX_DIMS; i++) {
            lists[k][i] = 1;
        }
        if (is_there && dunlin__onnx_ints_input(node, k + 1, lists[k], DUNLIN_MAX_DIMS) != n) {
            return false;
        }
    }
    if (n < 1 || n > DUNLIN_MAX_DIMS) {
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t dim = dunlin__onnx_sample_axis(&at, x->shape.n_dims, lists[2][i]);
        const int64_t size = dim < 0 ? 0 : x->shape.dims[dim];
        made[i] = of_input(node, DUNLIN_OP_SLICE);
        made[i].u.slice.axis = dim;
        made[i].u.slice.start = within(lists[0][i], size);
        made[i].u.slice.end = within(lists[1][i], size);
        if (dim < 0 || lists[3][i] != 1 || made[i].u.slice.end <= made[i].u.slice.start) {
            return false;
        }
    }
    uint32_t value = dunlin__onnx_value_input(node, 0);
    for (int32_t i = 0; i < n && value != DUNLIN_NET_NONE; i++) {
        char suffix[24];
        (void)snprintf(suffix, sizeof suffix, "/part%" PRId32, i);
        made[i].inputs[0] = value;
        if (i + 1 == n) {
            dunlin__onnx_finish(node, &made[i]);
            break;
        }
        value = dunlin__onnx_make(node, &made[i], suffix);
    }
    set_place(node, &at);
    return true;
}

/* An activation that the node reads has its batch elsewhere. */
static bool is_any_elsewhere(const dunlin_onnx_node *node)
{
    bool is_any = false;
    for (uint32_t i = 0; i < dunlin__onnx_n_inputs(node); i++) {
        const dunlin_onnx_binding *input = dunlin__onnx_input(node, i);
        is_any = is_any || (input != NULL && input->meaning == DUNLIN_ONNX_VALUE &&
                            !input->is_unknown && !is_first(&input->place));
    }
    return is_any;
}

/* Of a new shape the batch is in the first dimension that is not 1: nothing else can be meant. */
static bool is_known_first(const dunlin_onnx_node *node)
{
    dunlin_onnx_vector wanted;
    int32_t at = 0;
    if (!dunlin__onnx_vector_input(node, 1, &wanted)) {
        return false;
    }
    while (at + 1 < wanted.n && !wanted.is_batch[at] && wanted.items[at] == 1) {
        at++;
    }
    return wanted.n > 0 && (wanted.is_batch[at] || (at == 0 && wanted.items[0] == -1));
}

/* The batch is first, and the node moves it or joins it to a neighbour. */
static bool begins_move(dunlin_onnx_node *node)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    const char *op = dunlin__onnx_op_type(node);
    if (x == NULL) {
        return false;
    }
    if (strcmp(op, "Transpose") == 0) {
        int64_t perm[DUNLIN_MAX_DIMS + 1] = {0};
        const int32_t n = dunlin__onnx_ints(node, "perm", perm, x->shape.n_dims + 1);
        return n == x->shape.n_dims + 1 && perm[0] != 0 && transpose(node);
    }
    dunlin_shape kept;
    return strcmp(op, "Reshape") == 0 && !dunlin__onnx_new_shape(node, x, &kept) &&
           is_known_first(node) && reshape(node);
}

bool dunlin__onnx_fold_place(dunlin_onnx_node *node)
{
    static const dunlin_onnx_fold moves[] = {
        {"Shape", shape},
        {"Transpose", transpose},
        {"Reshape", reshape},
        {"Flatten", flatten},
        {"Unsqueeze", change_dims},
        {"Squeeze", change_dims},
        {"Gather", gather},
        {"Slice", slice},
        {"Expand", dunlin__onnx_expand_shared},
        {"Tile", dunlin__onnx_expand_shared},
    };
    if (dunlin__onnx_is_anything_unknown(node)) {
        return false;
    }
    if (!is_any_elsewhere(node)) {
        return begins_move(node);
    }
    if (dunlin__onnx_known_value(node, 0) != NULL &&
        (dunlin__onnx_fold_by(node, moves, sizeof moves / sizeof moves[0]) ||
         dunlin__onnx_reduce_place(node))) {
        return true;
    }
    if (!node->import->is_rejected &&
        (dunlin__onnx_join_stored(node) || dunlin__onnx_join_shared(node) ||
         dunlin__onnx_multiply_shared(node))) {
        return true;
    }
    if (!node->import->is_rejected && dunlin__onnx_refuse_shared(node)) {
        return true;
    }
    place at = {0};
    if (!node->import->is_rejected && dunlin__onnx_passes(node, &at)) {
        node->import->place = at;
        node->import->has_place = true;
        return false;
    }
    (void)dunlin__onnx_reject(
        node, "",
        "the batch of its input is not the first dimension, and it is not known "
        "to leave it alone");
    return true;
}
