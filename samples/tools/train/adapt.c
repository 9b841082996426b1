/*
 * adapt.c - budgets that change while dunlin-train runs: at a share of a step (--budget-at), or by
 * the clock (--budget-trace); and what each change did.
 *
 * Invariant: a trace's thread takes no memory and touches nothing of the trainer but its budget.
 */
#include "common/output.h"
#include "train.h"

#include <dunlin/base.h>
#include <dunlin/trainer_experimental.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- what is asked for --- */

static bool parse_moment(const char *text, train_moment *out)
{
    char *rest = NULL;
    *out = (train_moment){.step = strtoll(text, &rest, 10)};
    if (rest == text || out->step < 0) {
        return false;
    }
    if (*rest == '.') {
        const char *digits = rest + 1;
        out->percent = (double)strtoll(digits, &rest, 10);
        if (rest == digits || out->percent < 0.0 || out->percent > 100.0) {
            return false;
        }
    }
    return *rest == ':' && size_parse(rest + 1, &out->budget_bytes) && out->budget_bytes > 0;
}

/* "STEP[.PERCENT]:BYTES,..." */
static int parse_moments(train_flags *flags)
{
    const char *at = flags->budget_at;
    while (at != NULL && *at != '\0') {
        char piece[64];
        const size_t length = strcspn(at, ",");
        if (flags->n_moments == TRAIN_MAX_MOMENTS) {
            return program_misuse(&train_program, "--budget-at: more than %d changes",
                                  TRAIN_MAX_MOMENTS);
        }
        const bool is_short = length < sizeof piece;
        (void)snprintf(piece, sizeof piece, "%.*s", is_short ? (int)length : 0, at);
        if (!parse_moment(piece, &flags->moments[flags->n_moments])) {
            return program_misuse(&train_program,
                                  "--budget-at %.*s: expected STEP:BYTES or STEP.PERCENT:BYTES, "
                                  "steps from 0, percent 0 to 100",
                                  (int)(length < 60 ? length : 60), at);
        }
        flags->n_moments++;
        at += length;
        at += *at == ',' ? 1 : 0;
    }
    return EXIT_OK;
}

/* Lines of "SECONDS BYTES", in order; empty ones and those that begin with # are passed over. */
static int read_trace(train_flags *flags)
{
    FILE *file = flags->budget_trace != NULL ? fopen(flags->budget_trace, "r") : NULL;
    if (file == NULL) {
        return flags->budget_trace == NULL
                   ? EXIT_OK
                   : program_misuse(&train_program, "--budget-trace %s cannot be read",
                                    flags->budget_trace);
    }
    char line[128];
    int number = 0;
    const char *wrong = NULL;
    while (wrong == NULL && fgets(line, sizeof line, file) != NULL) {
        number++;
        line[strcspn(line, "\r\n")] = '\0';
        char *rest = NULL;
        const double seconds = strtod(line, &rest);
        if (line[0] == '#' || line[strspn(line, " \t")] == '\0') {
            continue;
        }
        train_moment *moment = &flags->moments[flags->n_moments];
        const double before =
            flags->n_moments > 0 ? flags->moments[flags->n_moments - 1].seconds : 0.0;
        if (flags->n_moments == TRAIN_MAX_MOMENTS) {
            wrong = "one line too many";
        } else if (rest == line || !size_parse(rest + strspn(rest, " \t"), &moment->budget_bytes) ||
                   moment->budget_bytes == 0) {
            wrong = "expected SECONDS BYTES";
        } else if (!(seconds >= before)) {
            wrong = "times must not fall";
        } else {
            moment->seconds = seconds;
            flags->n_moments++;
        }
    }
    (void)fclose(file);
    if (wrong != NULL) {
        return program_misuse(&train_program, "--budget-trace %s, line %d: %s", flags->budget_trace,
                              number, wrong);
    }
    return EXIT_OK;
}

int train_check_moments(train_flags *flags)
{
    if (flags->budget_at != NULL && flags->budget_trace != NULL) {
        return program_misuse(&train_program, "--budget-at and --budget-trace exclude each other");
    }
    int status = parse_moments(flags);
    status = status == EXIT_OK ? read_trace(flags) : status;
    if (status == EXIT_OK && flags->n_moments == 0 && flags->budget_trace != NULL) {
        return program_misuse(&train_program, "--budget-trace %s has no changes",
                              flags->budget_trace);
    }
    flags->least_budget_bytes = 0;
    for (int32_t i = 0; i < flags->n_moments; i++) {
        const uint64_t bytes = flags->moments[i].budget_bytes;
        const bool is_lower = flags->least_budget_bytes == 0 || bytes < flags->least_budget_bytes;
        flags->least_budget_bytes = is_lower ? bytes : flags->least_budget_bytes;
    }
    return status;
}

/* --- the run --- */

