/*
 * workers.c - many clients on few threads: the client that is due next runs a round, and is due
 * again when the server says.
 *
 * Invariant: a client is either in the heap of those who wait, or in the hands of one thread.
 */
#include "fleet.h"

#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct device {
    dunlin_client *client;
    dunlin_builtin *learner;
    dunlin_dataset_view view;
    double due_ms;
    const fleet_flags *flags;
    uint64_t number;
} device;

struct fleet_workers {
    const fleet_flags *flags;
    dunlin_runtime *runtime;
    dunlin_trainer_pool *pool; /* the world's */
    atomic_llong heap_bytes;   /* of runtime and clients, through the hooks */
    device *devices;
    char **tokens; /* by device; NULL: none are needed */
    int64_t n_devices;
    device **heap; /* by due_ms, earliest first */
    int64_t n_heap;
    pthread_t *threads;
    int64_t n_threads;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_stopping;
    bool has_told;    /* that a device was refused */
    device **running; /* by thread, NULL: none */
    uint64_t *peaks;  /* by round */
    fleet_totals totals;
    double begin_ms;
};

typedef struct thread_start {
    fleet_workers *workers;
    int64_t index;
} thread_start;

static void heap_swap(fleet_workers *workers, int64_t a, int64_t b)
{
    device *kept = workers->heap[a];
    workers->heap[a] = workers->heap[b];
    workers->heap[b] = kept;
}

static void heap_push(fleet_workers *workers, device *item)
{
    int64_t at = workers->n_heap++;
    workers->heap[at] = item;
    while (at > 0 && workers->heap[(at - 1) / 2]->due_ms > workers->heap[at]->due_ms) {
        heap_swap(workers, at, (at - 1) / 2);
        at = (at - 1) / 2;
    }
}

static device *heap_pop(fleet_workers *workers)
{
    device *first = workers->heap[0];
    workers->heap[0] = workers->heap[--workers->n_heap];
    int64_t at = 0;
    for (;;) {
        int64_t least = at;
        for (int64_t child = 2 * at + 1; child <= 2 * at + 2 && child < workers->n_heap; child++) {
            if (workers->heap[child]->due_ms < workers->heap[least]->due_ms) {
                least = child;
            }
        }
        if (least == at) {
            return first;
        }
        heap_swap(workers, at, least);
        at = least;
    }
}

int64_t fleet_count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int64_t n = 0;
    while (folder != NULL && readdir(folder) != NULL) {
        n++;
    }
    if (folder != NULL) {
        (void)closedir(folder);
        n -= 3; /* ".", "..", and the folder itself */
    }
    return n;
}

/* Records the result of a client's call; under the lock. */
static void note(fleet_workers *workers, device *item, dunlin_status status,
                 const dunlin_round_report *report)
{
    workers->totals.n_rounds_run++;
    if (status != DUNLIN_OK) {
        workers->totals.n_failed++;
        const dunlin_error *error = dunlin_client_last_error(item->client);
        (void)snprintf(workers->totals.last_error, sizeof workers->totals.last_error, "%s: %s",
                       dunlin_status_name(status), error->text);
        if ((status == DUNLIN_REJECTED || status == DUNLIN_SIGNATURE || status == DUNLIN_TLS) &&
            !workers->has_told) {
            /* A refused place would otherwise look like a run that waits for ever. */
            const int64_t number = workers->flags->first_index + (item - workers->devices);
            workers->has_told = true;
            progress_clear_any();
            (void)fprintf(stderr, "dunlin-fleet: warning: device %lld: %s\n", (long long)number,
                          error->text);
        }
    }
    if (report->outcome == DUNLIN_OUTCOME_ACCEPTED) {
        workers->totals.n_accepted++;
        int64_t n_open = fleet_count_descriptors();
        if (n_open > workers->totals.n_descriptors) {
            workers->totals.n_descriptors = n_open;
        }
        if (report->round <= (uint64_t)workers->flags->n_rounds &&
            report->peak_bytes > workers->peaks[report->round]) {
            workers->peaks[report->round] = report->peak_bytes;
        }
    }
}

static void wait_until(fleet_workers *workers, double due_ms)
{
    double wait_ms = due_ms - clock_ms();
    wait_ms = wait_ms < 1.0 ? 1.0 : wait_ms > 100.0 ? 100.0 : wait_ms;
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(wait_ms * 1e6);
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    (void)pthread_cond_timedwait(&workers->changed, &workers->lock, &until);
}

