/*
 * result.c - the results as JSON: the server's rounds, and what only the fleet knows.
 */
#include "fleet.h"

#include <common/process.h>
#include <math.h>

static json_t *round_result(const json_t *from, const fleet_figures *figures, bool is_text)
{
    static const char *const keys[] = {
        "round",    "accuracy",   "loss",       "participants", "dropped", "bytes_down",
        "bytes_up", "wall_s",     "train_loss", "kind",         "devices", "failed",
        "scaled",   "norm_bound", "taken_back", "reason",       "metrics", "metrics_left_out",
        "epsilon",  "secagg"};
    json_t *round = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        json_t *value = json_object_get(from, keys[i]);
        (void)json_object_set_new(round, keys[i],
                                  value != NULL ? json_deep_copy(value) : json_null());
    }
    const json_t *loss = json_object_get(from, "loss");
    if (is_text) { /* the loss is a token's */
        (void)json_object_set_new(round, "perplexity",
                                  json_is_number(loss) ? json_real(exp(json_number_value(loss)))
                                                       : json_null());
    }
    uint64_t number = (uint64_t)json_integer_value(json_object_get(from, "round"));
    uint64_t peak_bytes = number < (uint64_t)figures->n_peaks ? figures->peaks[number] : 0;
    (void)json_object_set_new(round, "peak_bytes_max", json_integer((json_int_t)peak_bytes));
    return round;
}

static json_t *setup_of(const fleet_flags *flags, const fleet_world *world)
{
    json_t *setup = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:I, s:I, s:b}", "model", flags->model,
        "dataset", dunlin_dataset_title(world->dataset), "partition", flags->partition, "algorithm",
        flags->algorithm, "cohort", (json_int_t)flags->cohort, "epochs", (json_int_t)flags->epochs,
        "batch", (json_int_t)world->batch, "lr", flags->lr, "momentum", flags->momentum,
        "budget_bytes", (json_int_t)flags->budget_bytes, "seed", (json_int_t)flags->seed,
        "synthetic", dunlin_dataset_is_synthetic(world->dataset) ? 1 : 0);
    json_t *orders = fleet_orders_json(flags);
    if (json_object_size(orders) > 0) {
        (void)json_object_set(setup, "orders", orders);
    }
    json_decref(orders);
    fleet_strategy_json(flags, setup);
    fleet_compress_json(flags, setup, setup);
    (void)json_object_set_new(setup, "precision",
                              json_string(flags->precision != NULL ? flags->precision : "fp32"));
    (void)json_object_set_new(setup, "storage",
                              json_string(dunlin_storage_name(flags->storage_value)));
    if (fleet_is_integer(flags)) {
        (void)json_object_set_new(setup, "lr", json_null());
        (void)json_object_set_new(setup, "grad_bits", json_string(flags->grad_bits));
    }
    fleet_dp_json(flags, setup);
    fleet_unequal_json(flags, setup, setup);
    if (flags->buffered != NULL || flags->selection != NULL) {
        (void)json_object_set_new(setup, "is_repeatable", json_boolean(fleet_is_repeatable(flags)));
    }
    fleet_secagg_json(flags, setup);
    if (flags->validation != NULL) {
        (void)json_object_set_new(setup, "validation", json_string(flags->validation));
        (void)json_object_set_new(
            setup, "judge", json_string(flags->is_judged_by_held_out ? "validation" : "test"));
    }
    json_t *choice = fleet_batch_json(flags, world);
    if (choice != NULL) {
        (void)json_object_set_new(setup, "batch_max", choice);
    }
    return setup;
}

static json_t *costs_of(const fleet_flags *flags, const fleet_totals *totals)
{
    double wall_s = totals->wall_s;
    double rate = wall_s > 0.0 ? (double)totals->transport.n_requests / wall_s : 0.0;
    return json_pack(
        "{s:I, s:f, s:f, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "threads",
        (json_int_t)flags->n_threads, "wall_s", wall_s, "requests_per_s", round(rate * 10.0) / 10.0,
        "requests", (json_int_t)totals->transport.n_requests, "handshakes_per_s",
        wall_s > 0.0 ? (double)totals->transport.n_handshakes / wall_s : 0.0, "handshakes",
        (json_int_t)totals->transport.n_handshakes, "connections_peak",
        (json_int_t)totals->transport.n_connections_peak, "descriptors_peak",
        (json_int_t)totals->n_descriptors, "idle_client_bytes",
        (json_int_t)totals->idle_client_bytes, "rss_peak_bytes", (json_int_t)process_peak_bytes(),
        "updates_accepted", (json_int_t)totals->n_accepted, "calls_failed",
        (json_int_t)totals->n_failed, "operand_bytes", (json_int_t)totals->moved_bytes);
}

/* What a key of the rounds sums up to: HTTP bodies of all of them. Null where a private round tells
 * none. */
static json_t *sum_of(const json_t *rounds, const char *key)
{
    json_int_t sum = 0;
    for (size_t i = 0; i < json_array_size(rounds); i++) {
        const json_t *value = json_object_get(json_array_get(rounds, i), key);
        if (!json_is_integer(value)) {
            return json_null();
        }
        sum += json_integer_value(value);
    }
    return json_integer(sum);
}

json_t *fleet_result(const fleet_flags *flags, const fleet_world *world, const json_t *status,
                     const fleet_figures *figures)
{
    const json_t *from = json_object_get(status, "rounds");
    json_t *rounds = json_array();
    for (size_t i = 0; i < json_array_size(from); i++) {
        (void)json_array_append_new(
            rounds, round_result(json_array_get(from, i), figures, data_is_text(&flags->choice)));
    }
    static const char *const keys[] = {"best_round", "best_accuracy", "best_loss",
                                       "stopped_by", "privacy",       "secagg"};
    /* Of the model that the run ends with: the last round's, unless that was taken back. */
    json_t *last = json_object_get(status, "final_accuracy");
    json_t *result = json_object();
    (void)json_object_set_new(result, "final_accuracy",
                              last != NULL ? json_copy(last) : json_null());
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        json_t *value = json_object_get(status, keys[i]);
        (void)json_object_set_new(result, keys[i],
                                  value != NULL ? json_deep_copy(value) : json_null());
    }
    (void)json_object_set_new(result, "bytes_down", sum_of(from, "bytes_down"));
    (void)json_object_set_new(result, "bytes_up", sum_of(from, "bytes_up"));
    (void)json_object_set_new(result, "clients",
                              json_integer((json_int_t)fleet_n_devices(flags, world)));
    (void)json_object_set_new(result, "params", json_integer((json_int_t)world->n_params));
    (void)json_object_set_new(result, "setup", setup_of(flags, world));
    (void)json_object_set_new(result, "fleet", costs_of(flags, &figures->totals));
    (void)json_object_set_new(result, "rounds", rounds);
    if (flags->sends_telemetry) {
        json_t *sums = json_object_get(status, "telemetry");
        (void)json_object_set_new(result, "telemetry",
                                  sums != NULL ? json_deep_copy(sums) : json_null());
    }
    return result;
}
