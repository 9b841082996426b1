/*
 * test_gradients.c - every operator in a small network: values, gradients of values, weights and
 * biases, running statistics; odd sizes, fan-out, frozen parameters; slices and recomputed maps.
 */
#include "check_net.h"
#include "net_random.h"
#include "random.h"
#include "step/net_make.h"

#include <criterion/criterion.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static dunlin_net net;

static void open_net(void)
{
    dunlin__net_init(&net, NULL);
}

static void close_net(void)
{
    dunlin__net_free(&net);
}

TestSuite(gradients, .init = open_net, .fini = close_net);

/* A first 1x1 convolution, so that what follows needs the gradient of its input. */
static uint32_t begin_image(int64_t c, int64_t h, int64_t w)
{
    uint32_t x = make_input(&net, 2, h, w);
    return make_conv(&net, x, (int32_t)c, &(dunlin_net_conv){0}, true);
}

static void end_image(uint32_t x, int64_t classes)
{
    make_end(&net, make_dense(&net, make_flatten(&net, x), classes, true));
}

static void expect_net(const check_options *options)
{
    cr_assert(check_net(&net, options), "ill-conditioned");
}

static void check(int64_t n, uint64_t seed)
{
    expect_net(&(check_options){.n = n, .seed = test_seed(seed), .n_probes = 60});
}

