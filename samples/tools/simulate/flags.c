/*
 * flags.c - the flags of simulated time, and what goes with them.
 */
#include "keep.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* What does not go with --devices, by name; NULL: all does. */
static const char *refused_beside(const fleet_flags *flags)
{
    const struct {
        bool is_given;
        const char *text;
    } rows[] = {
        {!flags->is_serving, "--devices needs --serve: server and devices share a clock"},
        {flags->costs_file == NULL, "--devices needs --costs, what a step takes: --measure-costs"},
        {strcmp(flags->batch_text, "max") == 0, "--batch max does not go with --devices"},
        {flags->budget_bytes > 0, "--budget: with --devices the file says what memory they have"},
        {strcmp(flags->algorithm, "scaffold") == 0,
         "--algorithm scaffold averages over all devices, which --devices does not ask for"},
        {flags->local != NULL, "--local does not go with --devices yet"},
        {flags->faults_file != NULL, "--faults go by the real clock, --devices by another"},
        {flags->tokens_file != NULL, "--tokens do not go with --devices: places are claimed"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].is_given) {
            return rows[i].text;
        }
    }
    return NULL;
}

/* A folder that a run has left: its server is further on than simulated time, which begins anew. */
static bool has_run(const char *folder)
{
    char path[FLEET_PATH_BYTES];
    struct stat about;
    return folder != NULL && snprintf(path, sizeof path, "%s/server", folder) < (int)sizeof path &&
           stat(path, &about) == 0;
}

/* Whether a file that is written at the end of a run can have its place: a run of hours is not to
 * end in a misspelt folder. EXIT_OK, or the line has been printed. */
static int check_place(const char *flag, const char *path)
{
    char folder[FLEET_PATH_BYTES] = ".";
    struct stat about;
    if (path == NULL || strcmp(path, "-") == 0) {
        return EXIT_OK;
    }
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) {
        return S_ISDIR(about.st_mode)
                   ? program_fail(&fleet_program, "%s %s: it is a folder", flag, path)
                   : EXIT_OK; /* a device or a pipe is written as it stands */
    }
    const char *slash = strrchr(path, '/');
    if (slash != NULL) {
        (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path);
    }
    return access(folder, W_OK | X_OK) == 0
               ? EXIT_OK
               : program_fail(&fleet_program, "%s %s: the folder %s: %s", flag, path, folder,
                              strerror(errno));
}

int sim_check(fleet_flags *flags)
{
    char error[SIM_ERROR_BYTES];
    sim_devices devices;
    if (flags->measure_file != NULL && strcmp(flags->batch_text, "max") == 0) {
        return program_misuse(&fleet_program, "--measure-costs needs a --batch of its own");
    }
    if (flags->devices_file == NULL || flags->measure_file != NULL) {
        return flags->costs_file == NULL && flags->events_file == NULL
                   ? EXIT_OK
                   : program_misuse(&fleet_program, "--costs and --events go with --devices");
    }
    const char *wrong = refused_beside(flags);
    if (wrong != NULL) {
        return program_misuse(&fleet_program, "%s", wrong);
    }
    if (has_run(flags->state_folder) &&
        !(sim_can_keep(flags) && sim_keep_is_there(flags->state_folder))) {
        return program_fail(&fleet_program,
                            "--state %s: a run lies there that cannot be gone on with: it has kept "
                            "no moments, or these flags do not (samples/SIMULATE.md)",
                            flags->state_folder);
    }
    if (check_place("--json", flags->json_file) != EXIT_OK ||
        check_place("--report", flags->report_file) != EXIT_OK) {
        return EXIT_FAILED;
    }
    struct stat about;
    if (stat(flags->devices_file, &about) == 0 && !S_ISREG(about.st_mode)) {
        return program_fail(&fleet_program,
                            "--devices %s: it is no regular file, and is read twice",
                            flags->devices_file);
    }
    const bool is_read = sim_devices_read(flags->devices_file, 1, &devices, error);
    const int64_t n_file = devices.n_file;
    sim_devices_free(&devices);
    if (!is_read) {
        return program_fail(&fleet_program, "%s", error);
    }
    if (!flags->has_clients) {
        flags->n_clients = n_file;
    }
    if (flags->n_clients > n_file) {
        return program_misuse(&fleet_program,
                              "--clients %" PRId64 " is more than the %" PRId64
                              " devices of --devices",
                              flags->n_clients, n_file);
    }
    return EXIT_OK;
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
