/*
 * test_pools.c - pooling beyond square windows, normalisation across channels, extremes of two
 * values: values and gradients against the double-precision reference, bits over slices.
 */
#include "check_net.h"
#include "one_net.h"
#include "ops/conv/pool_shapes.h"
#include "random.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

TestSuite(pools, .init = open_net, .fini = close_net);

typedef struct pool_case {
    dunlin_op_kind kind;
    int64_t h, w;
    dunlin_net_pool pool;
} pool_case;

static void check_pools(const pool_case *cases, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t x = begin_image(5, cases[i].h, cases[i].w);
        end(make_pool(&net, x, cases[i].kind, &cases[i].pool));
        check(seed + i);
        reopen();
    }
}

Test(pools, taps_that_lie_apart)
{
    static const pool_case cases[] = {
        {DUNLIN_OP_MAX_POOL,
         7,
         6,
         {.kernel_h = 2, .kernel_w = 3, .stride_h = 1, .stride_w = 1, .dilation_h = 2}},
        {DUNLIN_OP_MAX_POOL,
         9,
         9,
         {.kernel_h = 3,
          .kernel_w = 3,
          .stride_h = 2,
          .stride_w = 2,
          .pad_top = 2,
          .pad_left = 1,
          .pad_bottom = 2,
          .pad_right = 1,
          .dilation_h = 2,
          .dilation_w = 2}},
        {DUNLIN_OP_MAX_POOL,
         9,
         8,
         {.kernel_h = 2,
          .kernel_w = 2,
          .stride_h = 3,
          .stride_w = 2,
          .is_ceil = true,
          .dilation_h = 3,
          .dilation_w = 2}},
        {DUNLIN_OP_AVERAGE_POOL,
         7,
         8,
         {.kernel_h = 2,
          .kernel_w = 3,
          .stride_h = 1,
          .stride_w = 2,
          .pad_left = 2,
          .counts_padding = true,
          .dilation_w = 3}},
    };
    check_pools(cases, sizeof cases / sizeof cases[0], 2000);
}

/* Padding of half a window and more; a last window that hangs over the edge, with what is counted
 * and what is not. */
Test(pools, padding_and_rounding_up)
{
    static const pool_case cases[] = {
        {DUNLIN_OP_AVERAGE_POOL, 5, 6, {3, 3, 2, 2, 2, 2, 2, 2, false, true, 0, 0, 0}},
        {DUNLIN_OP_AVERAGE_POOL, 5, 6, {3, 3, 2, 2, 2, 2, 2, 2, true, false, 0, 0, 0}},
        {DUNLIN_OP_AVERAGE_POOL, 6, 5, {4, 3, 3, 2, 2, 1, 2, 1, true, true, 0, 0, 0}},
        {DUNLIN_OP_AVERAGE_POOL, 5, 5, {2, 2, 3, 3, 1, 1, 1, 1, true, true, 0, 0, 0}},
        {DUNLIN_OP_MAX_POOL, 5, 5, {2, 2, 3, 3, 1, 1, 1, 1, true, false, 0, 0, 0}},
        {DUNLIN_OP_MAX_POOL, 6, 4, {4, 4, 1, 2, 3, 3, 3, 3, true, false, 0, 0, 0}},
    };
    check_pools(cases, sizeof cases / sizeof cases[0], 2020);
}

Test(pools, norms_of_windows)
{
    static const int32_t norms[] = {1, 2, 3, 7};
    for (size_t i = 0; i < 8; i++) {
        const dunlin_net_pool pool = {.kernel_h = 3,
                                      .kernel_w = 2,
                                      .stride_h = 2,
                                      .stride_w = 1 + (int32_t)i / 4,
                                      .pad_top = (int32_t)i / 4,
                                      .pad_right = (int32_t)i / 4,
                                      .p = norms[i % 4]};
        const uint32_t x = begin_image(5, 6, 5);
        end(make_pool(&net, x, DUNLIN_OP_LP_POOL, &pool));
        check(2040 + i);
        reopen();
    }
    uint32_t x = make_conv(&net, make_signal(&net, 2, 9), 3, &(dunlin_net_conv){0}, true);
    dunlin_net_pool whole = dunlin__op_global_window(&net.values[x].shape);
    whole.p = 2;
    end(make_pool(&net, x, DUNLIN_OP_LP_POOL, &whole));
    check(2050);
}

/* Windows of zeros, as after a ReLU, have no gradient and no number that is none. */
Test(pools, norms_of_nothing)
{
    for (int32_t p = 1; p < 4; p++) {
        const uint32_t first = begin_image(4, 5, 5);
        const uint32_t none = join(first, first, DUNLIN_BINARY_SUB);
        const dunlin_net_pool pool = {
            .kernel_h = 2, .kernel_w = 2, .stride_h = 1, .stride_w = 1, .p = p};
        const uint32_t y = make_pool(&net, none, DUNLIN_OP_LP_POOL, &pool);
        end(join(y, make_pool(&net, first, DUNLIN_OP_AVERAGE_POOL, &pool), DUNLIN_BINARY_ADD));
        check(2060 + (uint64_t)p);
        reopen();
    }
}

