/*
 * strategy.c - what the server makes of a round's updates: --strategy and its flags, as keys of the
 * server's task file.
 */
#include "fleet.h"

#include <stdlib.h>
#include <string.h>

#define KEYS_MOST 4
#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Each strategy, and the keys that it takes, as the server's task file has them. */
static const struct {
    const char *name;
    const char *keys[KEYS_MOST];
} strategies[] = {
    {"average", {NULL}},
    {"fedavgm", {"server_lr", "server_momentum"}},
    {"fedadagrad", {"server_lr", "beta1", "tau"}},
    {"fedadam", {"server_lr", "beta1", "beta2", "tau"}},
    {"fedyogi", {"server_lr", "beta1", "beta2", "tau"}},
    {"median", {NULL}},
    {"trimmed_mean", {"trim"}},
};

typedef struct strategy_number {
    const char *flag;
    const char *key;
    bool is_given;
    double value;
} strategy_number;

#define N_NUMBERS 6

static void list_numbers(const fleet_flags *flags, strategy_number out[N_NUMBERS])
{
    const strategy_number all[N_NUMBERS] = {
        {"--server-lr", "server_lr", flags->has_server_lr, flags->server_lr},
        {"--server-momentum", "server_momentum", flags->has_server_momentum,
         flags->server_momentum},
        {"--beta1", "beta1", flags->has_beta1, flags->beta1},
        {"--beta2", "beta2", flags->has_beta2, flags->beta2},
        {"--tau", "tau", flags->has_tau, flags->tau},
        {"--trim", "trim", flags->has_trim, flags->trim},
    };
    memcpy(out, all, sizeof all);
}

/* The number of a strategy by the first `length` characters of a text; -1: there is none. */
static int find_strategy(const char *text, size_t length)
{
    for (size_t i = 0; i < N_OF(strategies); i++) {
        if (strlen(strategies[i].name) == length &&
            strncmp(strategies[i].name, text, length) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static bool takes(int strategy, const char *key)
{
    for (size_t i = 0; i < KEYS_MOST && strategies[strategy].keys[i] != NULL; i++) {
        if (strcmp(strategies[strategy].keys[i], key) == 0) {
            return true;
        }
    }
    return false;
}

/* "trimmed_mean:SHARE" is the name and --trim. */
static int take_suffix(fleet_flags *flags, const char *text, const char *colon, int strategy)
{
    char *end = NULL;
    const double value = strtod(colon + 1, &end);
    if (strategy < 0 || !takes(strategy, "trim") || flags->has_trim || end == colon + 1 ||
        *end != '\0' || !(value >= 0.0 && value <= 0.49)) {
        return program_misuse(&fleet_program,
                              "--strategy %s: a number goes with trimmed_mean alone, from 0 to "
                              "0.49, and then no --trim",
                              text);
    }
    flags->has_trim = true;
    flags->trim = value;
    return EXIT_OK;
}

int fleet_check_strategy(fleet_flags *flags)
{
    strategy_number numbers[N_NUMBERS];
    const char *text = flags->strategy != NULL ? flags->strategy : "average";
    const char *colon = strchr(text, ':');
    const int strategy = find_strategy(text, colon != NULL ? (size_t)(colon - text) : strlen(text));
    if (colon != NULL) {
        const int status = take_suffix(flags, text, colon, strategy);
        if (status != EXIT_OK) {
            return status;
        }
    }
    if (strategy < 0) {
        return program_misuse(&fleet_program,
                              "--strategy %s: expected average, fedavgm, fedadagrad, fedadam, "
                              "fedyogi, median or trimmed_mean",
                              text);
    }
    list_numbers(flags, numbers);
    for (size_t i = 0; i < N_NUMBERS; i++) {
        if (numbers[i].is_given && !takes(strategy, numbers[i].key)) {
            return program_misuse(&fleet_program, "%s does not go with --strategy %s",
                                  numbers[i].flag, text);
        }
    }
    if (flags->strategy != NULL && flags->server_url != NULL) {
        return program_misuse(&fleet_program,
                              "--strategy is for the server that --serve starts: that of one that "
                              "runs already stands in its task file");
    }
    if (strategy > 0 && strcmp(flags->algorithm, "scaffold") == 0) {
        return program_misuse(&fleet_program,
                              "--strategy %s does not go with --algorithm scaffold, whose variates "
                              "go with plain averages",
                              text);
    }
    flags->strategy_name = strategies[strategy].name;
    return EXIT_OK;
}

void fleet_strategy_json(const fleet_flags *flags, json_t *task)
{
    strategy_number numbers[N_NUMBERS];
    if (flags->strategy == NULL) {
        return;
    }
    (void)json_object_set_new(task, "strategy", json_string(flags->strategy_name));
    list_numbers(flags, numbers);
    for (size_t i = 0; i < N_NUMBERS; i++) {
        if (numbers[i].is_given) {
            (void)json_object_set_new(task, numbers[i].key, json_real(numbers[i].value));
        }
    }
}
