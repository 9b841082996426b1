/*
 * test_folder.c - folders of pictures: classes, splits, kinds of files, limits and damage.
 */
#include "own_support.h"
#include "picture_files.h"

#if defined(DUNLIN_HAS_JPEG) && defined(DUNLIN_HAS_PNG)

#include <dunlin/pipeline.h>
#include <mem/support.h>

#include <criterion/criterion.h>

#include <data/files/picture.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(folder, .init = own_setup, .fini = own_teardown);

/* The images of own_support.h as PNG files, in the order of x.npy sorted by class. */
static void write_pictures(const char *root)
{
    for (int64_t i = 0; i < N; i++) {
        uint8_t pixels[PIXELS];
        char name[64];
        for (int64_t k = 0; k < PIXELS; k++) {
            pixels[k] = own_pixel(i, k);
        }
        (void)snprintf(name, sizeof name, "%s/c%d/%02d.png", root, (int)(i % 3), (int)i);
        own_write_bytes(name, test_png(SIDE, SIDE, PNG_COLOR_TYPE_GRAY, 8, false, pixels));
    }
}

static void read_one(const dunlin_dataset *set, int64_t index, uint8_t *x, int32_t *y)
{
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    cr_assert_eq(source.read_fn(source.ctx, &index, 1, x, y), DUNLIN_OK, "%s",
                 source.error_fn(source.ctx));
}

/* The same pixels, order and moments as NumPy arrays that are sorted by class. */
Test(folder, the_same_as_the_arrays)
{
    uint8_t x[N][PIXELS];
    int32_t y[N];
    int n = 0;
    for (int c = 0; c < 3; c++) {
        for (int i = c; i < N; i += 3, n++) {
            for (int64_t k = 0; k < PIXELS; k++) {
                x[n][k] = own_pixel(i, k);
            }
            y[n] = c;
        }
    }
    write_pictures("pictures");
    own_write_text("pictures/c1/notes.txt", "no picture");
    own_write_text("pictures/c1/.hidden.png", "no picture");
    own_write_bytes("sx.npy", test_npy("|u1", "(20, 4, 4)", x, sizeof x));
    own_write_bytes("sy.npy", test_npy("<i4", "(20,)", y, sizeof y));
    NAME(pictures, "folder:", "pictures");
    NAME(arrays, "npy:", "sx.npy", "sy.npy");
    for (int split = 0; split < 2; split++) {
        dunlin_alloc_counter counters[2];
        dunlin_dataset *left = own_open_set(pictures, (dunlin_split)split, NULL, &counters[0]);
        dunlin_dataset *right = own_open_set(arrays, (dunlin_split)split, NULL, &counters[1]);
        const dunlin_shape shape = dunlin_dataset_shape(left);
        cr_assert(shape.n_dims == 3 && shape.dims[0] == 1 && shape.dims[2] == SIDE);
        cr_assert_eq(dunlin_dataset_n_classes(left), 3);
        cr_assert_eq(dunlin_dataset_n_examples(left), split == 0 ? 16 : 4);
        cr_assert_eq(dunlin_dataset_n_examples(right), split == 0 ? 16 : 4);
        cr_assert_not_null(strstr(dunlin_dataset_note(left), "4 of 20 pictures are held out"));
        cr_assert_not_null(strstr(dunlin_dataset_note(left), "1 files are no pictures and left "
                                                             "out, first c1/notes.txt"));
        dunlin_source sources[2];
        dunlin_dataset_source(left, &sources[0]);
        dunlin_dataset_source(right, &sources[1]);
        cr_expect_eq(sources[0].mean[0], sources[1].mean[0]);
        cr_expect_eq(sources[0].std[0], sources[1].std[0]);
        cr_expect_eq(sources[0].scale, sources[1].scale);
        for (int64_t i = 0; i < sources[0].n_examples; i++) {
            uint8_t pixels[2][PIXELS];
            int32_t labels[2] = {-1, -2};
            read_one(left, i, pixels[0], &labels[0]);
            read_one(right, i, pixels[1], &labels[1]);
            cr_expect_eq(memcmp(pixels[0], pixels[1], PIXELS), 0);
            cr_expect_eq(labels[0], labels[1]);
            cr_expect_eq(labels[0], dunlin_dataset_label(left, i));
        }
        dunlin_dataset_close(left);
        dunlin_dataset_close(right);
        cr_expect_eq(counters[0].now_bytes, 0U);
    }
}

