/*
 * folder.c - the folder of a simulation that keeps moments: nobody else's while it runs, and put
 * back to its last moment before anything in it is opened.
 */
#include "keep.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <memory/loop.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define LOCK "simulation.lock"
#define SERVER_LOCK "server/lock" /* which dunlin-server holds on its own folder */
#define END_MS 60000              /* within which a server whose fleet was killed ends by itself */
#define LOOK_MS 20

bool sim_can_keep(const fleet_flags *flags)
{
    return flags->state_folder != NULL && loop_has_moments() && !flags->sends_telemetry &&
           !flags->is_secagg && !flags->is_keeping_model && flags->feedback == 0 &&
           flags->dp == NULL;
}

/* Until the process ends: a kill gives it back. */
static int lock_folder(fleet_server *server)
{
    char path[FLEET_PATH_BYTES];
    server->lock_fd = sim_keep_path(path, server->folder, LOCK)
                          ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)
                          : -1;
    if (server->lock_fd >= 0 && flock(server->lock_fd, LOCK_EX | LOCK_NB) == 0) {
        server->keeps = true;
        return EXIT_OK;
    }
    const bool is_used = server->lock_fd >= 0 && errno == EWOULDBLOCK;
    const int code = errno;
    if (server->lock_fd >= 0) {
        (void)close(server->lock_fd);
    }
    return program_fail(&fleet_program, "--state %s: %s", server->folder,
                        is_used ? "another run is in it" : strerror(code));
}

/* The server of a fleet that was killed finds its input closed, and ends. */
static int wait_for_server(const fleet_server *server)
{
    char path[FLEET_PATH_BYTES];
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    const int fd =
        sim_keep_path(path, server->folder, SERVER_LOCK) ? open(path, O_RDWR | O_CLOEXEC) : -1;
    bool is_free = fd < 0; /* there was none */
    for (int waited_ms = 0; !is_free && waited_ms < END_MS; waited_ms += LOOK_MS) {
        is_free = flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (!is_free) {
            (void)nanosleep(&pause, NULL);
        }
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return is_free ? EXIT_OK
                   : program_fail(&fleet_program,
                                  "--state %s: the server of the run before has not ended within "
                                  "%d s",
                                  server->folder, END_MS / 1000);
}

int sim_folder_take(const fleet_flags *flags, fleet_server *server)
{
    bool is_there = false;
    int64_t told_us = 0;
    server->begin_ms = SIM_BEGIN_MS;
    if (flags->devices_file == NULL || !sim_can_keep(flags)) {
        return EXIT_OK;
    }
    int exit_status = lock_folder(server);
    exit_status = exit_status == EXIT_OK ? wait_for_server(server) : exit_status;
    if (exit_status != EXIT_OK) {
        return exit_status;
    }
    if (!sim_keep_rewind(server->folder, &is_there, &server->moment, &told_us)) {
        return program_fail(&fleet_program, "--state %s: the run cannot be gone on with: %s",
                            server->folder, strerror(errno));
    }
    server->begin_ms += is_there ? told_us / 1000 : 0;
    return EXIT_OK;
}

void sim_folder_give(fleet_server *server)
{
    if (server->keeps) {
        (void)close(server->lock_fd);
        server->keeps = false;
    }
}
