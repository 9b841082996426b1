/*
 * test_http_file.c - parts of files as bodies, over TLS: the bytes, the size of records, a file
 * that ends too early.
 */
#include "http/http_file.h"
#include "server/device.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FILE_BYTES 300000
#define HEAD_BYTES 1024

typedef struct site {
    test_server fixture;
    char path[256];
    struct MHD_Daemon *daemon;
    dunlin_alloc alloc;
    int fd; /* of the last response */
    uint64_t offset;
    uint64_t n_bytes;
} site;

static enum MHD_Result respond(void *cls, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *data,
                               size_t *data_size, void **con_cls)
{
    site *where = cls;
    (void)url;
    (void)method;
    (void)version;
    (void)data;
    (void)data_size;
    (void)con_cls;
    where->fd = open(where->path, O_RDONLY | O_CLOEXEC);
    struct MHD_Response *response =
        dunlin__http_file_response(&where->alloc, where->fd, where->offset, where->n_bytes);
    enum MHD_Result result = MHD_queue_response(connection, 200, response);
    MHD_destroy_response(response);
    return result;
}

static uint8_t byte_at(uint64_t place)
{
    return (uint8_t)(place * 31 + place / 257);
}

static void begin(site *where)
{
    memset(where, 0, sizeof *where);
    where->alloc = dunlin__alloc_or_default(NULL);
    test_server_folder(&where->fixture);
    test_server_open(&where->fixture, ", \"rounds\": 1, \"cohort\": 1", 0);
    (void)snprintf(where->path, sizeof where->path, "%.200s/file",
                   where->fixture.server.folder.text);
    FILE *file = fopen(where->path, "wbe");
    cr_assert_not_null(file);
    for (uint64_t i = 0; i < FILE_BYTES; i++) {
        cr_assert_eq(fputc(byte_at(i), file), byte_at(i));
    }
    cr_assert_eq(fclose(file), 0);
    where->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_TLS, 0, NULL, NULL,
                                     respond, where, MHD_OPTION_HTTPS_MEM_KEY,
                                     where->fixture.server.certs.key, MHD_OPTION_HTTPS_MEM_CERT,
                                     where->fixture.server.certs.certificate, MHD_OPTION_END);
    cr_assert_not_null(where->daemon);
}

static void end(site *where)
{
    MHD_stop_daemon(where->daemon);
    test_server_close(&where->fixture);
    test_server_end(&where->fixture);
}

typedef struct download {
    size_t n_bytes; /* of head and body */
    int n_records;
    uint8_t bytes[HEAD_BYTES + FILE_BYTES];
} download;

static int connect_to(const site *where)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(where->daemon, MHD_DAEMON_INFO_BIND_PORT);
    address.sin_port = htons(info->port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)(void *)&address, sizeof address), 0);
    return fd;
}

/* The answer to one request, record by record: a call of gnutls_record_recv() takes from one. */
static download *fetch(const site *where)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    download *got = calloc(1, sizeof *got);
    gnutls_certificate_credentials_t credentials = NULL;
    gnutls_session_t session = NULL;
    int fd = connect_to(where);
    cr_assert_not_null(got);
    cr_assert_eq(gnutls_certificate_allocate_credentials(&credentials), 0);
    cr_assert_eq(gnutls_init(&session, GNUTLS_CLIENT), 0);
    cr_assert_eq(gnutls_set_default_priority(session), 0);
    cr_assert_eq(gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials), 0);
    gnutls_transport_set_int(session, fd);
    cr_assert_eq(gnutls_handshake(session), 0);
    cr_assert_eq(gnutls_record_send(session, request, sizeof request - 1), sizeof request - 1);
    ssize_t n = 1;
    while (n > 0) {
        n = gnutls_record_recv(session, got->bytes + got->n_bytes,
                               sizeof got->bytes - got->n_bytes);
        got->n_bytes += n > 0 ? (size_t)n : 0;
        got->n_records += n > 0 ? 1 : 0;
    }
    gnutls_deinit(session);
    gnutls_certificate_free_credentials(credentials);
    (void)close(fd);
    return got;
}

/* Where the body begins, which has to be `n_bytes` long. */
static const uint8_t *body_of(const download *got, uint64_t n_bytes)
{
    const char *end_of_head = strstr((const char *)got->bytes, "\r\n\r\n");
    cr_assert_not_null(end_of_head);
    const uint8_t *body = (const uint8_t *)end_of_head + 4;
    cr_assert_eq(got->n_bytes - (size_t)(body - got->bytes), n_bytes);
    return body;
}

Test(http_file, parts_of_a_file_in_whole_records)
{
    static const uint64_t parts[][2] = {
        {0, FILE_BYTES}, {1, 16384}, {12345, 16385}, {FILE_BYTES - 1, 1}, {7, 100000}};
    site where;
    begin(&where);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        where.offset = parts[i][0];
        where.n_bytes = parts[i][1];
        download *got = fetch(&where);
        const uint8_t *body = body_of(got, where.n_bytes);
        for (uint64_t k = 0; k < where.n_bytes; k++) {
            cr_assert_eq(body[k], byte_at(where.offset + k), "part %zu, byte %d", i, (int)k);
        }
        /* The head, and as few as a body of that length can take, but for one at either end. */
        const int least = (int)((where.n_bytes + 16383) / 16384);
        cr_assert_leq(got->n_records, least + 3, "part %zu: %d records", i, got->n_records);
        free(got);
    }
    end(&where);
    cr_assert_eq(fcntl(where.fd, F_GETFD), -1, "the last file was not closed");
}

Test(http_file, a_file_that_ends_too_early_cuts_the_answer)
{
    site where;
    begin(&where);
    where.offset = FILE_BYTES - 20000;
    where.n_bytes = 40000;
    download *got = fetch(&where);
    cr_assert_lt(got->n_bytes, 20000 + HEAD_BYTES);
    free(got);
    end(&where);
}
