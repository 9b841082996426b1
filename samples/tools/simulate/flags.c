/*
 * flags.c - the flags of simulated time, and what goes with them.
 */
#include "devices.h"
#include "simulate.h"

#include <inttypes.h>

int sim_check_make(const fleet_flags *flags)
{
    int64_t n = 0;
    char profile[SIM_NAME_BYTES];
    char error[SIM_ERROR_BYTES];
    if (flags->devices_file == NULL) {
        return program_misuse(&fleet_program, "--make-devices needs --devices, the file to write");
    }
    return sim_make_parse(flags->make_devices, &n, profile, error)
               ? EXIT_OK
               : program_misuse(&fleet_program, "%s", error);
}

int sim_check(const fleet_flags *flags)
{
    if (flags->devices_file == NULL) {
        return EXIT_OK;
    }
    return program_misuse(&fleet_program,
                          "--devices %s: runs with unequal devices are not there yet; "
                          "--make-devices writes the file",
                          flags->devices_file);
}

int sim_make(const fleet_flags *flags)
{
    int64_t n = 0;
    char profile[SIM_NAME_BYTES];
    char error[SIM_ERROR_BYTES];
    if (!sim_make_parse(flags->make_devices, &n, profile, error) ||
        !sim_devices_write(flags->devices_file, n, profile, flags->seed, error)) {
        return program_fail(&fleet_program, "%s", error);
    }
    (void)printf("%s: %" PRId64 " devices of %s, seed %" PRIu64 "\n", flags->devices_file, n,
                 profile, flags->seed);
    return EXIT_OK;
}
