/*
 * test_int_pool.c - pooling in integers, both directions, on every table, against the model.
 */
#include "checks/int_model.h"
#include "random.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

TestSuite(int_pool, .timeout = 900);

static int32_t below(uint64_t *state, int32_t n)
{
    return (int32_t)test_random_below(state, (uint64_t)n);
}

typedef struct pool_case {
    dunlin_pool_shape shape;
    bool is_max;
    int64_t n, n_x, n_y;
    int8_t *x, *y, *dy, *dx;
    uint8_t *index;
    int8_t *y_wanted;
    int64_t *dx_sums;
    uint8_t *index_wanted;
    dunlin_int_stats forward, backward;
    int32_t shift;
} pool_case;

static dunlin_pool_shape pool_random(uint64_t *state)
{
    static const int32_t channels[] = {1, 3, 8, 17, 24, 64, 300};
    dunlin_pool_shape s = {.kernel_h = 1 + below(state, 4),
                           .kernel_w = 1 + below(state, 4),
                           .stride_h = 1 + below(state, 3),
                           .stride_w = 1 + below(state, 3),
                           .channels = channels[below(state, 7)],
                           .counts_padding = below(state, 2) == 1,
                           .is_sum = below(state, 5) == 0};
    if (below(state, 4) == 0) {
        s.dilation_h = 1 + below(state, 3);
        s.dilation_w = 1 + below(state, 3);
    }
    const int32_t reach_h = (s.kernel_h - 1) * (s.dilation_h > 1 ? s.dilation_h : 1) + 1;
    const int32_t reach_w = (s.kernel_w - 1) * (s.dilation_w > 1 ? s.dilation_w : 1) + 1;
    s.pad_top = below(state, s.kernel_h);
    s.pad_left = below(state, s.kernel_w);
    s.pad_bottom = below(state, s.kernel_h);
    s.pad_right = below(state, s.kernel_w);
    s.in_h = reach_h + below(state, 9);
    s.in_w = reach_w + below(state, 9);
    s.out_h = (s.in_h + s.pad_top + s.pad_bottom - reach_h) / s.stride_h + 1;
    s.out_w = (s.in_w + s.pad_left + s.pad_right - reach_w) / s.stride_w + 1;
    return s;
}

/* One window of one channel. */
static void model_window(pool_case *p, int64_t sample, int64_t oy, int64_t ox, int64_t c)
{
    const dunlin_pool_shape *s = &p->shape;
    const int64_t out = ((sample * s->out_h + oy) * s->out_w + ox) * s->channels + c;
    int64_t taps[16];
    int64_t names[16];
    int64_t n = 0;
    int64_t padded = 0;
    int64_t sum = 0;
    int64_t best = -1;
    for (int32_t i = 0; i < s->kernel_h * s->kernel_w; i++) {
        const int64_t y = oy * s->stride_h - s->pad_top +
                          i / s->kernel_w * (s->dilation_h > 1 ? s->dilation_h : 1);
        const int64_t x = ox * s->stride_w - s->pad_left +
                          i % s->kernel_w * (s->dilation_w > 1 ? s->dilation_w : 1);
        padded += y < s->in_h + s->pad_bottom && x < s->in_w + s->pad_right ? 1 : 0;
        if (y >= 0 && y < s->in_h && x >= 0 && x < s->in_w) {
            taps[n] = ((sample * s->in_h + y) * s->in_w + x) * s->channels + c;
            names[n] = i;
            sum += p->x[taps[n]];
            best = best < 0 || p->x[taps[n]] > p->x[taps[best]] ? n : best;
            n++;
        }
    }
    if (p->is_max) {
        const int32_t y = best < 0 ? 0 : p->x[taps[best]];
        p->y_wanted[out] = (int8_t)y;
        p->index_wanted[out] = (uint8_t)(best < 0 ? 0 : names[best]);
        (void)int_model_round(y, 0, &p->forward);
        if (best >= 0) {
            p->dx_sums[taps[best]] += p->dy[out];
        }
        return;
    }
    int64_t count = s->is_sum ? 1 : s->counts_padding ? padded : n;
    count = count < 1 ? 1 : count;
    const int64_t up = (int64_t)1 << (p->shift < 0 ? -p->shift : 0);
    const int64_t down = (int64_t)1 << (p->shift > 0 ? p->shift : 0);
    const int64_t size = (sum < 0 ? -sum : sum) * 256 / count;
    p->y_wanted[out] = (int8_t)int_model_fraction(sum * up, count * down, &p->forward.n_clipped);
    p->forward.largest = size > p->forward.largest ? size : p->forward.largest;
    const int64_t d = p->dy[out] < 0 ? -p->dy[out] : p->dy[out];
    const int64_t share = (2 * d * 65536 + count) / (2 * count);
    for (int64_t i = 0; i < n; i++) {
        p->dx_sums[taps[i]] += p->dy[out] < 0 ? -share : share;
    }
}

/* The place of an output in the packed bits, as they are defined. */
static uint8_t place_of(const pool_case *p, int64_t out)
{
    const int64_t c = out % p->shape.channels;
    const int64_t first = c / DUNLIN_INT_PLACE_RUN * DUNLIN_INT_PLACE_RUN;
    const int64_t left = p->shape.channels - first;
    const int64_t n = left < DUNLIN_INT_PLACE_RUN ? left : DUNLIN_INT_PLACE_RUN;
    const int64_t area = (int64_t)p->shape.kernel_h * p->shape.kernel_w;
    const int64_t bits = area <= 4 ? 2 : area <= 16 ? 4 : 8;
    const int64_t bytes = (n * bits + 7) / 8;
    const uint8_t *pixel =
        p->index + out / p->shape.channels * ((p->shape.channels * bits + 7) / 8);
    const uint8_t byte = pixel[first * bits / 8 + (c - first) % bytes];
    return (uint8_t)(byte >> ((c - first) / bytes * bits) & ((1 << bits) - 1));
}

