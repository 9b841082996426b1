/*
 * events.c - what happens next, and the hash of what has happened.
 *
 * Invariant: a client has at most one event; of two at the same time that of the lower index comes
 * first, and a client's own come in their sequence.
 */
#include "simulation.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool is_before(const simulation *sim, int64_t a, int64_t b)
{
    const int64_t first_us = sim->clients[a].due_us;
    const int64_t second_us = sim->clients[b].due_us;
    return first_us != second_us ? first_us < second_us : a < b;
}

static void swap(simulation *sim, int64_t a, int64_t b)
{
    const int64_t kept = sim->heap[a];
    sim->heap[a] = sim->heap[b];
    sim->heap[b] = kept;
}

void sim_events_push(simulation *sim, int64_t index)
{
    int64_t at = sim->n_heap++;
    sim->heap[at] = index;
    while (at > 0 && is_before(sim, sim->heap[at], sim->heap[(at - 1) / 2])) {
        swap(sim, at, (at - 1) / 2);
        at = (at - 1) / 2;
    }
}

int64_t sim_events_pop(simulation *sim)
{
    const int64_t first = sim->heap[0];
    sim->heap[0] = sim->heap[--sim->n_heap];
    int64_t at = 0;
    for (;;) {
        int64_t least = at;
        for (int64_t child = 2 * at + 1; child <= 2 * at + 2 && child < sim->n_heap; child++) {
            least = is_before(sim, sim->heap[child], sim->heap[least]) ? child : least;
        }
        if (least == at) {
            return first;
        }
        swap(sim, at, least);
        at = least;
    }
}

/* The file of a run that goes on ends where that was. */
static bool open_file(simulation *sim)
{
    static const char HEAD[] = "time_us,client,sequence,phase,outcome,round,sent,received\n";
    const bool goes_on = sim->n_events > 0;
    sim->events = fopen(sim->flags->events_file, goes_on ? "r+e" : "we");
    if (sim->events == NULL) {
        return false;
    }
    if (!goes_on) {
        sim->events_bytes = (int64_t)sizeof HEAD - 1;
        return fputs(HEAD, sim->events) >= 0;
    }
    return fseek(sim->events, 0, SEEK_END) == 0 && ftell(sim->events) >= sim->events_bytes &&
           ftruncate(fileno(sim->events), (off_t)sim->events_bytes) == 0 &&
           fseek(sim->events, 0, SEEK_END) == 0;
}

bool sim_events_begin(simulation *sim)
{
    return psa_crypto_init() == PSA_SUCCESS && (sim->flags->events_file == NULL || open_file(sim));
}

void sim_events_note(simulation *sim, const sim_client *client, int64_t us, int32_t outcome,
                     uint64_t sent, uint64_t received)
{
    char bytes[sizeof sim->chain + 192];
    char *line = bytes + sizeof sim->chain;
    size_t n_hash = 0;
    const int n =
        snprintf(line, 192,
                 "%" PRId64 ",%" PRId64 ",%" PRId64 ",%s,%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n",
                 us, client->index, client->sequence, dunlin_phase_name(client->phase),
                 outcome >= 0 ? dunlin_outcome_name((dunlin_outcome)outcome) : "", client->round,
                 sent, received);
    memcpy(bytes, sim->chain, sizeof sim->chain);
    (void)psa_hash_compute(PSA_ALG_SHA_256, (const uint8_t *)bytes, sizeof sim->chain + (size_t)n,
                           sim->chain, sizeof sim->chain, &n_hash);
    sim->n_events++;
    if (sim->events != NULL) {
        (void)fputs(line, sim->events);
        sim->events_bytes += n;
    }
}

bool sim_events_end(simulation *sim)
{
    for (size_t i = 0; i < sizeof sim->chain; i++) {
        (void)snprintf(sim->events_sha256 + 2 * i, 3, "%02x", sim->chain[i]);
    }
    const bool is_written = sim->events == NULL || fclose(sim->events) == 0;
    sim->events = NULL;
    return is_written;
}
