/*
 * runtime.c - what the clients of a process share, and its clock.
 */
#include "runtime.h"

#include "client_context.h"
#include "store/store.h"
#include "transport/transport.h"

#include <mem/platform.h>
#include <mem/sized.h>
#include <wire/digest.h>

#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec now = {0};
    (void)clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t system_wall_ms(void *ctx)
{
    (void)ctx;
    return read_clock(CLOCK_REALTIME);
}

static int64_t system_boot_ms(void *ctx)
{
    (void)ctx;
#ifdef CLOCK_BOOTTIME
    return read_clock(CLOCK_BOOTTIME);
#else
    return read_clock(CLOCK_MONOTONIC);
#endif
}

static void system_sleep(void *ctx, int64_t ms)
{
    (void)ctx;
    struct timespec pause = {.tv_sec = (time_t)(ms / 1000),
                             .tv_nsec = (long)(ms % 1000) * 1000000L};
    (void)nanosleep(&pause, NULL);
}

/* Names the boot the boot clock counts from; "" where the system has no such name: then the wall
 * clock counts. */
static void read_boot_id(char out[DUNLIN_BOOT_ID_BYTES])
{
    out[0] = '\0';
    int fd = dunlin__sys_open("/proc/sys/kernel/random/boot_id", O_RDONLY, 0);
    if (fd < 0) {
        return;
    }
    ssize_t n_bytes = read(fd, out, DUNLIN_BOOT_ID_BYTES - 1);
    out[n_bytes > 0 ? n_bytes : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    (void)close(fd);
}

/* The app's name of the installation, or the machine's; nothing of it stays but a hash. */
static dunlin_status read_installation(dunlin_runtime *runtime, const char *given,
                                       dunlin_error *error)
{
    char text[256] = "dunlin installation ";
    size_t length = strlen(text);
    ssize_t n_bytes = 0;
    if (given != NULL) {
        n_bytes = (ssize_t)strnlen(given, sizeof text - length);
        memcpy(text + length, given, (size_t)n_bytes);
    } else {
        int fd = dunlin__sys_open("/etc/machine-id", O_RDONLY, 0);
        n_bytes = fd >= 0 ? read(fd, text + length, sizeof text - length) : 0;
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    return n_bytes <= 0
               ? DUNLIN_OK
               : dunlin__sha256_of(text, length + (size_t)n_bytes, runtime->installation, error);
}

dunlin__moment dunlin__runtime_now(const dunlin_runtime *runtime)
{
    dunlin__moment now = {.wall_ms = runtime->clock.wall_ms_fn(runtime->clock.ctx),
                          .boot_ms = runtime->clock.boot_ms_fn(runtime->clock.ctx)};
    memcpy(now.boot_id, runtime->boot_id, sizeof now.boot_id);
    return now;
}

void dunlin__runtime_sleep(const dunlin_runtime *runtime, int64_t ms)
{
    if (ms > 0) {
        runtime->clock.sleep_fn(runtime->clock.ctx, ms);
    }
}

dunlin_status dunlin__runtime_add(dunlin_runtime *runtime, dunlin_client *client,
                                  dunlin_error *error)
{
    (void)pthread_mutex_lock(&runtime->lock);
    const dunlin_client *other = runtime->clients;
    while (other != NULL && strcmp(other->name, client->name) != 0) {
        other = other->next;
    }
    bool is_leaving = runtime->is_leaving;
    if (other == NULL && !is_leaving) {
        client->next = runtime->clients;
        runtime->clients = client;
    }
    (void)pthread_mutex_unlock(&runtime->lock);
    if (is_leaving) {
        return dunlin__fail(
            error, DUNLIN_STATE, "client", 0,
            "the runtime was destroyed by dunlin_runtime_destroy(); it waits for its last client");
    }
    return other == NULL
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_STATE, "client", 0,
                              "the runtime has a client named %.64s already", client->name);
}

bool dunlin__runtime_remove(dunlin_runtime *runtime, const dunlin_client *client)
{
    (void)pthread_mutex_lock(&runtime->lock);
    dunlin_client **link = &runtime->clients;
    while (*link != NULL && *link != client) {
        link = &(*link)->next;
    }
    bool is_last = *link != NULL && runtime->is_leaving;
    if (*link != NULL) {
        *link = client->next;
    }
    is_last = is_last && runtime->clients == NULL;
    (void)pthread_mutex_unlock(&runtime->lock);
    return is_last;
}

/* The calls of an app's transport: a table of its own size. */
static dunlin_status take_transport(dunlin_runtime *runtime, dunlin_error *error)
{
    dunlin_transport_ops *ops = &runtime->transport_ops;
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_transport_ops, runtime->transport->ops, ops, error));
    if (ops->perform_fn == NULL || ops->get_stats_fn == NULL || ops->destroy_fn == NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "runtime", 0,
                            "a transport needs perform_fn, get_stats_fn and destroy_fn");
    }
    return DUNLIN_OK;
}

