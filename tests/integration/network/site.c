/*
 * site.c - opens and closes the server in this process; devices with a clock that can be moved.
 */
#include "site.h"

#include "http/http_daemon.h"
#include "server/lifecycle.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct site_parts {
    dunlin__server server;
    dunlin__http *http;
    dunlin_alloc alloc;
    char state[128];
    char faults[128];
    char address[16]; /* the host, without the brackets of a URL */
};

static void rest_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};
    (void)nanosleep(&pause, NULL);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file, "%s", path);
    cr_assert_geq(fputs(text, file), 0);
    cr_assert_eq(fclose(file), 0);
}

void site_open(site *where, const char *task)
{
    site_open_at(where, task, "127.0.0.1");
}

void site_open_at(site *where, const char *task, const char *host)
{
    dunlin_error error = {0};
    dunlin_log silent = {0};
    dunlin__server_task read;
    char path[128];
    memset(where, 0, sizeof *where);
    (void)snprintf(where->host, sizeof where->host, "%s", host);
    fake_folder_make(where->folder);
    site_parts *parts = calloc(1, sizeof *parts);
    cr_assert_not_null(parts);
    where->parts = parts;
    parts->alloc = dunlin__alloc_or_default(NULL);
    const bool is_bracketed = host[0] == '[';
    (void)snprintf(parts->address, sizeof parts->address, "%.*s",
                   (int)strlen(host) - 2 * is_bracketed, host + is_bracketed);
    (void)snprintf(path, sizeof path, "%s/task.json", where->folder);
    (void)snprintf(parts->state, sizeof parts->state, "%s/state", where->folder);
    (void)snprintf(parts->faults, sizeof parts->faults, "%s/faults", where->folder);
    write_text(path, task);
    cr_assert_eq(dunlin__server_task_read(path, &parts->alloc, &read, &error), DUNLIN_OK, "%s",
                 error.text);
    dunlin_server_options options = DUNLIN_SERVER_OPTIONS_INIT;
    options.host = parts->address;
    options.state_folder = parts->state;
    options.task_file = path;
    options.accept_ms = 1;
    options.reject_ms = 2;
    options.has_claimed_places = true;
    cr_assert_eq(dunlin_server_options_check(&options, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(dunlin__server_open(&parts->server, &options, &read, &silent, &error), DUNLIN_OK,
                 "%s", error.text);
    cr_assert_eq(dunlin__server_start(&parts->server, &error), DUNLIN_OK, "%s", error.text);
    (void)snprintf(where->ca_file, sizeof where->ca_file, "%s/ca.pem", parts->state);
    where->signing_key = parts->server.certs.signing_public;
}

void site_listen(site *where, const char *faults)
{
    dunlin_error error = {0};
    site_parts *parts = where->parts;
    dunlin__http_stop(parts->http);
    parts->http = NULL;
    parts->server.options.faults_file = faults != NULL ? parts->faults : NULL;
    if (faults != NULL) {
        write_text(parts->faults, faults);
    }
    cr_assert_eq(dunlin__http_start(&parts->server, &parts->http, &where->port, &error), DUNLIN_OK,
                 "%s", error.text);
    (void)snprintf(where->url, sizeof where->url, "https://%s:%u", where->host,
                   (unsigned)where->port);
}

void site_want_certificates(site *where)
{
    where->parts->server.options.mtls_ca = where->ca_file;
}

void site_close(site *where)
{
    dunlin__http_stop(where->parts->http);
    dunlin__server_close(&where->parts->server);
    free(where->parts);
    fake_folder_remove(where->folder);
}

site_counts site_count(const site *where)
{
    dunlin__server_counters *counters = &where->parts->server.counters;
    return (site_counts){.bytes_up = atomic_load(&counters->body_bytes_up),
                         .bytes_down = atomic_load(&counters->body_bytes_down),
                         .n_requests = atomic_load(&counters->n_requests),
                         .n_faults = atomic_load(&counters->n_faults)};
}

void site_read_model(const site *where, uint64_t round, const char *stream, uint64_t n_values,
                     float *out_values)
{
    char path[192];
    (void)snprintf(path, sizeof path, "%s/models/%06llu.%s", where->parts->state,
                   (unsigned long long)round, stream);
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fread(out_values, sizeof(float), n_values, file), n_values, "%s", path);
    cr_assert_eq(fgetc(file), EOF, "%s is longer", path);
    cr_assert_eq(fclose(file), 0);
}

void site_wait_round(const site *where, uint64_t round)
{
    dunlin__server *server = &where->parts->server;
    for (int i = 0; i < 2000; i++) {
        (void)pthread_mutex_lock(&server->lock);
        uint64_t at_hand = server->round.round;
        (void)pthread_mutex_unlock(&server->lock);
        if (at_hand >= round) {
            return;
        }
        rest_ms(5);
    }
    cr_assert_fail("round %llu is not reached", (unsigned long long)round);
}

/* --- devices --- */

static int64_t clock_ms(const site_device *device, clockid_t id)
{
    struct timespec now = {0};
    (void)clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + device->skipped_ms;
}

static int64_t wall_ms(void *ctx)
{
    return clock_ms(ctx, CLOCK_REALTIME);
}

static int64_t boot_ms(void *ctx)
{
    return clock_ms(ctx, CLOCK_MONOTONIC);
}

static void skip_ms(void *ctx, int64_t ms)
{
    ((site_device *)ctx)->skipped_ms += ms;
}

void site_device_make(site_device *device, const site *where, const char *name)
{
    memset(device, 0, sizeof *device);
    device->where = where;
    device->plug = fake_learner_make(&device->learner);
    dunlin_alloc_counter_init(&device->memory, NULL);
    (void)snprintf(device->store, sizeof device->store, "%s/%s", where->folder, name);
    device->shared = (dunlin_runtime_options)DUNLIN_RUNTIME_OPTIONS_INIT;
    device->shared.store_folder = device->store;
    device->shared.ca_file = where->ca_file;
    device->shared.alloc = device->memory.hooks;
    device->shared.clock = (dunlin_clock){
        .ctx = device, .wall_ms_fn = wall_ms, .boot_ms_fn = boot_ms, .sleep_fn = skip_ms};
    device->options = (dunlin_client_options)DUNLIN_CLIENT_OPTIONS_INIT;
    device->options.population = "phones";
    device->options.signing_keys = where->signing_key;
    device->options.n_signing_keys = 1;
}

void site_device_open(site_device *device)
{
    dunlin_error error = {0};
    device->options.server_url = device->where->url;
    cr_assert_eq(dunlin_runtime_create(&device->shared, &device->runtime, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(dunlin_client_create(device->runtime, &device->options, &device->plug,
                                      &device->client, &error),
                 DUNLIN_OK, "%s", error.text);
}

void site_device_close(site_device *device)
{
    dunlin_client_destroy(device->client);
    dunlin_runtime_destroy(device->runtime);
    device->client = NULL;
    device->runtime = NULL;
    cr_assert_eq(device->learner.n_loads, device->learner.n_unloads, "the learner keeps a round");
    cr_assert_eq(device->memory.now_bytes, 0, "memory is left");
}

void site_device_rest(site_device *device)
{
    device->skipped_ms += dunlin_client_wait_ms(device->client) + 1;
}

int site_count_entries(const char *folder)
{
    int n = 0;
    DIR *listing = opendir(folder);
    cr_assert_not_null(listing, "%s", folder);
    for (const struct dirent *entry = readdir(listing); entry != NULL; entry = readdir(listing)) {
        n += entry->d_name[0] != '.' ? 1 : 0;
    }
    (void)closedir(listing);
    return n;
}

int site_device_count_files(const site_device *device)
{
    int n = 0;
    DIR *listing = opendir(device->store);
    cr_assert_not_null(listing, "%s", device->store);
    for (const struct dirent *entry = readdir(listing); entry != NULL; entry = readdir(listing)) {
        n += strncmp(entry->d_name, "round-", 6) == 0 ? 1 : 0;
    }
    (void)closedir(listing);
    return n;
}