/* A device that leaves a secure aggregation does so once its masked update is on its way. */
static bool follow_device(void *ctx, const dunlin_event *event)
{
    const device *item = ctx;
    return event->phase != DUNLIN_PHASE_UPLOAD ||
           !fleet_secagg_leaves(item->flags, event->round, item->number);
}

/* A round; where devices wait for each other, until it has to wait: *out_is_ended is false then. */
static dunlin_status run_device(const fleet_workers *workers, device *item, int64_t *out_wait_ms,
                                bool *out_is_ended, dunlin_round_report *report)
{
    dunlin_status status = DUNLIN_OK;
    *out_wait_ms = 0;
    *out_is_ended = !workers->flags->is_secagg;
    if (*out_is_ended) {
        return dunlin_client_run_round(item->client, report);
    }
    while (status == DUNLIN_OK && !*out_is_ended && *out_wait_ms == 0) {
        status = dunlin_client_step(item->client, 0, out_wait_ms, out_is_ended, report);
    }
    *out_is_ended = *out_is_ended || status != DUNLIN_OK;
    return status;
}

static void *run_thread(void *ctx)
{
    thread_start *start = ctx;
    fleet_workers *workers = start->workers;
    int64_t index = start->index;
    free(start);
    (void)pthread_mutex_lock(&workers->lock);
    while (!workers->is_stopping) {
        if (workers->n_heap == 0 || workers->heap[0]->due_ms > clock_ms()) {
            wait_until(workers,
                       workers->n_heap == 0 ? clock_ms() + 100.0 : workers->heap[0]->due_ms);
            continue;
        }
        device *item = heap_pop(workers);
        workers->running[index] = item;
        (void)pthread_mutex_unlock(&workers->lock);
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        int64_t wait_ms = 0;
        bool is_ended = false;
        dunlin_status status = run_device(workers, item, &wait_ms, &is_ended, &report);
        wait_ms = is_ended ? dunlin_client_wait_ms(item->client) : wait_ms;
        double due_ms = clock_ms() + (double)wait_ms;
        (void)pthread_mutex_lock(&workers->lock);
        workers->running[index] = NULL;
        if (is_ended) {
            note(workers, item, status, &report);
        }
        item->due_ms = due_ms;
        if (report.outcome != DUNLIN_OUTCOME_RUN_OVER) {
            heap_push(workers, item); /* else there is no more work for it */
        }
        (void)pthread_cond_signal(&workers->changed);
    }
    (void)pthread_mutex_unlock(&workers->lock);
    return NULL;
}

static int fail(const dunlin_error *error)
{
    return program_fail(&fleet_program, "%s", error->text);
}

/* Hooks that count; the runtime calls them from all threads. */
static void *count_alloc(void *ctx, size_t bytes, size_t align)
{
    fleet_workers *workers = ctx;
    void *memory = NULL;
    if (posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, bytes) != 0) {
        return NULL;
    }
    (void)atomic_fetch_add(&workers->heap_bytes, (long long)bytes);
    return memory;
}

static void count_free(void *ctx, void *memory, size_t bytes)
{
    fleet_workers *workers = ctx;
    (void)atomic_fetch_sub(&workers->heap_bytes, (long long)bytes);
    free(memory);
}

static int open_runtime(fleet_workers *workers, const fleet_server *server)
{
    char folder[FLEET_PATH_BYTES + 8];
    (void)snprintf(folder, sizeof folder, "%s/store", server->folder);
    dunlin_error error = {0};
    dunlin_runtime_options options = DUNLIN_RUNTIME_OPTIONS_INIT;
    options.store_folder = folder;
    options.ca_file = server->ca_file;
    options.alloc = (dunlin_alloc){.ctx = workers, .alloc_fn = count_alloc, .free_fn = count_free};
    if (dunlin_runtime_create(&options, &workers->runtime, &error) != DUNLIN_OK) {
        return fail(&error);
    }
    return EXIT_OK;
}

