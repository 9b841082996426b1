/*
 * picture_files.c - makes JPEG and PNG files by libjpeg and libpng.
 */
#include "picture_files.h"

#if defined(DUNLIN_HAS_JPEG) && defined(DUNLIN_HAS_PNG)

#include <criterion/criterion.h>

#include <jpeglib.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static void put_png(png_structp png, png_bytep bytes, size_t n)
{
    test_put(png_get_io_ptr(png), bytes, n);
}

static void flush_png(png_structp png)
{
    (void)png;
}

static test_bytes write_png(int width, int height, int colours, int bits, bool is_interlaced,
                            size_t row_bytes, const uint8_t *samples)
{
    test_bytes made = {0};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_set_write_fn(png, &made, put_png, flush_png);
    png_set_IHDR(png, info, (uint32_t)width, (uint32_t)height, bits, colours,
                 is_interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (colours == PNG_COLOR_TYPE_PALETTE) {
        png_color palette[256];
        for (int i = 0; i < 256; i++) {
            palette[i] = (png_color){(uint8_t)i, (uint8_t)(255 - i), (uint8_t)(i / 2)};
        }
        png_set_PLTE(png, info, palette, 256);
    }
    png_write_info(png, info);
    const int n_passes = png_set_interlace_handling(png);
    for (int pass = 0; pass < n_passes; pass++) {
        for (int y = 0; y < height; y++) {
            png_write_row(png, samples + (size_t)y * row_bytes);
        }
    }
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    return made;
}

test_bytes test_png(int width, int height, int colours, int bits, bool is_interlaced,
                    const uint8_t *samples)
{
    size_t n = (colours & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1;
    n += (colours & PNG_COLOR_MASK_ALPHA) != 0 ? 1 : 0;
    return write_png(width, height, colours, bits, is_interlaced,
                     n * (size_t)width * (size_t)bits / 8, samples);
}

test_bytes test_png_palette(int width, int height, const uint8_t *indices)
{
    return write_png(width, height, PNG_COLOR_TYPE_PALETTE, 8, false, (size_t)width, indices);
}

test_bytes test_jpeg(int width, int height, int n_samples, bool is_progressive,
                     const uint8_t *samples)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    unsigned char *out = NULL;
    unsigned long n = 0;
    memset(&jpeg, 0, sizeof jpeg);
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &out, &n);
    jpeg.image_width = (JDIMENSION)width;
    jpeg.image_height = (JDIMENSION)height;
    jpeg.input_components = n_samples;
    jpeg.in_color_space = n_samples == 1 ? JCS_GRAYSCALE : n_samples == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 100, TRUE);
    if (is_progressive) {
        jpeg_simple_progression(&jpeg);
    }
    jpeg_start_compress(&jpeg, TRUE);
    uint8_t *row = malloc((size_t)width * (size_t)n_samples);
    while (jpeg.next_scanline < jpeg.image_height) {
        memcpy(row, samples + (size_t)jpeg.next_scanline * (size_t)width * (size_t)n_samples,
               (size_t)width * (size_t)n_samples);
        (void)jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    free(row);
    test_bytes made = {0};
    test_put(&made, out, n);
    free(out);
    return made;
}

static void put_be(uint8_t *at, uint32_t value, int n)
{
    for (int i = 0; i < n; i++) {
        at[i] = (uint8_t)(value >> (8 * (n - 1 - i)));
    }
}

void test_png_resize(test_bytes *png, uint32_t width, uint32_t height)
{
    uint8_t *chunk = png->bytes + 12; /* "IHDR" and its 13 bytes, then their checksum */
    put_be(chunk + 4, width, 4);
    put_be(chunk + 8, height, 4);
    put_be(chunk + 17, (uint32_t)crc32(0, chunk, 17), 4);
}

void test_jpeg_resize(test_bytes *jpeg, uint16_t width, uint16_t height)
{
    for (size_t at = 2; at + 9 < jpeg->n;) {
        uint8_t *segment = jpeg->bytes + at;
        if (segment[1] == 0xC0 || segment[1] == 0xC2) {
            put_be(segment + 5, height, 2);
            put_be(segment + 7, width, 2);
            return;
        }
        at += 2 + ((size_t)segment[2] << 8 | segment[3]);
    }
    cr_assert(false, "no frame header");
}

#endif
