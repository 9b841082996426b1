/*
 * builder.c - a network written down as calls: its beginning, nodes and parameters, its end. The
 * layers are in builder_layers.c.
 *
 * Invariant: the first error is kept and every call after it does nothing, so that the values it
 * hands out are checked in one place.
 */
#include "builder_nodes.h"
#include "ops/table/infer.h"

#include <dunlin/several.h>
#include <mem/support.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_LAYER_NAME (DUNLIN_NET_MAX_NAME - 24) /* room for ".running_mean" and the like */

dunlin_status dunlin_builder_create(const dunlin_alloc *hooks, dunlin_builder **out_builder)
{
    if (out_builder == NULL) {
        return DUNLIN_ARGUMENT;
    }
    *out_builder = NULL;
    dunlin_alloc alloc = dunlin__alloc_or_default(hooks);
    dunlin_builder *builder = dunlin__alloc_zeroed(&alloc, 1, sizeof *builder);
    if (builder == NULL) {
        return DUNLIN_MEMORY;
    }
    builder->alloc = alloc;
    dunlin__net_init(&builder->net, &alloc);
    *out_builder = builder;
    return DUNLIN_OK;
}

void dunlin_builder_destroy(dunlin_builder *builder)
{
    if (builder != NULL) {
        dunlin_alloc alloc = builder->alloc;
        dunlin__net_free(&builder->net);
        dunlin__free_array(&alloc, builder, 1, sizeof *builder);
    }
}

dunlin_net *dunlin__builder_net(dunlin_builder *builder)
{
    return builder == NULL || builder->error.status != DUNLIN_OK ? NULL : &builder->net;
}

dunlin_value dunlin__builder_fail(dunlin_builder *builder, const char *format, ...)
{
    if (builder != NULL && builder->error.status == DUNLIN_OK) {
        char text[sizeof builder->error.text];
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        (void)dunlin__fail(&builder->error, DUNLIN_UNSUPPORTED, "net", 0, "%s", text);
    }
    return -1;
}

bool dunlin__builder_is_failed(const dunlin_builder *builder)
{
    return builder == NULL || builder->error.status != DUNLIN_OK;
}

void dunlin__builder_fail_memory(dunlin_builder *builder)
{
    (void)dunlin__fail(&builder->error, DUNLIN_MEMORY, "net", 0,
                       "no memory for a network of %zu nodes", builder->net.n_nodes);
}

bool dunlin__builder_is_name_good(dunlin_builder *builder, const char *name)
{
    if (name == NULL || name[0] == '\0') {
        (void)dunlin__fail(&builder->error, DUNLIN_ARGUMENT, "net", 0,
                           "layer %zu has parameters and needs a name", builder->net.n_nodes);
        return false;
    }
    if (strlen(name) > MAX_LAYER_NAME) {
        (void)dunlin__fail(&builder->error, DUNLIN_LIMIT, "net", 0,
                           "the name '%.40s...' has %zu characters; the limit is %d", name,
                           strlen(name), MAX_LAYER_NAME);
        return false;
    }
    return true;
}

