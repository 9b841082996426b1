/*
 * make.c - makes files of devices. What is drawn, and from where, stands in samples/SIMULATE.md;
 * each device follows from (seed, its index) alone.
 */
#include "devices.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define DAY_S 86400
#define N_BANDS 5
#define N_RAMS 11
#define MOST_BOUNDS 40
#define LEAST_BATTERY 30

/* The 333 phones of 2009 to 2019 in the ranking of ai-benchmark.com (by PKU-Chengxu/FLASH), in
 * fifths by their score of float inference on the processor: the median of each fifth, and how many
 * phones of it have so much RAM. */
static const double SCORES[N_BANDS] = {274, 754, 1547, 2034, 3441};
static const double BEST_SCORE = 4310;
static const char *const BANDS[N_BANDS] = {"slowest", "slow", "middle", "fast", "fastest"};
static const double RAM_GB[N_RAMS] = {0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 10, 12};
static const int RAMS[N_BANDS][N_RAMS] = {{10, 4, 35, 6, 9, 1, 1, 0, 0, 0, 0},
                                          {0, 0, 5, 1, 9, 12, 37, 3, 0, 0, 0},
                                          {0, 0, 0, 0, 0, 0, 34, 22, 10, 0, 0},
                                          {0, 0, 0, 0, 0, 0, 22, 32, 12, 1, 0},
                                          {0, 0, 0, 0, 0, 0, 2, 21, 35, 0, 9}};
/* Assumed: the best phone takes twice as long as the machine that measured the costs, a board four
 * times as long as that phone; six years make phones four times as fast, with twice the RAM. */
#define BEST_FACTOR 2.0
#define BOARD_FACTOR 8.0
#define YEARS_SPEED 4.0
#define YEARS_RAM 2.0

/* Watts of a busy processor: AutoFL (Kim and Wu, MICRO 2021) tells 3.6 of a low-end phone, 5.6 and
 * 5.5 of two better ones. A battery of 3,100 mAh in 2019, of 5,000 in 2025: assumed, and so is that
 * a board takes 4 W more than idle. */
static const double WATTS[N_BANDS] = {3.6, 3.6, 5.6, 5.5, 5.5};
#define BOARD_W 4.0
#define WH_2019 12.0
#define WH_2025 19.0

/* The shares of a profile; the rest are boards. */
typedef struct profile {
    const char *name;
    double phones_2019, phones_2025;
} profile;
static const profile PROFILES[] = {
    {"phones2019", 1.0, 0.0}, {"phones2025", 0.0, 1.0}, {"mixed", 0.6, 0.3}};

static const profile *find_profile(const char *name)
{
    for (size_t i = 0; i < sizeof PROFILES / sizeof PROFILES[0]; i++) {
        if (strcmp(PROFILES[i].name, name) == 0) {
            return &PROFILES[i];
        }
    }
    return NULL;
}

bool sim_make_parse(const char *text, int64_t *out_n, char out_profile[SIM_NAME_BYTES],
                    char out_error[SIM_ERROR_BYTES])
{
    char *end = NULL;
    *out_n = text[0] >= '0' && text[0] <= '9' ? strtoll(text, &end, 10) : 0;
    if (end == NULL || *end != ':' || *out_n < 1 || *out_n > SIM_DEVICES_MOST ||
        strlen(end + 1) >= SIM_NAME_BYTES || find_profile(end + 1) == NULL) {
        (void)snprintf(
            out_error, SIM_ERROR_BYTES,
            "--make-devices %.64s: not N:PROFILE with N from 1 to 1000000 and phones2019, "
            "phones2025 or mixed",
            text);
        return false;
    }
    memcpy(out_profile, end + 1, strlen(end + 1) + 1);
    return true;
}

/* ---- the day of a phone ---- */

/* When one thing holds: from `from` for `length` seconds, over midnight if need be. */
typedef struct span {
    int32_t from, length;
    uint8_t bit;
} span;

