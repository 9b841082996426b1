/*
 * pipes.c - the clock of a server that runs as a child: moments go to its standard input, "at MS"
 * comes from its standard output when what is due has been done.
 */
#include "keep.h"

#include <errno.h>
#include <inttypes.h>
#include <memory/loop.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_MS 600000 /* folding and evaluating a large model takes its time */

bool sim_pipes_make(fleet_server *server)
{
    int to[2];
    int from[2];
    (void)signal(SIGPIPE, SIG_IGN); /* a server that has ended is a failed write, no death */
    if (pipe(to) != 0) {
        return false;
    }
    if (pipe(from) != 0) {
        (void)close(to[0]);
        (void)close(to[1]);
        return false;
    }
    server->pipes[0] = to[0];
    server->pipes[1] = to[1];
    server->pipes[2] = from[0];
    server->pipes[3] = from[1];
    server->has_pipes = true;
    return true;
}

void sim_pipes_child(const fleet_server *server)
{
    (void)dup2(server->pipes[0], STDIN_FILENO);
    (void)dup2(server->pipes[3], STDOUT_FILENO);
    for (int i = 0; i < 4; i++) {
        (void)close(server->pipes[i]);
    }
}

void sim_pipes_parent(fleet_server *server)
{
    (void)close(server->pipes[0]);
    (void)close(server->pipes[3]);
    server->pipes[0] = -1;
    server->pipes[3] = -1;
}

void sim_pipes_close(fleet_server *server)
{
    for (int i = 0; server->has_pipes && i < 4; i++) {
        if (server->pipes[i] >= 0) {
            (void)close(server->pipes[i]);
        }
    }
    server->has_pipes = false;
}

/* A line of the server; false when it has ended, or says nothing for long. */
static bool read_line(int fd, char *out, size_t size)
{
    size_t n = 0;
    while (n < size - 1) {
        struct pollfd input = {.fd = fd, .events = POLLIN};
        const int ready = poll(&input, 1, ANSWER_MS);
        if (ready < 0 && errno == EINTR) {
            continue;
        }
        const ssize_t n_read = ready > 0 ? read(fd, out + n, 1) : 0;
        if (n_read < 0 && errno == EINTR) {
            continue;
        }
        if (n_read <= 0) {
            return false;
        }
        if (out[n] == '\n') {
            break;
        }
        n++;
    }
    out[n] = '\0';
    return true;
}

/* A line to the server, and its answer, between which there may be others. */
static bool ask(const fleet_server *server, const char *line, const char *answer)
{
    char read[256];
    const size_t n = strlen(line);
    if (write(server->pipes[1], line, n) != (ssize_t)n) {
        return false;
    }
    do {
        if (!read_line(server->pipes[2], read, sizeof read)) {
            return false;
        }
    } while (strcmp(read, answer) != 0);
    return true;
}

bool sim_server_tell(simulation *sim, int64_t us)
{
    char line[64];
    char answer[64];
    const int64_t ms = SIM_BEGIN_MS + us / 1000;
    if (sim->server->loop != NULL) {
        loop_tell(sim->server->loop, ms);
    } else {
        (void)snprintf(line, sizeof line, "%" PRId64 "\n", ms);
        (void)snprintf(answer, sizeof answer, "at %" PRId64, ms);
        if (!ask(sim->server, line, answer)) {
            return false;
        }
    }
    sim->told_us = us;
    return true;
}

/* Whatever the server says of a moment, in a line. */
static int ask_moment(simulation *sim, const char *verb, const char *answer, uint64_t number)
{
    char line[64];
    char wanted[64];
    (void)snprintf(line, sizeof line, "%s %" PRIu64 "\n", verb, number);
    (void)snprintf(wanted, sizeof wanted, "%s %" PRIu64, answer, number);
    if (ask(sim->server, line, wanted)) {
        return EXIT_OK;
    }
    return fleet_server_is_alive(sim->server)
               ? program_fail(&fleet_program, "the server at %s does not %s moments any more",
                              sim->server->url, verb)
               : EXIT_FAILED; /* the line has been printed */
}

int sim_server_keep(simulation *sim, uint64_t number)
{
    char path[FLEET_PATH_BYTES + 40];
    dunlin_error error = {0};
    if (sim->server->loop == NULL) {
        return ask_moment(sim, "keep", "kept", number);
    }
    (void)snprintf(path, sizeof path, "%s/" SIM_SERVER_MOMENT "%" PRIu64, sim->server->folder,
                   number);
    return loop_keep(sim->server->loop, path, &error) == DUNLIN_OK
               ? EXIT_OK
               : program_fail(&fleet_program, "--state %s: %s", sim->server->folder, error.text);
}

int sim_server_settle(simulation *sim, uint64_t number)
{
    dunlin_error error = {0};
    if (sim->server->loop == NULL) {
        return ask_moment(sim, "settle", "settled", number);
    }
    return loop_settle(sim->server->loop, &error) == DUNLIN_OK
               ? EXIT_OK
               : program_fail(&fleet_program, "--state %s: %s", sim->server->folder, error.text);
}
