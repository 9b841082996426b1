/*
 * names.c - encodes the names of a certificate, and compares a certificate with them.
 *
 * Invariant: an address that stands for all addresses is never a name.
 */
#include "names.h"

#include <mem/support.h>

#include <arpa/inet.h>
#include <string.h>

#define TAG_DNS 0x82
#define TAG_ADDRESS 0x87
#define MOST_NAME 253u /* characters of a host name (RFC 1035) */

typedef struct list {
    uint8_t bytes[DUNLIN_SERVER_SAN_BYTES - 4]; /* four are for the head */
    size_t n_bytes;
} list;

/* Appends an entry unless it is there. A host name can be 253 bytes long, so the length takes two
 * bytes from 128 on (DER). */
static dunlin_status add(list *names, uint8_t tag, const void *bytes, size_t n_bytes,
                         dunlin_error *error)
{
    uint8_t entry[MOST_NAME + 3] = {tag};
    size_t n = 1;
    if (n_bytes >= 128) {
        entry[n++] = 0x81;
    }
    entry[n++] = (uint8_t)n_bytes;
    memcpy(entry + n, bytes, n_bytes);
    n += n_bytes;
    for (size_t i = 0; i + n <= names->n_bytes; i++) {
        if (memcmp(names->bytes + i, entry, n) == 0) {
            return DUNLIN_OK;
        }
    }
    if (n > sizeof names->bytes - names->n_bytes) {
        return dunlin__fail(error, DUNLIN_LIMIT, "certs", 0,
                            "--name: the names take more than %zu bytes together",
                            sizeof names->bytes);
    }
    memcpy(names->bytes + names->n_bytes, entry, n);
    names->n_bytes += n;
    return DUNLIN_OK;
}

static bool is_host_name(const char *name)
{
    size_t n = strlen(name);
    size_t n_label = 0;
    const char *rest = strncmp(name, "*.", 2) == 0 ? name + 2 : name;
    for (const char *c = rest; *c != 0; c++) {
        bool is_letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
        bool is_digit = *c >= '0' && *c <= '9';
        if (*c == '.' ? n_label == 0 : !(is_letter || is_digit || *c == '-')) {
            return false;
        }
        n_label = *c == '.' ? 0 : n_label + 1;
        if (n_label > 63) {
            return false;
        }
    }
    return n > 0 && n <= MOST_NAME && n_label > 0;
}

/* A numeric address or a host name. */
static dunlin_status add_name(list *names, const char *name, dunlin_error *error)
{
    static const uint8_t nothing[16] = {0};
    uint8_t address[16];
    size_t n_bytes = 0;
    if (inet_pton(AF_INET, name, address) == 1) {
        n_bytes = 4;
    } else if (inet_pton(AF_INET6, name, address) == 1) {
        n_bytes = 16;
    }
    if (n_bytes > 0 && memcmp(address, nothing, n_bytes) == 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "certs", 0,
                            "--name %.60s: stands for all addresses; clients need one of them or "
                            "a host name",
                            name);
    }
    if (n_bytes > 0) {
        return add(names, TAG_ADDRESS, address, n_bytes, error);
    }
    if (!is_host_name(name)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "certs", 0,
                            "--name %.100s: wants a host name or a numeric address, without port",
                            name);
    }
    return add(names, TAG_DNS, name, strlen(name), error);
}

static bool is_any(const char *host)
{
    static const uint8_t nothing[16] = {0};
    uint8_t address[16];
    return (inet_pton(AF_INET, host, address) == 1 && memcmp(address, nothing, 4) == 0) ||
           (inet_pton(AF_INET6, host, address) == 1 && memcmp(address, nothing, 16) == 0);
}

dunlin_status dunlin__server_names_encode(const dunlin__server_certs_wish *wish,
                                          uint8_t out_der[DUNLIN_SERVER_SAN_BYTES],
                                          size_t *out_n_bytes, dunlin_error *error)
{
    static const char *const always[] = {"localhost", "127.0.0.1", "::1"};
    list names = {.n_bytes = 0};
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++) {
        DUNLIN_TRY(add_name(&names, always[i], error));
    }
    if (!is_any(wish->host)) {
        DUNLIN_TRY(add_name(&names, wish->host, error));
    }
    for (uint32_t i = 0; i < wish->n_names; i++) {
        DUNLIN_TRY(add_name(&names, wish->names[i], error));
    }
    size_t n_head = 0;
    out_der[n_head++] = 0x30;
    if (names.n_bytes >= 256) {
        out_der[n_head++] = 0x82;
        out_der[n_head++] = (uint8_t)(names.n_bytes >> 8);
    } else if (names.n_bytes >= 128) {
        out_der[n_head++] = 0x81;
    }
    out_der[n_head++] = (uint8_t)names.n_bytes;
    memcpy(out_der + n_head, names.bytes, names.n_bytes);
    *out_n_bytes = n_head + names.n_bytes;
    return DUNLIN_OK;
}

/* Days from 1970 to a date of the Gregorian calendar (Hinnant's days_from_civil). */
static int64_t days_to(int year, int month, int day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = y / 400;
    int64_t year_of_era = y - era * 400;
    int64_t month_from_march = month > 2 ? month - 3 : month + 9;
    int64_t day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year -
           719468;
}

int64_t dunlin__server_leaf_end(const mbedtls_x509_crt *leaf)
{
    const mbedtls_x509_time *end = &leaf->valid_to;
    return days_to(end->year, end->mon, end->day) * 86400 + end->hour * 3600 + end->min * 60 +
           end->sec;
}

bool dunlin__server_leaf_is_current(const mbedtls_x509_crt *leaf, const uint8_t *der,
                                    size_t n_bytes, int64_t until_s)
{
    bool has_names = n_bytes == 0;
    for (size_t i = 0; i + n_bytes <= leaf->v3_ext.len && !has_names; i++) {
        has_names = memcmp(leaf->v3_ext.p + i, der, n_bytes) == 0;
    }
    return has_names && dunlin__server_leaf_end(leaf) > until_s;
}
