/*
 * follow.c - follows a run from the first enrolment to its end: the progress line, each round as it
 * is evaluated, and what there is when a signal ends it.
 *
 * Invariant: there is at most one progress line, and it is gone before anything else is printed.
 */
#include "fleet.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define POLL_MS 100
#define SILENT_POLLS 50

static volatile sig_atomic_t interrupted_by; /* the number of the signal; 0: none */

void fleet_interrupt(int number)
{
    interrupted_by = number;
}

int fleet_interrupted(void)
{
    return interrupted_by;
}

/* The rounds of the task, which may be another's. */
static int64_t n_wanted(const fleet_flags *flags, const json_t *status)
{
    const json_t *wanted = json_object_get(status, "rounds_wanted");
    return json_is_integer(wanted) ? (int64_t)json_integer_value(wanted) : flags->n_rounds;
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* ---- the rounds ---- */

static void print_round(const fleet_flags *flags, int64_t n_rounds, const json_t *round,
                        fleet_workers *workers)
{
    char peak[SIZE_TEXT_BYTES];
    char down[SIZE_TEXT_BYTES];
    char up[SIZE_TEXT_BYTES];
    const json_t *accuracy = json_object_get(round, "accuracy");
    uint64_t number = (uint64_t)json_integer_value(json_object_get(round, "round"));
    (void)printf("round %3llu/%lld  ", (unsigned long long)number, (long long)n_rounds);
    if (json_is_number(accuracy)) {
        (void)printf("accuracy %6.2f %%  loss %.4f  ", 100.0 * json_number_value(accuracy),
                     number_of(round, "loss"));
        if (data_is_text(&flags->choice)) {
            (void)printf("perplexity %.2f  ", exp(number_of(round, "loss")));
        }
    }
    if (json_is_number(json_object_get(round, "participants"))) {
        (void)printf("%3.0f devices  %.0f dropped  down %s  up %s  peak %s  %.2f s",
                     number_of(round, "participants"), number_of(round, "dropped"),
                     size_text((uint64_t)number_of(round, "bytes_down"), down),
                     size_text((uint64_t)number_of(round, "bytes_up"), up),
                     size_text(fleet_workers_round_peak(workers, number), peak),
                     number_of(round, "wall_s"));
    } else { /* a private round does not tell how many came */
        (void)printf("peak %s", size_text(fleet_workers_round_peak(workers, number), peak));
    }
    if (json_is_number(json_object_get(round, "epsilon"))) {
        (void)printf("  epsilon %.3f", number_of(round, "epsilon"));
    }
    if (number_of(round, "scaled") > 0) {
        (void)printf("  %.0f scaled down", number_of(round, "scaled"));
    }
    fleet_secagg_print(round);
    const char *reason = json_string_value(json_object_get(round, "reason"));
    if (reason != NULL) {
        const char *end = json_is_true(json_object_get(round, "failed")) ? "failed" : "no figures";
        end = number_of(round, "taken_back") > 0 ? "taken back" : end;
        (void)printf("  %s: %s", end, reason);
    }
    (void)printf("\n");
    (void)fflush(stdout);
}

/* The server evaluates beside the rounds: a round's accuracy, or why there is none, comes a little
 * after its end. */
static bool is_judged(const fleet_flags *flags, const json_t *round)
{
    const json_int_t number = json_integer_value(json_object_get(round, "round"));
    const bool is_awaited = flags->judge_every < 2 || number % flags->judge_every == 0 ||
                            number == (json_int_t)flags->n_rounds;
    return !is_awaited || json_is_number(json_object_get(round, "accuracy")) ||
           json_is_string(json_object_get(round, "reason"));
}

static bool is_state(const json_t *status, const char *name)
{
    const char *state = json_string_value(json_object_get(status, "state"));
    return state != NULL && strcmp(state, name) == 0;
}

/* ---- the progress line ---- */

/* What a run is followed by. */
typedef struct following {
    const fleet_flags *flags;
    fleet_server *server;
    fleet_workers *workers;
    progress line;
    bool is_enrolling; /* what the line is about, once it has begun */
    bool has_line;
    size_t n_printed;
    int n_silent;
    char told[FLEET_TEXT_BYTES];
    json_t *last; /* the last status that was read; NULL: none */
} following;

/* The line about enrolments becomes one about rounds when the first round is open. */
static void begin_line(following *run, bool is_enrolling)
{
    if (run->flags->is_quiet || (run->has_line && run->is_enrolling == is_enrolling)) {
        return;
    }
    progress_end(&run->line);
    progress_begin(&run->line, is_enrolling ? "enrolling" : "federation",
                   is_enrolling ? "devices" : "rounds");
    run->has_line = true;
    run->is_enrolling = is_enrolling;
}

/* "round 3: 5 of 16 updates, evaluating round 2" */
static void note_rounds(const following *run, const json_t *status, char note[PROGRESS_NOTE_BYTES])
{
    const json_t *open = json_object_get(status, "open");
    const size_t n_closed = json_array_size(json_object_get(status, "rounds"));
    const json_t *goal = json_object_get(open, "goal"); /* servers of before have none */
    int n = 0;
    if (n_closed < (size_t)n_wanted(run->flags, status)) {
        n = snprintf(note, PROGRESS_NOTE_BYTES, "round %.0f: %.0f", number_of(open, "round"),
                     number_of(open, "accepted"));
        n += json_is_number(goal) ? snprintf(note + n, PROGRESS_NOTE_BYTES - (size_t)n, " of %.0f",
                                             json_number_value(goal))
                                  : 0;
        n += snprintf(note + n, PROGRESS_NOTE_BYTES - (size_t)n, " updates");
    }
    if (run->n_printed < n_closed) {
        (void)snprintf(note + n, PROGRESS_NOTE_BYTES - (size_t)n, "%sevaluating round %zu",
                       n > 0 ? ", " : "", run->n_printed + 1);
    }
}

static void show_progress(following *run, const json_t *status)
{
    char note[PROGRESS_NOTE_BYTES] = "";
    const json_t *clients = json_object_get(status, "clients");
    if (status == NULL) {
        return; /* what was known stays */
    }
    begin_line(run, is_state(status, "waiting"));
    if (run->is_enrolling) {
        progress_update(&run->line, (int64_t)number_of(clients, "checked_in"),
                        (int64_t)number_of(clients, "expected"), note);
        return;
    }
    note_rounds(run, status, note);
    progress_update(&run->line, (int64_t)json_array_size(json_object_get(status, "rounds")),
                    n_wanted(run->flags, status), note);
}

/* ---- following ---- */

/* What holds the server's rounds up, once for each that comes; it goes on by itself. */
static void tell_trouble(const json_t *status, char told[FLEET_TEXT_BYTES])
{
    const char *error = json_string_value(json_object_get(status, "error"));
    if (error != NULL && strncmp(error, told, FLEET_TEXT_BYTES - 1) != 0) {
        progress_clear_any();
        (void)fprintf(stderr, "%s: the server's rounds are held up: %s\n", fleet_program.name,
                      error);
    }
    (void)snprintf(told, FLEET_TEXT_BYTES, "%s", error != NULL ? error : "");
}

/* Prints the rounds that are judged, or all that are closed. */
static void print_rounds(following *run, const json_t *status, bool is_all)
{
    const json_t *rounds = json_object_get(status, "rounds");
    while (run->n_printed < json_array_size(rounds) &&
           (is_all || is_judged(run->flags, json_array_get(rounds, run->n_printed)))) {
        if (!run->flags->is_quiet) {
            progress_clear(&run->line);
            print_round(run->flags, n_wanted(run->flags, status),
                        json_array_get(rounds, run->n_printed), run->workers);
        }
        run->n_printed++;
    }
}

/* Why the run ended before its last round, and which model was the best. */
static void print_end(const json_t *status)
{
    const char *reason = json_string_value(json_object_get(status, "stopped_by"));
    const json_t *best = json_object_get(status, "best_round");
    if (reason != NULL && strcmp(reason, "rounds") != 0) {
        (void)printf("the run ends early: %s\n", reason);
    }
    const json_t *privacy = json_object_get(status, "privacy");
    const char *note = json_string_value(json_object_get(privacy, "note"));
    if (json_is_object(privacy)) {
        (void)printf("privacy: epsilon %.3f at delta %g, of a device%s%s\n",
                     number_of(privacy, "epsilon"), number_of(privacy, "delta"),
                     note != NULL ? "; " : "", note != NULL ? note : "");
    }
    if (json_is_integer(best)) {
        (void)printf("best model: round %lld, accuracy %.2f %%\n",
                     (long long)json_integer_value(best),
                     100.0 * number_of(status, "best_accuracy"));
    }
}

/* Says how far a run came that a signal ended. */
static void tell_interrupted(following *run, int number)
{
    const size_t n_closed = json_array_size(json_object_get(run->last, "rounds"));
    const size_t n_judged = run->n_printed;
    char unjudged[64] = "";
    const char *name = number == SIGTERM ? "SIGTERM" : number == SIGHUP ? "SIGHUP" : "SIGINT";
    print_rounds(run, run->last, true);
    progress_end(&run->line);
    if (n_judged < n_closed) {
        (void)snprintf(unjudged, sizeof unjudged, ", %zu of them not evaluated yet",
                       n_closed - n_judged);
    }
    (void)program_fail(&fleet_program, "interrupted by %s after %zu of %lld rounds%s", name,
                       n_closed, (long long)n_wanted(run->flags, run->last), unjudged);
}

/* One look at the server. True: the run has ended, as `end` says. */
static bool look(following *run, fleet_end *end)
{
    json_t *status = fleet_status_read(run->server);
    run->n_silent = status == NULL ? run->n_silent + 1 : 0;
    end->is_over = is_state(status, "done");
    if (status != NULL) {
        json_decref(run->last);
        run->last = status;
        tell_trouble(status, run->told);
        print_rounds(run, status, end->is_over);
    }
    if (end->is_over) {
        progress_end(&run->line);
        if (!run->flags->is_quiet) {
            print_end(run->last);
        }
        return true;
    }
    show_progress(run, status);
    end->signal = interrupted_by;
    if (end->signal != 0) {
        tell_interrupted(run, end->signal);
        return true;
    }
    bool has_ended = !fleet_server_is_alive(run->server) || run->server->is_refused;
    if (!has_ended && run->n_silent <= SILENT_POLLS) {
        return false;
    }
    progress_end(&run->line);
    if (!has_ended) {
        (void)program_fail(&fleet_program, "%s/v1/status does not answer", run->server->url);
    }
    return true;
}

fleet_end fleet_follow(const fleet_flags *flags, fleet_server *server, fleet_workers *workers)
{
    following run = {.flags = flags, .server = server, .workers = workers};
    fleet_end end = {0};
    begin_line(&run, true);
    while (!look(&run, &end)) {
        struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
        (void)nanosleep(&pause, NULL);
    }
    end.status = run.last;
    return end;
}
