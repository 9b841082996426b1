/*
 * reader.c - an ONNX file (protobuf) into tables, in one pass over everything but the weights.
 *
 * Invariant: sizes, counts and texts are checked here, once; after OK each tensor's bytes lie
 * inside the file and are as many as its shape says. Depth is bounded by the schema, which has no
 * recursion. Field numbers: onnx.proto (ONNX, version 1.12).
 */
#include "reader.h"

#include <mem/support.h>

#include <inttypes.h>
#include <onnx.pb.h>
#include <pb_decode.h>
#include <string.h>

static bool read_attribute_lists(dunlin_onnx_reader *reader, pb_istream_t *stream, pb_size_t tag)
{
    dunlin_onnx_attribute *attribute = &reader->file->attributes[reader->attribute];
    bool is_int = tag == dunlin_onnx_AttributeProto_ints_tag;
    if (is_int ? attribute->has_floats : attribute->has_ints) {
        return dunlin__onnx_reader_damaged(reader,
                                           "an attribute is both a list of integers and of floats");
    }
    attribute->has_ints = is_int;
    attribute->has_floats = !is_int;
    if (attribute->ints.n == 0) {
        attribute->ints.first = (uint32_t)reader->file->n_ints;
    } else if (attribute->ints.first + attribute->ints.n != reader->file->n_ints) {
        return dunlin__onnx_reader_damaged(reader, "an attribute's list is interrupted");
    }
    while (stream->bytes_left > 0) {
        uint64_t number = 0;
        uint32_t bits = 0;
        if (is_int ? !pb_decode_varint(stream, &number) : !pb_decode_fixed32(stream, &bits)) {
            return false;
        }
        if (!dunlin__onnx_add_int(reader, is_int ? (int64_t)number : (int64_t)bits)) {
            return false;
        }
        attribute->ints.n++;
    }
    return true;
}

static bool attribute_field(pb_istream_t *stream, const pb_field_t *field, void **arg)
{
    dunlin_onnx_reader *reader = *arg;
    dunlin_onnx_attribute *attribute = &reader->file->attributes[reader->attribute];
    switch (field->tag) {
    case dunlin_onnx_AttributeProto_name_tag:
        return dunlin__onnx_read_text(reader, stream, DUNLIN_ONNX_MAX_NAME, &attribute->name);
    case dunlin_onnx_AttributeProto_s_tag:
        attribute->has_s = true;
        /* Long ones are documentation or code of some tool, never an option of an operator. */
        if (stream->bytes_left > DUNLIN_ONNX_MAX_NAME) {
            return dunlin__onnx_skip(stream);
        }
        return dunlin__onnx_read_text(reader, stream, DUNLIN_ONNX_MAX_NAME, &attribute->s);
    case dunlin_onnx_AttributeProto_t_tag:
        if (attribute->has_tensor) {
            return dunlin__onnx_reader_damaged(reader, "an attribute has two tensors");
        }
        attribute->has_tensor = true;
        return dunlin__onnx_add_tensor(reader, &attribute->tensor) &&
               dunlin__onnx_read_tensor(reader, stream, attribute->tensor);
    case dunlin_onnx_AttributeProto_floats_tag:
    case dunlin_onnx_AttributeProto_ints_tag:
        return read_attribute_lists(reader, stream, field->tag);
    default:
        attribute->graph_bytes = 0;
        if (field->tag == dunlin_onnx_AttributeProto_g_tag && !attribute->has_graph &&
            stream->callback == dunlin__onnx_pb_read) {
            attribute->graph_offset = reader->file->source.offset;
            attribute->graph_bytes = stream->bytes_left;
        }
        attribute->has_graph = true;
        return dunlin__onnx_skip(stream);
    }
}

static bool read_attribute(dunlin_onnx_reader *reader, pb_istream_t *stream)
{
    dunlin_onnx_file *file = reader->file;
    if (!DUNLIN_ONNX_RESERVE(reader, attributes, DUNLIN_ONNX_MAX_ATTRIBUTES,
                             "too many attributes")) {
        return false;
    }
    reader->attribute = (uint32_t)file->n_attributes++;
    memset(&file->attributes[reader->attribute], 0, sizeof *file->attributes);
    pb_callback_t callback = {.funcs.decode = attribute_field, .arg = reader};
    dunlin_onnx_AttributeProto message = {
        .name = callback,
        .s = callback,
        .t = callback,
        .g = callback,
        .floats = callback,
        .ints = callback,
        .graphs = callback,
    };
    if (!pb_decode(stream, dunlin_onnx_AttributeProto_fields, &message)) {
        return false;
    }
    dunlin_onnx_attribute *attribute = &file->attributes[reader->attribute];
    attribute->has_i = message.has_i;
    attribute->i = message.i;
    attribute->has_f = message.has_f;
    attribute->f = message.f;
    return true;
}

