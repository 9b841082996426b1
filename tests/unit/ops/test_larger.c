/*
 * test_larger.c - operators that make images and signals larger: values and gradients against the
 * double-precision reference, bits over slices, what is refused.
 */
#include "check_net.h"
#include "one_net.h"
#include "random.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

#include <math.h>

TestSuite(larger, .init = open_net, .fini = close_net);

/* Behind it a convolution, so that what it hands on is read, and its gradient made. */
static void check_end(uint32_t x, uint64_t seed)
{
    x = make_conv(&net, x, 2, &(dunlin_net_conv){.kernel_w = 2}, true);
    end(x);
    check(seed);
    reopen();
}

Test(larger, transposed_convolutions)
{
    static const struct {
        int32_t in_channels, out_channels;
        bool has_bias;
        dunlin_net_conv conv;
    } cases[] = {
        {3, 4, true, {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2}},
        {2, 3, false, {.kernel_h = 3, .kernel_w = 3}},
        {1, 1, true, {.kernel_h = 1, .kernel_w = 1, .stride_h = 3, .stride_w = 2}},
        {4,
         2,
         true,
         {.kernel_h = 3,
          .kernel_w = 3,
          .stride_h = 2,
          .stride_w = 2,
          .pad_top = 1,
          .pad_left = 1,
          .pad_bottom = 1,
          .pad_right = 1,
          .extra_h = 1,
          .extra_w = 1}},
        {4, 6, true, {.kernel_h = 4, .kernel_w = 2, .stride_h = 2, .stride_w = 1, .groups = 2}},
        {5,
         5,
         true,
         {.kernel_h = 4, .kernel_w = 4, .stride_h = 2, .stride_w = 2, .pad_top = 1, .groups = 5}},
        {2,
         3,
         true,
         {.kernel_h = 2, .kernel_w = 3, .dilation_h = 3, .dilation_w = 2, .extra_h = 2}},
        {3,
         2,
         false,
         {.kernel_h = 2,
          .kernel_w = 2,
          .stride_h = 4,
          .stride_w = 5,
          .pad_right = 2,
          .extra_h = 3,
          .extra_w = 2}},
        {17, 20, true, {.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_top = 1}},
    };
    for (uint64_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint32_t x = begin_image(cases[i].in_channels, 3, 4);
        check_end(
            make_conv_transposed(&net, x, cases[i].out_channels, &cases[i].conv, cases[i].has_bias),
            900 + i);
    }
}

Test(larger, transposed_convolutions_of_signals)
{
    static const dunlin_net_conv cases[] = {
        {.kernel_w = 4, .stride_w = 4},
        {.kernel_w = 3, .stride_w = 2, .pad_left = 1, .pad_right = 1, .extra_w = 1},
        {.kernel_w = 2, .dilation_w = 3, .groups = 2},
    };
    for (uint64_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t x = make_signal(&net, 2, 7);
        x = make_conv(&net, x, 4, &(dunlin_net_conv){.kernel_w = 3}, true);
        check_end(make_conv_transposed(&net, x, 6, &cases[i], i != 1), 920 + i);
    }
}

/* Up, down, and along one axis alone, for every rule of places. */
Test(larger, resized)
{
    static const int32_t sizes[][2] = {{6, 8}, {7, 5}, {3, 9}, {2, 3}, {1, 1}, {11, 4}};
    uint64_t seed = 940;
    for (int32_t rule = 0; rule < 4; rule++) {
        for (uint64_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            const dunlin_net_resize how = {.out_h = sizes[i][0],
                                           .out_w = sizes[i][1],
                                           .is_linear = i % 2 == 0 || rule == 1,
                                           .coordinates = (dunlin_resize_coordinates)rule,
                                           .rounding =
                                               (dunlin_resize_rounding)((rule + (int32_t)i) % 4)};
            const uint32_t x = make_resize(&net, begin_image(1 + (int32_t)i * 3, 3, 4), &how);
            end(x);
            check(seed++);
            reopen();
        }
    }
}

/* A factor that leaves a part over: the place is that of the factor, not of the sizes. */
Test(larger, resized_by_factors)
{
    for (uint64_t i = 0; i < 4; i++) {
        const dunlin_net_resize how = {.out_h = 7,
                                       .out_w = 4,
                                       .factor_h = 1.5F,
                                       .factor_w = 0.7F,
                                       .is_linear = i < 2,
                                       .coordinates = i % 2 == 0 ? DUNLIN_RESIZE_HALF_PIXEL
                                                                 : DUNLIN_RESIZE_ASYMMETRIC,
                                       .rounding = DUNLIN_RESIZE_FLOOR};
        check_end(make_resize(&net, begin_image(3, 5, 6), &how), 970 + i);
    }
}

