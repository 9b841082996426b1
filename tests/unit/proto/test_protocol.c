/*
 * test_protocol.c - calls and their paths, ids, texts, headers.
 */
#include "random.h"

#include <wire/digest.h>
#include <wire/protocol.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#define LONG_ID /* 65 characters, one too many */                                                  \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HASH_HEX "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

Test(proto_protocol, every_call_has_its_path)
{
    static const struct {
        dunlin__call call;
        const char *id;
        uint32_t step;
        const char *method;
        const char *path;
    } cases[] = {
        {DUNLIN_CALL_ENROL, "phones", 0, "POST", "/v1/populations/phones:enrol"},
        {DUNLIN_CALL_CHECKIN, "phones", 0, "POST", "/v1/populations/phones:checkin"},
        {DUNLIN_CALL_ACCEPT, "s-1", 0, "POST", "/v1/sessions/s-1:accept"},
        {DUNLIN_CALL_OBJECT_GET, NULL, 0, "GET", "/v1/objects/" HASH_HEX},
        {DUNLIN_CALL_PUT, "a", 0, "POST", "/v1/assignments/a:put"},
        {DUNLIN_CALL_CHUNK_HEAD, "a", 0, "HEAD", "/v1/assignments/a/objects/" HASH_HEX},
        {DUNLIN_CALL_CHUNK_PUT, "a", 0, "PUT", "/v1/assignments/a/objects/" HASH_HEX},
        {DUNLIN_CALL_COMMIT, "a", 0, "POST", "/v1/assignments/a:commit"},
        {DUNLIN_CALL_ABORT, "a", 0, "POST", "/v1/assignments/a:abort"},
        {DUNLIN_CALL_SECAGG, "a", 1, "POST", "/v1/assignments/a/secagg/advertise"},
        {DUNLIN_CALL_SECAGG, "a", 5, "POST", "/v1/assignments/a/secagg/unmask"},
        {DUNLIN_CALL_TELEMETRY, NULL, 0, "POST", "/v1/telemetry"},
        {DUNLIN_CALL_FORGET, "phones", 0, "POST", "/v1/populations/phones:forget"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        dunlin__route route = dunlin__route_make(cases[i].call, cases[i].id);
        route.secagg_step = cases[i].step;
        if (strstr(cases[i].path, HASH_HEX) != NULL) {
            cr_assert(dunlin__hex_decode(HASH_HEX, route.sha256, 32));
        }
        char path[DUNLIN_WIRE_PATH_BYTES];
        dunlin_error error = {0};
        cr_assert_eq(dunlin__route_format(&route, path, sizeof(path), &error), DUNLIN_OK, "%s",
                     error.text);
        cr_assert_str_eq(path, cases[i].path);
        dunlin__route again;
        cr_assert_eq(dunlin__route_parse(cases[i].method, path, &again, &error), DUNLIN_OK, "%s",
                     path);
        cr_assert_eq(again.call, cases[i].call, "%s", path);
        cr_assert_eq(again.secagg_step, cases[i].step);
        cr_assert_str_eq(again.id, route.id);
        cr_assert_arr_eq(again.sha256, route.sha256, 32);
        cr_assert_eq(dunlin__route_parse("DELETE", path, &again, &error), DUNLIN_UNSUPPORTED);
        cr_assert_eq(dunlin__route_format(&route, path, strlen(cases[i].path), &error),
                     DUNLIN_LIMIT);
        cr_assert_str_eq(path, "");
    }
}

Test(proto_protocol, other_paths_are_refused)
{
    static const char *const paths[] = {
        "",
        "/",
        "/v1",
        "/v2/telemetry",
        "/v1/telemetry/",
        "/v1/telemetry?x=1",
        "/v1/populations/:enrol",
        "/v1/populations/a:enrol ",
        "/v1/populations/a:enroll",
        "/v1/populations/a b:enrol",
        "/v1/populations/..:enrol",
        "/v1/populations/../objects:enrol",
        "/v1/populations/%61:enrol",
        "/v1/populations/a\xc3\xa9:enrol",
        "/v1/assignments/a/secagg/mask2",
        "/v1/assignments/a/secagg/",
        "/v1/assignments/a/objects/",
        "/v1/assignments/a/objects/../../etc/passwd",
        "/v1/objects/000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1",
        "/v1/objects/" HASH_HEX "0",
        "/v1/objects/" HASH_HEX "/",
        "/v1/objects/000102030405060708090A0B0C0D0E0F101112131415161718191a1b1c1d1e1f",
        "/v1/sessions/" LONG_ID ":accept",
    };
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        dunlin__route route;
        dunlin_error error = {0};
        cr_assert_eq(dunlin__route_parse("POST", paths[i], &route, &error), DUNLIN_PROTOCOL, "%s",
                     paths[i]);
        cr_assert_eq(dunlin__route_parse("GET", paths[i], &route, &error), DUNLIN_PROTOCOL, "%s",
                     paths[i]);
    }
}

Test(proto_protocol, bad_routes_are_not_formatted)
{
    char path[DUNLIN_WIRE_PATH_BYTES];
    dunlin_error error = {0};
    static const char *const ids[] = {"", "a/b", "a:b", ".", "..", "a b", "\n", LONG_ID};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        dunlin__route route = dunlin__route_make(DUNLIN_CALL_ENROL, ids[i]);
        cr_assert_eq(dunlin__route_format(&route, path, sizeof(path), &error), DUNLIN_ARGUMENT,
                     "%s", ids[i]);
        cr_assert_str_eq(path, "");
    }
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_SECAGG, "a");
    cr_assert_eq(dunlin__route_format(&route, path, sizeof(path), &error), DUNLIN_ARGUMENT);
    route.secagg_step = 6;
    cr_assert_eq(dunlin__route_format(&route, path, sizeof(path), &error), DUNLIN_ARGUMENT);
    route.call = DUNLIN_N_CALLS;
    cr_assert_eq(dunlin__route_format(&route, path, sizeof(path), &error), DUNLIN_ARGUMENT);
    cr_assert_null(dunlin__call_describe(DUNLIN_N_CALLS));
}

