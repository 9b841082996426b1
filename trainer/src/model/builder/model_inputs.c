/*
 * model_inputs.c - questions about the inputs and the outputs of a model.
 */
#include "net/outputs.h"
#include "net/parts.h"

#include <dunlin/several.h>
#include <mem/sized.h>
#include <mem/support.h>

/* The least number of rows of the tables that read the value; 0: none does. */
static int64_t vocabulary_of(const dunlin_net *net, uint32_t value)
{
    int64_t least = 0;
    for (size_t i = 0; i < net->n_nodes; i++) {
        const dunlin_net_node *node = &net->nodes[i];
        if (node->kind == DUNLIN_OP_EMBEDDING && node->inputs[0] == value) {
            const int64_t rows = net->params[node->params[0]].shape.dims[0];
            least = least == 0 || rows < least ? rows : least;
        }
    }
    return least;
}

int32_t dunlin_model_n_inputs(const dunlin_model *model)
{
    return (int32_t)dunlin__net_n_parts(&model->net);
}

dunlin_status dunlin_model_get_input(const dunlin_model *model, int32_t index,
                                     dunlin_model_input *out_input)
{
    if (model == NULL || index < 0 || index >= dunlin_model_n_inputs(model)) {
        return DUNLIN_ARGUMENT;
    }
    DUNLIN_TRY(dunlin__struct_check(out_input, "dunlin_model_input", NULL));
    const dunlin_net_part part = dunlin__net_part_at(&model->net, (uint32_t)index);
    const dunlin_model_input input = {
        .struct_size = sizeof input,
        .name = part.name,
        .shape = model->net.values[part.value].shape,
        .n_elements = part.n,
        .first = part.first,
        .vocabulary = vocabulary_of(&model->net, part.value),
        .is_channels_last = model->net.values[part.value].layout == DUNLIN_LAYOUT_PLAIN &&
                            model->net.values[part.value].shape.n_dims == 3,
    };
    dunlin__struct_give(&input, sizeof input, out_input);
    return DUNLIN_OK;
}

int32_t dunlin_model_count_outputs(const dunlin_model *model)
{
    return (int32_t)dunlin__net_n_outputs(&model->net);
}

dunlin_status dunlin_model_get_output(const dunlin_model *model, int32_t index,
                                      dunlin_model_output *out_output)
{
    if (model == NULL || index < 0 || index >= dunlin_model_count_outputs(model)) {
        return DUNLIN_ARGUMENT;
    }
    DUNLIN_TRY(dunlin__struct_check(out_output, "dunlin_model_output", NULL));
    const dunlin_net_value *value =
        &model->net.values[dunlin__net_output_at(&model->net, (uint32_t)index)];
    dunlin_model_output output = {
        .struct_size = sizeof output, .name = value->name, .shape = value->shape};
    dunlin__value_rows(value, &output.n_labels, &output.n_numbers);
    dunlin__struct_give(&output, sizeof output, out_output);
    return DUNLIN_OK;
}
