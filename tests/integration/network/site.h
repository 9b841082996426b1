/*
 * site.h - the real server inside the test's own process, over real TLS, with a fault script that
 * can be changed between rounds; and a device whose clock the test moves.
 */
#ifndef DUNLIN_TESTS_SITE_H
#define DUNLIN_TESTS_SITE_H

#include "client/fake_server.h"

#include <dunlin/client.h>

typedef struct site_parts site_parts;

typedef struct site {
    char folder[64];
    char host[16];
    char url[64];
    char ca_file[160];
    const uint8_t *signing_key;
    uint16_t port;
    site_parts *parts;
} site;

/* Opens a server with the task (JSON); it takes connections after site_listen(). */
void site_open(site *where, const char *task);
/* The same at another address than 127.0.0.1: "[::1]". */
void site_open_at(site *where, const char *task, const char *host);
/* Takes connections, with these faults (NULL: none). What listened before is stopped. */
void site_listen(site *where, const char *faults);
void site_close(site *where);
/* Before listening: only clients with a certificate under the site's own CA get in. */
void site_want_certificates(site *where);

/* Body bytes the server has taken in and sent out, requests, and faults that struck. */
typedef struct site_counts {
    uint64_t bytes_up;
    uint64_t bytes_down;
    uint64_t n_requests;
    uint64_t n_faults;
} site_counts;
site_counts site_count(const site *where);

/* A stream of the base of a round, "weights" or "control": n_values of them. */
void site_read_model(const site *where, uint64_t round, const char *stream, uint64_t n_values,
                     float *out_values);

/* Waits until the current round is this one, or a later. */
void site_wait_round(const site *where, uint64_t round);

/* A device with a store of its own, whose sleep takes no time. */
typedef struct site_device {
    const site *where;
    int64_t skipped_ms; /* before the system's clocks */
    dunlin_alloc_counter memory;
    fake_learner learner;
    dunlin_learner plug;
    dunlin_runtime_options shared;
    dunlin_client_options options;
    dunlin_runtime *runtime;
    dunlin_client *client;
    char store[128];
} site_device;

/* Fills options for a device of that name; may be changed before open. */
void site_device_make(site_device *device, const site *where, const char *name);
/* Opens what the store has, against the address the site has now. */
void site_device_open(site_device *device);
/* Closes; no byte of the runtime's and the client's memory is left. */
void site_device_close(site_device *device);
/* Lets the wait pass that the client asks for. */
void site_device_rest(site_device *device);
/* How many files and folders of rounds the store holds beside its database. */
int site_device_count_files(const site_device *device);

/* Open descriptors and threads of this process. */
int site_count_entries(const char *folder);

#endif
