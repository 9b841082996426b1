/*
 * bench_calls.c - processor time of an enrolment and of a check-in at the server, by the number of
 * devices it knows: calls without sockets, signing included. bench_calls N...
 *
 * A line each: devices, how a place is proved, ms an enrolment, ms a check-in that gets no work.
 */
#include "rounds/state.h"
#include "server/device.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_CALLS 400
#define COHORT 50

static double cpu_ms(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void must(dunlin_status status, const dunlin_error *error)
{
    if (status != DUNLIN_OK) {
        (void)fprintf(stderr, "bench_calls: %s\n", error->text);
        exit(1);
    }
}

/* Devices that nobody has the keys of. */
static void fill(dunlin__server *server, unsigned n_devices)
{
    dunlin_error error = {0};
    must(dunlin__server_db_begin(server->db, false, &error), &error);
    for (unsigned i = 0; i < n_devices; i++) {
        dunlin__device_row row = {.client_index = i};
        (void)snprintf(row.id, sizeof row.id, "filler-%u", i);
        must(dunlin__random_bytes(row.public_key, sizeof row.public_key, &error), &error);
        must(dunlin__server_db_add_device(server->db, &row, &error), &error);
    }
    must(dunlin__server_db_commit(server->db, &error), &error);
    must(dunlin__server_reload(server, &error), &error);
}

static char *make_tokens(unsigned n_tokens)
{
    const size_t line_bytes = 33;
    char *text = malloc(n_tokens * line_bytes + 1);
    for (unsigned i = 0; text != NULL && i < n_tokens; i++) {
        uint8_t bytes[16] = {0};
        dunlin_error error = {0};
        must(dunlin__random_bytes(bytes, sizeof bytes, &error), &error);
        dunlin__hex_encode(bytes, sizeof bytes, text + i * line_bytes);
        text[i * line_bytes + 32] = '\n';
        text[(i + 1) * line_bytes] = '\0';
    }
    return text;
}

static void measure(unsigned n_devices, bool has_tokens)
{
    static test_device devices[N_CALLS];
    char keys[200];
    test_server fixture;
    char *tokens = NULL;
    test_server_folder(&fixture);
    if (has_tokens) {
        tokens = make_tokens(n_devices + N_CALLS);
        static char path[256];
        (void)snprintf(path, sizeof path, "%s", test_server_write(&fixture, "tokens", tokens));
        fixture.tokens = path;
    }
    (void)snprintf(keys, sizeof keys,
                   ", \"rounds\": 1000, \"cohort\": %d, \"clients\": %u, "
                   "\"min_clients_for_start\": 1",
                   COHORT, n_devices + N_CALLS);
    test_server_open(&fixture, keys, 0);
    fill(&fixture.server, n_devices);
    for (int i = 0; i < N_CALLS; i++) {
        test_device_make(&devices[i], &fixture);
    }
    const double begun_ms = cpu_ms();
    for (int i = 0; i < N_CALLS; i++) {
        char invitation[64] = "";
        if (has_tokens) {
            (void)snprintf(invitation, sizeof invitation, "%.32s",
                           tokens + 33 * (n_devices + (unsigned)i));
        }
        if (test_enrol_with(&devices[i], invitation) != 200) {
            (void)fprintf(stderr, "bench_calls: %s\n", devices[i].status.text);
            exit(1);
        }
    }
    const double enrolled_ms = cpu_ms();
    for (int i = 0; i < N_CALLS; i++) {
        dunlin__checkin_response answer;
        if (test_checkin(&devices[i], &answer) != 200) {
            (void)fprintf(stderr, "bench_calls: %s\n", devices[i].status.text);
            exit(1);
        }
    }
    const double done_ms = cpu_ms();
    (void)printf("%u,%s,%.4f,%.4f\n", n_devices, has_tokens ? "token" : "first",
                 (enrolled_ms - begun_ms) / N_CALLS, (done_ms - enrolled_ms) / N_CALLS);
    (void)fflush(stdout);
    test_server_close(&fixture);
    test_server_end(&fixture);
    free(tokens);
}

int main(int argc, char **argv)
{
    (void)printf("devices,place,enrol_ms,checkin_ms\n");
    for (int i = 1; i < argc; i++) {
        const unsigned n_devices = (unsigned)strtoul(argv[i], NULL, 10);
        if (n_devices == 0 || n_devices + N_CALLS > DUNLIN_SERVER_CLIENTS) {
            (void)fprintf(stderr, "bench_calls: %s: expected 1 to %u devices\n", argv[i],
                          DUNLIN_SERVER_CLIENTS - N_CALLS);
            return 2;
        }
        measure(n_devices, false);
        measure(n_devices, true);
    }
    return 0;
}
