/*
 * picture_room.h - the bytes that threads may decode in, all together.
 *
 * A thread takes once all that a picture will need, waiting while others have it, and gives it back
 * when it is done with the picture; so whoever holds room never waits, and none waits for ever.
 */
#ifndef DUNLIN_DATA_PICTURE_ROOM_H
#define DUNLIN_DATA_PICTURE_ROOM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct dunlin_picture_room {
    pthread_mutex_t lock;
    pthread_cond_t freed;
    uint64_t limit;
    uint64_t taken, peak;
} dunlin_picture_room;

void dunlin__picture_room_init(dunlin_picture_room *room, uint64_t limit);
void dunlin__picture_room_end(dunlin_picture_room *room);

/* False, at once, if it is more than the limit. */
bool dunlin__picture_room_take(dunlin_picture_room *room, uint64_t bytes);
void dunlin__picture_room_give(dunlin_picture_room *room, uint64_t bytes);

/* The most that was taken at a time. */
uint64_t dunlin__picture_room_peak(dunlin_picture_room *room);

#endif
