/*
 * writer.c - a network as an ONNX file: a plain inference graph with its weights.
 *
 * Invariant: lengths are known before a byte is written (nodes are encoded in memory, weights are
 * counted), and weights pass through one block, so the model is never held twice. The file appears
 * whole or not at all.
 */
#include "onnx/node/writer.h"

#include "convert/read/onnx.h"
#include "net/outputs.h"
#include "net/parts.h"
#include "onnx/wire/file.h"
#include "ops/common/op.h"

#include <mem/checked.h>
#include <mem/outfile.h>
#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define OPSET 17
#define IR_VERSION 8
#define BLOCK 16384
#define MAX_FILE_BYTES ((UINT64_C(1) << 31) - 1)

enum { MODEL_IR_VERSION = 1, MODEL_PRODUCER = 2, MODEL_PRODUCER_VERSION = 3, MODEL_GRAPH = 7 };
enum { MODEL_OPSET = 8, OPSET_DOMAIN = 1, OPSET_VERSION = 2 };
enum { MODEL_METADATA = 14, ENTRY_KEY = 1, ENTRY_VALUE = 2 };

/* --- the graph --- */

static dunlin_status put_graph(dunlin_onnx_writer *writer, dunlin_error *error)
{
    const dunlin_net *net = writer->net;
    dunlin__onnx_put_casts(writer);
    dunlin__onnx_put_scales(writer);
    for (size_t i = 0; i < net->n_nodes; i++) {
        const dunlin_op_row *row = dunlin__op_row(net->nodes[i].kind);
        if (dunlin__net_cuts_input(net, &net->nodes[i])) {
            continue; /* the file's own inputs take its place */
        }
        if (row == NULL || row->to_onnx_fn == NULL) {
            return dunlin__fail(error, DUNLIN_UNSUPPORTED, "onnx", 0,
                                "node '%.120s' has no form in ONNX", net->nodes[i].name);
        }
        row->to_onnx_fn(writer, net, &net->nodes[i]);
    }
    dunlin__onnx_put_text(&writer->graph, GRAPH_NAME, "dunlin");
    dunlin__onnx_put_raw(&writer->graph, writer->constants.bytes, writer->constants.n);
    dunlin__onnx_put_border(writer);
    if (writer->is_name_long) {
        return dunlin__fail(error, DUNLIN_LIMIT, "onnx", 0,
                            "a name would be longer than %d characters", DUNLIN_NET_MAX_NAME);
    }
    if (writer->taken != NULL) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "onnx", 0,
                            "'%.100s' has a name that a QDQ model gives to a tensor of its own",
                            writer->taken);
    }
    if (writer->graph.has_failed || writer->constants.has_failed) {
        return dunlin__fail(error, DUNLIN_MEMORY, "onnx", 0, "no memory for a graph of %zu nodes",
                            net->n_nodes);
    }
    return DUNLIN_OK;
}

/* Bytes of an element of a parameter. */
static size_t element_bytes(const dunlin_onnx_writer *writer)
{
    return writer->scales != NULL ? sizeof(int8_t) : sizeof(float);
}

/* The head of an initialiser, up to its raw bytes; its size with them in `out_bytes`. */
static void put_param_head(dunlin_onnx_writer *writer, const dunlin_net_param *param,
                           dunlin_onnx_buffer *head)
{
    dunlin_onnx_buffer *tensor = &writer->scratch;
    uint64_t n_bytes = (uint64_t)param->n_elements * element_bytes(writer);
    tensor->n = 0;
    for (int32_t i = 0; i < param->shape.n_dims; i++) {
        dunlin__onnx_put_int(tensor, TENSOR_DIMS, param->shape.dims[i]);
    }
    dunlin__onnx_put_int(tensor, TENSOR_TYPE,
                         writer->scales != NULL ? ELEMENT_INT8 : ELEMENT_FLOAT);
    dunlin__onnx_put_text(tensor, TENSOR_NAME, param->name);
    dunlin__onnx_put_length(tensor, TENSOR_RAW, n_bytes);
    head->n = 0;
    dunlin__onnx_put_length(head, GRAPH_INITIALIZER, tensor->n + n_bytes);
    dunlin__onnx_put_raw(head, tensor->bytes, tensor->n);
    head->has_failed = head->has_failed || tensor->has_failed;
}

