/*
 * net.c - the container of a network: adding, copying, freeing.
 *
 * Invariant: every string that a net points to is in its `strings`, so that a copy shares nothing
 * with its source.
 */
#include "net.h"

#include <mem/platform.h>
#include <mem/support.h>

#include <string.h>
#include <unistd.h>

void dunlin__net_init(dunlin_net *net, const dunlin_alloc *alloc)
{
    memset(net, 0, sizeof *net);
    net->alloc = dunlin__alloc_or_default(alloc);
    net->input = DUNLIN_NET_NONE;
    net->output = DUNLIN_NET_NONE;
}

static void free_values(const dunlin_alloc *alloc, const dunlin_net_param *param)
{
    if (param->origin == DUNLIN_PARAM_VALUES && param->values != NULL) {
        /* Made by dunlin__net_set_values() alone. */
        float *values = NULL;
        memcpy(&values, &param->values, sizeof values);
        dunlin__free_array(alloc, values, (size_t)param->n_elements, sizeof *values);
    }
}

bool dunlin__net_set_values(dunlin_net *net, uint32_t param, const float *values)
{
    const size_t n = (size_t)net->params[param].n_elements;
    float *copy = dunlin__alloc_array(&net->alloc, n, sizeof *copy);
    if (copy == NULL) {
        return false;
    }
    memcpy(copy, values, n * sizeof *copy);
    net->params[param].origin = DUNLIN_PARAM_VALUES;
    net->params[param].values = copy;
    return true;
}

bool dunlin__net_drop_unread(dunlin_net *net)
{
    const size_t n_old = net->n_params;
    uint32_t *map = dunlin__alloc_array(&net->alloc, n_old, sizeof *map);
    if (map == NULL) {
        return n_old == 0;
    }
    for (uint32_t i = 0; i < n_old; i++) {
        map[i] = dunlin__param_is_fixed(net, i) ? DUNLIN_NET_NONE : i;
    }
    for (size_t i = 0; i < net->n_nodes; i++) {
        const dunlin_net_node *node = &net->nodes[i];
        for (uint32_t k = 0; k < node->n_params; k++) {
            if (node->params[k] != DUNLIN_NET_NONE) {
                map[node->params[k]] = node->params[k];
            }
        }
    }
    net->n_params = 0;
    for (uint32_t i = 0; i < n_old; i++) {
        if (map[i] == DUNLIN_NET_NONE) {
            free_values(&net->alloc, &net->params[i]);
        } else {
            map[i] = (uint32_t)net->n_params;
            net->params[net->n_params++] = net->params[i];
        }
    }
    for (size_t i = 0; i < net->n_nodes; i++) {
        dunlin_net_node *node = &net->nodes[i];
        for (uint32_t k = 0; k < node->n_params; k++) {
            if (node->params[k] != DUNLIN_NET_NONE) {
                node->params[k] = map[node->params[k]];
            }
        }
    }
    dunlin__free_array(&net->alloc, map, n_old, sizeof *map);
    return true;
}

void dunlin__net_free(dunlin_net *net)
{
    if (net == NULL) {
        return;
    }
    const dunlin_alloc *alloc = &net->alloc;
    dunlin__net_drop_store(net);
    for (size_t i = 0; i < net->n_strings; i++) {
        dunlin__free_array(alloc, net->strings[i], strlen(net->strings[i]) + 1, 1);
    }
    for (size_t i = 0; net->params != NULL && i < net->n_params; i++) {
        free_values(alloc, &net->params[i]);
    }
    dunlin__free_array(alloc, net->strings, net->strings_capacity, sizeof *net->strings);
    dunlin__free_array(alloc, net->nodes, net->nodes_capacity, sizeof *net->nodes);
    dunlin__free_array(alloc, net->values, net->values_capacity, sizeof *net->values);
    dunlin__free_array(alloc, net->params, net->params_capacity, sizeof *net->params);
    dunlin__free_array(alloc, net->ports, net->ports_capacity, sizeof *net->ports);
    dunlin__net_init(net, &(dunlin_alloc){0});
}

void dunlin__net_drop_store(dunlin_net *net)
{
    if (net->store.has_fd) {
        (void)close(net->store.fd);
    }
    net->store = (dunlin_net_store){0};
}

/* Grows one of the arrays by an element; false when out of memory or out of indices. */
static bool reserve(const dunlin_alloc *alloc, void **array, size_t *capacity, size_t n,
                    size_t bytes)
{
    return n < DUNLIN_NET_NONE && dunlin__grow_array(alloc, array, capacity, n + 1, bytes);
}

const char *dunlin__net_string(dunlin_net *net, const char *text)
{
    void *strings = net->strings;
    if (!reserve(&net->alloc, &strings, &net->strings_capacity, net->n_strings,
                 sizeof *net->strings)) {
        return NULL;
    }
    net->strings = strings;
    size_t bytes = strlen(text) + 1;
    char *copy = dunlin__alloc_array(&net->alloc, bytes, 1);
    if (copy == NULL) {
        return NULL;
    }
    memcpy(copy, text, bytes);
    net->strings[net->n_strings++] = copy;
    return copy;
}