/* What the device enrols with; "" for nothing. */
static void make_invitation(const fleet_workers *workers, int64_t number, char *out, size_t size)
{
    if (workers->tokens != NULL) {
        (void)snprintf(out, size, "%s", workers->tokens[number]);
    } else if (workers->flags->is_serving) {
        (void)snprintf(out, size, "index:%lld", (long long)number);
    } else {
        out[0] = '\0';
    }
}

static int open_device(fleet_workers *workers, const fleet_world *world, const fleet_server *server,
                       int64_t number)
{
    device *item = &workers->devices[number];
    int64_t index = workers->flags->first_index + number;
    int64_t n = 0;
    const int64_t *indices = dunlin_partition_indices(world->partition, index, &n);
    dunlin_error error = {0};
    dunlin_source source = DUNLIN_SOURCE_INIT;
    dunlin_learner learner = {0};
    char name[32];
    char token[256];
    (void)snprintf(name, sizeof name, "device-%lld", (long long)index);
    make_invitation(workers, number, token, sizeof token);
    if (dunlin_dataset_subset(world->dataset, indices, n, &item->view, &source) != DUNLIN_OK) {
        return program_fail(&fleet_program, "device %lld has no examples", (long long)index);
    }
    if (dunlin_builtin_create(world->pool, &source, NULL, &item->learner, &learner, &error) !=
        DUNLIN_OK) {
        return fail(&error);
    }
    dunlin_client_options options = DUNLIN_CLIENT_OPTIONS_INIT;
    options.server_url = server->url;
    options.population = workers->flags->population;
    options.sends_telemetry = workers->flags->sends_telemetry;
    options.name = name;
    options.enrolment_token = token[0] != '\0' ? token : NULL;
    options.signing_keys = server->signing_keys;
    options.n_signing_keys = server->n_signing_keys;
    options.budget_bytes = workers->flags->budget_bytes;
    /* Nobody asks these devices for one: it is of use for deltas alone. */
    options.model_keeping =
        workers->flags->is_keeping_model ? DUNLIN_MODEL_KEEPING_ROUNDS : DUNLIN_MODEL_KEEPING_NONE;
    if (workers->flags->is_secagg) {
        item->flags = workers->flags;
        item->number = (uint64_t)index;
        options.event_fn = follow_device;
        options.event_ctx = item;
        options.require_secure_aggregation = true;
    }
    options.retry_first_ms = workers->flags->retry.first_ms;
    options.retry_most_ms = workers->flags->retry.most_ms;
    options.retry_refused_first_ms = workers->flags->retry_refused.first_ms;
    options.retry_refused_most_ms = workers->flags->retry_refused.most_ms;
    if (dunlin_client_create(workers->runtime, &options, &learner, &item->client, &error) !=
        DUNLIN_OK) {
        return fail(&error);
    }
    heap_push(workers, item);
    return EXIT_OK;
}

static int start_threads(fleet_workers *workers)
{
    workers->begin_ms = clock_ms();
    for (int64_t i = 0; i < workers->flags->n_threads; i++) {
        thread_start *start = malloc(sizeof *start);
        if (start == NULL) {
            return program_fail(&fleet_program, "no memory for threads");
        }
        *start = (thread_start){.workers = workers, .index = i};
        const int code = pthread_create(&workers->threads[i], NULL, run_thread, start);
        if (code != 0) {
            free(start);
            return program_fail(&fleet_program, "thread %" PRId64 " cannot be started: %s", i,
                                strerror(code));
        }
        workers->n_threads++;
    }
    return EXIT_OK;
}

static int read_tokens(fleet_workers *workers)
{
    const fleet_flags *flags = workers->flags;
    if (flags->tokens_file == NULL) {
        return EXIT_OK;
    }
    workers->tokens = calloc((size_t)workers->n_devices, sizeof *workers->tokens);
    return workers->tokens != NULL ? fleet_tokens_read(flags->tokens_file, flags->first_index,
                                                       workers->n_devices, workers->tokens)
                                   : program_fail(&fleet_program, "no memory for tokens");
}

