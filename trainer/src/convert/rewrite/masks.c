/*
 * masks.c - a choice between activations, or one and a constant, by a constant mask (Where), and
 * masks that hold minus infinity.
 *
 * Invariant: x where the mask lets it through, else c, is x * m + k, with m of ones and zeros and k
 * of zeros and c: the same numbers while x is finite. Minus infinity becomes the lowest float,
 * whose exponential is 0 as well.
 */
#include "constants.h"

#include <mem/support.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define HIDDEN (-1e4) /* added to a score: its exponential is 0 */

uint32_t dunlin__constant_param(dunlin_onnx_node *node, const char *suffix,
                                const dunlin_constant *from)
{
    dunlin_onnx_import *import = node->import;
    dunlin_net *net = import->net;
    char name[DUNLIN_NET_MAX_NAME + 1];
    const int length =
        snprintf(name, sizeof name, "%s%s", dunlin__onnx_output(node, 0)->name, suffix);
    if (length > DUNLIN_NET_MAX_NAME) {
        (void)dunlin__onnx_reject(node, "", "its name is too long to be added to");
        return DUNLIN_NET_NONE;
    }
    const size_t n = (size_t)from->n;
    float *values = dunlin__alloc_array(&import->file->alloc, n, sizeof *values);
    const uint32_t param = values != NULL ? dunlin__net_add_param(net, name) : DUNLIN_NET_NONE;
    bool is_made = param != DUNLIN_NET_NONE;
    for (size_t i = 0; is_made && i < n; i++) {
        const double item = from->items[i];
        values[i] = item < (double)-FLT_MAX ? -FLT_MAX : (float)item;
    }
    if (is_made) {
        net->params[param].shape = from->shape;
        net->params[param].n_elements = from->n;
        net->params[param].is_fixed_by_file = true;
        is_made = dunlin__net_set_values(net, param, values);
    }
    dunlin__free_array(&import->file->alloc, values, n, sizeof *values);
    if (!is_made) {
        import->node_status = dunlin__onnx_fail_memory(import);
        return DUNLIN_NET_NONE;
    }
    return param;
}

/* What is added hides some of it and leaves the rest as it is. */
static bool is_mask(const dunlin_constant *added)
{
    bool hides = false;
    bool is_rest_zero = true;
    for (int64_t i = 0; i < added->n; i++) {
        if (isinf(added->items[i]) && added->items[i] < 0.0) {
            return true; /* whatever else: no weight is infinite */
        }
        hides = hides || added->items[i] <= HIDDEN;
        is_rest_zero = is_rest_zero && (added->items[i] <= HIDDEN || added->items[i] == 0.0);
    }
    return hides && is_rest_zero;
}

uint32_t dunlin__onnx_finite_param(dunlin_onnx_node *node, uint32_t index)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    dunlin_constant mask = {0};
    uint32_t param = DUNLIN_NET_NONE;
    if (input == NULL || input->meaning != DUNLIN_ONNX_TENSOR ||
        node->import->file->tensors[input->index].type != DUNLIN_ONNX_FLOAT ||
        !dunlin__constant_read(node, index, &mask)) {
        return DUNLIN_NET_NONE;
    }
    if (is_mask(&mask)) {
        param = dunlin__constant_param(node, "/mask", &mask);
    }
    dunlin__constant_free(node, &mask);
    return param;
}

/* value (op) values; NONE after a failure. `suffix` NULL: the node's own output. */
static uint32_t join(dunlin_onnx_node *node, uint32_t value, dunlin_binary_fn fn,
                     const dunlin_constant *values, const char *suffix, const char *param_suffix)
{
    dunlin_net_node made = {
        .kind = DUNLIN_OP_BINARY, .inputs = {value}, .n_inputs = 1, .n_params = 1};
    made.u.binary.fn = fn;
    made.params[0] = dunlin__constant_param(node, param_suffix, values);
    return made.params[0] != DUNLIN_NET_NONE ? dunlin__onnx_make(node, &made, suffix)
                                             : DUNLIN_NET_NONE;
}

