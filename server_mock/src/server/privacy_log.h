/*
 * privacy_log.h - what a folder of state says that its rounds have cost, reckoned again.
 */
#ifndef DUNLIN_SERVER_PRIVACY_LOG_H
#define DUNLIN_SERVER_PRIVACY_LOG_H

#include "privacy/account.h"

/**
 * Reads the terms and the closed rounds of a folder, with no look at any task, and reckons what
 * they have cost. A server may have the folder meanwhile.
 *
 * @return OK; IO: no server's folder; STATE: its run has no noise, or no round has closed; DATA: a
 * round says another epsilon than its terms give; as dunlin__privacy_account(). *out_text is JSON,
 * to be given to free(): the answer of dunlin__privacy_tell(), `private` and `terms`.
 */
DUNLIN_NODISCARD dunlin_status dunlin__privacy_log(const char *folder, const dunlin_alloc *alloc,
                                                   char **out_text, dunlin_error *error);

#endif
