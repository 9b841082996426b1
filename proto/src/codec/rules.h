/*
 * rules.h - the rules for a message's fields; a broken one is reported with message, field and
 * limit.
 *
 * A `rules` remembers the first broken rule and lets all later ones pass, so that a message's check
 * is a plain list. Strings are judged within the room their struct gives them.
 */
#ifndef DUNLIN_PROTO_RULES_H
#define DUNLIN_PROTO_RULES_H

#include <wire/messages.h>

typedef struct dunlin__rules {
    const char *message; /* "CheckinResponse" */
    bool is_decoded;     /* bytes of the other side: nothing may follow a string's end */
    dunlin_error *error;
    dunlin_status status;
    char place[48]; /* "offers[2]." while within a part */
} dunlin__rules;

/* Fails the message: "CheckinResponse: offers[2].task ..." */
void dunlin__rules_break(dunlin__rules *rules, const char *field, const char *format, ...)
    DUNLIN_PRINTF(3, 4);

/* Names the part the following fields are in; leave goes back to the message itself. */
void dunlin__rules_enter(dunlin__rules *rules, const char *part);
void dunlin__rules_enter_item(dunlin__rules *rules, const char *list, unsigned index);
void dunlin__rules_leave(dunlin__rules *rules);

void dunlin__rule_true(dunlin__rules *rules, const char *field, bool is_kept, const char *rule);
void dunlin__rule_number(dunlin__rules *rules, const char *field, uint64_t value, uint64_t min,
                         uint64_t max);
void dunlin__rule_real(dunlin__rules *rules, const char *field, double value, double min,
                       double max);
/* Finite, nothing more. */
void dunlin__rule_finite(dunlin__rules *rules, const char *field, double value);
/* Letters, digits, - _ . ~; `min_chars` 0 lets it be empty. */
void dunlin__rule_id(dunlin__rules *rules, const char *field, const char *value, size_t room,
                     size_t min_chars);
/* UTF-8 without control characters, or empty. */
void dunlin__rule_text(dunlin__rules *rules, const char *field, const char *value, size_t room);
/* A byte field of fixed length that must be there: not all zero. */
void dunlin__rule_given(dunlin__rules *rules, const char *field, const uint8_t *bytes,
                        size_t n_bytes);
/* A window that must be there and be in order. */
void dunlin__rule_window(dunlin__rules *rules, const char *field, bool has_window,
                         const dunlin__window *window);
/* A list within its room; false (and broken) if its items must not be looked at. */
bool dunlin__rule_count(dunlin__rules *rules, const char *field, size_t count, size_t min,
                        size_t max);

bool dunlin__bytes_are_zero(const uint8_t *bytes, size_t n_bytes);

#endif
