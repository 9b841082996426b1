/*
 * weight_parts.c - layers that read some rows of a stored matrix, as attention between two
 * sequences reads q's rows and those of k and v of one weight (torch.nn.MultiheadAttention).
 *
 * Invariant: the parameter stays one. A layer over the whole matrix is made and the outputs that
 * were asked for are cut out of what it puts out: the others are computed in vain, their gradient
 * is 0.
 */
#include "constants.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

static dunlin_onnx_binding *owner_of(const dunlin_onnx_node *node, const dunlin_onnx_binding *part)
{
    return &node->import->bindings[part->part_of];
}

/* The part of `from`, which may be a part itself, from row `first` on. */
static void note(const dunlin_onnx_node *node, dunlin_onnx_binding *output,
                 const dunlin_onnx_binding *from, int64_t first, int64_t n)
{
    const bool is_nested = from->part_rows > 0;
    output->part_of = is_nested ? from->part_of : (uint32_t)(from - node->import->bindings);
    output->part_first = first + (is_nested ? from->part_first : 0);
    output->part_rows = n;
}

/* The input's rows, if it is a stored tensor that may be a weight; 0: it is none. */
static int64_t rows_of(const dunlin_onnx_node *node, const dunlin_onnx_binding *from)
{
    if (from == NULL || from->meaning != DUNLIN_ONNX_TENSOR || from->is_transposed ||
        from->is_flat || !dunlin__constant_may_be_weight(node, from)) {
        return 0;
    }
    const dunlin_onnx_tensor *tensor = &node->import->file->tensors[from->index];
    return tensor->shape.n_dims > 0 && (tensor->store == DUNLIN_ONNX_STORE_BYTES ||
                                        tensor->store == DUNLIN_ONNX_STORE_EXTERNAL)
               ? tensor->shape.dims[0]
               : 0;
}

/* Rows [first, first + n) of the input are an output; all of them are another name for it. */
static bool bind_rows(dunlin_onnx_node *node, uint32_t index, int64_t first, int64_t n)
{
    const dunlin_onnx_binding *from = dunlin__onnx_input(node, 0);
    dunlin_onnx_binding *output = dunlin__onnx_output(node, index);
    uint32_t tensor = 0;
    if (output == NULL) {
        return true;
    }
    if (!dunlin__onnx_file_add_rows(node->import->file, from->index, first, n, &tensor)) {
        node->import->node_status = dunlin__onnx_fail_memory(node->import);
        return false;
    }
    output->meaning = DUNLIN_ONNX_TENSOR;
    output->index = tensor;
    note(node, output, from, first, n);
    return true;
}

static bool slice(dunlin_onnx_node *node)
{
    const int64_t rows = rows_of(node, dunlin__onnx_input(node, 0));
    int64_t bounds[4] = {0, 0, 0, 1}; /* start, end, axis, step */
    bool is_known = rows > 0;
    for (uint32_t i = 0; i < 4 && is_known; i++) {
        const bool is_there = i < 2 || dunlin__onnx_has_input(node, i + 1);
        is_known = !is_there || dunlin__onnx_ints_input(node, i + 1, &bounds[i], 1) == 1;
    }
    if (!is_known || bounds[3] != 1) {
        return false;
    }
    const int32_t rank =
        node->import->file->tensors[dunlin__onnx_input(node, 0)->index].shape.n_dims;
    const int64_t start = bounds[0] < 0 ? bounds[0] + rows : bounds[0];
    int64_t end = bounds[1] < 0 ? bounds[1] + rows : bounds[1];
    end = end > rows ? rows : end;
    if ((bounds[2] != 0 && bounds[2] != -rank) || start < 0 || end <= start ||
        end - start == rows) {
        return false;
    }
    dunlin__onnx_check_attributes(node);
    (void)bind_rows(node, 0, start, end - start);
    return true;
}

