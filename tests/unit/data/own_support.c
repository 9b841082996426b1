/*
 * own_support.c - files of a user, and data sets over them.
 */
#include "own_support.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

test_folder own_folder;

void own_write_text(const char *name, const char *text)
{
    test_folder_write_raw(&own_folder, name, text, strlen(text));
}

void own_write_bytes(const char *name, test_bytes made)
{
    test_folder_write_raw(&own_folder, name, made.bytes, made.n);
    test_bytes_free(&made);
}

uint8_t own_pixel(int64_t i, int64_t k)
{
    return (uint8_t)(i * 11 + k * 7 + i * k);
}

/* The same images as NumPy files of several types and as a table. */
void own_setup(void)
{
    static uint8_t bytes[N][PIXELS];
    static double doubles[N][PIXELS];
    static int64_t labels[N];
    static char text[N * PIXELS * 5];
    size_t at = 0;
    test_folder_begin(&own_folder);
    for (int64_t i = 0; i < N; i++) {
        labels[i] = i % 3;
        at += (size_t)snprintf(text + at, sizeof text - at, "%d", (int)labels[i]);
        for (int64_t k = 0; k < PIXELS; k++) {
            bytes[i][k] = own_pixel(i, k);
            doubles[i][k] = bytes[i][k];
            at += (size_t)snprintf(text + at, sizeof text - at, ",%d", bytes[i][k]);
        }
        at += (size_t)snprintf(text + at, sizeof text - at, "\n");
    }
    test_bytes x = test_npy("|u1", "(20, 4, 4)", bytes, sizeof bytes);
    test_bytes y = test_npy("<i8", "(20,)", labels, sizeof labels);
    const test_member members[3] = {{"y_train.npy", &y, true, false},
                                    {"noise.npy", &x, false, false},
                                    {"x_train.npy", &x, true, true}};
    const test_member stored[4] = {{"x.npy", &x, false, true},
                                   {"y.npy", &y, false, false},
                                   {"x_test.npy", &x, true, false},
                                   {"y_test.npy", &y, false, true}};
    test_folder_write_raw(&own_folder, "x.npy", x.bytes, x.n);
    test_folder_write_raw(&own_folder, "y.npy", y.bytes, y.n);
    own_write_bytes("deflated.npz", test_zip(members, 3));
    own_write_bytes("stored.npz", test_zip(stored, 4));
    own_write_bytes("doubles.npy", test_npy("<f8", "(20, 1, 4, 4)", doubles, sizeof doubles));
    test_bytes_free(&x);
    test_bytes_free(&y);
    at = strlen(text);
    char *table = malloc(at + 4096);
    size_t n = (size_t)snprintf(table, 4096, "label");
    for (int k = 0; k < PIXELS; k++) {
        n += (size_t)snprintf(table + n, 4096 - n, ",p%d", k);
    }
    (void)snprintf(table + n, at + 4096 - n, "\n%s", text);
    own_write_text("pixels.csv", table);
    free(table);
}

void own_teardown(void)
{
    test_folder_end(&own_folder);
}

/* "npy:x.npy,y.npy" with the folder in front of each file. */
void own_make_name(char out[2048], const char *kind, const char *const *names)
{
    size_t at = (size_t)snprintf(out, 2048, "%s", kind);
    for (size_t i = 0; names[i] != NULL; i++) {
        const bool is_file = strchr(names[i], '=') == NULL;
        const bool is_test = strncmp(names[i], "test=", 5) == 0 && strchr(names[i], '%') == NULL;
        at += (size_t)snprintf(out + at, 2048 - at, "%s%s%s%s%s", i == 0 ? "" : ",",
                               is_test ? "test=" : "", is_file || is_test ? own_folder.path : "",
                               is_file || is_test ? "/" : "", is_test ? names[i] + 5 : names[i]);
    }
}
dunlin_dataset *own_open_set(const char *name, dunlin_split split,
                             const dunlin_dataset_options *options, dunlin_alloc_counter *counter)
{
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    dunlin_alloc_counter_init(counter, NULL);
    const dunlin_status status =
        dunlin_dataset_open(name, NULL, split, options, &counter->hooks, &set, &error);
    cr_assert_eq(status, DUNLIN_OK, "%s: %s", name, error.text);
    cr_assert_eq(counter->now_bytes, dunlin_dataset_bytes(set), "bytes held are those told");
    return set;
}

void own_expect_refused(const char *name, const dunlin_dataset_options *options,
                        dunlin_status expected, const char *word)
{
    dunlin_alloc_counter counter;
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    dunlin_alloc_counter_init(&counter, NULL);
    const dunlin_status status =
        dunlin_dataset_open(name, NULL, DUNLIN_SPLIT_TRAIN, options, &counter.hooks, &set, &error);
    cr_expect_eq(status, expected, "%s instead of %s: %s", dunlin_status_name(status),
                 dunlin_status_name(expected), error.text);
    cr_expect_not_null(strstr(error.text, word), "\"%s\" is not in: %s", word, error.text);
    cr_expect_null(strchr(error.text, '\n'));
    cr_expect_eq(counter.now_bytes, 0U);
    dunlin_dataset_close(set);
}
