/*
 * test_border.c - what surrounds an image where a random window reaches beyond it: zeros, or the
 * mean as it is stored, at the same places.
 */
#include <dunlin/pipeline.h>

#include <criterion/criterion.h>

#include <string.h>

#define SIDE 9
#define CHANNELS 2
#define WINDOW 8
#define N_OUT (CHANNELS * WINDOW * WINDOW)
#define N_EXAMPLES 50
#define INSIDE 5 /* every pixel of every image */

static dunlin_status read_same(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                               int32_t *out_y)
{
    const dunlin_dtype *dtype = ctx;
    (void)indices;
    for (int64_t i = 0; i < n * CHANNELS * SIDE * SIDE; i++) {
        if (*dtype == DUNLIN_U8) {
            ((unsigned char *)out_x)[i] = INSIDE;
        } else {
            ((float *)out_x)[i] = (float)INSIDE;
        }
    }
    memset(out_y, 0, (size_t)n * sizeof *out_y);
    return DUNLIN_OK;
}

static float value_at(const void *x, dunlin_dtype dtype, int32_t i)
{
    return dtype == DUNLIN_U8 ? (float)((const unsigned char *)x)[i] : ((const float *)x)[i];
}

/* Whether each value of all examples lies beyond its image, 0 or 1, for one border; what is there
 * must be `stored`. */
static void look(dunlin_dtype dtype, float scale, const float *mean, dunlin_border border,
                 const float *stored, unsigned char *out_is_beyond)
{
    const dunlin_shape shape = {.n_dims = 3, .dims = {CHANNELS, SIDE, SIDE}};
    const dunlin_source source = {.struct_size = sizeof source,
                                  .ctx = &dtype,
                                  .read_fn = read_same,
                                  .n_examples = N_EXAMPLES,
                                  .dtype = dtype,
                                  .scale = scale,
                                  .mean = mean};
    dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
    options.crop_height = WINDOW;
    options.is_random_crop = true;
    options.padding = 2;
    options.seed = 5;
    options.border = border;
    dunlin_pipeline *pipeline = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_pipeline_create(&source, &shape, &options, NULL, &pipeline, &error),
                 DUNLIN_OK, "%s", error.text);
    dunlin_source drawn;
    dunlin_pipeline_source(pipeline, &drawn);
    drawn.step_fn(drawn.ctx, 3);
    for (int64_t index = 0; index < N_EXAMPLES; index++) {
        float room[N_OUT];
        int32_t label = -1;
        cr_assert_eq(drawn.read_fn(drawn.ctx, &index, 1, room, &label), DUNLIN_OK);
        for (int32_t i = 0; i < N_OUT; i++) {
            const float found = value_at(room, dtype, i);
            const float beyond = stored[i / (WINDOW * WINDOW)];
            cr_assert(found == (float)INSIDE || found == beyond, "%g, not %g", (double)found,
                      (double)beyond);
            out_is_beyond[index * N_OUT + i] = found == (float)INSIDE ? 0 : 1;
        }
    }
    dunlin_pipeline_destroy(pipeline);
}

/* Both borders lie at the same places, and there are some. */
static void compare(dunlin_dtype dtype, float scale, const float *mean, const float *stored)
{
    static const float zeros[CHANNELS] = {0.0F, 0.0F};
    static unsigned char expected[N_EXAMPLES * N_OUT];
    static unsigned char found[N_EXAMPLES * N_OUT];
    look(dtype, scale, mean, DUNLIN_BORDER_ZERO, zeros, expected);
    look(dtype, scale, mean, DUNLIN_BORDER_MEAN, stored, found);
    cr_assert_eq(memcmp(expected, found, sizeof found), 0);
    int32_t n_beyond = 0;
    for (size_t i = 0; i < sizeof found; i++) {
        n_beyond += found[i];
    }
    cr_assert(n_beyond > N_EXAMPLES * N_OUT / 20 && n_beyond < N_EXAMPLES * N_OUT / 2);
}

Test(border, bytes_are_the_mean_rounded)
{
    const float mean[CHANNELS] = {0.25F, 0.6F};
    const float stored[CHANNELS] = {64.0F, 153.0F}; /* of 63.75 and 153 */
    compare(DUNLIN_U8, 1.0F / 255.0F, mean, stored);
    const float far[CHANNELS] = {-0.1F, 1.1F};
    const float ends[CHANNELS] = {0.0F, 255.0F};
    compare(DUNLIN_U8, 1.0F / 255.0F, far, ends);
    const float unscaled[CHANNELS] = {3.4F, 254.6F};
    const float near[CHANNELS] = {3.0F, 255.0F};
    compare(DUNLIN_U8, 0.0F, unscaled, near);
}

Test(border, floats_are_the_mean)
{
    const float mean[CHANNELS] = {0.25F, -1.0F};
    const float stored[CHANNELS] = {0.5F, -2.0F};
    compare(DUNLIN_F32, 0.5F, mean, stored);
}

Test(border, without_a_mean_it_is_zero)
{
    const float zeros[CHANNELS] = {0.0F, 0.0F};
    compare(DUNLIN_U8, 1.0F / 255.0F, NULL, zeros);
    compare(DUNLIN_F32, 0.0F, NULL, zeros);
}