uint32_t dunlin__net_add_value(dunlin_net *net, const char *name)
{
    void *values = net->values;
    if (!reserve(&net->alloc, &values, &net->values_capacity, net->n_values, sizeof *net->values)) {
        return DUNLIN_NET_NONE;
    }
    net->values = values;
    const char *copy = dunlin__net_string(net, name);
    if (copy == NULL) {
        return DUNLIN_NET_NONE;
    }
    net->values[net->n_values] = (dunlin_net_value){.name = copy, .producer = DUNLIN_NET_NONE};
    return (uint32_t)net->n_values++;
}

uint32_t dunlin__net_add_param(dunlin_net *net, const char *name)
{
    void *params = net->params;
    if (!reserve(&net->alloc, &params, &net->params_capacity, net->n_params, sizeof *net->params)) {
        return DUNLIN_NET_NONE;
    }
    net->params = params;
    const char *copy = dunlin__net_string(net, name);
    if (copy == NULL) {
        return DUNLIN_NET_NONE;
    }
    net->params[net->n_params] = (dunlin_net_param){.name = copy, .origin = DUNLIN_PARAM_CONSTANT};
    return (uint32_t)net->n_params++;
}

bool dunlin__net_add_port(dunlin_net *net, const dunlin_net_port *port)
{
    void *ports = net->ports;
    if (!reserve(&net->alloc, &ports, &net->ports_capacity, net->n_ports, sizeof *net->ports)) {
        return false;
    }
    net->ports = ports;
    dunlin_net_port copy = *port;
    copy.name = dunlin__net_string(net, port->name);
    bool is_whole = copy.name != NULL;
    for (int32_t i = 0; is_whole && i < DUNLIN_MAX_DIMS; i++) {
        if (port->dim_names[i] != NULL) {
            copy.dim_names[i] = dunlin__net_string(net, port->dim_names[i]);
            is_whole = copy.dim_names[i] != NULL;
        }
    }
    if (is_whole) {
        net->ports[net->n_ports++] = copy;
    }
    return is_whole;
}

uint32_t dunlin__net_add_node(dunlin_net *net, dunlin_op_kind kind, const char *name)
{
    void *nodes = net->nodes;
    if (!reserve(&net->alloc, &nodes, &net->nodes_capacity, net->n_nodes, sizeof *net->nodes)) {
        return DUNLIN_NET_NONE;
    }
    net->nodes = nodes;
    const char *copy = dunlin__net_string(net, name);
    if (copy == NULL) {
        return DUNLIN_NET_NONE;
    }
    dunlin_net_node *node = &net->nodes[net->n_nodes];
    memset(node, 0, sizeof *node);
    node->kind = kind;
    node->name = copy;
    node->output = DUNLIN_NET_NONE;
    for (size_t i = 0; i < sizeof node->params / sizeof node->params[0]; i++) {
        node->params[i] = DUNLIN_NET_NONE;
    }
    return (uint32_t)net->n_nodes++;
}

/* A copy does not grow: each of its arrays has room for what is there, and no more. */
static bool reserve_exactly(const dunlin_alloc *alloc, void **array, size_t *capacity, size_t n,
                            size_t bytes)
{
    *array = n > 0 ? dunlin__alloc_array(alloc, n, bytes) : NULL;
    *capacity = *array != NULL ? n : 0;
    return *capacity == n;
}

static bool reserve_copy(const dunlin_net *net, dunlin_net *copy)
{
    const dunlin_alloc *alloc = &copy->alloc;
    void *nodes = NULL;
    void *values = NULL;
    void *params = NULL;
    void *ports = NULL;
    const bool is_whole =
        reserve_exactly(alloc, &nodes, &copy->nodes_capacity, net->n_nodes, sizeof *copy->nodes) &&
        reserve_exactly(alloc, &values, &copy->values_capacity, net->n_values,
                        sizeof *copy->values) &&
        reserve_exactly(alloc, &params, &copy->params_capacity, net->n_params,
                        sizeof *copy->params) &&
        reserve_exactly(alloc, &ports, &copy->ports_capacity, net->n_ports, sizeof *copy->ports);
    copy->nodes = nodes;
    copy->values = values;
    copy->params = params;
    copy->ports = ports;
    return is_whole;
}

static bool copy_names(const dunlin_net *net, dunlin_net *copy)
{
    for (size_t i = 0; i < net->n_values; i++) {
        uint32_t value = dunlin__net_add_value(copy, net->values[i].name);
        if (value == DUNLIN_NET_NONE) {
            return false;
        }
        const char *name = copy->values[value].name;
        copy->values[value] = net->values[i];
        copy->values[value].name = name;
    }
    for (size_t i = 0; i < net->n_nodes; i++) {
        uint32_t node = dunlin__net_add_node(copy, net->nodes[i].kind, net->nodes[i].name);
        if (node == DUNLIN_NET_NONE) {
            return false;
        }
        const char *name = copy->nodes[node].name;
        copy->nodes[node] = net->nodes[i];
        copy->nodes[node].name = name;
    }
    return true;
}

