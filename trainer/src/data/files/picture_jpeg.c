/*
 * picture_jpeg.c - JPEG by libjpeg.
 *
 * Invariant: whatever the file says, libjpeg comes back through leave(); its memory and the row are
 * given back then. A file that is cut off or whose codes are wrong is damaged, not grey from there
 * on.
 */
#include "picture.h"

#include <mem/support.h>

#include <stdio.h>
#include <string.h>

#ifdef DUNLIN_HAS_JPEG

#include <inttypes.h>
#include <jerror.h>
#include <jpeglib.h>
#include <setjmp.h>
#include <stddef.h>

#define MOST_SCANS 200 /* of a progressive file; more take time and add nothing */
#define STRIP_ROWS 32  /* at most so many rows of samples are in libjpeg's own buffers */
#define BLOCK_BYTES 4096

typedef struct jpeg_run {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf out;
    const dunlin_picture_file *file;
    dunlin_picture *picture;
    dunlin_error *error;
    dunlin_status status;
    struct jpeg_source_mgr source;
    uint64_t at; /* in the file, after what is in `block` */
    uint8_t block[BLOCK_BYTES];
} jpeg_run;

static void leave(jpeg_run *run, dunlin_status status)
{
    run->status = status;
    longjmp(run->out, 1);
}

/* libjpeg's own text. */
static void fail_damaged(j_common_ptr common)
{
    jpeg_run *run = common->client_data;
    char text[JMSG_LENGTH_MAX];
    common->err->format_message(common, text);
    leave(run, dunlin__fail(run->error, DUNLIN_DATA, "data", common->err->msg_code,
                            "%s: damaged: %.100s", run->file->name, text));
}

/* A warning is a fault, unless it is about bytes that do not matter. */
static void note_message(j_common_ptr common, int level)
{
    if (level < 0 && common->err->msg_code != JWRN_EXTRANEOUS_DATA &&
        common->err->msg_code != JWRN_JFIF_MAJOR && common->err->msg_code != JWRN_ADOBE_XFORM) {
        fail_damaged(common);
    }
}

static void drop_message(j_common_ptr common)
{
    (void)common;
}

static void note_progress(j_common_ptr common)
{
    jpeg_run *run = common->client_data;
    if (run->jpeg.input_scan_number > MOST_SCANS) {
        leave(run, dunlin__fail(run->error, DUNLIN_LIMIT, "data", 0,
                                "%s: a progressive JPEG of more than %d scans", run->file->name,
                                MOST_SCANS));
    }
}

/* --- the file, block by block --- */

static void begin_input(j_decompress_ptr jpeg)
{
    (void)jpeg;
}

/* At the end of the file there is nothing more to come: libjpeg warns, which is a fault here. */
static boolean fill_block(j_decompress_ptr jpeg)
{
    jpeg_run *run = jpeg->client_data;
    int code = 0;
    const size_t n = dunlin__picture_get(run->file, run->at, run->block, BLOCK_BYTES, &code);
    if (code != 0) {
        leave(run, dunlin__fail(run->error, DUNLIN_IO, "data", code, "%s: %s", run->file->name,
                                strerror(code)));
    }
    if (n == 0) {
        WARNMS(jpeg, JWRN_JPEG_EOF);
    }
    run->at += n;
    run->source.next_input_byte = run->block;
    run->source.bytes_in_buffer = n;
    return TRUE;
}

static void skip_input(j_decompress_ptr jpeg, long n)
{
    jpeg_run *run = jpeg->client_data;
    const size_t held = run->source.bytes_in_buffer;
    if (n <= 0) {
        return;
    }
    if ((size_t)n <= held) {
        run->source.next_input_byte += n;
        run->source.bytes_in_buffer -= (size_t)n;
        return;
    }
    run->at += (uint64_t)n - held;
    run->source.bytes_in_buffer = 0;
}

static void end_input(j_decompress_ptr jpeg)
{
    (void)jpeg;
}

/* --- the picture --- */

/* Rows of samples; and a decoder of several scans holds the coefficients of the whole image, two
 * bytes each. */
static uint64_t own_bytes(const struct jpeg_decompress_struct *jpeg, bool has_scans)
{
    uint64_t bytes =
        (uint64_t)STRIP_ROWS * jpeg->image_width * (uint64_t)(unsigned)jpeg->num_components;
    for (int i = 0; i < jpeg->num_components && has_scans; i++) {
        const jpeg_component_info *component = &jpeg->comp_info[i];
        bytes += ((uint64_t)component->width_in_blocks + 8) *
                 ((uint64_t)component->height_in_blocks + 8) * DCTSIZE2 * sizeof(JCOEF);
    }
    return bytes;
}

