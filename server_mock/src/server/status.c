/*
 * status.c - the answer of /v1/status: figures for people and for the simulated fleet, as JSON.
 *
 * Invariant: numbers and names of the task only; nothing about a single device.
 */
#include "status.h"

#include "rounds/best.h"
#include "rounds/cohort.h"
#include "rounds/lineage.h"
#include "rounds/private.h"
#include "state/context.h"
#include "state/db.h"
#include "state/db_metrics.h"
#include "status_privacy.h"
#include "status_secagg.h"
#include "status_simulated.h"
#include "status_watch.h"
#include "task/task.h"

#include <jansson.h>
#include <stdio.h>

static json_t *real_or_null(bool is_there, double value)
{
    return is_there ? json_real(value) : json_null();
}

static const char *reason_name(dunlin__close_reason reason)
{
    static const char *const names[] = {"", "goal", "deadline", "all", "taken_back", "failed"};
    return (unsigned)reason < sizeof names / sizeof names[0] ? names[reason] : "";
}

/* Means of what the devices said, by name; those that nobody said are not there. */
static json_t *metrics_object(const dunlin__device_metrics *metrics)
{
    json_t *object = json_object();
    for (int m = 0; m < DUNLIN_N_METRICS; m++) {
        if (metrics->is_there[m]) {
            (void)json_object_set_new(object, dunlin__device_metric_name((dunlin__device_metric)m),
                                      json_real(metrics->values[m]));
        }
    }
    return object;
}

/* What the guards did, and why there is a figure missing. */
static void add_verdicts(json_t *object, const dunlin__round_row *row)
{
    bool has_time = row->closed_ms >= row->opened_ms;
    double wall_s = (double)(row->closed_ms - row->opened_ms) / 1000;
    uint64_t n_taken_back = row->is_taken_back ? row->n_participants : 0;
    char why[DUNLIN_ROUND_WHY_BYTES + 32];
    (void)snprintf(why, sizeof why, "%s%s%s", row->why, !has_time && row->why[0] != 0 ? "; " : "",
                   has_time ? "" : "the clock went back");
    (void)json_object_set_new(object, "wall_s", real_or_null(has_time, wall_s));
    (void)json_object_set_new(object, "scaled", json_integer((json_int_t)row->n_scaled));
    (void)json_object_set_new(object, "norm_bound",
                              real_or_null(row->norm_bound > 0, row->norm_bound));
    (void)json_object_set_new(object, "clip_norm",
                              real_or_null(row->clip_norm > 0, row->clip_norm));
    (void)json_object_set_new(object, "clip_within",
                              real_or_null(row->has_clip_within, row->clip_within));
    (void)json_object_set_new(object, "taken_back", json_integer((json_int_t)n_taken_back));
    (void)json_object_set_new(object, "base", json_integer((json_int_t)row->base));
    (void)json_object_set_new(object, "reason", why[0] != 0 ? json_string(why) : json_null());
}

/* `hides`: how many came, and what they sent, is not told. */
static json_t *round_object(const dunlin__round_row *row, bool hides)
{
    const dunlin__device_metrics *metrics = &row->metrics;
    bool has_train_loss = metrics->is_there[DUNLIN_METRIC_LOSS] && !row->is_evaluation;
    json_t *object = json_pack(
        "{s:I, s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:f, s:b, s:s}", "round",
        (json_int_t)row->round, "kind", row->is_evaluation ? "evaluate" : "train", "devices",
        metrics_object(metrics), "accuracy", real_or_null(row->is_evaluated, row->accuracy), "loss",
        real_or_null(row->is_evaluated, row->loss), "train_loss",
        real_or_null(has_train_loss, metrics->values[DUNLIN_METRIC_LOSS]), "participants",
        (json_int_t)row->n_participants, "dropped", (json_int_t)row->n_dropped, "bytes_down",
        (json_int_t)row->bytes_down, "bytes_up", (json_int_t)row->bytes_up, "weight_sum",
        row->weight_sum, "failed", row->is_failed ? 1 : 0, "closed_by", reason_name(row->reason));
    add_verdicts(object, row);
    (void)json_object_set_new(object, "epsilon", real_or_null(row->is_private, row->epsilon));
    if (hides) {
        dunlin__status_hide(object, dunlin__status_hidden_of_round);
    }
    return object;
}

