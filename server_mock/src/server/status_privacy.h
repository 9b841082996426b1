/*
 * status_privacy.h - what a status has of a private run: what it has cost, and what it does not
 * tell.
 */
#ifndef DUNLIN_SERVER_STATUS_PRIVACY_H
#define DUNLIN_SERVER_STATUS_PRIVACY_H

#include "state/context.h"

#include <jansson.h>

/* Keys of a round, and of the open one, that would tell how many came; each list ends with NULL. */
extern const char *const dunlin__status_hidden_of_round[];
extern const char *const dunlin__status_hidden_of_open[];

/* Sets those keys of the object to null that are there. */
void dunlin__status_hide(json_t *object, const char *const *keys);

/* What the run has cost, what it will, and what that rests on; null without noise. Locked. */
json_t *dunlin__status_privacy(const dunlin__server *server);

#endif
