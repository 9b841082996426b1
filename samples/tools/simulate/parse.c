/*
 * parse.c - one line of a file of devices: its header, or a device.
 *
 * Invariant: a key that is not known is refused, and so is a value out of its range; each by name.
 */
#include "devices.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PERIOD_S (366LL * 24 * 3600)
#define MOST_BYTES (INT64_C(1) << 50)
#define MOST_RATE 1e12
#define MOST_LATENCY_US (60 * SIM_US_PER_S)
#define COMPUTE_W 5.0   /* of a class that does not say, as the next */
#define BATTERY_WH 12.0 /* 3,100 mAh at 3.85 V */
#define MOST_W 1e4
#define MOST_WH 1e6
#define MOST_RADIO 1e6

/* The coefficients of Huang et al. (MobiSys 2012) for Wi-Fi and LTE, as they are commonly quoted:
 * an assumption, which a class may replace. */
static const sim_radio WIFI = {283.17, 137.01, 132.86};
static const sim_radio LTE = {438.39, 51.97, 1288.04};

/* Where what is wrong goes, and of which line the values are. */
typedef struct line {
    const json_t *object;
    char *what;
} line;

__attribute__((format(printf, 2, 3))) static bool wrong(const line *at, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    (void)vsnprintf(at->what, SIM_ERROR_BYTES, format, list);
    va_end(list);
    return false;
}

static json_t *read_object(const char *text, size_t n, char *what)
{
    json_error_t error;
    json_t *value = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    const line at = {value, what};
    if (value == NULL) {
        (void)wrong(&at, "it is no JSON: %.160s", error.text);
    } else if (!json_is_object(value)) {
        (void)wrong(&at, "it is no JSON object");
        json_decref(value);
        value = NULL;
    }
    return value;
}

static bool knows_all(const line *at, const char *const *keys, size_t n_keys)
{
    void *place = json_object_iter((json_t *)(uintptr_t)at->object);
    while (place != NULL) {
        const char *key = json_object_iter_key(place);
        size_t i = 0;
        while (i < n_keys && strcmp(keys[i], key) != 0) {
            i++;
        }
        if (i == n_keys) {
            return wrong(at, "the key \"%.64s\" is not known", key);
        }
        place = json_object_iter_next((json_t *)(uintptr_t)at->object, place);
    }
    return true;
}

/* A number that has to be there, in [low, high]. */
static bool take_number(const line *at, const char *key, double low, double high, double *out)
{
    const json_t *value = json_object_get(at->object, key);
    if (value == NULL) {
        return wrong(at, "\"%s\" is missing", key);
    }
    if (!json_is_number(value)) {
        return wrong(at, "\"%s\" is no number", key);
    }
    *out = json_number_value(value);
    if (!isfinite(*out) || *out < low || *out > high) {
        return wrong(at, "\"%s\" is %g, outside of %g to %g", key, *out, low, high);
    }
    return true;
}

/* The same, but *out stays where there is none. */
static bool take_if_there(const line *at, const char *key, double low, double high, double *out)
{
    return json_object_get(at->object, key) == NULL || take_number(at, key, low, high, out);
}

/* A whole number in [low, high]; `fallback` if it is not there and may be missing. */
static bool take_whole(const line *at, const char *key, int64_t low, int64_t high,
                       const int64_t *fallback, int64_t *out)
{
    const json_t *value = json_object_get(at->object, key);
    if (value == NULL && fallback != NULL) {
        *out = *fallback;
        return true;
    }
    if (value == NULL) {
        return wrong(at, "\"%s\" is missing", key);
    }
    if (!json_is_integer(value)) {
        return wrong(at, "\"%s\" is no whole number", key);
    }
    *out = (int64_t)json_integer_value(value);
    if (*out < low || *out > high) {
        return wrong(at, "\"%s\" is %lld, outside of %lld to %lld", key, (long long)*out,
                     (long long)low, (long long)high);
    }
    return true;
}

/* ---- the header ---- */

static bool take_needs(const line *at, sim_devices *out)
{
    static const struct {
        const char *name;
        uint8_t bit;
    } NAMES[] = {{"unmetered", SIM_UNMETERED}, {"charging", SIM_CHARGING}, {"idle", SIM_IDLE}};
    const json_t *list = json_object_get(at->object, "requires");
    out->needs = SIM_ONLINE;
    if (list != NULL && !json_is_array(list)) {
        return wrong(at, "\"requires\" is no list");
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        size_t k = 0;
        while (k < sizeof NAMES / sizeof NAMES[0] &&
               (name == NULL || strcmp(name, NAMES[k].name) != 0)) {
            k++;
        }
        if (k == sizeof NAMES / sizeof NAMES[0]) {
            return wrong(at, "\"requires\" has \"%.32s\": not unmetered, charging or idle",
                         name != NULL ? name : "?");
        }
        out->needs |= NAMES[k].bit;
    }
    return true;
}