/* The mask is let through where it is `passes`; what is added elsewhere is `other`. */
static void choose(dunlin_onnx_node *node, uint32_t side, const dunlin_constant *mask,
                   const dunlin_constant *other)
{
    const double passes = side == 1 ? 1.0 : 0.0;
    dunlin_constant let = {0};
    dunlin_constant wide[2] = {{0}};
    dunlin_shape shape;
    bool is_good = true;
    if (!dunlin__constant_join(&mask->shape, &other->shape, &shape)) {
        (void)dunlin__onnx_reject(node, "", "its mask and its constant do not fit together");
        return;
    }
    is_good = dunlin__constant_make(node, DUNLIN_ONNX_FLOAT, &mask->shape, &let) &&
              dunlin__constant_spread(node, mask, &shape, &wide[0]) &&
              dunlin__constant_spread(node, other, &shape, &wide[1]);
    for (int64_t i = 0; is_good && i < mask->n; i++) {
        let.items[i] = (mask->items[i] != 0.0) == (passes != 0.0) ? 1.0 : 0.0;
    }
    for (int64_t i = 0; is_good && i < wide[0].n; i++) {
        const bool is_let = (wide[0].items[i] != 0.0) == (passes != 0.0);
        wide[1].items[i] = is_let ? 0.0 : wide[1].items[i];
    }
    const uint32_t value = dunlin__onnx_value_input(node, side);
    const uint32_t kept =
        is_good ? join(node, value, DUNLIN_BINARY_MUL, &let, "/kept", "/mask") : DUNLIN_NET_NONE;
    const uint32_t sum = kept != DUNLIN_NET_NONE
                             ? join(node, kept, DUNLIN_BINARY_ADD, &wide[1], "", "/other")
                             : DUNLIN_NET_NONE;
    if (sum != DUNLIN_NET_NONE) {
        dunlin__onnx_bind_value(node, sum);
    }
    dunlin__constant_free(node, &let);
    dunlin__constant_free(node, &wide[0]);
    dunlin__constant_free(node, &wide[1]);
}

/* Where the mask is set the left value, else the right one: x m + y (1 - m). */
static void choose_value(dunlin_onnx_node *node, const dunlin_constant *mask)
{
    static const char *const names[2][2] = {{"/left", "/mask"}, {"/right", "/unmask"}};
    dunlin_net_node sum = {.kind = DUNLIN_OP_BINARY, .n_inputs = 2};
    for (uint32_t side = 0; side < 2; side++) {
        dunlin_constant let = {0};
        const bool is_made = dunlin__constant_make(node, DUNLIN_ONNX_FLOAT, &mask->shape, &let);
        for (int64_t i = 0; is_made && i < mask->n; i++) {
            let.items[i] = (mask->items[i] != 0.0) == (side == 0) ? 1.0 : 0.0;
        }
        const uint32_t value = dunlin__onnx_value_input(node, 1 + side);
        sum.inputs[side] =
            is_made ? join(node, value, DUNLIN_BINARY_MUL, &let, names[side][0], names[side][1])
                    : DUNLIN_NET_NONE;
        dunlin__constant_free(node, &let);
        if (sum.inputs[side] == DUNLIN_NET_NONE) {
            return;
        }
    }
    const dunlin_net *net = node->import->net;
    const dunlin_shape *left = &net->values[sum.inputs[0]].shape;
    const dunlin_shape *right = &net->values[sum.inputs[1]].shape;
    if (left->n_dims == right->n_dims &&
        memcmp(left->dims, right->dims, (size_t)left->n_dims * sizeof left->dims[0]) == 0) {
        sum.kind = DUNLIN_OP_ADD; /* as it would be read again */
    }
    dunlin__onnx_finish(node, &sum);
}

static bool fold_both(dunlin_onnx_node *node)
{
    dunlin_constant mask = {0};
    const bool is_constant = dunlin__constant_read(node, 0, &mask);
    if (is_constant) {
        choose_value(node, &mask);
    }
    dunlin__constant_free(node, &mask);
    return is_constant;
}

bool dunlin__onnx_fold_mask(dunlin_onnx_node *node)
{
    const bool is_left = dunlin__onnx_known_value(node, 1) != NULL;
    const uint32_t side = is_left ? 1 : 2;
    dunlin_constant mask = {0};
    dunlin_constant other = {0};
    if (strcmp(dunlin__onnx_op_type(node), "Where") != 0 ||
        dunlin__onnx_known_value(node, side) == NULL) {
        return false;
    }
    if (is_left && dunlin__onnx_known_value(node, 2) != NULL && fold_both(node)) {
        return true;
    }
    if (dunlin__constant_read(node, 0, &mask) && dunlin__constant_read(node, 3 - side, &other) &&
        !other.is_part) {
        choose(node, side, &mask, &other);
    } else {
        (void)dunlin__onnx_reject(node, "", "only a choice by a constant mask is trained");
    }
    dunlin__constant_free(node, &mask);
    dunlin__constant_free(node, &other);
    return true;
}
