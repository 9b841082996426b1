/*
 * fetch.h - downloads the base of a round to the storage.
 */
#ifndef DUNLIN_SDK_FETCH_H
#define DUNLIN_SDK_FETCH_H

#include "context/client_context.h"

/* Downloads and verifies the base, all of it or what is missing; checks room, limits, finiteness.
 */
dunlin_status dunlin__fetch_base(dunlin_client *client, dunlin__fault *out_fault);

#endif
