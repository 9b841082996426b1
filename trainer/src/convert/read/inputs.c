/*
 * inputs.c - inputs and output of the graph: one input is the example; several are parts of it.
 * What the file says of inputs and output is noted, so that an exported file has the same.
 *
 * Invariant: the network has one input value, whatever the file has.
 */
#include "net/outputs.h"
#include "net/parts.h"
#include "onnx/node/import.h"
#include "ops/table/infer.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The input's shape with the sizes that were given for what the file leaves open. */
static dunlin_shape sized_shape(const dunlin_onnx_import *import, const dunlin_onnx_port *port)
{
    const dunlin_model_sizes *sizes = &import->sizes;
    dunlin_shape shape = port->shape;
    int32_t n_open = 0;
    for (int32_t i = 1; i < shape.n_dims; i++) {
        n_open += shape.dims[i] == DUNLIN_ONNX_DYNAMIC ? 1 : 0;
    }
    for (int32_t i = 1; i < shape.n_dims; i++) {
        const int32_t of_image = i == 2 ? sizes->height : (i == 3 ? sizes->width : 0);
        const int32_t of_other = n_open == 1 ? sizes->length : 0;
        const int32_t size = shape.n_dims == 4 ? of_image : of_other;
        if (shape.dims[i] == DUNLIN_ONNX_DYNAMIC && size > 0) {
            shape.dims[i] = size;
        }
    }
    return shape;
}

static bool is_input_good(dunlin_onnx_import *import, const dunlin_onnx_port *port)
{
    char reason[200];
    const char *name = dunlin__onnx_text_at(import, port->name);
    if (port->type != DUNLIN_ONNX_FLOAT && port->type != DUNLIN_ONNX_INT64 &&
        port->type != DUNLIN_ONNX_INT32 && port->type != DUNLIN_ONNX_BOOL) {
        (void)snprintf(reason, sizeof reason,
                       "input '%.80s' is neither float32 nor whole numbers nor bool (type "
                       "%" PRId32 ")",
                       name, port->type);
        dunlin__onnx_report_model(import, "input", reason);
        return false;
    }
    if (!port->has_shape || port->shape.n_dims < 1 || port->shape.n_dims > 4) {
        (void)snprintf(reason, sizeof reason,
                       "input '%.60s' has %" PRId32
                       " dimensions; (N, C, H, W), (N, rows, features), (N, features) or (N) is "
                       "needed",
                       name, port->shape.n_dims);
        dunlin__onnx_report_model(import, "input", reason);
        return false;
    }
    const dunlin_shape shape = sized_shape(import, port);
    for (int32_t i = 1; i < shape.n_dims; i++) {
        const int64_t size = shape.dims[i];
        const char *dim = dunlin__onnx_text_at(import, port->dim_names[i]);
        if (size >= 1 && size <= INT32_MAX) {
            continue;
        }
        if (size == DUNLIN_ONNX_DYNAMIC) {
            (void)snprintf(reason, sizeof reason,
                           "dimension %" PRId32 " of input '%.60s'%s%.40s%s is dynamic, and its "
                           "size is not given",
                           i, name, dim[0] != '\0' ? " ('" : "", dim, dim[0] != '\0' ? "')" : "");
        } else {
            (void)snprintf(reason, sizeof reason,
                           "dimension %" PRId32 " of input '%.60s' is %" PRId64
                           ", not 1 to %" PRId32,
                           i, name, size, INT32_MAX);
        }
        dunlin__onnx_report_model(import, "input", reason);
        return false;
    }
    return true;
}

static bool is_in_example(const dunlin_onnx_file *file, const dunlin_onnx_port *port)
{
    const char *name = dunlin__onnx_file_text(file, port->name);
    for (size_t i = 0; i < file->n_example; i++) {
        if (strcmp(dunlin__onnx_file_text(file, file->example[i]), name) == 0) {
            return true;
        }
    }
    return false;
}

/* Inputs that the output depends on, or that the file says an example has; initialisers that old
 * files list as inputs are none. */
static dunlin_onnx_binding *needed_input(const dunlin_onnx_import *import, size_t index)
{
    dunlin_onnx_binding *binding = dunlin__onnx_find_binding(
        import, dunlin__onnx_text_at(import, import->file->inputs[index].name));
    const bool is_input =
        binding != NULL && binding->meaning == DUNLIN_ONNX_UNBOUND &&
        (binding->is_needed || is_in_example(import->file, &import->file->inputs[index]));
    return is_input ? binding : NULL;
}

