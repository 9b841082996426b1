/*
 * builder_images.c - the builder's layers that move an image's elements, and reductions.
 *
 * Invariant: as in builder.c, nothing happens after the first error.
 */
#include "builder.h"

static dunlin_value add_move(dunlin_builder *builder, const char *kind_name, dunlin_value input,
                             const dunlin_rearrangement *to)
{
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_REARRANGE, NULL, kind_name, &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.rearrange.to = *to;
    node->u.rearrange.is_image = true;
    return dunlin__builder_end(builder);
}

/* (C, H, W) of a value; false if it is no image, and the builder has failed. */
static bool image_of(dunlin_builder *builder, dunlin_value input, dunlin_shape *out_shape)
{
    const dunlin_net *net = dunlin__builder_net(builder);
    if (net == NULL) {
        return false;
    }
    if (input < 0 || (size_t)input >= net->n_values || net->values[input].shape.n_dims != 3) {
        (void)dunlin__builder_refuse(builder, "only the elements of an image are moved");
        return false;
    }
    *out_shape = net->values[input].shape;
    return true;
}

dunlin_value dunlin_builder_channel_shuffle(dunlin_builder *builder, dunlin_value input,
                                            int32_t groups)
{
    dunlin_shape x;
    if (!image_of(builder, input, &x)) {
        return -1;
    }
    if (groups < 1 || x.dims[0] % groups != 0) {
        return dunlin__builder_refuse(builder, "groups that are shuffled must divide the channels");
    }
    const dunlin_rearrangement to = {
        {4, {groups, x.dims[0] / groups, x.dims[1], x.dims[2]}}, {1, 0, 2, 3}, x};
    return add_move(builder, "channel_shuffle", input, &to);
}

dunlin_value dunlin_builder_space_to_depth(dunlin_builder *builder, dunlin_value input,
                                           int32_t block)
{
    dunlin_shape x;
    if (!image_of(builder, input, &x)) {
        return -1;
    }
    const int64_t b = block;
    if (b < 1 || b > UINT16_MAX || x.dims[1] % b != 0 || x.dims[2] % b != 0) {
        return dunlin__builder_refuse(builder, "a block must divide the image's height and width");
    }
    const dunlin_rearrangement to = {{5, {x.dims[0], x.dims[1] / b, b, x.dims[2] / b, b}},
                                     {0, 2, 4, 1, 3},
                                     {3, {x.dims[0] * b * b, x.dims[1] / b, x.dims[2] / b}}};
    return add_move(builder, "space_to_depth", input, &to);
}

dunlin_value dunlin_builder_depth_to_space(dunlin_builder *builder, dunlin_value input,
                                           int32_t block)
{
    dunlin_shape x;
    if (!image_of(builder, input, &x)) {
        return -1;
    }
    const int64_t b = block;
    if (b < 1 || b > UINT16_MAX || x.dims[0] % (b * b) != 0) {
        return dunlin__builder_refuse(builder, "a block's pixels must divide the channels");
    }
    const int64_t c = x.dims[0] / b / b;
    const dunlin_rearrangement to = {{5, {c, b, b, x.dims[1], x.dims[2]}},
                                     {0, 3, 1, 4, 2},
                                     {3, {c, x.dims[1] * b, x.dims[2] * b}}};
    return add_move(builder, "depth_to_space", input, &to);
}

dunlin_value dunlin_builder_reduce(dunlin_builder *builder, dunlin_value input,
                                   dunlin_reduction reduction, int32_t axis)
{
    if ((unsigned)reduction > DUNLIN_REDUCTION_LOG_SUM_EXP) {
        return dunlin__builder_refuse(builder, "no such reduction");
    }
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_REDUCE, NULL, "reduce", &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.reduce.fn = (dunlin_reduce_fn)reduction;
    node->u.reduce.axes = axis >= 0 && axis < DUNLIN_MAX_DIMS ? 1U << axis : 0;
    node->u.reduce.keeps_dims = true;
    return dunlin__builder_end(builder);
}
