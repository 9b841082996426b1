/*
 * server_process.c - the server as a child process.
 */
#include "server_process.h"

#include "client/fake_server.h"

#include <criterion/criterion.h>

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void pause_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};
    (void)nanosleep(&pause, NULL);
}

void server_process_path(const server_process *server, const char *name, char out_path[192])
{
    (void)snprintf(out_path, 192, "%s/%s", server->folder, name);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file, "%s", path);
    cr_assert_geq(fputs(text, file), 0);
    cr_assert_eq(fclose(file), 0);
}

static pid_t spawn(const char *const *arguments, const char *log)
{
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    (void)dup2(fd, 1);
    (void)dup2(fd, 2);
    char *copy[24] = {NULL};
    for (size_t i = 0; i < 23 && arguments[i] != NULL; i++) {
        copy[i] = strdup(arguments[i]);
    }
    (void)execv(copy[0], copy);
    _exit(127);
}

/* Waits for the port file and reads it; 0 if the server died. */
static int wait_for_port(const server_process *server, const char *port_file)
{
    for (int i = 0; i < 600; i++) {
        int port = 0;
        FILE *file = fopen(port_file, "r");
        if (file != NULL) {
            int n_read = fscanf(file, "%d", &port);
            (void)fclose(file);
            if (n_read == 1) {
                return port;
            }
        }
        if (waitpid(server->pid, NULL, WNOHANG) != 0) {
            return 0;
        }
        pause_ms(50);
    }
    return 0;
}

static void read_key(server_process *server)
{
    FILE *file = fopen(server->key_file, "r");
    cr_assert_not_null(file);
    for (int i = 0; i < 65; i++) {
        unsigned byte = 0;
        cr_assert_eq(fscanf(file, "%2x", &byte), 1);
        server->signing_key[i] = (uint8_t)byte;
    }
    (void)fclose(file);
}

/* A test failure if it does not come up. */
static void launch(server_process *server)
{
    char task_file[192];
    char port_file[192];
    char state[192];
    char log[192];
    char address[32];
    server_process_path(server, "task.json", task_file);
    server_process_path(server, "port", port_file);
    server_process_path(server, "state", state);
    server_process_path(server, "server.log", log);
    (void)unlink(port_file);
    (void)snprintf(address, sizeof address, "127.0.0.1:%d", server->port);
    const char *const arguments[] = {DUNLIN_SERVER_PROGRAM,
                                     "--listen",
                                     address,
                                     "--port-file",
                                     port_file,
                                     "--state",
                                     state,
                                     "--task",
                                     task_file,
                                     "--windows",
                                     server->windows,
                                     "--log",
                                     "debug",
                                     server->tokens_file[0] != '\0' ? "--tokens"
                                                                    : "--claimed-places",
                                     server->tokens_file[0] != '\0' ? server->tokens_file : NULL,
                                     NULL};
    server->pid = spawn(arguments, log);
    server->port = wait_for_port(server, port_file);
    cr_assert_neq(server->port, 0, "the server did not come up: see %s", log);
}

void server_process_start(server_process *server, const char *task, const char *windows)
{
    server_process_start_with(server, task, windows, NULL);
}

void server_process_start_with(server_process *server, const char *task, const char *windows,
                               const char *tokens)
{
    char task_file[192];
    memset(server, 0, sizeof *server);
    fake_folder_make(server->folder);
    if (tokens != NULL) {
        server_process_path(server, "tokens", server->tokens_file);
        write_text(server->tokens_file, tokens);
    }
    (void)snprintf(server->windows, sizeof server->windows, "%s", windows);
    server_process_path(server, "task.json", task_file);
    write_text(task_file, task);
    launch(server);
    (void)snprintf(server->url, sizeof server->url, "https://127.0.0.1:%d", server->port);
    (void)snprintf(server->ca_file, sizeof server->ca_file, "%s/state/ca.pem", server->folder);
    (void)snprintf(server->key_file, sizeof server->key_file, "%s/state/signing.pub",
                   server->folder);
    read_key(server);
}

void server_process_kill(server_process *server)
{
    cr_assert_eq(kill(server->pid, SIGKILL), 0);
    cr_assert_eq(waitpid(server->pid, NULL, 0), server->pid);
}

void server_process_restart(server_process *server)
{
    launch(server);
}

void server_process_stop(server_process *server)
{
    int status = 0;
    cr_assert_eq(kill(server->pid, SIGTERM), 0);
    cr_assert_eq(waitpid(server->pid, &status, 0), server->pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the server ended with %d: see %s",
              status, server->folder);
    fake_folder_remove(server->folder);
}

typedef struct text {
    char *bytes;
    size_t n_bytes;
} text;

static size_t append(char *data, size_t size, size_t n, void *ctx)
{
    text *to = ctx;
    to->bytes = realloc(to->bytes, to->n_bytes + size * n + 1);
    memcpy(to->bytes + to->n_bytes, data, size * n);
    to->n_bytes += size * n;
    to->bytes[to->n_bytes] = '\0';
    return size * n;
}

char *server_process_status(const server_process *server)
{
    char url[128];
    text found = {.bytes = calloc(1, 1)};
    CURL *easy = curl_easy_init();
    (void)snprintf(url, sizeof url, "%s/v1/status", server->url);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_CAINFO, server->ca_file);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, append);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &found);
    CURLcode result = curl_easy_perform(easy);
    cr_assert_eq(result, CURLE_OK, "%s", curl_easy_strerror(result));
    curl_easy_cleanup(easy);
    return found.bytes;
}

void server_process_wait_rounds(const server_process *server, int n_rounds)
{
    for (int i = 0; i < 400; i++) {
        char *status = server_process_status(server);
        json_t *root = json_loads(status, 0, NULL);
        cr_assert_not_null(root, "%s", status);
        size_t n_closed = json_array_size(json_object_get(root, "rounds"));
        json_decref(root);
        free(status);
        if ((int)n_closed >= n_rounds) {
            return;
        }
        pause_ms(50);
    }
    cr_assert_fail("round %d does not close: see %s", n_rounds, server->folder);
}

void server_process_model(const server_process *server, int round, float *out_values, int64_t n)
{
    char path[192];
    (void)snprintf(path, sizeof path, "%s/state/models/%06d.weights", server->folder, round);
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s: %s", path, strerror(errno));
    cr_assert_eq(fread(out_values, sizeof(float), (size_t)n, file), (size_t)n);
    cr_assert_eq(fgetc(file), EOF);
    (void)fclose(file);
}

int server_process_run(const server_process *server, const char *const *arguments, const char *log)
{
    char path[192];
    int status = 0;
    server_process_path(server, log, path);
    pid_t pid = spawn(arguments, path);
    for (int i = 0; i < 2400; i++) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        }
        pause_ms(50);
    }
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    return -2;
}