static dunlin_shape sample_shape(const dunlin_onnx_import *import, const dunlin_onnx_port *port)
{
    const dunlin_shape sized = sized_shape(import, port);
    dunlin_shape shape = {.n_dims = sized.n_dims - 1};
    for (int32_t i = 0; i < shape.n_dims; i++) {
        shape.dims[i] = sized.dims[i + 1];
    }
    return shape;
}

/* What is done to each element, as files of TensorFlow scale and shift their images. */
static bool is_elementwise(const char *op_type)
{
    static const char *const ops[] = {"Cast", "Identity", "Add", "Sub", "Mul",
                                      "Div",  "Clip",     "Max", "Min"};
    bool is_one = false;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        is_one = is_one || strcmp(ops[i], op_type) == 0;
    }
    return is_one;
}

/* Images as (N, H, W, C), which the file itself makes (N, C, H, W) of, after a few functions of
 * each element or at once: so they lie already. */
static bool is_transposed_first(const dunlin_onnx_import *import, const char *name)
{
    enum { MOST_STEPS = 8 };
    const dunlin_onnx_binding *binding = dunlin__onnx_find_binding(import, name);
    for (int step = 0; binding != NULL && step < MOST_STEPS; step++) {
        const dunlin_onnx_op *reader = dunlin__onnx_sole_reader(import, binding);
        if (reader == NULL || !is_elementwise(dunlin__onnx_text_at(import, reader->op_type))) {
            break;
        }
        binding = dunlin__onnx_find_binding(
            import, dunlin__onnx_text_at(import, import->file->names[reader->outputs.first]));
    }
    return binding != NULL && dunlin__onnx_is_read_by(import, binding, "Transpose");
}

/* Signals (N, channels, length), which a window or a norm over their channels reads. */
static bool is_signal_first(const dunlin_onnx_import *import, const char *name)
{
    static const char *const ops[] = {
        "Conv",          "ConvTranspose",     "MaxPool", "AveragePool", "GlobalAveragePool",
        "GlobalMaxPool", "BatchNormalization"};
    const dunlin_onnx_binding *binding = dunlin__onnx_find_binding(import, name);
    bool is_first = false;
    for (size_t i = 0; binding != NULL && i < sizeof ops / sizeof ops[0]; i++) {
        is_first = is_first || dunlin__onnx_is_read_by(import, binding, ops[i]);
    }
    return is_first;
}

static dunlin_net_layout layout_of(const dunlin_onnx_import *import, const char *name,
                                   const dunlin_shape *shape)
{
    const bool is_image = shape->n_dims == 3 && !is_transposed_first(import, name);
    const bool is_signal = shape->n_dims == 2 && is_signal_first(import, name);
    return is_image || is_signal ? DUNLIN_LAYOUT_IMAGE : DUNLIN_LAYOUT_PLAIN;
}

/* The network's input; without a shape when that is an issue. */
static dunlin_status import_input(dunlin_onnx_import *import, const char *name,
                                  const dunlin_shape *shape)
{
    const uint32_t value = dunlin__net_add_value(import->net, name);
    if (value == DUNLIN_NET_NONE) {
        return dunlin__onnx_fail_memory(import);
    }
    import->net->values[value].shape = *shape;
    import->net->values[value].layout = layout_of(import, name, shape);
    import->net->input = value;
    return DUNLIN_OK;
}

/* Part [first, first + n) of an example, in the shape of the input it is. */
static dunlin_status import_part(dunlin_onnx_import *import, const dunlin_onnx_port *port,
                                 int64_t first, dunlin_onnx_binding *binding)
{
    dunlin_net *net = import->net;
    const dunlin_shape shape = sample_shape(import, port);
    int64_t n = 0;
    DUNLIN_TRY(dunlin_shape_count(&shape, &n));
    const uint32_t value = dunlin__net_add_value(net, binding->name);
    const uint32_t made = (uint32_t)net->n_nodes;
    if (value == DUNLIN_NET_NONE ||
        !dunlin__net_add_part(net, value, first, n, &shape,
                              layout_of(import, binding->name, &shape))) {
        return dunlin__onnx_fail_memory(import);
    }
    for (uint32_t i = made; i < made + DUNLIN_NET_PART_NODES; i++) {
        DUNLIN_TRY(dunlin__net_infer_node(net, i, import->error));
    }
    binding->index = value;
    return DUNLIN_OK;
}