int fleet_workers_start(const fleet_flags *flags, const fleet_world *world,
                        const fleet_server *server, fleet_workers **out_workers)
{
    int64_t n_devices = fleet_n_devices(flags, world);
    fleet_workers *workers = calloc(1, sizeof *workers);
    *out_workers = workers;
    if (workers == NULL) {
        return program_fail(&fleet_program, "no memory for %" PRId64 " devices", n_devices);
    }
    workers->flags = flags;
    workers->pool = world->pool;
    workers->n_devices = n_devices;
    (void)pthread_mutex_init(&workers->lock, NULL);
    (void)pthread_cond_init(&workers->changed, NULL);
    workers->devices = calloc((size_t)n_devices, sizeof *workers->devices);
    workers->heap = calloc((size_t)n_devices, sizeof(device *));
    workers->threads = calloc((size_t)flags->n_threads, sizeof *workers->threads);
    workers->running = calloc((size_t)flags->n_threads, sizeof(device *));
    workers->peaks = calloc((size_t)flags->n_rounds + 1, sizeof *workers->peaks);
    if (workers->devices == NULL || workers->heap == NULL || workers->threads == NULL ||
        workers->running == NULL || workers->peaks == NULL) {
        return program_fail(&fleet_program, "no memory for %lld devices", (long long)n_devices);
    }
    int status = read_tokens(workers);
    status = status == EXIT_OK ? open_runtime(workers, server) : status;
    long long heap_bytes = atomic_load(&workers->heap_bytes);
    for (int64_t i = 0; status == EXIT_OK && i < n_devices; i++) {
        status = open_device(workers, world, server, i);
    }
    workers->totals.idle_client_bytes =
        (uint64_t)(atomic_load(&workers->heap_bytes) - heap_bytes) / (uint64_t)n_devices;
    return status == EXIT_OK ? start_threads(workers) : status;
}

void fleet_workers_stop(fleet_workers *workers)
{
    (void)pthread_mutex_lock(&workers->lock);
    bool is_first = !workers->is_stopping;
    workers->is_stopping = true;
    for (int64_t i = 0; i < workers->n_threads; i++) {
        if (workers->running[i] != NULL) {
            dunlin_client_stop(workers->running[i]->client);
        }
    }
    (void)pthread_cond_broadcast(&workers->changed);
    (void)pthread_mutex_unlock(&workers->lock);
    for (int64_t i = 0; is_first && i < workers->n_threads; i++) {
        (void)pthread_join(workers->threads[i], NULL);
    }
    if (is_first && workers->begin_ms > 0.0) {
        workers->totals.wall_s = (clock_ms() - workers->begin_ms) / 1000.0;
    }
}

void fleet_workers_destroy(fleet_workers *workers)
{
    if (workers == NULL) {
        return;
    }
    fleet_workers_stop(workers);
    for (int64_t i = 0; workers->devices != NULL && i < workers->n_devices; i++) {
        dunlin_client_destroy(workers->devices[i].client);
        dunlin_builtin_destroy(workers->devices[i].learner);
    }
    dunlin_runtime_destroy(workers->runtime);
    free(workers->devices);
    fleet_tokens_free(workers->tokens, workers->n_devices);
    free(workers->heap);
    free(workers->threads);
    free(workers->running);
    free(workers->peaks);
    (void)pthread_cond_destroy(&workers->changed);
    (void)pthread_mutex_destroy(&workers->lock);
    free(workers);
}

void fleet_workers_totals(fleet_workers *workers, fleet_totals *out_totals)
{
    (void)pthread_mutex_lock(&workers->lock);
    *out_totals = workers->totals;
    (void)pthread_mutex_unlock(&workers->lock);
    dunlin_runtime_stats stats = DUNLIN_RUNTIME_STATS_INIT;
    if (dunlin_runtime_get_stats(workers->runtime, &stats) == DUNLIN_OK) {
        out_totals->transport = stats;
    }
    out_totals->moved_bytes = dunlin_trainer_pool_moved_bytes(workers->pool);
}

uint64_t fleet_workers_round_peak(fleet_workers *workers, uint64_t round)
{
    (void)pthread_mutex_lock(&workers->lock);
    uint64_t peak_bytes = round <= (uint64_t)workers->flags->n_rounds ? workers->peaks[round] : 0;
    (void)pthread_mutex_unlock(&workers->lock);
    return peak_bytes;
}

fleet_figures fleet_workers_figures(fleet_workers *workers)
{
    fleet_figures figures = {.peaks = workers->peaks, .n_peaks = workers->flags->n_rounds + 1};
    fleet_workers_totals(workers, &figures.totals);
    return figures;
}
