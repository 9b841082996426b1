/*
 * main.c - dunlin-fleet: the command line, signals, one run.
 */
#include "fleet.h"

#include <curl/curl.h>
#include <memory/memory.h>
#include <signal.h>
#include <simulate/simulate.h>
#include <stdio.h>
#include <string.h>

static void on_signal(int number)
{
    fleet_interrupt(number);
}

int main(int argc, char **argv)
{
    fleet_flags flags;
    args_result parsed = fleet_parse(argc, argv, &flags);
    if (parsed.is_done) {
        return parsed.exit_status;
    }
    if (flags.make_devices != NULL) {
        return sim_make(&flags);
    }
    /* The command as typed, for the report. */
    char command[2048] = "dunlin-fleet";
    size_t length = strlen(command);
    for (int i = 1; i < argc && length < sizeof command - 2; i++) {
        length += (size_t)snprintf(command + length, sizeof command - length, " %s", argv[i]);
    }
    struct sigaction action = {.sa_handler = on_signal};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    struct sigaction before;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) { /* else: nohup */
        (void)sigaction(SIGHUP, &action, NULL);
    }
    int exit_status = memory_join(&flags);
    if (exit_status != EXIT_OK) {
        return exit_status;
    }
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    exit_status = fleet_run(&flags, command, NULL);
    curl_global_cleanup();
    memory_leave(&flags, exit_status);
    return exit_status;
}
