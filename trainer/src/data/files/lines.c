/*
 * lines.c - lines and fields of text files.
 *
 * Invariant: no more than one line is held, and it ends with 0 inside its array whatever the file
 * says.
 */
#include "lines.h"

#include <mem/support.h>

#include <float.h>
#include <inttypes.h>
#include <string.h>

#define MOST_DIGITS 19      /* of a decimal number that fits 64 bits */
#define EXPONENT_LIMIT 1000 /* beyond it a number is 0 or too large */
#define EXACT_POWER 22      /* the largest power of ten that is exact in double */

void dunlin__lines_begin(dunlin_lines *lines, dunlin_bytes *bytes)
{
    lines->bytes = bytes;
    lines->number = 0;
    lines->is_after_cr = false;
    lines->at = 0;
    lines->n_chunk = 0;
    lines->text[0] = '\0';
}

/* The next byte; *out_has is false at the end of the file. */
static inline dunlin_status next_byte(dunlin_lines *lines, uint8_t *out_byte, bool *out_has,
                                      dunlin_error *error)
{
    if (lines->at == lines->n_chunk) {
        lines->at = 0;
        DUNLIN_TRY(dunlin__bytes_read_some(lines->bytes, lines->chunk, sizeof lines->chunk,
                                           &lines->n_chunk, error));
    }
    *out_has = lines->at < lines->n_chunk;
    if (*out_has) {
        *out_byte = lines->chunk[lines->at];
        lines->at++;
    }
    return DUNLIN_OK;
}

static void drop_mark(dunlin_lines *lines, size_t *n)
{
    static const char mark[] = {'\xEF', '\xBB', '\xBF'};
    if (lines->number == 1 && *n >= sizeof mark && memcmp(lines->text, mark, sizeof mark) == 0) {
        *n -= sizeof mark;
        memmove(lines->text, lines->text + sizeof mark, *n);
    }
}

dunlin_status dunlin__lines_next(dunlin_lines *lines, bool *out_has, dunlin_error *error)
{
    size_t n = 0;
    bool has_any = false;
    lines->number++;
    for (;;) {
        uint8_t byte = 0;
        bool has_byte = false;
        DUNLIN_TRY(next_byte(lines, &byte, &has_byte, error));
        const bool is_second = lines->is_after_cr && byte == '\n';
        lines->is_after_cr = false;
        if (has_byte && is_second) {
            continue;
        }
        if (!has_byte || byte == '\n' || byte == '\r') {
            has_any = has_any || has_byte;
            lines->is_after_cr = has_byte && byte == '\r';
            break;
        }
        has_any = true;
        if (byte < ' ' && byte != '\t') {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%s:%" PRId64 ": not text: byte 0x%02x after %zu bytes of the line",
                                lines->bytes->name, lines->number, byte, n);
        }
        if (n == DUNLIN_LINE_BYTES) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%s:%" PRId64 ": a line too long: the limit is %d bytes",
                                lines->bytes->name, lines->number, DUNLIN_LINE_BYTES);
        }
        lines->text[n] = (char)byte;
        n++;
    }
    drop_mark(lines, &n);
    lines->text[n] = '\0';
    *out_has = has_any;
    return DUNLIN_OK;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

bool dunlin__line_is_blank(const char *text)
{
    while (is_space(*text)) {
        text++;
    }
    return *text == '\0';
}

bool dunlin__field_next(char **at, char **out_field)
{
    char *from = *at;
    if (from == NULL) {
        return false;
    }
    while (is_space(*from)) {
        from++;
    }
    const char quote = *from == '"' || *from == '\'' ? *from : '\0';
    char *closing = quote == '\0' ? NULL : strchr(from + 1, quote);
    char *end = closing == NULL ? from : closing + 1;
    end += strcspn(end, ",");
    *at = *end == ',' ? end + 1 : NULL;
    while (end > from && is_space(end[-1])) {
        end--;
    }
    *end = '\0';
    if (closing != NULL && end == closing + 1) {
        *closing = '\0';
        from++;
    }
    *out_field = from;
    return true;
}

static double times_power(double value, int32_t power)
{
    static const double tens[EXACT_POWER + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                 1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    for (; power > EXACT_POWER; power -= EXACT_POWER) {
        value *= tens[EXACT_POWER];
    }
    for (; power < -EXACT_POWER; power += EXACT_POWER) {
        value /= tens[EXACT_POWER];
    }
    return power < 0 ? value / tens[-power] : value * tens[power];
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits and a point: a whole number, and the power of ten it is to be multiplied with. */
static const char *read_digits(const char *at, uint64_t *out_digits, int32_t *out_power,
                               bool *out_has_digits)
{
    int32_t n_kept = 0;
    bool is_behind_point = false;
    *out_digits = 0;
    *out_power = 0;
    *out_has_digits = false;
    for (; is_digit(*at) || (*at == '.' && !is_behind_point); at++) {
        if (*at == '.') {
            is_behind_point = true;
            continue;
        }
        *out_has_digits = true;
        const bool is_kept = n_kept < MOST_DIGITS;
        if (is_kept) {
            *out_digits = *out_digits * 10 + (uint64_t)(*at - '0');
            n_kept += *out_digits > 0 ? 1 : 0;
        }
        *out_power += (is_kept ? 0 : 1) - (is_behind_point ? 1 : 0);
    }
    return at;
}

static bool read_number(const char *field, double most, double *out_value)
{
    const bool is_negative = *field == '-';
    const char *at = field + (*field == '-' || *field == '+' ? 1 : 0);
    uint64_t digits = 0;
    int32_t power = 0;
    bool has_digits = false;
    at = read_digits(at, &digits, &power, &has_digits);
    if (has_digits && (*at == 'e' || *at == 'E')) {
        at++;
        const int32_t sign = *at == '-' ? -1 : 1;
        at += *at == '-' || *at == '+' ? 1 : 0;
        has_digits = is_digit(*at);
        int32_t exponent = 0;
        for (; is_digit(*at); at++) {
            exponent = exponent < EXPONENT_LIMIT ? exponent * 10 + (*at - '0') : exponent;
        }
        power += sign * exponent;
    }
    if (!has_digits || *at != '\0') {
        return false;
    }
    const double value = digits == 0 ? 0.0 : times_power((double)digits, power);
    *out_value = is_negative ? -value : value;
    return value <= most;
}

bool dunlin__field_number(const char *field, double *out_value)
{
    return read_number(field, DUNLIN_FIELD_MOST, out_value);
}

bool dunlin__field_real(const char *field, double *out_value)
{
    return read_number(field, (double)FLT_MAX, out_value);
}

bool dunlin__field_whole(const char *field, int64_t low, int64_t high, int64_t *out_value)
{
    int64_t value = 0;
    const char *at = field;
    for (; is_digit(*at) && value <= high; at++) {
        if (value > (INT64_MAX - 9) / 10) {
            return false;
        }
        value = value * 10 + (*at - '0');
    }
    *out_value = value;
    return at != field && *at == '\0' && value >= low && value <= high;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool dunlin__field_is(const char *field, const char *word)
{
    while (*field != '\0' && lower(*field) == lower(*word)) {
        field++;
        word++;
    }
    return *field == *word;
}

const char *dunlin__field_quote(const char *field, char out[DUNLIN_FIELD_QUOTED])
{
    size_t n = 0;
    for (; field[n] != '\0' && n + 1 < DUNLIN_FIELD_QUOTED; n++) {
        out[n] = field[n] < ' ' || field[n] > '~' ? '?' : field[n];
    }
    out[n] = '\0';
    return out;
}
