/*
 * picture_png.c - PNG by libpng.
 *
 * Invariant: whatever the file says, libpng comes back through fail_damaged(); its memory and the
 * rows are given back then.
 */
#include "picture.h"

#include <mem/support.h>

#include <string.h>

#ifdef DUNLIN_HAS_PNG

#include <inttypes.h>
#include <png.h>
#include <setjmp.h>

typedef struct png_run {
    const dunlin_picture_file *file;
    dunlin_picture *picture;
    dunlin_error *error;
    dunlin_status status;
    uint64_t at; /* in the file */
    png_structp png;
    png_infop info;
    uint8_t *rows;
    size_t rows_bytes;
} png_run;

static void fail_damaged(png_structp png, png_const_charp text)
{
    png_run *run = png_get_error_ptr(png);
    run->status = dunlin__fail(run->error, DUNLIN_DATA, "data", 0, "%s: damaged: %.100s",
                               run->file->name, text);
    png_longjmp(png, 1);
}

static void leave(png_run *run, dunlin_status status)
{
    run->status = status;
    png_longjmp(run->png, 1);
}

static void drop_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void read_bytes(png_structp png, png_bytep out, size_t n)
{
    png_run *run = png_get_io_ptr(png);
    int code = 0;
    const size_t done = dunlin__picture_get(run->file, run->at, out, n, &code);
    if (code != 0) {
        leave(run, dunlin__fail(run->error, DUNLIN_IO, "data", code, "%s: %s", run->file->name,
                                strerror(code)));
    }
    if (done < n) {
        png_error(png, "the file is cut off");
    }
    run->at += n;
}

/*
 * libpng holds two rows as they are in the file and one as wide as it may become, and of an
 * interlaced file, whose passes go over all of it, the whole image is held here; else one row.
 */
static void take_room(png_run *run)
{
    png_structp png = run->png;
    const uint64_t width = png_get_image_width(png, run->info);
    const uint64_t height = png_get_image_height(png, run->info);
    const bool is_interlaced = png_get_interlace_type(png, run->info) != PNG_INTERLACE_NONE;
    const uint64_t n_samples =
        (png_get_color_type(png, run->info) & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1;
    const uint64_t most_bytes = png_get_bit_depth(png, run->info) == 16 ? 8 : 4; /* of a pixel */
    const dunlin_picture_plan plan = {
        .kind = is_interlaced ? "an interlaced PNG of " : "",
        .file_width = (int64_t)width,
        .file_height = (int64_t)height,
        .width = (int64_t)width,
        .height = (int64_t)height,
        .own_bytes = 3 * most_bytes * width + n_samples * width * (is_interlaced ? height : 1)};
    const dunlin_status status = dunlin__picture_begin(run->file, &plan, run->picture, run->error);
    if (status != DUNLIN_OK) {
        leave(run, status);
    }
}

/* Eight bits a sample, no palette, no alpha. */
static dunlin_picture_row read_header(png_run *run)
{
    png_structp png = run->png;
    png_read_info(png, run->info);
    const uint64_t width = png_get_image_width(png, run->info);
    const uint64_t height = png_get_image_height(png, run->info);
    if (width * height > DUNLIN_PICTURE_PIXELS) {
        leave(run, dunlin__fail(run->error, DUNLIN_LIMIT, "data", 0,
                                "%s: %" PRIu64 " x %" PRIu64 " pixels: the limit is %d in all",
                                run->file->name, width, height, DUNLIN_PICTURE_PIXELS));
    }
    take_room(run);
    const int colours = png_get_color_type(png, run->info);
    if (colours == PNG_COLOR_TYPE_PALETTE) {
        png_set_palette_to_rgb(png);
    } else if (colours == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png, run->info) < 8) {
        png_set_expand_gray_1_2_4_to_8(png);
    }
    png_set_scale_16(png);
    png_set_strip_alpha(png);
    if (png_get_interlace_type(png, run->info) != PNG_INTERLACE_NONE) {
        (void)png_set_interlace_handling(png);
    }
    png_read_update_info(png, run->info);
    run->picture->is_grey = (colours & PNG_COLOR_MASK_COLOR) == 0;
    return run->picture->is_grey ? DUNLIN_ROW_GREY : DUNLIN_ROW_RGB;
}

static void read_rows(png_run *run, dunlin_picture_row kind)
{
    png_structp png = run->png;
    const size_t row_bytes = png_get_rowbytes(png, run->info);
    const uint32_t height = png_get_image_height(png, run->info);
    const bool is_interlaced = png_get_interlace_type(png, run->info) != PNG_INTERLACE_NONE;
    const uint64_t bytes = is_interlaced ? (uint64_t)row_bytes * height : row_bytes;
    run->rows_bytes = (size_t)bytes;
    run->rows = dunlin__alloc_zeroed(run->file->alloc, run->rows_bytes, 1);
    if (run->rows == NULL) {
        leave(run, dunlin__fail(run->error, DUNLIN_MEMORY, "data", 0,
                                "%s: no memory for %" PRIu64 " bytes", run->file->name, bytes));
    }
    const int n_passes = is_interlaced ? 7 : 1;
    for (int pass = 0; pass < n_passes; pass++) {
        for (uint32_t y = 0; y < height; y++) {
            uint8_t *row = run->rows + (is_interlaced ? y * row_bytes : 0);
            png_read_row(png, row, NULL);
            if (pass == n_passes - 1) {
                dunlin__picture_put(run->picture, (int32_t)y, kind, row);
            }
        }
    }
    png_read_end(png, NULL);
}

dunlin_status dunlin__picture_png(const dunlin_picture_file *file, dunlin_picture *picture,
                                  dunlin_error *error)
{
    png_run run = {.file = file, .picture = picture, .error = error};
    png_run *const held = &run;
    held->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, held, fail_damaged, drop_warning);
    held->info = held->png == NULL ? NULL : png_create_info_struct(held->png);
    if (held->info == NULL) {
        png_destroy_read_struct(&held->png, NULL, NULL);
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "%s: no memory to decode it",
                            file->name);
    }
    if (setjmp(png_jmpbuf(held->png)) == 0) {
        png_set_read_fn(held->png, held, read_bytes);
        png_set_user_limits(held->png, 0x7FFFFFFF, 0x7FFFFFFF);
        /* Texts and profiles, which may be long, are of no use here. */
        png_set_keep_unknown_chunks(held->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
        read_rows(held, read_header(held));
    }
    png_destroy_read_struct(&held->png, &held->info, NULL);
    dunlin__free_array(file->alloc, held->rows, held->rows_bytes, 1);
    return held->status;
}

#else

dunlin_status dunlin__picture_png(const dunlin_picture_file *file, dunlin_picture *picture,
                                  dunlin_error *error)
{
    (void)picture;
    return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                        "%s: PNG, and this build has no libpng (Debian: libpng-dev)", file->name);
}

#endif
