/*
 * cohort.h - which devices get work: barrier, ranks, how long others wait. Locked.
 */
#ifndef DUNLIN_SERVER_COHORT_H
#define DUNLIN_SERVER_COHORT_H

#include "state/context.h"

typedef struct dunlin__part_counts {
    uint32_t n_offered; /* and not yet expired */
    uint32_t n_assigned;
    uint32_t n_accepted;
    uint32_t n_dropped;
} dunlin__part_counts;
dunlin__part_counts dunlin__server_count_parts(const dunlin__server *server, int64_t now_ms);
/* Accepted updates that end the open round: the cohort, or as many as were drawn. */
uint32_t dunlin__server_goal(const dunlin__server *server);
/* At a check-in: notes what became of the work that the device had before. */
void dunlin__device_settle(dunlin__server *server, dunlin__server_device *device, int64_t now_ms);
/* It took work and let it go unused: others come first for a while. */
void dunlin__device_miss(dunlin__server_device *device);
/* Why the device gets no work now; NONE if it may be offered some. */
dunlin_v1_rejection_t dunlin__server_judge(dunlin__server *server,
                                           const dunlin__server_device *device, int64_t now_ms);
/* Least wait of a device that gets no work: until it may get some, if that is known. */
uint64_t dunlin__server_wait_ms(dunlin__server *server, const dunlin__server_device *device);
/* Passes the barrier when enough have checked in. */
DUNLIN_NODISCARD dunlin_status dunlin__server_check_barrier(dunlin__server *server, int64_t now_ms,
                                                            dunlin_error *error);
/* Which devices get work in a round: sets in_cohort for the current round. */
DUNLIN_NODISCARD dunlin_status dunlin__server_choose_cohort(dunlin__server *server,
                                                            dunlin_error *error);
#endif