Test(folder, train_and_test_folders)
{
    uint8_t grey[4] = {1, 2, 3, 4};
    write_pictures("set/train");
    own_write_bytes("set/val/c2/x.PNG", test_png(2, 2, PNG_COLOR_TYPE_GRAY, 8, false, grey));
    NAME(name, "folder:", "set");
    dunlin_alloc_counter counter;
    dunlin_dataset *set = own_open_set(name, DUNLIN_SPLIT_TRAIN, NULL, &counter);
    cr_expect_eq(dunlin_dataset_n_examples(set), N);
    cr_expect_str_eq(dunlin_dataset_note(set), "");
    dunlin_dataset_close(set);
    set = own_open_set(name, DUNLIN_SPLIT_TEST, NULL, &counter);
    cr_expect_eq(dunlin_dataset_n_examples(set), 1);
    cr_expect_eq(dunlin_dataset_label(set, 0), 2);
    const dunlin_shape shape = dunlin_dataset_shape(set);
    cr_expect_eq(shape.dims[1], SIDE, "the training pictures' size");
    dunlin_dataset_close(set);
    own_write_bytes("set/val/c7/x.png", test_png(2, 2, PNG_COLOR_TYPE_GRAY, 8, false, grey));
    dunlin_error error = {0};
    cr_expect_eq(dunlin_dataset_open(name, NULL, DUNLIN_SPLIT_TEST, NULL, NULL, &set, &error),
                 DUNLIN_DATA);
    cr_expect_not_null(strstr(error.text, "val/c7: the training folder has no such class"), "%s",
                       error.text);
}

