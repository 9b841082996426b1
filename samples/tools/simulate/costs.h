/*
 * costs.h - what a step takes in each budget, measured once and read by every simulation.
 */
#ifndef SAMPLES_SIMULATE_COSTS_H
#define SAMPLES_SIMULATE_COSTS_H

#include "devices.h"

#include <fleet/fleet.h>

#define SIM_ROWS 32
#define SIM_SHA256_TEXT 65

/* A plan for a budget: with `batch` examples a step takes step_us of one thread of the machine that
 * measured. */
typedef struct sim_cost {
    uint64_t budget_bytes;
    uint64_t planned_bytes;
    int64_t step_us;
} sim_cost;

typedef struct sim_costs {
    char model[FLEET_TEXT_BYTES];
    int64_t n_params;
    int64_t batch;
    uint64_t least_bytes;    /* with less nothing is planned */
    uint64_t none_bytes;     /* what a step takes without a planner: policy none */
    int64_t evaluate_us;     /* of `batch` examples */
    sim_cost rows[SIM_ROWS]; /* budgets rise */
    int32_t n_rows;
    char sha256[SIM_SHA256_TEXT]; /* of the file */
} sim_costs;

/* Reads a file that sim_costs_measure() has written; false with one line in out_error. */
bool sim_costs_read(const char *path, sim_costs *out_costs, char out_error[SIM_ERROR_BYTES]);

/* Whether they are of this run's model and batch; else the line, which names both. */
bool sim_costs_fit(const sim_costs *costs, const char *path, const fleet_flags *flags,
                   const fleet_world *world, char out_error[SIM_ERROR_BYTES]);

/* The row of the largest budget within `memory_bytes`; -1: it is too small for any. */
int32_t sim_costs_find(const sim_costs *costs, uint64_t memory_bytes);

/* What `n` examples of training, or of evaluating, take on a device of this class, in whole us. */
int64_t sim_train_us(const sim_costs *costs, int32_t row, double time_factor, int64_t n);
int64_t sim_evaluate_us(const sim_costs *costs, double time_factor, int64_t n);

/* --measure-costs: plans for each budget of a ladder, measures each plan once, writes the file.
 * EXIT_OK, or the line has been printed. */
int sim_costs_measure(const fleet_flags *flags, const fleet_world *world, const char *path);

/* SHA-256 of a file as hexadecimal digits; false if it cannot be read. */
bool sim_hash_file(const char *path, char out_text[SIM_SHA256_TEXT]);
bool sim_hash_bytes(const void *bytes, size_t n, char out_text[SIM_SHA256_TEXT]);

#endif
