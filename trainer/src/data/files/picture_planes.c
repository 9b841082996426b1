/*
 * picture_planes.c - what the decoders share: bytes of the file, the planes of a picture within the
 * limits, rows into them.
 */
#include "picture.h"

#include <mem/platform.h>
#include <mem/support.h>

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define GIVE_BACK_BYTES (4U << 20) /* from there on what was freed goes back at once */

size_t dunlin__picture_get(const dunlin_picture_file *file, uint64_t at, uint8_t *out, size_t n,
                           int *out_code)
{
    *out_code = 0;
    if (file->bytes != NULL) {
        const size_t left = at < file->n ? file->n - (size_t)at : 0;
        const size_t taken = n < left ? n : left;
        memcpy(out, file->bytes + (size_t)at, taken);
        return taken;
    }
    size_t done = 0;
    ssize_t got = 1;
    while (done < n && got != 0) {
        got = pread(file->descriptor, out + done, n - done, (off_t)(at + done));
        if (got < 0 && errno != EINTR) {
            *out_code = errno;
            return done;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return done;
}

dunlin_status dunlin__picture_begin(const dunlin_picture_file *file,
                                    const dunlin_picture_plan *plan, dunlin_picture *picture,
                                    dunlin_error *error)
{
    const uint64_t plane_bytes =
        (uint64_t)plan->width * (uint64_t)plan->height * (uint64_t)file->channels;
    const uint64_t after_bytes =
        file->after_fn == NULL ? 0 : file->after_fn(file->after_ctx, plan->width, plan->height);
    const uint64_t bytes = plane_bytes + plan->own_bytes + after_bytes + DUNLIN_PICTURE_OWN_BYTES;
    const bool has_room = file->room != NULL && file->room->limit < DUNLIN_PICTURE_BYTES;
    const uint64_t limit = has_room ? file->room->limit : DUNLIN_PICTURE_BYTES;
    if (bytes > limit) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                            "%s: %s%" PRId64 " x %" PRId64 " pixels: decoding takes %" PRIu64
                            " bytes: the limit is %" PRIu64,
                            file->name, plan->kind, plan->file_width, plan->file_height, bytes,
                            limit);
    }
    if (file->room == NULL || dunlin__picture_room_take(file->room, bytes)) {
        picture->taken_bytes = bytes;
    }
    picture->channels = file->channels;
    picture->width = (int32_t)plan->width;
    picture->height = (int32_t)plan->height;
    picture->pixels = dunlin__alloc_array(file->alloc, (size_t)plane_bytes, 1);
    return picture->pixels != NULL
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                              "%s: no memory for %" PRIu64 " bytes", file->name, plane_bytes);
}

void dunlin__picture_free(const dunlin_picture_file *file, dunlin_picture *picture)
{
    dunlin__free_array(file->alloc, picture->pixels,
                       (size_t)picture->channels * (size_t)picture->height * (size_t)picture->width,
                       1);
    picture->pixels = NULL;
    /* The C library keeps what a thread has freed for that thread, which adds up over threads. */
    if (picture->taken_bytes >= GIVE_BACK_BYTES) {
        dunlin__heap_give_back();
    }
    if (picture->taken_bytes > 0 && file->room != NULL) {
        dunlin__picture_room_give(file->room, picture->taken_bytes);
    }
    picture->taken_bytes = 0;
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