static json_t *find_round(json_t *rounds, uint64_t round)
{
    json_t *first = json_array_get(rounds, 0);
    uint64_t number = (uint64_t)json_integer_value(json_object_get(first, "round"));
    /* They follow each other without gaps. */
    return first != NULL && round >= number ? json_array_get(rounds, (size_t)(round - number))
                                            : NULL;
}

static dunlin_status add_metric(void *ctx, const dunlin__round_metric_row *row)
{
    json_t *metrics = json_object_get(find_round(ctx, row->round), "metrics");
    (void)json_object_set_new(metrics, row->name,
                              json_pack("{s:f, s:f, s:f, s:I}", "mean", row->mean, "min",
                                        row->least, "max", row->most, "n", (json_int_t)row->n));
    return DUNLIN_OK;
}

static dunlin_status add_left_names(void *ctx, uint64_t round, uint64_t n_left)
{
    (void)json_object_set_new(find_round(ctx, round), "metrics_left_out",
                              json_integer((json_int_t)n_left));
    return DUNLIN_OK;
}

/* The app's own metrics, into each round. */
static void add_metrics(json_t *rounds, dunlin__server *server)
{
    for (size_t i = 0; i < json_array_size(rounds); i++) {
        json_t *round = json_array_get(rounds, i);
        (void)json_object_set_new(round, "metrics", json_object());
        (void)json_object_set_new(round, "metrics_left_out", json_integer(0));
    }
    if (server->db == NULL) { /* in memory there are none */
        return;
    }
    dunlin_status status =
        dunlin__server_db_each_round_metric(server->db, add_metric, rounds, NULL);
    if (status == DUNLIN_OK) {
        status = dunlin__server_db_each_left_names(server->db, add_left_names, rounds, NULL);
    }
    for (size_t i = 0; status != DUNLIN_OK && i < json_array_size(rounds); i++) {
        (void)json_object_set_new(json_array_get(rounds, i), "metrics", json_null());
    }
}

static json_t *rounds_array(dunlin__server *server)
{
    json_t *rounds = json_array();
    for (size_t i = 0; i < server->n_closed; i++) {
        json_t *round = round_object(&server->closed[i], dunlin__private_hides_devices(server));
        (void)json_object_set_new(round, "secagg",
                                  dunlin__status_secagg_round(server, server->closed[i].round));
        (void)json_array_append_new(rounds, round);
    }
    add_metrics(rounds, server);
    return rounds;
}

static json_t *open_object(const dunlin__server *server)
{
    dunlin__part_counts counts = dunlin__server_count_parts(server, dunlin__server_now(server));
    uint64_t deadline_ms = dunlin__server_task_deadline_ms(&server->task, server->round.round);
    json_t *object =
        json_pack("{s:I, s:i, s:i, s:i, s:i}", "round", (json_int_t)server->round.round, "offered",
                  (int)counts.n_offered, "assigned", (int)counts.n_assigned, "accepted",
                  (int)counts.n_accepted, "dropped", (int)counts.n_dropped);
    (void)json_object_set_new(object, "deadline_s", json_real((double)deadline_ms / 1000));
    return object;
}

static json_t *requests_object(dunlin__server *server)
{
    dunlin__server_counters *counters = &server->counters;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "total",
                     (json_int_t)atomic_load(&counters->n_requests), "refused",
                     (json_int_t)atomic_load(&counters->n_refused), "failed",
                     (json_int_t)atomic_load(&counters->n_failed), "connections",
                     (json_int_t)atomic_load(&counters->n_connections), "body_bytes_down",
                     (json_int_t)atomic_load(&counters->body_bytes_down), "body_bytes_up",
                     (json_int_t)atomic_load(&counters->body_bytes_up), "telemetry_records",
                     (json_int_t)atomic_load(&counters->n_telemetry), "faults",
                     (json_int_t)atomic_load(&counters->n_faults));
}

static dunlin_status add_telemetry(void *ctx, const dunlin__telemetry_row *row)
{
    char name[16];
    (void)snprintf(name, sizeof name, "%u", (unsigned)row->event);
    (void)json_object_set_new(ctx, name,
                              json_pack("{s:I, s:f, s:f, s:f, s:f}", "n", (json_int_t)row->n,
                                        "count", row->count_sum, "mean",
                                        row->value_sum / (double)row->n, "min", row->value_min,
                                        "max", row->value_max));
    return DUNLIN_OK;
}

