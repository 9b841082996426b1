/*
 * options.c - whether the options of a server go together.
 *
 * Invariant: a text names the option as the flag of dunlin-server that sets it.
 */
#include "options.h"

#include <mem/sized.h>
#include <mem/support.h>

#include <arpa/inet.h>
#include <inttypes.h>

#define MAX_WINDOW_MS (24ull * 3600 * 1000)
#define MAX_THREADS 64

/* True for a numeric address. */
static bool is_address(const char *text)
{
    uint8_t bytes[16];
    return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

static dunlin_status check_proxies(const dunlin_server_options *options, dunlin_error *error)
{
    for (uint32_t i = 0; i < options->n_proxies; i++) {
        if (!is_address(options->proxies[i])) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "options", 0,
                                "--trusted-proxy %.80s: wants a numeric address",
                                options->proxies[i]);
        }
    }
    if ((options->certificate_file == NULL) != (options->certificate_key_file == NULL)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "options", 0,
                            "--certificate and --key go together: one of them is missing");
    }
    return DUNLIN_OK;
}

/* Options that say who gets a place must not contradict each other. */
static dunlin_status check_places(const dunlin_server_options *options, dunlin_error *error)
{
    const char *wrong = NULL;
    if (options->tokens_file != NULL && options->has_claimed_places) {
        wrong = "--claimed-places gives places without a proof, so it does not go with --tokens";
    } else if (options->tokens_file != NULL && options->has_mtls_places) {
        wrong = "--mtls-places and --tokens are two ways to prove a place: give one";
    } else if (options->has_mtls_places && options->mtls_ca == NULL) {
        wrong = "--mtls-places needs --mtls, the CA of the clients' certificates";
    } else if (options->has_mtls_places && options->n_proxies > 0) {
        wrong = "--mtls-places: behind a proxy the certificate is the proxy's; use --tokens";
    } else if (options->allows_replace && options->tokens_file == NULL) {
        wrong = "--allow-replace is about tokens that were used: it needs --tokens";
    }
    return wrong == NULL ? DUNLIN_OK
                         : dunlin__fail(error, DUNLIN_ARGUMENT, "options", 0, "%s", wrong);
}

/* What there must be, and the limits of numbers. */
static dunlin_status check_values(const dunlin_server_options *options, dunlin_error *error)
{
    const char *missing = NULL;
    if (options->host == NULL || options->host[0] == 0) {
        missing = "--listen";
    } else if (options->state_folder == NULL) {
        missing = "--state";
    } else if (options->task_file == NULL) {
        missing = "--task";
    }
    if (missing != NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "options", 0, "%s is missing (see --help)",
                            missing);
    }
    if (options->accept_ms > MAX_WINDOW_MS || options->reject_ms > MAX_WINDOW_MS ||
        options->over_ms > MAX_WINDOW_MS) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "options", 0,
                            "--windows %" PRIu64 ":%" PRIu64 ":%" PRIu64 ": each is at most %llu",
                            options->accept_ms, options->reject_ms, options->over_ms,
                            MAX_WINDOW_MS);
    }
    if (options->validation != NULL && options->test_set == NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "options", 0,
                            "--validation %.60s: it is held out of the data set of --test-set, "
                            "which is missing",
                            options->validation);
    }
    if (options->n_threads < 1 || options->n_threads > MAX_THREADS) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "options", 0,
                            "--threads %d: wants a number from 1 to %d", (int)options->n_threads,
                            MAX_THREADS);
    }
    if (options->keeps_moments && !options->is_stepped) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "options", 0,
                            "--moment %" PRIu64 ": moments are of simulated time, --stepped",
                            options->moment);
    }
    if (options->simulated_file != NULL && !options->is_stepped) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "options", 0,
                            "--simulated %.80s: it is of simulated time, --stepped",
                            options->simulated_file);
    }
    if (options->n_names > DUNLIN_SERVER_MOST_NAMES ||
        options->n_proxies > DUNLIN_SERVER_MOST_PROXIES) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "options", 0,
                            "--name, --trusted-proxy: %u and %u, which are more than %d and %d",
                            (unsigned)options->n_names, (unsigned)options->n_proxies,
                            DUNLIN_SERVER_MOST_NAMES, DUNLIN_SERVER_MOST_PROXIES);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin_server_options_check(const dunlin_server_options *options,
                                          dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    dunlin_server_options own = DUNLIN_SERVER_OPTIONS_INIT;
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_server_options, options, &own, out_error));
    DUNLIN_TRY(check_values(&own, out_error));
    DUNLIN_TRY(check_proxies(&own, out_error));
    return check_places(&own, out_error);
}
