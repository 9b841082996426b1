/*
 * infer.c - checks a network as a whole and sets the shape and layout of every value.
 *
 * Invariant: after OK every value has one producer that comes before all its consumers, every
 * dimension and every value's size fit in 31 bits, and every parameter belongs to a node, or to
 * several that store it alike.
 */
#include "infer.h"

#include "net/names.h"
#include "net/outputs.h"
#include "net/uses.h"
#include "ops/common/op.h"

#include <mem/support.h>

#include <inttypes.h>

#define MAX_WINDOW 4096 /* kernel and dilation; their product then fits easily */
#define MAX_STEP 65535  /* strides and padding */

static dunlin_status check_shape(const dunlin_shape *shape, const char *kind, const char *name,
                                 int64_t *out_n, dunlin_error *error)
{
    for (int32_t i = 0; i < shape->n_dims && i < DUNLIN_MAX_DIMS; i++) {
        if (shape->dims[i] < 1 || shape->dims[i] > INT32_MAX) {
            return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                                "%s '%.120s': dimension %" PRId32 " is %" PRId64
                                ", not in 1 to %" PRId32,
                                kind, name, i, shape->dims[i], INT32_MAX);
        }
    }
    int64_t n = 0;
    if (shape->n_dims < 0 || shape->n_dims > DUNLIN_MAX_DIMS ||
        dunlin_shape_count(shape, &n) != DUNLIN_OK || n > INT32_MAX) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "%s '%.120s' has more than %" PRId32 " elements or %d dimensions", kind,
                            name, INT32_MAX, DUNLIN_MAX_DIMS);
    }
    *out_n = n;
    return DUNLIN_OK;
}

static dunlin_status check_params(dunlin_net *net, dunlin_error *error)
{
    for (size_t i = 0; i < net->n_params; i++) {
        dunlin_net_param *param = &net->params[i];
        DUNLIN_TRY(check_shape(&param->shape, "parameter", param->name, &param->n_elements, error));
    }
    return DUNLIN_OK;
}

/* Values and parameters share one space of names, as in ONNX. */
static dunlin_status check_names(const dunlin_net *net, dunlin_error *error)
{
    size_t n = net->n_values + net->n_params;
    dunlin_name *names = dunlin__alloc_array(&net->alloc, n, sizeof *names);
    if (names == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "net", 0, "no memory for %zu names", n);
    }
    for (size_t i = 0; i < n; i++) {
        names[i].text =
            i < net->n_values ? net->values[i].name : net->params[i - net->n_values].name;
        names[i].index = (uint32_t)i;
    }
    dunlin__names_sort(names, n);
    const dunlin_name *duplicate = dunlin__names_duplicate(names, n);
    dunlin_status status = DUNLIN_OK;
    if (duplicate != NULL) {
        status = dunlin__fail(error, DUNLIN_MODEL, "net", 0, "the name '%.180s' is used twice",
                              duplicate->text);
    }
    dunlin__free_array(&net->alloc, names, n, sizeof *names);
    return status;
}

static bool in_range(int32_t value, int32_t low, int32_t high)
{
    return value >= low && value <= high;
}

/* Sizes that no real network has would overflow in a row's arithmetic. */
static bool is_window_sane(int32_t kernel_h, int32_t kernel_w, int32_t dilation_h,
                           int32_t dilation_w, int32_t stride_h, int32_t stride_w)
{
    return in_range(kernel_h, 1, MAX_WINDOW) && in_range(kernel_w, 1, MAX_WINDOW) &&
           in_range(dilation_h, 1, MAX_WINDOW) && in_range(dilation_w, 1, MAX_WINDOW) &&
           in_range(stride_h, 1, MAX_STEP) && in_range(stride_w, 1, MAX_STEP);
}

static bool is_padding_sane(int32_t top, int32_t left, int32_t bottom, int32_t right)
{
    return in_range(top, 0, MAX_STEP) && in_range(left, 0, MAX_STEP) &&
           in_range(bottom, 0, MAX_STEP) && in_range(right, 0, MAX_STEP);
}

