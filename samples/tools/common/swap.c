/*
 * swap.c - the speed of a swap file: given, or measured.
 */
#include "swap.h"

#include <dunlin/trainer_experimental.h>

#include <stdlib.h>
#include <string.h>

#define MAX_MB_PER_S 1e6

static bool is_speed(double mb_per_s)
{
    return mb_per_s >= 1e-3 && mb_per_s <= MAX_MB_PER_S;
}

int swap_speed_parse(const program_info *program, const char *text, const char *folder,
                     double *out_write_mb_per_s, double *out_read_mb_per_s)
{
    *out_write_mb_per_s = 0.0;
    *out_read_mb_per_s = 0.0;
    if (text == NULL) {
        return EXIT_OK;
    }
    if (strcmp(text, "measure") == 0) {
        dunlin_error error = {0};
        return dunlin_swap_measure(folder, out_write_mb_per_s, out_read_mb_per_s, &error) ==
                       DUNLIN_OK
                   ? EXIT_OK
                   : program_refuse(program, error.status, "--swap-speed measure: %s", error.text);
    }
    char *end = NULL;
    *out_write_mb_per_s = strtod(text, &end);
    const bool has_read = end != text && *end == ':';
    char *last = end;
    *out_read_mb_per_s = has_read ? strtod(end + 1, &last) : 0.0;
    if (!has_read || last == end + 1 || *last != '\0' || !is_speed(*out_write_mb_per_s) ||
        !is_speed(*out_read_mb_per_s)) {
        return program_misuse(program,
                              "--swap-speed %s: expected WRITE:READ in 10^6 bytes/s, from 0.001 to "
                              "1000000 each, or measure",
                              text);
    }
    return EXIT_OK;
}