dunlin_net_node *dunlin__builder_begin_node(dunlin_builder *builder, dunlin_op_kind kind,
                                            const char *name, const dunlin_value *inputs,
                                            int32_t n_inputs)
{
    if (dunlin__builder_is_failed(builder)) {
        return NULL;
    }
    dunlin_net *net = &builder->net;
    if (!dunlin__builder_join_inputs(builder)) {
        return NULL;
    }
    if (n_inputs < 1 || n_inputs > DUNLIN_NET_MAX_INPUTS || inputs == NULL) {
        (void)dunlin__fail(&builder->error, DUNLIN_ARGUMENT, "net", 0,
                           "layer '%.100s' has %" PRId32 " inputs, not 1 to %d", name, n_inputs,
                           DUNLIN_NET_MAX_INPUTS);
        return NULL;
    }
    for (int32_t i = 0; i < n_inputs; i++) {
        if (inputs[i] < 0 || (size_t)inputs[i] >= net->n_values) {
            (void)dunlin__fail(&builder->error, DUNLIN_ARGUMENT, "net", 0,
                               "layer '%.100s': input %" PRId32
                               " is not a value of this network (%" PRId32 " of %zu)",
                               name, i, inputs[i], net->n_values);
            return NULL;
        }
    }
    uint32_t index = dunlin__net_add_node(net, kind, name);
    char output[DUNLIN_NET_MAX_NAME + 1];
    (void)snprintf(output, sizeof output, "%s/out", name);
    uint32_t value = index == DUNLIN_NET_NONE ? index : dunlin__net_add_value(net, output);
    if (value == DUNLIN_NET_NONE) {
        dunlin__builder_fail_memory(builder);
        return NULL;
    }
    dunlin_net_node *node = &net->nodes[index];
    for (int32_t i = 0; i < n_inputs; i++) {
        node->inputs[i] = (uint32_t)inputs[i];
    }
    node->n_inputs = (uint32_t)n_inputs;
    node->output = value;
    return node;
}

static dunlin_value end_node(dunlin_builder *builder)
{
    dunlin_net *net = &builder->net;
    if (dunlin__builder_is_failed(builder)) {
        return -1;
    }
    uint32_t index = (uint32_t)(net->n_nodes - 1);
    dunlin_error error = {0};
    dunlin_status status = dunlin__net_infer_node(net, index, &error);
    if (status != DUNLIN_OK) {
        error.status = status;
        builder->error = error;
        return -1;
    }
    return (dunlin_value)net->nodes[index].output;
}

dunlin_net_node *dunlin__builder_begin_unnamed(dunlin_builder *builder, dunlin_op_kind kind,
                                               const char *kind_name, const dunlin_value *inputs,
                                               int32_t n_inputs)
{
    if (dunlin__builder_is_failed(builder)) {
        return NULL;
    }
    char name[64];
    (void)snprintf(name, sizeof name, "%s_%zu", kind_name, builder->net.n_nodes);
    return dunlin__builder_begin_node(builder, kind, name, inputs, n_inputs);
}

/* The parameter `index` of the node under construction. */
static dunlin_net_param *add_param(dunlin_builder *builder, uint32_t index, const char *layer,
                                   const char *suffix, const dunlin_shape *shape)
{
    if (dunlin__builder_is_failed(builder)) {
        return NULL;
    }
    dunlin_net *net = &builder->net;
    char name[DUNLIN_NET_MAX_NAME + 1];
    (void)snprintf(name, sizeof name, "%s%s%s", layer, suffix[0] == '\0' ? "" : ".", suffix);
    uint32_t param_index = dunlin__net_add_param(net, name);
    if (param_index == DUNLIN_NET_NONE) {
        dunlin__builder_fail_memory(builder);
        return NULL;
    }
    dunlin_net_node *node = &net->nodes[net->n_nodes - 1];
    node->params[index] = param_index;
    if (node->n_params <= index) {
        node->n_params = index + 1;
    }
    net->params[param_index].shape = *shape;
    return &net->params[param_index];
}

dunlin_net_node *dunlin__builder_begin(dunlin_builder *builder, dunlin_op_kind kind,
                                       const char *name, const char *kind_name,
                                       const dunlin_value *inputs, int32_t n_inputs)
{
    if (name == NULL) {
        return dunlin__builder_begin_unnamed(builder, kind, kind_name, inputs, n_inputs);
    }
    if (dunlin__builder_is_failed(builder) || !dunlin__builder_is_name_good(builder, name)) {
        return NULL;
    }
    return dunlin__builder_begin_node(builder, kind, name, inputs, n_inputs);
}

dunlin_net_param *dunlin__builder_param(dunlin_builder *builder, uint32_t index, const char *layer,
                                        const char *suffix, const dunlin_shape *shape)
{
    return add_param(builder, index, layer, suffix, shape);
}

dunlin_value dunlin__builder_end(dunlin_builder *builder)
{
    return end_node(builder);
}

