/*
 * report.c - the results as one page: the template report.html with the results put in.
 */
#include "fleet.h"

#include <common/page.h>

extern const unsigned char fleet_report_template[];

bool fleet_report_write(const char *path, const json_t *result, const char *command,
                        char out_error[OUTPUT_ERROR_BYTES])
{
    json_t *page = json_copy((json_t *)(uintptr_t)result);
    (void)json_object_set_new(page, "command", json_string(command));
    const bool is_written =
        page_write(path, (const char *)fleet_report_template, NULL, 0, page, out_error);
    json_decref(page);
    return is_written;
}
