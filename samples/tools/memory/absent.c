/*
 * absent.c - stands in for runs in memory in a build without the server, or with a shared library,
 * which does not show what they need of it.
 */
#include "memory.h"

int memory_join(fleet_flags *flags)
{
    (void)flags;
    return EXIT_OK;
}

void memory_leave(fleet_flags *flags, int exit_status)
{
    (void)flags;
    (void)exit_status;
}

int memory_run(const fleet_flags *flags, const fleet_world *world, const char *command,
               json_t **out_result)
{
    (void)flags;
    (void)world;
    (void)command;
    (void)out_result;
    return program_misuse(&fleet_program, "--transport memory needs a build with DUNLIN_SERVER and "
                                          "without BUILD_SHARED_LIBS");
}
