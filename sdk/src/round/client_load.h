/*
 * client_load.h - the journal of a client, read.
 */
#ifndef DUNLIN_SDK_CLIENT_LOAD_H
#define DUNLIN_SDK_CLIENT_LOAD_H

#include "context/client_context.h"

/* The journal as the store has it; that of another installation is emptied. */
dunlin_status dunlin__client_load(dunlin_client *client, dunlin_error *error);

#endif
