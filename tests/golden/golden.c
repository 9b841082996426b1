/*
 * golden.c - see golden.h.
 */
#include "golden.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_bytes(FILE *in, void *out, size_t bytes)
{
    cr_assert_eq(fread(out, 1, bytes, in), bytes, "a golden file is cut off");
}

static uint32_t read_u32(FILE *in)
{
    unsigned char b[4];
    read_bytes(in, b, sizeof b);
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static uint8_t read_u8(FILE *in)
{
    uint8_t value = 0;
    read_bytes(in, &value, 1);
    return value;
}

static void read_array(FILE *in, golden_array *array)
{
    uint8_t length = read_u8(in);
    cr_assert_lt(length, sizeof array->name);
    read_bytes(in, array->name, length);
    array->dtype = (dunlin_dtype)read_u8(in);
    array->shape.n_dims = read_u8(in);
    cr_assert_leq(array->shape.n_dims, DUNLIN_MAX_DIMS);
    array->n = 1;
    for (int32_t i = 0; i < array->shape.n_dims; i++) {
        array->shape.dims[i] = read_u32(in);
        array->n *= array->shape.dims[i];
    }
    size_t bytes = (size_t)array->n * dunlin_dtype_bytes(array->dtype);
    cr_assert(bytes > 0 && bytes < 1000000, "%s has %zu bytes", array->name, bytes);
    array->data = malloc(bytes);
    cr_assert_not_null(array->data);
    read_bytes(in, array->data, bytes); /* machines we test on are little-endian, as the file */
}

void golden_open(golden *file, const char *name)
{
    char path[512];
    char magic[8];
    memset(file, 0, sizeof *file);
    snprintf(path, sizeof path, "%s/%s", DUNLIN_GOLDEN_DIR, name);
    FILE *in = fopen(path, "rb");
    cr_assert_not_null(in, "%s is missing", path);
    read_bytes(in, magic, sizeof magic);
    cr_assert_arr_eq(magic, "DUNLGOLD", sizeof magic);
    file->n_arrays = read_u32(in);
    cr_assert_leq(file->n_arrays, GOLDEN_MAX_ARRAYS);
    for (size_t i = 0; i < file->n_arrays; i++) {
        read_array(in, &file->arrays[i]);
    }
    cr_assert_eq(fgetc(in), EOF, "%s is longer than it says", path);
    fclose(in);
}

void golden_close(golden *file)
{
    for (size_t i = 0; i < file->n_arrays; i++) {
        free(file->arrays[i].data);
    }
    file->n_arrays = 0;
}

const golden_array *golden_find(const golden *file, const char *case_name, const char *part)
{
    size_t length = strlen(case_name);
    for (size_t i = 0; i < file->n_arrays; i++) {
        const char *name = file->arrays[i].name;
        if (strncmp(name, case_name, length) == 0 && name[length] == '/' &&
            strcmp(name + length + 1, part) == 0) {
            return &file->arrays[i];
        }
    }
    return NULL;
}

static const void *find_typed(const golden *file, const char *case_name, const char *part,
                              dunlin_dtype dtype)
{
    const golden_array *array = golden_find(file, case_name, part);
    cr_assert_not_null(array, "no %s/%s", case_name, part);
    cr_assert_eq(array->dtype, dtype, "%s/%s has another type", case_name, part);
    return array->data;
}

const float *golden_floats(const golden *file, const char *case_name, const char *part)
{
    return find_typed(file, case_name, part, DUNLIN_F32);
}

const double *golden_doubles(const golden *file, const char *case_name, const char *part)
{
    return find_typed(file, case_name, part, DUNLIN_F64);
}
