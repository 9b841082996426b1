/*
 * rearrange.c - a sample's elements in another order and under another shape: images as plain
 * values and back, permutations of images, channel shuffle, space to depth.
 *
 * The input, row-major as ONNX sees it, is taken as `split`; those dimensions are put in the order
 * `perm`, and what comes out has the shape `shape`. How input and output lie is another matter: an
 * image lies with its channels innermost, so that a permutation to (H, W, C) moves nothing, and the
 * output is the input's tensor.
 */
#include "atoms.h"
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

static dunlin_atoms atoms_of(const dunlin_net *net, const dunlin_net_node *node)
{
    dunlin_atoms atoms = {0};
    (void)dunlin__atoms_of(&net->values[node->inputs[0]], net->values[node->output].layout,
                           &node->u.rearrange.to, &atoms);
    return atoms;
}

static void move_dim(dunlin_walk *walk, int32_t from, int32_t to)
{
    int64_t *dims[] = {walk->dims, walk->in[0].strides, walk->out.strides};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        const int64_t moved = dims[i][from];
        memmove(&dims[i][from], &dims[i][from + 1], (size_t)(to - from) * sizeof moved);
        dims[i][to] = moved;
    }
}

/* The two innermost dimensions are those that lie together in the input and in the output; of them
 * the longer one is the last. */
static void order_dims(dunlin_walk *walk)
{
    const int32_t last = walk->n_dims - 1;
    int32_t together = last;
    for (int32_t i = 0; i < last; i++) {
        together = walk->in[0].strides[i] == 1 && walk->dims[i] > 1 ? i : together;
    }
    if (together != last) {
        move_dim(walk, together, walk->dims[together] > walk->dims[last] ? last : last - 1);
    }
}

/* From tensor to tensor; backward the same way back. */
static void emit_move(dunlin_emit *emit, const dunlin_net_node *node, const char *suffix,
                      uint32_t from, uint32_t to)
{
    const dunlin_atoms atoms = atoms_of(dunlin__emit_net(emit), node);
    const bool is_back = suffix[0] != '\0';
    dunlin_walk walk = {.fn = DUNLIN_WALK_COPY, .factor = 1.0F};
    walk.n_out = dunlin__op_elements(emit, node->output);
    walk.in[0].sample_stride = walk.n_out;
    walk.out.sample_stride = walk.n_out;
    for (int32_t i = 0; i < atoms.n; i++) {
        const dunlin_atom *atom = &atoms.at[i];
        const int64_t out_stride = is_back ? atom->in_stride : atom->out_stride;
        int32_t at = walk.n_dims++;
        for (; at > 0 && walk.out.strides[at - 1] < out_stride; at--) {
            walk.dims[at] = walk.dims[at - 1];
            walk.in[0].strides[at] = walk.in[0].strides[at - 1];
            walk.out.strides[at] = walk.out.strides[at - 1];
        }
        walk.dims[at] = atom->size;
        walk.in[0].strides[at] = is_back ? atom->out_stride : atom->in_stride;
        walk.out.strides[at] = out_stride;
    }
    dunlin__walk_merge(&walk);
    order_dims(&walk);
    dunlin__op_emit_strided(emit, suffix, &walk, (const uint32_t[]){from, to}, 1);
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    const dunlin_atoms atoms = atoms_of(dunlin__emit_net(emit), node);
    if (dunlin__atoms_are_still(&atoms)) {
        dunlin__emit_alias(emit, node->output, x);
        return;
    }
    emit_move(emit, node, "", x, dunlin__emit_output(emit, node->output));
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (!dunlin__emit_needs_grad(emit, node->inputs[0])) {
        return;
    }
    const uint32_t dy = dunlin__emit_grad(emit, node->output);
    const dunlin_atoms atoms = atoms_of(dunlin__emit_net(emit), node);
    if (dunlin__atoms_are_still(&atoms)) {
        dunlin__emit_grad_alias(emit, node->inputs[0], dy);
        return;
    }
    emit_move(emit, node, "/input_grad", dy, dunlin__emit_grad_target(emit, node->inputs[0]));
}

static bool is_perm(const int32_t *perm, int32_t n)
{
    uint32_t seen = 0;
    for (int32_t i = 0; i < n; i++) {
        if (perm[i] < 0 || perm[i] >= n || (seen >> perm[i] & 1) != 0) {
            return false;
        }
        seen |= 1U << perm[i];
    }
    return true;
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    const dunlin_rearrangement *to = &node->u.rearrange.to;
    const bool is_image = node->u.rearrange.is_image;
    char from_text[DUNLIN_OP_SHAPE_TEXT_BYTES];
    char to_text[DUNLIN_OP_SHAPE_TEXT_BYTES];
    int64_t n_split = 0;
    int64_t n_out = 0;
    const int64_t n = dunlin__value_elements(x);
    if (dunlin_shape_count(&to->split, &n_split) != DUNLIN_OK || n_split != n ||
        dunlin_shape_count(&to->shape, &n_out) != DUNLIN_OK || n_out != n) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.60s' turns %.60s into %.60s: they differ in size", node->name,
                            dunlin__op_shape_text(&x->shape, from_text),
                            dunlin__op_shape_text(n_split == n ? &to->shape : &to->split, to_text));
    }
    if (!is_perm(to->perm, to->split.n_dims)) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s': its order does not name each of %" PRId32
                            " dimensions once",
                            node->name, to->split.n_dims);
    }
    dunlin_net_value *y = &net->values[node->output];
    y->shape = to->shape;
    y->layout = is_image ? DUNLIN_LAYOUT_IMAGE : DUNLIN_LAYOUT_PLAIN;
    dunlin_atoms atoms;
    if ((is_image && y->shape.n_dims != 3 && y->shape.n_dims != 2) ||
        !dunlin__atoms_of(x, y->layout, to, &atoms) || atoms.n > DUNLIN_WALK_MAX_DIMS) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.60s' cannot turn %.60s into %.60s in one step", node->name,
                            dunlin__op_shape_text(&x->shape, from_text),
                            dunlin__op_shape_text(&to->shape, to_text));
    }
    return DUNLIN_OK;
}

