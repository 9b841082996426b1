/*
 * model.c - a finished network: questions about it, and a new head for fine-tuning.
 *
 * Invariant: the network of a model is inferred and ends in logits; nothing changes it any more.
 */
#include "builder.h"
#include "net/uses.h"
#include "ops/table/infer.h"

#include <dunlin/pixels.h>
#include <mem/support.h>

#include <inttypes.h>
#include <math.h>

dunlin_status dunlin__model_from_net(dunlin_net *net, dunlin_model **out_model, dunlin_error *error)
{
    dunlin_model *model = dunlin__alloc_zeroed(&net->alloc, 1, sizeof *model);
    if (model == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "net", 0, "no memory for a model");
    }
    model->alloc = net->alloc;
    model->net = *net;
    dunlin__net_init(net, &model->alloc);
    *out_model = model;
    return DUNLIN_OK;
}

void dunlin_model_destroy(dunlin_model *model)
{
    if (model != NULL) {
        dunlin_alloc alloc = model->alloc;
        dunlin__net_free(&model->net);
        dunlin__free_array(&alloc, model, 1, sizeof *model);
    }
}

dunlin_shape dunlin_model_input_shape(const dunlin_model *model)
{
    return model->net.values[model->net.input].shape;
}

/* The rows that are looked up are the same for each sample: positions, a stored order. */
static bool is_fixed_order(const dunlin_net *net, const dunlin_net_node *table)
{
    const uint32_t producer = net->values[table->inputs[0]].producer;
    const dunlin_net_node *ids = producer != DUNLIN_NET_NONE ? &net->nodes[producer] : NULL;
    return ids != NULL &&
           (ids->kind == DUNLIN_OP_RAMP || (ids->kind == DUNLIN_OP_EXPAND && ids->n_params > 0));
}

int64_t dunlin_model_vocabulary(const dunlin_model *model)
{
    int64_t least = 0;
    for (size_t i = 0; i < model->net.n_nodes; i++) {
        const dunlin_net_node *node = &model->net.nodes[i];
        if (node->kind == DUNLIN_OP_EMBEDDING && !is_fixed_order(&model->net, node)) {
            const int64_t rows = model->net.params[node->params[0]].shape.dims[0];
            least = least == 0 || rows < least ? rows : least;
        }
    }
    return least;
}

int64_t dunlin_model_n_outputs(const dunlin_model *model)
{
    int64_t n_rows = 0;
    int64_t width = 0;
    dunlin__value_rows(&model->net.values[model->net.output], &n_rows, &width);
    return width;
}

int64_t dunlin_model_n_labels(const dunlin_model *model)
{
    int64_t n_rows = 0;
    int64_t width = 0;
    dunlin__value_rows(&model->net.values[model->net.output], &n_rows, &width);
    return n_rows;
}

int32_t dunlin_model_n_parameters(const dunlin_model *model)
{
    return (int32_t)model->net.n_params;
}

dunlin_status dunlin_model_parameter(const dunlin_model *model, int32_t index,
                                     dunlin_parameter_info *out_info)
{
    if (model == NULL || out_info == NULL || index < 0 || (size_t)index >= model->net.n_params) {
        return DUNLIN_ARGUMENT;
    }
    const dunlin_net_param *param = &model->net.params[index];
    *out_info = (dunlin_parameter_info){
        .name = param->name,
        .shape = param->shape,
        .n_elements = param->n_elements,
        .role = param->role,
    };
    return DUNLIN_OK;
}

int64_t dunlin_model_n_trainable_elements(const dunlin_model *model)
{
    int64_t n = 0;
    for (size_t i = 0; i < model->net.n_params; i++) {
        if (model->net.params[i].role == DUNLIN_PARAMETER_TRAINABLE) {
            n += model->net.params[i].n_elements;
        }
    }
    return n;
}

bool dunlin_model_is_variance(const dunlin_model *model, int32_t index)
{
    for (size_t i = 0; i < model->net.n_nodes; i++) {
        const dunlin_net_node *node = &model->net.nodes[i];
        if (node->kind == DUNLIN_OP_BATCH_NORM && index >= 0 &&
            node->params[3] == (uint32_t)index) {
            return true;
        }
    }
    return false;
}

const char *dunlin_model_warning(const dunlin_model *model)
{
    return model->net.warning;
}

static dunlin_net_node *find_head(dunlin_net *net)
{
    const dunlin_net_node *head = dunlin__net_head(net);
    return head == NULL ? NULL : &net->nodes[head - net->nodes];
}

static void renew(dunlin_net_param *param, int32_t classes, int64_t fan_in)
{
    param->shape.dims[0] = classes;
    param->is_transposed_in_file = false;
    param->origin = DUNLIN_PARAM_UNIFORM;
    param->bound = (float)(1.0 / sqrt((double)fan_in));
    param->weights_path = NULL;
    param->file_offset = 0;
}

static bool has_readers_but(const dunlin_net *net, const dunlin_net_node *head, uint32_t param)
{
    for (size_t i = 0; i < net->n_nodes; i++) {
        for (uint32_t k = 0; k < net->nodes[i].n_params; k++) {
            if (&net->nodes[i] != head && net->nodes[i].params[k] == param) {
                return true;
            }
        }
    }
    return false;
}

static dunlin_status replace_head(dunlin_net *net, int32_t classes, dunlin_error *error)
{
    dunlin_net_node *head = find_head(net);
    if (head == NULL) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "net", 0,
                            "the network does not end in a dense layer or a 1x1 convolution");
    }
    dunlin_net_param *weight = &net->params[head->params[0]];
    if (has_readers_but(net, head, head->params[0])) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "net", 0,
                            "the head's weight '%.100s' is the table or the weight of another "
                            "layer too, which a new head would change",
                            weight->name);
    }
    int64_t fan_in = weight->n_elements / weight->shape.dims[0];
    renew(weight, classes, fan_in);
    if (head->n_params > 1 && head->params[1] != DUNLIN_NET_NONE) {
        renew(&net->params[head->params[1]], classes, fan_in);
    }
    if (head->kind == DUNLIN_OP_CONV) {
        head->u.conv.out_channels = classes;
    }
    DUNLIN_TRY(dunlin__net_infer(net, error));
    int64_t n_rows = 0;
    int64_t width = 0;
    dunlin__value_rows(&net->values[net->output], &n_rows, &width);
    if (width != classes) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "net", 0,
                            "'%.100s' is not the head: with %" PRId32 " outputs the network has "
                            "%" PRId64,
                            head->name, classes, width);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin_model_replace_head(const dunlin_model *model, int32_t classes,
                                        const dunlin_alloc *hooks, dunlin_model **out_model,
                                        dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (model == NULL || out_model == NULL || classes < 1) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "net", 0,
                            "a model, a place for the copy and at least 1 class are needed");
    }
    *out_model = NULL;
    dunlin_alloc alloc = dunlin__alloc_or_default(hooks);
    dunlin_net net;
    dunlin_status status = dunlin__net_copy(&model->net, &alloc, &net);
    if (status != DUNLIN_OK) {
        return dunlin__fail(out_error, status, "net", 0, "no %s for a copy of a model",
                            status == DUNLIN_MEMORY ? "memory" : "descriptor");
    }
    status = replace_head(&net, classes, out_error);
    if (status == DUNLIN_OK) {
        status = dunlin__model_from_net(&net, out_model, out_error);
    }
    dunlin__net_free(&net);
    return status;
}