typedef struct day {
    span spans[12];
    int n;
} day;

static void add_span(day *into, uint8_t bit, double from_h, double hours)
{
    const int64_t from = llround(from_h * 3600.0);
    const double held = hours < 0.0 ? 0.0 : hours > 24.0 ? 24.0 : hours;
    into->spans[into->n++] = (span){.from = (int32_t)(((from % DAY_S) + DAY_S) % DAY_S),
                                    .length = (int32_t)llround(held * 3600.0),
                                    .bit = bit};
}

static bool holds(const span *one, int32_t second)
{
    const int32_t since = (second - one->from + DAY_S) % DAY_S;
    return since < one->length;
}

static uint8_t state_at(const day *of, int32_t second)
{
    uint8_t state = SIM_ONLINE;
    for (int i = 0; i < of->n; i++) {
        if (of->spans[i].bit == SIM_ONLINE) {
            state &= holds(&of->spans[i], second) ? (uint8_t)~SIM_ONLINE : 0xFF;
        } else if (holds(&of->spans[i], second)) {
            state |= of->spans[i].bit;
        }
    }
    return (state & SIM_ONLINE) != 0 ? state : state & (uint8_t)~SIM_UNMETERED;
}

/* Nights at home, on Wi-Fi and mostly on the charger; work; an hour here and there. */
static void draw_day(sim_draw *draw, day *out)
{
    *out = (day){.n = 0};
    const double home_h = sim_draw_normal(draw, 18.5, 1.5);
    const double leaves_h = sim_draw_normal(draw, 8.0, 1.0) + 24.0;
    if (sim_draw_unit(draw) < 0.85) {
        add_span(out, SIM_UNMETERED, home_h, leaves_h - home_h);
    }
    if (sim_draw_unit(draw) < 0.4) {
        add_span(out, SIM_UNMETERED, 9.0, 8.0);
    }
    const double sleeps_h = sim_draw_normal(draw, 23.5, 1.0);
    add_span(out, SIM_IDLE, sleeps_h, sim_draw_normal(draw, 31.0, 0.8) - sleeps_h);
    for (int i = 0; i < 3; i++) {
        add_span(out, SIM_IDLE, 8.0 + 14.0 * sim_draw_unit(draw), 1.0);
    }
    if (sim_draw_unit(draw) < 0.9) {
        add_span(out, SIM_CHARGING, sleeps_h - 0.3, sim_draw_normal(draw, 6.5, 1.0));
    } else {
        add_span(out, SIM_CHARGING, 24.0 * sim_draw_unit(draw), 2.0);
    }
    if (sim_draw_unit(draw) < 0.3) {
        add_span(out, SIM_ONLINE, 24.0 * sim_draw_unit(draw), 0.5 + 2.5 * sim_draw_unit(draw));
    }
}

static int compare_seconds(const void *a, const void *b)
{
    const int32_t left = *(const int32_t *)a;
    const int32_t right = *(const int32_t *)b;
    return (left > right) - (left < right);
}

/* All times at which something changes, in order, 0 among them. */
static int bounds_of(const day *of, int32_t out[MOST_BOUNDS])
{
    int n = 0;
    int n_kept = 1;
    out[n++] = 0;
    for (int i = 0; i < of->n; i++) {
        out[n++] = of->spans[i].from;
        out[n++] = (of->spans[i].from + of->spans[i].length) % DAY_S;
    }
    qsort(out, (size_t)n, sizeof out[0], compare_seconds);
    for (int i = 1; i < n; i++) {
        if (out[i] != out[n_kept - 1]) {
            out[n_kept++] = out[i];
        }
    }
    return n_kept;
}

