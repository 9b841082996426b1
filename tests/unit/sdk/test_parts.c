/*
 * test_parts.c - small parts: which URLs may be talked to, the stages of an update.
 */
#include "transport/url.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

Test(url, taken_and_refused)
{
    static const struct {
        const char *url;
        bool allow_plain;
        bool is_taken;
    } CASES[] = {
        {"https://example.org", false, true},
        {"https://example.org:8443/", false, true},
        {"https://[2001:db8::1]:8443", false, true},
        {"https://127.0.0.1", false, true},
        {"http://127.0.0.1:8080", true, true},
        {"http://[::1]:8080", true, true},
        {"http://localhost:8080", true, true},
        {"http://127.0.0.1:8080", false, false},
        {"http://example.org", true, false},
        {"http://127.0.0.1.example.org", true, false},
        {"http://127.0.0.1@example.org", true, false},
        {"http://localhost.example.org", true, false},
        {"http://[::1].example.org", true, false},
        {"http://[::1", true, false},
        {"https://example.org:", false, false},
        {"https://example.org:84x3", false, false},
        {"https://example.org:123456", false, false},
        {"https://[::1]8443", false, false},
        {"https://example.org:65535", false, true},
        {"https://example.org:65536", false, false},
        {"https://example.org:-1", false, false},
        {"https://example.org/a/path", false, true},
        {"https://exa%00mple.org", false, false},
        {"http://127.1:80", true, true},
        {"http://127.0.0.2", true, false},
        {"http://0x7f000001.example.org", true, false},
        {"http://", true, false},
        {"https://", false, false},
        {"https:///path", false, false},
        {"https://user@example.org", false, false},
        {"https://user:secret@example.org", false, false},
        {"https://example.org/?q", false, false},
        {"https://example.org/#f", false, false},
        {"https://example.org\\@other.org", false, false},
        {"https://example.org\r\nHost: other", false, false},
        {"https://exam ple.org", false, false},
        {"ftp://example.org", true, false},
        {"HTTPS://example.org", false, false},
        {"file:///etc/passwd", true, false},
        {"", true, false},
        {NULL, true, false},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        dunlin_error error = {0};
        dunlin_status status = dunlin__url_check(CASES[i].url, CASES[i].allow_plain, &error);
        cr_expect_eq(status, CASES[i].is_taken ? DUNLIN_OK : DUNLIN_ARGUMENT, "case %zu: %s", i,
                     CASES[i].url);
        cr_expect_eq(error.text[0] == '\0', CASES[i].is_taken);
    }
    char longer[3000];
    memset(longer, 'a', sizeof longer);
    memcpy(longer, "https://", 8);
    longer[sizeof longer - 1] = '\0';
    cr_expect_eq(dunlin__url_check(longer, false, NULL), DUNLIN_ARGUMENT);
}

/* As libcurl says it in the Host header, which the server checks the signature with. */
Test(url, an_origin_is_what_the_host_header_says)
{
    static const char *const CASES[][3] = {
        {"https://Example.ORG", "example.org", "https://example.org"},
        {"https://example.org:443/", "example.org", "https://example.org"},
        {"https://example.org:8443/", "example.org:8443", "https://example.org:8443"},
        {"https://example.org:08443", "example.org:8443", "https://example.org:8443"},
        {"https://example.org:80", "example.org:80", "https://example.org:80"},
        {"http://localhost:80", "localhost", "http://localhost"},
        {"http://localhost:443", "localhost:443", "http://localhost:443"},
        {"https://[2001:DB8::1]:8443", "[2001:db8::1]:8443", "https://[2001:db8::1]:8443"},
    };
    dunlin__origin origin;
    dunlin_error error = {0};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        cr_assert_eq(dunlin__url_origin(CASES[i][0], true, &origin, &error), DUNLIN_OK, "%s: %s",
                     CASES[i][0], error.text);
        cr_expect_str_eq(origin.authority, CASES[i][1]);
        cr_expect_str_eq(origin.url, CASES[i][2]);
    }
    cr_expect_eq(dunlin__url_origin("https://example.org/path", true, &origin, &error),
                 DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "path"), "%s", error.text);
    char longer[400];
    memset(longer, 'a', sizeof longer);
    memcpy(longer, "https://", 8);
    longer[8 + DUNLIN_WIRE_AUTHORITY_CHARS + 1] = '\0';
    cr_expect_eq(dunlin__url_origin(longer, true, &origin, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "261"), "%s", error.text);
    longer[8 + DUNLIN_WIRE_AUTHORITY_CHARS] = '\0';
    cr_expect_eq(dunlin__url_origin(longer, true, &origin, &error), DUNLIN_OK, "%s", error.text);
}
