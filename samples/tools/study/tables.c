/*
 * tables.c - the tables beside a study's rows: a CSV file each, and in the study's JSON object.
 */
#include "rows.h"

#include <stdio.h>

static void write_table(FILE *file, const study_flags *flags, const char *const *columns,
                        const json_t *rows)
{
    for (size_t r = 0; r <= json_array_size(rows); r++) {
        const char *comma = "";
        for (size_t c = 0; columns[c] != NULL; c++) {
            const char *column = columns[c];
            if (study_is_left_out(flags, column)) {
                continue;
            }
            (void)fputs(comma, file);
            if (r == 0) {
                (void)fputs(column, file);
            } else {
                study_write_cell(file, json_object_get(json_array_get(rows, r - 1), column));
            }
            comma = ",";
        }
        (void)fputc('\n', file);
    }
}

int study_write_rows(const study_flags *flags, const char *name, const char *suffix,
                     const char *const *columns, const json_t *rows)
{
    char path[OUTPUT_PATH_BYTES];
    output out;
    if (!study_path(flags, name, suffix, path)) {
        return program_fail(&study_program, "--out %s: too long", flags->out);
    }
    if (!output_begin(&out, path)) {
        return program_fail(&study_program, "%s", out.error);
    }
    write_table(out.file, flags, columns, rows);
    return output_end(&out) ? EXIT_OK : program_fail(&study_program, "%s", out.error);
}

int study_write_tables(const study *at)
{
    int status = EXIT_OK;
    for (int32_t i = 0; i < at->n_sides && status == EXIT_OK; i++) {
        const study_side *side = &at->sides[i];
        char suffix[64];
        (void)snprintf(suffix, sizeof suffix, "_%s.csv", side->name);
        status = study_write_rows(at->flags, at->kind->name, suffix, side->columns, side->rows);
    }
    return status;
}

void study_put_tables(const study *at, json_t *object)
{
    for (int32_t i = 0; object != NULL && i < at->n_sides; i++) {
        (void)json_object_set(object, at->sides[i].name, at->sides[i].rows);
    }
}
