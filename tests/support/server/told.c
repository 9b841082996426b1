/*
 * told.c - what a fixture's server tells of itself.
 */
#include "told.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

json_t *test_status(test_server *fixture)
{
    char *text = dunlin__server_status_text(&fixture->server);
    cr_assert_not_null(text);
    json_t *status = json_loads(text, 0, NULL);
    free(text);
    cr_assert_not_null(status);
    return status;
}

void test_expect_in_status(test_server *fixture, const char *words)
{
    char *text = dunlin__server_status_text(&fixture->server);
    cr_assert_not_null(text);
    cr_expect_not_null(strstr(text, words), "%s is not in %s", words, text);
    free(text);
}
