/*
 * checkin.h - check in, accept or decline an offer, forget. Locked, all of them.
 */
#ifndef DUNLIN_SERVER_CHECKIN_H
#define DUNLIN_SERVER_CHECKIN_H

#include "call.h"

void dunlin__serve_checkin(dunlin__call_state *call);
void dunlin__serve_accept(dunlin__call_state *call);
void dunlin__serve_forget(dunlin__call_state *call);

#endif
