/*
 * data_files.c - makes data files in all formats that are read.
 */
#include "data_files.h"

#include <criterion/criterion.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

void test_put(test_bytes *to, const void *bytes, size_t n)
{
    if (to->n + n > to->capacity) {
        to->capacity = 2 * (to->n + n) + 64;
        to->bytes = realloc(to->bytes, to->capacity);
    }
    memcpy(to->bytes + to->n, bytes, n);
    to->n += n;
}

void test_put_u8(test_bytes *to, uint8_t value)
{
    test_put(to, &value, 1);
}

void test_put_be32(test_bytes *to, uint32_t value)
{
    uint8_t bytes[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                        (uint8_t)value};
    test_put(to, bytes, sizeof bytes);
}

void test_bytes_free(test_bytes *bytes)
{
    free(bytes->bytes);
    memset(bytes, 0, sizeof *bytes);
}

test_bytes test_idx_images(uint32_t n)
{
    test_bytes made = {0};
    test_put_be32(&made, 0x00000803);
    test_put_be32(&made, n);
    test_put_be32(&made, 28);
    test_put_be32(&made, 28);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < 28 * 28; k++) {
            test_put_u8(&made, (uint8_t)(i * 7 + k));
        }
    }
    return made;
}

test_bytes test_idx_labels(uint32_t n)
{
    test_bytes made = {0};
    test_put_be32(&made, 0x00000801);
    test_put_be32(&made, n);
    for (uint32_t i = 0; i < n; i++) {
        test_put_u8(&made, (uint8_t)(i % 10));
    }
    return made;
}

test_bytes test_qmnist(uint32_t n, uint32_t n_writers)
{
    test_bytes made = {0};
    test_put_be32(&made, 0x00000C02);
    test_put_be32(&made, n);
    test_put_be32(&made, 8);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row[8] = {i % 10, 4, 100 + 3 * (n_writers - 1 - i % n_writers), i, 0, 0, 0, 0};
        for (size_t k = 0; k < 8; k++) {
            test_put_be32(&made, row[k]);
        }
    }
    return made;
}

test_bytes test_cifar(uint32_t n)
{
    test_bytes made = {0};
    for (uint32_t i = 0; i < n; i++) {
        test_put_u8(&made, (uint8_t)(i % 10));
        for (uint32_t k = 0; k < 3072; k++) {
            test_put_u8(&made, (uint8_t)(i + k));
        }
    }
    return made;
}

void test_folder_begin(test_folder *folder)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder->path, sizeof folder->path, "%s/dunlin-data-XXXXXX",
             base == NULL || base[0] == '\0' ? "/tmp" : base);
    cr_assert_not_null(mkdtemp(folder->path));
}

/* Removes the files of a folder and of the folders in it, down to `depth`. */
static void remove_tree(const char *path, int depth)
{
    DIR *dir = opendir(path);
    cr_assert_not_null(dir);
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char inner[600];
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        struct stat info;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            stat(inner, &info) != 0) {
            continue;
        }
        if (S_ISDIR(info.st_mode) && depth > 0) {
            remove_tree(inner, depth - 1);
        } else {
            (void)unlink(inner);
        }
    }
    closedir(dir);
    cr_assert_eq(rmdir(path), 0);
}

void test_folder_end(const test_folder *folder)
{
    remove_tree(folder->path, 3);
}

static void full_path(const test_folder *folder, const char *name, char path[512])
{
    snprintf(path, 512, "%s/%s", folder->path, name);
    char *slash = path + strlen(folder->path);
    for (slash = strchr(slash + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
}

void test_folder_write_raw(const test_folder *folder, const char *name, const void *bytes, size_t n)
{
    char path[512];
    full_path(folder, name, path);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, n, file), n);
    cr_assert_eq(fclose(file), 0);
}

void test_folder_write(const test_folder *folder, const char *name, const test_bytes *bytes)
{
    size_t length = strlen(name);
    if (length < 3 || strcmp(name + length - 3, ".gz") != 0) {
        test_folder_write_raw(folder, name, bytes->bytes, bytes->n);
        return;
    }
    char path[512];
    full_path(folder, name, path);
    gzFile file = gzopen(path, "wb6");
    cr_assert_not_null(file);
    cr_assert(bytes->n == 0 || gzwrite(file, bytes->bytes, (unsigned)bytes->n) == (int)bytes->n);
    cr_assert_eq(gzclose(file), Z_OK);
}
