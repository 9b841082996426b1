/*
 * http_tell.c - counts answers by call and result, and logs refusals.
 *
 * Invariant: no address and no id of a device gets into the log.
 */
#include "http_tell.h"

#include "base/log.h"
#include "state/reply.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

#define ID_CHARS 32u /* so long a hexadecimal number is an id, a key or a hash */

/* The status code of an answer that carries one; else what its HTTP code comes nearest to. */
static unsigned result_of(const dunlin__server_reply *reply, dunlin__status *out_status)
{
    dunlin_error ignored;
    memset(out_status, 0, sizeof *out_status);
    if (reply->http_code < 400) {
        return 0;
    }
    if (reply->content_type == NULL &&
        dunlin__status_decode(reply->body, reply->n_body, out_status, &ignored) == DUNLIN_OK &&
        (unsigned)out_status->code < DUNLIN_WATCH_RESULTS) {
        return (unsigned)out_status->code;
    }
    if (reply->http_code == 403) {
        return DUNLIN_V1_STATUS_CODE_FORBIDDEN;
    }
    return reply->http_code >= 500 ? DUNLIN_V1_STATUS_CODE_INTERNAL : DUNLIN_V1_STATUS_CODE_INVALID;
}

/* Ids in a refusal's text become a star each. */
static void redact_ids(char *text)
{
    char *out = text;
    while (*text != 0) {
        size_t n = strspn(text, "0123456789abcdef");
        if (n >= ID_CHARS) {
            *out++ = '*';
        } else {
            size_t n_kept = n > 0 ? n : 1;
            memmove(out, text, n_kept);
            out += n_kept;
            n = n_kept;
        }
        text += n;
    }
    *out = 0;
}

/* Part of the protocol's usual course: a device signs anew, counts on, goes on with an upload. */
static bool is_usual(unsigned call, unsigned result)
{
    return result == DUNLIN_V1_STATUS_CODE_STALE_CHALLENGE ||
           result == DUNLIN_V1_STATUS_CODE_REPLAYED ||
           result == DUNLIN_V1_STATUS_CODE_WRONG_OFFSET || call == DUNLIN_CALL_CHUNK_HEAD;
}

void dunlin__http_tell(const dunlin__exchange *now)
{
    dunlin__server *server = now->server;
    dunlin__status status;
    char call[DUNLIN_WATCH_NAME_BYTES];
    char result[DUNLIN_WATCH_NAME_BYTES];
    unsigned number = result_of(&now->reply, &status);
    dunlin__watch_request(server, now->asked, number);
    if (number == 0) {
        return;
    }
    dunlin_log_level level = is_usual(now->asked, number) ? DUNLIN_LOG_DEBUG : DUNLIN_LOG_INFO;
    level = now->reply.http_code >= 500 && now->reply.http_code != 501 ? DUNLIN_LOG_WARNING : level;
    dunlin__watch_call_name(now->asked, call);
    dunlin__watch_result_name(number, result);
    redact_ids(status.text);
    dunlin__log(&server->log, level, DUNLIN_SERVER_LOG_DEVICES, "refused: %s, %s (%" PRIu32 ")%s%s",
                call, result, now->reply.http_code, status.text[0] != 0 ? ": " : "", status.text);
}
