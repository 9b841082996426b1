/*
 * import.c - the tables of an ONNX file become a network.
 *
 * Invariant: every name stands for one thing from the node that makes it onwards; nodes that the
 * output does not need are ignored; all issues of all needed nodes are found in one pass, since a
 * value that depends on an issue is unknown and is passed on as such.
 */
#include "convert/rewrite/fold.h"
#include "net/names.h"
#include "net/outputs.h"
#include "ops/common/op.h"
#include "ops/table/infer.h"

#include <mem/platform.h>
#include <mem/support.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- names --- */

static uint32_t add_binding(dunlin_onnx_import *import, const char *name)
{
    uint32_t index = (uint32_t)import->n_bindings++;
    import->bindings[index] = (dunlin_onnx_binding){
        .name = name,
        .root = index,
        .param = DUNLIN_NET_NONE,
        .owner = DUNLIN_NET_NONE,
    };
    import->names[index] = (dunlin_name){.text = name, .index = index};
    return index;
}

/* Initialisers (and options of older operators), then what nodes make, then inputs that are not
 * initialisers (old files list those as inputs too). */
static void gather_names(dunlin_onnx_import *import)
{
    dunlin_name *names = import->names;
    const dunlin_onnx_file *file = import->file;
    for (uint32_t i = 0; i < file->n_tensors; i++) {
        if (file->tensors[i].is_initializer || file->tensors[i].is_option) {
            uint32_t b = add_binding(import, dunlin__onnx_text_at(import, file->tensors[i].name));
            import->bindings[b].meaning = DUNLIN_ONNX_TENSOR;
            import->bindings[b].index = i;
        }
    }
    size_t n_initializers = import->n_bindings;
    dunlin__names_sort(names, n_initializers);
    for (size_t i = 0; i < file->n_inputs; i++) {
        const char *name = dunlin__onnx_text_at(import, file->inputs[i].name);
        if (dunlin__names_find(names, n_initializers, name) == NULL) {
            add_binding(import, name);
        }
    }
    for (size_t i = 0; i < file->n_ops; i++) {
        dunlin_onnx_span outputs = file->ops[i].outputs;
        for (uint32_t j = 0; j < outputs.n; j++) {
            const char *name = dunlin__onnx_text_at(import, file->names[outputs.first + j]);
            if (name[0] != '\0') {
                add_binding(import, name);
            }
        }
    }
}

static dunlin_status resolve_names(dunlin_onnx_import *import)
{
    const dunlin_onnx_file *file = import->file;
    gather_names(import);
    dunlin__names_sort(import->names, import->n_bindings);
    const dunlin_name *duplicate = dunlin__names_duplicate(import->names, import->n_bindings);
    if (duplicate != NULL) {
        return dunlin__fail(import->error, DUNLIN_MODEL, "onnx", 0,
                            "the name '%.180s' is made twice in the graph", duplicate->text);
    }
    for (size_t i = 0; i < file->n_names; i++) {
        const char *name = dunlin__onnx_text_at(import, file->names[i]);
        const dunlin_name *found = dunlin__names_find(import->names, import->n_bindings, name);
        import->refs[i] = found != NULL && name[0] != '\0' ? found->index : DUNLIN_NET_NONE;
    }
    return DUNLIN_OK;
}

static dunlin_status bind_names(dunlin_onnx_import *import)
{
    const dunlin_onnx_file *file = import->file;
    const dunlin_alloc *alloc = &file->alloc;
    /* One more than needed, so that nothing is allocated with a size of 0. */
    size_t n_names = file->n_names + 1;
    size_t n = file->n_tensors + file->n_inputs + 1;
    for (size_t i = 0; i < file->n_ops; i++) {
        n += file->ops[i].outputs.n;
    }
    import->bindings_capacity = n;
    import->names_capacity = n;
    import->bindings = dunlin__alloc_array(alloc, n, sizeof *import->bindings);
    import->refs = dunlin__alloc_array(alloc, n_names, sizeof *import->refs);
    import->asked = dunlin__alloc_zeroed(alloc, file->n_attributes + 1, 1);
    import->names = dunlin__alloc_array(alloc, n, sizeof *import->names);
    if (import->bindings == NULL || import->refs == NULL || import->asked == NULL ||
        import->names == NULL) {
        return dunlin__onnx_fail_memory(import);
    }
    return resolve_names(import);
}

