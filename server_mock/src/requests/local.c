/*
 * local.c - requests without HTTP: what exchange.c does between the network and the calls.
 *
 * Invariant: a request has the answer that it would have over HTTP, and counts as there.
 */
#include "local.h"

#include "calls.h"
#include "objects.h"
#include "state/db.h"

#include <string.h>

dunlin_status dunlin__server_trust_callers(dunlin__server *server, bool has_moments,
                                           dunlin_error *error)
{
    server->trusts_callers = true;
    return dunlin__server_db_relax(server->db, has_moments, error);
}

static bool find_route(dunlin__server_request *request, dunlin__server_reply *reply)
{
    dunlin_error error = {0};
    const dunlin_status status =
        dunlin__route_parse(request->method, request->path, &request->route, &error);
    if (status != DUNLIN_OK) {
        dunlin__server_refuse(reply,
                              status == DUNLIN_UNSUPPORTED ? DUNLIN_V1_STATUS_CODE_UNIMPLEMENTED
                                                           : DUNLIN_V1_STATUS_CODE_NOT_FOUND,
                              "no call has %.10s and the path %.64s", request->method,
                              request->path);
        return false;
    }
    const dunlin__call_info *info = dunlin__call_describe(request->route.call);
    if (request->n_body > info->max_body_bytes) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_TOO_LARGE,
                              "the body has %zu bytes; %s takes at most %u", request->n_body,
                              info->name, info->max_body_bytes);
        return false;
    }
    return true;
}

static void take_chunk(dunlin__server *server, const dunlin__server_request *request,
                       dunlin__server_reply *reply)
{
    dunlin__server_upload upload = {.fd = -1};
    if (dunlin__server_upload_begin(server, request, &upload, reply) &&
        dunlin__server_upload_write(&upload, request->body, request->n_body, reply)) {
        dunlin__server_upload_end(&upload, reply);
    }
    dunlin__server_upload_abort(&upload);
}

void dunlin__server_perform(dunlin__server *server, dunlin__server_request *request,
                            dunlin__server_reply *reply)
{
    dunlin__server_counters *counters = &server->counters;
    atomic_fetch_add(&counters->n_requests, 1);
    atomic_fetch_add(&counters->body_bytes_up, request->n_body);
    dunlin__server_reply_clear(reply);
    if (find_route(request, reply)) {
        if (request->route.call == DUNLIN_CALL_CHUNK_PUT) {
            take_chunk(server, request, reply);
        } else {
            dunlin__server_handle(server, request, reply);
        }
    }
    if (strcmp(request->method, "HEAD") != 0) {
        atomic_fetch_add(&counters->body_bytes_down,
                         reply->fd >= 0 ? reply->n_fd_bytes : reply->n_body);
    }
    if (reply->http_code >= 400) {
        atomic_fetch_add(reply->http_code >= 500 ? &counters->n_failed : &counters->n_refused, 1);
    }
}
