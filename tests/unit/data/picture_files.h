/*
 * picture_files.h - JPEG and PNG files, made for a test.
 */
#ifndef TESTS_PICTURE_FILES_H
#define TESTS_PICTURE_FILES_H

#include "data_files.h"

/* Of samples side by side; `colours` is libpng's colour type, bits 8 or 16 (big-endian). */
test_bytes test_png(int width, int height, int colours, int bits, bool is_interlaced,
                    const uint8_t *samples);
/* A palette of 256 colours (i, 255 - i, i / 2). */
test_bytes test_png_palette(int width, int height, const uint8_t *indices);
/* 1 (grey), 3 (RGB) or 4 (CMYK) samples a pixel; quality 100. */
test_bytes test_jpeg(int width, int height, int n_samples, bool is_progressive,
                     const uint8_t *samples);
/* The header says another size from now on. */
void test_png_resize(test_bytes *png, uint32_t width, uint32_t height);
void test_jpeg_resize(test_bytes *jpeg, uint16_t width, uint16_t height);

#endif
