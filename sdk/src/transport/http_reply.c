/*
 * http_reply.c - parses the few headers of a reply that the client uses.
 *
 * Invariant: a number that is missing, malformed or beyond its limit reads as absent; no header can
 * overflow its buffer.
 */
#include <dunlin/transport.h>
#include <mem/sized.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_RETRY_AFTER_S (7LL * 24 * 3600)
#define VALUE_BYTES 64

void dunlin_http_reply_begin(dunlin_http_reply *reply)
{
    const dunlin_http_reply empty = {
        .retry_after_ms = -1, .upload_offset = -1, .range_first = -1, .range_total = -1};
    if (dunlin__struct_check(reply, "dunlin_http_reply", NULL) == DUNLIN_OK) {
        dunlin__struct_give(&empty, sizeof empty, reply);
    }
}

/* The value of header `name` if the line is one, trimmed into `out`; false otherwise. */
static bool header_value(const char *line, size_t length, const char *name, char out[VALUE_BYTES])
{
    size_t name_length = strlen(name);
    if (length <= name_length || strncasecmp(line, name, name_length) != 0 ||
        line[name_length] != ':') {
        return false;
    }
    const char *begin = line + name_length + 1;
    const char *end = line + length;
    while (begin < end && (*begin == ' ' || *begin == '\t')) {
        begin++;
    }
    while (end > begin && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' ')) {
        end--;
    }
    size_t n_bytes = (size_t)(end - begin);
    n_bytes = n_bytes < VALUE_BYTES ? n_bytes : VALUE_BYTES - 1;
    memcpy(out, begin, n_bytes);
    out[n_bytes] = '\0';
    return true;
}

/* A decimal number up to INT64_MAX at the head of text; -1 if there is none. */
static int64_t parse_number(const char *text, const char **out_end)
{
    if (*text < '0' || *text > '9') {
        return -1;
    }
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (out_end != NULL) {
        *out_end = end;
    }
    return errno == 0 ? (int64_t)value : -1;
}

void dunlin_http_reply_header(dunlin_http_reply *reply, const char *line, size_t length)
{
    char value[VALUE_BYTES] = "";
    if (header_value(line, length, "Dunlin-Protocol", value)) {
        reply->is_server = true;
    } else if (header_value(line, length, "Content-Encoding", value)) {
        reply->is_encoded = reply->is_encoded || strcasecmp(value, "identity") != 0;
    } else if (header_value(line, length, "Retry-After", value)) {
        int64_t seconds = parse_number(value, NULL);
        reply->retry_after_ms = seconds < 0 || seconds > MAX_RETRY_AFTER_S ? -1 : seconds * 1000;
    } else if (header_value(line, length, "Upload-Offset", value)) {
        reply->upload_offset = parse_number(value, NULL);
    } else if (header_value(line, length, "Content-Range", value) &&
               strncasecmp(value, "bytes ", 6) == 0) {
        const char *end = value;
        reply->range_first = parse_number(value + 6, &end);
        const char *slash = strchr(end, '/');
        reply->range_total = slash != NULL ? parse_number(slash + 1, NULL) : -1;
    }
}
