/*
 * enrol.h - who gets a place in the population.
 */
#ifndef DUNLIN_SERVER_ENROL_H
#define DUNLIN_SERVER_ENROL_H

#include "call.h"

void dunlin__serve_enrol(dunlin__call_state *call);
/* Refuses a device that is not in the table, and tells one that lost its place so. Locked. */
void dunlin__server_refuse_stranger(dunlin__server *server, const char *device_id,
                                    dunlin__server_reply *reply);

#endif