/* Inputs and outputs come in any order in the file but each list must lie together. */
static bool read_name_list(dunlin_onnx_reader *reader, pb_istream_t *stream, dunlin_onnx_span *span)
{
    dunlin_onnx_file *file = reader->file;
    if (span->n == 0) {
        span->first = (uint32_t)file->n_names;
    } else if (span->first + span->n != file->n_names) {
        return dunlin__onnx_reader_damaged(reader, "a node's inputs and outputs are interleaved");
    }
    if (!DUNLIN_ONNX_RESERVE(reader, names, DUNLIN_ONNX_MAX_NAMES, "too many inputs and outputs")) {
        return false;
    }
    if (!dunlin__onnx_read_text(reader, stream, DUNLIN_ONNX_MAX_NAME,
                                &file->names[file->n_names])) {
        return false;
    }
    file->n_names++;
    span->n++;
    return true;
}

static bool node_field(pb_istream_t *stream, const pb_field_t *field, void **arg)
{
    dunlin_onnx_reader *reader = *arg;
    dunlin_onnx_file *file = reader->file;
    dunlin_onnx_op *op = &file->ops[file->n_ops - 1];
    switch (field->tag) {
    case dunlin_onnx_NodeProto_input_tag:
        return read_name_list(reader, stream, &op->inputs);
    case dunlin_onnx_NodeProto_output_tag:
        return read_name_list(reader, stream, &op->outputs);
    case dunlin_onnx_NodeProto_name_tag:
        return dunlin__onnx_read_text(reader, stream, DUNLIN_ONNX_MAX_NAME, &op->name);
    case dunlin_onnx_NodeProto_op_type_tag:
        return dunlin__onnx_read_text(reader, stream, DUNLIN_ONNX_MAX_NAME, &op->op_type);
    case dunlin_onnx_NodeProto_domain_tag:
        return dunlin__onnx_read_text(reader, stream, DUNLIN_ONNX_MAX_NAME, &op->domain);
    default:
        break;
    }
    if (op->attributes.n == 0) {
        op->attributes.first = (uint32_t)file->n_attributes;
    }
    op->attributes.n++;
    return read_attribute(reader, stream);
}

static bool read_node(dunlin_onnx_reader *reader, pb_istream_t *stream)
{
    if (!DUNLIN_ONNX_RESERVE(reader, ops, DUNLIN_ONNX_MAX_NODES, "too many nodes")) {
        return false;
    }
    dunlin_onnx_file *file = reader->file;
    memset(&file->ops[file->n_ops++], 0, sizeof *file->ops);
    pb_callback_t callback = {.funcs.decode = node_field, .arg = reader};
    dunlin_onnx_NodeProto message = {
        .input = callback,
        .output = callback,
        .name = callback,
        .op_type = callback,
        .attribute = callback,
        .domain = callback,
    };
    return pb_decode(stream, dunlin_onnx_NodeProto_fields, &message);
}

bool dunlin__onnx_reader_add_op(dunlin_onnx_reader *reader, const dunlin_onnx_op *op)
{
    if (!DUNLIN_ONNX_RESERVE(reader, ops, DUNLIN_ONNX_MAX_NODES, "too many nodes")) {
        return false;
    }
    reader->file->ops[reader->file->n_ops++] = *op;
    return true;
}

/* What a branch puts out; it takes nothing in but what the graph around it has. */
static bool branch_port(dunlin_onnx_reader *reader, pb_istream_t *stream, pb_size_t tag)
{
    dunlin_onnx_port port = {0};
    if (!dunlin__onnx_read_port(reader, stream, &port)) {
        return false;
    }
    reader->n_branch_outputs += tag == dunlin_onnx_GraphProto_output_tag ? 1 : 2;
    reader->branch_output = port.name;
    return true;
}

