/*
 * image.c - resizing with a triangle filter that widens when it shrinks, rows first and then
 * columns, in single precision; whole numbers are rounded once, to the nearest, ties to even.
 *
 * Invariant: a pixel's value does not depend on the window that asks for it. Source: PyTorch's
 * upsample_bilinear2d with antialias (centres at half pixels, weights divided by their sum).
 */
#include "image.h"

#include <mem/support.h>

#include <math.h>
#include <string.h>

/* --- axes --- */

static int32_t axis_taps(int32_t n_from, int32_t n_to)
{
    const double scale = (double)n_from / (double)n_to;
    const double support = scale > 1.0 ? scale : 1.0;
    return (int32_t)ceil(support) * 2 + 1;
}

static void fill_pixel(dunlin_image_axis *axis, int32_t i)
{
    const double scale = (double)axis->n_from / (double)axis->n_to;
    const double support = scale > 1.0 ? scale : 1.0;
    const double centre = scale * ((double)i + 0.5);
    int32_t first = (int32_t)(centre - support + 0.5);
    int32_t end = (int32_t)(centre + support + 0.5);
    first = first < 0 ? 0 : first;
    end = end > axis->n_from ? axis->n_from : end;
    float *weights = axis->weights + (size_t)i * (size_t)axis->n_taps;
    double total = 0.0;
    for (int32_t k = first; k < end; k++) {
        const double off = fabs((double)k - centre + 0.5) / support;
        total += off < 1.0 ? 1.0 - off : 0.0;
    }
    for (int32_t k = first; k < end; k++) {
        const double off = fabs((double)k - centre + 0.5) / support;
        weights[k - first] = (float)(off < 1.0 ? (1.0 - off) / total : 0.0);
    }
    axis->first[i] = first;
    axis->n[i] = end - first;
}

bool dunlin__image_axis_make(const dunlin_alloc *alloc, int32_t n_from, int32_t n_to,
                             dunlin_image_axis *out_axis)
{
    *out_axis = (dunlin_image_axis){.n_from = n_from, .n_to = n_to};
    if (n_from == n_to) {
        return true;
    }
    out_axis->n_taps = axis_taps(n_from, n_to);
    const size_t n = (size_t)n_to;
    out_axis->first = dunlin__alloc_array(alloc, n, sizeof *out_axis->first);
    out_axis->n = dunlin__alloc_array(alloc, n, sizeof *out_axis->n);
    out_axis->weights =
        dunlin__alloc_array(alloc, n * (size_t)out_axis->n_taps, sizeof *out_axis->weights);
    if (out_axis->first == NULL || out_axis->n == NULL || out_axis->weights == NULL) {
        return false;
    }
    for (int32_t i = 0; i < n_to; i++) {
        fill_pixel(out_axis, i);
    }
    return true;
}

void dunlin__image_axis_free(const dunlin_alloc *alloc, dunlin_image_axis *axis)
{
    const size_t n = (size_t)axis->n_to;
    dunlin__free_array(alloc, axis->first, n, sizeof *axis->first);
    dunlin__free_array(alloc, axis->n, n, sizeof *axis->n);
    dunlin__free_array(alloc, axis->weights, n * (size_t)axis->n_taps, sizeof *axis->weights);
    *axis = (dunlin_image_axis){.n_from = 0};
}

uint64_t dunlin__image_axis_bytes(const dunlin_image_axis *axis)
{
    return axis->n_taps == 0 ? 0 : (uint64_t)axis->n_to * (8 + 4 * (uint64_t)axis->n_taps);
}

int32_t dunlin__image_centre(int32_t n, int32_t n_window)
{
    const int32_t spare = n - n_window;
    if (spare < 0) {
        return -(-spare / 2);
    }
    const int32_t half = spare / 2; /* Python rounds a half to the even number */
    return spare % 2 == 0 ? half : half + half % 2;
}

/* --- the window --- */

/* A side of the window within the image: pixels [first, end) of the image lie in it. */
typedef struct span {
    int32_t first, end;
    int32_t at; /* of `first` in the window */
} span;

/* What the window keeps of the resized image. */
typedef struct kept {
    const dunlin_image *image;
    bool is_flipped;
    span rows, columns;
} kept;

