/*
 * report.c - what simulated time adds to the result: hours, who took part and who did not, and why.
 */
#include "simulation.h"

#include <string.h>

static json_t *share_or_null(double share)
{
    return share >= 0.0 ? json_real(share) : json_null();
}

static json_t *causes_of(const int64_t counts[SIM_CAUSES])
{
    json_t *object = json_object();
    for (int cause = 0; cause < SIM_CAUSES; cause++) {
        if (counts[cause] > 0) {
            (void)json_object_set_new(object, sim_cause_name((sim_cause)cause),
                                      json_integer((json_int_t)counts[cause]));
        }
    }
    return object;
}

static json_t *accepted_by_hour(const sim_class_sums *sums)
{
    json_t *list = json_array();
    for (int hour = 0; hour < 24; hour++) {
        (void)json_array_append_new(list, json_integer((json_int_t)sums->accepted_at[hour]));
    }
    return list;
}

/* What each device has used, into its class. */
static void sum_used(simulation *sim)
{
    for (int32_t i = 0; i < sim->devices.n_classes; i++) {
        sim_class_sums *sums = &sim->sums[i];
        sums->bytes_down = sums->bytes_up = sums->most_bytes = 0;
        sums->compute_j = sums->radio_j = sums->most_j = 0.0;
    }
    for (int64_t i = 0; i < sim->n_clients; i++) {
        const sim_used *used = &sim->clients[i].used;
        sim_class_sums *sums = &sim->sums[sim->clients[i].device->class_index];
        const double joules = used->compute_j + used->radio_j;
        const uint64_t bytes = used->bytes_down + used->bytes_up;
        sums->bytes_down += used->bytes_down;
        sums->bytes_up += used->bytes_up;
        sums->compute_j += used->compute_j;
        sums->radio_j += used->radio_j;
        sums->most_j = joules > sums->most_j ? joules : sums->most_j;
        sums->most_bytes = bytes > sums->most_bytes ? bytes : sums->most_bytes;
    }
}

static json_t *class_of(const sim_class *class, const sim_class_sums *sums)
{
    const double accuracy =
        sums->n_examples > 0 ? (double)sums->n_right / (double)sums->n_examples : -1.0;
    json_t *object = json_pack(
        "{s:s, s:f, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:I}", "name", class->name,
        "time_factor", class->time_factor, "devices", (json_int_t)sums->n_devices, "assigned",
        (json_int_t)sums->n_assigned, "accepted", (json_int_t)sums->n_accepted, "partial",
        (json_int_t)sums->n_partial, "dropped_by", causes_of(sums->dropped), "accepted_by_hour",
        accepted_by_hour(sums), "accuracy", share_or_null(accuracy), "bytes_down",
        (json_int_t)sums->bytes_down, "bytes_up", (json_int_t)sums->bytes_up);
    json_t *used =
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:I}", "compute_w", class->compute_w, "battery_wh",
                  class->battery_wh, "compute_j", sums->compute_j, "radio_j", sums->radio_j,
                  "device_j_most", sums->most_j, "device_bytes_most", (json_int_t)sums->most_bytes);
    (void)json_object_update(object, used);
    json_decref(used);
    return object;
}

static json_t *classes_of(const simulation *sim)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < sim->devices.n_classes; i++) {
        (void)json_array_append_new(list, class_of(&sim->devices.classes[i], &sim->sums[i]));
    }
    return list;
}

static double all_joules(const simulation *sim)
{
    double sum = 0.0;
    for (int32_t i = 0; i < sim->devices.n_classes; i++) {
        sum += sim->sums[i].compute_j + sim->sums[i].radio_j;
    }
    return sum;
}

static json_t *hours_of(const simulation *sim)
{
    json_t *list = json_array();
    for (int hour = 0; hour < 24; hour++) {
        int64_t n_accepted = 0;
        for (int32_t i = 0; i < sim->devices.n_classes; i++) {
            n_accepted += sim->sums[i].accepted_at[hour];
        }
        (void)json_array_append_new(list, json_pack("{s:i, s:I, s:I}", "hour", hour, "ready",
                                                    (json_int_t)sim->ready_at[hour], "accepted",
                                                    (json_int_t)n_accepted));
    }
    return list;
}

static json_t *budgets_of(const simulation *sim)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < sim->costs.n_rows; i++) {
        const sim_cost *row = &sim->costs.rows[i];
        if (sim->of_row[i] > 0) {
            (void)json_array_append_new(
                list,
                json_pack("{s:I, s:I, s:I, s:I}", "budget_bytes", (json_int_t)row->budget_bytes,
                          "planned_bytes", (json_int_t)row->planned_bytes, "step_us",
                          (json_int_t)row->step_us, "trainings", (json_int_t)sim->of_row[i]));
        }
    }
    return list;
}

/* Devices that took part at least once, and the most that one did. */
static void add_spread(const simulation *sim, json_t *object)
{
    int64_t n_ever = 0;
    int64_t most = 0;
    for (int64_t i = 0; i < sim->n_clients; i++) {
        n_ever += sim->clients[i].n_accepted > 0 ? 1 : 0;
        most = sim->clients[i].n_accepted > most ? sim->clients[i].n_accepted : most;
    }
    (void)json_object_set_new(object, "devices_accepted", json_integer((json_int_t)n_ever));
    (void)json_object_set_new(object, "accepted_most", json_integer((json_int_t)most));
}

