/*
 * test_pipeline.c - resizing, windows and flips against torchvision (make_pipeline.py).
 */
#include "golden.h"

#include <dunlin/pipeline.h>
#include <mem/support.h>

#include <criterion/criterion.h>

#include <data/common/image.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CENTRE (-1000)

static const char *const cases[] = {
    "same",        "larger", "smaller",    "smaller_much",   "mixed",         "width_only",
    "height_only", "flip",   "crop",       "padded",         "padded_flip",   "all",
    "all_smaller", "centre", "centre_odd", "centre_resized", "centre_beyond", "centre_mixed"};
#define N_CASES (sizeof cases / sizeof cases[0])

typedef struct golden_case {
    const char *name;
    const golden_array *x, *y;
    const int32_t *size, *window, *bytes;
} golden_case;

static const int32_t *ints(const golden *file, const char *name, const char *part)
{
    const golden_array *array = golden_find(file, name, part);
    cr_assert(array != NULL && array->dtype == DUNLIN_I32, "%s/%s", name, part);
    return array->data;
}

static golden_case open_case(const golden *file, const char *name)
{
    golden_case made = {.name = name,
                        .x = golden_find(file, name, "x"),
                        .y = golden_find(file, name, "y"),
                        .size = ints(file, name, "size"),
                        .window = ints(file, name, "window"),
                        .bytes = ints(file, name, "bytes")};
    cr_assert(made.x != NULL && made.y != NULL, "%s", name);
    return made;
}

/* The image as bytes or floats in, the window out. */
static void *apply(const golden_case *tried, dunlin_dtype dtype, unsigned char *bytes)
{
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    const int64_t *from = tried->x->shape.dims;
    const float *x = tried->x->data;
    dunlin_image image = {.dtype = dtype,
                          .channels = (int32_t)from[0],
                          .height = tried->window[2],
                          .width = tried->window[3]};
    cr_assert(dunlin__image_axis_make(&alloc, (int32_t)from[1], tried->size[0], &image.rows));
    cr_assert(dunlin__image_axis_make(&alloc, (int32_t)from[2], tried->size[1], &image.columns));
    dunlin_image_place place = {
        .top = tried->window[0], .left = tried->window[1], .is_flipped = tried->window[4] != 0};
    if (place.top == CENTRE) {
        place.top = dunlin__image_centre(tried->size[0], image.height);
        place.left = dunlin__image_centre(tried->size[1], image.width);
    }
    for (int64_t i = 0; i < tried->x->n; i++) {
        bytes[i] = (unsigned char)x[i];
    }
    const size_t n_scratch = dunlin__image_scratch(&image);
    float *scratch = malloc((n_scratch + 1) * sizeof *scratch);
    void *out = malloc((size_t)tried->y->n * dunlin_dtype_bytes(dtype));
    dunlin__image_apply(&image, &place, dtype == DUNLIN_U8 ? (const void *)bytes : x, scratch, out);
    free(scratch);
    dunlin__image_axis_free(&alloc, &image.rows);
    dunlin__image_axis_free(&alloc, &image.columns);
    return out;
}

Test(golden_pipeline, floats_as_torchvision)
{
    golden file;
    golden_open(&file, "pipeline.golden");
    for (size_t k = 0; k < N_CASES; k++) {
        const golden_case tried = open_case(&file, cases[k]);
        unsigned char *bytes = malloc((size_t)tried.x->n);
        float *y = apply(&tried, DUNLIN_F32, bytes);
        const double *expected = tried.y->data;
        for (int64_t i = 0; i < tried.y->n; i++) {
            cr_assert_leq(fabs((double)y[i] - expected[i]), 8.0 * 255.0 * (double)FLT_EPSILON,
                          "%s: element %d is %g, not %g", tried.name, (int)i, (double)y[i],
                          expected[i]);
        }
        free(y);
        free(bytes);
    }
    golden_close(&file);
}

/* Equal, but where the exact value lies so near a half that single precision decides. */
Test(golden_pipeline, bytes_as_torchvision)
{
    golden file;
    golden_open(&file, "pipeline.golden");
    int n_near = 0;
    for (size_t k = 0; k < N_CASES; k++) {
        const golden_case tried = open_case(&file, cases[k]);
        unsigned char *bytes = malloc((size_t)tried.x->n);
        unsigned char *y = apply(&tried, DUNLIN_U8, bytes);
        const double *exact = tried.y->data;
        for (int64_t i = 0; i < tried.y->n; i++) {
            const bool is_equal = y[i] == tried.bytes[i];
            n_near += is_equal ? 0 : 1;
            cr_assert(is_equal || fabs(fabs(exact[i] - (double)y[i]) - 0.5) < 1e-3,
                      "%s: element %d is %d, not %d", tried.name, (int)i, y[i], tried.bytes[i]);
        }
        free(y);
        free(bytes);
    }
    cr_assert_leq(n_near, 8, "%d near a half", n_near);
    golden_close(&file);
}

typedef struct one_image {
    const golden_case *of;
    unsigned char *bytes;
} one_image;

static dunlin_status read_one(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                              int32_t *out_y)
{
    const one_image *image = ctx;
    cr_assert(n == 1 && indices[0] == 0);
    memcpy(out_x, image->bytes, (size_t)image->of->x->n);
    out_y[0] = 3;
    return DUNLIN_OK;
}

/* The whole pipeline, in evaluation: the centre. */
Test(golden_pipeline, evaluation_takes_the_centre)
{
    golden file;
    golden_open(&file, "pipeline.golden");
    const golden_case tried = open_case(&file, "centre_resized");
    one_image image = {.of = &tried, .bytes = malloc((size_t)tried.x->n)};
    for (int64_t i = 0; i < tried.x->n; i++) {
        image.bytes[i] = (unsigned char)((const float *)tried.x->data)[i];
    }
    const dunlin_source below = {.struct_size = sizeof(dunlin_source),
                                 .ctx = &image,
                                 .read_fn = read_one,
                                 .n_examples = 1,
                                 .dtype = DUNLIN_U8};
    dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
    options.resize_height = tried.size[0];
    options.resize_width = tried.size[1];
    options.crop_height = tried.window[2];
    options.crop_width = tried.window[3];
    options.is_random_crop = true;
    options.is_flip = true;
    dunlin_pipeline *pipeline = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_pipeline_create(&below, &tried.x->shape, &options, NULL, &pipeline, &error),
                 DUNLIN_OK, "%s", error.text);
    dunlin_source source;
    dunlin_pipeline_source(pipeline, &source);
    unsigned char *y = malloc((size_t)tried.y->n);
    const int64_t index = 0;
    int32_t label = 0;
    source.step_fn(source.ctx, -1);
    cr_assert_eq(source.read_fn(source.ctx, &index, 1, y, &label), DUNLIN_OK);
    cr_assert_eq(label, 3);
    for (int64_t i = 0; i < tried.y->n; i++) {
        const double off = fabs(((const double *)tried.y->data)[i] - (double)y[i]);
        cr_assert(off < 0.501, "element %d is %d", (int)i, y[i]);
    }
    free(y);
    free(image.bytes);
    dunlin_pipeline_destroy(pipeline);
    golden_close(&file);
}
