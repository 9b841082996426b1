/*
 * examples.c - whether a source's examples are what a network takes.
 */
#include "examples.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static dunlin_status check_type(dunlin_dtype dtype, const char *subsystem, dunlin_error *error)
{
    return dtype == DUNLIN_U8 || dtype == DUNLIN_F32 || dtype == DUNLIN_I32
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_ARGUMENT, subsystem, 0,
                              "the source's type %d is none of u8, f32 and i32", (int)dtype);
}

static dunlin_status check_array(const dunlin_source_input *array, const dunlin_step_input *input,
                                 uint32_t index, const char *subsystem, dunlin_error *error)
{
    if (array->name != NULL && strcmp(array->name, input->name) != 0) {
        return dunlin__fail(error, DUNLIN_MISMATCH, subsystem, 0,
                            "array %" PRIu32 " of the source is called \"%.80s\"; that input of "
                            "the model is called \"%.80s\"",
                            index, array->name, input->name);
    }
    if (array->n_elements != input->n_elements) {
        return dunlin__fail(error, DUNLIN_MISMATCH, subsystem, 0,
                            "array %" PRIu32 " of the source has %" PRId64
                            " elements an example; the model's input \"%.80s\" has %" PRId64,
                            index, array->n_elements, input->name, input->n_elements);
    }
    return check_type(array->dtype, subsystem, error);
}

dunlin_status dunlin__examples_check(const dunlin_source *source, const dunlin_step_graph *step,
                                     const char *subsystem, dunlin_error *error)
{
    const bool has_arrays = source != NULL && source->read_arrays_fn != NULL;
    if (source == NULL || source->n_examples < 1 ||
        (source->read_fn == NULL && source->read_targets_fn == NULL && !has_arrays)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, subsystem, 0,
                            "source is NULL, or it has %" PRId64 " examples or no read_fn",
                            source == NULL ? 0 : source->n_examples);
    }
    if (!has_arrays) {
        return check_type(source->dtype, subsystem, error);
    }
    if (source->inputs == NULL || source->n_inputs != (int32_t)step->n_inputs) {
        return dunlin__fail(error, DUNLIN_MISMATCH, subsystem, 0,
                            "the source has %" PRId32 " arrays an example; the model has %" PRIu32
                            " inputs",
                            source->inputs == NULL ? 0 : source->n_inputs, step->n_inputs);
    }
    for (uint32_t i = 0; i < step->n_inputs; i++) {
        DUNLIN_TRY(check_array(&source->inputs[i], &step->inputs[i], i, subsystem, error));
    }
    return DUNLIN_OK;
}

/* What the source has for an output. */
typedef struct given_answer {
    bool has_targets;
    int64_t n_targets, n_labels;
} given_answer;

static given_answer given_for(const dunlin_source *source, uint32_t index)
{
    const dunlin_source_answer *answer = source->answers != NULL ? &source->answers[index] : NULL;
    given_answer given = {.has_targets = dunlin__source_has_targets(source, index),
                          .n_targets = answer != NULL ? answer->n_targets : source->n_targets,
                          .n_labels = answer != NULL ? answer->n_labels : source->n_labels};
    given.n_labels = given.n_labels == 0 ? 1 : given.n_labels;
    return given;
}

/* Of one of several outputs the text begins with its name. */
typedef struct output_label {
    char text[96];
} output_label;

static output_label label_of(const dunlin_step_graph *step, uint32_t index)
{
    output_label label = {""};
    if (step->n_outputs > 1) {
        (void)snprintf(label.text, sizeof label.text,
                       "output \"%.70s\": ", step->outputs[index].name);
    }
    return label;
}

