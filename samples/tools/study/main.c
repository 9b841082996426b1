/*
 * main.c - dunlin-study: the studies one after the other, then the report.
 */
#include "named.h"
#include "study.h"
#include "turns.h"

#include <curl/curl.h>
#include <fleet/fleet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const study_kind *const kinds[] = {
    &study_max_batch,   &study_throughput, &study_curve,         &study_ablation, &study_adaptation,
    &study_convergence, &study_federated,  &study_heterogeneity, &study_precision};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

/* Of the time of a limited run: as the studies in small took it on a quiet machine. */
static const double shares[] = {3.0, 4.0, 2.0, 3.0, 1.0, 4.0, 3.0, 2.0, 4.0};
_Static_assert(sizeof shares / sizeof shares[0] == N_KINDS, "a share for each study");
_Static_assert(N_KINDS >= NAMED_MOST_PARTS - 1, "turns for all of them, or for a named study");
#define MOST_TURNS (N_KINDS > NAMED_MOST_PARTS ? N_KINDS : NAMED_MOST_PARTS)

static void on_signal(int number)
{
    study_interrupt();
    fleet_interrupt(number);
}

int study_report_all(const study_flags *flags)
{
    return study_write_report(flags, kinds, N_KINDS);
}

/* One study, or all of them; 0: there is none of that name. */
static size_t list_plain(const study_flags *flags, study_turn turns[MOST_TURNS])
{
    const bool is_all = strcmp(flags->study, "all") == 0;
    size_t n = 0;
    for (size_t i = 0; i < N_KINDS; i++) {
        if (is_all || strcmp(flags->study, kinds[i]->name) == 0) {
            turns[n++] = (study_turn){.kind = kinds[i], .flags = *flags, .share = shares[i]};
        }
    }
    return n;
}

/* The parts of a named study that are wanted. EXIT_OK, or the line is printed. */
static int list_named(const study_flags *flags, const study_named *named,
                      study_turn turns[MOST_TURNS], size_t *out_n)
{
    int status = EXIT_OK;
    for (size_t i = 0; i < named->n_parts && status == EXIT_OK; i++) {
        const named_part *part = &named->parts[i];
        if (named_is_wanted(flags, part->kind->name)) {
            study_turn *turn = &turns[(*out_n)++];
            *turn = (study_turn){.kind = part->kind, .share = part->share};
            status = named_part_flags(flags, named, part, &turn->flags);
        }
    }
    return status;
}

/* The figures of the paper, once its parts have run; refuses where the lists left nothing at all.
 */
static int end_named(const study_flags *flags, const study_named *named, const study_turn *turns,
                     size_t n)
{
    const char *filter = "";
    int64_t n_parts = 0;
    for (size_t i = 0; i < n; i++) {
        n_parts += turns[i].n_parts;
        filter = filter[0] == '\0' ? turns[i].filter : filter;
    }
    if (n_parts == 0) {
        return program_misuse(&study_program, "%s: nothing is left to do: %s", named->name,
                              filter[0] != '\0' ? filter : "its lists are empty");
    }
    const int status = named_write_claims(flags, named);
    return status == EXIT_OK ? study_report_all(flags) : status;
}

/* "max-batch, throughput, ... or all" */
static int refuse_name(const char *name)
{
    char all[256] = "";
    size_t length = 0;
    for (size_t i = 0; i < N_KINDS; i++) {
        length += (size_t)snprintf(all + length, sizeof all - length, "%s, ", kinds[i]->name);
    }
    for (size_t i = 0; study_named_all[i] != NULL; i++) {
        length +=
            (size_t)snprintf(all + length, sizeof all - length, "%s, ", study_named_all[i]->name);
    }
    return program_misuse(&study_program, "%s: no study; expected %sor all", name, all);
}

static int run_turns(const study_flags *flags, study_turn turns[MOST_TURNS])
{
    const study_named *named = named_find(flags->study);
    size_t n = 0;
    int status = EXIT_OK;
    if (named != NULL) {
        char path[OUTPUT_PATH_BYTES]; /* figures of an earlier run are not this one's */
        (void)(study_path(flags, named->name, ".json", path) && remove(path) == 0);
        status = list_named(flags, named, turns, &n);
    } else {
        n = list_plain(flags, turns);
    }
    if (status == EXIT_OK && n == 0) {
        return refuse_name(flags->study);
    }
    if (status == EXIT_OK) {
        (void)curl_global_init(CURL_GLOBAL_DEFAULT);
        status = study_turns_run(flags, turns, n);
        curl_global_cleanup();
    }
    if (status == EXIT_OK && named != NULL) {
        status = end_named(flags, named, turns, n);
    }
    if (status == EXIT_OK) {
        study_turns_tell(flags, turns, n);
        (void)printf("%s/report.html\n", flags->out);
    }
    return status;
}

/* The flags as typed, for the report: each study's own command is made from them. */
static void join_words(int argc, char **argv, char *out, size_t bytes)
{
    size_t length = 0;
    for (int i = 2; i < argc && length < bytes - 2; i++) {
        if (strcmp(argv[i], "--resume") != 0) {
            length += (size_t)snprintf(out + length, bytes - length, " %s", argv[i]);
        }
    }
}

int main(int argc, char **argv)
{
    study_flags flags;
    char command[2048] = "";
    const args_result parsed = study_parse(argc, argv, &flags);
    if (parsed.is_done) {
        return parsed.exit_status;
    }
    join_words(argc, argv, command, sizeof command);
    flags.command = command;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    study_turn *turns = calloc(MOST_TURNS, sizeof *turns);
    const int status = turns == NULL ? program_fail(&study_program, "no memory for the studies")
                                     : run_turns(&flags, turns);
    free(turns);
    return status;
}
