/*
 * test_message_bytes.c - messages in bytes: fields too long, unknown ones, and those made by
 * protoc; what status codes mean.
 */
#include "make_message.h"

#include <criterion/criterion.h>

#include <string.h>

static uint8_t encoded[DUNLIN_WIRE_BODY_BYTES];
static any_message decoded;

Test(proto_messages, decode_names_the_field_that_is_too_long)
{
    /* Field 1 (offer_id) of AcceptRequest with 65 letters. */
    uint8_t bytes[67] = {0x0a, 65};
    memset(bytes + 2, 'a', 65);
    dunlin__accept_request request;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__accept_request_decode(bytes, sizeof(bytes), &request, &error),
                 DUNLIN_PROTOCOL);
    cr_assert_not_null(strstr(error.text, "AcceptRequest: offer_id cannot be read"), "%s",
                       error.text);
    bytes[1] = 64;
    cr_assert_eq(dunlin__accept_request_decode(bytes, 66, &request, &error), DUNLIN_OK);
    cr_assert_eq(strlen(request.offer_id), 64);
    cr_assert_eq(dunlin__accept_request_decode(bytes, 60, &request, &error), DUNLIN_PROTOCOL);
    cr_assert_not_null(strstr(error.text, "offer_id is cut short"), "%s", error.text);
}

Test(proto_messages, nothing_hides_behind_the_end_of_a_string)
{
    const uint8_t bytes[] = {0x0a, 3, 'a', 0, 'b'};
    dunlin__accept_request request;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__accept_request_decode(bytes, sizeof(bytes), &request, &error),
                 DUNLIN_PROTOCOL);
    cr_assert_not_null(strstr(error.text, "offer_id has a zero byte"), "%s", error.text);
}

Test(proto_messages, unknown_fields_are_skipped)
{
    /* Field 15, a varint, then field 1. */
    const uint8_t bytes[] = {0x78, 0x05, 0x08, 0x01};
    dunlin__forget_request request;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__forget_request_decode(bytes, sizeof(bytes), &request, &error), DUNLIN_OK);
    cr_assert_eq(request.protocol_version, 1);
}

/* Made by `protoc --encode` from the same contents. */
static const uint8_t golden_checkin[] = {
    0x0a, 0x0c, 's',  'e',  's',  's',  'i',  'o',  'n',  '-',  '0',  '0',  '0',  '1',  0x12,
    0x10, '0',  '1',  '2',  '3',  '4',  '5',  '6',  '7',  '8',  '9',  'a',  'b',  'c',  'd',
    'e',  'f',  0x22, 0x34, 0x0a, 0x07, 'o',  'f',  'f',  'e',  'r',  '-',  '1',  0x12, 0x06,
    'd',  'i',  'g',  'i',  't',  's',  0x18, 0x01, 0x20, 0x03, 0x28, 0xac, 0x02, 0x32, 0x08,
    0x08, 0x0a, 0x10, 0xe0, 0xd4, 0x03, 0x28, 0x01, 0x38, 0xc0, 0xa9, 0x07, 0x40, 0x90, 0xa1,
    0x0f, 0x48, 0xa0, 0xfe, 0x0a, 0x50, 0x01, 0x5a, 0x02, 0x04, 0x09, 0x2a, 0x06, 0x08, 0xe8,
    0x07, 0x10, 0x88, 0x27, 0x32, 0x06, 0x08, 0xf4, 0x03, 0x10, 0x84, 0x07};

