/*
 * test_int_conv.c - convolutions in integers, every pass, on every table: the very bits of a model
 * in plain C, over shapes at random and those that are cut, with and without threads, whole and in
 * slices.
 */
#include "checks/conv_check.h"
#include "checks/int_model.h"
#include "random.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

TestSuite(int_conv, .timeout = 900);

typedef struct int_case {
    dunlin_conv_shape shape;
    int64_t n;
    int64_t n_x, n_y, n_w; /* x and y per sample */
    int8_t *x, *w, *dy, *addend;
    int32_t *bias;
    int32_t shift, addend_shift, low, high;
    bool has_bias, has_addend, has_mask, is_wide;
    int_sums sums;
    char text[200];
} int_case;

static int32_t below(uint64_t *state, int32_t n)
{
    return (int32_t)test_random_below(state, (uint64_t)n);
}

static void case_open(int_case *c, const conv_recipe *r, uint64_t *state)
{
    *c = (int_case){.n = r->n};
    (void)conv_recipe_text(r, c->text, sizeof c->text);
    conv_data data;
    uint64_t unused = 1;
    conv_data_open(&data, r, &unused);
    c->shape = data.shape;
    c->n_x = data.n_x;
    c->n_y = data.n_y;
    c->n_w = data.n_w;
    conv_data_close(&data);
    c->x = int_random(c->n * c->n_x, state);
    c->w = int_random(c->n_w, state);
    c->dy = int_random(c->n * c->n_y, state);
    c->addend = int_random(c->n * c->n_x, state);
    c->bias = int_new(c->shape.out_c, sizeof *c->bias);
    for (int32_t i = 0; i < c->shape.out_c; i++) {
        c->bias[i] = below(state, 20000) - 10000;
    }
    c->shift = below(state, 16) - 1;
    c->addend_shift = below(state, 4) - 1;
    c->low = below(state, 2) == 0 ? -127 : 0;
    c->high = below(state, 2) == 0 ? 127 : 40;
    c->has_bias = below(state, 2) == 0;
    c->has_addend = below(state, 2) == 0;
    c->has_mask = below(state, 2) == 0;
    c->is_wide = below(state, 3) == 0;
    int_model_conv(&c->shape, c->n, c->x, c->w, c->dy, &c->sums);
}

static void case_close(int_case *c)
{
    int_free(c->x);
    int_free(c->w);
    int_free(c->dy);
    int_free(c->addend);
    int_free(c->bias);
    int_sums_free(&c->sums);
}

static void same_stats(const dunlin_int_kernels *k, const int_case *c, const char *pass,
                       const dunlin_int_stats *is, const dunlin_int_stats *wanted)
{
    char what[240];
    (void)snprintf(what, sizeof what, "%s of %s", pass, c->text);
    int_same_stats(k, what, is, wanted);
}

static void check_forward(const dunlin_int_kernels *k, const int_case *c, int64_t slice,
                          dunlin_threads *threads, void *workspace)
{
    int8_t *y = int_new(c->n * c->n_y, 1);
    dunlin_int_stats stats = {77, 88};
    for (int64_t i = 0; i < c->n; i += slice) {
        const dunlin_int_conv_call call = {
            .shape = &c->shape,
            .n_samples = slice < c->n - i ? slice : c->n - i,
            .x = c->x + i * c->n_x,
            .w = c->w,
            .bias = c->has_bias ? c->bias : NULL,
            .out = y + i * c->n_y,
            .rounding = {.shift = c->shift, .stats = &stats, .is_reset = i == 0},
            .low = c->low,
            .high = c->high,
            .workspace = workspace,
            .threads = threads};
        k->conv_forward(&call);
    }
    dunlin_int_stats wanted = {0, 0};
    for (int64_t i = 0; i < c->n * c->n_y; i++) {
        const int64_t sum = c->sums.y[i] + (c->has_bias ? c->bias[i % c->shape.out_c] : 0);
        int32_t q = int_model_round(sum, c->shift, &wanted);
        q = q < c->low ? c->low : q > c->high ? c->high : q;
        cr_assert_eq(y[i], q, "%s: forward of %s: element %lld is %d, not %d", k->isa, c->text,
                     (long long)i, y[i], q);
    }
    same_stats(k, c, "forward", &stats, &wanted);
    cr_assert(int_is_intact(y), "%s: forward of %s", k->isa, c->text);
    int_free(y);
}

