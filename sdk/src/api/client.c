/*
 * client.c - the public calls of a client: check, delegate.
 */
#include "calls/calls_fleet.h"
#include "calls/device_key.h"
#include "client_options.h"
#include "context/client_context.h"
#include "context/round_examples.h"
#include "context/runtime.h"
#include "examples/examples.h"
#include "round/checkpoint.h"
#include "round/client_load.h"
#include "round/round.h"
#include "session/session.h"
#include "store/files.h"
#include "store/store.h"
#include "telemetry/telemetry.h"
#include "weights/app_model_keep.h"
#include "weights/kept.h"

#include <mem/sized.h>
#include <wire/digest.h>
#include <wire/signature.h>

#include <stddef.h>
#include <string.h>

#define DEFAULT_ROUND_BYTES (1ULL << 30)
#define STEP_MS 1000
#define ID_CHARS 24

/* The first of the calls that every learner has, by name, which this one lacks; NULL: none. */
static const char *first_missing(const dunlin_learner_ops *ops)
{
    return ops->load == NULL       ? "load"
           : ops->fit == NULL      ? "fit"
           : ops->evaluate == NULL ? "evaluate"
           : ops->save == NULL     ? "save"
           : ops->unload == NULL   ? "unload"
                                   : NULL;
}

static dunlin_status check_learner(const dunlin_learner *learner, dunlin_error *error)
{
    dunlin_learner_ops ops = DUNLIN_LEARNER_OPS_INIT;
    if (learner != NULL && learner->ops != NULL) {
        DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_learner_ops, learner->ops, &ops, error));
    }
    const char *missing = first_missing(&ops);
    if (missing != NULL) {
        return dunlin__fail(
            error, DUNLIN_ARGUMENT, "client", 0,
            "the learner has no %s(); it needs load, fit, evaluate, save and unload", missing);
    }
    if (learner->ops->struct_size < offsetof(dunlin_learner_ops, checkpoint)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "client", 0,
                            "struct_size of a learner's table is %zu, less than the %zu of its "
                            "first seven calls; start it from DUNLIN_LEARNER_OPS_INIT",
                            learner->ops->struct_size, offsetof(dunlin_learner_ops, checkpoint));
    }
    return DUNLIN_OK;
}

/* What the app says, or else what the learner asks for. */
static void choose_keeping(dunlin_client *client)
{
    dunlin_model_keeping keeping = client->options.model_keeping;
    const dunlin_learner_ops *ops = client->learner.ops;
    const bool is_asked =
        ops->struct_size > offsetof(dunlin_learner_ops, keeps_model) && ops->keeps_model;
    if (keeping == DUNLIN_MODEL_KEEPING_DEFAULT) {
        keeping = is_asked ? DUNLIN_MODEL_KEEPING_ALL : DUNLIN_MODEL_KEEPING_NONE;
    }
    client->keeps_model = keeping != DUNLIN_MODEL_KEEPING_NONE;
    client->fetches_last = keeping == DUNLIN_MODEL_KEEPING_ALL;
}