Test(larger, resized_signals)
{
    for (uint64_t i = 0; i < 2; i++) {
        uint32_t x = make_signal(&net, 2, 9);
        x = make_conv(&net, x, 5, &(dunlin_net_conv){.kernel_w = 3}, true);
        check_end(make_resize(&net, x,
                              &(dunlin_net_resize){
                                  .out_h = 1, .out_w = i == 0 ? 14 : 4, .is_linear = i == 0}),
                  980 + i);
    }
}

/* As a U-Net reads it: through a batch norm, beside what was there before. */
Test(larger, between_batch_norms)
{
    const dunlin_net_conv twice = {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2};
    const dunlin_net_pool half = {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2};
    const dunlin_net_resize back = {.out_h = 4, .out_w = 6, .is_linear = true};
    const uint32_t first = make_clip(&net, make_batch_norm(&net, begin_image(3, 4, 6)), 0.0F, 6.0F);
    const uint32_t low = make_pool(&net, first, DUNLIN_OP_MAX_POOL, &half);
    const uint32_t up = make_batch_norm(&net, make_conv_transposed(&net, low, 2, &twice, true));
    const uint32_t wide = make_resize(&net, low, &back);
    uint32_t x = make_concat(&net, (uint32_t[]){first, make_clip(&net, up, 0.0F, 6.0F), wide}, 3);
    x = make_conv(&net, x, 3, &(dunlin_net_conv){.kernel_h = 3, .kernel_w = 3}, true);
    end(make_batch_norm(&net, x));
    cr_assert(check_net(&net, &(check_options){.n = 4, .seed = test_seed(990), .n_probes = 25}));
}

/* A loss for each pixel, each sample of a signal, each token. */
Test(larger, rows_of_logits)
{
    const dunlin_net_conv twice = {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2};
    uint32_t x = make_clip(&net, begin_image(4, 3, 4), 0.0F, 6.0F);
    make_end(&net, make_conv_transposed(&net, x, 3, &twice, true));
    check(995);
    reopen();
    x = make_batch_norm(&net, begin_image(4, 3, 4));
    make_end(&net, make_conv(&net, x, 5, &(dunlin_net_conv){.kernel_h = 2}, true));
    cr_assert(check_net(&net, &(check_options){.n = 4, .seed = test_seed(996), .n_probes = 25}));
    reopen();
    x = make_signal(&net, 2, 6);
    x = make_conv(&net, x, 4, &(dunlin_net_conv){.kernel_w = 3}, true);
    make_end(&net, make_conv(&net, x, 3, &(dunlin_net_conv){.kernel_w = 1}, true));
    check(997);
    reopen();
    const dunlin_shape tokens = {2, {3, 4}};
    make_end(&net, make_dense(&net, begin_values(&tokens), 5, true));
    check(998);
}

Test(larger, refused)
{
    const dunlin_net_conv conv = {.out_channels = 4,
                                  .kernel_h = 2,
                                  .kernel_w = 2,
                                  .stride_h = 2,
                                  .stride_w = 2,
                                  .dilation_h = 1,
                                  .dilation_w = 1,
                                  .groups = 1};
    const dunlin_shape weight = {4, {3, 4, 2, 2}};
    const uint32_t x = make_input(&net, 3, 4, 4);
    for (int i = 0; i < 5; i++) {
        static const char *const texts[] = {"adds 2 at the end of the height, not 0 to 1",
                                            "would have a width of 0", "groups must divide 3",
                                            "must be (3, 2, 2, 2)", "adds -1 at the end"};
        dunlin_net_node *node = make_node(&net, DUNLIN_OP_CONV_TRANSPOSED, &x, 1);
        node->u.conv = conv;
        node->u.conv.extra_h = i == 0 ? 2 : 0;
        node->u.conv.pad_left = i == 1 ? 8 : 0;
        node->u.conv.groups = i == 2 ? 2 : 1;
        node->u.conv.out_channels = i == 3 ? 2 : 4;
        node->u.conv.extra_w = i == 4 ? -1 : 0;
        node->params[0] = make_param(&net, &weight, DUNLIN_PARAM_CONV, DUNLIN_PARAMETER_TRAINABLE);
        node->n_params = 1;
        expect_refusal(texts[i]);
    }
    for (int i = 0; i < 3; i++) {
        static const char *const texts[] = {"resizes to 0 x 4", "by nan and 0", "by -1 and 0"};
        dunlin_net_node *node = make_node(&net, DUNLIN_OP_RESIZE, &x, 1);
        node->u.resize = (dunlin_net_resize){.out_h = i == 0 ? 0 : 4,
                                             .out_w = 4,
                                             .factor_h = i == 1   ? NAN
                                                         : i == 2 ? -1.0F
                                                                  : 0.0F};
        expect_refusal(texts[i]);
    }
}
