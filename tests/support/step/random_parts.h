/*
 * random_parts.h - parts of random networks that the public builder has no call for: what ONNX
 * files have, put together as the reader does.
 */
#ifndef DUNLIN_TESTS_RANDOM_PARTS_H
#define DUNLIN_TESTS_RANDOM_PARTS_H

#include <dunlin/model.h>

/* A maximum over 2 x 2 pixels (of a signal 2) that lie two apart: each side loses two. */
dunlin_value random_dilated_max_pool(dunlin_builder *builder, dunlin_value x, bool is_signal);

/* x times its sign, which lets no gradient through, times tanh(x): a slope that is nowhere broken.
 */
dunlin_value random_sign(dunlin_builder *builder, dunlin_value x);

/* ONNX's Where: from `left` in every third of the last dimension's `size` elements (64 at most),
 * else from `right`. The masks are parameters "NAME.left" and "NAME.right" that never change. */
dunlin_value random_where(dunlin_builder *builder, const char *name, dunlin_value left,
                          dunlin_value right, int64_t size);

/* Every second element of a signal of `shape`, without the batch; of an image every second line, as
 * columns of the next one: the second call is for its columns. */
dunlin_value random_every_second(dunlin_builder *builder, dunlin_value x,
                                 const dunlin_shape *shape);

/* x plus n_rows (64 at most) rows of a table "NAME.table", in an order that is stored and is the
 * same for each sample: a parameter "NAME.ids" that never changes. */
dunlin_value random_rows(dunlin_builder *builder, const char *name, dunlin_value x, int64_t n_rows,
                         int64_t width);

#endif