static dunlin_status fill_client(dunlin_client *client, const dunlin_client_options *options,
                                 const dunlin_learner *learner, dunlin_error *error)
{
    const dunlin_alloc *alloc = &client->runtime->alloc;
    client->learner = *learner;
    client->options = *options;
    if (client->options.max_download_bytes == 0) {
        client->options.max_download_bytes = DEFAULT_ROUND_BYTES;
    }
    if (client->options.max_upload_bytes == 0) {
        client->options.max_upload_bytes = DEFAULT_ROUND_BYTES;
    }
    client->n_signing_keys = options->n_signing_keys;
    memcpy(client->signing_keys, options->signing_keys,
           (size_t)options->n_signing_keys * DUNLIN_PUBLIC_KEY_BYTES);
    DUNLIN_TRY(dunlin__url_origin(options->server_url, true, &client->origin, error));
    bool is_ok = dunlin__copy_text(alloc, options->population, &client->population) &&
                 dunlin__copy_text(alloc, options->name != NULL ? options->name : "default",
                                   &client->name) &&
                 dunlin__copy_text(alloc, options->enrolment_token, &client->enrolment_token);
    client->options.server_url = NULL;
    client->options.population = NULL;
    client->options.name = NULL;
    client->options.enrolment_token = NULL;
    client->options.signing_keys = NULL;
    if (!is_ok) {
        return dunlin__fail(error, DUNLIN_MEMORY, "client", 0, "no memory for a client");
    }
    client->random_state = options->random_seed;
    if (options->random_seed == 0) {
        DUNLIN_TRY(dunlin__random_bytes(&client->random_state, sizeof client->random_state, error));
    }
    DUNLIN_TRY(dunlin__runtime_add(client->runtime, client, error));
    if (client->options.examples != NULL) {
        dunlin__examples_hold(client->options.examples);
        client->holds_examples = true;
    }
    if (!client->options.sends_telemetry) {
        DUNLIN_TRY(dunlin__telemetry_wipe(client, error));
    }
    choose_keeping(client);
    DUNLIN_TRY(dunlin__client_load(client, error));
    dunlin__app_model_settle(client);
    return DUNLIN_OK;
}

static void free_client(dunlin_client *client)
{
    dunlin_runtime *runtime = client->runtime;
    dunlin_alloc alloc = runtime->alloc;
    if (client->holds_examples) {
        dunlin__examples_let_go(client->options.examples);
    }
    bool is_last = dunlin__runtime_remove(runtime, client);
    dunlin__free_text(&alloc, client->population);
    dunlin__free_text(&alloc, client->name);
    dunlin__free_text(&alloc, client->enrolment_token);
    dunlin__wipe(&client->journal, sizeof client->journal);
    dunlin__free_array(&alloc, client, 1, sizeof *client);
    if (is_last) {
        dunlin__runtime_free(runtime);
    }
}

dunlin_status dunlin_client_create(dunlin_runtime *runtime, const dunlin_client_options *options,
                                   const dunlin_learner *learner, dunlin_client **out_client,
                                   dunlin_error *out_error)
{
    if (out_client == NULL) {
        return DUNLIN_ARGUMENT;
    }
    *out_client = NULL;
    dunlin__error_clear(out_error);
    if (runtime == NULL || options == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "client", 0,
                            "a client needs a runtime and options from DUNLIN_CLIENT_OPTIONS_INIT");
    }
    dunlin_client_options copy = DUNLIN_CLIENT_OPTIONS_INIT;
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_client_options, options, &copy, out_error));
    DUNLIN_TRY(check_learner(learner, out_error));
    /* The transport refuses plain http where it is not allowed; here only the form is judged. */
    DUNLIN_TRY(dunlin__client_options_check(&copy, true, out_error));
    dunlin_client *client = dunlin__alloc_zeroed(&runtime->alloc, 1, sizeof *client);
    if (client == NULL) {
        return dunlin__fail(out_error, DUNLIN_MEMORY, "client", 0, "no memory for a client");
    }
    client->runtime = runtime;
    dunlin_status status = fill_client(client, &copy, learner, out_error);
    if (status != DUNLIN_OK) {
        free_client(client);
        return status;
    }
    *out_client = client;
    return DUNLIN_OK;
}

/* The last that is done with a client. */
static void destroy_now(dunlin_client *client)
{
    bool is_resumable =
        client->journal.phase >= DUNLIN_PHASE_FETCH && client->journal.phase <= DUNLIN_PHASE_COMMIT;
    dunlin__round_keep_training(client);
    dunlin__round_free(client, !is_resumable);
    free_client(client);
}

