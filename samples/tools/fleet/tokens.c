/*
 * tokens.c - the secrets with which devices enrol, from the file that the server reads too.
 */
#include "fleet.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 1024

static int fail_line(const char *path, int64_t line, const char *what)
{
    return program_fail(&fleet_program, "--tokens %s: line %lld: %s", path, (long long)line, what);
}

/* Takes one line; `next` is the place of a line that names none. */
static int take_line(const char *path, int64_t number, char *line, int64_t *next, int64_t first,
                     int64_t n, char **out_tokens)
{
    static const char blanks[] = " \t\r\n";
    char *rest = NULL;
    line[strcspn(line, "#")] = '\0';
    const char *token = strtok_r(line, blanks, &rest);
    if (token == NULL) {
        return EXIT_OK;
    }
    const char *place_text = strtok_r(NULL, blanks, &rest);
    int64_t place = *next;
    if (place_text == NULL) {
        (*next)++;
    } else {
        char *end = NULL;
        errno = 0;
        place = strtoll(place_text, &end, 10);
        if (*end != '\0' || errno != 0 || place < 0) {
            return fail_line(path, number, "after the token comes its place: 0, 1, 2 ...");
        }
    }
    if (place < first || place - first >= n) {
        return EXIT_OK;
    }
    if (strncmp(token, "sha256:", 7) == 0) {
        return fail_line(path, number, "a digest is for the server; a device needs the token");
    }
    free(out_tokens[place - first]);
    out_tokens[place - first] = strdup(token);
    return out_tokens[place - first] != NULL ? EXIT_OK
                                             : program_fail(&fleet_program, "no memory for tokens");
}

int fleet_tokens_read(const char *path, int64_t first, int64_t n, char **out_tokens)
{
    char line[LINE_BYTES];
    int64_t next = 0;
    int64_t number = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return program_fail(&fleet_program, "--tokens %s: %s", path, strerror(errno));
    }
    int status = EXIT_OK;
    while (status == EXIT_OK && fgets(line, sizeof line, file) != NULL) {
        number++;
        status = take_line(path, number, line, &next, first, n, out_tokens);
    }
    (void)fclose(file);
    const int64_t last = first + n - 1;
    for (int64_t i = 0; status == EXIT_OK && i < n; i++) {
        const int64_t place = first + i;
        if (out_tokens[i] == NULL) {
            status = program_fail(&fleet_program,
                                  "--tokens %s has no token for place %lld: devices %lld to %lld "
                                  "need one each",
                                  path, (long long)place, (long long)first, (long long)last);
        }
    }
    return status;
}

void fleet_tokens_free(char **tokens, int64_t n)
{
    for (int64_t i = 0; tokens != NULL && i < n; i++) {
        free(tokens[i]);
    }
    free(tokens);
}
