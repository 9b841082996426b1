/*
 * transport_job.h - one exchange on one libcurl handle: what goes out, where the reply goes, how it
 * ended.
 */
#ifndef DUNLIN_SDK_TRANSPORT_JOB_H
#define DUNLIN_SDK_TRANSPORT_JOB_H

#include "transport.h"

#include <curl/curl.h>
#include <limits.h>
#include <stdatomic.h>

/* What libcurl takes: a limit above that, some weeks of milliseconds where a long has 32 bits, is
 * the largest there is. */
static inline long dunlin__curl_long(int64_t limit)
{
    return limit < LONG_MAX ? (long)limit : LONG_MAX;
}

/* Of the whole transport; touched from several threads. */
typedef struct http_counters {
    atomic_ullong n_requests;
    atomic_ullong n_handshakes;
    atomic_ullong sent_bytes;
    atomic_ullong received_bytes;
    atomic_int n_sockets;
    atomic_int n_sockets_peak;
} http_counters;

typedef struct http_job {
    struct http_job *next;
    CURL *easy;
    struct curl_slist *headers;
    const dunlin_http_request *request;
    dunlin_http_reply *reply;
    http_counters *counters;
    bool (*socket_fn)(void *ctx, int fd); /* the app's; may be NULL */
    void *socket_ctx;
    uint64_t body_position;
    dunlin_status failure; /* of our own callbacks, with its detail */
    dunlin_error failure_detail;
    CURLcode result;
    bool has_head; /* the empty line after the reply's headers has come */
    bool is_added;
    bool is_finished; /* leader's */
    bool is_done;     /* under the transport's lock: the owner may go on */
    atomic_bool is_cancelled;
    char message[CURL_ERROR_SIZE];
} http_job;

/* Sets the handle up for the request. */
dunlin_status dunlin__http_job_prepare(http_job *job, dunlin_error *error);

/* Asks the request whether to stop; on its own thread. */
void dunlin__http_job_poll_stop(http_job *job);

/* Translates how it ended and fills in the reply and the counters. */
dunlin_status dunlin__http_job_finish(http_job *job, dunlin_error *error);

void dunlin__http_job_free(http_job *job);

#endif
