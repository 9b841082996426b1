/*
 * psa_lock.h - the one lock around PSA.
 *
 * The crypto library keeps key slots and its random generator in process-wide state without locks
 * of its own; no PSA call is made outside dunlin__psa_begin() and dunlin__psa_end().
 */
#ifndef DUNLIN_PROTO_PSA_LOCK_H
#define DUNLIN_PROTO_PSA_LOCK_H

#include <dunlin/base.h>

#include <psa/crypto.h>

/**
 * Takes the lock and starts the library if that has not happened. Between begin and end only PSA
 * calls, no callbacks.
 *
 * @return OK; INTERNAL: the lock is not held.
 */
DUNLIN_NODISCARD dunlin_status dunlin__psa_begin(dunlin_error *error);
void dunlin__psa_end(void);

/** @return MEMORY or INTERNAL for what PSA says, with a text: "signing failed (error -132)". */
dunlin_status dunlin__psa_fail(dunlin_error *error, psa_status_t status, const char *what);

#endif
