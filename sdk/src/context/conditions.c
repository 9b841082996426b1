/*
 * conditions.c - what the app requires of the device: power, an unmetered network, an idle device.
 *
 * Invariant: while a condition does not hold, nothing is trained and no byte is sent or received,
 * except for a commit, which may count already; a round ends only when a condition has not held for
 * the grace period.
 */
#include "conditions.h"

#include "client_context.h"

dunlin_conditions dunlin__client_conditions(const dunlin_client *client)
{
    dunlin_conditions conditions = {.struct_size = sizeof conditions,
                                    .is_charging = true,
                                    .is_unmetered = true,
                                    .is_idle = true,
                                    .n_examples = -1};
    if (client->options.conditions_fn != NULL) {
        dunlin_conditions said = DUNLIN_CONDITIONS_INIT;
        if (client->options.conditions_fn(client->options.conditions_ctx, &said)) {
            conditions = said;
        }
    }
    return conditions;
}

bool dunlin__client_is_eligible(const dunlin_client *client, const dunlin_conditions *conditions)
{
    return (!client->options.require_charging || conditions->is_charging) &&
           (!client->options.require_unmetered || conditions->is_unmetered) &&
           (!client->options.require_idle || conditions->is_idle);
}
