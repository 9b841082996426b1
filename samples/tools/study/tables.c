/*
 * tables.c - the tables beside a study's rows: a CSV file each, and in the study's JSON object.
 */
#include "rows.h"

#include <stdio.h>

static void write_side(FILE *file, const study_flags *flags, const study_side *side)
{
    for (size_t r = 0; r <= json_array_size(side->rows); r++) {
        const char *comma = "";
        for (size_t c = 0; side->columns[c] != NULL; c++) {
            const char *column = side->columns[c];
            if (study_is_left_out(flags, column)) {
                continue;
            }
            (void)fputs(comma, file);
            if (r == 0) {
                (void)fputs(column, file);
            } else {
                study_write_cell(file, json_object_get(json_array_get(side->rows, r - 1), column));
            }
            comma = ",";
        }
        (void)fputc('\n', file);
    }
}

int study_write_tables(const study *at)
{
    for (int32_t i = 0; i < at->n_sides; i++) {
        char suffix[64];
        char path[OUTPUT_PATH_BYTES];
        output out;
        (void)snprintf(suffix, sizeof suffix, "_%s.csv", at->sides[i].name);
        if (!study_path(at->flags, at->kind->name, suffix, path)) {
            return program_fail(&study_program, "--out %s: too long", at->flags->out);
        }
        if (!output_begin(&out, path)) {
            return program_fail(&study_program, "%s", out.error);
        }
        write_side(out.file, at->flags, &at->sides[i]);
        if (!output_end(&out)) {
            return program_fail(&study_program, "%s", out.error);
        }
    }
    return EXIT_OK;
}

void study_put_tables(const study *at, json_t *object)
{
    for (int32_t i = 0; object != NULL && i < at->n_sides; i++) {
        (void)json_object_set(object, at->sides[i].name, at->sides[i].rows);
    }
}