dunlin_value dunlin__builder_refuse(dunlin_builder *builder, const char *text)
{
    if (!dunlin__builder_is_failed(builder)) {
        (void)dunlin__fail(&builder->error, DUNLIN_ARGUMENT, "net", 0, "layer %zu: %s",
                           builder->net.n_nodes, text);
    }
    return -1;
}

/* The outputs' values, under the names that were given. */
static dunlin_status set_outputs(dunlin_net *net, const dunlin_value *outputs,
                                 const char *const *names, int32_t n, dunlin_error *error)
{
    for (int32_t i = 0; i < n; i++) {
        const dunlin_value output = outputs[i];
        if (output < 0 || (size_t)output >= net->n_values || net->n_nodes == 0) {
            return dunlin__fail(
                error, DUNLIN_ARGUMENT, "net", 0,
                "the output (%" PRId32 ") is not a value of a layer of this network", output);
        }
        *(i == 0 ? &net->output : &net->heads[i - 1]) = (uint32_t)output;
        if (names == NULL || names[i] == NULL) {
            continue;
        }
        if (names[i][0] == '\0' || strlen(names[i]) > MAX_LAYER_NAME) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "net", 0,
                                "the name of output %" PRId32 " has %zu characters, not 1 to %d", i,
                                strlen(names[i]), MAX_LAYER_NAME);
        }
        const char *name = dunlin__net_string(net, names[i]);
        if (name == NULL) {
            return dunlin__fail(error, DUNLIN_MEMORY, "net", 0, "no memory for a model");
        }
        net->values[output].name = name;
    }
    net->n_heads = (uint32_t)n - 1;
    return DUNLIN_OK;
}

static dunlin_status make_model(dunlin_builder *builder, const dunlin_value *outputs,
                                const char *const *names, int32_t n, dunlin_model **out_model,
                                dunlin_error *error)
{
    dunlin_net *net = &builder->net;
    DUNLIN_TRY(set_outputs(net, outputs, names, n, error));
    DUNLIN_TRY(dunlin__net_infer(net, error));
    for (size_t i = 0; i < net->n_values; i++) {
        if (net->values[i].n_consumers == 0) {
            return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                                "value '%.150s' leads to nothing: not to the output",
                                net->values[i].name);
        }
    }
    if (!dunlin__builder_note_border(builder)) {
        return dunlin__fail(error, DUNLIN_MEMORY, "net", 0, "no memory for a model");
    }
    return dunlin__model_from_net(net, out_model, error);
}

dunlin_status dunlin_builder_finish(dunlin_builder *builder, dunlin_value output,
                                    dunlin_model **out_model, dunlin_error *out_error)
{
    return dunlin_builder_finish_outputs(builder, &output, NULL, 1, out_model, out_error);
}

// NOLINTNEXTLINE(readability-function-size): the public call's arguments
dunlin_status dunlin_builder_finish_outputs(dunlin_builder *builder, const dunlin_value *outputs,
                                            const char *const *names, int32_t n,
                                            dunlin_model **out_model, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (out_model != NULL) {
        *out_model = NULL;
    }
    if (builder == NULL || out_model == NULL || outputs == NULL) {
        const char *name = builder == NULL     ? "builder"
                           : out_model == NULL ? "out_model"
                                               : "outputs";
        dunlin_builder_destroy(builder);
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "net", 0, "%s is NULL", name);
    }
    if (n < 1 || n > DUNLIN_MODEL_MAX_OUTPUTS) {
        dunlin_builder_destroy(builder);
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "net", 0,
                            "%" PRId32 " outputs: the limits are 1 and %d", n,
                            DUNLIN_MODEL_MAX_OUTPUTS);
    }
    dunlin_status status = builder->error.status;
    if (status != DUNLIN_OK) {
        if (out_error != NULL) {
            *out_error = builder->error;
        }
    } else {
        status = make_model(builder, outputs, names, n, out_model, out_error);
    }
    dunlin_builder_destroy(builder);
    return status;
}
