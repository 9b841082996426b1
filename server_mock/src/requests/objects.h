/*
 * objects.h - chunks down, public by their hash; chunks of an update up.
 */
#ifndef DUNLIN_SERVER_OBJECTS_H
#define DUNLIN_SERVER_OBJECTS_H

#include "state/context.h"
#include "state/reply.h"

void dunlin__server_object_get(dunlin__server *server, const dunlin__server_request *request,
                               dunlin__server_reply *reply);
void dunlin__server_chunk_head(dunlin__server *server, const dunlin__server_request *request,
                               dunlin__server_reply *reply);

/* A chunk on its way up. Bytes go to the file as they come, so a cut leaves what has arrived. */
typedef struct dunlin__server_upload {
    int fd; /* -1: nothing is written (there already, or refused) */
    dunlin__server_path part;
    dunlin__server_path whole;
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    uint64_t offset; /* of the next byte */
    uint64_t end;    /* of the announced range */
    uint64_t total_bytes;
} dunlin__server_upload;

/* Checks token, chunk and range. False: the reply is the answer, the body is to be ignored. */
bool dunlin__server_upload_begin(dunlin__server *server, const dunlin__server_request *request,
                                 dunlin__server_upload *upload, dunlin__server_reply *reply);
/* False: as above. */
bool dunlin__server_upload_write(dunlin__server_upload *upload, const void *bytes, size_t n_bytes,
                                 dunlin__server_reply *reply);
/* The whole body is there: answers. */
void dunlin__server_upload_end(dunlin__server_upload *upload, dunlin__server_reply *reply);
/* The connection is gone: keeps what has arrived. Harmless after end. */
void dunlin__server_upload_abort(dunlin__server_upload *upload);

#endif
