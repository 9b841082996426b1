/*
 * packed.h - the packed form of a base, if the task wants models to go down so.
 */
#ifndef DUNLIN_SERVER_PACKED_H
#define DUNLIN_SERVER_PACKED_H

#include "state/context.h"

/* Makes what devices fetch of a base that has just been published. A model that the packing cannot
 * have goes down as it is, with a warning. Nothing for a task without compress.down. Not locked.
 * IO, SPACE, MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__packed_make(dunlin__server *server, dunlin__published *model,
                                                   dunlin_error *error);

/* Takes it up after a start; of the newest base it is created again where it is missing, not whole,
 * or of another packing. Before the server's threads. */
DUNLIN_NODISCARD dunlin_status dunlin__packed_load(dunlin__server *server, dunlin__published *model,
                                                   bool is_newest, dunlin_error *error);

/* Before the model of a base is written: whatever was packed of another one counts no more. */
void dunlin__packed_remove(const dunlin__server *server, uint64_t round);

/* A packed base in an assignment for a device that reads those; nothing if there is none. */
void dunlin__packed_fill(const dunlin__published *model, dunlin__assignment *assignment);

/* The bytes that a device fetches of it: packed, with both manifests, or as it is. */
uint64_t dunlin__packed_bytes(const dunlin__published *model, bool takes_packed);

#endif