static dunlin_status check_answer(const dunlin_source *source, const dunlin_step_graph *step,
                                  uint32_t index, bool is_predicting, dunlin_error *error)
{
    const dunlin_step_output *output = &step->outputs[index];
    const given_answer given = given_for(source, index);
    const bool takes_targets = output->loss.loss != DUNLIN_LOSS_CROSS_ENTROPY;
    const bool takes_labels = !takes_targets || output->loss.loss == DUNLIN_LOSS_SOFT_CROSS_ENTROPY;
    const bool may_read_targets = takes_targets && given.has_targets;
    const output_label label = label_of(step, index);
    if (!given.has_targets && !takes_labels && !is_predicting) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "%sthe source has no %s, and the loss is over targets", label.text,
                            source->read_arrays_fn != NULL ? "targets" : "read_targets_fn");
    }
    if (source->read_arrays_fn != NULL && !takes_targets && given.has_targets && !is_predicting) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "trainer", 0,
                            "%sthe source has %" PRId64
                            " targets an example; the loss is over labels",
                            label.text, given.n_targets);
    }
    const int64_t n_numbers = output->n_rows * output->n_classes;
    if (may_read_targets && given.n_targets != n_numbers) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "trainer", 0,
                            "%sthe source has %" PRId64
                            " targets an example; the model has %" PRId64 " outputs",
                            label.text, given.n_targets, n_numbers);
    }
    if (!may_read_targets && given.n_labels != output->n_rows && !is_predicting) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "trainer", 0,
                            "%sthe source has %" PRId64 " labels an example; the model has %" PRId64
                            " rows of outputs",
                            label.text, given.n_labels, output->n_rows);
    }
    return DUNLIN_OK;
}

static dunlin_status check_several(const dunlin_source *source, const dunlin_step_graph *step,
                                   dunlin_error *error)
{
    if (source->read_arrays_fn == NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "the source has answers for %" PRId32 " outputs and no read_arrays_fn",
                            source->n_answers);
    }
    if (source->n_answers != (int32_t)step->n_outputs) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "trainer", 0,
                            "the source has answers for %" PRId32
                            " outputs; the model has %" PRIu32,
                            source->n_answers, step->n_outputs);
    }
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        const char *name = source->answers[i].name;
        if (name != NULL && strcmp(name, step->outputs[i].name) != 0) {
            return dunlin__fail(error, DUNLIN_MISMATCH, "trainer", 0,
                                "answer %" PRIu32 " of the source is called \"%.80s\"; that output "
                                "of the model is called \"%.80s\"",
                                i, name, step->outputs[i].name);
        }
    }
    return DUNLIN_OK;
}

/* Whether the output takes targets of this source; else labels. */
static bool is_over_targets(const dunlin_source *source, const dunlin_step_graph *step,
                            uint32_t index)
{
    const dunlin_loss loss = step->outputs[index].loss.loss;
    return loss == DUNLIN_LOSS_SOFT_CROSS_ENTROPY ? dunlin__source_has_targets(source, index)
                                                  : loss != DUNLIN_LOSS_CROSS_ENTROPY;
}

/* One answer does for all outputs if it has the same form for each. */
static dunlin_status check_shared(const dunlin_source *source, const dunlin_step_graph *step,
                                  dunlin_error *error)
{
    const dunlin_step_output *first = &step->outputs[0];
    const bool has_targets = is_over_targets(source, step, 0);
    for (uint32_t i = 1; i < step->n_outputs; i++) {
        const dunlin_step_output *other = &step->outputs[i];
        if (is_over_targets(source, step, i) != has_targets || other->n_rows != first->n_rows ||
            (has_targets && other->n_classes != first->n_classes)) {
            return dunlin__fail(error, DUNLIN_MISMATCH, "trainer", 0,
                                "the source has one answer for all outputs, and outputs \"%.70s\" "
                                "and \"%.70s\" take different ones",
                                first->name, other->name);
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__answers_check(const dunlin_source *source, const dunlin_step_graph *step,
                                    bool is_predicting, dunlin_error *error)
{
    const bool may_read = source->read_fn != NULL || source->read_arrays_fn != NULL ||
                          (step->outputs[0].loss.loss != DUNLIN_LOSS_CROSS_ENTROPY &&
                           source->read_targets_fn != NULL);
    if (!may_read) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "the source has no read_fn, and the loss is over labels");
    }
    if (source->answers != NULL) {
        DUNLIN_TRY(check_several(source, step, error));
    } else if (!is_predicting) {
        DUNLIN_TRY(check_shared(source, step, error));
    }
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        DUNLIN_TRY(check_answer(source, step, i, is_predicting, error));
    }
    return DUNLIN_OK;
}
