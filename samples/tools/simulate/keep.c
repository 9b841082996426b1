/*
 * keep.c - a simulation that was ended goes on: what it is made of in a file, once a round.
 *
 * When a device gets the first work of a round, all clients are ended and taken up again from their
 * journals, in every run: that is what a start after a kill does. What a training has come to stays
 * (sim_progress). With --state all of the simulation is then written down: what a kill comes after
 * is done again, to the same events.
 *
 * The moment counts once its file has its name. After that the two databases are brought into one
 * file each; a second file says that they have been. A start reads the first, and without the
 * second leaves the databases' logs, which end at that moment; with it, the logs are of later.
 *
 * Invariant: a moment and the files that belong to it have its number; those of the one before go
 * when it is settled.
 */
#include "keep.h"

#include <errno.h>
#include <inttypes.h>
#include <memory/loop.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_EVENTS 65536 /* between two moments */
#define N_PARTS 20

typedef struct kept_client {
    sim_client client; /* pointers are none */
    bool has_visit;
    double begun_j;
    sim_progress progress;
} kept_client;

/* A piece of the simulation's memory. */
typedef struct part {
    void *bytes;
    size_t n;
} part;

static int parts_of(simulation *sim, part out[N_PARTS])
{
    const size_t n_rounds = (size_t)sim->n_rounds + 1;
    const part all[] = {{&sim->now_us, sizeof sim->now_us},
                        {&sim->begun_us, sizeof sim->begun_us},
                        {&sim->n_working, sizeof sim->n_working},
                        {&sim->chain, sizeof sim->chain},
                        {&sim->n_events, sizeof sim->n_events},
                        {&sim->events_bytes, sizeof sim->events_bytes},
                        {&sim->newest_round, sizeof sim->newest_round},
                        {sim->of_row, sizeof sim->of_row},
                        {sim->sums, sizeof sim->sums},
                        {&sim->totals.n_rounds_run, sizeof sim->totals.n_rounds_run},
                        {&sim->totals.n_accepted, sizeof sim->totals.n_accepted},
                        {&sim->totals.n_failed, sizeof sim->totals.n_failed},
                        {sim->totals.last_error, sizeof sim->totals.last_error},
                        {sim->dropped_by, n_rounds * SIM_CAUSES * sizeof *sim->dropped_by},
                        {sim->peaks, n_rounds * sizeof *sim->peaks},
                        {sim->joules, n_rounds * sizeof *sim->joules}};
    memcpy(out, all, sizeof all);
    return (int)(sizeof all / sizeof all[0]);
}

/* ---- what a run is told by ---- */

/* Devices, costs, task and what else events follow from. */
static bool take_fingerprint(simulation *sim)
{
    char text[4 * SIM_SHA256_TEXT + 256];
    char devices[SIM_SHA256_TEXT];
    char task[SIM_SHA256_TEXT];
    char path[FLEET_PATH_BYTES + 16];
    const fleet_flags *flags = sim->flags;
    (void)snprintf(path, sizeof path, "%s/task.json", sim->server->folder);
    if (!sim_hash_file(flags->devices_file, devices) || !sim_hash_file(path, task)) {
        return false;
    }
    const int n = snprintf(text, sizeof text, "%s %s %s %" PRIu64 " %" PRId64 " %.60s %s", devices,
                           task, sim->costs.sha256, flags->seed, sim->n_clients,
                           flags->windows != NULL ? flags->windows : "-",
                           flags->is_in_memory ? "memory" : "wire");
    return sim_hash_bytes(text, (size_t)n, sim->fingerprint);
}

/* ---- out ---- */

static bool write_client(FILE *file, const sim_client *client)
{
    kept_client kept;
    memset(&kept, 0, sizeof kept);
    kept.client = *client;
    kept.client.sim = NULL;
    kept.client.device = NULL;
    kept.client.visit = NULL;
    kept.has_visit = client->visit != NULL;
    if (kept.has_visit) {
        kept.begun_j = client->visit->begun_j;
        sim_learner_progress(&client->visit->learner, &kept.progress);
    }
    return fwrite(&kept, sizeof kept, 1, file) == 1;
}

static bool write_all(simulation *sim, FILE *file)
{
    part parts[N_PARTS];
    const int n_parts = parts_of(sim, parts);
    sim_keep_head of;
    memset(&of, 0, sizeof of);
    (void)snprintf(of.magic, sizeof of.magic, "%s", SIM_MAGIC);
    memcpy(of.fingerprint, sim->fingerprint, sizeof of.fingerprint);
    of.number = sim->moment;
    of.told_us = sim->told_us;
    of.n_clients = sim->n_clients;
    of.n_rounds = sim->n_rounds;
    of.client_bytes = sizeof(kept_client);
    bool is_ok = fwrite(&of, sizeof of, 1, file) == 1;
    for (int i = 0; is_ok && i < n_parts; i++) {
        is_ok = fwrite(parts[i].bytes, parts[i].n, 1, file) == 1;
    }
    for (int64_t i = 0; is_ok && i < sim->n_clients; i++) {
        is_ok = write_client(file, &sim->clients[i]);
    }
    return is_ok;
}