/* Sums over all devices, by the number of the event. */
static json_t *telemetry_object(dunlin__server *server)
{
    json_t *object = json_object();
    if (server->db == NULL) {
        return object;
    }
    dunlin_status status =
        dunlin__server_db_each_telemetry(server->db, add_telemetry, object, NULL);
    return status == DUNLIN_OK ? object : (json_decref(object), json_null());
}

static const char *state_name(const dunlin__server *server)
{
    if (server->is_done) {
        /* Not before the last model has its figures. */
        return server->is_exported ? "done" : "running";
    }
    return server->is_started ? "running" : "waiting";
}

static json_t *text_or_null(const char *text)
{
    return text != NULL ? json_string(text) : json_null();
}

/* The best model: whose files are kept or, where none are to be, by the figures alone. */
static void add_best(json_t *object, const dunlin__server *server)
{
    dunlin__best_model best = server->best;
    if (!dunlin__best_is_kept(server)) {
        best = dunlin__best_find(server, false);
    }
    bool is_there = best.round > 0 && !dunlin__lineage_is_bad(server, best.round);
    (void)json_object_set_new(object, "best_round",
                              is_there ? json_integer((json_int_t)best.round) : json_null());
    (void)json_object_set_new(object, "best_accuracy", real_or_null(is_there, best.accuracy));
    (void)json_object_set_new(object, "best_loss", real_or_null(is_there, best.loss));
    (void)json_object_set_new(object, "best_is_kept", json_boolean(dunlin__best_is_kept(server)));
    (void)json_object_set_new(object, "stopped_by", text_or_null(dunlin__stop_name(server->stop)));
}

static json_t *status_object(dunlin__server *server)
{
    const dunlin__server_task *task = &server->task;
    json_t *clients = json_pack("{s:I, s:I, s:I}", "known", (json_int_t)server->devices.n_known,
                                "checked_in", (json_int_t)server->devices.n_checked_in, "expected",
                                (json_int_t)task->min_clients_for_start);
    /* Of the model that the next round begins from: the last one, unless it was taken back. */
    const dunlin__round_row *last = dunlin__lineage_find(server, server->round.base);
    json_t *final = last != NULL ? real_or_null(last->is_evaluated, last->accuracy) : json_null();
    json_t *error =
        server->fault.status != DUNLIN_OK ? json_string(server->fault.text) : json_null();
    json_t *object =
        json_pack("{s:s, s:o, s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "state",
                  state_name(server), "error", error, "population", task->population, "task",
                  task->name, "model", task->model[0] != 0 ? task->model : "tensors", "params",
                  (json_int_t)server->layout.n_values, "rounds_wanted", (json_int_t)task->rounds,
                  "seed", (json_int_t)task->seed, "clients", clients, "open", open_object(server),
                  "requests", requests_object(server), "telemetry", telemetry_object(server),
                  "final_accuracy", final, "rounds", rounds_array(server));
    add_best(object, server);
    (void)json_object_set_new(object, "privacy", dunlin__status_privacy(server));
    (void)json_object_set_new(object, "secagg", dunlin__status_secagg(server));
    return object;
}

char *dunlin__server_status_text(dunlin__server *server)
{
    json_t *simulated = dunlin__status_simulated(server);
    (void)pthread_mutex_lock(&server->lock);
    json_t *status = status_object(server);
    if (status != NULL) {
        dunlin__status_add_watch(status, server);
    }
    (void)json_object_set_new(status, "simulated", simulated);
    if (status != NULL && dunlin__private_hides_devices(server)) {
        dunlin__status_hide(json_object_get(status, "open"), dunlin__status_hidden_of_open);
        (void)json_object_set_new(status, "phases", json_null());
        (void)json_object_set_new(status, "telemetry", json_null());
        (void)json_object_set_new(status, "simulated", json_null());
    }
    (void)pthread_mutex_unlock(&server->lock);
    char *text =
        status != NULL ? json_dumps(status, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(status);
    return text;
}