static bool graph_field(pb_istream_t *stream, const pb_field_t *field, void **arg)
{
    dunlin_onnx_reader *reader = *arg;
    dunlin_onnx_file *file = reader->file;
    uint32_t tensor = 0;
    if (reader->is_branch && (field->tag == dunlin_onnx_GraphProto_input_tag ||
                              field->tag == dunlin_onnx_GraphProto_output_tag)) {
        return branch_port(reader, stream, field->tag);
    }
    switch (field->tag) {
    case dunlin_onnx_GraphProto_node_tag:
        return read_node(reader, stream);
    case dunlin_onnx_GraphProto_initializer_tag:
        if (!dunlin__onnx_add_tensor(reader, &tensor)) {
            return false;
        }
        file->tensors[tensor].is_initializer = true;
        return dunlin__onnx_read_tensor(reader, stream, tensor);
    case dunlin_onnx_GraphProto_input_tag:
        return DUNLIN_ONNX_RESERVE(reader, inputs, DUNLIN_ONNX_MAX_TENSORS,
                                   "too many inputs of the graph") &&
               dunlin__onnx_read_port(reader, stream, &file->inputs[file->n_inputs++]);
    case dunlin_onnx_GraphProto_output_tag:
        return DUNLIN_ONNX_RESERVE(reader, outputs, DUNLIN_ONNX_MAX_TENSORS,
                                   "too many outputs of the graph") &&
               dunlin__onnx_read_port(reader, stream, &file->outputs[file->n_outputs++]);
    case dunlin_onnx_GraphProto_value_info_tag:
        return dunlin__onnx_read_value_info(reader, stream);
    default:
        file->has_sparse_tensors = true;
        return dunlin__onnx_skip(stream);
    }
}

static bool read_graph(dunlin_onnx_reader *reader, pb_istream_t *stream)
{
    pb_callback_t callback = {.funcs.decode = graph_field, .arg = reader};
    dunlin_onnx_GraphProto graph = {
        .node = callback,
        .initializer = callback,
        .input = callback,
        .output = callback,
        .value_info = callback,
        .sparse_initializer = callback,
    };
    return pb_decode(stream, dunlin_onnx_GraphProto_fields, &graph);
}

bool dunlin__onnx_read_branch(dunlin_onnx_reader *reader, const dunlin_onnx_attribute *branch,
                              dunlin_onnx_text *out_name)
{
    dunlin_onnx_source *source = &reader->file->source;
    source->offset = branch->graph_offset;
    reader->is_branch = true;
    reader->n_branch_outputs = 0;
    pb_istream_t stream = {.callback = dunlin__onnx_pb_read,
                           .state = source,
                           .bytes_left = (size_t)branch->graph_bytes};
    if (!read_graph(reader, &stream)) {
        if (source->os_error != 0 && reader->status == DUNLIN_OK) {
            reader->status =
                dunlin__fail(reader->error, DUNLIN_IO, "onnx", source->os_error,
                             "reading the model file failed (system error %d)", source->os_error);
        }
        return dunlin__onnx_reader_damaged(reader, stream.errmsg != NULL ? stream.errmsg
                                                                         : "a branch is cut off");
    }
    *out_name = reader->n_branch_outputs == 1 ? reader->branch_output : 0;
    return true;
}

static bool opset_domain(pb_istream_t *stream, const pb_field_t *field, void **arg)
{
    (void)field;
    bool *is_default = *arg;
    char domain[8] = "";
    size_t n = stream->bytes_left;
    *is_default = n == 0;
    if (n == strlen("ai.onnx")) {
        if (!pb_read(stream, (pb_byte_t *)domain, n)) {
            return false;
        }
        *is_default = strcmp(domain, "ai.onnx") == 0;
        return true;
    }
    return dunlin__onnx_skip(stream);
}

