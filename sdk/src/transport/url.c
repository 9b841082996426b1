/*
 * url.c - which URLs the client may use: https, or plain http to the machine itself when the app
 * allows it.
 *
 * Invariant: the parts that are checked are those that libcurl parses, since libcurl connects.
 */
#include "url.h"

#include <mem/support.h>

#include <ctype.h>
#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#define MAX_URL_CHARS 2048

static dunlin_status refuse(const char *url, const char *why, dunlin_error *error)
{
    return dunlin__fail(error, DUNLIN_ARGUMENT, "transport", 0, "%.100s %s", url, why);
}

/* True if the part is there and has this text. */
static bool is(CURLU *parsed, CURLUPart part, const char *expected)
{
    char *text = NULL;
    const bool is_it =
        curl_url_get(parsed, part, &text, 0) == CURLUE_OK && strcmp(text, expected) == 0;
    curl_free(text);
    return is_it;
}

/* libcurl takes some texts that only resemble a URL; these are not taken here. */
static dunlin_status judge(CURLU *parsed, const char *url, bool allow_plain_loopback,
                           dunlin_error *error)
{
    const bool is_plain = strncmp(url, "http://", 7) == 0;
    const size_t n_scheme = is_plain ? 7 : 8;
    if (!is_plain && strncmp(url, "https://", 8) != 0) {
        return refuse(url, "is not an https URL", error);
    }
    const size_t n_authority = strcspn(url + n_scheme, "/");
    if (n_authority == 0 || memchr(url + n_scheme, '@', n_authority) != NULL ||
        strpbrk(url, "?#\\ \r\n\t") != NULL) {
        return refuse(url, "has no host, or a user, query, fragment or space", error);
    }
    const CURLUcode code = curl_url_set(parsed, CURLUPART_URL, url, 0);
    if (code == CURLUE_OUT_OF_MEMORY) {
        return dunlin__fail(error, DUNLIN_MEMORY, "transport", 0, "no memory for a URL");
    }
    if (code == CURLUE_BAD_PORT_NUMBER || url[n_scheme + n_authority - 1] == ':') {
        return refuse(url, "has something other than a port from 0 to 65535 after its host", error);
    }
    if (code != CURLUE_OK) {
        return refuse(url, "is no URL of a host", error);
    }
    const bool is_loopback = is(parsed, CURLUPART_HOST, "127.0.0.1") ||
                             is(parsed, CURLUPART_HOST, "[::1]") ||
                             is(parsed, CURLUPART_HOST, "localhost");
    if (is_plain && !(allow_plain_loopback && is_loopback)) {
        return refuse(url,
                      "is not encrypted; plain http is for loopback addresses, when it is allowed",
                      error);
    }
    return DUNLIN_OK;
}

static dunlin_status parse(const char *url, bool allow_plain_loopback, CURLU **out_parsed,
                           dunlin_error *error)
{
    if (url == NULL || strlen(url) > MAX_URL_CHARS) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "transport", 0,
                            "a URL is missing or longer than %d characters", MAX_URL_CHARS);
    }
    *out_parsed = curl_url();
    if (*out_parsed == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "transport", 0, "no memory for a URL");
    }
    const dunlin_status status = judge(*out_parsed, url, allow_plain_loopback, error);
    if (status != DUNLIN_OK) {
        curl_url_cleanup(*out_parsed);
    }
    return status;
}

dunlin_status dunlin__url_check(const char *url, bool allow_plain_loopback, dunlin_error *error)
{
    CURLU *parsed = NULL;
    DUNLIN_TRY(parse(url, allow_plain_loopback, &parsed, error));
    curl_url_cleanup(parsed);
    return DUNLIN_OK;
}

static dunlin_status write_origin(CURLU *parsed, const char *url, dunlin__origin *out_origin,
                                  dunlin_error *error)
{
    char *host = NULL;
    char *port = NULL;
    if (!is(parsed, CURLUPART_PATH, "/")) {
        return refuse(url, "has a path; give scheme, host and port only", error);
    }
    dunlin_status status = DUNLIN_OK;
    if (curl_url_get(parsed, CURLUPART_HOST, &host, 0) != CURLUE_OK) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "transport", 0, "no memory for a host");
    } else {
        (void)curl_url_get(parsed, CURLUPART_PORT, &port, CURLU_NO_DEFAULT_PORT);
        const int n = snprintf(out_origin->authority, sizeof out_origin->authority, "%s%s%s", host,
                               port != NULL ? ":" : "", port != NULL ? port : "");
        if (n < 0 || (size_t)n >= sizeof out_origin->authority) {
            status = dunlin__fail(error, DUNLIN_ARGUMENT, "client", 0,
                                  "the host of the server is longer than %u characters",
                                  DUNLIN_WIRE_AUTHORITY_CHARS);
        }
    }
    curl_free(host);
    curl_free(port);
    DUNLIN_TRY(status);
    for (char *at = out_origin->authority; *at != '\0'; at++) {
        *at = (char)tolower((unsigned char)*at);
    }
    (void)snprintf(out_origin->url, sizeof out_origin->url, "%s://%s",
                   is(parsed, CURLUPART_SCHEME, "http") ? "http" : "https", out_origin->authority);
    return DUNLIN_OK;
}

dunlin_status dunlin__url_origin(const char *url, bool allow_plain_loopback,
                                 dunlin__origin *out_origin, dunlin_error *error)
{
    CURLU *parsed = NULL;
    DUNLIN_TRY(parse(url, allow_plain_loopback, &parsed, error));
    const dunlin_status status = write_origin(parsed, url, out_origin, error);
    curl_url_cleanup(parsed);
    return status;
}
