/*
 * turns.c - several studies in turn, within one limit of time.
 */
#include "turns.h"

#include <inttypes.h>
#include <stdio.h>

static int run_one(const study_flags *flags, study_turn *turn, study_limit *limit)
{
    study *at = NULL;
    int status = study_open(&turn->flags, turn->kind, &at);
    if (status == EXIT_OK) {
        status = study_run(at, limit);
        turn->n_parts = study_n_parts(at);
        turn->n_left_out = status == EXIT_OK ? study_n_left_out(at) : 0;
        (void)snprintf(turn->filter, sizeof turn->filter, "%s", study_filter(at));
    }
    study_close(at);
    return status == EXIT_OK ? study_report_all(flags) : status;
}

/* The studies in turn, each with its share of the time. */
static int run_open(const study_flags *flags, study_limit *limit, study_turn *turns, size_t n)
{
    int status = EXIT_OK;
    for (size_t i = 0; i < n && status == EXIT_OK; i++) {
        double all = 0.0;
        for (size_t k = i; k < n; k++) {
            all += turns[k].is_open ? turns[k].share : 0.0;
        }
        if (turns[i].is_open) {
            limit_share(limit, turns[i].share / all);
            status = run_one(flags, &turns[i], limit);
        }
    }
    return status;
}

int study_turns_run(const study_flags *flags, study_turn *turns, size_t n)
{
    study_limit limit = limit_begin(flags->max_minutes, flags->max_processor_minutes);
    for (size_t i = 0; i < n; i++) {
        turns[i].is_open = true;
    }
    int status = run_open(flags, &limit, turns, n);
    bool is_any = true;
    while (status == EXIT_OK && is_any && limit_allows(&limit, true)) {
        is_any = false;
        for (size_t i = 0; i < n; i++) {
            turns[i].is_open = turns[i].n_left_out > 0;
            turns[i].flags.is_resume = true;
            is_any = is_any || turns[i].is_open;
        }
        status = is_any ? run_open(flags, &limit, turns, n) : status;
    }
    return status;
}

void study_turns_tell(const study_flags *flags, const study_turn *turns, size_t n)
{
    char path[OUTPUT_PATH_BYTES];
    int64_t n_all = 0;
    for (size_t i = 0; i < n; i++) {
        const study_turn *turn = &turns[i];
        json_t *table =
            turn->n_left_out > 0 && study_path(&turn->flags, turn->kind->name, ".json", path)
                ? json_load_file(path, 0, NULL)
                : NULL;
        const json_t *notes = json_object_get(table, "left_out");
        for (size_t k = 0; k < json_array_size(notes); k++) {
            (void)printf("left out: %s\n", json_string_value(json_array_get(notes, k)));
        }
        json_decref(table);
        n_all += turn->n_left_out;
    }
    if (n_all > 0) {
        (void)printf("%" PRId64 " parts were left out for want of time (--max-minutes %g, "
                     "--max-processor-minutes %g; 0: no limit); --resume with more goes on\n",
                     n_all, flags->max_minutes, flags->max_processor_minutes);
    }
}
