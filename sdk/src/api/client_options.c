/*
 * client_options.c - what dunlin_client_create() takes, and what it refuses by name.
 */
#include "client_options.h"

#include "context/client_context.h"
#include "transport/url.h"

#include <wire/signature.h>

#include <string.h>

#define MAX_RETRY_MS (7LL * 24 * 3600 * 1000)

/* One sequence of waits; what is 0 has a default. */
static dunlin_status check_waits(const char *name, int64_t first_ms, int64_t most_ms,
                                 dunlin_error *error)
{
    if (first_ms < 0 || most_ms < 0 || first_ms > MAX_RETRY_MS || most_ms > MAX_RETRY_MS ||
        (most_ms > 0 && first_ms > most_ms)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "client", 0,
                            "%s_first_ms is %lld and %s_most_ms %lld; they must be in order, "
                            "between 0 and %lld",
                            name, (long long)first_ms, name, (long long)most_ms, MAX_RETRY_MS);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__client_options_check(const dunlin_client_options *options, bool allow_plain,
                                           dunlin_error *error)
{
    dunlin__origin origin;
    DUNLIN_TRY(dunlin__url_origin(options->server_url, allow_plain, &origin, error));
    if (options->population == NULL || !dunlin__id_is_valid(options->population)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "client", 0,
                            "population is not 1 to %u letters, digits or - _ . ~",
                            DUNLIN_WIRE_ID_CHARS);
    }
    if (options->name != NULL && !dunlin__id_is_valid(options->name)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "client", 0,
                            "name is not 1 to %u letters, digits or - _ . ~", DUNLIN_WIRE_ID_CHARS);
    }
    if (options->enrolment_token != NULL && strlen(options->enrolment_token) > 255) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "client", 0,
                            "enrolment_token is longer than 255 characters");
    }
    if ((options->key_store.sign_fn == NULL) != (options->key_store.public_key_fn == NULL)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "client", 0,
                            "key_store wants both sign_fn and public_key_fn, or neither");
    }
    if (options->model_keeping < DUNLIN_MODEL_KEEPING_DEFAULT ||
        options->model_keeping > DUNLIN_MODEL_KEEPING_ALL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "client", 0,
                            "model_keeping is %d; it must be a dunlin_model_keeping, 0 to %d",
                            (int)options->model_keeping, (int)DUNLIN_MODEL_KEEPING_ALL);
    }
    if (!(options->max_update_norm >= 0.0F)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "client", 0,
                            "max_update_norm is %g; it must be 0 or more",
                            (double)options->max_update_norm);
    }
    if (!(options->max_epsilon >= 0.0) || !(options->max_delta >= 0.0)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "client", 0,
                            "max_epsilon is %g and max_delta %g; each must be 0 or more",
                            options->max_epsilon, options->max_delta);
    }
    if (options->max_delta > 0.0 && !(options->max_epsilon > 0.0)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "client", 0,
                            "max_delta is %g without max_epsilon, which it goes with",
                            options->max_delta);
    }
    DUNLIN_TRY(check_waits("retry", options->retry_first_ms, options->retry_most_ms, error));
    DUNLIN_TRY(check_waits("retry_refused", options->retry_refused_first_ms,
                           options->retry_refused_most_ms, error));
    if (options->signing_keys == NULL || options->n_signing_keys < 1 ||
        options->n_signing_keys > DUNLIN_MAX_SIGNING_KEYS) {
        return dunlin__fail(
            error, DUNLIN_ARGUMENT, "client", 0,
            "one or two signing keys of the server must be given, of 65 bytes each");
    }
    for (int32_t i = 0; i < options->n_signing_keys; i++) {
        DUNLIN_TRY(
            dunlin__key_check(options->signing_keys + (size_t)i * DUNLIN_PUBLIC_KEY_BYTES, error));
    }
    return DUNLIN_OK;
}
