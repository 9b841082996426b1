/*
 * main.c - dunlin-server: reads the command line, serves until a signal ends it.
 */
#include "http.h"
#include "log.h"
#include "options.h"
#include "server.h"

#include <mem/support.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
        int number = 0;
        (void)sigwait(awaited, &number);
        status = write_json(server, error);
    }
    dunlin__http_stop(http);
    return status;
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