Test(gradients, convolutions_of_all_kinds)
{
    static const struct {
        int64_t in_c, h, w;
        int32_t out_c;
        bool has_bias;
        dunlin_net_conv conv;
    } cases[] = {
        {3, 7, 5, 5, true, {.kernel_h = 3, .kernel_w = 3}},
        {1, 6, 7, 3, false, {.kernel_h = 5, .kernel_w = 1, .pad_top = 2, .pad_bottom = 1}},
        {4,
         9,
         8,
         7,
         true,
         {.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 3, .pad_top = 1, .pad_left = 2}},
        {3,
         9,
         9,
         2,
         true,
         {.kernel_h = 3,
          .kernel_w = 2,
          .dilation_h = 2,
          .dilation_w = 3,
          .pad_left = 1,
          .pad_right = 2}},
        {6, 5, 5, 4, true, {.kernel_h = 3, .kernel_w = 3, .groups = 2, .pad_right = 1}},
        {5,
         6,
         6,
         5,
         true,
         {.kernel_h = 3,
          .kernel_w = 3,
          .groups = 5,
          .pad_top = 1,
          .pad_left = 1,
          .pad_bottom = 1,
          .pad_right = 1,
          .stride_h = 2,
          .stride_w = 2}},
        {3, 5, 4, 6, false, {.kernel_h = 2, .kernel_w = 2, .groups = 3}},
        {17, 3, 3, 9, true, {.kernel_h = 1, .kernel_w = 1}},
        {2, 10, 9, 3, true, {.kernel_h = 7, .kernel_w = 7, .pad_top = 3, .pad_left = 3}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t x = begin_image(cases[i].in_c, cases[i].h, cases[i].w);
        x = make_conv(&net, x, cases[i].out_c, &cases[i].conv, cases[i].has_bias);
        end_image(x, 3);
        check(3, 100 + i);
        close_net();
        open_net();
    }
}

Test(gradients, dense_layers)
{
    uint32_t x = make_input(&net, 7, 0, 0);
    x = make_dense(&net, x, 5, true);
    x = make_dense(&net, x, 19, false);
    make_end(&net, make_dense(&net, x, 3, true));
    check(5, 1);
}

Test(gradients, batch_norm_of_images_and_rows)
{
    uint32_t x = begin_image(5, 4, 3);
    x = make_batch_norm(&net, x);
    x = make_conv(&net, x, 3, &(dunlin_net_conv){.kernel_h = 2, .kernel_w = 2}, false);
    x = make_batch_norm(&net, x);
    x = make_dense(&net, make_flatten(&net, x), 6, true);
    x = make_batch_norm(&net, x);
    make_end(&net, make_dense(&net, x, 4, true));
    check(7, 2);
}

Test(gradients, group_norm)
{
    static const struct {
        int64_t channels, h, w;
        int32_t groups;
    } cases[] = {{6, 4, 3, 2}, {5, 3, 3, 1}, {18, 2, 2, 18}, {12, 1, 5, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t x = begin_image(cases[i].channels, cases[i].h, cases[i].w);
        x = make_group_norm(&net, x, cases[i].groups);
        x = make_clip(&net, x, -1.0F, HUGE_VALF);
        end_image(make_group_norm(&net, x, 1), 4);
        check(3, 20 + i);
        if (i == 0) { /* each parameter fixed alone; then all of the first norm and before it */
            expect_net(&(check_options){.n = 3, .seed = 31, .frozen_prefixes = "param2"});
            expect_net(&(check_options){.n = 3, .seed = 32, .frozen_prefixes = "param3,param4"});
            expect_net(&(check_options){
                .n = 3, .seed = 33, .frozen_prefixes = "param0,param1,param2,param3"});
            expect_net(&(check_options){.n = 3, .seed = 34, .frozen_prefixes = "param0,param1"});
        }
        close_net();
        open_net();
    }
}

Test(gradients, batch_norm_frozen)
{
    uint32_t x = begin_image(5, 4, 3);
    x = make_batch_norm(&net, x);
    x = make_clip(&net, x, 0.0F, HUGE_VALF);
    end_image(make_batch_norm(&net, x), 4);
    expect_net(&(check_options){.n = 4, .seed = 3, .freeze_batch_norm = true});
    /* gamma and beta of the first one fixed too: a plain map alone */
    expect_net(&(check_options){
        .n = 4, .seed = 4, .freeze_batch_norm = true, .frozen_prefixes = "param2,param3"});
}

Test(gradients, batch_norm_trains_gamma_or_beta_alone)
{
    uint32_t x = begin_image(3, 4, 3);
    end_image(make_batch_norm(&net, x), 4);
    expect_net(&(check_options){.n = 3, .seed = 5, .frozen_prefixes = "param2"});
    expect_net(&(check_options){.n = 3, .seed = 6, .frozen_prefixes = "param3"});
    expect_net(&(check_options){.n = 3, .seed = 7, .frozen_prefixes = "param2,param3"});
    /* nothing before it is trained: no gradient of its input */
    expect_net(&(check_options){.n = 3, .seed = 8, .frozen_prefixes = "param0,param1"});
}

Test(gradients, batch_norm_of_one_row_stays_finite)
{
    uint32_t x = make_dense(&net, make_input(&net, 4, 0, 0), 3, true);
    make_end(&net, make_dense(&net, make_batch_norm(&net, x), 2, true));
    check_data data;
    plain_run plain;
    double loss = 0.0;
    check_data_open(&data, &net, 1, 5);
    dunlin_step_build_options build = {.mode = DUNLIN_EMIT_TRAIN};
    cr_assert(plain_run_open(&plain, &net, &build, 1, NULL) == DUNLIN_OK);
    check_data_step(&data, &plain, dunlin__kernels_select(NULL), &loss);
    float running[3];
    plain_run_get_param(&plain, 5, running); /* the variance of one row is 0 */
    cr_assert(isfinite(loss));
    for (int i = 0; i < 3; i++) {
        cr_assert(fabs((double)running[i] - 0.9 * (double)data.params[5][i]) < 1e-6);
    }
    plain_run_close(&plain);
    check_data_close(&data);
}

Test(gradients, clips)
{
    uint32_t x = begin_image(5, 4, 3);
    x = make_clip(&net, x, 0.0F, HUGE_VALF);
    x = make_conv(&net, x, 4, &(dunlin_net_conv){0}, true);
    x = make_clip(&net, x, 0.0F, 0.5F);
    x = make_conv(&net, x, 4, &(dunlin_net_conv){0}, true);
    x = make_clip(&net, x, -HUGE_VALF, 0.25F);
    x = make_conv(&net, x, 4, &(dunlin_net_conv){0}, true);
    x = make_clip(&net, x, -0.125F, 0.125F);
    end_image(x, 3);
    check(3, 9);
}

Test(gradients, pooling_of_all_kinds)
{
    static const struct {
        dunlin_op_kind kind;
        int64_t h, w;
        dunlin_net_pool pool;
    } cases[] = {
        {DUNLIN_OP_MAX_POOL, 6, 6, {2, 2, 2, 2, 0, 0, 0, 0, false, false, 0, 0, 0}},
        {DUNLIN_OP_MAX_POOL, 7, 5, {3, 3, 2, 2, 1, 1, 1, 1, false, false, 0, 0, 0}},
        {DUNLIN_OP_MAX_POOL, 6, 7, {3, 2, 2, 3, 1, 0, 0, 1, true, false, 0, 0, 0}},
        {DUNLIN_OP_MAX_POOL, 5, 5, {3, 3, 1, 1, 2, 2, 2, 2, false, false, 0, 0, 0}},
        {DUNLIN_OP_AVERAGE_POOL, 6, 6, {2, 2, 2, 2, 0, 0, 0, 0, false, false, 0, 0, 0}},
        {DUNLIN_OP_AVERAGE_POOL, 7, 5, {3, 3, 2, 2, 1, 1, 1, 1, false, true, 0, 0, 0}},
        {DUNLIN_OP_AVERAGE_POOL, 7, 5, {3, 3, 2, 2, 1, 1, 1, 1, false, false, 0, 0, 0}},
        {DUNLIN_OP_AVERAGE_POOL, 6, 6, {3, 3, 2, 2, 0, 1, 1, 0, true, true, 0, 0, 0}},
        {DUNLIN_OP_AVERAGE_POOL, 6, 6, {3, 3, 2, 2, 0, 1, 0, 0, true, false, 0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t x = begin_image(5, cases[i].h, cases[i].w);
        end_image(make_pool(&net, x, cases[i].kind, &cases[i].pool), 3);
        check(3, 200 + i);
        close_net();
        open_net();
    }
    end_image(make_global_pool(&net, begin_image(5, 3, 7)), 3);
    check(3, 220);
}

Test(gradients, fan_out_and_residuals)
{
    uint32_t x = begin_image(4, 5, 4);
    uint32_t a = make_conv(&net, x, 4, &(dunlin_net_conv){0}, false);
    uint32_t b = make_clip(&net, x, 0.0F, 6.0F);
    uint32_t sum = make_add(&net, a, b);
    sum = make_add(&net, sum, x); /* x feeds three nodes */
    sum = make_add(&net, sum, sum);
    uint32_t c = make_conv(&net, sum, 4, &(dunlin_net_conv){0}, true);
    end_image(make_add(&net, c, a), 3);
    check(3, 10);
}

Test(gradients, concat_of_images_and_rows)
{
    uint32_t x = begin_image(4, 5, 3);
    uint32_t a = make_conv(&net, x, 3, &(dunlin_net_conv){0}, true);
    uint32_t b = make_conv(&net, x, 7, &(dunlin_net_conv){0}, true);
    x = make_concat(&net, (uint32_t[]){a, x, b, a}, 4);
    x = make_conv(&net, x, 3, &(dunlin_net_conv){.kernel_h = 5, .kernel_w = 3}, true);
    uint32_t row = make_flatten(&net, x);
    uint32_t other = make_dense(&net, row, 5, true);
    row = make_concat(&net, (uint32_t[]){other, row}, 2);
    row = make_concat(&net, &row, 1);
    make_end(&net, make_dense(&net, row, 3, true));
    check(3, 11);
}

Test(gradients, flatten_with_and_without_a_change_of_order)
{
    end_image(begin_image(5, 3, 2), 3);
    check(2, 12);
    close_net();
    open_net();
    end_image(begin_image(1, 3, 4), 3);
    check(2, 13);
    close_net();
    open_net();
    uint32_t row = make_flatten(&net, make_input(&net, 6, 0, 0));
    make_end(&net, make_dense(&net, row, 3, true));
    check(2, 14);
}

Test(gradients, dropout)
{
    uint32_t x = begin_image(5, 4, 3);
    x = make_dropout(&net, x, 0.4F);
    x = make_dense(&net, make_flatten(&net, x), 9, true);
    x = make_dropout(&net, x, 0.2F);
    x = make_dropout(&net, x, 0.0F);
    make_end(&net, make_dense(&net, x, 3, true));
    check(4, 15);
}

/* One draw a sample: the branch of a residual block is left out, or divided by the chance. */
Test(gradients, stochastic_depth)
{
    const uint32_t x = begin_image(5, 4, 3);
    const uint32_t branch =
        make_conv(&net, x, 5, &(dunlin_net_conv){.kernel_h = 1, .kernel_w = 1}, true);
    const uint32_t kept = make_dropout(&net, branch, 0.4F);
    net.nodes[net.values[kept].producer].u.dropout.is_whole = true;
    make_end(&net, make_dense(&net, make_flatten(&net, make_add(&net, x, kept)), 3, true));
    check(9, 15);
}

Test(gradients, frozen_parameters)
{
    uint32_t x = begin_image(3, 4, 4); /* param0, param1 */
    x = make_conv(&net, x, 4, &(dunlin_net_conv){.kernel_h = 3, .kernel_w = 3}, true);
    x = make_clip(&net, x, 0.0F, HUGE_VALF);
    x = make_pool(&net, x, DUNLIN_OP_MAX_POOL,
                  &(dunlin_net_pool){.kernel_h = 2, .kernel_w = 2, .stride_h = 1, .stride_w = 1});
    end_image(x, 3); /* param4, param5 */
    static const char *const lists[] = {
        "param0,param1",        "param0,param1,param2,param3", "param2", "param3", "param4",
        "param0,param2,param4", "param1,param3,param5",
    };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        expect_net(&(check_options){.n = 3, .seed = 300 + i, .frozen_prefixes = lists[i]});
    }
}

Test(gradients, random_networks)
{
    int n_checked = 0;
    for (int i = 0; i < test_cases(40); i++) {
        uint64_t seed = test_seed(1000) + (uint64_t)i;
        make_random(&net, seed);
        n_checked += check_net(&net, &(check_options){.n = 4 + (int64_t)(seed % 3),
                                                      .seed = seed,
                                                      .n_probes = 6,
                                                      .has_one_isa = true});
        close_net();
        open_net();
    }
    cr_assert(n_checked * 2 >= test_cases(40), "only %d nets were checked", n_checked);
}

/* The same step, cut and recomputed: not a bit may differ. */
static void check_bits(uint64_t seed, int64_t slice_samples, const dunlin_step_build_options *build,
                       const plain_run *whole, const check_data *data,
                       const dunlin_kernels *kernels)
{
    plain_run other;
    double loss = 0.0;
    cr_assert(plain_run_open(&other, &net, build, data->n, NULL) == DUNLIN_OK);
    other.slice_samples = slice_samples;
    other.recomputes = true;
    check_data_step(data, &other, kernels, &loss);
    for (uint32_t p = 0; p < net.n_params; p++) {
        size_t bytes = (size_t)net.params[p].n_elements * sizeof(float);
        uint32_t tensor = whole->graph->params[p].tensor;
        cr_assert(memcmp(whole->tensors[tensor], other.tensors[tensor], bytes) == 0,
                  "seed %" PRIu64 ", slices of %" PRId64 ", %s: %s differs", seed, slice_samples,
                  kernels->isa, net.params[p].name);
    }
    plain_run_close(&other);
}

static void check_all_bits(uint64_t seed, bool is_fused)
{
    const dunlin_step_build_options build = {
        .mode = DUNLIN_EMIT_TRAIN, .has_momentum = true, .is_fused = is_fused};
    const dunlin_kernels *kernels = dunlin__kernels_select(dunlin__kernels_isa(0));
    check_data data;
    plain_run whole;
    double loss = 0.0;
    check_data_open(&data, &net, 7, seed);
    cr_assert(plain_run_open(&whole, &net, &build, 7, NULL) == DUNLIN_OK);
    check_data_step(&data, &whole, kernels, &loss);
    check_bits(seed, 0, &build, &whole, &data, kernels);
    for (int64_t slice = 1; slice <= 5 && !has_batch_norm(&net); slice += 2) {
        check_bits(seed, slice, &build, &whole, &data, kernels);
    }
    plain_run_close(&whole);
    check_data_close(&data);
}

Test(gradients, slices_and_recomputed_maps_change_no_bit)
{
    for (int i = 0; i < test_cases(30); i++) {
        const uint64_t seed = test_seed(2000) + (uint64_t)i;
        make_random(&net, seed);
        check_all_bits(seed, false);
        check_all_bits(seed, true);
        close_net();
        open_net();
    }
}
