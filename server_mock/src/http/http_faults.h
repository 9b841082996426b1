/*
 * http_faults.h - applies a fault script to an exchange.
 */
#ifndef DUNLIN_SERVER_HTTP_FAULTS_H
#define DUNLIN_SERVER_HTTP_FAULTS_H

#include "exchange.h"

DUNLIN_NODISCARD dunlin_status dunlin__http_faults_open(const char *path, const dunlin_alloc *alloc,
                                                        dunlin__http_faults **out_faults,
                                                        dunlin_error *error);
void dunlin__http_faults_free(dunlin__http_faults *faults, const dunlin_alloc *alloc);
/* Decides which fault hits the exchange. True: its reply is there already. */
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
