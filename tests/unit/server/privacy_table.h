/*
 * privacy_table.h - rows of tests/golden/data/privacy_*.csv, which make_privacy.py writes.
 */
#ifndef TEST_PRIVACY_TABLE_H
#define TEST_PRIVACY_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#define TABLE_FIELDS 8
#define TABLE_FIELD_BYTES 128

typedef struct table_row {
    char text[TABLE_FIELDS][TABLE_FIELD_BYTES];
    double value[TABLE_FIELDS]; /* of texts that begin with a number */
    int n;
} table_row;

/* Opens privacy_NAME.csv and leaves its head behind; fails the test if it is not there. */
FILE *table_open(const char *name);

/* The next row; false, and the file is closed, when there is none. */
bool table_next(FILE *file, table_row *out_row);

#endif
