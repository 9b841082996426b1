/*
 * held_weights.c - weights in memory, as a learner reads those a server sent.
 */
#include "held_weights.h"

#include <criterion/criterion.h>

#include <string.h>

void held_weights_make(held_weights *weights, const dunlin_model *model, const float *values,
                       int64_t capacity)
{
    memset(weights, 0, sizeof *weights);
    weights->values = values;
    weights->n_tensors = dunlin_model_n_parameters(model);
    cr_assert_leq(weights->n_tensors, HELD_TENSORS);
    for (int32_t i = 0; i < weights->n_tensors; i++) {
        dunlin_parameter_info info;
        cr_assert_eq(dunlin_model_parameter(model, i, &info), DUNLIN_OK);
        weights->tensors[i] = (dunlin_weights_tensor){
            .name = info.name, .shape = info.shape, .n_elements = info.n_elements};
        weights->n_values += info.n_elements;
    }
    cr_assert_leq(weights->n_values, capacity);
}

static dunlin_status read_values(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    const held_weights *from = ctx;
    int64_t at = first;
    for (int32_t i = 0; i < index; i++) {
        at += from->tensors[i].n_elements;
    }
    memcpy(out, from->values + at, (size_t)n * sizeof *out);
    return DUNLIN_OK;
}

dunlin_weights_reader held_weights_reader(held_weights *weights)
{
    return (dunlin_weights_reader){.ctx = weights,
                                   .tensors = weights->tensors,
                                   .n_tensors = weights->n_tensors,
                                   .read_fn = read_values};
}