static bool copy_ports(const dunlin_net *net, dunlin_net *copy)
{
    bool is_whole = true;
    for (size_t i = 0; is_whole && i < net->n_ports; i++) {
        is_whole = dunlin__net_add_port(copy, &net->ports[i]);
    }
    return is_whole;
}

static bool copy_params(const dunlin_net *net, dunlin_net *copy)
{
    /* Parameters of one file share one copy of its path. */
    const char *from = NULL;
    const char *path = NULL;
    for (size_t i = 0; i < net->n_params; i++) {
        uint32_t param = dunlin__net_add_param(copy, net->params[i].name);
        if (param == DUNLIN_NET_NONE) {
            return false;
        }
        const char *name = copy->params[param].name;
        copy->params[param] = net->params[i];
        copy->params[param].name = name;
        copy->params[param].values = NULL;
        if (net->params[i].origin == DUNLIN_PARAM_VALUES &&
            !dunlin__net_set_values(copy, param, net->params[i].values)) {
            return false;
        }
        if (net->params[i].weights_path == NULL) {
            continue;
        }
        if (net->params[i].weights_path != from) {
            from = net->params[i].weights_path;
            path = dunlin__net_string(copy, from);
            if (path == NULL) {
                return false;
            }
        }
        copy->params[param].weights_path = path;
    }
    return true;
}

static bool copy_store(const dunlin_net *net, dunlin_net *copy)
{
    copy->store = net->store;
    if (net->store.has_fd) {
        copy->store.fd = dunlin__sys_duplicate(net->store.fd);
        copy->store.has_fd = copy->store.fd >= 0;
    }
    return copy->store.has_fd == net->store.has_fd;
}

dunlin_status dunlin__net_copy(const dunlin_net *net, const dunlin_alloc *alloc,
                               dunlin_net *out_net)
{
    dunlin_net copy;
    dunlin__net_init(&copy, alloc);
    copy.input = net->input;
    copy.output = net->output;
    memcpy(copy.heads, net->heads, sizeof copy.heads);
    copy.n_heads = net->n_heads;
    if (!reserve_copy(net, &copy) || !copy_names(net, &copy) || !copy_params(net, &copy) ||
        !copy_ports(net, &copy)) {
        dunlin__net_free(&copy);
        return DUNLIN_MEMORY;
    }
    if (!copy_store(net, &copy)) {
        dunlin__net_free(&copy);
        return DUNLIN_IO;
    }
    if (net->warning != NULL) {
        copy.warning = dunlin__net_string(&copy, net->warning);
        if (copy.warning == NULL) {
            dunlin__net_free(&copy);
            return DUNLIN_MEMORY;
        }
    }
    *out_net = copy;
    return DUNLIN_OK;
}

bool dunlin__param_is_fixed(const dunlin_net *net, uint32_t param)
{
    return net->params[param].role == DUNLIN_PARAMETER_TRAINABLE &&
           net->params[param].is_fixed_by_file;
}

int64_t dunlin__value_elements(const dunlin_net_value *value)
{
    int64_t n = 0;
    return dunlin_shape_count(&value->shape, &n) == DUNLIN_OK ? n : 0;
}

void dunlin__value_hwc(const dunlin_net_value *value, int32_t *out_h, int32_t *out_w,
                       int32_t *out_c)
{
    /* Inference has seen to it that every dimension, and their product, fits in 31 bits. */
    const dunlin_shape *shape = &value->shape;
    if (value->layout == DUNLIN_LAYOUT_IMAGE) {
        *out_h = shape->n_dims > 2 ? (int32_t)shape->dims[1] : 1;
        *out_w = (int32_t)shape->dims[shape->n_dims - 1];
        *out_c = (int32_t)shape->dims[0];
        return;
    }
    int64_t rows = 1;
    for (int32_t i = 0; i + 1 < shape->n_dims; i++) {
        rows *= shape->dims[i];
    }
    *out_h = (int32_t)rows;
    *out_w = 1;
    *out_c = shape->n_dims > 0 ? (int32_t)shape->dims[shape->n_dims - 1] : 1;
}

void dunlin__value_rows(const dunlin_net_value *value, int64_t *out_n_rows, int64_t *out_width)
{
    const dunlin_shape *shape = &value->shape;
    const int64_t n = dunlin__value_elements(value);
    const int64_t first = shape->n_dims > 0 ? shape->dims[0] : 1;
    const bool is_first = value->layout == DUNLIN_LAYOUT_IMAGE || first == n;
    *out_width = is_first ? first : shape->dims[shape->n_dims - 1];
    *out_n_rows = *out_width > 0 ? n / *out_width : 0;
}
