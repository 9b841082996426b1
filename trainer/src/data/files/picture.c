/*
 * picture.c - pictures: what a file is, and the decoder for it.
 */
#include "picture.h"

#include <mem/support.h>

#include <string.h>

dunlin_picture_kind dunlin__picture_kind(const uint8_t *bytes, size_t n)
{
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    if (n >= 3 && bytes[0] == 0xFF && bytes[1] == 0xD8 && bytes[2] == 0xFF) {
        return DUNLIN_PICTURE_JPEG;
    }
    return n >= sizeof png && memcmp(bytes, png, sizeof png) == 0 ? DUNLIN_PICTURE_PNG
                                                                  : DUNLIN_PICTURE_NONE;
}

dunlin_status dunlin__picture_read(const dunlin_picture_file *file, dunlin_picture *out_picture,
                                   dunlin_error *error)
{
    dunlin_status status = DUNLIN_OK;
    uint8_t mark[DUNLIN_PICTURE_MARK];
    int code = 0;
    memset(out_picture, 0, sizeof *out_picture);
    const size_t n_mark = dunlin__picture_get(file, 0, mark, sizeof mark, &code);
    if (code != 0) {
        return dunlin__fail(error, DUNLIN_IO, "data", code, "%s: %s", file->name, strerror(code));
    }
    switch (dunlin__picture_kind(mark, n_mark)) {
    case DUNLIN_PICTURE_JPEG:
        status = dunlin__picture_jpeg(file, out_picture, error);
        break;
    case DUNLIN_PICTURE_PNG:
        status = dunlin__picture_png(file, out_picture, error);
        break;
    case DUNLIN_PICTURE_NONE:
    default:
        status = dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                              "%s: neither a JPEG nor a PNG file", file->name);
        break;
    }
    if (status != DUNLIN_OK) {
        dunlin__picture_free(file, out_picture);
    }
    return status;
}
