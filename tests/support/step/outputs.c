/*
 * outputs.c - a network with several outputs and answers for it.
 */
#include "outputs.h"

#include "random.h"
#include "step_support.h"

#include <criterion/criterion.h>

#include <string.h>

/* A class, numbers that are read on, and tags of what reads them. */
dunlin_model *outputs_model(bool has_softmax, int32_t n)
{
    static const char *const names[3] = {"class", "value", "tags"};
    const dunlin_shape row = {1, {OUTPUTS_FEATURES}};
    dunlin_builder *b = NULL;
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(b, "x", &row);
    x = dunlin_builder_tanh(b, dunlin_builder_dense(b, "trunk", x, 8));
    dunlin_value ends[3];
    ends[0] = dunlin_builder_dense(b, "to_class", x, OUTPUTS_CLASSES);
    ends[0] = has_softmax ? dunlin_builder_softmax(b, ends[0]) : ends[0];
    if (n > 1) {
        ends[1] = dunlin_builder_dense(b, "to_value", x, OUTPUTS_VALUES);
        ends[2] = dunlin_builder_dense(b, "to_tags", dunlin_builder_tanh(b, ends[1]), OUTPUTS_TAGS);
        ends[2] = has_softmax ? dunlin_builder_sigmoid(b, ends[2]) : ends[2];
    }
    cr_assert_eq(dunlin_builder_finish_outputs(b, ends, names, n, &model, &error), DUNLIN_OK, "%s",
                 error.text);
    return model;
}

void outputs_open(outputs_data *data, bool has_weights)
{
    dunlin_error error = {0};
    uint64_t rng = 11;
    *data = (outputs_data){.labels = {0}};
    test_random_fill(data->x[0], OUTPUTS_N * OUTPUTS_FEATURES, -1.0, 1.0, &rng);
    test_random_fill(data->values[0], OUTPUTS_N * OUTPUTS_VALUES, -1.0, 1.0, &rng);
    for (int i = 0; i < OUTPUTS_N; i++) {
        data->labels[i] = (int32_t)test_random_below(&rng, OUTPUTS_CLASSES);
        data->weights[i] = i % 4 == 0 ? 0.0F : 0.5F * (float)(i % 4);
        for (int k = 0; k < OUTPUTS_TAGS; k++) {
            data->tags[i][k] = (float)test_random_below(&rng, 2);
        }
    }
    data->input = (dunlin_source_input){
        .name = "x", .values = data->x, .n_elements = OUTPUTS_FEATURES, .dtype = DUNLIN_F32};
    data->answers[0] = (dunlin_source_answer){.name = "class", .values = data->labels};
    data->answers[1] = (dunlin_source_answer){
        .name = "value", .values = data->values, .n_targets = OUTPUTS_VALUES};
    data->answers[2] = (dunlin_source_answer){.values = data->tags, .n_targets = OUTPUTS_TAGS};
    dunlin_arrays arrays = DUNLIN_ARRAYS_INIT;
    arrays.n = OUTPUTS_N;
    arrays.inputs = &data->input;
    arrays.n_inputs = 1;
    arrays.answers = data->answers;
    arrays.n_answers = 3;
    arrays.weights = has_weights ? data->weights : NULL;
    cr_assert_eq(dunlin_source_from_arrays(&arrays, &data->view, &data->source, &error), DUNLIN_OK,
                 "%s", error.text);
}

/* Cross-entropy, squared error, binary cross-entropy. */
void outputs_losses(dunlin_output_loss losses[3], float first, float second, float third)
{
    const float weights[3] = {first, second, third};
    static const char *const names[3] = {"class", "value", "tags"};
    static const dunlin_loss kinds[3] = {DUNLIN_LOSS_CROSS_ENTROPY, DUNLIN_LOSS_MSE,
                                         DUNLIN_LOSS_BCE};
    for (int i = 0; i < 3; i++) {
        losses[i] = (dunlin_output_loss)DUNLIN_OUTPUT_LOSS_INIT;
        losses[i].name = names[i];
        losses[i].loss = kinds[i];
        losses[i].weight = weights[i];
    }
}

dunlin_trainer_options outputs_options(dunlin_output_loss losses[3])
{
    dunlin_trainer_options options = test_options(8);
    outputs_losses(losses, 1.0F, 0.5F, 2.0F);
    losses[0].label_smoothing = 0.125F;
    options.outputs = losses;
    options.n_outputs = 3;
    return options;
}
