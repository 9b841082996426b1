/*
 * rules.c - the rules a message's fields keep. The first broken rule is reported.
 */
#include "rules.h"

#include <mem/support.h>

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void dunlin__rules_break(dunlin__rules *rules, const char *field, const char *format, ...)
{
    if (rules->status != DUNLIN_OK) {
        return;
    }
    char reason[DUNLIN_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    rules->status = dunlin__fail(rules->error, DUNLIN_PROTOCOL, "message", 0, "%s: %s%s %s",
                                 rules->message, rules->place, field, reason);
}

void dunlin__rules_enter(dunlin__rules *rules, const char *part)
{
    (void)snprintf(rules->place, sizeof(rules->place), "%s.", part);
}

void dunlin__rules_enter_item(dunlin__rules *rules, const char *list, unsigned index)
{
    (void)snprintf(rules->place, sizeof(rules->place), "%s[%u].", list, index);
}

void dunlin__rules_leave(dunlin__rules *rules)
{
    rules->place[0] = '\0';
}

void dunlin__rule_true(dunlin__rules *rules, const char *field, bool is_kept, const char *rule)
{
    if (!is_kept) {
        dunlin__rules_break(rules, field, "%s", rule);
    }
}

void dunlin__rule_number(dunlin__rules *rules, const char *field, uint64_t value, uint64_t min,
                         uint64_t max)
{
    if (value < min || value > max) {
        dunlin__rules_break(rules, field, "is %llu, allowed are %llu to %llu",
                            (unsigned long long)value, (unsigned long long)min,
                            (unsigned long long)max);
    }
}

void dunlin__rule_real(dunlin__rules *rules, const char *field, double value, double min,
                       double max)
{
    if (!(value >= min && value <= max)) { /* also false for a NaN */
        dunlin__rules_break(rules, field, "is %g, allowed are %g to %g", value, min, max);
    }
}

void dunlin__rule_finite(dunlin__rules *rules, const char *field, double value)
{
    if (!isfinite(value)) {
        dunlin__rules_break(rules, field, "is not a finite number");
    }
}

/* Whether the string ends within its room, and, if it came from outside, nothing follows its end.
 */
static bool string_ends(dunlin__rules *rules, const char *field, const char *value, size_t room)
{
    const char *end = memchr(value, '\0', room);
    if (end == NULL) {
        dunlin__rules_break(rules, field, "is longer than %zu bytes", room - 1);
        return false;
    }
    size_t n_left = room - (size_t)(end - value);
    if (rules->is_decoded && !dunlin__bytes_are_zero((const uint8_t *)end, n_left)) {
        dunlin__rules_break(rules, field, "has a zero byte within");
        return false;
    }
    return true;
}

void dunlin__rule_id(dunlin__rules *rules, const char *field, const char *value, size_t room,
                     size_t min_chars)
{
    if (!string_ends(rules, field, value, room)) {
        return;
    }
    if (value[0] == '\0') {
        if (min_chars > 0) {
            dunlin__rules_break(rules, field, "is missing");
        }
        return;
    }
    if (!dunlin__token_is_valid(value, min_chars, room - 1)) {
        dunlin__rules_break(rules, field, "is not %zu to %zu letters, digits, - _ . ~", min_chars,
                            room - 1);
    }
}

void dunlin__rule_text(dunlin__rules *rules, const char *field, const char *value, size_t room)
{
    if (!string_ends(rules, field, value, room) || value[0] == '\0') {
        return;
    }
    if (!dunlin__text_is_valid(value, room - 1)) {
        dunlin__rules_break(rules, field, "is not UTF-8 or holds control characters");
    }
}

void dunlin__rule_given(dunlin__rules *rules, const char *field, const uint8_t *bytes,
                        size_t n_bytes)
{
    if (dunlin__bytes_are_zero(bytes, n_bytes)) {
        dunlin__rules_break(rules, field, "is missing");
    }
}

void dunlin__rule_window(dunlin__rules *rules, const char *field, bool has_window,
                         const dunlin__window *window)
{
    if (!has_window) {
        dunlin__rules_break(rules, field, "is missing");
    } else if (window->min_ms > window->max_ms || window->max_ms > DUNLIN_WIRE_MAX_WAIT_MS) {
        dunlin__rules_break(rules, field, "is %llu to %llu ms, not in order below %llu ms",
                            (unsigned long long)window->min_ms, (unsigned long long)window->max_ms,
                            DUNLIN_WIRE_MAX_WAIT_MS);
    }
}

bool dunlin__rule_count(dunlin__rules *rules, const char *field, size_t count, size_t min,
                        size_t max)
{
    if (count >= min && count <= max) {
        return true;
    }
    dunlin__rules_break(rules, field, "has %zu items, allowed are %zu to %zu", count, min, max);
    return false;
}

bool dunlin__bytes_are_zero(const uint8_t *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}