static bool model_field(pb_istream_t *stream, const pb_field_t *field, void **arg)
{
    dunlin_onnx_reader *reader = *arg;
    if (field->tag == dunlin_onnx_ModelProto_graph_tag) {
        if (reader->file->has_graph) {
            return dunlin__onnx_reader_damaged(reader, "it has two graphs");
        }
        reader->file->has_graph = true;
        return read_graph(reader, stream);
    }
    if (field->tag == dunlin_onnx_ModelProto_opset_import_tag) {
        bool is_default = true;
        dunlin_onnx_OperatorSetIdProto opset = {
            .domain = {.funcs.decode = opset_domain, .arg = &is_default}};
        if (!pb_decode(stream, dunlin_onnx_OperatorSetIdProto_fields, &opset)) {
            return false;
        }
        if (is_default) {
            reader->file->opset = opset.version;
        }
        return true;
    }
    if (field->tag == dunlin_onnx_ModelProto_metadata_props_tag) {
        return dunlin__onnx_read_model_entry(reader, stream);
    }
    reader->file->has_functions = true;
    return dunlin__onnx_skip(stream);
}

static dunlin_status decode(dunlin_onnx_reader *reader)
{
    dunlin_onnx_file *file = reader->file;
    pb_callback_t callback = {.funcs.decode = model_field, .arg = reader};
    dunlin_onnx_ModelProto model = {.graph = callback,
                                    .opset_import = callback,
                                    .metadata_props = callback,
                                    .functions = callback};
    pb_istream_t stream = {.callback = dunlin__onnx_pb_read,
                           .state = &file->source,
                           .bytes_left = (size_t)file->source.n_bytes};
    if (!pb_decode(&stream, dunlin_onnx_ModelProto_fields, &model)) {
        if (file->source.os_error != 0 && reader->status == DUNLIN_OK) {
            return dunlin__fail(reader->error, DUNLIN_IO, "onnx", file->source.os_error,
                                "reading the model file failed at byte %" PRIu64
                                " (system error %d)",
                                file->source.offset, file->source.os_error);
        }
        /* nanopb is silent about a stream that ends in the middle of a field. */
        (void)dunlin__onnx_reader_damaged(
            reader, stream.errmsg != NULL ? stream.errmsg : "it is cut off or no ONNX");
        return reader->status;
    }
    file->ir_version = model.ir_version;
    if (!file->has_graph) {
        (void)dunlin__onnx_reader_damaged(reader, "it has no graph");
    }
    return reader->status;
}

dunlin_status dunlin__onnx_file_load(dunlin_onnx_file *file, const dunlin_alloc *alloc,
                                     const dunlin_onnx_place *place, dunlin_error *error)
{
    memset(file, 0, sizeof *file);
    file->alloc = dunlin__alloc_or_default(alloc);
    file->path = place->path;
    DUNLIN_TRY(dunlin__onnx_source_open(&file->source, place, error));
    /* Offset 0 of the pool is the empty text. */
    void *text = NULL;
    if (!dunlin__grow_array(&file->alloc, &text, &file->text_capacity, 1, 1)) {
        return dunlin__fail(error, DUNLIN_MEMORY, "onnx", 0, "no memory for the model's names");
    }
    file->text = text;
    file->text[0] = '\0';
    file->n_text = 1;
    dunlin_onnx_reader reader = {.file = file, .error = error};
    return decode(&reader);
}

void dunlin__onnx_file_free(dunlin_onnx_file *file)
{
    const dunlin_alloc *alloc = &file->alloc;
    dunlin__onnx_source_close(&file->source);
    dunlin__free_array(alloc, file->text, file->text_capacity, 1);
    dunlin__free_array(alloc, file->ops, file->ops_capacity, sizeof *file->ops);
    dunlin__free_array(alloc, file->names, file->names_capacity, sizeof *file->names);
    dunlin__free_array(alloc, file->attributes, file->attributes_capacity,
                       sizeof *file->attributes);
    dunlin__free_array(alloc, file->tensors, file->tensors_capacity, sizeof *file->tensors);
    dunlin__free_array(alloc, file->ints, file->ints_capacity, sizeof *file->ints);
    dunlin__free_array(alloc, file->inputs, file->inputs_capacity, sizeof *file->inputs);
    dunlin__free_array(alloc, file->outputs, file->outputs_capacity, sizeof *file->outputs);
    dunlin__free_array(alloc, file->buffers, file->buffers_capacity, sizeof *file->buffers);
    dunlin__free_array(alloc, file->trained, file->trained_capacity, sizeof *file->trained);
    dunlin__free_array(alloc, file->example, file->example_capacity, sizeof *file->example);
    memset(file, 0, sizeof *file);
    file->source.fd = -1;
}
