/*
 * unequal.c - rounds for unequal devices: part of the work, as keys of the server's task file.
 */
#include "fleet.h"

#include <string.h>

/* With a server that runs already, the rounds are that server's. */
static const char *first_given(const fleet_flags *flags)
{
    return flags->partial > 0.0 ? "--partial" : NULL;
}

int fleet_check_unequal(fleet_flags *flags)
{
    const char *given = first_given(flags);
    if (flags->server_url != NULL && given != NULL) {
        return program_misuse(&fleet_program,
                              "%s is for the server that --serve starts: the rounds of one that "
                              "runs already stand in its task file",
                              given);
    }
    if (flags->partial > 0.0 && strcmp(flags->algorithm, "scaffold") == 0) {
        return program_misuse(&fleet_program,
                              "--partial does not go with --algorithm scaffold, which averages "
                              "devices alike, whatever they did");
    }
    return EXIT_OK;
}

void fleet_unequal_json(const fleet_flags *flags, json_t *task, json_t *plan)
{
    (void)task;
    if (flags->partial > 0.0) {
        (void)json_object_set_new(plan, "partial", json_real(flags->partial));
    }
}
