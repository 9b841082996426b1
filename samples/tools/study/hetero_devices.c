/*
 * hetero_devices.c - files of devices that differ in hardware, in state, in both or in neither, and
 * of what a step takes.
 *
 * Invariant: a file follows from its arguments alone; no clock is looked at.
 */
#include "hetero.h"

#include <inttypes.h>
#include <math.h>
#include <simulate/devices.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROFILE "phones2019"
#define MIDDLE 2 /* of the profile's classes, slowest first */
#define MIDDLE_DOWN 3e6
#define MIDDLE_UP 1e6
#define MIDDLE_LATENCY_US 40000
#define MIB (UINT64_C(1) << 20)
#define MIDDLE_MEMORY (256 * MIB)
#define PATH_BYTES 4096

static bool fail(char *out_error, const char *what, const char *path)
{
    (void)snprintf(out_error, HETERO_ERROR_BYTES, "%.300s %s", path, what);
    return false;
}

static void write_state(FILE *file, uint8_t state)
{
    static const char letters[] = "ouci";
    for (int bit = 0; bit < 4; bit++) {
        if ((state & 1 << bit) != 0) {
            (void)fputc(letters[bit], file);
        }
    }
}

static void write_trace(FILE *file, const sim_device *device, const hetero_condition *condition)
{
    const uint64_t own_bytes = condition->hardware ? sim_most_memory(device) : MIDDLE_MEMORY;
    if (!condition->state) {
        (void)fprintf(file, "[0,\"ouci\",100,%" PRIu64 "]", own_bytes);
        return;
    }
    for (int32_t i = 0; i < device->n_moments; i++) {
        const sim_moment *moment = &device->trace[i];
        (void)fprintf(file, "%s[%" PRId32 ",\"", i > 0 ? "," : "", moment->at_s);
        write_state(file, moment->state);
        (void)fprintf(file, "\",%d,%" PRIu64 "]", (int)moment->battery,
                      condition->hardware ? moment->memory_bytes : own_bytes);
    }
}

static void write_device(FILE *file, const sim_devices *of, const sim_device *device,
                         const hetero_condition *condition, double scale)
{
    const bool is_own = condition->hardware;
    const double down = is_own ? device->down_per_s : MIDDLE_DOWN;
    const double up = is_own ? device->up_per_s : MIDDLE_UP;
    const int64_t latency_us = is_own ? device->latency_us : MIDDLE_LATENCY_US;
    (void)fprintf(file,
                  "{\"class\":\"%s\",\"cores\":%" PRId32 ",\"memory\":%" PRIu64
                  ",\"down\":%.3f,\"up\":%.3f,\"latency_us\":%" PRId64
                  ",\"failures\":%g,\"trace\":[",
                  of->classes[is_own ? device->class_index : MIDDLE].name, device->n_cores,
                  is_own ? sim_most_memory(device) : MIDDLE_MEMORY, down * scale, up * scale,
                  latency_us, condition->state ? device->failures : 0.0);
    write_trace(file, device, condition);
    (void)fprintf(file, "]}\n");
}

static void write_header(FILE *file, const sim_devices *of, const hetero_condition *condition)
{
    (void)fprintf(file,
                  "{\"dunlin_devices\":1,\"profile\":\"%s\",\"period_s\":86400,"
                  "\"requires\":[\"unmetered\",\"charging\",\"idle\"],\"least_battery\":%d,"
                  "\"classes\":[",
                  condition->name, (int)of->least_battery);
    for (int32_t i = 0; i < of->n_classes; i++) {
        (void)fprintf(file, "%s{\"name\":\"%s\",\"time_factor\":%g}", i > 0 ? "," : "",
                      of->classes[i].name, of->classes[i].time_factor);
    }
    (void)fprintf(file, "]}\n");
}

static bool write_all(const char *path, const sim_devices *of, const hetero_condition *condition,
                      double scale, char *out_error)
{
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        return fail(out_error, "cannot be written", path);
    }
    write_header(file, of, condition);
    for (int64_t i = 0; i < of->n; i++) {
        write_device(file, of, &of->list[i], condition, scale);
    }
    const bool is_ok = ferror(file) == 0;
    return fclose(file) == 0 && is_ok ? true : fail(out_error, "cannot be written", path);
}

