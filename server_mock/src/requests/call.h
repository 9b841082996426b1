/*
 * call.h - what the calls share: the state of one call.
 */
#ifndef DUNLIN_SERVER_CALL_H
#define DUNLIN_SERVER_CALL_H

#include "state/context.h"
#include "state/reply.h"

#include <wire/compress.h>

/* A call at work: it runs locked, inside one transaction with the stored answer. */
typedef struct dunlin__call_state {
    dunlin__server *server;
    const dunlin__server_request *request;
    dunlin__server_reply *reply;
    dunlin__server_device *device; /* NULL where the call has none */
    int64_t now_ms;
    bool is_brief; /* the stored answer may be dropped soon */
    /* Of commit: what was prepared outside the lock. */
    dunlin__commit_request commit;
    dunlin__server_path spooled; /* "" if there is none */
    uint64_t round;              /* the assignment's */
    bool has_packing;            /* that the update comes in */
    dunlin__packing packing;
    bool is_whole;    /* all chunks of a masked vector are there */
    double clip_norm; /* that the update is held against; 0: none */
    bool is_refused;  /* the update itself is bad; the text says why */
    char refusal[160];
    /* Files to remove once the transaction is through: an assignment's. */
    char finished_assignment[DUNLIN_WIRE_ID_BYTES];
    /* What it did, told once its transaction is through; enrolments may evict somebody, too. */
    dunlin__server_event events[2];
    bool is_forgotten; /* forget: take the device out of the table afterwards */
} dunlin__call_state;

/* False: the path names another population, or another version is spoken; refused. */
bool dunlin__call_is_ours(const dunlin__call_state *call);
bool dunlin__call_speaks(const dunlin__call_state *call, uint32_t version);
/* Notes what the call does, for its device's place; the text is printf's. The notes of a call that
 * is refused or fails are dropped. */
void dunlin__call_note(dunlin__call_state *call, dunlin__server_event_kind kind, uint32_t reason,
                       int64_t place, const char *format, ...) DUNLIN_PRINTF(5, 6);
/* When a device that gets no work comes again. */
dunlin__window dunlin__server_window(uint64_t least_ms);

#endif
