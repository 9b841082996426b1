/*
 * report.c - the results as one page that needs nothing else: figures, charts, a table.
 *
 * The page is a template (report.html) with two places: the chart library and the results, both put
 * in as they are. The results go in as JSON with every '<' written as \u003c, so no text can end
 * the script it stands in.
 */
#include "fleet.h"
#include "report_parts.h"

#include <common/output.h>
#include <stdlib.h>
#include <string.h>

/* Writes JSON so that it is safe between <script> tags. */
static void write_safe(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '<') {
            (void)fputs("\\u003c", file);
        } else {
            (void)fputc(*text, file);
        }
    }
}

/* The template up to a place; returns what follows it. */
static const char *write_until(FILE *file, const char *text, const char *place)
{
    const char *found = strstr(text, place);
    if (found == NULL) {
        return text;
    }
    (void)fwrite(text, 1, (size_t)(found - text), file);
    return found + strlen(place);
}

bool fleet_report_write(const char *path, const json_t *result, const char *command,
                        char out_error[256])
{
    json_t *page = json_copy((json_t *)(uintptr_t)result);
    (void)json_object_set_new(page, "command", json_string(command));
    char *text = json_dumps(page, JSON_COMPACT);
    json_decref(page);
    output out;
    if (text == NULL || !output_begin(&out, path)) {
        (void)snprintf(out_error, 256, "%s", text == NULL ? "no memory for the report" : out.error);
        free(text);
        return false;
    }
    const char *rest = write_until(out.file, (const char *)fleet_report_template, "/*CHARTS*/");
    (void)fwrite(fleet_report_charts, 1, fleet_report_charts_bytes, out.file);
    rest = write_until(out.file, rest, "/*RESULT*/");
    write_safe(out.file, text);
    (void)fputs(rest, out.file);
    free(text);
    if (!output_end(&out)) {
        (void)snprintf(out_error, 256, "%s", out.error);
        return false;
    }
    return true;
}
