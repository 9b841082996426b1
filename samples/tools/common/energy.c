/*
 * energy.c - counters of energy as Linux shows them.
 */
#include "energy.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 1024
#define JOULES_OF_MICROWATT_HOUR 0.0036
#define COULOMBS_OF_MICROAMPERE_HOUR 0.0036

/* The first word of folder/name/file; false: it cannot be read. */
static bool read_word(const char *folder, const char *name, const char *file, char out[64])
{
    char path[PATH_BYTES];
    const int length = snprintf(path, sizeof path, "%s/%s/%s", folder, name, file);
    FILE *from = length > 0 && (size_t)length < sizeof path ? fopen(path, "re") : NULL;
    const bool is_read = from != NULL && fscanf(from, "%63s", out) == 1;
    if (from != NULL) {
        (void)fclose(from);
    }
    return is_read;
}

static bool read_number(const char *folder, const char *name, const char *file, uint64_t *out)
{
    char word[64];
    char *end = NULL;
    const bool is_read = read_word(folder, name, file, word);
    *out = is_read ? strtoull(word, &end, 10) : 0;
    return is_read && end != word && *end == '\0';
}

static void read_packages(const char *folder, energy_mark *mark)
{
    for (int32_t i = 0; i < ENERGY_MOST; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "powercap/intel-rapl:%" PRId32, i);
        if (!read_number(folder, name, "energy_uj", &mark->microjoules[mark->n])) {
            return;
        }
        (void)read_number(folder, name, "max_energy_range_uj", &mark->range[mark->n]);
        mark->n++;
    }
}

/* What is left in a battery that counts charge alone, as most phones' do. */
static void read_charge(const char *folder, const char *name, energy_mark *mark)
{
    uint64_t charge = 0;
    uint64_t microvolts = 0;
    const bool has_charge = read_number(folder, name, "charge_counter", &charge) ||
                            read_number(folder, name, "charge_now", &charge);
    if (has_charge && mark->charge_c < 0.0 &&
        read_number(folder, name, "voltage_now", &microvolts)) {
        mark->charge_c = COULOMBS_OF_MICROAMPERE_HOUR * (double)charge;
        mark->volts = 1e-6 * (double)microvolts;
    }
}

static void read_batteries(const char *folder, energy_mark *mark)
{
    char path[PATH_BYTES];
    const int length = snprintf(path, sizeof path, "%s/power_supply", folder);
    DIR *dir = length > 0 && (size_t)length < sizeof path ? opendir(path) : NULL;
    for (const struct dirent *entry = dir == NULL ? NULL : readdir(dir); entry != NULL;
         entry = readdir(dir)) {
        char state[64];
        uint64_t left = 0;
        if (entry->d_name[0] == '.' || !read_word(path, entry->d_name, "status", state) ||
            strcmp(state, "Discharging") != 0) {
            continue;
        }
        if (read_number(path, entry->d_name, "energy_now", &left)) {
            mark->battery_j = (mark->battery_j < 0.0 ? 0.0 : mark->battery_j) +
                              JOULES_OF_MICROWATT_HOUR * (double)left;
        } else {
            read_charge(path, entry->d_name, mark);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

energy_mark energy_read(const char *folder)
{
    energy_mark mark = {.battery_j = -1.0, .charge_c = -1.0};
    read_packages(folder, &mark);
    if (mark.n == 0) {
        read_batteries(folder, &mark);
    }
    return mark;
}

double energy_between(const energy_mark *begin, const energy_mark *end)
{
    double joules = 0.0;
    if (begin->n == 0 && end->n == 0 && begin->battery_j >= 0.0 && end->battery_j >= 0.0) {
        return begin->battery_j - end->battery_j;
    }
    if (begin->n == 0 && end->n == 0 && begin->charge_c >= 0.0 && end->charge_c >= 0.0) {
        return (begin->charge_c - end->charge_c) * 0.5 * (begin->volts + end->volts);
    }
    if (begin->n == 0 || begin->n != end->n) {
        return (double)NAN;
    }
    for (int32_t i = 0; i < begin->n; i++) {
        const uint64_t from = begin->microjoules[i];
        const uint64_t to = end->microjoules[i];
        const uint64_t used = to >= from ? to - from : end->range[i] - from + to;
        if (to < from && end->range[i] < from) {
            return (double)NAN; /* it began again at a number that is not told */
        }
        joules += 1e-6 * (double)used;
    }
    return joules;
}