static void free_import(dunlin_onnx_import *import)
{
    const dunlin_onnx_file *file = import->file;
    const dunlin_alloc *alloc = &file->alloc;
    size_t n_names = file->n_names + 1;
    dunlin__free_array(alloc, import->bindings, import->bindings_capacity,
                       sizeof *import->bindings);
    dunlin__free_array(alloc, import->names, import->names_capacity, sizeof *import->names);
    dunlin__free_array(alloc, import->refs, n_names, sizeof *import->refs);
    dunlin__free_array(alloc, import->asked, file->n_attributes + 1, 1);
    dunlin__free_array(alloc, import->vectors, import->vectors_capacity, sizeof *import->vectors);
    dunlin__free_array(alloc, import->norms, import->norms_capacity, sizeof *import->norms);
    dunlin__free_array(alloc, import->chances, import->chances_capacity, sizeof *import->chances);
    dunlin__free_array(alloc, import->groups, import->groups_capacity, sizeof *import->groups);
}

static bool is_node_needed(const dunlin_onnx_node *node)
{
    for (uint32_t i = 0; i < node->op->outputs.n; i++) {
        const dunlin_onnx_binding *output = dunlin__onnx_output(node, i);
        if (output != NULL && output->is_needed) {
            return true;
        }
    }
    return false;
}

static bool is_of_network(const dunlin_onnx_import *import, uint32_t output)
{
    bool is_one = false;
    for (uint32_t i = 0; i < import->n_outputs; i++) {
        is_one = is_one || import->outputs[i] == output;
    }
    return is_one;
}

/* Walks back from the outputs; nodes come in an order that works, so one pass is enough. */
static void mark_needed(dunlin_onnx_import *import)
{
    const dunlin_onnx_file *file = import->file;
    for (uint32_t i = 0; i < file->n_outputs; i++) {
        if (import->n_outputs > 0 && !is_of_network(import, i)) {
            continue;
        }
        dunlin_onnx_binding *output =
            dunlin__onnx_find_binding(import, dunlin__onnx_text_at(import, file->outputs[i].name));
        if (output != NULL) {
            output->is_needed = true;
        }
    }
    for (uint32_t i = (uint32_t)file->n_ops; i > 0; i--) {
        dunlin_onnx_node node = {.import = import, .op = &file->ops[i - 1], .index = i - 1};
        bool is_needed = is_node_needed(&node);
        for (uint32_t j = 0; is_needed && j < node.op->inputs.n; j++) {
            dunlin_onnx_binding *input = dunlin__onnx_input(&node, j);
            if (input != NULL) {
                input->is_needed = true;
            }
        }
    }
}

/* --- the border of the graph --- */

static void check_model(dunlin_onnx_import *import)
{
    const dunlin_onnx_file *file = import->file;
    char reason[120];
    if (file->opset < DUNLIN_ONNX_MIN_OPSET || file->opset > DUNLIN_ONNX_MAX_OPSET) {
        (void)snprintf(reason, sizeof reason, "opset %" PRId64 " is too %s; %d to %d are read",
                       file->opset, file->opset < DUNLIN_ONNX_MIN_OPSET ? "old" : "new",
                       DUNLIN_ONNX_MIN_OPSET, DUNLIN_ONNX_MAX_OPSET);
        dunlin__onnx_report_model(import, "opset_import", reason);
    }
    if (file->has_functions) {
        dunlin__onnx_report_model(import, "functions",
                                  "functions of the model's own are not supported");
    }
    if (file->has_sparse_tensors) {
        dunlin__onnx_report_model(import, "sparse_initializer", "sparse tensors are not supported");
    }
}