/* Blocks of b x b pixels from the channels, or into them. The reader makes all other nodes of this
 * kind itself. */
static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_REARRANGE;
    node->u.rearrange.is_image = true;
    const bool is_to_space = strcmp(dunlin__onnx_op_type(onnx), "DepthToSpace") == 0;
    const char *mode = is_to_space ? dunlin__onnx_text(onnx, "mode", "DCR") : "";
    const bool is_crd = strcmp(mode, "CRD") == 0;
    const int64_t b = dunlin__onnx_int(onnx, "blocksize", 0);
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    if (is_to_space && !is_crd && strcmp(mode, "DCR") != 0) {
        return dunlin__onnx_reject(onnx, "mode", "is %.40s, not DCR or CRD", mode);
    }
    const dunlin_shape *x = &net->values[node->inputs[0]].shape;
    if (x->n_dims == 0) {
        return DUNLIN_OK; /* depends on an issue */
    }
    const int64_t c = x->dims[0];
    const int64_t h = x->dims[1];
    const int64_t w = x->dims[2];
    const bool fits = b >= 1 && b <= UINT16_MAX && x->n_dims == 3 &&
                      (is_to_space ? c % (b * b) == 0 : h % b == 0 && w % b == 0);
    if (!fits) {
        char text[DUNLIN_OP_SHAPE_TEXT_BYTES];
        return dunlin__onnx_reject(onnx, "blocksize",
                                   "is %" PRId64 ", which does not divide its input %.60s", b,
                                   dunlin__op_shape_text(x, text));
    }
    dunlin_rearrangement to = {
        {5, {c, h / b, b, w / b, b}}, {2, 4, 0, 1, 3}, {3, {c * b * b, h / b, w / b}}};
    if (is_to_space) {
        const dunlin_rearrangement dcr = {
            {5, {b, b, c / b / b, h, w}}, {2, 3, 0, 4, 1}, {3, {c / b / b, h * b, w * b}}};
        const dunlin_rearrangement crd = {{5, {c / b / b, b, b, h, w}}, {0, 3, 1, 4, 2}, dcr.shape};
        to = is_crd ? crd : dcr;
    }
    node->u.rearrange.to = to;
    return DUNLIN_OK;
}

static bool is_same(const dunlin_shape *a, const dunlin_shape *b)
{
    return a->n_dims == b->n_dims &&
           memcmp(a->dims, b->dims, (size_t)a->n_dims * sizeof a->dims[0]) == 0;
}

static void put_shape(dunlin_onnx_writer *writer, const char *suffix, const dunlin_shape *shape)
{
    int64_t dims[DUNLIN_MAX_DIMS + 1] = {-1};
    for (int32_t i = 0; i < shape->n_dims; i++) {
        dims[i + 1] = shape->dims[i];
    }
    dunlin__onnx_add_ints(writer, suffix, dims, shape->n_dims + 1);
}

/* Reshape to the split, Transpose, Reshape; those of them that change something. */
static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_rearrangement *to = &node->u.rearrange.to;
    const dunlin_shape moved = dunlin__rearranged(to);
    const bool is_ordered = dunlin__is_in_order(to);
    const dunlin_shape *in = &net->values[node->inputs[0]].shape;
    const bool is_split = !is_ordered && !is_same(&to->split, in);
    const bool is_shaped = is_ordered ? !is_same(in, &to->shape) : !is_same(&moved, &to->shape);
    if (is_ordered && !is_shaped) {
        dunlin__onnx_begin_node(writer, "Identity", node);
        dunlin__onnx_add_value(writer, node->inputs[0]);
        dunlin__onnx_end_node(writer);
        return;
    }
    if (is_split) {
        dunlin__onnx_begin_node(writer, "Reshape", node);
        dunlin__onnx_add_value(writer, node->inputs[0]);
        put_shape(writer, "/split_shape", &to->split);
        dunlin__onnx_end_part(writer, "/split");
    }
    if (!is_ordered) {
        int64_t perm[DUNLIN_MAX_DIMS + 1] = {0};
        for (int32_t i = 0; i < to->split.n_dims; i++) {
            perm[i + 1] = to->perm[i] + 1;
        }
        dunlin__onnx_begin_node(writer, "Transpose", node);
        if (is_split) {
            dunlin__onnx_add_part(writer, "/split");
        } else {
            dunlin__onnx_add_value(writer, node->inputs[0]);
        }
        dunlin__onnx_attr_ints(writer, "perm", perm, to->split.n_dims + 1);
        if (!is_shaped) {
            dunlin__onnx_end_node(writer);
            return;
        }
        dunlin__onnx_end_part(writer, "/moved");
    }
    dunlin__onnx_begin_node(writer, "Reshape", node);
    if (is_ordered) {
        dunlin__onnx_add_value(writer, node->inputs[0]);
    } else {
        dunlin__onnx_add_part(writer, "/moved");
    }
    put_shape(writer, "/shape", &to->shape);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"DepthToSpace", "SpaceToDepth", NULL};

const dunlin_op_row dunlin__op_rearrange = {
    .kind = DUNLIN_OP_REARRANGE,
    .name = "rearrange",
    .onnx_names = onnx_names,
    .bounds = DUNLIN_BOUNDS_KEPT,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
