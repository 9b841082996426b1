/*
 * main.c - dunlin-server: reads the command line, serves until a signal ends it.
 */
#include "command.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_MISUSE = 2 };

static int tell(const dunlin_error *error, int exit_code)
{
    (void)fprintf(stderr, "dunlin-server: %s\n",
                  error->text[0] != 0 ? error->text : dunlin_status_text(error->status));
    return exit_code;
}

/* Signals are waited for in one place; every thread made later inherits the mask. */
static void hold_signals(sigset_t *out_awaited)
{
    (void)sigemptyset(out_awaited);
    (void)sigaddset(out_awaited, SIGTERM);
    (void)sigaddset(out_awaited, SIGINT);
    (void)sigaddset(out_awaited, SIGHUP);
    sigset_t held = *out_awaited;
    (void)sigaddset(&held, SIGPIPE);
    (void)sigaddset(&held, SIGXFSZ); /* a file-size limit is a failed write, no death */
    (void)pthread_sigmask(SIG_BLOCK, &held, NULL);
}

/* Waits for the end, and looks after the certificate meanwhile. */
static dunlin_status attend(dunlin_server *server, const sigset_t *awaited, dunlin_error *error)
{
    const struct timespec period = {.tv_sec = 3600};
    for (;;) {
        int number = sigtimedwait(awaited, NULL, &period);
        if (number == SIGTERM || number == SIGINT) {
            return DUNLIN_OK;
        }
        if (number == SIGHUP || errno == EAGAIN) {
            const dunlin_status status = dunlin_server_refresh(server, number == SIGHUP, error);
            if (status != DUNLIN_OK) {
                return status;
            }
        }
    }
}

/* Serves until a signal comes. */
static int serve(const server_command *command, const sigset_t *awaited)
{
    dunlin_error error = {0};
    dunlin_server *server = NULL;
    dunlin_status status = dunlin_server_create(&command->options, &server, &error);
    if (status == DUNLIN_OK) {
        status = dunlin_server_start(server, &error);
    }
    if (status == DUNLIN_OK) {
        status = attend(server, awaited, &error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin_server_stop(server, &error);
    }
    dunlin_server_destroy(server);
    return status == DUNLIN_OK ? EXIT_OK : tell(&error, EXIT_FAILED);
}

/* --rotate-signing-key: what it did, for the one who has to tell the clients. */
static int rotate(const char *state_folder)
{
    dunlin_error error = {0};
    char key_id[DUNLIN_SERVER_KEY_ID_BYTES];
    if (dunlin_server_rotate_signing_key(state_folder, key_id, &error) != DUNLIN_OK) {
        return tell(&error, EXIT_FAILED);
    }
    (void)printf("key %s signs from the next start on; give clients %s/signing-next.pub as "
                 "their second key\n",
                 key_id, state_folder);
    return EXIT_OK;
}

int main(int argc, char **argv)
{
    dunlin_error error = {0};
    server_command command;
    if (server_command_parse(argc, (const char *const *)argv, &command, &error) != DUNLIN_OK) {
        return tell(&error, EXIT_MISUSE);
    }
    if (command.wants_help) {
        (void)fputs(server_command_help(), stdout);
        return EXIT_OK;
    }
    if (command.wants_version) {
        (void)printf("dunlin-server %s\n", dunlin_version_string());
        return EXIT_OK;
    }
    sigset_t awaited;
    hold_signals(&awaited);
    (void)umask(077); /* the state is nobody else's */
    if (command.wants_rotation) {
        return rotate(command.options.state_folder);
    }
    command.options.log = dunlin_server_log(command.log_level);
    return serve(&command, &awaited);
}
