/*
 * picture.h - a JPEG or PNG file as planes of bytes, by libjpeg and libpng where the build has
 * them.
 *
 * Grey, RGB, palette, CMYK and YCCK, with or without alpha (which is left out), 1 to 16 bits a
 * sample. A file is read piece by piece. The decoders' own memory comes from the C library; how
 * much they take is known from the header, and what would take more than DUNLIN_PICTURE_BYTES, or
 * than the room for it, is refused before it is decoded.
 */
#ifndef DUNLIN_DATA_PICTURE_H
#define DUNLIN_DATA_PICTURE_H

#include "picture_room.h"

#include <dunlin/alloc.h>

#define DUNLIN_PICTURE_PIXELS 100000000      /* the most that a file may have */
#define DUNLIN_PICTURE_BYTES (192U << 20)    /* of decoded pixels and the decoder's own, together */
#define DUNLIN_PICTURE_OWN_BYTES (64U << 10) /* of a decoder's tables, whatever the picture */
#define DUNLIN_PICTURE_FILE_BYTES (64U << 20)
#define DUNLIN_PICTURE_MARK 8 /* bytes that tell what a file is */

typedef enum dunlin_picture_kind {
    DUNLIN_PICTURE_NONE = 0,
    DUNLIN_PICTURE_JPEG,
    DUNLIN_PICTURE_PNG
} dunlin_picture_kind;

typedef struct dunlin_picture {
    int32_t channels, height, width; /* of `pixels`: planes */
    bool is_grey;                    /* in the file */
    uint8_t *pixels;
    uint64_t taken_bytes; /* in all, from the room if there is one, until it is freed */
} dunlin_picture;

/* What to decode. */
typedef struct dunlin_picture_file {
    const char *name;     /* for messages */
    const uint8_t *bytes; /* NULL: they are read from `descriptor`, which stays open */
    size_t n;
    int descriptor;
    int32_t channels; /* 1: grey; 3 */
    int32_t least; /* a JPEG whose sides are 2, 4 or 8 times twice as long is decoded at a half, a
                      quarter, an eighth; 0: as it is */
    const dunlin_alloc *alloc;
    dunlin_picture_room *room; /* what decoding may take; NULL: no limit but those above */
    /* Bytes that whoever asks needs for a picture of this size, taken from the room too; NULL:
     * none. */
    uint64_t (*after_fn)(const void *ctx, int64_t width, int64_t height);
    const void *after_ctx;
} dunlin_picture_file;

/* By its first DUNLIN_PICTURE_MARK bytes. */
dunlin_picture_kind dunlin__picture_kind(const uint8_t *bytes, size_t n);

/*
 * UNSUPPORTED (no picture, no library), LIMIT, DATA (damaged), IO, MEMORY; nothing is held then.
 * Waits while other threads have the room that it takes.
 */
dunlin_status dunlin__picture_read(const dunlin_picture_file *file, dunlin_picture *out_picture,
                                   dunlin_error *error);
void dunlin__picture_free(const dunlin_picture_file *file, dunlin_picture *picture);

/* --- for the decoders --- */

typedef enum dunlin_picture_row {
    DUNLIN_ROW_GREY = 0,
    DUNLIN_ROW_RGB,
    DUNLIN_ROW_CMYK,
    DUNLIN_ROW_CMYK_INVERTED /* as Adobe's programs write it */
} dunlin_picture_row;

/* Up to n bytes of the file from `at` on; how many there were. A failure to read is noted in
 * `out_code`, which is 0 otherwise. */
size_t dunlin__picture_get(const dunlin_picture_file *file, uint64_t at, uint8_t *out, size_t n,
                           int *out_code);

/* What a decoder is about to make. */
typedef struct dunlin_picture_plan {
    const char *kind; /* "an interlaced PNG of ", or "" */
    int64_t file_width, file_height;
    int64_t width, height; /* decoded */
    uint64_t own_bytes;    /* of the decoder, besides the planes and DUNLIN_PICTURE_OWN_BYTES */
} dunlin_picture_plan;

/* Takes the room for all of it and memory for the planes. */
dunlin_status dunlin__picture_begin(const dunlin_picture_file *file,
                                    const dunlin_picture_plan *plan, dunlin_picture *picture,
                                    dunlin_error *error);
/* One row of samples side by side into the planes. */
void dunlin__picture_put(dunlin_picture *picture, int32_t y, dunlin_picture_row kind,
                         const uint8_t *row);
dunlin_status dunlin__picture_jpeg(const dunlin_picture_file *file, dunlin_picture *picture,
                                   dunlin_error *error);
dunlin_status dunlin__picture_png(const dunlin_picture_file *file, dunlin_picture *picture,
                                  dunlin_error *error);

#endif
