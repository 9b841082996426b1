/*
 * run.c - one run in memory, from its folder to its results.
 *
 * Invariant: what was opened is closed again, however the run ends; one that is interrupted leaves
 * the rounds that have closed.
 */
#include "agree.h"
#include "engine.h"

#include <mem/support.h>

#include <common/progress.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATE_FILE "memory.run"

static bool join_path(char out[FLEET_PATH_BYTES], const char *folder, const char *name)
{
    return snprintf(out, FLEET_PATH_BYTES, "%s/%s", folder, name) < FLEET_PATH_BYTES;
}

/* Goes on from the last round that closed, if the folder has a run of this task. */
static int take_up(engine *all)
{
    char path[FLEET_PATH_BYTES];
    bool is_there = false;
    dunlin_error error = {0};
    if (all->flags->state_folder == NULL) {
        return EXIT_OK;
    }
    (void)join_path(path, all->flags->state_folder, STATE_FILE);
    if (dunlin__memory_load(&all->rounds, path, agree_build(), &is_there, &error) != DUNLIN_OK) {
        return program_fail(&fleet_program, "--state %s: %s", all->flags->state_folder, error.text);
    }
    const int64_t n_closed = (int64_t)all->rounds.server.n_closed;
    const int64_t n_most = ranks_highest(all->ranks, n_closed);
    if (n_most != -ranks_highest(all->ranks, -n_closed)) {
        return n_closed == n_most
                   ? EXIT_FAILED /* one that has less says so */
                   : program_fail(&fleet_program,
                                  "--state %s: rank %d finds %" PRId64 " closed rounds there, "
                                  "another %" PRId64 ": all machines must see one folder",
                                  all->flags->state_folder, (int)ranks_index(all->ranks), n_closed,
                                  n_most);
    }
    if (is_there && !all->flags->is_quiet) {
        (void)printf("going on after round %zu\n", all->rounds.server.n_closed);
    }
    return EXIT_OK;
}

static int keep(const engine *all)
{
    char path[FLEET_PATH_BYTES];
    dunlin_error error = {0};
    if (all->flags->state_folder == NULL || !ranks_is_first(all->ranks)) {
        return EXIT_OK;
    }
    (void)join_path(path, all->flags->state_folder, STATE_FILE);
    return dunlin__memory_save(&all->rounds, path, agree_build(), &error) == DUNLIN_OK
               ? EXIT_OK
               : program_fail(&fleet_program, "--state %s: %s", all->flags->state_folder,
                              error.text);
}

/* The last model, where the run's folder stays. */
static int export_model(const engine *all)
{
    char path[FLEET_PATH_BYTES];
    dunlin_error error = {0};
    const dunlin__values values = dunlin__memory_values(all->rounds.base);
    if (all->flags->state_folder == NULL || !ranks_is_first(all->ranks)) {
        return EXIT_OK;
    }
    (void)join_path(path, all->flags->state_folder, "model.onnx");
    return dunlin__evaluator_export_values(all->rounds.server.evaluator, &values, path, &error) ==
                   DUNLIN_OK
               ? EXIT_OK
               : program_fail(&fleet_program, "%s: %s", path, error.text);
}

static int run_rounds(engine *all)
{
    const bool speaks = !all->flags->is_quiet && ranks_is_first(all->ranks);
    progress line = {0};
    int exit_status = EXIT_OK;
    if (speaks) {
        progress_begin(&line, "federation", "rounds");
    }
    while (exit_status == EXIT_OK && !all->rounds.server.is_done) {
        const size_t n_before = all->rounds.server.n_closed;
        exit_status = engine_round(all);
        if (exit_status != EXIT_OK || all->rounds.server.n_closed == n_before) {
            break; /* or a signal has ended it */
        }
        exit_status = keep(all);
        if (speaks) {
            progress_clear(&line);
            engine_print_round(all);
            progress_update(&line, (int64_t)all->rounds.server.n_closed, all->flags->n_rounds, "");
        }
    }
    progress_end(&line);
    return exit_status;
}

static void print_end(const engine *all)
{
    const engine_times *sum = &all->times;
    const double whole = sum->wall > 0.0 ? sum->wall : 1.0;
    (void)printf("%.1f s: training %.1f %%, updates %.1f %%, fold %.1f %%, evaluation %.1f %% of "
                 "%d threads",
                 all->totals.wall_s, 100.0 * sum->training / whole, 100.0 * sum->update / whole,
                 100.0 * sum->fold / whole, 100.0 * sum->evaluation / whole,
                 (int)(all->n_threads * ranks_count(all->ranks)));
    if (all->totals.n_failed > 0) {
        (void)printf("; %llu devices failed, the last: %s",
                     (unsigned long long)all->totals.n_failed, all->totals.last_error);
    }
    (void)printf("\n");
}

