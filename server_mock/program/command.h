/*
 * command.h - the command line of dunlin-server.
 */
#ifndef DUNLIN_SERVER_COMMAND_H
#define DUNLIN_SERVER_COMMAND_H

#include <dunlin/server.h>

#define COMMAND_HOST_BYTES 64

/* Texts are borrowed from argv; `options` points into the struct, which is not to be moved. */
typedef struct server_command {
    dunlin_server_options options;
    char host[COMMAND_HOST_BYTES]; /* "": not given */
    const char *names[DUNLIN_SERVER_MOST_NAMES];
    const char *proxies[DUNLIN_SERVER_MOST_PROXIES];
    dunlin_log_level log_level;
    bool wants_rotation; /* of the signing key, and nothing else */
    bool wants_help;
    bool wants_version;
} server_command;

/* ARGUMENT with one line naming the option, its value and what it takes. */
DUNLIN_NODISCARD dunlin_status server_command_parse(int argc, const char *const *argv,
                                                    server_command *out_command,
                                                    dunlin_error *error);

/* The text of --help. */
const char *server_command_help(void);

#endif
