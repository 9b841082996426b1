/*
 * transport_curl.c - the transport over libcurl: one multi handle, one connection pool for all
 * threads.
 *
 * Leader and followers: of the threads that wait for an exchange one drives the multi handle for
 * all; the others sleep until theirs is done, and one of them takes over when the leader's own is.
 * Invariant: the multi handle and the easy handles in it are touched by the leader alone; the lists
 * and `has_leader` only under the lock.
 */
#include "transport.h"
#include "transport_job.h"
#include "url.h"

#include <mem/support.h>

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POLL_MS 50
#define DEFAULT_CONNECTIONS 64
#define DEFAULT_CONNECT_MS 10000
#define DEFAULT_STALL_MS 60000
#define MAX_PINS 4
#define PINS_BYTES 512
#define N_IDLE_EASY 64

typedef struct curl_transport {
    dunlin_transport base;
    dunlin_alloc alloc;
    CURLM *multi;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_leader;
    http_job *incoming; /* to be added by the leader */
    http_job *active;   /* in the multi handle; the leader's, handed on with the lead */
    CURL *idle[N_IDLE_EASY];
    int n_idle;
    http_counters counters;
    char *ca_file;
    char *client_certificate;
    char *client_key;
    char *proxy;
    char pins[PINS_BYTES];
    bool allow_plain_loopback;
    int64_t connect_timeout_ms;
    int64_t stall_timeout_ms;
    int64_t least_bytes_per_s;
    bool (*socket_fn)(void *ctx, int fd);
    void *socket_ctx;
} curl_transport;

static CURL *take_easy(curl_transport *transport)
{
    CURL *easy = NULL;
    (void)pthread_mutex_lock(&transport->lock);
    if (transport->n_idle > 0) {
        easy = transport->idle[--transport->n_idle];
    }
    (void)pthread_mutex_unlock(&transport->lock);
    return easy != NULL ? easy : curl_easy_init();
}

static void give_easy(curl_transport *transport, CURL *easy)
{
    curl_easy_reset(easy);
    (void)pthread_mutex_lock(&transport->lock);
    if (transport->n_idle < N_IDLE_EASY) {
        transport->idle[transport->n_idle++] = easy;
        easy = NULL;
    }
    (void)pthread_mutex_unlock(&transport->lock);
    curl_easy_cleanup(easy);
}

/* What every exchange of this runtime has in common; what the request adds is in transport_job.c.
 */
static void set_common(const curl_transport *transport, CURL *easy)
{
    const long stall_ms = dunlin__curl_long(transport->stall_timeout_ms);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    /* A look-up that hangs has a thread of libcurl's, which is left to itself and not waited for.
     */
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR,
                     transport->allow_plain_loopback ? "https,http" : "https");
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    if (transport->ca_file != NULL) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, transport->ca_file);
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    }
    if (transport->pins[0] != '\0') {
        curl_easy_setopt(easy, CURLOPT_PINNEDPUBLICKEY, transport->pins);
    }
    if (transport->client_certificate != NULL) {
        curl_easy_setopt(easy, CURLOPT_SSLCERT, transport->client_certificate);
        curl_easy_setopt(easy, CURLOPT_SSLKEY, transport->client_key);
    }
    /* An empty proxy, unlike none, also keeps libcurl from looking into the environment. */
    curl_easy_setopt(easy, CURLOPT_PROXY, transport->proxy != NULL ? transport->proxy : "");
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                     dunlin__curl_long(transport->connect_timeout_ms));
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT,
                     dunlin__curl_long(transport->least_bytes_per_s));
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME,
                     stall_ms / 1000 + (stall_ms % 1000 > 0 && stall_ms < LONG_MAX));
}

/* Leader: takes in what is new, lets libcurl work, notes what is finished. */
static void drive(curl_transport *transport)
{
    (void)pthread_mutex_lock(&transport->lock);
    http_job *incoming = transport->incoming;
    transport->incoming = NULL;
    (void)pthread_mutex_unlock(&transport->lock);
    while (incoming != NULL) {
        http_job *next = incoming->next;
        incoming->next = transport->active;
        transport->active = incoming;
        incoming->is_added = curl_multi_add_handle(transport->multi, incoming->easy) == CURLM_OK;
        if (!incoming->is_added) {
            incoming->result = CURLE_OUT_OF_MEMORY;
            incoming->is_finished = true;
        }
        incoming = next;
    }
    int n_running = 0;
    (void)curl_multi_perform(transport->multi, &n_running);
    int n_left = 0;
    CURLMsg *message = curl_multi_info_read(transport->multi, &n_left);
    while (message != NULL) {
        if (message->msg == CURLMSG_DONE) {
            char *private_data = NULL;
            CURLcode result = message->data.result;
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &private_data);
            http_job *job = (http_job *)(void *)private_data;
            job->result = result;
            job->is_finished = true;
        }
        message = curl_multi_info_read(transport->multi, &n_left);
    }
}

