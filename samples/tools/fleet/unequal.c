/*
 * unequal.c - rounds for unequal devices: part of the work, rounds that overlap, and whom a round
 * asks, as keys of the server's task file.
 */
#include "fleet.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define STALENESS_MOST 32
#define TIERS_MOST 16

/* With a server that runs already, the rounds are that server's. */
static const char *first_given(const fleet_flags *flags)
{
    if (flags->buffered != NULL) {
        return "--buffered";
    }
    if (flags->selection != NULL) {
        return "--select";
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

/* "utility", "utility:PREFER_S", "tiers" or "tiers:N" as the task file has it; NULL: none of them.
 */
static json_t *parse_selection(const char *text)
{
    static const char *const kinds[] = {"utility", "tiers"};
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(kinds[i]);
        if (strncmp(text, kinds[i], n) != 0 || (text[n] != '\0' && text[n] != ':')) {
            continue;
        }
        char *end = NULL;
        const bool has_number = text[n] == ':' && isdigit((unsigned char)text[n + 1]);
        const double number = has_number ? strtod(text + n + 1, &end) : 0.0;
        if (text[n] == ':' && (!has_number || *end != '\0')) {
            return NULL;
        }
        json_t *object = json_pack("{s:s}", "kind", kinds[i]);
        if (has_number && i == 0) {
            (void)json_object_set_new(object, "prefer_s", json_real(number));
        } else if (has_number) {
            (void)json_object_set_new(object, "tiers", json_integer((json_int_t)number));
        }
        const bool is_right =
            i == 0 ? number <= 2592000.0 : !has_number || (number >= 2.0 && number <= TIERS_MOST);
        if (!is_right) {
            json_decref(object);
            return NULL;
        }
        return object;
    }
    return NULL;
}

static int check_selection(const fleet_flags *flags)
{
    if (flags->selection == NULL) {
        return EXIT_OK;
    }
    json_t *object = parse_selection(flags->selection);
    const bool is_known = object != NULL;
    json_decref(object);
    if (!is_known) {
        return program_misuse(
            &fleet_program,
            "--select %s: expected utility, utility:SECONDS, tiers or tiers:N with "
            "N from 2 to %d",
            flags->selection, TIERS_MOST);
    }
    return flags->dp == NULL
               ? EXIT_OK
               : program_misuse(&fleet_program, "--dp does not go with --select: whom a round asks "
                                                "would tell what devices said");
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
    const int status = check_buffered(flags);
    return status == EXIT_OK ? check_selection(flags) : status;
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
    if (flags->selection != NULL) {
        (void)json_object_set_new(task, "selection", parse_selection(flags->selection));
    }
    if (flags->partial > 0.0) {
        (void)json_object_set_new(plan, "partial", json_real(flags->partial));
    }
}
