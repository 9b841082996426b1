/*
 * several.h - a network with several inputs and arrays for it, shared by tests.
 */
#ifndef DUNLIN_TESTS_SEVERAL_H
#define DUNLIN_TESTS_SEVERAL_H

#include <dunlin/arrays.h>
#include <dunlin/several.h>
#include <dunlin/trainer.h>

#define SEVERAL_N 21
#define SEVERAL_SIDE 6
#define SEVERAL_PIXELS (2 * SEVERAL_SIDE * SEVERAL_SIDE) /* of an image of two channels */
#define SEVERAL_IDS 3
#define SEVERAL_VOCABULARY 11
#define SEVERAL_FEATURES 5
#define SEVERAL_ALL (2 * SEVERAL_PIXELS + SEVERAL_IDS + SEVERAL_FEATURES)
#define SEVERAL_CLASSES 4

/* Two images that go through one convolution, ids through a table, features. With batch norm it is
 * shared too. */
dunlin_model *several_model(bool has_batch_norm);

/* The same examples as arrays and as one array of floats. Must not move. */
typedef struct several_data {
    uint8_t left[SEVERAL_N][SEVERAL_PIXELS];
    float right[SEVERAL_N][SEVERAL_PIXELS];
    int32_t ids[SEVERAL_N][SEVERAL_IDS];
    float features[SEVERAL_N][SEVERAL_FEATURES];
    int32_t labels[SEVERAL_N];
    float joined[SEVERAL_N][SEVERAL_ALL];
    dunlin_source_input inputs[4];
    dunlin_arrays_view view, joined_view;
    dunlin_source arrays, one;
} several_data;
void several_open(several_data *data);

/* Weights after two epochs of a fit; the caller frees them. */
float *several_fit(const dunlin_model *model, const dunlin_trainer_options *options,
                   const dunlin_source *source, int64_t *out_n);

#endif
