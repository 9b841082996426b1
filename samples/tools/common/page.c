/*
 * page.c - fills a template and writes it.
 *
 * Invariant: whatever the results say, they stay data: every '<' of the JSON is written as \u003c,
 * so no text can end the script it stands in.
 */
#include "page.h"

#include <stdlib.h>
#include <string.h>

extern const unsigned char page_charts[];

#define CHARTS "/*CHARTS*/"
#define RESULT "/*RESULT*/"

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

/* The first place in the text; `*out_part` is n_parts for the charts, n_parts + 1 for the result.
 */
static const char *find_place(const char *text, const page_part *parts, int n_parts, int *out_part,
                              size_t *out_length)
{
    const char *first = NULL;
    for (int i = 0; i < n_parts + 2; i++) {
        const char *place = i < n_parts ? parts[i].place : i == n_parts ? CHARTS : RESULT;
        const char *found = strstr(text, place);
        if (found != NULL && (first == NULL || found < first)) {
            first = found;
            *out_part = i;
            *out_length = strlen(place);
        }
    }
    return first;
}

static void fill(FILE *file, const char *template, const page_part *parts, int n_parts,
                 const char *data)
{
    int part = 0;
    size_t length = 0;
    for (const char *place; (place = find_place(template, parts, n_parts, &part, &length)) != NULL;
         template = place + length) {
        (void)fwrite(template, 1, (size_t)(place - template), file);
        if (part < n_parts) {
            (void)fputs(parts[part].text, file);
        } else if (part == n_parts) {
            (void)fputs((const char *)page_charts, file);
        } else {
            write_safe(file, data);
        }
    }
    (void)fputs(template, file);
}

bool page_write(const char *path, const char *template, const page_part *parts, int n_parts,
                const json_t *result, char out_error[OUTPUT_ERROR_BYTES])
{
    char *data = json_dumps(result, JSON_COMPACT);
    output out;
    if (data == NULL || !output_begin(&out, path)) {
        (void)snprintf(out_error, OUTPUT_ERROR_BYTES, "%s",
                       data == NULL ? "no memory for the page" : out.error);
        free(data);
        return false;
    }
    fill(out.file, template, parts, n_parts, data);
    free(data);
    const bool is_written = output_end(&out);
    if (!is_written) {
        memcpy(out_error, out.error, OUTPUT_ERROR_BYTES);
    }
    return is_written;
}
