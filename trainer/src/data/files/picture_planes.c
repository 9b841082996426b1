/*
 * picture_planes.c - the planes of a picture: memory within the limits, rows into them.
 */
#include "picture.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

dunlin_status dunlin__picture_begin(const dunlin_picture_file *file, int64_t width, int64_t height,
                                    dunlin_picture *picture, dunlin_error *error)
{
    const uint64_t bytes = (uint64_t)width * (uint64_t)height * (uint64_t)file->channels;
    if (bytes > DUNLIN_PICTURE_BYTES) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                            "%s: %" PRId64 " x %" PRId64 " pixels take %" PRIu64
                            " bytes to decode: the limit is %u",
                            file->name, width, height, bytes, DUNLIN_PICTURE_BYTES);
    }
    picture->channels = file->channels;
    picture->width = (int32_t)width;
    picture->height = (int32_t)height;
    picture->pixels = dunlin__alloc_array(file->alloc, (size_t)bytes, 1);
    return picture->pixels != NULL
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                              "%s: no memory for %" PRIu64 " bytes", file->name, bytes);
}

void dunlin__picture_free(const dunlin_alloc *alloc, dunlin_picture *picture)
{
    dunlin__free_array(alloc, picture->pixels,
                       (size_t)picture->channels * (size_t)picture->height * (size_t)picture->width,
                       1);
    picture->pixels = NULL;
}

/* The luma of ITU-R BT.601 in 16 fractional bits, as PIL computes it. */
static uint8_t luma(const uint8_t rgb[3])
{
    return (uint8_t)((rgb[0] * 19595U + rgb[1] * 38470U + rgb[2] * 7471U + 0x8000U) >> 16);
}

static void to_rgb(dunlin_picture_row kind, const uint8_t *from, uint8_t rgb[3])
{
    for (size_t c = 0; c < 3; c++) {
        if (kind == DUNLIN_ROW_GREY) {
            rgb[c] = from[0];
        } else if (kind == DUNLIN_ROW_RGB) {
            rgb[c] = from[c];
        } else {
            const bool is_inverted = kind == DUNLIN_ROW_CMYK_INVERTED;
            const uint32_t ink = is_inverted ? from[c] : 255U - from[c];
            const uint32_t key = is_inverted ? from[3] : 255U - from[3];
            rgb[c] = (uint8_t)((ink * key + 127U) / 255U);
        }
    }
}

void dunlin__picture_put(dunlin_picture *picture, int32_t y, dunlin_picture_row kind,
                         const uint8_t *row)
{
    const size_t width = (size_t)picture->width;
    const size_t plane = width * (size_t)picture->height;
    const size_t step = kind == DUNLIN_ROW_GREY ? 1 : kind == DUNLIN_ROW_RGB ? 3 : 4;
    uint8_t *to = picture->pixels + (size_t)y * width;
    if (kind == DUNLIN_ROW_GREY && picture->channels == 1) {
        memcpy(to, row, width);
        return;
    }
    for (size_t x = 0; x < width; x++) {
        uint8_t rgb[3];
        to_rgb(kind, row + x * step, rgb);
        if (picture->channels == 1) {
            to[x] = luma(rgb);
            continue;
        }
        for (size_t c = 0; c < 3; c++) {
            to[c * plane + x] = rgb[c];
        }
    }
}