/* The text of a state in the order of its letters. */
static void write_entry(FILE *file, bool is_first, int32_t second, uint8_t state, int battery,
                        uint64_t memory_bytes)
{
    char text[5];
    int length = 0;
    for (int bit = 0; bit < 4; bit++) {
        if ((state & (1U << bit)) != 0) {
            text[length++] = "ouci"[bit];
        }
    }
    text[length] = '\0';
    (void)fprintf(file, "%s[%d,\"%s\",%d,%llu]", is_first ? "" : ",", (int)second, text, battery,
                  (unsigned long long)((state & SIM_IDLE) != 0 ? memory_bytes : memory_bytes / 2));
}

/* The battery falls by 5 points an hour and rises by 40 on the charger; two days, of which the
 * second is kept. An entry has the level at its beginning, so where it passes what training needs
 * there is another one. Memory is halved while the phone is in use. */
static void write_trace(FILE *file, const day *of, uint64_t memory_bytes)
{
    int32_t bounds[MOST_BOUNDS];
    const int n = bounds_of(of, bounds);
    double battery = 70.0;
    for (int i = 0; i < 2 * n; i++) {
        const int32_t from = bounds[i % n];
        const int32_t to = i % n + 1 < n ? bounds[i % n + 1] : DAY_S;
        const uint8_t state = state_at(of, from);
        const double rate = ((state & SIM_CHARGING) != 0 ? 40.0 : -5.0) / 3600.0;
        const int32_t crossing = from + (int32_t)ceil((LEAST_BATTERY - battery) / rate);
        if (i >= n) {
            write_entry(file, i == n, from, state, (int)battery, memory_bytes);
        }
        if (i >= n && crossing > from && crossing < to) {
            write_entry(file, false, crossing, state, rate > 0 ? LEAST_BATTERY : LEAST_BATTERY - 1,
                        memory_bytes);
        }
        battery += rate * (double)(to - from);
        battery = battery > 100.0 ? 100.0 : battery < 5.0 ? 5.0 : battery;
    }
}

/* ---- devices ---- */

static double draw_rate(sim_draw *draw, double median, double deviation)
{
    return ceil(exp(sim_draw_normal(draw, log(median), deviation)));
}

static double draw_ram(sim_draw *draw, int band)
{
    int n = 0;
    for (int i = 0; i < N_RAMS; i++) {
        n += RAMS[band][i];
    }
    int at = (int)(sim_draw_unit(draw) * n);
    int i = 0;
    while (i < N_RAMS - 1 && at >= RAMS[band][i]) {
        at -= RAMS[band][i++];
    }
    return RAM_GB[i];
}

/* A sixteenth of the RAM, from 64 MiB to 2 GiB, in whole MiB. */
static uint64_t phone_memory(double ram_gb)
{
    const uint64_t share = (uint64_t)(ram_gb * 64.0) * MIB;
    return share < 64 * MIB ? 64 * MIB : share > 2 * GIB ? 2 * GIB : share;
}

static void write_phone(FILE *file, sim_draw *draw, bool is_2025)
{
    const int band = (int)(sim_draw_unit(draw) * N_BANDS);
    const double ram_gb = draw_ram(draw, band) * (is_2025 ? YEARS_RAM : 1.0);
    const uint64_t memory_bytes = phone_memory(ram_gb);
    const double storage = (0.5 + 15.5 * sim_draw_unit(draw)) * (double)GIB;
    const double down = draw_rate(draw, is_2025 ? 6e6 : 3e6, 0.8);
    const double up = draw_rate(draw, is_2025 ? 2e6 : 1e6, 0.8);
    const double latency_us = draw_rate(draw, 4e4, 0.5);
    day of;
    draw_day(draw, &of);
    (void)fprintf(
        file,
        "{\"class\":\"%s-%s\",\"cores\":%d,\"memory\":%llu,\"storage\":%llu,\"down\":%.0f,"
        "\"up\":%.0f,\"latency_us\":%.0f,\"failures\":0.02,\"trace\":[",
        is_2025 ? "2025" : "2019", BANDS[band], band == 0 && !is_2025 ? 4 : 8,
        (unsigned long long)memory_bytes, (unsigned long long)storage, down, up, latency_us);
    write_trace(file, &of, memory_bytes);
    (void)fprintf(file, "]}\n");
}

