/*
 * conditions.h - what the app requires of the device, and whether it holds.
 */
#ifndef DUNLIN_SDK_CONDITIONS_H
#define DUNLIN_SDK_CONDITIONS_H

#include "client_context.h"

/* The device's conditions now; all is well if the app does not say. */
dunlin_conditions dunlin__client_conditions(const dunlin_client *client);
/* Do they meet what the app itself requires? */
bool dunlin__client_is_eligible(const dunlin_client *client, const dunlin_conditions *conditions);

#endif
