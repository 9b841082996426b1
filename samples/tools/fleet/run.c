/*
 * run.c - one run: opens the world, the server and the devices, prints each round as it closes,
 * leaves results.
 *
 * Invariant: what was opened is closed again, in the opposite order, however the run ends.
 */
#include "fleet.h"

#include <common/output.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define POLL_MS 100

static volatile sig_atomic_t is_interrupted;

void fleet_interrupt(void)
{
    is_interrupted = 1;
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void print_round(const fleet_flags *flags, const json_t *round, fleet_workers *workers)
{
    char peak[SIZE_TEXT_BYTES];
    char down[SIZE_TEXT_BYTES];
    char up[SIZE_TEXT_BYTES];
    const json_t *accuracy = json_object_get(round, "accuracy");
    uint64_t number = (uint64_t)json_integer_value(json_object_get(round, "round"));
    (void)printf("round %3llu/%lld  ", (unsigned long long)number, (long long)flags->n_rounds);
    if (json_is_number(accuracy)) {
        (void)printf("accuracy %6.2f %%  loss %.4f  ", 100.0 * json_number_value(accuracy),
                     number_of(round, "loss"));
    }
    (void)printf("%3.0f devices  %.0f dropped  down %s  up %s  peak %s  %.2f s",
                 number_of(round, "participants"), number_of(round, "dropped"),
                 size_text((uint64_t)number_of(round, "bytes_down"), down),
                 size_text((uint64_t)number_of(round, "bytes_up"), up),
                 size_text(fleet_workers_round_peak(workers, number), peak),
                 number_of(round, "wall_s"));
    if (number_of(round, "scaled") > 0) {
        (void)printf("  %.0f scaled down", number_of(round, "scaled"));
    }
    const char *reason = json_string_value(json_object_get(round, "reason"));
    if (reason != NULL) {
        const char *end = json_is_true(json_object_get(round, "failed")) ? "failed" : "no figures";
        end = number_of(round, "taken_back") > 0 ? "taken back" : end;
        (void)printf("  %s: %s", end, reason);
    }
    (void)printf("\n");
    (void)fflush(stdout);
}

static void show_progress(progress *line, const fleet_flags *flags, fleet_workers *workers,
                          size_t n_rounds)
{
    char note[64];
    fleet_totals totals;
    fleet_workers_totals(workers, &totals);
    (void)snprintf(note, sizeof note, "%llu updates accepted",
                   (unsigned long long)totals.n_accepted);
    progress_update(line, (int64_t)n_rounds, flags->n_rounds, note);
}

static bool is_state(const json_t *status, const char *name)
{
    const char *state = json_string_value(json_object_get(status, "state"));
    return state != NULL && strcmp(state, name) == 0;
}

/* The server evaluates beside the rounds: a round's accuracy, or why there is none, comes a little
 * after its end. */
static bool is_judged(const json_t *round)
{
    return json_is_number(json_object_get(round, "accuracy")) ||
           json_is_string(json_object_get(round, "reason"));
}

/* Why the run ended before its last round, and which model was the best. */
static void print_end(const json_t *status)
{
    const char *reason = json_string_value(json_object_get(status, "stopped_by"));
    const json_t *best = json_object_get(status, "best_round");
    if (reason != NULL && strcmp(reason, "rounds") != 0) {
        (void)printf("the run ends early: %s\n", reason);
    }
    if (json_is_integer(best)) {
        (void)printf("best model: round %lld, accuracy %.2f %%\n",
                     (long long)json_integer_value(best),
                     100.0 * number_of(status, "best_accuracy"));
    }
}

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

/* Polls until all rounds are closed; the last status is handed out. NULL: the line has been
 * printed. */
static json_t *follow(const fleet_flags *flags, fleet_server *server, fleet_workers *workers)
{
    size_t n_printed = 0;
    int n_silent = 0;
    char told[FLEET_TEXT_BYTES] = "";
    progress line = {0};
    if (!flags->is_quiet) {
        progress_begin(&line, "federation", "rounds");
    }
    for (;;) {
        json_t *status = fleet_status_read(server);
        const json_t *rounds = json_object_get(status, "rounds");
        n_silent = status == NULL ? n_silent + 1 : 0;
        bool is_over = is_state(status, "done");
        if (status != NULL) {
            tell_trouble(status, told);
        }
        while (n_printed < json_array_size(rounds) &&
               (is_over || is_judged(json_array_get(rounds, n_printed)))) {
            if (!flags->is_quiet) {
                progress_clear(&line);
                print_round(flags, json_array_get(rounds, n_printed), workers);
            }
            n_printed++;
        }
        if (is_over) {
            progress_end(&line);
            if (!flags->is_quiet) {
                print_end(status);
            }
            return status;
        }
        json_decref(status);
        show_progress(&line, flags, workers, n_printed);
        if (is_interrupted != 0) {
            progress_end(&line);
            (void)program_fail(&fleet_program, "interrupted after %zu rounds", n_printed);
            return NULL;
        }
        if (!fleet_server_is_alive(server) || server->is_refused) {
            progress_end(&line);
            return NULL;
        }
        if (n_silent > 50) {
            progress_end(&line);
            (void)program_fail(&fleet_program, "%s/v1/status does not answer", server->url);
            return NULL;
        }
        struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
        (void)nanosleep(&pause, NULL);
    }
}

/* Writes the files asked for; the result goes to `out_result` too, if there is one. */
static int give_results(const fleet_flags *flags, json_t *result, const char *command,
                        json_t **out_result)
{
    char error[OUTPUT_ERROR_BYTES];
    int exit_status = EXIT_OK;
    if (result == NULL) {
        return program_fail(&fleet_program, "no memory for the results");
    }
    if (flags->json_file != NULL && !output_json(flags->json_file, result, error)) {
        exit_status = program_fail(&fleet_program, "%s", error);
    }
    if (flags->report_file != NULL &&
        !fleet_report_write(flags->report_file, result, command, error)) {
        exit_status = program_fail(&fleet_program, "%s", error);
    }
    if (out_result != NULL && exit_status == EXIT_OK) {
        *out_result = json_incref(result);
    }
    json_decref(result);
    return exit_status;
}

static void print_summary(fleet_workers *workers)
{
    fleet_totals totals;
    char heap[SIZE_TEXT_BYTES];
    fleet_workers_totals(workers, &totals);
    (void)printf(
        "%.1f s, %.0f requests/s, %llu handshakes, at most %d connections and %lld descriptors, "
        "%s of heap per idle device\n",
        totals.wall_s,
        totals.wall_s > 0.0 ? (double)totals.transport.n_requests / totals.wall_s : 0.0,
        (unsigned long long)totals.transport.n_handshakes, (int)totals.transport.n_connections_peak,
        (long long)totals.n_descriptors, size_text(totals.idle_client_bytes, heap));
    if (totals.n_failed > 0) {
        (void)printf("%llu calls failed; the last: %s\n", (unsigned long long)totals.n_failed,
                     totals.last_error);
    }
}

static void print_setup(const fleet_flags *flags, const fleet_world *world)
{
    (void)printf("%lld devices, %s, %s split, %s with %lld parameters, batch %lld%s\n",
                 (long long)fleet_n_devices(flags, world), dunlin_dataset_title(world->dataset),
                 flags->partition, flags->model, (long long)world->n_params,
                 (long long)world->batch,
                 dunlin_dataset_is_synthetic(world->dataset) ? " (the data are synthetic)" : "");
    if (dunlin_dataset_note(world->dataset)[0] != '\0') {
        (void)printf("%s: %s\n", dunlin_dataset_title(world->dataset),
                     dunlin_dataset_note(world->dataset));
    }
    fleet_batch_print(flags, world);
}

/* The JSON file of a run that could not begin: why. */
static void give_refusal(const fleet_flags *flags, const fleet_world *world)
{
    char error[OUTPUT_ERROR_BYTES];
    json_t *result = json_pack("{s:I, s:[], s:s}", "clients", (json_int_t)flags->n_clients,
                               "rounds", "error", world->error);
    if (result != NULL && !output_json(flags->json_file, result, error)) {
        (void)program_fail(&fleet_program, "%s", error);
    }
    json_decref(result);
}

int fleet_run(const fleet_flags *flags, const char *command, json_t **out_result)
{
    fleet_world world;
    fleet_server server;
    fleet_workers *workers = NULL;
    if (flags->json_file != NULL && strcmp(flags->json_file, "-") == 0) {
        progress_forbid();
    }
    int exit_status = fleet_world_open(flags, &world);
    if (exit_status != EXIT_OK) {
        if (flags->json_file != NULL && world.error[0] != '\0') {
            give_refusal(flags, &world);
        }
        return exit_status;
    }
    if (!flags->is_quiet) {
        print_setup(flags, &world);
    }
    exit_status = fleet_server_open(flags, &world, &server);
    if (exit_status == EXIT_OK) {
        exit_status = fleet_workers_start(flags, &world, &server, &workers);
        if (exit_status == EXIT_OK) {
            json_t *status = follow(flags, &server, workers);
            fleet_workers_stop(workers);
            exit_status = status == NULL
                              ? EXIT_FAILED
                              : give_results(flags, fleet_result(flags, &world, status, workers),
                                             command, out_result);
            if (!flags->is_quiet) {
                print_summary(workers);
            }
            json_decref(status);
        }
        fleet_workers_destroy(workers);
        fleet_server_close(&server);
    }
    fleet_world_close(&world);
    return exit_status;
}