/* A board is always there. */
static void write_board(FILE *file, sim_draw *draw)
{
    const uint64_t memory_bytes = sim_draw_unit(draw) < 0.5 ? GIB : 2 * GIB;
    const uint64_t storage = 8 * GIB;
    const double down = draw_rate(draw, 1e7, 0.3);
    const double up = draw_rate(draw, 5e6, 0.3);
    (void)fprintf(file,
                  "{\"class\":\"board\",\"cores\":4,\"memory\":%llu,\"storage\":%llu,\"down\":%.0f,"
                  "\"up\":%.0f,\"latency_us\":10000,\"failures\":0.005,\"trace\":[[0,\"ouci\"]]}\n",
                  (unsigned long long)memory_bytes, (unsigned long long)storage, down, up);
}

static void write_header(FILE *file, const profile *of, uint64_t seed)
{
    (void)fprintf(file,
                  "{\"dunlin_devices\":1,\"profile\":\"%s\",\"seed\":%lld,\"period_s\":%d,"
                  "\"requires\":[\"unmetered\",\"charging\",\"idle\"],\"least_battery\":%d,"
                  "\"classes\":[",
                  of->name, (long long)seed, DAY_S, LEAST_BATTERY);
    const char *comma = "";
    for (int years = 0; years < 2; years++) {
        for (int i = 0; (years == 0 ? of->phones_2019 : of->phones_2025) > 0.0 && i < N_BANDS;
             i++) {
            const double factor = BEST_FACTOR * BEST_SCORE / SCORES[i];
            (void)fprintf(file,
                          "%s{\"name\":\"%s-%s\",\"time_factor\":%.2f,\"compute_w\":%.1f,"
                          "\"battery_wh\":%.0f}",
                          comma, years == 0 ? "2019" : "2025", BANDS[i],
                          years == 0 ? factor : factor / YEARS_SPEED, WATTS[i],
                          years == 0 ? WH_2019 : WH_2025);
            comma = ",";
        }
    }
    if (of->phones_2019 + of->phones_2025 < 1.0) {
        (void)fprintf(file,
                      "%s{\"name\":\"board\",\"time_factor\":%.2f,\"compute_w\":%.1f,"
                      "\"battery_wh\":0}",
                      comma, BOARD_FACTOR, BOARD_W);
    }
    (void)fprintf(file, "]}\n");
}

/* Under another name until it is whole. */
bool sim_devices_write(const char *path, int64_t n, const char *profile_name, uint64_t seed,
                       char out_error[SIM_ERROR_BYTES])
{
    char part[4096];
    const profile *of = find_profile(profile_name);
    const int length = snprintf(part, sizeof part, "%s.part", path);
    FILE *file = length < (int)sizeof part ? fopen(part, "we") : NULL;
    if (file == NULL) {
        (void)snprintf(out_error, SIM_ERROR_BYTES, "--devices %.300s cannot be written: %s", path,
                       length < (int)sizeof part ? strerror(errno) : "its name is too long");
        return false;
    }
    write_header(file, of, seed);
    for (int64_t i = 0; i < n; i++) {
        sim_draw draw = sim_draw_begin(seed, (uint64_t)i, 1);
        const double kind = sim_draw_unit(&draw);
        if (kind < of->phones_2019 + of->phones_2025) {
            write_phone(file, &draw, kind >= of->phones_2019);
        } else {
            write_board(file, &draw);
        }
    }
    bool is_ok = ferror(file) == 0;
    is_ok = fclose(file) == 0 && is_ok && rename(part, path) == 0;
    if (!is_ok) {
        (void)snprintf(out_error, SIM_ERROR_BYTES, "--devices %.300s cannot be written: %s", path,
                       strerror(errno));
        (void)remove(part);
    }
    return is_ok;
}