/* Several inputs lie one after another in an example, in the graph's order. */
static dunlin_status import_several(dunlin_onnx_import *import, int64_t total, bool is_good)
{
    int64_t first = 0;
    const dunlin_shape all = {1, {total}};
    char name[32] = "inputs";
    for (int i = 1; dunlin__onnx_find_binding(import, name) != NULL; i++) {
        (void)snprintf(name, sizeof name, "inputs/%d", i);
    }
    DUNLIN_TRY(import_input(import, name, &all));
    for (size_t i = 0; i < import->file->n_inputs; i++) {
        dunlin_onnx_binding *binding = needed_input(import, i);
        if (binding == NULL) {
            continue;
        }
        binding->meaning = DUNLIN_ONNX_VALUE;
        binding->index = import->net->input;
        binding->is_unknown = !is_good;
        binding->is_mask = import->file->inputs[i].type == DUNLIN_ONNX_BOOL;
        if (is_good) {
            const dunlin_shape shape = sample_shape(import, &import->file->inputs[i]);
            int64_t n = 0;
            DUNLIN_TRY(dunlin_shape_count(&shape, &n));
            DUNLIN_TRY(import_part(import, &import->file->inputs[i], first, binding));
            first += n;
        }
    }
    return DUNLIN_OK;
}

/* The number of samples that all inputs so far are fixed to. */
static void add_batch(dunlin_onnx_import *import, const dunlin_onnx_port *port, bool is_first)
{
    const bool is_fixed = port->has_shape && port->shape.n_dims > 0 && port->shape.dims[0] > 0;
    const int64_t batch = is_fixed ? port->shape.dims[0] : 0;
    import->fixed_batch = is_first || import->fixed_batch == batch ? batch : 0;
}

dunlin_status dunlin__onnx_import_inputs(dunlin_onnx_import *import)
{
    const dunlin_onnx_file *file = import->file;
    size_t n_inputs = 0;
    size_t last = 0;
    int64_t total = 0;
    bool is_good = true;
    for (size_t i = 0; i < file->n_inputs; i++) {
        if (needed_input(import, i) == NULL) {
            continue;
        }
        int64_t n = 0;
        n_inputs++;
        last = i;
        add_batch(import, &file->inputs[i], n_inputs == 1);
        is_good = is_input_good(import, &file->inputs[i]) && is_good;
        const dunlin_shape shape = sample_shape(import, &file->inputs[i]);
        if (is_good && (dunlin_shape_count(&shape, &n) != DUNLIN_OK || n > INT32_MAX)) {
            dunlin__onnx_report_model(import, "input",
                                      "an input has more than 2147483647 elements");
            is_good = false;
        }
        total += n <= INT32_MAX ? n : 0;
    }
    if (n_inputs == 0) {
        dunlin__onnx_report_model(import, "input", "the output does not depend on an input");
        return DUNLIN_OK;
    }
    if (n_inputs > DUNLIN_ONNX_MAX_INPUTS) {
        char reason[80];
        (void)snprintf(reason, sizeof reason, "layers read %zu inputs; %d are read at most",
                       n_inputs, DUNLIN_ONNX_MAX_INPUTS);
        dunlin__onnx_report_model(import, "input", reason);
        is_good = false;
    }
    if (n_inputs > 1 && is_good && total > INT32_MAX) {
        dunlin__onnx_report_model(import, "input",
                                  "the inputs have more than 2147483647 elements together");
        is_good = false;
    }
    if (n_inputs > 1) {
        return import_several(import, is_good ? total : 1, is_good);
    }
    dunlin_onnx_binding *binding = needed_input(import, last);
    const dunlin_shape shape =
        is_good ? sample_shape(import, &file->inputs[last]) : (dunlin_shape){1, {1}};
    DUNLIN_TRY(import_input(import, binding->name, &shape));
    binding->meaning = DUNLIN_ONNX_VALUE;
    binding->index = import->net->input;
    binding->is_unknown = !is_good;
    binding->is_mask = file->inputs[last].type == DUNLIN_ONNX_BOOL;
    return DUNLIN_OK;
}