static int32_t find_class(const sim_devices *devices, const char *name)
{
    for (int32_t i = 0; i < devices->n_classes; i++) {
        if (strcmp(devices->classes[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* [mJ of a megabit up, of one down, mW while it moves], if it is there. */
static bool take_radio(const line *at, const char *key, sim_radio *out)
{
    const json_t *list = json_object_get(at->object, key);
    double *const values[] = {&out->up, &out->down, &out->base};
    if (list != NULL && json_array_size(list) != 3) {
        return wrong(at, "\"%s\" is no list of 3 numbers: mJ a megabit up, down, mW", key);
    }
    for (size_t i = 0; i < 3 && list != NULL; i++) {
        const json_t *value = json_array_get(list, i);
        *values[i] = json_number_value(value);
        if (!json_is_number(value) || !isfinite(*values[i]) || *values[i] < 0.0 ||
            *values[i] > MOST_RADIO) {
            return wrong(at, "entry %zu of \"%s\" is no number from 0 to %g", i, key, MOST_RADIO);
        }
    }
    return true;
}

static bool take_classes(const line *at, sim_devices *out)
{
    static const char *const KEYS[] = {"name",       "time_factor", "compute_w",
                                       "battery_wh", "wifi",        "cellular"};
    const json_t *list = json_object_get(at->object, "classes");
    const size_t n = json_array_size(list);
    if (n < 1 || n > SIM_CLASSES) {
        return wrong(at, "\"classes\" has %zu entries, outside of 1 to %d", n, SIM_CLASSES);
    }
    for (size_t i = 0; i < n; i++) {
        const line one = {json_array_get(list, i), at->what};
        const char *name = json_string_value(json_object_get(one.object, "name"));
        sim_class *into = &out->classes[i];
        if (name == NULL || name[0] == '\0' || strlen(name) >= SIM_NAME_BYTES) {
            return wrong(at, "class %zu has no \"name\" of 1 to %d bytes", i, SIM_NAME_BYTES - 1);
        }
        if (find_class(out, name) >= 0) {
            return wrong(at, "the class \"%s\" is there twice", name);
        }
        into->compute_w = COMPUTE_W;
        into->battery_wh = BATTERY_WH;
        into->wifi = WIFI;
        into->cellular = LTE;
        if (!knows_all(&one, KEYS, sizeof KEYS / sizeof KEYS[0]) ||
            !take_number(&one, "time_factor", 1e-6, 1e6, &into->time_factor) ||
            !take_if_there(&one, "compute_w", 0.0, MOST_W, &into->compute_w) ||
            !take_if_there(&one, "battery_wh", 0.0, MOST_WH, &into->battery_wh) ||
            !take_radio(&one, "wifi", &into->wifi) ||
            !take_radio(&one, "cellular", &into->cellular)) {
            return false;
        }
        memcpy(into->name, name, strlen(name) + 1);
        out->n_classes++;
    }
    return true;
}

static bool take_header(const line *at, sim_devices *out)
{
    static const char *const KEYS[] = {"dunlin_devices", "profile",       "seed",   "period_s",
                                       "requires",       "least_battery", "classes"};
    const int64_t day_s = 24 * 3600;
    const int64_t none = 0;
    int64_t version = 0;
    int64_t seed = 0;
    int64_t period_s = 0;
    int64_t battery = 0;
    if (json_object_get(at->object, "dunlin_devices") == NULL) {
        return wrong(at, "it is no header of devices: \"dunlin_devices\" is missing");
    }
    if (!knows_all(at, KEYS, sizeof KEYS / sizeof KEYS[0]) ||
        !take_whole(at, "dunlin_devices", 1, 1, NULL, &version) ||
        !take_whole(at, "seed", INT64_MIN, INT64_MAX, &none, &seed) ||
        !take_whole(at, "period_s", 1, MOST_PERIOD_S, &day_s, &period_s) ||
        !take_whole(at, "least_battery", 0, 100, &none, &battery) || !take_needs(at, out) ||
        !take_classes(at, out)) {
        return false;
    }
    const char *profile = json_string_value(json_object_get(at->object, "profile"));
    (void)snprintf(out->profile, sizeof out->profile, "%s", profile != NULL ? profile : "");
    out->seed = (uint64_t)seed;
    out->period_us = period_s * SIM_US_PER_S;
    out->least_battery = (uint8_t)battery;
    return true;
}

bool sim_header_parse(const char *text, size_t n, sim_devices *out_devices,
                      char out_what[SIM_ERROR_BYTES])
{
    memset(out_devices, 0, sizeof *out_devices);
    json_t *object = read_object(text, n, out_what);
    const line at = {object, out_what};
    const bool is_ok = object != NULL && take_header(&at, out_devices);
    json_decref(object);
    return is_ok;
}

/* ---- a device ---- */

/* [second, "state", percent, bytes]: the last two may be left out, and are as before then. */
static bool take_moment(const line *at, const json_t *entry, size_t index, int64_t period_s,
                        const sim_moment *before, sim_moment *out)
{
    static const char LETTERS[] = "ouci";
    const size_t n = json_array_size(entry);
    const json_t *second = json_array_get(entry, 0);
    const char *state = json_string_value(json_array_get(entry, 1));
    *out = *before;
    out->state = 0;
    if (n < 2 || n > 4 || !json_is_integer(second) || state == NULL) {
        return wrong(at, "entry %zu of \"trace\" is not [second, \"state\", percent, bytes]",
                     index);
    }
    const int64_t at_s = (int64_t)json_integer_value(second);
    if (index == 0 ? at_s != 0 : at_s <= before->at_s) {
        return wrong(at, "entry %zu of \"trace\" is at %lld s, %s", index, (long long)at_s,
                     index == 0 ? "and the first is at 0" : "which goes back in time");
    }
    if (at_s >= period_s) {
        return wrong(at, "entry %zu of \"trace\" is at %lld s, and the period has %lld", index,
                     (long long)at_s, (long long)period_s);
    }
    out->at_s = (int32_t)at_s;
    for (; *state != '\0'; state++) {
        const char *letter = strchr(LETTERS, *state);
        if (letter == NULL) {
            return wrong(at, "entry %zu of \"trace\" has the state '%c': not one of %s", index,
                         *state, LETTERS);
        }
        out->state |= (uint8_t)(1U << (letter - LETTERS));
    }
    const json_t *percent = json_array_get(entry, 2);
    const json_t *bytes = json_array_get(entry, 3);
    if (percent != NULL && (!json_is_integer(percent) || json_integer_value(percent) < 0 ||
                            json_integer_value(percent) > 100)) {
        return wrong(at, "entry %zu of \"trace\" has a battery outside of 0 to 100", index);
    }
    if (bytes != NULL && (!json_is_integer(bytes) || json_integer_value(bytes) < 1 ||
                          json_integer_value(bytes) > MOST_BYTES)) {
        return wrong(at, "entry %zu of \"trace\" has a memory outside of 1 to %lld bytes", index,
                     (long long)MOST_BYTES);
    }
    out->battery = percent != NULL ? (uint8_t)json_integer_value(percent) : out->battery;
    out->memory_bytes = bytes != NULL ? (uint64_t)json_integer_value(bytes) : out->memory_bytes;
    return true;
}

static bool take_trace(const line *at, int64_t period_s, uint64_t memory_bytes, sim_device *out)
{
    const json_t *list = json_object_get(at->object, "trace");
    const size_t n = json_array_size(list);
    if (n < 1 || n > SIM_MOMENTS_MOST) {
        return wrong(at, "\"trace\" has %zu entries, outside of 1 to %d", n, SIM_MOMENTS_MOST);
    }
    out->trace = calloc(n, sizeof *out->trace);
    if (out->trace == NULL) {
        return wrong(at, "no memory for a trace of %zu entries", n);
    }
    sim_moment before = {.battery = 100, .memory_bytes = memory_bytes};
    for (size_t i = 0; i < n; i++) {
        if (!take_moment(at, json_array_get(list, i), i, period_s, &before, &out->trace[i])) {
            return false;
        }
        before = out->trace[i];
    }
    out->n_moments = (int32_t)n;
    return true;
}

static bool take_device(const line *at, const sim_devices *devices, sim_device *out)
{
    static const char *const KEYS[] = {"class", "cores",      "memory",   "storage", "down",
                                       "up",    "latency_us", "failures", "trace"};
    const int64_t none = 0;
    const int64_t four = 4;
    const int64_t any = MOST_BYTES;
    int64_t cores = 0;
    int64_t memory = 0;
    int64_t storage = 0;
    const char *name = json_string_value(json_object_get(at->object, "class"));
    if (!knows_all(at, KEYS, sizeof KEYS / sizeof KEYS[0])) {
        return false;
    }
    if (name == NULL) {
        return wrong(at, "\"class\" is missing");
    }
    out->class_index = find_class(devices, name);
    if (out->class_index < 0) {
        return wrong(at, "the class \"%.32s\" is not in the header", name);
    }
    if (!take_whole(at, "cores", 1, 1024, &four, &cores) ||
        !take_whole(at, "memory", 1, MOST_BYTES, NULL, &memory) ||
        !take_whole(at, "storage", 0, MOST_BYTES, &any, &storage) ||
        !take_number(at, "down", 1.0, MOST_RATE, &out->down_per_s) ||
        !take_number(at, "up", 1.0, MOST_RATE, &out->up_per_s) ||
        !take_whole(at, "latency_us", 0, MOST_LATENCY_US, &none, &out->latency_us)) {
        return false;
    }
    out->failures = 0.0;
    if (!take_if_there(at, "failures", 0.0, 1.0, &out->failures)) {
        return false;
    }
    out->n_cores = (int32_t)cores;
    out->storage_bytes = (uint64_t)storage;
    return take_trace(at, devices->period_us / SIM_US_PER_S, (uint64_t)memory, out);
}

bool sim_device_parse(const char *text, size_t n, const sim_devices *devices,
                      sim_device *out_device, char out_what[SIM_ERROR_BYTES])
{
    memset(out_device, 0, sizeof *out_device);
    json_t *object = read_object(text, n, out_what);
    const line at = {object, out_what};
    const bool is_ok = object != NULL && take_device(&at, devices, out_device);
    json_decref(object);
    if (!is_ok) {
        free(out_device->trace);
        out_device->trace = NULL;
    }
    return is_ok;
}
