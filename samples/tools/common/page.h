/*
 * page.h - results as one page that needs nothing else: a template, the chart library, the data.
 */
#ifndef SAMPLES_COMMON_PAGE_H
#define SAMPLES_COMMON_PAGE_H

#include "output.h"

/* What stands in a template at one place, a comment such as "SCRIPT" between slashes and stars. */
typedef struct page_part {
    const char *place; /* as it stands in the template */
    const char *text;
} page_part;

/*
 * Writes `template` with Chart.js for its place CHARTS, `parts` for theirs, and `result` for
 * RESULT: JSON in which no text can end the script it stands in. The file appears whole or not at
 * all; false with one line in out_error.
 */
bool page_write(const char *path, const char *template, const page_part *parts, int n_parts,
                const json_t *result, char out_error[OUTPUT_ERROR_BYTES]);

#endif
