/*
 * close_tell.h - the line in the log of a round that is over.
 */
#ifndef DUNLIN_SERVER_CLOSE_TELL_H
#define DUNLIN_SERVER_CLOSE_TELL_H

#include "state/context.h"

/* Says how a round that is closed ended, and why, if it failed. Locked. */
void dunlin__round_tell(const dunlin__server *server, const dunlin__round_row *row);

#endif