/* The sizing pass: bytes of the whole graph message. */
static dunlin_status size_graph(dunlin_onnx_writer *writer, uint64_t *out_bytes,
                                dunlin_error *error)
{
    uint64_t total = writer->graph.n;
    bool fits = true;
    for (size_t i = 0; i < writer->net->n_params; i++) {
        const dunlin_net_param *param = &writer->net->params[i];
        put_param_head(writer, param, &writer->inner);
        fits = fits && dunlin__add_u64(total, writer->inner.n, &total) &&
               dunlin__add_u64(total, (uint64_t)param->n_elements * element_bytes(writer), &total);
    }
    if (writer->inner.has_failed) {
        return dunlin__fail(error, DUNLIN_MEMORY, "onnx", 0, "no memory to write a model");
    }
    if (!fits || total > MAX_FILE_BYTES - 1024) {
        return dunlin__fail(error, DUNLIN_LIMIT, "onnx", 0,
                            "the model would have %" PRIu64 " bytes; an ONNX file has at most "
                            "%" PRIu64,
                            total, MAX_FILE_BYTES);
    }
    *out_bytes = total;
    return DUNLIN_OK;
}

/* Names, one a line, as an entry of the model's metadata. */
static void put_list(dunlin_onnx_writer *writer, const char *key, const dunlin_onnx_buffer *names,
                     dunlin_onnx_buffer *head)
{
    dunlin_onnx_buffer *entry = &writer->scratch;
    entry->n = 0;
    dunlin__onnx_put_text(entry, ENTRY_KEY, key);
    dunlin__onnx_put_length(entry, ENTRY_VALUE, names->n);
    dunlin__onnx_put_raw(entry, names->bytes, names->n);
    dunlin__onnx_put_message(head, MODEL_METADATA, entry);
    head->has_failed = head->has_failed || names->has_failed;
}

/* If some parameter is not trained: the list of those that are, so that who reads the file knows.
 */
static void put_trained(dunlin_onnx_writer *writer, dunlin_onnx_buffer *head)
{
    const dunlin_net *net = writer->net;
    dunlin_onnx_buffer *names = &writer->attributes;
    bool has_fixed = false;
    names->n = 0;
    for (uint32_t i = 0; i < net->n_params; i++) {
        if (dunlin__param_is_fixed(net, i)) {
            has_fixed = true;
        } else if (net->params[i].role == DUNLIN_PARAMETER_TRAINABLE) {
            dunlin__onnx_put_raw(names, "\n", names->n > 0 ? 1 : 0);
            dunlin__onnx_put_raw(names, net->params[i].name, strlen(net->params[i].name));
        }
    }
    if (has_fixed) {
        put_list(writer, DUNLIN_ONNX_TRAINED_KEY, names, head);
    }
}

static bool is_read(const dunlin_net *net, uint32_t value)
{
    for (size_t i = 0; i < net->n_nodes; i++) {
        for (uint32_t k = 0; k < net->nodes[i].n_inputs; k++) {
            if (net->nodes[i].inputs[k] == value) {
                return true;
            }
        }
    }
    return false;
}

/* If an example has inputs that no layer reads (of one the shape alone was of use): the list of
 * those that it has, so that it has them still when the file is read again. */
static void put_example(dunlin_onnx_writer *writer, dunlin_onnx_buffer *head)
{
    const dunlin_net *net = writer->net;
    dunlin_onnx_buffer *names = &writer->attributes;
    bool has_unread = false;
    names->n = 0;
    for (size_t i = 0; i < dunlin__net_n_input_ports(net); i++) {
        const dunlin_net_port *port = &net->ports[i];
        if (port->value != DUNLIN_NET_NONE) {
            has_unread = has_unread || !is_read(net, port->value);
            dunlin__onnx_put_raw(names, "\n", names->n > 0 ? 1 : 0);
            dunlin__onnx_put_raw(names, port->name, strlen(port->name));
        }
    }
    if (has_unread) {
        put_list(writer, DUNLIN_ONNX_EXAMPLE_KEY, names, head);
    }
}

static void put_model_head(dunlin_onnx_writer *writer, uint64_t graph_bytes,
                           dunlin_onnx_buffer *head)
{
    dunlin_onnx_buffer *opset = &writer->scratch;
    head->n = 0;
    dunlin__onnx_put_int(head, MODEL_IR_VERSION, IR_VERSION);
    dunlin__onnx_put_text(head, MODEL_PRODUCER, "dunlin");
    dunlin__onnx_put_text(head, MODEL_PRODUCER_VERSION, DUNLIN_VERSION_STRING);
    opset->n = 0;
    dunlin__onnx_put_text(opset, OPSET_DOMAIN, "");
    dunlin__onnx_put_int(opset, OPSET_VERSION, OPSET);
    dunlin__onnx_put_message(head, MODEL_OPSET, opset);
    put_trained(writer, head);
    put_example(writer, head);
    dunlin__onnx_put_length(head, MODEL_GRAPH, graph_bytes);
}

