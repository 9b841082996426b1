/*
 * http_file.c - a part of a file as the body of a reply, read in blocks as long as a record of TLS.
 *
 * libmicrohttpd's own reader of files takes 4 KiB at a time, and makes a record, a system call and
 * a turn of its loop of each.
 */
#include "http_file.h"

#include "base/files.h"

#include <mem/support.h>

#include <unistd.h>

#define BLOCK_BYTES 16384u /* the most that a record carries (RFC 8446, 5.1) */

typedef struct file_body {
    dunlin_alloc alloc;
    int fd;
    uint64_t offset;
    uint64_t n_bytes;
} file_body;

static ssize_t read_block(void *cls, uint64_t place, char *out, size_t most)
{
    const file_body *body = cls;
    uint64_t left = body->n_bytes - place;
    size_t n = left < most ? (size_t)left : most;
    dunlin_error ignored;
    if (dunlin__server_read_at(body->fd, "a reply", body->offset + place, out, n, &ignored) !=
        DUNLIN_OK) {
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    return (ssize_t)n;
}

static void close_body(void *cls)
{
    file_body *body = cls;
    dunlin_alloc alloc = body->alloc;
    (void)close(body->fd);
    dunlin__free_array(&alloc, body, 1, sizeof *body);
}

struct MHD_Response *dunlin__http_file_response(const dunlin_alloc *alloc, int fd, uint64_t offset,
                                                uint64_t n_bytes)
{
    file_body *body = dunlin__alloc_zeroed(alloc, 1, sizeof *body);
    if (body == NULL) {
        return NULL;
    }
    *body = (file_body){.alloc = *alloc, .fd = fd, .offset = offset, .n_bytes = n_bytes};
    struct MHD_Response *response =
        MHD_create_response_from_callback(n_bytes, BLOCK_BYTES, read_block, body, close_body);
    if (response == NULL) { /* close_body() was not called */
        dunlin__free_array(alloc, body, 1, sizeof *body);
    }
    return response;
}