static bool split(dunlin_onnx_node *node)
{
    const int64_t rows = rows_of(node, dunlin__onnx_input(node, 0));
    const uint32_t n = node->op->outputs.n;
    int64_t sizes[DUNLIN_MAX_DIMS] = {0};
    if (rows == 0 || n < 2 || n > DUNLIN_MAX_DIMS) {
        return false;
    }
    const int32_t rank =
        node->import->file->tensors[dunlin__onnx_input(node, 0)->index].shape.n_dims;
    const int64_t axis = dunlin__onnx_int(node, "axis", 0);
    const int64_t each = (rows + n - 1) / n;
    bool is_good = (axis == 0 || axis == -rank) && dunlin__onnx_int(node, "num_outputs", n) == n;
    for (uint32_t i = 0; i < n; i++) {
        sizes[i] = i + 1 < n ? each : rows - each * (n - 1);
    }
    is_good = is_good && (!dunlin__onnx_has_input(node, 1) ||
                          dunlin__onnx_ints_input(node, 1, sizes, DUNLIN_MAX_DIMS) == (int32_t)n);
    int64_t left = rows;
    for (uint32_t i = 0; is_good && i < n; i++) {
        is_good = sizes[i] >= 1 && sizes[i] <= left;
        left -= is_good ? sizes[i] : 0;
    }
    if (!is_good || left != 0) {
        (void)dunlin__onnx_reject(node, "split",
                                  "a weight is split along its first dimension alone, into parts "
                                  "that make up its %" PRId64 " rows",
                                  rows);
        return true;
    }
    dunlin__onnx_check_attributes(node);
    for (uint32_t i = 0, first = 0; i < n && bind_rows(node, i, first, sizes[i]); i++) {
        first += (uint32_t)sizes[i];
    }
    return true;
}

/* --- layers --- */

/* Input `index`, if it is rows of a stored matrix that are the layer's outputs. */
static const dunlin_onnx_binding *rows_at(const dunlin_onnx_node *node, uint32_t index,
                                          bool is_turned)
{
    const dunlin_onnx_binding *part = dunlin__onnx_input(node, index);
    return part != NULL && part->meaning == DUNLIN_ONNX_TENSOR && part->part_rows > 0 &&
                   part->is_transposed == is_turned &&
                   node->import->file->tensors[owner_of(node, part)->index].shape.n_dims == 2
               ? part
               : NULL;
}

/* A bias whose rows are those of the weight; NULL: it is none. */
static const dunlin_onnx_binding *bias_at(const dunlin_onnx_node *node, uint32_t index,
                                          int64_t first, int64_t n, int64_t n_outputs)
{
    const dunlin_onnx_binding *part = dunlin__onnx_input(node, index);
    if (part == NULL || part->meaning != DUNLIN_ONNX_TENSOR || part->part_rows != n ||
        part->part_first != first) {
        return NULL;
    }
    const dunlin_shape *shape = &node->import->file->tensors[owner_of(node, part)->index].shape;
    return shape->n_dims == 1 && shape->dims[0] == n_outputs ? part : NULL;
}

/* The whole layer, and the rows' outputs of it. */
static void make_layer(dunlin_onnx_node *node, const dunlin_onnx_binding *rows,
                       const dunlin_onnx_binding *bias)
{
    dunlin_net *net = node->import->net;
    dunlin_net_node made = {
        .kind = DUNLIN_OP_DENSE, .inputs = {dunlin__onnx_value_input(node, 0)}, .n_inputs = 1};
    made.params[made.n_params++] = dunlin__onnx_param_of(node, owner_of(node, rows));
    if (made.params[0] == DUNLIN_NET_NONE ||
        !dunlin__onnx_transpose_param(node, owner_of(node, rows), false)) {
        return;
    }
    net->params[made.params[0]].layout = DUNLIN_PARAM_DENSE;
    if (bias != NULL) {
        made.params[made.n_params++] = dunlin__onnx_param_of(node, owner_of(node, bias));
        if (made.params[1] == DUNLIN_NET_NONE) {
            return;
        }
    }
    const uint32_t whole = dunlin__onnx_make(node, &made, "/whole");
    if (whole == DUNLIN_NET_NONE) {
        return;
    }
    dunlin_net_node cut = {.kind = DUNLIN_OP_SLICE, .inputs = {whole}, .n_inputs = 1};
    cut.u.slice.axis = net->values[whole].shape.n_dims - 1;
    cut.u.slice.start = rows->part_first;
    cut.u.slice.end = rows->part_first + rows->part_rows;
    dunlin__onnx_finish(node, &cut);
}

