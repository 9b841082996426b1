/*
 * data_files.h - small data files, made for a test in a folder of its own.
 */
#ifndef TESTS_DATA_FILES_H
#define TESTS_DATA_FILES_H

#include <dunlin/dataset.h>

#include <stddef.h>
#include <stdint.h>

typedef struct test_bytes {
    uint8_t *bytes;
    size_t n;
    size_t capacity;
} test_bytes;

void test_put(test_bytes *to, const void *bytes, size_t n);
void test_put_u8(test_bytes *to, uint8_t value);
void test_put_be32(test_bytes *to, uint32_t value);
void test_bytes_free(test_bytes *bytes);

/* IDX files of n examples; pixel k of image i is (i * 7 + k) & 255, label i is i % 10. */
test_bytes test_idx_images(uint32_t n);
test_bytes test_idx_labels(uint32_t n);
/* Writer of example i: 100 + 3 * (i % n_writers), in falling order of i. */
test_bytes test_qmnist(uint32_t n, uint32_t n_writers);
/* CIFAR records: label i % 10, byte k is (i + k) & 255. */
test_bytes test_cifar(uint32_t n);

/* A folder that is removed with all in it by test_folder_end(); path has room for 256 bytes. */
typedef struct test_folder {
    char path[256];
} test_folder;
void test_folder_begin(test_folder *folder);
void test_folder_end(const test_folder *folder);
/* Writes folder/name, gzip if the name ends in .gz; sub-folders are made. */
void test_folder_write(const test_folder *folder, const char *name, const test_bytes *bytes);
/* Writes the bytes as they are. */
void test_folder_write_raw(const test_folder *folder, const char *name, const void *bytes,
                           size_t n);

#endif
