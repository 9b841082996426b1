/*
 * hetero.h - what the parts of the study of unequal devices share.
 */
#ifndef SAMPLES_STUDY_HETERO_H
#define SAMPLES_STUDY_HETERO_H

#include "study.h"

#define HETERO_CONDITIONS 8
#define HETERO_ALGORITHMS 7
#define HETERO_ERROR_BYTES 512

/* Which of three things differs between devices. */
typedef struct hetero_condition {
    const char *name;
    bool hardware, state, data;
} hetero_condition;
extern const hetero_condition hetero_conditions[HETERO_CONDITIONS];

/* A way to train with them, as flags of dunlin-fleet; each list ends with NULL. */
typedef struct hetero_algorithm {
    const char *name;
    const char *words[8];
} hetero_algorithm;
extern const hetero_algorithm hetero_algorithms[HETERO_ALGORITHMS];

/* How large a fleet is. */
typedef struct hetero_extent {
    int64_t n_clients, cohort, rounds, n_examples, epochs, batch;
} hetero_extent;

/* hetero_cases.c: the study's own size, or that of --quick, with what --clients, --cohort,
 * --rounds,
 * --max-examples and --epochs say beside this study's name. */
hetero_extent hetero_size(const study_flags *flags);

/*
 * Writes the devices of a condition: phones2019 by seed, of which hardware (class, memory, rates)
 * or state (hours, battery, failures) may be the same for all. `model_bytes` scales the rates, so
 * that a middle phone takes HETERO_DOWN_S for a model.
 *
 * @return false with one line in out_error.
 */
#define HETERO_DOWN_S 10.0
#define HETERO_TRAIN_S 60.0
bool hetero_write_devices(const char *path, const hetero_condition *condition, int64_t n,
                          uint64_t seed, double model_bytes, char out_error[HETERO_ERROR_BYTES]);

/*
 * Writes what a step takes: the roofline's time in a ladder of budgets, scaled so that a middle
 * phone of the file of devices takes HETERO_TRAIN_S for `n_steps` steps in the largest. Follows
 * from the arguments alone.
 */
bool hetero_write_costs(const char *path, const char *devices, const study *at,
                        const study_subject *subject, int64_t n_steps, int64_t batch,
                        char out_error[HETERO_ERROR_BYTES]);

/* hetero_figures.c: the table "directions": a paper's findings beside what the rows say. */
void hetero_add_directions(study *at);

#endif