/* Parts in a row against the window that they stand for, in the reference's arithmetic. */
static void check_parts(int64_t h, int64_t w, const dunlin_net_pool *pool, int n_wanted)
{
    dunlin_net_pool parts[DUNLIN_MAX_POOL_PARTS];
    const dunlin_shape shape = h > 0 ? (dunlin_shape){3, {2, h, w}} : (dunlin_shape){2, {2, w}};
    const int n = dunlin__op_pool_parts(pool, &shape, parts);
    cr_assert_eq(n, n_wanted, "%d parts, not %d", n, n_wanted);
    const uint32_t x = h > 0 ? make_input(&net, 2, h, w) : make_signal(&net, 2, w);
    uint32_t y = make_conv(&net, x, 2, &(dunlin_net_conv){0}, true);
    for (int i = 0; i < n; i++) {
        cr_assert_leq(parts[i].kernel_h * parts[i].kernel_w, DUNLIN_MAX_POOL_AREA);
        y = make_pool(&net, y, DUNLIN_OP_MAX_POOL, &parts[i]);
    }
    end(y);
    check_data data;
    net_double parted;
    check_data_open(&data, &net, 2, 77);
    net_double_open(&parted, &net, 2, data.labels);
    for (int64_t i = 0; i < net.params[0].n_elements; i++) {
        parted.params[0][i] = (double)data.params[0][i];
    }
    for (int64_t i = 0; i < 2 * dunlin__value_elements(&net.values[x]); i++) {
        parted.values[x][i] = (double)data.x[i];
    }
    (void)net_double_loss(&parted);
    const uint32_t conv = net.nodes[0].output;
    const dunlin_shape *out = &net.values[y].shape;
    const int64_t out_h = h > 0 ? out->dims[1] : 1;
    const int64_t out_w = out->dims[out->n_dims - 1];
    for (int64_t i = 0; i < 2 * 2 * out_h * out_w; i++) {
        const int64_t plane = i / (out_h * out_w);
        const int64_t top = i / out_w % out_h * pool->stride_h - pool->pad_top;
        const int64_t left = i % out_w * pool->stride_w - pool->pad_left;
        const int64_t rows = h > 0 ? h : 1;
        double largest = -1e300;
        for (int64_t at = 0; at < rows * w; at++) {
            const int64_t r = at / w - top;
            const int64_t c = at % w - left;
            const bool is_in = r >= 0 && r < pool->kernel_h && c >= 0 && c < pool->kernel_w;
            const double v = parted.values[conv][plane * rows * w + at];
            largest = is_in && v > largest ? v : largest;
        }
        cr_assert_eq(parted.values[y][i], largest);
    }
    net_double_close(&parted);
    check_data_close(&data);
    reopen();
}

Test(pools, windows_of_many_pixels_in_parts)
{
    dunlin_net_pool pool = {.kernel_h = 17,
                            .kernel_w = 17,
                            .stride_h = 3,
                            .stride_w = 2,
                            .pad_top = 4,
                            .pad_left = 2,
                            .pad_bottom = 3};
    check_parts(20, 21, &pool, 2);
    pool.is_ceil = true;
    check_parts(20, 20, &pool, 2);
    pool = dunlin__op_global_window(&(dunlin_shape){3, {2, 3, 300}});
    check_parts(3, 300, &pool, 3);
    pool = dunlin__op_global_window(&(dunlin_shape){2, {2, 1021}});
    check_parts(0, 1021, &pool, 2);
    pool = (dunlin_net_pool){.kernel_h = 1, .kernel_w = 300, .stride_h = 1, .stride_w = 1};
    dunlin_net_pool parts[DUNLIN_MAX_POOL_PARTS];
    cr_assert_eq(dunlin__op_pool_parts(&pool, &(dunlin_shape){2, {2, 400}}, parts), 0);
}

/* A window in parts gives its gradient to the first of those that tie. */
Test(pools, parts_train)
{
    uint32_t x = begin_image(3, 18, 17);
    const dunlin_net_pool whole = dunlin__op_global_window(&net.values[x].shape);
    dunlin_net_pool parts[DUNLIN_MAX_POOL_PARTS];
    const int n = dunlin__op_pool_parts(&whole, &net.values[x].shape, parts);
    for (int i = 0; i < n; i++) {
        x = make_pool(&net, x, DUNLIN_OP_MAX_POOL, &parts[i]);
    }
    end(x);
    check(2080);
}

static uint32_t clipped_conv(uint32_t x, int32_t channels, float low, float high)
{
    return make_clip(&net, make_conv(&net, x, channels, &(dunlin_net_conv){.groups = 1}, true), low,
                     high);
}

/* Behind an activation a global average masks the gradient itself, by a bit an element: of a
 * convolution, whole groups of channels and parts of them; of a residual sum whose batch norm takes
 * its sums of that gradient; of a concatenation; and not where another one reads it, too. */
