/*
 * places.h - where the batch is among a value's dimensions in the file.
 */
#ifndef DUNLIN_CONVERT_PLACES_H
#define DUNLIN_CONVERT_PLACES_H

#include "fold.h"

/*
 * Nodes that move the batch, and nodes that read a value whose batch is not first. True: the node
 * is done, or was rejected. False: it is read as if the batch were first; if its outputs have it
 * elsewhere, import->place says where.
 */
bool dunlin__onnx_fold_place(dunlin_onnx_node *node);

/* Of the activation at an input. */
dunlin_onnx_batch dunlin__onnx_place_of(const dunlin_onnx_node *node, uint32_t index);

/* The dimension of a sample of n_dims that an axis of the file is; -1: the batch has a part in it,
 * or it is not there. */
int32_t dunlin__onnx_sample_axis(const dunlin_onnx_batch *at, int32_t n_dims, int64_t axis);

/*
 * places_pass.c. The operator, which reads an activation whose batch is elsewhere, does to each
 * sample what it would do if the batch were first; where its outputs have the batch then. What it
 * knows by the number of an axis is changed in the file's tables. Before it: arithmetic with a
 * stored tensor that has one element where the batch is; true: it is done, or rejected.
 */
bool dunlin__onnx_join_stored(dunlin_onnx_node *node);
/* shared.c. Arithmetic of an activation and a value that is the same for each sample; and what
 * reshapes such a value. True: it is done, or rejected. */
bool dunlin__onnx_join_shared(dunlin_onnx_node *node);
bool dunlin__onnx_reshape_shared(dunlin_onnx_node *node);
/* A dimension of the file: of a sample, the batch, or both. */
typedef struct dunlin_file_dim {
    int32_t dim; /* of a sample; -1: the batch alone */
    bool has_batch;
} dunlin_file_dim;

/* Those of a value of n_dims dimensions a sample; their number. */
int32_t dunlin__onnx_file_dims(const dunlin_onnx_batch *at, int32_t n_dims,
                               dunlin_file_dim out[DUNLIN_MAX_DIMS + 1]);
bool dunlin__onnx_passes(dunlin_onnx_node *node, dunlin_onnx_batch *out);

#endif