/* Results of what was done; a run that a signal ended gives those of the closed rounds. */
static int give(engine *all, const char *command, json_t **out_result)
{
    const int signal_number = fleet_interrupted();
    const bool is_interrupted = !all->rounds.server.is_done;
    if (!ranks_is_first(all->ranks)) {
        return is_interrupted ? EXIT_SIGNAL + signal_number : EXIT_OK;
    }
    if (!all->flags->is_quiet) {
        print_end(all);
    }
    if (is_interrupted) {
        (void)program_fail(&fleet_program,
                           "interrupted by signal %d after %zu of %" PRId64 " rounds",
                           signal_number, all->rounds.server.n_closed, all->flags->n_rounds);
    }
    const int exit_status = fleet_give_results(all->flags, engine_result(all, is_interrupted),
                                               command, is_interrupted ? NULL : out_result);
    return exit_status == EXIT_OK && is_interrupted ? EXIT_SIGNAL + signal_number : exit_status;
}

/* From the first round, or the one after the last that closed, to the results. */
static int run_all(engine *all, const char *task_file, const char *command, json_t **out_result)
{
    int exit_status = engine_open(all, all->flags, all->world, all->ranks, task_file);
    if (exit_status == EXIT_OK) {
        exit_status = agree_on_run(all->ranks, all->flags, all->world, &all->rounds);
    }
    if (exit_status == EXIT_OK) {
        exit_status = take_up(all);
    }
    const double begun_ms = clock_ms();
    if (exit_status == EXIT_OK) {
        exit_status = run_rounds(all);
    }
    if (exit_status == EXIT_OK) {
        engine_sum_times(all, (clock_ms() - begun_ms) / 1000.0);
        exit_status = export_model(all);
    }
    return exit_status == EXIT_OK ? give(all, command, out_result) : exit_status;
}

static int run_in(const fleet_flags *flags, const fleet_world *world, const fleet_server *place,
                  const char *command, json_t **out_result)
{
    char path[FLEET_PATH_BYTES];
    engine *all = calloc(1, sizeof *all);
    if (all == NULL || !join_path(path, place->folder, "task.json")) {
        free(all);
        return program_fail(&fleet_program, "%s: no memory, or a path that is too long",
                            place->folder);
    }
    int exit_status = fleet_task_write(flags, world, path);
    if (exit_status == EXIT_OK) {
        all->flags = flags;
        all->world = world;
        all->ranks = flags->processes;
        exit_status = run_all(all, path, command, out_result);
        engine_close(all);
    }
    free(all);
    return exit_status;
}

int memory_run(const fleet_flags *flags, const fleet_world *world, const char *command,
               json_t **out_result)
{
    fleet_server place = {0};
    const int64_t n_devices = fleet_n_devices(flags, world);
    if (n_devices < flags->n_clients) {
        return program_fail(&fleet_program,
                            "--clients %" PRId64 ": the data are shared out among %" PRId64
                            " devices",
                            flags->n_clients, n_devices);
    }
    /* One process writes into the folder of the run; the others have their task for themselves. */
    fleet_flags own = *flags;
    own.state_folder = ranks_is_first(flags->processes) ? flags->state_folder : NULL;
    int exit_status = fleet_folder_make(&own, &place);
    if (exit_status == EXIT_OK) {
        exit_status = run_in(flags, world, &place, command, out_result);
    }
    fleet_server_close(&place);
    return exit_status;
}

/* What several processes cannot share, by name; NULL: they share the run. */
static const char *refused_of_many(const fleet_flags *flags)
{
    const char *strategy = flags->strategy_name != NULL ? flags->strategy_name : "";
    if (flags->devices_file != NULL) {
        return "--devices does not go with mpirun: simulated time has one queue of events";
    }
    if (strcmp(strategy, "median") == 0) {
        return "--strategy median does not go with mpirun: it looks at all updates of a round at "
               "once";
    }
    return strcmp(strategy, "trimmed_mean") == 0
               ? "--strategy trimmed_mean does not go with mpirun: it looks at all updates of a "
                 "round at once"
               : NULL;
}

int memory_join(fleet_flags *flags)
{
    if (!flags->is_in_memory) {
        return EXIT_OK;
    }
    flags->processes = ranks_open();
    if (flags->processes == NULL) {
        return program_fail(&fleet_program,
                            "--transport memory: MPI does not start with threads, which it needs "
                            "(MPI_THREAD_SERIALIZED)");
    }
    if (!ranks_is_first(flags->processes)) {
        flags->is_quiet = true;
        flags->json_file = NULL;
        flags->report_file = NULL;
    }
    const char *wrong = ranks_count(flags->processes) > 1 ? refused_of_many(flags) : NULL;
    if (wrong != NULL) {
        const bool speaks = ranks_is_first(flags->processes);
        memory_leave(flags, EXIT_OK);
        return speaks ? program_misuse(&fleet_program, "%s", wrong) : EXIT_MISUSE;
    }
    return EXIT_OK;
}

void memory_leave(fleet_flags *flags, int exit_status)
{
    ranks_close(flags->processes, exit_status != EXIT_OK && exit_status < EXIT_SIGNAL);
    flags->processes = NULL;
}
