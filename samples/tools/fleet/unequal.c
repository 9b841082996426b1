/*
 * unequal.c - rounds for unequal devices: part of the work, and rounds that overlap, as keys of the
 * server's task file.
 */
#include "fleet.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define STALENESS_MOST 32

/* With a server that runs already, the rounds are that server's. */
static const char *first_given(const fleet_flags *flags)
{
    if (flags->buffered != NULL) {
        return "--buffered";
    }
    return flags->partial > 0.0 ? "--partial" : NULL;
}

/* "MAX" or "MAX:EXPONENT" into the numbers of the task file. */
static bool parse_buffered(const char *text, int64_t *out_most, double *out_exponent)
{
    char *end = NULL;
    *out_exponent = 0.5;
    *out_most = isdigit((unsigned char)text[0]) ? strtoll(text, &end, 10) : -1;
    if (end != NULL && *end == ':' && isdigit((unsigned char)end[1])) {
        *out_exponent = strtod(end + 1, &end);
    }
    return end != NULL && *end == '\0' && *out_most <= STALENESS_MOST && *out_exponent <= 10.0;
}

/* What does not go with rounds that overlap, by name; NULL: all does. */
static const char *refused_beside(const fleet_flags *flags)
{
    const struct {
        bool is_given;
        const char *flag;
    } rows[] = {{strcmp(flags->algorithm, "scaffold") == 0, "--algorithm scaffold"},
                {flags->dp != NULL, "--dp"},
                {flags->has_rollback, "--rollback"},
                {flags->evaluate_every > 0, "--evaluate-every"},
                {flags->clip_quantile > 0.0, "--update-clip-quantile"},
                {strcmp(flags->strategy_name, "median") == 0, "--strategy median"},
                {strcmp(flags->strategy_name, "trimmed_mean") == 0, "--strategy trimmed_mean"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].is_given) {
            return rows[i].flag;
        }
    }
    return NULL;
}

static int check_buffered(const fleet_flags *flags)
{
    int64_t most = 0;
    double exponent = 0.0;
    if (flags->buffered == NULL) {
        return EXIT_OK;
    }
    if (!parse_buffered(flags->buffered, &most, &exponent)) {
        return program_misuse(&fleet_program,
                              "--buffered %s: not MAX or MAX:EXPONENT, rounds from 0 to %d and a "
                              "number from 0 to 10",
                              flags->buffered, STALENESS_MOST);
    }
    const char *wrong = refused_beside(flags);
    return wrong == NULL ? EXIT_OK
                         : program_misuse(&fleet_program,
                                          "%s does not go with --buffered: see TASK.md of the "
                                          "server",
                                          wrong);
}

int fleet_check_unequal(fleet_flags *flags)
{
    const char *given = first_given(flags);
    if (flags->server_url != NULL && given != NULL) {
        return program_misuse(&fleet_program,
                              "%s is for the server that --serve starts: the rounds of one that "
                              "runs already stand in its task file",
                              given);
    }
    if (flags->partial > 0.0 && strcmp(flags->algorithm, "scaffold") == 0) {
        return program_misuse(&fleet_program,
                              "--partial does not go with --algorithm scaffold, which averages "
                              "devices alike, whatever they did");
    }
    return check_buffered(flags);
}

void fleet_unequal_json(const fleet_flags *flags, json_t *task, json_t *plan)
{
    int64_t most = 0;
    double exponent = 0.0;
    if (flags->buffered != NULL && parse_buffered(flags->buffered, &most, &exponent)) {
        (void)json_object_set_new(
            task, "buffered",
            json_pack("{s:I, s:f}", "max_staleness", (json_int_t)most, "exponent", exponent));
    }
    if (flags->partial > 0.0) {
        (void)json_object_set_new(plan, "partial", json_real(flags->partial));
    }
}
