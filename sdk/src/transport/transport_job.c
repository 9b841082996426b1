/*
 * transport_job.c - the request and the reply of one exchange, as libcurl's callbacks see them.
 *
 * Invariant: a reply's body is never kept beyond its limit, and never written to the caller's
 * buffer or file unless the status is 2xx; nothing that a server sends is trusted.
 */
#include "transport_job.h"

#include <mem/platform.h>
#include <mem/support.h>

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static size_t fail_job(http_job *job, dunlin_status status, int code, const char *what)
{
    if (job->failure == DUNLIN_OK) {
        job->failure = dunlin__fail(&job->failure_detail, status, "transport", code, "%s: %s",
                                    job->request->url, what);
    }
    return 0;
}

static bool is_success(const http_job *job)
{
    return job->reply->status >= 200 && job->reply->status < 300;
}

static bool write_file(http_job *job, const char *data, size_t n_bytes)
{
    uint64_t offset = job->request->reply_offset + job->reply->body_bytes;
    while (n_bytes > 0) {
        ssize_t n_written = pwrite(job->request->reply_fd, data, n_bytes, (off_t)offset);
        if (n_written < 0 && errno == EINTR) {
            continue;
        }
        if (n_written <= 0) {
            dunlin_status status =
                errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? DUNLIN_SPACE : DUNLIN_IO;
            (void)fail_job(job, status, errno, "the reply could not be written to its file");
            return false;
        }
        data += n_written;
        offset += (uint64_t)n_written;
        n_bytes -= (size_t)n_written;
    }
    return true;
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
    http_job *job = ctx;
    dunlin_http_reply *reply = job->reply;
    size_t n_bytes = size * n;
    long status = 0;
    curl_easy_getinfo(job->easy, CURLINFO_RESPONSE_CODE, &status);
    reply->status = (int32_t)status;
    reply->received_bytes += n_bytes;
    if (job->failure != DUNLIN_OK) {
        return 0;
    }
    if (!is_success(job)) {
        size_t room = sizeof reply->error_body - (size_t)reply->error_bytes;
        size_t n_kept = n_bytes < room ? n_bytes : room;
        memcpy(reply->error_body + reply->error_bytes, data, n_kept);
        reply->error_bytes += n_kept;
        /* An endless error page is cut off after a megabyte. */
        return reply->received_bytes > (1U << 20) ? 0 : n_bytes;
    }
    if (n_bytes > job->request->reply_limit_bytes - reply->body_bytes) {
        return fail_job(job, DUNLIN_LIMIT, 0, "the reply is longer than its limit");
    }
    if (job->request->reply_fd >= 0) {
        if (!write_file(job, data, n_bytes)) {
            return 0;
        }
    } else {
        memcpy((char *)job->request->reply + reply->body_bytes, data, n_bytes);
    }
    reply->body_bytes += n_bytes;
    assert(reply->body_bytes <= job->request->reply_limit_bytes);
    return n_bytes;
}

static size_t on_header(char *line, size_t size, size_t n, void *ctx)
{
    http_job *job = ctx;
    size_t length = size * n;
    if (length >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        job->has_head = false; /* another reply: the one before was a 1xx */
    } else if (length <= 2 && line[length - 1] == '\n') {
        job->has_head = true;
        if (job->reply->is_encoded) {
            return fail_job(job, DUNLIN_PROTOCOL, 0,
                            "the reply has a content encoding, which is refused");
        }
    } else {
        dunlin_http_reply_header(job->reply, line, length);
    }
    return length;
}

static size_t on_read(char *out, size_t size, size_t n, void *ctx)
{
    http_job *job = ctx;
    uint64_t left = job->request->body_bytes - job->body_position;
    size_t n_bytes = size * n < left ? size * n : (size_t)left;
    if (n_bytes == 0) {
        return 0;
    }
    if (job->request->body_fd < 0) {
        memcpy(out, (const char *)job->request->body + job->body_position, n_bytes);
    } else {
        ssize_t n_read = pread(job->request->body_fd, out, n_bytes,
                               (off_t)(job->request->body_offset + job->body_position));
        if (n_read <= 0) {
            (void)fail_job(job, DUNLIN_IO, errno, "the body could not be read from its file");
            return CURL_READFUNC_ABORT;
        }
        n_bytes = (size_t)n_read;
    }
    job->body_position += n_bytes;
    /* libcurl's own count begins anew when it tries again; what it took and a cut swallowed counts
     * too. */
    job->reply->sent_bytes += n_bytes;
    return n_bytes;
}

/* libcurl rewinds when a reused connection turns out to be dead before anything was answered. A
 * part of a file is not sent a second time: the server may have some of it, and is asked first. */
static int on_seek(void *ctx, curl_off_t offset, int origin)
{
    http_job *job = ctx;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > job->request->body_bytes) {
        return CURL_SEEKFUNC_FAIL;
    }
    if (job->request->body_fd >= 0 && job->body_position > 0) {
        (void)fail_job(job, DUNLIN_CLOSED, 0, "the connection closed while the body was sent");
        return CURL_SEEKFUNC_FAIL;
    }
    job->body_position = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

static curl_socket_t on_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)purpose;
    http_job *job = ctx;
    http_counters *counters = job->counters;
    curl_socket_t fd = dunlin__sys_socket(address->family, address->socktype, address->protocol);
    if (fd < 0) {
        return CURL_SOCKET_BAD;
    }
    if (job->socket_fn != NULL && !job->socket_fn(job->socket_ctx, fd)) {
        (void)close(fd);
        (void)fail_job(job, DUNLIN_UNREACHABLE, 0, "the app refuses a connection now");
        return CURL_SOCKET_BAD;
    }
    int now = atomic_fetch_add(&counters->n_sockets, 1) + 1;
    int peak = atomic_load(&counters->n_sockets_peak);
    while (now > peak && !atomic_compare_exchange_weak(&counters->n_sockets_peak, &peak, now)) {
    }
    return fd;
}

