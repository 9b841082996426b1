/*
 * own_files.h - NumPy files and archives, made for a test.
 */
#ifndef TESTS_OWN_FILES_H
#define TESTS_OWN_FILES_H

#include "data_files.h"

/* A .npy of this type ("|u1", "<f4" ...), shape ("(3, 4)") and elements. */
test_bytes test_npy(const char *type, const char *shape, const void *elements, size_t n_bytes);
/* The same with a header of one's own and of a format; the header is padded. */
test_bytes test_npy_header(int version, const char *header, const void *elements, size_t n_bytes);

typedef struct test_member {
    const char *name;
    const test_bytes *bytes;
    bool is_deflated;
    bool is_wide; /* sizes of 64 bits, as NumPy may write them */
} test_member;

/* A .zip of these members. */
test_bytes test_zip(const test_member *members, size_t n);

#endif
