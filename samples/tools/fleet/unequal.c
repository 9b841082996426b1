/*
 * unequal.c - rounds for unequal devices: part of the work, rounds that overlap, and whom a round
 * asks, as keys of the server's task file.
 */
#include "fleet.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STALENESS_MOST 32
#define TIERS_MOST 16
#define SECONDS_MOST 2592000.0
#define WINDOW_MOST 10000.0

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

/* Numbers behind colons, up to `most` of them; how many, or -1: something else stands there. */
static int parse_numbers(const char *text, double *out, int most)
{
    int n = 0;
    while (*text == ':' && n < most) {
        char *end = NULL;
        if (!isdigit((unsigned char)text[1])) {
            return -1;
        }
        out[n++] = strtod(text + 1, &end);
        text = end;
    }
    return *text == '\0' ? n : -1;
}

/* ":N:INTERVAL:CREDITS:...", of which each may be missing with what follows it. */
static json_t *parse_tiers(const char *text)
{
    double numbers[2 + TIERS_MOST] = {0};
    const int n = parse_numbers(text, numbers, 2 + TIERS_MOST);
    const bool has_right =
        n == 0 || (numbers[0] >= 2.0 && numbers[0] <= TIERS_MOST && numbers[1] <= WINDOW_MOST);
    if (n < 0 || !has_right || (n > 2 && n != 2 + (int)numbers[0])) {
        return NULL;
    }
    json_t *object = json_pack("{s:s}", "kind", "tiers");
    json_t *credits = n > 2 ? json_array() : NULL;
    if (n > 0) {
        (void)json_object_set_new(object, "tiers", json_integer((json_int_t)numbers[0]));
    }
    if (n > 1) {
        (void)json_object_set_new(object, "interval", json_integer((json_int_t)numbers[1]));
    }
    for (int i = 2; i < n; i++) {
        (void)json_array_append_new(credits, json_integer((json_int_t)fmin(numbers[i], 1e6)));
    }
    if (n > 2) {
        (void)json_object_set_new(object, "credits", credits);
    }
    return object;
}

/* "utility[:PREFER_S[:PACER_S[:PACER_ROUNDS]]]" or "tiers[:N[:INTERVAL[:CREDITS:...]]]" as the task
 * file has it; NULL: none of them. */
static json_t *parse_selection(const char *text)
{
    double numbers[3] = {0};
    if (strncmp(text, "tiers", 5) == 0) {
        return parse_tiers(text + 5);
    }
    const int n = strncmp(text, "utility", 7) == 0 ? parse_numbers(text + 7, numbers, 3) : -1;
    if (n < 0 || !(numbers[0] <= SECONDS_MOST) || !(numbers[1] <= SECONDS_MOST) ||
        (n == 3 && !(numbers[2] >= 1.0 && numbers[2] <= WINDOW_MOST))) {
        return NULL;
    }
    json_t *object = json_pack("{s:s}", "kind", "utility");
    if (n > 0) {
        (void)json_object_set_new(object, "prefer_s", json_real(numbers[0]));
    }
    if (n > 1) {
        (void)json_object_set_new(object, "pacer_s", json_real(numbers[1]));
    }
    if (n > 2) {
        (void)json_object_set_new(object, "pacer_rounds", json_integer((json_int_t)numbers[2]));
    }
    return object;
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
            "--select %s: expected utility, utility:SECONDS[:PACER_S[:ROUNDS]], tiers or "
            "tiers:N[:INTERVAL[:CREDITS:...]] with N from 2 to %d and N credits",
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

bool fleet_is_repeatable(const fleet_flags *flags)
{
    return flags->devices_file != NULL || (flags->buffered == NULL && flags->selection == NULL);
}