Test(pools, global_averages_of_activations)
{
    static const int32_t channels[] = {1, 5, 9, 16, 21, 40};
    for (uint64_t i = 0; i < sizeof channels / sizeof channels[0]; i++) {
        const bool is_both = i % 2 == 1;
        const uint32_t x = make_input(&net, 2, 4, 3);
        end(make_global_pool(&net, clipped_conv(x, channels[i], is_both ? -0.25F : 0.0F,
                                                is_both ? 0.5F : HUGE_VALF)));
        check(2140 + i);
        reopen();
    }
    end(make_global_pool(&net, clipped_conv(make_signal(&net, 2, 9), 6, 0.0F, HUGE_VALF)));
    check(2150);
    reopen();
    uint32_t x = begin_image(18, 4, 4);
    const uint32_t normed =
        make_batch_norm(&net, make_conv(&net, x, 18, &(dunlin_net_conv){.groups = 1}, false));
    end(make_global_pool(&net, make_clip(&net, make_add(&net, normed, x), 0.0F, HUGE_VALF)));
    const check_options options = {.n = 4, .seed = test_seed(2151), .n_probes = 25};
    cr_assert(check_net(&net, &options)); /* a barrier, so no slices */
    reopen();
    x = make_input(&net, 2, 4, 4);
    const uint32_t parts[] = {clipped_conv(x, 3, 0.0F, HUGE_VALF),
                              clipped_conv(x, 14, 0.0F, HUGE_VALF)};
    end(make_global_pool(&net, make_concat(&net, parts, 2)));
    check(2152);
    reopen();
    x = clipped_conv(make_input(&net, 2, 3, 3), 4, 0.0F, HUGE_VALF);
    end(join(make_global_pool(&net, x), x, DUNLIN_BINARY_MUL));
    check(2153);
}

static uint32_t response_norm(uint32_t x, int32_t size, float alpha, float beta, float bias)
{
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_RESPONSE_NORM, &x, 1);
    node->u.response_norm.size = size;
    node->u.response_norm.alpha = alpha;
    node->u.response_norm.beta = beta;
    node->u.response_norm.bias = bias;
    return net.nodes[net.n_nodes - 1].output;
}

Test(pools, normalised_across_channels)
{
    static const struct {
        int32_t channels, size;
        float alpha, beta, bias;
    } cases[] = {{6, 5, 1.5F, 0.75F, 1.0F}, {6, 4, 1.5F, 0.75F, 2.0F}, {3, 9, 2.0F, 1.0F, 0.5F},
                 {70, 3, 1.0F, 0.3F, 1.0F}, {1, 1, 1.0F, 0.5F, 1.0F},  {300, 6, 3.0F, 2.0F, 1.0F}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)response_norm(begin_image(cases[i].channels, 3, 2), cases[i].size, cases[i].alpha,
                            cases[i].beta, cases[i].bias);
        end(finish());
        check(2100 + i);
        reopen();
    }
    (void)response_norm(make_conv(&net, make_signal(&net, 2, 7), 5, &(dunlin_net_conv){0}, true), 3,
                        1.0F, 0.75F, 1.0F);
    end(finish());
    check(2110);
}

/* The same value on both sides: each has half of the gradient. */
Test(pools, extremes_of_a_value_and_itself)
{
    for (int fn = DUNLIN_BINARY_MAX; fn <= DUNLIN_BINARY_MIN; fn++) {
        const uint32_t x = begin_values(&(dunlin_shape){2, {3, 7}});
        end(join(x, x, (dunlin_binary_fn)fn));
        check(2120 + (uint64_t)fn);
        reopen();
    }
}

Test(pools, what_does_not_fit_is_refused)
{
    const uint32_t x = begin_image(4, 20, 20);
    make_node(&net, DUNLIN_OP_MAX_POOL, &x, 1)->u.pool =
        (dunlin_net_pool){.kernel_h = 16, .kernel_w = 16, .stride_h = 1, .stride_w = 1};
    expect_refusal("has more than 255 pixels");
    dunlin_net_node *node = make_node(&net, DUNLIN_OP_MAX_POOL, &x, 1);
    node->u.pool = (dunlin_net_pool){
        .kernel_h = 2, .kernel_w = 2, .stride_h = 1, .stride_w = 1, .pad_top = 5, .dilation_h = 4};
    expect_refusal("smaller than the window of 5x2");
    node->u.pool = (dunlin_net_pool){.kernel_h = 2, .kernel_w = 2, .stride_h = 1, .stride_w = 1};
    node->kind = DUNLIN_OP_LP_POOL;
    expect_refusal("p = 0, not 1 to 64");
    (void)response_norm(x, 0, 1.0F, 1.0F, 1.0F);
    expect_refusal("over 0 channels, not 1 to 255");
    (void)response_norm(x, 3, 1.0F, (float)1e39, 1.0F);
    expect_refusal("must be finite");
    (void)response_norm(begin_values(&(dunlin_shape){1, {5}}), 3, 1.0F, 1.0F, 1.0F);
    expect_refusal("needs an image");
}