static span clip_span(int32_t start, int32_t n_window, int32_t n)
{
    span made = {.first = start < 0 ? 0 : start, .end = start + n_window};
    made.end = made.end > n ? n : made.end;
    made.end = made.end < made.first ? made.first : made.end;
    made.at = made.first - start;
    return made;
}

size_t dunlin__image_scratch(const dunlin_image *image)
{
    if (image->rows.n_taps == 0 && image->columns.n_taps == 0) {
        return 0;
    }
    /* Source rows times the window's columns, and one finished row. */
    return ((size_t)image->rows.n_from + 1) * (size_t)image->width;
}

/* Columns [columns.first, columns.end) of one source row, as floats. */
static void resize_row(const kept *window, const void *plane, int32_t row, float *to)
{
    const dunlin_image *image = window->image;
    const span *columns = &window->columns;
    const dunlin_image_axis *axis = &image->columns;
    const size_t start = (size_t)row * (size_t)axis->n_from;
    const uint8_t *bytes = (const uint8_t *)plane + (image->dtype == DUNLIN_U8 ? start : 0);
    const float *floats = (const float *)plane + (image->dtype == DUNLIN_U8 ? 0 : start);
    for (int32_t x = columns->first; x < columns->end; x++) {
        if (axis->n_taps == 0) {
            to[x - columns->first] = image->dtype == DUNLIN_U8 ? (float)bytes[x] : floats[x];
            continue;
        }
        const float *weights = axis->weights + (size_t)x * (size_t)axis->n_taps;
        const int32_t first = axis->first[x];
        const int32_t n = axis->n[x];
        float sum = 0.0F;
        if (image->dtype == DUNLIN_U8) {
            for (int32_t k = 0; k < n; k++) {
                sum += weights[k] * (float)bytes[first + k];
            }
        } else {
            for (int32_t k = 0; k < n; k++) {
                sum += weights[k] * floats[first + k];
            }
        }
        to[x - columns->first] = sum;
    }
}

/* One finished row into its place in the window, rounded if it is bytes. */
static void store_row(const kept *window, const float *from, unsigned char *to_row)
{
    const dunlin_image *image = window->image;
    const span *columns = &window->columns;
    const int32_t n = columns->end - columns->first;
    for (int32_t x = 0; x < n; x++) {
        const int32_t at = columns->at + x;
        const int32_t to = window->is_flipped ? image->width - 1 - at : at;
        if (image->dtype == DUNLIN_U8) {
            /* Above 2^23 a float has no fraction: the sum is rounded to the nearest, ties to even.
             */
            const float whole = (from[x] + 8388608.0F) - 8388608.0F;
            const float low = whole < 0.0F ? 0.0F : whole;
            to_row[to] = (unsigned char)(low > 255.0F ? 255.0F : low);
        } else {
            memcpy(to_row + (size_t)to * sizeof(float), &from[x], sizeof(float));
        }
    }
}

static void resize_plane(const kept *window, const void *from, float *scratch, unsigned char *to)
{
    const dunlin_image *image = window->image;
    const dunlin_image_axis *axis = &image->rows;
    const span *rows = &window->rows;
    const span *columns = &window->columns;
    const size_t row_bytes = (size_t)image->width * dunlin_dtype_bytes(image->dtype);
    const size_t width = (size_t)(columns->end - columns->first);
    const bool has_taps = axis->n_taps != 0;
    const int32_t last = rows->end - 1;
    const int32_t first_row = has_taps ? axis->first[rows->first] : rows->first;
    const int32_t end_row = has_taps ? axis->first[last] + axis->n[last] : rows->end;
    float *finished = scratch + (size_t)axis->n_from * (size_t)image->width;
    for (int32_t row = first_row; row < end_row; row++) {
        resize_row(window, from, row, scratch + (size_t)(row - first_row) * width);
    }
    for (int32_t y = rows->first; y < rows->end; y++) {
        const float *line = scratch + (size_t)(y - first_row) * width;
        if (has_taps) {
            const float *weights = axis->weights + (size_t)y * (size_t)axis->n_taps;
            memset(finished, 0, width * sizeof *finished);
            for (int32_t k = 0; k < axis->n[y]; k++) {
                const float *source = scratch + (size_t)(axis->first[y] + k - first_row) * width;
                for (size_t x = 0; x < width; x++) {
                    finished[x] += weights[k] * source[x];
                }
            }
            line = finished;
        }
        store_row(window, line, to + (size_t)(rows->at + y - rows->first) * row_bytes);
    }
}

