/*
 * test_signals.c - signals (channels, length) through the operators of images: values and gradients
 * against the double-precision reference, bits over slices.
 */
#include "check_net.h"
#include "one_net.h"
#include "random.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

TestSuite(signals, .init = open_net, .fini = close_net);

/* Ends the network with a dense layer of everything, and holds it to the reference; bits too where
 * no batch norm needs all examples. */
static void check_end(uint32_t x, bool has_batch_norm, uint64_t seed)
{
    end(x);
    cr_assert(check_net(&net, &(check_options){.n = 3, .seed = test_seed(seed), .n_probes = 25}));
    if (!has_batch_norm) {
        check_same_bits(&net, seed);
    }
    reopen();
}

Test(signals, convolutions)
{
    static const dunlin_net_conv cases[] = {
        {.kernel_w = 1},
        {.kernel_w = 3, .pad_left = 1, .pad_right = 1},
        {.kernel_w = 5, .stride_w = 2, .pad_left = 2, .pad_right = 1},
        {.kernel_w = 3, .dilation_w = 4, .pad_left = 8},
        {.kernel_w = 3, .groups = 2},
        {.kernel_w = 4, .groups = 4, .pad_right = 3},
        {.kernel_w = 13},
    };
    for (uint64_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t x = make_signal(&net, 2, 17);
        x = make_conv(&net, x, 4, &(dunlin_net_conv){.kernel_w = 3}, true);
        check_end(make_conv(&net, x, 4, &cases[i], i % 2 == 0), false, 400 + i);
    }
}

Test(signals, pooling)
{
    static const struct {
        dunlin_op_kind kind;
        dunlin_net_pool pool;
    } cases[] = {
        {DUNLIN_OP_MAX_POOL, {.kernel_h = 1, .kernel_w = 2, .stride_h = 1, .stride_w = 2}},
        {DUNLIN_OP_MAX_POOL,
         {.kernel_h = 1, .kernel_w = 3, .stride_h = 1, .stride_w = 2, .pad_left = 1}},
        {DUNLIN_OP_AVERAGE_POOL,
         {.kernel_h = 1, .kernel_w = 4, .stride_h = 1, .stride_w = 3, .is_ceil = true}},
        {DUNLIN_OP_AVERAGE_POOL,
         {.kernel_h = 1,
          .kernel_w = 3,
          .stride_h = 1,
          .stride_w = 1,
          .pad_left = 1,
          .pad_right = 1,
          .counts_padding = true}},
    };
    for (uint64_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t x = make_signal(&net, 2, 15);
        x = make_conv(&net, x, 5, &(dunlin_net_conv){.kernel_w = 3}, true);
        check_end(make_pool(&net, x, cases[i].kind, &cases[i].pool), false, 420 + i);
    }
}

Test(signals, a_network_of_them)
{
    const dunlin_net_conv same = {.kernel_w = 3, .pad_left = 1, .pad_right = 1};
    const uint32_t x = make_signal(&net, 3, 12);
    const uint32_t first =
        make_clip(&net, make_batch_norm(&net, make_conv(&net, x, 4, &same, false)), 0.0F, 6.0F);
    const uint32_t second = make_group_norm(&net, make_conv(&net, first, 4, &same, true), 2);
    const uint32_t sum = make_add(&net, first, second);
    const uint32_t both = make_concat(&net, (uint32_t[]){sum, first}, 2);
    check_end(make_global_pool(&net, both), true, 440);
}

/* Row-major (C, L) and stored (L, C) are told apart: a flattened signal is in the file's order. */
Test(signals, are_rearranged_where_rows_are_wanted)
{
    uint32_t x = make_signal(&net, 2, 6);
    x = make_conv(&net, x, 3, &(dunlin_net_conv){.kernel_w = 2}, true);
    const dunlin_shape *shape = &net.values[x].shape;
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_REARRANGE, &x, 1);
    node->u.rearrange.to = (dunlin_rearrangement){{2, {3, 5}}, {0, 1}, {2, {3, 5}}};
    cr_assert(shape->n_dims == 2 && shape->dims[0] == 3 && shape->dims[1] == 5);
    /* A dense layer over the length. */
    x = make_dense(&net, finish(), 4, true);
    cr_assert_eq(net.values[x].layout, DUNLIN_LAYOUT_PLAIN);
    check_end(x, false, 450);
}

static uint32_t pad(uint32_t x, int32_t axis, int64_t before, int64_t after, dunlin_pad_mode mode)
{
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_PAD, &x, 1);
    node->u.pad.axis = axis;
    node->u.pad.before = before;
    node->u.pad.after = after;
    node->u.pad.mode = mode;
    node->u.pad.value = mode == DUNLIN_PAD_CONSTANT ? 0.25F : 0.0F;
    return finish();
}

/* Each mode along each dimension of signals and images. */
Test(signals, padding)
{
    static const dunlin_pad_mode modes[] = {DUNLIN_PAD_CONSTANT, DUNLIN_PAD_REFLECT,
                                            DUNLIN_PAD_EDGE};
    for (uint64_t m = 0; m < 3; m++) {
        uint32_t x = make_signal(&net, 2, 7);
        x = make_conv(&net, x, 4, &(dunlin_net_conv){.kernel_w = 3}, true);
        x = pad(pad(x, 1, 4, 2, modes[m]), 0, 1, 0, modes[m]);
        check_end(make_conv(&net, x, 3, &(dunlin_net_conv){.kernel_w = 3}, true), false, 500 + m);
        x = make_input(&net, 2, 5, 6);
        x = make_conv(&net, x, 3, &(dunlin_net_conv){.kernel_h = 2, .kernel_w = 2}, true);
        x = pad(pad(pad(x, 2, 1, 3, modes[m]), 1, 2, 1, modes[m]), 0, 0, 2, modes[m]);
        check_end(make_conv(&net, x, 2, &(dunlin_net_conv){.kernel_h = 3, .kernel_w = 3}, false),
                  false, 510 + m);
    }
}

/* No more is mirrored than there is. */
Test(signals, padding_refused)
{
    const uint32_t x = make_signal(&net, 2, 5);
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_PAD, &x, 1);
    node->u.pad.axis = 1;
    node->u.pad.before = 5;
    node->u.pad.mode = DUNLIN_PAD_REFLECT;
    expect_refusal("puts 5 before and 0 after dimension 1 of (2, 5); 0 to 4");
}
