/*
 * outputs.h - a network with several outputs and answers for it, shared by tests.
 */
#ifndef DUNLIN_TESTS_OUTPUTS_H
#define DUNLIN_TESTS_OUTPUTS_H

#include <dunlin/arrays.h>
#include <dunlin/several.h>

#define OUTPUTS_N 21
#define OUTPUTS_FEATURES 6
#define OUTPUTS_CLASSES 7
#define OUTPUTS_VALUES 3
#define OUTPUTS_TAGS 5

/* A class, numbers that are read on, and tags of what reads them: "class", "value", "tags", or the
 * first alone. With a softmax and a sigmoid at their ends, or without. */
dunlin_model *outputs_model(bool has_softmax, int32_t n);

typedef struct outputs_data {
    float x[OUTPUTS_N][OUTPUTS_FEATURES];
    int32_t labels[OUTPUTS_N];
    float values[OUTPUTS_N][OUTPUTS_VALUES];
    float tags[OUTPUTS_N][OUTPUTS_TAGS];
    float weights[OUTPUTS_N];
    dunlin_source_input input;
    dunlin_source_answer answers[3];
    dunlin_arrays_view view;
    dunlin_source source;
} outputs_data;
/* Must not move. */
void outputs_open(outputs_data *data, bool has_weights);

/* Cross-entropy, squared error, binary cross-entropy, with these weights. */
void outputs_losses(dunlin_output_loss losses[3], float first, float second, float third);
/* Weights 1, 0.5 and 2, labels smoothed. */
dunlin_trainer_options outputs_options(dunlin_output_loss losses[3]);

#endif
