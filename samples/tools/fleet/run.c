/*
 * run.c - one run: opens the world, the server and the devices, follows the rounds, leaves results.
 *
 * Invariant: what was opened is closed again, in the opposite order, however the run ends; a run
 * that is interrupted leaves what was done.
 */
#include "fleet.h"

#include <common/output.h>
#include <memory/memory.h>
#include <simulate/costs.h>
#include <simulate/simulate.h>
#include <stdio.h>
#include <string.h>

int fleet_give_results(const fleet_flags *flags, json_t *result, const char *command,
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
    if (!fleet_is_repeatable(flags)) {
        (void)printf(
            "by the real clock who is fast decides which updates make a model: another run has "
            "other figures; with --devices, in simulated time, it has the same\n");
    }
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

/* From the first enrolment to the results. What was done is left, too, if a signal ends the run;
 * only who wants the whole of it (`out_result`) gets nothing. */
static int run_rounds(const fleet_flags *flags, const fleet_world *world, fleet_server *server,
                      fleet_workers *workers, const char *command, json_t **out_result)
{
    const fleet_end end = fleet_follow(flags, server, workers);
    const bool is_interrupted = end.signal != 0;
    int exit_status = EXIT_FAILED;
    fleet_workers_stop(workers);
    if (end.is_over || is_interrupted) {
        const fleet_figures figures = fleet_workers_figures(workers);
        json_t *result = fleet_result(flags, world, end.status, &figures);
        if (flags->is_serving && end.is_over) {
            (void)json_object_set_new(result, "models_sha256", sim_model_hash(server, end.status));
        }
        if (is_interrupted) {
            (void)json_object_set_new(result, "interrupted", json_true());
            const json_t *wanted = json_object_get(end.status, "rounds_wanted");
            (void)json_object_set_new(result, "rounds_wanted",
                                      wanted != NULL ? json_copy((json_t *)(uintptr_t)wanted)
                                                     : json_integer((json_int_t)flags->n_rounds));
        }
        exit_status =
            fleet_give_results(flags, result, command, is_interrupted ? NULL : out_result);
    }
    if (!flags->is_quiet) {
        print_summary(workers);
    }
    json_decref(end.status);
    return exit_status == EXIT_OK && is_interrupted ? EXIT_SIGNAL + end.signal : exit_status;
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
    if (flags->measure_file != NULL) {
        exit_status = sim_costs_measure(flags, &world, flags->measure_file);
        fleet_world_close(&world);
        return exit_status;
    }
    if (flags->is_in_memory && flags->devices_file == NULL) {
        exit_status = memory_run(flags, &world, command, out_result);
        fleet_world_close(&world);
        return exit_status;
    }
    exit_status = fleet_server_open(flags, &world, &server);
    if (exit_status == EXIT_OK && flags->is_serving && !flags->is_in_memory && !flags->is_quiet) {
        (void)printf("the run in a browser: %s/ (the server's CA: %s)\n", server.url,
                     server.ca_file);
        (void)fflush(stdout);
    }
    if (exit_status == EXIT_OK && flags->devices_file != NULL) {
        exit_status = sim_run(flags, &world, &server, command, out_result);
        fleet_server_close(&server);
    } else if (exit_status == EXIT_OK) {
        exit_status = fleet_workers_start(flags, &world, &server, &workers);
        if (exit_status == EXIT_OK) {
            exit_status = run_rounds(flags, &world, &server, workers, command, out_result);
        }
        fleet_workers_destroy(workers);
        fleet_server_close(&server);
    }
    fleet_world_close(&world);
    return exit_status;
}