json_t *sim_model_hash(const fleet_server *server, const json_t *status)
{
    char path[FLEET_PATH_BYTES + 64];
    char text[SIM_SHA256_TEXT];
    const unsigned n = (unsigned)json_array_size(json_object_get(status, "rounds"));
    (void)snprintf(path, sizeof path, "%s/server/models/%06u.weights", server->folder, n + 1);
    return sim_hash_file(path, text) ? json_string(text) : json_null();
}

/* What follows from the run so far. */
static json_t *simulated_of(const simulation *sim)
{
    json_t *object = json_pack(
        "{s:s, s:s, s:I, s:f, s:f, s:f, s:o, s:o, s:o, s:{s:I, s:I, s:I}, s:I, s:I, s:I}",
        "profile", sim->devices.profile, "costs_sha256", sim->costs.sha256, "events",
        (json_int_t)sim->n_events, "hours", (double)sim->now_us / 3.6e9, "period_s",
        (double)sim->devices.period_us / (double)SIM_US_PER_S, "begun_hours",
        sim->begun_us > 0 ? (double)sim->begun_us / 3.6e9 : 0.0, "classes", classes_of(sim),
        "by_hour", hours_of(sim), "budgets", budgets_of(sim), "left_out", "memory",
        (json_int_t)sim->left_out.memory, "storage", (json_int_t)sim->left_out.storage,
        "never_ready", (json_int_t)sim->left_out.never_ready, "needs_planner",
        (json_int_t)sim->n_needs_planner, "none_bytes", (json_int_t)sim->costs.none_bytes,
        "least_bytes", (json_int_t)sim->costs.least_bytes);
    add_spread(sim, object);
    (void)json_object_set_new(object, "energy_j", json_real(all_joules(sim)));
    (void)json_object_set_new(
        object, "data_parts",
        json_integer((json_int_t)dunlin_partition_n_clients(sim->world->partition)));
    const int64_t n_writers = dunlin_dataset_n_natural_clients(sim->world->dataset);
    if (sim->flags->partition_kind == DUNLIN_PARTITION_NATURAL) {
        (void)json_object_set_new(object, "data_writers", json_integer((json_int_t)n_writers));
    }
    return object;
}

/* What is known at its end alone. */
static void add_end(const simulation *sim, json_t *object)
{
    char devices[SIM_SHA256_TEXT];
    (void)json_object_set_new(object, "events_sha256", json_string(sim->events_sha256));
    (void)json_object_set_new(object, "accuracy_mean", share_or_null(sim->accuracy_mean));
    (void)json_object_set_new(object, "accuracy_worst_tenth", share_or_null(sim->worst_tenth));
    (void)json_object_set_new(
        object, "devices_sha256",
        sim_hash_file(sim->flags->devices_file, devices) ? json_string(devices) : json_null());
}

/* Who was dropped in a round. Whoever was late in one that had enough others was not too slow for
 * its deadline; where rounds overlap the deadline is a device's own. */
static json_t *dropped_of(const simulation *sim, uint64_t round, const json_t *from)
{
    const char *closed_by = json_string_value(json_object_get(from, "closed_by"));
    int64_t counts[SIM_CAUSES];
    memcpy(counts, &sim->dropped_by[round * SIM_CAUSES], sizeof counts);
    if (sim->flags->buffered == NULL && closed_by != NULL && strcmp(closed_by, "goal") == 0) {
        counts[SIM_CAUSE_SURPLUS] += counts[SIM_CAUSE_LATE];
        counts[SIM_CAUSE_LATE] = 0;
    }
    return causes_of(counts);
}

/* What the simulation has of a round of the status. */
static void add_round(const simulation *sim, const json_t *from, json_t *into)
{
    const uint64_t round = (uint64_t)json_integer_value(json_object_get(from, "round"));
    if (round <= (uint64_t)sim->n_rounds) {
        (void)json_object_set_new(into, "energy_j", json_real(sim->joules[round]));
        (void)json_object_set_new(into, "dropped_by", dropped_of(sim, round, from));
    }
}

json_t *sim_report_now(simulation *sim, const json_t *status, size_t first)
{
    const json_t *from = json_object_get(status, "rounds");
    json_t *rounds = json_array();
    for (size_t i = first; i < json_array_size(from); i++) {
        const json_t *one = json_array_get(from, i);
        json_t *into = json_pack("{s:O}", "round", json_object_get(one, "round"));
        add_round(sim, one, into);
        (void)json_array_append_new(rounds, into);
    }
    sum_used(sim);
    json_t *object = simulated_of(sim);
    (void)json_object_set_new(object, "rounds", rounds);
    return object;
}

void sim_report(simulation *sim, json_t *result, const json_t *status)
{
    const json_t *from = json_object_get(status, "rounds");
    json_t *rounds = json_object_get(result, "rounds");
    double hours = sim->begun_us > 0 ? (double)sim->begun_us / 3.6e9 : 0.0;
    for (size_t i = 0; i < json_array_size(from); i++) {
        const json_t *one = json_array_get(from, i);
        json_t *into = json_array_get(rounds, i);
        hours += json_number_value(json_object_get(one, "wall_s")) / 3600.0;
        (void)json_object_set_new(into, "sim_hours", json_real(hours));
        add_round(sim, one, into);
    }
    sum_used(sim);
    if (sim->server->loop != NULL) {
        (void)json_object_set_new(result, "transport", json_string("memory"));
    }
    json_t *simulated = simulated_of(sim);
    add_end(sim, simulated);
    (void)json_object_set_new(result, "simulated", simulated);
    (void)json_object_set_new(result, "models_sha256", sim_model_hash(sim->server, status));
}