/* --- nodes --- */

/* True if all inputs are there; else MODEL in the node's status. */
static bool check_inputs(dunlin_onnx_node *node, bool *out_is_unknown)
{
    const dunlin_onnx_file *file = node->import->file;
    /* What the branches of a choice put out comes after its condition; one is not there. */
    const bool is_choice = strcmp(dunlin__onnx_op_type(node), "If") == 0;
    for (uint32_t i = 0; i < (is_choice ? 1 : node->op->inputs.n) && i < node->op->inputs.n; i++) {
        const dunlin_onnx_binding *input = dunlin__onnx_input(node, i);
        const char *name =
            dunlin__onnx_text_at(node->import, file->names[node->op->inputs.first + i]);
        if (name[0] == '\0') {
            continue;
        }
        if (input == NULL || input->meaning == DUNLIN_ONNX_UNBOUND) {
            node->import->node_status =
                dunlin__fail(node->import->error, DUNLIN_MODEL, "onnx", 0,
                             "%.40s '%.70s' reads '%.80s', which nothing before it "
                             "makes",
                             dunlin__onnx_op_type(node), dunlin__onnx_node_name(node), name);
            return false;
        }
        *out_is_unknown = *out_is_unknown || input->is_unknown;
    }
    return true;
}

/* Only the first output of an operator is a result here, but for Split's; masks and statistics must
 * be unused. */
static void check_outputs(dunlin_onnx_node *node)
{
    if (dunlin__onnx_output(node, 0) == NULL) {
        (void)dunlin__onnx_reject(node, "", "it has no first output");
    }
    if (strcmp(dunlin__onnx_op_type(node), "Split") == 0) {
        return;
    }
    for (uint32_t i = 1; i < node->op->outputs.n; i++) {
        const dunlin_onnx_binding *output = dunlin__onnx_output(node, i);
        if (output != NULL && output->is_needed) {
            (void)dunlin__onnx_reject(node, "", "its output %" PRIu32 " ('%.80s') is used", i,
                                      output->name);
        }
    }
}

/* Has the node filled and inferred; issues leave the value without a shape. */
static dunlin_status fill_node(dunlin_onnx_node *node, dunlin_onnx_fill_fn fill_fn, uint32_t index,
                               bool *is_unknown)
{
    dunlin_onnx_import *import = node->import;
    dunlin_net *net = import->net;
    dunlin_status status = fill_fn(node, net, &net->nodes[index]);
    if (node->import->node_status != DUNLIN_OK) {
        return node->import->node_status;
    }
    if (status == DUNLIN_MEMORY) {
        return dunlin__onnx_fail_memory(import);
    }
    if (status != DUNLIN_OK) {
        (void)dunlin__onnx_reject(node, "", "it cannot be trained as it is");
    } else if (!node->import->is_rejected) {
        dunlin__onnx_check_attributes(node);
    }
    if (node->import->is_rejected || *is_unknown) {
        *is_unknown = true;
        return DUNLIN_OK;
    }
    *is_unknown = !dunlin__onnx_infer(node, index);
    return import->node_status;
}

static dunlin_onnx_fill_fn find_fill_of(dunlin_onnx_node *node)
{
    const dunlin_onnx_import *import = node->import;
    const char *domain = dunlin__onnx_text_at(import, node->op->domain);
    if (domain[0] != '\0' && strcmp(domain, "ai.onnx") != 0) {
        (void)dunlin__onnx_reject(node, "", "its domain '%.80s' is not supported", domain);
        return NULL;
    }
    for (uint32_t i = 0; i < node->op->attributes.n; i++) {
        const dunlin_onnx_attribute *attribute =
            &import->file->attributes[node->op->attributes.first + i];
        if (attribute->has_graph) {
            (void)dunlin__onnx_reject(node, dunlin__onnx_text_at(import, attribute->name),
                                      "control flow is not supported");
            return NULL;
        }
    }
    dunlin_onnx_fill_fn fill_fn = dunlin__onnx_rewrite(node);
    const dunlin_op_row *row = dunlin__op_row_for_onnx(dunlin__onnx_op_type(node));
    if (fill_fn == NULL && row != NULL) {
        fill_fn = row->from_onnx_fn;
    }
    if (fill_fn == NULL) {
        (void)dunlin__onnx_reject(node, "", "the operator is not supported");
    }
    return fill_fn;
}

