/*
 * make_node.c - nodes of the network that an ONNX node becomes where it is not one row's own.
 */
#include "fold.h"
#include "ops/table/infer.h"

#include <mem/support.h>

#include <stdio.h>
#include <string.h>

void dunlin__onnx_bind_value(dunlin_onnx_node *node, uint32_t value)
{
    dunlin_onnx_binding *output = dunlin__onnx_output(node, 0);
    output->meaning = DUNLIN_ONNX_VALUE;
    output->index = value;
}

static uint32_t fail_made(dunlin_onnx_node *node)
{
    node->import->node_status = dunlin__fail(node->import->error, DUNLIN_MEMORY, "onnx", 0,
                                             "no memory for the nodes of a model");
    return DUNLIN_NET_NONE;
}

/* The value is to be called like output `output`, with the suffix. */
static uint32_t make_named(dunlin_onnx_node *node, const dunlin_net_node *made, uint32_t output,
                           const char *suffix)
{
    dunlin_net *net = node->import->net;
    char value_name[DUNLIN_NET_MAX_NAME + 1];
    char node_name[DUNLIN_NET_MAX_NAME + 1];
    const char *base = dunlin__onnx_output(node, output)->name;
    const int n_value = snprintf(value_name, sizeof value_name, "%s%s", base, suffix);
    const int n_node = snprintf(node_name, sizeof node_name, "%s%s",
                                output == 0 ? dunlin__onnx_node_name(node) : base, suffix);
    if (n_value > DUNLIN_NET_MAX_NAME || n_node > DUNLIN_NET_MAX_NAME) {
        (void)dunlin__onnx_reject(node, "", "its name is too long to be added to");
        return DUNLIN_NET_NONE;
    }
    for (uint32_t i = 0; i < made->n_inputs; i++) {
        if (made->inputs[i] == DUNLIN_NET_NONE) {
            (void)dunlin__onnx_reject(node, "", "an input is no activation");
            return DUNLIN_NET_NONE;
        }
    }
    const uint32_t index = dunlin__net_add_node(net, made->kind, node_name);
    const uint32_t value =
        index != DUNLIN_NET_NONE ? dunlin__net_add_value(net, value_name) : index;
    if (value == DUNLIN_NET_NONE) {
        return fail_made(node);
    }
    dunlin_net_node *placed = &net->nodes[index];
    const char *name = placed->name;
    *placed = *made;
    placed->name = name;
    placed->output = value;
    return dunlin__onnx_infer(node, index) ? value : DUNLIN_NET_NONE;
}

uint32_t dunlin__onnx_make(dunlin_onnx_node *node, const dunlin_net_node *made, const char *suffix)
{
    return make_named(node, made, 0, suffix);
}

bool dunlin__onnx_make_output(dunlin_onnx_node *node, const dunlin_net_node *made, uint32_t index)
{
    const uint32_t value = make_named(node, made, index, "");
    dunlin_onnx_binding *output = dunlin__onnx_output(node, index);
    if (value == DUNLIN_NET_NONE || node->import->is_rejected) {
        return false;
    }
    output->meaning = DUNLIN_ONNX_VALUE;
    output->index = value;
    return true;
}

void dunlin__onnx_finish(dunlin_onnx_node *node, const dunlin_net_node *made)
{
    const uint32_t value = dunlin__onnx_make(node, made, "");
    dunlin__onnx_check_attributes(node);
    if (value != DUNLIN_NET_NONE) {
        dunlin__onnx_bind_value(node, value);
    }
}

/* With allowzero a 0 is a size, which no activation has. In a file for so many samples alone that
 * number in the first place is the batch, if the others are a sample's. */
static bool resolve_shape(const dunlin_onnx_vector *wanted, bool copies_zero, int64_t fixed_batch,
                          const dunlin_net_value *input, dunlin_shape *out)
{
    const int64_t n = dunlin__value_elements(input);
    int64_t known = 1;
    int32_t open = -1;
    *out = (dunlin_shape){.n_dims = wanted->n - 1};
    for (int32_t i = 1; i < wanted->n; i++) {
        int64_t size = wanted->items[i];
        if (size == 0 && copies_zero && i <= input->shape.n_dims) {
            size = input->shape.dims[i - 1];
        }
        if (wanted->is_batch[i] || (size < 1 && (size != -1 || open >= 0)) || size > n) {
            return false;
        }
        out->dims[i - 1] = size;
        open = size == -1 ? i - 1 : open;
        if (size > 0 && __builtin_mul_overflow(known, size, &known)) {
            return false;
        }
    }
    if (open >= 0) {
        out->dims[open] = n / known;
        known *= n / known;
    }
    const bool is_copied = !wanted->is_batch[0] && wanted->items[0] == 0 && copies_zero;
    const bool keeps_batch = dunlin_onnx_is_samples(wanted, 0) || is_copied ||
                             (wanted->items[0] == -1 && open < 0) ||
                             (wanted->items[0] == fixed_batch && fixed_batch > 0);
    return keeps_batch && known == n && wanted->n > 0;
}

bool dunlin__onnx_new_shape(const dunlin_onnx_node *node, const dunlin_net_value *input,
                            dunlin_shape *out_shape)
{
    dunlin_onnx_vector wanted;
    return dunlin__onnx_vector_input(node, 1, &wanted) &&
           resolve_shape(&wanted, dunlin__onnx_int(node, "allowzero", 0) == 0,
                         node->import->fixed_batch, input, out_shape);
}

/* An option that no one looked at would be ignored silently. */
void dunlin__onnx_check_attributes(dunlin_onnx_node *node)
{
    /* What ours override (the mode, the seed of dropout). */
    static const char *const ignored[] = {"training_mode", "seed"};
    const dunlin_onnx_import *import = node->import;
    for (uint32_t i = 0; i < node->op->attributes.n; i++) {
        uint32_t index = node->op->attributes.first + i;
        const char *name = dunlin__onnx_text_at(import, import->file->attributes[index].name);
        bool is_fine = import->asked[index] != 0;
        for (size_t j = 0; j < sizeof ignored / sizeof ignored[0]; j++) {
            is_fine = is_fine || strcmp(name, ignored[j]) == 0;
        }
        if (!is_fine) {
            (void)dunlin__onnx_reject(node, name, "the attribute is not known");
        }
    }
}