/* Leader, with the lock held: takes out what is finished or cancelled. Returns whether there was
 * any. */
static bool reap(curl_transport *transport)
{
    bool found = false;
    http_job **link = &transport->active;
    while (*link != NULL) {
        http_job *job = *link;
        if (!job->is_finished && atomic_load(&job->is_cancelled)) {
            job->result = CURLE_ABORTED_BY_CALLBACK;
            job->is_finished = true;
        }
        if (!job->is_finished) {
            link = &job->next;
            continue;
        }
        *link = job->next;
        if (job->is_added) {
            (void)curl_multi_remove_handle(transport->multi, job->easy);
        }
        job->is_done = true;
        found = true;
    }
    return found;
}

/* Drives for everybody until the leader's own exchange is done. Called and left with the lock held.
 */
static void lead(curl_transport *transport, http_job *own)
{
    assert(!transport->has_leader);
    transport->has_leader = true;
    while (!own->is_done) {
        (void)pthread_mutex_unlock(&transport->lock);
        drive(transport);
        dunlin__http_job_poll_stop(own);
        (void)pthread_mutex_lock(&transport->lock);
        if (reap(transport)) {
            (void)pthread_cond_broadcast(&transport->changed);
        } else if (transport->incoming == NULL) {
            (void)pthread_mutex_unlock(&transport->lock);
            (void)curl_multi_poll(transport->multi, NULL, 0, POLL_MS, NULL);
            (void)pthread_mutex_lock(&transport->lock);
        }
    }
    transport->has_leader = false;
    (void)pthread_cond_broadcast(&transport->changed);
}

/* Follower: sleeps until something changed, at most POLL_MS. Called and left with the lock held. */
static void follow(curl_transport *transport, http_job *own)
{
    struct timespec until = {0};
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += POLL_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    (void)pthread_cond_timedwait(&transport->changed, &transport->lock, &until);
    if (!own->is_done) {
        (void)pthread_mutex_unlock(&transport->lock);
        dunlin__http_job_poll_stop(own);
        (void)pthread_mutex_lock(&transport->lock);
    }
}

static void run_job(curl_transport *transport, http_job *job)
{
    (void)pthread_mutex_lock(&transport->lock);
    job->next = transport->incoming;
    transport->incoming = job;
    if (transport->has_leader) {
        (void)curl_multi_wakeup(transport->multi);
    }
    while (!job->is_done) {
        if (transport->has_leader) {
            follow(transport, job);
        } else {
            lead(transport, job);
        }
    }
    (void)pthread_mutex_unlock(&transport->lock);
}

static dunlin_status perform(dunlin_transport *base, const dunlin_http_request *request,
                             dunlin_http_reply *out_reply, dunlin_error *error)
{
    curl_transport *transport = (curl_transport *)(void *)base;
    dunlin_http_reply_begin(out_reply);
    DUNLIN_TRY(dunlin__url_check(request->url, transport->allow_plain_loopback, error));
    http_job job = {0};
    job.easy = take_easy(transport);
    if (job.easy == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "transport", 0, "no memory for a connection");
    }
    job.request = request;
    job.reply = out_reply;
    job.counters = &transport->counters;
    job.socket_fn = transport->socket_fn;
    job.socket_ctx = transport->socket_ctx;
    set_common(transport, job.easy);
    dunlin_status status = dunlin__http_job_prepare(&job, error);
    if (status == DUNLIN_OK) {
        run_job(transport, &job);
        status = dunlin__http_job_finish(&job, error);
    }
    dunlin__http_job_free(&job);
    give_easy(transport, job.easy);
    return status;
}

static void get_stats(dunlin_transport *base, dunlin_runtime_stats *out_stats)
{
    curl_transport *transport = (curl_transport *)(void *)base;
    out_stats->n_requests = atomic_load(&transport->counters.n_requests);
    out_stats->n_handshakes = atomic_load(&transport->counters.n_handshakes);
    out_stats->n_connections_peak = (int32_t)atomic_load(&transport->counters.n_sockets_peak);
    out_stats->body_bytes_sent = atomic_load(&transport->counters.sent_bytes);
    out_stats->body_bytes_received = atomic_load(&transport->counters.received_bytes);
}

static void destroy(dunlin_transport *base)
{
    curl_transport *transport = (curl_transport *)(void *)base;
    for (int i = 0; i < transport->n_idle; i++) {
        curl_easy_cleanup(transport->idle[i]);
    }
    if (transport->multi != NULL) {
        (void)curl_multi_cleanup(transport->multi);
    }
    (void)pthread_cond_destroy(&transport->changed);
    (void)pthread_mutex_destroy(&transport->lock);
    dunlin_alloc alloc = transport->alloc;
    dunlin__free_text(&alloc, transport->ca_file);
    dunlin__free_text(&alloc, transport->client_certificate);
    dunlin__free_text(&alloc, transport->client_key);
    dunlin__free_text(&alloc, transport->proxy);
    dunlin__free_array(&alloc, transport, 1, sizeof *transport);
    curl_global_cleanup();
}

