/*
 * report.c - the tables as CSV and JSON, and all tables of a folder as one page.
 *
 * Invariant: CSV files without their "time_...", "wire_...", "energy_..." and "torch_..." columns
 * follow from the command alone.
 */
#include "named.h"
#include "study.h"

#include <common/page.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern const unsigned char study_report_template[], study_report_style[], study_report_figures[],
    study_report_words[], study_report_plot[], study_report_charts[], study_report_papers[],
    study_report_heterogeneity[], study_report_precision[], study_report_claims[],
    study_report_page[];

static void write_text(FILE *file, const char *text)
{
    if (strpbrk(text, ",\"\n") == NULL) {
        (void)fputs(text, file);
        return;
    }
    (void)fputc('"', file);
    for (; *text != '\0'; text++) {
        if (*text == '"') {
            (void)fputc('"', file);
        }
        (void)fputc(*text, file);
    }
    (void)fputc('"', file);
}

void study_write_cell(FILE *file, const json_t *cell)
{
    if (json_is_string(cell)) {
        write_text(file, json_string_value(cell));
    } else if (json_is_integer(cell)) {
        (void)fprintf(file, "%lld", (long long)json_integer_value(cell));
    } else if (json_is_real(cell)) {
        (void)fprintf(file, "%.6g", json_real_value(cell));
    }
}

bool study_is_left_out(const study_flags *flags, const char *column)
{
    return flags->no_times &&
           (strncmp(column, "time_", 5) == 0 || strncmp(column, "wire_", 5) == 0 ||
            strncmp(column, "energy_", 7) == 0 || strncmp(column, "torch_", 6) == 0);
}

/* The columns of a study, then with --dataset what says which data set it was; NULL past the last.
 */
static const char *column_at(const study *at, size_t c)
{
    static const char *const of_data[] = {"dataset", "is_synthetic", NULL};
    const char *const *columns = study_kind_of(at)->columns;
    size_t n = 0;
    bool is_told = study_flags_of(at)->dataset == NULL;
    for (; columns[n] != NULL; n++) {
        is_told = is_told || strcmp(columns[n], of_data[0]) == 0;
    }
    if (c < n || is_told) {
        return columns[c < n ? c : n];
    }
    return of_data[c - n < 2 ? c - n : 2];
}