/* A file under its name when it is whole. */
static bool write_moment(simulation *sim)
{
    char path[FLEET_PATH_BYTES];
    char half[FLEET_PATH_BYTES + 8];
    if (!sim_keep_path(path, sim->server->folder, SIM_MOMENT)) {
        return false;
    }
    (void)snprintf(half, sizeof half, "%s.part", path);
    FILE *file = fopen(half, "we");
    if (file == NULL) {
        return false;
    }
    bool is_ok = write_all(sim, file);
    is_ok = fclose(file) == 0 && is_ok;
    return is_ok && rename(half, path) == 0;
}

static int fail(const simulation *sim, const char *what)
{
    return program_fail(&fleet_program, "--state %s: %s: %s", sim->server->folder, what,
                        strerror(errno));
}

/* Both databases are one file each. */
static int settle(simulation *sim)
{
    const int status = sim_server_settle(sim, sim->moment);
    if (status != EXIT_OK) {
        return status;
    }
    loop_settle_runtime(sim->runtime);
    return sim_keep_settle(sim->server->folder, sim->moment) ? EXIT_OK
                                                             : fail(sim, "settling a moment");
}

static int keep(simulation *sim)
{
    sim->moment++;
    if (sim->events != NULL && fflush(sim->events) != 0) {
        return fail(sim, "writing --events");
    }
    const int status = sim_server_keep(sim, sim->moment);
    if (status != EXIT_OK) {
        return status;
    }
    if (!sim_keep_link(sim->server->folder, sim->moment) || !write_moment(sim)) {
        return fail(sim, "keeping a moment");
    }
    return settle(sim);
}

/* All clients anew, as after a kill; the trainings go on. */
static int renew_all(simulation *sim, bool (*renew_fn)(sim_client *client))
{
    for (int64_t i = 0; i < sim->n_clients; i++) {
        if (sim->clients[i].visit != NULL && !renew_fn(&sim->clients[i])) {
            return EXIT_FAILED;
        }
    }
    return EXIT_OK;
}

int sim_keep_step(simulation *sim, uint64_t round)
{
    if (round <= sim->newest_round && sim->n_events - sim->last_moment_events < MOST_EVENTS) {
        return EXIT_OK;
    }
    sim->newest_round = round > sim->newest_round ? round : sim->newest_round;
    sim->last_moment_events = sim->n_events;
    int status = renew_all(sim, sim_visit_pause);
    if (status == EXIT_OK && sim->server->keeps) {
        status = keep(sim);
    }
    return status == EXIT_OK ? renew_all(sim, sim_visit_renew) : status;
}

/* ---- back ---- */

static bool read_client(simulation *sim, FILE *file, int64_t index)
{
    kept_client kept;
    sim_client *client = &sim->clients[index];
    if (fread(&kept, sizeof kept, 1, file) != 1 || kept.client.index != index) {
        return false;
    }
    const sim_device *device = client->device;
    *client = kept.client;
    client->sim = sim;
    client->device = device;
    client->visit = NULL;
    return !kept.has_visit || sim_visit_resume(client, kept.begun_j, &kept.progress);
}

static bool read_all(simulation *sim, FILE *file, sim_keep_head *out_of)
{
    part parts[N_PARTS];
    const int n_parts = parts_of(sim, parts);
    if (fread(out_of, sizeof *out_of, 1, file) != 1 || strcmp(out_of->magic, SIM_MAGIC) != 0 ||
        out_of->client_bytes != sizeof(kept_client)) {
        return false;
    }
    if (strcmp(out_of->fingerprint, sim->fingerprint) != 0 || out_of->n_clients != sim->n_clients ||
        out_of->n_rounds != sim->n_rounds) {
        return false;
    }
    for (int i = 0; i < n_parts; i++) {
        if (fread(parts[i].bytes, parts[i].n, 1, file) != 1) {
            return false;
        }
    }
    for (int64_t i = 0; i < sim->n_clients; i++) {
        if (!read_client(sim, file, i)) {
            return false;
        }
    }
    return fgetc(file) == EOF;
}

int sim_keep_take(simulation *sim)
{
    char path[FLEET_PATH_BYTES];
    sim_keep_head of;
    if (!take_fingerprint(sim) || !sim_keep_path(path, sim->server->folder, SIM_MOMENT)) {
        return fail(sim, "reading devices and task");
    }
    FILE *file = sim->server->keeps ? fopen(path, "re") : NULL;
    if (file == NULL) {
        return EXIT_OK;
    }
    /* Of a kill between the two: what clients write from here on is of after the moment. */
    sim->moment = sim->server->moment;
    const int settled =
        sim_keep_settled(sim->server->folder) == sim->moment ? EXIT_OK : settle(sim);
    const bool is_ok = settled == EXIT_OK && read_all(sim, file, &of);
    (void)fclose(file);
    if (settled != EXIT_OK) {
        return settled;
    }
    if (!is_ok) {
        return program_fail(&fleet_program,
                            "--state %s: the simulation there is of other devices, costs or flags, "
                            "or of another build",
                            sim->server->folder);
    }
    sim->told_us = of.told_us;
    sim->last_moment_events = sim->n_events;
    sim->n_heap = 0;
    for (int64_t i = 0; i < sim->n_clients; i++) {
        if (!sim->clients[i].is_left_out && sim->clients[i].due_us >= 0) {
            sim_events_push(sim, i);
        }
    }
    if (!sim->flags->is_quiet) {
        (void)printf("going on after %" PRId64 " events, %.2f simulated hours\n", sim->n_events,
                     (double)sim->now_us / 3.6e9);
    }
    return EXIT_OK;
}
