/*
 * parts.c - what part each device has in the current round, counted as it changes.
 *
 * Invariant: the counts are those of the round they name; as soon as the server is in another one
 * they are empty, and nobody's part of before counts, but for work where rounds are buffered.
 */
#include "context.h"
#include "devices.h"

#include <string.h>

/* The counts of the current round. */
static dunlin__server_parts *parts_now(dunlin__server *server)
{
    dunlin__server_parts *parts = &server->devices.parts;
    if (parts->round != server->round.round) {
        const dunlin__server_parts before = *parts;
        memset(parts, 0, sizeof *parts);
        parts->round = server->round.round;
        if (server->task.buffered.is_on) {
            parts->n[DUNLIN_PART_ASSIGNED] = before.n[DUNLIN_PART_ASSIGNED];
            parts->assigned = before.assigned;
        }
    }
    return parts;
}

void dunlin__device_parts_turn(dunlin__server *server)
{
    (void)parts_now(server);
}

dunlin__part dunlin__device_part(const dunlin__server *server, const dunlin__server_device *device)
{
    const bool is_kept = server->task.buffered.is_on && device->part == DUNLIN_PART_ASSIGNED;
    return is_kept || device->part_round == server->round.round ? device->part : DUNLIN_PART_NONE;
}

/* The list that devices with a part are in; NULL: none. */
static dunlin__server_device **list_of(dunlin__server_parts *parts, dunlin__part part)
{
    if (part == DUNLIN_PART_OFFERED) {
        return &parts->offered;
    }
    return part == DUNLIN_PART_ASSIGNED ? &parts->assigned : NULL;
}

void dunlin__device_leave_part(dunlin__server *server, dunlin__server_device *device)
{
    dunlin__server_parts *parts = parts_now(server);
    dunlin__part part = dunlin__device_part(server, device);
    if (part == DUNLIN_PART_NONE) {
        return;
    }
    parts->n[part]--;
    dunlin__server_device **list = list_of(parts, part);
    if (list != NULL) {
        if (device->list_before != NULL) {
            device->list_before->list_after = device->list_after;
        } else {
            *list = device->list_after;
        }
        if (device->list_after != NULL) {
            device->list_after->list_before = device->list_before;
        }
    }
    device->part = DUNLIN_PART_NONE;
}

void dunlin__device_set_part(dunlin__server *server, dunlin__server_device *device,
                             dunlin__part part)
{
    dunlin__server_parts *parts = parts_now(server);
    dunlin__device_leave_part(server, device);
    device->part_round = server->round.round;
    device->part = part;
    device->is_uploading = false;
    device->has_failed = false;
    device->list_before = NULL;
    device->list_after = NULL;
    if (part == DUNLIN_PART_NONE) {
        return;
    }
    parts->n[part]++;
    dunlin__server_device **list = list_of(parts, part);
    if (list != NULL) {
        device->list_after = *list;
        if (*list != NULL) {
            (*list)->list_before = device;
        }
        *list = device;
    }
}
