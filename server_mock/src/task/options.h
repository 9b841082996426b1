/*
 * options.h - the options of a server, which are those of the public header.
 */
#ifndef DUNLIN_SERVER_OPTIONS_H
#define DUNLIN_SERVER_OPTIONS_H

#include <dunlin/server.h>

#define DUNLIN_SERVER_HOST_BYTES 64u

#endif
