/*
 * run.c - one simulation, from its files to its results.
 *
 * Invariant: what was opened is closed again, however the run ends; one that is interrupted leaves
 * what was done.
 */
#include "simulation.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int open_files(simulation *sim)
{
    const fleet_flags *flags = sim->flags;
    char error[SIM_ERROR_BYTES];
    if (!sim_devices_read(flags->devices_file, sim->n_clients, &sim->devices, error) ||
        !sim_costs_read(flags->costs_file, &sim->costs, error) ||
        !sim_costs_fit(&sim->costs, flags->costs_file, flags, sim->world, error)) {
        return program_fail(&fleet_program, "%s", error);
    }
    sim->dropped_by = calloc((size_t)(sim->n_rounds + 1) * SIM_CAUSES, sizeof *sim->dropped_by);
    sim->peaks = calloc((size_t)sim->n_rounds + 1, sizeof *sim->peaks);
    sim->joules = calloc((size_t)sim->n_rounds + 1, sizeof *sim->joules);
    if (sim->dropped_by == NULL || sim->peaks == NULL || sim->joules == NULL) {
        return program_fail(&fleet_program, "no memory for %" PRId64 " rounds", sim->n_rounds);
    }
    return EXIT_OK;
}

static int begin_events(simulation *sim)
{
    return sim_events_begin(sim)
               ? EXIT_OK
               : program_fail(&fleet_program,
                              "--events %s cannot be written, or has not the events before",
                              sim->flags->events_file);
}

static void close_files(simulation *sim)
{
    if (sim->events != NULL) {
        (void)fclose(sim->events);
    }
    sim_devices_free(&sim->devices);
    free(sim->dropped_by);
    free(sim->peaks);
    free(sim->joules);
}

static int give(simulation *sim, const fleet_end *end, const char *command, json_t **out_result)
{
    for (int32_t i = 0; i < SIM_ROWS; i++) {
        sim->totals.moved_bytes +=
            sim->is_own_pool[i] ? dunlin_trainer_pool_moved_bytes(sim->pools[i]) : 0;
    }
    const fleet_figures figures = {
        .totals = sim->totals, .peaks = sim->peaks, .n_peaks = sim->n_rounds + 1};
    if (!sim_events_end(sim)) {
        return program_fail(&fleet_program, "--events %s cannot be written",
                            sim->flags->events_file != NULL ? sim->flags->events_file : "-");
    }
    if (end->is_over && !sim_judge(sim)) {
        return program_fail(&fleet_program, "%s/server/model.onnx cannot be evaluated",
                            sim->server->folder);
    }
    json_t *result = fleet_result(sim->flags, sim->world, end->status, &figures);
    sim_report(sim, result, end->status);
    if (!end->is_over) {
        (void)json_object_set_new(result, "interrupted", json_true());
        (void)json_object_set_new(result, "rounds_wanted",
                                  json_integer((json_int_t)sim->flags->n_rounds));
    }
    return fleet_give_results(sim->flags, result, command, end->is_over ? out_result : NULL);
}

static void print_summary(const simulation *sim)
{
    (void)printf("%.2f simulated hours in %.1f s, %" PRId64 " events %.16s..., %" PRId64
                 " devices left out, %" PRId64 " only with a planner\n",
                 (double)sim->now_us / 3.6e9, sim->totals.wall_s, sim->n_events, sim->events_sha256,
                 sim->left_out.memory + sim->left_out.storage + sim->left_out.never_ready,
                 sim->n_needs_planner);
    if (sim->totals.n_failed > 0) {
        (void)printf("%" PRIu64 " calls failed; the last: %s\n", sim->totals.n_failed,
                     sim->totals.last_error);
    }
}

int sim_run(const fleet_flags *flags, const fleet_world *world, fleet_server *server,
            const char *command, json_t **out_result)
{
    simulation sim = {.flags = flags,
                      .world = world,
                      .server = server,
                      .n_clients = fleet_n_devices(flags, world),
                      .n_rounds = flags->n_rounds,
                      .begun_us = -1,
                      .worst_tenth = -1.0,
                      .accuracy_mean = -1.0,
                      .totals = {.transport = DUNLIN_RUNTIME_STATS_INIT}};
    fleet_end end = {0};
    int status = open_files(&sim);
    status = status == EXIT_OK ? sim_clients_open(&sim) : status;
    status = status == EXIT_OK ? sim_keep_take(&sim) : status;
    if (status == EXIT_OK && !sim_live_open(&sim)) {
        status = program_fail(&fleet_program, "no memory for the page of the server");
    }
    status = status == EXIT_OK ? begin_events(&sim) : status;
    if (status == EXIT_OK) {
        status = sim_steps_run(&sim, &end);
        const int given = give(&sim, &end, command, out_result);
        status = status == EXIT_OK ? given : status;
        if (!flags->is_quiet) {
            print_summary(&sim);
        }
    }
    json_decref(end.status);
    sim_live_close(&sim);
    sim_clients_close(&sim);
    close_files(&sim);
    return end.signal != 0 ? EXIT_SIGNAL + end.signal : status;
}
