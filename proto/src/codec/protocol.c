/*
 * protocol.c - calls, their paths, and the values of headers.
 *
 * A path is accepted only if formatting what was read gives the same path again; nothing is decoded
 * or normalised, so there is one spelling for each resource.
 */
#include <mem/support.h>
#include <wire/digest.h>
#include <wire/protocol.h>

#include <stdio.h>
#include <string.h>

static const dunlin__call_info calls[DUNLIN_N_CALLS] = {
#define CALL_ROW(name, method, is_signed, is_keyed, has_token, body)                               \
    {#name, method, is_signed, is_keyed, has_token, body},
    DUNLIN_CALL_MAP(CALL_ROW)
#undef CALL_ROW
};

/* What a path is made of: before, id or not, between, object or step or not. */
typedef enum path_tail { TAIL_NONE, TAIL_OBJECT, TAIL_STEP } path_tail;

typedef struct path_shape {
    const char *head;
    const char *middle; /* after the id; NULL: the path has no id */
    path_tail tail;
} path_shape;

static const path_shape shapes[DUNLIN_N_CALLS] = {
    [DUNLIN_CALL_ENROL] = {"/v1/populations/", ":enrol", TAIL_NONE},
    [DUNLIN_CALL_CHECKIN] = {"/v1/populations/", ":checkin", TAIL_NONE},
    [DUNLIN_CALL_ACCEPT] = {"/v1/sessions/", ":accept", TAIL_NONE},
    [DUNLIN_CALL_OBJECT_GET] = {"/v1/objects/", NULL, TAIL_OBJECT},
    [DUNLIN_CALL_PUT] = {"/v1/assignments/", ":put", TAIL_NONE},
    [DUNLIN_CALL_CHUNK_HEAD] = {"/v1/assignments/", "/objects/", TAIL_OBJECT},
    [DUNLIN_CALL_CHUNK_PUT] = {"/v1/assignments/", "/objects/", TAIL_OBJECT},
    [DUNLIN_CALL_COMMIT] = {"/v1/assignments/", ":commit", TAIL_NONE},
    [DUNLIN_CALL_ABORT] = {"/v1/assignments/", ":abort", TAIL_NONE},
    [DUNLIN_CALL_SECAGG] = {"/v1/assignments/", "/secagg/", TAIL_STEP},
    [DUNLIN_CALL_TELEMETRY] = {"/v1/telemetry", NULL, TAIL_NONE},
    [DUNLIN_CALL_FORGET] = {"/v1/populations/", ":forget", TAIL_NONE},
};

static const char *const step_names[DUNLIN_WIRE_SECAGG_STEPS] = {"advertise", "share", "mask",
                                                                 "consistency", "unmask"};

const dunlin__call_info *dunlin__call_describe(dunlin__call call)
{
    return ((unsigned)call < (unsigned)DUNLIN_N_CALLS) ? &calls[call] : NULL;
}

bool dunlin__token_is_valid(const char *token, size_t min_chars, size_t max_chars)
{
    if (token[0] == '.') {
        return false;
    }
    size_t n_chars = 0;
    for (; token[n_chars] != '\0'; n_chars++) {
        char c = token[n_chars];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        bool is_digit = c >= '0' && c <= '9';
        bool is_mark = c == '-' || c == '_' || c == '.' || c == '~';
        if (n_chars == max_chars || !(is_letter || is_digit || is_mark)) {
            return false;
        }
    }
    return n_chars >= min_chars;
}

bool dunlin__id_is_valid(const char *id)
{
    return dunlin__token_is_valid(id, 1, DUNLIN_WIRE_ID_CHARS);
}

bool dunlin__metric_name_is_valid(const char *name)
{
    size_t n_chars =
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/");
    return n_chars >= 1 && n_chars <= DUNLIN_WIRE_METRIC_CHARS && name[n_chars] == '\0';
}

/* Length of the UTF-8 sequence at `bytes`, 0 if it is not one: overlong forms, surrogates and
 * numbers past U+10FFFF are not (RFC 3629, section 4). Stops at the ending 0. */
static size_t utf8_sequence(const uint8_t *bytes)
{
    uint8_t first = bytes[0];
    if (first < 0x80) {
        return (first >= 0x20 && first != 0x7f) ? 1 : 0;
    }
    size_t length = 0;
    uint8_t low = 0x80;
    uint8_t high = 0xbf;
    if (first >= 0xc2 && first <= 0xdf) {
        length = 2;
        low = (first == 0xc2) ? 0xa0 : 0x80; /* U+0080 to U+009F are control characters */
    } else if (first >= 0xe0 && first <= 0xef) {
        length = 3;
        low = (first == 0xe0) ? 0xa0 : 0x80;
        high = (first == 0xed) ? 0x9f : 0xbf;
    } else if (first >= 0xf0 && first <= 0xf4) {
        length = 4;
        low = (first == 0xf0) ? 0x90 : 0x80;
        high = (first == 0xf4) ? 0x8f : 0xbf;
    } else {
        return 0;
    }
    if (bytes[1] < low || bytes[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((bytes[i] & 0xc0u) != 0x80u) {
            return 0;
        }
    }
    return length;
}

bool dunlin__text_is_valid(const char *text, size_t max_chars)
{
    const uint8_t *bytes = (const uint8_t *)text;
    size_t n_bytes = 0;
    while (bytes[n_bytes] != 0) {
        size_t length = utf8_sequence(bytes + n_bytes);
        if (length == 0 || length > max_chars - n_bytes) {
            return false;
        }
        n_bytes += length;
    }
    return n_bytes > 0;
}

dunlin__route dunlin__route_make(dunlin__call call, const char *id)
{
    dunlin__route route = {.call = call};
    if (id == NULL) {
        return route;
    }
    size_t n_chars = strnlen(id, DUNLIN_WIRE_ID_CHARS + 1);
    if (n_chars > DUNLIN_WIRE_ID_CHARS) {
        n_chars = 0; /* no id is empty: format refuses it */
    }
    memcpy(route.id, id, n_chars);
    return route;
}

dunlin_status dunlin__route_format(const dunlin__route *route, char *out_path, size_t capacity,
                                   dunlin_error *error)
{
    if (capacity > 0) {
        out_path[0] = '\0';
    }
    if (dunlin__call_describe(route->call) == NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "route", 0, "there is no call %d",
                            (int)route->call);
    }
    const path_shape *shape = &shapes[route->call];
    if (shape->middle != NULL && !dunlin__id_is_valid(route->id)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "route", 0,
                            "the id of a %s is not 1 to %u letters, digits, - _ . ~",
                            calls[route->call].name, DUNLIN_WIRE_ID_CHARS);
    }
    char hex[DUNLIN_SHA256_HEX_BYTES] = "";
    const char *tail = "";
    if (shape->tail == TAIL_OBJECT) {
        dunlin__hex_encode(route->sha256, DUNLIN_SHA256_BYTES, hex);
        tail = hex;
    } else if (shape->tail == TAIL_STEP) {
        if (route->secagg_step < 1 || route->secagg_step > DUNLIN_WIRE_SECAGG_STEPS) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "route", 0,
                                "secure aggregation has no step %u, only 1 to %u",
                                route->secagg_step, DUNLIN_WIRE_SECAGG_STEPS);
        }
        tail = step_names[route->secagg_step - 1];
    }
    bool has_id = shape->middle != NULL;
    int n_chars = snprintf(out_path, capacity, "%s%s%s%s", shape->head, has_id ? route->id : "",
                           has_id ? shape->middle : "", tail);
    if (n_chars < 0 || (size_t)n_chars >= capacity) {
        if (capacity > 0) {
            out_path[0] = '\0';
        }
        return dunlin__fail(error, DUNLIN_LIMIT, "route", 0,
                            "a path of %d characters does not fit %zu bytes", n_chars, capacity);
    }
    return DUNLIN_OK;
}

