/*
 * golden.h - reads the files that make_golden.py writes (the format is described there).
 */
#ifndef DUNLIN_TESTS_GOLDEN_H
#define DUNLIN_TESTS_GOLDEN_H

#include <dunlin/tensor.h>

#define GOLDEN_MAX_ARRAYS 256

typedef struct golden_array {
    char name[64];
    dunlin_dtype dtype;
    dunlin_shape shape;
    int64_t n;
    void *data; /* aligned; n elements */
} golden_array;

typedef struct golden {
    golden_array arrays[GOLDEN_MAX_ARRAYS];
    size_t n_arrays;
} golden;

/* Reads data/NAME; a missing or damaged file fails the test. */
void golden_open(golden *file, const char *name);
void golden_close(golden *file);

/* The array CASE/PART; NULL if there is none. */
const golden_array *golden_find(const golden *file, const char *case_name, const char *part);
/* The same of a given type; its absence fails the test. */
const float *golden_floats(const golden *file, const char *case_name, const char *part);
const double *golden_doubles(const golden *file, const char *case_name, const char *part);

#endif