static void expect_pixel(const test_bytes *made, int32_t channels, uint8_t red, uint8_t green,
                         uint8_t blue, int within)
{
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    const dunlin_picture_file file = {
        .name = "x", .bytes = made->bytes, .n = made->n, .channels = channels, .alloc = &alloc};
    dunlin_picture picture;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__picture_read(&file, &picture, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(picture.channels, channels);
    const size_t plane = (size_t)picture.height * (size_t)picture.width;
    const int expected[3] = {red, green, blue};
    for (int32_t c = 0; c < channels; c++) {
        const int found = picture.pixels[(size_t)c * plane + plane / 2];
        cr_expect(abs(found - expected[c]) <= within, "channel %d: %d, not %d", (int)c, found,
                  expected[c]);
    }
    dunlin__picture_free(&file, &picture);
}

#define SQUARE 16

/* SQUARE x SQUARE pixels of these samples. */
static const uint8_t *flat(const uint8_t *samples, size_t n)
{
    static uint8_t pixels[SQUARE * SQUARE * 8];
    for (size_t i = 0; i < SQUARE * SQUARE * n; i++) {
        pixels[i] = samples[i % n];
    }
    return pixels;
}

static void expect_kind(test_bytes made, uint8_t red, uint8_t green, uint8_t blue, int within)
{
    const int grey = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16;
    expect_pixel(&made, 3, red, green, blue, within);
    expect_pixel(&made, 1, (uint8_t)grey, 0, 0, within);
    test_bytes_free(&made);
}

Test(folder, every_kind_of_picture)
{
    const uint8_t rgb[4] = {200, 100, 50, 7}; /* its alpha is left out */
    const uint8_t grey[2] = {90, 7};
    const uint8_t wide[2] = {0x5A, 0x80};
    expect_kind(test_png(SQUARE, SQUARE, PNG_COLOR_TYPE_RGB, 8, false, flat(rgb, 3)), 200, 100, 50,
                0);
    expect_kind(test_png(SQUARE, SQUARE, PNG_COLOR_TYPE_RGB, 8, true, flat(rgb, 3)), 200, 100, 50,
                0);
    expect_kind(test_png(SQUARE, SQUARE, PNG_COLOR_TYPE_RGBA, 8, false, flat(rgb, 4)), 200, 100, 50,
                0);
    expect_kind(test_png(SQUARE, SQUARE, PNG_COLOR_TYPE_GRAY, 8, true, flat(grey, 1)), 90, 90, 90,
                0);
    expect_kind(test_png(SQUARE, SQUARE, PNG_COLOR_TYPE_GRAY_ALPHA, 8, false, flat(grey, 2)), 90,
                90, 90, 0);
    expect_kind(test_png(SQUARE, SQUARE, PNG_COLOR_TYPE_GRAY, 16, false, flat(wide, 2)), 90, 90, 90,
                0);
    expect_kind(test_png_palette(SQUARE, SQUARE, flat(grey, 1)), 90, 165, 45, 0);
    expect_kind(test_jpeg(SQUARE, SQUARE, 3, false, flat(rgb, 3)), 200, 100, 50, 2);
    expect_kind(test_jpeg(SQUARE, SQUARE, 3, true, flat(rgb, 3)), 200, 100, 50, 2);
    expect_kind(test_jpeg(SQUARE, SQUARE, 1, false, flat(grey, 1)), 90, 90, 90, 2);
    /* libjpeg writes Adobe's mark with CMYK, and with it ink is written inverted. */
    expect_kind(test_jpeg(SQUARE, SQUARE, 4, false, flat((const uint8_t[]){200, 100, 50, 255}, 4)),
                200, 100, 50, 2);
}

static void expect_unread(const test_bytes *made, dunlin_status expected, const char *word)
{
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    const dunlin_picture_file file = {.name = "a picture",
                                      .bytes = made->bytes,
                                      .n = made->n,
                                      .channels = 3,
                                      .alloc = &counter.hooks};
    dunlin_picture picture;
    dunlin_error error = {0};
    const dunlin_status status = dunlin__picture_read(&file, &picture, &error);
    cr_expect_eq(status, expected, "%s: %s", dunlin_status_name(status), error.text);
    cr_expect_not_null(strstr(error.text, word), "\"%s\" is not in: %s", word, error.text);
    cr_expect_eq(counter.now_bytes, 0U);
}

Test(folder, what_takes_too_much_is_refused_by_name)
{
    const uint8_t rgb[3] = {1, 2, 3};
    test_bytes png = test_png(SQUARE, SQUARE, PNG_COLOR_TYPE_RGB, 8, false, flat(rgb, 3));
    test_bytes laced = test_png(SQUARE, SQUARE, PNG_COLOR_TYPE_RGB, 8, true, flat(rgb, 3));
    test_bytes jpeg = test_jpeg(SQUARE, SQUARE, 3, false, flat(rgb, 3));
    test_bytes progressive = test_jpeg(SQUARE, SQUARE, 3, true, flat(rgb, 3));
    test_png_resize(&png, 10001, 10000);
    expect_unread(&png, DUNLIN_LIMIT, "10001 x 10000 pixels: the limit is 100000000");
    test_png_resize(&png, 9000, 9000);
    expect_unread(&png, DUNLIN_LIMIT, "9000 x 9000 pixels: decoding takes 243");
    test_png_resize(&laced, 9000, 9000);
    expect_unread(&laced, DUNLIN_LIMIT, "an interlaced PNG of 9000 x 9000");
    test_jpeg_resize(&jpeg, 60000, 60000);
    expect_unread(&jpeg, DUNLIN_LIMIT, "60000 x 60000 pixels");
    test_jpeg_resize(&jpeg, 9000, 9000);
    expect_unread(&jpeg, DUNLIN_LIMIT, "9000 x 9000 pixels: decoding takes 243");
    test_jpeg_resize(&progressive, 9000, 9000);
    expect_unread(&progressive, DUNLIN_LIMIT, "a progressive JPEG of 9000 x 9000");
    test_bytes_free(&png);
    test_bytes_free(&laced);
    test_bytes_free(&jpeg);
    test_bytes_free(&progressive);
}

/* Cut at any byte, a file is damaged; none is read as grey from there on. */
Test(folder, cut_files_are_damaged)
{
    uint8_t noise[SQUARE * SQUARE * 3];
    for (size_t i = 0; i < sizeof noise; i++) {
        noise[i] = (uint8_t)(i * 37 + i / 7);
    }
    test_bytes made[4] = {test_png(SQUARE, SQUARE, PNG_COLOR_TYPE_RGB, 8, false, noise),
                          test_png(SQUARE, SQUARE, PNG_COLOR_TYPE_RGB, 8, true, noise),
                          test_jpeg(SQUARE, SQUARE, 3, false, noise),
                          test_jpeg(SQUARE, SQUARE, 3, true, noise)};
    for (size_t i = 0; i < 4; i++) {
        /* The end mark of a JPEG, two bytes, is not missed by libjpeg's warnings alone. */
        const size_t n_end = i < 2 ? 1 : 3;
        for (size_t n = 8; n + n_end <= made[i].n; n += 5) {
            const test_bytes cut = {.bytes = made[i].bytes, .n = n};
            expect_unread(&cut, DUNLIN_DATA, "a picture: damaged: ");
        }
        test_bytes_free(&made[i]);
    }
}

/* The shorter side becomes the model's, the centre is kept; a large JPEG is decoded smaller. */
Test(folder, sizes)
{
    static uint8_t wide[64 * 256 * 3];
    for (int i = 0; i < 64 * 256; i++) {
        memset(wide + 3 * i, i % 256 < 96 ? 10 : i % 256 < 160 ? 120 : 250, 3);
    }
    own_write_bytes("sizes/a/wide.png", test_png(256, 64, PNG_COLOR_TYPE_RGB, 8, false, wide));
    own_write_bytes("sizes/a/wide.jpg", test_jpeg(256, 64, 3, false, wide));
    NAME(name, "folder:", "sizes", "test=50%");
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.shape = (dunlin_shape){.n_dims = 3, .dims = {3, 8, 8}};
    for (int split = 0; split < 2; split++) {
        dunlin_alloc_counter counter;
        dunlin_dataset *set = own_open_set(name, (dunlin_split)split, &options, &counter);
        uint8_t x[3][64];
        int32_t y = 0;
        read_one(set, 0, x[0], &y);
        for (int k = 0; k < 64; k++) {
            cr_expect(abs(x[1][k] - 120) < 24, "pixel %d: %d", k, x[1][k]);
        }
        dunlin_dataset_close(set);
    }
    options.shape = (dunlin_shape){.n_dims = 1, .dims = {8}};
    own_expect_refused(name, &options, DUNLIN_MISMATCH, "pictures are (1, H, W)");
}

Test(folder, wrong_folders_are_named)
{
    char path[512];
    NAME(name, "folder:", "wrong");
    own_expect_refused(name, NULL, DUNLIN_IO, "wrong");
    own_write_text("wrong/readme", "no class here");
    own_expect_refused(name, NULL, DUNLIN_DATA, "no folder of a class");
    own_write_text("wrong/a/readme", "no picture");
    own_expect_refused(name, NULL, DUNLIN_DATA, "wrong/a: the class has no picture");
    own_write_text("wrong/a/x.jpg", "no picture");
    own_expect_refused(name, NULL, DUNLIN_DATA, "wrong/a/x.jpg: neither a JPEG nor a PNG");
    (void)snprintf(path, sizeof path, "%s/wrong/b", own_folder.path);
    uint8_t grey[4] = {1, 2, 3, 4};
    own_write_bytes("wrong/a/x.jpg", test_png(2, 2, PNG_COLOR_TYPE_GRAY, 8, false, grey));
    own_write_bytes("wrong/a/y.png", test_png(2, 2, PNG_COLOR_TYPE_GRAY, 8, false, grey));
    cr_assert_eq(mkdir(path, 0755), 0);
    own_expect_refused(name, NULL, DUNLIN_DATA, "wrong/b: the class has no picture");
    NAME(label, "folder:", "wrong", "label=x");
    own_expect_refused(label, NULL, DUNLIN_ARGUMENT, "folder: expected one folder");
}

/* A picture that breaks once the set is open fails the read, and the error names it. */
Test(folder, a_broken_picture_is_named_when_it_is_read)
{
    write_pictures("broken");
    NAME(name, "folder:", "broken", "test=5%");
    dunlin_alloc_counter counter;
    dunlin_dataset *set = own_open_set(name, DUNLIN_SPLIT_TRAIN, NULL, &counter);
    const int64_t n = dunlin_dataset_n_examples(set);
    cr_assert_eq(n, N - 1);
    for (int i = 0; i < N; i++) {
        char file[64];
        (void)snprintf(file, sizeof file, "broken/c%d/%02d.png", i % 3, i);
        own_write_text(file,
                       "\x89PNG\r\n\x1A\n and no more of it, but as long as it was before....");
    }
    uint8_t x[PIXELS];
    int32_t y = 0;
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    const int64_t last = n - 1;
    cr_expect_neq(source.read_fn(source.ctx, &last, 1, x, &y), DUNLIN_OK);
    cr_expect_not_null(strstr(source.error_fn(source.ctx), "broken/c2/"), "%s",
                       source.error_fn(source.ctx));
    dunlin_dataset_view view;
    cr_assert_eq(dunlin_dataset_subset(set, &last, 1, &view, &source), DUNLIN_OK);
    const int64_t zero = 0;
    cr_expect_neq(source.read_fn(source.ctx, &zero, 1, x, &y), DUNLIN_OK);
    cr_expect_not_null(strstr(source.error_fn(source.ctx), "broken/c2/"));
    dunlin_dataset_close(set);
}

#endif