/* The rest of `text` after `prefix`, or NULL. */
static const char *skip_prefix(const char *text, const char *prefix)
{
    size_t n_chars = strlen(prefix);
    return (strncmp(text, prefix, n_chars) == 0) ? text + n_chars : NULL;
}

static bool parse_tail(path_tail tail, const char *text, dunlin__route *route)
{
    if (tail == TAIL_OBJECT) {
        return dunlin__hex_decode(text, route->sha256, DUNLIN_SHA256_BYTES);
    }
    if (tail == TAIL_NONE) {
        return text[0] == '\0';
    }
    for (uint32_t i = 0; i < DUNLIN_WIRE_SECAGG_STEPS; i++) {
        if (strcmp(text, step_names[i]) == 0) {
            route->secagg_step = i + 1;
            return true;
        }
    }
    return false;
}

static bool parse_path(dunlin__call call, const char *path, dunlin__route *out_route)
{
    const path_shape *shape = &shapes[call];
    *out_route = (dunlin__route){.call = call};
    const char *rest = skip_prefix(path, shape->head);
    if (rest == NULL) {
        return false;
    }
    if (shape->middle != NULL) {
        size_t n_chars = strcspn(rest, ":/");
        if (n_chars > DUNLIN_WIRE_ID_CHARS) {
            return false;
        }
        memcpy(out_route->id, rest, n_chars);
        if (!dunlin__id_is_valid(out_route->id)) {
            return false;
        }
        rest = skip_prefix(rest + n_chars, shape->middle);
        if (rest == NULL) {
            return false;
        }
    }
    return parse_tail(shape->tail, rest, out_route);
}