static bool product(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *rows = rows_at(node, 1, true);
    if (dunlin__onnx_known_value(node, 0) == NULL || rows == NULL) {
        return false;
    }
    make_layer(node, rows, NULL);
    return true;
}

static bool gemm(dunlin_onnx_node *node)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    const bool is_turned = dunlin__onnx_int(node, "transB", 0) == 0;
    const dunlin_onnx_binding *rows = rows_at(node, 1, is_turned);
    const float alpha = dunlin__onnx_float(node, "alpha", 1.0F);
    const float beta = dunlin__onnx_float(node, "beta", 1.0F);
    if (x == NULL || rows == NULL || dunlin__onnx_int(node, "transA", 0) != 0 || alpha < 1.0F ||
        alpha > 1.0F || beta < 1.0F || beta > 1.0F ||
        (x->shape.n_dims != 1 && (x->shape.n_dims != 2 || dunlin__onnx_input(node, 0)->place.mix ==
                                                              DUNLIN_ONNX_MIX_NONE))) {
        return false;
    }
    const int64_t n = node->import->file->tensors[owner_of(node, rows)->index].shape.dims[0];
    const dunlin_onnx_binding *bias = bias_at(node, 2, rows->part_first, rows->part_rows, n);
    if (dunlin__onnx_has_input(node, 2) && bias == NULL) {
        return false;
    }
    make_layer(node, rows, bias);
    return true;
}

/* --- a bias that is added --- */

static uint32_t n_readers(const dunlin_onnx_node *node, const dunlin_onnx_binding *binding)
{
    const dunlin_onnx_import *import = node->import;
    const uint32_t index = (uint32_t)(binding - import->bindings);
    uint32_t n = 0;
    for (size_t i = 0; i < import->file->n_ops; i++) {
        const dunlin_onnx_span inputs = import->file->ops[i].inputs;
        for (uint32_t k = 0; k < inputs.n; k++) {
            n += import->refs[inputs.first + k] == index ? 1 : 0;
        }
    }
    for (uint32_t i = 0; i < import->n_outputs; i++) {
        const char *name =
            dunlin__onnx_text_at(import, import->file->outputs[import->outputs[i]].name);
        n += strcmp(name, binding->name) == 0 ? 1 : 0;
    }
    return n;
}

/* The layer's own, if nothing else reads the product without it. */
static bool add_bias(dunlin_onnx_node *node)
{
    const uint32_t side = dunlin__onnx_known_value(node, 0) != NULL ? 0 : 1;
    dunlin_net *net = node->import->net;
    if (dunlin__onnx_n_inputs(node) != 2 || dunlin__onnx_known_value(node, side) == NULL) {
        return false;
    }
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, side);
    const uint32_t maker = net->values[input->index].producer;
    const dunlin_net_node *cut = maker != DUNLIN_NET_NONE ? &net->nodes[maker] : NULL;
    if (cut == NULL || cut->kind != DUNLIN_OP_SLICE ||
        net->values[cut->inputs[0]].producer == DUNLIN_NET_NONE) {
        return false;
    }
    dunlin_net_node *layer = &net->nodes[net->values[cut->inputs[0]].producer];
    const dunlin_onnx_binding *bias =
        layer->kind == DUNLIN_OP_DENSE && layer->n_params == 1
            ? bias_at(node, 1 - side, cut->u.slice.start, cut->u.slice.end - cut->u.slice.start,
                      net->params[layer->params[0]].shape.dims[0])
            : NULL;
    if (bias == NULL || n_readers(node, input) != 1) {
        return false;
    }
    const uint32_t param = dunlin__onnx_param_of(node, owner_of(node, bias));
    if (param != DUNLIN_NET_NONE) {
        layer->params[layer->n_params++] = param;
        dunlin__onnx_alias(node, input);
    }
    return true;
}

bool dunlin__onnx_fold_weight_parts(dunlin_onnx_node *node)
{
    static const dunlin_onnx_fold entries[] = {
        {"Slice", slice}, {"Split", split}, {"MatMul", product}, {"Gemm", gemm}, {"Add", add_bias}};
    return !dunlin__onnx_is_anything_unknown(node) &&
           dunlin__onnx_fold_by(node, entries, sizeof entries / sizeof entries[0]);
}
