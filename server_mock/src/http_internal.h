/*
 * http_internal.h - what the files of the HTTP front share: the front itself and one exchange.
 */
#ifndef DUNLIN_SERVER_HTTP_INTERNAL_H
#define DUNLIN_SERVER_HTTP_INTERNAL_H

#include "connections.h"
#include "faults.h"
#include "hold.h"
#include "http.h"

#include <microhttpd.h>

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
    bool is_status;
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

/* http.c: libmicrohttpd's callbacks. */
void *dunlin__http_begin(void *cls, const char *uri, struct MHD_Connection *connection);
void dunlin__http_end(void *cls, struct MHD_Connection *connection, void **con_cls,
                      enum MHD_RequestTerminationCode code);
enum MHD_Result dunlin__http_request(void *cls, struct MHD_Connection *connection, const char *url,
                                     const char *method, const char *version,
                                     const char *upload_data, size_t *upload_data_size,
                                     void **con_cls);

/* http_peer.c: SHA-256 of the public key in the client's certificate; false if it showed none. */
bool dunlin__http_certificate(struct MHD_Connection *connection,
                              uint8_t out_sha256[DUNLIN_SHA256_BYTES]);

/* The address of the other end as 16 bytes (IPv4 mapped); false if it is a trusted proxy. */
bool dunlin__http_address(const dunlin__http *http, struct MHD_Connection *connection,
                          uint8_t out_bytes[16]);
/* Who asks: `peer` and what follows it. False: the proxy is set up wrongly, refused. */
bool dunlin__http_peer(dunlin__exchange *now, struct MHD_Connection *connection);
/* False: the status is not for this client; the reply says for whom it is. */
bool dunlin__http_may_see_status(dunlin__exchange *now, struct MHD_Connection *connection);

/* http_reply.c: sends the exchange's reply, with what its fault does to it on the way. */
enum MHD_Result dunlin__http_send(dunlin__exchange *now, struct MHD_Connection *connection);

/* http_faults.c */
DUNLIN_NODISCARD dunlin_status dunlin__http_faults_open(const char *path, const dunlin_alloc *alloc,
                                                        dunlin__http_faults **out_faults,
                                                        dunlin_error *error);
void dunlin__http_faults_free(dunlin__http_faults *faults, const dunlin_alloc *alloc);
/* Decides what befalls the exchange. True: its reply is there already. */
bool dunlin__http_fault_begin(dunlin__exchange *now);
/* How many of n_bytes of the body may be taken now: fewer, and *out_is_over set, where the
 * connection is to be dropped; 0 where the connection was put to sleep. */
size_t dunlin__http_fault_intake(dunlin__exchange *now, struct MHD_Connection *connection,
                                 size_t n_bytes, bool *out_is_over);
/* What a fault does when the whole request is there. */
typedef enum dunlin__fault_turn {
    DUNLIN_TURN_GO,
    DUNLIN_TURN_HELD,
    DUNLIN_TURN_DROP
} dunlin__fault_turn;
dunlin__fault_turn dunlin__http_fault_before(dunlin__exchange *now,
                                             struct MHD_Connection *connection);
/* Changes the reply of the call that was done. True: it is never sent. */
bool dunlin__http_fault_after(dunlin__exchange *now);
/* Somebody was answered. */
void dunlin__http_fault_answered(dunlin__http *http);

/* By a clock that is never set back. */
int64_t dunlin__http_uptime_ms(void);

#endif