static dunlin_onnx_fill_fn find_fill(dunlin_onnx_node *node)
{
    node->import->is_of_operator = true;
    dunlin_onnx_fill_fn fill_fn = find_fill_of(node);
    node->import->is_of_operator = false;
    return fill_fn;
}

/* All outputs of a node that is not understood, so that what follows is looked at all the same. */
static dunlin_status bind_unknown(dunlin_onnx_node *node)
{
    for (uint32_t i = 0; i < node->op->outputs.n; i++) {
        dunlin_onnx_binding *output = dunlin__onnx_output(node, i);
        if (output == NULL || output->meaning != DUNLIN_ONNX_UNBOUND) {
            continue;
        }
        output->index = dunlin__net_add_value(node->import->net, output->name);
        output->meaning = DUNLIN_ONNX_VALUE;
        output->is_unknown = true;
        if (output->index == DUNLIN_NET_NONE) {
            return dunlin__onnx_fail_memory(node->import);
        }
    }
    return DUNLIN_OK;
}

static dunlin_status import_operator(dunlin_onnx_node *node, dunlin_onnx_fill_fn fill_fn,
                                     bool is_unknown)
{
    dunlin_net *net = node->import->net;
    dunlin_onnx_binding *output = dunlin__onnx_output(node, 0);
    uint32_t index = dunlin__net_add_node(net, DUNLIN_OP_N_KINDS, dunlin__onnx_node_name(node));
    uint32_t value = index != DUNLIN_NET_NONE ? dunlin__net_add_value(net, output->name) : index;
    if (value == DUNLIN_NET_NONE) {
        return dunlin__onnx_fail_memory(node->import);
    }
    net->nodes[index].output = value;
    DUNLIN_TRY(fill_node(node, fill_fn, index, &is_unknown));
    output->meaning = DUNLIN_ONNX_VALUE;
    output->index = value;
    output->is_unknown = is_unknown;
    return is_unknown ? bind_unknown(node) : DUNLIN_OK;
}

static dunlin_status read_node(dunlin_onnx_import *import, uint32_t op_index)
{
    dunlin_onnx_node node = {
        .import = import, .op = &import->file->ops[op_index], .index = op_index};
    import->is_rejected = false;
    import->has_place = false;
    import->node_status = DUNLIN_OK;
    bool is_unknown = false;
    if (!is_node_needed(&node) || dunlin__onnx_is_skipped(&node) ||
        !check_inputs(&node, &is_unknown)) {
        return import->node_status;
    }
    check_outputs(&node);
    bool is_folded = !import->is_rejected && dunlin__onnx_fold(&node);
    dunlin_onnx_fill_fn fill_fn = NULL;
    if (!is_folded && !import->is_rejected) {
        fill_fn = find_fill(&node);
    }
    if (import->node_status != DUNLIN_OK) {
        return import->node_status;
    }
    if (fill_fn == NULL) {
        return import->is_rejected ? bind_unknown(&node) : DUNLIN_OK;
    }
    return import_operator(&node, fill_fn, is_unknown);
}

