/*
 * options.h - the command line of dunlin-server.
 */
#ifndef DUNLIN_SERVER_OPTIONS_H
#define DUNLIN_SERVER_OPTIONS_H

#include <dunlin/log.h>

#define DUNLIN_SERVER_HOST_BYTES 64u
#define DUNLIN_SERVER_NAMES 16u  /* most --name */
#define DUNLIN_SERVER_PROXIES 8u /* most --trusted-proxy */

/* Texts are borrowed from argv. */
typedef struct dunlin__server_options {
    char host[DUNLIN_SERVER_HOST_BYTES]; /* numeric, IPv4 or IPv6 */
    uint16_t port;                       /* 0: any free one */
    const char *port_file;
    const char *state_folder;
    const char *task_file;
    const char *mtls_ca;
    const char *test_set;
    const char *data_folder;
    const char *json_file;
    const char *faults_file;
    const char *tokens_file;       /* who may enrol, and for which place; NULL: anybody */
    const char *status_token_file; /* whoever knows it may read the status from afar */
    const char *certificate_file;  /* PEM, with its chain; NULL: a leaf of our own CA */
    const char *certificate_key_file;
    const char *names[DUNLIN_SERVER_NAMES]; /* host names and addresses for the leaf */
    uint32_t n_names;
    const char *proxies[DUNLIN_SERVER_PROXIES]; /* numeric addresses */
    uint32_t n_proxies;
    bool has_claimed_places; /* "index:N" is a place, without a proof */
    bool allows_replace;     /* a used token may be used by another key */
    bool has_mtls_places;    /* a client's certificate stands for a place */
    bool has_open_status;
    bool wants_rotation; /* of the signing key, and nothing else */
    uint64_t accept_ms;  /* shortest wait after taking part */
    uint64_t reject_ms;  /* shortest wait after not taking part */
    uint64_t seed;
    bool has_seed; /* it goes before the task file's */
    int32_t n_threads;
    dunlin_log_level log_level;
    bool wants_help;
    bool wants_version;
} dunlin__server_options;

/* ARGUMENT with one line naming the option, its value and what it takes. */
DUNLIN_NODISCARD dunlin_status dunlin__server_options_parse(int argc, const char *const *argv,
                                                            dunlin__server_options *out_options,
                                                            dunlin_error *error);

/* The text of --help. */
const char *dunlin__server_help(void);

#endif
