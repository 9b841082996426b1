/*
 * server_process.h - the real server as a child process on a free port, with a folder of its own.
 */
#ifndef DUNLIN_TESTS_SERVER_PROCESS_H
#define DUNLIN_TESTS_SERVER_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

typedef struct server_process {
    char folder[64]; /* state/, task.json, server.log; clients' stores may lie here too */
    char url[64];
    char ca_file[128];
    char key_file[128];
    uint8_t signing_key[65];
    pid_t pid;
    int port;
    char windows[32];
    char tokens_file[192]; /* "": places are claimed by index */
} server_process;

/* Writes the task file and starts the server; waits until it takes connections. `windows` is
 * "ACCEPT_MS:REJECT_MS" or with ":OVER_MS" after it. A test failure if it does not come up. */
void server_process_start(server_process *server, const char *task, const char *windows);

/* The same with a file of tokens; NULL: none. */
void server_process_start_with(server_process *server, const char *task, const char *windows,
                               const char *tokens);

/* SIGKILL: the server is gone, its folder stays. */
void server_process_kill(server_process *server);
/* Starts it again after a kill, over the same folder and on the same port; waits until it takes
 * connections. */
void server_process_restart(server_process *server);

/* SIGTERM; it must end with 0. Removes the folder. */
void server_process_stop(server_process *server);

/* Where a file of the folder lies. */
void server_process_path(const server_process *server, const char *name, char out_path[192]);

/* The server's status, as JSON text; to be freed. */
char *server_process_status(const server_process *server);

/* Waits, up to 20 s, until the status has so many closed rounds. */
void server_process_wait_rounds(const server_process *server, int n_rounds);

/* The base of a round as the server has it: n float32 values. */
void server_process_model(const server_process *server, int round, float *out_values, int64_t n);

/* Runs a program to its end (at most 120 s); its exit status. Output goes to `log` in the folder.
 */
int server_process_run(const server_process *server, const char *const *arguments, const char *log);

#endif