bool hetero_write_devices(const char *path, const hetero_condition *condition, int64_t n,
                          uint64_t seed, double model_bytes, char out_error[HETERO_ERROR_BYTES])
{
    char whole[PATH_BYTES];
    sim_devices of;
    if (snprintf(whole, sizeof whole, "%s.phones", path) >= (int)sizeof whole) {
        return fail(out_error, "is too long", path);
    }
    bool is_ok = sim_devices_write(whole, n, PROFILE, seed, out_error);
    if (is_ok) {
        is_ok = sim_devices_read(whole, 0, &of, out_error);
        is_ok = is_ok && write_all(path, &of, condition, model_bytes / HETERO_DOWN_S / MIDDLE_DOWN,
                                   out_error);
        sim_devices_free(&of);
    }
    (void)unlink(whole);
    return is_ok;
}

/* ---- costs ---- */

static const uint64_t ladder[] = {4, 8, 16, 64, 256, 2048}; /* MiB */
#define N_LADDER ((int)(sizeof ladder / sizeof ladder[0]))

/* The factor of a middle phone, as the file of devices has it; 0: it cannot be read. */
static double middle_factor(const char *devices, char *out_error)
{
    sim_devices of;
    const double factor = sim_devices_read(devices, 1, &of, out_error) && of.n_classes > MIDDLE
                              ? of.classes[MIDDLE].time_factor
                              : 0.0;
    sim_devices_free(&of);
    return factor;
}

static json_t *make_rows(const study *at, const study_subject *subject, int64_t batch,
                         double largest_us, uint64_t *out_least)
{
    json_t *rows = json_array();
    dunlin_error error = {0};
    double largest_ms = 0.0;
    for (int i = N_LADDER - 1; i >= 0; i--) {
        const dunlin_trainer_options options =
            study_options(at, subject, DUNLIN_POLICY_AUTO, ladder[i] * MIB, batch);
        dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
        if (dunlin_trainer_estimate(subject->model, &options, &report, &error) != DUNLIN_OK) {
            continue; /* too little for any plan */
        }
        largest_ms = i == N_LADDER - 1 ? report.predicted_ms : largest_ms;
        *out_least = report.least_budget_bytes;
        (void)json_array_insert_new(
            rows, 0,
            json_pack("{s:I, s:I, s:I}", "budget_bytes", (json_int_t)ladder[i] * (json_int_t)MIB,
                      "planned_bytes", (json_int_t)report.planned_bytes, "step_us",
                      (json_int_t)ceil(largest_us * report.predicted_ms / largest_ms)));
    }
    return rows;
}

bool hetero_write_costs(const char *path, const char *devices, const study *at,
                        const study_subject *subject, int64_t n_steps, int64_t batch,
                        char out_error[HETERO_ERROR_BYTES])
{
    char error[OUTPUT_ERROR_BYTES];
    const double factor = middle_factor(devices, out_error);
    const double largest_us = 1e6 * HETERO_TRAIN_S / (factor * (double)n_steps);
    dunlin_error ignored = {0};
    dunlin_trainer_report none = DUNLIN_TRAINER_REPORT_INIT;
    const dunlin_trainer_options options = study_options(at, subject, DUNLIN_POLICY_NONE, 0, batch);
    if (!(factor > 0.0) ||
        dunlin_trainer_estimate(subject->model, &options, &none, &ignored) != DUNLIN_OK) {
        return fail(out_error, "has no costs", subject->name);
    }
    uint64_t least_bytes = 1;
    json_t *rows = make_rows(at, subject, batch, largest_us, &least_bytes);
    json_t *object = json_pack("{s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:o}", "dunlin_costs", 1,
                               "model", subject->name, "params",
                               (json_int_t)dunlin_model_n_trainable_elements(subject->model),
                               "batch", (json_int_t)batch, "least_bytes", (json_int_t)least_bytes,
                               "none_bytes", (json_int_t)none.planned_bytes, "evaluate_us",
                               (json_int_t)ceil(largest_us / 3.0), "rows", rows);
    const bool is_ok = object != NULL && output_json(path, object, error);
    json_decref(object);
    return is_ok ? true : fail(out_error, "cannot be written", path);
}