static int32_t model_input(const int_case *c, int64_t i, dunlin_int_stats *stats)
{
    int64_t n_clipped = 0;
    dunlin_int_stats one = {0, 0};
    int32_t q = int_model_round(c->sums.dx[i], c->shift, &one);
    stats->largest = one.largest > stats->largest ? one.largest : stats->largest;
    if (c->has_addend) {
        q += int_model_round(c->addend[i], c->addend_shift, NULL);
        n_clipped = q > 127 || q < -127 ? 1 : 0;
        q = q > 127 ? 127 : q < -127 ? -127 : q;
    }
    stats->n_clipped += one.n_clipped + n_clipped > 0 ? 1 : 0;
    return c->has_mask && !(c->x[i] > c->low && c->x[i] < c->high) ? 0 : q;
}

static void check_input(const dunlin_int_kernels *k, const int_case *c, int64_t slice,
                        dunlin_threads *threads, void *workspace)
{
    int8_t *dx = int_new(c->n * c->n_x, 1);
    const bool is_same = c->has_addend && c->has_mask; /* in place */
    const bool is_over_mask = !c->has_addend && c->has_mask;
    memcpy(dx, is_over_mask ? c->x : c->addend, (size_t)(c->n * c->n_x));
    dunlin_int_stats stats = {77, 88};
    int64_t largest = 0;
    for (int64_t i = 0; i < c->n; i += slice) {
        const int8_t *addend = is_same ? dx : c->addend;
        const int8_t *mask = is_over_mask ? dx : c->x;
        dunlin_int_conv_call call = {
            .shape = &c->shape,
            .n_samples = slice < c->n - i ? slice : c->n - i,
            .w = c->w,
            .dy = c->dy + i * c->n_y,
            .out = dx + i * c->n_x,
            .rounding = {.shift = c->shift, .stats = &stats, .is_reset = i == 0},
            .addend = c->has_addend ? addend + i * c->n_x : NULL,
            .addend_shift = c->addend_shift,
            .mask = c->has_mask ? mask + i * c->n_x : NULL,
            .mask_low = c->low,
            .mask_high = c->high,
            .workspace = workspace,
            .threads = threads};
        k->conv_input_grad(&call);
        dunlin_int_stats alone;
        call.out = NULL;
        call.rounding.stats = &alone;
        call.rounding.is_reset = true;
        k->conv_input_grad(&call);
        largest = alone.largest > largest ? alone.largest : largest;
    }
    cr_assert_eq(largest, stats.largest, "%s: largest alone of %s", k->isa, c->text);
    dunlin_int_stats wanted = {0, 0};
    for (int64_t i = 0; i < c->n * c->n_x; i++) {
        const int32_t q = model_input(c, i, &wanted);
        cr_assert_eq(dx[i], q, "%s: input gradient of %s: element %lld is %d, not %d", k->isa,
                     c->text, (long long)i, dx[i], q);
    }
    same_stats(k, c, "input gradient", &stats, &wanted);
    cr_assert(int_is_intact(dx), "%s: input gradient of %s", k->isa, c->text);
    int_free(dx);
}

static void check_weight(const dunlin_int_kernels *k, const int_case *c, int64_t slice,
                         dunlin_threads *threads, void *workspace)
{
    int32_t *dw = int_new(c->n_w, sizeof *dw);
    int64_t *wide = int_new(c->n_w, sizeof *wide);
    int32_t *db = int_new(c->shape.out_c, sizeof *db);
    for (int64_t i = 0; i < c->n; i += slice) {
        const dunlin_int_conv_call call = {.shape = &c->shape,
                                           .n_samples = slice < c->n - i ? slice : c->n - i,
                                           .x = c->x + i * c->n_x,
                                           .dy = c->dy + i * c->n_y,
                                           .sums = c->is_wide ? NULL : dw,
                                           .wide_sums = c->is_wide ? wide : NULL,
                                           .out_bias = db,
                                           .is_reset = i == 0,
                                           .workspace = workspace,
                                           .threads = threads};
        k->conv_weight_grad(&call);
    }
    for (int64_t i = 0; i < c->n_w; i++) {
        const int64_t is = c->is_wide ? wide[i] : dw[i];
        cr_assert_eq(is, c->sums.dw[i], "%s: weight gradient of %s: element %lld is %lld, not %lld",
                     k->isa, c->text, (long long)i, (long long)is, (long long)c->sums.dw[i]);
    }
    for (int32_t i = 0; i < c->shape.out_c; i++) {
        cr_assert_eq(db[i], c->sums.db[i], "%s: bias gradient of %s", k->isa, c->text);
    }
    cr_assert(int_is_intact(dw) && int_is_intact(wide) && int_is_intact(db), "%s: %s", k->isa,
              c->text);
    int_free(dw);
    int_free(wide);
    int_free(db);
}

