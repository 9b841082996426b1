/*
 * object.c - sets the members of JSON objects.
 */
#include "object.h"

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
    (void)json_object_set_new(object, key, text == NULL ? json_null() : json_string(text));
}

void object_flag(json_t *object, const char *key, bool is_set)
{
    (void)json_object_set_new(object, key, json_boolean(is_set));
}
