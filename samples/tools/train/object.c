/*
 * object.c - sets the members of JSON objects.
 */
#include "object.h"

#include <string.h>

#define OBJECT_TEXT_BYTES 512

void object_bytes(json_t *object, const char *key, uint64_t bytes)
{
    (void)json_object_set_new(object, key, json_integer((json_int_t)bytes));
}

void object_number(json_t *object, const char *key, int64_t number)
{
    (void)json_object_set_new(object, key, json_integer(number));
}

void object_real(json_t *object, const char *key, double number)
{
    /* What is not finite is no JSON number: it becomes null. */
    json_t *value = json_real(number);
    (void)json_object_set_new(object, key, value == NULL ? json_null() : value);
}

void object_text(json_t *object, const char *key, const char *text)
{
    json_t *value = text == NULL ? json_null() : json_string(text);
    /* Not UTF-8, or cut within a letter. */
    if (value == NULL && text != NULL && strlen(text) < OBJECT_TEXT_BYTES) {
        char plain[OBJECT_TEXT_BYTES];
        size_t n = 0;
        for (; text[n] != '\0'; n++) {
            plain[n] = (char)((signed char)text[n] < 0 ? '?' : text[n]);
        }
        plain[n] = '\0';
        value = json_string(plain);
    }
    (void)json_object_set_new(object, key, value == NULL ? json_null() : value);
}

void object_flag(json_t *object, const char *key, bool is_set)
{
    (void)json_object_set_new(object, key, json_boolean(is_set));
}