/* --- what the file says of its border --- */

static dunlin_net_port port_of(const dunlin_onnx_import *import, const dunlin_onnx_port *port)
{
    dunlin_net_port made = {
        .name = dunlin__onnx_text_at(import, port->name),
        .type = port->type,
        .has_shape = port->has_shape,
        .shape = port->shape,
        .value = DUNLIN_NET_NONE,
    };
    for (int32_t i = 0; i < port->shape.n_dims; i++) {
        const char *name = dunlin__onnx_text_at(import, port->dim_names[i]);
        made.dim_names[i] = port->shape.dims[i] < 0 && name[0] != '\0' ? name : NULL;
    }
    return made;
}

dunlin_status dunlin__onnx_note_border(dunlin_onnx_import *import)
{
    const dunlin_onnx_file *file = import->file;
    for (size_t i = 0; i < file->n_inputs; i++) {
        dunlin_net_port port = port_of(import, &file->inputs[i]);
        const dunlin_onnx_binding *binding = dunlin__onnx_find_binding(import, port.name);
        if (binding == NULL || binding->meaning == DUNLIN_ONNX_TENSOR || port.type == 0) {
            continue; /* an initialiser that is listed as an input, or no tensor */
        }
        port.value = binding->meaning == DUNLIN_ONNX_VALUE ? binding->index : DUNLIN_NET_NONE;
        if (!dunlin__net_add_port(import->net, &port)) {
            return dunlin__onnx_fail_memory(import);
        }
    }
    for (uint32_t i = 0; i < import->n_outputs; i++) {
        dunlin_net_port output = port_of(import, &file->outputs[import->outputs[i]]);
        output.value = dunlin__net_output_at(import->net, i);
        if (!dunlin__net_add_port(import->net, &output)) {
            return dunlin__onnx_fail_memory(import);
        }
    }
    return DUNLIN_OK;
}

/* --- which outputs --- */

/* The file's output of a name of `n` characters; the number of outputs: none. */
static uint32_t find_output(const dunlin_onnx_import *import, const char *name, size_t n)
{
    const dunlin_onnx_file *file = import->file;
    uint32_t i = 0;
    for (; i < file->n_outputs; i++) {
        const char *own = dunlin__onnx_text_at(import, file->outputs[i].name);
        if (strlen(own) == n && strncmp(own, name, n) == 0) {
            break;
        }
    }
    return i;
}

static bool is_chosen(const dunlin_onnx_import *import, uint32_t output)
{
    bool is_one = false;
    for (uint32_t i = 0; i < import->n_outputs; i++) {
        is_one = is_one || import->outputs[i] == output;
    }
    return is_one;
}

void dunlin__onnx_choose_outputs(dunlin_onnx_import *import)
{
    const dunlin_onnx_file *file = import->file;
    const char *names = import->sizes.outputs;
    char reason[160];
    import->n_outputs = 0;
    if (names == NULL) {
        if (file->n_outputs == 1) {
            import->outputs[import->n_outputs++] = 0;
            return;
        }
        (void)snprintf(reason, sizeof reason,
                       "the graph has %zu outputs, not 1 (the logits), and none is named",
                       file->n_outputs);
        dunlin__onnx_report_model(import, "output", reason);
        return;
    }
    for (bool has_more = true; has_more;) {
        const size_t n = strcspn(names, ",");
        const uint32_t output = find_output(import, names, n);
        const bool is_new = output < file->n_outputs && !is_chosen(import, output);
        if (!is_new || import->n_outputs == DUNLIN_NET_MAX_OUTPUTS) {
            (void)snprintf(reason, sizeof reason, "'%.*s' is %s the graph's %zu outputs%s",
                           (int)(n < 60 ? n : 60), names,
                           output == file->n_outputs ? "none of" : "one of", file->n_outputs,
                           output == file->n_outputs ? ""
                           : is_new                  ? ", and 16 are taken at most"
                                                     : ", and named twice");
            dunlin__onnx_report_model(import, "output", reason);
            import->n_outputs = 0;
            return;
        }
        import->outputs[import->n_outputs++] = output;
        has_more = names[n] == ',';
        names += n + 1;
    }
}