static const dunlin_transport_ops CURL_OPS = {.struct_size = sizeof(dunlin_transport_ops),
                                              .perform_fn = perform,
                                              .get_stats_fn = get_stats,
                                              .destroy_fn = destroy};

/* libcurl's form of the pins: "sha256//...;sha256//...". */
static dunlin_status join_pins(const char *const *pins, char *out, dunlin_error *error)
{
    size_t length = 0;
    for (int i = 0; pins != NULL && pins[i] != NULL; i++) {
        if (i >= MAX_PINS || strlen(pins[i]) != 44 || strchr(pins[i], ';') != NULL) {
            return dunlin__fail(
                error, DUNLIN_ARGUMENT, "transport", 0,
                "SPKI pin %d is not 44 characters of base64, or is beyond the limit of %d", i + 1,
                MAX_PINS);
        }
        length += (size_t)snprintf(out + length, PINS_BYTES - length, "%ssha256//%s",
                                   i > 0 ? ";" : "", pins[i]);
    }
    return DUNLIN_OK;
}

static dunlin_status check_file(const char *what, const char *path, dunlin_error *error)
{
    if (path != NULL && access(path, R_OK) != 0) {
        return dunlin__fail(error, DUNLIN_TLS, "transport", 0, "the %s %s cannot be read", what,
                            path);
    }
    return DUNLIN_OK;
}

static dunlin_status configure(curl_transport *transport, const dunlin_runtime_options *options,
                               dunlin_error *error)
{
    const dunlin_alloc *alloc = &transport->alloc;
    DUNLIN_TRY(check_file("CA file", options->ca_file, error));
    DUNLIN_TRY(check_file("client certificate", options->client_certificate, error));
    DUNLIN_TRY(check_file("client key", options->client_key, error));
    DUNLIN_TRY(join_pins(options->spki_pins, transport->pins, error));
    transport->allow_plain_loopback = options->allow_plain_loopback;
    transport->connect_timeout_ms =
        options->connect_timeout_ms > 0 ? options->connect_timeout_ms : DEFAULT_CONNECT_MS;
    transport->stall_timeout_ms =
        options->request_timeout_ms > 0 ? options->request_timeout_ms : DEFAULT_STALL_MS;
    transport->least_bytes_per_s = options->least_bytes_per_s > 0 ? options->least_bytes_per_s : 1;
    transport->socket_fn = options->socket_fn;
    transport->socket_ctx = options->socket_ctx;
    long n_connections =
        options->max_connections > 0 ? options->max_connections : DEFAULT_CONNECTIONS;
    transport->multi = curl_multi_init();
    if (transport->multi == NULL ||
        !dunlin__copy_text(alloc, options->ca_file, &transport->ca_file) ||
        !dunlin__copy_text(alloc, options->client_certificate, &transport->client_certificate) ||
        !dunlin__copy_text(alloc, options->client_key, &transport->client_key) ||
        !dunlin__copy_text(alloc, options->proxy, &transport->proxy)) {
        return dunlin__fail(error, DUNLIN_MEMORY, "transport", 0, "no memory for the transport");
    }
    curl_multi_setopt(transport->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, n_connections);
    curl_multi_setopt(transport->multi, CURLMOPT_MAXCONNECTS, n_connections);
    return DUNLIN_OK;
}

dunlin_status dunlin__transport_curl_create(const dunlin_runtime_options *options,
                                            const dunlin_alloc *alloc,
                                            dunlin_transport **out_transport, dunlin_error *error)
{
    *out_transport = NULL;
    const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
    if (code != CURLE_OK) {
        return dunlin__fail(error, DUNLIN_INTERNAL, "transport", 0, "curl_global_init() fails: %s",
                            curl_easy_strerror(code));
    }
    curl_transport *transport = dunlin__alloc_zeroed(alloc, 1, sizeof *transport);
    if (transport == NULL) {
        curl_global_cleanup();
        return dunlin__fail(error, DUNLIN_MEMORY, "transport", 0, "no memory for the transport");
    }
    transport->base.ops = &CURL_OPS;
    transport->alloc = *alloc;
    (void)pthread_mutex_init(&transport->lock, NULL);
    (void)pthread_cond_init(&transport->changed, NULL);
    dunlin_status status = configure(transport, options, error);
    if (status != DUNLIN_OK) {
        destroy(&transport->base);
        return status;
    }
    *out_transport = &transport->base;
    return DUNLIN_OK;
}
