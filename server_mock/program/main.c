/*
 * main.c - dunlin-server: reads the command line, serves until a signal ends it.
 */
#include "command.h"
#include "stepped.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int tell(const dunlin_error *error)
{
    return program_refuse(&server_program, error->status, "%s",
                          error->text[0] != 0 ? error->text : dunlin_status_text(error->status));
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
    dunlin_server_options options = command->options;
    stepped time = {.fd = STDIN_FILENO, .out = stdout};
    if (command->is_stepped) {
        atomic_init(&time.now_ms, command->stepped_ms);
        options.is_stepped = true;
        options.now_ms_fn = stepped_now_ms;
        options.now_ctx = &time;
    }
    dunlin_status status = dunlin_server_create(&options, &server, &error);
    if (status == DUNLIN_OK) {
        status = dunlin_server_start(server, &error);
    }
    if (status == DUNLIN_OK) {
        status = command->is_stepped ? stepped_attend(&time, server, awaited, &error)
                                     : attend(server, awaited, &error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin_server_stop(server, &error);
    }
    dunlin_server_destroy(server);
    return status == DUNLIN_OK ? EXIT_OK : tell(&error);
}

/* --rotate-signing-key: what it did, for the one who has to tell the clients. */
static int rotate(const char *state_folder)
{
    dunlin_error error = {0};
    char key_id[DUNLIN_SERVER_KEY_ID_BYTES];
    if (dunlin_server_rotate_signing_key(state_folder, key_id, &error) != DUNLIN_OK) {
        return tell(&error);
    }
    (void)printf("key %s signs from the next start on; give clients %s/signing-next.pub as "
                 "their second key\n",
                 key_id, state_folder);
    return EXIT_OK;
}

/* --privacy, --secagg-table: the answer. */
static int answer(dunlin_status (*answer_fn)(const char *, char **, dunlin_error *),
                  const char *question)
{
    dunlin_error error = {0};
    char *text = NULL;
    if (answer_fn(question, &text, &error) != DUNLIN_OK) {
        return tell(&error);
    }
    (void)printf("%s\n", text);
    dunlin_server_free_text(text);
    return EXIT_OK;
}

int main(int argc, char **argv)
{
    server_command command;
    const args_result result = server_command_parse(argc, (const char *const *)argv, &command);
    if (result.is_done) {
        return result.exit_status;
    }
    if (command.privacy != NULL) {
        return answer(dunlin_server_privacy, command.privacy);
    }
    if (command.secagg != NULL) {
        return answer(dunlin_server_secagg, command.secagg);
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
