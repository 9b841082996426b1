/*
 * privacy_table.c - rows of tests/golden/data/privacy_*.csv, which make_privacy.py writes.
 */
#include "privacy_table.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

FILE *table_open(const char *name)
{
    char path[1024];
    char line[1024];
    (void)snprintf(path, sizeof path, "%s/privacy_%s.csv", TEST_PRIVACY_TABLES, name);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    cr_assert_not_null(fgets(line, sizeof line, file), "%s has no head", path);
    return file;
}

bool table_next(FILE *file, table_row *out_row)
{
    char line[1024];
    *out_row = (table_row){0};
    if (fgets(line, sizeof line, file) == NULL) {
        (void)fclose(file);
        return false;
    }
    line[strcspn(line, "\n")] = 0;
    for (char *at = line; at != NULL && out_row->n < TABLE_FIELDS; out_row->n++) {
        char *comma = strchr(at, ',');
        if (comma != NULL) {
            *comma++ = 0;
        }
        (void)snprintf(out_row->text[out_row->n], TABLE_FIELD_BYTES, "%.127s", at);
        out_row->value[out_row->n] = strtod(at, NULL);
        at = comma;
    }
    return true;
}
