/*
 * own_support.h - files of a user, and data sets over them: for tests.
 */
#ifndef TESTS_OWN_SUPPORT_H
#define TESTS_OWN_SUPPORT_H

#include "own_files.h"

#define N 20
#define SIDE 4
#define PIXELS (SIDE * SIDE)

/* Of the test that runs: the same N images as x.npy and y.npy, doubles.npy, deflated.npz,
 * stored.npz (with a test part) and pixels.csv. */
extern test_folder own_folder;
void own_setup(void);
void own_teardown(void);
uint8_t own_pixel(int64_t i, int64_t k);

void own_write_text(const char *name, const char *text);
/* Frees the bytes. */
void own_write_bytes(const char *name, test_bytes made);

/* "npy:x.npy,y.npy" with the folder in front of each file; names end with NULL. */
void own_make_name(char out[2048], const char *kind, const char *const *names);
#define NAME(out, kind, ...)                                                                       \
    char out[2048];                                                                                \
    own_make_name(out, kind, (const char *const[]){__VA_ARGS__, NULL})

/* Must succeed; the bytes counted are those told. */
dunlin_dataset *own_open_set(const char *name, dunlin_split split,
                             const dunlin_dataset_options *options, dunlin_alloc_counter *counter);
/* Must fail so, in one line that has the word, with nothing kept. */
void own_expect_refused(const char *name, const dunlin_dataset_options *options,
                        dunlin_status expected, const char *word);

#endif
