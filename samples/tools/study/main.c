/*
 * main.c - dunlin-study: the studies one after the other, then the report.
 */
#include "study.h"

#include <curl/curl.h>
#include <fleet/fleet.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const study_kind *const kinds[] = {&study_max_batch, &study_throughput, &study_curve,
                                          &study_ablation,  &study_adaptation, &study_convergence,
                                          &study_federated};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

static void on_signal(int number)
{
    study_interrupt();
    fleet_interrupt(number);
}

static int run_one(const study_flags *flags, const study_kind *kind)
{
    study *at = NULL;
    int status = study_open(flags, kind, &at);
    if (status == EXIT_OK) {
        status = study_run(at);
    }
    study_close(at);
    return status == EXIT_OK ? study_write_report(flags, kinds, N_KINDS) : status;
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
    int status = EXIT_OK;
    for (size_t i = 0; i < N_KINDS && status == EXIT_OK; i++) {
        if (strcmp(flags.study, "all") == 0 || strcmp(flags.study, kinds[i]->name) == 0) {
            status = run_one(&flags, kinds[i]);
        }
    }
    curl_global_cleanup();
    if (status == EXIT_OK) {
        (void)printf("%s/report.html\n", flags.out);
    }
    return status;
}