dunlin_status dunlin__route_parse(const char *method, const char *path, dunlin__route *out_route,
                                  dunlin_error *error)
{
    bool is_known_path = false;
    for (int call = 0; call < (int)DUNLIN_N_CALLS; call++) {
        if (!parse_path((dunlin__call)call, path, out_route)) {
            continue;
        }
        is_known_path = true;
        if (strcmp(method, calls[call].method) == 0) {
            return DUNLIN_OK;
        }
    }
    *out_route = (dunlin__route){0};
    if (is_known_path) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "route", 0,
                            "this path does not take the method %.16s", method);
    }
    return dunlin__fail(error, DUNLIN_PROTOCOL, "route", 0, "no call has the path %.64s", path);
}

/* Digits up to `end`, which is where the number must stop; false on anything else. */
static bool parse_u64(const char *text, char end, uint64_t *out_value, const char **out_rest)
{
    uint64_t value = 0;
    size_t n_digits = 0;
    for (; text[n_digits] >= '0' && text[n_digits] <= '9'; n_digits++) {
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[n_digits] - '0'), &value)) {
            return false;
        }
    }
    if (n_digits == 0 || n_digits > 20 || text[n_digits] != end) {
        return false;
    }
    *out_value = value;
    *out_rest = text + n_digits + (end != '\0');
    return true;
}

dunlin_status dunlin__header_u64(const char *name, const char *value, uint64_t *out_value,
                                 dunlin_error *error)
{
    const char *rest = NULL;
    *out_value = 0;
    if (value == NULL) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "header", 0, "the header %s is missing", name);
    }
    if (!parse_u64(value, '\0', out_value, &rest)) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "header", 0,
                            "the header %s is not a decimal number below 2^64", name);
    }
    return DUNLIN_OK;
}

static dunlin_status check_range(const dunlin__chunk_range *range, dunlin_error *error)
{
    if (range->total_bytes < 1 || range->total_bytes > DUNLIN_WIRE_CHUNK_MAX_BYTES) {
        return dunlin__fail(error, DUNLIN_LIMIT, "header", 0,
                            "Content-Range: a chunk of %llu bytes, 1 to %u are allowed",
                            (unsigned long long)range->total_bytes, DUNLIN_WIRE_CHUNK_MAX_BYTES);
    }
    if (range->offset >= range->total_bytes || range->n_bytes < 1 ||
        range->n_bytes > range->total_bytes - range->offset) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "header", 0,
                            "Content-Range: %llu bytes at %llu do not lie within %llu",
                            (unsigned long long)range->n_bytes, (unsigned long long)range->offset,
                            (unsigned long long)range->total_bytes);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__chunk_range_format(const dunlin__chunk_range *range,
                                         char out_value[DUNLIN_WIRE_RANGE_BYTES],
                                         dunlin_error *error)
{
    out_value[0] = '\0';
    DUNLIN_TRY(check_range(range, error));
    (void)snprintf(out_value, DUNLIN_WIRE_RANGE_BYTES, "bytes %llu-%llu/%llu",
                   (unsigned long long)range->offset,
                   (unsigned long long)(range->offset + range->n_bytes - 1),
                   (unsigned long long)range->total_bytes);
    return DUNLIN_OK;
}

dunlin_status dunlin__chunk_range_parse(const char *value, dunlin__chunk_range *out_range,
                                        dunlin_error *error)
{
    uint64_t first = 0;
    uint64_t last = 0;
    uint64_t total = 0;
    *out_range = (dunlin__chunk_range){0};
    const char *rest = skip_prefix(value, "bytes ");
    if (rest == NULL || !parse_u64(rest, '-', &first, &rest) ||
        !parse_u64(rest, '/', &last, &rest) || !parse_u64(rest, '\0', &total, &rest) ||
        last < first || last == UINT64_MAX) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "header", 0,
                            "Content-Range is not \"bytes FIRST-LAST/TOTAL\"");
    }
    dunlin__chunk_range range = {
        .offset = first, .n_bytes = last - first + 1, .total_bytes = total};
    DUNLIN_TRY(check_range(&range, error));
    *out_range = range;
    return DUNLIN_OK;
}