static dunlin_status open_parts(dunlin_runtime *runtime, const dunlin_runtime_options *options,
                                dunlin_error *error)
{
    size_t n_bytes = strlen(options->store_folder) + 1;
    runtime->folder = dunlin__alloc_array(&runtime->alloc, n_bytes, 1);
    if (runtime->folder == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "runtime", 0, "no memory for a runtime");
    }
    memcpy(runtime->folder, options->store_folder, n_bytes);
    DUNLIN_TRY(read_installation(runtime, options->installation, error));
    if (runtime->transport == NULL) {
        DUNLIN_TRY(
            dunlin__transport_curl_create(options, &runtime->alloc, &runtime->transport, error));
    }
    DUNLIN_TRY(take_transport(runtime, error));
    return dunlin__store_open(runtime->folder, &runtime->alloc, &runtime->store, error);
}

dunlin_status dunlin_runtime_create(const dunlin_runtime_options *options,
                                    dunlin_runtime **out_runtime, dunlin_error *out_error)
{
    if (out_runtime == NULL) {
        return DUNLIN_ARGUMENT;
    }
    *out_runtime = NULL;
    dunlin__error_clear(out_error);
    dunlin_runtime_options copy = DUNLIN_RUNTIME_OPTIONS_INIT;
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_runtime_options, options, &copy, out_error));
    if (copy.store_folder == NULL) {
        return dunlin__fail(
            out_error, DUNLIN_ARGUMENT, "runtime", 0,
            "a runtime needs options (from DUNLIN_RUNTIME_OPTIONS_INIT) with a store_folder");
    }
    if ((copy.client_certificate == NULL) != (copy.client_key == NULL)) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "runtime", 0,
                            "client_certificate and client_key go together");
    }
    dunlin_alloc alloc = dunlin__alloc_or_default(&copy.alloc);
    dunlin_runtime *runtime = dunlin__alloc_zeroed(&alloc, 1, sizeof *runtime);
    if (runtime == NULL) {
        return dunlin__fail(out_error, DUNLIN_MEMORY, "runtime", 0, "no memory for a runtime");
    }
    runtime->alloc = alloc;
    runtime->log = copy.log;
    runtime->transport = copy.transport;
    (void)pthread_mutex_init(&runtime->lock, NULL);
    bool has_clock = copy.clock.wall_ms_fn != NULL && copy.clock.boot_ms_fn != NULL &&
                     copy.clock.sleep_fn != NULL;
    runtime->clock = has_clock ? copy.clock
                               : (dunlin_clock){.wall_ms_fn = system_wall_ms,
                                                .boot_ms_fn = system_boot_ms,
                                                .sleep_fn = system_sleep};
    read_boot_id(runtime->boot_id);
    dunlin_status status = open_parts(runtime, &copy, out_error);
    if (status != DUNLIN_OK) {
        if (copy.transport != NULL) {
            runtime->transport = NULL; /* still the app's */
        }
        dunlin_runtime_destroy(runtime);
        return status;
    }
    *out_runtime = runtime;
    return DUNLIN_OK;
}

void dunlin__runtime_free(dunlin_runtime *runtime)
{
    dunlin__store_close(runtime->store);
    if (runtime->transport != NULL) {
        runtime->transport_ops.destroy_fn(runtime->transport);
    }
    (void)pthread_mutex_destroy(&runtime->lock);
    dunlin_alloc alloc = runtime->alloc;
    if (runtime->folder != NULL) {
        dunlin__free_array(&alloc, runtime->folder, strlen(runtime->folder) + 1, 1);
    }
    dunlin__free_array(&alloc, runtime, 1, sizeof *runtime);
}

void dunlin_runtime_destroy(dunlin_runtime *runtime)
{
    if (runtime == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&runtime->lock);
    bool has_clients = runtime->clients != NULL;
    runtime->is_leaving = true;
    (void)pthread_mutex_unlock(&runtime->lock);
    if (!has_clients) {
        dunlin__runtime_free(runtime);
    }
}

dunlin_status dunlin_runtime_get_stats(dunlin_runtime *runtime, dunlin_runtime_stats *out_stats)
{
    dunlin_runtime_stats stats = DUNLIN_RUNTIME_STATS_INIT;
    if (runtime == NULL) {
        return DUNLIN_ARGUMENT;
    }
    DUNLIN_TRY(dunlin__struct_check(out_stats, "dunlin_runtime_stats", NULL));
    runtime->transport_ops.get_stats_fn(runtime->transport, &stats);
    dunlin__struct_give(&stats, sizeof stats, out_stats);
    return DUNLIN_OK;
}