/* The current call ends as a pause ends it, and frees the client when it returns. */
void dunlin_client_destroy(dunlin_client *client)
{
    if (client == NULL) {
        return;
    }
    int state = DUNLIN_CLIENT_IDLE;
    if (!atomic_compare_exchange_strong(&client->call, &state, DUNLIN_CLIENT_IN_CALL)) {
        dunlin_client_pause(client);
        while (state != DUNLIN_CLIENT_LEAVING &&
               !atomic_compare_exchange_weak(&client->call, &state,
                                             state == DUNLIN_CLIENT_IDLE ? DUNLIN_CLIENT_IN_CALL
                                                                         : DUNLIN_CLIENT_LEAVING)) {
        }
        if (state != DUNLIN_CLIENT_IDLE) {
            return;
        }
    }
    destroy_now(client);
}

/* Texts of failures end up in logs: ids of devices, sessions, assignments and objects, which are
 * long hexadecimal numbers, do not belong there. */
static void redact(char *text)
{
    char *out = text;
    while (*text != '\0') {
        size_t n_chars = strspn(text, "0123456789abcdef");
        if (n_chars >= ID_CHARS) {
            *out++ = '*';
            text += n_chars;
            continue;
        }
        n_chars = n_chars > 0 ? n_chars : 1;
        memmove(out, text, n_chars);
        out += n_chars;
        text += n_chars;
    }
    *out = '\0';
}

/* A call into the handle from one of its own callbacks, or from another thread, would see it half
 * changed. The detail of the current call is not touched then. */
static dunlin_status enter_call(dunlin_client *client)
{
    int state = DUNLIN_CLIENT_IDLE;
    if (!atomic_compare_exchange_strong(&client->call, &state, DUNLIN_CLIENT_IN_CALL)) {
        return DUNLIN_STATE;
    }
    dunlin__error_clear(&client->error);
    return DUNLIN_OK;
}

/* Nothing of the client may be read after it. */
static void leave_call(dunlin_client *client)
{
    int state = DUNLIN_CLIENT_IN_CALL;
    redact(client->error.text);
    if (!atomic_compare_exchange_strong(&client->call, &state, DUNLIN_CLIENT_IDLE)) {
        destroy_now(client);
    }
}

/* A piece of a round, within a call. */
static dunlin_status advance(dunlin_client *client, int64_t max_ms, int64_t *out_wait_ms,
                             bool *out_is_ended, dunlin_round_report *out_report)
{
    dunlin__error_clear(&client->error);
    dunlin_status status =
        out_report != NULL ? dunlin__struct_check(out_report, "dunlin_round_report", &client->error)
                           : DUNLIN_OK;
    if (status == DUNLIN_OK) {
        status = client->is_forgotten
                     ? dunlin__fail(
                           &client->error, DUNLIN_STATE, "client", 0,
                           "dunlin_client_forget() has ended this client; it can only be destroyed")
                     : dunlin__round_advance(client, max_ms, out_wait_ms, out_is_ended, out_report);
    }
    *out_is_ended = *out_is_ended || status != DUNLIN_OK;
    return status;
}

dunlin_status dunlin_client_step(dunlin_client *client, int64_t max_ms, int64_t *out_wait_ms,
                                 bool *out_is_ended, dunlin_round_report *out_report)
{
    int64_t wait_ms = 0;
    bool is_ended = false;
    dunlin_status status = client != NULL ? enter_call(client) : DUNLIN_ARGUMENT;
    if (status == DUNLIN_OK) {
        status = advance(client, max_ms, &wait_ms, &is_ended, out_report);
        leave_call(client);
    }
    if (out_wait_ms != NULL) {
        *out_wait_ms = wait_ms;
    }
    if (out_is_ended != NULL) {
        *out_is_ended = is_ended || status != DUNLIN_OK;
    }
    return status;
}