/* Sleeps to `seconds` after the start, in short pieces; false if the run ends before. */
static bool sleep_to(const train_adaptation *run, double seconds)
{
    for (;;) {
        struct timespec now = {0};
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        const double left = seconds - (double)(now.tv_sec - run->start.tv_sec) -
                            (double)(now.tv_nsec - run->start.tv_nsec) * 1e-9;
        if (atomic_load(&run->is_over)) {
            return false;
        }
        if (left <= 0.0) {
            return true;
        }
        const struct timespec piece = {.tv_nsec = left < 0.01 ? (long)(left * 1e9) : 10000000L};
        (void)nanosleep(&piece, NULL);
    }
}

static void *follow_trace(void *ctx)
{
    train_adaptation *run = ctx;
    for (int32_t i = 0; i < run->flags->n_moments; i++) {
        const train_moment *moment = &run->flags->moments[i];
        if (!sleep_to(run, moment->seconds)) {
            break;
        }
        if (dunlin_trainer_set_budget(run->trainer, moment->budget_bytes, NULL) != DUNLIN_OK) {
            run->n_refused++;
        }
    }
    return NULL;
}

dunlin_status train_begin_changes(const train_flags *flags, dunlin_trainer *trainer,
                                  train_adaptation *out_run)
{
    *out_run = (train_adaptation){.flags = flags, .trainer = trainer};
    dunlin_status status = DUNLIN_OK;
    const int64_t first = dunlin_trainer_n_steps(trainer);
    for (int32_t i = 0; i < flags->n_moments && flags->budget_trace == NULL; i++) {
        const train_moment *moment = &flags->moments[i];
        if (status == DUNLIN_OK) {
            status = dunlin_trainer_set_budget_at(trainer, first + moment->step, moment->percent,
                                                  moment->budget_bytes);
        }
    }
    if (flags->budget_trace != NULL) {
        atomic_init(&out_run->is_over, false);
        (void)clock_gettime(CLOCK_MONOTONIC, &out_run->start);
        out_run->has_thread = pthread_create(&out_run->thread, NULL, follow_trace, out_run) == 0;
    }
    return status;
}

void train_end_changes(train_adaptation *run, train_result *result)
{
    if (run->has_thread) {
        atomic_store(&run->is_over, true);
        (void)pthread_join(run->thread, NULL);
        run->has_thread = false;
    }
    result->n_refused = run->n_refused;
    const int64_t n = dunlin_trainer_n_budget_changes(run->trainer);
    for (int64_t i = n > TRAIN_MAX_MOMENTS ? n - TRAIN_MAX_MOMENTS : 0; i < n; i++) {
        dunlin_budget_change *change = &result->changes[result->n_changes];
        *change = (dunlin_budget_change)DUNLIN_BUDGET_CHANGE_INIT;
        result->n_changes +=
            dunlin_trainer_budget_change(run->trainer, i, change) == DUNLIN_OK ? 1 : 0;
    }
}

/* --- what became of it --- */

const char *train_way_name(dunlin_budget_way way)
{
    switch (way) {
    case DUNLIN_WAY_BETWEEN:
        return "between";
    case DUNLIN_WAY_STAYED:
        return "stayed";
    case DUNLIN_WAY_MOVED:
        return "moved";
    case DUNLIN_WAY_REMADE:
        return "remade";
    }
    return "unknown";
}

double train_saved_share(const dunlin_budget_change *change)
{
    const double lost = change->recompute_ms + change->took_ms;
    return change->reach_ms > 0.0 && lost < change->reach_ms ? 1.0 - lost / change->reach_ms : 0.0;
}

void train_print_changes(const train_result *result)
{
    if (result->n_changes == 0) {
        return;
    }
    printf(
        "changes of the budget (recompute: predicted; saved: of the time to come as far under the "
        "new plan)\n");
    printf("  %6s %6s %11s %11s  %-8s %11s %9s %9s %6s\n", "step", "at", "from", "to", "way",
           "moved", "took", "recompute", "saved");
    for (int32_t i = 0; i < result->n_changes; i++) {
        const dunlin_budget_change *change = &result->changes[i];
        char from[SIZE_TEXT_BYTES];
        char to[SIZE_TEXT_BYTES];
        char moved[SIZE_TEXT_BYTES];
        char saved[16] = "-";
        if (change->way != DUNLIN_WAY_BETWEEN && change->reach_ms > 0.0) {
            (void)snprintf(saved, sizeof saved, "%.1f %%", 100.0 * train_saved_share(change));
        }
        printf("  %6" PRId64 " %4.0f %% %11s %11s  %-8s %11s %6.2f ms %6.2f ms %6s\n", change->step,
               change->percent,
               change->from_bytes == 0 ? "none" : size_text(change->from_bytes, from),
               change->to_bytes == 0 ? "none" : size_text(change->to_bytes, to),
               train_way_name(change->way), size_text(change->moved_bytes, moved), change->took_ms,
               change->recompute_ms, saved);
    }
    if (result->n_refused > 0) {
        printf("  %d more were refused: too low\n", (int)result->n_refused);
    }
}
