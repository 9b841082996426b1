/*
 * net_random.c - see net_random.h.
 */
#include "net_random.h"

#include "random.h"
#include "step/net_make.h"

static bool is_image(const dunlin_net *net, uint32_t value)
{
    return net->values[value].layout == DUNLIN_LAYOUT_IMAGE;
}

/* What the view of a batch norm can compute. */
static uint32_t activate(dunlin_net *net, uint32_t x, int32_t which)
{
    return which == 0   ? make_clip(net, x, 0.0F, 6.0F)
           : which == 1 ? make_function(net, x, DUNLIN_UNARY_HARD_SWISH)
                        : make_function(net, x, DUNLIN_UNARY_SILU);
}

/* What a dense block or a residual block does: all earlier outputs side by side, or their sum. */
static uint32_t grow_block(dunlin_net *net, uint64_t *state, uint32_t x)
{
    uint32_t values[4] = {x};
    const bool is_dense = test_random_below(state, 2) == 0;
    const int32_t channels = (int32_t)net->values[x].shape.dims[0];
    const uint32_t n = 2 + (uint32_t)test_random_below(state, 3);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t end = is_dense ? make_concat(net, values, i) : values[i - 1];
        if (test_random_below(state, 3) > 0) {
            end = make_batch_norm(net, end);
            end = activate(net, end, (int32_t)test_random_below(state, 3));
        }
        end = make_conv(net, end, is_dense ? 2 : channels, &(dunlin_net_conv){0}, i == 2);
        if (!is_dense) {
            end = make_add(net, test_random_below(state, 2) == 0 ? end : make_batch_norm(net, end),
                           values[i - 1]);
        }
        values[i] = test_random_below(state, 2) == 0 ? end : make_clip(net, end, 0.0F, 6.0F);
    }
    return is_dense ? make_concat(net, values, n) : values[n - 1];
}

/* More pixels, by a transposed convolution or between those that are there. */
static uint32_t grow_larger(dunlin_net *net, uint64_t *state, uint32_t x, bool is_transposed)
{
    const dunlin_shape *shape = &net->values[x].shape;
    const int32_t k = 1 + (int32_t)test_random_below(state, 3);
    if (is_transposed) {
        const dunlin_net_conv conv = {.kernel_h = k,
                                      .kernel_w = 1 + k % 3,
                                      .stride_h = 2,
                                      .stride_w = 1 + k % 2,
                                      .pad_top = k == 3,
                                      .pad_right = k == 1,
                                      .extra_h = k == 2};
        return make_conv_transposed(net, x, 1 + (int32_t)test_random_below(state, 5), &conv,
                                    k != 2);
    }
    const dunlin_net_resize how = {
        .out_h = 1 + (int32_t)shape->dims[1] + k,
        .out_w = (int32_t)shape->dims[2] * 2 - k,
        .is_linear = k != 1,
        .coordinates = (dunlin_resize_coordinates)test_random_below(state, 4),
        .rounding = (dunlin_resize_rounding)test_random_below(state, 4),
    };
    return how.out_w < 1 ? x : make_resize(net, x, &how);
}

/* Adds a random operator to a random earlier value. */
static uint32_t grow(dunlin_net *net, uint64_t *state, uint32_t last)
{
    uint32_t x = test_random_below(state, 3) > 0
                     ? last
                     : (uint32_t)(1 + test_random_below(state, net->n_values - 1));
    const dunlin_shape *shape = &net->values[x].shape;
    int32_t k = 1 + (int32_t)test_random_below(state, 3);
    if (!is_image(net, x)) {
        switch (test_random_below(state, 4)) {
        case 0:
            return make_clip(net, x, 0.0F, 6.0F);
        case 1:
            return make_concat(net, (uint32_t[]){x, x}, 2);
        case 2:
            return make_batch_norm(net, x);
        default:
            return make_dense(net, x, 1 + (int64_t)test_random_below(state, 9), true);
        }
    }
    bool is_small = shape->dims[1] < 4 || shape->dims[2] < 4;
    const bool is_large = shape->dims[1] > 12 || shape->dims[2] > 12;
    const uint64_t n_kinds = is_small ? 7 : 10;
    const uint64_t kind = test_random_below(state, is_large ? n_kinds : n_kinds + 2);
    if (kind >= n_kinds) {
        return grow_larger(net, state, x, kind == n_kinds);
    }
    switch (kind) {
    case 0:
        return make_clip(net, x, 0.0F, 6.0F);
    case 1:
        return k == 1 ? make_group_norm(net, x, shape->dims[0] % 2 == 0 ? 2 : 1)
                      : make_batch_norm(net, x);
    case 2:
        return make_add(net, x,
                        make_conv(net, x, (int32_t)shape->dims[0],
                                  &(dunlin_net_conv){.groups = (int32_t)shape->dims[0]}, true));
    case 3:
        return make_concat(net, (uint32_t[]){x, x}, 2);
    case 4:
        return make_dropout(net, x, 0.25F);
    case 5:
        return make_flatten(net, x);
    case 6:
        return grow_block(net, state, x);
    case 7:
        return make_pool(
            net, x, DUNLIN_OP_MAX_POOL,
            &(dunlin_net_pool){
                .kernel_h = 2, .kernel_w = 3, .stride_h = 2, .stride_w = 1, .is_ceil = k == 1});
    case 8:
        return make_pool(net, x, DUNLIN_OP_AVERAGE_POOL,
                         &(dunlin_net_pool){.kernel_h = 3,
                                            .kernel_w = 2,
                                            .stride_h = 2,
                                            .stride_w = 2,
                                            .pad_top = 1,
                                            .counts_padding = k == 1});
    default:
        return make_conv(net, x, 1 + (int32_t)test_random_below(state, 6),
                         &(dunlin_net_conv){.kernel_h = k,
                                            .kernel_w = k,
                                            .stride_h = 1 + k % 2,
                                            .stride_w = 1,
                                            .pad_top = k / 2,
                                            .pad_left = k - 1},
                         k != 2);
    }
}

void make_random(dunlin_net *net, uint64_t seed)
{
    uint64_t state = seed;
    int n_nodes = 3 + (int)test_random_below(&state, 8);
    uint32_t x = make_input(net, 2, 4 + (int64_t)test_random_below(&state, 5),
                            4 + (int64_t)test_random_below(&state, 5));
    x = make_conv(net, x, 1 + (int32_t)test_random_below(&state, 4), &(dunlin_net_conv){0}, true);
    for (int i = 0; i < n_nodes; i++) {
        x = grow(net, &state, x);
    }
    if (is_image(net, x)) {
        x = make_flatten(net, x);
    }
    make_end(net, make_dense(net, x, 2 + (int64_t)test_random_below(&state, 4), true));
}

bool has_batch_norm(const dunlin_net *net)
{
    for (size_t i = 0; i < net->n_nodes; i++) {
        if (net->nodes[i].kind == DUNLIN_OP_BATCH_NORM) {
            return true;
        }
    }
    return false;
}
