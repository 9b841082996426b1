/*
 * parts.c - what part each device has in the current round, counted as it changes.
 *
 * Invariant: the counts are those of the round they name; as soon as the server is in another one
 * they are empty, and nobody's part of before counts.
 */
#include "context.h"
#include "devices.h"

#include <string.h>

/* The counts of the current round. */
static dunlin__server_parts *parts_now(dunlin__server *server)
{
    dunlin__server_parts *parts = &server->devices.parts;
    if (parts->round != server->round.round) {
        memset(parts, 0, sizeof *parts);
        parts->round = server->round.round;
    }
    return parts;
}

dunlin__part dunlin__device_part(const dunlin__server *server, const dunlin__server_device *device)
{
    return device->part_round == server->round.round ? device->part : DUNLIN_PART_NONE;
}

void dunlin__device_leave_part(dunlin__server *server, dunlin__server_device *device)
{
    dunlin__server_parts *parts = parts_now(server);
    dunlin__part part = dunlin__device_part(server, device);
    if (part == DUNLIN_PART_NONE) {
        return;
    }
    parts->n[part]--;
    if (part == DUNLIN_PART_OFFERED) {
        if (device->offered_before != NULL) {
            device->offered_before->offered_after = device->offered_after;
        } else {
            parts->offered = device->offered_after;
        }
        if (device->offered_after != NULL) {
            device->offered_after->offered_before = device->offered_before;
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
    device->offered_before = NULL;
    device->offered_after = NULL;
    if (part == DUNLIN_PART_NONE) {
        return;
    }
    parts->n[part]++;
    if (part == DUNLIN_PART_OFFERED) {
        device->offered_after = parts->offered;
        if (parts->offered != NULL) {
            parts->offered->offered_before = device;
        }
        parts->offered = device;
    }
}
