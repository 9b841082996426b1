/*
 * bench_client.c - the heap of a client without a trainer while it moves a model down and up: the
 * peak above what a first small HTTPS exchange left. bench_client URL CA KEY-FILE STORE
 *
 * Every malloc of the process is counted (libcurl's, the TLS library's and SQLite's too), so the
 * figure is what an app would see.
 */

#include "context/client_context.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static atomic_llong live_bytes;
static atomic_llong peak_bytes;

static void note(long long n_bytes)
{
    long long now = atomic_fetch_add(&live_bytes, n_bytes) + n_bytes;
    long long peak = atomic_load(&peak_bytes);
    while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now)) {
    }
}

/* These names are glibc's own allocator; see malloc(3), "replacing malloc". */
extern void *__libc_malloc(size_t n_bytes);
extern void *__libc_calloc(size_t n, size_t n_bytes);
extern void *__libc_realloc(void *memory, size_t n_bytes);
extern void *__libc_memalign(size_t align, size_t n_bytes);
extern void __libc_free(void *memory);
#define VISIBLE __attribute__((visibility("default")))

static void *counted(void *memory)
{
    note(memory != NULL ? (long long)malloc_usable_size(memory) : 0);
    return memory;
}

VISIBLE void *malloc(size_t n_bytes)
{
    return counted(__libc_malloc(n_bytes));
}

VISIBLE void *calloc(size_t n, size_t n_bytes)
{
    return counted(__libc_calloc(n, n_bytes));
}

VISIBLE void *realloc(void *memory, size_t n_bytes)
{
    long long before = memory != NULL ? (long long)malloc_usable_size(memory) : 0;
    void *fresh = __libc_realloc(memory, n_bytes);
    if (fresh != NULL || n_bytes == 0) {
        note(-before);
        return counted(fresh);
    }
    return NULL;
}

VISIBLE void *aligned_alloc(size_t align, size_t n_bytes)
{
    return counted(__libc_memalign(align, n_bytes));
}

VISIBLE int posix_memalign(void **out_memory, size_t align, size_t n_bytes)
{
    *out_memory = counted(__libc_memalign(align, n_bytes));
    return *out_memory != NULL ? 0 : 12;
}

VISIBLE void free(void *memory)
{
    if (memory != NULL) {
        note(-(long long)malloc_usable_size(memory));
        __libc_free(memory);
    }
}

/* ---- a learner that only passes the weights on, a little changed ---- */

static dunlin_weights_reader base;
static double loaded_ms; /* when the model was there and checked */

static double wall_ms(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static dunlin_status load(void *self, const dunlin_task *task, const dunlin_weights_reader *given)
{
    (void)self;
    (void)task;
    base = *given;
    loaded_ms = wall_ms();
    return DUNLIN_OK;
}

static dunlin_status fit(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    (void)self;
    (void)max_ms;
    out_report->is_done = true;
    out_report->n_examples = 1;
    out_report->n_steps = 1;
    return DUNLIN_OK;
}

static dunlin_status read_fresh(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    (void)ctx;
    dunlin_status status = base.read_fn(base.ctx, index, first, n, out);
    for (int64_t i = 0; i < n; i++) {
        out[i] += (float)((first + i) % 65521);
    }
    return status;
}

static dunlin_status save(void *self, dunlin_weights_reader *out)
{
    *out = (dunlin_weights_reader){
        .ctx = self, .tensors = base.tensors, .n_tensors = base.n_tensors, .read_fn = read_fresh};
    return DUNLIN_OK;
}

static void unload(void *self)
{
    (void)self;
}

static const dunlin_learner_ops OPS = {.struct_size = sizeof(dunlin_learner_ops),
                                       .load = load,
                                       .fit = fit,
                                       .evaluate = fit,
                                       .save = save,
                                       .unload = unload};

static bool read_key(const char *path, uint8_t out_key[65])
{
    FILE *file = fopen(path, "r");
    bool is_read = file != NULL;
    for (int i = 0; is_read && i < 65; i++) {
        unsigned byte = 0;
        is_read = fscanf(file, "%2x", &byte) == 1;
        out_key[i] = (uint8_t)byte;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return is_read;
}

/* The first exchange: a handshake, a few hundred bytes. */
static dunlin_status exchange_a_little(dunlin_runtime *runtime, const char *url,
                                       dunlin_error *error)
{
    static char reply[65536];
    char path[512];
    dunlin_http_reply about = DUNLIN_HTTP_REPLY_INIT;
    dunlin_http_request request = DUNLIN_HTTP_REQUEST_INIT;
    (void)snprintf(path, sizeof path, "%s/v1/status", url);
    request.method = "GET";
    request.url = path;
    request.reply = reply;
    request.reply_limit_bytes = sizeof reply;
    return runtime->transport->ops->perform_fn(runtime->transport, &request, &about, error);
}

int main(int argc, char **argv)
{
    uint8_t key[65];
    dunlin_error error = {0};
    dunlin_runtime *runtime = NULL;
    dunlin_client *client = NULL;
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    dunlin_runtime_options shared = DUNLIN_RUNTIME_OPTIONS_INIT;
    dunlin_client_options options = DUNLIN_CLIENT_OPTIONS_INIT;
    dunlin_learner learner = {.ops = &OPS, .self = &base};
    if (argc != 5 || !read_key(argv[3], key)) {
        (void)fprintf(stderr, "usage: bench_client URL CA KEY-FILE STORE\n");
        return 2;
    }
    shared.store_folder = argv[4];
    shared.ca_file = argv[2];
    options.server_url = argv[1];
    options.population = "phones";
    options.signing_keys = key;
    options.n_signing_keys = 1;
    dunlin_status status = dunlin_runtime_create(&shared, &runtime, &error);
    if (status == DUNLIN_OK) {
        status = dunlin_client_create(runtime, &options, &learner, &client, &error);
    }
    if (status == DUNLIN_OK) {
        status = exchange_a_little(runtime, argv[1], &error);
    }
    long long first = atomic_load(&live_bytes);
    atomic_store(&peak_bytes, first);
    const double begun_ms = wall_ms();
    if (status == DUNLIN_OK) {
        status = dunlin_client_run_round(client, &report);
        error = *dunlin_client_last_error(client);
    }
    if (status != DUNLIN_OK || report.outcome != DUNLIN_OUTCOME_ACCEPTED) {
        (void)fprintf(stderr, "bench_client: %s: %s\n", dunlin_outcome_name(report.outcome),
                      error.text);
        return 1;
    }
    (void)printf("{\"heap_after_first_exchange\": %lld, \"peak_above\": %lld, \"down\": %llu, "
                 "\"up\": %llu, \"load_ms\": %.1f}\n",
                 first, atomic_load(&peak_bytes) - first,
                 (unsigned long long)report.body_bytes_received,
                 (unsigned long long)report.body_bytes_sent, loaded_ms - begun_ms);
    dunlin_client_destroy(client);
    dunlin_runtime_destroy(runtime);
    return 0;
}