static void write_table(FILE *file, const study *at)
{
    const json_t *rows = study_rows(at);
    for (size_t r = 0; r <= json_array_size(rows); r++) {
        const char *comma = "";
        for (size_t c = 0; column_at(at, c) != NULL; c++) {
            const char *column = column_at(at, c);
            if (study_is_left_out(study_flags_of(at), column)) {
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

/* The table as the report takes it. */
static int write_json(const study *at)
{
    const study_kind *kind = study_kind_of(at);
    char path[OUTPUT_PATH_BYTES];
    char error[OUTPUT_ERROR_BYTES];
    char command[2200];
    json_t *columns = json_array();
    for (size_t c = 0; column_at(at, c) != NULL; c++) {
        (void)json_array_append_new(columns, json_string(column_at(at, c)));
    }
    const char *named = study_flags_of(at)->named;
    if (named == NULL) {
        (void)snprintf(command, sizeof command, "dunlin-study %s%s", kind->name,
                       study_flags_of(at)->command);
    } else {
        (void)snprintf(command, sizeof command, "dunlin-study %s%s --parts %s", named,
                       study_flags_of(at)->command, kind->name);
    }
    json_t *table =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:O, s:I, s:O}", "name", kind->name, "title",
                  kind->title, "question", kind->question, "method", kind->method, "command",
                  command, "columns", columns, "rows", study_rows(at), "n_parts",
                  (json_int_t)study_n_parts(at), "left_out", study_left_out(at));
    study_put_tables(at, table);
    if (named != NULL) {
        (void)json_object_set_new(table, "named", json_string(named));
    }
    const bool is_written = table != NULL &&
                            study_path(study_flags_of(at), kind->name, ".json", path) &&
                            output_json(path, table, error);
    json_decref(table);
    return is_written ? EXIT_OK : program_fail(&study_program, "%s cannot be written", path);
}

int study_write_csv(const study *at)
{
    char path[OUTPUT_PATH_BYTES];
    output out;
    if (!study_path(study_flags_of(at), study_kind_of(at)->name, ".csv", path)) {
        return program_fail(&study_program, "--out %s: too long", study_flags_of(at)->out);
    }
    if (!output_begin(&out, path)) {
        return program_fail(&study_program, "%s", out.error);
    }
    write_table(out.file, at);
    if (!output_end(&out)) {
        return program_fail(&study_program, "%s", out.error);
    }
    return write_json(at);
}

/* What the figures were measured on. */
static json_t *machine_of(const study_flags *flags)
{
    char line[256];
    char cpu[200] = "unknown";
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            (void)snprintf(cpu, sizeof cpu, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
            break;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    json_t *machine = json_pack("{s:s, s:i, s:I, s:s, s:s, s:b, s:I}", "cpu", cpu, "cores",
                                (int)sysconf(_SC_NPROCESSORS_ONLN), "threads",
                                (json_int_t)flags->n_threads, "version", dunlin_version_string(),
                                "costs", flags->costs == NULL ? "roofline" : flags->costs, "quick",
                                flags->is_quick, "seed", (json_int_t)flags->seed);
    if (machine != NULL && flags->max_minutes > 0.0) {
        (void)json_object_set_new(machine, "max_minutes", json_real(flags->max_minutes));
    }
    if (machine != NULL && flags->max_processor_minutes > 0.0) {
        (void)json_object_set_new(machine, "max_processor_minutes",
                                  json_real(flags->max_processor_minutes));
    }
    if (machine != NULL && flags->dataset != NULL) {
        (void)json_object_set_new(machine, "dataset", json_string(flags->choice.name));
        (void)json_object_set_new(machine, "data", json_string(flags->own.title));
    }
    return machine;
}

/* Appends what DIR/NAME.json holds, if it is there. */
static void add_file(const study_flags *flags, const char *name, json_t *list)
{
    char path[OUTPUT_PATH_BYTES];
    json_t *table = study_path(flags, name, ".json", path) ? json_load_file(path, 0, NULL) : NULL;
    if (table != NULL) {
        (void)json_array_append_new(list, table);
    }
}

int study_write_report(const study_flags *flags, const study_kind *const *kinds, size_t n_kinds)
{
    char path[OUTPUT_PATH_BYTES];
    char error[OUTPUT_ERROR_BYTES] = "";
    json_t *tables = json_array();
    json_t *named = json_array();
    for (size_t i = 0; i < n_kinds; i++) {
        add_file(flags, kinds[i]->name, tables);
    }
    for (size_t i = 0; study_named_all[i] != NULL; i++) {
        study_flags inside = *flags;
        inside.named = study_named_all[i]->name;
        for (size_t k = 0; k < study_named_all[i]->n_parts; k++) {
            add_file(&inside, study_named_all[i]->parts[k].kind->name, tables);
        }
        add_file(flags, study_named_all[i]->name, named);
    }
    json_t *all = json_pack("{s:o, s:o, s:o}", "machine", machine_of(flags), "tables", tables,
                            "named", named);
    const page_part parts[] = {{"/*STYLE*/", (const char *)study_report_style},
                               {"/*FIGURES*/", (const char *)study_report_figures},
                               {"/*WORDS*/", (const char *)study_report_words},
                               {"/*PLOT*/", (const char *)study_report_plot},
                               {"/*DRAW*/", (const char *)study_report_charts},
                               {"/*PAPERS*/", (const char *)study_report_papers},
                               {"/*FLEETS*/", (const char *)study_report_heterogeneity},
                               {"/*NUMBERS*/", (const char *)study_report_precision},
                               {"/*CLAIMS*/", (const char *)study_report_claims},
                               {"/*PAGE*/", (const char *)study_report_page}};
    bool is_written = study_path(flags, "report", ".html", path) &&
                      page_write(path, (const char *)study_report_template, parts,
                                 sizeof parts / sizeof parts[0], all, error);
    is_written =
        is_written && study_path(flags, "report", ".json", path) && output_json(path, all, error);
    if (is_written && flags->json != NULL) {
        is_written = output_json(flags->json, all, error);
    }
    json_decref(all);
    return is_written ? EXIT_OK : program_fail(&study_program, "%s", error);
}
