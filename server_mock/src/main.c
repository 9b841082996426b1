/*
 * main.c - dunlin-server: reads the command line, serves until a signal ends it.
 */
#include "base/certs.h"
#include "base/files.h"
#include "base/log.h"
#include "http/http_daemon.h"
#include "server/lifecycle.h"
#include "server/status.h"
#include "state/context.h"
#include "task/options.h"
#include "task/task.h"

#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

static dunlin_status write_port(const char *path, uint16_t port, dunlin_error *error)
{
    char text[16];
    int n = snprintf(text, sizeof text, "%u\n", (unsigned)port);
    return dunlin__server_file_write(path, text, (size_t)n, error);
}

static dunlin_status write_json(dunlin__server *server, dunlin_error *error)
{
    const char *path = server->options.json_file;
    if (path == NULL) {
        return DUNLIN_OK;
    }
    char *text = dunlin__server_status_text(server);
    if (text == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "main", 0, "the status for %.120s", path);
    }
    dunlin_status status = dunlin__server_file_write(path, text, strlen(text), error);
    free(text);
    return status;
}

/* Certificate and tokens as they are now; what is wrong with them is logged, and the old ones stay.
 */
static dunlin_status refresh(dunlin__server *server, dunlin__http *http, bool is_asked,
                             dunlin_error *error)
{
    bool is_new = false;
    dunlin_status status = dunlin__http_renew(http, &is_new, error);
    if (is_new) {
        dunlin__log(&server->log, DUNLIN_LOG_INFO, "certs", "a new certificate is in use");
        return status;
    }
    if (status != DUNLIN_OK) {
        dunlin__log(&server->log, DUNLIN_LOG_ERROR, "certs", "%s", error->text);
    }
    if (is_asked && dunlin__server_read_tokens(server, error) != DUNLIN_OK) {
        dunlin__log(&server->log, DUNLIN_LOG_ERROR, "places", "%s", error->text);
    }
    return DUNLIN_OK;
}

/* Waits for the end, and looks after the certificate meanwhile. */
static dunlin_status attend(dunlin__server *server, dunlin__http *http, const sigset_t *awaited,
                            dunlin_error *error)
{
    const struct timespec period = {.tv_sec = 3600};
    for (;;) {
        int number = sigtimedwait(awaited, NULL, &period);
        if (number == SIGTERM || number == SIGINT) {
            return DUNLIN_OK;
        }
        if (number == SIGHUP || errno == EAGAIN) {
            DUNLIN_TRY(refresh(server, http, number == SIGHUP, error));
        }
    }
}

/* Serves until a signal comes. */
static dunlin_status serve(dunlin__server *server, const sigset_t *awaited, dunlin_error *error)
{
    const dunlin__server_options *options = &server->options;
    dunlin__http *http = NULL;
    uint16_t port = 0;
    DUNLIN_TRY(dunlin__server_start(server, error));
    DUNLIN_TRY(dunlin__http_start(server, &http, &port, error));
    dunlin_status status = write_port(options->port_file, port, error);
    if (status == DUNLIN_OK) {
        bool is_ipv6 = strchr(options->host, ':') != NULL;
        dunlin__log(&server->log, DUNLIN_LOG_INFO, "main", "listening on https://%s%s%s:%u",
                    is_ipv6 ? "[" : "", options->host, is_ipv6 ? "]" : "", (unsigned)port);
        status = attend(server, http, awaited, error);
    }
    if (status == DUNLIN_OK) {
        status = write_json(server, error);
    }
    dunlin__http_stop(http);
    return status;
}

/* --rotate-signing-key: what it did, for the one who has to tell the clients. */
static int rotate(const dunlin__server_options *options)
{
    dunlin_error error = {0};
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin__server_certs certs;
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/lock", options->state_folder);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
        bool is_used = fd >= 0;
        if (is_used) {
            (void)close(fd);
        }
        (void)snprintf(error.text, sizeof error.text, "--rotate-signing-key: %.120s %s",
                       options->state_folder,
                       is_used ? "is in use: stop the server first" : "holds no server's state");
        return tell(&error, EXIT_FAILED);
    }
    dunlin_status status =
        dunlin__server_certs_rotate(options->state_folder, &alloc, &certs, &error);
    if (status == DUNLIN_OK) {
        (void)printf("key %s signs from the next start on; give clients %s/signing-next.pub as "
                     "their second key\n",
                     certs.key_id, options->state_folder);
    }
    dunlin__server_certs_free(&certs, &alloc);
    (void)close(fd);
    return status == DUNLIN_OK ? EXIT_OK : tell(&error, EXIT_FAILED);
}

int main(int argc, char **argv)
{
    dunlin_error error = {0};
    dunlin__server_options options;
    if (dunlin__server_options_parse(argc, (const char *const *)argv, &options, &error) !=
        DUNLIN_OK) {
        return tell(&error, EXIT_MISUSE);
    }
    if (options.wants_help) {
        (void)fputs(dunlin__server_help(), stdout);
        return EXIT_OK;
    }
    if (options.wants_version) {
        (void)printf("dunlin-server %s\n", dunlin_version_string());
        return EXIT_OK;
    }
    sigset_t awaited;
    hold_signals(&awaited);
    (void)umask(077); /* the state is nobody else's */
    if (options.wants_rotation) {
        return rotate(&options);
    }
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin__server_task task;
    if (dunlin__server_task_read(options.task_file, &alloc, &task, &error) != DUNLIN_OK) {
        return tell(&error, EXIT_FAILED);
    }
    dunlin_log log = dunlin__server_log(options.log_level);
    dunlin__server *server = dunlin__alloc_zeroed(&alloc, 1, sizeof *server);
    if (server == NULL) {
        dunlin__server_task_free(&task, &alloc);
        return tell(&(dunlin_error){.status = DUNLIN_MEMORY}, EXIT_FAILED);
    }
    dunlin_status status = dunlin__server_open(server, &options, &task, &log, &error);
    if (status == DUNLIN_OK) {
        status = serve(server, &awaited, &error);
        dunlin__server_close(server);
    }
    dunlin__free_array(&alloc, server, 1, sizeof *server);
    return status == DUNLIN_OK ? EXIT_OK : tell(&error, EXIT_FAILED);
}