static void read_header(jpeg_run *run)
{
    struct jpeg_decompress_struct *jpeg = &run->jpeg;
    (void)jpeg_read_header(jpeg, TRUE);
    const uint64_t pixels = (uint64_t)jpeg->image_width * jpeg->image_height;
    if (pixels > DUNLIN_PICTURE_PIXELS) {
        leave(run, dunlin__fail(run->error, DUNLIN_LIMIT, "data", 0,
                                "%s: %u x %u pixels: the limit is %d in all", run->file->name,
                                jpeg->image_width, jpeg->image_height, DUNLIN_PICTURE_PIXELS));
    }
    const unsigned side =
        jpeg->image_width < jpeg->image_height ? jpeg->image_width : jpeg->image_height;
    jpeg->scale_num = 1;
    jpeg->scale_denom = 1;
    while (run->file->least > 0 && jpeg->scale_denom < 8 &&
           side / (jpeg->scale_denom * 2) >= 2U * (unsigned)run->file->least) {
        jpeg->scale_denom *= 2;
    }
}

static void read_rows(jpeg_run *run)
{
    struct jpeg_decompress_struct *jpeg = &run->jpeg;
    dunlin_picture_row kind = DUNLIN_ROW_RGB;
    if (jpeg->jpeg_color_space == JCS_GRAYSCALE) {
        jpeg->out_color_space = JCS_GRAYSCALE;
        kind = DUNLIN_ROW_GREY;
    } else if (jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK) {
        jpeg->out_color_space = JCS_CMYK;
        kind = jpeg->saw_Adobe_marker ? DUNLIN_ROW_CMYK_INVERTED : DUNLIN_ROW_CMYK;
    } else {
        jpeg->out_color_space = JCS_RGB;
    }
    run->picture->is_grey = kind == DUNLIN_ROW_GREY;
    jpeg_calc_output_dimensions(jpeg);
    const bool has_scans = jpeg_has_multiple_scans(jpeg);
    const dunlin_picture_plan plan = {.kind = has_scans ? "a progressive JPEG of " : "",
                                      .file_width = jpeg->image_width,
                                      .file_height = jpeg->image_height,
                                      .width = jpeg->output_width,
                                      .height = jpeg->output_height,
                                      .own_bytes = own_bytes(jpeg, has_scans)};
    const dunlin_status status = dunlin__picture_begin(run->file, &plan, run->picture, run->error);
    if (status != DUNLIN_OK) {
        leave(run, status);
    }
    (void)jpeg_start_decompress(jpeg);
    JSAMPARRAY row =
        jpeg->mem->alloc_sarray((j_common_ptr)jpeg, JPOOL_IMAGE,
                                jpeg->output_width * (JDIMENSION)jpeg->output_components, 1);
    while (jpeg->output_scanline < jpeg->output_height) {
        const int32_t y = (int32_t)jpeg->output_scanline;
        (void)jpeg_read_scanlines(jpeg, row, 1);
        dunlin__picture_put(run->picture, y, kind, row[0]);
    }
    (void)jpeg_finish_decompress(jpeg);
}

dunlin_status dunlin__picture_jpeg(const dunlin_picture_file *file, dunlin_picture *picture,
                                   dunlin_error *error)
{
    jpeg_run run;
    memset(&run, 0, offsetof(jpeg_run, block));
    run.file = file;
    run.picture = picture;
    run.error = error;
    run.jpeg.err = jpeg_std_error(&run.errors);
    run.errors.error_exit = fail_damaged;
    run.errors.emit_message = note_message;
    run.errors.output_message = drop_message;
    run.jpeg.client_data = &run;
    if (setjmp(run.out) == 0) {
        jpeg_create_decompress(&run.jpeg);
        run.progress.progress_monitor = note_progress;
        run.jpeg.progress = &run.progress;
        run.source = (struct jpeg_source_mgr){.init_source = begin_input,
                                              .fill_input_buffer = fill_block,
                                              .skip_input_data = skip_input,
                                              .resync_to_restart = jpeg_resync_to_restart,
                                              .term_source = end_input};
        run.jpeg.src = &run.source;
        read_header(&run);
        read_rows(&run);
    }
    jpeg_destroy_decompress(&run.jpeg);
    return run.status;
}

#else

dunlin_status dunlin__picture_jpeg(const dunlin_picture_file *file, dunlin_picture *picture,
                                   dunlin_error *error)
{
    (void)picture;
    return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                        "%s: JPEG, and this build has no libjpeg (Debian: libjpeg-dev)",
                        file->name);
}

#endif