dunlin_status dunlin_client_run_round(dunlin_client *client, dunlin_round_report *out_report)
{
    if (client == NULL) {
        return DUNLIN_ARGUMENT;
    }
    bool is_ended = false;
    dunlin_status status = DUNLIN_OK;
    DUNLIN_TRY(enter_call(client));
    while (!is_ended) {
        int64_t wait_ms = 0;
        status = advance(client, STEP_MS, &wait_ms, &is_ended, out_report);
        while (!is_ended && wait_ms > 0 && !dunlin__client_is_interrupted(client)) {
            int64_t piece_ms = wait_ms < 20 ? wait_ms : 20;
            dunlin__runtime_sleep(client->runtime, piece_ms);
            wait_ms -= piece_ms;
        }
    }
    leave_call(client);
    return status;
}

void dunlin_client_stop(dunlin_client *client)
{
    if (client == NULL) {
        return;
    }
    atomic_store(&client->is_stopped, true);
    if (client->learner.ops->stop != NULL) {
        client->learner.ops->stop(client->learner.self);
    }
}

void dunlin_client_pause(dunlin_client *client)
{
    if (client == NULL) {
        return;
    }
    atomic_store(&client->is_paused, true);
    if (client->learner.ops->stop != NULL) {
        client->learner.ops->stop(client->learner.self);
    }
}

int64_t dunlin_client_wait_ms(dunlin_client *client)
{
    dunlin__moment now = dunlin__runtime_now(client->runtime);
    return dunlin__wait_left_ms(&client->journal.wait_from, client->journal.wait_ms, &now);
}

const dunlin_error *dunlin_client_last_error(const dunlin_client *client)
{
    return &client->error;
}

dunlin_status dunlin_client_set_telemetry(dunlin_client *client, bool is_agreed)
{
    if (client == NULL) {
        return DUNLIN_ARGUMENT;
    }
    DUNLIN_TRY(enter_call(client));
    client->options.sends_telemetry = is_agreed && !client->is_forgotten;
    dunlin_status status = is_agreed ? DUNLIN_OK : dunlin__telemetry_wipe(client, &client->error);
    leave_call(client);
    return status;
}

/* Removes all that the storage has of the client. The journal goes last: after a kill within, the
 * app can still ask for the same again. */
static dunlin_status wipe_client(dunlin_client *client)
{
    char folder[DUNLIN_FILE_PATH_BYTES];
    dunlin__round_free(client, true);
    DUNLIN_TRY(dunlin__client_folder(client, folder));
    dunlin__folder_remove(folder); /* of a round that was left unfinished */
    dunlin__local_wipe(client);
    dunlin__app_model_wipe(client);
    DUNLIN_TRY(dunlin__telemetry_wipe(client, &client->error));
    if (client->options.examples != NULL) {
        DUNLIN_TRY(dunlin_examples_clear(client->options.examples, NULL, &client->error));
        dunlin__round_release_examples(client);
    }
    return dunlin__store_forget(client->runtime->store, client->name, &client->error);
}

/* Nothing of the device is left here before the server is informed: whatever happens to that call,
 * or this process during it, cannot keep anything. The key is in memory for as long as the call
 * takes. */
dunlin_status dunlin_client_forget(dunlin_client *client)
{
    if (client == NULL) {
        return DUNLIN_ARGUMENT;
    }
    DUNLIN_TRY(enter_call(client));
    /* Those were for the round; from here on they end the telling. */
    atomic_store(&client->is_stopped, false);
    atomic_store(&client->is_paused, false);
    dunlin_status status = wipe_client(client);
    client->session = (dunlin__session){0};
    client->has_action = false;
    if (status == DUNLIN_OK) {
        client->is_forgotten = true;
        if (client->journal.device_id[0] != '\0') {
            dunlin__fault fault;
            status = dunlin__idempotency_key(client->journal.key, &client->error);
            if (status == DUNLIN_OK) {
                status = dunlin__call_forget(client, &fault);
            }
        }
        dunlin__device_key_forget(client);
        dunlin__wipe(&client->journal, sizeof client->journal);
    }
    leave_call(client);
    return status;
}
