/*
 * question.h - questions as a text, "KEY=VALUE,KEY=VALUE": its parts, and numbers in them.
 */
#ifndef DUNLIN_SERVER_QUESTION_H
#define DUNLIN_SERVER_QUESTION_H

#include <dunlin/base.h>

#include <stdint.h>

#define DUNLIN_QUESTION_WORD_BYTES 128u /* of one part, with the ending 0 */

/* Takes one part, whose value may be cut up; false: it cannot be read. */
typedef bool (*dunlin__question_fn)(void *ctx, const char *key, char *value);

/** Hands each part to `take_fn`, in order. @return NULL; or the part that cannot be read, which
 * goes on to the end of the text. */
const char *dunlin__question_read(const char *text, dunlin__question_fn take_fn, void *ctx);

/** @return how many characters of the part that begins here are to be shown. */
int dunlin__question_shown(const char *part);

/** @return true if all of the text is one number of up to 49 characters, in digits of ten. */
bool dunlin__question_real(const char *text, double *out_value);

/** @return true if all of the text is one whole number of up to 18 digits. */
bool dunlin__question_whole(const char *text, uint64_t *out_value);

#endif
