/*
 * test_folder_room.c - the bytes that pictures of a folder are decoded in, on several threads: the
 * limit, what is refused by name, which failure a thread is told.
 */
#include "own_support.h"
#include "picture_files.h"

#if defined(DUNLIN_HAS_JPEG) && defined(DUNLIN_HAS_PNG)

#include <dunlin/pipeline.h>

#include <criterion/criterion.h>

#include <png.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDE 200
#define N_PICTURES 24
#define DECODE_BYTES 500000

TestSuite(folder_room, .init = own_setup, .fini = own_teardown, .timeout = 120);

static uint8_t shades[WIDE * WIDE * 3];

/* N_PICTURES of WIDE x WIDE in two classes: JPEG and PNG, plain and in passes. */
static void write_pictures(void)
{
    for (int i = 0; i < N_PICTURES; i++) {
        char name[64];
        for (size_t k = 0; k < sizeof shades; k++) {
            shades[k] = (uint8_t)(k / 97 * (size_t)(i + 3));
        }
        const bool is_png = i % 4 < 2;
        (void)snprintf(name, sizeof name, "many/c%d/%02d.%s", i % 2, i, is_png ? "png" : "jpg");
        own_write_bytes(name, is_png ? test_png(WIDE, WIDE, PNG_COLOR_TYPE_RGB, 8, false, shades)
                                     : test_jpeg(WIDE, WIDE, 3, i % 8 > 4, shades));
    }
}

static dunlin_dataset *open_many(uint64_t decode_bytes, dunlin_alloc_counter *counter)
{
    NAME(name, "folder:", "many", "test=5%");
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.shape = (dunlin_shape){.n_dims = 3, .dims = {3, 32, 32}};
    options.decode_bytes = decode_bytes;
    return own_open_set(name, DUNLIN_SPLIT_TRAIN, &options, counter);
}

typedef struct reader {
    const dunlin_dataset *set;
    int32_t first;
    int n_wrong;
    uint8_t x[N_PICTURES][3 * 32 * 32];
} reader;

static void *read_all(void *ctx)
{
    reader *self = ctx;
    dunlin_source source;
    dunlin_dataset_source(self->set, &source);
    for (int64_t i = 0; i < source.n_examples; i++) {
        const int64_t index = (i + self->first) % source.n_examples;
        int32_t y = 0;
        self->n_wrong +=
            source.read_fn(source.ctx, &index, 1, self->x[index], &y) == DUNLIN_OK ? 0 : 1;
    }
    return NULL;
}

/* Threads wait for each other rather than take more than there is, and read the same. */
Test(folder_room, threads_stay_within_it)
{
    write_pictures();
    dunlin_alloc_counter counters[2];
    dunlin_dataset *set = open_many(DECODE_BYTES, &counters[0]);
    dunlin_dataset *free_set = open_many(0, &counters[1]);
    static reader readers[5];
    pthread_t threads[5];
    readers[4].set = free_set;
    (void)read_all(&readers[4]);
    cr_expect_eq(dunlin_dataset_decode_peak(free_set), 0U, "not counted without a limit");
    for (int i = 0; i < 4; i++) {
        readers[i].set = set;
        readers[i].first = 5 * i;
        cr_assert_eq(pthread_create(&threads[i], NULL, read_all, &readers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
        cr_expect_eq(readers[i].n_wrong, 0);
        cr_expect_eq(memcmp(readers[i].x, readers[4].x, sizeof readers[i].x), 0, "thread %d", i);
    }
    cr_expect_leq(dunlin_dataset_decode_peak(set), DECODE_BYTES);
    cr_expect_gt(dunlin_dataset_decode_peak(set), WIDE * WIDE * 3U);
    dunlin_dataset_close(free_set);
    dunlin_dataset_close(set);
}

/* A picture that alone takes more is refused by name, size and limit, of whatever kind. */
Test(folder_room, a_picture_that_is_too_large_is_named)
{
    static const char *const kinds[] = {"PNG", "an interlaced PNG of ", "JPEG",
                                        "a progressive JPEG of "};
    memset(shades, 77, sizeof shades);
    for (int i = 0; i < 4; i++) {
        own_write_bytes("large/train/a/x",
                        i < 2 ? test_png(WIDE, WIDE, PNG_COLOR_TYPE_RGB, 8, i == 1, shades)
                              : test_jpeg(WIDE, WIDE, 3, i == 3, shades));
        own_write_bytes("large/test/a/y", test_png(8, 8, PNG_COLOR_TYPE_RGB, 8, false, shades));
        NAME(name, "folder:", "large");
        dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
        options.shape = (dunlin_shape){.n_dims = 3, .dims = {3, 128, 128}};
        options.decode_bytes = 150000;
        char word[96];
        (void)snprintf(word, sizeof word, "large/train/a/x: %s200 x 200 pixels: decoding takes",
                       i % 2 == 1 ? kinds[i] : "");
        own_expect_refused(name, &options, DUNLIN_LIMIT, word);
        own_expect_refused(name, &options, DUNLIN_LIMIT, "bytes: the limit is 150000");
    }
}

typedef struct failing {
    const dunlin_dataset *set;
    pthread_barrier_t *all_have_failed;
    int64_t index;
    char text[DUNLIN_ERROR_TEXT_BYTES];
} failing;

static void *fail_once(void *ctx)
{
    failing *self = ctx;
    dunlin_source source;
    uint8_t x[3 * 32 * 32];
    int32_t y = 0;
    dunlin_dataset_source(self->set, &source);
    const dunlin_status status = source.read_fn(source.ctx, &self->index, 1, x, &y);
    (void)pthread_barrier_wait(self->all_have_failed);
    (void)snprintf(self->text, sizeof self->text, "%s",
                   status == DUNLIN_OK ? "read" : source.error_fn(source.ctx));
    return NULL;
}

/* Each thread is told the file that it could not read itself, whatever others met since. */
Test(folder_room, a_thread_is_told_its_own_failure)
{
    write_pictures();
    dunlin_alloc_counter counter;
    dunlin_dataset *set = open_many(DECODE_BYTES, &counter);
    for (int i = 0; i < N_PICTURES; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "many/c%d/%02d.%s", i % 2, i, i % 4 < 2 ? "png" : "jpg");
        own_write_text(name,
                       i % 4 < 2 ? "\x89PNG\r\n\x1A\n and no more" : "\xFF\xD8\xFF and no more");
    }
    pthread_barrier_t all_have_failed;
    failing threads[8];
    pthread_t handles[8];
    cr_assert_eq(pthread_barrier_init(&all_have_failed, NULL, 8), 0);
    for (int i = 0; i < 8; i++) {
        threads[i] = (failing){.set = set, .all_have_failed = &all_have_failed, .index = 2 * i};
        cr_assert_eq(pthread_create(&handles[i], NULL, fail_once, &threads[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        cr_assert_eq(pthread_join(handles[i], NULL), 0);
        cr_expect_not_null(strstr(threads[i].text, "damaged: "), "%s", threads[i].text);
        for (int k = 0; k < i; k++) {
            cr_expect_str_neq(threads[i].text, threads[k].text);
        }
    }
    dunlin_dataset_close(set);
    (void)pthread_barrier_destroy(&all_have_failed);
}

#endif