static dunlin_status check_window(const dunlin_net_node *node, dunlin_error *error)
{
    bool is_sane = true;
    if (node->kind == DUNLIN_OP_CONV || node->kind == DUNLIN_OP_CONV_TRANSPOSED) {
        const dunlin_net_conv *c = &node->u.conv;
        is_sane = is_window_sane(c->kernel_h, c->kernel_w, c->dilation_h, c->dilation_w,
                                 c->stride_h, c->stride_w) &&
                  is_padding_sane(c->pad_top, c->pad_left, c->pad_bottom, c->pad_right) &&
                  c->groups >= 1 && c->out_channels >= 1;
    } else if (node->kind == DUNLIN_OP_MAX_POOL || node->kind == DUNLIN_OP_AVERAGE_POOL ||
               node->kind == DUNLIN_OP_LP_POOL) {
        const dunlin_net_pool *p = &node->u.pool;
        is_sane =
            is_window_sane(p->kernel_h, p->kernel_w, p->dilation_h == 0 ? 1 : p->dilation_h,
                           p->dilation_w == 0 ? 1 : p->dilation_w, p->stride_h, p->stride_w) &&
            is_padding_sane(p->pad_top, p->pad_left, p->pad_bottom, p->pad_right);
    }
    if (!is_sane) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s': kernel and dilation must be 1 to %d, stride 1 to %d, "
                            "padding 0 to %d, groups and channels positive",
                            node->name, MAX_WINDOW, MAX_STEP, MAX_STEP);
    }
    return DUNLIN_OK;
}

static dunlin_status check_node(const dunlin_net *net, const dunlin_net_node *node,
                                dunlin_error *error)
{
    if (node->n_inputs < 1 || node->n_inputs > DUNLIN_NET_MAX_INPUTS) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.120s' has %" PRIu32 " inputs, not 1 to %d", node->name,
                            node->n_inputs, DUNLIN_NET_MAX_INPUTS);
    }
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        uint32_t input = node->inputs[i];
        if (input >= net->n_values ||
            (input != net->input && net->values[input].producer == DUNLIN_NET_NONE)) {
            return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                                "node '%.120s': input %" PRIu32 " is not made by a node before it",
                                node->name, i);
        }
    }
    if (node->output >= net->n_values || node->output == net->input ||
        net->values[node->output].producer != DUNLIN_NET_NONE) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.120s': its output is made by another node too", node->name);
    }
    return check_window(node, error);
}

dunlin_status dunlin__net_infer_node(dunlin_net *net, uint32_t node_index, dunlin_error *error)
{
    dunlin_net_node *node = &net->nodes[node_index];
    const dunlin_op_row *row = dunlin__op_row(node->kind);
    if (row == NULL || row->infer_fn == NULL) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "net", 0,
                            "node '%.120s': this build has no operator %d", node->name,
                            (int)node->kind);
    }
    DUNLIN_TRY(check_node(net, node, error));
    for (uint32_t i = 0; i < node->n_params; i++) {
        if (node->params[i] == DUNLIN_NET_NONE) {
            continue;
        }
        if (node->params[i] >= net->n_params) {
            return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                                "node '%.120s': parameter %" PRIu32 " does not exist", node->name,
                                i);
        }
        dunlin_net_param *param = &net->params[node->params[i]];
        DUNLIN_TRY(check_shape(&param->shape, "parameter", param->name, &param->n_elements, error));
    }
    DUNLIN_TRY(row->infer_fn(net, node, error));
    dunlin_net_value *output = &net->values[node->output];
    int64_t n = 0;
    DUNLIN_TRY(check_shape(&output->shape, "value", output->name, &n, error));
    output->producer = node_index;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        net->values[node->inputs[i]].n_consumers++;
    }
    return DUNLIN_OK;
}

/* The layer can read a matrix that lies as a dense layer's weight. */
static bool takes_dense(dunlin_op_kind kind)
{
    return kind == DUNLIN_OP_DENSE || kind == DUNLIN_OP_DENSE_TRANSPOSED ||
           kind == DUNLIN_OP_EMBEDDING;
}

/* Where among its parameters a node has this one first. */
static uint32_t place_of(const dunlin_net_node *node, uint32_t param)
{
    uint32_t place = 0;
    while (place < node->n_params && node->params[place] != param) {
        place++;
    }
    return place;
}

static dunlin_status check_owner(const dunlin_net *net, const dunlin_net_node *first,
                                 const dunlin_net_node *node, uint32_t param, dunlin_error *error)
{
    /* Each batch norm moves it, one after the other in the order of the graph, as in PyTorch. */
    if (net->params[param].role == DUNLIN_PARAMETER_STATISTIC &&
        (first->kind != DUNLIN_OP_BATCH_NORM || node->kind != DUNLIN_OP_BATCH_NORM ||
         place_of(first, param) != place_of(node, param))) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "net", 0,
                            "running statistic '%.80s' is shared by nodes '%.60s' and '%.60s', "
                            "which are not batch norms that use it alike",
                            net->params[param].name, first->name, node->name);
    }
    /* How a parameter lies in memory is its reader's choice; tables can do with a dense layer's. */
    const bool is_tied = takes_dense(first->kind) && takes_dense(node->kind);
    if (first->kind != node->kind && !is_tied && net->params[param].shape.n_dims > 1) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "net", 0,
                            "parameter '%.80s' is shared by nodes '%.60s' and '%.60s', which are "
                            "layers of two kinds",
                            net->params[param].name, first->name, node->name);
    }
    return DUNLIN_OK;
}

