/*
 * builder_inputs.c - the inputs of a network that is written down as calls.
 *
 * Invariant: inputs are the first values. Several are cut out of one example that they lie in one
 * after another, as those of a file are, before the first layer.
 */
#include "builder_nodes.h"
#include "net/outputs.h"
#include "net/parts.h"
#include "onnx/wire/file.h"
#include "ops/table/infer.h"

#include <dunlin/several.h>
#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static dunlin_value fail_input(dunlin_builder *builder, dunlin_status status, const char *name,
                               const char *text)
{
    (void)dunlin__fail(&builder->error, status, "net", 0, "input '%.100s': %s", name, text);
    return -1;
}

dunlin_value dunlin_builder_input(dunlin_builder *builder, const char *name,
                                  const dunlin_shape *shape)
{
    if (dunlin__builder_is_failed(builder) || !dunlin__builder_is_name_good(builder, name)) {
        return -1;
    }
    if (builder->net.n_nodes > 0) {
        return fail_input(builder, DUNLIN_STATE, name,
                          "the network has layers already; inputs come before them");
    }
    if (builder->n_inputs == DUNLIN_MODEL_MAX_INPUTS) {
        (void)dunlin__fail(&builder->error, DUNLIN_LIMIT, "net", 0,
                           "input '%.100s': the network has %d inputs already, the most there are",
                           name, DUNLIN_MODEL_MAX_INPUTS);
        return -1;
    }
    if (shape == NULL || shape->n_dims < 1 || shape->n_dims > 3) {
        return fail_input(builder, DUNLIN_ARGUMENT, name,
                          "the shape must be (C, H, W) or (features)");
    }
    uint32_t value = dunlin__net_add_value(&builder->net, name);
    if (value == DUNLIN_NET_NONE) {
        dunlin__builder_fail_memory(builder);
        return -1;
    }
    builder->net.values[value].shape = *shape;
    builder->net.values[value].layout =
        shape->n_dims == 3 ? DUNLIN_LAYOUT_IMAGE : DUNLIN_LAYOUT_PLAIN;
    builder->net.input = value;
    builder->n_inputs++;
    return (dunlin_value)value;
}

dunlin_value dunlin_builder_input_signal(dunlin_builder *builder, const char *name,
                                         int64_t channels, int64_t length)
{
    const dunlin_shape shape = {2, {channels, length}};
    const dunlin_value value = dunlin_builder_input(builder, name, &shape);
    if (value >= 0) {
        builder->net.values[value].layout = DUNLIN_LAYOUT_IMAGE;
    }
    return value;
}

/* Elements of all inputs; 0 after a failure. */
static int64_t count_all(dunlin_builder *builder)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < builder->n_inputs; i++) {
        const dunlin_net_value *input = &builder->net.values[i];
        int64_t n = 0;
        if (dunlin_shape_count(&input->shape, &n) != DUNLIN_OK || n < 1 || n > INT32_MAX - total) {
            (void)dunlin__fail(&builder->error, DUNLIN_MODEL, "net", 0,
                               "input '%.100s' is empty, or the inputs have more than %d elements "
                               "together",
                               input->name, INT32_MAX);
            return 0;
        }
        total += n;
    }
    return total;
}

/* The nodes that make input `index` of the example. */
static bool cut(dunlin_builder *builder, uint32_t index, int64_t first, int64_t n)
{
    dunlin_net *net = &builder->net;
    const dunlin_shape shape = net->values[index].shape;
    const dunlin_net_layout layout = net->values[index].layout;
    const uint32_t made = (uint32_t)net->n_nodes;
    if (!dunlin__net_add_part(net, index, first, n, &shape, layout)) {
        dunlin__builder_fail_memory(builder);
        return false;
    }
    for (uint32_t i = made; i < made + DUNLIN_NET_PART_NODES; i++) {
        dunlin_error error = {0};
        const dunlin_status status = dunlin__net_infer_node(net, i, &error);
        if (status != DUNLIN_OK) {
            error.status = status;
            builder->error = error;
            return false;
        }
    }
    return true;
}

bool dunlin__builder_join_inputs(dunlin_builder *builder)
{
    dunlin_net *net = &builder->net;
    if (net->n_nodes > 0 || builder->n_inputs < 2) {
        return true;
    }
    const int64_t total = count_all(builder);
    if (total == 0) {
        return false;
    }
    char name[32] = "inputs"; /* as the reader of files calls it */
    for (uint32_t i = 0; i < builder->n_inputs; i++) {
        if (strcmp(net->values[i].name, name) == 0) {
            (void)snprintf(name, sizeof name, "inputs/%" PRIu32, i + 1);
        }
    }
    net->input = dunlin__net_add_value(net, name);
    if (net->input == DUNLIN_NET_NONE) {
        dunlin__builder_fail_memory(builder);
        return false;
    }
    net->values[net->input].shape = (dunlin_shape){1, {total}};
    int64_t first = 0;
    for (uint32_t i = 0; i < builder->n_inputs; i++) {
        int64_t n = 0;
        if (dunlin_shape_count(&net->values[i].shape, &n) != DUNLIN_OK ||
            !cut(builder, i, first, n)) {
            return false;
        }
        first += n;
    }
    return true;
}

/* Only tables read the value: it is whole numbers. */
static bool is_of_tokens(const dunlin_net *net, uint32_t value)
{
    bool has_table = false;
    for (size_t i = 0; i < net->n_nodes; i++) {
        for (uint32_t k = 0; k < net->nodes[i].n_inputs; k++) {
            if (net->nodes[i].inputs[k] != value) {
                continue;
            }
            if (net->nodes[i].kind != DUNLIN_OP_EMBEDDING) {
                return false;
            }
            has_table = true;
        }
    }
    return has_table;
}

static bool add_port(dunlin_net *net, uint32_t value)
{
    const dunlin_net_value *from = &net->values[value];
    dunlin_net_port port = {.name = from->name,
                            .type =
                                is_of_tokens(net, value) ? DUNLIN_ONNX_INT64 : DUNLIN_ONNX_FLOAT,
                            .has_shape = true,
                            .shape = {from->shape.n_dims + 1, {-1}},
                            .dim_names = {"N"},
                            .value = value};
    for (int32_t i = 0; i < from->shape.n_dims; i++) {
        port.shape.dims[i + 1] = from->shape.dims[i];
    }
    return dunlin__net_add_port(net, &port);
}

bool dunlin__builder_note_border(dunlin_builder *builder)
{
    dunlin_net *net = &builder->net;
    bool is_whole = true;
    const uint32_t n_outputs = dunlin__net_n_outputs(net);
    if (builder->n_inputs < 2 && n_outputs < 2) {
        return true;
    }
    for (uint32_t i = 0; i < builder->n_inputs; i++) {
        is_whole = is_whole && add_port(net, i);
    }
    for (uint32_t i = 0; i < n_outputs; i++) {
        is_whole = is_whole && add_port(net, dunlin__net_output_at(net, i));
    }
    return is_whole;
}
