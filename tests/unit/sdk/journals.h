/*
 * journals.h - journals with a value in every field, and their comparison.
 */
#ifndef DUNLIN_TESTS_JOURNALS_H
#define DUNLIN_TESTS_JOURNALS_H

#include "session/journal.h"

/* Another journal for another `with`. */
void test_journal_fill(dunlin__journal *journal, uint8_t with);
void test_journal_expect_same(const dunlin__journal *a, const dunlin__journal *b);

#endif
