/*
 * read_outputs.c - the outputs of the graph that were asked for, as the network's.
 */
#include "net/outputs.h"
#include "onnx/node/import.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What an input is in the network. */
static bool is_of_input(const dunlin_onnx_import *import, uint32_t value)
{
    for (size_t i = 0; i < import->file->n_inputs; i++) {
        const dunlin_onnx_binding *input = dunlin__onnx_find_binding(
            import, dunlin__onnx_text_at(import, import->file->inputs[i].name));
        if (input != NULL && input->meaning == DUNLIN_ONNX_VALUE && input->index == value) {
            return true;
        }
    }
    return false;
}

/* An output's value gets the output's name, which a node that does nothing may have given. */
static dunlin_status bind_output(dunlin_onnx_import *import, uint32_t index)
{
    dunlin_net *net = import->net;
    char reason[120];
    const dunlin_onnx_port *port = &import->file->outputs[import->outputs[index]];
    const dunlin_onnx_binding *output =
        dunlin__onnx_find_binding(import, dunlin__onnx_text_at(import, port->name));
    const bool is_refused = output != NULL && output->is_unknown;
    if (!is_refused && (output == NULL || output->meaning != DUNLIN_ONNX_VALUE ||
                        net->n_nodes == 0 || is_of_input(import, output->index))) {
        dunlin__onnx_report_model(import, "output", "the output is not made by a layer");
        return DUNLIN_OK;
    }
    if (port->type != DUNLIN_ONNX_FLOAT && port->type != 0 && !output->is_unknown) {
        (void)snprintf(reason, sizeof reason,
                       "the output is not float32 (type %" PRId32 "), as logits are", port->type);
        dunlin__onnx_report_model(import, "output", reason);
    }
    if (output->meaning != DUNLIN_ONNX_VALUE) {
        return DUNLIN_OK; /* a list that depends on an issue */
    }
    if (!output->is_unknown &&
        (output->place.n_before > 0 || output->place.mix != DUNLIN_ONNX_MIX_NONE)) {
        dunlin__onnx_report_model(import, "output",
                                  "the batch is not the output's first dimension alone");
    }
    for (uint32_t i = 0; i < index; i++) {
        if (dunlin__net_output_at(net, i) == output->index) {
            (void)snprintf(reason, sizeof reason, "output '%.60s' is the same as another one",
                           output->name);
            dunlin__onnx_report_model(import, "output", reason);
            return DUNLIN_OK;
        }
    }
    *(index == 0 ? &net->output : &net->heads[index - 1]) = output->index;
    if (strcmp(net->values[output->index].name, output->name) != 0) {
        net->values[output->index].name = dunlin__net_string(net, output->name);
    }
    return net->values[output->index].name != NULL ? DUNLIN_OK : dunlin__onnx_fail_memory(import);
}

dunlin_status dunlin__onnx_import_outputs(dunlin_onnx_import *import)
{
    for (uint32_t i = 0; i < import->n_outputs; i++) {
        DUNLIN_TRY(bind_output(import, i));
    }
    import->net->n_heads = import->n_outputs > 0 ? import->n_outputs - 1 : 0;
    return DUNLIN_OK;
}