static int on_socket_close(void *ctx, curl_socket_t fd)
{
    http_counters *counters = ctx;
    (void)atomic_fetch_sub(&counters->n_sockets, 1);
    return close(fd);
}

static void set_callbacks(http_job *job)
{
    CURL *easy = job->easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, job);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, job->message);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, job);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, job);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, job);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_socket_close);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, job->counters);
}

static void set_body(http_job *job)
{
    const dunlin_http_request *request = job->request;
    CURL *easy = job->easy;
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_read);
    curl_easy_setopt(easy, CURLOPT_READDATA, job);
    curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_seek);
    curl_easy_setopt(easy, CURLOPT_SEEKDATA, job);
    if (strcmp(request->method, "POST") == 0) {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_bytes);
    } else if (strcmp(request->method, "PUT") == 0) {
        curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->body_bytes);
    } else if (strcmp(request->method, "HEAD") == 0) {
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    }
}

static bool add_header(http_job *job, const char *line)
{
    struct curl_slist *longer = curl_slist_append(job->headers, line);
    if (longer == NULL) {
        return false;
    }
    job->headers = longer;
    return true;
}

dunlin_status dunlin__http_job_prepare(http_job *job, dunlin_error *error)
{
    const dunlin_http_request *request = job->request;
    bool is_ok = add_header(job, "Expect:");
    for (int32_t i = 0; is_ok && i < request->n_headers; i++) {
        is_ok = add_header(job, request->headers[i]);
    }
    if (!is_ok || curl_easy_setopt(job->easy, CURLOPT_URL, request->url) != CURLE_OK) {
        return dunlin__fail(error, DUNLIN_MEMORY, "transport", 0, "no memory for a request");
    }
    curl_easy_setopt(job->easy, CURLOPT_HTTPHEADER, job->headers);
    set_callbacks(job);
    set_body(job);
    if (request->timeout_ms > 0) {
        curl_easy_setopt(job->easy, CURLOPT_TIMEOUT_MS, dunlin__curl_long(request->timeout_ms));
    }
    return DUNLIN_OK;
}

void dunlin__http_job_poll_stop(http_job *job)
{
    const dunlin_http_request *request = job->request;
    if (request->should_stop_fn != NULL && request->should_stop_fn(request->stop_ctx)) {
        atomic_store(&job->is_cancelled, true);
    }
}

/* What libcurl's outcome means for us. */
static dunlin_status status_of(CURLcode result)
{
    switch ((int)result) {
    case CURLE_OK:
        return DUNLIN_OK;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
#if LIBCURL_VERSION_NUM >= 0x074900
    case CURLE_PROXY:
#endif
        return DUNLIN_UNREACHABLE;
    case CURLE_OPERATION_TIMEDOUT:
        return DUNLIN_TIMEOUT;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CLIENTCERT:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_PINNEDPUBKEYNOTMATCH:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CIPHER:
        return DUNLIN_TLS;
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
        return DUNLIN_CLOSED;
    case CURLE_ABORTED_BY_CALLBACK:
        return DUNLIN_STOPPED;
    case CURLE_OUT_OF_MEMORY:
        return DUNLIN_MEMORY;
    case CURLE_URL_MALFORMAT:
        return DUNLIN_ARGUMENT;
    default:
        return DUNLIN_PROTOCOL;
    }
}

static void count(http_job *job)
{
    long n_connects = 0;
    long status = 0;
    curl_easy_getinfo(job->easy, CURLINFO_NUM_CONNECTS, &n_connects);
    curl_easy_getinfo(job->easy, CURLINFO_RESPONSE_CODE, &status);
    job->reply->status = (int32_t)status;
    (void)atomic_fetch_add(&job->counters->n_requests, 1);
    (void)atomic_fetch_add(&job->counters->n_handshakes, (unsigned long long)n_connects);
    (void)atomic_fetch_add(&job->counters->sent_bytes, job->reply->sent_bytes);
    (void)atomic_fetch_add(&job->counters->received_bytes, job->reply->received_bytes);
}

dunlin_status dunlin__http_job_finish(http_job *job, dunlin_error *error)
{
    count(job);
    if (job->failure != DUNLIN_OK) {
        if (error != NULL) {
            *error = job->failure_detail;
        }
        return job->failure;
    }
    dunlin_status status = status_of(job->result);
    if (status == DUNLIN_STOPPED) {
        return dunlin__fail(error, status, "transport", 0, "stopped during %s",
                            job->request->method);
    }
    if (status != DUNLIN_OK) {
        return dunlin__fail(error, status, "transport", (int)job->result, "%s %s: %s",
                            job->request->method, job->request->url,
                            job->message[0] != '\0' ? job->message
                                                    : curl_easy_strerror(job->result));
    }
    if (!job->has_head) {
        return dunlin__fail(error, DUNLIN_CLOSED, "transport", 0,
                            "%s: the connection closed within the headers", job->request->url);
    }
    if (job->reply->status >= 300 && job->reply->status < 400) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "transport", job->reply->status,
                            "%s: the server redirects (%d), which is refused", job->request->url,
                            job->reply->status);
    }
    if (job->reply->status < 200) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "transport", job->reply->status,
                            "%s: the answer is not HTTP", job->request->url);
    }
    return DUNLIN_OK;
}

void dunlin__http_job_free(http_job *job)
{
    curl_slist_free_all(job->headers);
    job->headers = NULL;
}
