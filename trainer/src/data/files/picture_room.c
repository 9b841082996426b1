/*
 * picture_room.c - a counter of bytes behind a lock.
 */
#include "picture_room.h"

void dunlin__picture_room_init(dunlin_picture_room *room, uint64_t limit)
{
    *room = (dunlin_picture_room){.limit = limit};
    (void)pthread_mutex_init(&room->lock, NULL);
    (void)pthread_cond_init(&room->freed, NULL);
}

void dunlin__picture_room_end(dunlin_picture_room *room)
{
    (void)pthread_cond_destroy(&room->freed);
    (void)pthread_mutex_destroy(&room->lock);
}

bool dunlin__picture_room_take(dunlin_picture_room *room, uint64_t bytes)
{
    if (bytes > room->limit) {
        return false;
    }
    (void)pthread_mutex_lock(&room->lock);
    while (room->taken > room->limit - bytes) {
        (void)pthread_cond_wait(&room->freed, &room->lock);
    }
    room->taken += bytes;
    room->peak = room->taken > room->peak ? room->taken : room->peak;
    (void)pthread_mutex_unlock(&room->lock);
    return true;
}

void dunlin__picture_room_give(dunlin_picture_room *room, uint64_t bytes)
{
    (void)pthread_mutex_lock(&room->lock);
    room->taken -= bytes;
    (void)pthread_cond_broadcast(&room->freed);
    (void)pthread_mutex_unlock(&room->lock);
}

uint64_t dunlin__picture_room_peak(dunlin_picture_room *room)
{
    (void)pthread_mutex_lock(&room->lock);
    const uint64_t peak = room->peak;
    (void)pthread_mutex_unlock(&room->lock);
    return peak;
}