static void copy_plane(const kept *window, const unsigned char *from, unsigned char *to)
{
    const dunlin_image *image = window->image;
    const span *rows = &window->rows;
    const span *columns = &window->columns;
    const size_t element_bytes = dunlin_dtype_bytes(image->dtype);
    const size_t from_bytes = (size_t)image->columns.n_from * element_bytes;
    const size_t to_bytes = (size_t)image->width * element_bytes;
    const int32_t n = columns->end - columns->first;
    for (int32_t y = rows->first; y < rows->end; y++) {
        const unsigned char *line =
            from + (size_t)y * from_bytes + (size_t)columns->first * element_bytes;
        unsigned char *to_row = to + (size_t)(rows->at + y - rows->first) * to_bytes;
        if (!window->is_flipped) {
            memcpy(to_row + (size_t)columns->at * element_bytes, line, (size_t)n * element_bytes);
            continue;
        }
        for (int32_t x = 0; x < n; x++) {
            memcpy(to_row + (size_t)(image->width - 1 - columns->at - x) * element_bytes,
                   line + (size_t)x * element_bytes, element_bytes);
        }
    }
}

void dunlin__image_stored_mean(const dunlin_image *image, float scale, const float *mean,
                               float *out_stored)
{
    for (int32_t c = 0; c < image->channels; c++) {
        const float stored = mean[c] / (scale != 0.0F ? scale : 1.0F);
        const float low = stored > 0.0F ? stored + 0.5F : 0.0F;
        const float whole = (float)(int32_t)(low < 255.0F ? low : 255.0F);
        out_stored[c] = image->dtype == DUNLIN_U8 ? whole : stored;
    }
}

/* All of the window, before what the image has goes over it. */
static void fill_border(const dunlin_image *image, size_t n_plane, void *to)
{
    for (int32_t c = 0; c < image->channels; c++) {
        const float value = image->border == NULL ? 0.0F : image->border[c];
        if (image->dtype == DUNLIN_U8) {
            memset((uint8_t *)to + (size_t)c * n_plane, (uint8_t)value, n_plane);
            continue;
        }
        for (size_t i = 0; i < n_plane; i++) {
            ((float *)to)[(size_t)c * n_plane + i] = value;
        }
    }
}

void dunlin__image_apply(const dunlin_image *image, const dunlin_image_place *place,
                         const void *from, float *scratch, void *to)
{
    const size_t element_bytes = dunlin_dtype_bytes(image->dtype);
    const size_t from_plane =
        (size_t)image->rows.n_from * (size_t)image->columns.n_from * element_bytes;
    const size_t to_plane = (size_t)image->height * (size_t)image->width * element_bytes;
    const kept window = {.image = image,
                         .is_flipped = place->is_flipped,
                         .rows = clip_span(place->top, image->height, image->rows.n_to),
                         .columns = clip_span(place->left, image->width, image->columns.n_to)};
    const int32_t n_rows = window.rows.end - window.rows.first;
    const int32_t n_columns = window.columns.end - window.columns.first;
    const bool is_resized = image->rows.n_taps != 0 || image->columns.n_taps != 0;
    if (n_rows < image->height || n_columns < image->width) {
        fill_border(image, (size_t)image->height * (size_t)image->width, to);
    }
    if (n_rows == 0 || n_columns == 0) {
        return;
    }
    for (int32_t c = 0; c < image->channels; c++) {
        const unsigned char *plane = (const unsigned char *)from + (size_t)c * from_plane;
        unsigned char *out = (unsigned char *)to + (size_t)c * to_plane;
        if (is_resized) {
            resize_plane(&window, plane, scratch, out);
        } else {
            copy_plane(&window, plane, out);
        }
    }
}
