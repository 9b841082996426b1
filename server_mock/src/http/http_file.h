/*
 * http_file.h - a part of a file as the body of a reply.
 */
#ifndef DUNLIN_SERVER_HTTP_FILE_H
#define DUNLIN_SERVER_HTTP_FILE_H

#include <dunlin/alloc.h>

#include <microhttpd.h>
#include <stdint.h>

/* A response with the `n_bytes` bytes of the open file `fd` from `offset` on, and no headers. On
 * success it owns `fd` and closes it; NULL when there is no memory. */
struct MHD_Response *dunlin__http_file_response(const dunlin_alloc *alloc, int fd, uint64_t offset,
                                                uint64_t n_bytes);

#endif
