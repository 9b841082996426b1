/*
 * call.c - what the calls share.
 */
#include "call.h"

#include "state/reply.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

dunlin__window dunlin__server_window(uint64_t least_ms)
{
    /* The longest that the protocol has, if a guess is far off. */
    uint64_t most_ms = DUNLIN_WIRE_MAX_WAIT_MS / 3 * 2;
    least_ms = least_ms < most_ms ? least_ms : most_ms;
    return (dunlin__window){.min_ms = least_ms, .max_ms = least_ms + least_ms / 2};
}

bool dunlin__call_is_ours(const dunlin__call_state *call)
{
    if (strcmp(call->request->route.id, call->server->task.population) == 0) {
        return true;
    }
    dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_NOT_FOUND,
                          "there is no population \"%s\" here", call->request->route.id);
    return false;
}

bool dunlin__call_speaks(const dunlin__call_state *call, uint32_t version)
{
    if (version == DUNLIN_WIRE_VERSION) {
        return true;
    }
    dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_VERSION,
                          "protocol version %" PRIu32 " is not spoken here, %u is", version,
                          DUNLIN_WIRE_VERSION);
    return false;
}

void dunlin__call_note(dunlin__call_state *call, dunlin__server_event_kind kind, uint32_t reason,
                       int64_t place, const char *format, ...)
{
    dunlin__server_event *event = &call->events[call->events[0].is_there ? 1 : 0];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(event->text, sizeof event->text, format, args);
    va_end(args);
    event->is_there = true;
    event->kind = kind;
    event->reason = reason;
    event->place = place;
}