/* The node moves a mask, which stays one. */
static bool keeps_masks(const dunlin_onnx_node *node)
{
    static const char *const ops[] = {"Reshape",   "Unsqueeze", "Squeeze", "Expand", "Tile",
                                      "Transpose", "Slice",     "Gather",  "Flatten"};
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    bool is_move = false;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        is_move = is_move || strcmp(ops[i], dunlin__onnx_op_type(node)) == 0;
    }
    return is_move && input != NULL && input->meaning == DUNLIN_ONNX_VALUE && input->is_mask &&
           dunlin__onnx_output(node, 0) != NULL;
}

static dunlin_status import_node(dunlin_onnx_import *import, uint32_t op_index)
{
    const dunlin_onnx_node node = {
        .import = import, .op = &import->file->ops[op_index], .index = op_index};
    DUNLIN_TRY(read_node(import, op_index));
    if (keeps_masks(&node)) {
        dunlin__onnx_output(&node, 0)->is_mask = true;
    }
    for (uint32_t i = 0; import->has_place && i < node.op->outputs.n; i++) {
        dunlin_onnx_binding *output = dunlin__onnx_output(&node, i);
        if (output != NULL && output->meaning == DUNLIN_ONNX_VALUE) {
            output->place = import->place;
        }
    }
    return DUNLIN_OK;
}

static dunlin_status import_graph(dunlin_onnx_import *import)
{
    check_model(import);
    DUNLIN_TRY(dunlin__onnx_file_open_branches(import->file, import->error));
    if (!dunlin__onnx_upgrade(import->file)) {
        return dunlin__onnx_fail_memory(import);
    }
    DUNLIN_TRY(bind_names(import));
    DUNLIN_TRY(dunlin__onnx_sort(import));
    DUNLIN_TRY(dunlin__onnx_read_roles(import));
    dunlin__onnx_choose_outputs(import);
    mark_needed(import);
    DUNLIN_TRY(dunlin__onnx_import_inputs(import));
    for (uint32_t i = 0; i < import->file->n_ops; i++) {
        DUNLIN_TRY(import_node(import, i));
    }
    DUNLIN_TRY(dunlin__onnx_import_outputs(import));
    if (import->has_lost_issue) {
        return dunlin__onnx_fail_memory(import);
    }
    if (import->n_groups > 0) {
        return dunlin__fail(import->error, DUNLIN_UNSUPPORTED, "onnx", (int)import->n_groups,
                            "%s (%zu in all)", import->first_issue, import->n_groups);
    }
    DUNLIN_TRY(dunlin__onnx_note_border(import));
    DUNLIN_TRY(dunlin__net_infer(import->net, import->error));
    DUNLIN_TRY(dunlin__onnx_join(import->net, import->error));
    DUNLIN_TRY(dunlin__onnx_warn_roles(import));
    return dunlin__net_infer(import->net, import->error);
}

/* Weights that have no path are read from the bytes or the open file that the network came from. */
static dunlin_status take_store(dunlin_onnx_import *import)
{
    const dunlin_onnx_source *source = &import->file->source;
    dunlin_net_store *store = &import->net->store;
    if (source->fd < 0) {
        *store = (dunlin_net_store){.bytes = source->bytes, .n_bytes = source->n_bytes};
        return DUNLIN_OK;
    }
    store->fd = dunlin__sys_duplicate(source->fd);
    store->has_fd = store->fd >= 0;
    return store->has_fd ? DUNLIN_OK
                         : dunlin__fail(import->error, DUNLIN_IO, "onnx", errno,
                                        "the model's descriptor cannot be duplicated (system "
                                        "error %d)",
                                        errno);
}

dunlin_status dunlin__onnx_import_net(dunlin_onnx_import *import)
{
    if (import->file->path != NULL) {
        import->weights_path = dunlin__net_string(import->net, import->file->path);
        if (import->weights_path == NULL) {
            return dunlin__onnx_fail_memory(import);
        }
    } else {
        DUNLIN_TRY(take_store(import));
    }
    dunlin_status status = import_graph(import);
    dunlin__onnx_tell_issues(import);
    free_import(import);
    return status;
}
