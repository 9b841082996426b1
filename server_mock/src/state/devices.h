/*
 * devices.h - the table of devices, their challenges and counters, and their parts in the current
 * round.
 *
 * All calls are made under the server's lock.
 */
#ifndef DUNLIN_SERVER_DEVICES_H
#define DUNLIN_SERVER_DEVICES_H

#include "db.h"

/* So many slots of devices there are before those that were removed are looked for. */
#define DUNLIN_SERVER_COMPACT 65536u
#define DUNLIN_SERVER_CHALLENGE_BYTES 33u /* 32 hex digits and the ending 0 */

typedef struct dunlin__server dunlin__server;

typedef enum dunlin__part {
    DUNLIN_PART_NONE = 0,
    DUNLIN_PART_OFFERED,
    DUNLIN_PART_ASSIGNED,
    DUNLIN_PART_ACCEPTED,
    DUNLIN_PART_DROPPED
} dunlin__part;

#define DUNLIN_N_PARTS 5u

/* What is known of a device's work, for whom a round asks; in memory, found again after a start. */
typedef struct dunlin__reported {
    uint64_t round; /* of its last contribution; 0: none yet */
    double loss;    /* mean, in its training */
    double n_examples;
    double took_ms; /* from the assignment to the commit; 0: not known */
} dunlin__reported;

typedef struct dunlin__server_device dunlin__server_device;
struct dunlin__server_device {
    dunlin__device_row row; /* row.row 0: forgotten, the slot is free */
    char challenge[DUNLIN_SERVER_CHALLENGE_BYTES];
    int64_t challenge_ms;
    uint64_t counter_top;  /* the highest counter seen over the challenge */
    uint64_t counter_seen; /* bit i: counter_top - i was used */
    bool has_checked_in;
    uint64_t part_round; /* the round that `part` speaks of; of one with work, that it has */
    dunlin__part part;
    bool is_uploading; /* of a part ASSIGNED: the manifest of the update is there */
    bool has_failed;   /* of a part DROPPED: it went wrong, and was not just given up */
    int64_t offer_until_ms;
    int64_t assigned_ms; /* when it got the work that it has, or had */
    dunlin__reported reported;
    int64_t work_until_ms; /* of a part ASSIGNED: its own deadline in buffered rounds */
    dunlin__server_device *list_before; /* among those with an offer, or with work */
    dunlin__server_device *list_after;
    uint32_t n_missed; /* rounds in a row that it took work in and let end without an answer */
};

/* How many devices have which part in a round, those among them that were removed too. In buffered
 * rounds whoever has work keeps it beyond the round that it comes from. */
typedef struct dunlin__server_parts {
    uint64_t round;                  /* 0: none yet */
    uint32_t n[DUNLIN_N_PARTS];      /* NONE is not counted */
    dunlin__server_device *offered;  /* those with an offer, which may have expired */
    dunlin__server_device *assigned; /* those with work */
} dunlin__server_parts;

/* No call looks at all devices but those that say so. */
typedef struct dunlin__server_devices {
    dunlin__server_device **list; /* in the order of enrolment */
    size_t n;
    size_t capacity;
    uint32_t *by_id;     /* place in the list + 1; open addressing */
    uint32_t *by_key;    /* the same by public key */
    uint32_t n_slots;    /* of each of the two; at least twice as many as the list has */
    uint32_t *by_index;  /* the same by client index, a slot each; 0: nobody has it */
    uint32_t n_indices;  /* slots of it; nobody has an index beyond */
    uint64_t seed;       /* of the order of by_key */
    int64_t lowest_free; /* no client index below it is free */
    uint64_t n_known;
    uint64_t n_checked_in;
    dunlin__server_parts parts;
} dunlin__server_devices;

DUNLIN_NODISCARD dunlin_status dunlin__devices_add(dunlin__server *server,
                                                   const dunlin__device_row *row,
                                                   dunlin__server_device **out_device,
                                                   dunlin_error *error);
dunlin__server_device *dunlin__devices_find(dunlin__server *server, const char *id);
dunlin__server_device *dunlin__devices_find_key(dunlin__server *server,
                                                const uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES]);
/* While the state is read only, before a device is removed: rows grow along the list then. */
dunlin__server_device *dunlin__devices_find_row(dunlin__server *server, int64_t row);
dunlin__server_device *dunlin__devices_find_index(dunlin__server *server, int64_t client_index);
/* The lowest client index nobody has; `limit` if all below it are taken. */
int64_t dunlin__devices_free_index(dunlin__server *server, int64_t limit);
void dunlin__devices_remove(dunlin__server *server, dunlin__server_device *device);
/* Drops the slots of devices that were removed, where no slot is free or half of many are theirs;
 * what they gave to the current round still counts. Looks at all devices, and comes once in as many
 * enrolments. */
void dunlin__devices_compact(dunlin__server *server);
void dunlin__devices_free(dunlin__server *server);
/* A new challenge if there is none or it is old. */
DUNLIN_NODISCARD dunlin_status dunlin__device_challenge(dunlin__server *server,
                                                        dunlin__server_device *device,
                                                        dunlin_error *error);
/* False if the counter was used or is too old to tell. */
bool dunlin__device_use_counter(dunlin__server_device *device, uint64_t counter);
/* The part in the current round; NONE if the device has none there. Work of an older round counts
 * where rounds are buffered. */
dunlin__part dunlin__device_part(const dunlin__server *server, const dunlin__server_device *device);
void dunlin__device_set_part(dunlin__server *server, dunlin__server_device *device,
                             dunlin__part part);
/* Turns the counts to the current round, as soon as the server is in it. */
void dunlin__device_parts_turn(dunlin__server *server);
/* Takes the device's part out of the counts, before its slot goes. */
void dunlin__device_leave_part(dunlin__server *server, dunlin__server_device *device);

#endif
