/*
 * examples.c - whether a source's examples are what a network takes.
 */
#include "examples.h"

#include <mem/support.h>

#include <inttypes.h>
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
