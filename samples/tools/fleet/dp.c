/*
 * dp.c - the flag of private rounds, and the task's key for it.
 */
#include "fleet.h"

#include <stdlib.h>
#include <string.h>

#define WORD_BYTES 48

static const char *const number_keys[] = {"noise", "epsilon", "delta", "clip"};
static const char *const whole_keys[] = {"separation", "most", "noise_cohort", "population"};
static const char *const word_keys[] = {"sampling", "mechanism", "noise_by", "noise_kind",
                                        "accountant"};

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static bool is_one_of(const char *text, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], text) == 0) {
            return true;
        }
    }
    return false;
}

/* True if all of the text is a number. */
static bool set_number(json_t *dp, const char *key, const char *text)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    return end != text && *end == '\0' && json_object_set_new(dp, key, json_real(value)) == 0;
}

static bool set_whole(json_t *dp, const char *key, const char *text)
{
    char *end = NULL;
    const long long value = strtoll(text, &end, 10);
    return end != text && *end == '\0' && value >= 0 &&
           json_object_set_new(dp, key, json_integer((json_int_t)value)) == 0;
}

/* "KEY=VALUE", or "CLIP:NOISE"; what the values may be is the server's to judge. */
static bool read_part(json_t *dp, char *part)
{
    char *value = strchr(part, '=');
    char *colon = strchr(part, ':');
    if (value == NULL && colon != NULL) {
        *colon = '\0';
        return set_number(dp, "clip", part) && set_number(dp, "noise", colon + 1);
    }
    if (value == NULL) {
        return false;
    }
    *value++ = '\0';
    if (is_one_of(part, number_keys, N_OF(number_keys))) {
        return set_number(dp, part, value);
    }
    if (is_one_of(part, whole_keys, N_OF(whole_keys))) {
        return set_whole(dp, part, value);
    }
    return is_one_of(part, word_keys, N_OF(word_keys)) &&
           json_object_set_new(dp, part, json_string(value)) == 0;
}

/* The task's `dp`; NULL for a text that is none. */
static json_t *read_dp(const char *text)
{
    json_t *dp = json_pack("{s:f}", "clip", 1.0);
    bool is_read = dp != NULL && *text != '\0';
    while (is_read && *text != '\0') {
        const size_t n = strcspn(text, ",");
        char part[WORD_BYTES] = {0};
        is_read = n < WORD_BYTES && text[n > 0 ? n - 1 : 0] != ',';
        memcpy(part, text, is_read ? n : 0);
        is_read = is_read && read_part(dp, part);
        text += n;
        text += *text == ',' ? 1 : 0;
    }
    if (!is_read) {
        json_decref(dp);
        return NULL;
    }
    return dp;
}

int fleet_check_dp(fleet_flags *flags)
{
    if (flags->dp == NULL && !flags->has_noise_seed) {
        return EXIT_OK;
    }
    if (flags->server_url != NULL) {
        return program_misuse(&fleet_program,
                              "--dp and --insecure-noise-seed are for the server that --serve "
                              "starts: that of one that runs already stands in its task file");
    }
    if (flags->dp == NULL) {
        return program_misuse(&fleet_program, "--insecure-noise-seed goes with --dp, the noise");
    }
    json_t *dp = read_dp(flags->dp);
    if (dp == NULL) {
        return program_misuse(
            &fleet_program,
            "--dp %s: not CLIP:NOISE,delta=D or epsilon=E,delta=D with clip=F, "
            "sampling=poisson|fixed|arrival, mechanism=gaussian|tree, "
            "noise_by=server|distributed, noise_kind=gaussian|skellam, accountant=rdp|pld, "
            "separation=N, most=N, noise_cohort=N, "
            "population=N behind commas",
            flags->dp);
    }
    json_decref(dp);
    return EXIT_OK;
}

void fleet_dp_json(const fleet_flags *flags, json_t *task)
{
    if (flags->dp != NULL) {
        (void)json_object_set_new(task, "dp", read_dp(flags->dp));
    }
}
