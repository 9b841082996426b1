/*
 * signing.h - the keys that sign assignments: the one in use, and the next.
 */
#ifndef DUNLIN_SERVER_SIGNING_H
#define DUNLIN_SERVER_SIGNING_H

#include "certs.h"

/* Reads signing.key and signing-next.key, makes what is not there, and writes both .pub files. */
DUNLIN_NODISCARD dunlin_status dunlin__signing_load(const char *folder, const dunlin_alloc *alloc,
                                                    dunlin__server_certs *certs,
                                                    dunlin_error *error);

#endif
