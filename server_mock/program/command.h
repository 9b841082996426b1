/*
 * command.h - the command line of dunlin-server.
 */
#ifndef DUNLIN_SERVER_COMMAND_H
#define DUNLIN_SERVER_COMMAND_H

#include <dunlin/server.h>

#include <common/args.h>

#define COMMAND_HOST_BYTES 64

extern const program_info server_program;

/* Texts are borrowed from argv; `options` points into the struct, which is not to be moved. */
typedef struct server_command {
    dunlin_server_options options;
    char host[COMMAND_HOST_BYTES]; /* "": not given */
    const char *names[DUNLIN_SERVER_MOST_NAMES];
    const char *proxies[DUNLIN_SERVER_MOST_PROXIES];
    int64_t n_threads;
    dunlin_log_level log_level;
    bool wants_rotation; /* of the signing key, and nothing else */
    int64_t stepped_ms;  /* the first moment of simulated time */
    bool is_stepped;     /* time comes on standard input */
    const char *privacy; /* a question of privacy, and nothing else; NULL: none */
    const char *secagg;  /* of secure aggregation, the same */
} server_command;

/* An error, or a missing option, was reported in one line that names the option. */
args_result server_command_parse(int argc, const char *const *argv, server_command *out_command);

#endif
