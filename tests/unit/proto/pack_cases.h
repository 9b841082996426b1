/*
 * pack_cases.h - the packings that tests and the bench go through.
 */
#ifndef DUNLIN_TESTS_PACK_CASES_H
#define DUNLIN_TESTS_PACK_CASES_H

#include <wire/compress.h>

/* Every packing that there is, but for seeds and block sizes. */
size_t pack_n_kinds(void);
dunlin__packing pack_kind(size_t index);
const char *pack_kind_name(size_t index);

/* A normal number. */
double pack_normal(uint64_t *state);

#endif
