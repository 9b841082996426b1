/*
 * test_folder_index.c - the index of a folder of pictures: what it takes, in which order it is, and
 * where it is refused.
 */
#include "own_support.h"
#include "picture_files.h"

#if defined(DUNLIN_HAS_JPEG) && defined(DUNLIN_HAS_PNG)

#include <mem/support.h>

#include <criterion/criterion.h>

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(folder_index, .init = own_setup, .fini = own_teardown);

#define N_FILES 1500
#define PLACE(i) ((i)*7 % N_FILES) /* files are made in another order than their names' */

/* One picture under many names, which are not made in their order: three classes. */
static void write_many(const char *root)
{
    const uint8_t grey[4] = {1, 2, 3, 4};
    char first[512];
    for (int i = 0; i < N_FILES; i++) {
        char name[64];
        const int place = PLACE(i);
        (void)snprintf(name, sizeof name, "%s/c%d/%06d.png", root, place % 3, place);
        if (i < 3) {
            own_write_bytes(name, test_png(2, 2, PNG_COLOR_TYPE_GRAY, 8, false, grey));
        } else {
            char path[512];
            (void)snprintf(first, sizeof first, "%s/%s/c%d/%06d.png", own_folder.path, root,
                           PLACE(0) % 3, PLACE(0));
            (void)snprintf(path, sizeof path, "%s/%s", own_folder.path, name);
            cr_assert_eq(link(first, path), 0, "%s", path);
        }
    }
}

#define NAME_BYTES 14 /* "c0/000000.png" and its end */
#define INDEX_BYTES (N_FILES * (20 + NAME_BYTES))

Test(folder_index, takes_what_is_told)
{
    write_many("many");
    NAME(name, "folder:", "many");
    for (int split = 0; split < 2; split++) {
        dunlin_alloc_counter counter;
        dunlin_dataset *set = own_open_set(name, (dunlin_split)split, NULL, &counter);
        const int64_t n = dunlin_dataset_n_examples(set);
        cr_assert_eq(n, split == 0 ? N_FILES * 4 / 5 : N_FILES / 5);
        const uint64_t bytes = dunlin_dataset_index_bytes(set);
        cr_expect_eq(bytes, N_FILES * (18U + NAME_BYTES) + 2 * (uint64_t)n);
        cr_expect_leq(bytes, N_FILES * (32U + NAME_BYTES));
        cr_expect_leq(dunlin_dataset_bytes(set), counter.now_bytes);
        /* Nothing but the set itself and a picture at a time comes on top of it. */
        cr_expect_lt(counter.peak_bytes, bytes + 65536);
        int32_t before = 0;
        for (int64_t i = 0; i < n; i++) {
            const int32_t label = dunlin_dataset_label(set, i);
            cr_assert_geq(label, before, "classes are not in the order of their names");
            before = label;
        }
        dunlin_dataset_close(set);
        cr_expect_eq(counter.now_bytes, 0U);
    }
}

Test(folder_index, above_its_limit_it_is_refused_before_it_is_made)
{
    write_many("many");
    NAME(name, "folder:", "many");
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    options.index_bytes = INDEX_BYTES - 1;
    cr_assert_eq(
        dunlin_dataset_open(name, NULL, DUNLIN_SPLIT_TRAIN, &options, &counter.hooks, &set, &error),
        DUNLIN_BUDGET);
    cr_expect_null(set);
    cr_expect_eq(error.needed_bytes, (uint64_t)INDEX_BYTES);
    cr_expect_not_null(strstr(error.text, "many: the index of 1500 files takes 51000 bytes: the "
                                          "limit is 50999"),
                       "%s", error.text);
    cr_expect_eq(counter.now_bytes, 0U);
    cr_expect_lt(counter.peak_bytes, (uint64_t)INDEX_BYTES, "it was made before it was refused");
    options.index_bytes = INDEX_BYTES;
    cr_assert_eq(
        dunlin_dataset_open(name, NULL, DUNLIN_SPLIT_TRAIN, &options, &counter.hooks, &set, &error),
        DUNLIN_OK, "%s", error.text);
    dunlin_dataset_close(set);
    cr_expect_eq(counter.now_bytes, 0U);
}

/* Arrays have none. */
Test(folder_index, other_sets_have_none)
{
    dunlin_dataset *set = NULL;
    cr_assert_eq(dunlin_dataset_open("random", NULL, DUNLIN_SPLIT_TRAIN, NULL, NULL, &set, NULL),
                 DUNLIN_OK);
    cr_expect_eq(dunlin_dataset_index_bytes(set), 0U);
    dunlin_dataset_close(set);
}

#endif
