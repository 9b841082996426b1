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
/* Repeated for each sample (Expand, Tile), or to another shape; and the product of an activation
 * and a matrix that is the same for each sample. True: it is done, or rejected. */
bool dunlin__onnx_expand_shared(dunlin_onnx_node *node);
bool dunlin__onnx_multiply_shared(dunlin_onnx_node *node);
/* Such a value where a layer wants a parameter: rejected. */
bool dunlin__onnx_refuse_shared(dunlin_onnx_node *node);
/* places_sums.c: means, sums and extremes over dimensions of a sample. */
bool dunlin__onnx_reduce_place(dunlin_onnx_node *node);
/* picks.c. Gather of elements of dimension `dim` of a sample by a constant; the dimensions that
 * they have in its place. The node is done, or was rejected. */
void dunlin__onnx_pick_many(dunlin_onnx_node *node, int32_t dim, int32_t *out_rank);
/* The same of n elements from `start` on, by a step that is negative: a Slice that turns a
 * dimension round. False: they are none, or too many. */
bool dunlin__onnx_pick_backwards(dunlin_onnx_node *node, int32_t dim, int64_t start, int64_t n,
                                 int64_t step);
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