static void check_case(const int_case *c, dunlin_threads *threads)
{
    const size_t n_threads = dunlin__threads_count(threads);
    const int64_t slice = threads == NULL ? c->n : (c->n + 1) / 2;
    for (int i = 0; dunlin__int_kernels_isa(i) != NULL; i++) {
        const dunlin_int_kernels *k = dunlin__int_kernels_select(dunlin__int_kernels_isa(i));
        for (int pass = 0; pass < 3; pass++) {
            const uint64_t bytes =
                k->conv_workspace_bytes(&c->shape, (dunlin_conv_pass)pass, slice, n_threads);
            cr_assert_leq(bytes,
                          k->conv_workspace_bytes(&c->shape, (dunlin_conv_pass)pass, 0, n_threads),
                          "%s: workspace of pass %d of %s", k->isa, pass, c->text);
            void *workspace = int_new((int64_t)bytes, 1);
            if (pass == DUNLIN_CONV_FORWARD) {
                check_forward(k, c, slice, threads, workspace);
            } else if (pass == DUNLIN_CONV_INPUT_GRAD) {
                check_input(k, c, slice, threads, workspace);
            } else {
                check_weight(k, c, slice, threads, workspace);
            }
            cr_assert(int_is_intact(workspace), "%s: workspace of pass %d of %s", k->isa, pass,
                      c->text);
            int_free(workspace);
        }
    }
}

static void check_recipe(const conv_recipe *recipe, uint64_t seed, dunlin_threads *threads)
{
    int_case c;
    uint64_t state = seed;
    case_open(&c, recipe, &state);
    check_case(&c, threads);
    case_close(&c);
}

static const conv_recipe recipes[] = {
    /* in_h in_w in_c out_c  kernel stride  pads (t l b r)  dilation groups n */
    {1, 1, 84, 10, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 7},     /* dense, few rows */
    {1, 1, 3000, 70, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},   /* several parts of the columns */
    {1, 1, 9000, 70, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 13},  /* a block is one tile */
    {1, 1, 1027, 1030, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 8}, /* weights as they lie */
    {1, 1, 2100, 2000, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 9}, /* sums past the caches, too */
    {28, 28, 1, 6, 5, 5, 1, 1, 2, 2, 2, 2, 1, 1, 1, 2},     /* LeNet's first */
    {14, 14, 6, 16, 5, 5, 1, 1, 0, 0, 0, 0, 1, 1, 1, 3},    /* its second */
    {32, 32, 3, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2},    /* VGG's first */
    {16, 16, 64, 96, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3},   /* more than a block of pixels */
    {30, 31, 3, 64, 7, 7, 2, 2, 3, 3, 3, 3, 1, 1, 1, 1},    /* ResNet's stem */
    {9, 9, 33, 50, 1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 3},     /* pointwise with a stride */
    {13, 13, 4, 5, 3, 3, 2, 2, 2, 1, 0, 3, 2, 2, 1, 2},     /* dilated, stride shares a factor */
    {6, 6, 10, 20, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 10, 2},    /* multiplier 2 */
    {15, 20, 40, 40, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 40, 2},  /* depthwise */
    {15, 20, 140, 140, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 140, 2},
    {19, 33, 7, 7, 5, 5, 1, 2, 0, 3, 2, 1, 2, 1, 7, 2},   /* depthwise, all uneven */
    {9, 23, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 32, 2}, /* depthwise, several pixels at once */
    {7, 40, 8, 8, 3, 5, 1, 1, 1, 2, 1, 2, 1, 1, 8, 2},
    {5, 5, 3, 4, 1, 1, 4, 4, 0, 0, 0, 0, 1, 1, 1, 1}, /* stride beyond the kernel */
    {8, 8, 256, 288, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
    {4, 4, 70, 420, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 40},
    /* lines of few channels: parts of a line, one line, pixels together, strides, dilation */
    {3, 700, 2, 5, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2},
    {1, 900, 3, 8, 1, 9, 1, 2, 0, 4, 0, 4, 1, 1, 1, 2},
    {24, 24, 1, 3, 4, 4, 1, 1, 0, 0, 0, 0, 1, 1, 1, 5},
    {20, 24, 2, 4, 5, 2, 3, 3, 1, 0, 1, 0, 1, 1, 1, 2},
    {17, 18, 3, 37, 3, 3, 1, 1, 2, 0, 2, 0, 2, 1, 1, 3},
    {11, 21, 32, 40, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3},
    {12, 12, 6, 7, 3, 3, 2, 2, 0, 1, 0, 1, 1, 2, 1, 4},
    /* depthwise by columns: tall, wide, parts, dilated, one line */
    {17, 13, 64, 64, 5, 5, 1, 1, 2, 2, 2, 2, 1, 1, 64, 2},
    {12, 14, 16, 16, 7, 7, 1, 1, 3, 3, 3, 3, 1, 1, 16, 2},
    {5, 301, 96, 96, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 96, 1},
    {6, 200, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 32, 1},
    {9, 11, 33, 33, 3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 33, 2},
    {1, 150, 64, 64, 1, 9, 1, 1, 0, 4, 0, 4, 1, 1, 64, 2},
    {3, 40, 70, 70, 1, 12, 1, 1, 0, 300, 0, 300, 1, 50, 70, 1},
};

Test(int_conv, has_the_bits_of_the_model)
{
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i += TEST_STRIDE) {
        check_recipe(&recipes[i], i, NULL);
    }
}

