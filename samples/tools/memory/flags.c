/*
 * flags.c - what goes with --transport.
 */
#include "memory.h"

#include <string.h>

/* What does not go with --transport memory, by name; NULL: all does. With --devices the server is
 * the one of the wire, and takes what it takes there. */
static const char *refused_beside(const fleet_flags *flags)
{
    const struct {
        bool is_given;
        const char *text;
    } rows[] = {
        {!flags->is_serving, "needs --serve: server and devices are one process"},
        {flags->over_select > 1.0, "does not go with --over-select: who comes first is a matter of "
                                   "the network"},
        {strcmp(flags->algorithm, "scaffold") == 0,
         "does not go with --algorithm scaffold: each device keeps a variate on its storage"},
        {flags->local != NULL,
         "does not go with --local: each device keeps tensors on its storage"},
        {flags->feedback > 0,
         "does not go with --feedback: each device keeps what was left out on its storage"},
        {flags->is_keeping_model, "does not go with --keep-model: nothing is kept on devices"},
        {flags->dp != NULL,
         "does not go with --dp: the account of a private run lies in the server's database"},
        {flags->is_secagg,
         "does not go with --secagg: there is no server that a sum is hidden from"},
        {flags->buffered != NULL, "does not go with --buffered: nobody is late"},
        {flags->selection != NULL, "does not go with --select: devices tell no times"},
        {flags->partial > 0, "does not go with --partial: nobody is late"},
        {flags->faults_file != NULL, "does not go with --faults: there is no network"},
        {flags->tokens_file != NULL, "does not go with --tokens: nobody enrols"},
        {flags->windows != NULL, "does not go with --windows: nobody waits"},
        {flags->retry_text != NULL || flags->retry_refused_text != NULL,
         "does not go with --retry-ms and --retry-refused-ms: nobody waits"},
        {flags->sends_telemetry, "does not go with --telemetry: nothing is sent"},
        {flags->keep_every > 0,
         "does not go with --keep-every: of models the last alone is a file"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].is_given) {
            return rows[i].text;
        }
    }
    return NULL;
}

int memory_check(fleet_flags *flags)
{
    const char *name = flags->transport != NULL ? flags->transport : "wire";
    flags->is_in_memory = strcmp(name, "memory") == 0;
    if (!flags->is_in_memory) {
        return strcmp(name, "wire") == 0
                   ? EXIT_OK
                   : program_misuse(&fleet_program, "--transport %s: not wire or memory", name);
    }
    const char *wrong = flags->devices_file == NULL ? refused_beside(flags) : NULL;
    return wrong == NULL ? EXIT_OK : program_misuse(&fleet_program, "--transport memory %s", wrong);
}