Test(proto_messages, checkin_response_is_as_protoc_writes_it)
{
    dunlin__checkin_response m = {.session = "session-0001", .challenge = "0123456789abcdef"};
    m.offers_count = 1;
    m.offers[0] = (dunlin__offer){
        .offer_id = "offer-1",
        .task = "digits",
        .kind = DUNLIN_V1_KIND_TRAIN,
        .run_epoch = 3,
        .round = 300,
        .has_policy = true,
        .policy = {.min_examples = 10, .min_separation_ms = 60000, .requires_unmetered = true},
        .deadline_ms = 120000,
        .download_bytes = 250000,
        .upload_bytes = 180000,
        .aggregation = DUNLIN_V1_AGGREGATION_PLAIN,
        .required_features_count = 2,
        .required_features = {4, 9}};
    m.has_accepted_window = true;
    m.accepted_window = (dunlin__window){.min_ms = 1000, .max_ms = 5000};
    m.has_rejected_window = true;
    m.rejected_window = (dunlin__window){.min_ms = 500, .max_ms = 900};
    dunlin_error error = {0};
    size_t n_bytes = 0;
    cr_assert_eq(dunlin__checkin_response_encode(&m, encoded, sizeof(encoded), &n_bytes, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_assert_eq(n_bytes, sizeof(golden_checkin));
    cr_assert_arr_eq(encoded, golden_checkin, n_bytes);
    cr_assert_eq(dunlin__checkin_response_decode(golden_checkin, sizeof(golden_checkin),
                                                 &decoded.checkin_response, &error),
                 DUNLIN_OK);
    cr_assert_str_eq(decoded.checkin_response.offers[0].task, "digits");
    cr_assert_eq(decoded.checkin_response.offers[0].upload_bytes, 180000);
}

static const uint8_t golden_commit[] = {
    0x08, 0x01, 0x12, 0x20, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a,
    0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
    0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f, 0x20, 0x18, 0x01, 0x20, 0xd8, 0x04, 0x28,
    0x26, 0x30, 0xd2, 0x09, 0x3a, 0x0f, 0x0a, 0x04, 'l',  'o',  's',  's',  0x11, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0xd0, 0x3f, 0x3a, 0x13, 0x0a, 0x08, 'a',  'c',  'c',
    'u',  'r',  'a',  'c',  'y',  0x11, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xec, 0x3f};

Test(proto_messages, commit_request_is_as_protoc_writes_it)
{
    dunlin__commit_request m = {
        .kind = DUNLIN_V1_KIND_TRAIN,
        .encoding = DUNLIN_V1_ENCODING_F32,
        .n_examples = 600,
        .n_steps = 38,
        .train_ms = 1234,
        .metrics_count = 2,
        .metrics = {{.name = "loss", .value = 0.25}, {.name = "accuracy", .value = 0.875}}};
    for (uint8_t i = 0; i < 32; i++) {
        m.manifest_sha256[i] = (uint8_t)(i + 1);
    }
    dunlin_error error = {0};
    size_t n_bytes = 0;
    cr_assert_eq(dunlin__commit_request_encode(&m, encoded, sizeof(encoded), &n_bytes, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_assert_eq(n_bytes, sizeof(golden_commit));
    cr_assert_arr_eq(encoded, golden_commit, n_bytes);
}

/* A field of its own behind the others: a side that does not know it reads the rest as before. */
Test(proto_messages, app_metrics_follow_what_was_there_before_them)
{
    static const uint8_t tail[] = {0x42, 0x0d, 0x0a, 0x02, 'f',  '1',  0x11, 0x00,
                                   0x00, 0x00, 0x00, 0x00, 0x00, 0xe0, 0x3f};
    dunlin__commit_request m = {0};
    dunlin_error error = {0};
    size_t n_bytes = 0;
    cr_assert_eq(dunlin__commit_request_decode(golden_commit, sizeof golden_commit, &m, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_assert_eq(m.app_metrics_count, 0);
    m.app_metrics_count = 1;
    (void)strcpy(m.app_metrics[0].name, "f1");
    m.app_metrics[0].value = 0.5;
    cr_assert_eq(dunlin__commit_request_encode(&m, encoded, sizeof encoded, &n_bytes, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_assert_eq(n_bytes, sizeof golden_commit + sizeof tail);
    cr_assert_arr_eq(encoded, golden_commit, sizeof golden_commit);
    cr_assert_arr_eq(encoded + sizeof golden_commit, tail, sizeof tail);
}

Test(proto_messages, status_codes_have_meanings)
{
    for (int code = 1; code <= 17; code++) {
        const dunlin__status_meaning *meaning =
            dunlin__status_describe((dunlin_v1_status_code_t)code);
        cr_assert_lt(meaning->status, 0);
        cr_assert(meaning->http_code >= 400 && meaning->http_code < 600, "code %d", code);
        cr_assert_not_null(meaning->name, "code %d", code);
    }
    cr_assert_eq(dunlin__status_describe(999), dunlin__status_describe(16));
    cr_assert(dunlin__status_describe(DUNLIN_V1_STATUS_CODE_NOT_FOUND)->is_permanent);
    cr_assert_not(dunlin__status_describe(DUNLIN_V1_STATUS_CODE_UNAVAILABLE)->is_permanent);
    cr_assert_eq(dunlin__status_describe(DUNLIN_V1_STATUS_CODE_UNAVAILABLE)->http_code, 503);
}