/* --- weights --- */

static void to_little_endian(float *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        memcpy(&bits, &values[i], sizeof bits);
        uint8_t bytes[4] = {(uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16),
                            (uint8_t)(bits >> 24)};
        memcpy(&values[i], bytes, sizeof bytes);
    }
}

/* Whole multiples of a scale, in place: the bytes take the beginning of the block. */
static void to_int8(float *values, int64_t n, int32_t exponent)
{
    int8_t *bytes = (int8_t *)values;
    for (int64_t i = 0; i < n; i++) {
        const int8_t whole = (int8_t)lrintf(ldexpf(values[i], -exponent));
        bytes[i] = whole;
    }
}

typedef struct weights {
    dunlin_param_read_fn read_fn;
    void *ctx;
    float *block;
} weights;

static dunlin_status write_params(dunlin_onnx_writer *writer, dunlin_outfile *file,
                                  const weights *from, dunlin_error *error)
{
    for (uint32_t i = 0; i < writer->net->n_params; i++) {
        const dunlin_net_param *param = &writer->net->params[i];
        put_param_head(writer, param, &writer->inner);
        DUNLIN_TRY(dunlin__outfile_write(file, writer->inner.bytes, writer->inner.n, error));
        for (int64_t first = 0; first < param->n_elements; first += BLOCK) {
            int64_t left = param->n_elements - first;
            int64_t n = left < BLOCK ? left : BLOCK;
            DUNLIN_TRY(from->read_fn(from->ctx, i, first, n, from->block, error));
            if (writer->scales != NULL) {
                to_int8(from->block, n, writer->scales->params[i]);
            } else {
                to_little_endian(from->block, n);
            }
            DUNLIN_TRY(
                dunlin__outfile_write(file, from->block, (size_t)n * element_bytes(writer), error));
        }
    }
    return DUNLIN_OK;
}

static dunlin_status write_model(dunlin_onnx_writer *writer, dunlin_outfile *file,
                                 const weights *from, dunlin_error *error)
{
    uint64_t graph_bytes = 0;
    DUNLIN_TRY(put_graph(writer, error));
    DUNLIN_TRY(size_graph(writer, &graph_bytes, error));
    put_model_head(writer, graph_bytes, &writer->inner);
    if (writer->inner.has_failed) {
        return dunlin__fail(error, DUNLIN_MEMORY, "onnx", 0, "no memory to write a model");
    }
    DUNLIN_TRY(dunlin__outfile_write(file, writer->inner.bytes, writer->inner.n, error));
    DUNLIN_TRY(dunlin__outfile_write(file, writer->graph.bytes, writer->graph.n, error));
    return write_params(writer, file, from, error);
}

dunlin_status dunlin__onnx_write(const dunlin_net *net, dunlin_outfile *file,
                                 dunlin_param_read_fn read_fn, void *ctx, dunlin_error *error)
{
    return dunlin__onnx_write_qdq(net, file, read_fn, ctx, NULL, error);
}

dunlin_status dunlin__onnx_write_qdq(const dunlin_net *net, dunlin_outfile *file,
                                     dunlin_param_read_fn read_fn, void *ctx,
                                     const dunlin_onnx_scales *scales, dunlin_error *error)
{
    dunlin_onnx_buffer empty = {.alloc = net->alloc};
    dunlin_onnx_writer writer = {
        .net = net,
        .scales = scales,
        .graph = empty,
        .constants = empty,
        .node = empty,
        .attributes = empty,
        .scratch = empty,
        .inner = empty,
    };
    weights from = {.read_fn = read_fn, .ctx = ctx};
    from.block = dunlin__alloc_array(&net->alloc, BLOCK, sizeof *from.block);
    if (from.block == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "onnx", 0, "no memory to write a model");
    }
    const dunlin_status status = write_model(&writer, file, &from, error);
    dunlin__free_array(&net->alloc, from.block, BLOCK, sizeof *from.block);
    dunlin__onnx_buffer_free(&writer.graph);
    dunlin__onnx_buffer_free(&writer.constants);
    dunlin__onnx_buffer_free(&writer.node);
    dunlin__onnx_buffer_free(&writer.attributes);
    dunlin__onnx_buffer_free(&writer.scratch);
    dunlin__onnx_buffer_free(&writer.inner);
    return status;
}
