/*
 * faults.h - the fault script: which requests go wrong, and how.
 *
 * A script is read once and then only asked. Which requests are hit follows from the script, its
 * seed and the number of the request among those of its call alone, so a run can be repeated.
 */
#ifndef DUNLIN_SERVER_FAULTS_H
#define DUNLIN_SERVER_FAULTS_H

#include "state/context.h"
#include "state/reply.h"

/* How a request goes wrong; FAULTS.md has the table. */
typedef enum dunlin__fault_kind {
    DUNLIN_FAULT_NONE = 0,
    DUNLIN_FAULT_DROP_REQUEST, /* the connection closes within the request's body */
    DUNLIN_FAULT_DROP_REPLY,   /* ... within the reply's */
    DUNLIN_FAULT_LOSE,         /* the call is done, its reply never sent */
    DUNLIN_FAULT_STATUS,       /* an HTTP status with a page of text, as a proxy gives it */
    DUNLIN_FAULT_REFUSE,       /* a typed status of the protocol */
    DUNLIN_FAULT_SLOW,
    DUNLIN_FAULT_STALL,
    DUNLIN_FAULT_DUPLICATE,
    DUNLIN_FAULT_REORDER, /* answered after a later request */
    DUNLIN_FAULT_REPLAY,  /* the answer to an earlier request of the call */
    DUNLIN_FAULT_WRONG_DIGEST,
    DUNLIN_FAULT_BAD_SIGNATURE,
    DUNLIN_FAULT_STALE_ROUND,
    DUNLIN_FAULT_CLOCK_SKEW,
    DUNLIN_FAULT_OVERSIZED,
    DUNLIN_FAULT_PORTAL, /* 200 with a login page */
    DUNLIN_FAULT_REDIRECT,
    DUNLIN_FAULT_ENCODING, /* says Content-Encoding: gzip */
    DUNLIN_N_FAULTS
} dunlin__fault_kind;

/* What happens to one request. */
typedef struct dunlin__script_fault {
    dunlin__fault_kind kind;
    bool is_random; /* the byte is drawn: dunlin__fault_byte() */
    int64_t amount; /* bytes, milliseconds, bytes a second, HTTP status or status of the protocol */
    int64_t retry_ms; /* of STATUS; -1: none */
    uint64_t draw;    /* a random number of this request */
} dunlin__script_fault;

typedef struct dunlin__faults dunlin__faults;

/* Reads a script. ARGUMENT names file and line of the first thing wrong; IO, LIMIT (64 KiB, 256
 * rules). Give it back with ..._free(). */
DUNLIN_NODISCARD dunlin_status dunlin__faults_read(const char *path, const dunlin_alloc *alloc,
                                                   dunlin__faults **out_faults,
                                                   dunlin_error *error);
void dunlin__faults_free(dunlin__faults *faults);

/* Counts a request of the call and says which fault hits it; kind NONE if none. Any thread. */
dunlin__script_fault dunlin__faults_next(dunlin__faults *faults, dunlin__call call);

/* The byte of n_bytes where a fault strikes: as the script says, or drawn. May be beyond the end if
 * the script says so. */
uint64_t dunlin__fault_byte(const dunlin__script_fault *fault, uint64_t n_bytes);

/* The name of a fault in a script. */
const char *dunlin__fault_name(dunlin__fault_kind kind);

/* fault_reply.c: makes the reply that STATUS, REFUSE, PORTAL and REDIRECT give instead of the call;
 * false for other kinds. */
bool dunlin__fault_replace(const dunlin__script_fault *fault, dunlin__server_reply *reply);
/* fault_reply.c: spoils the finished reply of a call: BAD_SIGNATURE, STALE_ROUND. */
void dunlin__fault_spoil(const dunlin__server *server, const dunlin__script_fault *fault,
                         const dunlin__server_request *request, dunlin__server_reply *reply);

#endif