Test(int_conv, has_the_same_bits_with_threads_and_slices)
{
    dunlin_threads *threads = start_threads(3);
    cr_assert_not_null(threads);
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i += TEST_STRIDE) {
        check_recipe(&recipes[i], 100 + i, threads);
    }
    stop_threads(threads);
}

Test(int_conv, at_random)
{
    uint64_t state = test_seed(20261127);
    for (int i = 0; i < test_cases(150); i++) {
        const uint64_t seed = state;
        const conv_recipe recipe = conv_recipe_random(&state);
        check_recipe(&recipe, seed, NULL);
    }
}

/* The largest sums that 32 bits hold: nothing between wraps in a way that is left over. */
static void check_bounds(const dunlin_int_kernels *k)
{
    const dunlin_conv_shape shape = {.in_h = 1,
                                     .in_w = 1,
                                     .in_c = DUNLIN_INT_MOST_TERMS,
                                     .out_h = 1,
                                     .out_w = 1,
                                     .out_c = 3,
                                     .kernel_h = 1,
                                     .kernel_w = 1,
                                     .stride_h = 1,
                                     .stride_w = 1,
                                     .dilation_h = 1,
                                     .dilation_w = 1,
                                     .groups = 1};
    int8_t *x = int_new(shape.in_c, 1);
    int8_t *w = int_new((int64_t)shape.in_c * 3, 1);
    int8_t y[3] = {0, 0, 0};
    memset(x, -127, (size_t)shape.in_c);
    for (int64_t i = 0; i < (int64_t)shape.in_c * 3; i++) {
        w[i] = (int8_t)(i % 3 == 0 ? 127 : i % 3 == 1 ? -127 : 1);
    }
    void *workspace =
        int_new((int64_t)k->conv_workspace_bytes(&shape, DUNLIN_CONV_FORWARD, 1, 1), 1);
    dunlin_int_stats stats;
    const dunlin_int_conv_call call = {.shape = &shape,
                                       .n_samples = 1,
                                       .x = x,
                                       .w = w,
                                       .out = y,
                                       .rounding = {.shift = 25, .stats = &stats, .is_reset = true},
                                       .low = -127,
                                       .high = 127,
                                       .workspace = workspace};
    k->conv_forward(&call);
    cr_assert_eq(stats.largest, (int64_t)127 * 127 * DUNLIN_INT_MOST_TERMS, "%s", k->isa);
    cr_assert_eq(stats.n_clipped, 0, "%s", k->isa);
    cr_assert(y[0] == -64 && y[1] == 64 && y[2] == -1, "%s: %d %d %d", k->isa, y[0], y[1], y[2]);
    int_free(x);
    int_free(w);
    int_free(workspace);
}

Test(int_conv, the_most_terms_fit)
{
    each_int(check_bounds);
}
