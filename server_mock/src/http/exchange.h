/*
 * exchange.h - the HTTP front, and one request from its first header to its answer.
 */
#ifndef DUNLIN_SERVER_EXCHANGE_H
#define DUNLIN_SERVER_EXCHANGE_H

#include "connections.h"
#include "faults/faults.h"
#include "faults/hold.h"
#include "requests/objects.h"
#include "state/context.h"
#include "state/reply.h"

#include <microhttpd.h>

typedef struct dunlin__http dunlin__http;

/* What a fault script needs; NULL without one. */
typedef struct dunlin__http_faults {
    dunlin__faults *script;
    dunlin__holds *holds;
    pthread_mutex_t lock; /* over the earlier replies */
    bool has_earlier[DUNLIN_N_CALLS];
    dunlin__server_reply earlier[DUNLIN_N_CALLS];
} dunlin__http_faults;

struct dunlin__http {
    dunlin__server *server;
    struct MHD_Daemon *daemon;
    struct MHD_Daemon *retired; /* with the certificate before; ends what it has begun */
    dunlin__connections *connections;
    char *trust; /* the CA of clients, PEM */
    size_t trust_bytes;
    dunlin__http_faults *faults;
    char policy[384]; /* the page's Content-Security-Policy */
};

/* One request from its first header to its answer. */
typedef struct dunlin__exchange {
    dunlin__http *http;
    dunlin__server *server;
    dunlin__connection *connection;
    char path[DUNLIN_WIRE_PATH_BYTES];
    bool is_path_long;
    bool is_begun;
    bool is_answered; /* the reply stands; what is still to come is ignored */
    bool is_hopeless; /* a body too large to be read just to be thrown away */
    unsigned view;    /* DUNLIN_WATCH_PAGE ...: answered as such; 0: a call, or refused */
    unsigned asked;   /* the call or view that was asked for, for the counts */
    bool is_upload;
    bool was_held;
    uint8_t *body;
    size_t n_body;
    size_t capacity;
    size_t limit;
    uint64_t announced_bytes; /* Content-Length */
    uint64_t n_taken;         /* bytes of the body so far */
    int64_t begun_ms;
    dunlin__script_fault fault;
    dunlin__server_request request;
    char peer[DUNLIN_SERVER_HOST_BYTES]; /* the client's address, by the trusted proxy's word too */
    const char *trace;                   /* a header by which a proxy gave itself away, or NULL */
    bool is_proxied;                     /* by a trusted proxy */
    bool is_near;                        /* on this machine, and no proxy in between */
    uint8_t certificate_sha256[DUNLIN_SHA256_BYTES];
    dunlin__server_upload upload;
    dunlin__server_reply reply;
} dunlin__exchange;

/* libmicrohttpd's callbacks. */
void *dunlin__http_begin(void *cls, const char *uri, struct MHD_Connection *connection);
void dunlin__http_end(void *cls, struct MHD_Connection *connection, void **con_cls,
                      enum MHD_RequestTerminationCode code);
enum MHD_Result dunlin__http_request(void *cls, struct MHD_Connection *connection, const char *url,
                                     const char *method, const char *version,
                                     const char *upload_data, size_t *upload_data_size,
                                     void **con_cls);

#endif
