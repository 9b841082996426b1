/*
 * devices.h - the devices of a simulated fleet: what a file says of them, where each stands at a
 * moment of the day, and the profiles that such files are made of.
 *
 * The file is JSON Lines (samples/SIMULATE.md): a header with the classes, then a device a line.
 * Times are whole microseconds since the beginning of the simulation, which is at 0:00 of a day;
 * the trace of a device repeats every `period_us`.
 */
#ifndef SAMPLES_SIMULATE_DEVICES_H
#define SAMPLES_SIMULATE_DEVICES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SIM_ERROR_BYTES 512
#define SIM_NAME_BYTES 32
#define SIM_CLASSES 32
#define SIM_US_PER_S INT64_C(1000000)
#define SIM_DEVICES_MOST INT64_C(1000000)
#define SIM_LINE_BYTES 65536
#define SIM_MOMENTS_MOST 1440

/* What holds of a device at a moment: bits of sim_moment.state. */
enum { SIM_ONLINE = 1, SIM_UNMETERED = 2, SIM_CHARGING = 4, SIM_IDLE = 8 };

/* From `at_s` on, until the next moment. */
typedef struct sim_moment {
    int32_t at_s;
    uint8_t state;
    uint8_t battery; /* percent */
    uint64_t memory_bytes;
} sim_moment;

/* mJ of a megabit up and down, and mW while it moves. */
typedef struct sim_radio {
    double up, down, base;
} sim_radio;

typedef struct sim_class {
    char name[SIM_NAME_BYTES];
    double time_factor; /* how many times what the cost file says a step takes */
    double compute_w;   /* watts that training takes above what the device takes anyway */
    double battery_wh;  /* watt-hours of its battery; 0: it has none */
    sim_radio wifi;     /* of an unmetered moment */
    sim_radio cellular; /* of any other */
} sim_class;

typedef struct sim_device {
    int32_t class_index;
    int32_t n_cores;
    uint64_t storage_bytes;
    double down_per_s, up_per_s; /* bytes */
    int64_t latency_us;          /* of one exchange, both ways together */
    double failures;             /* probability that the app is ended in a training */
    sim_moment *trace;           /* n_moments, in order of time, the first at 0 */
    int32_t n_moments;
} sim_device;

typedef struct sim_devices {
    char profile[SIM_NAME_BYTES]; /* "": the file does not say */
    uint64_t seed;
    int64_t period_us;
    uint8_t needs;         /* SIM_... that training needs */
    uint8_t least_battery; /* percent that it needs */
    sim_class classes[SIM_CLASSES];
    int32_t n_classes;
    sim_device *list;
    int64_t n;      /* in the list */
    int64_t n_file; /* in the file, which may have more */
} sim_devices;

/*
 * Reads a file. All of it is checked, and the first `most` devices are kept (0: all).
 *
 * @return true; false with one line in out_error, which names file and line. Free either way.
 */
bool sim_devices_read(const char *path, int64_t most, sim_devices *out_devices,
                      char out_error[SIM_ERROR_BYTES]);
void sim_devices_free(sim_devices *devices);

/* What a file says may stand in an error, which is one line: a question mark for each control
 * character. */
void sim_error_clean(char *text);

/* One line of a file, of `n` characters, for sim_devices_read(); `what` says what is wrong. */
bool sim_header_parse(const char *text, size_t n, sim_devices *out_devices,
                      char out_what[SIM_ERROR_BYTES]);
bool sim_device_parse(const char *text, size_t n, const sim_devices *devices,
                      sim_device *out_device, char out_what[SIM_ERROR_BYTES]);

/* ---- trace.c: where a device stands ---- */

/* The moment that holds at a time. */
const sim_moment *sim_moment_at(const sim_devices *devices, const sim_device *device, int64_t us);
/* The time of the next entry of the trace after `us`, which may be of a later day. */
int64_t sim_next_change_us(const sim_devices *devices, const sim_device *device, int64_t us);
/* Whether the device may train then: all that the file's `requires` names, and the battery. */
bool sim_is_ready(const sim_devices *devices, const sim_device *device, int64_t us);
/* The first time from `us` on at which it may train, or is online; -1: never. */
int64_t sim_ready_from_us(const sim_devices *devices, const sim_device *device, int64_t us);
int64_t sim_online_from_us(const sim_devices *devices, const sim_device *device, int64_t us);
/* When `work_us` of transfers that begin at `us` have ended: they stand still while the device is
 * not online. -1: never. */
int64_t sim_online_end_us(const sim_devices *devices, const sim_device *device, int64_t us,
                          int64_t work_us);
/* The least memory of the day, and the most. */
uint64_t sim_least_memory(const sim_device *device);
uint64_t sim_most_memory(const sim_device *device);

/* How much of [from, to) the device is on its charger, looking no further than `most`. */
int64_t sim_charging_us(const sim_devices *devices, const sim_device *device, int64_t from_us,
                        int64_t to_us, int64_t most_us);

/* ---- make.c ---- */

/* "N:PROFILE" into its parts; false with what was expected in out_error. */
bool sim_make_parse(const char *text, int64_t *out_n, char out_profile[SIM_NAME_BYTES],
                    char out_error[SIM_ERROR_BYTES]);
/* Writes n devices of a profile: the same seed, the same bytes. */
bool sim_devices_write(const char *path, int64_t n, const char *profile, uint64_t seed,
                       char out_error[SIM_ERROR_BYTES]);

/* ---- draw.c: seeded draws ---- */

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014). */
typedef struct sim_draw {
    uint64_t state;
} sim_draw;
sim_draw sim_draw_begin(uint64_t seed, uint64_t index, uint64_t what);
uint64_t sim_draw_bits(sim_draw *draw);
/* In [0, 1). */
double sim_draw_unit(sim_draw *draw);
/* Box and Muller (Annals of Mathematical Statistics 29, 1958). */
double sim_draw_normal(sim_draw *draw, double mean, double deviation);

#endif
