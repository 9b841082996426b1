/*
 * secagg.c - the flags of secure aggregation, the task's key for it, devices that leave within it,
 * and the line about it.
 */
#include "fleet.h"

#include <stdlib.h>
#include <string.h>

#define WORD_BYTES 48

static const char *const real_keys[] = {"clip",    "step_s",   "corrupt",
                                        "dropout", "security", "failure"};
static const char *const whole_keys[] = {"threshold", "ring_bits", "value_limit", "weight_limit",
                                         "least_devices"};

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

/* "KEY=VALUE"; what the values may be is the server's to judge. */
static bool read_key(json_t *secagg, char *part)
{
    char *value = strchr(part, '=');
    char *end = NULL;
    if (value == NULL) {
        return false;
    }
    *value++ = '\0';
    const double number = strtod(value, &end);
    if (end == value || *end != '\0') {
        return false;
    }
    if (is_one_of(part, real_keys, N_OF(real_keys))) {
        return json_object_set_new(secagg, part, json_real(number)) == 0;
    }
    if (is_one_of(part, whole_keys, N_OF(whole_keys))) {
        return json_object_set_new(secagg, part, json_integer((json_int_t)number)) == 0;
    }
    return strcmp(part, "consistency") == 0 &&
           json_object_set_new(secagg, part, json_boolean(number > 0)) == 0;
}

/* The task's `secagg`; NULL for keys that are none. */
static json_t *make_secagg(const fleet_flags *flags)
{
    const char *text = flags->secagg_keys != NULL ? flags->secagg_keys : "";
    json_t *secagg = json_object();
    bool is_read = flags->secagg_keys == NULL || *text != '\0';
    while (is_read && *text != '\0') {
        const size_t n = strcspn(text, ",");
        char part[WORD_BYTES] = {0};
        is_read = n > 0 && n < WORD_BYTES;
        memcpy(part, text, is_read ? n : 0);
        is_read = is_read && read_key(secagg, part);
        text += n;
        text += *text == ',' ? 1 : 0;
    }
    if (flags->n_neighbours > 0) {
        (void)json_object_set_new(secagg, "neighbours",
                                  json_integer((json_int_t)flags->n_neighbours));
    }
    if (!is_read) {
        json_decref(secagg);
        return NULL;
    }
    return secagg;
}

int fleet_check_secagg(fleet_flags *flags)
{
    const bool has_keys =
        flags->n_neighbours > 0 || flags->secagg_keys != NULL || flags->secagg_leave > 0;
    if (!flags->is_secagg && has_keys) {
        return program_misuse(&fleet_program, "--neighbours, --secagg-keys and --secagg-leave go "
                                              "with --secagg");
    }
    if (flags->is_secagg && flags->server_url != NULL) {
        return program_misuse(&fleet_program, "--secagg is for the server that --serve starts: "
                                              "that of one that runs already stands in its task "
                                              "file");
    }
    if (flags->is_secagg && flags->devices_file != NULL) {
        return program_misuse(&fleet_program, "--secagg does not go with --devices: simulated time "
                                              "has no steps in which devices wait for each other");
    }
    json_t *secagg = make_secagg(flags);
    if (secagg == NULL) {
        return program_misuse(&fleet_program,
                              "--secagg-keys %s: not KEY=NUMBER behind commas, of threshold, "
                              "ring_bits, clip, value_limit, weight_limit, least_devices, "
                              "consistency, step_s, corrupt, dropout, security, failure",
                              flags->secagg_keys);
    }
    json_decref(secagg);
    return EXIT_OK;
}

void fleet_secagg_json(const fleet_flags *flags, json_t *task)
{
    if (flags->is_secagg) {
        (void)json_object_set_new(task, "secagg", make_secagg(flags));
    }
}

/* A number in [0, 1) that follows from seed, round and device. */
static double draw(uint64_t seed, uint64_t round, uint64_t device)
{
    uint64_t z = seed * 0x9E3779B97F4A7C15u + round * 0xBF58476D1CE4E5B9u + device + 1;
    for (int i = 0; i < 3; i++) {
        z ^= z >> 30;
        z *= 0xBF58476D1CE4E5B9u;
        z ^= z >> 27;
        z *= 0x94D049BB133111EBu;
        z ^= z >> 31;
    }
    return (double)(z >> 11) / 9007199254740992.0;
}

/* Exactly so many of the fleet leave, those with the least draws: with few devices a chance for
 * each would now and then have far more leave than the task's terms hold. */
bool fleet_secagg_leaves(const fleet_flags *flags, uint64_t round, uint64_t device)
{
    const uint64_t n = flags->secagg_leave > 0 ? (uint64_t)flags->n_clients : 0;
    const double own = draw(flags->seed, round, device);
    uint64_t n_before = 0;
    for (uint64_t i = 0; i < n; i++) {
        const double other = draw(flags->seed, round, i);
        n_before += other < own || (other == own && i < device) ? 1 : 0;
    }
    return n > 0 && (double)n_before + 0.5 <= flags->secagg_leave * (double)n;
}

void fleet_secagg_print(const json_t *round)
{
    static const char *const names[] = {"advertise", "share", "mask", "consistency", "unmask"};
    const json_t *secagg = json_object_get(round, "secagg");
    const json_t *steps = json_object_get(secagg, "steps");
    if (!json_is_object(steps)) {
        return;
    }
    char up[SIZE_TEXT_BYTES];
    char down[SIZE_TEXT_BYTES];
    (void)printf("  secagg");
    for (size_t i = 0; i < N_OF(names); i++) {
        const json_t *step = json_object_get(steps, names[i]);
        if (json_is_object(step)) {
            (void)printf(" %s %lld (-%lld)", names[i],
                         (long long)json_integer_value(json_object_get(step, "devices")),
                         (long long)json_integer_value(json_object_get(step, "dropped")));
        }
    }
    (void)printf(
        ", steps down %s up %s, unmasked in %.2f s",
        size_text((uint64_t)json_integer_value(json_object_get(secagg, "bytes_down")), down),
        size_text((uint64_t)json_integer_value(json_object_get(secagg, "bytes_up")), up),
        json_number_value(json_object_get(secagg, "unmask_s")));
}
