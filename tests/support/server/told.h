/*
 * told.h - what a fixture's server tells of itself, for tests.
 */
#ifndef DUNLIN_TEST_TOLD_H
#define DUNLIN_TEST_TOLD_H

#include "device.h"

#include <jansson.h>

/* The status; the caller's, by json_decref(). */
json_t *test_status(test_server *fixture);
/* `words` stand in its text. */
void test_expect_in_status(test_server *fixture, const char *words);

#endif
