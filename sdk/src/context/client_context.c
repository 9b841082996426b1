/*
 * client_context.c - questions that all parts of a client ask: may the round continue, how did it
 * fail, where are its files.
 */
#include "client_context.h"

#include "conditions.h"
#include "round_examples.h"
#include "runtime.h"
#include "session/session.h"
#include "store/files.h"

#include <wire/digest.h>

#include <stdio.h>
#include <string.h>

#define FOLDER_HEX 16

static int64_t now_ms(const dunlin_client *client)
{
    return client->runtime->clock.boot_ms_fn(client->runtime->clock.ctx);
}

bool dunlin__client_tell(dunlin_client *client, dunlin_phase phase, int64_t done, int64_t total,
                         double loss)
{
    if (atomic_load(&client->is_stopped)) {
        return false;
    }
    if (client->options.event_fn == NULL) {
        return true;
    }
    dunlin_event event = {
        .struct_size = sizeof event,
        .phase = phase,
        .round = client->session.round,
        .done = done,
        .total = total,
        .loss = loss,
        .elapsed_ms =
            client->round != NULL ? dunlin__ms_passed(client->round->began_ms, now_ms(client)) : 0};
    bool goes_on = client->options.event_fn(client->options.event_ctx, &event);
    if (!goes_on) {
        atomic_store(&client->is_stopped, true);
    }
    return goes_on;
}

bool dunlin__client_is_interrupted(const dunlin_client *client)
{
    return atomic_load(&client->is_stopped) || atomic_load(&client->is_paused);
}

bool dunlin__client_is_to_pause(const dunlin_client *client)
{
    return atomic_load(&client->is_paused) && !atomic_load(&client->is_stopped) &&
           client->action.kind != DUNLIN_ACTION_END && client->session.phase != DUNLIN_PHASE_ABORT;
}

bool dunlin__client_should_stop(void *ctx)
{
    const dunlin_client *client = ctx;
    if (dunlin__client_is_interrupted(client)) {
        return true;
    }
    const dunlin__session *session = &client->session;
    if (client->round != NULL && client->round->is_fetching_last) {
        dunlin_conditions now = dunlin__client_conditions(client);
        return !dunlin__client_is_eligible(client, &now);
    }
    if (session->deadline_ms == 0 || session->phase < DUNLIN_PHASE_FETCH ||
        session->phase > DUNLIN_PHASE_UPLOAD) {
        return false; /* a commit on its way is not called back: it may count already */
    }
    dunlin__moment now = dunlin__runtime_now(client->runtime);
    if (dunlin__wait_left_ms(&client->journal.begun, (int64_t)session->deadline_ms, &now) == 0) {
        return true;
    }
    if (dunlin__round_has_lost_examples(client)) {
        return true;
    }
    dunlin_conditions conditions = dunlin__client_conditions(client);
    return !dunlin__client_is_eligible(client, &conditions);
}

dunlin__fault dunlin__fault_of(dunlin_status status)
{
    dunlin__fault fault = {.retry_after_ms = -1};
    switch ((int)status) {
    case DUNLIN_TIMEOUT:
    case DUNLIN_CLOSED:
    case DUNLIN_UNREACHABLE:
    case DUNLIN_SPACE:
    case DUNLIN_LOCKED:
    case DUNLIN_IO:
    case DUNLIN_DIGEST:
    case DUNLIN_MEMORY:
    case DUNLIN_TLS: /* a captive portal, a connection cut during the handshake */
        fault.is_permanent = false;
        break;
    default:
        fault.is_permanent = true;
        break;
    }
    return fault;
}

dunlin_status dunlin__fault_judge(dunlin_status status, dunlin__fault *out_fault)
{
    if (status != DUNLIN_OK) {
        *out_fault = dunlin__fault_of(status);
    }
    return status;
}

uint64_t dunlin__client_random(dunlin_client *client)
{
    client->random_state += 0x9E3779B97F4A7C15ULL;
    uint64_t z = client->random_state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

uint64_t dunlin__round_deadline_ms(const dunlin_client *client)
{
    uint64_t deadline_ms = client->round->assignment.deadline_ms;
    uint64_t own_ms =
        client->options.round_timeout_ms > 0 ? (uint64_t)client->options.round_timeout_ms : 0;
    return own_ms > 0 && own_ms < deadline_ms ? own_ms : deadline_ms;
}

/* A folder of this client's own: a hash of its name, since names are the app's. */
static dunlin_status own_folder(const dunlin_client *client, const char *kind,
                                char out_path[DUNLIN_FILE_PATH_BYTES], dunlin_error *error)
{
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    char hex[DUNLIN_SHA256_HEX_BYTES];
    char name[FOLDER_HEX + 8];
    DUNLIN_TRY(dunlin__sha256_of(client->name, strlen(client->name), sha256, error));
    dunlin__hex_encode(sha256, sizeof sha256, hex);
    (void)snprintf(name, sizeof name, "%s-%.*s", kind, FOLDER_HEX, hex);
    return dunlin__file_path(client->runtime->folder, name, out_path, error);
}

dunlin_status dunlin__client_folder(dunlin_client *client, char out_path[DUNLIN_FILE_PATH_BYTES])
{
    return own_folder(client, "round", out_path, &client->error);
}

dunlin_status dunlin__client_local_folder(const dunlin_client *client,
                                          char out_path[DUNLIN_FILE_PATH_BYTES],
                                          dunlin_error *error)
{
    return own_folder(client, "kept", out_path, error);
}

dunlin_status dunlin__client_model_folder(const dunlin_client *client,
                                          char out_path[DUNLIN_FILE_PATH_BYTES],
                                          dunlin_error *error)
{
    return own_folder(client, "model", out_path, error);
}
