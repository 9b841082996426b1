/*
 * url.c - which addresses may be talked to: https, or plain http to this very machine when the app
 * allows it.
 */
#include "transport.h"

#include <mem/support.h>

#include <string.h>

static bool is_loopback(const char *host, size_t length)
{
    static const char *const NAMES[] = {"127.0.0.1", "[::1]", "localhost"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (strlen(NAMES[i]) == length && strncmp(host, NAMES[i], length) == 0) {
            return true;
        }
    }
    return false;
}

/* Length of the host at the head of an authority, brackets of an IPv6 address included. */
static size_t host_length(const char *authority)
{
    if (authority[0] == '[') {
        const char *end = strchr(authority, ']');
        return end == NULL ? 0 : (size_t)(end - authority) + 1;
    }
    return strcspn(authority, ":/");
}

/* What stands between host and path: nothing, or a colon and digits. */
static bool is_port(const char *text, size_t length)
{
    if (length == 0) {
        return true;
    }
    bool is_right = text[0] == ':' && length >= 2 && length <= 6;
    for (size_t i = 1; is_right && i < length; i++) {
        is_right = text[i] >= '0' && text[i] <= '9';
    }
    return is_right;
}

dunlin_status dunlin__url_check(const char *url, bool allow_plain_loopback, dunlin_error *error)
{
    if (url == NULL || strlen(url) > 2048) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "transport", 0,
                            "a URL is missing or longer than 2048 characters");
    }
    bool is_plain = strncmp(url, "http://", 7) == 0;
    if (!is_plain && strncmp(url, "https://", 8) != 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "transport", 0, "%.100s is not an https URL",
                            url);
    }
    const char *authority = url + (is_plain ? 7 : 8);
    size_t length = host_length(authority);
    size_t authority_length = strcspn(authority, "/");
    if (length == 0 || memchr(authority, '@', authority_length) != NULL ||
        strpbrk(url, "?#\\ \r\n\t") != NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "transport", 0,
                            "%.100s has no host, or a user, query, fragment or space", url);
    }
    if (!is_port(authority + length, authority_length - length)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "transport", 0,
                            "%.100s has something other than a port of 1 to 5 digits after its "
                            "host",
                            url);
    }
    if (is_plain && !(allow_plain_loopback && is_loopback(authority, length))) {
        return dunlin__fail(
            error, DUNLIN_ARGUMENT, "transport", 0,
            "%.100s is not encrypted; plain http is for loopback addresses, when it is allowed",
            url);
    }
    return DUNLIN_OK;
}
