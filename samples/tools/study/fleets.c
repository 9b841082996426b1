/*
 * fleets.c - one run of federated, by the flags of dunlin-fleet, so that it can be repeated by
 * hand.
 */
#include "fleets.h"

#include <common/energy.h>
#include <fleet/fleet.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define RATE 0.04
#define MOST_RATE 0.08
#define MOST_WORDS 64
#define WORD_BYTES 64

double fleets_rule(int64_t batch)
{
    const double rate = RATE * (double)batch / STUDY_BATCH;
    return rate > MOST_RATE ? MOST_RATE : rate;
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* A command line under way. */
typedef struct words {
    const char *argv[MOST_WORDS];
    char texts[MOST_WORDS][WORD_BYTES];
    int n, n_texts;
} words;

static void add(words *to, const char *flag, const char *value)
{
    to->argv[to->n++] = flag;
    if (value != NULL) {
        to->argv[to->n++] = value;
    }
}

static void add_int(words *to, const char *flag, int64_t value)
{
    char *text = to->texts[to->n_texts++];
    (void)snprintf(text, WORD_BYTES, "%" PRId64, value);
    add(to, flag, text);
}

static void add_real(words *to, const char *flag, double value)
{
    char *text = to->texts[to->n_texts++];
    (void)snprintf(text, WORD_BYTES, "%.9g", value);
    add(to, flag, text);
}

/* What the flags of the study say of the steps on the devices. */
static void add_orders(const study_flags *flags, const fleet_case *what, words *to)
{
    const fleet_extent *size = &what->size;
    if (what->grad_bits != NULL) { /* what sets a rate is refused */
        return;
    }
    if (flags->schedule != NULL) {
        add(to, "--schedule", flags->schedule);
    }
    const int64_t n_device = size->n_examples / size->n_clients;
    const int64_t n_steps =
        size->epochs * ((n_device + what->variant->batch - 1) / what->variant->batch);
    const int64_t n_warm = (int64_t)(flags->warmup_percent / 100.0 * (double)n_steps);
    if (n_warm > 0) {
        add_int(to, "--warmup", n_warm);
    }
    if (flags->weight_decay > 0.0) {
        add_real(to, "--weight-decay", flags->weight_decay);
    }
}

static void make_words(const study_flags *flags, const fleet_case *what, const char *validation,
                       words *to)
{
    const fleet_extent *size = &what->size;
    add(to, "dunlin-fleet", NULL);
    add(to, "--serve", NULL);
    add_int(to, "--clients", size->n_clients);
    add_int(to, "--cohort", size->cohort);
    add_int(to, "--rounds", size->rounds);
    add_int(to, "--max-examples", size->n_examples);
    add_int(to, "--batch", what->variant->batch);
    add_int(to, "--seed", (int64_t)what->seed);
    if (what->precision != NULL) {
        add(to, "--precision", what->precision);
    }
    if (what->grad_bits != NULL) {
        add(to, "--grad-bits", what->grad_bits);
    } else {
        add_real(to, "--lr", what->rate.lr);
    }
    add_int(to, "--threads", flags->n_threads > 2 ? flags->n_threads : 2);
    if (what->variant->budget_bytes > 0) {
        add_int(to, "--budget", (int64_t)what->variant->budget_bytes);
    }
    add(to, "--retry-refused-ms", "100:1000"); /* of a training that fails */
    add(to, "--model", what->model);
    add(to, "--dataset", what->dataset);
    add(to, "--partition", what->partition);
    add(to, "--algorithm", what->algorithm);
    add_int(to, "--epochs", size->epochs);
    add_orders(flags, what, to);
    if (what->image > 0) {
        add_int(to, "--image", what->image);
    }
    if (flags->augment != NULL) {
        add(to, "--augment", flags->augment);
    }
    if (what->drops_last) {
        add(to, "--remainder", "drop");
    }
    if (what->has_held_out) {
        add(to, "--validation", validation);
    }
    if (what->is_tuning) {
        add(to, "--judge", "validation");
    }
    if (flags->folder != NULL) {
        add(to, "--data", flags->folder);
    }
}

static json_t *begin_row(const study *at, const fleet_case *what, const json_t *setup)
{
    const study_flags *flags = study_flags_of(at);
    json_t *row =
        what->is_tuning ? grid_tuning_row(what->group, what->rate.lr, what->seed) : json_object();
    const char *dataset = json_string_value(json_object_get(setup, "dataset"));
    const bool is_made =
        setup != NULL ? json_is_true(json_object_get(setup, "synthetic")) : what->is_made;
    row_set_text(row, "model", study_model_name(what->model));
    const char *title = what->title[0] != '\0' ? what->title : what->dataset;
    row_set_text(row, "dataset", dataset != NULL ? dataset : title);
    row_set_text(row, "partition", what->partition);
    row_set_int(row, "batch", what->variant->batch);
    row_set_int(row, "ghost", what->variant->ghost);
    row_set_real(row, "lr", what->grad_bits == NULL ? what->rate.lr : (double)NAN);
    row_set_int(row, "seed", (int64_t)what->seed);
    row_set_int(row, "is_synthetic", is_made ? 1 : 0);
    if (what->is_tuning) {
        row_set_int(row, "validation_examples", what->n_held);
        return row;
    }
    if (what->precision != NULL) {
        row_set_text(row, "setting", "federated");
        row_set_text(row, "precision", what->precision);
        row_set_text(row, "grad_bits", what->grad_bits);
    }
    row_set_text(row, "algorithm", what->algorithm);
    row_set_text(row, "batch_rule", what->rule);
    row_set_int(row, "budget_bytes", (int64_t)what->variant->budget_bytes);
    row_set_int(row, "clients", what->size.n_clients);
    row_set_int(row, "cohort", what->size.cohort);
    row_set_int(row, "epochs", what->size.epochs);
    row_set_text(row, "policy", policy_name(what->variant->policy));
    row_set_real(row, "price", what->variant->price);
    row_set_text(row, "rate_rule", what->rate.rule);
    row_set_int(row, "test_examples", what->n_test);
    if (strcmp(what->rate.rule, "tuned") == 0) {
        row_set_int(row, "tuned_on_seed", (int64_t)flags->seed);
        row_set_int(row, "rate_is_edge", what->rate.is_edge ? 1 : 0);
    }
    return row;
}

/* Sums along the rounds. */
typedef struct sums {
    double weights, down, up, wall, target;
    bool is_reached;
} sums;

static void fill_round(json_t *row, const json_t *round, const sums *so_far)
{
    row_set_int(row, "participants", (int64_t)number_of(round, "participants"));
    row_set_int(row, "dropped", (int64_t)number_of(round, "dropped"));
    row_set_int(row, "weights_bytes_sum", (int64_t)so_far->weights);
    row_set_int(row, "peak_bytes", (int64_t)number_of(round, "peak_bytes_max"));
    /* The report and the tables of runs have the accuracy that all come to in its place. */
    row_set_real(row, "target", so_far->target > 0.0 ? so_far->target : (double)NAN);
    row_set_int(row, "is_reached", so_far->is_reached ? 1 : 0);
    row_set_int(row, "wire_down_bytes", (int64_t)so_far->down);
    row_set_int(row, "wire_up_bytes", (int64_t)so_far->up);
    row_set_real(row, "time_wall_s", so_far->wall);
}

static void add_rows(study *at, const fleet_case *what, const json_t *result, double cpu_s,
                     double energy_j)
{
    const study_flags *flags = study_flags_of(at);
    const json_t *rounds = json_object_get(result, "rounds");
    const size_t n = json_array_size(rounds);
    const double moved_bytes = number_of(json_object_get(result, "fleet"), "operand_bytes");
    sums so_far = {.target = flags->target > 0.0 ? flags->target : what->size.target};
    for (size_t i = 0; i < n; i++) {
        const json_t *round = json_array_get(rounds, i);
        json_t *row = begin_row(at, what, json_object_get(result, "setup"));
        const json_t *accuracy = json_object_get(round, "accuracy");
        /* Handed out and back, as floats; messages hold more. */
        so_far.weights +=
            2.0 * 4.0 * number_of(result, "params") * number_of(round, "participants");
        so_far.down += number_of(round, "bytes_down");
        so_far.up += number_of(round, "bytes_up");
        so_far.wall += number_of(round, "wall_s");
        so_far.is_reached = so_far.is_reached ||
                            (so_far.target > 0.0 && number_of(round, "accuracy") >= so_far.target);
        row_set_int(row, "round", (int64_t)number_of(round, "round"));
        row_set_real(row, what->is_tuning ? "validation_accuracy" : "accuracy",
                     json_is_number(accuracy) ? json_number_value(accuracy) : (double)NAN);
        row_set_real(row, what->is_tuning ? "validation_loss" : "loss", number_of(round, "loss"));
        if (what->is_tuning) {
            row_set_int(row, "is_last", i + 1 == n ? 1 : 0);
        }
        fill_round(row, round, &so_far);
        /* Of the whole run, known at its end alone: that of the devices, all in this process. Where
         * precisions are compared it is shared out evenly over the rounds. */
        const double share = (double)(i + 1) / (double)n;
        const bool is_told = what->precision != NULL || i + 1 == n;
        row_set_real(row, "time_cpu_s", is_told ? share * cpu_s : (double)NAN);
        row_set_real(row, "energy_j", is_told ? share * energy_j : (double)NAN);
        if (is_told) {
            row_set_int(row, "operand_bytes", (int64_t)(share * moved_bytes));
        }
        study_add_row(at, row);
    }
}

/* Devices that cannot train with a rate, as it diverges: the run has no accuracy. */
static void add_failed_row(study *at, const fleet_case *what)
{
    json_t *row = begin_row(at, what, NULL);
    row_set_text(row, "end", what->variant->batch == 0 ? "does not fit" : "failed");
    if (what->is_tuning) {
        row_set_int(row, "is_last", 1);
    }
    study_add_row(at, row);
}

void fleets_run(study *at, const fleet_case *what)
{
    const study_flags *flags = study_flags_of(at);
    words line = {.n = 0};
    char validation[STUDY_VALIDATION_BYTES];
    fleet_flags fleet;
    json_t *result = NULL;
    if (what->variant->batch == 0) {
        add_failed_row(at, what);
        return;
    }
    study_validation_text(&what->held_out, validation);
    make_words(flags, what, validation, &line);
    if (fleet_parse(line.n, (char **)(void *)line.argv, &fleet).is_done) {
        study_fail(at, "the fleet refuses its flags");
        return;
    }
    fleet.is_quiet = true;
    fleet.policy = what->variant->policy;
    fleet.ghost = what->variant->ghost;
    const energy_mark before = energy_read(flags->energy);
    const double begin_s = grid_cpu_s();
    const int status = fleet_run(&fleet, "", &result);
    const double cpu_s = grid_cpu_s() - begin_s;
    const energy_mark after = energy_read(flags->energy);
    if (status != EXIT_OK) {
        study_fail(at,
                   study_is_interrupted() ? "interrupted; --resume goes on"
                                          : "a fleet of batch %" PRId64 " failed",
                   what->variant->batch);
        return;
    }
    add_rows(at, what, result, cpu_s, energy_between(&before, &after));
    json_decref(result);
}
