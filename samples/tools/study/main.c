/*
 * main.c - dunlin-study: the studies one after the other, then the report.
 */
#include "study.h"

#include <curl/curl.h>
#include <fleet/fleet.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const study_kind *const kinds[] = {&study_max_batch, &study_throughput, &study_curve,
                                          &study_ablation,  &study_adaptation, &study_convergence,
                                          &study_federated};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

/* Of the time of a limited run: as the studies in small took it on a quiet machine. */
static const double shares[] = {3.0, 4.0, 2.0, 3.0, 1.0, 4.0, 3.0};
_Static_assert(sizeof shares / sizeof shares[0] == N_KINDS, "a share for each study");

static void on_signal(int number)
{
    study_interrupt();
    fleet_interrupt(number);
}

/* A run of several studies: which are asked for, and which have parts left. */
typedef struct study_plan {
    bool is_open[N_KINDS];
    int64_t n_left_out[N_KINDS];
} study_plan;

static int run_one(const study_flags *flags, const study_kind *kind, study_limit *limit,
                   int64_t *out_left_out)
{
    study *at = NULL;
    int status = study_open(flags, kind, &at);
    if (status == EXIT_OK) {
        status = study_run(at, limit);
        *out_left_out = status == EXIT_OK ? study_n_left_out(at) : 0;
    }
    study_close(at);
    return status == EXIT_OK ? study_write_report(flags, kinds, N_KINDS) : status;
}

/* The studies in turn, each with its share of the time. */
static int run_open(const study_flags *flags, study_limit *limit, study_plan *plan)
{
    int status = EXIT_OK;
    for (size_t i = 0; i < N_KINDS && status == EXIT_OK; i++) {
        double all = 0.0;
        for (size_t k = i; k < N_KINDS; k++) {
            all += plan->is_open[k] ? shares[k] : 0.0;
        }
        if (plan->is_open[i]) {
            limit_share(limit, shares[i] / all);
            status = run_one(flags, kinds[i], limit, &plan->n_left_out[i]);
        }
    }
    return status;
}

/* Again those that had to leave out parts, with the time that others did not need. */
static int run_all(const study_flags *flags, study_plan *plan)
{
    study_limit limit = limit_begin(flags->max_minutes, flags->max_processor_minutes);
    study_flags again = *flags;
    again.is_resume = true;
    int status = run_open(flags, &limit, plan);
    bool is_any = true;
    while (status == EXIT_OK && is_any && limit_allows(&limit, true)) {
        is_any = false;
        for (size_t i = 0; i < N_KINDS; i++) {
            plan->is_open[i] = plan->n_left_out[i] > 0;
            is_any = is_any || plan->is_open[i];
        }
        status = is_any ? run_open(&again, &limit, plan) : status;
    }
    return status;
}

static void tell_left_out(const study_flags *flags, const study_plan *plan)
{
    char path[OUTPUT_PATH_BYTES];
    int64_t n = 0;
    for (size_t i = 0; i < N_KINDS; i++) {
        json_t *table = plan->n_left_out[i] > 0 && study_path(flags, kinds[i]->name, ".json", path)
                            ? json_load_file(path, 0, NULL)
                            : NULL;
        const json_t *notes = json_object_get(table, "left_out");
        for (size_t k = 0; k < json_array_size(notes); k++) {
            (void)printf("left out: %s\n", json_string_value(json_array_get(notes, k)));
        }
        json_decref(table);
        n += plan->n_left_out[i];
    }
    if (n > 0) {
        (void)printf("%" PRId64 " parts were left out for want of time (--max-minutes %g, "
                     "--max-processor-minutes %g; 0: no limit); --resume with more goes on\n",
                     n, flags->max_minutes, flags->max_processor_minutes);
    }
}

int main(int argc, char **argv)
{
    study_flags flags;
    const args_result parsed = study_parse(argc, argv, &flags);
    if (parsed.is_done) {
        return parsed.exit_status;
    }
    bool is_known = strcmp(flags.study, "all") == 0;
    for (size_t i = 0; i < N_KINDS; i++) {
        is_known = is_known || strcmp(flags.study, kinds[i]->name) == 0;
    }
    if (!is_known) {
        return program_misuse(&study_program,
                              "%s: no study; expected max-batch, throughput, curve, ablation, "
                              "adaptation, convergence, federated or all",
                              flags.study);
    }
    /* The flags as typed, for the report: each study's own command is made from them. */
    char command[2048] = "";
    size_t length = 0;
    for (int i = 2; i < argc && length < sizeof command - 2; i++) {
        if (strcmp(argv[i], "--resume") != 0) {
            length += (size_t)snprintf(command + length, sizeof command - length, " %s", argv[i]);
        }
    }
    flags.command = command;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    study_plan plan = {.n_left_out = {0}};
    for (size_t i = 0; i < N_KINDS; i++) {
        plan.is_open[i] =
            strcmp(flags.study, "all") == 0 || strcmp(flags.study, kinds[i]->name) == 0;
    }
    const int status = run_all(&flags, &plan);
    curl_global_cleanup();
    if (status == EXIT_OK) {
        tell_left_out(&flags, &plan);
    }
    if (status == EXIT_OK) {
        (void)printf("%s/report.html\n", flags.out);
    }
    return status;
}
