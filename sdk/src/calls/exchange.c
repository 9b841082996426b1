/*
 * exchange.c - every exchange of a client goes through here: before it, limits of bytes and time
 * are checked; after it, whether the reply is the server's.
 *
 * Invariant: the bodies of a round stay within the app's limits, repeats included; a reply that the
 * server cannot have sent is never taken for the server's.
 */
#include "exchange.h"

#include "context/client_context.h"
#include "session/session.h"

#include <string.h>

/* The round's bytes so far, with those of a commit, which the journal leaves out. */
static uint64_t bytes_sent(const dunlin_client *client)
{
    return client->journal.sent_bytes +
           (client->round != NULL ? client->round->commit_sent_bytes : 0);
}

static uint64_t bytes_received(const dunlin_client *client)
{
    return client->journal.received_bytes +
           (client->round != NULL ? client->round->commit_received_bytes : 0);
}

/* What the round may still receive; LIMIT if the body that is to go out does not fit. */
static dunlin_status check_bytes(dunlin_client *client, const dunlin_http_request *request,
                                 uint64_t *out_left)
{
    uint64_t sent = bytes_sent(client);
    uint64_t received = bytes_received(client);
    uint64_t most_up = client->options.max_upload_bytes;
    uint64_t most_down = client->options.max_download_bytes;
    *out_left = received < most_down ? most_down - received : 0;
    if (sent > most_up || request->body_bytes > most_up - sent) {
        return dunlin__fail(&client->error, DUNLIN_LIMIT, "client", 0,
                            "the round has sent %llu bytes; %llu more would pass its limit of %llu",
                            (unsigned long long)sent, (unsigned long long)request->body_bytes,
                            (unsigned long long)most_up);
    }
    /* Of an object the size is known: it is not begun if it does not fit. */
    bool is_object = strcmp(request->method, "GET") == 0;
    uint64_t needed = is_object ? request->reply_limit_bytes : 1;
    if (request->reply_limit_bytes > 0 && needed > *out_left) {
        return dunlin__fail(&client->error, DUNLIN_LIMIT, "client", 0,
                            "the round has received %llu bytes; %llu more would pass its limit "
                            "of %llu",
                            (unsigned long long)received, (unsigned long long)needed,
                            (unsigned long long)most_down);
    }
    return DUNLIN_OK;
}

/* Narrows the exchange's time to what the phase has left. */
static dunlin_status limit_time(dunlin_client *client, dunlin_http_request *request)
{
    dunlin__round *round = client->round;
    int64_t most_ms = client->options.phase_timeout_ms;
    if (most_ms <= 0 || round == NULL) {
        return DUNLIN_OK;
    }
    int64_t now_ms = client->runtime->clock.boot_ms_fn(client->runtime->clock.ctx);
    if (!round->has_timed_phase || round->timed_phase != client->session.phase) {
        round->has_timed_phase = true;
        round->timed_phase = client->session.phase;
        round->phase_began_ms = now_ms;
    }
    int64_t left_ms = most_ms - dunlin__ms_passed(round->phase_began_ms, now_ms);
    if (left_ms <= 0) {
        return dunlin__fail(&client->error, DUNLIN_TIMEOUT, "client", 0,
                            "%s took longer than its limit of %lld ms",
                            dunlin_phase_name(client->session.phase), (long long)most_ms);
    }
    request->timeout_ms =
        request->timeout_ms > 0 && request->timeout_ms < left_ms ? request->timeout_ms : left_ms;
    return DUNLIN_OK;
}

/* Something other than the server has answered: a captive portal, a proxy. That passes, so it is no
 * reason to give a round up. */
static dunlin_status check_source(dunlin_client *client, const dunlin_http_reply *reply,
                                  dunlin_status status)
{
    bool is_answer = status == DUNLIN_OK || status == DUNLIN_PROTOCOL || status == DUNLIN_LIMIT;
    /* A 503 is understood from anybody: what stands before the server may be busy for it. */
    bool is_busy = status == DUNLIN_OK && reply->status == 503;
    if (!is_answer || reply->is_server || reply->status == 0 || is_busy) {
        return status;
    }
    return dunlin__fail(&client->error, DUNLIN_UNREACHABLE, "client", reply->status,
                        "something other than the server answered %d: a login page, a proxy",
                        (int)reply->status);
}

/* What an app's transport might let through. */
static dunlin_status check_form(dunlin_client *client, const dunlin_http_request *request,
                                const dunlin_http_reply *reply)
{
    if (reply->is_encoded || reply->status < 200 || reply->status > 599 ||
        (reply->status >= 300 && reply->status < 400)) {
        return dunlin__fail(&client->error, DUNLIN_PROTOCOL, "client", reply->status,
                            "the server answered %d%s, which is refused", (int)reply->status,
                            reply->is_encoded ? " with a content encoding" : "");
    }
    if (reply->body_bytes > request->reply_limit_bytes ||
        reply->error_bytes > sizeof reply->error_body) {
        return dunlin__fail(&client->error, DUNLIN_LIMIT, "client", reply->status,
                            "the reply is longer than %llu bytes",
                            (unsigned long long)request->reply_limit_bytes);
    }
    return DUNLIN_OK;
}

static void count(dunlin_client *client, const dunlin_http_reply *reply)
{
    if (client->session.phase == DUNLIN_PHASE_COMMIT && client->round != NULL) {
        client->round->commit_sent_bytes += reply->sent_bytes;
        client->round->commit_received_bytes += reply->received_bytes;
    } else {
        client->journal.sent_bytes += reply->sent_bytes;
        client->journal.received_bytes += reply->received_bytes;
    }
}

/* What would be called off is not begun: how much of it had gone out by then would depend on the
 * network. A call that says how a round ends is made in any case. */
static dunlin_status check_stop(dunlin_client *client, const dunlin_http_request *request)
{
    const dunlin_phase phase = client->session.phase;
    if (phase < DUNLIN_PHASE_FETCH || phase > DUNLIN_PHASE_UPLOAD ||
        !dunlin__client_should_stop(client)) {
        return DUNLIN_OK;
    }
    return dunlin__fail(&client->error, DUNLIN_STOPPED, "client", 0, "stopped before %s",
                        request->method);
}

dunlin_status dunlin__client_exchange(dunlin_client *client, const dunlin_http_request *request,
                                      dunlin_http_reply *out_reply, dunlin__fault *out_fault)
{
    dunlin_transport *transport = client->runtime->transport;
    dunlin_http_request limited = *request;
    uint64_t left = 0;
    dunlin_http_reply_begin(out_reply);
    limited.should_stop_fn = dunlin__client_should_stop;
    limited.stop_ctx = client;
    DUNLIN_TRY(dunlin__fault_judge(check_bytes(client, request, &left), out_fault));
    DUNLIN_TRY(dunlin__fault_judge(limit_time(client, &limited), out_fault));
    DUNLIN_TRY(dunlin__fault_judge(check_stop(client, request), out_fault));
    if (limited.reply_limit_bytes > left) {
        limited.reply_limit_bytes = left;
    }
    dunlin_status status =
        client->runtime->transport_ops.perform_fn(transport, &limited, out_reply, &client->error);
    count(client, out_reply);
    status = check_source(client, out_reply, status);
    if (status == DUNLIN_OK) {
        status = check_form(client, &limited, out_reply);
    }
    return dunlin__fault_judge(status, out_fault);
}