static void check_places(const dunlin_int_kernels *k, const pool_case *p, const char *what)
{
    for (int64_t i = 0; p->is_max && i < p->n_y; i++) {
        cr_assert_eq(place_of(p, i), p->index_wanted[i], "%s: place %lld of %s", k->isa,
                     (long long)i, what);
    }
}

/* Without statistics and rounding: errors that are only moved. */
static void check_moved(const dunlin_int_kernels *k, const pool_case *p, const char *what,
                        dunlin_threads *threads)
{
    if (!p->is_max || dunlin__int_windows_overlap(&p->shape)) {
        return;
    }
    memset(p->dx, 99, (size_t)p->n_x);
    k->pool_backward(&(dunlin_int_pool_call){.shape = &p->shape,
                                             .is_max = true,
                                             .n_samples = p->n,
                                             .dy = p->dy,
                                             .dx = p->dx,
                                             .index = p->index,
                                             .threads = threads});
    for (int64_t i = 0; i < p->n_x; i++) {
        cr_assert_eq(p->dx[i], p->dx_sums[i], "%s: moved error %lld of %s", k->isa, (long long)i,
                     what);
    }
}

static void pool_open(pool_case *p, uint64_t *state)
{
    *p = (pool_case){.shape = pool_random(state), .is_max = below(state, 2) == 0};
    p->n = 1 + below(state, 3);
    p->n_x = p->n * p->shape.in_h * p->shape.in_w * p->shape.channels;
    p->n_y = p->n * p->shape.out_h * p->shape.out_w * p->shape.channels;
    p->shift = p->is_max ? below(state, 4) - 1 : below(state, 12) - 8;
    p->x = int_random(p->n_x, state);
    for (int64_t i = 0; p->is_max && i < p->n_x; i++) {
        p->x[i] = (int8_t)(p->x[i] / 32); /* many ties */
    }
    p->dy = int_random(p->n_y, state);
    p->y = int_new(p->n_y, 1);
    p->dx = int_new(p->n_x, 1);
    p->index = int_new(
        p->n_y / p->shape.channels * dunlin__int_place_bytes(&p->shape, p->shape.channels), 1);
    p->y_wanted = int_new(p->n_y, 1);
    p->index_wanted = int_new(p->n_y, 1);
    p->dx_sums = int_new(p->n_x, sizeof *p->dx_sums);
    memset(p->dx_sums, 0, (size_t)p->n_x * sizeof *p->dx_sums);
    for (int64_t i = 0; i < p->n_y; i++) {
        const int64_t pixel = i / p->shape.channels;
        model_window(p, pixel / p->shape.out_w / p->shape.out_h,
                     pixel / p->shape.out_w % p->shape.out_h, pixel % p->shape.out_w,
                     i % p->shape.channels);
    }
}

static void pool_close(pool_case *p)
{
    void *all[] = {p->x, p->y, p->dy, p->dx, p->index, p->y_wanted, p->dx_sums, p->index_wanted};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        cr_assert(int_is_intact(all[i]));
        int_free(all[i]);
    }
}

static void check_pool(const dunlin_int_kernels *k, uint64_t seed, dunlin_threads *threads)
{
    pool_case p;
    uint64_t state = seed;
    char what[60];
    (void)snprintf(what, sizeof what, "pooling, seed %llu", (unsigned long long)seed);
    pool_open(&p, &state);
    dunlin_int_stats stats = {9000000, 9};
    dunlin_int_pool_call call = {.shape = &p.shape,
                                 .is_max = p.is_max,
                                 .n_samples = p.n,
                                 .x = p.x,
                                 .y = p.y,
                                 .index = p.is_max ? p.index : NULL,
                                 .dy = p.dy,
                                 .dx = p.dx,
                                 .rounding = {.shift = p.shift, .stats = &stats, .is_reset = true},
                                 .threads = threads};
    k->pool_forward(&call);
    int_same(k, what, p.y, p.y_wanted, p.n_y);
    int_same_stats(k, what, &stats, &p.forward);
    check_places(k, &p, what);
    check_moved(k, &p, what, threads);
    k->pool_backward(&call);
    for (int64_t i = 0; i < p.n_x; i++) {
        dunlin_int_stats one = {0, 0};
        const int32_t q = int_model_round(p.dx_sums[i], p.is_max ? p.shift : 16 + p.shift, &one);
        one.largest = p.is_max ? one.largest : one.largest / 256;
        p.backward.largest = one.largest > p.backward.largest ? one.largest : p.backward.largest;
        p.backward.n_clipped += one.n_clipped;
        cr_assert_eq(p.dx[i], q, "%s: gradient of %s: element %lld is %d, not %d", k->isa, what,
                     (long long)i, p.dx[i], q);
    }
    int_same_stats(k, what, &stats, &p.backward);
    pool_close(&p);
}

static void check_pools(const dunlin_int_kernels *k)
{
    uint64_t state = test_seed(12);
    dunlin_threads *threads = start_threads(3);
    for (int i = 0; i < test_cases(80); i++) {
        check_pool(k, test_random_u64(&state), i % 8 == 7 ? threads : NULL);
    }
    stop_threads(threads);
}

Test(int_pool, is_as_in_the_model)
{
    each_int(check_pools);
}
