/*
 * fault_reply.c - the false replies that a fault script asks for.
 *
 * Invariant: a faulty reply is well formed and correctly signed except for the one thing that the
 * fault is named after.
 */
#include "faults.h"

#include <mem/support.h>

#include <stdio.h>
#include <string.h>

static const char busy_page[] = "<html><body><h1>The server is out of order</h1></body></html>\n";
static const char login_page[] =
    "<html><head><title>Welcome</title></head><body><form method=\"post\">Please sign in to use "
    "this network: <input name=\"room\"></form></body></html>\n";

static void set_page(dunlin__server_reply *reply, uint32_t http_code, const char *page)
{
    dunlin__server_reply_clear(reply);
    reply->http_code = http_code;
    reply->content_type = "text/html";
    reply->n_body = strlen(page);
    memcpy(reply->body, page, reply->n_body);
}

bool dunlin__fault_replace(const dunlin__script_fault *fault, dunlin__server_reply *reply)
{
    dunlin__status status = {.text = "refused by the fault script"};
    switch ((int)fault->kind) {
    case DUNLIN_FAULT_STATUS:
        set_page(reply, (uint32_t)fault->amount, busy_page);
        reply->retry_after_ms = fault->retry_ms;
        return true;
    case DUNLIN_FAULT_REFUSE:
        status.code = (dunlin_v1_status_code_t)fault->amount;
        /* Refusals of a challenge contain another; this one will be refused, too. */
        (void)snprintf(status.challenge, sizeof status.challenge, "%032d", 0);
        dunlin__server_refuse_with(reply, &status);
        return true;
    case DUNLIN_FAULT_PORTAL:
        set_page(reply, 200, login_page);
        return true;
    case DUNLIN_FAULT_REDIRECT:
        set_page(reply, 302, login_page);
        reply->location = "https://login.example.net/";
        return true;
    default:
        return false;
    }
}

/* The assignment of an accepted offer, opened, changed and put back; false if there is none. */
static bool open_assignment(const dunlin__server *server, const dunlin__server_reply *reply,
                            dunlin__accept_response *out_answer, dunlin__assignment *out_assignment)
{
    dunlin__trusted_key key = {{0}, {0}};
    memcpy(key.key_id, server->certs.key_id, sizeof key.key_id);
    memcpy(key.public_key, server->certs.signing_public, sizeof key.public_key);
    return reply->http_code == 200 &&
           dunlin__accept_response_decode(reply->body, reply->n_body, out_answer, NULL) ==
               DUNLIN_OK &&
           out_answer->has_assignment &&
           dunlin__assignment_open(&out_answer->assignment, &key, 1, out_assignment, NULL) ==
               DUNLIN_OK;
}

void dunlin__fault_spoil(const dunlin__server *server, const dunlin__script_fault *fault,
                         const dunlin__server_request *request, dunlin__server_reply *reply)
{
    bool is_spoilt =
        fault->kind == DUNLIN_FAULT_BAD_SIGNATURE || fault->kind == DUNLIN_FAULT_STALE_ROUND;
    dunlin__accept_response answer;
    dunlin__assignment assignment;
    if (!is_spoilt || request->route.call != DUNLIN_CALL_ACCEPT ||
        !open_assignment(server, reply, &answer, &assignment)) {
        return;
    }
    dunlin_status status = DUNLIN_OK;
    if (fault->kind == DUNLIN_FAULT_STALE_ROUND) {
        /* A run before this one: older than anything that the device has seen. */
        assignment.run_epoch--;
        status = dunlin__assignment_seal(&assignment, server->certs.signing_key, &answer.assignment,
                                         NULL);
    } else {
        answer.assignment.signature[40] ^= 1;
    }
    size_t n_bytes = 0;
    if (status == DUNLIN_OK &&
        dunlin__accept_response_encode(&answer, reply->body, sizeof reply->body, &n_bytes, NULL) ==
            DUNLIN_OK) {
        reply->n_body = n_bytes;
    }
}