/* Gradients of nodes that share a parameter are summed; each parameter has one node at least. */
static dunlin_status check_owners(const dunlin_net *net, dunlin_error *error)
{
    if (net->n_params == 0) {
        return DUNLIN_OK;
    }
    uint32_t *owners = dunlin__alloc_array(&net->alloc, net->n_params, sizeof *owners);
    if (owners == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "net", 0, "no memory for %zu parameters",
                            net->n_params);
    }
    for (size_t i = 0; i < net->n_params; i++) {
        owners[i] = DUNLIN_NET_NONE;
    }
    dunlin_status status = DUNLIN_OK;
    for (uint32_t i = 0; i < net->n_nodes && status == DUNLIN_OK; i++) {
        const dunlin_net_node *node = &net->nodes[i];
        for (uint32_t j = 0; j < node->n_params && status == DUNLIN_OK; j++) {
            uint32_t param = node->params[j];
            if (param != DUNLIN_NET_NONE && owners[param] != DUNLIN_NET_NONE) {
                status = check_owner(net, &net->nodes[owners[param]], node, param, error);
            } else if (param != DUNLIN_NET_NONE) {
                owners[param] = i;
            }
        }
    }
    for (size_t i = 0; i < net->n_params && status == DUNLIN_OK; i++) {
        if (owners[i] == DUNLIN_NET_NONE) {
            status = dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                                  "parameter '%.180s' belongs to no node", net->params[i].name);
        }
    }
    dunlin__free_array(&net->alloc, owners, net->n_params, sizeof *owners);
    return status;
}

/* The other outputs are there, and all are different. */
static dunlin_status check_outputs(const dunlin_net *net, dunlin_error *error)
{
    for (uint32_t i = 0; i < net->n_heads; i++) {
        if (net->heads[i] >= net->n_values) {
            return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                                "output %" PRIu32 " is not one of the network's %zu values", i + 1,
                                net->n_values);
        }
        for (uint32_t k = 0; k <= i; k++) {
            if (dunlin__net_output_at(net, k) == net->heads[i]) {
                return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                                    "value '%.120s' is output %" PRIu32 " and %" PRIu32
                                    "; each is another one",
                                    net->values[net->heads[i]].name, k, i + 1);
            }
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__net_infer_values(dunlin_net *net, dunlin_error *error)
{
    if (net->input >= net->n_values || net->output >= net->n_values) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "the network has no %s among its %zu values",
                            net->input >= net->n_values ? "input" : "output", net->n_values);
    }
    DUNLIN_TRY(check_outputs(net, error));
    DUNLIN_TRY(check_names(net, error));
    DUNLIN_TRY(check_params(net, error));
    for (size_t i = 0; i < net->n_values; i++) {
        net->values[i].producer = DUNLIN_NET_NONE;
        net->values[i].n_consumers = 0;
    }
    dunlin_net_value *input = &net->values[net->input];
    int64_t n = 0;
    DUNLIN_TRY(check_shape(&input->shape, "input", input->name, &n, error));
    for (uint32_t i = 0; i < net->n_nodes; i++) {
        DUNLIN_TRY(dunlin__net_infer_node(net, i, error));
    }
    for (size_t i = 0; i < net->n_values; i++) {
        if (i != net->input && net->values[i].producer == DUNLIN_NET_NONE) {
            return dunlin__fail(error, DUNLIN_MODEL, "net", 0, "value '%.180s' is made by no node",
                                net->values[i].name);
        }
    }
    for (uint32_t i = 0; i < dunlin__net_n_outputs(net); i++) {
        net->values[dunlin__net_output_at(net, i)].n_consumers++;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__net_infer(dunlin_net *net, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__net_infer_values(net, error));
    DUNLIN_TRY(check_owners(net, error));
    const uint32_t layer = dunlin__net_last_class_layer(net);
    if (layer != DUNLIN_NET_NONE) {
        net->params[net->nodes[layer].params[0]].layout = DUNLIN_PARAM_PLAIN;
    }
    return DUNLIN_OK;
}
