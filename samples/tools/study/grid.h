/*
 * grid.h - what convergence and federated share: settings that are compared, rates chosen on a
 * validation split, tables of runs and of their means.
 */
#ifndef SAMPLES_STUDY_GRID_H
#define SAMPLES_STUDY_GRID_H

#include "study.h"

#define GRID_MOST 96        /* settings of a network */
#define GRID_MOST_BATCH 256 /* where any batch fits, and no price is named */

/* A policy in a budget, or a slice of ghost statistics, with a batch. */
typedef struct grid_variant {
    char label[96];
    dunlin_policy policy;
    int64_t ghost; /* 0: exact statistics */
    study_budget budget;
    bool has_budget;
    study_rule rule;
    /* By the planner. */
    uint64_t budget_bytes; /* 0: no limit */
    int64_t batch;         /* 0: not even one example fits, or not so many */
    double price; /* predicted time per example over the fastest of the budget; not a number: it was
                     not asked for */
} grid_variant;

/* What a study goes over without flags. */
typedef struct grid_lists {
    const char *policies, *budgets;
    int64_t n_train; /* a batch of a price leaves ten steps of it, any batch one */
} grid_lists;

/* The settings of a network by the flags, planned; those of equal policy, budget and batch once.
 * 0: none, for which the study has a reason; -1: the study has failed. */
int32_t grid_variants(study *at, const study_subject *subject, const grid_lists *lists,
                      grid_variant out[GRID_MOST]);
/* Finds `batch` and what goes with it; false: the study has failed. */
bool grid_plan(study *at, const study_subject *subject, int64_t n_train, grid_variant *variant);
dunlin_trainer_options grid_options(const study *at, const study_subject *subject,
                                    const grid_variant *variant, int64_t batch);

/* Processor seconds of this process. */
double grid_cpu_s(void);

/* --- tune.c --- */

/* A rate for the runs of a setting. */
typedef struct grid_rate {
    double lr;
    const char *rule; /* "rule", "given" or "tuned" */
    bool is_edge;     /* the best of its grid lies at an end of it */
} grid_rate;

/* Whether rates are chosen, on seed flags->seed; the runs are then of the seeds after it. */
bool grid_is_tuned(const study_flags *flags);
uint64_t grid_first_seed(const study_flags *flags);
/*
 * The rates of a setting: by the rule (`rule_lr`), as given, or the best of those of the tuning
 * rows of `group`: the highest accuracy at the end, of equal ones the lowest loss, then the lowest
 * rate. 0 with tuning rows that are not all there yet, or where every rate diverged. While jobs are
 * counted any rate stands for it.
 */
int32_t grid_rates(const study *at, const char *group, double rule_lr, grid_rate out[2]);
/* The beginning of a row of the tuning table. */
json_t *grid_tuning_row(const char *group, double lr, uint64_t seed);
/* The table "tuning", with marks on the rates that were chosen. */
void grid_add_tuning(study *at);

/* --- summary.c --- */

/* How a study's rows are called. */
typedef struct grid_names {
    const char *x; /* "epoch", "round" */
    const char *accuracy, *loss;
    /* Lists of columns, each ends with NULL. */
    const char *const *subject; /* what settings are compared on */
    const char *const *setting; /* what tells settings of a subject apart */
    const char *const *totals;  /* that grow along a run */
    const char *const *runs;    /* of the table of runs */
    const char *const *summary; /* of that of settings */
} grid_names;

/*
 * The tables "runs", a row for each run, and "summary", a row for each setting: beside the cells of
 * a run's last row
 *   accuracy, loss      at the end; late_accuracy: the mean of the last five looks; best_accuracy
 *   test_error          one standard error of the accuracy by the size of the test set
 *   target              --target, or the highest accuracy that every run of the subject reaches
 *   X_to_target, COLUMN_to_target   where it is reached, of each total; empty: it is not
 * and of settings runs (that ended well), failed, mean_..., sd_accuracy, se_accuracy (of the mean
 * over seeds), reached (runs that reach the target; means are over these).
 */
void grid_add_summary(study *at, const grid_names *names);

#endif
