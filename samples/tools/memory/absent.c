/*
 * absent.c - stands in for runs in memory in a build without the server, or with a shared library,
 * which does not show what they need of it.
 */
#include "loop.h"
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

int loop_open(const fleet_flags *flags, const fleet_world *world, fleet_server *server)
{
    (void)server;
    return memory_run(flags, world, "", NULL); /* says what is missing */
}

void loop_close(loop *all)
{
    (void)all;
}

void loop_tell(loop *all, int64_t ms)
{
    (void)all;
    (void)ms;
}

json_t *loop_status(loop *all)
{
    (void)all;
    return NULL;
}

dunlin_transport *loop_transport(loop *all)
{
    (void)all;
    return NULL;
}

dunlin_status loop_relax(dunlin_runtime *runtime, bool has_moments, dunlin_error *error)
{
    (void)runtime;
    (void)has_moments;
    (void)error;
    return DUNLIN_UNSUPPORTED;
}

dunlin_key_store loop_keys(void)
{
    return (dunlin_key_store){0};
}

dunlin_status loop_keep(loop *all, const char *path, dunlin_error *error)
{
    (void)all;
    (void)path;
    (void)error;
    return DUNLIN_UNSUPPORTED;
}

dunlin_status loop_settle(loop *all, dunlin_error *error)
{
    (void)all;
    (void)error;
    return DUNLIN_UNSUPPORTED;
}

bool loop_has_moments(void)
{
    return false;
}

dunlin_status loop_hold(dunlin_runtime *runtime, dunlin_error *error)
{
    (void)runtime;
    (void)error;
    return DUNLIN_UNSUPPORTED;
}

void loop_settle_runtime(dunlin_runtime *runtime)
{
    (void)runtime;
}