Test(proto_protocol, random_paths_parse_to_what_they_spell)
{
    uint64_t state = test_seed(31);
    static const char pieces[][24] = {
        "/v1/", "populations/", "assignments/", "sessions/", "objects/", "a",
        "Z9",   ":enrol",       ":put",         "/secagg/",  "mask",     "/objects/",
        "..",   "%2e",          "telemetry",    ":",         "/"};
    for (int i = 0; i < test_cases(20000); i++) {
        char path[DUNLIN_WIRE_PATH_BYTES] = "/v1/";
        for (uint64_t n = test_random_below(&state, 6); n > 0; n--) {
            strcat(path, pieces[test_random_below(&state, sizeof(pieces) / sizeof(pieces[0]))]);
        }
        dunlin__route route;
        if (dunlin__route_parse("POST", path, &route, NULL) == DUNLIN_OK) {
            char again[DUNLIN_WIRE_PATH_BYTES];
            cr_assert_eq(dunlin__route_format(&route, again, sizeof(again), NULL), DUNLIN_OK);
            cr_assert_str_eq(again, path);
        }
    }
}

Test(proto_protocol, texts_are_utf8_without_control_characters)
{
    cr_assert(dunlin__text_is_valid("fc1/weight:0", 255));
    cr_assert(dunlin__text_is_valid("\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\xa6", 9));
    static const char *const bad[] = {
        "",                 /* empty */
        "a\n",              /* control */
        "\x7f",             /* delete */
        "\xc2\x85",         /* a control character of two bytes */
        "\xc0\xaf",         /* overlong */
        "\xe0\x80\xaf",     /* overlong */
        "\xf0\x80\x80\xaf", /* overlong */
        "\xed\xa0\x80",     /* a surrogate */
        "\xf4\x90\x80\x80", /* beyond U+10FFFF */
        "\x80",             /* a tail without a head */
        "\xe2\x82",         /* cut short */
        "\xff",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_assert_not(dunlin__text_is_valid(bad[i], 255), "case %zu", i);
    }
    cr_assert_not(dunlin__text_is_valid("abc", 2));
    cr_assert_not(dunlin__text_is_valid("a\xc3\xa9", 2));
}

Test(proto_protocol, header_numbers)
{
    uint64_t value = 7;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__header_u64("Dunlin-Counter", "18446744073709551615", &value, &error),
                 DUNLIN_OK);
    cr_assert_eq(value, UINT64_MAX);
    cr_assert_eq(dunlin__header_u64("Dunlin-Counter", "0", &value, &error), DUNLIN_OK);
    cr_assert_eq(value, 0);
    static const char *const bad[] = {
        "", "-1", "+1", " 1", "1 ", "0x1", "1.0", "18446744073709551616", "99999999999999999999999",
        "a"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_assert_eq(dunlin__header_u64("Dunlin-Counter", bad[i], &value, &error), DUNLIN_PROTOCOL,
                     "%s", bad[i]);
        cr_assert_not_null(strstr(error.text, "Dunlin-Counter"));
    }
    cr_assert_eq(dunlin__header_u64("Upload-Offset", NULL, &value, &error), DUNLIN_PROTOCOL);
    cr_assert_not_null(strstr(error.text, "Upload-Offset is missing"));
}

Test(proto_protocol, chunk_ranges)
{
    char text[DUNLIN_WIRE_RANGE_BYTES];
    dunlin_error error = {0};
    dunlin__chunk_range range = {.offset = 100, .n_bytes = 28, .total_bytes = 128};
    dunlin__chunk_range again;
    cr_assert_eq(dunlin__chunk_range_format(&range, text, &error), DUNLIN_OK);
    cr_assert_str_eq(text, "bytes 100-127/128");
    cr_assert_eq(dunlin__chunk_range_parse(text, &again, &error), DUNLIN_OK);
    cr_assert_eq(again.offset, 100);
    cr_assert_eq(again.n_bytes, 28);
    cr_assert_eq(again.total_bytes, 128);
    static const char *const bad[] = {"",
                                      "bytes",
                                      "bytes 0-1",
                                      "bytes 0-1/",
                                      "bytes 0-1/*",
                                      "bytes 2-1/8",
                                      "bytes 0-8/8",
                                      "bytes 8-8/8",
                                      "bytes -1/8",
                                      "octets 0-1/8",
                                      "bytes 0-1/8 ",
                                      "bytes 0-18446744073709551615/8",
                                      "bytes 18446744073709551615-18446744073709551615/8"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_assert_eq(dunlin__chunk_range_parse(bad[i], &again, &error), DUNLIN_PROTOCOL, "%s",
                     bad[i]);
    }
    cr_assert_eq(dunlin__chunk_range_parse("bytes 0-1/1048577", &again, &error), DUNLIN_LIMIT);
    cr_assert_not_null(strstr(error.text, "1048577"));
    range.n_bytes = 29;
    cr_assert_eq(dunlin__chunk_range_format(&range, text, &error), DUNLIN_PROTOCOL);
}
